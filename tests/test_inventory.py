from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gymnasium import spaces as gs

import gymshm
from forgery import segment_bytes
from gymshm import allocation, inventory
from gymshm.creator import Status, this_process
from gymshm.errors import SegmentFormatError, SegmentNotFoundError
from gymshm.header import MAGIC, READY_OFFSET, build
from gymshm.inventory import Found
from gymshm.plan import Field, plan
from gymshm.spaces import outline
from support import run_isolated, run_python

SHM = Path("/dev/shm")
SPACE = gs.Box(0, 9, (3,))
BYTES = bytes(segment_bytes())


@pytest.fixture
def planted() -> Iterator[Any]:
    """Puts bytes under a name."""
    made: list[Path] = []

    def plant(data: bytes) -> str:
        made.append(SHM / f"test-inventory-{os.getpid()}-{len(made)}")
        made[-1].write_bytes(data)
        return made[-1].name

    yield plant
    for path in made:
        path.unlink(missing_ok=True)


def found(name: str) -> Found | None:
    return next((segment for segment in inventory.find() if segment.name == name), None)


def isolated(code: str, **options: Any) -> str:
    """Runs ``code``, which may remove every orphan of its machine; it has to end well and in silence."""
    done = run_isolated("from child_tasks import orphans\n" + textwrap.dedent(code), **options)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_living_segment_is_found_with_what_its_header_tells():
    memory = gymshm.create_shared_memory(SPACE, n=4)
    name, nbytes, header = gymshm.segment_of(memory).name, memory.segment.nbytes, memory.segment.header
    told = found(name)
    assert told is not None
    assert (told.nbytes, told.header, told.status, told.problem) == (nbytes, header, Status.ALIVE, "")
    assert told == inventory.examine(name)
    del memory
    assert found(name) is None
    with pytest.raises(SegmentNotFoundError):
        inventory.examine(name)


def test_other_programs_objects_are_not_found(planted):
    name = planted(b"somebody else's\n" * 100)
    assert found(name) is None
    with pytest.raises(SegmentFormatError, match="not made by gymshm"):
        inventory.examine(name)


def test_a_segment_whose_creator_is_elsewhere_and_holds_no_lock_is_of_unknown_status(planted):
    told = found(planted(BYTES))  # its header tells of another boot
    assert told is not None
    assert told.status is Status.UNKNOWN
    assert not inventory.remove(told)
    assert (SHM / told.name).exists()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (BYTES.replace(b"token", b"Token"), "damaged"),
        (BYTES[:8] + b"\x63" + BYTES[9:], "of version 99"),
        (BYTES[:-1], "truncated"),
        (MAGIC, "expected a header of 64 bytes"),
    ],
)
def test_a_segment_that_can_t_be_read_is_of_unknown_status_and_never_removed(data, says, planted):
    told = found(planted(data))
    assert told is not None
    assert (told.header, told.status, told.nbytes) == (None, Status.UNKNOWN, len(data))
    assert says in told.problem
    assert not inventory.remove(told)
    assert not inventory.sweep(told.name)
    assert (SHM / told.name).read_bytes() == data


def test_a_segment_in_the_making_is_alive_and_one_that_never_got_ready_is_an_orphan(planted):
    raw, header = build(plan([Field("values", (1,), outline(SPACE))]), 1, this_process(), "token")
    named, root = allocation.create(None, header.nbytes, raw)
    making = found(named.name)
    assert making is not None
    assert (making.header, making.status) == (None, Status.ALIVE)
    assert "not finished" in making.problem
    left = found(planted(root.tobytes()))
    assert left is not None
    assert left.status is Status.ORPHANED
    assert not (SHM / left.name).read_bytes()[READY_OFFSET]
    assert inventory.remove(left)
    assert not inventory.remove(left)


def test_a_living_segment_is_never_removed():
    memory = gymshm.create_shared_memory(SPACE)
    told = inventory.examine(gymshm.segment_of(memory).name)
    assert not inventory.remove(told)
    assert not inventory.sweep(told.name)
    assert (SHM / told.name).exists()


def test_orphans_are_found_and_removed_and_nothing_else_is():
    isolated(
        """
        import gymshm
        from gymnasium.spaces import Discrete
        from gymshm import inventory
        from gymshm.creator import Status
        memory = gymshm.create_shared_memory(Discrete(2))
        ours = gymshm.segment_of(memory).name
        left = orphans(3)
        found = {segment.name: segment.status for segment in inventory.find()}
        assert found == {ours: Status.ALIVE} | dict.fromkeys(left, Status.ORPHANED), found
        orphan = inventory.examine(left[0])
        assert inventory.remove(orphan) and not inventory.remove(orphan)
        assert inventory.sweep(left[1]) and not inventory.sweep(left[1])
        assert not inventory.sweep(ours)
        assert inventory.sweep() and not inventory.sweep()
        assert [segment.name for segment in inventory.find()] == [ours]
        """
    )


def test_an_orphan_whose_name_was_given_anew_is_not_removed():
    isolated(
        """
        import os
        import gymshm
        from gymnasium.spaces import Discrete
        from gymshm import inventory
        (name,) = orphans(1)
        orphan = inventory.examine(name)
        os.unlink(f"/dev/shm/{name}")
        memory = gymshm.create_shared_memory(Discrete(2), name=name)
        assert not inventory.remove(orphan)
        assert os.path.exists(f"/dev/shm/{name}")
        """
    )


