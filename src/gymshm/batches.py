"""Whole batches of a space at once: actions on their way into the segment, rows on their way out of it.

A batch has the form that ``gymnasium.vector.utils.batch_space`` gives a space: arrays of shape ``(n, *shape)``, nested
as the space is, and for ``Text`` and ``OneOf`` a sequence of ``n`` values.

What is handed out is never a view of the segment and may be kept, except where :func:`batch_reader` is told otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces as gs
from gymnasium.vector.utils import batch_space

from .errors import Mismatch
from .read import read_from_shared_memory
from .row_writer import plain
from .spaces import describe
from .views import ArrayLeaf, Memory, TextLeaf
from .write import Pending, collect

__all__ = [
    "Take",
    "batch_reader",
    "batch_writer",
    "copied",
    "detached",
    "exact_row",
    "gathered",
    "rows_reader",
    "survives",
    "viewed",
]

#: The most values of a ``Discrete`` for which a table of scalars is worth its memory.
_FEW = 1 << 12


def batch_writer(space: gs.Space[Any], memory: Memory, n: int) -> Callable[[Any], bool]:
    """A function of one batch of ``space`` that stores it in ``memory``, if it is just that, and says whether it did.

    Just that means ``n`` rows of exactly the space's dtype and shape: what comes out is what went in. It never
    converts, since environments notice: a ``time.sleep`` takes a float64 and no float32.
    """
    if type(memory) is not ArrayLeaf:
        return lambda batch: _write(space, memory, n, batch)
    view, dtype, shape = memory.live_view(), memory.dtype, (n, *memory.shape)

    ndarray, whole, numbers = np.ndarray, slice(None), plain(view)

    # The common cases, at a fraction of the price.
    def write_numbers(batch: Any) -> bool:
        if type(batch) is ndarray:
            try:
                numbers[whole] = batch
                return True
            except ValueError:  # another dtype or shape, or not aligned
                pass
        return _write(space, memory, n, batch)

    def write(batch: Any) -> bool:
        if type(batch) is ndarray and batch.dtype is dtype and batch.shape == shape:
            view[...] = batch
            return True
        return _write(space, memory, n, batch)

    return write if numbers is None else write_numbers


def _write(space: gs.Space[Any], memory: Memory, n: int, batch: Any) -> bool:
    pending: list[tuple[np.ndarray, Any]] = []
    try:
        if not _collect(space, memory, n, batch, pending):
            return False
    except (Mismatch, KeyError, IndexError, TypeError, ValueError):
        return False
    for array, stored in pending:
        array[...] = stored
    return True


def _collect(space: gs.Space[Any], memory: Memory, n: int, batch: Any, pending: list[tuple[np.ndarray, Any]]) -> bool:
    """Whether ``batch`` is just what ``memory`` holds; appends what is to be stored, as (array, value of the whole)."""
    space = describe(space)
    if isinstance(space, gs.Dict):
        return all(_collect(child, memory[key], n, batch[key], pending) for key, child in space.spaces.items())
    if isinstance(space, gs.Tuple):
        parts = zip(space.spaces, memory, batch, strict=True)
        return all(_collect(child, part_memory, n, part, pending) for child, part_memory, part in parts)
    if isinstance(space, gs.OneOf) or type(memory) is TextLeaf:
        if len(batch) != n:
            return False
        for i, value in enumerate(batch):
            if not survives(space, value):
                return False
            rows: Pending = []
            collect(space, value, memory, rows)
            pending.extend((leaf.live_view()[i : i + 1], stored) for leaf, stored in rows)
        return True
    if not isinstance(batch, np.ndarray) or batch.dtype != memory.dtype or batch.shape != (n, *memory.shape):
        return False
    pending.append((memory.live_view(), batch))
    return True


def rows_reader(space: gs.Space[Any], memory: Memory, start: int, stop: int) -> Callable[[], list[Any]]:
    """A function that gives the values of environments ``start`` to ``stop``, as new objects each time.

    An array of them is copied once and then handed out row by row, as iterating over the batch would.
    """
    space = describe(space)
    if isinstance(space, gs.Dict):
        # In the order in which iterating over a batch gives them: gymnasium sorts the keys of a batch's space.
        batched: Any = batch_space(space, 1)
        readers = {key: rows_reader(space.spaces[key], memory[key], start, stop) for key in batched.spaces}
        if not readers:
            return lambda: [{} for _ in range(start, stop)]
        return lambda: [
            dict(zip(readers, row, strict=True)) for row in zip(*(read() for read in readers.values()), strict=True)
        ]
    if isinstance(space, gs.Tuple):
        parts = [rows_reader(child, part, start, stop) for child, part in zip(space.spaces, memory, strict=True)]
        if not parts:
            return lambda: [() for _ in range(start, stop)]
        return lambda: list(zip(*(read() for read in parts), strict=True))
    if isinstance(space, gs.OneOf):
        return lambda: [exact_row(space, memory, i) for i in range(start, stop)]
    view = memory.live_view()[start:stop]
    if type(memory) is TextLeaf:
        return lambda: list(memory.code.decode(view))
    if isinstance(space, gs.Discrete) and space.n <= _FEW:
        return _scalars_reader(view, int(space.start), int(space.n))
    return lambda: list(view.copy())


def _scalars_reader(view: np.ndarray, start: int, n: int) -> Callable[[], list[Any]]:
    """Reads numpy scalars out of a table: they are immutable, and making one costs more than an environment's step."""
    scalars = {value: view.dtype.type(value) for value in range(start, start + n)}
    scalar = scalars.__getitem__

    def read() -> list[Any]:
        try:
            return list(map(scalar, view.tolist()))
        except KeyError:  # no action of the space; the environment has to say what it thinks of that
            return list(view.copy())

    return read


