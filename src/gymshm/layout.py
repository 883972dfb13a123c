"""A segment's layout for people: one row per array, in words. It looks at the header alone, and never at the data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from gymnasium import spaces as gs

from .header import Header
from .space_json import rebuild
from .spaces import Array, Coded, Description
from .views import leaf_nodes

__all__ = ["Row", "rows"]

#: Bytes of the largest value whose bounds are looked at: they are arrays of its shape.
_LARGEST = 1 << 24


@dataclass(frozen=True)
class Row:
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


def rows(header: Header) -> Iterator[Row]:
    """The arrays of a segment, in the order in which they stand in it."""
    for field, leaves in zip(header.layout.fields, header.layout.leaves, strict=True):
        for leaf, node in zip(leaves, leaf_nodes(field.description), strict=True):
            yield Row(
                path=f"{field.name}{leaf.path}",
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
    name = str(node.space.get("type", "?"))
    if math.prod(node.shape) * node.dtype.itemsize > _LARGEST:
        return name
    try:
        space = rebuild(node)
    except Exception:  # whatever gymnasium's constructors say of parameters that somebody forged
        return name
    if isinstance(space, gs.Box):
        return f"Box({_bounds(space.low)}, {_bounds(space.high)})"
    if isinstance(space, gs.Discrete):
        return f"Discrete({space.n})" if space.start == 0 else f"Discrete({space.n}, start={space.start})"
    return name


def _bounds(bounds: np.ndarray) -> str:
    """The one bound that all items have, or the least and the greatest."""
    if bounds.size == 0:
        return "-"
    least, greatest = bounds.min(), bounds.max()
    return f"{least:g}" if least == greatest else f"{least:g}..{greatest:g}"
