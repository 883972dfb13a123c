"""Making named bytes: every page of them there, owned by this process, gone with it.

Two functions, one for each place: :func:`create` in shared memory, :func:`create_file` where that has no room. The
facts that both are built on stand in ``backing``.
"""

from __future__ import annotations

import _posixshmem
import contextlib
import errno
import fcntl
import mmap
import os
import re
import secrets
import stat
import sys
import tempfile
import warnings
from multiprocessing import util

import numpy as np

from . import links, tracker
from .backing import Backing, identity_of, is_taken
from .errors import FallbackWarning, SegmentExistsError

__all__ = ["NoRoomError", "create", "create_file", "room"]

_LONGEST_NAME = 30 if sys.platform == "darwin" else 200

#: What a resource tracker can be told: one line of ASCII, with colons between its words.
_NAME = re.compile(r"[!-.0-9;-~]+")

#: Errors of the system that mean "no memory to be had here", as opposed to a mistake of the caller.
_NO_ROOM = {
    *(errno.ENOSPC, errno.ENOMEM, errno.EFBIG, errno.EDQUOT, errno.EOPNOTSUPP),
    *(errno.ENOSYS, errno.ENODEV, errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS),
}

#: Bytes that are reserved at a time. Older kernels restart a reservation at every signal: each has to be done before
#: the next signal comes, or a profiler's timer would hold it up for ever.
_RESERVE = 1 << 26

_REMEDY = (
    "Give shared memory more room: with Docker, `docker run --shm-size=8g`; else `mount -o remount,size=8g /dev/shm`"
)


class NoRoomError(OSError):
    """Shared memory can't hold what was asked for."""


def create(name: str | None, nbytes: int, head: bytes) -> tuple[Backing, np.ndarray]:
    """New zeroed bytes in shared memory, under a name that nobody has; every page of them is there.

    Args:
        name: The name, or None for a new one.
        nbytes: Bytes, at least as many as ``head`` has.
        head: The bytes that stand first. They are there before room is made for the rest: whatever happens then, others
            can tell whose it is.

    Returns:
        The name, and the root array: shape ``(nbytes,)``, bytes. The name goes with it.

    Raises:
        SegmentExistsError: ``name`` is in use.
        ValueError: ``name`` can't be a name.
        NoRoomError: There is no room; :func:`create_file` may have it.
    """
    if name is not None and is_taken(_new_name(name)):
        raise _in_use(name)  # before the tracker hears of it: it is not ours to remove
    name = _new_name(name)
    opened: list[int] = []
    unborn: object = None
    try:
        unborn = tracker.expect(name)
        # One call, all of it in C, makes the object and notes it (fact 5).
        opened.extend(map(_posixshmem.shm_open, (f"/{name}",), (os.O_RDWR | os.O_CREAT | os.O_EXCL,), (0o600,)))
        made = Backing(name, identity_of(opened[0]))
        tracker.watch(name, made.identity)
        return made, _owned_root(_map_new(opened[0], nbytes, head), made)
    except BaseException as error:
        tracker.forget(name, unborn)
        if opened:
            Backing(name, identity_of(opened[0])).unlink()
        elif isinstance(error, FileExistsError):
            raise _in_use(name) from None
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            raise NoRoomError(error.errno, error.strerror) from error
        raise
    finally:
        for descriptor in opened:
            os.close(descriptor)  # the mapping has one of its own


def create_file(name: str | None, nbytes: int, head: bytes, reason: NoRoomError) -> tuple[Backing, np.ndarray]:
    """As :func:`create`, in a file of the temporary directory, and warns of that.

    Args:
        name: As for :func:`create`.
        nbytes: As for :func:`create`.
        head: As for :func:`create`.
        reason: Why :func:`create` failed.

    Raises:
        SegmentExistsError: ``name`` is in use.
        OSError: There is no room in the temporary directory either.
    """
    name = _new_name(name)
    identity = (0, 0)
    try:
        with tempfile.TemporaryFile(prefix="gymshm-", buffering=0) as file:
            identity = identity_of(file.fileno())
            mapping = _map_new(file.fileno(), nbytes, head)
            tracker.watch(name, identity)
            link = links.make(name, _descriptor_of_mapping(identity, besides=file.fileno()), identity)
            made = Backing(name, identity, link.path)
            root = _owned_root(mapping, made)
        _warn_of_file(nbytes, reason)
        return made, root
    except BaseException as error:
        Backing(name, identity).unlink()
        if isinstance(error, FileExistsError):
            raise _in_use(name) from None
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            raise OSError(
                error.errno,
                f"Expected room for a segment of {nbytes} bytes, got {room()} bytes free in "
                f"{links.SHM_DIRECTORY} ({reason.strerror}) and {room(_temporary_directory())} bytes free in "
                f"{_temporary_directory()} ({error.strerror}). {_REMEDY}, or set TMPDIR to a larger disk",
            ) from error
        raise


