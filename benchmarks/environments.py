"""The environments that vector environments are measured on: as cheap as can be, so that what they cost others shows.

Everything that ``step`` returns was built before. An environment that works, burns CPU time of its own thread, not time
on the wall: otherwise what takes the CPU away from it would go unnoticed, and more processes than CPUs would
seem to get more done than there is to be had.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import thread_time
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces as gs

__all__ = ["WORKLOADS", "Workload"]

_VECTOR = gs.Box(-np.inf, np.inf, (4,), np.float32)
_IMAGE = gs.Box(0, 255, (84, 84, 4), np.uint8)
_DICT = gs.Dict(
    image=gs.Box(0, 255, (64, 64, 3), np.uint8), vector=gs.Box(-np.inf, np.inf, (32,), np.float32), speed=gs.Discrete(5)
)

#: Numbers as MuJoCo environments (float64) and Atari environments (int) give them with every step.
_INFOS = {
    "x_position": np.float64(0.25),
    "x_velocity": np.float64(-1.5),
    "reward_forward": np.float64(-1.5),
    "reward_ctrl": np.float64(-0.1),
    "lives": 3,
    "frame_number": 1024,
}


class FreeEnv(gym.Env[Any, Any]):
    """A step costs one call, and returns what there is.

    Args:
        space: The observation space; the observation is one sample of it.
        infos: The infos of every step.
        index: Number of the environment.
    """

    action_space = gs.Discrete(2)

    def __init__(self, space: gs.Space[Any], infos: dict[str, Any], index: int) -> None:
        self.observation_space = space
        space.seed(index)
        self.observation = space.sample()
        self._result = (self.observation, 1.0, False, False, dict(infos))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self.observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._result


class DictsEnv(FreeEnv):
    """As ``FreeEnv``, with new dicts at every step, as environments make them; some callers add keys of their own."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self._result
        if type(observation) is dict:
            observation = observation.copy()
        return observation, reward, terminated, truncated, info.copy()


class BusyEnv(FreeEnv):
    """A step burns CPU time: between ``low`` and ``high`` microseconds of it, the same sequence in every run."""

    def __init__(self, low: float, high: float, index: int) -> None:
        super().__init__(_VECTOR, {}, index)
        self._costs = (np.random.default_rng(index).uniform(low, high, 256) * 1e-6).tolist()
        self._steps = 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        until = thread_time() + self._costs[self._steps % 256]
        self._steps += 1
        while thread_time() < until:
            pass
        return self._result


class EpisodicEnv(FreeEnv):
    """Every 20th step ends an episode, each environment's at another time; observations are images."""

    LENGTH = 20

    def __init__(self, index: int) -> None:
        super().__init__(_IMAGE, {}, index)
        self._last = (self.observation, 1.0, False, True, {})
        self._left = self.LENGTH - index % self.LENGTH
        self._started = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if self._started:
            self._left = self.LENGTH
        self._started = True
        return self.observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._left -= 1
        return self._last if self._left == 0 else self._result


@dataclass(frozen=True)
class Workload:
    """One kind of environment.

    Attributes:
        text: What it is, for tables.
        make: Creates environment number ``index``; picklable.
        autoreset_mode: The mode that vector environments run it in.
        row_nbytes: Bytes of one observation.
    """

    text: str
    make: Callable[[int], gym.Env[Any, Any]]
    autoreset_mode: str = "NextStep"
    row_nbytes: int = 16

    def env_fns(self, n: int) -> list[Callable[[], gym.Env[Any, Any]]]:
        """The functions that create ``n`` of them."""
        return [partial(self.make, index) for index in range(n)]


_IMAGE_NBYTES = 84 * 84 * 4

WORKLOADS = {
    "vector": Workload("free, Box (4,)", partial(FreeEnv, _VECTOR, {})),
    "image": Workload("free, (84, 84, 4) uint8", partial(FreeEnv, _IMAGE, {}), row_nbytes=_IMAGE_NBYTES),
    "dict": Workload(
        "free, Dict of image, vector, discrete", partial(DictsEnv, _DICT, {}), row_nbytes=64 * 64 * 3 + 136
    ),
    "infos": Workload("free, Box (4,), six numeric infos", partial(DictsEnv, _VECTOR, _INFOS)),
    "episodes": Workload(
        "free, (84, 84, 4) uint8, episodes of 20 steps, SAME_STEP",
        EpisodicEnv,
        autoreset_mode="SameStep",
        row_nbytes=_IMAGE_NBYTES,
    ),
    "busy-20": Workload("20 µs, Box (4,)", partial(BusyEnv, 20, 20)),
    "busy-200": Workload("200 µs, Box (4,)", partial(BusyEnv, 200, 200)),
    "busy-uneven": Workload("50 to 500 µs, Box (4,)", partial(BusyEnv, 50, 500)),
}
