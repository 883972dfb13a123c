"""Which code handles which space. This module alone knows gymnasium's registries.

Order of lookup for a space's type (said once, here)
----------------------------------------------------
1. a handler registered on *our* function (``write_to_shared_memory.register(MySpace)``), most specific class first;
2. a third party's handler on *gymnasium's* function of the same name;
3. a ``describe`` rule: a built-in space stands for it, and it is packed into the segment. Built-in spaces and their
   subclasses stand for themselves;
4. ``CustomSpaceError``.

As in gymnasium, a handler for ``Space`` is for custom spaces: for a ``Box``, the most specific class is ``Box``.

A nested space that has only handlers (1, 2) becomes an entry of its own in the tree, made by its handler; everything
else of the tree stands in one segment.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload
from weakref import ref

import gymnasium.vector.utils as gymnasium_utils
from gymnasium import spaces as gs
from gymnasium.error import CustomSpaceError

from .spaces import BUILT_IN, describe

__all__ = ["Function", "Handler", "Registering", "iterate", "refresh", "registering"]

#: The module of gymnasium's own handlers: tells them from a third party's.
_GYMNASIUM_HOME = "gymnasium.vector.utils.shared_memory"

#: How many subclasses a function remembers at most: programs may make new ones all the time.
_MOST_SUBCLASSES = 1024

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result", covariant=True)
_Registered = TypeVar("_Registered", bound=Callable[..., Any])


class Handler(Protocol):
    """Code for spaces of one type: its arguments are those of the function that it is registered on."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Does the function's work."""


