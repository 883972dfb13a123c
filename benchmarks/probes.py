"""Which processes there are, and what they cost beside time: memory and CPU use. From ``/proc``, so Linux only."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

__all__ = ["cpu_share", "descendants", "group_lives", "pss"]


def _processes() -> Iterator[tuple[int, str, int, int]]:
    """Pid, state, parent and process group of every process."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    state, parent, group = file.read().rpartition(")")[2].split()[:3]
            except OSError:
                continue  # ended meanwhile
            yield int(entry), state, int(parent), int(group)


def group_lives(group: int) -> bool:
    """Whether a process of ``group`` is left; one that has ended and waits for its parent to notice is not."""
    return any(its_group == group and state not in "ZX" for _, state, _, its_group in _processes())


def descendants() -> list[int]:
    """Pids of all processes that this one started, directly or not."""
    children: dict[int, list[int]] = {}
    for pid, _, parent, _ in _processes():
        children.setdefault(parent, []).append(pid)
    found, queue = [], [os.getpid()]
    while queue:
        queue += (pids := children.get(queue.pop(), []))
        found += pids
    return found


def pss(pids: list[int]) -> int:
    """Bytes of memory of ``pids`` together: what several share counts for each in proportion."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup") as lines:
            total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def cpu_share(pids: list[int], seconds: float) -> float:
    """CPU time that ``pids`` use while this process sleeps for ``seconds``, as a share of one CPU."""
    before, start = _cpu_seconds(pids), time.perf_counter()
    time.sleep(seconds)
    return (_cpu_seconds(pids) - before) / (time.perf_counter() - start)


def _cpu_seconds(pids: list[int]) -> float:
    """By the scheduler's own account, in nanoseconds: the one in clock ticks is too coarse for one percent."""
    total = 0
    for pid in pids:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
                total += int(file.read().split()[0])
    return total * 1e-9
