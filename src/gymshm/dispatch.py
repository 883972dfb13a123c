"""The contract's three functions and ``iterate``: which code handles which space.

It alone knows gymnasium's registries.

Order of lookup for a space's type (said once, here)
----------------------------------------------------
1. a handler registered on *our* function (``write_to_shared_memory.register(MySpace)``), most specific class first;
2. a third party's handler on *gymnasium's* function of the same name;
3. a ``describe`` rule: a built-in space stands for it, and it is packed into the segment. Built-in spaces and their
   subclasses stand for themselves;
4. ``CustomSpaceError``.

A nested space that has only handlers (1, 2) becomes an entry of its own in the tree, made by its handler; everything
else of the tree stands in one segment.

Writing happens in two passes: the first checks the whole value and collects what is to be stored, the second stores. So
a value that does not fit leaves nothing behind. A handler's own part is written between the two: where a handler
raises, nothing of ours was written.
"""

from __future__ import annotations

import functools
import multiprocessing
import operator
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, TypeAlias

import gymnasium.vector.utils as gymnasium_utils
from gymnasium import spaces as gs
from gymnasium.error import CustomSpaceError
from numpy import ndarray

from .errors import Mismatch, MissingKeyError
from .plan import Field
from .segment import create as create_segment
from .spaces import Description, describe, outline
from .values import shown
from .views import ArrayLeaf, Memory, assemble, leaves

__all__ = ["create_shared_memory", "iterate", "read_from_shared_memory", "write_to_shared_memory"]

#: What gymnasium's own handlers call their module: tells them from a third party's.
_GYMNASIUM_HOME = "gymnasium.vector.utils.shared_memory"


class Handler(Protocol):
    """Code for spaces of one type: its arguments are those of the function that it is registered on."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Does the function's work."""


class _Function:
    """One function of the contract: its handlers, and how the one for a type is found.

    Args:
        name: The function's name.
        text: How the error for a custom space begins.
        built_in: Our code for the built-in spaces.
    """

    def __init__(self, name: str, text: str, built_in: Mapping[type, Handler]) -> None:
        """Captures gymnasium's function of the same name, whatever may be put in its place later."""
        self.name, self._text, self._built_in = name, text, dict(built_in)
        self._theirs = getattr(gymnasium_utils, name)
        self._ours = functools.singledispatch(self._nobody)
        #: Our code for the built-in types that nobody overrode: those need no search. Changed in place.
        self.plain: dict[type, Handler] = dict(built_in)

    def register(self, cls: Any, func: Handler | None = None) -> Any:
        """Registers a handler for ``cls``, as ``functools.singledispatch`` does; usable as a decorator."""
        result = self._ours.register(cls) if func is None else self._ours.register(cls, func)
        if func is None and isinstance(cls, type):
            return lambda func: self.register(cls, func)
        for space in [space for space in self.plain if self._ours.dispatch(space) != self._nobody]:
            del self.plain[space]
        return result

    def custom(self, cls: type) -> Handler | None:
        """The handler that somebody registered for ``cls`` (1, 2), or None."""
        ours = self._ours.dispatch(cls)
        if ours != self._nobody:
            return ours
        theirs: Handler = self._theirs.dispatch(cls)
        return None if theirs.__module__ == _GYMNASIUM_HOME else theirs

    def built_in(self, cls: type) -> Handler:
        """Our code for ``cls``, which is a built-in space or a subclass of one."""
        return next((self._built_in[base] for base in cls.__mro__ if base in self._built_in), self._nobody)

    def refuse(self, space: Any) -> Exception:
        """The error for a space that nobody handles (4)."""
        cls = type(space)
        if not isinstance(space, gs.Space):
            return TypeError(
                f"The space provided to `{self.name}` is not a gymnasium Space instance, type: {cls}, {space}"
            )
        return CustomSpaceError(
            f"{self._text} for space with type `{cls}`. Shared memory only supports default Gym spaces (e.g. `Box`, "
            f"`Tuple`, `Dict`, etc...), and does not support custom Gym spaces. Space of type `{cls}` doesn't have an "
            f"registered `{self.name}` function. Register `{cls}` for `{self.name}` to support it."
        )

    def stand_in(self, space: Any) -> gs.Space[Any]:
        """The built-in space that stands for ``space`` (3).

        Raises:
            CustomSpaceError, TypeError: None does.
        """
        if describe.dispatch(type(space)) is describe.dispatch(object):
            raise self.refuse(space)
        return describe(space)

    def _nobody(self, *args: Any) -> Any:
        """What ``singledispatch`` gives for a type without a handler."""
        raise AssertionError("never called")

    def dispatch(self, cls: type) -> Handler:
        """The handler for ``cls``, as ``functools.singledispatch`` tells it."""
        return self.custom(cls) or self.built_in(cls)