class Registering(Protocol[_Arguments, _Result]):
    """What type checkers see of a function of the contract: a function, with what ``functools.singledispatch`` has."""

    registry: Mapping[type, Handler]

    def __call__(self, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        """Does the function's work."""

    @overload
    def register(self, cls: type, func: None = None) -> Callable[[_Registered], _Registered]: ...
    @overload
    def register(self, cls: type, func: _Registered) -> _Registered: ...
    @overload
    def register(self, cls: _Registered) -> _Registered: ...
    def register(self, cls: Any, func: Any = None) -> Any:
        """Registers a handler for the type ``cls``, or for that of its first argument; usable as a decorator."""

    def dispatch(self, cls: type) -> Handler:
        """The handler for the type ``cls``."""


def registering(function: Callable[_Arguments, _Result]) -> Registering[_Arguments, _Result]:
    """Says to type checkers what :meth:`Function.publish` gives to ``function``, which is returned as it is."""
    return cast("Registering[_Arguments, _Result]", function)


class Function:
    """One function of the contract: its handlers, and how the one for a type is found.

    Args:
        name: The function's name.
        text: How the error for a custom space begins.
        built_in: Our code for the built-in spaces.

    Attributes:
        plain: Our code for the built-in types that nobody overrode: those need no search. Changed in place.
    """

    def __init__(self, name: str, text: str, built_in: Mapping[type, Handler]) -> None:
        """Captures gymnasium's function of the same name, whatever may be put in its place later."""
        self.name, self._text, self._built_in = name, text, dict(built_in)
        self._theirs = getattr(gymnasium_utils, name)
        self._ours = functools.singledispatch(_nobody)
        for space, handler in self._built_in.items():
            self._ours.register(space, handler)
        self.plain: dict[type, Handler] = dict(self._built_in)
        self._seen: list[Any] = []
        self._subclasses: dict[ref[type], Handler] = {}
        self._registered = 0
        self.refresh()
        _functions.append(self)

    def publish(self, function: Any) -> None:
        """Gives ``function`` what ``functools.singledispatch`` has; that one itself refuses all-keyword calls."""
        function.register, function.dispatch, function.registry = self.register, self.dispatch, self._ours.registry

    def register(self, cls: Any, func: Handler | None = None) -> Any:
        """Registers a handler for ``cls``, as ``functools.singledispatch`` does; usable as a decorator."""
        if func is None:
            registered = self._ours.register(cls)
            if registered is not cls:
                return lambda func: self.register(cls, func)
        else:
            registered = self._ours.register(cls, func)
        self._subclasses.clear()
        self.refresh()
        return registered

    def refresh(self) -> bool:
        """Takes out of ``plain`` what somebody overrode; whether that was anything new."""
        registered = [*map(self._ours.registry.get, self._built_in), *map(self._theirs.registry.get, self._built_in)]
        if registered == self._seen:
            return False
        self._seen = registered
        self._subclasses.clear()
        overridden = [space for space in self.plain if self.custom(space) is not None]
        for space in overridden:
            del self.plain[space]
        return bool(overridden)

    def custom(self, cls: type) -> Handler | None:
        """The handler that somebody registered for ``cls`` (1, 2), or None."""
        ours: Handler = self._ours.dispatch(cls)
        if ours is not _nobody and ours not in self._built_in.values():
            return ours
        theirs: Handler = self._theirs.dispatch(cls)
        # Not __module__, which functools.wraps copies.
        return None if getattr(theirs, "__globals__", {}).get("__name__") == _GYMNASIUM_HOME else theirs

    def dispatch(self, cls: type) -> Handler:
        """The handler for ``cls``; for a built-in space or a subclass of one that nobody overrode, our own code."""
        return self.custom(cls) or self._ours.dispatch(cls)

    def of_subclass(self, cls: type) -> Handler | None:
        """What :meth:`remember` gave for ``cls``; None where it never did, or something was registered since."""
        # Other people's functions do not tell when that happens.
        registered = len(self._theirs.registry) + len(describe.registry)
        if registered != self._registered:
            self._registered = registered
            self._subclasses.clear()
        return self._subclasses.get(ref(cls))

    def remember(self, cls: type) -> Handler:
        """Our code for ``cls``, a subclass of a built-in space for which there is no handler and no rule.

        It is remembered: to find that out takes ten times as long as to read or write a small value.
        """
        handler: Handler = self._ours.dispatch(cls)
        if len(self._subclasses) == _MOST_SUBCLASSES:
            self._subclasses.clear()
        self._subclasses[ref(cls)] = handler
        return handler

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


_functions: list[Function] = []


def refresh() -> bool:
    """Looks for handlers that a third party put in the place of gymnasium's own; whether there are new ones."""
    return any([function.refresh() for function in _functions])


def _nobody(*args: Any) -> Any:
    """What ``singledispatch`` gives for a type without a handler."""
    raise AssertionError("never called")


# --- iterate ----------------------------------------------------------------------------------------------------------

#: Captured, for ours may be put in its place later.
_gymnasium_iterate = gymnasium_utils.iterate


def iterate(space: gs.Space[Any], items: Any) -> Iterator[Any]:
    """Iterates over a batch: one item per environment.

    Args:
        space: The batched space, as ``batch_space`` gives it.
        items: A batch of it.

    Raises:
        CustomSpaceError: ``space`` is a custom space, and nobody registered it on gymnasium's ``iterate``, nor a
            ``describe`` rule for it.
        TypeError: ``space`` is no space, or ``items`` can't be iterated over.
        KeyError: A key of a ``Dict`` is missing.
        ValueError: The parts of a ``Dict`` or ``Tuple`` have different lengths.
    """
    if isinstance(space, gs.Dict):
        parts = {key: iterate(child, items[key]) for key, child in space.spaces.items()}
        return (dict(zip(parts, row, strict=True)) for row in zip(*parts.values(), strict=True))
    if isinstance(space, gs.Tuple):
        if all(_iterable(child) for child in space.spaces):
            return zip(*(iterate(child, part) for child, part in zip(space.spaces, items, strict=True)), strict=True)
        return iter(items)
    try:
        return _gymnasium_iterate(space, items)
    except CustomSpaceError as error:
        if not isinstance(space, (*BUILT_IN, gs.Sequence, gs.Graph)):
            with contextlib.suppress(CustomSpaceError):
                return iterate(describe(space), items)
        raise CustomSpaceError(
            f"Unable to iterate over {items}, since {space} is a custom `gym.Space` instance (i.e. not one of `Box`, "
            f"`Dict`, etc...). {error}"
        ) from None


def _iterable(space: gs.Space[Any]) -> bool:
    """Whether a batch of ``space`` can be taken apart. Of text it can't: its batch is a ``Tuple`` of texts."""
    return _gymnasium_iterate.dispatch(type(space)) is not _gymnasium_iterate.dispatch(object)
