"""The workers' side of ``ShmVecEnv``: one environment, with what Stable-Baselines3 asks of it.

Rules of this file:

1. Stable-Baselines3 wants the infos of each environment just as it gave them, while gymnasium's batching merges them,
   and their types. So an info travels as the only item of a tuple, which batching leaves alone; an empty one does not
   travel at all.
2. It has options for each environment, and calls on some of them. So each environment is told of all, and picks.
3. Stable-Baselines3 itself, and with it torch, is imported only where it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gymnasium import Env, Wrapper

__all__ = ["INFO", "OPTIONS", "Sb3Env"]

#: Where an environment's whole info stands in the info that travels.
INFO = "info"

#: Where the list of every environment's options stands in the options that travel.
OPTIONS = "options"


class Sb3Env(Wrapper[Any, Any, Any, Any]):
    """Environment ``index`` of a ``ShmVecEnv``.

    Args:
        env_fn: Creates the environment that the user sees.
        index: Its number.
    """

    def __init__(self, env_fn: Callable[[], Env[Any, Any]], index: int) -> None:
        env = env_fn()
        if not isinstance(env, Env):
            from stable_baselines3.common.vec_env.patch_gym import _patch_env

            env = _patch_env(env)
        super().__init__(env)
        self._index = index

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Steps; the info is packed (1)."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, {INFO: (info,)} if info else info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Resets with the options that are its own (2); the info is packed (1)."""
        own = options[OPTIONS][self._index] if options else None
        observation, info = self.env.reset(seed=seed, options=own) if own else self.env.reset(seed=seed)
        return observation, {INFO: (info,)} if info else info

    def sb3_call(self, indices: Sequence[int], request: str, *args: Any) -> list[Any]:
        """Does ``request`` as often as ``indices`` names this environment; the results."""
        work = getattr(self, f"_do_{request}")
        return [work(*args) for _ in range(indices.count(self._index))]

    def _do_env_method(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.env.get_wrapper_attr(name)(*args, **kwargs)

    def _do_get_attr(self, name: str) -> Any:
        return self.env.get_wrapper_attr(name)

    def _do_has_attr(self, name: str) -> bool:
        return self.env.has_wrapper_attr(name)

    def _do_set_attr(self, name: str, value: Any) -> None:
        setattr(self.env, name, value)

    def _do_env_is_wrapped(self, wrapper_class: type) -> bool:
        env = self.env
        while isinstance(env, Wrapper):
            if isinstance(env, wrapper_class):
                return True
            env = env.env
        return False
