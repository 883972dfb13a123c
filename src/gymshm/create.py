"""``create_shared_memory``: the tree of a space in one segment; handlers of custom spaces allocate their own parts."""

from __future__ import annotations

import multiprocessing
import operator
from typing import Any

import numpy as np
from gymnasium import spaces as gs

from .dispatch import Function, refresh, registering
from .plan import Field
from .segment import VERSIONS
from .segment import create as create_segment
from .spaces import BUILT_IN, Description, outline
from .views import Memory, assemble

__all__ = ["can_be_packed", "create_shared_memory"]

_VERSION = gs.Box(0, np.iinfo(np.int64).max, (), np.int64)


@registering
def create_shared_memory(
    space: gs.Space[Any], n: int = 1, ctx: Any = multiprocessing, *, name: str | None = None, snapshots: bool = False
) -> Memory:
    """Allocates room for one value of ``space`` per environment, in memory that other processes can share.

    Everything stands in one named segment (:func:`segment_of` gives it), which lives until its creator drops the last
    handle and array of it, or ends. Its memory is zero; a ``Text`` that nobody wrote reads as ``""``.

    Args:
        space: The space of one environment's value.
        n: Number of environments, from 0 up.
        ctx: A multiprocessing module or context; handed to custom handlers. The segment itself works under all.
        name: The segment's name, or None for a new one.
        snapshots: Whether onlookers can have consistent rows (``Attachment.snapshot``). Every write then tells that it
            is under way, which takes it about 0.1 µs.

    Returns:
        A ``dict`` for ``Dict``, a ``tuple`` for ``Tuple``, a leaf handle for the base spaces, nested alike.

    Raises:
        CustomSpaceError: ``space``, or a part of it, is a custom space that nobody registered.
        TypeError: It is no space, or has no fixed size (``Sequence``, ``Graph``); or ``n`` is no integer.
        ValueError: ``n`` is negative, or ``name`` can't be a name.
        SegmentExistsError: ``name`` is in use.
        OSError: There is no room for it.
    """
    try:
        n = operator.index(n)
    except TypeError:
        raise TypeError(f"Expected n, a number of environments, to be an integer, got {n!r}.") from None
    if n < 0:
        raise ValueError(f"Expected a number of environments from 0 up, got n={n}.")
    refresh()
    description, foreign = _outline(space)
    parts = iter(foreign)

    def make_foreign() -> Memory:
        part = next(parts)
        handler = _create.custom(type(part))
        assert handler is not None
        return handler(part, n=n, ctx=ctx)

    fields = [Field("values", (n,), description)]
    if snapshots:
        fields.append(Field(VERSIONS, (n,), outline(_VERSION)))
    return assemble(create_segment(fields, n, name), foreign=make_foreign)


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
        if type(part) in _create.plain:
            return False
        if _create.custom(type(part)) is None:
            _create.stand_in(part)
            return False
        foreign.append(part)
        return True

    return outline(space, is_foreign), foreign


_create = Function(
    "create_shared_memory", "Cannot create a shared memory", dict.fromkeys(BUILT_IN, create_shared_memory)
)
_create.publish(create_shared_memory)
