"""What ``ShmVectorEnv`` is told at construction: checked before anything is started."""

from __future__ import annotations

import math
import multiprocessing
import os
from typing import Any

import numpy as np
from gymnasium import Space

from .compat import AutoresetMode

__all__ = [
    "as_autoreset_mode",
    "check_batch_size",
    "check_concurrency",
    "check_context",
    "check_flags",
    "check_mode",
    "check_slots",
    "check_worker",
    "not_negative",
    "positive",
    "seconds",
    "split_mask",
    "spread_seeds",
    "usable_cpus",
    "workers_for",
]

#: Where the kernel tells which cgroups this process is in, and where their files are.
_OWN_CGROUPS, _CGROUP_MOUNTS = "/proc/self/cgroup", "/sys/fs/cgroup"

#: Seconds, 23 days, from which on a time limit is none: poll() takes little more, for it counts milliseconds in an int.
_ANY_TIME_SECONDS = 2e6


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


def usable_cpus() -> int:
    """The CPUs that this process may use: those of its affinity mask, or fewer where a cgroup limits the CPU time."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(affinity, _cgroup_cpus())))


def _cgroup_cpus() -> float:
    """How many CPUs' worth of time this process's cgroups grant; infinity where there is no limit, or no cgroup."""
    try:
        with open(_OWN_CGROUPS) as file:
            lines = [line.strip().split(":", 2) for line in file]
    except (OSError, ValueError):
        return math.inf
    limits = [math.inf]
    for _, controllers, group in (line for line in lines if len(line) == 3):
        if not controllers:  # version 2, which may stand beside version 1
            mounts, names = ["", "unified"], ["cpu.max"]
        elif "cpu" in controllers.split(","):
            mounts, names = ["cpu", controllers], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        else:
            continue
        # A limit of any group above counts as well. In a container the path may be the host's, and not be there: what
        # the container may use stands at the top then.
        steps = [step for step in group.split("/") if step not in ("", "..")]
        for mount in mounts:
            for depth in range(len(steps) + 1):
                limits.append(_granted_cpus(os.path.join(_CGROUP_MOUNTS, mount, *steps[:depth]), names))
    return min(limits)


def _granted_cpus(folder: str, names: list[str]) -> float:
    """What one cgroup grants; the files ``names`` hold its quota and its period."""
    words = []
    try:
        for name in names:
            with open(os.path.join(folder, name)) as file:
                words += file.read().split()
        quota, period = map(int, words)
    except (OSError, ValueError):  # not there, not ours to read, or "max"
        return math.inf
    return quota / period if quota > 0 and period > 0 else math.inf  # no limit is -1 in version 1


def seconds(value: Any, name: str, *, zero: bool = False) -> float | None:
    """A time limit, an argument called ``name``, as what the system takes; None for any time.

    Args:
        value: What was given: seconds, or None. Infinity, and more than the system can wait, are any time.
        name: What the argument is called.
        zero: Whether 0 seconds are a limit. Less is, too, as in gymnasium: who passes what is left may be late.

    Raises:
        ValueError: It is too small, or no number at all (NaN).
        TypeError: It is neither a real number nor None.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"Expected {name} to be a number of seconds, or None, got {value!r}.")
    if value != value or (value <= 0 and not zero):  # NaN equals nothing; isnan() takes no large integer
        bound = "to be a number of seconds" if zero else "above 0 seconds"
        raise ValueError(f"Expected {name} {bound}, or None, got {value!r}.")
    return None if value >= _ANY_TIME_SECONDS else float(max(0, value))


def positive(value: Any, name: str) -> int:
    """``value``, an argument called ``name``, as an int from 1 up.

    Raises:
        ValueError: It is none.
    """
    return _integer(value, 1, f"{name} to be a positive integer")


def not_negative(value: Any, name: str) -> int:
    """``value``, an argument called ``name``, as an int from 0 up.

    Raises:
        ValueError: It is none.
    """
    return _integer(value, 0, f"{name} to be an integer from 0 up")


def _integer(value: Any, least: int, expected: str) -> int:
    if not _is_integer(value) or value < least:
        raise ValueError(f"Expected {expected}, got {value!r}.")
    return int(value)


def _is_integer(value: Any) -> bool:
    """Whether it is an integer; not a bool, which Python counts among them, and which is meant for another argument."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_slots(slots: Any, most: int) -> int:
    """``slots`` as an int from 1 to ``most``.

    Raises:
        ValueError: It is none.
    """
    number = positive(slots, "slots")
    if number > most:
        raise ValueError(f"Expected slots of at most {most}, got {slots}. Use shorter rollouts.")
    return number


def check_batch_size(batch_size: Any, num_envs: int, slots: int, shared_memory: bool) -> int:
    """``batch_size`` as an int from 1 to ``num_envs``, which is what None stands for.

    Raises:
        ValueError: It is none, or does not go together with ``slots`` or ``shared_memory``.
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


def check_concurrency(value: Any) -> int | None:
    """``max_concurrency``, if it is one.

    Raises:
        ValueError: It is none.
    """
    if value is None:
        return None
    if not _is_integer(value):
        raise ValueError(f"`max_concurrency` must be an integer or None, got {type(value)}.")
    if value < 1:
        raise ValueError(f"`max_concurrency` must be a positive or None, got {value}.")
    return int(value)


def check_flags(**flags: Any) -> None:
    """Refuses arguments that are no bools: most of what is meant as no, as the text "no", is true.

    Raises:
        TypeError: One of them is none.
    """
    for name, value in flags.items():
        if not isinstance(value, bool | np.bool_) and not (type(value) is int and value in (0, 1)):
            raise TypeError(f"Expected {name} to be True or False, got {value!r}.")


def check_context(context: Any) -> None:
    """Refuses what is no start method, also where no process is started.

    Raises:
        ValueError: It is none.
    """
    methods = multiprocessing.get_all_start_methods()
    if context is not None and context not in methods:
        raise ValueError(f"cannot find context for {context!r}. Expected context to be None or one of {methods}.")


def as_autoreset_mode(mode: Any) -> AutoresetMode:
    """The mode that is called so.

    Raises:
        ValueError: None is.
    """
    try:
        return AutoresetMode(mode)
    except ValueError as error:
        modes = [known.value for known in AutoresetMode]
        raise ValueError(f"{error}. Expected autoreset_mode to be one of {modes}.") from None


def check_mode(mode: Any) -> None:
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
