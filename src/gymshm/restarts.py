"""A roster whose dead workers are started anew: what their environments lose, and what they are asked again.

A restarted worker is asked again what the dead one was asked. It knows that its episodes are lost, and tells so in the
next step (see ``env_group``); so there is one way for step, reset, call and turns. What goes wrong while it is started
is one more death.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from .agreement import Misfits
from .errors import WorkerDiedError
from .failures import Failure, rebuild
from .policy import DeathPolicy, Deaths, derived_seed
from .reply import Reply, dumps, unpickled
from .requests import Loss, Operation
from .roster import Roster
from .worker_process import Employment, Stage, WorkerProcess

__all__ = ["RestartingRoster", "TurnKeeper"]

#: Limits of a restart where there is a ``step_timeout`` and no ``start_timeout``: building may take this many times
#: what the first start took, and these seconds at least; setting up may take these seconds more than a reset.
_TIMES_FIRST_START, _LEAST_REBUILD_SECONDS, _SETTING_UP_SECONDS = 10, 60.0, 5.0

#: What the caller can do about a death that is not restarted.
_ADVICE = "Call `close()`. With on_worker_death='restart' the worker would be started anew, and all go on."


class TurnKeeper(Protocol):
    """Knows of the turns that environments are asked for, where a worker that died is to be replaced."""

    def lose(self, worker: int, told: list[Reply]) -> None:
        """Takes what ``worker`` had told of turns before it died; no other worker has its place yet."""

    def resets_of(self, worker: int) -> Any:
        """What to tell the worker in its place of resets that are asked; None where there are none."""


class RestartingRoster(Roster):
    """The workers of a vector environment, each of which can be started anew in the place of one that died.

    Args:
        employment: What the workers have in common.
        policy: What follows from the death of one.

    Attributes:
        seeds: What each environment was reset with last; a restart derives its seed from that.
        restarts: How often each worker was started anew.
    """

    def __init__(self, employment: Employment, policy: DeathPolicy) -> None:
        """Starts nothing yet."""
        super().__init__(employment)
        self._policy = policy
        self.seeds: Sequence[int | None] = [None] * len(employment.env_fns)
        self.restarts = [0] * len(self._workers)
        # What all were asked last: operation, slot, and the payload of each.
        self._request: tuple[Operation, int, list[Any] | None] = (Operation.CALL, 0, None)
        self._deaths = Deaths(policy)
        # Workers that died and do not serve again yet.
        self._rebuilding: set[int] = set()
        # What each worker's environments showed last, where that travels pickled.
        self._seen: list[list[Any] | None] = [None] * len(self._workers)

    def _replace(self, worker: WorkerProcess, death: WorkerDiedError | None, turns: TurnKeeper | None = None) -> None:
        """Starts a worker anew in the place of one that died, builds and resets its environments, and asks it again.

        Does not block: it does what can be done now, and continues from there when it is called again.

        Args:
            worker: The worker.
            death: How it died; None goes on with its restart.
            turns: Knows of the turns that are asked, where there are some.

        Raises:
            WorkerDiedError: The policy is not to, or it died too often.
        """
        with self._restarting():
            try:
                self._renew(worker, death, time.monotonic(), turns)
            except multiprocessing.TimeoutError:
                return  # it is not that far yet
            operation, slot, packed = self._request
            payload = None if packed is None else packed[worker.number]
            if turns is not None:
                operation, payload = Operation.TURN, turns.resets_of(worker.number)
                if payload is not None:
                    operation, payload = Operation.TURN_RESET, dumps(payload)
            worker.asked_at = time.monotonic()
            with contextlib.suppress(OSError):  # dead: who waits for the answer finds out, and says so
                worker.bell.signal(self._sequence, operation, slot)
                if payload is not None:
                    worker.connection.send_bytes(payload)

    @contextlib.contextmanager
    def _restarting(self) -> Iterator[None]:
        """Within, workers are restarted: what is raised in the middle of that leaves one of which nobody knows how far.

        Not so where it waits (see ``_collect``), and where the restart itself ends: by a death, a limit of time, or as
        the system has no process or descriptor to give.
        """
        before, self.torn = self.torn, True
        try:
            yield
        except (WorkerDiedError, multiprocessing.TimeoutError):
            self.torn = before
            raise
        except OSError as error:
            if error.errno is not None:  # else a signal's handler raised it, as a TimeoutError of its own
                self.torn = before
            raise
        else:
            self.torn = before

    def _renew(
        self,
        worker: WorkerProcess,
        death: WorkerDiedError | None,
        deadline: float | None,
        turns: TurnKeeper | None,
    ) -> None:
        """As :meth:`_replace`, asks nothing, and waits until ``deadline``, None for ever.

        Raises:
            WorkerDiedError: The policy is not to, or it died too often.
            multiprocessing.TimeoutError: ``deadline`` is over; calling again goes on.
        """
        while True:
            if death is not None:
                self._bury(worker, death, turns)
            try:
                self._bring_up(worker, deadline)
                break
            except WorkerDiedError as again:
                death = again
        self._rebuilding.discard(worker.number)

    def _bury(self, worker: WorkerProcess, death: WorkerDiedError, turns: TurnKeeper | None) -> None:
        """Lets go of a worker that is to be restarted.

        Raises:
            WorkerDiedError: The policy is not to, or it died too often.
        """
        if not self._policy.restarts:
            between = "\n" if "\n" in str(death) else ". "  # a stack
            death.args = (f"{death}{between}{_ADVICE}",)
            raise death
        self._deaths.count(death)
        worker.end_now()  # it may have closed its connection, and live
        told = _leftovers(worker) if worker.stage is Stage.SERVING else []
        worker.discharge()
        if turns is not None:
            turns.lose(worker.number, told)
        self.restarts[worker.number] += 1
        self._rebuilding.add(worker.number)

    def _bring_up(self, worker: WorkerProcess, deadline: float | None) -> None:
        """Starts ``worker``, or goes on with that where it was left.

        Raises:
            WorkerDiedError: It died, failed, or took longer than a start may take.
            multiprocessing.TimeoutError: ``deadline`` is over.
        """
        if worker.stage is Stage.ENDED:
            self._launch(worker)
        if worker.stage is Stage.BUILDING:
            self._hear_of_restart(worker, deadline)
            attempt = self.restarts[worker.number]
            seeds = [derived_seed(self.seeds[env], attempt) for env in worker.envs]
            self._instruct(worker, Loss(self._exchange.seen_slot[0], seeds, self._seen[worker.number]))
        if worker.stage is Stage.SETTING_UP:
            self._hear_of_restart(worker, deadline)
            worker.serve()

    def _launch(self, worker: WorkerProcess) -> None:
        worker.launch([other for other in self._workers if other is not worker])

    def _hear_of_restart(self, worker: WorkerProcess, deadline: float | None) -> None:
        own, told_limit = self._restart_limit(worker)
        limits = [limit for limit in (deadline, own) if limit is not None]
        try:
            (message,) = self._collect([worker], min(limits, default=None), "its restart")
        except multiprocessing.TimeoutError:
            if own is not None and time.monotonic() >= own:
                raise worker.hung("its restart", told_limit) from None
            raise
        if isinstance(message, Failure):
            error = rebuild([message])
            raise worker.failed(message.text, "its restart") from error
        if isinstance(message, Misfits) and (other := message.observation or message.action):
            raise worker.failed(f"its environments have other spaces than before.{other}", "its restart")

    def _restart_limit(self, worker: WorkerProcess) -> tuple[float | None, str]:
        """When ``worker``, which is being restarted, counts as hung, None for never; and what to call that limit."""
        limits: list[tuple[float, str]] = []
        if self._start_timeout is not None:
            limits.append((worker.launched_at + self._start_timeout, f"start_timeout={self._start_timeout} s"))
        if self._policy.step_timeout is not None:
            if worker.stage is Stage.SETTING_UP:
                until = worker.instructed_at + self._policy.step_timeout + _SETTING_UP_SECONDS
                limits.append((until, self._told_limit()))
            elif not limits:
                seconds = max(_LEAST_REBUILD_SECONDS, _TIMES_FIRST_START * self._first_start_seconds)
                limits.append((worker.launched_at + seconds, f"{seconds:.0f} s, ten times the first start at least"))
        return min(limits, default=(None, ""))

    def _told_limit(self) -> str:
        return f"step_timeout={self._policy.step_timeout} s"


def _leftovers(worker: WorkerProcess) -> list[Reply]:
    """What a dead worker had told of turns and nobody has read."""
    replies = []
    with contextlib.suppress(EOFError, OSError):
        # The rest of what it was at will not come; but no end either, while a process lives that it forked.
        os.set_blocking(worker.connection.fileno(), False)
        while worker.connection.poll():
            packet = worker.connection.recv_bytes()
            reply = unpickled(packet, worker.envs.start) if packet else None
            if reply is not None and reply.turn >= 0:
                replies.append(reply)
    return replies
