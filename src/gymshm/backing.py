"""Named bytes that processes share: a POSIX shared-memory object, or a file where ``/dev/shm`` has no room.

This module alone touches ``SharedMemory``, the resource tracker, ``/dev/shm`` and the temporary directory. It knows
nothing of headers or plans. Facts it is built on, each measured:

1. ``ftruncate`` promises room that ``/dev/shm`` does not have; the first write past the end is a SIGBUS that kills the
   process without a traceback. So every page is reserved at creation (``posix_fallocate``).
2. ``SharedMemory.close()`` unmaps under a live ``np.ndarray(buffer=...)``, and its ``__del__`` complains about a live
   ``np.frombuffer(...)``. So its mapping is taken out of it (:func:`create`): the mapping then lives as long as the
   last array over it, and nothing has to be closed.
3. ``SharedMemory(name)`` registers with the resource tracker before Python 3.13, which then deletes the owner's segment
   when the attacher exits; and where mapping fails, it deletes the segment at once. So :func:`attach` opens the object
   itself. Nobody but the creator ever registers or unregisters.
4. After SIGKILL of the creator the resource tracker unlinks what it registered, with a warning on stderr. There is
   nothing to warn of: that is its job here. So a tracker that is started here, is started with that warning off.
   A tracker that other code started earlier in this process still prints it.
5. macOS caps names near 31 characters and can't enumerate them.
"""

from __future__ import annotations

import _posixshmem
import errno
import mmap
import os
import secrets
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory

from .errors import FallbackWarning, SegmentExistsError, SegmentFormatError, SegmentNotFoundError

__all__ = ["Backing", "attach", "create", "names", "unlink"]

_SHM_DIRECTORY = "/dev/shm"
_FILE_SUFFIX = ".gymshm"
_LONGEST_NAME = 30 if sys.platform == "darwin" else 200

#: Errors of the system that mean "no shared memory to be had here", as opposed to a mistake of the caller.
_NO_ROOM = {
    *(errno.ENOSPC, errno.ENOMEM, errno.EFBIG, errno.EDQUOT),
    *(errno.ENOSYS, errno.ENODEV, errno.ENOENT, errno.EACCES),
}

#: Seconds that :func:`attach` waits for a creator that has made the name and not yet sized the object.
_SIZE_PATIENCE = 1.0


@dataclass
class Backing:
    """The name of mapped bytes. It holds no mapping: that lives and dies with the arrays over it.

    Attributes:
        name: What others attach by.
        path: Where the bytes are a file, its path.
        registered: The creator's handle on a POSIX object, which the resource tracker knows of.
    """

    name: str
    path: str | None = None
    registered: SharedMemory | None = field(default=None, repr=False)

    def unlink(self) -> None:
        """Removes the name, if it still exists; for the creator's process alone (fact 3)."""
        if self.registered is None:
            unlink(self.name)
            return
        shared, self.registered = self.registered, None
        try:
            shared.unlink()
        except FileNotFoundError:
            # Somebody else removed the name, and SharedMemory stopped before it told the tracker.
            resource_tracker.unregister(shared._name, "shared_memory")  # type: ignore[attr-defined]


def create(name: str | None, nbytes: int) -> tuple[Backing, mmap.mmap]:
    """New zeroed bytes under a name that nobody has; every page of them is there.

    Args:
        name: The name, or None for a new one.
        nbytes: Bytes, at least one.

    Raises:
        SegmentExistsError: ``name`` is in use.
        ValueError: ``name`` can't be a name.
        OSError: Neither ``/dev/shm`` nor the temporary directory has the room.
    """
    chosen = _check_name(name) if name is not None else f"gymshm-{os.getpid()}-{secrets.token_hex(4)}"
    if os.path.lexists(_file_path(chosen)):
        raise SegmentExistsError(chosen, _in_use(chosen))
    _start_quiet_tracker()
    try:
        shared = SharedMemory(chosen, create=True, size=nbytes)
    except FileExistsError:
        raise SegmentExistsError(chosen, _in_use(chosen)) from None
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        return _create_file(chosen, nbytes, error)
    try:
        _reserve(shared._fd, nbytes)  # type: ignore[attr-defined]
    except OSError as error:
        shared.close()
        shared.unlink()
        if error.errno not in _NO_ROOM:
            raise
        return _create_file(chosen, nbytes, error)
    return Backing(chosen, registered=shared), _take_mapping(shared)


