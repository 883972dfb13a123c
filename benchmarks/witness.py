"""An environment that bears witness: its observations tell who it is, what it was told, and a sum over all of that."""

from __future__ import annotations

import os
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces as gs

__all__ = ["EXIT", "PLAIN", "SPACE", "Witness", "checksum", "expected"]

#: What actions do: nothing (as all others that are not named here), or end the process.
PLAIN, EXIT = range(2)

#: Numbers of the part of an observation that is there to be large.
FILL = 64


def space_of(fill: int) -> gs.Dict:
    """The observation space, with ``fill`` numbers that are there to make it large."""
    return gs.Dict(
        {
            "who": gs.Box(0, 1 << 40, (3,), np.int64),  # environment, life, time
            "action": gs.Discrete(1 << 20),
            "sum": gs.Box(np.iinfo(np.int64).min, np.iinfo(np.int64).max, (), np.int64),
            "fill": gs.Box(0.0, 1.0, (fill,), np.float64),
        }
    )


SPACE = space_of(FILL)


def checksum(env: Any, life: Any, t: Any, action: Any) -> Any:
    """A number that depends on all of them; of numbers, or of arrays of them."""
    with np.errstate(over="ignore"):
        parts = [np.asarray(part, np.int64) for part in (env, life, t, action)]
        factors = np.array([0x9E3779B97F4A7C1, 0x2545F4914F6CDD1, 0x5851F42D4C957F2, 0x14057B7EF767815], np.int64)
        return sum(part * factor for part, factor in zip(parts, factors, strict=True))


def expected(number: Any) -> Any:
    """What "fill" holds throughout, for a checksum."""
    return (np.asarray(number) & 0xFFFF) / 0x10000


class Witness(gym.Env[Any, Any]):
    """Counts its steps since the last reset.

    Args:
        index: Which environment it is.
        episode: Steps until it terminates.
        told: Whether infos tell the time too.
        fill: Numbers of an observation that are there to make it large.
    """

    action_space = gs.Discrete(1 << 20)

    def __init__(self, index: int, episode: int = 1 << 40, *, told: bool = False, fill: int = FILL) -> None:
        self.observation_space = SPACE if fill == FILL else space_of(fill)
        self._fill = fill
        self._index, self._episode, self._told = index, episode, told
        self._life = self._t = 0
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._life = int(self.np_random.integers(1 << 39))
        self._t = 0
        return self._show(0), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if action == EXIT:
            os._exit(3)
        self._t += 1
        self.steps += 1
        info = {"t": self._t} if self._told else {}
        return self._show(int(action)), float(self._t), self._t >= self._episode, False, info

    def _show(self, action: int) -> dict[str, Any]:
        number = checksum(self._index, self._life, self._t, action)
        return {
            "who": np.array([self._index, self._life, self._t], np.int64),
            "action": np.int64(action),
            "sum": np.asarray(number, np.int64),
            "fill": np.full(self._fill, expected(number)),
        }
