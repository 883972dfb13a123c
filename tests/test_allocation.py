from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gymshm import allocation, backing, tracker
from gymshm.allocation import NoRoomError
from gymshm.errors import FallbackWarning, SegmentExistsError
from support import check_python, own

SHM = Path("/dev/shm")
PREFIX = own("test-allocation")
FULL = NoRoomError(errno.ENOSPC, "No space left on device")


def create_file(
    name: str | None = None, nbytes: int = 5000, head: bytes = b"head"
) -> tuple[backing.Backing, np.ndarray]:
    """A file, in a test that is not about the warning."""
    with pytest.warns(FallbackWarning):
        return allocation.create_file(name, nbytes, head, FULL)


CREATE: dict[str, Callable[..., tuple[backing.Backing, np.ndarray]]] = {
    "shared memory": lambda name=None, nbytes=5000, head=b"head": allocation.create(name, nbytes, head),
    "file": create_file,
}


@pytest.fixture(params=CREATE)
def create(request: pytest.FixtureRequest) -> Callable[..., tuple[backing.Backing, np.ndarray]]:
    """Either way of making bytes."""
    return CREATE[request.param]


def where(named: backing.Backing) -> Path:
    """A path of the object itself."""
    return Path(named.path) if named.path else SHM / named.name


def ours() -> list[str]:
    """What stands in shared memory in the name of this process."""
    return [name for name in os.listdir(SHM) if name.startswith((f"gymshm-{os.getpid()}-", PREFIX))]


def test_bytes_are_zero_behind_the_head_and_all_there(create):
    named, root = create()
    assert root.dtype == np.uint8
    assert root.shape == (5000,)
    assert root[:4].tobytes() == b"head"
    assert not root[4:].any()
    assert where(named).stat().st_size == 5000
    assert where(named).stat().st_blocks * 512 >= 5000
    root[:] = 255


def test_only_the_owner_may_open_them(create):
    named, _root = create()
    assert stat.S_IMODE(where(named).stat().st_mode) == 0o600


@pytest.mark.parametrize("umask", [0, 0o777, 0o277])
def test_a_umask_does_not_change_the_mode(create, umask):
    before = os.umask(umask)
    try:
        named, _root = create()
        assert stat.S_IMODE(where(named).stat().st_mode) == 0o600
        assert backing.attach(named.name)[1][0] == ord("h")
    finally:
        os.umask(before)


def test_new_names_tell_who_made_them_and_differ(create):
    first, _one = create()
    second, _two = create()
    assert first.name.startswith(f"gymshm-{os.getpid()}-")
    assert first.name != second.name


@pytest.mark.parametrize("pattern", ["{}", "{}.A_b~(1)", "{:a<200}", "...{}", "-{}"])
def test_a_name_may_be_chosen(create, pattern):
    name = pattern.format(own("allocation"))
    assert create(name)[0].name == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "/a", "a\0", "a b", " ", "a\n", "a:b", "ä", "a" * 201, 3, b"a", "\udc80"]
)
def test_what_can_t_be_a_name_is_refused(create, name):
    if create is CREATE["shared memory"]:
        with pytest.raises(ValueError, match="Expected a name"):
            create(name)
    else:
        with pytest.raises(ValueError, match="Expected a name"):
            allocation.create_file(name, 100, b"", FULL)


@pytest.mark.parametrize("first", CREATE)
@pytest.mark.parametrize("second", CREATE)
def test_a_name_in_use_is_refused_and_left_alone(first, second):
    named, root = CREATE[first](f"{PREFIX}-name")
    root[10] = 5
    again = {
        "shared memory": lambda: allocation.create(named.name, 100, b""),
        "file": lambda: allocation.create_file(named.name, 100, b"", FULL),
    }
    with pytest.raises(SegmentExistsError, match=f"{named.name!r}, which is") as caught:
        again[second]()
    assert caught.value.errno == errno.EEXIST
    assert backing.attach(named.name)[1][10] == 5


def test_an_object_of_another_program_is_in_use_too():
    path = SHM / f"{PREFIX}-theirs"
    path.write_bytes(b"theirs")
    try:
        with pytest.raises(SegmentExistsError):
            allocation.create(path.name, 100, b"")
        assert path.read_bytes() == b"theirs"
    finally:
        path.unlink()


