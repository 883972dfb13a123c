"""Whether a value fits the array that is to hold it, and text to codes and back. Pure; raises :class:`Mismatch`.

What fits is what loses nothing that the space's dtype can tell: the exact shape; integers into integers when every one
of them is in range; integers and floats of any size into floats; never floats into integers, never objects. (A number
that is too large for its float becomes infinite, and numpy warns of that, as it does for gymnasium.) The same mistakes
raise the same classes as under ``SyncVectorEnv``: ``ValueError`` for a shape, ``TypeError`` for a dtype.
"""

from __future__ import annotations

import reprlib
import sys
from typing import Any

import numpy as np

from .errors import Mismatch

__all__ = ["TextCode", "fit", "shown"]

_SHAPE_REMEDY = "Return values of the space's shape, or correct the space."
_INTEGERS: tuple[type, ...] = (int, np.integer, np.bool_)
_REAL: tuple[type, ...] = (*_INTEGERS, float, np.floating)

_DTYPE_REMEDY = "Convert it on purpose (`.astype`), or correct the space's dtype."


def shown(value: object) -> str:
    """A short text for ``value`` in an error."""
    return f"{type(value).__name__} {reprlib.repr(value)}"


def fit(value: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    """``value`` as an array of just this ``dtype`` and ``shape``; the value itself, where it is one.

    Raises:
        Mismatch: It does not fit.
    """
    try:
        array = np.asarray(value)
    except Exception as error:
        # Ragged lists, and whatever a foreign __array__ raises.
        raise Mismatch(ValueError, f"an array of shape {shape}", f"{shown(value)} ({error})", _SHAPE_REMEDY) from error
    if array.shape != shape:
        got = f"shape {array.shape}" if array.ndim else f"{shown(value)} of shape ()"
        raise Mismatch(ValueError, f"shape {shape}", got, _SHAPE_REMEDY)
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise Mismatch(ValueError, "values without a mask", shown(value), "Fill it on purpose (`.filled`).")
    if array.dtype == dtype:
        return array
    floats = dtype.kind == "f" or array.size == 0
    if array.dtype.kind not in ("fiub" if floats else "iub"):
        exact = _exact(value, _REAL if floats else _INTEGERS)
        if exact is None:
            got = f"dtype {array.dtype}" if array.ndim else shown(value)
            raise Mismatch(TypeError, f"dtype {dtype}", got, _DTYPE_REMEDY)
        array = exact
    if not floats:
        _check_range(array, dtype)
    try:
        return array.astype(dtype)
    except OverflowError as error:  # an integer that no float of Python's own can be
        raise Mismatch(TypeError, f"numbers that fit {dtype}", shown(value), _DTYPE_REMEDY) from error


def _exact(value: Any, classes: tuple[type, ...]) -> np.ndarray | None:
    """``value`` as an array of objects, if it is made of numbers of just these ``classes``; else None.

    numpy has no integer dtype for numbers beyond 64 bits, nor for a list of some that need all 64 and some that don't.
    """
    if isinstance(value, int | list | tuple):
        exact = np.array(value, dtype=object)
        if all(isinstance(item, classes) for item in exact.flat):
            return exact
    return None


def _check_range(array: np.ndarray, dtype: np.dtype[Any]) -> None:
    """Raises Mismatch unless every integer of ``array`` is one of ``dtype``."""
    if array.size == 0 or np.can_cast(array.dtype, dtype):
        return
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    least, most = int(array.min()), int(array.max())
    if least < low or most > high:
        wrong = least if least < low else most
        raise Mismatch(TypeError, f"integers that fit {dtype} ({low} to {high})", str(wrong), _DTYPE_REMEDY)


class TextCode:
    """Text as the positions of its characters in a character set, ``max_length`` of them, padded behind the end.

    The codes are those of gymnasium's flattened ``Text``: int32, and one past the last position where no character is.

    Args:
        characters: The set, in order.
        max_length: The most characters that a text may have.
    """

    def __init__(self, characters: str, max_length: int) -> None:
        """Builds the tables of both directions."""
        self.characters, self.max_length = characters, max_length
        self.nothing = len(characters)
        self._positions = {character: position for position, character in enumerate(characters)}
        # numpy's text ends where only NULs follow. So NUL stands for "no character here", and where NUL is a character
        # of the set, a code point that is in no text of this set stands for it.
        self._nul = None
        if "\0" in self._positions:
            self._nul = next(chr(point) for point in range(sys.maxunicode, 0, -1) if chr(point) not in self._positions)
        shown_as = characters.replace("\0", self._nul) if self._nul else characters
        self._points = np.array([*map(ord, shown_as), 0], np.uint32)

    def encode(self, value: Any) -> np.ndarray:
        """The codes of ``value``, shape ``(max_length,)``.

        Raises:
            Mismatch: It is no text, too long, or has a character that is not in the set.
        """
        if not isinstance(value, str):
            raise Mismatch(TypeError, "a str", shown(value), "Return text, or correct the space.")
        if len(value) > self.max_length:
            raise Mismatch(
                ValueError,
                f"a text of at most {self.max_length} characters",
                f"{len(value)} characters {reprlib.repr(value)}",
                "Shorten it, or raise the space's max_length.",
            )
        codes = np.full(self.max_length, self.nothing, np.int32)
        try:
            codes[: len(value)] = [self._positions[character] for character in value]
        except KeyError as error:
            raise Mismatch(
                ValueError,
                f"characters of the set {reprlib.repr(self.characters)}",
                f"{error.args[0]!r} in {reprlib.repr(value)}",
                "Replace it, or add it to the space's charset.",
            ) from None
        return codes

    def decode(self, codes: np.ndarray) -> tuple[str, ...]:
        """The texts that ``codes``, shape ``(n, max_length)``, stand for; codes that no text has are passed over."""
        if self.max_length == 0:
            return ("",) * len(codes)
        # All rows at once, as numpy text. Whatever else stands there, negative codes included (a row that nobody wrote,
        # see ``plan``), clips to the last entry: no character.
        points = self._points.take(codes.view(np.uint32), mode="clip")
        texts: list[str] = points.view(f"U{self.max_length}").ravel().tolist()
        if "\0" in "".join(texts):  # somebody wrote a gap into the codes themselves
            texts = [text.replace("\0", "") for text in texts]
        if self._nul is not None:
            texts = [text.replace(self._nul, "\0") for text in texts]
        return tuple(texts)
