"""What the figures were measured on, in general terms: no host name, no path."""

from __future__ import annotations

import datetime
import os
import platform
import resource
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

__all__ = ["TOLERABLE", "Neighbours", "cpus", "describe", "sentence"]

#: The share of the CPUs that others may take before figures say little of what was to be measured.
TOLERABLE = 0.05


def cpus() -> int:
    """Number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe(*packages: str) -> dict[str, Any]:
    """Machine, versions, date.

    Args:
        packages: Distributions whose versions are told too, where they are installed.
    """
    versions = {}
    for package in ("numpy", "gymnasium", "gymshm", *packages):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "cpu": _cpu_model(),
        "cpus": cpus(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": versions,
        "date": datetime.date.today().isoformat(),
    }


def sentence(machine: dict[str, Any]) -> str:
    """What :func:`describe` gave, and the share of ``Neighbours`` as "others", as lines to print above a table."""
    packages = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    warning = "" if machine["others"] <= TOLERABLE else ": too much, **take the figures for provisional**"
    return (
        f"{machine['date']}: {machine['cpu']}, {machine['cpus']} CPUs, {machine['system']}, "
        f"Python {machine['python']}, {packages}.\n"
        f"Meanwhile others took {100 * machine['others']:.0f} % of the CPUs{warning}."
    )


class Neighbours:
    """How much of the CPUs was taken by others, from now on: programs that are not ours, and other virtual machines."""

    def __init__(self) -> None:
        self._start, self._busy, self._own = time.monotonic(), _busy_seconds(), _own_seconds()

    def share(self) -> float:
        """The share of all CPUs that others took; processes of ours count once they have ended."""
        others = _busy_seconds() - self._busy - (_own_seconds() - self._own)
        return max(0.0, others) / ((time.monotonic() - self._start) * (os.cpu_count() or 1))


def _busy_seconds() -> float:
    """What the whole machine worked, and what its host withheld."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq, steal = (int(word) for word in file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown CPU"
