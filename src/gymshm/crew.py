"""The parent's side of all workers: start, ask, wait, end. It alone starts and ends processes.

Rules of this file:

1. Whatever waits, waits for the processes' ends too: a dead worker is an event, told within a second.
2. A wait that runs out of time loses nothing: it can be called again, and goes on where it was.
3. Ending is bounded: ask, then SIGTERM, then SIGKILL. It never raises.
4. A fork of the parent inherits these objects and answers for none of the processes: see ``vector_env``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import multiprocessing
import pickle
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import wait
from multiprocessing.reduction import ForkingPickler
from typing import Any

from gymnasium import Env
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import CloudpickleWrapper, clear_mpi_env_vars

from .doorbell import SLEEP_SECONDS, Doorbell, fence, sleep_on
from .errors import WorkerDiedError
from .exchange import Exchange
from .failures import Failure, rebuild
from .reply import ALL_IN_COLUMNS, Reply
from .worker import INFOS_IN_COLUMNS, PAYLOAD_FOLLOWS, Operation, Report, Setup, main

__all__ = ["Crew", "share"]

#: Told instead of a setup to a worker whose vector environment does not come about.
_GO_AWAY = ForkingPickler.dumps(None)

#: Seconds that a process is given to end after SIGTERM, before SIGKILL.
_TERMINATE_SECONDS = 1.0


def share(num_envs: int, num_workers: int) -> list[range]:
    """Which environments each worker runs: contiguous, and as even as possible (17 on 6: 3, 3, 3, 3, 3, 2)."""
    least, more = divmod(num_envs, num_workers)
    starts = [worker * least + min(worker, more) for worker in range(num_workers + 1)]
    return [range(start, stop) for start, stop in itertools.pairwise(starts)]


class _Worker:
    """One worker: its environments, its process, and the ways to it."""

    def __init__(self, number: int, envs: range) -> None:
        self.number, self.envs = number, envs
        self.process: Any = None
        self.connection: Any = None
        self.bell: Any = None


class Crew:
    """All workers of a vector environment.

    Args:
        context: A multiprocessing context.
        env_fns: Functions that create the environments.
        num_workers: Number of processes, at most one per environment.
        autoreset_mode: What happens after the end of an episode.
        daemon: Whether the processes are daemonic.
        name: The vector environment's class, for the names of the processes.
    """

    def __init__(
        self,
        context: Any,
        env_fns: Sequence[Callable[[], Env[Any, Any]]],
        num_workers: int,
        autoreset_mode: AutoresetMode,
        daemon: bool,
        name: str,
    ) -> None:
        """Starts nothing yet."""
        self._context, self._env_fns, self._autoreset_mode = context, env_fns, autoreset_mode
        self._daemon, self._name = daemon, name
        self._workers = [_Worker(number, envs) for number, envs in enumerate(share(len(env_fns), num_workers))]
        self._sequence = 0
        self._during = "construction"
        self._pending: list[_Worker] = []
        self._replies: list[Reply | None] = []
        self._ended = False

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
        deadline = _deadline(timeout)
        with clear_mpi_env_vars():
            for worker in self._workers:
                self._launch(worker)
        return self._hear_all(deadline)

    def set_up(self, setup: Setup, exchange: Exchange, timeout: float | None) -> list[tuple[bool, bool]]:
        """Tells all of ``setup``; gives for each whether its observation and action spaces match.

        Raises:
            Exception: What binding the arrays raised.
            WorkerDiedError: A process ended.
            multiprocessing.TimeoutError: It took longer than ``timeout`` seconds.
        """
        for worker in self._workers:
            worker.bell = Doorbell(*exchange.lines(worker.number), worker.connection)
            with contextlib.suppress(OSError):  # dead: the wait below finds out, and says so
                own = dataclasses.replace(setup, worker=worker.number)
                worker.connection.send_bytes(ForkingPickler.dumps(own))
        return self._hear_all(_deadline(timeout))

    def _launch(self, worker: _Worker) -> None:
        worker.connection, theirs = self._context.Pipe()
        # Ends that a fork copies; a fresh interpreter gets none.
        forks = self._context.get_start_method() == "fork"
        inherited = [other.connection for other in self._workers if other.process is not None] if forks else []
        own_fns = [self._env_fns[i] for i in worker.envs]
        process = self._context.Process(
            target=main,
            name=f"Worker<{self._name}>-{worker.number}",
            args=(
                theirs,
                [*inherited, worker.connection] if forks else [],
                CloudpickleWrapper(own_fns),  # type: ignore[arg-type]  # carries whatever it is given
                worker.envs.start,
                self._autoreset_mode,
            ),
            daemon=self._daemon,
        )
        try:
            process.start()
        finally:
            theirs.close()
        worker.process = process

    def _hear_all(self, deadline: float | None) -> list[Any]:
        """One message from each worker, by pickle; once all have come, failures among them are raised."""
        heard: dict[int, Any] = {}
        while len(heard) < len(self._workers):
            waiting = [worker for worker in self._workers if worker.number not in heard]
            ready = wait([w.connection for w in waiting] + [w.process.sentinel for w in waiting], _left(deadline))
            if not ready:
                told = ", ".join(f"{w.number} (environments {_span(w.envs)})" for w in waiting)
                raise multiprocessing.TimeoutError(
                    f"Construction is not done in time; still waiting for worker {told}."
                )
            for worker in waiting:
                if worker.connection in ready:
                    try:
                        heard[worker.number] = pickle.loads(worker.connection.recv_bytes())
                    except (EOFError, ConnectionError):
                        raise self._died(worker) from None
                elif worker.process.sentinel in ready:
                    raise self._died(worker)
        failures = [message for _, message in sorted(heard.items()) if isinstance(message, Failure)]
        if failures:
            raise rebuild(failures)
        return [message for _, message in sorted(heard.items())]

    # --- ask and wait -------------------------------------------------------------------------------------------------

    def post(self, operation: Operation, slot: int = 0, payloads: Sequence[Any] | None = None) -> None:
        """Asks all workers for ``operation``; :meth:`wait` gives the replies.

        Args:
            operation: What is asked.
            slot: The row of history that it is about.
            payloads: What else each worker needs to know, one object per worker.

        Raises:
            Exception: A payload can't be pickled; nothing was asked.
        """
        packed = None if payloads is None else [ForkingPickler.dumps(payload) for payload in payloads]
        self._sequence = sequence = self._sequence + 1
        self._during = operation.name.lower()
        workers = self._workers
        for worker in workers:
            worker.bell.post(sequence, operation, slot)
        self._pending = workers[:]
        self._replies = [None] * len(workers)
        fence()
        for worker in workers:
            try:
                worker.bell.ring()
                if packed is not None:
                    worker.connection.send_bytes(packed[worker.number])
            except OSError:
                pass  # dead: wait() finds out, and says so

    def wait(self, timeout: float | None = None) -> list[Reply | None]:
        """The replies to what was posted, one per worker; None where a worker has nothing to add.

        Raises:
            WorkerDiedError: A process ended.
            multiprocessing.TimeoutError: It took longer than ``timeout`` seconds; calling again goes on waiting.
        """
        deadline = _deadline(timeout)
        pending, sequence = self._pending, self._sequence
        while pending:
            worker = pending[0]
            if not worker.bell.spin(sequence):
                self._sleep(worker, sequence, deadline)
                continue
            word = worker.bell.said()[1]
            if word == INFOS_IN_COLUMNS:
                self._replies[worker.number] = ALL_IN_COLUMNS
            elif word == PAYLOAD_FOLLOWS:
                try:
                    self._replies[worker.number] = pickle.loads(worker.bell.receive())
                except (EOFError, OSError):
                    raise self._died(worker) from None
            del pending[0]
        return self._replies

    def _sleep(self, worker: _Worker, sequence: int, deadline: float | None) -> None:
        """Sleeps until ``worker`` rings; looks for dead workers when something else wakes it."""
        left = _left(deadline)
        if left == 0:
            raise multiprocessing.TimeoutError
        try:
            worker.bell.sleep(
                sequence, SLEEP_SECONDS if left is None else left, [w.process.sentinel for w in self._pending]
            )
        except (EOFError, OSError):
            raise self._died(worker) from None
        for other in self._pending:
            if not other.bell.heard(sequence) and not other.process.is_alive():
                raise self._died(other)

    # --- turns --------------------------------------------------------------------------------------------------------

    def post_turns(self, workers: Iterable[int]) -> None:
        """Wakes ``workers`` for the environments that the exchange says are asked."""
        self._during = "a turn"
        self._sequence += 1
        posted = [self._workers[number] for number in workers]
        for worker in posted:
            worker.bell.post(self._sequence, Operation.TURN)
        fence()
        for worker in posted:
            with contextlib.suppress(OSError):  # dead: sleep_for_turns() finds out, and says so
                worker.bell.ring()

    def post_turn_resets(self, payloads: Sequence[Any]) -> None:
        """Asks all environments for a reset as their next turn; seeds and options for each worker."""
        self.post(Operation.TURN_RESET, payloads=payloads)
        self._pending = []

    def take_turn_payload(self, worker: int) -> Reply:
        """The next thing that ``worker`` has to tell of a turn that is done.

        Raises:
            WorkerDiedError: Its process ended.
        """
        try:
            reply: Reply = pickle.loads(self._workers[worker].bell.receive())
        except (EOFError, OSError):
            raise self._died(self._workers[worker]) from None
        return reply

    def sleep_for_turns(self, has_news: Callable[[], bool], seconds: float) -> None:
        """Sleeps until a worker rings, one ends, or ``seconds`` are over; not at all if ``has_news`` once all is quiet.

        Raises:
            WorkerDiedError: A process ended.
        """
        bells = [worker.bell for worker in self._workers]
        for bell in bells:
            bell.lie_down()
        try:
            if has_news():
                return
            ready = sleep_on(bells, [worker.process.sentinel for worker in self._workers], seconds)
        finally:
            for bell in bells:
                bell.get_up()
        if not has_news():
            for worker in self._workers:
                try:
                    if worker.bell in ready:
                        worker.bell.drop_ring()
                except (EOFError, OSError):
                    raise self._died(worker) from None
                if not worker.process.is_alive():
                    raise self._died(worker)

    def _died(self, worker: _Worker) -> WorkerDiedError:
        """What to raise for a worker whose process is gone, or whose connection is."""
        worker.process.join(_TERMINATE_SECONDS)  # its connection closes a moment before its exit code is there
        code = worker.process.exitcode
        how = "closed its connection" if code is None else f"exit code {code}"
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                how = f"{signal.Signals(-code).name}, {how}"
        return WorkerDiedError(
            f"worker {worker.number} of {len(self._workers)} (environments {_span(worker.envs)}) died ({how}) during "
            f"{self._during}",
            worker.number,
            worker.envs,
            code,
            self._during,
        )

    # --- end ----------------------------------------------------------------------------------------------------------

    def close(self, timeout: float) -> list[Failure]:
        """Ends all processes: asks those that are idle or finish in time, then SIGTERM, then SIGKILL. Twice is fine.

        Args:
            timeout: Seconds for the asking; 0 skips it.

        Returns:
            What environments raised while they were closed.
        """
        if self._ended:
            return []
        self._ended = True
        asked = [worker for worker in self._workers if worker.process is not None] if timeout > 0 else []
        self._sequence += 1
        for worker in asked:
            with contextlib.suppress(OSError):
                if worker.bell is not None:
                    worker.bell.signal(self._sequence, Operation.CLOSE)
                else:
                    worker.connection.send_bytes(_GO_AWAY)
        failures = self._farewells(asked, time.monotonic() + timeout)
        for end in ("terminate", "kill"):
            deadline = time.monotonic() + _TERMINATE_SECONDS
            running = [process for process in self.processes if process.is_alive()]
            for process in running:
                getattr(process, end)()
            for process in running:
                process.join(max(0.0, deadline - time.monotonic()))
        for worker in self._workers:
            if worker.process is not None:
                worker.process.join(_TERMINATE_SECONDS)
                worker.connection.close()
        return failures

    def _farewells(self, asked: list[_Worker], deadline: float) -> list[Failure]:
        """Waits until the processes have ended, and takes what they say before they do."""
        failures: list[Failure] = []
        connection: Any
        waiting: dict[Any, _Worker] = {worker.connection: worker for worker in asked}
        while waiting and (ready := wait(list(waiting), max(0.0, deadline - time.monotonic()))):
            for connection in ready:
                try:
                    message = connection.recv_bytes()
                    reply = pickle.loads(message) if message else None
                    if isinstance(reply, Reply):
                        failures += reply.failures
                except Exception:  # closed, which is what is waited for; or nothing that can be read any more
                    del waiting[connection]
        for worker in asked:
            worker.process.join(max(0.0, deadline - time.monotonic()))
        return failures


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _span(envs: range) -> str:
    return str(envs.start) if len(envs) == 1 else f"{envs.start}-{envs.stop - 1}"
