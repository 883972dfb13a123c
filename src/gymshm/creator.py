"""Which process made a segment, and whether it still lives.

A pid alone does not tell: pids are given out anew. So the process's start time goes with it, and the boot and the pid
namespace that both belong to: a container that shares ``/dev/shm`` with others must not take their processes for dead.
"""

from __future__ import annotations

import enum
import functools
import os
from dataclasses import dataclass

__all__ = ["Creator", "Status", "status", "this_process"]


class Status(enum.Enum):
    """What is known of a segment's creator."""

    ALIVE = "alive"
    ORPHANED = "orphaned"
    #: It runs, or ran, in another pid namespace (another container, say): nothing can be said from here.
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Creator:
    """One process, told from every other one.

    Attributes:
        pid: Its pid.
        start: When it started, in the system's own unit; 0 where the system does not tell.
        boot: The boot it runs under; empty where unknown.
        pid_namespace: The namespace that ``pid`` belongs to; empty where unknown.
    """

    pid: int
    start: int
    boot: str
    pid_namespace: str


def this_process() -> Creator:
    """The calling process."""
    pid = os.getpid()
    return Creator(pid, _start_time(pid) or 0, _boot(), _pid_namespace())


def status(creator: Creator) -> Status:
    """Whether ``creator`` still lives."""
    if creator.boot != _boot():
        return Status.ORPHANED
    if creator.pid_namespace != _pid_namespace():
        return Status.UNKNOWN
    try:
        os.kill(creator.pid, 0)
    except (ProcessLookupError, OverflowError):
        return Status.ORPHANED
    except PermissionError:
        pass  # it lives, and is another user's
    if creator.pid <= 0 or _start_time(creator.pid) not in (creator.start, None):
        return Status.ORPHANED
    return Status.ALIVE


def _start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of ``pid``; None where the system does not tell, or the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The second field is the command in parentheses, which may hold blanks; the 22nd is the start time.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    # A zombie holds nothing any more: as good as gone.
    return -1 if fields[0] == b"Z" else int(fields[19])


@functools.cache
def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
