"""Space -> description.

A description is what a segment has to know of a space: which arrays stand for it, and how they nest. It has five
kinds of node: :class:`Array` (numbers), :class:`Coded` (text, as indices into its character set), :class:`Branch`
(``Dict`` and ``Tuple``), :class:`Union` (``OneOf``) and :class:`Foreign` (a part that lives elsewhere: ``dispatch``).

Adding a space type means: a rule for :func:`describe`, and nothing elsewhere.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces as gs
from gymnasium.error import CustomSpaceError

from .compat import characters

__all__ = [
    "BUILT_IN",
    "NUMERIC_KINDS",
    "Array",
    "Branch",
    "Coded",
    "Description",
    "Foreign",
    "Json",
    "Union",
    "describe",
    "leaf_nodes",
    "outline",
]

#: What ``json.dumps`` takes.
Json: TypeAlias = Any

#: gymnasium's spaces of a fixed size: those that stand for themselves.
BUILT_IN = (gs.Box, gs.Discrete, gs.MultiDiscrete, gs.MultiBinary, gs.Text, gs.Dict, gs.Tuple, gs.OneOf)

#: The dtypes that may stand in a segment: numbers of a fixed size. Objects, strings and records are refused.
NUMERIC_KINDS = "biuf"


@dataclass(frozen=True)
class Array:
    """Numbers: one value is an array of ``shape`` and ``dtype``; ``space`` says in JSON which space it came from."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    space: Json = field(compare=False)


@dataclass(frozen=True)
class Coded:
    """Text: one value is up to ``max_length`` characters, stored as their positions in ``characters``."""

    max_length: int
    min_length: int
    characters: str


@dataclass(frozen=True)
class Branch:
    """A ``Dict`` with ``keys``, or a ``Tuple`` where ``keys`` is None."""

    keys: tuple[Hashable, ...] | None
    children: tuple[Description, ...]


@dataclass(frozen=True)
class Union:
    """A ``OneOf``: the index of the chosen child, and room for each of them."""

    children: tuple[Description, ...]


@dataclass(frozen=True)
class Foreign:
    """A part of the tree whose memory another library's handler made; only its type's name is known."""

    type_name: str


Description: TypeAlias = Array | Coded | Branch | Union | Foreign


def leaf_nodes(description: Description) -> Iterator[Description]:
    """The description of each leaf, in the order of the plan; a union stands for its own selector."""
    if isinstance(description, Array | Coded):
        yield description
    elif not isinstance(description, Foreign):
        if isinstance(description, Union):
            yield description
        for child in description.children:
            yield from leaf_nodes(child)


# --- space -> description ---------------------------------------------------------------------------------------------


@functools.singledispatch
def describe(space: Any) -> gs.Space[Any]:
    """The built-in space that stands for ``space`` in a segment.

    A custom space whose values look like those of a built-in one needs one registration to be packed into the segment,
    and to be seen by whoever attaches by name::

        @gymshm.describe.register
        def _(space: Quaternion) -> gymnasium.Space:
            return Box(-1, 1, (4,))

    A built-in space, or a subclass of one, stands for itself.

    Raises:
        CustomSpaceError: No rule is registered for the type of ``space``.
        TypeError: ``space`` is no ``gymnasium.Space``.
    """
    if isinstance(space, gs.Space):
        raise CustomSpaceError(
            f"Space of type `{type(space)}` doesn't have an registered `describe` rule. Register `{type(space)}` for "
            "`describe` to say which built-in space stands for it."
        )
    raise TypeError(f"The space provided to `describe` is not a gymnasium Space instance, type: {type(space)}, {space}")


def _itself(space: gs.Space[Any]) -> gs.Space[Any]:
    return space


for _built_in in BUILT_IN:
    describe.register(_built_in, _itself)


@describe.register(gs.Sequence)
@describe.register(gs.Graph)
def _dynamic(space: gs.Space[Any]) -> gs.Space[Any]:
    raise TypeError(
        f"As {space} has a dynamic shape so its not possible to make a static shared memory. For `AsyncVectorEnv`, "
        "disable `shared_memory`. Likewise for ours: `gymshm.ShmVectorEnv(..., shared_memory=False)`."
    )


def outline(space: gs.Space[Any], is_foreign: Callable[[gs.Space[Any]], bool] = lambda space: False) -> Description:
    """The description of ``space``: what a layout plan is made from.

    Args:
        space: The space of one environment's value.
        is_foreign: Tells the parts of the tree whose memory is made elsewhere; they take no room.

    Raises:
        CustomSpaceError: A part of the tree is of a type that no rule describes.
        TypeError: A part of the tree has no fixed size.
    """
    if is_foreign(space):
        return Foreign(f"{type(space).__module__}.{type(space).__qualname__}")
    described = describe(space)
    if described is not space:
        return outline(described, is_foreign)
    if isinstance(space, gs.Dict):
        return Branch(tuple(space.spaces), tuple(outline(child, is_foreign) for child in space.spaces.values()))
    if isinstance(space, gs.Tuple):
        return Branch(None, tuple(outline(child, is_foreign) for child in space.spaces))
    if isinstance(space, gs.OneOf):
        return Union(tuple(outline(child, is_foreign) for child in space.spaces))
    if isinstance(space, gs.Text):
        return Coded(space.max_length, space.min_length, characters(space))
    assert space.shape is not None, f"{space} has no shape"
    assert space.dtype is not None, f"{space} has no dtype"
    dtype = np.dtype(space.dtype)
    if dtype.kind not in NUMERIC_KINDS:
        raise TypeError(f"Expected a numeric dtype, got {dtype} - at {space}. Use numbers of a fixed size.")
    return Array(dtype, tuple(int(length) for length in space.shape), _parameters(space))


def _parameters(space: gs.Space[Any]) -> Json:
    """What it takes, besides dtype and shape, to build a leaf space again."""
    dtype = np.dtype(space.dtype)
    if isinstance(space, gs.Box):
        return {"type": "Box", "low": _array_to_json(space.low, dtype), "high": _array_to_json(space.high, dtype)}
    if isinstance(space, gs.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, gs.MultiDiscrete):
        nvec, start = _array_to_json(space.nvec, dtype), _array_to_json(space.start, dtype)
        return {"type": "MultiDiscrete", "nvec": nvec, "start": start}
    assert isinstance(space, gs.MultiBinary), space
    return {"type": "MultiBinary", "n": space.n if isinstance(space.n, int) else list(space.n)}


def _array_to_json(array: Any, dtype: np.dtype[Any]) -> Json:
    """Bytes, not decimal text: infinities, longdouble and byte order survive. One item where all are the same."""
    data = np.asarray(array, dtype).tobytes()
    item = data[: dtype.itemsize]
    uniform = data == item * (len(data) // dtype.itemsize) and data != b""
    return {"uniform": uniform, "bytes": base64.b64encode(item if uniform else data).decode("ascii")}