# --- create -----------------------------------------------------------------------------------------------------------


def create_shared_memory(
    space: gs.Space[Any], n: int = 1, ctx: Any = multiprocessing, *, name: str | None = None
) -> Memory:
    """Allocates room for one value of ``space`` per environment, in memory that other processes can share.

    Everything stands in one named segment (:func:`segment_of` gives it), which lives until its creator drops the last
    handle and array of it, or ends. Its memory is zero; a ``Text`` that nobody wrote reads as ``""``.

    Args:
        space: The space of one environment's value.
        n: Number of environments, from 0 up.
        ctx: A multiprocessing module or context; handed to custom handlers. The segment itself works under all.
        name: The segment's name, or None for a new one.

    Returns:
        A ``dict`` for ``Dict``, a ``tuple`` for ``Tuple``, a leaf handle for the base spaces, nested alike.

    Raises:
        CustomSpaceError: ``space``, or a part of it, is a custom space that nobody registered.
        TypeError: It is no space, or has no fixed size (``Sequence``, ``Graph``).
        ValueError: ``n`` is negative, or ``name`` can't be a name.
        SegmentExistsError: ``name`` is in use.
        OSError: There is no room for it.
    """
    n = operator.index(n)
    if n < 0:
        raise ValueError(f"Expected a number of environments from 0 up, got n={n}.")
    description, foreign = _outline(space)
    parts = iter(foreign)

    def make_foreign(_: str) -> Memory:
        part = next(parts)
        handler = _create.custom(type(part))
        assert handler is not None
        return handler(part, n=n, ctx=ctx)

    return assemble(create_segment([Field("values", (n,), description)], n, name), foreign=make_foreign)


def can_be_packed(space: gs.Space[Any]) -> bool:
    """Whether all of ``space`` stands in a segment; False where a part of it is made by somebody's handler.

    Raises:
        CustomSpaceError, TypeError: As :func:`create_shared_memory`.
    """
    return not _outline(space)[1]


def _outline(space: gs.Space[Any]) -> tuple[Description, list[gs.Space[Any]]]:
    """The description of ``space``, and the parts of it that handlers make, in the order of the tree."""
    foreign: list[gs.Space[Any]] = []

    def is_foreign(part: gs.Space[Any]) -> bool:
        if _create.custom(type(part)) is None:
            _create.stand_in(part)
            return False
        foreign.append(part)
        return True

    return outline(space, is_foreign), foreign


_create = _Function("create_shared_memory", "Cannot create a shared memory", {})


# --- read -------------------------------------------------------------------------------------------------------------


def read_from_shared_memory(space: gs.Space[Any], shared_memory: Memory, n: int = 1) -> Any:
    """The batch of all environments' values, as (possibly nested) numpy arrays over the shared memory.

    A change on either side is seen on the other; a caller who wants a snapshot copies. ``Text`` and ``OneOf`` are
    decoded, as they are at this moment: a tuple of ``str``, a tuple of ``(index, value)``.

    Args:
        space: The space of one environment's value.
        shared_memory: What :func:`create_shared_memory` returned for it.
        n: The number of environments that it was created for.

    Returns:
        Arrays of shape ``(n, *space.shape)`` and ``space.dtype``, nested as the space is. They keep the mapping alive.

    Raises:
        CustomSpaceError: ``space``, or a part of it, is a custom space that nobody registered.
        TypeError: ``space`` is no space, or ``shared_memory`` was not made for it.
        ValueError: ``n`` is another number than it was created for, or the segment is closed.
    """
    return _readers.get(type(space), _read_custom)(space, shared_memory, n)


def _read_custom(space: gs.Space[Any], memory: Memory, n: int) -> Any:
    handler = _read.custom(type(space))
    if handler is not None:
        return handler(space, memory, n)
    described = _read.stand_in(space)
    if described is not space:
        return read_from_shared_memory(described, memory, n)
    return _read.built_in(type(space))(space, memory, n)


