"""Tiny environments for tests of the vector environment, which any start method can import; and what is the same."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces as gs

import gymshm
from gymshm.compat import AutoresetMode
from gymshm.env_group import EnvGroup

#: One action for each of n environments of the kind below.
ZERO = np.int64(0)


def zeros(n: int) -> np.ndarray:
    """A batch of ``n`` actions that mean nothing."""
    return np.zeros(n, np.int64)


class Clock(gym.Env[Any, Any]):
    """Counts its steps since the last reset: its observation, its reward and ``t`` are that number.

    Args:
        episode: Steps until it terminates.
        observe: Makes the observation out of ``t``; None for an array of shape (2,) that holds it.
        reward: Makes the reward out of ``t``.
        info: Makes the info out of ``t``.
        act: Called within ``step`` with (environment, action).
        act_in_reset: Called within ``reset`` with (environment, seed, options).
        act_in_close: Called within ``close`` with (environment,).
        observation_space, action_space: Its spaces.
    """

    metadata = {"render_modes": ["rgb_array"], "made_by": "Clock"}

    def __init__(
        self,
        *,
        episode: int = 1 << 30,
        observe: Callable[[int], Any] | None = None,
        reward: Callable[[int], Any] = float,
        info: Callable[[int], Any] = lambda t: {},
        act: Callable[[Clock, Any], Any] = lambda env, action: None,
        act_in_reset: Callable[[Clock, Any, Any], Any] = lambda env, seed, options: None,
        act_in_close: Callable[[Clock], Any] = lambda env: None,
        observation_space: gs.Space[Any] | None = None,
        action_space: gs.Space[Any] | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.observation_space = gs.Box(-1e6, 1e6, (2,), np.float32) if observation_space is None else observation_space
        self.action_space = gs.Discrete(5) if action_space is None else action_space
        self.render_mode = render_mode
        self.episode, self.observe, self.reward, self.info = episode, observe or twice, reward, info
        self.act, self.act_in_reset, self.act_in_close = act, act_in_reset, act_in_close
        self.t = self.steps = self.resets = 0
        self.secret = "none"

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.act_in_reset(self, seed, options)
        self.t = 0
        self.resets += 1
        return self.observe(0), self.info(0)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.act(self, action)
        self.t += 1
        self.steps += 1
        return self.observe(self.t), self.reward(self.t), self.t >= self.episode, False, self.info(self.t)

    def render(self) -> Any:
        return np.full((2, 2, 3), self.t, np.uint8)

    def close(self) -> None:
        self.act_in_close(self)

    def pid(self) -> int:
        return os.getpid()

    def double(self, x: Any, *, plus: Any = 0) -> Any:
        return 2 * x + plus

    def apply(self, function: Callable[[], Any]) -> Any:
        return function()

    def reset_later(self) -> None:
        """What ``reset`` does, as a call."""
        self.reset()


def twice(t: int) -> np.ndarray:
    """What a ``Clock`` observes unless it is told otherwise."""
    return np.full(2, t, np.float32)


class Replay(gym.Env[Any, Any]):
    """Plays what it is given, and keeps what it is told.

    Args:
        observation_space, action_space: Its spaces.
        script: What the steps and resets give, in order and over again: (observation, reward, terminated, truncated,
            info); a reset uses the observation and the info.
    """

    def __init__(
        self, observation_space: gs.Space[Any], action_space: gs.Space[Any], script: Sequence[tuple[Any, ...]]
    ) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self._script, self._position = script, 0
        #: What it was told, in order: ("reset", seed, options) and ("step", action).
        self.log: list[tuple[Any, ...]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.log.append(("reset", seed, options))
        observation, _, _, _, info = self._next()
        return observation, info

    def step(self, action: Any) -> tuple[Any, ...]:
        self.log.append(("step", action))
        return self._next()

    def _next(self) -> tuple[Any, ...]:
        line = self._script[self._position % len(self._script)]
        self._position += 1
        return line


def clocks(n: int, **options: Any) -> list[Callable[[], Clock]]:
    """Functions that make ``n`` clocks, all alike."""
    return [lambda: Clock(**options)] * n


def group_of(fns: list[Any]) -> EnvGroup:
    """A group of what ``fns`` make, from index 0 on."""
    group = EnvGroup(0, AutoresetMode.NEXT_STEP)
    group.build(fns)
    return group


def clock_envs(n: int = 2, *, context: str | None = None, **options: Any) -> gymshm.ShmVectorEnv:
    """A ``ShmVectorEnv`` over ``n`` clocks; options of either of them, ``num_workers`` being ``n`` unless said."""
    own = {name: options.pop(name) for name in list(options) if name in _VECTOR_OPTIONS}
    return gymshm.ShmVectorEnv(clocks(n, **options), context=context, **{"num_workers": n, **own})


def made(n: int = 2, **options: Any) -> contextlib.closing[gymshm.ShmVectorEnv]:
    """As :func:`clock_envs`, closed at the end of a ``with`` block."""
    return contextlib.closing(clock_envs(n, **options))


def times(observations: np.ndarray) -> list[int]:
    """The clocks' times, out of a batch of what they observe."""
    return observations[:, 0].astype(int).tolist()


_VECTOR_OPTIONS = {
    *("shared_memory", "copy", "daemon", "worker", "observation_mode", "autoreset_mode", "max_concurrency"),
    *("num_workers", "slots", "start_timeout"),
}


def assert_same(ours: Any, theirs: Any, where: str = "value") -> None:
    """Asserts that both are equal in every respect: types, dtypes, byte orders, shapes, the order of keys, values."""
    # numpy has two classes for integers of 64 bits; pickling turns one into the other.
    classes = [np.int64 if cls is np.longlong else cls for cls in (type(ours), type(theirs))]
    assert classes[0] is classes[1], f"{where}: {classes[0]} {ours!r}, expected {classes[1]} {theirs!r}"
    if isinstance(theirs, dict):
        assert list(map(repr, ours)) == list(map(repr, theirs)), f"{where}: keys {list(ours)}, expected {list(theirs)}"
        for our_item, (key, item) in zip(ours.values(), theirs.items(), strict=True):
            assert_same(our_item, item, f"{where}[{key!r}]")
    elif isinstance(theirs, list | tuple):
        assert len(ours) == len(theirs), f"{where}: length {len(ours)}, expected {len(theirs)}"
        for i, (our_item, item) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(our_item, item, f"{where}[{i}]")
    elif isinstance(theirs, np.ndarray) and theirs.dtype == object:
        assert ours.dtype == object, f"{where}: dtype {ours.dtype}, expected object"
        assert ours.shape == theirs.shape, f"{where}: shape {ours.shape}, expected {theirs.shape}"
        assert_same(ours.ravel().tolist(), theirs.ravel().tolist(), where)
    elif isinstance(theirs, np.ndarray | np.generic):
        assert ours.dtype == theirs.dtype, f"{where}: dtype {ours.dtype}, expected {theirs.dtype}"
        assert ours.shape == theirs.shape, f"{where}: shape {ours.shape}, expected {theirs.shape}"
        assert np.array_equal(ours, theirs, equal_nan=theirs.dtype.kind in "fc"), f"{where}: {ours}, expected {theirs}"
    else:
        assert ours == theirs or (ours != ours and theirs != theirs), f"{where}: {ours!r}, expected {theirs!r}"
