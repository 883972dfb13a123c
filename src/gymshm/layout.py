"""A segment's layout for people: one entry per array, in words. It looks at the header alone, and never at the data."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from gymnasium import spaces as gs

from .header import Header
from .plan import Leaf
from .space_json import rebuild_leaf
from .spaces import Array, Coded, Description, leaf_nodes
from .tables import html_table, table

__all__ = ["Entry", "entries", "entry_of", "layout_html", "layout_text"]

#: What tables show of each entry, and which of that are numbers.
_HEADS = ("PATH", "SPACE", "DTYPE", "SHAPE", "OFFSET", "BYTES")
_NUMBERS = ("OFFSET", "BYTES")


@dataclass(frozen=True)
class Entry:
    """One array of a segment.

    Attributes:
        path: Where it stands, as it would be written in Python, from the name of its field on.
        space: The space of one environment's value, as far as dtype and shape do not say it.
        dtype: The dtype, byte order included.
        shape: The whole shape, ``(n, *shape)``.
        offset: Bytes from the start of the segment.
        nbytes: Bytes it takes.
    """

    path: str
    space: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int

    def cells(self) -> tuple[object, ...]:
        """What stands in a table."""
        return self.path, self.space, self.dtype, self.shape, self.offset, self.nbytes


def layout_text(arrays: Iterable[Entry]) -> str:
    """A table for a terminal."""
    return table(_HEADS, [entry.cells() for entry in arrays], right=_NUMBERS)


def layout_html(caption: str, arrays: Iterable[Entry]) -> str:
    """A table for a notebook, under a ``caption``."""
    return html_table(caption, _HEADS, [entry.cells() for entry in arrays], right=_NUMBERS)


def entries(header: Header) -> Iterator[Entry]:
    """The arrays of a segment, in the order in which they stand in it."""
    for number, leaves in enumerate(header.layout.leaves):
        nodes = leaf_nodes(header.layout.fields[number].description)
        yield from (_entry(header, number, leaf, node) for leaf, node in zip(leaves, nodes, strict=True))


def entry_of(header: Header, number: tuple[int, int]) -> Entry:
    """The array ``number``, that is (field, leaf of the field)."""
    node = next(itertools.islice(leaf_nodes(header.layout.fields[number[0]].description), number[1], None))
    return _entry(header, number[0], header.layout.leaves[number[0]][number[1]], node)


def _entry(header: Header, field: int, leaf: Leaf, node: Description) -> Entry:
    return Entry(
        path=f"{header.layout.fields[field].name}{leaf.path}",
        space=_space_text(node),
        dtype=leaf.dtype.str if leaf.dtype.str.startswith(">") else leaf.dtype.name,
        shape=leaf.shape,
        offset=header.data_offset + leaf.offset,
        nbytes=leaf.nbytes,
    )


def _space_text(node: Description) -> str:
    if isinstance(node, Coded):
        return f"Text({node.min_length}-{node.max_length})"
    if not isinstance(node, Array):
        return "OneOf"  # its selector
    space = rebuild_leaf(node)
    if isinstance(space, gs.Box):
        return f"Box({_bounds(space.low)}, {_bounds(space.high)})"
    if isinstance(space, gs.Discrete):
        return f"Discrete({space.n})" if space.start == 0 else f"Discrete({space.n}, start={space.start})"
    return str(node.space.get("type", "?"))


def _bounds(bounds: np.ndarray) -> str:
    """The one bound that all items have, or the least and the greatest."""
    if bounds.size == 0:
        return "-"
    least, greatest = bounds.min(), bounds.max()
    return f"{least:g}" if least == greatest else f"{least:g}..{greatest:g}"
