"""Named bytes that processes share, made by some process: opening, mapping, listing and unlinking them.

They are a POSIX shared-memory object, or a file where ``/dev/shm`` has no room. This module and its neighbours
(``tracker``, ``links``, ``allocation``) alone touch shared memory, the resource tracker, ``/dev/shm`` and the temporary
directory. They know nothing of headers or plans. Facts they are built on, each measured:

1. ``ftruncate`` promises room that ``/dev/shm`` does not have; the first write past the end is a SIGBUS that kills the
   process without a traceback. So every page is reserved at creation (``posix_fallocate``).
2. ``multiprocessing``'s ``SharedMemory`` unmaps under a live ``np.ndarray(buffer=...)``, complains about a live
   ``np.frombuffer(...)``, and its attaching deletes the owner's segment when the attacher ends (before Python 3.13). So
   the objects are opened here, by the function that it calls. There is one *root array* per mapping, and the mapping
   lives as long as the last array over it.
3. The name belongs to the process that made it, and goes with the root array there, at the latest when that process
   ends. What is forked from it does not inherit that.
4. A name can be removed by others, and given anew to another object while the first one is still mapped. So nobody
   unlinks a name before seeing that it still leads to the very object, told by device and inode.
5. A signal handler can raise, and a signal kill, between any two instructions. So the tracker hears of a name before
   there is an object, the object is noted by the very call that makes it, and what removes it is in place before
   anything else is done with it.
6. A creator holds a lock on its object (``flock``), which the kernel releases when it ends (see ``creator``).
7. macOS caps names near 31 characters and can't enumerate them.
"""

from __future__ import annotations

import _posixshmem
import contextlib
import errno
import fcntl
import mmap
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from . import links, tracker
from .errors import SegmentFormatError, SegmentNotFoundError

__all__ = ["Backing", "attach", "identity_of", "is_taken", "names", "read_head"]

#: Seconds that :meth:`Backing.unlink_unused` waits for others that look at the lock, each for a moment.
_LOCK_PATIENCE = 1.0

#: Where objects that have something to do with a segment have its name.
_NAMED_BY = ("segment_name", "name", "segment.name")


