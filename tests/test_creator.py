from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest

from gymshm import creator
from gymshm.creator import Creator, Status, status, this_process
from support import wait_until

US = this_process()


def test_this_process_is_alive():
    assert US.pid == os.getpid()
    assert status(US, locked=False) is Status.ALIVE


def test_this_process_is_told_alike_each_time_and_unlike_its_child():
    assert this_process() == US
    told = subprocess.run(
        [sys.executable, "-c", "from gymshm.creator import this_process; print(this_process())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    child = eval(told, {"Creator": Creator})
    assert (child.boot, child.pid_namespace) == (US.boot, US.pid_namespace)
    assert (child.pid, child.start) != (US.pid, US.start)
    assert status(child, locked=False) is Status.ORPHANED  # it has ended


def test_a_pid_that_was_given_to_another_process_is_not_the_creator():
    assert status(dataclasses.replace(US, start=US.start - 1), locked=False) is Status.ORPHANED


def test_a_fork_is_another_process():
    reading, writing = os.pipe()
    if not (pid := os.fork()):
        os.write(writing, repr(this_process()).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    told = os.read(reading, 1000).decode()
    os.close(reading)
    os.close(writing)
    assert told.startswith(f"Creator(pid={pid}, start=")
    assert told != repr(US)


def test_a_start_time_that_nobody_knows_is_not_held_against_a_living_pid():
    assert status(dataclasses.replace(US, start=0), locked=False) is Status.ALIVE


@pytest.mark.parametrize("pid", [0, -1, 2**22 + 1, 2**64 - 1])
def test_a_pid_that_nobody_has_is_an_orphan_s(pid):
    assert status(dataclasses.replace(US, pid=pid), locked=False) is Status.ORPHANED


def test_a_process_of_another_user_lives():
    if os.geteuid() == 0:
        pytest.skip("root may signal everybody")
    assert status(Creator(1, 0, US.boot, US.pid_namespace), locked=False) is Status.ALIVE


def test_a_zombie_is_as_good_as_gone():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        wait_until(lambda: creator._start_time(str(process.pid)))
        child = Creator(process.pid, creator._start_time(str(process.pid)) or 0, US.boot, US.pid_namespace)
        assert status(child, locked=False) is Status.ALIVE
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and nobody has taken notice
        assert status(child, locked=False) is Status.ORPHANED


@pytest.mark.parametrize(
    ("locked", "expected"), [(True, Status.ALIVE), (False, Status.ORPHANED), (None, Status.UNKNOWN)]
)
def test_in_another_pid_namespace_the_lock_decides(locked, expected):
    assert status(dataclasses.replace(US, pid_namespace="pid:[1]"), locked=locked) is expected


@pytest.mark.parametrize("locked", [False, None])
def test_of_another_machine_nothing_can_be_told(locked):
    assert status(dataclasses.replace(US, boot="elsewhere"), locked=locked) is Status.UNKNOWN


def test_who_holds_the_lock_lives_whatever_the_pid_seems_to_say():
    for stranger in (dataclasses.replace(US, start=1), dataclasses.replace(US, boot="elsewhere", pid=2**30)):
        assert status(stranger, locked=True) is Status.ALIVE


def test_without_proc_a_living_pid_is_alive_and_a_dead_one_is_not(monkeypatch):
    def no_proc(*args: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(os, "readlink", no_proc)
    monkeypatch.setattr(creator, "_boot", lambda: "")
    monkeypatch.setattr(creator, "_start_time", lambda pid: None)
    us = this_process.__wrapped__()  # what it tells is kept
    assert us == Creator(os.getpid(), 0, "", "")
    assert status(us, locked=None) is Status.ALIVE
    assert status(dataclasses.replace(us, pid=2**22 + 1), locked=None) is Status.ORPHANED
    assert status(US, locked=False) is Status.UNKNOWN  # made by one that could tell where it was


def test_a_proc_of_another_namespace_is_not_asked_for_start_times(monkeypatch):
    readlink = os.readlink
    monkeypatch.setattr(os, "readlink", lambda path: "1" if path == "/proc/self" else readlink(path))
    assert status(dataclasses.replace(US, start=US.start - 1), locked=False) is Status.ALIVE


def test_a_command_with_blanks_and_parentheses_does_not_confuse(tmp_path):
    program = tmp_path / "a) S 1 (b"
    program.symlink_to(sys.executable)
    with subprocess.Popen([program, "-c", "input()"], stdin=subprocess.PIPE) as process:
        # It starts after us, and not long after.
        assert US.start <= (creator._start_time(str(process.pid)) or 0) < US.start + 10**6
        process.kill()