def _map_new(descriptor: int, nbytes: int, head: bytes) -> mmap.mmap:
    """Gives a new object its size, its lock, its ``head`` and its pages."""
    if stat.S_IMODE(os.fstat(descriptor).st_mode) != 0o600:
        os.fchmod(descriptor, 0o600)  # a umask took something away
    told = os.fstatvfs(descriptor)
    if nbytes > sys.maxsize or (told.f_blocks and told.f_bavail * told.f_frsize < nbytes):
        # Reserving would find out, too, after it has taken everything that there is from everybody.
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.ftruncate(descriptor, nbytes)
    _reserve(descriptor, 0, len(head))
    mapping = mmap.mmap(descriptor, nbytes)
    try:
        with contextlib.suppress(OSError):  # not every file system has locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        mapping[: len(head)] = head
        _reserve(descriptor, len(head), nbytes)
    except BaseException:
        mapping.close()
        raise
    return mapping


def _reserve(descriptor: int, start: int, stop: int) -> None:
    if hasattr(os, "posix_fallocate"):  # not on macOS, whose shared memory can't be reserved
        for offset in range(start, stop, _RESERVE):
            os.posix_fallocate(descriptor, offset, min(_RESERVE, stop - offset))


def _owned_root(mapping: mmap.mmap, made: Backing) -> np.ndarray:
    """The root array over ``mapping``, with which the name goes (fact 3)."""
    root = np.frombuffer(mapping, np.uint8)
    # Not weakref.finalize: that one does not run when a process of multiprocessing ends. The priority is below zero: it
    # runs after multiprocessing has joined this process's children, which may attach until then.
    util.Finalize(root, _unlink_quietly, (made,), exitpriority=-10)
    return root


def _unlink_quietly(made: Backing) -> None:
    with contextlib.suppress(OSError):  # nobody is there to be told, as when the process has changed its user
        made.unlink()


def _descriptor_of_mapping(identity: tuple[int, int], besides: int) -> int:
    """The descriptor that a mapping keeps of its file, and which ``mmap`` does not tell."""
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own
            if int(entry) != besides and identity_of(int(entry)) == identity:
                return int(entry)
    raise OSError(errno.ENOSYS, "/proc does not show this process's files")


def _warn_of_file(nbytes: int, reason: NoRoomError) -> None:
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and (frame.f_globals.get("__package__") or "").partition(".")[0] == __package__:
        frame, level = frame.f_back, level + 1  # to the caller's own line
    warnings.warn(
        FallbackWarning(
            f"Shared memory has no room ({reason.strerror}): {nbytes} bytes were needed, "
            f"{room()} bytes are free in {links.SHM_DIRECTORY}. The segment is a file in "
            f"{_temporary_directory()} instead, which is slower. {_REMEDY}."
        ),
        stacklevel=level,
    )


def room(directory: str = links.SHM_DIRECTORY) -> int:
    """Bytes that are free in shared memory, or in some directory; 0 where there is none of that name."""
    try:
        told = os.statvfs(directory)
    except OSError:
        return 0
    return told.f_bavail * told.f_frsize


def _temporary_directory() -> str:
    try:
        return tempfile.gettempdir()
    except OSError:
        return "the temporary directory"


def _in_use(name: str) -> SegmentExistsError:
    return SegmentExistsError(
        name,
        f"Expected a name that is not in use, got {name!r}, which is. Choose another one, or attach to it with "
        f"`gymshm.attach({name!r})`.",
    )


def _new_name(name: object) -> str:
    """``name``, if it can be one; a new one for None."""
    if name is None:
        return f"gymshm-{os.getpid()}-{secrets.token_hex(4)}"
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in (".", ".."):
        raise ValueError(f"Expected a name of printable ASCII characters without ' ', '/' and ':', got {name!r}.")
    if len(name) > _LONGEST_NAME:
        raise ValueError(f"Expected a name of at most {_LONGEST_NAME} characters, got {len(name)}: {name!r}.")
    return name
