"""What ``ShmVectorEnv`` is told at construction and at resets: checked before anything is started, or asked."""

from __future__ import annotations

import multiprocessing
from typing import Any

import numpy as np
from gymnasium import Space

from .compat import AutoresetMode
from .cpus import usable_cpus

__all__ = [
    "as_autoreset_mode",
    "as_batch_size",
    "as_max_concurrency",
    "as_slots",
    "check_context",
    "check_flags",
    "check_observation_mode",
    "check_worker",
    "not_negative",
    "positive",
    "split_mask",
    "spread_seeds",
    "workers_for",
]


def workers_for(num_workers: Any, num_envs: int, max_concurrency: int | None) -> int:
    """How many worker processes to start; 0 for none.

    Args:
        num_workers: What was asked for; None for as many as this process has CPUs.
        num_envs: Number of environments: more workers would have nothing to do.
        max_concurrency: The most environments that may execute at a time: each worker executes one.

    Raises:
        ValueError: ``num_workers`` is no number of workers.
    """
    if num_workers is None:
        num_workers = usable_cpus()
    number = _integer(num_workers, 0, 'num_workers to be None, "auto" or an integer from 0 up')
    return min(number, num_envs, max_concurrency or num_envs)


def positive(value: Any, name: str) -> int:
    """``value``, an argument called ``name``, as an int from 1 up.

    Raises:
        ValueError: It is not one.
    """
    return _integer(value, 1, f"{name} to be a positive integer")


def not_negative(value: Any, name: str) -> int:
    """``value``, an argument called ``name``, as an int from 0 up.

    Raises:
        ValueError: It is not one.
    """
    return _integer(value, 0, f"{name} to be an integer from 0 up")


def _integer(value: Any, least: int, expected: str) -> int:
    if not _is_integer(value) or value < least:
        raise ValueError(f"Expected {expected}, got {value!r}.")
    return int(value)


