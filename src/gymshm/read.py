"""``read_from_shared_memory``: the batch of all environments, zero-copy where it is numbers, else decoded."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces as gs

from .dispatch import Function, Handler, refresh, registering
from .views import ArrayLeaf, Memory, check_container, not_our_memory

__all__ = ["read_from_shared_memory"]

#: What a ``OneOf`` has to say which subspace was chosen.
_CHOICE = gs.Discrete(1)


@registering
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
        TypeError: ``space`` is no space, or ``shared_memory`` was created for another one: it is nested otherwise, or
            has other shapes or dtypes.
        ValueError: ``n`` is another number than it was created for, or the segment is closed.
    """
    return _readers.get(type(space), _read_custom)(space, shared_memory, n)


def _read_custom(space: gs.Space[Any], memory: Memory, n: int) -> Any:
    handler = _read.of_subclass(type(space))
    if handler is not None:
        return handler(space, memory, n)
    handler = _read.custom(type(space))
    if handler is not None:
        return handler(space, memory, n=n)
    described = _read.stand_in(space)
    if described is not space:
        return read_from_shared_memory(described, memory, n)
    return _read.remember(type(space))(space, memory, n)


def _read_leaf(space: gs.Space[Any], memory: Memory, n: int) -> Any:
    try:
        if memory.read_as is space and memory.n == n:
            return memory.view[...]  # cheaper than [:], and as new
    except AttributeError:
        pass  # it is not ours
    if not isinstance(memory, ArrayLeaf):
        if refresh():
            return read_from_shared_memory(space, memory, n)
        raise not_our_memory(space, memory)
    if memory.n != n:
        raise ValueError(f"Expected n={memory.n}, for which this memory was created, got n={n}.")
    batch = memory.read()
    if not memory.fits(space):
        raise not_our_memory(space, memory)
    if type(memory) is ArrayLeaf:
        memory.read_as = space
    return batch


def _read_dict(space: gs.Dict, memory: Memory, n: int) -> Any:
    try:
        return {
            key: _readers.get(type(child), _read_custom)(child, memory[key], n) for key, child in space.spaces.items()
        }
    except (KeyError, IndexError, TypeError):
        check_container(space, memory, space.spaces)
        raise


def _read_tuple(space: gs.Tuple[Any], memory: Memory, n: int) -> Any:
    check_container(space, memory, space.spaces)
    return tuple(
        [
            _readers.get(type(child), _read_custom)(child, part, n)
            for child, part in zip(space.spaces, memory, strict=True)
        ]
    )


def _read_one_of(space: gs.OneOf[Any], memory: Memory, n: int) -> Any:
    check_container(space, memory, (None, *space.spaces))
    chosen = _read_leaf(_CHOICE, memory[0], n)
    batches = [read_from_shared_memory(child, part, n) for child, part in zip(space.spaces, memory[1:], strict=True)]
    return tuple([(index, _row(space.spaces[index], batches[index], i)) for i, index in enumerate(chosen)])


def _row(space: gs.Space[Any], batch: Any, i: int) -> Any:
    """Environment ``i``'s value out of a ``batch`` that :func:`read_from_shared_memory` gave for ``space``."""
    cls = type(space)
    if cls not in _readers and _read.of_subclass(cls) is None and _read.custom(cls) is None:
        described = _read.stand_in(space)
        if described is not space:
            return _row(described, batch, i)
    if isinstance(space, gs.Dict) and isinstance(batch, dict):
        return {key: _row(child, batch[key], i) for key, child in space.spaces.items()}
    if isinstance(space, gs.Tuple) and isinstance(batch, tuple):
        return tuple(_row(child, part, i) for child, part in zip(space.spaces, batch, strict=True))
    return batch[i]


_leaf: Handler = _read_leaf
_read = Function(
    "read_from_shared_memory",
    "Cannot read from a shared memory",
    {
        **dict.fromkeys((gs.Box, gs.Discrete, gs.MultiDiscrete, gs.MultiBinary, gs.Text), _leaf),
        gs.Dict: _read_dict,
        gs.Tuple: _read_tuple,
        gs.OneOf: _read_one_of,
    },
)
_read.publish(read_from_shared_memory)
_readers = _read.plain
