"""``make_vec``: from an environment's id to a ``ShmVectorEnv`` of it, with the arguments of gymnasium's."""

from __future__ import annotations

import copy
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import gymnasium as gym
from gymnasium import Env, logger
from gymnasium.envs.registration import EnvSpec, VectorizeMode
from gymnasium.error import Error

from .vector_env import ShmVectorEnv

__all__ = ["make_vec"]

#: Who gives one of these to ``make_vec`` gives it to each environment.
_OUR_ARGUMENTS = frozenset(inspect.signature(ShmVectorEnv).parameters)


def make_vec(
    id: str | EnvSpec,
    num_envs: int = 1,
    vectorization_mode: VectorizeMode | str | None = None,
    vector_kwargs: dict[str, Any] | None = None,
    wrappers: Sequence[Callable[[Env[Any, Any]], Env[Any, Any]]] | None = None,
    **kwargs: Any,
) -> ShmVectorEnv:
    """Creates a :class:`ShmVectorEnv` of environments that are registered under an id.

    What ``gymnasium.make_vec(id, num_envs, "async", ...)`` does, over our processes and memory.

    Args:
        id: The environment's id, as in ``"CartPole-v1"`` or ``"module:Env-v0"``; or its spec. A spec that a vector
            environment has, as its ``spec`` attribute, creates that vector environment once more.
        num_envs: Number of environments.
        vectorization_mode: One of gymnasium's modes, or None. It is taken for gymnasium's sake, and changes nothing.
        vector_kwargs: More arguments of ``ShmVectorEnv``, as in ``{"copy": False, "slots": 8}``.
        wrappers: Functions that wrap each environment, the innermost first.
        **kwargs: Arguments of the environment.

    Returns:
        The vector environment. Its ``spec`` says how to create it; of gymnasium's ``make_vec`` too, if
        ``vector_kwargs`` holds nothing that is ours alone.

    Raises:
        gymnasium.error.Error: Nothing is registered under ``id``, or no single environment is.
        ValueError: ``vectorization_mode`` is none of gymnasium's, or ``num_envs`` is below 1.
        TypeError: ``num_envs`` is no integer, or ``wrappers`` are no functions.
        ModuleNotFoundError: ``id`` names a module that does not exist.
        Exception: What the environment or ``ShmVectorEnv`` raises.
    """
    spec = copy.deepcopy(id if isinstance(id, EnvSpec) else _find(id))
    if spec.entry_point is None:
        raise Error(f"Expected {spec.id} to have an entry point, which creates a single environment; it has none.")
    # Where a vector environment's spec holds arguments of make_vec, they win, as in gymnasium.
    num_envs = spec.kwargs.pop("num_envs", num_envs)
    if not hasattr(num_envs, "__index__"):
        raise TypeError(f"Expected num_envs to be an integer, got {num_envs!r}.")
    if num_envs < 1:
        raise ValueError(f"Expected num_envs to be 1 or more, got {num_envs}.")
    _check_mode(spec.kwargs.pop("vectorization_mode", vectorization_mode))
    vector_kwargs = spec.kwargs.pop("vector_kwargs", vector_kwargs) or {}
    wrappers = spec.kwargs.pop("wrappers", wrappers) or ()
    _check_wrappers(wrappers)
    env_kwargs = {**spec.kwargs, **kwargs}
    spec.kwargs = {}

    def make_one() -> Env[Any, Any]:
        env = gym.make(spec, **env_kwargs)
        for wrapper in wrappers:
            env = wrapper(env)
        return env

    try:
        envs = ShmVectorEnv([make_one] * num_envs, **vector_kwargs)
    except TypeError as error:
        for name in _OUR_ARGUMENTS.intersection(kwargs):
            if f"unexpected keyword argument {name!r}" in str(error):
                remedy = f"`{name}` is an argument of ShmVectorEnv: put it into `vector_kwargs={{{name!r}: ...}}`."
                error.args = (f"{error}. {remedy}",)
        raise
    envs.spec = copy.deepcopy(spec)
    envs.spec.kwargs = {**env_kwargs, "vectorization_mode": "async"}
    if num_envs != 1:
        envs.spec.kwargs["num_envs"] = num_envs
    if vector_kwargs:
        envs.spec.kwargs["vector_kwargs"] = vector_kwargs
    if wrappers:
        envs.spec.kwargs["wrappers"] = wrappers
    return envs


def _check_wrappers(wrappers: Any) -> None:
    if callable(wrappers) or not isinstance(wrappers, Iterable) or not all(map(callable, wrappers)):
        raise TypeError(f"Expected wrappers to be a sequence of functions of an environment, got {wrappers!r}.")


def _check_mode(mode: VectorizeMode | str | None) -> None:
    modes = [known.value for known in VectorizeMode]
    if mode is not None and not isinstance(mode, VectorizeMode) and mode not in modes:
        raise ValueError(f"Expected vectorization_mode to be None or one of {modes}, got {mode!r}.")


def _find(id: str) -> EnvSpec:
    """The spec registered under ``id``, as ``gymnasium.make`` finds it.

    ``gymnasium.spec`` alone imports no module, takes no newest version, and warns of no outdated one.
    """
    if not isinstance(id, str):
        raise Error(f"Expected id to be a str or an EnvSpec, got {type(id)}.")
    module, _, name = id.rpartition(":")
    if module:
        importlib.import_module(module)
    stem = _stem(name)
    versions = [spec for spec in gym.registry.values() if spec.version is not None and _stem(spec.id) == stem]
    newest = max(versions, key=lambda spec: spec.version or 0, default=None)
    if newest is not None and name == stem:
        logger.warn("Using the latest versioned environment `%s` instead of the unversioned `%s`.", newest.id, name)
        return newest
    spec = gym.spec(name)
    if newest is not None and newest is not spec:
        logger.deprecation(f"The environment {name} is out of date. You should consider upgrading to `{newest.id}`.")
    return spec


def _stem(id: str) -> str:
    return re.sub(r"-v\d+$", "", id)
