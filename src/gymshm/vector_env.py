"""``ShmVectorEnv``: a gymnasium ``VectorEnv`` over workers, where ``AsyncVectorEnv`` stood."""

from __future__ import annotations

import multiprocessing
import os
import weakref
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, TypeAlias

import numpy as np
from gymnasium import Env, Space, logger
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, CustomSpaceError, NoAsyncCallError
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.async_vector_env import AsyncState
from gymnasium.vector.utils import batch_differing_spaces, batch_space, concatenate, create_empty_array, iterate

from .arguments import check_concurrency, check_mode, positive, workers_for
from .batches import batch_reader, batch_writer, gathered
from .create import can_be_packed
from .crew import Crew
from .errors import WorkerDiedError
from .exchange import Exchange, Terms
from .failures import Failure, rebuild
from .info_columns import ColumnReader
from .infos import adder, batch, batch_with_ends
from .local_crew import LocalCrew
from .read import read_from_shared_memory
from .reply import Reply
from .segment import Segment
from .turns import Turns
from .views import leaves
from .worker import Operation, Report, Setup

__all__ = ["ShmVectorEnv"]

StepResult: TypeAlias = tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]

#: Seconds that workers are given to close their environments, unless the caller says otherwise.
_CLOSE_SECONDS = 15.0
_DROPPED_CLOSE_SECONDS = 1.0

_FORBIDDEN_CALLS = ("reset", "step", "close", "_setattr", "_check_spaces")


