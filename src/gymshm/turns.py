"""Environments that take turns: ``send`` and ``recv``, so that a slow one does not hold back the rest.

Each environment has two words in the segment: how often it was asked, and how often it is done (and whether a payload
follows). ``send`` stores actions and asks; a worker serves its asked environments round and round; ``recv`` takes
whichever are done, and among them those first that have waited longest for being taken: so none starves.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from os import sched_yield
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.error import AlreadyPendingCallError, NoAsyncCallError
from gymnasium.vector.utils import batch_space

from .batches import gathered
from .crew import Crew, overslept
from .dispatch import iterate
from .doorbell import SLEEP_SECONDS, SPIN_SECONDS
from .errors import TimedOutError
from .exchange import Exchange
from .failures import rebuild
from .infos import adder, batch, batch_with_ends
from .local_crew import LocalCrew
from .ordering import store_fence
from .reply import Reply
from .time_limits import deadline_of, left_until
from .views import ArrayLeaf
from .write import write_to_shared_memory

__all__ = ["Turns", "batch_of_turns"]

#: Seconds after which a busy receiver looks for dead workers: those that live would keep it busy for ever.
_ATTEND_SECONDS = 0.1


class Turns:
    """The parent's side of turns.

    Args:
        crew: The workers.
        exchange: Has the words, and the rows of actions and results.
        step_timeout: Seconds that a step may take; None for no limit.
    """

    def __init__(self, crew: Crew | LocalCrew, exchange: Exchange, step_timeout: float | None) -> None:
        """Nobody is asked."""
        n = exchange.terms.num_envs
        self._crew, self._exchange = crew, exchange
        self._asked, self._done = exchange.turns_asked, exchange.turns_done
        self._worker_of = np.repeat(np.arange(len(crew.shares)), [len(envs) for envs in crew.shares])
        #: Asked and not taken yet.
        self.pending = np.zeros(n, np.bool_)
        self._told: dict[int, Reply] = {}
        self._heard = np.zeros(n, np.bool_)
        # Whose turn is a reset; and what all of them are told.
        self._in_reset = np.zeros(n, np.bool_)
        self._seeds: Sequence[int | None] = ()
        self._options: dict[str, Any] | None = None
        # When each was taken last, as a count of takings.
        self._taken_at = np.zeros(n, np.int64)
        self._takings = 0
        self._attended_at = time.monotonic()
        self._waits_long = False
        self._step_timeout = step_timeout
        # When, in what is waited for now, workers that may hang could be looked at last.
        self._looked_at = time.monotonic()
        self._done_before = self._done.copy()
        self._moved_at = [time.monotonic()] * len(crew.shares)

    @property
    def is_anybody_pending(self) -> bool:
        """Whether an environment is asked that was not taken yet."""
        return bool(np.count_nonzero(self.pending))

    def ask_resets(self, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        """Asks every environment for a reset."""
        everybody = np.arange(len(self.pending))
        self._seeds, self._options = seeds, options
        payloads = [(list(seeds[envs.start : envs.stop]), options, [True] * len(envs)) for envs in self._crew.shares]
        self._crew.post_turn_resets(payloads, functools.partial(self._mark_asked, everybody, in_reset=True))

    def resets_of(self, worker: int) -> tuple[list[int | None], dict[str, Any] | None, list[bool]] | None:
        """Seeds, options, and which environments of ``worker`` wait for a reset; None where none does."""
        envs = self._crew.shares[worker]
        own = slice(envs.start, envs.stop)
        waiting = (self._in_reset & self.pending & ~self._is_done())[own]
        return (list(self._seeds[own]), self._options, waiting.tolist()) if waiting.any() else None

    def lose(self, worker: int, told: list[Reply]) -> None:
        """Takes what ``worker`` had told before it died; what it did and did not tell of has to be done again."""
        for reply in told:
            self._told[reply.turn] = reply
            self._heard[reply.turn] = True
        own = np.zeros(len(self.pending), np.bool_)
        envs = self._crew.shares[worker]
        own[envs.start : envs.stop] = True
        untold = own & self._untold()
        self._done[untold] = (self._asked[untold] - 1) << 1
        # What is done and not taken yet is what the caller will have seen last.
        self._exchange.carry_over(0, 1, own & self._ready())

    def ask(self, actions: Any, env_ids: Any) -> None:
        """Stores one action for each of ``env_ids``, and asks them for a step.

        Raises:
            ValueError: An index is out of range or comes twice, or the number of actions is another one.
            AlreadyPendingCallError: One of them was asked already and not received.
            TypeError, KeyError: An action does not fit.
        """
        ids = np.asarray(env_ids)
        n = len(self.pending)
        indices = ids.tolist() if ids.ndim == 1 and ids.dtype.kind in "iu" else None
        # A set of a few numbers: numpy's `unique` takes longer than all the rest of this method.
        if indices is None or len(set(indices)) != len(indices):
            raise ValueError(f"Expected env_id to be distinct indices of environments, got {env_ids!r}.")
        if indices and not (min(indices) >= 0 and max(indices) < n):
            raise ValueError(f"Expected env_id in [0, {n}), got {indices}.")
        if np.count_nonzero(self.pending[ids]):
            busy = ids[self.pending[ids]].tolist()
            raise AlreadyPendingCallError(
                f"Calling `send` for environments {busy}, which were sent to and not received yet", "recv"
            )
        self._store(actions, ids)
        self._crew.torn = True  # until every worker is woken: recv would wait for one that sleeps
        self._mark_asked(ids, in_reset=False)
        self._crew.post_turns(set(self._worker_of[ids].tolist()))
        self._crew.torn = False

    def _mark_asked(self, ids: np.ndarray, *, in_reset: bool) -> None:
        if self._step_timeout is not None:
            for number in self._worker_of[ids].tolist():
                self._moved_at[number] = time.monotonic()
        self.pending[ids] = True
        self._in_reset[ids] = in_reset
        self._heard[ids] = False
        for index in ids.tolist() if self._told else ():
            self._told.pop(index, None)  # nobody took it, since something was raised
        store_fence()  # who sees that it is asked sees its action
        self._asked[ids] += 1

    def _store(self, actions: Any, ids: np.ndarray) -> None:
        space: Space[Any] | None = self._exchange.terms.action_space
        if space is None:
            raise ValueError("Expected actions of a fixed size for `send`, got an action space that has none.")
        memory = self._exchange.actions[0]
        # Not for text: it is stored as codes, and a caller's actions are never codes.
        if type(memory) is ArrayLeaf and isinstance(actions, np.ndarray) and actions.dtype == memory.dtype:
            if actions.shape == (len(ids), *memory.shape):
                memory.live_view()[ids] = actions
                return
        rows = list(iterate(batch_space(space, len(ids)), actions))
        if len(rows) != len(ids):
            raise ValueError(f"Expected {len(ids)} actions, one for each of env_id, got {len(rows)}.")
        for index, action in zip(ids.tolist(), rows, strict=True):
            write_to_shared_memory(space, index, action, memory)

    def wait(self, batch_size: int, timeout: float | None) -> tuple[np.ndarray, list[Reply | None]]:
        """The next ``batch_size`` environments that are done (all that are asked, if fewer), and what was told of each.

        They are still to be taken: see :meth:`take`. Until then it gives them again.

        Raises:
            NoAsyncCallError: None is asked.
            WorkerDiedError: A worker process ended.
            multiprocessing.TimeoutError: It took longer than ``timeout`` seconds.
            Exception: What an environment raised; its turn is over, the others can be received.
        """
        wanted = min(batch_size, int(np.count_nonzero(self.pending)))
        if wanted == 0:
            raise NoAsyncCallError("Calling `recv` without any prior call to `send` or `async_reset`.", "recv")
        deadline = deadline_of(timeout)
        self._looked_at = time.monotonic()
        if self._looked_at > self._attended_at + _ATTEND_SECONDS:
            self._attend(())
        ids = self._wait(wanted, deadline)
        failed = [index for index in ids.tolist() if index in self._told and self._told[index].failures]
        if failed:
            # Not kept in a variable: of one's own exception, its traceback would hold it for ever.
            raise self._take_failed(failed)
        return ids, [self._told.get(index) for index in ids.tolist()]

    def take(self, ids: np.ndarray) -> None:
        """Takes what :meth:`wait` gave: ``ids`` can be asked again."""
        self._takings += 1
        self._taken_at[ids] = self._takings
        self.pending[ids] = False
        for index in ids.tolist() if self._told else ():
            self._told.pop(index, None)

    def _take_failed(self, failed: list[int]) -> BaseException:
        """Takes environments that failed, too: one that fails again and again must not come before those that wait."""
        failures = [failure for index in failed for failure in self._told[index].failures]
        self.take(np.array(failed))
        return rebuild(failures)

    def _wait(self, wanted: int, deadline: float | None) -> np.ndarray:
        start = time.perf_counter()
        # With a worker on each CPU, who yields it gets it back once that worker has nothing left to do; who sleeps is
        # woken in time. So a wait spins as long as the one before it was short.
        spin_until = start if self._waits_long else start + SPIN_SECONDS
        while True:
            ready = self._ready().nonzero()[0]
            if len(ready) >= wanted:
                if gone := self._hear(ready):
                    self._attend(gone)
                    continue
                store_fence()  # that they are done was read, and their rows come next
                self._waits_long = time.perf_counter() > start + SPIN_SECONDS
                if len(ready) == wanted:
                    return ready
                # Who has waited longest goes first; equal ones in the order of their index.
                return np.sort(ready[np.argsort(self._taken_at[ready], kind="stable")[:wanted]])
            if time.perf_counter() < spin_until:
                sched_yield()
                continue
            left = left_until(deadline)
            if left == 0:
                # Who polls has to make room, too, or a worker that has much to tell never goes on.
                if gone := self._hear(ready):
                    self._attend(gone)
                raise TimedOutError("The call to `recv` has timed out.")
            self._sleep(wanted, SLEEP_SECONDS if left is None else left)

    def _sleep(self, wanted: int, seconds: float) -> None:
        """Sleeps until ``wanted`` are ready, or for less; looks after workers that died meanwhile, or hang."""
        count = self._exchange.count_turns()
        store_fence()  # in this order: who is done in between makes the ring come early, and not too late
        ready = self._ready().nonzero()[0]
        gone = self._hear(ready)  # or what waits there would wake the sleeper at once
        is_over = functools.partial(self._has, wanted)
        until = count + wanted - len(ready)
        is_rung = True
        if not gone:
            is_rung, gone = self._crew.sleep_for_turns(until, is_over, self._is_told_more, seconds)
        if self._step_timeout is not None:
            now = time.monotonic()
            unseen, self._looked_at = overslept(self._looked_at, now), now
            self._moved_at = [moved_at + unseen for moved_at in self._moved_at]
        if gone or not is_rung:
            self._attend(gone)

    def _hung_workers(self) -> list[int]:
        """Workers that are asked, and have finished nothing for the time that a step may take."""
        if self._step_timeout is None:
            return []
        now, done = time.monotonic(), self._done.copy()
        moved = done != self._done_before
        idle = ~self.pending | self._is_done()
        hung = []
        for number, envs in enumerate(self._crew.shares):
            own = slice(envs.start, envs.stop)
            if moved[own].any() or idle[own].all():
                self._moved_at[number] = now
            elif now - self._moved_at[number] > self._step_timeout:
                hung.append(number)
                self._moved_at[number] = now
        self._done_before = done
        return hung

    def _attend(self, gone: Sequence[int]) -> None:
        """Has the crew look for workers that died or hang; every now and then also while others keep us busy."""
        self._attended_at = time.monotonic()
        self._crew.attend(self._hung_workers(), gone, self)

    def _has(self, wanted: int) -> bool:
        return bool(np.count_nonzero(self._ready()) >= wanted)

    def _is_told_more(self) -> bool:
        return bool(self._untold().any())

    def _untold(self) -> np.ndarray:
        """Whose turn is done and has more to tell, which was not received."""
        untold: np.ndarray = self._ready() & ~self._heard & (self._done & 1 == 1)
        return untold

    def _is_done(self) -> np.ndarray:
        done: np.ndarray = self._done >> 1 == self._asked
        return done

    def _ready(self) -> np.ndarray:
        ready: np.ndarray = self.pending & self._is_done()
        return ready

    def _hear(self, ready: np.ndarray) -> list[int]:
        """Receives what workers have to tell of turns that are done; gives the workers that do not tell any more."""
        gone: list[int] = []
        for index in ready[~self._heard[ready]].tolist():
            worker, payload_follows = int(self._worker_of[index]), bool(self._done[index] & 1)
            # What comes first may be of another environment, which was done before this one and not seen.
            while payload_follows and not self._heard[index] and worker not in gone:
                self._crew.torn = True  # what is raised now loses what is half read, or read and not kept
                reply = self._crew.take_turn_payload(worker)
                if reply is None:
                    gone.append(worker)
                else:
                    self._told[reply.turn] = reply
                    self._heard[reply.turn] = True
                self._crew.torn = False
            self._heard[index] |= not payload_follows
        return gone


def batch_of_turns(
    space: Space[Any], exchange: Exchange, ids: np.ndarray, replies: Sequence[Reply | None]
) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
    """The results of the environments ``ids``, as a step gives them: copies, one row for each."""
    terminations, truncations = exchange.terminations[0][ids], exchange.truncations[0][ids]
    rows = {env: row for row, env in enumerate(ids.tolist())}
    told = {env: info for reply in replies if reply is not None for env, info in reply.infos}
    if exchange.terms.keeps_final:
        ended = (terminations | truncations).tolist()
        infos = batch_with_ends(told, replies, ended, list(rows), exchange, adder(len(ids)))
    else:
        infos = batch({rows[env]: info for env, info in told.items()}, adder(len(ids)))
    observations = gathered(space, exchange.observations[0], exchange.terms.num_envs, ids)
    # First, and again: an environment may have an info of that name.
    infos = {"env_id": ids, **infos} | {"env_id": ids}
    return observations, exchange.rewards[0][ids], terminations, truncations, infos
