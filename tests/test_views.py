from __future__ import annotations

import copy
import multiprocessing
import pickle

import numpy as np
import pytest
from gymnasium import spaces as gs
from hypothesis import given
from hypothesis import strategies as st

import gymshm
from gymshm import read_from_shared_memory, row_writer, write_to_shared_memory
from gymshm.plan import Field
from gymshm.segment import create
from gymshm.spaces import outline
from gymshm.views import ArrayLeaf, TextLeaf, assemble, at_slot, check_container, leaves, segment_of, views
from strategies import spaces
from support import check_python, own, same

SPACE = gs.Dict(
    [
        ("image", gs.Box(0, 255, (2, 3), np.uint8)),
        ("parts", gs.Tuple([gs.Discrete(3), gs.Text(4), gs.Dict({})])),
        ("one", gs.OneOf([gs.MultiBinary(2), gs.Box(-1, 1, (), np.float64)])),
    ]
)


def memory_of(space=SPACE, n=3):
    return gymshm.create_shared_memory(space, n)


# --- the tree and its handles ---------------------------------------------------------------------------------------


def test_the_tree_nests_as_the_space_does():
    memory = memory_of()
    assert list(memory) == ["image", "parts", "one"]
    assert [type(leaf) for leaf in (memory["image"], *memory["parts"][:2])] == [ArrayLeaf, ArrayLeaf, TextLeaf]
    assert memory["parts"][2] == {}
    assert [type(leaf) for leaf in memory["one"]] == [ArrayLeaf] * 3


@given(spaces(), st.integers(0, 3))
def test_each_handle_has_its_array_and_a_buffer_of_its_bytes(space, n):
    for leaf in leaves(memory_of(space, n)):
        assert leaf.view.shape == (n, *leaf.shape)
        assert leaf.view.dtype == leaf.dtype
        assert (leaf.n, leaf.scalar) == (n, leaf.dtype.type if leaf.shape == () else None)
        buffer = leaf.get_obj()
        assert (buffer.nbytes, buffer.readonly, buffer.c_contiguous) == (leaf.view.nbytes, False, True)
        assert np.shares_memory(np.frombuffer(buffer, np.uint8), leaf.view) == (leaf.view.size > 0)


def test_a_handle_is_truthy_and_no_array():
    for leaf in leaves(memory_of(n=1)):
        assert leaf
        assert not isinstance(leaf, np.ndarray)
        assert not hasattr(leaf, "__array__")
        assert not hasattr(leaf, "__len__")
    for leaf in leaves(memory_of(n=0)):
        assert leaf


def test_a_handle_shows_where_it_stands():
    memory = memory_of(gs.Dict(a=gs.Tuple([gs.Box(0, 1, (2,))])), 4)
    segment = segment_of(memory)
    where = f"32 bytes at {segment.header.data_offset} in {segment.name!r}"
    assert repr(memory["a"][0]) == f"<gymshm leaf values['a'][0]: float32 (4, 2), {where}>"


def test_leaves_of_one_segment_do_not_share_memory():
    arrays = [leaf.view for leaf in leaves(memory_of())]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])


def test_the_arrays_come_nested_as_the_memory_is():
    memory = memory_of()
    arrays = views(memory)
    assert np.shares_memory(arrays["image"], memory["image"].view)
    assert (arrays["parts"][1].shape, arrays["parts"][1].dtype) == ((3, 4), np.int32)
    assert arrays["parts"][2] == {}
    assert [array.shape for array in arrays["one"]] == [(3,), (3, 2), (3,)]


def test_memory_at_a_slot_is_that_row_of_the_first_dimension():
    segment = create([Field("values", (2, 3), outline(SPACE))], 3)
    memory = assemble(segment)
    slots = [at_slot(memory, slot) for slot in range(2)]
    slots[1]["image"].view[2] = 7
    assert slots[1]["image"].view.shape == (3, 2, 3)
    assert memory["image"].view[1, 2].tolist() == [[7] * 3] * 2
    assert not memory["image"].view[0].any()
    assert slots[0]["parts"][2] == {}
    segment.close()
    assert all(leaf.view is None for slot in slots for leaf in leaves(slot))


