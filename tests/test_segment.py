from __future__ import annotations

import dataclasses
import os
import pickle
import threading
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces as gs

import gymshm
from forgery import parsed, segment_bytes, signed, told_by
from gymshm import allocation, backing, segment
from gymshm.creator import this_process
from gymshm.errors import SegmentExistsError, SegmentFormatError, SegmentNotFoundError
from gymshm.header import READY_OFFSET
from gymshm.plan import Field
from gymshm.spaces import outline
from support import check_python, own

SHM = Path("/dev/shm")
FIELDS = [
    Field("values", (4,), outline(gs.Dict({"a": gs.Box(0, 9, (3,), np.int16), "word": gs.Text(5)}))),
    Field("rewards", (2, 4), outline(gs.Box(-1, 1, (), np.float64))),
]


def there(name: str) -> bool:
    return (SHM / name).exists()


@pytest.fixture
def path() -> Iterator[Path]:
    """Where a test may put a segment of its own."""
    path = SHM / own("test-segment")
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture
def planted() -> Iterator[Any]:
    """Puts bytes under a name, and sees that they are still there, unchanged, when the test ends."""
    made: dict[Path, bytes] = {}

    def plant(data: bytes) -> str:
        path = SHM / f"{own('test-segment')}-{len(made)}"
        path.write_bytes(data)
        made[path] = bytes(data)
        return path.name

    yield plant
    for path, data in made.items():
        assert path.read_bytes() == data
        path.unlink()


# --- create -----------------------------------------------------------------------------------------------------------


def test_a_new_segment_is_zero_and_its_texts_are_empty():
    made = segment.create(FIELDS, 4)
    numbers, codes = map(made.array, made.header.layout.leaves[0])
    (rewards,) = map(made.array, made.header.layout.leaves[1])
    assert (numbers.shape, numbers.dtype) == ((4, 3), np.int16)
    assert (rewards.shape, rewards.dtype) == ((2, 4), np.float64)
    assert not numbers.any()
    assert not rewards.any()
    assert (codes < 0).all()  # rows that nobody wrote


def test_a_segment_tells_what_it_is():
    made = segment.create(FIELDS, 4, "test-segment-told")
    assert (made.name, made.n, made.path, made.writeable, made.closed) == ("test-segment-told", 4, None, True, False)
    assert made.nbytes == (SHM / made.name).stat().st_size == made.header.nbytes
    assert made.header.creator == this_process()
    assert repr(made) == f"<gymshm.Segment 'test-segment-told': {made.nbytes} bytes, n=4>"
    made.close()
    assert repr(made) == f"<gymshm.Segment 'test-segment-told': {made.nbytes} bytes, n=4, closed>"


def test_a_name_in_use_is_one_clear_error():
    made = segment.create(FIELDS, 4, "test-segment-used")
    with pytest.raises(SegmentExistsError, match="'test-segment-used'") as caught:
        segment.create(FIELDS, 1, "test-segment-used")
    assert isinstance(caught.value, FileExistsError)
    assert caught.value.name == "test-segment-used"
    assert segment.attach(made.name).n == 4


def test_a_bad_name_is_one_clear_error_and_takes_nothing():
    before = os.listdir(SHM)
    for name in ("a/b", "", "a:b", "x" * 300):
        with pytest.raises(ValueError, match="Expected a name"):
            gymshm.create_shared_memory(gs.Discrete(2), name=name)
    assert not {name for name in set(os.listdir(SHM)) - set(before) if name.startswith(f"gymshm-{os.getpid()}")}


def test_a_segment_is_not_ready_before_everything_else_is_written(monkeypatch):
    allocate, ready = allocation.create, []

    def look(*arguments: Any) -> Any:
        named, root = allocate(*arguments)
        ready.append(root[READY_OFFSET])
        monkeypatch.setattr(segment, "_READY_PATIENCE", 0.0)
        with pytest.raises(SegmentFormatError, match="has not finished it"):
            segment.attach(named.name)
        return named, root

    monkeypatch.setattr(allocation, "create", look)
    made = segment.create(FIELDS, 4)
    assert ready == [0]
    assert segment.attach(made.name).header == made.header


