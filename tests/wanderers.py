"""An environment of any spaces whose episodes and infos are of every kind; light, for workers have to import it."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces as gs

__all__ = ["Loose", "Wanderer"]


class Wanderer(gym.Env[Any, Any]):
    """Samples of its space, rewards that tell the action, episodes of 1 to 6 steps that end in any way.

    Args:
        observation_space, action_space: Its spaces; it takes a copy.
        numbers: Whether there are only numbers in its infos; else values of any kind.
        render_mode: As in gymnasium.

    Attributes:
        told: Seed and options of each reset.
        rendered: How often it was.
        tag: What :meth:`add` was told.
    """

    metadata = {"render_modes": ["rgb_array", "human"], "render_fps": 7}

    def __init__(
        self,
        observation_space: gs.Space[Any],
        action_space: gs.Space[Any],
        *,
        numbers: bool = False,
        render_mode: str | None = "rgb_array",
    ) -> None:
        self.observation_space, self.action_space = copy.deepcopy((observation_space, action_space))
        self.numbers, self.render_mode = numbers, render_mode
        self.told: list[Any] = []
        self.tag, self.rendered = "", 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.told.append((seed, options))
        self.left = int(self.np_random.integers(1, 7))
        return self.observation_space.sample(), {"left": self.left} if self.left % 2 else {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.left -= 1
        way = self.np_random.integers(3) if self.left == 0 else -1
        reward = np.float64(np.sum(np.asarray(action, np.float64))) / 3
        return self.observation_space.sample(), reward, bool(way in (0, 2)), bool(way in (1, 2)), self._info(action)

    def _info(self, action: Any) -> dict[str, Any]:
        kind = int(self.np_random.integers(4))
        if kind == 0:
            return {}
        if self.numbers or kind == 1:
            return {"left": self.left, "noise": self.np_random.normal(), "single": np.float32(kind), "flag": kind == 2}
        if kind == 2:
            return {"nothing": None, "action": np.array(action), "raw": b"bytes"}
        return {"deep": {"text": "x", "list": [1, (2.0, "y")]}, "left": self.left}

    def render(self) -> Any:
        self.rendered += 1
        return np.full((16, 12, 3), 10 * self.left, np.uint8)

    def add(self, x: int, *, y: int = 0) -> int:
        self.tag += f"+{x}{y}"
        return x + y

    def fail(self) -> None:
        raise LookupError("as asked")


class Loose(Wanderer):
    """Like environments in the wild: float64 for float32, ints and numpy's bools for the rest."""

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation.astype(np.float64) / 3, int(reward), np.bool_(terminated), np.bool_(truncated), info
