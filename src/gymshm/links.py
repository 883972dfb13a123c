"""How others find by name a segment that is a file, since shared memory had no room.

Rules of this file:

1. The file has no name in the temporary directory: it is unlinked as soon as it is open. So the kernel takes it back
   when the last process that maps it has ended, in whatever way; no crash leaves gigabytes on a disk.
2. Others open it through its creator's descriptor, ``/proc/<pid>/fd/<descriptor>``. Which one that is, says a *link*: a
   symbolic link under the segment's name, that stands in ``/dev/shm`` beside the names of all other segments, or in the
   temporary directory where nothing can be made there. So a name leads to its segment under any ``TMPDIR``.
3. The link's text is no path: nothing that follows links gets anywhere. It is read, and believed only where a regular
   file of the link's owner, with the device and inode that the link tells, is found there. So no planted link, and no
   pid or descriptor that was given anew, leads to somebody else's file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from .creator import pid_namespace

__all__ = ["SHM_DIRECTORY", "Link", "find", "make", "names", "unlink"]

SHM_DIRECTORY = "/dev/shm"
_SUFFIX = ".gymshm"
_FORMAT = "gymshm"


@dataclass(frozen=True)
class Link:
    """Where the file of a segment is.

    Attributes:
        location: The path of the link itself.
        owner: The uid that it belongs to.
        pid: The creator's pid.
        descriptor: Its descriptor of the file.
        identity: The file's (device, inode).
        pid_namespace: What ``pid`` belongs to.
    """

    location: str
    owner: int
    pid: int
    descriptor: int
    identity: tuple[int, int]
    pid_namespace: str

    @property
    def path(self) -> str:
        """The path by which the file can be opened while its creator has it."""
        return f"/proc/{self.pid}/fd/{self.descriptor}"

    @property
    def reachable(self) -> bool:
        """Whether the file, if there still is one, can be seen from the pid namespace of this process."""
        return self.pid_namespace == pid_namespace()

    def open(self, access: int) -> int:
        """A descriptor of the file.

        Raises:
            FileNotFoundError: It is gone, or can't be reached from here.
            PermissionError: It may not be opened.
        """
        if not self.reachable or not self._is_target(os.stat(self.path)):  # first: opening a device can have effects
            raise FileNotFoundError(self.path)
        descriptor = os.open(self.path, access | os.O_CLOEXEC | os.O_NONBLOCK)
        if not self._is_target(os.fstat(descriptor)):
            os.close(descriptor)
            raise FileNotFoundError(self.path)
        return descriptor

    def _is_target(self, told: os.stat_result) -> bool:
        regular = stat.S_ISREG(told.st_mode) and told.st_uid == self.owner
        return regular and (told.st_dev, told.st_ino) == self.identity


def make(name: str, descriptor: int, identity: tuple[int, int]) -> Link:
    """Makes ``name`` lead to this process's file ``descriptor``, which has to stay open.

    Raises:
        FileExistsError: ``name`` is in use.
        OSError: A link can be made nowhere.
    """
    numbers = f"{os.getpid()} {descriptor} {identity[0]} {identity[1]}"
    # Below 128 bytes, which a tmpfs keeps beside the inode: there is room for it where there is none for a page.
    text = f"{_FORMAT} {numbers} {pid_namespace()}"
    code = errno.ENOENT
    for location in _locations(name):
        try:
            os.symlink(text, location)
        except FileExistsError:
            raise
        except OSError as error:
            code = error.errno or code  # not the error itself: its traceback has the caller's frame, and so the memory
        else:
            return Link(location, os.geteuid(), os.getpid(), descriptor, identity, pid_namespace())
    raise OSError(code, os.strerror(code), name)


def find(name: str) -> Link | None:
    """The link of that name, which may lead nowhere any more; None where there is none that may be believed."""
    for location in _locations(name):
        try:
            text, owner = os.readlink(location), os.lstat(location).st_uid
            form, pid, descriptor, device, inode, namespace = text.split(" ")
            found = Link(location, owner, int(pid), int(descriptor), (int(device), int(inode)), namespace)
        except OSError as error:
            if error.errno == errno.EINVAL:
                return None  # no link: shared memory itself. Looking further means finding the temporary directory
            continue
        except ValueError:
            continue
        if form == _FORMAT and os.geteuid() in (owner, 0):
            return found
    return None


def unlink(name: str, identity: tuple[int, int]) -> bool:
    """Removes the link ``name``, if it tells ``identity``; False where it does not, or is gone."""
    found = find(name)
    if found is None or found.identity != identity:
        return False
    try:
        os.unlink(found.location)
    except FileNotFoundError:
        return False
    return True


def names() -> Iterator[str]:
    """The names of all links that may be believed, also of those that lead nowhere any more."""
    seen = set()
    for directory, suffix in _directories():
        with contextlib.suppress(OSError), os.scandir(directory) as entries:  # macOS has no /dev/shm
            seen |= {
                entry.name[: len(entry.name) - len(suffix)]
                for entry in entries
                if entry.name.endswith(suffix) and entry.is_symlink()
            }
    yield from (name for name in sorted(seen) if find(name) is not None)


def _directories() -> Iterator[tuple[str, str]]:
    """Where links may stand, and what is appended to the name there."""
    yield SHM_DIRECTORY, ""
    with contextlib.suppress(OSError):  # there is no temporary directory
        yield tempfile.gettempdir(), _SUFFIX


def _locations(name: str) -> Iterator[str]:
    for directory, suffix in _directories():
        yield os.path.join(directory, name + suffix)