def _read_leaf(space: gs.Space[Any], memory: Memory, n: int) -> Any:
    if type(memory) is ArrayLeaf and memory.n == n and (view := memory.view) is not None:
        return view[...]  # cheaper than [:], and as new
    if not isinstance(memory, ArrayLeaf):
        raise _not_our_memory(space, memory)
    if memory.n != n:
        raise ValueError(f"Expected n={memory.n}, for which this memory was created, got n={n}.")
    return memory.read()


def _read_dict(space: gs.Dict, memory: Memory, n: int) -> Any:
    try:
        return {key: _readers[type(child)](child, memory[key], n) for key, child in space.spaces.items()}
    except (KeyError, IndexError, TypeError):
        # A part that somebody registered, or memory of another space: worth a second, slower look.
        _check_container(space, memory, space.spaces)
        return {key: read_from_shared_memory(child, memory[key], n) for key, child in space.spaces.items()}


def _read_tuple(space: gs.Tuple[Any], memory: Memory, n: int) -> Any:
    _check_container(space, memory, space.spaces)
    return tuple(
        [
            _readers.get(type(child), _read_custom)(child, part, n)
            for child, part in zip(space.spaces, memory, strict=True)
        ]
    )


def _read_one_of(space: gs.OneOf[Any], memory: Memory, n: int) -> Any:
    _check_container(space, memory, (None, *space.spaces))
    chosen = _read_leaf(space, memory[0], n)
    batches = [read_from_shared_memory(child, part, n) for child, part in zip(space.spaces, memory[1:], strict=True)]
    return tuple((index, row_of(space.spaces[index], batches[index], i)) for i, index in enumerate(chosen))


def row_of(space: gs.Space[Any], batch: Any, i: int) -> Any:
    """Environment ``i``'s value out of a ``batch`` that :func:`read_from_shared_memory` gave for ``space``."""
    if isinstance(space, gs.Dict):
        return {key: row_of(child, batch[key], i) for key, child in space.spaces.items()}
    if isinstance(space, gs.Tuple):
        return tuple(row_of(child, part, i) for child, part in zip(space.spaces, batch, strict=True))
    return batch[i]


def _check_container(space: gs.Space[Any], memory: Memory, parts: Any) -> None:
    """Refuses memory that was made for another space, before a stray ``KeyError`` would tell of it."""
    if isinstance(parts, dict):
        if isinstance(memory, dict) and memory.keys() == parts.keys():
            return
    elif isinstance(memory, tuple | list) and len(memory) == len(parts):
        return
    raise _not_our_memory(space, memory)


def _not_our_memory(space: gs.Space[Any], memory: Memory) -> TypeError:
    return TypeError(
        f"Expected the memory that `gymshm.create_shared_memory` returned for {space}, got {shown(memory)}. Use the "
        "functions of one library for creating, reading and writing."
    )


_LEAF_SPACES = (gs.Box, gs.Discrete, gs.MultiDiscrete, gs.MultiBinary, gs.Text)

_read = _Function(
    "read_from_shared_memory",
    "Cannot read from a shared memory",
    {**dict.fromkeys(_LEAF_SPACES, _read_leaf), gs.Dict: _read_dict, gs.Tuple: _read_tuple, gs.OneOf: _read_one_of},
)
_readers: dict[type, Handler] = _read.plain


# --- write ------------------------------------------------------------------------------------------------------------

#: What the first pass collects: (array, what to store in its row).
Pending: TypeAlias = list[tuple[Any, Any]]