def test_a_handle_of_a_slot_is_of_that_slot_alone_wherever_it_goes():
    segment = create([Field("values", (2, 3), outline(SPACE))], 3)
    memory = at_slot(assemble(segment), 1)
    image = memory["image"]
    assert repr(image).endswith(f"in {segment.name!r}, slot 1>")
    np.frombuffer(image.get_obj(), np.uint8)[:] = 7  # what gymnasium's functions do
    travelled = pickle.loads(pickle.dumps(memory))
    assert [leaf.view.shape for leaf in leaves(travelled)] == [leaf.view.shape for leaf in leaves(memory)]
    assert (travelled["image"].view == 7).all()
    travelled["image"].view[...] = 8
    whole = pickle.loads(pickle.dumps(assemble(segment)))
    assert (whole["image"].view[1] == 8).all()
    assert not whole["image"].view[0].any()


def test_handles_of_all_slots_are_neither_written_to_nor_read_from():
    space = gs.Dict(numbers=gs.Box(-9, 9, (3,)), text=gs.Text(3), one=gs.OneOf([gs.Discrete(3)]))
    # As many slots as a value has numbers, and as there are rows: no shape tells them apart.
    whole = assemble(create([Field("values", (3, 3), outline(space))], 3))
    before = copy.deepcopy(tuple(views(whole).values()))
    value = {"numbers": np.ones(3, np.float32), "text": "a", "one": (0, np.int64(1))}
    for part in space.spaces:
        for use in (
            lambda part=part: read_from_shared_memory(space[part], whole[part], 3),
            lambda part=part: write_to_shared_memory(space[part], 0, value[part], whole[part]),
        ):
            with pytest.raises(TypeError, match=r"one slot.* got all slots: <gymshm leaf values"):
                use()
    with pytest.raises(TypeError, match="Expected the memory"):
        row_writer(space, whole, 0)
    assert all(map(same, before, views(whole).values()))


def test_a_part_that_lives_elsewhere_is_an_empty_tuple_to_who_attaches():
    described = outline(gs.Tuple([gs.Discrete(2), gs.Dict({})]), lambda space: isinstance(space, gs.Dict))
    assert assemble(create([Field("values", (1,), described)], 1))[1] == ()


# --- from memory to its segment -------------------------------------------------------------------------------------


def test_any_part_of_the_tree_leads_to_the_segment():
    memory = memory_of()
    segment = segment_of(memory)
    parts = [
        memory["image"],
        memory["parts"],
        memory["parts"][1],
        memory["one"],
        {"x": memory["one"]},
        [memory["image"]],
    ]
    assert all(segment_of(part) is segment for part in parts)
    assert (segment.n, segment.nbytes) == (3, gymshm.attach(segment.name).nbytes)


@pytest.mark.parametrize("memory", [(), {}, {"a": ()}, None, 3, np.zeros(2)], ids=repr)
def test_memory_that_lives_in_no_segment_is_said_to(memory):
    with pytest.raises(TypeError, match=r"Expected what `gymshm.create_shared_memory` returned"):
        segment_of(memory)


def test_a_container_has_to_have_the_parts_of_its_space():
    space = gs.Dict(a=gs.Discrete(2))
    check_container(space, {"a": 1}, space.spaces)
    check_container(space, [1, 2], (1, 2))
    for memory, parts in (
        ({"b": 1}, space.spaces),
        ([1], space.spaces),
        (None, space.spaces),
        ((1,), (1, 2)),
        ({}, ()),
    ):
        with pytest.raises(
            TypeError, match=r"Expected the memory that `gymshm.create_shared_memory` returned for Dict"
        ):
            check_container(space, memory, parts)


# --- closing --------------------------------------------------------------------------------------------------------


def test_arrays_stay_readable_after_close_and_handles_say_that_they_are_closed():
    memory = memory_of(gs.Dict(a=gs.Box(0, 1, (2,)), t=gs.Text(3)))
    view = memory["a"].view
    view[...] = 0.5
    segment = segment_of(memory)
    segment.close()
    segment.close()
    assert view.tolist() == [[0.5] * 2] * 3
    for leaf in leaves(memory):
        assert leaf.view is None
        for use in (leaf.live_view, leaf.read, leaf.get_obj):
            with pytest.raises(ValueError, match=f"Segment '{segment.name}' is closed in this process"):
                use()
        assert repr(leaf)
        assert leaf


