"""Batches of infos, as gymnasium makes them: one by one, in the order in which ``SyncVectorEnv`` adds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from .batches import exact_row
from .compat import VectorEnv
from .exchange import Exchange
from .reply import Reply

__all__ = ["AddInfo", "adder", "batch", "batch_with_ends", "snapshot"]

#: ``VectorEnv._add_info``: adds the info of one row to a batch.
AddInfo: TypeAlias = Callable[[dict[str, Any], dict[str, Any], int], dict[str, Any]]


def adder(rows: int) -> AddInfo:
    """Gymnasium's own ``_add_info`` for batches of ``rows`` rows."""
    batching = VectorEnv()
    batching.num_envs = rows
    return batching._add_info


def snapshot(info: dict[str, Any]) -> dict[str, Any]:
    """``info`` as it is now, for a batch that is made later: what batching would copy is copied."""
    return {
        key: snapshot(value) if isinstance(value, dict) else value.copy() if isinstance(value, np.ndarray) else value
        for key, value in info.items()
    }


def batch(told: Mapping[int, dict[str, Any]], add_info: AddInfo) -> dict[str, Any]:
    """The batch of infos, ``told`` by row."""
    infos: dict[str, Any] = {}
    for row, info in told.items():
        infos = add_info(infos, info, row)
    return infos


def batch_with_ends(
    told: Mapping[int, dict[str, Any]],
    replies: Sequence[Reply | None],
    ended: Sequence[bool],
    env_ids: Sequence[int],
    exchange: Exchange,
    add_info: AddInfo,
) -> dict[str, Any]:
    """The batch of infos of a step in which episodes ended and began anew: with ``final_obs`` and ``final_info``.

    Args:
        told: The infos by environment.
        replies: Have the terminal infos, and the terminal observations that do not survive the segment.
        ended: Whether the episode of a row ended.
        env_ids: The environment of each row.
        exchange: Has the other terminal observations.
        add_info: Adds a row.
    """
    final_infos = {env: info for reply in replies if reply is not None for env, info in reply.final_infos}
    pickled = {env: value for reply in replies if reply is not None for env, value in reply.final_observations}
    space, memory = exchange.terms.observation_space, exchange.final_observations
    infos: dict[str, Any] = {}
    for row, (env, has_ended) in enumerate(zip(env_ids, ended, strict=True)):
        if has_ended:
            value = pickled[env] if env in pickled or space is None else exact_row(space, memory, env)
            infos = add_info(infos, {"final_obs": value, "final_info": final_infos.get(env, {})}, row)
        if env in told:
            infos = add_info(infos, told[env], row)
    return infos
