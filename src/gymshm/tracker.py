"""What removes this process's names when it is killed: CPython's resource tracker, one per creating process.

A tracker is a small process at the other end of a pipe. When the pipe breaks, because its process ended in whatever
way, it unlinks the names that it was told of. Why not the one that ``multiprocessing`` starts for everybody (each
was measured):

1. It writes to stderr what it unlinks. There is nothing to report: that is its job here. Ours is started with that
   warning off.
2. It is shared by a process and all of its children, and waits for the last of them. What a killed child made would
   stay for as long as its parent runs, and what a killed parent made for as long as any child does.
3. A signal to the whole process group (a terminal that closes, a batch system that warns with SIGUSR1) ends it together
   with the process that it watches. Ours has all signals blocked.
4. Talking to it takes a lock. A finalizer that garbage collection runs inside of that lock waits for itself for ever
   (Python 3.10). Ours is told by one ``write`` to its pipe, which is atomic.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from multiprocessing import resource_tracker
from multiprocessing.resource_tracker import ResourceTracker
from typing import Any

__all__ = ["expect", "forget", "start", "start_common", "watch"]

_tracker: Any = ResourceTracker()

#: Names that the tracker knows of, and what tells which object each one is: a name can be given anew.
_watched: dict[str, object] = {}

#: Held while the tracker is started, and around a fork: no child may inherit a tracker that is half started.
_lock = threading.RLock()


def start() -> None:
    """Starts the tracker, if it does not run; for before the first object is made, since it takes milliseconds."""
    with _lock:
        if not _tell("PROBE:0:noop"):
            _launch()
            for name in list(_watched):  # the one before was killed
                _tell(f"REGISTER:/{name}:shared_memory")


def start_common() -> None:
    """Starts the tracker of ``multiprocessing``, if it does not run; for before a process is spawned.

    Spawning needs it, and would start it in the middle; and its start lets SIGINT through that was held back.
    """
    resource_tracker.ensure_running()


def expect(name: str) -> object:
    """Watches a name that this process is about to make: killed between making and watching, it would leave the name.

    Returns:
        What stands for the object until there is one, for :func:`forget`.
    """
    unborn = object()
    if _watched.setdefault(name, unborn) is unborn:
        watch(name, unborn)
    return unborn


def watch(name: str, identity: object) -> None:
    """Has the shared-memory object ``name`` unlinked when this process ends; ``identity`` is its (device, inode)."""
    _watched[name] = identity
    if not _tell(f"REGISTER:/{name}:shared_memory"):
        start()


def forget(name: str, identity: object) -> None:
    """Takes back :func:`watch`; nothing happens where this process does not watch that object under ``name``.

    Finalizers call it, wherever garbage collection runs: it takes no lock.
    """
    if _watched.get(name) == identity:
        _watched.pop(name, None)
        # Registered once more first, which does no harm: it complains of a name that it does not know.
        _tell(f"REGISTER:/{name}:shared_memory\nUNREGISTER:/{name}:shared_memory")


def _tell(message: str) -> bool:
    """Writes one line to the tracker; False where none runs."""
    descriptor = _tracker._fd
    if descriptor is None:
        return False
    try:
        os.write(descriptor, f"{message}\n".encode("ascii"))
    except OSError:
        return False
    return True


def _launch() -> None:
    with contextlib.suppress(ChildProcessError):
        _tracker._stop()  # of one that was killed: closes our end, and waits for it
    # Its command line repeats this interpreter's -W options, which is the way to hand a filter over. The signal mask is
    # inherited.
    quiet = "ignore:resource_tracker"
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        sys.warnoptions.append(quiet)
        _tracker.ensure_running()
    finally:
        with contextlib.suppress(ValueError):
            sys.warnoptions.remove(quiet)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _after_fork() -> None:
    """In the child: lets go of the parent's tracker, which otherwise would wait for the child, too."""
    try:
        if _tracker._fd is not None:
            with contextlib.suppress(OSError):  # who becomes a daemon closes all descriptors first, and then forks
                os.close(_tracker._fd)
            _tracker._fd = _tracker._pid = None
        _watched.clear()
    finally:
        _lock.release()  # or no thread of the child would ever start one


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_after_fork)
