"""What ``env_fns`` has to be, and what its functions have to return: a mistake is told where it is made.

An environment is known by what it has, not by its class: one that is no ``gymnasium.Env`` and behaves like one does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gymnasium import Env

from .values import shown

__all__ = ["as_functions", "check_distinct", "check_env"]

#: What every environment is asked for.
_NEEDED = ("observation_space", "action_space", "reset", "step")


def as_functions(env_fns: Any) -> Sequence[Callable[[], Env[Any, Any]]]:
    """``env_fns`` as a sequence of functions; an iterator is used up.

    Raises:
        TypeError: It is not one.
    """
    expected = "Expected env_fns to be a sequence of functions that return an environment each, got"
    if isinstance(env_fns, str):
        raise TypeError(
            f"{expected} {env_fns!r}. For an environment's id there is `gymshm.make_vec({env_fns!r}, num_envs=...)`."
        )
    try:
        functions = env_fns if isinstance(env_fns, list | tuple) else list(env_fns)
    except TypeError:
        remedy = " Put it into a list: `[env_fn] * n`." if callable(env_fns) else ""
        raise TypeError(f"{expected} {shown(env_fns)}.{remedy}") from None
    for i, function in enumerate(functions):
        if not callable(function):
            remedy = " Give the function that makes it, as in `lambda: gym.make(...)`." if _is_env(function) else ""
            raise TypeError(f"{expected} {shown(function)} - at env_fns[{i}].{remedy}")
    return functions


def check_env(env: Any, i: int) -> None:
    """Refuses what ``env_fns[i]`` returned, where it is no environment.

    Raises:
        AttributeError: It lacks what an environment has; as under ``SyncVectorEnv``.
    """
    for name in _NEEDED:
        try:
            getattr(env, name)
        except AttributeError as error:
            got = "None" if env is None else shown(env)
            remedy = "Does the function end with `return env`?" if env is None else "Has its `__init__` set it?"
            raise AttributeError(
                f"Expected env_fns[{i}]() to return a gymnasium.Env, got {got}, which has no attribute {name!r}. "
                f"{remedy if env is None or _is_env(env) else 'It has to return the environment itself.'}"
            ) from error


def check_distinct(envs: Sequence[Any], start: int) -> None:
    """Refuses environments, the first of them number ``start``, of which two are the same: each would step the other.

    Raises:
        ValueError: Two are the same object, inside their wrappers at least.
    """
    first: dict[int, int] = {}
    for i, env in enumerate(envs, start):
        other = first.setdefault(id(getattr(env, "unwrapped", env)), i)
        if other != i:
            raise ValueError(
                "Expected each of env_fns to return an environment of its own, got the same one from "
                f"env_fns[{other}] and env_fns[{i}]. Write `lambda: gym.make(...)`, not `lambda: env`."
            )


def _is_env(value: Any) -> bool:
    return isinstance(value, Env)
