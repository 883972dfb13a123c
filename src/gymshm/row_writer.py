"""Row writers: ``write_to_shared_memory`` bound once to (space, memory, index), for loops that write one row for ever.

The writer is generated as source text, as ``dataclasses`` and ``attrs`` do: for small values a loop over leaves costs
several times what the stores cost. What is generated is one flat function. For ``Dict(image=Box, speed=Discrete)``::

    def write(value):
        try:
            v1 = value[k1]
            v2 = value[k2]
            fits = (
                (type(v1) is ndarray and v1.dtype is d1 and v1.shape == s1)
                and (type(v2) is t2 or type(v2) is int and low2 <= v2 <= high2 or ...)
            )
        except Exception:
            fits = False
        if not fits:
            return slow(value)
        try:
            a1[whole] = v1.reshape(-1)
            a2[0] = v2
        except ValueError:
            slow(value)

Rules of this file:

1. The generated code takes only what surely fits. Everything else, errors included, goes to ``slow``, which is
   ``write_to_shared_memory`` itself: so there is one place that decides, and one that words errors.
2. Check everything, then store: as there. The first store alone may check for itself: where it fails, nothing was
   written. The others fail only where a memoryview refuses what numpy takes, an array that is not aligned: what fits is
   then stored once more, the whole of it.
3. No value and no key ever becomes source text; they are names in the function's globals.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from types import CodeType
from typing import Any

import numpy as np
from gymnasium import spaces as gs

from .ordering import STORES_ARE_ORDERED, store_fence
from .views import ArrayLeaf, Memory, TextLeaf, check_container, leaves, not_our_memory
from .write import Pending, checked_index, collect, is_built_in, write_to_shared_memory

__all__ = ["plain", "plain_row", "row_writer"]

#: dtypes whose items a memoryview stores, with every check of range and type, at half of numpy's price.
_NATIVE_FORMATS = frozenset("bBhHiIlLqQfd")


def row_writer(space: gs.Space[Any], shared_memory: Memory, index: int) -> Callable[[Any], None]:
    """``write_to_shared_memory`` bound to ``space``, ``shared_memory`` and ``index``: a function of one value, faster.

    Handlers that are registered later are not seen by it.

    Args:
        space: The space of one environment's value.
        shared_memory: What ``create_shared_memory`` returned for it.
        index: The environment, in ``[0, n)``.

    Returns:
        ``write(value)``. It raises what ``write_to_shared_memory`` raises, and keeps the mapping alive.

    Raises:
        IndexError: ``index`` is out of range.
        TypeError: ``space`` is no space, or ``shared_memory`` is nested otherwise, or none.
        ValueError: The segment is closed.
        CustomSpaceError: ``space``, or a part of it, is a custom space that nobody registered.
    """
    if next(leaves(index), None) is not None:
        raise TypeError("Expected row_writer(space, shared_memory, index), got the memory in the place of the index.")
    index = checked_index(index, shared_memory)

    def slow(value: Any) -> None:
        write_to_shared_memory(space, index, value, shared_memory)

    if not is_built_in(space) or not all(leaf.live_view().flags.writeable for leaf in leaves(shared_memory)):
        return slow
    source = _Source(index, next((leaf.versions for leaf in leaves(shared_memory)), None))
    source.visit(space, shared_memory, "value")
    # A slice that is there already: until Python 3.12, writing [:] makes one each time.
    source.names.update(ndarray=np.ndarray, slow=slow, whole=slice(None))
    exec(_compiled(source.text()), source.names)
    # Taken out: a function among its own globals is a cycle, and would keep the segment until garbage is collected.
    write: Callable[[Any], None] = source.names.pop("write")
    return write


def plain(array: np.ndarray) -> Any:
    """``array`` as a memoryview whose ``[:] = value`` is all that it takes to write it; None where there is none such.

    It stores a value of just the array's dtype and shape, at half of numpy's price, and raises ValueError for any
    other, of which nothing is stored: it never converts. There is one for one dimension of native numbers.
    """
    return array.data if _is_native(array.dtype) and array.ndim == 1 and array.size else None


def plain_row(space: gs.Space[Any], shared_memory: Memory, index: int) -> Any:
    """Row ``index`` as :func:`plain` gives it, for those who have a :func:`row_writer` too, and want to save its call.

    None where a row takes more than a store: where it has leaves, or a version.
    """
    if type(shared_memory) is not ArrayLeaf or not is_built_in(space) or shared_memory.versions is not None:
        return None
    return plain(_row(shared_memory, index))


class _Source:
    """The generated function in the making: its lines, and the names that it refers to."""

    def __init__(self, index: int, versions: memoryview | None) -> None:
        self.names: dict[str, Any] = {}
        self._versions = versions
        self._index = index
        self._loads: list[str] = []
        self._conditions: list[str] = []
        self._choices: list[str] = []
        self._first: list[str] = []
        self._stores: list[str] = []
        self._numbers = itertools.count(1)

    def text(self) -> str:
        """The source."""
        return "\n".join(
            [
                "def write(value):",
                "    try:",
                *(f"        {line}" for line in self._loads),
                f"        fits = {' and '.join(self._conditions) or 'True'}",
                *(f"        if fits: {line}" for line in self._choices),
                "    except Exception:",
                "        fits = False",
                "    if not fits:",
                "        return slow(value)",
                *(f"    {line}" for line in self._storing()),
            ]
        )

    def _storing(self) -> list[str]:
        """The lines that store; around them, they change the row's version as ``write_to_shared_memory`` does."""
        if self._versions is None:
            return _trying([*self._first, *self._stores] or ["pass"], ["slow(value)"])
        row = f"{self._name('w', self._versions)}[{self._index}]"
        self.names["fence"] = store_fence
        fences = [] if STORES_ARE_ORDERED else ["fence()"]
        return [
            f"before = {row}",
            "version = before | 1",
            f"{row} = version",
            *fences,
            # Where what comes first fails, all is as it was before. Else the version is even again only at the end: who
            # is interrupted in between leaves it odd.
            *(_trying(self._first, [f"{row} = before", "return slow(value)"]) if self._first else ()),
            *(_trying(self._stores, ["return slow(value)"]) if self._stores else ()),
            *fences,
            f"{row} = version + 1",
        ]

    def visit(self, space: gs.Space[Any], memory: Memory, value: str) -> None:
        """Adds what it takes to write the part ``space`` of the tree; ``value`` is the variable that has its value."""
        if isinstance(space, gs.Dict):
            check_container(space, memory, space.spaces)
            if not all(isinstance(key, str) for key in space.spaces) or not space.spaces:
                self._conditions.append(f"type({value}) is dict")  # a list has an item 0 too
            for key, child in space.spaces.items():
                self.visit(child, memory[key], self._load(f"{value}[{self._name('k', key)}]"))
        elif isinstance(space, gs.Tuple):
            check_container(space, memory, space.spaces)
            self._conditions.append(f"(type({value}) is tuple or type({value}) is list)")
            self._conditions.append(f"len({value}) == {len(space.spaces)}")
            for position, child in enumerate(space.spaces):
                self.visit(child, memory[position], self._load(f"{value}[{position}]"))
        elif isinstance(space, gs.OneOf):
            check_container(space, memory, (None, *space.spaces))
            # Last, for a value may hold an iterator, which can be asked only once.
            collected = f"v{next(self._numbers)}"
            self._choices.append(
                f"{collected} = {self._name('c', functools.partial(_collected, space, memory))}({value})"
            )
            self._stores.append(f"for leaf, stored in {collected}: leaf.view[{self._index}] = stored")
        elif type(memory) is TextLeaf:
            codes = self._load(f"{self._name('e', memory.check)}({value})")
            self._stores.append(f"{self._name('a', _row(memory, self._index))}[...] = {codes}")
        elif type(memory) is ArrayLeaf:
            self._visit_array(memory, value)
        else:
            raise not_our_memory(space, memory)

    def _visit_array(self, leaf: ArrayLeaf, value: str) -> None:
        row = _row(leaf, self._index)
        dtype, shape = self._name("d", leaf.dtype), self._name("s", leaf.shape)
        condition = f"type({value}) is ndarray and {value}.dtype is {dtype} and {value}.shape == {shape}"
        if leaf.shape == ():
            if leaf.low is not None:
                low, high = self._name("low", leaf.low), self._name("high", leaf.high)
                condition = f"type({value}) is int and {low} <= {value} <= {high} or {condition}"
            elif leaf.dtype.char in "fd":
                # Not infinity, which is as far as a number too large gets, and then numpy has something to say.
                most = self._name("most", float(np.finfo(leaf.dtype).max))
                condition = f"type({value}) is float and -{most} <= {value} <= {most} or {condition}"
            condition = f"type({value}) is {self._name('t', leaf.scalar)} or {condition}"
        first = plain(row) is not None and not self._first
        if first:
            # What is stored first may check dtype and shape by itself, for nothing else is left half written then.
            condition = f"type({value}) is ndarray"
        self._conditions.append(f"({condition})")
        if _is_native(leaf.dtype) and 0 not in leaf.shape:
            flat = value if len(leaf.shape) <= 1 else f"{value}.reshape(-1)"
            stores = self._first if first else self._stores
            stores.append(f"{self._name('a', row.reshape(-1).data)}[{'whole' if leaf.shape else 0}] = {flat}")
        else:
            self._stores.append(f"{self._name('a', row)}[...] = {value}")

    def _load(self, expression: str) -> str:
        variable = f"v{next(self._numbers)}"
        self._loads.append(f"{variable} = {expression}")
        return variable

    def _name(self, prefix: str, meaning: Any) -> str:
        name = f"{prefix}{next(self._numbers)}"
        self.names[name] = meaning
        return name


def _trying(lines: list[str], remedy: list[str]) -> list[str]:
    """``lines``; and ``remedy``, where they don't take the value."""
    return ["try:", *(f"    {line}" for line in lines), "except ValueError:", *(f"    {line}" for line in remedy)]


def _is_native(dtype: np.dtype[Any]) -> bool:
    return dtype.isnative and dtype.char in _NATIVE_FORMATS


def _row(leaf: ArrayLeaf, index: int) -> np.ndarray:
    """Row ``index`` as an array that can be stored to, also where a value has no dimension."""
    return leaf.live_view()[index, ...]


def _collected(space: gs.Space[Any], memory: Memory, value: Any) -> Pending:
    pending: Pending = []
    collect(space, value, memory, pending)
    return pending


@functools.lru_cache(maxsize=256)
def _compiled(source: str) -> CodeType:
    """The same source comes back for every row, and every space of the same form."""
    return compile(source, "<gymshm row writer>", "exec")
