"""Memory order: what may be relied on between processes that share memory, and how to get it in pure Python.

A store of 8 aligned bytes through a memoryview is one store: nobody sees half of it. On x86 the stores of one process
are seen by others in their order, and loads happen in theirs. Elsewhere (Arm) both may overtake each other, unless a
fence stands between them. And nowhere is a store seen for sure before a later load of the same process is done.

Pure Python has one way to a fence: taking and releasing a lock. Once is a full barrier on x86, where both are locked
instructions. Elsewhere taking is an acquire and releasing is a release: what stands before the first release stays
before it, what stands behind the second acquire stays behind it, and a release is not overtaken by a later acquire.
Hence twice.
"""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Callable

__all__ = ["STORES_ARE_ORDERED", "fence", "store_fence"]

#: Whether the machine orders stores among themselves, and loads among themselves.
STORES_ARE_ORDERED = platform.machine().lower() in {"x86_64", "amd64", "i686", "i386", "x86"}

_lock = threading.Lock()


def _new_lock() -> None:
    global _lock
    _lock = threading.Lock()  # a fork may have copied it as taken


os.register_at_fork(after_in_child=_new_lock)


def _pass_lock() -> None:
    lock = _lock
    if lock.acquire(False):
        lock.release()
    else:
        # Another thread's, or left taken by an interrupt just there. It guards nothing: any other lock does as well.
        _new_lock()
        with _lock:
            pass


def _pass_lock_twice() -> None:
    _pass_lock()
    _pass_lock()


#: Keeps all stores and loads before it before, and all behind it behind. (Chosen here: every step has a few of them.)
fence: Callable[[], None] = _pass_lock if STORES_ARE_ORDERED else _pass_lock_twice


def store_fence() -> None:
    """Keeps stores apart from stores, and loads from loads; nothing to do where the machine does so by itself."""
    if not STORES_ARE_ORDERED:
        fence()