# --- travelling -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("travel", [copy.copy, copy.deepcopy, lambda memory: pickle.loads(pickle.dumps(memory))])
def test_memory_that_travels_within_a_process_is_the_same_mapping(travel):
    memory = memory_of()
    travelled = travel(memory)
    gymshm.write_to_shared_memory(SPACE, 1, SPACE.sample(), travelled)
    assert same(gymshm.read_from_shared_memory(SPACE, memory, 3), gymshm.read_from_shared_memory(SPACE, travelled, 3))
    assert segment_of(travelled) is segment_of(memory)


def test_a_handle_travels_as_a_name():
    memory = memory_of(gs.Box(0, 1, (1000, 1000)))
    assert len(pickle.dumps(memory)) < 500


def test_memory_whose_segment_is_gone_can_not_arrive():
    memory = memory_of()
    sent = pickle.dumps(memory)
    name = segment_of(memory).name
    del memory
    with pytest.raises(gymshm.SegmentNotFoundError, match=f"'{name}'"):
        pickle.loads(sent)


def test_memory_never_arrives_as_another_segment_of_the_same_name():
    memory = gymshm.create_shared_memory(SPACE, 3, name=own("gymshm-test-twice"))
    sent = pickle.dumps(memory)
    del memory
    again = gymshm.create_shared_memory(SPACE, 3, name=own("gymshm-test-twice"))
    with pytest.raises(gymshm.SegmentNotFoundError, match="another one has taken its name"):
        pickle.loads(sent)
    del again


VALUE = {"image": np.full((2, 3), 9, np.uint8), "parts": (2, "ab", {}), "one": (1, np.float64(0.5))}


def write_as_argument(memory, index):
    gymshm.write_to_shared_memory(SPACE, index, VALUE, memory)


def write_from_queue(queue, index):
    gymshm.write_to_shared_memory(SPACE, index, VALUE, queue.get())


def write_from_pipe(pipe, index):
    memory = pipe.recv()
    gymshm.write_to_shared_memory(SPACE, index, VALUE, memory)
    pipe.send(memory["image"])


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_memory_travels_under_every_start_method_through_arguments_pipes_and_queues(method):
    context = multiprocessing.get_context(method)
    memory = gymshm.create_shared_memory(SPACE, 3, context)
    queue, (here, there) = context.SimpleQueue(), context.Pipe()
    targets = [(write_as_argument, memory), (write_from_queue, queue), (write_from_pipe, there)]
    children = [context.Process(target=target, args=(way, i)) for i, (target, way) in enumerate(targets)]
    for child in children:
        child.start()
    queue.put(memory)
    here.send(memory)
    assert np.shares_memory(here.recv().view, memory["image"].view)
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0, 0]
    batch = gymshm.read_from_shared_memory(SPACE, memory, 3)
    assert (batch["image"] == 9).all()
    assert batch["parts"][0].tolist() == [2, 2, 2]
    assert batch["parts"][1] == ("ab",) * 3
    assert batch["one"] == ((1, 0.5),) * 3
    for end in (queue, here, there):
        end.close()
    for child in children:
        child.close()


def test_a_hundred_handles_of_one_segment_make_one_mapping_in_a_child():
    memory = memory_of(gs.Tuple([gs.Discrete(2)] * 100))
    out = check_python(
        """
        import os, pickle, sys
        import gymshm
        memory = pickle.loads(bytes.fromhex(sys.argv[1]))
        name = gymshm.segment_of(memory).name
        print(sum(name in line for line in open("/proc/self/maps")))
        links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        print(sum(name in os.readlink(link) for link in links if os.path.exists(link)))
        """,
        pickle.dumps(memory).hex(),
    )
    maps, descriptors = map(int, out.split())
    assert maps == 1
    assert descriptors <= 1
