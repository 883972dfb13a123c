"""Which spaces a batch of environments has, and whether all of them match: asked in each worker, refused in the parent.

The first environment's spaces are those of the batch, or what the caller gave. All others' have to be equal or, of
observations where the caller says so, alike in dtype and shape. Texts are gymnasium's, with what did not match behind.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gymnasium import Space
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector.utils import batch_space

from .compat import batch_differing_spaces
from .env_group import EnvGroup
from .requests import Report, Setup

__all__ = ["BatchSpaces", "Misfits", "batch_spaces", "misfits", "refuse_misfits"]


class BatchSpaces(NamedTuple):
    """The spaces of one environment, and of all of them."""

    single_observation: Space[Any]
    observation: Space[Any]
    single_action: Space[Any]
    action: Space[Any]


class Misfits(NamedTuple):
    """What does not match among the environments of one worker, in words to add to an error; empty where all do."""

    observation: str
    action: str


def batch_spaces(
    reports: Sequence[Report], observation_mode: str | tuple[Space[Any], Space[Any]], num_envs: int
) -> BatchSpaces:
    """The spaces of ``num_envs`` environments that workers told of.

    Args:
        reports: One of each worker.
        observation_mode: ``"same"``, ``"different"``, or (batched space, single space).
        num_envs: Number of environments.
    """
    spaces = [space for report in reports for space in report.observation_spaces]
    action = reports[0].action_space
    if isinstance(observation_mode, tuple):
        batched, single = observation_mode
    elif observation_mode == "same":
        batched, single = batch_space(spaces[0], num_envs), spaces[0]
    else:
        batched, single = batch_differing_spaces(spaces), spaces[0]
    return BatchSpaces(single, batched, action, batch_space(action, num_envs))


def misfits(setup: Setup, group: EnvGroup) -> Misfits:
    """The first observation space and the first action space in ``group`` that do not match those of ``setup``."""
    same = operator.eq if setup.same_spaces else is_space_dtype_shape_equiv
    return Misfits(
        _misfit(setup.single_observation_space, [env.observation_space for env in group.envs], group.start, same),
        _misfit(setup.single_action_space, [env.action_space for env in group.envs], group.start, operator.eq),
    )


def _misfit(expected: Space[Any], spaces: Sequence[Space[Any]], start: int, same: Callable[..., bool]) -> str:
    for i, space in enumerate(spaces, start):
        if not same(expected, space):
            remedy = ""
            if type(space) is type(expected) and type(space).__eq__ is object.__eq__:
                remedy = f" Spaces are compared by `__eq__`, which `{type(space).__name__}` does not define."
            return f" Expected {expected}, got {space} - in environment {i}.{remedy}"
    return ""


def refuse_misfits(told: Sequence[Misfits], setup: Setup, owner: str) -> None:
    """Refuses environments whose spaces do not match.

    Args:
        told: What :func:`misfits` gave in each worker.
        setup: What they had to match.
        owner: The vector environment's class, for the error.

    Raises:
        RuntimeError: Some do not match.
    """
    if why := next((one.observation for one in told if one.observation), ""):
        raise RuntimeError(
            f"{owner}(..., observation_mode='same') however some of the sub-environments observation spaces are not "
            f"equivalent. If this is intentional, use `observation_mode='different'` instead.{why}"
            if setup.same_spaces
            else f"{owner}(..., observation_mode='different' or custom space) however the sub-environment's "
            f"observation spaces do not share a common shape and dtype.{why}"
        )
    if why := next((one.action for one in told if one.action), ""):
        raise RuntimeError(
            f"Some environments have an action space different from `{setup.single_action_space}`. In order to "
            f"batch actions, the action spaces from all environments must be equal.{why}"
        )
