"""The arrays of a whole rollout, as they stand in the segment: what a learner reads, and nobody copied."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .exchange import Exchange
from .write import write_to_shared_memory

__all__ = ["Rollout", "rollout_of", "store_actions"]


@dataclass(frozen=True)
class Rollout:
    """T steps of n environments, as views of the segment; ``Text`` and ``OneOf`` as codes.

    Row t of ``observations`` is what the environments showed before step t; row t of all else belongs to step t. The
    arrays fill as steps are made, and are written over from the next ``rollout()`` on: so whatever reads them in the
    background (a copy to a GPU, say) has to end before that.

    A reset in the middle takes a row, too: rewards of 0 and no ends belong to it, and actions that nobody chose.

    Attributes:
        observations: Shape ``(T, n, *shape)``, nested as the space is.
        last_observations: What the environments showed after the last step, shape ``(n, *shape)``.
        actions: Shape ``(T, n, *shape)``, nested as the space is; None where that has no fixed size.
        rewards: Shape ``(T, n)``, float64.
        terminations, truncations: Shape ``(T, n)``, bool.
    """

    observations: Any
    last_observations: Any
    actions: Any
    rewards: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray


def rollout_of(exchange: Exchange) -> Rollout:
    """The arrays of a rollout that begins with the observations in slot 0."""
    observations, actions = exchange.field_arrays("observations"), exchange.field_arrays("actions")
    return Rollout(
        observations=_each(observations, lambda array: array[:-1]),
        last_observations=_each(observations, lambda array: array[-1]),
        actions=None if actions is None else _each(actions, lambda array: array[1:]),
        rewards=exchange.rewards[1:],
        terminations=exchange.terminations[1:],
        truncations=exchange.truncations[1:],
    )


def store_actions(exchange: Exchange, slot: int, actions: Iterable[Any]) -> None:
    """Stores ``actions``, one for each environment, that travel pickled to the step which writes ``slot``.

    Raises:
        ValueError, TypeError, KeyError: One does not fit.
    """
    space = exchange.terms.action_space
    if space is not None:
        for i, action in enumerate(actions):
            write_to_shared_memory(space, i, action, exchange.actions[slot])


def _each(tree: Any, select: Callable[[np.ndarray], np.ndarray]) -> Any:
    if isinstance(tree, dict):
        return {key: _each(part, select) for key, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_each(part, select) for part in tree)
    return select(tree)
