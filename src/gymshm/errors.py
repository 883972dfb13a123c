"""Exception types, and the one way a rejected value is reported.

Rules of this file:

1. It imports nothing of the package: everybody may import it.
2. Errors about a *value* are plain ``ValueError``, ``TypeError`` and ``IndexError``, the very classes that
   ``SyncVectorEnv`` raises for the same mistake, so that swapping backends changes no ``except`` clause. They carry
   what they say as attributes: ``path``, ``index``, ``expected``, ``got``.
3. Errors about a *segment* derive from :class:`SegmentError` and from the built-in class that fits.
"""

from __future__ import annotations

import errno
import multiprocessing
from typing import Any

from gymnasium.error import CustomSpaceError

__all__ = [
    "CustomSpaceError",
    "FallbackWarning",
    "Mismatch",
    "MissingKeyError",
    "SegmentError",
    "SegmentExistsError",
    "SegmentFormatError",
    "SegmentNotFoundError",
    "TimedOutError",
    "WorkerDiedError",
]


class SegmentError(Exception):
    """Something is wrong with a named segment; ``name`` says which."""

    def __init__(self, name: str, message: str) -> None:
        """Keeps the segment's ``name`` beside the ``message``."""
        super().__init__(message)
        self.name = self.filename = name

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles as (name, message), which ``OSError`` alone would not."""
        return type(self), (self.name, self.args[0])

    def __str__(self) -> str:
        """The message alone, also where ``OSError`` would prefix an errno."""
        return str(self.args[0])


class SegmentNotFoundError(SegmentError, FileNotFoundError):
    """No segment of that name exists."""

    errno = errno.ENOENT


class SegmentExistsError(SegmentError, FileExistsError):
    """The name asked for is in use."""

    errno = errno.EEXIST


class SegmentFormatError(SegmentError, ValueError):
    """The segment is not ours, of another version, truncated, or its header is broken."""


class MissingKeyError(KeyError):
    """A ``Dict`` value lacks a key; a ``KeyError`` whose text is not quoted once more."""

    def __str__(self) -> str:
        """The message alone."""
        return str(self.args[0])


class TimedOutError(multiprocessing.TimeoutError, TimeoutError):
    """The time that the caller gave is over: gymnasium's class for that, and Python's, which is no base of it."""


class FallbackWarning(RuntimeWarning):
    """``/dev/shm`` had no room, so the segment is a file in the temporary directory."""


class WorkerDiedError(RuntimeError):
    """A worker process of a vector environment is gone.

    Attributes:
        worker: Number of the worker.
        envs: The environments it ran, as ``range(start, stop)``.
        exitcode: The process's exit code; negative is the signal that ended it, None when it is not known.
        during: What was asked of it, as in ``"step"``.
    """

    def __init__(self, message: str, worker: int, envs: range, exitcode: int | None, during: str) -> None:
        """Keeps the facts beside the ``message``."""
        super().__init__(message)
        self.worker, self.envs, self.exitcode, self.during = worker, envs, exitcode, during

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles with all of its facts."""
        return type(self), (self.args[0], self.worker, self.envs, self.exitcode, self.during)


class Mismatch(Exception):
    """A value that its leaf can't hold, on its way up the tree; never leaves the package.

    Whoever catches it on the way up adds the step it took (:meth:`below`); the entry point turns it into the error
    that the caller sees (:meth:`as_error`).
    """

    def __init__(self, cls: type[Exception], expected: str, got: str, remedy: str = "") -> None:
        """A mismatch to be raised as ``cls``: ``expected``, ``got``, and what to do about it."""
        super().__init__(expected, got)
        self.cls, self.expected, self.got, self.remedy = cls, expected, got, remedy
        self.path = ""

    def below(self, key: object) -> None:
        """Makes it the same mismatch, seen from the container that holds it under ``key``."""
        self.path = f"[{key!r}]{self.path}"

    def as_error(self, index: int | None, root: str = "value") -> Exception:
        """The error to raise: class, text, and ``path``, ``index``, ``expected``, ``got`` as attributes."""
        where = f"{root}{self.path}" + ("" if index is None else f", index {index}")
        text = f"Expected {self.expected}, got {self.got} - at {where}."
        error = self.cls(f"{text} {self.remedy}" if self.remedy else text)
        error.__dict__.update(path=f"{root}{self.path}", index=index, expected=self.expected, got=self.got)
        return error
