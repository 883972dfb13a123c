"""Space -> description, and description <-> JSON.

A description is what a segment has to know of a space: which arrays stand for it, and how they nest. It has five
kinds of node: :class:`Array` (numbers), :class:`Coded` (text, as indices into its character set), :class:`Branch`
(``Dict`` and ``Tuple``), :class:`Union` (``OneOf``) and :class:`Foreign` (a part that lives elsewhere: ``dispatch``).

Rules of this file:

1. JSON only, never pickle: reading a description runs no code that came with it.
2. :func:`from_json` trusts nothing. What does not fit raises an ordinary exception (``KeyError``, ``TypeError``,
   ``ValueError``, ``RecursionError``), which ``header`` turns into the one error that callers see.
3. Adding a space type means: a rule for :func:`describe` here, and nothing elsewhere.
"""

from __future__ import annotations

import base64
import functools
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces as gs
from gymnasium.error import CustomSpaceError

__all__ = [
    "Array",
    "Branch",
    "Coded",
    "Description",
    "Foreign",
    "OpaqueKey",
    "Union",
    "describe",
    "from_json",
    "outline",
    "rebuild",
    "to_json",
]

Json: TypeAlias = Any

#: The dtypes that may stand in a segment: numbers of a fixed size. Objects, strings and records are refused.
NUMERIC_KINDS = "biufc"


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


@dataclass(frozen=True)
class OpaqueKey:
    """Stands for a ``Dict`` key that JSON can't tell (an enum member, say), for who has nothing but the segment."""

    text: str
    position: int


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


@describe.register(gs.Box)
@describe.register(gs.Discrete)
@describe.register(gs.MultiDiscrete)
@describe.register(gs.MultiBinary)
@describe.register(gs.Text)
@describe.register(gs.Dict)
@describe.register(gs.Tuple)
@describe.register(gs.OneOf)
def _itself(space: gs.Space[Any]) -> gs.Space[Any]:
    return space


