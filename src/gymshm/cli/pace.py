"""How fast it goes in a segment, for who only looks at it.

Whoever writes may tell, and in this order that is believed:

* In memory with versions of rows, a write makes its row's version greater by two.
* In a vector environment, the parent's lines have the number of its last request, and nearly each is a step of every
  environment; where environments take turns, the turns are counted.
* Else nobody tells. Then one row is looked at very often for a moment, again and again: how often it changes says about
  how often it is written, as far as what is written differs from what was there.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from time import monotonic, perf_counter

import numpy as np

from ..doorbell import LINE_WORDS, MESSAGE, parts
from ..segment import VERSIONS, Segment

__all__ = ["Pace"]

#: Seconds over which a rate is an average; seconds of a moment of looking, and how many of these make an estimate.
_WINDOW, _MOMENT, _MOMENTS = 3.0, 0.01, 20

#: Items of an array's row that are looked at, at most.
_ITEMS = 4096


class Pace:
    """Follows one segment.

    Attributes:
        per_second: Steps of environments, or writes of rows, a second; None as long as nothing can be said.
        is_estimate: Whether nobody tells, and it is told from changes.
        unit: What is counted.
    """

    def __init__(self, segment: Segment) -> None:
        """Has not looked yet."""
        self.per_second: float | None = None
        self._segment = segment
        self._count = self._write_counter() or self._step_counter()
        self.is_estimate = self._count is None
        self.unit = "steps/s" if segment.field_number("lines") is not None else "writes/s"
        self._counts: collections.deque[tuple[float, int]] = collections.deque()
        self._changes: collections.deque[tuple[float, int]] = collections.deque(maxlen=_MOMENTS)
        self._row = self._sample_of_row()

    def look(self) -> None:
        """Looks, and works out the rate anew; takes a hundredth of a second where nobody tells."""
        if self._count is None:
            self._changes.append(self._look_for_changes())
            seconds, changes = map(sum, zip(*self._changes, strict=True))
            self.per_second = changes / seconds * self._segment.n
            return
        now = monotonic()
        self._counts.append((now, self._count()))
        while len(self._counts) > 2 and self._counts[1][0] < now - _WINDOW:
            self._counts.popleft()
        (start, first), (end, last) = self._counts[0], self._counts[-1]
        self.per_second = (last - first) / (end - start) if end > start else None

    def __str__(self) -> str:
        """The rate and its unit."""
        if self.per_second is None:
            return f"- {self.unit}"
        digits = 0 if self.per_second >= 10 else 1
        return f"{'about ' if self.is_estimate else ''}{self.per_second:,.{digits}f} {self.unit}"

    # --- who tells ----------------------------------------------------------------------------------------------------

    def _array(self, name: str, *shape: int) -> np.ndarray | None:
        """The int64 array of the field ``name``; None where there is none of this shape (-1 is any length)."""
        number = self._segment.field_number(name)
        if number is None or len(self._segment.header.layout.leaves[number]) != 1:
            return None
        (leaf,) = self._segment.header.layout.leaves[number]
        fits = len(leaf.shape) == len(shape) and all(b in (-1, a) for a, b in zip(leaf.shape, shape, strict=True))
        return self._segment.array(leaf) if fits and leaf.dtype == np.int64 else None

    def _write_counter(self) -> Callable[[], int] | None:
        versions = self._array(VERSIONS, self._segment.n)
        return None if versions is None else lambda: int((versions >> 1).sum())

    def _step_counter(self) -> Callable[[], int] | None:
        n = self._segment.n
        lines, turns_done = self._array("lines", -1, 2, LINE_WORDS), self._array("turns_done", n)
        if lines is None or turns_done is None or not len(lines):
            return None

        def told() -> tuple[int, int]:
            # The greatest: a worker that is started anew has a new line for a moment.
            return int(parts(lines[:, 0, MESSAGE])[0].max()), int((turns_done >> 1).sum())

        steps, (requests, turns) = 0, told()

        def count() -> int:
            nonlocal steps, requests, turns
            now_requests, now_turns = told()
            if now_turns > turns:
                steps += now_turns - turns
            else:
                steps += max(0, now_requests - requests) * n
            requests, turns = max(requests, now_requests), max(turns, now_turns)
            return steps

        return count

    # --- where nobody does --------------------------------------------------------------------------------------------

    def _sample_of_row(self) -> list[np.ndarray]:
        """Views of what is looked at: the first environment's row of each array, or evenly spread items of it."""
        layout = self._segment.header.layout
        if layout.fields[0].lead != (self._segment.n,) or self._segment.n == 0:
            return []
        rows = [self._segment.array(leaf)[0].reshape(-1) for leaf in layout.leaves[0]]
        return [row[:: max(1, len(row) // _ITEMS)] for row in rows]

    def _look_for_changes(self) -> tuple[float, int]:
        """Looks for a moment: (its seconds, how many changes there were)."""
        changes, start = 0, perf_counter()
        before = [row.tobytes() for row in self._row]
        while (now := perf_counter()) < start + _MOMENT:
            after = [row.tobytes() for row in self._row]
            changes += after != before
            before = after
        return now - start, changes
