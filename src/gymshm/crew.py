"""The parent's side of all workers: start, ask, wait, and what follows from a death.

Rules of this file:

1. Whatever waits, waits for the processes' ends too: a dead worker is an event, told within a second.
2. A wait that runs out of time loses nothing: it can be called again, and goes on where it was.
3. A restarted worker is asked again what the dead one was asked. It knows that its episodes are lost, and tells so in
   the next step (see ``env_group``); so there is one way for step, reset, call and turns. The others never notice.
4. Ending is bounded: ask, then SIGTERM, then SIGKILL. It never raises.
5. A fork of the parent inherits these objects and answers for none of the processes: see ``crew_env``.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import multiprocessing
import time
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import wait
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

from .doorbell import SLEEP_SECONDS, sleep_on
from .errors import WorkerDiedError
from .exchange import Exchange, share
from .failures import Failure, rebuild
from .ordering import fence
from .policy import DeathPolicy
from .reply import ALL_IN_COLUMNS, Reply, dumps, unpickled
from .worker import INFOS_IN_COLUMNS, PAYLOAD_FOLLOWS, Loss, Operation, Report, Setup
from .worker_process import Employment, WorkerProcess, end_all

__all__ = ["Crew"]

#: What errors call an operation; looked up at each step, and an enum's own name is slow.
_NAMES = {operation: operation.name.lower() for operation in Operation}

#: Told instead of a setup to a worker whose vector environment does not come about.
_GO_AWAY = bytes(ForkingPickler.dumps(None))  # a view would complain at exit (3.13)


class Crew:
    """All workers of a vector environment.

    Args:
        employment: What the workers have in common.
        policy: What follows from the death of one.

    Attributes:
        seeds: What each environment was reset with last; a restart derives its seed from that.
        last_good: The slot that holds what the environments showed last, as far as a caller has seen it.
        restarts: How often each worker was started anew.
    """

    def __init__(self, employment: Employment, policy: DeathPolicy) -> None:
        """Starts nothing yet."""
        shares = share(len(employment.env_fns), employment.num_workers)
        self._workers = [WorkerProcess(number, envs, employment) for number, envs in enumerate(shares)]
        self._policy = policy
        self.seeds: Sequence[int | None] = [None] * len(employment.env_fns)
        self.last_good = 0
        self.restarts = [0] * len(shares)
        self._sequence = 0
        self._during = "construction"
        self._request: tuple[Operation, int, list[Any] | None] = (Operation.CALL, 0, None)
        self._pending: list[WorkerProcess] = []
        self._replies: list[Reply | None] = []
        self._posted_at = 0.0
        self._told_before: list[collections.deque[Reply]] = [collections.deque() for _ in shares]
        self._deaths: list[tuple[float, WorkerDiedError]] = []
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
        for number, worker in enumerate(self._workers):
            worker.launch(self._workers[:number])
        return self._hear(self._workers, deadline)

    def set_up(self, setup: Setup, exchange: Exchange, timeout: float | None) -> list[tuple[bool, bool]]:
        """Tells all of ``setup``; gives for each whether its observation and action spaces match.

        Raises:
            Exception: What binding the arrays raised.
            WorkerDiedError: A process ended.
            multiprocessing.TimeoutError: It took longer than ``timeout`` seconds.
        """
        self._setup, self._exchange = setup, exchange
        for worker in self._workers:
            self._instruct(worker, None)
        return self._hear(self._workers, _deadline(timeout))

    def _instruct(self, worker: WorkerProcess, loss: Loss | None) -> None:
        worker.take_up(self._exchange.lines(worker.number))
        with contextlib.suppress(OSError):  # dead: who waits for the answer finds out, and says so
            own = dataclasses.replace(self._setup, worker=worker.number, loss=loss)
            worker.connection.send_bytes(ForkingPickler.dumps(own))

    def _hear(self, workers: Sequence[WorkerProcess], deadline: float | None) -> list[Any]:
        """One message from each of ``workers``, by pickle; once all have come, failures among them are raised."""
        heard: dict[int, Any] = {}
        while waiting := [worker for worker in workers if worker.number not in heard]:
            ready = wait([w.connection for w in waiting] + [w.process.sentinel for w in waiting], _left(deadline))
            if not ready:
                told = ", ".join(f"{worker.number} (environments {worker.span})" for worker in waiting)
                raise multiprocessing.TimeoutError(f"Construction is not done in time; still waiting for worker {told}")
            for worker in waiting:
                try:
                    if worker.connection in ready:
                        heard[worker.number] = worker.hear()
                    elif worker.process.sentinel in ready:
                        raise EOFError
                except (EOFError, OSError):
                    raise worker.died(self._during) from None
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
        packed = None if payloads is None else [dumps(payload) for payload in payloads]
        self._sequence = sequence = self._sequence + 1
        self._during = _NAMES[operation]
        self._request = operation, slot, packed
        if self._policy.step_timeout is not None:
            self._posted_at = time.monotonic()
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
            WorkerDiedError: A process ended, and is not restarted.
            multiprocessing.TimeoutError: It took longer than ``timeout`` seconds; calling again goes on waiting.
        """
        deadline = _deadline(timeout)
        pending, sequence = self._pending, self._sequence
        while pending:
            worker = pending[0]
            try:
                if not worker.bell.spin(sequence):
                    self._sleep(worker, sequence, deadline)
                    continue
                word = worker.bell.said_word()
                if word == INFOS_IN_COLUMNS:
                    self._replies[worker.number] = ALL_IN_COLUMNS
                elif word == PAYLOAD_FOLLOWS:
                    try:
                        packet = worker.bell.receive()
                        self._replies[worker.number] = unpickled(packet, worker.envs.start)
                    except (EOFError, OSError):
                        raise worker.died(self._during) from None
            except WorkerDiedError as death:
                dead = self._workers[death.worker]
                self._revive(dead, death)
                self._repeat(dead)
                continue
            del pending[0]
        self.last_good = self._request[1]
        return self._replies

    def _sleep(self, worker: WorkerProcess, sequence: int, deadline: float | None) -> None:
        """Sleeps until ``worker`` rings; looks for dead and hung workers when something else wakes it."""
        left = _left(deadline)
        if left == 0:
            raise multiprocessing.TimeoutError
        limit = self._step_deadline()
        naps = [nap for nap in (left, _left(limit)) if nap is not None]
        sentinels = [other.process.sentinel for other in self._pending]
        try:
            worker.bell.sleep(sequence, min(naps, default=SLEEP_SECONDS), sentinels)
        except (EOFError, OSError):
            raise worker.died(self._during) from None
        for other in self._pending:
            if not other.bell.heard(sequence):
                if not other.process.is_alive():
                    raise other.died(self._during)
                if limit is not None and time.monotonic() >= limit:
                    raise other.hung(self._during, self._policy.step_timeout or 0.0)

    def _step_deadline(self) -> float | None:
        seconds = self._policy.step_timeout
        if seconds is None or self._request[0] not in (Operation.STEP, Operation.STEP_WITH):
            return None
        return self._posted_at + seconds

    # --- deaths -------------------------------------------------------------------------------------------------------

    def _revive(self, worker: WorkerProcess, death: WorkerDiedError) -> None:
        """Starts a worker anew in the place of one that died; its environments are built and reset.

        Raises:
            WorkerDiedError: The policy is not to, or it died too often.
        """
        if not self._policy.restarts:
            raise death
        while True:
            self._count(death)
            self._told_before[worker.number].extend(_leftovers(worker))
            worker.process.kill()  # it may have closed its connection, and live
            worker.discharge()
            self.restarts[worker.number] += 1
            try:
                worker.launch([other for other in self._workers if other is not worker])
                self._hear([worker], None)
                self._instruct(worker, self._loss_of(worker))
                self._hear([worker], None)
                self._posted_at = time.monotonic()
                return
            except WorkerDiedError as again:
                death = again

    def _count(self, death: WorkerDiedError) -> None:
        """Takes note of ``death``; raises it, with those before it, where there were too many."""
        now, policy = time.monotonic(), self._policy
        self._deaths = [(when, past) for when, past in self._deaths if now - when < policy.restart_window]
        self._deaths.append((now, death))
        if len(self._deaths) > policy.max_restarts:
            history = "\n".join(f"- {now - when:.1f} s ago: {past}" for when, past in self._deaths)
            limit = f"max_restarts={policy.max_restarts} in {policy.restart_window} s"
            text = f"{death}. That is more than {limit}:\n{history}"
            raise WorkerDiedError(text, death.worker, death.envs, death.exitcode, death.during)

    def _loss_of(self, worker: WorkerProcess) -> Loss:
        """What a restarted worker has to know of what its environments were."""
        attempt = self.restarts[worker.number]
        seeds = [_derived(self.seeds[env], attempt) for env in worker.envs]
        return Loss(self.last_good, seeds)

    def _repeat(self, worker: WorkerProcess) -> None:
        """Asks a restarted worker what the dead one was asked."""
        operation, slot, packed = self._request
        with contextlib.suppress(OSError):
            worker.bell.signal(self._sequence, operation, slot)
            if packed is not None:
                worker.connection.send_bytes(packed[worker.number])

    # --- turns --------------------------------------------------------------------------------------------------------

    def post_turns(self, workers: Iterable[int]) -> None:
        """Wakes ``workers`` for the environments that the exchange says are asked."""
        self._during, self._request = "a turn", (Operation.TURN, 0, None)
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

    def take_turn_payload(self, worker: int) -> Reply | None:
        """The next thing that ``worker`` has to tell of a turn that is done; None where it died before it told all."""
        before = self._told_before[worker]
        if before:
            return before.popleft()
        try:
            packet = self._workers[worker].bell.receive()
        except (EOFError, OSError):
            return None
        return unpickled(packet, self._workers[worker].envs.start)

    def sleep_for_turns(self, has_news: Callable[[], bool], seconds: float) -> None:
        """Sleeps until a worker rings, one ends, or ``seconds`` are over; not at all if ``has_news`` once all is quiet.

        What is waiting to be told of turns has to be taken before: a packet without news is taken for a ring.
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
            for bell in ready:
                with contextlib.suppress(EOFError, OSError):  # dead: attend() finds out, and says so
                    bell.drop_ring()

    def attend(self, hung: Sequence[int]) -> None:
        """Sees to workers that died, or are ``hung``, while turns are asked.

        Raises:
            WorkerDiedError: One did, and is not restarted.
        """
        for worker in self._workers:
            if worker.number in hung:
                death = worker.hung(self._during, self._policy.step_timeout or 0.0)
            elif not worker.process.is_alive():
                death = worker.died(self._during)
            else:
                continue
            self._revive(worker, death)
            self._repeat(worker)

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
        try:
            return self._farewells(asked, time.monotonic() + timeout)
        finally:  # also where Ctrl-C cuts it short
            end_all(self.processes)
            for worker in self._workers:
                if worker.process is not None:
                    worker.discharge()

    def disown(self) -> None:
        """What a fork does with the crew that it inherited: the processes are not its children."""
        self._ended = True
        for worker in self._workers:
            worker.disown()

    def _farewells(self, asked: list[WorkerProcess], deadline: float) -> list[Failure]:
        """Waits until the processes have ended, and takes what they say before they do."""
        failures: list[Failure] = []
        connection: Any
        waiting: dict[Any, WorkerProcess] = {worker.connection: worker for worker in asked}
        while waiting and (ready := wait(list(waiting), max(0.0, deadline - time.monotonic()))):
            for connection in ready:
                try:
                    packet = connection.recv_bytes()
                except (EOFError, OSError):  # closed, which is what is waited for
                    del waiting[connection]
                    continue
                if packet and waiting[connection].bell is not None:
                    failures += unpickled(packet, waiting[connection].envs.start).failures
        for worker in asked:
            worker.process.join(max(0.0, deadline - time.monotonic()))
        return failures


def _leftovers(worker: WorkerProcess) -> list[Reply]:
    """What a dead worker had told of turns and nobody has read."""
    replies = []
    with contextlib.suppress(EOFError, OSError):
        while worker.connection.poll():
            packet = worker.connection.recv_bytes()
            reply = unpickled(packet, worker.envs.start) if packet and worker.bell is not None else None
            if reply is not None and reply.turn >= 0:
                replies.append(reply)
    return replies


def _derived(seed: int | None, attempt: int) -> int | None:
    """A seed for the environment that takes the place of one that was reset with ``seed``; the same in every run."""
    return None if seed is None else int(np.random.SeedSequence((seed, attempt)).generate_state(1)[0])


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
