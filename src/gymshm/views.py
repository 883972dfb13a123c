"""Segment + plan -> arrays: the leaf handles that stand in the tree which ``create_shared_memory`` returns.

A handle offers its array (``view``), gymnasium's ``get_obj()``, and the check of a value. It is truthy, is no array,
and travels between processes as (segment's name, digest, number of the leaf): by pickle, so through pipes and queues.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from gymnasium.spaces import Space, Text

from .layout import entry_of, layout_html
from .plan import Leaf
from .segment import Segment, attach_once
from .spaces import Array, Branch, Coded, Description, Foreign, Union, leaf_nodes
from .values import TextCode, fit, shown

__all__ = [
    "ArrayLeaf",
    "Memory",
    "SlotsLeaf",
    "TextLeaf",
    "assemble",
    "at_slot",
    "check_container",
    "leaves",
    "not_our_memory",
    "segment_of",
    "views",
]

#: What ``create_shared_memory`` returns: leaf handles, nested as the space is.
Memory: TypeAlias = Any

#: How many rows a handle keeps at most: they are objects.
_MOST_ROWS = 4096


class ArrayLeaf:
    """The handle of one array of numbers in a segment, or of one slot of it.

    Attributes:
        segment: Where it lives.
        view: The array, shape ``(n, *shape)``: zero-copy, and it keeps the mapping alive. None once the segment was
            closed in this process.
        dtype: The dtype.
        shape: The shape of one environment's value.
        n: Number of environments.
        scalar: Where a value is one number, numpy's scalar type for it; else None.
        low, high: Where a value is one integer, the least and the greatest that the dtype has; else None.
        versions: The versions of the segment's rows, which a write changes; None where it has none.
        rows: A cache of the view's rows that may be stored to, by their index.
        read_as: The space that it was read as last, which fits (:meth:`fits`); None before that.
    """

    __slots__ = (
        "__weakref__",
        "_number",
        "_slot",
        "dtype",
        "high",
        "low",
        "n",
        "read_as",
        "rows",
        "scalar",
        "segment",
        "shape",
        "versions",
        "view",
    )

    def __init__(self, segment: Segment, number: tuple[int, int], slot: int | None = None) -> None:
        """The leaf at ``number``, that is (field, leaf of the field), and ``slot``, if the field has some."""
        leaf = _leaf(segment, number)
        lead = segment.header.layout.fields[number[0]].lead
        self.segment, self._number, self._slot, self.versions = segment, number, slot, segment.versions
        self.view: np.ndarray | None = self._array()
        self.rows: dict[int, np.ndarray] = {}
        self.read_as: Space[Any] | None = None
        self.dtype, self.shape = self.view.dtype, leaf.shape[len(lead) :]
        self.n = lead[-1] if lead else 1
        self.scalar = self.dtype.type if self.shape == () else None
        self.low = self.high = None
        if self.shape == () and self.dtype.kind in "iu":
            self.low, self.high = _limits(self.dtype)
        segment.dependents.add(self)

    def check(self, value: Any) -> Any:
        """``value`` as what may be stored in a row of the view.

        Raises:
            Mismatch: It does not fit.
        """
        kind = type(value)
        # The common cases, at a tenth of the price.
        if kind is np.ndarray and value.dtype is self.dtype and value.shape == self.shape:
            return value
        if kind is self.scalar or (kind is int and self.low is not None and self.low <= value <= self.high):
            return value
        return fit(value, self.dtype, self.shape)

    def fits(self, space: Space[Any]) -> bool:
        """Whether its values have the shape and the dtype of ``space``."""
        return self.shape == space.shape and self.dtype == space.dtype

    def read(self) -> Any:
        """The batch: a new view, shape ``(n, *shape)``."""
        return self.live_view()[...]

    def remember(self, index: int) -> None:
        """Keeps row ``index``, an int in range, for the next time that it is written."""
        if self.view is not None and index not in self.rows:
            if len(self.rows) == _MOST_ROWS:
                self.rows.clear()
            self.rows[index] = self.view[index, ...]

    def live_view(self) -> np.ndarray:
        """The view.

        Raises:
            ValueError: The segment is closed in this process.
        """
        if self.view is None:
            raise self.segment.closed_error()
        return self.view

    def get_obj(self) -> memoryview:
        """The leaf's bytes as a writable buffer, as ``multiprocessing.Array`` has it for gymnasium's own functions."""
        return self._array().reshape(-1).view(np.uint8).data

    def _array(self) -> np.ndarray:
        array = self.segment.array(_leaf(self.segment, self._number))
        return array if self._slot is None else array[self._slot]

    def release(self) -> None:
        """Gives up the view; the segment calls it."""
        self.view = self.versions = self.read_as = None
        self.rows.clear()

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """As a name: the other process attaches, once for all leaves."""
        return _leaf_by_name, (type(self), self.segment.name, self.segment.header.digest, self._number, self._slot)

    def __repr__(self) -> str:
        """Its line of the segment's layout: path, dtype, shape, bytes, offset; and its slot, if it has one."""
        entry = entry_of(self.segment.header, self._number)
        where = f"{entry.nbytes} bytes at {entry.offset} in {self.segment.name!r}"
        where += "" if self._slot is None else f", slot {self._slot}"
        return f"<gymshm leaf {entry.path}: {entry.dtype} {entry.shape}, {where}>"

    def _repr_html_(self) -> str:
        """The same line as a table, for notebooks.

        Leaves alone can have it: memory for a ``Dict`` or a ``Tuple`` is a plain ``dict`` or ``tuple`` of them.
        """
        entry = entry_of(self.segment.header, self._number)
        return layout_html(f"gymshm leaf in {self.segment.name}", [entry])


