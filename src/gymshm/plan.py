"""Descriptions -> layout plan: which array stands at which offset. Pure arithmetic, no I/O, and the only place for it.

A plan is a list of *fields* (``values`` for a plain shared memory; observations, actions, rewards and so on for a
vector environment). Each field repeats one description over its leading dimensions (``(n,)``, say) and becomes one
contiguous array per leaf of the tree.

Rules of this file:

1. The same fields give the same plan, in every process and on every machine.
2. Leaves stand in the order of the tree, each aligned to :data:`ALIGNMENT` bytes, and never overlap.
3. Offsets count from the start of the data, which itself is aligned (:func:`align`) behind the header.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .space_json import key_text
from .spaces import Array, Branch, Coded, Description, Foreign

__all__ = ["ALIGNMENT", "Field", "LayoutPlan", "Leaf", "align", "plan"]

#: Bytes. A cache line: what one process writes never shares a line with what another one does, leaf by leaf.
ALIGNMENT = 64

#: The dtype of a text's codes and of a union's selector; gymnasium's own reader expects just these.
CODE_DTYPE = np.dtype(np.int32)
SELECTOR_DTYPE = np.dtype(np.int64)


@dataclass(frozen=True)
class Field:
    """One description, repeated over the ``lead`` dimensions: an array in it has shape ``(*lead, *shape)``."""

    name: str
    lead: tuple[int, ...]
    description: Description


class Leaf(NamedTuple):
    """One array of the segment.

    (A tuple, for a plan has hundreds of them, and a frozen dataclass takes three times as long to make.)

    Attributes:
        path: Where it stands in its field's tree, as it would be written in Python: ``['cam'][0]``.
        dtype: Its dtype, byte order included.
        shape: Its whole shape, leading dimensions included.
        offset: Bytes from the start of the data.
        nbytes: Bytes it takes.
        fill: What it holds before anybody wrote: a text's rows start out empty, all else is zero.
    """

    path: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    fill: int = 0


@dataclass(frozen=True)
class LayoutPlan:
    """The whole layout.

    Attributes:
        fields: What was planned.
        leaves: The leaves of each field, in the order of its tree.
        nbytes: Bytes of data, from the start of the first leaf to the end of the last.
    """

    fields: tuple[Field, ...]
    leaves: tuple[tuple[Leaf, ...], ...]
    nbytes: int


def align(offset: int) -> int:
    """``offset``, in bytes, rounded up to the next multiple of :data:`ALIGNMENT`."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def plan(fields: Sequence[Field]) -> LayoutPlan:
    """Lays out ``fields`` one behind the other."""
    end = 0
    planned = []
    for field in fields:
        leaves = []
        for path, dtype, shape, fill in _flatten(field.description, ""):
            shape = (*field.lead, *shape)
            leaf = Leaf(path, dtype, shape, align(end), math.prod(shape) * dtype.itemsize, fill)
            end = leaf.offset + leaf.nbytes
            leaves.append(leaf)
        planned.append(tuple(leaves))
    return LayoutPlan(tuple(fields), tuple(planned), end)


def _flatten(description: Description, path: str) -> Iterator[tuple[str, np.dtype[Any], tuple[int, ...], int]]:
    """The leaves of ``description`` in order, as (path, dtype, shape of one value, fill)."""
    if isinstance(description, Array):
        yield path, description.dtype, description.shape, 0
    elif isinstance(description, Coded):
        # Nobody's writer stores a negative code, so our reader knows a row that nobody wrote. gymnasium's own reader,
        # which counts it from the end, finds there what it finds in its own fresh memory: the first character.
        yield path, CODE_DTYPE, (description.max_length,), -len(description.characters)
    elif not isinstance(description, Foreign):
        if isinstance(description, Branch):
            keys: Sequence[Any] = range(len(description.children)) if description.keys is None else description.keys
        else:
            yield f"{path}.index", SELECTOR_DTYPE, (), 0
            keys = range(len(description.children))
        for key, child in zip(keys, description.children, strict=True):
            yield from _flatten(child, f"{path}[{key_text(key)}]")