def _is_integer(value: Any) -> bool:
    """Whether it is an integer; not a bool, which Python counts among them, and which is meant for another argument."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def as_slots(slots: Any, most: int) -> int:
    """``slots`` as an int from 1 to ``most``.

    Raises:
        ValueError: It is not one.
    """
    number = positive(slots, "slots")
    if number > most:
        raise ValueError(f"Expected slots of at most {most}, got {slots}. Use shorter rollouts.")
    return number


def as_batch_size(batch_size: Any, num_envs: int, slots: int, shared_memory: bool) -> int:
    """``batch_size`` as an int from 1 to ``num_envs``, which is what None stands for.

    Raises:
        ValueError: It is not one, or does not go together with ``slots`` or ``shared_memory``.
    """
    if batch_size is None:
        return num_envs
    number = positive(batch_size, "batch_size")
    if number > num_envs:
        raise ValueError(f"Expected batch_size of at most {num_envs} environments, got {batch_size}.")
    if slots > 1 or not shared_memory:
        raise ValueError(
            "Expected slots=1 and observations in shared memory with a batch_size, which is for `send` and `recv`, "
            f"got slots={slots}, shared_memory={shared_memory}. Leave out one or the other."
        )
    return number


def check_worker(worker: Any) -> None:
    """Refuses a worker function of the caller's.

    Raises:
        ValueError: There is one.
    """
    if worker is not None:
        raise ValueError(
            "Expected worker=None: ShmVectorEnv has a protocol of its own. A custom worker function goes on "
            "working with `gymnasium.vector.AsyncVectorEnv(env_fns, worker=...)`, whose memory "
            "`gymshm.create_shared_memory` can make; where `gymshm.patch_gymnasium` has put this class in its "
            "place, undo that first."
        )


def as_max_concurrency(value: Any) -> int | None:
    """``max_concurrency``, if it is one.

    Raises:
        ValueError: It is not one.
    """
    if value is None:
        return None
    if not _is_integer(value):
        raise ValueError(f"`max_concurrency` must be an integer or None, got {type(value)}.")
    if value < 1:
        raise ValueError(f"`max_concurrency` must be a positive or None, got {value}.")
    return int(value)


def check_flags(**flags: Any) -> None:
    """Refuses arguments that are not bools (0 and 1 are taken, too): a text such as "no" would count as true.

    Raises:
        TypeError: One of them is neither a bool nor 0 or 1.
    """
    for name, value in flags.items():
        if not isinstance(value, bool | np.bool_) and not (type(value) is int and value in (0, 1)):
            raise TypeError(f"Expected {name} to be True or False, got {value!r}.")


def check_context(context: Any) -> None:
    """Refuses what is not a start method, also where no process is started.

    Raises:
        ValueError: It is not one, nor None.
    """
    methods = multiprocessing.get_all_start_methods()
    if context is not None and context not in methods:
        raise ValueError(f"cannot find context for {context!r}. Expected context to be None or one of {methods}.")


def as_autoreset_mode(mode: Any) -> AutoresetMode:
    """The autoreset mode called ``mode``.

    Raises:
        ValueError: There is none of that name.
    """
    try:
        return AutoresetMode(mode)
    except ValueError as error:
        modes = [known.value for known in AutoresetMode]
        raise ValueError(f"{error}. Expected autoreset_mode to be one of {modes}.") from None


def check_observation_mode(mode: Any) -> None:
    """Refuses what is no ``observation_mode``.

    Raises:
        TypeError: It is a pair, and not of spaces.
        ValueError: It is something else.
    """
    if isinstance(mode, tuple) and len(mode) == 2:
        if not isinstance(mode[0], Space) or not isinstance(mode[1], Space):
            raise TypeError(
                f"Expected both elements of observation_mode to be Spaces, got {type(mode[0])} and {type(mode[1])}"
            )
    elif mode not in ("same", "different"):
        raise ValueError(
            "Invalid `observation_mode`, expected: 'same' or 'different' or tuple of single and batch observation "
            f"space, actual got {mode}"
        )


def spread_seeds(seed: Any, num_envs: int) -> list[int | None]:
    """A seed for each environment: the list as it is, or ``seed + i`` for environment i, or None for all.

    Raises:
        ValueError: The list has another length.
        TypeError: It is neither an integer nor a list, or another sequence.
    """
    if seed is None or isinstance(seed, int | np.integer):
        return [None if seed is None else int(seed) + i for i in range(num_envs)]
    try:
        length = None if isinstance(seed, str | bytes) else len(seed)
    except TypeError:
        length = None
    if length is None:
        raise TypeError(f"Expected seed to be an int, a sequence of {num_envs} ints, or None, got {seed!r}.")
    if length != num_envs:
        raise ValueError(
            f"If seeds are passed as a list the length must match num_envs={num_envs} but got length={length}."
        )
    return list(seed)


def split_mask(options: dict[str, Any] | None, num_envs: int) -> tuple[dict[str, Any] | None, list[bool]]:
    """``options`` without its ``reset_mask``, and the mask, a bool for each environment; ``options`` is left alone.

    Raises:
        TypeError, ValueError: The mask is no bool array of shape ``(num_envs,)`` that marks one at least.
    """
    if options is None or "reset_mask" not in options:
        return options, [True] * num_envs
    rest = dict(options)
    mask = rest.pop("reset_mask")
    if not isinstance(mask, np.ndarray):
        raise TypeError(f"`options['reset_mask']` must be a numpy array, got {type(mask)}")
    if mask.shape != (num_envs,):
        raise ValueError(f"`options['reset_mask']` must have shape `({num_envs},)`, got {mask.shape}")
    if mask.dtype != np.bool_:
        raise TypeError(f"`options['reset_mask']` must have `dtype=np.bool_`, got {mask.dtype}")
    if not mask.any():
        raise ValueError(
            f"`options['reset_mask']` must contain a boolean array with at least one True value, got reset_mask={mask}"
        )
    return rest, list(mask.tolist())
