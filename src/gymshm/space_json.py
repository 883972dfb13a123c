"""Description <-> JSON, and back to a space.

Rules of this file:

1. JSON only, never pickle: reading a description runs no code that came with it.
2. :func:`from_json` trusts nothing. What does not fit raises an ordinary exception (``KeyError``, ``TypeError``,
   ``ValueError``, ``RecursionError``), which ``header`` turns into the one error that callers see.
"""

from __future__ import annotations

import base64
import functools
import math
import operator
import re
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces as gs

from .compat import discrete
from .spaces import NUMERIC_KINDS, Array, Branch, Coded, Description, Foreign, Json, Union

__all__ = ["OpaqueKey", "from_json", "key_text", "rebuild", "rebuild_leaf", "to_json"]

#: Bytes of the largest value of a leaf whose bounds are looked at: they are arrays of its shape.
_LARGEST = 1 << 24

_NUMERIC = re.compile(rf"[<>|][{NUMERIC_KINDS}][0-9]{{1,2}}").fullmatch


@dataclass(frozen=True)
class OpaqueKey:
    """Stands for a ``Dict`` key that JSON can't tell (an enum member, say), for a process that has only the segment."""

    text: str
    position: int

    def __repr__(self) -> str:
        """What the key looked like."""
        return self.text


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
        shape = tuple(_size(length) for length in obj["shape"])
        return Array(_dtype_from_json(obj["dtype"]), shape, _typed(obj["space"], dict))
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


@functools.lru_cache(maxsize=64)
def _dtype_from_json(obj: Json) -> np.dtype[Any]:
    """The dtype whose ``str`` this is. numpy itself would take much more for one, records and objects among it."""
    if not _NUMERIC(_typed(obj, str)):
        raise ValueError(f"dtype {obj!r} is not numeric")
    return np.dtype(obj)


def key_text(key: Hashable) -> str:
    """``key`` as Python code: the same for the creator and for a process that has only the segment."""
    return repr(key if type(key) in (str, int) else _key_from_json(_key_to_json(key), 0))


def _plain(key: Hashable) -> Hashable:
    """The str, float or int that ``key`` is equal to, for it may be an enum member or a numpy scalar; or ``key``."""
    plain: Hashable
    if isinstance(key, str):
        plain = str.__str__(key)
    elif isinstance(key, float):
        plain = float.__float__(key)
    elif isinstance(key, int | np.integer) and not isinstance(key, bool):
        plain = operator.index(key)
    else:
        return key
    return plain if plain == key and hash(plain) == hash(key) else key


def _key_to_json(key: Hashable) -> Json:
    """``[type, value]``, so that ``1``, ``"1"``, ``1.0`` and ``True`` stay apart."""
    if type(key) is not str:
        key = _plain(key)
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


def rebuild(description: Description) -> gs.Space[Any]:
    """The space that ``description`` describes; an empty ``Tuple`` for a part that lives elsewhere.

    Allocates arrays of each shape, for the bounds: see first that they are of a reasonable size.

    Raises:
        Exception: The parameters fit no space.
    """
    if isinstance(description, Foreign):
        return gs.Tuple(())
    if isinstance(description, Array):
        return _rebuild_array(description)
    if isinstance(description, Coded):
        # As a string: a set would be sorted, and the order is what the stored positions refer to.
        return gs.Text(description.max_length, min_length=description.min_length, charset=description.characters)
    children = [rebuild(child) for child in description.children]
    if isinstance(description, Union):
        return gs.OneOf(children)
    if description.keys is None:
        return gs.Tuple(children)
    # Pairs, not a mapping: Dict would sort a mapping's keys.
    return gs.Dict(list(zip(description.keys, children, strict=True)))  # type: ignore[arg-type]


def rebuild_leaf(description: Array) -> gs.Space[Any] | None:
    """The space of a leaf that somebody else described, for those who show it.

    None where its parameters fit no space, or its bounds would be arrays of more than :data:`_LARGEST` bytes.
    """
    if math.prod(description.shape) * description.dtype.itemsize > _LARGEST:
        return None
    try:
        return _rebuild_array(description)
    except Exception:  # whatever gymnasium's constructors say of parameters that somebody forged
        return None


def _rebuild_array(description: Array) -> gs.Space[Any]:
    dtype: Any = description.dtype
    shape, told = description.shape, description.space
    kind = told["type"]
    if kind == "Box":
        low, high = (_array_from_json(told[name], dtype, shape) for name in ("low", "high"))
        return gs.Box(low, high, dtype=dtype)
    if kind == "Discrete":
        return discrete(_typed(told["n"], int), _typed(told["start"], int), dtype)
    if kind == "MultiDiscrete":
        nvec, start = (_array_from_json(told[name], dtype, shape) for name in ("nvec", "start"))
        return gs.MultiDiscrete(nvec, dtype=dtype, start=start)
    if kind == "MultiBinary":
        space = gs.MultiBinary(told["n"])
        if space.shape != shape or space.dtype != dtype:
            raise ValueError(f"a MultiBinary of {told['n']!r} has not shape {shape} and dtype {dtype}")
        return space
    raise ValueError(f"space of type {kind!r} is not known")


def _array_from_json(obj: Json, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    items = np.frombuffer(base64.b64decode(obj["bytes"], validate=True), dtype)
    return np.full(shape, items[0], dtype) if obj["uniform"] else items.reshape(shape)
