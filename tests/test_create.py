from __future__ import annotations

import multiprocessing
import os

import numpy as np
import pytest
from gymnasium import Space
from gymnasium import spaces as gs
from hypothesis import given
from hypothesis import strategies as st

import gymshm
from gymshm import create_shared_memory, describe, segment_of
from gymshm.create import can_be_packed
from gymshm.views import leaves
from strategies import spaces
from support import own


class Custom(Space):
    """A custom space that nobody registered."""


class Packed(Space):
    """A custom space that is described."""


class Handled(Space):
    """A custom space that has handlers."""


@pytest.fixture
def custom_spaces(registries):
    describe.register(Packed, lambda space: gs.Box(-1, 1, (2,)))
    create_shared_memory.register(Handled, lambda space, n=1, ctx=None: ["handled", n, ctx])


@given(spaces(), st.integers(0, 5))
def test_every_space_has_memory_for_any_number_of_environments(space, n):
    memory = create_shared_memory(space, n)
    for leaf in leaves(memory):
        assert leaf.n == n
        assert leaf.segment is segment_of(memory)


@pytest.mark.parametrize(
    "call",
    [
        lambda space, ctx: create_shared_memory(space, 3, ctx),
        lambda space, ctx: create_shared_memory(space, 3, ctx=ctx),
        lambda space, ctx: create_shared_memory(space, n=3, ctx=ctx),
        lambda space, ctx: create_shared_memory(ctx=ctx, n=3, space=space),
        lambda space, ctx: create_shared_memory(space, np.int64(3)),
    ],
)
@pytest.mark.parametrize("ctx", [multiprocessing, *map(multiprocessing.get_context, ["fork", "spawn", "forkserver"])])
def test_positional_mixed_and_all_keyword_calls(call, ctx):
    assert call(gs.Discrete(3), ctx).view.tolist() == [0, 0, 0]


def test_one_environment_is_the_default():
    assert create_shared_memory(gs.Discrete(3)).n == 1


def test_fresh_memory_is_zero():
    for leaf in leaves(create_shared_memory(gs.Tuple([gs.Box(-1, 1, (3,)), gs.OneOf([gs.Discrete(3, start=1)])]), 2)):
        assert not leaf.view.any()


@pytest.mark.parametrize("n", [-1, -(2**70)])
def test_a_negative_number_of_environments_is_a_value_error(n):
    with pytest.raises(ValueError, match=f"^Expected a number of environments from 0 up, got n={n}"):
        create_shared_memory(gs.Discrete(3), n)


@pytest.mark.parametrize("n", [1.0, "1", None])
def test_a_number_of_environments_that_is_no_integer_is_a_type_error(n):
    with pytest.raises(TypeError) as caught:
        create_shared_memory(gs.Discrete(3), n)
    assert str(caught.value) == f"Expected n, a number of environments, to be an integer, got {n!r}."


def test_the_caller_may_choose_the_name():
    name = own("gymshm-test")
    memory = create_shared_memory(gs.Discrete(3), name=name)
    assert segment_of(memory).name == name
    with pytest.raises(gymshm.SegmentExistsError, match=f"'{name}'"):
        create_shared_memory(gs.Discrete(3), name=name)
    assert gymshm.attach(name).space == gs.Discrete(3)


TREE = gs.Dict({str(i): gs.Box(-1, 1, (i,)) for i in range(1, 11)})


def test_a_tree_takes_one_segment_one_mapping_and_one_descriptor():
    def maps(name):
        with open("/proc/self/maps") as file:
            return sum(name in line for line in file)

    before = set(os.listdir("/proc/self/fd"))
    memory = create_shared_memory(TREE, 64)
    assert maps(segment_of(memory).name) == 1
    assert len(set(os.listdir("/proc/self/fd")) - before) == 1


# --- errors ---------------------------------------------------------------------------------------------------------