def test_the_name_of_an_orphan_can_be_had():
    isolated(
        """
        import gymshm
        from gymnasium.spaces import Discrete
        (name,) = orphans(1)
        memory = gymshm.create_shared_memory(Discrete(2), n=7, name=name)
        assert gymshm.attach(name).n == 7
        """
    )


def test_orphans_make_way_for_a_new_segment_that_needs_their_room():
    isolated(
        """
        import gymshm
        from gymnasium.spaces import Box
        orphans(2, nbytes=200_000)
        memory = gymshm.create_shared_memory(Box(0, 1, (900_000,), "uint8"))
        assert gymshm.segment_of(memory).path is None  # and no warning
        memory.view[:] = 1
        """
    )


def test_a_creator_in_another_pid_namespace_is_alive_while_it_lives_and_then_an_orphan():
    isolated(
        """
        import gymshm, subprocess, sys
        from gymshm import inventory
        from gymshm.creator import Status, pid_namespace
        from support import wait_until
        code = "import gymshm; from gymnasium.spaces import Discrete; m = gymshm.create_shared_memory(Discrete(2)); "
        code += "print(gymshm.segment_of(m).name, flush=True); import time; time.sleep(60)"
        inner = subprocess.Popen(["unshare", "-p", "-f", "--mount-proc", "--kill-child", sys.executable, "-c", code],
                                 stdout=subprocess.PIPE, text=True)
        name = inner.stdout.readline().strip()
        assert name
        found = inventory.examine(name)
        assert found.header.creator.pid_namespace != pid_namespace()
        assert found.status is Status.ALIVE
        assert not inventory.remove(found)
        inner.kill()  # and with it everything in its namespace, the tracker too
        inner.wait()
        wait_until(lambda: inventory.examine(name).status is Status.ORPHANED)
        assert inventory.remove(inventory.examine(name))
        """
    )


def test_a_fork_that_outlives_its_parent_and_has_the_segment_keeps_it_alive():
    isolated(
        """
        import os, signal, time
        import gymshm
        from gymnasium.spaces import Discrete
        from gymshm import inventory, tracker
        from gymshm.creator import Status
        from support import wait_until
        ours, theirs = os.pipe()
        creator = os.fork()
        if creator == 0:
            memory = gymshm.create_shared_memory(Discrete(2))
            fork = os.fork()
            if fork == 0:
                time.sleep(60)
            os.kill(tracker._tracker._pid, signal.SIGKILL)
            os.write(theirs, f"{gymshm.segment_of(memory).name} {fork}".encode())
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(creator, 0)
        name, fork = os.read(ours, 1000).decode().split()
        assert inventory.examine(name).status is Status.ALIVE
        os.kill(int(fork), signal.SIGKILL)
        wait_until(lambda: inventory.examine(name).status is Status.ORPHANED)
        assert inventory.sweep(name)
        """
    )


def test_a_link_whose_creator_has_gone_is_an_orphan_and_its_name_can_be_had():
    isolated(
        """
        import gymshm, os
        from gymnasium.spaces import Discrete
        from gymshm import inventory
        from gymshm.creator import Status
        first, second = orphans(2, nbytes=1_000_000)
        assert os.path.islink(f"/dev/shm/{first}")
        found = inventory.examine(first)
        assert (found.status, found.nbytes, found.header) == (Status.ORPHANED, 0, None)
        assert {segment.name for segment in inventory.find()} == {first, second}
        try:
            gymshm.attach(first)
        except gymshm.SegmentNotFoundError:
            pass
        assert inventory.remove(found) and not inventory.remove(found)
        memory = gymshm.create_shared_memory(Discrete(2), n=3, name=second)
        assert gymshm.attach(second).n == 3
        """
    )


def test_a_link_into_another_pid_namespace_is_of_unknown_status():
    isolated(
        """
        import os
        from gymshm import inventory
        from gymshm.creator import Status
        os.symlink(f"gymshm {os.getpid()} 1 2 3 pid:[1]", "/dev/shm/elsewhere")
        found = inventory.examine("elsewhere")
        assert found.status is Status.UNKNOWN and "pid namespace" in found.problem, found
        assert not inventory.remove(found) and not inventory.sweep("elsewhere")
        assert os.path.islink("/dev/shm/elsewhere")
        """
    )


def test_a_segment_that_is_truncated_while_it_is_looked_at_kills_nobody():
    code = """
    import threading, gymshm
    from gymshm import inventory
    from gymnasium.spaces import Box
    memory = gymshm.create_shared_memory(Box(0, 1, (4,)), n=2)
    name = gymshm.segment_of(memory).name
    path, done = "/dev/shm/" + name, threading.Event()
    with open(path, "rb") as file:
        whole = file.read()
    def truncate_and_restore():
        while not done.is_set():
            with open(path, "r+b") as file:
                file.truncate(0)
                file.write(whole)
    thread = threading.Thread(target=truncate_and_restore)
    thread.start()
    for _ in range(3000):
        list(inventory.find())
    done.set()
    thread.join()
    """
    told = run_python(code)
    assert (told.returncode, told.stderr) == (0, "")