class ShmVectorEnv(VectorEnv[Any, Any, np.ndarray]):
    """Steps many environments in few processes, with everything that moves at each step in one named segment.

    It goes where ``gymnasium.vector.AsyncVectorEnv`` stood: the same arguments, methods and results, the results being
    those of ``SyncVectorEnv``.

    Example:
        >>> import gymnasium as gym
        >>> from gymshm import ShmVectorEnv
        >>> envs = ShmVectorEnv([lambda: gym.make("CartPole-v1")] * 8)
        >>> observations, infos = envs.reset(seed=42)
        >>> observations.shape
        (8, 4)
        >>> envs.close()

    Attributes:
        num_envs: Number of environments, n.
        num_workers: Number of processes; 0 where all runs in this one.
        observations: The batch as it stands in the segment now.
        processes: The worker processes.
        segment_name: What any process may ``gymshm.attach`` to, to watch.
        observation_space, action_space, single_observation_space, single_action_space, metadata, render_mode: As in
            gymnasium.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Env[Any, Any]]],
        shared_memory: bool = True,
        copy: bool = True,
        context: str | None = None,
        daemon: bool = True,
        worker: None = None,
        observation_mode: str | tuple[Space[Any], Space[Any]] = "same",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        max_concurrency: int | None = None,
        *,
        num_workers: int | None = None,
        slots: int = 1,
        batch_size: int | None = None,
        start_timeout: float | None = None,
    ) -> None:
        """Starts the workers and builds the environments; each of ``env_fns`` is called once, none in this process.

        Args:
            env_fns: Functions that create the environments.
            shared_memory: False sends observations pickled: for spaces that have no fixed size.
            copy: Whether ``reset`` and ``step`` return copies of the observations. False returns views of the segment,
                which change with the next step, or after ``slots`` steps.
            context: The start method of the processes; None for the default.
            daemon: False lets environments start processes of their own.
            worker: Not supported: a custom worker function speaks gymnasium's protocol. Give it to gymnasium's
                ``AsyncVectorEnv``, which runs over our memory (see the README).
            observation_mode: ``"same"``, ``"different"``, or (batched space, single space), as in gymnasium.
            autoreset_mode: What happens after the end of an episode.
            max_concurrency: The most environments that may execute at a time, which is the most workers.
            num_workers: Number of processes; each runs its environments one after the other. None: as many as there are
                CPUs for this process. 0: no process, everything in the calling one, for debugging.
            slots: Rows of history, K: what ``step`` returned with ``copy=False`` stays valid for K - 1 further steps.
            batch_size: How many environments :meth:`recv` gives at a time; None for all.
            start_timeout: Seconds that building the environments may take; None for any time.

        Raises:
            RuntimeError: The spaces of the environments do not match.
            ValueError: An argument is out of range; or the observation space is custom and can't be shared.
            TypeError: ``observation_mode`` is no pair of spaces; or the observation space has no fixed size.
            WorkerDiedError: A worker ended while it built its environments.
            multiprocessing.TimeoutError: ``start_timeout`` ran out.
            Exception: What an environment raised.
        """
        self.env_fns = env_fns
        self.shared_memory, self.copy, self.context, self.daemon = shared_memory, copy, context, daemon
        self.observation_mode = observation_mode
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.num_envs = len(env_fns)
        self.slots = positive(slots, "slots")
        self.batch_size = self.num_envs if batch_size is None else positive(batch_size, "batch_size")
        if self.batch_size > self.num_envs:
            raise ValueError(f"Expected batch_size of at most {self.num_envs} environments, got {batch_size}.")
        self.max_concurrency = check_concurrency(max_concurrency)
        check_mode(observation_mode)
        if self.num_envs == 0:
            raise ValueError("Expected at least one function in env_fns, got none.")
        if worker is not None:
            raise ValueError(
                "Expected worker=None: ShmVectorEnv has a protocol of its own. A custom worker function goes on "
                "working with `gymnasium.vector.AsyncVectorEnv(env_fns, worker=...)`, whose memory "
                "`gymshm.create_shared_memory` can make."
            )
        self.num_workers = workers_for(num_workers, self.num_envs, self.max_concurrency)
        self._state = AsyncState.DEFAULT
        self._broken: WorkerDiedError | None = None
        self._in_turns = False
        self._slot = 0
        if self.num_workers:
            mp_context = multiprocessing.get_context(context)
            self._crew: Crew | LocalCrew = Crew(
                mp_context, env_fns, self.num_workers, self.autoreset_mode, daemon, type(self).__name__
            )
        else:
            self._crew = LocalCrew(env_fns, self.autoreset_mode)
        # Not __del__: this runs at interpreter exit too, while everything it needs is still there.
        self._finalizer = weakref.finalize(self, _end, self._crew, os.getpid())
        try:
            self._take_spaces(self._crew.start(start_timeout))
            self._set_up(start_timeout)
        except BaseException:
            self._finalizer()
            self.closed = True
            raise

    # --- construction -------------------------------------------------------------------------------------------------

    def _take_spaces(self, reports: list[Report]) -> None:
        first = reports[0]
        self.metadata = {**first.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = first.render_mode
        self.single_action_space = first.action_space
        self.action_space = batch_space(first.action_space, self.num_envs)
        if isinstance(self.observation_mode, tuple):
            self.observation_space, self.single_observation_space = self.observation_mode
        elif self.observation_mode == "same":
            self.single_observation_space = first.observation_spaces[0]
            self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        else:
            spaces = [space for report in reports for space in report.observation_spaces]
            self.single_observation_space = spaces[0]
            self.observation_space = batch_differing_spaces(spaces)

    def _set_up(self, timeout: float | None) -> None:
        terms = Terms(
            observation_space=self.single_observation_space if self._shares_observations() else None,
            action_space=self.single_action_space if self._packs_actions() else None,
            num_envs=self.num_envs,
            num_workers=max(1, self.num_workers),
            slots=self.slots,
            keeps_final=self.autoreset_mode is AutoresetMode.SAME_STEP,
        )
        self._terms = terms
        self._exchange = Exchange.create(terms)
        segment = self._exchange.segment
        self._finalizer.detach()
        self._finalizer = weakref.finalize(self, _end, self._crew, os.getpid(), segment)
        setup = Setup(
            (segment.name, segment.header.digest),
            0,
            terms,
            self.single_observation_space,
            self.single_action_space,
            self.observation_mode == "same",
        )
        matches = self._crew.set_up(setup, self._exchange, timeout)
        if not all(observations for observations, _ in matches):
            raise RuntimeError(
                f"{type(self).__name__}(..., observation_mode='same') however some of the sub-environments observation "
                "spaces are not equivalent. If this is intentional, use `observation_mode='different'` instead."
                if self.observation_mode == "same"
                else f"{type(self).__name__}(..., observation_mode='different' or custom space) however the "
                "sub-environment's observation spaces do not share a common shape and dtype."
            )
        if not all(actions for _, actions in matches):
            raise RuntimeError(
                f"Some environments have an action space different from `{self.single_action_space}`. In order to "
                "batch actions, the action spaces from all environments must be equal."
            )
        self._write_actions = [
            batch_writer(self.single_action_space, memory, self.num_envs) for memory in self._exchange.actions
        ]
        self._observe = [
            batch_reader(self.single_observation_space, memory, self.num_envs, self.copy)
            for memory in self._exchange.observations
        ]
        self._turns = Turns(self._crew, self._exchange)
        self._infos = ColumnReader(self._exchange, self._crew.shares)
        self._pickled_observations: Any = create_empty_array(self.single_observation_space, self.num_envs)

    def _shares_observations(self) -> bool:
        """Whether observations go through the segment; refuses what ``shared_memory=True`` can't do."""
        if not self.shared_memory:
            return False
        try:
            return can_be_packed(self.single_observation_space)
        except CustomSpaceError as error:
            raise ValueError(
                f"Using `{type(self).__name__}(..., shared_memory=True)` caused an error, you can disable this "
                "feature with `shared_memory=False` however this is slower."
            ) from error

    def _packs_actions(self) -> bool:
        try:
            return can_be_packed(self.single_action_space)
        except (CustomSpaceError, TypeError):
            return False

    # --- reset --------------------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Resets the environments.

        Args:
            seed: One for each environment; or a number, from which environment i gets seed + i; or None.
            options: Handed to each environment. ``options["reset_mask"]``, a bool array of shape ``(n,)``, resets only
                the environments that it marks. The dict is left as it is.

        Returns:
            The batch of observations, and the infos.

        Raises:
            Exception: See :meth:`reset_async` and :meth:`reset_wait`.
        """
        self.reset_async(seed=seed, options=options)
        return self.reset_wait()

    def reset_async(
        self, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> None:
        """Asks all workers to reset; :meth:`reset_wait` gives the result.

        Raises:
            AlreadyPendingCallError: Another call is pending.
            ClosedEnvironmentError: It is closed.
            ValueError, TypeError: A seed is missing, or the mask is none.
        """
        self._check_idle("reset_async")
        seeds = self._seeds(seed)
        mask = [True] * self.num_envs
        if options is not None and "reset_mask" in options:
            options = dict(options)
            mask = self._check_mask(options.pop("reset_mask"))
        slot = (self._slot + 1) % self.slots
        if slot != self._slot and not all(mask):
            self._carry_over(slot, np.logical_not(mask))
        self._crew.post(
            Operation.RESET,
            payloads=[(slot, seeds[e.start : e.stop], options, mask[e.start : e.stop]) for e in self._crew.shares],
        )
        self._slot = slot
        self._state = AsyncState.WAITING_RESET

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        """Waits for :meth:`reset_async` and gives what :meth:`reset` gives.

        Args:
            timeout: Seconds to wait at most; None for any time.

        Raises:
            NoAsyncCallError: Nothing was asked.
            multiprocessing.TimeoutError: ``timeout`` ran out; it can be called again.
            WorkerDiedError: A worker process ended.
            ClosedEnvironmentError: It is closed.
            Exception: What an environment raised, with the worker's traceback as its cause. The environments can be
                used again.
        """
        replies = self._wait(AsyncState.WAITING_RESET, timeout)
        infos = batch(self._infos.told(replies), self._add_info)
        return self._take_observations(replies), infos

    def _seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None or isinstance(seed, int | np.integer):
            return [None if seed is None else int(seed) + i for i in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(
                f"If seeds are passed as a list the length must match num_envs={self.num_envs} but got "
                f"length={len(seed)}."
            )
        return list(seed)

    def _check_mask(self, mask: Any) -> list[bool]:
        if not isinstance(mask, np.ndarray):
            raise TypeError(f"`options['reset_mask']` must be a numpy array, got {type(mask)}")
        if mask.shape != (self.num_envs,):
            raise ValueError(f"`options['reset_mask']` must have shape `({self.num_envs},)`, got {mask.shape}")
        if mask.dtype != np.bool_:
            raise TypeError(f"`options['reset_mask']` must have `dtype=np.bool_`, got {mask.dtype}")
        if not mask.any():
            raise ValueError(
                "`options['reset_mask']` must contain a boolean array with at least one True value, got "
                f"reset_mask={mask}"
            )
        return list(mask.tolist())

    def _carry_over(self, slot: int, rows: np.ndarray) -> None:
        """Copies the observations of environments that are not reset into the slot where the reset ones go."""
        if self._exchange.observations:
            for before, after in zip(
                leaves(self._exchange.observations[self._slot]), leaves(self._exchange.observations[slot]), strict=True
            ):
                after.live_view()[rows] = before.live_view()[rows]

    # --- step ---------------------------------------------------------------------------------------------------------

    def step(self, actions: Any) -> StepResult:
        """Steps every environment.

        Args:
            actions: A batch of ``action_space``. One of exactly its dtype and shape goes through the segment; anything
                else that can be iterated over is handed to the environments as it is, by pickle, which is slower.

        Returns:
            Observations, rewards (float64), terminations and truncations (bool), all with ``n`` rows, and infos.

        Raises:
            Exception: See :meth:`step_async` and :meth:`step_wait`.
        """
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: Any) -> None:
        """Asks all workers to step; :meth:`step_wait` gives the result.

        Raises:
            ValueError, TypeError, KeyError: ``actions`` is no batch of ``n`` actions; no environment was stepped.
            AlreadyPendingCallError: Another call is pending.
            ClosedEnvironmentError: It is closed.
        """
        self._check_idle("step_async")
        slot = self._slot + 1
        if slot == self.slots:
            slot = 0
        if self._write_actions and self._write_actions[slot](actions):
            self._crew.post(Operation.STEP, slot)
        else:
            # As gymnasium hands them over: whatever iterating gives, pickled.
            rows = list(iterate(self.action_space, actions))
            if len(rows) != self.num_envs:
                raise ValueError(f"Expected a batch of {self.num_envs} actions, got {len(rows)} of them.")
            self._crew.post(Operation.STEP_WITH, slot, [rows[envs.start : envs.stop] for envs in self._crew.shares])
        self._slot = slot
        self._state = AsyncState.WAITING_STEP

    def step_wait(self, timeout: float | None = None) -> StepResult:
        """Waits for :meth:`step_async` and gives what :meth:`step` gives.

        Args:
            timeout: Seconds to wait at most; None for any time.

        Raises:
            NoAsyncCallError: Nothing was asked.
            multiprocessing.TimeoutError: ``timeout`` ran out; it can be called again.
            WorkerDiedError: A worker process ended.
            ClosedEnvironmentError: It is closed.
            Exception: What an environment raised, with the worker's traceback as its cause. The environments can be
                used again.
        """
        replies = self._wait(AsyncState.WAITING_STEP, timeout)
        exchange, slot = self._exchange, self._slot
        terminations, truncations = exchange.terminations[slot].copy(), exchange.truncations[slot].copy()
        if self._terms.keeps_final and (terminations.any() or truncations.any()):
            ended, envs = (terminations | truncations).tolist(), range(self.num_envs)
            told = self._infos.told(replies)
            infos = batch_with_ends(told, replies, ended, envs, exchange, self._add_info)
        else:
            common = self._infos.common(replies)
            infos = common if common is not None else batch(self._infos.told(replies), self._add_info)
        return self._take_observations(replies), exchange.rewards[slot].copy(), terminations, truncations, infos

    # --- turns --------------------------------------------------------------------------------------------------------

    def async_reset(
        self, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> None:
        """Asks every environment for a reset, as a turn of its own: :meth:`recv` gives those that are ready.

        Args:
            seed: As for :meth:`reset`.
            options: Handed to each environment.

        Raises:
            AlreadyPendingCallError: Another call is pending.
            ClosedEnvironmentError: It is closed.
            ValueError: A seed is missing; or there are several slots, or no ``shared_memory``.
        """
        self._check_idle("async_reset")
        self._check_turns()
        self._turns.ask_resets(self._seeds(seed), options)
        self._in_turns = True

    def send(self, actions: Any, env_id: Any) -> None:
        """Asks the environments ``env_id`` for a step each; :meth:`recv` gives those that are ready.

        Args:
            actions: A batch of actions, one for each of ``env_id``.
            env_id: Distinct indices of environments, as ``info["env_id"]`` gives them.

        Raises:
            AlreadyPendingCallError: One of them was sent to already and not received; or another call is pending.
            ClosedEnvironmentError: It is closed.
            ValueError, TypeError, KeyError: An action does not fit, or ``env_id`` is no such thing. Nobody was asked.
        """
        if not self._in_turns:
            self._check_idle("send")
            self._check_turns()
        self._check_running()
        self._turns.ask(actions, env_id)
        self._in_turns = True

    def recv(self, timeout: float | None = None) -> StepResult:
        """Waits until ``batch_size`` environments are ready, whichever they are, and gives their results.

        Who waits longest for being received comes first, so none starves. Fewer than ``batch_size`` come where fewer
        were asked.

        Args:
            timeout: Seconds to wait at most; None for any time.

        Returns:
            As :meth:`step`, with one row for each of ``info["env_id"]``. All are copies.

        Raises:
            NoAsyncCallError: Nobody was asked.
            multiprocessing.TimeoutError: ``timeout`` ran out; it can be called again.
            WorkerDiedError: A worker process ended.
            ClosedEnvironmentError: It is closed.
            Exception: What an environment raised; the others can still be received.
        """
        self._check_running()
        try:
            ids, replies = self._turns.take(self.batch_size, timeout)
        except WorkerDiedError as error:
            self._broken = error
            raise
        finally:
            self._in_turns = bool(self._turns.pending.any())
        exchange = self._exchange
        terminations, truncations = exchange.terminations[0][ids], exchange.truncations[0][ids]
        rows = {env: row for row, env in enumerate(ids.tolist())}
        told = {env: info for reply in replies if reply is not None for env, info in reply.infos}
        if self._terms.keeps_final:
            ended = (terminations | truncations).tolist()
            infos = batch_with_ends(told, replies, ended, list(rows), exchange, adder(len(ids)))
        else:
            infos = batch({rows[env]: info for env, info in told.items()}, adder(len(ids)))
        observations = gathered(self.single_observation_space, exchange.observations[0], self.num_envs, ids)
        return observations, exchange.rewards[0][ids], terminations, truncations, {"env_id": ids, **infos}

    def _check_turns(self) -> None:
        if self.slots != 1 or not self._exchange.observations:
            raise ValueError(
                "Expected slots=1 and observations in shared memory for `send` and `recv`, got "
                f"slots={self.slots}, shared_memory={bool(self._exchange.observations)}."
            )

    # --- results ------------------------------------------------------------------------------------------------------

    @property
    def observations(self) -> Any:
        """The batch as it stands in the segment: views, which the next step changes. Text and choices are decoded."""
        if not self._exchange.observations:
            return self._pickled_observations
        return read_from_shared_memory(
            self.single_observation_space, self._exchange.observations[self._slot], self.num_envs
        )

    def _take_observations(self, replies: Sequence[Reply | None]) -> Any:
        if self._terms.observation_space is None:
            rows = [row for reply in replies for row in (reply.observations or () if reply is not None else ())]
            self._pickled_observations = concatenate(self.single_observation_space, rows, self._pickled_observations)
            return deepcopy(self._pickled_observations) if self.copy else self._pickled_observations
        return self._observe[self._slot]()

    def _check_idle(self, caller: str) -> None:
        if self._state is not AsyncState.DEFAULT or self._in_turns or self.closed or self._broken is not None:
            self._check_running()
            pending = "recv" if self._in_turns else str(self._state.value)
            raise AlreadyPendingCallError(
                f"Calling `{caller}` while waiting for a pending call to `{pending}` to complete", pending
            )

    def _check_running(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError(f"Trying to operate on `{type(self).__name__}`, after a call to `close()`.")
        if self._broken is not None:
            raise self._broken

    def _wait(self, state: AsyncState, timeout: float | None) -> Sequence[Reply | None]:
        """Waits for what is pending; on return, or where an environment raised, nothing is pending any more."""
        if self._state is not state or self.closed or self._broken is not None:
            self._check_running()
            raise NoAsyncCallError(
                f"Calling `{state.value}_wait` without any prior call to `{state.value}_async`.", state.value
            )
        try:
            replies = self._crew.wait(timeout)
        except multiprocessing.TimeoutError:
            raise multiprocessing.TimeoutError(
                f"The call to `{state.value}_wait` has timed out after {timeout} second(s)."
            ) from None
        except WorkerDiedError as error:
            self._broken, self._state = error, AsyncState.DEFAULT
            raise
        self._state = AsyncState.DEFAULT
        for reply in replies:
            if reply is not None and reply.failures:
                raise self._raised([failure for reply in replies if reply is not None for failure in reply.failures])
        return replies

    def _raised(self, failures: list[Failure]) -> BaseException:
        """What to raise for ``failures``; reports each in gymnasium's own words, which people search logs for."""
        for failure in failures:
            logger.error(f"Received the following error from Worker-{failure.env} - Shutting it down")
            logger.error(f"{failure.trace}")
        logger.error("Raising the last exception back to the main process.")
        return rebuild(failures)

    # --- calls --------------------------------------------------------------------------------------------------------

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Calls a method of every environment, or gets an attribute of it; a tuple of the ``n`` results.

        Raises:
            Exception: See :meth:`call_async` and :meth:`call_wait`.
        """
        self.call_async(name, *args, **kwargs)
        return self.call_wait()

    def call_async(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Asks all workers for a call; :meth:`call_wait` gives the result.

        Raises:
            AlreadyPendingCallError: Another call is pending.
            ClosedEnvironmentError: It is closed.
            ValueError: ``name`` has a method of its own here.
        """
        self._check_idle("call_async")
        if name in _FORBIDDEN_CALLS:
            raise ValueError(f"Trying to call function `{name}` with `call`, use `{name}` directly instead.")
        self._crew.post(Operation.CALL, payloads=[(name, args, kwargs)] * len(self._crew.shares))
        self._state = AsyncState.WAITING_CALL

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Waits for :meth:`call_async`.

        Args:
            timeout: Seconds to wait at most; None for any time.

        Raises:
            NoAsyncCallError: Nothing was asked.
            multiprocessing.TimeoutError: ``timeout`` ran out; it can be called again.
            WorkerDiedError: A worker process ended.
            ClosedEnvironmentError: It is closed.
            Exception: What an environment raised.
        """
        replies = self._wait(AsyncState.WAITING_CALL, timeout)
        return tuple(result for reply in replies if reply is not None for result in reply.results or ())

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """An attribute of every environment; a tuple of the ``n`` values. Raises as :meth:`call`."""
        return self.call(name)

    def set_attr(self, name: str, values: list[Any] | tuple[Any, ...] | Any) -> None:
        """Sets an attribute of every environment.

        Args:
            name: The attribute.
            values: A list or tuple of ``n`` values, or one value for all.

        Raises:
            ValueError: There are not ``n`` values.
            AlreadyPendingCallError: Another call is pending.
            ClosedEnvironmentError: It is closed.
            WorkerDiedError: A worker process ended.
            Exception: What an environment raised.
        """
        self._check_idle("set_attr")
        if not isinstance(values, list | tuple):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise ValueError(
                "Values must be a list or tuple with length equal to the number of environments. "
                f"Got `{len(values)}` values for {self.num_envs} environments."
            )
        self._crew.post(
            Operation.SET_ATTR, payloads=[(name, values[envs.start : envs.stop]) for envs in self._crew.shares]
        )
        self._state = AsyncState.WAITING_CALL
        self._wait(AsyncState.WAITING_CALL, None)

    def render(self) -> tuple[Any, ...] | None:
        """A frame of every environment; a tuple of ``n``. Raises as :meth:`call`."""
        return self.call("render")

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seed of every environment's random generator."""
        return self.get_attr("np_random_seed")

    @property  # type: ignore[misc]  # read-only, as gymnasium's own vector environments have it
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """Every environment's random generator, as a copy."""
        return self.get_attr("np_random")

    # --- the segment and the processes --------------------------------------------------------------------------------

    @property
    def segment_name(self) -> str:
        """The name of the segment: any process may ``gymshm.attach`` to it and watch."""
        return self._exchange.segment.name

    @property
    def processes(self) -> list[Any]:
        """The worker processes, in the order of their environments."""
        return list(self._crew.processes)

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Ends the workers, in bounded time: asks them to close their environments, then SIGTERM, then SIGKILL.

        What a pending call would have given is dropped. An exception that an environment raises while it is closed
        comes as a warning: it never takes the place of one that is on its way.

        Args:
            timeout: Seconds that the environments are given; None for 15.
            terminate: True does not ask at all.
        """
        if self._state is not AsyncState.DEFAULT:
            logger.warn(f"Calling `close` while waiting for a pending call to `{self._state.value}` to complete.")
            self._state = AsyncState.DEFAULT
        seconds = _CLOSE_SECONDS if timeout is None else timeout
        self._finalizer.detach()
        failures = self._crew.close(0.0 if terminate else max(0.0, seconds))
        self._exchange.segment.unlink()
        for failure in failures:
            logger.warn(f"Environment {failure.env} raised while it was closed:\n{failure.trace}")


def _end(crew: Crew | LocalCrew, pid: int, segment: Segment | None = None) -> None:
    """Ends a vector environment that nobody closed; not for a fork, which inherited it and owns nothing of it."""
    if os.getpid() == pid:
        crew.close(_DROPPED_CLOSE_SECONDS)
        if segment is not None:
            segment.unlink()
