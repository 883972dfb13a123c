from __future__ import annotations

import numpy as np
import pytest
from gymnasium import Space
from gymnasium import spaces as gs
from gymnasium.vector.utils import batch_space
from hypothesis import given

import gymshm
from gymshm import create_shared_memory, describe, read_from_shared_memory, write_to_shared_memory
from strategies import BOX_DTYPES, spaces_with_values
from support import same


class Custom(Space):
    """A custom space that nobody registered."""


class Pixels(gs.Box):
    """A subclass of a built-in space."""


@pytest.mark.parametrize("dtype", BOX_DTYPES, ids=lambda dtype: dtype.str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 2)])
@pytest.mark.parametrize("n", [0, 1, 4])
def test_a_box_of_every_dtype_and_shape_is_read_as_it_is(dtype, shape, n):
    space = gs.Box(0, 1, shape, dtype)
    batch = read_from_shared_memory(space, create_shared_memory(space, n), n)
    assert (batch.shape, batch.dtype.str, batch.flags.writeable) == ((n, *shape), dtype.str, True)


@given(spaces_with_values())
def test_a_batch_is_a_member_of_the_batched_space(drawn):
    space, items = drawn
    memory = create_shared_memory(space, len(items))
    for i, item in enumerate(items):
        write_to_shared_memory(space, i, item, memory)
    batch = read_from_shared_memory(space, memory, len(items))
    if items and is_flat(space):
        assert batch in batch_space(space, len(items))


def is_flat(space):
    """Whether gymnasium's own spaces agree: not on other byte orders, nor on the scalars of a OneOf."""
    if isinstance(space, gs.Dict | gs.Tuple):
        return all(map(is_flat, space.spaces.values() if isinstance(space, gs.Dict) else space.spaces))
    return isinstance(space, gs.Box | gs.MultiBinary) and space.dtype.isnative


def test_arrays_are_views_and_a_change_on_either_side_is_seen_on_the_other():
    space = gs.Dict(a=gs.Box(0, 9, (2,)), b=gs.Tuple([gs.Discrete(9)]))
    memory = create_shared_memory(space, 3)
    first, second = (read_from_shared_memory(space, memory, 3) for _ in range(2))
    first["a"][1] = 7
    assert second["a"][1].tolist() == [7, 7]
    write_to_shared_memory(space, 0, {"a": np.ones(2), "b": (5,)}, memory)
    assert (first["a"][0].tolist(), first["b"][0].tolist()) == ([1, 1], [5, 0, 0])


def test_a_dict_is_a_dict_in_the_order_of_the_space():
    space = gs.Dict([("b", gs.Discrete(2)), ("a", gs.Discrete(2))])
    batch = read_from_shared_memory(space, create_shared_memory(space))
    assert (type(batch), list(batch)) == (dict, ["b", "a"])


def test_text_and_choices_are_decoded_as_they_are_at_the_moment():
    space = gs.Tuple([gs.Text(3), gs.OneOf([gs.Discrete(9), gs.Dict(a=gs.Tuple([gs.Box(0, 9, (2,))]))])])
    memory = create_shared_memory(space, 2)
    write_to_shared_memory(space, 0, ("ab", (0, 5)), memory)
    batch = read_from_shared_memory(space, memory, 2)
    write_to_shared_memory(space, 0, ("c", (1, {"a": ([1, 2],)})), memory)
    assert batch == (("ab", ""), ((0, 5), (0, 0)))
    text, ((chosen, value), _) = read_from_shared_memory(space, memory, 2)
    assert (text, chosen, type(chosen)) == (("c", ""), 1, np.int64)
    assert same(value, {"a": (np.array([1, 2], np.float32),)})


@pytest.mark.parametrize(
    "call",
    [
        lambda space, memory: read_from_shared_memory(space, memory, 3),
        lambda space, memory: read_from_shared_memory(space, memory, n=3),
        lambda space, memory: read_from_shared_memory(space, shared_memory=memory, n=3),
        lambda space, memory: read_from_shared_memory(n=3, shared_memory=memory, space=space),
        lambda space, memory: read_from_shared_memory(space, memory, np.int64(3)),
    ],
)
def test_positional_mixed_and_all_keyword_calls(call):
    space = gs.Dict(a=gs.Discrete(3))
    assert call(space, create_shared_memory(space, 3))["a"].tolist() == [0, 0, 0]


def test_another_number_of_environments_is_a_value_error():
    for space in (gs.Discrete(3), gs.Text(3), gs.Dict(a=gs.Tuple([gs.Discrete(3)])), gs.OneOf([gs.Discrete(3)])):
        memory = create_shared_memory(space, 3)
        for n in (0, 1, 2, 4):
            with pytest.raises(ValueError, match=f"^Expected n=3, for which this memory was created, got n={n}"):
                read_from_shared_memory(space, memory, n)


