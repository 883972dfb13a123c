"""What an environment's ``step`` and ``reset`` return, where it is not what they have to return. Pure.

A step that is right pays for none of this but a number and an info to look at: what else can be wrong is told
afterwards, by what was raised.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from .errors import Mismatch
from .values import shown

__all__ = ["as_number", "as_pair", "checked_info", "worded"]


def as_number(reward: Any) -> float:
    """``reward`` as a float: numbers of any type, and arrays that hold just one.

    Raises:
        Mismatch: It is no number.
    """
    if isinstance(reward, np.ndarray) and reward.size == 1:
        reward = reward.item()
    try:
        return float(reward)
    except (TypeError, ValueError):
        mismatch = Mismatch(TypeError, "a number", shown(reward), "Return a float.")
        mismatch.below("reward")
        raise mismatch from None


def checked_info(info: Any) -> dict[str, Any]:
    """``info``, which is a dict.

    Raises:
        Mismatch: It is not one.
    """
    if not isinstance(info, dict):
        mismatch = Mismatch(TypeError, "a dict", shown(info), "Return {} where there is nothing to tell.")
        mismatch.below("info")
        raise mismatch
    return info


def as_pair(result: Any, index: int) -> tuple[Any, Any]:
    """The observation and the info that ``reset`` of environment ``index`` returned.

    Raises:
        TypeError, ValueError: There are not two of them.
    """
    try:
        observation, info = result
    except (TypeError, ValueError) as error:
        expected, remedy = "(observation, info)", "Return an info, too: {} where there is nothing to tell."
        raise Mismatch(type(error), expected, shown(result), remedy).as_error(index, "reset()") from None
    return observation, info


def worded(error: BaseException, index: int, call: str) -> BaseException:
    """``error``, caught around ``call`` of environment ``index`` and what follows, as what the caller sees.

    Our own complaints say which environment it was, and what in its result; what an environment raises stays as it is.

    Args:
        error: Its traceback begins where it was caught.
        index: Index of the environment.
        call: ``"step()"`` or ``"reset()"``.
    """
    trace = error.__traceback__
    if isinstance(error, ValueError | TypeError) and trace is not None and trace.tb_next is None:
        # Raised by no function that was called: by the unpacking of what the call returned.
        words = re.search(r"unpack (?:non-iterable (?P<kind>\S+) )?.*?(?:got (?P<number>\d+)|$)", str(error))
        if words is not None:
            error = _wrong_step(type(error), words["kind"], words["number"]).with_traceback(trace)
    if isinstance(error, Mismatch):
        return error.as_error(index, call).with_traceback(error.__traceback__)
    try:
        said = error.__dict__
    except Exception:  # an environment's exception, and none of ours
        return error
    path = str(said.get("path"))
    if path.startswith("value") and said.keys() >= {"index", "expected", "got"} and said["index"] == index:
        said["path"] = f"{call}['observation']{path.removeprefix('value')}"
        error.args = (str(error).replace(f" - at {path}, ", f" - at {said['path']}, ", 1),)
    return error


def _wrong_step(cls: type[Exception], kind: str | None, number: str | None) -> Mismatch:
    """For a step that returned so many values, or a ``kind`` of thing that holds none."""
    remedy = ""
    if number == "4":
        remedy = "An environment of old gym, with one `done` for the two, takes a wrapper, such as those of `shimmy`."
    got = f"{number} value{'' if number == '1' else 's'}" if number else f"a {kind}" if kind else "more than 5 values"
    return Mismatch(cls, "(observation, reward, terminated, truncated, info)", got, remedy)