@describe.register(gs.Sequence)
@describe.register(gs.Graph)
def _dynamic(space: gs.Space[Any]) -> gs.Space[Any]:
    raise TypeError(
        f"As {space} has a dynamic shape so its not possible to make a static shared memory. For `AsyncVectorEnv`, "
        "disable `shared_memory`."
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
        return Coded(space.max_length, space.min_length, "".join(space.character_list))
    assert space.shape is not None, f"{space} has no shape"
    assert space.dtype is not None, f"{space} has no dtype"
    dtype = np.dtype(space.dtype)
    if dtype.kind not in NUMERIC_KINDS:
        raise TypeError(f"Expected a numeric dtype, got {dtype} - at {space}. Use numbers of a fixed size.")
    return Array(dtype, tuple(int(length) for length in space.shape), _parameters(space))


def _parameters(space: gs.Space[Any]) -> Json:
    """What it takes to build a leaf space again."""
    if isinstance(space, gs.Box):
        return {"type": "Box", "low": _array_to_json(space.low), "high": _array_to_json(space.high)}
    if isinstance(space, gs.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, gs.MultiDiscrete):
        return {"type": "MultiDiscrete", "nvec": _array_to_json(space.nvec), "start": _array_to_json(space.start)}
    assert isinstance(space, gs.MultiBinary), space
    return {"type": "MultiBinary", "n": space.n if isinstance(space.n, int) else list(space.n)}


def _array_to_json(array: np.ndarray) -> Json:
    """Bytes, not decimal text: infinities, longdouble and byte order survive. One item where all are the same."""
    array = np.ascontiguousarray(array)
    flat = array.reshape(-1).view(np.uint8).reshape(array.size, array.itemsize)
    uniform = array.size > 0 and bool((flat == flat[0]).all())
    data = (flat[0] if uniform else flat).tobytes()
    return {"dtype": array.dtype.str, "uniform": uniform, "bytes": base64.b64encode(data).decode("ascii")}


# --- description <-> JSON ---------------------------------------------------------------------------------------------


def to_json(description: Description) -> Json:
    """``description`` as what ``json.dumps`` takes."""
    if isinstance(description, Array):
        shape = list(description.shape)
        return {"kind": "array", "dtype": description.dtype.str, "shape": shape, "space": description.space}
    if isinstance(description, Coded):
        # Code points, for lone surrogates are legal in a character set and not in UTF-8.
        points = [ord(character) for character in description.characters]
        lengths = {"max_length": description.max_length, "min_length": description.min_length}
        return {"kind": "coded", **lengths, "characters": points}
    if isinstance(description, Foreign):
        return {"kind": "foreign", "type": description.type_name}
    children = [to_json(child) for child in description.children]
    if isinstance(description, Union):
        return {"kind": "union", "children": children}
    keys = description.keys
    told_keys = None if keys is None else [_key_to_json(key) for key in keys]
    return {"kind": "branch", "keys": told_keys, "children": children}


def from_json(obj: Json) -> Description:
    """The description that ``obj`` tells; the inverse of :func:`to_json`.

    Raises:
        KeyError, TypeError, ValueError, RecursionError: ``obj`` tells none.
    """
    kind = obj["kind"]
    if kind == "array":
        dtype = np.dtype(_typed(obj["dtype"], str))
        if dtype.kind not in NUMERIC_KINDS or dtype.hasobject or dtype.names is not None:
            raise ValueError(f"dtype {dtype} is not numeric")
        return Array(dtype, tuple(_size(length) for length in obj["shape"]), _typed(obj["space"], dict))
    if kind == "coded":
        characters = "".join(chr(_size(point)) for point in obj["characters"])
        if len(set(characters)) != len(characters):
            raise ValueError("a character occurs twice in its set")
        return Coded(_size(obj["max_length"]), _size(obj["min_length"]), characters)
    if kind == "foreign":
        return Foreign(_typed(obj["type"], str))
    children = tuple(from_json(child) for child in _typed(obj["children"], list))
    if kind == "union":
        if not children:
            raise ValueError("a union needs a child")
        return Union(children)
    if kind != "branch":
        raise ValueError(f"kind {kind!r} is not known")
    if obj["keys"] is None:
        return Branch(None, children)
    keys = tuple(_key_from_json(key, position) for position, key in enumerate(_typed(obj["keys"], list)))
    if len(set(keys)) != len(keys) or len(keys) != len(children):
        raise ValueError("keys are not one to a child")
    return Branch(keys, children)


def _typed(obj: Json, cls: type) -> Any:
    if type(obj) is not cls:
        raise TypeError(f"{cls.__name__} expected, not {type(obj).__name__}")
    return obj


def _size(obj: Json) -> int:
    if _typed(obj, int) < 0:
        raise ValueError(f"{obj} is negative")
    return int(obj)


def _key_to_json(key: Hashable) -> Json:
    """``[type, value]``, so that ``1``, ``"1"``, ``1.0`` and ``True`` stay apart."""
    if key is None or type(key) in (bool, int):
        return [type(key).__name__, key]
    if type(key) is str:
        return ["str", [ord(character) for character in key]] if not key.isprintable() else ["str", key]
    if type(key) is float:
        return ["float", key.hex()]
    if type(key) is bytes:
        return ["bytes", key.hex()]
    if type(key) is tuple:
        return ["tuple", [_key_to_json(item) for item in key]]
    if isinstance(key, OpaqueKey):
        return ["opaque", key.text]
    return ["opaque", repr(key)]


def _key_from_json(obj: Json, position: int) -> Hashable:
    kind, value = obj
    if kind == "NoneType" and value is None:
        return None
    if kind in ("bool", "int"):
        return bool(_typed(value, bool)) if kind == "bool" else int(_typed(value, int))
    if kind == "str":
        return value if type(value) is str else "".join(chr(_size(point)) for point in value)
    if kind == "float":
        return float.fromhex(_typed(value, str))
    if kind == "bytes":
        return bytes.fromhex(_typed(value, str))
    if kind == "tuple":
        return tuple(_key_from_json(item, position) for item in _typed(value, list))
    if kind == "opaque":
        return OpaqueKey(_typed(value, str), position)
    raise ValueError(f"key of kind {kind!r} is not known")


# --- description -> space ---------------------------------------------------------------------------------------------


def rebuild(description: Description, limit: int) -> gs.Space[Any]:
    """The space that ``description`` describes; an empty ``Tuple`` for a part that lives elsewhere.

    Args:
        description: As :func:`from_json` gave it.
        limit: How many bytes one value may have: bounds are arrays, and a forged shape could ask for any size.

    Raises:
        KeyError, TypeError, ValueError, OverflowError: The parameters fit no space.
    """
    if isinstance(description, Foreign):
        return gs.Tuple(())
    if isinstance(description, Array):
        return _rebuild_array(description, limit)
    if isinstance(description, Coded):
        # As a string: a set would be sorted, and the order is what the stored positions refer to.
        return gs.Text(description.max_length, min_length=description.min_length, charset=description.characters)
    children = [rebuild(child, limit) for child in description.children]
    if isinstance(description, Union):
        return gs.OneOf(children)
    if description.keys is None:
        return gs.Tuple(children)
    # Pairs, not a mapping: Dict would sort a mapping's keys.
    return gs.Dict(list(zip(description.keys, children, strict=True)))  # type: ignore[arg-type]


def _rebuild_array(description: Array, limit: int) -> gs.Space[Any]:
    dtype, shape, told = description.dtype, description.shape, description.space
    if math.prod(shape) * dtype.itemsize > limit:
        raise ValueError(f"a value of shape {shape} and dtype {dtype} has more than {limit} bytes")
    kind = told["type"]
    if kind == "Box":
        low, high = _array_from_json(told["low"], shape), _array_from_json(told["high"], shape)
        exact: Any = dtype.type if dtype.isnative else dtype  # as Box keeps it
        return gs.Box(low.astype(dtype, copy=False), high.astype(dtype, copy=False), dtype=exact)
    if kind == "Discrete":
        return gs.Discrete(_typed(told["n"], int), start=_typed(told["start"], int), dtype=dtype.type)
    if kind == "MultiDiscrete":
        nvec, start = _array_from_json(told["nvec"], shape), _array_from_json(told["start"], shape)
        return gs.MultiDiscrete(nvec, dtype=dtype.type, start=start)
    if kind == "MultiBinary":
        space = gs.MultiBinary(told["n"])
        if space.shape != shape or space.dtype != dtype:
            raise ValueError(f"a MultiBinary of {told['n']!r} has not shape {shape} and dtype {dtype}")
        return space
    raise ValueError(f"space of type {kind!r} is not known")


def _array_from_json(obj: Json, shape: tuple[int, ...]) -> np.ndarray:
    dtype = np.dtype(_typed(obj["dtype"], str))
    if dtype.kind not in NUMERIC_KINDS:
        raise ValueError(f"dtype {dtype} is not numeric")
    items = np.frombuffer(base64.b64decode(obj["bytes"], validate=True), dtype)
    return np.full(shape, items[0], dtype) if obj["uniform"] else items.reshape(shape)
