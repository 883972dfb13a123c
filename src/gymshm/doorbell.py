"""How a parent and a worker wake each other: look, spin briefly, then sleep.

Each side writes one cache line of the segment and reads the other's. A line carries a message (a sequence number and
what goes with it, in one word, so that one store says all), whether its writer sleeps, and for what count. A side that
has something to say writes the message, and rings only if the other one sleeps. A ring is an empty packet on the pair's
connection, whose other packets are payloads; so one descriptor per worker serves as bell, as mail box and as sign of
life.

Why it has this shape (measured on two cores): a pure spin takes the CPU from the peer, which needs it, and slows it
down by a factor of thousands. A spin that yields the CPU at each look (``sched_yield``) hands over in 2 µs; it yields
before the first look too, since with one worker per CPU some process is always waiting for this CPU. A sleep takes 30
to 70 µs. So a waiter spins for :data:`SPIN_SECONDS`, which covers cheap environments, and then sleeps, so that idle
costs nothing.

Where the machine needs it, a fence stands before a message is written and after one was read. On every machine, a fence
stands between writing a message and reading whether the peer sleeps: without it both sides can end up asleep (see
``ordering``). Should a ring be lost all the same, a sleeper looks again after :data:`SLEEP_SECONDS`: late, never stuck.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection
from os import sched_yield
from time import perf_counter
from typing import Any, Final

from .ordering import STORES_ARE_ORDERED, fence

__all__ = [
    "LINE_WORDS",
    "MESSAGE",
    "MOST_ARGUMENTS",
    "SLEEP_SECONDS",
    "SPIN_SECONDS",
    "Doorbell",
    "Doorbells",
    "parts",
    "sleep_on",
]

#: Words (int64) of a line: a cache line of its own.
LINE_WORDS: Final = 8

#: How many arguments a message can have, from 0 up: it has 16 bits for them.
MOST_ARGUMENTS: Final = 1 << 16

#: How long a waiter spins before it sleeps. Long enough for the turn-around of cheap environments, short enough that
#: a waiting parent takes next to nothing from its workers.
SPIN_SECONDS: Final = 100e-6

#: How long a sleeper sleeps at most before it looks around (for a lost ring, a dead peer).
SLEEP_SECONDS: Final = 0.5

#: The words of a line: its message, whether its writer sleeps, and for what count.
MESSAGE: Final = 0
_SLEEPS, _UNTIL = 1, 2


class Doorbell:
    """One side of a pair.

    Args:
        own: The line that this side writes: a memoryview of :data:`LINE_WORDS` int64.
        peer: The line that the other side writes.
        connection: Leads to the other side.
    """

    __slots__ = ("_own", "_peer", "connection")

    def __init__(self, own: memoryview, peer: memoryview, connection: Connection) -> None:
        """Takes the lines as they stand; :meth:`clear` makes them new."""
        self._own, self._peer, self.connection = own, peer, connection

    def clear(self) -> None:
        """Zeroes both lines; for the parent, before a worker starts."""
        for word in range(LINE_WORDS):
            self._own[word] = self._peer[word] = 0

    def renew(self) -> None:
        """As :meth:`clear`, while a request waits for its reply: that stays to be seen, as number 0 without a reply.

        So onlookers go on taking for unfinished what nobody has finished.
        """
        self._own[_SLEEPS] = self._peer[_SLEEPS] = 0
        self._peer[MESSAGE] = -1
        fence()
        self._own[MESSAGE] &= 0xFFFFFF

    def post(self, sequence: int, word: int, argument: int = 0) -> None:
        """Announces ``sequence``; then :func:`fence`, then :meth:`ring`. Apart, so that many posts need one fence.

        Args:
            sequence: A number greater than those before.
            word: What goes with it, below 256.
            argument: What else goes with it, below :data:`MOST_ARGUMENTS`.
        """
        if not STORES_ARE_ORDERED:
            fence()
        self._own[MESSAGE] = sequence << 24 | word << 16 | argument

    def ring(self) -> None:
        """Wakes the other side if it sleeps.

        Raises:
            OSError: The other side is gone.
        """
        if self._peer[_SLEEPS]:
            self.connection.send_bytes(b"")

    def ring_at(self, count: Callable[[], int]) -> None:
        """Wakes the other side if it sleeps and ``count()``, which is asked only then, is what it sleeps for, or more.

        Raises:
            OSError: The other side is gone.
        """
        if self._peer[_SLEEPS] and count() >= self._peer[_UNTIL]:
            self.connection.send_bytes(b"")

    def signal(self, sequence: int, word: int, argument: int = 0) -> None:
        """Announces ``sequence`` and wakes the other side if it sleeps: :meth:`post`, fence and :meth:`ring`.

        Raises:
            OSError: The other side is gone.
        """
        # What post() and ring() do, written out: every step has this in it, and Python's calls are most of its cost.
        if not STORES_ARE_ORDERED:
            fence()
        self._own[MESSAGE] = sequence << 24 | word << 16 | argument
        fence()
        if self._peer[_SLEEPS]:
            self.connection.send_bytes(b"")

    def heard(self, sequence: int) -> bool:
        """Whether the other side has announced ``sequence``, or a later one."""
        if self._peer[MESSAGE] < sequence << 24:
            return False
        if not STORES_ARE_ORDERED:
            fence()
        return True

    def said(self) -> tuple[int, int, int]:
        """What the other side announced last: (sequence, word, argument)."""
        return parts(self._peer[MESSAGE])

    def said_word(self) -> int:
        """The word that goes with what the other side announced last."""
        return self._peer[MESSAGE] >> 16 & 0xFF

    def spin(self, sequence: int) -> bool:
        """Looks for ``sequence`` for :data:`SPIN_SECONDS`; whether it was announced."""
        peer, wanted = self._peer, sequence << 24
        if peer[MESSAGE] < wanted and not _spin(peer, wanted):
            return False
        if not STORES_ARE_ORDERED:
            fence()
        return True

    def sleep(self, sequence: int, seconds: float, sentinels: Iterable[int] = ()) -> bool:
        """Sleeps until the other side rings, ``sentinels`` tell of an end, or ``seconds`` are over; may return early.

        Args:
            sequence: What is waited for.
            seconds: At most, and never longer than :data:`SLEEP_SECONDS`.
            sentinels: Descriptors that become readable when a process ends.

        Returns:
            Whether the other side had something to say, as opposed to an end or to the time being over.

        Raises:
            EOFError, OSError: The other side is gone.
        """
        self.lie_down()
        try:
            if self.heard(sequence):
                return True
            ready = sleep_on([self], sentinels, seconds)
        finally:
            self.get_up()
        if ready and not self.heard(sequence):
            self.drop_ring()
        return bool(ready)

    def lie_down(self, until: int = 0) -> None:
        """Says that this side sleeps; whoever waits looks once more after that, and then sleeps.

        Args:
            until: From which count on it is to be woken by :meth:`ring_at`.
        """
        self._own[_UNTIL] = until
        if not STORES_ARE_ORDERED:
            fence()
        self._own[_SLEEPS] = 1
        fence()

    def get_up(self) -> None:
        """Says that this side does not sleep any more."""
        self._own[_SLEEPS] = 0

    def drop_ring(self) -> None:
        """Takes a packet that is there and can only be a ring, for what it would announce has not been announced.

        Raises:
            EOFError, OSError: The other side is gone.
        """
        self.connection.recv_bytes()

    def receive(self) -> bytes:
        """The next payload; rings in front of it are passed over.

        Raises:
            EOFError, OSError: The other side is gone.
        """
        while not (payload := self.connection.recv_bytes()):
            pass
        return payload


def parts(message: Any) -> tuple[Any, Any, Any]:
    """Of a message, or an array of them, as it stands in a line: (sequence, word, argument)."""
    return message >> 24, message >> 16 & 0xFF, message & 0xFFFF


def _spin(peer: memoryview, wanted: int) -> bool:
    """Whether the message in the line ``peer`` becomes ``wanted``, or a later one, within :data:`SPIN_SECONDS`."""
    sched_yield()
    if peer[MESSAGE] >= wanted:
        return True  # mostly, and then nobody had to look at the clock
    until = perf_counter() + SPIN_SECONDS
    while perf_counter() <= until:
        sched_yield()
        if peer[MESSAGE] >= wanted:
            return True
    return False


class Doorbells:
    """One side's doorbells, where all others are told the same at a time: what :class:`Doorbell` does, in one go.

    A step has this in it twice, and Python's calls are most of what it costs; so the loops are written out.

    Args:
        bells: The doorbells.
    """

    __slots__ = ("_owns", "_peers")

    def __init__(self, bells: Sequence[Doorbell]) -> None:
        """Takes their lines; where one is made anew over the same lines, this holds for it too."""
        self._owns, self._peers = [bell._own for bell in bells], [bell._peer for bell in bells]

    def post(self, sequence: int, word: int, argument: int = 0) -> Sequence[int]:
        """Announces ``sequence`` to all; gives the numbers of those that sleep, whom the caller has to ring."""
        message = sequence << 24 | word << 16 | argument
        if not STORES_ARE_ORDERED:
            fence()
        for own in self._owns:
            own[MESSAGE] = message
        fence()
        for peer in self._peers:
            if peer[_SLEEPS]:
                return [number for number, peer in enumerate(self._peers) if peer[_SLEEPS]]
        return ()

    def spin(self, sequence: int) -> bool:
        """Looks for ``sequence`` with word and argument 0 from all, for as long as :meth:`Doorbell.spin` does for each.

        Returns:
            Whether that is what each of them said.
        """
        wanted = sequence << 24
        for peer in self._peers:
            if peer[MESSAGE] < wanted and not _spin(peer, wanted):
                return False
        if not STORES_ARE_ORDERED:
            fence()
        for peer in self._peers:
            if peer[MESSAGE] != wanted:
                return False
        return True


def sleep_on(bells: Sequence[Doorbell], sentinels: Iterable[int], seconds: float) -> list[Doorbell]:
    """Sleeps until one of ``bells`` has a packet, one of ``sentinels`` tells of an end, or ``seconds`` are over.

    Args:
        bells: Whose other sides may ring; each of them has to lie down first.
        sentinels: Descriptors that become readable when a process ends.
        seconds: At most, and never longer than :data:`SLEEP_SECONDS`.

    Returns:
        The bells that have a packet: a payload, or a ring.
    """
    poll = select.poll()
    by_descriptor = {bell.connection.fileno(): bell for bell in bells}
    for descriptor in (*by_descriptor, *sentinels):
        poll.register(descriptor, select.POLLIN)
    ready = poll.poll(max(0.0, min(seconds, SLEEP_SECONDS)) * 1000)
    return [by_descriptor[descriptor] for descriptor, _ in ready if descriptor in by_descriptor]
