"""The parent's side of all workers at work: asks them, waits for them, and notices where one died or hangs.

Rules of this file:

1. Whatever waits, waits for the processes' ends too: a dead worker is an event, told within a second.
2. A wait that runs out of time loses nothing: it can be called again, and goes on where it was.
3. Where a worker is started anew (see ``restarts``), the others never notice: workers that died together are started
   anew together, and while environments take turns nobody waits for a restart.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import wait
from typing import Any, Final

from .agreement import Misfits
from .doorbell import SLEEP_SECONDS, Doorbells, sleep_on
from .errors import WorkerDiedError
from .exchange import Exchange
from .ordering import fence
from .policy import DeathPolicy
from .reply import ALL_IN_COLUMNS, Reply, dumps, unpickled
from .requests import INFOS_IN_COLUMNS, PAYLOAD_FOLLOWS, Operation, Setup
from .restarts import RestartingRoster, TurnKeeper
from .time_limits import deadline_of, left_until
from .worker_process import Employment, Stage, WorkerProcess

__all__ = ["Crew", "overslept"]

#: What errors call an operation; looked up at each step, and an enum's own name is slow.
_NAMES = {operation: operation.name.lower() for operation in Operation} | {
    Operation.STEP_WITH: "step",
    Operation.TURN_RESET: "a turn",
}

_SERVING: Final = Stage.SERVING  # looked up at every step: see ``worker.STEP``

#: What ``step_timeout`` is for. Calls may be about anything.
_LIMITED = frozenset({Operation.STEP, Operation.STEP_WITH, Operation.RESET})

#: Between two looks lies a sleep. One that is this many seconds too long was none: this process was stopped, and its
#: workers probably, too.
_OVERSLEPT_SECONDS = 1.0


def overslept(looked_at: float, now: float) -> float:
    """Seconds between two looks that nobody had a chance to use, as all of the job was stopped: by SIGSTOP, say."""
    unseen = now - looked_at - SLEEP_SECONDS
    return unseen if unseen > _OVERSLEPT_SECONDS else 0.0


class Crew(RestartingRoster):
    """All workers of a vector environment, at work.

    Args:
        employment: What the workers have in common.
        policy: What follows from the death of one.

    Attributes:
        nothing_to_add: What :meth:`wait` gives where no worker has anything to add, this very object.
    """

    def __init__(self, employment: Employment, policy: DeathPolicy) -> None:
        """Starts nothing yet."""
        super().__init__(employment, policy)
        self.nothing_to_add: Sequence[Reply | None] = (None,) * len(self._workers)
        # How many of the workers' replies to what they were asked have been taken, from the first worker on.
        self._taken = len(self._workers)
        self._replies: list[Reply | None] = []
        # When, in what is waited for now, workers that may hang were looked at last.
        self._looked_at = 0.0

    def set_up(self, setup: Setup, exchange: Exchange, timeout: float | None) -> list[Misfits]:
        """As a roster does; from then on there is a way to ask all of them."""
        misfits = super().set_up(setup, exchange, timeout)
        self._bells = Doorbells([worker.bell for worker in self._workers])
        return misfits

    # --- ask and wait -------------------------------------------------------------------------------------------------

    def post(
        self,
        operation: Operation,
        slot: int = 0,
        payloads: Sequence[Any] | None = None,
        mark: Callable[[], None] | None = None,
    ) -> None:
        """Asks all workers for ``operation``; :meth:`wait` gives the replies.

        Args:
            operation: What is asked.
            slot: The slot that it is about.
            payloads: What else each worker needs to know, one object per worker.
            mark: Called once the request stands written, before anybody is woken.

        Raises:
            Exception: A payload can't be pickled; nothing was asked.
            WorkerDiedError: A worker that was being restarted can't be.
        """
        packed = None if payloads is None else [dumps(payload) for payload in payloads]
        if self._rebuilding:
            with self._restarting():
                for number in sorted(self._rebuilding):
                    self._renew(self._workers[number], None, None, None)
        self._taken = 0
        self._sequence = sequence = self._sequence + 1
        self._during = _NAMES[operation]
        self._request = operation, slot, packed
        if self._policy.step_timeout is not None:
            now = time.monotonic()
            for worker in self._workers:
                worker.asked_at = now
        asleep = self._bells.post(sequence, operation, slot)
        if mark is not None:
            mark()
        if asleep or packed is not None:
            for worker in self._workers:
                self._wake(worker, worker.number in asleep, None if packed is None else packed[worker.number])

    def _wake(self, worker: WorkerProcess, asleep: bool, payload: bytes | None) -> None:
        """Rings a worker that sleeps, and sends what goes with its request."""
        try:
            if asleep:
                worker.bell.ring()
            # Nobody else reads what is sent to a dead one: sending waits for ever where others hold its connection.
            if payload is not None and worker.process.is_alive():
                worker.connection.send_bytes(payload)
        except BlockingIOError:
            self._end_hung(worker)
        except OSError:
            pass  # dead: wait() finds out, and says so

    def wait(self, timeout: float | None = None) -> Sequence[Reply | None]:
        """The replies to what was posted, one per worker; None where a worker has nothing to add.

        Raises:
            WorkerDiedError: A process ended, and is not restarted.
            multiprocessing.TimeoutError: It took longer than ``timeout`` seconds; calling again goes on waiting.
        """
        workers, sequence = self._workers, self._sequence
        if self._policy.step_timeout is not None:
            self._looked_at = time.monotonic()
        if self._bells.spin(sequence):
            self._taken = len(workers)
            self._exchange.seen_slot[0] = self._request[1]
            return self.nothing_to_add
        spun = True
        deadline = deadline_of(timeout)
        if self._taken == 0:
            self._replies = [None] * len(workers)
        while self._taken < len(workers):
            worker = workers[self._taken]
            if worker.stage is not _SERVING:
                self._go_on(deadline)
                continue
            death: WorkerDiedError | None = None
            try:
                if not (worker.bell.heard(sequence) if spun else worker.bell.spin(sequence)):
                    spun = False
                    self._sleep(worker, sequence, deadline)
                    continue
                word = worker.bell.said_word()
                if word == INFOS_IN_COLUMNS:
                    self._replies[worker.number] = ALL_IN_COLUMNS
                elif word == PAYLOAD_FOLLOWS:
                    self.torn = True
                    try:
                        packet = worker.bell.receive()
                        self._replies[worker.number] = unpickled(packet, worker.envs.start)
                    except BlockingIOError:
                        raise worker.hung(self._during, self._told_limit()) from None
                    except (EOFError, OSError):
                        raise worker.died(self._during) from None
            except WorkerDiedError as error:
                death = error
            if death is not None:  # out of the block above: what is forked there would have its exception as context
                self.torn = False
                self._replace_dead(death)
                continue
            self._taken += 1
            self.torn = False
        self._exchange.seen_slot[0] = self._request[1]
        if self._setup.terms.observation_space is None:
            for number, reply in enumerate(self._replies):
                if reply is not None and reply.observations is not None:
                    self._seen[number] = reply.observations
        return self.nothing_to_add if self._replies.count(None) == len(workers) else self._replies

    @property
    def is_busy(self) -> bool:
        """Whether something was asked, or might have been, that not all have answered."""
        return self._taken < len(self._workers)

    @property
    def _pending(self) -> list[WorkerProcess]:
        """The workers whose reply has not been taken yet."""
        return self._workers[self._taken :]

    def _sleep(self, worker: WorkerProcess, sequence: int, deadline: float | None) -> None:
        """Sleeps until ``worker`` rings; looks for dead and hung workers when something else wakes it.

        Raises:
            WorkerDiedError: One is dead, or hangs.
            multiprocessing.TimeoutError: ``deadline`` is over.
        """
        left, limit, now = left_until(deadline), self._limit(), time.monotonic()
        naps = [SLEEP_SECONDS] if left is None else [SLEEP_SECONDS, left]
        # Workers that are being restarted are left to `_go_on`, once the loop in `wait` reaches them.
        asked = [other for other in self._pending if other.stage is _SERVING]
        if limit is not None:
            naps += [max(0.0, other.asked_at + limit - now) for other in asked]
        sentinels = [other.process.sentinel for other in asked]
        try:
            rang = worker.bell.sleep(sequence, min(naps), sentinels)
        except (EOFError, OSError):
            raise worker.died(self._during) from None
        if limit is not None:
            now = time.monotonic()
            unseen, self._looked_at = overslept(self._looked_at, now), now
            for other in asked:
                other.asked_at += unseen
        if rang:
            return  # with many workers, a look at each takes longer than what was waited for
        late = [other for other in asked if not other.bell.heard(sequence)]
        for other in late:
            if limit is not None and now >= other.asked_at + limit and other.process.is_alive():
                self._end_hung(other)
        for other in late:
            if not other.process.is_alive():
                raise other.died(self._during)
        if left == 0 and not worker.bell.heard(sequence):
            raise multiprocessing.TimeoutError

    def _end_hung(self, worker: WorkerProcess) -> None:
        """Kills a worker that does not come back; whoever finds it dead says so (``wait`` or ``attend``)."""
        worker.foreseen = worker.hung(self._during, self._told_limit())

    def _limit(self) -> float | None:
        """Seconds that a worker may take for what it is asked; None for no limit."""
        return self._policy.step_timeout if self._request[0] in _LIMITED else None

    # --- deaths -------------------------------------------------------------------------------------------------------

    def _replace_dead(self, death: WorkerDiedError) -> None:
        """Starts a process in the place of the worker that died, and of each that died with it; waits for none.

        Raises:
            WorkerDiedError: The policy is not to, or one died too often.
        """
        first = self._workers[death.worker]
        others = [worker for worker in self._unanswered() if worker is not first]
        with self._restarting():
            self._bury(first, death, None)
            for worker in others:
                if not worker.process.is_alive():
                    self._bury(worker, worker.died(self._during), None)
            for worker in (first, *others):
                if worker.stage is Stage.ENDED:
                    self._launch(worker)

    def _go_on(self, deadline: float | None) -> None:
        """Takes the restarts that are waited for a step on, and looks after who dies meanwhile; may return early.

        Raises:
            WorkerDiedError: One that died is not restarted.
            multiprocessing.TimeoutError: ``deadline`` is over; calling again goes on.
        """
        for worker in self._pending:
            if worker.stage is not Stage.SERVING:
                self._replace(worker, None)
        rebuilt = [worker for worker in self._pending if worker.stage is not Stage.SERVING]
        if not rebuilt:
            return
        left = left_until(deadline)
        if left == 0:
            raise multiprocessing.TimeoutError
        others = self._unanswered()
        ends = [worker.process.sentinel for worker in (*rebuilt, *others)]
        wait(
            [*(worker.connection for worker in rebuilt), *ends],
            SLEEP_SECONDS if left is None else min(SLEEP_SECONDS, left),
        )
        for worker in others:
            if worker.stage is Stage.SERVING and not worker.process.is_alive():
                self._replace_dead(worker.died(self._during))

    def _unanswered(self) -> list[WorkerProcess]:
        """Those of the pending that serve, and have not answered yet."""
        serving = [worker for worker in self._pending if worker.stage is Stage.SERVING]
        return [worker for worker in serving if not worker.bell.heard(self._sequence)]

    # --- turns --------------------------------------------------------------------------------------------------------

    def post_turns(self, workers: Iterable[int]) -> None:
        """Wakes ``workers`` for the environments that the exchange says are asked."""
        self._during, self._request = "a turn", (Operation.TURN, 0, None)
        self._sequence += 1
        # One whose restart is not done yet reads what is asked when it comes.
        posted = [self._workers[number] for number in workers if self._workers[number].stage is Stage.SERVING]
        for worker in posted:
            worker.bell.post(self._sequence, Operation.TURN)
        fence()
        for worker in posted:
            with contextlib.suppress(OSError):  # dead: sleep_for_turns() finds out, and says so
                worker.bell.ring()

    def post_turn_resets(self, payloads: Sequence[Any], mark: Callable[[], None]) -> None:
        """Asks all environments for a reset as their next turn.

        Args:
            payloads: Seeds, options, and that all are to be reset, for each worker.
            mark: Marks them as asked. Called once it stands written that it is for resets: a worker that is still about
                to look for the next turn must not take it for a step.

        Raises:
            Exception: A payload can't be pickled; nothing was asked.
        """
        self.post(Operation.TURN_RESET, payloads=payloads, mark=mark)
        self._taken = len(self._workers)

    def take_turn_payload(self, number: int) -> Reply | None:
        """The next thing that worker ``number`` has to tell of a turn that is done; None where it died before that."""
        worker = self._workers[number]
        try:
            packet = worker.bell.receive()
        except BlockingIOError:
            self._end_hung(worker)
            return None
        except (EOFError, OSError):
            return None
        return unpickled(packet, worker.envs.start)

    def sleep_for_turns(
        self, until: int, is_over: Callable[[], bool], is_told_more: Callable[[], bool], seconds: float
    ) -> tuple[bool, list[int]]:
        """Sleeps until workers have done enough turns, or one has something to tell.

        Args:
            until: How many turns, as :meth:`Exchange.count_turns` counts, are enough.
            is_over: Whether enough are ready; whoever is done before it is known that this side sleeps does not ring.
            is_told_more: Whether a worker has something to tell. Where none has, a packet can only be a ring: that
                something follows stands written before it is sent.
            seconds: At most.

        Returns:
            Whether it was woken by a worker that serves, else :meth:`attend` has to look; and the workers that closed
            their connection, though they may seem to live.
        """
        if any(self._workers[number].stage is Stage.ENDED for number in self._rebuilding):
            return False, []  # it could not be started, for lack of descriptors perhaps: to be tried again
        bells = [worker.bell for worker in self._workers if worker.stage is Stage.SERVING]
        for bell in bells:
            bell.lie_down(until)
        try:
            if is_over():
                return True, []
            ends = [worker.process.sentinel for worker in self._workers]
            # What they say of their restart is for attend().
            ends += [self._workers[number].connection.fileno() for number in self._rebuilding]
            ready = sleep_on(bells, ends, seconds)
        finally:
            for bell in bells:
                bell.get_up()
        gone = []
        if not is_told_more():
            for bell in ready:
                try:
                    bell.drop_ring()
                except (EOFError, OSError):
                    gone += [worker.number for worker in self._workers if worker.bell is bell]
        return bool(ready), gone

    def attend(self, hung: Sequence[int], gone: Sequence[int], turns: TurnKeeper) -> None:
        """Sees to workers that died while turns are asked; restarts go on by themselves, and are only looked after.

        Args:
            hung: Workers that take too long.
            gone: Workers that do not tell any more, though they may seem to live.
            turns: Knows what is asked.

        Raises:
            WorkerDiedError: One did, and is not restarted.
        """
        for number in hung:  # first: where one death is raised, nobody comes back to the others
            worker = self._workers[number]
            # One that was started anew has all of its time from then on.
            limit = self._policy.step_timeout
            if worker.stage is Stage.SERVING and limit is not None and time.monotonic() > worker.asked_at + limit:
                self._end_hung(worker)
        for worker in self._workers:
            if worker.stage is not Stage.SERVING:
                death = None
            elif worker.number in gone or not worker.process.is_alive():
                death = worker.died(self._during)
            else:
                continue
            self._replace(worker, death, turns)