def test_a_fence_stands_between_what_is_written_and_the_mark_that_it_is_ready(monkeypatch):
    allocate, roots, seen = allocation.create, [], []

    def keep(*arguments: Any) -> Any:
        named, root = allocate(*arguments)
        roots.append(root)
        return named, root

    def look() -> None:
        (root,) = roots
        assert root[READY_OFFSET] == 0
        seen.append(root.copy())

    monkeypatch.setattr(allocation, "create", keep)
    monkeypatch.setattr(segment, "store_fence", look)
    made = segment.create(FIELDS, 4)
    (before,), (after,) = seen, roots
    assert np.flatnonzero(before != after).tolist() == [READY_OFFSET]  # all but the mark
    made.close()


# --- attach -----------------------------------------------------------------------------------------------------------


def test_an_attached_segment_is_the_same_bytes():
    made = segment.create(FIELDS, 4)
    other = segment.attach(made.name)
    assert other.header == made.header
    leaf = made.header.layout.leaves[0][0]
    other.array(leaf)[2] = (1, 2, 3)
    assert made.array(leaf)[2].tolist() == [1, 2, 3]


def test_read_only_arrays_refuse_writes():
    memory = gymshm.create_shared_memory(gs.Dict({"a": gs.Box(0, 9, (3,)), "word": gs.Text(5)}), n=2)
    attached = gymshm.attach(gymshm.segment_of(memory).name, read_only=True)
    for array in (attached.arrays["a"], attached.arrays["word"], attached.read()["a"], attached.memory["a"].view):
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.setflags(write=True)
    with pytest.raises(ValueError, match="attached read-only"):
        attached.write(0, {"a": np.ones(3, np.float32), "word": "x"})
    memory["a"].view[1] = 5
    assert attached.read()["a"][1].tolist() == [5, 5, 5]


def test_two_attachments_see_each_other_s_writes_and_close_apart():
    memory = gymshm.create_shared_memory(gs.Box(0, 9, (3,)), n=2)
    name = gymshm.segment_of(memory).name
    first, second = gymshm.attach(name), gymshm.attach(name)
    first.write(0, np.full(3, 4, np.float32))
    assert second.read()[0].tolist() == [4, 4, 4]
    first.close()
    second.write(1, np.full(3, 6, np.float32))
    assert memory.view[1].tolist() == [6, 6, 6]
    with pytest.raises(ValueError, match="is closed in this process"):
        first.read()


def test_a_missing_segment_is_one_clear_error():
    with pytest.raises(SegmentNotFoundError, match="Expected a segment named 'test-not-there', found none") as caught:
        gymshm.attach("test-not-there")
    assert isinstance(caught.value, FileNotFoundError)
    assert caught.value.name == "test-not-there"


BYTES = bytes(segment_bytes())
FOREIGN = {
    "zeros": (bytes(4096), "not finished|not made by gymshm"),
    "random": (np.random.default_rng(0).bytes(4096), "not made by gymshm"),
    "text": (b"somebody else's\n" * 300, "not made by gymshm"),
    "one byte": (b"g", "expected a header of 64 bytes, got 1 bytes"),
    "another version": (BYTES[:8] + b"\x63" + BYTES[9:], "of version 99"),
    "truncated": (BYTES[:-1], "truncated"),
    "truncated in the header": (BYTES[:100], "truncated"),
    "damaged header": (BYTES.replace(b"token", b"Token"), "damaged"),
    "unfinished": (BYTES[:READY_OFFSET] + bytes(8) + BYTES[READY_OFFSET + 8 :], "not finished"),
}


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("read_only", [False, True])
def test_what_is_no_segment_is_one_clear_error_and_stays_as_it_is(kind, read_only, planted, monkeypatch):
    monkeypatch.setattr(segment, "_READY_PATIENCE", 0.01)
    data, says = FOREIGN[kind]
    name = planted(data)
    with pytest.raises(SegmentFormatError, match=says) as caught:
        gymshm.attach(name, read_only=read_only)
    assert isinstance(caught.value, ValueError)
    assert caught.value.name == name