WRAPS = {
    "root": lambda space: space,
    "Dict": lambda space: gs.Dict(a=gs.Discrete(2), b=space),
    "Tuple": lambda space: gs.Tuple([gs.Discrete(2), space]),
    "OneOf": lambda space: gs.OneOf([gs.Discrete(2), space]),
    "deep": lambda space: gs.Dict(a=gs.Tuple([gs.OneOf([gs.Dict(b=space)])])),
}


@pytest.mark.parametrize("wrap", WRAPS)
def test_a_custom_space_that_nobody_registered_is_refused_in_both_texts(wrap):
    with pytest.raises(gymshm.CustomSpaceError) as caught:
        create_shared_memory(WRAPS[wrap](Custom()))
    assert str(caught.value) == (
        f"Cannot create a shared memory for space with type `{Custom}`. Shared memory only supports default Gym spaces "
        "(e.g. `Box`, `Tuple`, `Dict`, etc...), and does not support custom Gym spaces. Space of type "
        f"`{Custom}` doesn't have an registered `create_shared_memory` function. Register `{Custom}` for "
        "`create_shared_memory` to support it."
    )


@pytest.mark.parametrize("space", ["space", None, 3, gs.Discrete, np.zeros(2)], ids=repr)
def test_what_is_no_space_is_a_type_error(space):
    with pytest.raises(TypeError) as caught:
        create_shared_memory(space)
    assert type(caught.value) is TypeError
    assert str(caught.value) == (
        f"The space provided to `create_shared_memory` is not a gymnasium Space instance, type: {type(space)}, {space}"
    )


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize(
    "space", [gs.Sequence(gs.Discrete(2)), gs.Graph(gs.Discrete(2), None)], ids=["Sequence", "Graph"]
)
def test_a_space_without_a_fixed_size_is_a_type_error(space, wrap):
    text = f"As {space} has a dynamic shape so its not possible to make a static shared memory."
    with pytest.raises(TypeError) as caught:
        create_shared_memory(WRAPS[wrap](space))
    assert str(caught.value).startswith(text)


# --- custom spaces --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("custom_spaces")
def test_a_described_space_is_packed_and_a_handled_one_is_an_entry_of_its_own():
    context = multiprocessing.get_context("spawn")
    space = gs.Dict(a=Packed(), b=gs.Tuple([Handled(), gs.Discrete(2)]), c=gs.OneOf([Handled(), Packed()]))
    memory = create_shared_memory(space, 3, context)
    entry = ["handled", 3, context]
    assert (memory["b"][0], memory["c"][1]) == (entry, entry)
    packed = [memory["a"], memory["b"][1], memory["c"][0], memory["c"][2]]
    assert {segment_of(leaf).name for leaf in packed} == {segment_of(memory).name}
    assert memory["a"].view.shape == (3, 2)


@pytest.mark.usefixtures("custom_spaces")
def test_a_handled_space_at_the_root_is_what_its_handler_made():
    assert create_shared_memory(Handled(), n=2, ctx=None) == ["handled", 2, None]


@pytest.mark.usefixtures("custom_spaces")
def test_what_can_be_packed_is_all_but_handled():
    assert can_be_packed(gs.Dict(a=Packed(), b=gs.Tuple([gs.Text(3), gs.OneOf([Packed()])])))
    assert not can_be_packed(gs.Dict(a=Packed(), b=gs.Tuple([Handled()])))
    with pytest.raises(gymshm.CustomSpaceError):
        can_be_packed(gs.Tuple([Custom()]))
    with pytest.raises(TypeError, match="has a dynamic shape"):
        can_be_packed(gs.Tuple([gs.Sequence(gs.Discrete(2))]))


@pytest.mark.usefixtures("registries")
def test_a_handler_that_fails_leaves_nothing_behind():
    def fail(space, n, ctx):
        raise RuntimeError("no room")

    create_shared_memory.register(Handled, fail)
    name = own("gymshm-test-fail")
    with pytest.raises(RuntimeError, match="no room"):
        create_shared_memory(gs.Tuple([gs.Discrete(2), Handled()]), name=name)
    with pytest.raises(gymshm.SegmentNotFoundError):
        gymshm.attach(name)
