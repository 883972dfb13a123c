"""``time_limits``: what is a limit, and how much of it is left."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from gymshm.time_limits import deadline_of, left_until, seconds


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (0.25, 0.25),
        (3, 3.0),
        (np.float32(0.5), 0.5),
        (np.int64(7), 7.0),
        (1e6, 1e6),
        (math.inf, None),
        (np.float32("inf"), None),
        (1e7, None),  # more milliseconds than poll() takes
        (1e30, None),
        (10**400, None),  # no float is as large
    ],
)
def test_a_time_limit_is_a_float_or_none_where_it_is_longer_than_anybody_waits(value, expected):
    limit = seconds(value, "timeout")
    assert limit == expected
    assert type(limit) in (float, type(None))


@pytest.mark.parametrize("value", [0, -1, -1e-9, -math.inf, math.nan, np.float64("nan")])
def test_a_time_limit_that_is_too_small_or_no_number_is_refused(value):
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the whole text is checked
        seconds(value, "step_timeout")
    assert str(caught.value) == f"Expected step_timeout above 0 seconds, or None, got {value!r}."


@pytest.mark.parametrize("value", [0, -1, -1e-9, -math.inf, -(10**400)])
def test_who_may_look_without_waiting_may_be_late(value):
    assert seconds(value, "timeout", zero=True) == 0.0


def test_nan_is_no_time_limit_there_either():
    with pytest.raises(ValueError, match=r"^Expected timeout to be a number of seconds, or None, got nan\.$"):
        seconds(math.nan, "timeout", zero=True)


@pytest.mark.parametrize("value", [True, False, np.True_, "3", 1j, [1.0]])
def test_what_is_no_number_of_seconds_is_refused(value):
    with pytest.raises(TypeError) as caught:
        seconds(value, "timeout", zero=True)
    assert str(caught.value) == f"Expected timeout to be a number of seconds, or None, got {value!r}."


def test_what_is_left_of_a_limit_is_never_below_0():
    assert 0 < left_until(deadline_of(3600.0)) <= 3600
    assert left_until(time.monotonic() - 1) == left_until(deadline_of(0.0)) == 0
    assert left_until(deadline_of(None)) is None