def write_to_shared_memory(space: gs.Space[Any], index: int, value: Any, shared_memory: Memory) -> None:
    """Writes one environment's ``value``: the whole of it, or nothing.

    Args:
        space: The space of one environment's value.
        index: The environment, in ``[0, n)``; any integer type.
        value: Of exactly the space's shape. Array-likes, lists and scalars do. Integers of any type whose values all
            fit, and floats of any width into floats; no floats into integers. An extra key in a ``Dict`` is ignored.
        shared_memory: What :func:`create_shared_memory` returned for ``space``.

    Raises:
        IndexError: ``index`` is not in ``[0, n)``.
        KeyError: A key of a ``Dict`` is missing.
        TypeError: A dtype or type does not fit, an integer is out of its dtype's range, ``space`` is no space, or
            ``shared_memory`` was not made for it.
        ValueError: A shape does not fit, a ``Text`` is too long or outside its character set, or the segment is closed.
        CustomSpaceError: ``space``, or a part of it, is a custom space that nobody registered.
    """
    # A single array that fits as it is: a third of the price of the general way below.
    if (
        type(value) is ndarray
        and type(shared_memory) is ArrayLeaf
        and value.dtype is shared_memory.dtype
        and value.shape == shared_memory.shape
        and type(space) in _writers
        and type(index) is int
        and 0 <= index < shared_memory.n
        and (view := shared_memory.view) is not None
    ):
        view[index] = value
        return
    pending: Pending = []
    try:
        collect(space, value, shared_memory, pending)
    except Mismatch as mismatch:
        raise mismatch.as_error(index) from None
    if pending and not (type(index) is int and 0 <= index < len(pending[-1][0])):
        index = _in_range(index, len(pending[-1][0]))
    for array, stored in pending:
        array[index] = stored


def collect(space: gs.Space[Any], value: Any, memory: Memory, pending: Pending) -> None:
    """The first pass over ``value``: checks it, and appends to ``pending`` what is to be stored.

    Raises:
        Mismatch: It does not fit.
    """
    _writers.get(type(space), _collect_custom)(space, value, memory, pending)


def _collect_custom(space: gs.Space[Any], value: Any, memory: Memory, pending: Pending) -> None:
    handler = _write.custom(type(space))
    if handler is not None:
        pending.insert(0, (_ForeignRows(handler, space, memory, pending), value))
        return
    described = _write.stand_in(space)
    if described is not space:
        collect(described, value, memory, pending)
    else:
        _write.built_in(type(space))(space, value, memory, pending)


class _ForeignRows:
    """Stands among the arrays for a part that a handler writes: storing in a row calls the handler.

    It is stored first, so that nothing of ours was written where the handler raises.
    """

    def __init__(self, handler: Handler, space: gs.Space[Any], memory: Memory, pending: Pending) -> None:
        self._handler, self._space, self._memory, self._pending = handler, space, memory, pending

    def __setitem__(self, index: int, value: Any) -> None:
        self._handler(self._space, index, value, self._memory)

    def __len__(self) -> int:
        return sys.maxsize  # its handler knows the bound


def _collect_leaf(space: gs.Space[Any], value: Any, memory: Memory, pending: Pending) -> None:
    if type(memory) is not ArrayLeaf:
        if not isinstance(memory, ArrayLeaf):
            raise _not_our_memory(space, memory)
    elif type(value) is ndarray and value.dtype is memory.dtype and value.shape == memory.shape:
        pending.append((memory.view, value))  # check() would say the same, after one more call
        return
    pending.append((memory.live_view(), memory.check(value)))


def _collect_dict(space: gs.Dict, value: Any, memory: Memory, pending: Pending) -> None:
    key = None
    try:
        for key, child in space.spaces.items():
            _writers.get(type(child), _collect_custom)(child, value[key], memory[key], pending)
    except Mismatch as mismatch:
        raise mismatch.below(key) from None
    except (KeyError, IndexError, TypeError, ValueError):
        _check_container(space, memory, space.spaces)
        _check_has(space, value, key)
        raise


def _collect_tuple(space: gs.Tuple[Any], value: Any, memory: Memory, pending: Pending) -> None:
    _check_container(space, memory, space.spaces)
    if type(value) is not tuple and type(value) is not list:
        try:
            value = tuple(value)
        except TypeError:
            raise Mismatch(TypeError, f"a sequence of {len(space.spaces)} values", shown(value)) from None
    if len(value) != len(space.spaces):
        raise Mismatch(ValueError, f"a sequence of {len(space.spaces)} values", f"{len(value)} values")
    key = 0
    try:
        for key, child in enumerate(space.spaces):
            _writers.get(type(child), _collect_custom)(child, value[key], memory[key], pending)
    except Mismatch as mismatch:
        raise mismatch.below(key) from None