@pytest.mark.parametrize("nbytes", [2**45, 2**62, 2**63, 2**70])
def test_more_than_there_is_takes_nothing_from_anybody(nbytes, monkeypatch):
    reserved = []
    monkeypatch.setattr(os, "posix_fallocate", lambda *arguments: reserved.append(arguments))
    with pytest.raises(NoRoomError, match="No space left"):
        allocation.create(None, nbytes, b"head")
    with pytest.raises(OSError, match=rf"Expected room for a segment of {nbytes} bytes") as caught:
        allocation.create_file(None, nbytes, b"head", FULL)
    assert caught.value.errno == errno.ENOSPC
    assert reserved == []
    assert ours() == []


def test_all_pages_are_reserved_and_a_few_at_a_time(create, monkeypatch):
    reserved = []
    monkeypatch.setattr(allocation, "_RESERVE", 1000)
    monkeypatch.setattr(os, "posix_fallocate", lambda _, offset, size: reserved.append((offset, offset + size)))
    create()
    assert [stop for _, stop in reserved[:-1]] == [start for start, _ in reserved[1:]]
    assert (reserved[0][0], reserved[-1][1]) == (0, 5000)
    assert max(stop - start for start, stop in reserved) == 1000


@pytest.mark.parametrize("when", [1, 2])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EOPNOTSUPP])
def test_room_that_ends_while_it_is_reserved_is_told_and_leaves_nothing(when, code, monkeypatch):
    calls = []

    def reserve(*arguments: int) -> None:
        calls.append(arguments)
        if len(calls) % 2 == when % 2:
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", reserve)
    with pytest.raises(NoRoomError):
        allocation.create(None, 5000, b"head")
    assert len(calls) == when
    calls.clear()
    with pytest.raises(OSError, match="Expected room for a segment of 5000 bytes") as caught:
        allocation.create_file(None, 5000, b"head", FULL)
    assert os.strerror(code) in str(caught.value)
    assert ours() == []


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "Too many open files"), MemoryError(), KeyboardInterrupt()])
def test_other_errors_come_as_they_are_and_leave_nothing(error, monkeypatch):
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr("mmap.mmap", fail)
    for attempt in (lambda: allocation.create(None, 100, b""), lambda: allocation.create_file(None, 100, b"", FULL)):
        with pytest.raises(type(error)) as caught:
            attempt()
        assert caught.value is error
        assert not isinstance(caught.value, NoRoomError)
    assert ours() == []