@dataclass(frozen=True)
class Backing:
    """The name of mapped bytes. It holds no mapping: that lives and dies with the arrays over it.

    Attributes:
        name: What others attach by.
        identity: (device, inode) of what it led to.
        path: Where the bytes are a file, the path by which it can be opened; else None.
    """

    name: str
    identity: tuple[int, int]
    path: str | None = None

    def unlink(self) -> bool:
        """Removes the name; False where it is gone, or leads to something else by now (fact 4).

        Finalizers call it, wherever garbage collection runs: it takes no lock. Looking for a link would, the first time
        that a process looks for its temporary directory; and who has made a file has done that.
        """
        removed = self._unlink_object() if self.path is None else links.unlink(self.name, self.identity)
        tracker.forget(self.name, self.identity)  # not where that failed: the tracker may yet be allowed to
        return removed

    def unlink_unused(self) -> bool:
        """Removes the name, if nobody holds the creator's lock; False also where somebody else was faster."""
        try:
            descriptor, _ = _open(self.name, os.O_RDONLY)
        except FileNotFoundError:
            return links.unlink(self.name, self.identity)  # a link that leads nowhere
        try:
            deadline = time.monotonic() + _LOCK_PATIENCE
            while _is_locked(descriptor, fcntl.LOCK_EX):
                if _is_locked(descriptor, fcntl.LOCK_SH) or time.monotonic() > deadline:
                    return False
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # or two that wait here would wait for each other
                time.sleep(0.001)
            # Whoever else removes what is unused waits for this lock: so the name can't be given anew meanwhile.
            return self.unlink()
        finally:
            os.close(descriptor)

    def is_locked(self) -> bool | None:
        """Whether somebody holds the creator's lock (fact 6); None where the system does not tell.

        Raises:
            SegmentNotFoundError: The name is gone, or leads to something else by now.
        """
        descriptor, _ = _open(self.name, os.O_RDONLY)
        try:
            if identity_of(descriptor) != self.identity:
                raise _not_found(self.name)
            return _is_locked(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)

    def _unlink_object(self) -> bool:
        try:
            descriptor = _open_object(self.name, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            if identity_of(descriptor) != self.identity:
                return False
            _posixshmem.shm_unlink(f"/{self.name}")
        except FileNotFoundError:
            return False
        finally:
            os.close(descriptor)
        return True


def attach(name: str, *, writeable: bool = True) -> tuple[Backing, np.ndarray]:
    """Maps the bytes that some process made under ``name``: its name, and the root array, shape ``(nbytes,)``.

    Raises:
        SegmentNotFoundError: Nothing has that name.
        SegmentFormatError: It has no bytes.
        ValueError: ``name`` can't be a name.
        OSError: It may not be opened or mapped.
    """
    _check_name(name)
    descriptor, path = _open(name, os.O_RDWR if writeable else os.O_RDONLY)
    try:
        told = os.fstat(descriptor)
        # macOS tells no type of a shared-memory object.
        if told.st_size == 0 or stat.S_IFMT(told.st_mode) not in (0, stat.S_IFREG):
            raise SegmentFormatError(name, f"Segment {name!r} can't be read: it has no bytes.")
        access = mmap.ACCESS_WRITE if writeable else mmap.ACCESS_READ
        mapping = mmap.mmap(descriptor, told.st_size, access=access)
        return Backing(name, (told.st_dev, told.st_ino), path), np.frombuffer(mapping, np.uint8)
    finally:
        os.close(descriptor)


def is_taken(name: str) -> bool:
    """Whether something has that name, as far as that can be seen: macOS shows nothing."""
    return os.path.lexists(os.path.join(links.SHM_DIRECTORY, name)) or links.find(name) is not None


def read_head(name: str, fixed: int, nbytes_of: Callable[[bytes], int]) -> tuple[Backing, bytes, int]:
    """Reads the first bytes under ``name``, without mapping them; also how many there are in all.

    Args:
        name: The name.
        fixed: How many bytes to read at first.
        nbytes_of: Tells from these how many to read in the end.

    Raises:
        SegmentNotFoundError: Nothing has that name.
        SegmentFormatError: It is no regular file.
        ValueError: ``name`` can't be a name.
        OSError: It may not be opened.
    """
    _check_name(name)
    descriptor, path = _open(name, os.O_RDONLY)
    try:
        told = os.fstat(descriptor)
        if stat.S_IFMT(told.st_mode) not in (0, stat.S_IFREG):
            raise SegmentFormatError(name, f"Segment {name!r} can't be read: it has no bytes.")
        head = os.pread(descriptor, fixed, 0)
        head += os.pread(descriptor, max(0, min(nbytes_of(head), told.st_size) - len(head)), len(head))
        return Backing(name, (told.st_dev, told.st_ino), path), head, told.st_size
    finally:
        os.close(descriptor)


def names(prefix: bytes) -> Iterator[str]:
    """The names of all shared-memory objects whose bytes start with ``prefix``, and of all files that have a link."""
    found = set(links.names())
    with contextlib.suppress(OSError), os.scandir(links.SHM_DIRECTORY) as entries:  # macOS has none
        found |= {entry.name for entry in entries if entry.is_file(follow_symlinks=False) and _begins(entry, prefix)}
    yield from sorted(found)


def _begins(entry: os.DirEntry[str], prefix: bytes) -> bool:
    try:
        descriptor = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False  # gone meanwhile, or another user's
    try:
        return os.read(descriptor, len(prefix)) == prefix
    finally:
        os.close(descriptor)


def _open(name: str, access: int) -> tuple[int, str | None]:
    """A descriptor of what ``name`` leads to; with its path, where that is a file.

    Raises:
        SegmentNotFoundError: It leads nowhere.
        OSError: It may not be opened.
    """
    link = links.find(name)
    try:
        if link is None:
            return _open_object(name, access), None
        return link.open(access), link.path
    except FileNotFoundError:
        if link is not None and not link.reachable:
            raise SegmentNotFoundError(
                name, f"Segment {name!r} is a file that only processes in its creator's pid namespace can open."
            ) from None
        raise _not_found(name) from None


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        remedy = next((f" Give its `{known}`." for known in _NAMED_BY if hasattr(name, known.partition(".")[0])), "")
        raise TypeError(f"Expected the name of a segment, a str, got {type(name).__name__}.{remedy}")
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"Expected a name without '/' and NUL, got {name!r}.")


def _open_object(name: str, access: int) -> int:
    try:
        # NONBLOCK: a pipe of that name must not hold us.
        descriptor: int = _posixshmem.shm_open(f"/{name}", access | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOSYS, errno.ENAMETOOLONG):  # somebody's link; there are no such objects
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name) from error
        if error.errno in (errno.EISDIR, errno.EINVAL, errno.ENXIO):  # a directory, for glibc too; a socket
            raise SegmentFormatError(name, f"Segment {name!r} can't be read: it is no memory.") from None
        raise
    return descriptor


def _is_locked(descriptor: int, kind: int) -> bool | None:
    """Whether others hold a lock that forbids one of ``kind``, which is taken otherwise; None without locks."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def identity_of(descriptor: int) -> tuple[int, int]:
    """(device, inode) of what is open as ``descriptor``."""
    told = os.fstat(descriptor)
    return told.st_dev, told.st_ino


def _not_found(name: str) -> SegmentNotFoundError:
    return SegmentNotFoundError(
        name,
        f"Expected a segment named {name!r}, found none. `python -m gymshm list` shows which there are; its creator "
        "may have ended.",
    )
