"""What a process holds, and what is left of one that has ended: counted from /proc, where nothing can hide."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

__all__ = ["held", "pss", "segments_of", "session", "settled"]


def held() -> dict[str, int]:
    """How many descriptors, threads, children (zombies included) and segments this process has."""
    gc.collect()
    pid = os.getpid()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")) - 1,  # the listing's own
        "threads": threading.active_count(),
        "children": sum(fields[1] == str(pid) for _, fields in _processes()),
        "segments": len(segments_of([pid])),
    }


def segments_of(pids: Iterable[int]) -> list[str]:
    """The names of segments, and of links to those that are files, that these processes made: a name tells."""
    prefixes = tuple(f"gymshm-{pid}-" for pid in pids)
    return [name for name in os.listdir("/dev/shm") if prefixes and name.startswith(prefixes)]


def session(leader: int) -> list[int]:
    """The processes of the session that ``leader`` began, zombies included: whatever was started there in any way."""
    return [pid for pid, fields in _processes() if fields[3] == str(leader)]


def pss(pids: Iterable[int]) -> dict[str, int]:
    """The memory of processes together, in bytes, what they share counting once: all of it, and their "own" pages.

    Own ones are no file's. Those of libraries are shared with every interpreter of the machine: their share falls and
    rises as others start and end (measured: by 12 MB with eight of them), whatever these processes do.
    """
    total = {"PSS": 0, "own pages": 0}
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup") as lines:
            told = {line.split()[0]: int(line.split()[1]) << 10 for line in lines if line.startswith("Pss")}
        total["PSS"] += told["Pss:"]
        total["own pages"] += told["Pss_Anon:"] + told["Pss_Shmem:"]
    return total


def settled(look: Callable[[], Any], wanted: Any, seconds: float = 20.0) -> Any:
    """What ``look()`` gives once that is ``wanted``, or after ``seconds``: ends take a moment."""
    deadline = time.monotonic() + seconds
    while (seen := look()) != wanted and time.monotonic() < deadline:
        time.sleep(0.02)
    return seen


def _processes() -> Iterator[tuple[int, list[str]]]:
    """pid, and (state, parent, group, session, ...) of every process."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                yield int(entry), file.read().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
