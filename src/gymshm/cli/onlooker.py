"""What there is to see in a segment at a moment: numbers and pictures, copied out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from os import sched_yield

import numpy as np

from ..ordering import fence
from ..segment import VERSIONS, Segment
from ..snapshot import places
from ..spaces import Coded, leaf_nodes
from ..tables import printable
from ..values import TextCode
from .pictures import Picture, developer

__all__ = ["Album", "Onlooker", "Quantity"]

#: Fields that writers and readers keep for themselves.
_INTERNAL = {VERSIONS, "lines", "turns_asked", "turns_done", "seen_slot", "info_floats", "info_integers"}

#: An array of more items a row than this is shown as their mean.
_MOST_ITEMS = 8

#: Items of a row that make up its mean, about, at most.
_MOST_MEANT = 4096

#: How often a row is copied anew at most, in the hope for one that nobody writes meanwhile.
_TRIES = 50


@dataclass(frozen=True)
class Quantity:
    """One number, or text, of each environment.

    Attributes:
        path: What it is.
        values: Reads it: an array of shape ``(n,)``, or a tuple of ``n`` texts.
    """

    path: str
    values: Callable[[], np.ndarray | tuple[str, ...]]


@dataclass(frozen=True)
class Album:
    """One picture of each environment.

    Attributes:
        path: What it is of.
        picture: Develops that of an environment.
    """

    path: str
    picture: Callable[[int], Picture]


class Onlooker:
    """Looks at one segment.

    Attributes:
        quantities: The numbers and texts in it.
        albums: The pictures in it.
    """

    def __init__(self, segment: Segment) -> None:
        """Finds out what there is."""
        self.quantities: list[Quantity] = []
        self.albums: list[Album] = []
        self._n = segment.n
        self._place = places(segment)
        layout = segment.header.layout
        for field, leaves in zip(layout.fields, layout.leaves, strict=True):
            if field.name in _INTERNAL or field.lead[-1:] != (segment.n,) or len(field.lead) > 2 or segment.n == 0:
                continue
            for leaf, node in zip(leaves, leaf_nodes(field.description), strict=True):
                array = segment.array(leaf)
                if len(field.lead) == 1:
                    array = array[np.newaxis]  # the one slot that there is
                path = printable(f"{field.name}{leaf.path}")
                develop = developer(node)
                if develop is not None:
                    self.albums.append(Album(path, self._album(array, develop)))
                elif isinstance(node, Coded):
                    code = TextCode(node.characters, node.max_length)
                    self.quantities.append(Quantity(path, self._texts(array, code)))
                else:
                    self.quantities.extend(self._numbers(array, path))

    def _slot(self, index: int, slots: int) -> int:
        return 0 if slots == 1 or self._place is None else self._place(index)[0] % slots

    def _current(self, array: np.ndarray) -> np.ndarray:
        """A copy of all rows of the slot that is current, shape ``(n, *shape)``."""
        slots = [self._slot(index, len(array)) for index in range(self._n)]
        rows: np.ndarray = array[slots, np.arange(self._n)]
        return rows

    def _numbers(self, array: np.ndarray, path: str) -> Iterator[Quantity]:
        shape, flat = array.shape[2:], array.reshape(*array.shape[:2], -1)
        size = flat.shape[2]
        if size > _MOST_ITEMS:
            # Of very many, some that are spread evenly tell as much, and a look stays cheap.
            some = flat[..., :: max(1, size // _MOST_MEANT)]
            yield Quantity(f"{path}, mean of {size}", lambda: self._means(some))
            return
        for number, item in enumerate(np.ndindex(shape)):
            yield Quantity(path + (str(list(item)) if item else ""), self._item(flat[..., number]))

    def _item(self, numbers: np.ndarray) -> Callable[[], np.ndarray]:
        return lambda: self._current(numbers)

    def _means(self, array: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            means: np.ndarray = self._current(array).mean(axis=1, dtype=np.float64)
        return means

    def _texts(self, array: np.ndarray, code: TextCode) -> Callable[[], tuple[str, ...]]:
        return lambda: code.decode(self._current(array))

    def _album(self, array: np.ndarray, develop: Callable[[np.ndarray], Picture]) -> Callable[[int], Picture]:
        return lambda index: develop(self._calm_row(array, index))

    def _calm_row(self, array: np.ndarray, index: int) -> np.ndarray:
        """A copy of one environment's row; where nobody writes it for a moment, one that is not half old, half new."""
        for _ in range(_TRIES):
            before = None if self._place is None else self._place(index)
            fence()
            row: np.ndarray = array[self._slot(index, len(array)), index].copy()
            fence()
            if self._place is None or (before is not None and before[1] is not None and self._place(index) == before):
                break
            sched_yield()
        return row
