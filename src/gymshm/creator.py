"""Which process made a segment, and whether it still lives.

A pid alone does not tell: pids are given out anew. So the process's start time goes with it, and the boot and the pid
namespace that both belong to: a container that shares ``/dev/shm`` with others must not take their processes for dead.

Where a pid can't tell, a lock does: a creator holds one on its segment, the kernel releases it when the creator and
the processes forked from it have ended, in whatever way, and it can be seen from every namespace. Whoever holds it is
alive, whatever its pid suggests.
"""

from __future__ import annotations

import enum
import functools
import os
from dataclasses import dataclass

__all__ = ["Creator", "Status", "status", "this_process"]


class Status(enum.Enum):
    """What is known of a segment's creator."""

    #: It runs, or a process runs that was forked from it and has the segment still.
    ALIVE = "alive"
    ORPHANED = "orphaned"
    #: It runs, or ran, where nothing can be said from here: on another kernel, say.
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


@functools.cache
def this_process() -> Creator:
    """The calling process; what ``/proc`` says of it is read once."""
    return Creator(os.getpid(), _start_time("self") or 0, _boot(), pid_namespace())


def status(creator: Creator, locked: bool | None) -> Status:
    """Whether ``creator`` still lives.

    Args:
        creator: As the segment's header tells it.
        locked: Whether somebody holds the creator's lock; None where the system does not tell.
    """
    if locked:
        return Status.ALIVE
    if creator.boot != _boot():
        return Status.UNKNOWN  # shared memory does not outlive a boot: so it is another machine's
    if creator.pid_namespace != pid_namespace():
        return Status.UNKNOWN if locked is None else Status.ORPHANED
    if creator.pid <= 0:
        return Status.ORPHANED
    try:
        os.kill(creator.pid, 0)
    except (ProcessLookupError, OverflowError):
        return Status.ORPHANED
    except PermissionError:
        pass  # it lives, and is another user's
    start = _start_time(str(creator.pid)) if _proc_is_ours() else None
    return Status.ALIVE if start is None or creator.start in (start, 0) else Status.ORPHANED


def pid_namespace() -> str:
    """What tells the pid namespace of this process from others; empty where the system does not tell."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _start_time(pid: str) -> int | None:
    """Clock ticks from boot to the start of ``pid``; None where the system does not tell, or the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The second field is the command in parentheses, which may hold blanks; the 22nd is the start time.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    # A zombie holds nothing any more: as good as gone.
    return -1 if fields[0] in (b"Z", b"X") else int(fields[19])


def _proc_is_ours() -> bool:
    """Whether the pids in ``/proc`` are those of this namespace."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


@functools.cache
def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


# Not by pid: a fork that begins a pid namespace may have its parent's.
os.register_at_fork(after_in_child=this_process.cache_clear)
