"""``write_to_shared_memory``: one environment's value, the whole of it or nothing.

Writing happens in two passes: the first checks the whole value and collects what is to be stored, the second stores. So
a value that does not fit leaves nothing behind. A part that somebody's handler writes comes between the two: where a
handler raises, nothing of ours was written.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Mapping, Set
from typing import Any, TypeAlias

from gymnasium import spaces as gs
from numpy import ndarray

from .dispatch import Function, Handler, refresh, registering
from .errors import Mismatch, MissingKeyError
from .ordering import STORES_ARE_ORDERED, store_fence
from .values import shown
from .views import ArrayLeaf, Memory, check_container, leaves, not_our_memory

__all__ = ["Pending", "checked_index", "collect", "is_built_in", "write_to_shared_memory"]

#: What the first pass collects: (leaf, what to store in its row).
Pending: TypeAlias = list[tuple[Any, Any]]


@registering
def write_to_shared_memory(space: gs.Space[Any], index: int, value: Any, shared_memory: Memory) -> None:
    """Writes one environment's ``value``: the whole of it, or nothing.

    Args:
        space: The space of one environment's value.
        index: The environment, in ``[0, n)``; any integer type.
        value: Of exactly the shape that ``shared_memory`` was created with. Array-likes, lists and scalars do. Integers
            of any type whose values all fit, and floats of any width into floats; no floats into integers. An extra key
            in a ``Dict`` is ignored.
        shared_memory: What :func:`create_shared_memory` returned for ``space``.

    Raises:
        IndexError: ``index`` is not in ``[0, n)``.
        KeyError: A key of a ``Dict`` is missing.
        TypeError: A dtype or type does not fit, an integer is out of its dtype's range, ``space`` is no space, or
            ``shared_memory`` is nested otherwise. Its shapes and dtypes are compared with ``value``, not ``space``.
        ValueError: A shape does not fit, a ``Text`` is too long or outside its character set, or the segment is closed.
        CustomSpaceError: ``space``, or a part of it, is a custom space that nobody registered.
    """
    # A single array that fits as it is, in a row that was written before: a third of the price of the way below.
    if (
        type(value) is ndarray
        and type(shared_memory) is ArrayLeaf
        and type(index) is int
        and (type(space) in _writers or _write.of_subclass(type(space)) is _leaf)
        and value.dtype is shared_memory.dtype
        and value.shape == shared_memory.shape
        and index in (rows := shared_memory.rows)
    ):
        versions = shared_memory.versions
        if versions is None:
            rows[index][...] = value
            return
        if STORES_ARE_ORDERED:
            version = versions[index] | 1
            versions[index] = version
            rows[index][...] = value
            versions[index] = version + 1
            return
    pending: Pending = []
    versions = None
    try:
        _writers.get(type(space), _collect_custom)(space, value, shared_memory, pending)
        if pending:
            leaf = pending[-1][0]
            versions = leaf.versions
            if type(index) is not int or not 0 <= index < leaf.n:
                index = _in_range(index, leaf.n)
    except Mismatch as mismatch:
        raise mismatch.as_error(index) from mismatch.__cause__
    if versions is None:
        for leaf, stored in pending:
            leaf.view[index] = stored
    else:
        _store_versioned(pending, index, versions)
    if type(shared_memory) is ArrayLeaf:
        shared_memory.remember(index)


def _store_versioned(pending: Pending, index: int, versions: memoryview) -> None:
    """The second pass, for memory whose rows have versions.

    A version is odd while its row is neither old nor new, also where the writer died in between, or was interrupted:
    onlookers wait for even, which the next write that comes to its end makes it.
    """
    # Handlers, which come first, may raise: before the version is odd, for nothing of ours was written then.
    while type(pending[0][0]) is _ForeignRows:
        rows, value = pending.pop(0)
        rows[index] = value
    version = versions[index] | 1
    versions[index] = version
    store_fence()
    for leaf, stored in pending:
        leaf.view[index] = stored
    store_fence()
    versions[index] = version + 1


def collect(space: gs.Space[Any], value: Any, memory: Memory, pending: Pending) -> None:
    """The first pass over ``value``: checks it, and appends to ``pending`` what is to be stored.

    Raises:
        Mismatch: It does not fit.
    """
    _writers.get(type(space), _collect_custom)(space, value, memory, pending)


def _collect_custom(space: gs.Space[Any], value: Any, memory: Memory, pending: Pending) -> None:
    handler = _write.of_subclass(type(space))
    if handler is not None:
        handler(space, value, memory, pending)
        return
    handler = _write.custom(type(space))
    if handler is not None:
        # Before all arrays, behind the handlers that come before it in the tree.
        position = sum(type(leaf) is _ForeignRows for leaf, _ in pending)
        pending.insert(position, (_ForeignRows(handler, space, memory), value))
        return
    described = _write.stand_in(space)
    if described is not space:
        collect(described, value, memory, pending)
    else:
        _write.remember(type(space))(space, value, memory, pending)


class _ForeignRows:
    """Stands among the leaves for a part that a handler writes: storing in a row calls the handler."""

    n = sys.maxsize  # its handler knows the bound
    versions = None

    def __init__(self, handler: Handler, space: gs.Space[Any], memory: Memory) -> None:
        self._handler, self._space, self._memory = handler, space, memory

    def __setitem__(self, index: int, value: Any) -> None:
        self._handler(self._space, index, value, self._memory)

    @property
    def view(self) -> _ForeignRows:
        return self


def _collect_leaf(space: gs.Space[Any], value: Any, memory: Memory, pending: Pending) -> None:
    if type(memory) is ArrayLeaf and memory.view is not None:
        kind = type(value)
        # check() would say the same of these, after one more call.
        if value.dtype is memory.dtype and value.shape == memory.shape if kind is ndarray else kind is memory.scalar:
            pending.append((memory, value))
            return
    elif not isinstance(memory, ArrayLeaf):
        if refresh():
            return collect(space, value, memory, pending)
        raise not_our_memory(space, memory)
    memory.live_view()
    pending.append((memory, memory.check(value)))


def _collect_dict(space: gs.Dict, value: Any, memory: Memory, pending: Pending) -> None:
    if type(value) is not dict:
        _check_mapping(space, value)
    key = None
    try:
        for key, child in space.spaces.items():
            _writers.get(type(child), _collect_custom)(child, value[key], memory[key], pending)
    except Mismatch as mismatch:
        mismatch.below(key)
        raise
    except (KeyError, IndexError, TypeError, ValueError):
        check_container(space, memory, space.spaces)
        _check_has(space, value, key)
        raise


def _collect_tuple(space: gs.Tuple[Any], value: Any, memory: Memory, pending: Pending) -> None:
    check_container(space, memory, space.spaces)
    if type(value) is not tuple and type(value) is not list:
        value = _items(value, f"a sequence of {len(space.spaces)} values")
    if len(value) != len(space.spaces):
        raise Mismatch(ValueError, f"a sequence of {len(space.spaces)} values", f"{len(value)} values")
    key = 0
    try:
        for key, child in enumerate(space.spaces):
            _writers.get(type(child), _collect_custom)(child, value[key], memory[key], pending)
    except Mismatch as mismatch:
        mismatch.below(key)
        raise


def _items(value: Any, expected: str) -> tuple[Any, ...]:
    """The items of a sequence that is neither a list nor a tuple: an array, say, or an iterator."""
    # What has no order of its own, or whose items are not what it holds, would be written as what nobody meant.
    if not isinstance(value, Mapping | Set | str | bytes):
        try:
            return tuple(value)
        except TypeError:
            pass
    raise Mismatch(TypeError, expected, shown(value))


def _collect_one_of(space: gs.OneOf[Any], value: Any, memory: Memory, pending: Pending) -> None:
    check_container(space, memory, (None, *space.spaces))
    expected = "a pair (index of a subspace, value of it)"
    if type(value) is not tuple and type(value) is not list:
        value = _items(value, expected)
    try:
        chosen, item = value
        chosen = operator.index(chosen)
    except (TypeError, ValueError):
        raise Mismatch(ValueError, expected, shown(value)) from None
    if not 0 <= chosen < len(space.spaces):
        raise Mismatch(ValueError, f"the index of a subspace, from 0 to {len(space.spaces) - 1}", str(chosen))
    _collect_leaf(space, chosen, memory[0], pending)
    try:
        collect(space.spaces[chosen], item, memory[1 + chosen], pending)
    except Mismatch as mismatch:
        mismatch.below(chosen)
        raise


def _check_mapping(space: gs.Dict, value: Any) -> None:
    """Raises Mismatch if ``value`` is no mapping: a list, say, which has an item 0 too. A numpy record is one."""
    if not hasattr(value, "keys") and getattr(getattr(value, "dtype", None), "names", None) is None:
        raise Mismatch(TypeError, f"a mapping with the keys {list(space.spaces)!r}", shown(value))


def _check_has(space: gs.Dict, value: Any, key: Any) -> None:
    """Raises Mismatch if ``value`` has no item for ``key``."""
    try:
        value[key]
    except (LookupError, ValueError):  # a numpy record has no field of that name
        expected = f"a value for each of the keys {list(space.spaces)!r}"
        got = f"only {list(value)!r}" if isinstance(value, Mapping) else shown(value)
        raise Mismatch(MissingKeyError, expected, f"none for {key!r} ({got})") from None


def _in_range(index: Any, n: int) -> int:
    """``index`` as an int in ``[0, n)``.

    Raises:
        Mismatch: It is out of range, or no integer.
    """
    try:
        checked = operator.index(index)
    except TypeError:
        checked = -1
    if not 0 <= checked < n:
        raise Mismatch(IndexError, f"an integer index in [0, {n})", shown(index), "Each environment has its own row.")
    return checked


def checked_index(index: Any, memory: Memory) -> int:
    """``index`` as an int that is a row of ``memory``.

    Raises:
        IndexError: It is out of range, or no integer.
    """
    try:
        return _in_range(index, next((leaf.n for leaf in leaves(memory)), sys.maxsize))
    except Mismatch as mismatch:
        raise mismatch.as_error(index) from None


def is_built_in(space: gs.Space[Any]) -> bool:
    """Whether all of ``space`` is written by our own code for built-in spaces."""
    cls = type(space)
    if cls not in _writers and (_write.custom(cls) is not None or _write.stand_in(space) is not space):
        return False
    if isinstance(space, gs.Dict):
        return all(map(is_built_in, space.spaces.values()))
    return not isinstance(space, gs.Tuple | gs.OneOf) or all(map(is_built_in, space.spaces))


_leaf: Handler = _collect_leaf
_write = Function(
    "write_to_shared_memory",
    "Cannot write to a shared memory",
    {
        **dict.fromkeys((gs.Box, gs.Discrete, gs.MultiDiscrete, gs.MultiBinary, gs.Text), _leaf),
        gs.Dict: _collect_dict,
        gs.Tuple: _collect_tuple,
        gs.OneOf: _collect_one_of,
    },
)
_write.publish(write_to_shared_memory)
_writers = _write.plain