@pytest.mark.parametrize("code", [errno.ENOENT, errno.EACCES, errno.ENOSYS, errno.EROFS, errno.EPERM])
def test_a_system_without_shared_memory_has_no_room(code, monkeypatch):
    def fail(*arguments: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("_posixshmem.shm_open", fail)
    with pytest.raises(NoRoomError) as caught:
        allocation.create(None, 100, b"")
    assert caught.value.errno == code


# --- files ------------------------------------------------------------------------------------------------------------


def test_the_warning_tells_what_was_needed_what_there_is_and_how_to_get_more_once():
    with pytest.warns() as caught:
        _named, _root = allocation.create_file(None, 12_345, b"head", FULL)
    (warning,) = caught
    assert warning.category is FallbackWarning
    free = os.statvfs("/dev/shm")
    for part in ("No space left on device", "12345 bytes were needed", " bytes are free in /dev/shm", "--shm-size"):
        assert part in str(warning.message)
    assert f"{free.f_bavail * free.f_frsize}"[:3] in str(warning.message)
    assert warning.filename == __file__


@pytest.mark.parametrize("package", ["gymshm", "gymshm.integrations", "gymshm.cli"])
def test_the_warning_points_to_who_called_whatever_part_of_the_package_is_in_between(package):
    between = {"__package__": package}
    exec(compile("def call(function, *args): return function(*args)", "in between", "exec"), between)
    with pytest.warns(FallbackWarning) as caught:
        between["call"](between["call"], allocation.create_file, None, 100, b"", FULL)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("package", ["gymshmallows", "somebody.gymshm", "", None])
def test_others_are_no_part_of_it(package):
    between = {"__package__": package}
    exec(compile("def call(function, *args): return function(*args)", "theirs", "exec"), between)
    with pytest.warns(FallbackWarning) as caught:
        between["call"](allocation.create_file, None, 100, b"", FULL)
    assert caught[0].filename == "theirs"


def test_a_warning_that_is_an_error_leaves_nothing():
    with pytest.raises(FallbackWarning):  # as pytest is configured here
        allocation.create_file(f"{PREFIX}-warned", 100, b"", FULL)
    assert ours() == []


def test_a_file_has_no_name_in_the_temporary_directory(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    named, _root = create_file()
    assert list(tmp_path.iterdir()) == []
    assert os.readlink(named.path).startswith(str(tmp_path))
    assert named.path == f"/proc/{os.getpid()}/fd/{named.path.rpartition('/')[2]}"


def test_a_file_is_found_by_name_whatever_the_temporary_directory_is():
    named, root = create_file()
    check_python(
        f"from gymshm import backing; backing.attach({named.name!r})[1][100] = 9",
        env={**os.environ, "TMPDIR": "/var/tmp"},
    )
    assert root[100] == 9
    assert named.name in set(backing.names(b"head"))
    assert named.is_locked() is True


def test_a_file_is_one_mapping_and_one_descriptor_and_goes_with_its_views():
    before = set(os.listdir("/proc/self/fd"))
    named, root = create_file()
    assert len(set(os.listdir("/proc/self/fd")) - before) == 1
    assert Path("/proc/self/maps").read_text().count(f" {named.identity[1]} ") == 1
    view = root[10:]
    del root
    assert (SHM / named.name).is_symlink()
    assert view[0] == 0
    del view
    assert not (SHM / named.name).is_symlink()
    assert set(os.listdir("/proc/self/fd")) == before


def test_without_a_temporary_directory_there_is_one_clear_error(monkeypatch):
    def nowhere() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    with pytest.raises(OSError, match=r"Expected room for a segment of 100 bytes, got .*--shm-size.*TMPDIR"):
        allocation.create_file(None, 100, b"", FULL)
    assert ours() == []


def test_without_proc_there_is_one_clear_error(monkeypatch):
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: [] if path == "/proc/self/fd" else listdir(path))
    with pytest.raises(OSError, match="Expected room for a segment of 100 bytes"):
        allocation.create_file(None, 100, b"", FULL)
    assert ours() == []


def test_a_process_that_is_killed_leaves_no_file(tmp_path):
    done = subprocess.run(
        [
            *(sys.executable, "-W", "ignore", "-c"),
            "import os; from gymshm import allocation; "
            "named, root = allocation.create_file(None, 1 << 20, b'head', allocation.NoRoomError(28, 'x')); "
            "print(named.name, flush=True); os.kill(os.getpid(), 9)",
        ],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (-9, "")
    assert done.stdout.startswith("gymshm-")
    assert not (SHM / done.stdout.strip()).is_symlink()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """What the tracker is told, and whether there was an object of that name at that moment."""
    told: list[tuple[str, bool]] = []
    tell = tracker._tell

    def listen(message: str) -> bool:
        command, name, _ = message.rpartition("\n")[2].split(":")
        told.append((command, (SHM / name[1:]).exists()))
        return tell(message)

    monkeypatch.setattr(tracker, "_tell", listen)
    return told


def test_the_tracker_hears_of_a_name_before_there_is_an_object(heard):
    _named, _root = allocation.create(f"{PREFIX}-heard", 100, b"")
    assert heard[0] == ("REGISTER", False)
    assert ("UNREGISTER", True) not in heard
    del _root
    assert heard[-1] == ("UNREGISTER", False)


def test_the_tracker_hears_nothing_of_a_name_that_is_somebody_else_s(heard):
    path = SHM / f"{PREFIX}-theirs"
    path.write_bytes(b"theirs")
    try:
        with pytest.raises(SegmentExistsError):
            allocation.create(path.name, 100, b"")
    finally:
        path.unlink()
    assert heard == []


def test_a_name_that_somebody_took_at_the_last_moment_is_not_the_tracker_s_any_more(heard, monkeypatch):
    path = SHM / f"{PREFIX}-theirs"
    path.write_bytes(b"theirs")
    monkeypatch.setattr(allocation, "is_taken", lambda name: False)
    try:
        with pytest.raises(SegmentExistsError):
            allocation.create(path.name, 100, b"")
    finally:
        path.unlink()
    assert heard == [("REGISTER", True), ("UNREGISTER", True)]
    assert path.name not in tracker._watched


def test_a_name_that_another_thread_took_at_the_last_moment_is_still_watched(heard, monkeypatch):
    named, _root = allocation.create(f"{PREFIX}-twice", 100, b"")
    del heard[:]
    monkeypatch.setattr(allocation, "is_taken", lambda name: False)
    with pytest.raises(SegmentExistsError):
        allocation.create(named.name, 100, b"")
    assert heard == []
    assert tracker._watched[named.name] == named.identity
