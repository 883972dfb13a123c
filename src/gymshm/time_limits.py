"""Time limits, as callers give them and as waits keep them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

__all__ = ["deadline_of", "left_until", "seconds"]

#: Seconds, 23 days, from which on a time limit is none: poll() takes little more, for it counts milliseconds in an int.
_ANY_TIME_SECONDS = 2e6


def seconds(value: Any, name: str, *, zero: bool = False) -> float | None:
    """A time limit, an argument called ``name``, as what the system takes; None for no limit.

    Args:
        value: What was given: seconds, or None. Infinity, and more than the system can wait, are no limit.
        name: What the argument is called.
        zero: Whether 0 is allowed. What is negative counts as 0 then, as in gymnasium: a caller that passes the time
            that is left may be late.

    Raises:
        ValueError: It is too small, or no number at all (NaN).
        TypeError: It is neither a real number nor None.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"Expected {name} to be a number of seconds, or None, got {value!r}.")
    if value != value or (value <= 0 and not zero):  # NaN equals nothing; isnan() takes no large integer
        bound = "to be a number of seconds" if zero else "above 0 seconds"
        raise ValueError(f"Expected {name} {bound}, or None, got {value!r}.")
    return None if value >= _ANY_TIME_SECONDS else float(max(0, value))


def deadline_of(timeout: float | None) -> float | None:
    """When ``timeout`` seconds from now are over; None for never."""
    return None if timeout is None else time.monotonic() + timeout


def left_until(deadline: float | None) -> float | None:
    """Seconds until then, or 0 where it is past; None for no limit."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())
