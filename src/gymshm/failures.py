"""Exceptions on their way from an environment to the caller: pickled where that works, told where it does not. Pure."""

from __future__ import annotations

import contextlib
import pickle
import traceback
from dataclasses import dataclass

import cloudpickle  # gymnasium requires it, and pickles env_fns by it: so it is no requirement of our own

__all__ = ["Failure", "WorkerTraceback", "capture", "keep", "rebuild"]


@dataclass(frozen=True)
class Failure:
    """What went wrong in one environment.

    Attributes:
        env: Its index.
        pickled: The exception; None where it can't be pickled, or not be rebuilt.
        text: The exception's repr.
        trace: The worker's traceback.
        raised: The exception itself, for a caller in the same process.
    """

    env: int
    pickled: bytes | None
    text: str
    trace: str
    raised: BaseException | None = None


class WorkerTraceback(Exception):
    """The cause of an exception that was raised in a worker: shows the traceback from there."""

    def __init__(self, trace: str) -> None:
        """Keeps the text."""
        super().__init__(trace)

    def __str__(self) -> str:
        """The traceback, set off as the standard library's process pools do."""
        return f'\n"""\n{self.args[0]}"""'


def capture(env: int, error: BaseException) -> Failure:
    """``error``, raised by environment ``env``, as what can travel."""
    return Failure(env, _pickled(error), *_in_words(error))


def keep(env: int, error: BaseException) -> Failure:
    """The same for a caller in this process, who gets the very exception: a debugger stops where it was raised."""
    return Failure(env, None, *_in_words(error), error)


def _in_words(error: BaseException) -> tuple[str, str]:
    try:
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except Exception:
        trace = f"{type(error).__name__}, of which no traceback can be made\n"
    try:
        text = repr(error)
    except Exception:
        text = f"<{type(error).__name__} whose repr fails>"
    return text, trace


def _pickled(error: BaseException) -> bytes | None:
    # By the name of its class first: that is the class which the caller's `except` has. cloudpickle where the class has
    # none that the other side knows. And back: many exceptions pickle well and fail to unpickle.
    for dumps in (pickle.dumps, cloudpickle.dumps):
        with contextlib.suppress(Exception):
            pickled: bytes = dumps(error, 5)  # those protocols before lose the byte order of arrays that it carries
            if isinstance(pickle.loads(pickled), type(error)):
                return pickled
    return None


def rebuild(failures: list[Failure]) -> BaseException:
    """The exception to raise for ``failures``: the last of them, with every worker's traceback as its cause.

    One that was raised in this process is given itself, and keeps a cause of its own.
    """
    last = failures[-1]
    error = last.raised
    if error is not None and error.__cause__ is not None:
        return error
    if last.pickled is not None:
        try:
            error = pickle.loads(last.pickled)
        except Exception:
            error = None  # its class is not to be had in this process
    if not isinstance(error, BaseException):
        error = RuntimeError(
            f"Environment {last.env} raised {last.text}, which can't be rebuilt in this process.\n{last.trace}"
        )
    traces = [f"Environment {failure.env}:\n{failure.trace}" for failure in failures]
    # Not by the exception's own way to set attributes: it may refuse, as a frozen dataclass does.
    BaseException.__setattr__(error, "__cause__", WorkerTraceback("\n".join(traces)))
    return error