@functools.cache
def _limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The least and the greatest integer of ``dtype``."""
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)


class TextLeaf(ArrayLeaf):
    """The handle of texts, which stand in the segment as codes (see :class:`~gymshm.values.TextCode`)."""

    __slots__ = ("code",)

    def __init__(self, segment: Segment, number: tuple[int, int], slot: int | None = None) -> None:
        """As of any leaf."""
        super().__init__(segment, number, slot)
        coded = list(leaf_nodes(segment.header.layout.fields[number[0]].description))[number[1]]
        assert isinstance(coded, Coded), coded
        self.code = TextCode(coded.characters, coded.max_length)

    def check(self, value: Any) -> Any:
        """The codes of ``value``, shape ``(max_length,)``.

        Raises:
            Mismatch: It does not fit.
        """
        return self.code.encode(value)

    def fits(self, space: Space[Any]) -> bool:
        """Whether ``space`` has texts of the same length."""
        return isinstance(space, Text) and self.code.max_length == space.max_length

    def read(self) -> Any:
        """The batch: a tuple of ``n`` texts."""
        return self.code.decode(self.live_view())


class SlotsLeaf(ArrayLeaf):
    """The handle of one array of a field with slots, all of them: its view has shape ``(slots, n, *shape)``.

    Values are read and written through the handles that :meth:`at_slot` gives. This one refuses that: an environment's
    index would be taken for a slot's.

    Args:
        segment: Where it lives.
        number: (field, leaf of the field).
        kind: The class of those handles.
    """

    __slots__ = ("_kind",)

    def __init__(self, segment: Segment, number: tuple[int, int], kind: type[ArrayLeaf]) -> None:
        """The leaf at ``number``."""
        super().__init__(segment, number)
        self._kind = kind

    def at_slot(self, slot: int) -> ArrayLeaf:
        """The handle of one slot: its view has shape ``(n, *shape)``."""
        return self._kind(self.segment, self._number, slot)

    def check(self, value: Any) -> Any:
        """Refuses to be written to.

        Raises:
            TypeError: Always.
        """
        raise self._refusal()

    def read(self) -> Any:
        """Refuses to be read from.

        Raises:
            TypeError: Always.
        """
        raise self._refusal()

    def _refusal(self) -> TypeError:
        return TypeError(
            f"Expected the memory of one slot, whose arrays have shape (n, *shape), got all slots: {self!r}."
        )

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """As a name."""
        return _leaf_by_name, (type(self), self.segment.name, self.segment.header.digest, self._number, self._kind)


def _leaf(segment: Segment, number: tuple[int, int]) -> Leaf:
    return segment.header.layout.leaves[number[0]][number[1]]


def _leaf_by_name(cls: type[ArrayLeaf], name: str, digest: bytes, number: tuple[int, int], which: Any) -> ArrayLeaf:
    return cls(attach_once(name, digest), number, which)


def _handle(segment: Segment, number: tuple[int, int], kind: type[ArrayLeaf]) -> ArrayLeaf:
    has_slots = len(segment.header.layout.fields[number[0]].lead) > 1
    return SlotsLeaf(segment, number, kind) if has_slots else kind(segment, number)


def assemble(segment: Segment, field: int = 0, foreign: Callable[[], Memory] = lambda: ()) -> Memory:
    """The tree of leaf handles of one field: a ``dict`` for a ``Dict``, a ``tuple`` for a ``Tuple``, nested alike.

    Args:
        segment: Where the field is.
        field: Its number.
        foreign: Gives what stands in the place of a part that lives elsewhere, in the order of the tree; nothing can be
            said of it here, so the default is an empty tuple.
    """
    numbers = iter([(field, number) for number in range(len(segment.header.layout.leaves[field]))])
    return _assemble(segment.header.layout.fields[field].description, segment, numbers, foreign)


def _assemble(
    description: Description, segment: Segment, numbers: Iterator[tuple[int, int]], foreign: Callable[[], Memory]
) -> Memory:
    # No closure that calls itself: that would be a cycle, and keep the segment until garbage is collected.
    if isinstance(description, Array):
        return _handle(segment, next(numbers), ArrayLeaf)
    if isinstance(description, Coded):
        return _handle(segment, next(numbers), TextLeaf)
    if isinstance(description, Foreign):
        return foreign()
    selector = (_handle(segment, next(numbers), ArrayLeaf),) if isinstance(description, Union) else ()
    children = [_assemble(child, segment, numbers, foreign) for child in description.children]
    if isinstance(description, Branch) and description.keys is not None:
        return dict(zip(description.keys, children, strict=True))
    return (*selector, *children)


def leaves(memory: Memory) -> Iterator[ArrayLeaf]:
    """The leaf handles in ``memory``, in the order of the tree; what is not ours is passed over."""
    if isinstance(memory, ArrayLeaf):
        yield memory
    elif isinstance(memory, dict | tuple | list):
        for child in memory.values() if isinstance(memory, dict) else memory:
            yield from leaves(child)


def at_slot(memory: Memory, slot: int) -> Memory:
    """``memory`` of a field with slots, at one of them: leaves whose views have shape ``(n, *shape)``."""
    if isinstance(memory, SlotsLeaf):
        return memory.at_slot(slot)
    if isinstance(memory, dict):
        return {key: at_slot(child, slot) for key, child in memory.items()}
    return tuple(at_slot(child, slot) for child in memory)


def views(memory: Memory) -> Any:
    """The arrays of ``memory``, nested as it is."""
    if isinstance(memory, ArrayLeaf):
        return memory.live_view()[...]
    if isinstance(memory, dict):
        return {key: views(child) for key, child in memory.items()}
    return tuple(views(child) for child in memory)


def segment_of(memory: Memory) -> Segment:
    """The segment that ``memory``, or any part of its tree, lives in.

    The segment has ``name``, ``nbytes``, ``n``, ``close()`` and ``unlink()``.

    Raises:
        TypeError: It has no part that lives in a segment, as an empty ``Dict`` has none.
    """
    for leaf in leaves(memory):
        return leaf.segment
    got = f"{type(memory).__name__}. Use its `segment_name`" if hasattr(memory, "segment_name") else shown(memory)
    raise TypeError(
        f"Expected what `gymshm.create_shared_memory` returned, or a part of it that has at least one array, got {got}."
    )


def check_container(space: Any, memory: Memory, parts: Any) -> None:
    """Refuses memory that was made for another space, before a stray ``KeyError`` would tell of it."""
    if isinstance(parts, dict):
        if isinstance(memory, dict) and memory.keys() == parts.keys():
            return
    elif isinstance(memory, tuple | list) and len(memory) == len(parts):
        return
    raise not_our_memory(space, memory)


def not_our_memory(space: Any, memory: Memory) -> TypeError:
    """The error for memory that ``create_shared_memory`` did not make for ``space``."""
    got, remedy = shown(memory), "Use the functions of one library for creating, reading and writing."
    if isinstance(memory, ArrayLeaf):
        got, remedy = repr(memory), "Use the space that it was created for."
    return TypeError(
        f"Expected the memory that `gymshm.create_shared_memory` returned for {space}, got {got}. {remedy}"
    )