def test_an_empty_object_is_one_clear_error_and_stays(planted, monkeypatch):
    monkeypatch.setattr(segment, "_READY_PATIENCE", 0.01)
    with pytest.raises(SegmentFormatError, match="got 0 bytes in all"):
        gymshm.attach(planted(b""))


def test_a_segment_that_gets_its_bytes_in_time_is_waited_for(path):
    data = segment_bytes(gs.Discrete(2))
    path.touch()
    timer = threading.Timer(0.05, lambda: path.write_bytes(data))
    timer.start()
    attached = segment.attach(path.name)
    timer.join()
    assert attached.nbytes == len(data)


def test_a_segment_truncated_while_it_is_attached_to_is_one_clear_error(path, monkeypatch):
    path.write_bytes(segment_bytes(gs.Box(-1, 1, (9999,))))
    read_head = backing.read_head

    def read_and_truncate(*arguments: Any) -> Any:
        told = read_head(*arguments)
        os.truncate(path, 100)  # who looked at the rest through a mapping would die of a SIGBUS
        return told

    monkeypatch.setattr(backing, "read_head", read_and_truncate)
    with pytest.raises(SegmentFormatError, match="truncated while"):
        segment.attach(path.name)


def test_a_name_given_anew_while_it_is_attached_to_leads_to_the_new_segment(path, monkeypatch):
    path.write_bytes(segment_bytes(gs.Discrete(2)))
    data = segment_bytes(gs.MultiBinary(100))
    read_head, looks = backing.read_head, []

    def read_and_replace(*arguments: Any) -> Any:
        told = read_head(*arguments)
        looks.append(told)
        if len(looks) == 1:
            new = path.with_name(f"{path.name}-new")
            new.write_bytes(data)
            new.rename(path)
        return told

    monkeypatch.setattr(backing, "read_head", read_and_replace)
    assert segment.attach(path.name).nbytes == len(data)
    assert len(looks) == 2


def test_an_attacher_that_was_refused_ends_without_taking_anything_with_it(planted):
    names = [planted(data) for data, _ in FOREIGN.values()]
    theirs = SharedMemory(create=True, size=100)
    printed = check_python(
        """
        import sys
        import gymshm
        from gymshm import segment
        segment._READY_PATIENCE = 0.01
        for name in sys.argv[1:]:
            try:
                gymshm.attach(name)
            except gymshm.SegmentFormatError as error:
                print("refused")
        """,
        *(*names, theirs.name),
    )
    assert printed.split() == ["refused"] * (len(names) + 1)
    assert there(theirs.name)
    theirs.close()
    theirs.unlink()


@pytest.mark.parametrize("space", [gs.Tuple(()), gs.Box(-1, 1, (), np.float64), gs.Box(-1, 1, (2,), np.int64)])
def test_versions_of_rows_that_are_no_such_thing_are_a_broken_header(space, planted):
    told = told_by(segment_bytes(space))
    told["fields"][0]["name"] = "versions"
    whole = parsed(segment_bytes(space))
    forged = signed(told, nbytes=whole.layout.nbytes)
    with pytest.raises(SegmentFormatError, match="a leaf is no array"):
        gymshm.attach(planted(forged))


def test_a_file_of_another_user_s_is_not_opened(planted):
    if os.geteuid() != 0:
        pytest.skip("needs root, to become somebody else")
    name = planted(BYTES)
    os.chmod(SHM / name, 0o600)
    printed = check_python(
        f"""
        import os
        import gymshm
        os.setuid(65534)
        try:
            gymshm.attach({name!r})
        except PermissionError as error:
            print(type(error).__name__)
        """
    )
    assert printed == "PermissionError\n"


# --- close and unlink -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("calls", [("close", "close", "unlink", "unlink"), ("unlink", "unlink", "close", "close")])
@pytest.mark.parametrize("attached", [False, True])
def test_close_and_unlink_can_be_called_twice_and_in_any_order(calls, attached):
    memory = gymshm.create_shared_memory(gs.Box(0, 9, (3,)), n=2)
    view = memory.view
    name = gymshm.segment_of(memory).name
    used = gymshm.attach(name).segment if attached else gymshm.segment_of(memory)
    for call in calls:
        getattr(used, call)()
    assert not there(name)
    view[:] = 3
    assert view.sum() == 18


