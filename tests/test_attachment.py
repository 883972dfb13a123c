from __future__ import annotations

import contextlib
import functools
import os
import secrets
import tracemalloc
import weakref

import hypothesis
import numpy as np
import pytest
from gymnasium import spaces as gs
from hypothesis import given
from hypothesis import strategies as st

import gymshm
from environments import Clock, clocks, zeros
from forgery import ALL_GOOD, GOOD, boxes_of, lies, signed
from gymshm import (
    ShmVectorEnv,
    attach,
    create_shared_memory,
    read_from_shared_memory,
    row_writer,
    segment_of,
    write_to_shared_memory,
)
from gymshm.space_json import OpaqueKey
from gymshm.views import leaves
from strategies import Color, spaces, spaces_with_values, values
from support import check_python, own, same

SPACE = gs.Dict(
    [
        ("image", gs.Box(0, 255, (2, 3), np.uint8)),
        ("parts", gs.Tuple([gs.Discrete(3), gs.Text(4)])),
        ("one", gs.OneOf([gs.MultiBinary(2), gs.Box(-1, 1, (), np.float64)])),
    ]
)


@contextlib.contextmanager
def placed(raw):
    """The name of a shared-memory object that holds these bytes; afterwards it has to be there, with the same bytes."""
    name = f"{own('gymshm-test')}-{secrets.token_hex(4)}"
    path = f"/dev/shm/{name}"
    with open(path, "xb") as file:
        file.write(raw)
    try:
        yield name
        with open(path, "rb") as file:
            assert file.read() == raw
    finally:
        os.unlink(path)


# --- a name is enough -----------------------------------------------------------------------------------------------


@given(spaces_with_values())
def test_whoever_has_the_name_reads_and_writes_the_same(drawn):
    space, items = drawn
    memory = create_shared_memory(space, len(items))
    try:
        attached = attach(segment_of(memory).name)
    except TypeError:
        return  # memory without an array lives in no segment
    for i, item in enumerate(items):
        write_to_shared_memory(space, i, item, memory)
    ours = read_from_shared_memory(space, memory, len(items))
    assert attached.n == len(items)
    assert same_but_for_keys(attached.read(), ours)
    if attached.space == space:
        other = create_shared_memory(space, len(items))
        again = attach(segment_of(other).name)
        for i, item in enumerate(items):
            again.write(i, item)
        assert same(read_from_shared_memory(space, other, len(items)), ours)


def same_but_for_keys(left, right):
    """Whether batches are the same, whatever the keys are called."""
    if isinstance(left, dict):
        return len(left) == len(right) and all(map(same_but_for_keys, left.values(), right.values()))
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(same_but_for_keys, left, right))
    return same(left, right)


def test_space_n_size_and_arrays_are_there():
    memory = create_shared_memory(SPACE, 3, name=own("gymshm-test"))
    attached = attach(own("gymshm-test"))
    assert (attached.name, attached.n, attached.nbytes) == (segment_of(memory).name, 3, segment_of(memory).nbytes)
    assert attached.space == SPACE
    assert list(attached.space.spaces) == list(SPACE.spaces)
    arrays = attached.arrays
    assert (arrays["image"].shape, arrays["image"].dtype) == ((3, 2, 3), np.uint8)
    assert (arrays["parts"][1].shape, arrays["parts"][1].dtype) == ((3, 4), np.int32)
    arrays["image"][2] = 7
    assert memory["image"].view[2].tolist() == [[7] * 3] * 2
    assert repr(attached).splitlines()[0] == f"<gymshm.Attachment to {attached.segment!r}>"


def test_each_attachment_has_a_random_state_of_its_own():
    memory = create_shared_memory(SPACE)
    spaces = [attach(segment_of(memory).name).space for _ in range(2)]
    assert spaces[0] is not spaces[1]
    spaces[0].seed(1)
    spaces[1].seed(1)
    assert same(spaces[0].sample(), spaces[1].sample())


def test_keys_that_json_can_not_tell_are_stood_for():
    space = gs.Dict({Color.RED: gs.Discrete(3), np.int64(5): gs.Discrete(3), "x": gs.Discrete(3)})
    memory = create_shared_memory(space)
    write_to_shared_memory(space, 0, {Color.RED: 1, 5: 2, "x": 0}, memory)
    attached = attach(segment_of(memory).name)
    red = OpaqueKey("<Color.RED: 1>", list(space.spaces).index(Color.RED))
    assert attached.read() == {red: [1], 5: [2], "x": [0]}
    attached.write(0, {red: 2, 5: 0, "x": 1})
    assert memory[Color.RED].view.tolist() == [2]


