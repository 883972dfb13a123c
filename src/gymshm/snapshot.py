"""Which slot holds a row now, and whether the row is being written: for onlookers that want no half-written rows.

A writer shows when it is writing a row. An onlooker copies the row while it is calm, and checks afterwards that it
stayed calm (a *seqlock*: the writer waits for nobody). There are two ways of showing it:

* Memory that was created with ``snapshots=True`` has a version for each row, odd while the row is written.
* In a vector environment, a row is calm while its worker has answered the last request and its own turn is over; with
  several slots, the rows that were seen last are calm for the whole of a step.

Memory order: see ``ordering``. Versions and messages are single stores. Between them and a row stand fences where the
machine needs them, on both sides. Nothing is relied on for the row itself.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from .doorbell import LINE_WORDS, MESSAGE, parts
from .exchange import share
from .requests import Operation
from .segment import VERSIONS, Segment

__all__ = ["Place", "places"]

#: (slot, state): where a row is, and what has to be the same after a copy; the state is None where the row is not calm.
Place: TypeAlias = tuple[int, Any]


def places(segment: Segment) -> Callable[[int], Place] | None:
    """A function of a row's index that tells its place now; None where the writers of ``segment`` do not tell.

    Raises:
        ValueError: What they tell with is not what it has to be.
    """
    n, leads = segment.n, {field.name: field.lead for field in segment.header.layout.fields}
    if VERSIONS in leads:
        versions = segment.words(VERSIONS, n)
        return lambda index: (0, None if versions[index] & 1 else int(versions[index]))
    if not {"observations", "lines", "turns_asked", "turns_done", "seen_slot"} <= leads.keys():
        return None
    workers = (leads["lines"] or (0,))[0]
    if not 0 < workers <= max(n, 1):
        raise ValueError(f"{workers} workers can't share {n} environments")
    lines = segment.words("lines", workers, 2, LINE_WORDS)
    turns = segment.words("turns_asked", n), segment.words("turns_done", n)
    return _exchange_places(lines, *turns, segment.words("seen_slot", 1))


def _exchange_places(
    lines: np.ndarray, asked: np.ndarray, done: np.ndarray, seen_slot: np.ndarray
) -> Callable[[int], Place]:
    starts = [envs.start for envs in share(len(asked), len(lines))]

    def place(index: int) -> Place:
        request, reply = lines[bisect.bisect_right(starts, index) - 1, :, MESSAGE].tolist()
        number, operation, slot = parts(request)
        if operation in (Operation.TURN, Operation.TURN_RESET):
            turn = int(asked[index])
            return 0, (request, turn) if turn == done[index] >> 1 else None
        if number == parts(reply)[0]:
            return slot, request
        seen = int(seen_slot[0])
        if seen != slot and operation in (Operation.STEP, Operation.STEP_WITH):
            return seen, (request, seen)
        return slot, None

    return place