def test_a_creator_that_closes_keeps_the_name_as_long_as_its_views():
    memory = gymshm.create_shared_memory(gs.Box(0, 9, (3,)), n=2)
    name, view = gymshm.segment_of(memory).name, memory.view
    gymshm.segment_of(memory).close()
    assert there(name)
    gymshm.attach(name).write(0, np.full(3, 5, np.float32))
    assert view[0].tolist() == [5, 5, 5]
    del view
    assert not there(name)


def test_an_attacher_that_closes_leaves_the_name():
    memory = gymshm.create_shared_memory(gs.Box(0, 9, (3,)), n=2)
    name = gymshm.segment_of(memory).name
    with gymshm.attach(name) as attachment:
        view = attachment.arrays
    attachment.close()
    del attachment
    assert there(name)
    memory.view[:] = 2
    assert view.sum() == 12


@pytest.mark.parametrize("keep", ["memory", "part", "view", "batch", "segment", "buffer", "row_writer"])
def test_the_name_goes_at_once_with_the_last_thing_that_was_kept(keep):
    space = gs.Dict(
        {"a": gs.Box(0, 9, (3,)), "b": gs.Tuple((gs.Discrete(3), gs.Text(5))), "c": gs.OneOf([gs.Discrete(2)])}
    )
    memory = gymshm.create_shared_memory(space, n=2)
    name = gymshm.segment_of(memory).name
    kept = _take(keep, space, memory)
    del memory
    assert there(name)
    del kept
    assert not there(name)


def _take(what: str, space: gs.Space[Any], memory: Any) -> Any:
    if what == "part":
        return memory["b"]
    if what == "view":
        return memory["a"].view[:, 1:]
    if what == "batch":
        return gymshm.read_from_shared_memory(space, memory, 2)
    if what == "segment":
        return gymshm.segment_of(memory)
    if what == "buffer":
        return memory["a"].get_obj()
    return gymshm.row_writer(space, memory, 0) if what == "row_writer" else memory


# --- between processes ------------------------------------------------------------------------------------------------


def test_pickled_memory_is_the_same_segment_in_the_same_process():
    memory = gymshm.create_shared_memory(gs.Dict({"a": gs.Box(0, 9, (3,)), "b": gs.Discrete(3)}), n=2)
    copy = pickle.loads(pickle.dumps(memory))
    assert gymshm.segment_of(copy) is gymshm.segment_of(memory)
    assert np.shares_memory(copy["a"].view, memory["a"].view)
    assert len(pickle.dumps(memory["a"])) < 300


def test_memory_that_was_closed_here_is_attached_anew_when_it_is_unpickled():
    memory = gymshm.create_shared_memory(gs.Box(0, 9, (3,)), n=2)
    view, pickled = memory.view, pickle.dumps(memory)
    gymshm.segment_of(memory).close()
    copy = pickle.loads(pickled)
    copy.view[0] = 8
    assert view[0].tolist() == [8, 8, 8]


def test_unpickling_after_the_segment_has_gone_is_one_clear_error():
    pickled = pickle.dumps(gymshm.create_shared_memory(gs.Box(0, 9, (3,)), n=2))
    with pytest.raises(SegmentNotFoundError, match="found none"):
        pickle.loads(pickled)


def test_unpickling_does_not_take_a_later_segment_of_that_name_for_the_first():
    space = gs.Box(0, 9, (3,))
    name = own("test-segment-again")
    pickled = pickle.dumps(gymshm.create_shared_memory(space, n=2, name=name))
    later = gymshm.create_shared_memory(space, n=2, name=name)
    with pytest.raises(SegmentNotFoundError, match="another one has taken its name"):
        pickle.loads(pickled)
    assert gymshm.segment_of(later).name == name


def test_what_was_unlinked_still_travels_within_the_process():
    memory = gymshm.create_shared_memory(gs.Box(0, 9, (3,)), n=2)
    gymshm.segment_of(memory).unlink()
    assert pickle.loads(pickle.dumps(memory)).view.base is memory.view.base


def test_a_header_is_immutable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        segment.create(FIELDS, 4).header.n = 5  # type: ignore[misc]
