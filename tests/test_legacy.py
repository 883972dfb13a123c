from __future__ import annotations

import inspect
import multiprocessing
from collections import OrderedDict

import gymnasium.error
import numpy as np
import pytest
from gymnasium import Space
from gymnasium import spaces as gs
from gymnasium.vector.utils import batch_space
from hypothesis import given

import gymshm
from gymshm import legacy
from strategies import spaces_with_values
from support import row, same

SPACE = gs.Dict([("b", gs.Box(0, 9, (2,), np.float32)), ("a", gs.Tuple([gs.Discrete(9), gs.Dict(x=gs.Text(3))]))])
VALUE = {"b": np.array([1, 2], np.float32), "a": (np.int64(3), {"x": "ab"})}


class Custom(Space):
    """A custom space."""


class Memory(dict):
    """A mapping of a handler's own."""


def test_the_argument_order_is_that_of_gym_021():
    assert list(inspect.signature(legacy.create_shared_memory).parameters) == ["space", "n", "ctx"]
    assert list(inspect.signature(legacy.read_from_shared_memory).parameters) == ["shared_memory", "space", "n"]
    assert list(inspect.signature(legacy.write_to_shared_memory).parameters) == [
        "index",
        "value",
        "shared_memory",
        "space",
    ]
    assert list(inspect.signature(legacy.iterate).parameters) == ["space", "items"]
    assert legacy.CustomSpaceError is gymnasium.error.CustomSpaceError


@pytest.mark.parametrize("ctx", [multiprocessing, multiprocessing.get_context("spawn")])
@pytest.mark.parametrize("keywords", [False, True])
def test_a_caller_of_that_age_is_served(ctx, keywords):
    if keywords:
        memory = legacy.create_shared_memory(space=SPACE, n=2, ctx=ctx)
        assert legacy.write_to_shared_memory(index=1, value=VALUE, shared_memory=memory, space=SPACE) is None
        batch = legacy.read_from_shared_memory(shared_memory=memory, space=SPACE, n=2)
    else:
        memory = legacy.create_shared_memory(SPACE, 2, ctx)
        assert legacy.write_to_shared_memory(1, VALUE, memory, SPACE) is None
        batch = legacy.read_from_shared_memory(memory, SPACE, 2)
    for tree in (memory, batch):
        assert (type(tree), list(tree)) == (OrderedDict, ["b", "a"])
        assert type(tree["a"]) is tuple
        assert type(tree["a"][1]) is OrderedDict
    assert same(row(SPACE, batch, 1), VALUE)
    assert batch["a"][1]["x"] == ("", "ab")


def test_defaults_are_one_environment():
    memory = legacy.create_shared_memory(gs.Discrete(3))
    assert legacy.read_from_shared_memory(memory, gs.Discrete(3)).tolist() == [0]


@given(spaces_with_values())
def test_both_orders_do_the_same(drawn):
    space, items = drawn
    old, new = legacy.create_shared_memory(space, len(items)), gymshm.create_shared_memory(space, len(items))
    for i, item in enumerate(items):
        legacy.write_to_shared_memory(i, item, old, space)
        gymshm.write_to_shared_memory(space, i, item, new)
    modern = gymshm.read_from_shared_memory(space, new, len(items))
    assert same(legacy.read_from_shared_memory(old, space, len(items)), modern)
    assert same(gymshm.read_from_shared_memory(space, old, len(items)), modern)


def test_iterating_gives_an_ordered_dict_for_each_environment():
    batch = legacy.read_from_shared_memory(legacy.create_shared_memory(SPACE, 2), SPACE, 2)
    rows = list(legacy.iterate(batch_space(SPACE, 2), batch))
    assert [type(item) for item in rows] == [OrderedDict] * 2
    assert type(rows[0]["a"][1]) is OrderedDict
    assert [item.tolist() for item in legacy.iterate(gs.MultiDiscrete([3, 3]), np.array([1, 2]))] == [1, 2]


def test_errors_are_those_of_the_modern_functions():
    memory = legacy.create_shared_memory(SPACE, 2)
    with pytest.raises(IndexError, match=r"Expected an integer index in \[0, 2\)"):
        legacy.write_to_shared_memory(2, VALUE, memory, SPACE)
    with pytest.raises(gymshm.CustomSpaceError, match="Cannot create a shared memory for space with type"):
        legacy.create_shared_memory(Custom())
    with pytest.raises(gymshm.CustomSpaceError, match="Cannot read from a shared memory for space with type"):
        legacy.read_from_shared_memory(memory, Custom())
    with pytest.raises(gymshm.CustomSpaceError, match="Cannot write to a shared memory for space with type"):
        legacy.write_to_shared_memory(0, VALUE, memory, Custom())
    with pytest.raises(gymshm.CustomSpaceError, match="Unable to iterate over"):
        legacy.iterate(Custom(), [])


def test_the_order_is_never_guessed_from_types():
    memory = legacy.create_shared_memory(SPACE, 2)
    with pytest.raises(TypeError, match="The space provided to `read_from_shared_memory` is not a gymnasium Space"):
        legacy.read_from_shared_memory(SPACE, memory, 2)


@pytest.mark.usefixtures("registries")
def test_a_handlers_own_kind_of_mapping_stays_what_it_is():
    gymshm.create_shared_memory.register(Custom, lambda space, n=1, ctx=None: Memory(a=1))
    gymshm.read_from_shared_memory.register(Custom, lambda space, memory, n=1: memory)
    memory = legacy.create_shared_memory(gs.Dict(a=Custom()))
    assert type(memory["a"]) is Memory
    assert type(legacy.read_from_shared_memory(memory, gs.Dict(a=Custom()))["a"]) is Memory