def test_a_closed_segment_is_a_value_error():
    space = gs.Dict(a=gs.Tuple([gs.Discrete(3)]), t=gs.Text(2), o=gs.OneOf([gs.Discrete(2)]))
    memory = create_shared_memory(space, 3)
    batch = read_from_shared_memory(space, memory, 3)
    gymshm.segment_of(memory).close()
    with pytest.raises(ValueError, match="is closed in this process"):
        read_from_shared_memory(space, memory, 3)
    assert batch["a"][0].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "wrap", [lambda s: s, lambda s: gs.Dict(a=s), lambda s: gs.Tuple([s]), lambda s: gs.OneOf([s])]
)
def test_a_custom_space_that_nobody_registered_is_refused_in_both_texts(wrap):
    memory = create_shared_memory(wrap(gs.Discrete(2)))
    with pytest.raises(gymshm.CustomSpaceError) as caught:
        read_from_shared_memory(wrap(Custom()), memory)
    assert str(caught.value) == (
        f"Cannot read from a shared memory for space with type `{Custom}`. Shared memory only supports default Gym "
        "spaces (e.g. `Box`, `Tuple`, `Dict`, etc...), and does not support custom Gym spaces. Space of type "
        f"`{Custom}` doesn't have an registered `read_from_shared_memory` function. Register `{Custom}` for "
        "`read_from_shared_memory` to support it."
    )


@pytest.mark.parametrize("space", ["space", None, 3, gs.Discrete], ids=repr)
def test_what_is_no_space_is_a_type_error(space):
    with pytest.raises(TypeError) as caught:
        read_from_shared_memory(space, None, 1)
    assert str(caught.value) == (
        "The space provided to `read_from_shared_memory` is not a gymnasium Space instance, type: "
        f"{type(space)}, {space}"
    )


def test_subclasses_of_built_in_spaces_are_read_at_any_depth_in_no_time():
    # A search that starts anew at each level would take 2**200 steps here.
    space = Pixels(0, 255, (2,), np.uint8)
    for _ in range(200):
        space = gs.Dict(a=space)
    batch = read_from_shared_memory(space, create_shared_memory(space))
    for _ in range(200):
        batch = batch["a"]
    assert same(batch, np.zeros((1, 2), np.uint8))


@pytest.mark.usefixtures("registries")
def test_a_described_space_is_read_as_what_stands_for_it_also_as_a_choice():
    describe.register(Custom, lambda space: gs.Dict(x=gs.Box(0, 9, (2,)), y=gs.Text(2)))
    space = gs.Tuple([Custom(), gs.OneOf([gs.Discrete(2), Custom()])])
    memory = create_shared_memory(space, 2)
    value = {"x": np.array([1, 2], np.float32), "y": "ab"}
    write_to_shared_memory(space, 1, (value, (1, value)), memory)
    whole, choices = read_from_shared_memory(space, memory, 2)
    assert same(whole, {"x": np.array([[0, 0], [1, 2]], np.float32), "y": ("", "ab")})
    assert same(choices[1], (np.int64(1), value))


@pytest.mark.usefixtures("registries")
def test_a_handlers_batch_may_be_a_choice():
    create_shared_memory.register(Custom, lambda space, n=1, ctx=None: [None] * n)
    write_to_shared_memory.register(Custom, lambda space, index, value, memory: memory.__setitem__(index, value))
    read_from_shared_memory.register(Custom, lambda space, memory, n=1: tuple(memory))
    space = gs.OneOf([gs.Discrete(9), Custom()])
    memory = create_shared_memory(space, 2)
    write_to_shared_memory(space, 0, (1, "anything"), memory)
    assert read_from_shared_memory(space, memory, 2) == ((1, "anything"), (0, 0))


@pytest.mark.parametrize(
    "other",
    [
        gs.Box(0, 255, (5,), np.uint8),
        gs.Box(0, 255, (4, 1), np.uint8),
        gs.Box(0, 127, (4,), np.int8),
        gs.Discrete(5),
        gs.Text(4),
    ],
    ids=repr,
)
@pytest.mark.parametrize("before", [False, True])
def test_memory_of_other_shapes_or_dtypes_is_refused_also_after_it_was_read_rightly(other, before):
    space = gs.Dict(image=gs.Box(0, 255, (4,), np.uint8), speed=gs.Discrete(5))
    memory = create_shared_memory(space, 2)
    if before:
        read_from_shared_memory(space, memory, 2)
    with pytest.raises(
        TypeError, match=r"^Expected the memory that `gymshm\.create_shared_memory` returned for "
    ) as caught:
        read_from_shared_memory(gs.Dict(image=other, speed=gs.Discrete(5)), memory, 2)
    assert ", got <gymshm leaf values['image']: uint8 (2, 4), " in str(caught.value)
    assert str(caught.value).endswith(". Use the space that it was created for.")
    assert read_from_shared_memory(space, memory, 2)["image"].shape == (2, 4)


def test_other_bounds_are_no_other_memory():
    memory = create_shared_memory(gs.Box(0, 255, (4,), np.uint8), 2)
    assert read_from_shared_memory(gs.Box(0, 9, (4,), np.uint8), memory, 2).shape == (2, 4)
    texts = create_shared_memory(gs.Text(3), 2)
    with pytest.raises(TypeError, match=r"^Expected the memory"):
        read_from_shared_memory(gs.Text(4), texts, 2)
