"""The argument order of gym 0.18 to 0.21: a thin face over the functions of the contract, for callers of that age.

``Dict`` comes back as ``OrderedDict``, as it did. Import from here what used to come from ``gym.vector.utils``.
"""

from __future__ import annotations

import multiprocessing
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from gymnasium import spaces as gs

from . import create, dispatch, read, write
from .errors import CustomSpaceError
from .views import Memory

__all__ = ["CustomSpaceError", "create_shared_memory", "iterate", "read_from_shared_memory", "write_to_shared_memory"]


def create_shared_memory(space: gs.Space[Any], n: int = 1, ctx: Any = multiprocessing) -> Memory:
    """As :func:`gymshm.create_shared_memory`, with its errors; a ``Dict`` becomes an ``OrderedDict``."""
    return _ordered(create.create_shared_memory(space, n, ctx))


def read_from_shared_memory(shared_memory: Memory, space: gs.Space[Any], n: int = 1) -> Any:
    """As :func:`gymshm.read_from_shared_memory`, with its errors; memory first, and ``OrderedDict`` for ``Dict``."""
    return _ordered(read.read_from_shared_memory(space, shared_memory, n))


def write_to_shared_memory(index: int, value: Any, shared_memory: Memory, space: gs.Space[Any]) -> None:
    """As :func:`gymshm.write_to_shared_memory`, with its errors; index and value first, space last."""
    write.write_to_shared_memory(space, index, value, shared_memory)


def iterate(space: gs.Space[Any], items: Any) -> Iterator[Any]:
    """As :func:`gymshm.iterate`, with its errors; an ``OrderedDict`` for each environment of a ``Dict``."""
    return map(_ordered, dispatch.iterate(space, items))


def _ordered(tree: Any) -> Any:
    """``tree`` with an ``OrderedDict`` for each ``dict``; a handler's own kinds of mapping stay what they are."""
    if type(tree) is dict:
        return OrderedDict((key, _ordered(child)) for key, child in tree.items())
    if type(tree) is tuple:
        return tuple(_ordered(child) for child in tree)
    return tree
