"""``env_fns``: what is no sequence of functions, and what is no environment, is told of in words that lead on."""

from __future__ import annotations

import contextlib
import re

import numpy as np
import pytest
from gymnasium import spaces as gs
from gymnasium.vector import SyncVectorEnv

from environments import Clock, zeros
from gymshm import ShmVectorEnv

EXPECTED = "Expected env_fns to be a sequence of functions that return an environment each, got "
WORKERS = pytest.mark.parametrize("num_workers", [0, 1, "auto"])


@WORKERS
@pytest.mark.parametrize(
    ("env_fns", "got"),
    [
        (
            "CartPole-v1",
            "'CartPole-v1'. For an environment's id there is `gymshm.make_vec('CartPole-v1', num_envs=...)",
        ),
        (Clock, "type <class 'environments.Clock'>. Put it into a list: `[env_fn] * n`."),
        (lambda: Clock(), "function <function "),
        (4, "int 4."),
        (None, "NoneType None."),
        (Clock(), "Clock <"),
        ([Clock, "Clock"], "str 'Clock' - at env_fns[1]."),
        ([Clock, None], "NoneType None - at env_fns[1]."),
        ({"Clock": Clock}, "str 'Clock' - at env_fns[0]."),
    ],
    ids=range(9),
)
def test_what_is_no_sequence_of_functions_is_refused_with_what_to_give(env_fns, got, num_workers):
    with pytest.raises(TypeError, match="^" + re.escape(EXPECTED + got)):
        ShmVectorEnv(env_fns, context="fork", num_workers=num_workers)
    with pytest.raises(TypeError):
        SyncVectorEnv(env_fns)


def test_environments_in_place_of_functions_are_told_apart():
    with pytest.raises(TypeError, match=r"- at env_fns\[0\]\. Give the function that makes it, as in `lambda: gym"):
        ShmVectorEnv([Clock()] * 2, context="fork")


@pytest.mark.parametrize("make", [iter, tuple, lambda fns: np.array(fns, object), lambda fns: dict.fromkeys(fns)])
def test_whatever_gives_functions_will_do(make):
    fns = [lambda t=t: Clock(reward=lambda _: t) for t in (3.0, 4.0)]
    with contextlib.closing(ShmVectorEnv(make(fns), context="fork", num_workers=1)) as envs:
        envs.reset()
        assert envs.step(zeros(2))[1].tolist() == [3.0, 4.0]


class Blank(Clock):
    """Forgets its spaces."""

    def __init__(self):
        pass


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(
    ("function", "told"),
    [
        (
            lambda: None,
            "got None, which has no attribute 'observation_space'. Does the function end with `return env`?",
        ),
        (lambda: "Clock", "got str 'Clock', which has no attribute 'observation_space'. It has to return the "),
        (lambda: Clock, "It has to return the environment itself."),
        (Blank, "which has no attribute 'observation_space'. Has its `__init__` set it?"),
    ],
    ids=["None", "str", "class", "blank"],
)
def test_a_function_that_returns_no_environment_is_named(function, told, num_workers):
    with pytest.raises(AttributeError, match=r"^Expected env_fns\[1\]\(\) to return a gymnasium\.Env, got ") as caught:
        ShmVectorEnv([Clock, function], context="fork", num_workers=num_workers)
    assert told in str(caught.value)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of its own end, in gymnasium 1.0
@pytest.mark.parametrize("function", [lambda: None, lambda: "Clock", lambda: Clock, Blank])
def test_the_class_of_that_error_is_that_of_sync_vector_env(function):
    with pytest.raises(AttributeError):
        SyncVectorEnv([Clock, function])


def test_those_before_it_are_closed(tmp_path):
    def close(env):
        (tmp_path / "closed").touch()

    with pytest.raises(AttributeError):
        ShmVectorEnv([lambda: Clock(act_in_close=close), lambda: None], context="fork", num_workers=1)
    assert (tmp_path / "closed").exists()


class Duck:
    """An environment that is no ``gymnasium.Env``."""

    observation_space, action_space, metadata, render_mode = gs.Discrete(9), gs.Discrete(2), {}, None

    def reset(self, *, seed=None, options=None):
        return 5, {}

    def step(self, action):
        return 6, 1.0, False, False, {}

    def close(self):
        pass


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_environment_is_known_by_what_it_has(num_workers):
    with contextlib.closing(ShmVectorEnv([Duck] * 2, context="fork", num_workers=num_workers)) as envs:
        assert envs.reset()[0].tolist() == [5, 5]
        assert envs.step(zeros(2))[0].tolist() == [6, 6]