def attach(name: str, *, writeable: bool = True) -> tuple[Backing, mmap.mmap]:
    """A mapping of the bytes that another process made under ``name``; registers with nobody.

    Raises:
        SegmentNotFoundError: Nothing has that name.
        SegmentFormatError: It has no bytes.
        ValueError: ``name`` can't be a name.
        OSError: It may not be opened or mapped.
    """
    path: str | None = None
    access = os.O_RDWR if writeable else os.O_RDONLY
    try:
        descriptor = _posixshmem.shm_open(f"/{_check_name(name)}", access, mode=0o600)
    except FileNotFoundError:
        path = _file_path(name)
        try:
            descriptor = os.open(path, access | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            raise SegmentNotFoundError(
                name,
                f"Expected a segment named {name!r}, found none in shared memory or as {path}. "
                "`python -m gymshm list` shows which there are; its creator may have ended.",
            ) from None
    try:
        deadline = time.monotonic() + _SIZE_PATIENCE
        while (nbytes := os.fstat(descriptor).st_size) == 0:
            if time.monotonic() > deadline:
                raise SegmentFormatError(name, f"Segment {name!r} can't be read: it has no bytes.")
            time.sleep(0.001)
        mapping = mmap.mmap(descriptor, nbytes, access=mmap.ACCESS_WRITE if writeable else mmap.ACCESS_READ)
    finally:
        os.close(descriptor)
    return Backing(name, path), mapping


def unlink(name: str) -> bool:
    """Removes ``name``, whoever made it; False where it is gone already."""
    for remove, target in ((_posixshmem.shm_unlink, f"/{_check_name(name)}"), (os.unlink, _file_path(name))):
        try:
            remove(target)
        except FileNotFoundError:
            continue
        return True
    return False


def names(prefix: bytes) -> Iterator[str]:
    """The names of all shared-memory objects and fall-back files whose bytes start with ``prefix``."""
    for directory, suffix in ((_SHM_DIRECTORY, ""), (tempfile.gettempdir(), _FILE_SUFFIX)):
        try:
            with os.scandir(directory) as entries:
                found = sorted(entry.name for entry in entries if entry.name.endswith(suffix))
        except OSError:
            continue  # macOS has no /dev/shm; a temporary directory may be closed to us
        for entry in found:
            if _starts_with(os.path.join(directory, entry), prefix):
                yield entry[: len(entry) - len(suffix)]


def _starts_with(path: str, prefix: bytes) -> bool:
    try:
        # NONBLOCK: a pipe of that name must not hold us.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False  # gone meanwhile, another user's, or a link
    try:
        return os.read(descriptor, len(prefix)) == prefix
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _take_mapping(shared: SharedMemory) -> mmap.mmap:
    """Takes the mapping out of ``shared`` (fact 2) and closes what it would keep open beside it."""
    mapping: mmap.mmap = shared._mmap  # type: ignore[attr-defined]
    shared._buf.release()  # type: ignore[attr-defined]
    shared._buf = shared._mmap = None  # type: ignore[attr-defined]
    shared.close()  # the descriptor; the mapping has one of its own
    return mapping


def _reserve(descriptor: int, nbytes: int) -> None:
    if hasattr(os, "posix_fallocate"):  # not on macOS, whose shared memory can't be reserved
        os.posix_fallocate(descriptor, 0, nbytes)


def _create_file(name: str, nbytes: int, reason: OSError) -> tuple[Backing, mmap.mmap]:
    """The fall-back: a file that only its owner can open, made so that no link can be followed."""
    path = _file_path(name)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise SegmentExistsError(name, _in_use(name)) from None
    try:
        try:
            os.ftruncate(descriptor, nbytes)
            _reserve(descriptor, nbytes)
            mapping = mmap.mmap(descriptor, nbytes)
        finally:
            os.close(descriptor)
    except OSError as error:
        os.unlink(path)
        raise OSError(
            error.errno,
            f"Expected room for a segment of {nbytes} bytes, got {_free(_SHM_DIRECTORY)} bytes free in "
            f"{_SHM_DIRECTORY} and {_free(tempfile.gettempdir())} in {tempfile.gettempdir()}. Give shared memory more "
            "room (Docker: `--shm-size=8g`), or set TMPDIR to a larger disk",
        ) from error
    warnings.warn(
        FallbackWarning(
            f"Shared memory has no room ({reason.strerror}): {nbytes} bytes were needed, {_free(_SHM_DIRECTORY)} are "
            f"free in {_SHM_DIRECTORY}. The segment is the file {path} instead, which is slower. More room: with "
            "Docker, `docker run --shm-size=8g`; else `mount -o remount,size=8g /dev/shm`."
        ),
        stacklevel=2,
    )
    return Backing(name, path), mapping


def _free(directory: str) -> int | str:
    try:
        told = os.statvfs(directory)
    except OSError:
        return "no"
    return told.f_bavail * told.f_frsize


def _file_path(name: str) -> str:
    return os.path.join(tempfile.gettempdir(), name + _FILE_SUFFIX)


def _in_use(name: str) -> str:
    return (
        f"Expected a name that is not in use, got {name!r}, which is. Choose another one, or attach to it with "
        f"`gymshm.attach({name!r})`; `python -m gymshm clean` removes what dead processes left."
    )


def _check_name(name: object) -> str:
    if not isinstance(name, str) or not name or "/" in name or "\0" in name or name in (".", ".."):
        raise ValueError(f"Expected a name without '/' and NUL, got {name!r}.")
    if len(os.fsencode(name)) > _LONGEST_NAME:
        raise ValueError(f"Expected a name of at most {_LONGEST_NAME} bytes, got {len(os.fsencode(name))}: {name!r}.")
    return name


def _start_quiet_tracker() -> None:
    """Starts the resource tracker, if none runs, such that it does its job in silence (fact 4).

    Its command line repeats this interpreter's ``-W`` options, which is the way to hand it a filter.
    """
    quiet = "ignore:resource_tracker"
    sys.warnoptions.append(quiet)
    try:
        resource_tracker.ensure_running()
    finally:
        sys.warnoptions.remove(quiet)
