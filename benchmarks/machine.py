"""What the figures were measured on, in general terms: no host name, no path."""

from __future__ import annotations

import datetime
import os
import platform
from importlib.metadata import PackageNotFoundError, version

__all__ = ["cpus", "describe", "sentence"]


def cpus() -> int:
    """Number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe(*packages: str) -> dict[str, object]:
    """Machine, versions, date, and the load that other programs caused when the run began.

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
        "load": round(os.getloadavg()[0], 2),
    }


def sentence(machine: dict[str, object]) -> str:
    """What :func:`describe` gave, as a line to print above a table."""
    versions = machine["versions"]
    assert isinstance(versions, dict)
    packages = ", ".join(f"{name} {number}" for name, number in versions.items())
    return (
        f"{machine['date']}: {machine['cpu']}, {machine['cpus']} CPUs, {machine['system']}, "
        f"Python {machine['python']}, {packages}; load of other programs: {machine['load']}"
    )


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown CPU"
