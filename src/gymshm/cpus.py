"""How many CPUs this process may use: what its affinity mask and its cgroups leave of those that there are."""

from __future__ import annotations

import math
import os

__all__ = ["usable_cpus"]

#: Where the kernel tells which cgroups this process is in, and where their files are.
_OWN_CGROUPS, _CGROUP_MOUNTS = "/proc/self/cgroup", "/sys/fs/cgroup"


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
