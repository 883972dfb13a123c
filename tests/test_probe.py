from __future__ import annotations

import multiprocessing
import os
import time
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from gymshm import ShmVectorEnv, vector_env
from gymshm.probe import best_number_of_workers, measure_step


class Costly(gym.Env[Any, Any]):
    """A step takes ``seconds`` at least; who steps it is told by its info."""

    observation_space = gym.spaces.Discrete(2)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return 0, {"pid": os.getpid()}

    def step(self, action: Any) -> Any:
        until = time.perf_counter() + self.seconds
        while time.perf_counter() < until:
            pass
        return 0, 0.0, False, False, {}


def fails() -> Any:
    raise RuntimeError("on purpose")


def ends() -> Any:
    os._exit(3)


@pytest.mark.parametrize(
    ("step_seconds", "num_envs", "cpus", "workers"),
    [
        (0.0, 8, 2, 0),  # nothing to share out
        (0.0, 8, 64, 0),
        (200e-6, 8, 2, 2),
        (200e-6, 1, 2, 0),  # one environment is stepped fastest where the caller is
        (200e-6, 64, 1, 0),  # one CPU: a worker could only take turns with the caller
        (1e-3, 64, 64, 64),
        (1e-3, 5, 64, 5),  # never more workers than environments
        (1.0, 17, 6, 6),
    ],
)
def test_cheap_environments_stay_here_and_dear_ones_take_all_cpus(step_seconds, num_envs, cpus, workers):
    assert best_number_of_workers(step_seconds, num_envs, cpus) == workers


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_a_step_is_measured_in_a_process_that_is_gone_afterwards(context):
    told = measure_step(multiprocessing.get_context(context), partial(Costly, 0.003))
    assert told is not None
    assert told >= 0.003
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("env_fn", [fails, ends])
def test_what_can_not_be_measured_is_none(env_fn):
    assert measure_step(multiprocessing.get_context("fork"), env_fn) is None
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(("seconds", "workers"), [(0.0, 0), (0.02, 2)])
def test_auto_chooses_by_what_the_step_takes(seconds, workers, monkeypatch):
    monkeypatch.setattr(vector_env, "usable_cpus", lambda: 2)
    envs = ShmVectorEnv([partial(Costly, seconds)] * 4, num_workers="auto")
    assert envs.num_workers == workers
    assert len(envs.processes) == workers
    _, infos = envs.reset()
    assert len(set(infos["pid"].tolist())) == max(1, workers)
    assert (os.getpid() in infos["pid"]) == (workers == 0)
    np.testing.assert_array_equal(envs.step(np.zeros(4, np.int64))[1], np.zeros(4))
    envs.close()


def test_where_nothing_can_be_measured_the_environments_tell_their_error():
    with pytest.raises(RuntimeError, match="on purpose"):
        ShmVectorEnv([fails], num_workers="auto")