@pytest.mark.usefixtures("registries")
def test_a_part_that_lives_elsewhere_is_an_empty_tuple():
    class Custom(gs.Space):
        pass

    create_shared_memory.register(Custom, lambda space, n=1, ctx=None: [])
    memory = create_shared_memory(gs.Dict(a=Custom(), b=gs.Discrete(3)))
    attached = attach(segment_of(memory).name)
    assert attached.space == gs.Dict(a=gs.Tuple(()), b=gs.Discrete(3))
    attached.write(0, {"a": (), "b": 2})
    assert attached.read() == {"a": (), "b": [2]}


def test_an_unrelated_process_reads_and_writes():
    memory = create_shared_memory(SPACE, 2)
    write_to_shared_memory(SPACE, 0, {"image": np.ones((2, 3), int), "parts": (2, "ab"), "one": (1, 0.5)}, memory)
    check_python(
        """
        import sys
        import numpy as np
        import gymshm

        with gymshm.attach(sys.argv[1]) as attached:
            batch = attached.read()
            assert batch["parts"][1] == ("ab", ""), batch
            assert batch["one"] == ((1, 0.5), (0, batch["one"][1][1])), batch
            attached.write(1, {"image": np.full((2, 3), 9), "parts": (1, "cd"), "one": (0, [1, 1])})
        """,
        segment_of(memory).name,
    )
    batch = read_from_shared_memory(SPACE, memory, 2)
    assert (batch["image"][1] == 9).all()
    assert batch["parts"][1] == ("ab", "cd")


# --- reading only, closing ------------------------------------------------------------------------------------------


