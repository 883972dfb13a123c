"""``returned``: what ``step`` or ``reset`` returned that can't be taken apart is told of, with call and environment."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from environments import Clock, zeros
from gymshm import ShmVectorEnv
from gymshm.returned import worded

WORKERS = pytest.mark.parametrize("num_workers", [0, 2])
FIVE = "Expected (observation, reward, terminated, truncated, info), got "
ROW = np.zeros(2, np.float32)


class Sick(Clock):
    """Returns from ``step`` or ``reset`` what it is told to, once there is a secret."""

    def __init__(self, method: str, result: Any, **options: Any) -> None:
        super().__init__(**options)
        self.method, self.result = method, result

    def step(self, action):
        told = super().step(action)
        return self.result if self.method == "step" and self.secret == "sick" else told

    def reset(self, **given):
        told = super().reset(**given)
        return self.result if self.method == "reset" and self.secret == "sick" else told


@contextlib.contextmanager
def made(method: str, result: Any, num_workers: int, mode: str = "NextStep", **options: Any):
    """A vector environment whose third environment falls sick after the first reset."""
    fns = [lambda: Sick(method, result, **options)] * 3
    envs = ShmVectorEnv(fns, context="fork", num_workers=num_workers, autoreset_mode=mode)
    with contextlib.closing(envs):
        envs.reset()
        envs.set_attr("secret", ["none", "none", "sick"])
        yield envs


@WORKERS
@pytest.mark.parametrize(
    ("result", "error", "got"),
    [
        ((ROW, 1.0, False, {}), ValueError, "4 values - at step(), index 2. An environment of old gym,"),
        ((ROW,), ValueError, "1 value - at step(), index 2."),
        ((ROW, 1.0, False, False, {}, None), ValueError, ("more than 5 values", "6 values")),
        (None, TypeError, "a NoneType - at step(), index 2."),
        (3, TypeError, "a int - at step(), index 2."),
    ],
    ids=["4", "1", "6", "None", "int"],
)
def test_a_step_that_returns_something_else_than_five_values(num_workers, result, error, got):
    if isinstance(got, tuple):  # Python 3.14 knows how many
        got = got[1] if "got 6" in unpacking(result) else got[0]
    with made("step", result, num_workers) as envs:
        with pytest.raises(error, match="^" + re.escape(FIVE + got)):
            envs.step(zeros(3))
        envs.set_attr("secret", "none")
        assert envs.reset()[0].tolist() == [[0, 0]] * 3
    sync = SyncVectorEnv([lambda: Sick("step", result)])
    sync.reset()
    sync.set_attr("secret", "sick")
    with pytest.raises(error):
        sync.step(zeros(1))


def unpacking(result: Any) -> str:
    with pytest.raises((TypeError, ValueError)) as caught:
        _, _, _, _, _ = result
    return str(caught.value)


@WORKERS
@pytest.mark.parametrize(
    ("result", "error", "got"),
    [
        (np.zeros(4, np.float32), ValueError, "ndarray array("),
        (None, TypeError, "NoneType None"),
        ((ROW, {}, 1), ValueError, "tuple (array("),
    ],
    ids=["array", "None", "3"],
)
@pytest.mark.parametrize("mode", ["reset", "SameStep", "NextStep"])
def test_a_reset_that_returns_something_else_than_two_values(num_workers, mode, result, error, got):
    autoreset = "NextStep" if mode == "reset" else mode
    with made("reset", result, num_workers, autoreset, episode=1) as envs:
        text = f"Expected (observation, info), got {got}"
        if mode == "NextStep":
            envs.step(zeros(3))
        call = envs.reset if mode == "reset" else lambda: envs.step(zeros(3))
        with pytest.raises(
            error, match=re.escape(text) + r".* - at reset\(\), index 2\. Return an info, too"
        ) as caught:
            call()
        assert "Environment 2:" in str(caught.value.__cause__)
        envs.set_attr("secret", "none")
        assert envs.reset()[0].tolist() == [[0, 0]] * 3


@WORKERS
@pytest.mark.parametrize("error", [ValueError, TypeError])
def test_what_an_environment_raises_itself_stays_as_it_is(num_workers, error):
    def act(env, action):
        raise error("not enough values to unpack (expected 5, got 4)")

    envs = ShmVectorEnv([lambda: Clock(act=act)], context="fork", num_workers=num_workers)
    with contextlib.closing(envs):
        envs.reset()
        with pytest.raises(error, match=r"^not enough values to unpack \(expected 5, got 4\)$"):
            envs.step(zeros(1))


@WORKERS
def test_a_step_with_a_wrong_signature_stays_a_matter_of_its_signature(num_workers):
    class NoAction(Clock):
        def step(self):
            raise AssertionError("never called")

    envs = ShmVectorEnv([NoAction], context="fork", num_workers=num_workers)
    with contextlib.closing(envs):
        envs.reset()
        with pytest.raises(TypeError, match=r"takes 1 positional argument but 2 were given$"):
            envs.step(zeros(1))


class Odd(Exception):
    """Has attributes of the same names as our errors, and no text."""

    def __init__(self):
        super().__init__()
        self.path, self.index = "value", 2


def test_somebody_elses_error_with_a_path_is_left_alone():
    error = Odd()
    assert worded(error, 2, "step()") is error
    assert (error.args, error.path) == ((), "value")
