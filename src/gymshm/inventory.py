"""All segments of this machine: finding them, telling whose they are, and removing what dead creators left.

It reads headers, and never the data.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from . import backing, links
from .backing import Backing
from .creator import Status, status
from .errors import SegmentFormatError, SegmentNotFoundError
from .header import HEADER_SIZE, MAGIC, READY_OFFSET, Header, head_nbytes, parse

__all__ = ["Found", "examine", "find", "remove", "sweep"]


@dataclass(frozen=True)
class Found:
    """A segment, as one look at it found it.

    Attributes:
        named: Its name, and what the name led to.
        nbytes: Bytes that it takes; 0 where they can't be seen.
        header: What it says about itself; None where it can't be read: ``problem`` says why.
        status: Whether its creator lives.
        problem: Why ``header`` is None; else empty.
    """

    named: Backing
    nbytes: int
    header: Header | None
    status: Status
    problem: str = ""

    @property
    def name(self) -> str:
        """Its name."""
        return self.named.name


def find() -> Iterator[Found]:
    """All segments of ours that this process may open, the unreadable ones included."""
    for name in backing.names(MAGIC):
        try:
            yield examine(name)
        except (OSError, ValueError):
            continue  # gone meanwhile, or another user's


def examine(name: str) -> Found:
    """The segment of that name, as it is at this moment; waits for nobody.

    Raises:
        SegmentNotFoundError: There is none.
        SegmentFormatError: Something else has that name.
        OSError: It may not be opened.
        ValueError: ``name`` can't be a name.
    """
    try:
        # Read, not mapped: who truncates a segment meanwhile would kill us with a SIGBUS.
        named, raw, nbytes = backing.read_head(name, HEADER_SIZE, head_nbytes)
    except SegmentNotFoundError as error:
        link = links.find(name)
        if link is None:
            raise
        lost = Status.ORPHANED if link.reachable else Status.UNKNOWN
        return Found(Backing(name, link.identity, link.path), 0, None, lost, str(error))
    locked = named.is_locked()
    try:
        header = parse(raw, name, nbytes)
    except SegmentFormatError as error:
        if raw[: len(MAGIC)] != MAGIC:
            raise
        unfinished = len(raw) >= HEADER_SIZE and not any(raw[READY_OFFSET:HEADER_SIZE])
        told = Status.ALIVE if locked else Status.ORPHANED if unfinished and locked is False else Status.UNKNOWN
        return Found(named, nbytes, None, told, str(error))
    return Found(named, nbytes, header, status(header.creator, locked))


def remove(found: Found) -> bool:
    """Removes an orphan; False where it is none, or somebody else was faster.

    Looks again first: the name may have been given to another segment since.
    """
    try:
        now = examine(found.name)
        same = now.named.identity == found.named.identity
        return same and now.status is Status.ORPHANED and now.named.unlink_unused()
    except (SegmentNotFoundError, SegmentFormatError):
        return False


def sweep(name: str | None = None) -> bool:
    """Removes all orphans, or the one of that name, so that a new segment finds room; whether there was any."""
    removed = False
    for found in find():
        if found.status is Status.ORPHANED and name in (None, found.name):
            with contextlib.suppress(OSError):  # it may not be ours to remove
                removed |= remove(found)
    return removed