#: Makes of a view of the segment a function that gives what is handed out for it.
Take: TypeAlias = Callable[[np.ndarray], Callable[[], np.ndarray]]


def copied(view: np.ndarray) -> Callable[[], np.ndarray]:
    """Hands out copies."""
    return view.copy


def viewed(view: np.ndarray) -> Callable[[], np.ndarray]:
    """Hands out views."""
    return view.view


def batch_reader(space: gs.Space[Any], memory: Memory, n: int, take: Take) -> Callable[[], Any]:
    """A function that gives the batch as ``read_from_shared_memory`` does, its arrays as ``take`` has it.

    ``Text`` and ``OneOf`` never share anything with the segment.
    """
    described = describe(space)
    if isinstance(described, gs.Dict):
        parts = {key: batch_reader(child, memory[key], n, take) for key, child in described.spaces.items()}
        return lambda: {key: read() for key, read in parts.items()}
    if isinstance(described, gs.Tuple):
        readers = [batch_reader(child, part, n, take) for child, part in zip(described.spaces, memory, strict=True)]
        return lambda: tuple([read() for read in readers])
    if type(memory) is ArrayLeaf:
        return take(memory.live_view())
    return lambda: detached(read_from_shared_memory(space, memory, n))


def gathered(space: gs.Space[Any], memory: Memory, n: int, env_ids: np.ndarray) -> Any:
    """The batch of the environments ``env_ids`` alone, out of the memory of ``n``: new arrays, one row for each."""
    described = describe(space)
    if isinstance(described, gs.Dict):
        return {key: gathered(child, memory[key], n, env_ids) for key, child in described.spaces.items()}
    if isinstance(described, gs.Tuple):
        parts = zip(described.spaces, memory, strict=True)
        return tuple(gathered(child, part, n, env_ids) for child, part in parts)
    if isinstance(described, gs.OneOf):
        batch = detached(read_from_shared_memory(described, memory, n))
        return tuple(batch[i] for i in env_ids.tolist())
    rows = memory.live_view()[env_ids]
    return memory.code.decode(rows) if type(memory) is TextLeaf else rows


def detached(batch: Any) -> Any:
    """A copy of ``batch``, as ``read_from_shared_memory`` gives it, that shares nothing with it at any depth."""
    if isinstance(batch, np.ndarray):
        return batch.copy()
    if isinstance(batch, dict):
        return {key: detached(part) for key, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(detached(part) for part in batch)
    return batch  # text, and numbers out of an array, are values


def exact_row(space: gs.Space[Any], memory: Memory, i: int) -> Any:
    """Environment ``i``'s value, sharing nothing with ``memory``: just what went in, if that :func:`survives`."""
    space = describe(space)
    if isinstance(space, gs.Dict):
        return {key: exact_row(child, memory[key], i) for key, child in space.spaces.items()}
    if isinstance(space, gs.Tuple):
        return tuple([exact_row(child, part, i) for child, part in zip(space.spaces, memory, strict=True)])
    if isinstance(space, gs.OneOf):
        index = memory[0].live_view()[i]
        return index, exact_row(space.spaces[index], memory[1 + index], i)
    view = memory.live_view()
    if type(memory) is TextLeaf:
        return memory.code.decode(view[i : i + 1])[0]
    return view[i] if isinstance(space, gs.Discrete) else view[i, ...].copy()


def survives(space: gs.Space[Any], value: Any) -> bool:
    """Whether ``value`` comes out of the segment just as it went in: same types, same dtypes, same shapes.

    A Python int for a ``Discrete`` does not, for instance: it would come back as numpy's.
    """
    space = describe(space)
    if isinstance(space, gs.Dict):
        return (
            type(value) is dict
            and list(value) == list(space.spaces)
            and all(survives(child, value[key]) for key, child in space.spaces.items())
        )
    if isinstance(space, gs.Tuple):
        return (
            type(value) is tuple
            and len(value) == len(space.spaces)
            and all(survives(child, part) for child, part in zip(space.spaces, value, strict=True))
        )
    if isinstance(space, gs.OneOf):
        if type(value) is not tuple or len(value) != 2 or type(value[0]) is not np.int64:
            return False
        return bool(0 <= value[0] < len(space.spaces)) and survives(space.spaces[value[0]], value[1])
    if isinstance(space, gs.Text):
        return type(value) is str
    if isinstance(space, gs.Discrete):
        return type(value) is space.dtype.type
    return type(value) is np.ndarray and bool(value.dtype == space.dtype) and value.shape == space.shape