def _collect_one_of(space: gs.OneOf[Any], value: Any, memory: Memory, pending: Pending) -> None:
    _check_container(space, memory, (None, *space.spaces))
    try:
        chosen, item = value
        chosen = operator.index(chosen)
    except (TypeError, ValueError):
        raise Mismatch(ValueError, "a pair (index of a subspace, value of it)", shown(value)) from None
    if not 0 <= chosen < len(space.spaces):
        raise Mismatch(ValueError, f"the index of a subspace, from 0 to {len(space.spaces) - 1}", str(chosen))
    _collect_leaf(space, chosen, memory[0], pending)
    try:
        collect(space.spaces[chosen], item, memory[1 + chosen], pending)
    except Mismatch as mismatch:
        raise mismatch.below(chosen) from None


def _check_has(space: gs.Dict, value: Any, key: Any) -> None:
    """Raises Mismatch if ``value`` has no item for ``key``."""
    keys = list(space.spaces)
    try:
        value[key]
    except KeyError:
        got = f"only {list(value)!r}" if isinstance(value, Mapping) else shown(value)
        raise Mismatch(MissingKeyError, f"a value for each of the keys {keys!r}", f"none for {key!r} ({got})") from None
    except Exception:
        raise Mismatch(TypeError, f"a mapping with the keys {keys!r}", shown(value)) from None


def _in_range(index: Any, n: int) -> int:
    """``index`` as an int in ``[0, n)``.

    Raises:
        IndexError: It is out of range, or no integer.
    """
    try:
        checked = operator.index(index)
    except TypeError:
        raise IndexError(f"Expected an integer index in [0, {n}), got {shown(index)}.") from None
    if not 0 <= checked < n:
        raise IndexError(f"Expected an index in [0, {n}), got {checked}. Each environment writes its own row alone.")
    return checked


def checked_index(index: Any, memory: Memory) -> int:
    """``index`` as an int that is a row of ``memory``.

    Raises:
        IndexError: It is out of range, or no integer.
    """
    return _in_range(index, next((leaf.n for leaf in leaves(memory)), sys.maxsize))


def is_built_in(space: gs.Space[Any]) -> bool:
    """Whether ``space`` (not its children) is written by our own code for the built-in space that it is."""
    cls = type(space)
    return cls in _writers or (_write.custom(cls) is None and _write.stand_in(space) is space)


_write = _Function(
    "write_to_shared_memory",
    "Cannot write to a shared memory",
    {
        **dict.fromkeys(_LEAF_SPACES, _collect_leaf),
        gs.Dict: _collect_dict,
        gs.Tuple: _collect_tuple,
        gs.OneOf: _collect_one_of,
    },
)
_writers: dict[type, Handler] = _write.plain

_function: Any
for _function, _handlers in (
    (create_shared_memory, _create),
    (read_from_shared_memory, _read),
    (write_to_shared_memory, _write),
):
    # What functools.singledispatch would put there. Plain functions, since that one refuses all-keyword calls.
    _function.register, _function.dispatch = _handlers.register, _handlers.dispatch


# --- iterate ----------------------------------------------------------------------------------------------------------


def iterate(space: gs.Space[Any], items: Any) -> Iterator[Any]:
    """Iterates over a batch: one item per environment.

    Args:
        space: The batched space, as ``batch_space`` gives it.
        items: A batch of it.

    Raises:
        CustomSpaceError: ``space`` is a custom space, and nobody registered it on gymnasium's ``iterate``.
        TypeError: ``space`` is no space, or ``items`` can't be iterated over.
    """
    if isinstance(space, gs.Dict):
        parts = {key: iterate(child, items[key]) for key, child in space.spaces.items()}
        return (dict(zip(parts, row, strict=True)) for row in zip(*parts.values(), strict=True))
    if isinstance(space, gs.Tuple):
        if all(_iterable(child) for child in space.spaces):
            return zip(*(iterate(child, part) for child, part in zip(space.spaces, items, strict=True)), strict=True)
        return iter(items)
    try:
        return gymnasium_utils.iterate(space, items)
    except CustomSpaceError as error:
        raise CustomSpaceError(
            f"Unable to iterate over {items}, since {space} is a custom `gym.Space` instance (i.e. not one of `Box`, "
            f"`Dict`, etc...). {error}"
        ) from None


def _iterable(space: gs.Space[Any]) -> bool:
    """Whether a batch of ``space`` can be taken apart. Of text it can't: its batch is a ``Tuple`` of texts."""
    registry = gymnasium_utils.iterate.dispatch(type(space))
    return registry is not gymnasium_utils.iterate.dispatch(object)
