"""How commands speak: sizes, progress, arguments, and the error that becomes one line on stderr."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable
from typing import TypeVar

__all__ = [
    "CommandError",
    "UsageError",
    "parsed",
    "positive",
    "progress_bar",
    "seconds",
    "show_progress",
    "size_text",
]

#: Characters of the progress bar.
_WIDTH = 30

_Value = TypeVar("_Value")


class CommandError(Exception):
    """A command can't do what it was asked; its text is shown as one line."""


class UsageError(CommandError):
    """Arguments that do not go together: the command line is wrong."""


def size_text(nbytes: int) -> str:
    """A size in bytes for people: ``1.5 MiB``."""
    size = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def progress_bar(done: int, total: int) -> str:
    """How much of ``total`` is done: ``[######------]  50 %``."""
    return f"[{('#' * (_WIDTH * done // total)).ljust(_WIDTH, '-')}] {100 * done // total:3} %"


def show_progress(line: str, end: str = "") -> None:
    """Shows ``line`` in place of the one before, on stderr, where somebody sees it."""
    if sys.stderr.isatty():
        print(f"\x1b[2K\r{line}", end=end, file=sys.stderr, flush=True)


def positive(text: str) -> int:
    """An argument that is a positive integer."""
    return parsed(text, int, lambda number: number > 0, "a positive integer")


def seconds(text: str) -> float:
    """An argument that is a time above 0."""
    return parsed(text, float, lambda number: 0 < number < float("inf"), "a number of seconds above 0")


def parsed(text: str, convert: Callable[[str], _Value], fits: Callable[[_Value], bool], expected: str) -> _Value:
    """An argument of the command line, converted.

    Args:
        text: The argument.
        convert: Makes the value of it, or raises ValueError.
        fits: Whether the value is one that is wanted.
        expected: What is wanted, in words.

    Raises:
        argparse.ArgumentTypeError: It is not what is expected.
    """
    with contextlib.suppress(ValueError):
        value = convert(text)
        if fits(value):
            return value
    raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
