"""What older versions of gymnasium lack, from 1.0 on: what it stands for here, and when it may go.

Every module takes the names below from here, and no other asks which version there is. What a name gives is what it
gives under gymnasium 1.4, so results do not depend on the version: under 1.0, whose own vector environments know no
modes, ``ShmVectorEnv`` has all three (``autoreset_mode="SameStep"``), with ``final_obs`` and ``final_info``.

===========================  ================  =========================================================================
name                         superfluous from  what is missing before
===========================  ================  =========================================================================
``AutoresetMode``            1.1               the enum
``VectorEnv``                1.1               ``_add_info`` takes a ``final_obs`` whole: a dict stays a dict
``VectorEnv``                1.3               no ``__del__``: it closes in the garbage collector, and takes the time
                                               that environments want; ``crew_env`` has a way of its own
``discrete``                 1.2               ``Discrete`` has a ``dtype``
``characters``               1.4               ``Text`` keeps no character twice
``batch_differing_spaces``   1.4               refusals are ``ValueError``, not assertions
===========================  ================  =========================================================================
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
import gymnasium.vector
import gymnasium.vector.utils
import numpy as np
from gymnasium import spaces as gs

__all__ = ["AutoresetMode", "VectorEnv", "batch_differing_spaces", "characters", "discrete"]

_HAS_MODES = hasattr(gymnasium.vector, "AutoresetMode")
_DISCRETE_HAS_DTYPE = "dtype" in inspect.signature(gs.Discrete.__init__).parameters

if TYPE_CHECKING or _HAS_MODES:
    from gymnasium.vector import AutoresetMode
else:

    class AutoresetMode(enum.Enum):
        """What happens after the end of an episode."""

        NEXT_STEP = "NextStep"
        SAME_STEP = "SameStep"
        DISABLED = "Disabled"


class VectorEnv(gymnasium.vector.VectorEnv[Any, Any, np.ndarray]):
    """Gymnasium's, which does nothing in the garbage collector and batches infos in one way under every version."""

    if hasattr(gymnasium.vector.VectorEnv, "__del__"):

        def __del__(self) -> None:
            """Leaves the end of what nobody closed to whoever holds it."""

    if not _HAS_MODES:

        def _add_info(self, vector_infos: dict[str, Any], env_info: dict[str, Any], env_num: int) -> dict[str, Any]:
            """Adds the info of environment ``env_num`` to a batch, in the order of its keys."""
            for key, value in env_info.items():
                if key != "final_obs":
                    vector_infos = super()._add_info(vector_infos, {key: value}, env_num)
                    continue
                if key not in vector_infos:
                    vector_infos[key] = np.full(self.num_envs, None, object)
                    vector_infos[f"_{key}"] = np.zeros(self.num_envs, np.bool_)
                vector_infos[key][env_num] = value
                vector_infos[f"_{key}"][env_num] = True
            return vector_infos


def discrete(n: int, start: int, dtype: np.dtype[Any]) -> gs.Discrete[Any]:
    """A ``Discrete`` of ``n`` values from ``start`` on, whose values are of ``dtype``.

    Raises:
        ValueError: The dtype is not int64, which is the only one before gymnasium 1.2; or ``n`` is not positive.
    """
    if _DISCRETE_HAS_DTYPE:
        return gs.Discrete(n, start=start, dtype=dtype)
    if dtype != np.int64:
        raise ValueError(f"a Discrete of dtype {dtype} needs gymnasium 1.2 or newer, not {gymnasium.__version__}")
    return gs.Discrete(n, start=start)


def characters(space: gs.Text) -> str:
    """The character set of ``space``, in its order, each character once."""
    return "".join(dict.fromkeys(space.character_list))


def batch_differing_spaces(spaces: Sequence[gs.Space[Any]]) -> gs.Space[Any]:
    """Gymnasium's: the space of batches of values, one of each of ``spaces``.

    Raises:
        ValueError, TypeError: The spaces differ in more than their bounds.
    """
    try:
        return gymnasium.vector.utils.batch_differing_spaces(spaces)
    except AssertionError as error:
        raise ValueError(*error.args) from None
