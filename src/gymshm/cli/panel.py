"""What ``watch`` shows: a line on the whole, a table of numbers, and pictures below it; as lines of a given width."""

from __future__ import annotations

import collections
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..segment import Segment
from ..tables import printable, table
from .onlooker import Album, Onlooker
from .pace import Pace
from .pictures import as_blocks, fitted

__all__ = ["Panel", "spark"]

#: The numbers of an environment that are remembered.
_MEMORY = 60

_BARS = "▁▂▃▄▅▆▇█"


class Panel:
    """Looks, and lays out what it saw.

    Args:
        segment: What is looked at.
        onlooker: Reads what is in it.
        pace: Tells how fast it goes.
        env: The environment.
    """

    def __init__(self, segment: Segment, onlooker: Onlooker, pace: Pace, env: int) -> None:
        """Has seen nothing yet."""
        self._segment, self._onlooker, self._pace, self._env = segment, onlooker, pace, env
        self._seen: list[np.ndarray | tuple[str, ...]] = []
        self._history: list[collections.deque[float]] = [collections.deque(maxlen=_MEMORY) for _ in onlooker.quantities]

    def look(self) -> None:
        """Looks at everything once."""
        self._pace.look()
        self._seen = [quantity.values() for quantity in self._onlooker.quantities]
        for history, values in zip(self._history, self._seen, strict=True):
            if isinstance(values, np.ndarray):
                history.append(float(values[self._env]))

    def text(self) -> list[str]:
        """The whole and the numbers, with no regard to a width."""
        return [self._head(), "", *self._numbers()]

    def lines(self, width: int, height: int) -> list[str]:
        """All that there is to see in that many columns and lines; ends with the last line that is needed."""
        numbers = [line[:width] for line in self._numbers()]
        top = [self._head()[:width], ""]
        room = height - len(top)
        albums = self._onlooker.albums
        most = max(room // 2, room - (height // 4) * len(albums)) if albums else room
        if len(numbers) > most:
            left = len(numbers) - max(0, most - 1)
            numbers = [*numbers[: max(0, most - 1)], f"... {left} more lines"[:width]]
        lines = [*top, *numbers]
        for position, album in enumerate(albums):
            # Each gets its share of what those above have left.
            share = (height - len(lines)) // (len(albums) - position)
            lines += self._pictures(album, width, share)
        return lines[:height]

    def _head(self) -> str:
        header = self._segment.header
        return f"{printable(self._segment.name)}: n={header.n}, created by process {header.creator.pid}, {self._pace}"

    def _numbers(self) -> list[str]:
        heads = ("", f"ENV {self._env}", "MEAN", "LEAST", "GREATEST", "LATELY")
        rows = [
            (quantity.path, *_cells(values, self._env), spark(history))
            for quantity, values, history in zip(self._onlooker.quantities, self._seen, self._history, strict=True)
        ]
        return table(heads, rows, right=heads[1:5]).splitlines() if rows else []

    def _pictures(self, album: Album, width: int, height: int) -> Iterator[str]:
        """A title, and the pictures of as many environments as stand side by side."""
        if height < 3:
            return
        first = fitted(album.picture(self._env), width, 2 * (height - 2))
        count = max(1, min((width + 1) // (first.shape[1] + 1), self._segment.n - self._env))
        others = [fitted(album.picture(self._env + i), width, 2 * (height - 2)) for i in range(1, count)]
        which = f"env {self._env}" if count == 1 else f"env {self._env} to {self._env + count - 1}"
        yield ""
        yield f"{album.path}, {which}"[:width]
        yield from map(" ".join, zip(*map(as_blocks, (first, *others)), strict=True))


def _cells(values: np.ndarray | tuple[str, ...], env: int) -> tuple[str, str, str, str]:
    """One environment's number, and the mean, the least and the greatest; of texts that environment's alone."""
    if not isinstance(values, np.ndarray):
        return printable(values[env]), "", "", ""
    with np.errstate(all="ignore"):
        mean = values.mean(dtype=np.float64)
    return _number(values[env]), _number(mean), _number(values.min()), _number(values.max())


def _number(value: Any) -> str:
    return str(int(value)) if np.asarray(value).dtype.kind in "biu" else f"{float(value):.4g}"


def spark(numbers: Sequence[float]) -> str:
    """Numbers as bars, the lowest for the least of them; blank where one is not finite."""
    finite = [number for number in numbers if math.isfinite(number)]
    if not finite:
        return " " * len(numbers)
    # Halves: a difference of the greatest numbers would be infinite.
    low, span = min(finite) / 2, max(finite) / 2 - min(finite) / 2
    scale = (len(_BARS) - 1) / span if span else 0.0
    return "".join(_BARS[round((number / 2 - low) * scale)] if math.isfinite(number) else " " for number in numbers)
