"""A crew from its first process to its last: starting the workers together, and ending them.

Rules of this file:

1. Whatever waits for a start, waits for the processes' ends too, and is bounded.
2. Ending is bounded: ask, then SIGTERM, then SIGKILL. It raises nothing of its own.
3. A fork of the parent inherits these objects and answers for none of the processes: see ``crew_env``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Sequence
from multiprocessing.connection import wait
from typing import Any

from .agreement import Misfits
from .errors import TimedOutError
from .exchange import Exchange, share
from .failures import Failure, rebuild
from .reply import FAREWELL, dumps, unpickled
from .requests import Loss, Operation, Report, Setup
from .time_limits import deadline_of, left_until
from .worker_process import END_SECONDS, LOOK_SECONDS, Employment, Stage, WorkerProcess, end_all, join

__all__ = ["Roster"]

#: Told instead of a setup to a worker whose vector environment does not come about.
_GO_AWAY = dumps(None)


class Roster:
    """The workers of a vector environment, as processes that start and end; :class:`~gymshm.crew.Crew` makes them work.

    Args:
        employment: What the workers have in common.

    Attributes:
        torn: Whether a request or a reply is half way: what is raised now, by a signal's handler, loses the rest of it.
        has_ended: Whether all processes have ended, or are another process's by now.
    """

    def __init__(self, employment: Employment) -> None:
        """Starts nothing yet."""
        shares = share(len(employment.env_fns), employment.num_workers)
        self._workers = [WorkerProcess(number, envs, employment) for number, envs in enumerate(shares)]
        self._sequence = 0
        self._during = "construction"
        self._start_timeout: float | None = None
        self._was_asked_to_end = self.has_ended = False
        self.torn = False

    @property
    def shares(self) -> list[range]:
        """The environments of each worker."""
        return [worker.envs for worker in self._workers]

    @property
    def processes(self) -> list[Any]:
        """The processes, in the order of their environments."""
        return [worker.process for worker in self._workers if worker.process is not None]

    # --- start --------------------------------------------------------------------------------------------------------

    def start(self, timeout: float | None) -> list[Report]:
        """Starts the processes and waits until each has built its environments.

        Raises:
            Exception: What an environment raised.
            WorkerDiedError: A process ended.
            multiprocessing.TimeoutError: It took longer than ``timeout`` seconds.
        """
        self._start_timeout = timeout
        deadline = deadline_of(timeout)
        began = time.monotonic()
        for number, worker in enumerate(self._workers):
            worker.launch(self._workers[:number])
        reports = self._hear(self._workers, deadline)
        self._first_start_seconds = time.monotonic() - began
        return reports

    def set_up(self, setup: Setup, exchange: Exchange, timeout: float | None) -> list[Misfits]:
        """Tells all of ``setup``; gives what :func:`~gymshm.agreement.misfits` says in each.

        Raises:
            Exception: What binding the arrays raised.
            WorkerDiedError: A process ended.
            multiprocessing.TimeoutError: It took longer than ``timeout`` seconds.
        """
        self._setup, self._exchange = setup, exchange
        for worker in self._workers:
            self._instruct(worker, None)
        told = self._hear(self._workers, deadline_of(timeout))
        for worker in self._workers:
            worker.serve()
        return told

    def _instruct(self, worker: WorkerProcess, loss: Loss | None) -> None:
        worker.take_up(self._exchange.lines(worker.number), again=loss is not None)
        with contextlib.suppress(OSError):  # dead: who waits for the answer finds out, and says so
            own = dataclasses.replace(self._setup, worker=worker.number, loss=loss)
            worker.connection.send_bytes(dumps(own))

    def _hear(self, workers: Sequence[WorkerProcess], deadline: float | None) -> list[Any]:
        """What :meth:`_collect` gives; failures among that are raised."""
        heard = self._collect(workers, deadline, self._during)
        failures = [message for message in heard if isinstance(message, Failure)]
        if failures:
            raise rebuild(failures)
        return heard

    def _collect(self, workers: Sequence[WorkerProcess], deadline: float | None, during: str) -> list[Any]:
        """One message from each of ``workers``, by pickle."""
        heard: dict[int, Any] = {}
        while waiting := [worker for worker in workers if worker.number not in heard]:
            ends = [w.connection for w in waiting] + [w.process.sentinel for w in waiting]
            torn, self.torn = self.torn, False  # what is raised while it waits loses nothing
            left = left_until(deadline)
            ready = wait(ends, LOOK_SECONDS if left is None else min(LOOK_SECONDS, left))
            self.torn = torn
            if left == 0 and not ready and all(worker.process.is_alive() for worker in waiting):
                told = ", ".join(f"{worker.number} ({worker.span})" for worker in waiting)
                raise TimedOutError(
                    f"Construction is not done in time; still waiting for worker {told}. Where building the "
                    f"environments takes more than {self._start_timeout} seconds, give a greater start_timeout."
                )
            for worker in waiting:
                try:
                    if worker.connection in ready:
                        heard[worker.number] = worker.hear()
                    elif not worker.process.is_alive() and not worker.connection.poll():
                        raise EOFError
                except (EOFError, OSError):
                    raise worker.died(during) from None
        return [message for _, message in sorted(heard.items())]

    # --- end ----------------------------------------------------------------------------------------------------------

    def close(self, timeout: float | None) -> list[Failure]:
        """Ends all processes: asks those that are idle or finish in time, then SIGTERM, then SIGKILL. Idempotent.

        Who is interrupted calls again, unless ``has_ended`` says that nothing is left to do.

        Args:
            timeout: Seconds for the asking; 0 skips it, None sets no limit.

        Returns:
            What environments raised while they were closed.
        """
        if self.has_ended:
            return []
        try:
            return [] if self._was_asked_to_end else self._ask_to_end(timeout)
        finally:  # also where Ctrl-C cuts it short
            end_all(self.processes)
            for worker in self._workers:
                if worker.process is not None:
                    worker.discharge()
            self.has_ended = True

    def _ask_to_end(self, timeout: float | None) -> list[Failure]:
        self._was_asked_to_end = True
        if self.torn:
            # Some may wait for the rest of a request for ever.
            timeout = END_SECONDS if timeout is None else min(timeout, END_SECONDS)
        there = [worker for worker in self._workers if worker.process is not None and worker.stage is not Stage.ENDED]
        asked = there if timeout != 0 else []
        self._sequence += 1
        for worker in asked:
            with contextlib.suppress(OSError):
                if worker.stage is Stage.BUILDING:
                    worker.connection.send_bytes(_GO_AWAY)
                elif worker.bell is not None:
                    worker.bell.signal(self._sequence, Operation.CLOSE)
        return self._farewells(asked, deadline_of(timeout))

    def disown(self) -> None:
        """What a fork does with the crew that it inherited: the processes are not its children."""
        self.has_ended = True
        for worker in self._workers:
            worker.disown()

    def _farewells(self, asked: list[WorkerProcess], deadline: float | None) -> list[Failure]:
        """Waits until the processes have ended, and takes what they say before they do."""
        failures: list[Failure] = []
        connection: Any
        # Of a reply that is torn the rest would be read as something else.
        waiting: dict[Any, WorkerProcess] = {} if self.torn else {worker.connection: worker for worker in asked}
        # It may have been ended in the meantime, by the handler of a signal.
        while waiting and not self.has_ended and (left := left_until(deadline)) != 0:
            ready = wait(list(waiting), LOOK_SECONDS if left is None else min(LOOK_SECONDS, left))
            if not ready:
                waiting = {end: worker for end, worker in waiting.items() if worker.process.is_alive() or end.poll()}
            for connection in ready:
                try:
                    packet = connection.recv_bytes()
                except Exception:  # closed, which is what is waited for; or nothing that can be read any more
                    del waiting[connection]
                    continue
                if packet and waiting[connection].stage is Stage.SERVING:
                    reply = unpickled(packet, waiting[connection].envs.start)
                    failures += reply.failures if reply.turn == FAREWELL else []
        for worker in asked:
            join(worker.process, left_until(deadline))
        return failures