def test_a_read_only_attachment_refuses_writes_and_sees_those_of_others():
    memory = create_shared_memory(SPACE, 2)
    attached = attach(segment_of(memory).name, read_only=True)
    value = {"image": np.ones((2, 3), np.uint8), "parts": (2, "ab"), "one": (1, 0.5)}
    with pytest.raises(ValueError, match=r"is attached read-only\. Attach without `read_only=True` to write"):
        attached.write(0, value)
    with pytest.raises(ValueError, match="read-only"):
        write_to_shared_memory(attached.space, 0, value, attached.memory)
    for array in (attached.arrays["image"], attached.read()["image"], attached.read()["parts"][0]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
        with pytest.raises(ValueError, match="cannot set WRITEABLE flag"):
            array.flags.writeable = True
    assert attached.memory["image"].get_obj().readonly
    write_to_shared_memory(SPACE, 0, value, memory)
    assert (attached.arrays["image"][0] == 1).all()


def test_a_closed_attachment_says_so_and_its_arrays_stay_readable():
    memory = create_shared_memory(SPACE, 2)
    memory["image"].view[...] = 5
    with attach(segment_of(memory).name) as attached:
        arrays, batch = attached.arrays, attached.read()
    attached.close()
    assert attached.segment.closed
    for use in (attached.read, lambda: attached.arrays, lambda: attached.write(0, SPACE.sample())):
        with pytest.raises(ValueError, match="is closed in this process"):
            use()
    assert (arrays["image"] == 5).all()
    assert (batch["image"] == 5).all()
    assert (attached.space, attached.n) == (SPACE, 2)
    write_to_shared_memory(SPACE, 0, SPACE.sample(), memory)


def test_arrays_keep_the_mapping_alive_when_the_creator_is_done():
    memory = create_shared_memory(SPACE, 2)
    attached = attach(segment_of(memory).name)
    image = attached.arrays["image"]
    segment_of(memory).unlink()
    del memory, attached
    image[...] = 3
    assert (image == 3).all()


def test_an_attachment_is_no_cycle():
    memory = create_shared_memory(SPACE, 2)
    attached = attach(segment_of(memory).name)
    attached.read()
    gone = weakref.ref(attached.segment)
    del attached
    assert gone() is None


def test_writing_by_name_has_the_errors_of_writing():
    memory = create_shared_memory(SPACE, 2)
    attached = attach(segment_of(memory).name)
    good = SPACE.sample()
    for index, value, error in (
        (2, good, IndexError),
        (0, {**good, "image": np.zeros(3)}, ValueError),
        (0, {**good, "parts": (0.5, "a")}, TypeError),
        (0, {"image": good["image"]}, KeyError),
    ):
        with pytest.raises(error) as caught:
            attached.write(index, value)
        assert caught.value.index == index


# --- slots ------------------------------------------------------------------------------------------------------------


# As many slots as environments, and as an observation has numbers: no shape tells them apart.
@pytest.mark.parametrize("slots", [1, 3])
def test_memory_is_that_of_the_current_slot(slots):
    box = gs.Box(-9, 9, (3,), np.float32)
    make = functools.partial(Clock, observation_space=box, observe=lambda t: np.full(3, t, np.float32))
    envs = ShmVectorEnv([make] * 3, num_workers=0, slots=slots, copy=False)
    with contextlib.closing(envs), attach(envs.segment_name) as attached:
        envs.reset()
        for t in range(1, 6):
            observations = envs.step(zeros(3))[0]
            batch = read_from_shared_memory(box, attached.memory, 3)
            assert same(batch, np.full((3, 3), t, np.float32))
            assert same(attached.read(), batch)
            write_to_shared_memory(attached.space, 1, np.full(3, -t, np.float32), attached.memory)
            row_writer(attached.space, attached.memory, 2)(np.full(3, -2 * t, np.float32))
            expected = np.array([[t] * 3, [-t] * 3, [-2 * t] * 3], np.float32)
            assert same(attached.read(), expected)
            assert same(observations, expected)  # a view of that slot


@pytest.mark.parametrize(("slots", "lead"), [(1, (2,)), (4, (4, 2))])
def test_arrays_are_those_of_all_slots(slots, lead):
    envs = ShmVectorEnv(clocks(2), num_workers=0, slots=slots)
    with contextlib.closing(envs), attach(envs.segment_name) as attached:
        envs.reset()
        envs.step(zeros(2))
        assert attached.arrays.shape == (*lead, 2)
        assert np.shares_memory(attached.arrays, attached.memory.view)
        assert attached.memory.view.tolist() == [[1, 1]] * 2


def test_memory_is_that_of_the_current_slot_also_where_observations_are_lent():
    large = gs.Box(0, 255, (200, 200), np.uint8)
    make = functools.partial(Clock, observation_space=large, observe=lambda t: np.full((200, 200), t, np.uint8))
    envs = ShmVectorEnv([make] * 2, num_workers=0)
    with contextlib.closing(envs), attach(envs.segment_name) as attached:
        kept = [envs.reset()[0], envs.step(zeros(2))[0]]
        assert len(attached.arrays) > 1
        assert attached.memory.view.shape == (2, 200, 200)
        assert same(read_from_shared_memory(large, attached.memory, 2), kept[-1])


def test_memory_of_a_slot_is_closed_with_the_others():
    envs = ShmVectorEnv(clocks(2), num_workers=0, slots=2)
    with contextlib.closing(envs):
        attached = attach(envs.segment_name)
        memory = attached.memory
        attached.close()
        for use in (lambda: read_from_shared_memory(attached.space, memory, 2), lambda: attached.arrays):
            with pytest.raises(ValueError, match="is closed in this process"):
                use()


# --- snapshots ------------------------------------------------------------------------------------------------------


@given(spaces().flatmap(lambda space: st.tuples(st.just(space), values(space))))
def test_a_snapshot_is_a_copy_of_the_row_that_was_written(drawn):
    space, item = drawn
    memory = create_shared_memory(space, 2, snapshots=True)
    try:
        attached = attach(segment_of(memory).name)
    except TypeError:
        return
    write_to_shared_memory(space, 1, item, memory)
    assert same_but_for_keys(attached.snapshot(1), item)


def test_memory_without_versions_gives_no_snapshots():
    memory = create_shared_memory(SPACE, 2)
    with pytest.raises(ValueError, match=r"can't give consistent rows.*snapshots=True"):
        attach(segment_of(memory).name).snapshot(0)


# --- what is not ours, or is broken ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gymshm-test-nobody", "a" * 200, "x y", "é"])
def test_a_name_that_nobody_has_is_not_found(name):
    with pytest.raises(gymshm.SegmentNotFoundError) as caught:
        attach(name)
    assert isinstance(caught.value, FileNotFoundError)
    assert caught.value.name == name


@pytest.mark.parametrize("name", ["", "a/b", "/a", "a\0b"], ids=repr)
def test_what_can_be_no_name_is_a_value_error(name):
    with pytest.raises(ValueError, match=r"^Expected a name"):
        attach(name)


@pytest.mark.parametrize("name", [None, 3, b"name"], ids=repr)
def test_what_is_no_text_is_a_type_error(name):
    with pytest.raises(TypeError, match=rf"^Expected the name of a segment, a str, got {type(name).__name__}\.$"):
        attach(name)


def test_who_gives_what_has_a_name_is_told_to_give_the_name():
    memory = gymshm.create_shared_memory(gs.Discrete(2))
    with pytest.raises(TypeError, match=r"got ArrayLeaf\. Give its `segment\.name`\.$"):
        gymshm.attach(memory)
    with pytest.raises(TypeError, match=r"got Segment\. Give its `name`\.$"):
        attach(gymshm.segment_of(memory))
    with contextlib.closing(gymshm.ShmVectorEnv(clocks(1), num_workers=0)) as envs:
        with pytest.raises(TypeError, match=r"got ShmVectorEnv\. Give its `segment_name`\.$"):
            attach(envs)
        with pytest.raises(TypeError, match=r", got ShmVectorEnv\. Use its `segment_name`\.$"):
            gymshm.segment_of(envs)


@pytest.mark.parametrize(
    "raw",
    [b"x", b"x" * 4096, bytes(4096), GOOD[:64], GOOD[:-1], GOOD.replace(b"token", b"Token"), signed({})],
    ids=range(7),
)
def test_what_is_not_ours_or_broken_is_one_clear_error(raw):
    with placed(raw) as name:
        for read_only in (False, True):
            with pytest.raises(gymshm.SegmentFormatError, match=f"^Segment '{name}' can't be read: ") as caught:
                attach(name, read_only=read_only)
            assert isinstance(caught.value, ValueError)
            assert caught.value.name == name


@pytest.mark.parametrize("raw", ALL_GOOD, ids=["memory", "versions", "exchange"])
def test_a_copy_of_a_good_segment_can_be_attached_to(raw):
    with placed(raw) as name:
        attached = attach(name, read_only=True)
        assert same(attached.read(), attached.read())
        assert attached.space.sample() is not None


@hypothesis.settings(max_examples=300)
@given(lies())
def test_a_lie_that_is_signed_is_one_clear_error_or_harmless(raw):
    with placed(raw) as name, contextlib.suppress(gymshm.SegmentFormatError):
        look_at_all_of(attach(name, read_only=True))


def look_at_all_of(attached):
    """Uses an attachment in every way; a header that nobody could have written shows as a SegmentFormatError."""
    sizes = [leaf.view.size for leaf in leaves(attached.memory)]
    assert sum(sizes) <= attached.nbytes
    assert attached.arrays is not None
    repr(attached)
    repr(attached.space)
    attached.read()
    for index in range(min(attached.n, 3)):
        with contextlib.suppress(ValueError, TimeoutError):
            attached.snapshot(index, timeout=0.0)


@pytest.mark.parametrize("n", [0, 1, 2**40])
@pytest.mark.parametrize("shape", [[10**9], [2**62], [10**30], [0, 10**30], [1] * 70, [0] * 70, [2**31, 2**31, 0]])
def test_a_shape_of_any_size_allocates_next_to_nothing(n, shape):
    with placed(boxes_of(shape, n)) as name:
        tracemalloc.start()
        try:
            with contextlib.suppress(gymshm.SegmentFormatError):
                look_at_all_of(attach(name, read_only=True))
            assert tracemalloc.get_traced_memory()[1] < 2**26
        finally:
            tracemalloc.stop()


def test_many_bounds_of_a_reasonable_size_are_too_many_together():
    # Each of these Boxes may have its 16 MB; a thousand of them, in a segment of a few kilobytes, may not.
    with placed(boxes_of([2**22], 0, leaves=1000)) as name:
        attached = attach(name, read_only=True)
        with pytest.raises(gymshm.SegmentFormatError, match="describes no space"):
            attached.space  # noqa: B018
    with placed(boxes_of([2**20], 0)) as name:
        assert attach(name, read_only=True).space == gs.Tuple([gs.Box(0, 1, (2**20,))])


@given(st.binary(min_size=1, max_size=200))
def test_any_bytes_are_one_clear_error(raw):
    with placed(raw) as name, pytest.raises(gymshm.SegmentFormatError):
        attach(name, read_only=True)


def test_attaching_to_many_broken_segments_keeps_nothing_open():
    before = len(os.listdir("/proc/self/fd"))
    with placed(GOOD[:-1]) as name:
        for _ in range(50):
            with pytest.raises(gymshm.SegmentFormatError):
                attach(name)
    assert len(os.listdir("/proc/self/fd")) == before
