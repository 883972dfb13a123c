from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import numpy as np
import pytest

from gymshm import allocation, backing
from gymshm.errors import SegmentFormatError, SegmentNotFoundError
from support import own

SHM = Path("/dev/shm")


@pytest.fixture
def path() -> Iterator[Path]:
    """Where a test may put something in shared memory that is not ours."""
    path = SHM / own("test-backing")
    yield path
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def test_an_attacher_sees_the_bytes_and_changes_them():
    named, root = allocation.create(None, 5000, b"head")
    other, seen = backing.attach(named.name)
    assert (other.name, other.identity, other.path) == (named.name, named.identity, None)
    assert seen.dtype == np.uint8
    assert seen[:5].tolist() == [*b"head", 0]
    assert seen.shape == (5000,)
    seen[4999] = 7
    assert root[4999] == 7


def test_a_read_only_attacher_can_t_write_by_any_means():
    named, _root = allocation.create(None, 100, b"head")
    _, seen = backing.attach(named.name, writeable=False)
    with pytest.raises(ValueError, match="read-only"):
        seen[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        seen.setflags(write=True)


def test_multiprocessing_attaches_too():
    named, root = allocation.create(None, 100, b"head")
    descriptor = os.open(SHM / named.name, os.O_RDONLY)
    assert os.read(descriptor, 4) == b"head"
    os.close(descriptor)
    assert root[0] == ord("h")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a", "a\0b"])
def test_what_can_t_be_a_name_is_refused(name):
    with pytest.raises(ValueError, match="without '/' and NUL"):
        backing.attach(name)


@pytest.mark.parametrize("name", [3, None, b"a"])
def test_what_is_no_text_is_no_name(name):
    with pytest.raises(TypeError, match=r"^Expected the name of a segment, a str, got "):
        backing.attach(name)


@pytest.mark.parametrize("name", ["test-not-there", "a" * 255, "a" * 256, "ä", "with blank", "sem.x", "a:b"])
def test_a_name_that_nobody_has_is_not_found(name):
    with pytest.raises(SegmentNotFoundError, match="gymshm list"):
        backing.attach(name)
    with pytest.raises(FileNotFoundError):
        backing.attach(name, writeable=False)


def test_an_empty_object_has_no_bytes_and_stays(path):
    path.touch()
    with pytest.raises(SegmentFormatError, match="no bytes"):
        backing.attach(path.name)
    assert path.stat().st_size == 0


@pytest.mark.parametrize("writeable", [True, False])
def test_a_pipe_does_not_hold_us(path, writeable):
    os.mkfifo(path)
    with pytest.raises(SegmentFormatError):
        backing.attach(path.name, writeable=writeable)
    assert path.is_fifo()


def test_a_directory_is_no_segment(path):
    path.mkdir()
    for writeable in (True, False):
        with pytest.raises(SegmentFormatError):
            backing.attach(path.name, writeable=writeable)


def test_a_planted_link_is_not_followed(path, tmp_path):
    target = tmp_path / "secret"
    target.write_bytes(b"gymshm\0\0" * 100)
    path.symlink_to(target)
    with pytest.raises(SegmentNotFoundError):
        backing.attach(path.name)
    assert path.name not in set(backing.names(b"gymshm"))


def test_names_tells_what_starts_with_the_prefix_and_opens_nothing_else(path):
    named, _root = allocation.create(None, 100, b"head")
    os.mkfifo(path)
    assert named.name in set(backing.names(b"head"))
    assert named.name not in set(backing.names(b"heal"))
    assert path.name not in set(backing.names(b""))


def test_unlink_takes_the_name_once():
    named, root = allocation.create(None, 100, b"head")
    other, _ = backing.attach(named.name)
    assert other.unlink()
    assert not named.unlink()
    assert not other.unlink()
    with pytest.raises(SegmentNotFoundError):
        backing.attach(named.name)
    assert root[0] == ord("h")


def test_unlink_leaves_a_later_object_of_that_name():
    name = own("test-backing-name")
    first, first_root = allocation.create(name, 100, b"old")
    first.unlink()
    second, _second_root = allocation.create(name, 100, b"new")
    assert not first.unlink()
    del first_root  # whose name it was
    assert backing.attach(name)[1][:3].tolist() == [*b"new"]
    assert second.unlink()


def test_a_name_goes_with_the_last_view_of_the_bytes():
    named, root = allocation.create(None, 100, b"head")
    view = root[10:].view(np.uint16)[::2]
    del root
    assert (SHM / named.name).exists()
    del view
    assert not (SHM / named.name).exists()


def test_the_creator_holds_the_lock_and_an_attacher_does_not(path):
    named, _root = allocation.create(None, 100, b"head")
    assert named.is_locked() is True
    path.write_bytes(b"head")
    other, _other_root = backing.attach(path.name)
    assert other.is_locked() is False


def test_a_lock_is_not_told_of_another_object_that_took_the_name(path):
    path.write_bytes(b"old")
    other, _root = backing.attach(path.name)
    path.unlink()
    path.write_bytes(b"new")
    with pytest.raises(SegmentNotFoundError):
        other.is_locked()
    path.unlink()
    with pytest.raises(SegmentNotFoundError):
        other.is_locked()


def test_what_is_in_use_is_not_removed_as_unused():
    named, _root = allocation.create(None, 100, b"head")
    assert not named.unlink_unused()
    assert (SHM / named.name).exists()


def test_of_many_who_remove_the_unused_one_does(path):
    path.write_bytes(b"head")
    other, _root = backing.attach(path.name)
    removed = []
    barrier = threading.Barrier(8)

    def remove() -> None:
        barrier.wait()
        removed.append(other.unlink_unused())

    threads = [threading.Thread(target=remove) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(removed) == [False] * 7 + [True]
    assert not path.exists()


def test_looking_at_the_lock_does_not_keep_others_from_removing(path):
    path.write_bytes(b"head")
    other, _root = backing.attach(path.name)
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            try:
                other.is_locked()
            except SegmentNotFoundError:
                return

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        assert other.unlink_unused()
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_other_programs_objects_are_left_as_they_are():
    theirs = SharedMemory(create=True, size=1000)
    theirs.buf[:7] = b"not us!"
    _, root = backing.attach(theirs.name)
    assert root[:7].tobytes() == b"not us!"
    del root
    assert (SHM / theirs.name).read_bytes()[:7] == b"not us!"
    theirs.close()
    theirs.unlink()


def test_attaching_needs_no_temporary_directory(monkeypatch):
    def nowhere() -> str:
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr("tempfile.gettempdir", nowhere)
    named, _root = allocation.create(None, 100, b"head")
    assert backing.attach(named.name)[1][0] == ord("h")
    assert named.name in set(backing.names(b"head"))
