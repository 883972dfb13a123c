from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gymshm import links
from gymshm.creator import pid_namespace

SHM = Path("/dev/shm")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[tuple[int, tuple[int, int]]]:
    """An open file that has no name: its descriptor and its identity."""
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT, 0o600)
    os.write(descriptor, b"bytes")
    (tmp_path / "file").unlink()
    told = os.fstat(descriptor)
    yield descriptor, (told.st_dev, told.st_ino)
    os.close(descriptor)


@pytest.fixture
def name() -> Iterator[str]:
    name = f"test-links-{os.getpid()}"
    yield name
    (SHM / name).unlink(missing_ok=True)


def plant(name: str, text: str) -> None:
    (SHM / name).symlink_to(text)


def test_a_name_leads_to_the_file(file, name):
    made = links.make(name, *file)
    assert links.find(name) == made
    assert made.path == f"/proc/{os.getpid()}/fd/{file[0]}"
    assert made.reachable
    descriptor = made.open(os.O_RDONLY)
    assert os.read(descriptor, 10) == b"bytes"
    os.close(descriptor)
    assert name in set(links.names())


def test_the_text_of_a_link_leads_nobody_anywhere_and_needs_no_page(file, name):
    links.make(name, *file)
    assert (SHM / name).is_symlink()
    assert not (SHM / name).exists()
    longest = f"gymshm {2**22} {2**20} {2**64} {2**64} pid:[{2**32}]"
    assert len(longest) < 128


def test_a_name_in_use_is_refused(file, name):
    links.make(name, *file)
    with pytest.raises(FileExistsError):
        links.make(name, *file)


def test_a_link_stands_in_the_temporary_directory_where_shared_memory_has_no_place(file, name, tmp_path, monkeypatch):
    monkeypatch.setattr(links, "SHM_DIRECTORY", str(tmp_path / "not-there"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = links.make(name, *file)
    assert made.location == str(tmp_path / f"{name}.gymshm")
    assert links.find(name) == made
    assert list(links.names()) == [name]
    assert links.unlink(name, file[1])
    assert list(tmp_path.iterdir()) == []


def test_where_no_link_can_be_made_the_reason_is_told(file, name, tmp_path, monkeypatch):
    monkeypatch.setattr(links, "SHM_DIRECTORY", str(tmp_path / "not-there"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "neither"))
    with pytest.raises(FileNotFoundError):
        links.make(name, *file)


def test_unlink_takes_the_link_that_tells_this_file_and_no_other(file, name):
    links.make(name, *file)
    assert not links.unlink(name, (file[1][0], file[1][1] + 1))
    assert links.unlink(name, file[1])
    assert not links.unlink(name, file[1])
    assert not (SHM / name).is_symlink()


@pytest.mark.parametrize(
    "text",
    [
        "/etc/passwd",
        "gymshm",
        "gymshm 1 2 3 4",
        "gymshm 1 2 3 4 5 6",
        "gymshm a 2 3 4 ns",
        "other 1 2 3 4 ns",
        "gymshm  1 2 3 4 ns",
    ],
)
def test_other_links_are_not_believed(name, text):
    plant(name, text)
    assert links.find(name) is None
    assert name not in set(links.names())


def test_a_link_whose_file_has_gone_leads_nowhere(file, name):
    descriptor, identity = file
    made = links.make(name, os.dup(descriptor), identity)
    os.close(made.descriptor)
    with pytest.raises(FileNotFoundError):
        made.open(os.O_RDONLY)
    assert links.find(name) == made  # it can still be removed


def test_a_descriptor_that_was_given_to_another_file_is_not_taken_for_ours(file, name, tmp_path):
    secret = os.open(tmp_path / "secret", os.O_RDWR | os.O_CREAT)
    try:
        plant(name, f"gymshm {os.getpid()} {secret} {file[1][0]} {file[1][1]} {pid_namespace()}")
        link = links.find(name)
        assert link is not None
        with pytest.raises(FileNotFoundError):
            link.open(os.O_RDWR)
    finally:
        os.close(secret)


def test_a_pipe_or_device_is_not_opened(name):
    ours, theirs = os.pipe()
    try:
        told = os.fstat(ours)
        plant(name, f"gymshm {os.getpid()} {ours} {told.st_dev} {told.st_ino} {pid_namespace()}")
        link = links.find(name)
        assert link is not None
        with pytest.raises(FileNotFoundError):
            link.open(os.O_RDWR)
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_file_of_another_owner_than_the_link_s_is_not_opened(file, name):
    if os.geteuid() != 0:
        pytest.skip("needs root, to be somebody else")
    links.make(name, *file)
    os.lchown(SHM / name, 65534, 65534)
    link = links.find(name)
    assert link is not None  # root may look after everybody's
    with pytest.raises(FileNotFoundError):
        link.open(os.O_RDONLY)


def test_a_link_of_another_user_is_not_believed(file, name, monkeypatch):
    links.make(name, *file)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert links.find(name) is None


def test_another_pid_namespace_can_t_be_reached(file, name):
    plant(name, f"gymshm {os.getpid()} {file[0]} {file[1][0]} {file[1][1]} pid:[1]")
    link = links.find(name)
    assert link is not None
    assert not link.reachable
    with pytest.raises(FileNotFoundError):
        link.open(os.O_RDONLY)
