"""The environments of one worker, and what one request does with them; the same code in a child and in process.

Rules of this file:

1. One environment's exception, of whatever class, stops neither its neighbours nor the request: it is captured, and
   the rest goes on. ``SystemExit`` is not captured: ``sys.exit`` ends the process.
2. What happens at every step is bound once (:meth:`EnvGroup.bind`): a step looks nothing up.
3. Results go into the exchange. What has no place there (infos, pickled observations, results of calls) is returned,
   and is None in the common case that there is nothing. Infos are those of their own moment: environments may use one
   dict again and again, and even share it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from gymnasium import Env

from .batches import exact_row, rows_reader, survives
from .compat import AutoresetMode
from .env_fns import check_distinct, check_env
from .exchange import Exchange
from .failures import Failure, capture
from .info_columns import ColumnWriter
from .infos import snapshot
from .ordering import store_fence
from .reply import ALL_IN_COLUMNS, RESTARTED, Reply
from .returned import as_number, as_pair, checked_info, worded
from .row_writer import plain_row, row_writer

__all__ = ["EnvGroup"]

#: How a row is written: the row itself, where that is a mere store (``plain_row``; else None), and what can do it all.
_Row: TypeAlias = tuple[Any, Callable[[Any], None]]

# There already: for every environment at every step, looking one up and making the other would show.
_ndarray: Final = np.ndarray
_WHOLE: Final = slice(None)


class EnvGroup:
    """Environments of a vector environment, from index ``start`` on.

    Args:
        start: Index of the first.
        autoreset_mode: What happens after the end of an episode.
        to_failure: Makes a failure of the index of an environment and what it raised.

    Attributes:
        building: Index of the environment that was built or recovered last, or failed to be.
        count_turns: Counts the turns that are done, of all groups.
    """

    def __init__(
        self,
        start: int,
        autoreset_mode: AutoresetMode,
        to_failure: Callable[[int, BaseException], Failure] = capture,
    ) -> None:
        """Has no environments yet."""
        self.start, self.autoreset_mode, self._to_failure = start, autoreset_mode, to_failure
        self.envs: list[Env[Any, Any]] = []
        self.building = start

    def build(self, env_fns: Sequence[Callable[[], Env[Any, Any]]]) -> None:
        """Creates the environments, each by one call; if one fails, those before it are closed."""
        start = self.start
        try:
            for self.building, env_fn in enumerate(env_fns, start):
                self.envs.append(env_fn())
                check_env(self.envs[-1], self.building)
            check_distinct(self.envs, start)
        except BaseException:
            self.close()  # what failed first is what has to be told
            raise
        self.indices = range(start, start + len(self.envs))
        self._observations: list[Any] = [None] * len(self.envs)
        self._lost: set[int] = set()

    def bind(self, exchange: Exchange) -> None:
        """Takes the arrays through which observations, actions, rewards and ends of episodes go."""
        self._exchange = exchange
        terms, indices = exchange.terms, self.indices
        own = slice(indices.start, indices.stop)
        self._pickles_observations = terms.observation_space is None
        self._numbers = range(len(self.envs))
        self._steps: list[Callable[..., Any]] = [env.step for env in self.envs]
        self._rewards: list[Any] = [rewards[own].data for rewards in exchange.rewards]
        self._terminations = [ends[own].data for ends in exchange.terminations]
        self._truncations = [ends[own].data for ends in exchange.truncations]
        self._columns = ColumnWriter(exchange, indices)
        self._has_ends = [True] * terms.slots  # of a process before this one, perhaps
        self._no_ends, self._no_rewards = (np.zeros(len(self.envs), dtype).data for dtype in (np.bool_, np.float64))
        self._actions = [
            rows_reader(terms.action_space, memory, indices.start, indices.stop)
            for memory in exchange.actions
            if terms.action_space is not None
        ]
        self.count_turns = exchange.count_turns
        self._turns_asked: Any = exchange.turns_asked[own].data
        self._turns_done: Any = exchange.turns_done[own].data
        self._single_actions = [
            rows_reader(terms.action_space, exchange.actions[0], i, i + 1)
            for i in indices
            if terms.action_space is not None
        ]
        self._rows: list[list[_Row] | None] = [None] * terms.slots
        self._final_writers: list[Callable[[Any], None]] = []
        if exchange.final_observations is not None and terms.observation_space is not None:
            final = exchange.final_observations
            self._final_writers = [row_writer(terms.observation_space, final, i) for i in indices]

    def step(self, slot: int, actions: Sequence[Any] | None = None) -> Reply | None:
        """Steps every environment, or resets it where its last episode ended and the mode says so.

        Args:
            slot: Where the results go.
            actions: One per environment, where they do not stand in the exchange.
        """
        if actions is None:
            actions = self._actions[slot]()
        if self._has_ends[slot]:
            self._has_ends[slot] = False
            self._terminations[slot][:] = self._truncations[slot][:] = self._no_ends
        rows = self._rows[slot] or self._bind_rows(slot)
        in_columns: list[int] = []
        reply = self._step(slot, self._numbers, self._steps, rows, actions, in_columns)
        if reply is not None and reply.schema is not None:
            self._columns.adopt(reply.schema)
        if self._pickles_observations:
            reply = reply if reply is not None else Reply()
            reply.observations = list(self._observations)
        if in_columns:
            if not reply and len(in_columns) == len(self.envs):
                return ALL_IN_COLUMNS
            reply = reply if reply is not None else Reply()
            reply.in_columns = in_columns
        return reply or None

    def _step(
        self,
        slot: int,
        numbers: Sequence[int],
        steps: Sequence[Callable[..., Any]],
        rows: Sequence[_Row],
        actions: Sequence[Any],
        in_columns: list[int] | None,
    ) -> Reply | None:
        """Steps the environments ``numbers``; notes in ``in_columns``, if given, whose infos stand in columns."""
        rewards = self._rewards[slot]
        reply: Reply | None = None
        # Unchecked: they are as long as each other, and this is the hot loop.
        for i, step, (row, write), action in zip(numbers, steps, rows, actions):  # noqa: B905
            try:
                observation, reward, terminated, truncated, info = step(action)
                # A memoryview stores at half the price of an array's item.
                rewards[i] = reward if type(reward) is float else as_number(reward)
                if terminated or truncated:
                    reply = reply if reply is not None else Reply()
                    observation, info = self._end_episode(i, slot, observation, terminated, truncated, info, reply)
                if row is not None and type(observation) is _ndarray:
                    try:
                        row[_WHOLE] = observation  # at half the price of the call
                    except ValueError:  # another dtype or shape
                        write(observation)
                else:
                    write(observation)
                if type(info) is not dict or info:
                    if in_columns is not None and type(info) is dict and self._columns.store(i, info):
                        in_columns.append(self.start + i)
                    else:
                        reply = reply if reply is not None else Reply()
                        reply.infos.append((self.start + i, snapshot(checked_info(info))))
                        if in_columns is not None:
                            reply.schema = self._columns.propose(info) or reply.schema
            except SystemExit:
                raise
            except BaseException as error:
                reply = reply if reply is not None else Reply()
                reply.failures.append(self._failed(i, error, "step()"))
                rewards[i] = 0.0
                self._show_as_before(i, slot)
        return reply

    def turns(
        self,
        resets: tuple[Sequence[int | None], dict[str, Any] | None, Sequence[bool]] | None,
        interrupted: Callable[[], bool],
    ) -> Iterator[tuple[int, Reply | None]]:
        """Serves every environment that is asked, round and round, until none is; :meth:`end_turn` has to follow each.

        Args:
            resets: Seeds (one per environment), options, and of which environments the first turn is a reset.
            interrupted: Whether what is asked now is no step any more; looked at after seeing that something is asked.

        Yields:
            The environment's number in this group, and what there is to tell.
        """
        rows = self._rows[0] or self._bind_rows(0)
        if resets is not None:
            seeds, options, chosen = resets
            for i in self._numbers:
                if not chosen[i]:
                    continue
                self._terminations[0][i] = self._truncations[0][i] = False
                self._rewards[0][i] = 0.0
                mask = [number == i for number in self._numbers]
                yield i, self._reset_chosen(0, seeds, options, mask) or None
        asked, done = self._turns_asked, self._turns_done
        waiting = True
        while waiting:
            waiting = False
            for i in self._numbers:
                if asked[i] != done[i] >> 1:
                    store_fence()
                    if interrupted():
                        return
                    waiting = True
                    self._terminations[0][i] = self._truncations[0][i] = False
                    action = self._single_actions[i]()
                    yield i, self._step(0, (i,), (self._steps[i],), (rows[i],), action, None) or None

    def fail_turns(self, error: BaseException) -> Iterator[tuple[int, Reply]]:
        """As :meth:`turns`, once for every environment that is asked: ``error`` came before it could be told what."""
        for i in self._numbers:
            if self._turns_asked[i] != self._turns_done[i] >> 1:
                reply = Reply()
                reply.failures.append(self._to_failure(self.start + i, error))
                yield i, reply

    def end_turn(self, i: int, payload_follows: bool) -> None:
        """Marks the turn of environment number ``i`` of this group as done."""
        store_fence()
        self._turns_done[i] = self._turns_asked[i] << 1 | payload_follows

    def reset(
        self, slot: int, seeds: Sequence[int | None], options: dict[str, Any] | None, mask: Sequence[bool]
    ) -> Reply:
        """Resets the environments that ``mask`` marks. No environment's row tells of a step any more.

        Args:
            slot: Where the observations go.
            seeds: One per environment.
            options: Handed to each environment as a copy of its own.
            mask: One per environment.
        """
        self._rewards[slot][:] = self._no_rewards
        self._terminations[slot][:] = self._truncations[slot][:] = self._no_ends
        return self._reset_chosen(slot, seeds, options, mask)

    def _reset_chosen(
        self, slot: int, seeds: Sequence[int | None], options: dict[str, Any] | None, mask: Sequence[bool]
    ) -> Reply:
        reply = Reply()
        rows = self._rows[slot] or self._bind_rows(slot)
        for i, env in enumerate(self.envs):
            if not mask[i]:
                continue
            try:
                observation, info = self._reset(i, seed=seeds[i], options=_own(options))
                write = rows[i][1]
                write(observation)
                self._steps[i] = env.step
                if i in self._lost:
                    self._lost.discard(i)
                    info = {**checked_info(info), RESTARTED: True}
                if type(info) is not dict or info:
                    reply.infos.append((self.start + i, snapshot(checked_info(info))))
            except SystemExit:
                raise
            except BaseException as error:
                reply.failures.append(self._failed(i, error, "reset()"))
                self._show_as_before(i, slot)
        if self._pickles_observations:
            reply.observations = list(self._observations)
        return reply

    def recover(self, slot: int, seeds: Sequence[int | None], observations: Sequence[Any] | None) -> None:
        """Takes up from environments whose process died: resets these, and tells of the loss in their next step.

        That step ends the episode as truncated, with the observation that was seen last; its info says
        ``worker_restarted``.

        Args:
            slot: Where the observations stand that were seen last.
            seeds: One per environment.
            observations: Those observations, where they travel pickled and there were some.
        """
        terms = self._exchange.terms
        for i in range(len(self.envs)):
            self.building = self.start + i
            observation, _ = self._reset(i, seed=seeds[i])
            if terms.observation_space is not None:
                observation = exact_row(terms.observation_space, self._exchange.observations[slot], self.start + i)
            elif observations is not None:
                observation = observations[i]
            self._steps[i] = self._tell_loss(i, observation)
            self._lost.add(i)

    def _tell_loss(self, i: int, observation: Any) -> Callable[[Any], Any]:
        """Stands in the place of ``step`` for the one step in which the loss of an episode is told."""

        def tell(action: Any) -> Any:
            self._steps[i] = self.envs[i].step
            self._lost.discard(i)
            return observation, 0.0, False, True, {RESTARTED: True}

        return tell

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Reply:
        """Calls a method of every environment, or gets an attribute of it."""

        def one(i: int) -> Any:
            attribute = self.envs[i].get_wrapper_attr(name)
            return attribute(*args, **kwargs) if callable(attribute) else attribute

        return self._each(one)

    def set_attr(self, name: str, values: Sequence[Any]) -> Reply:
        """Sets an attribute of every environment, to the value of its own."""
        return self._each(lambda i: self.envs[i].set_wrapper_attr(name, values[i]))

    def close(self) -> list[Failure]:
        """Closes every environment, the last one first; gives what they raised."""
        failures = []
        while self.envs:
            env = self.envs.pop()
            try:
                env.close()
            except SystemExit:
                raise
            except BaseException as error:
                failures.append(capture(self.start + len(self.envs), error))
        return failures

    def _each(self, work: Callable[[int], Any]) -> Reply:
        reply = Reply()
        reply.results = [None] * len(self.envs)
        for i in range(len(self.envs)):
            try:
                reply.results[i] = work(i)
            except SystemExit:
                raise
            except BaseException as error:
                reply.failures.append(self._to_failure(self.start + i, error))
        return reply

    def _bind_rows(self, slot: int) -> list[_Row]:
        """How the rows of ``slot`` are written, made at its first use: with many slots it would be most of start-up."""
        space = self._exchange.terms.observation_space
        rows: list[_Row]
        if space is None:
            rows = [(None, self._keeper(i)) for i in range(len(self.envs))]
        else:
            memory = self._exchange.observations[slot]
            rows = [(plain_row(space, memory, i), row_writer(space, memory, i)) for i in self.indices]
        self._rows[slot] = rows
        return rows

    def _keeper(self, i: int) -> Callable[[Any], None]:
        def keep(observation: Any) -> None:
            self._observations[i] = observation

        return keep

    def _end_episode(
        self, i: int, slot: int, observation: Any, terminated: Any, truncated: Any, info: Any, reply: Reply
    ) -> tuple[Any, Any]:
        """What the mode wants at the end of an episode; gives the observation and info that the step tells."""
        self._has_ends[slot] = True
        self._terminations[slot][i] = bool(terminated)
        self._truncations[slot][i] = bool(truncated)
        if self.autoreset_mode is AutoresetMode.NEXT_STEP:
            self._steps[i] = self._reset_instead(i)
        elif self.autoreset_mode is AutoresetMode.SAME_STEP:
            # Saved before the reset overwrites the environment's own buffer.
            space = self._exchange.terms.observation_space
            if space is not None and self._final_writers and survives(space, observation):
                self._final_writers[i](observation)
            else:
                reply.final_observations.append((self.start + i, copy.deepcopy(observation)))
            if checked_info(info):
                reply.final_infos.append((self.start + i, snapshot(info)))
            return self._reset(i)
        return observation, info

    def _reset(self, i: int, **given: Any) -> tuple[Any, Any]:
        return as_pair(self.envs[i].reset(**given), self.start + i)

    def _show_as_before(self, i: int, slot: int) -> None:
        """Has an environment that failed show in ``slot`` what was seen of it last.

        Done here, before the reply: after that, onlookers take the row for calm.
        """
        seen = self._exchange.seen_slot[0]
        if seen != slot:
            rows = np.zeros(self._exchange.terms.num_envs, np.bool_)
            rows[self.start + i] = True
            self._exchange.carry_over(seen, slot, rows)

    def _reset_instead(self, i: int) -> Callable[[Any], Any]:
        """Stands in the place of ``step`` for the one step after an episode's end."""
        env = self.envs[i]

        def reset(action: Any) -> Any:
            observation, info = self._reset(i)
            self._steps[i] = env.step
            return observation, 0.0, False, False, info

        return reset

    def _failed(self, i: int, error: BaseException, call: str) -> Failure:
        """``error`` of environment ``i``; our own complaints are worded here, where the environment is known."""
        index = self.start + i
        return self._to_failure(index, worded(error, index, call))


def _own(options: dict[str, Any] | None) -> dict[str, Any] | None:
    """``options`` for one environment alone: others have the same ones."""
    try:
        return copy.deepcopy(options)
    except Exception:  # something in it can't be copied, as a lock; in process it need not be
        return copy.copy(options)
