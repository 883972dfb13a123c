"""``batches``: a batch goes through the segment and comes out as it went in, or does not go through it."""

from __future__ import annotations

import copy
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from gymnasium import spaces as gs
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from hypothesis import given

import gymshm
from environments import assert_same
from gymshm.batches import (
    batch_reader,
    batch_writer,
    copied,
    detached,
    exact_row,
    gathered,
    rows_reader,
    survives,
    viewed,
)
from strategies import spaces, values
from support import crooked

BOX = gs.Box(-9, 9, (2,), np.float32)


def batch_of(space: gs.Space[Any], items: list[Any]) -> Any:
    """What gymnasium makes of ``items``; there are spaces that it can't do it for."""
    try:
        batch = concatenate(space, items, create_empty_array(space, len(items)))
        rows = list(iterate(batch_space(space, len(items)), batch))
    except Exception:
        hypothesis.reject()
    hypothesis.assume(len(rows) == len(items))  # of a batch of empty tuples gymnasium gives no rows
    return batch


@st.composite
def batches(draw: st.DrawFn) -> tuple[gs.Space[Any], list[Any]]:
    space = draw(spaces())
    return space, draw(st.lists(values(space), min_size=1, max_size=4))


@given(batches())
def test_rows_are_what_iterating_over_the_batch_gives(drawn):
    space, items = drawn
    n = len(items)
    batch = batch_of(space, items)
    memory = gymshm.create_shared_memory(space, n)
    assert batch_writer(space, memory, n)(batch)
    expected = list(iterate(batch_space(space, n), batch))
    assert_same(rows_reader(space, memory, 0, n)(), expected)
    for start in range(n):
        assert_same(rows_reader(space, memory, start, n)(), expected[start:])


@given(batches(), st.data())
def test_rows_stay_what_they_were(drawn, data):
    space, items = drawn
    n = len(items)
    batch, other = batch_of(space, items), batch_of(space, data.draw(st.lists(values(space), min_size=n, max_size=n)))
    memory = gymshm.create_shared_memory(space, n)
    write, read = batch_writer(space, memory, n), rows_reader(space, memory, 0, n)
    assert write(batch)
    kept = read()
    before = copy.deepcopy(kept)
    assert write(other)
    assert_same(kept, before)


@given(batches())
def test_a_value_that_survives_comes_back_exactly(drawn):
    space, items = drawn
    memory = gymshm.create_shared_memory(space, len(items))
    for i, item in enumerate(items):
        gymshm.write_to_shared_memory(space, i, item, memory)
    for i, item in enumerate(items):
        assert survives(space, item)
        assert_same(exact_row(space, memory, i), item)


@given(batches(), st.booleans())
def test_a_reader_gives_what_reading_gives(drawn, copies):
    space, items = drawn
    n = len(items)
    memory = gymshm.create_shared_memory(space, n)
    for i, item in enumerate(items):
        gymshm.write_to_shared_memory(space, i, item, memory)
    expected = gymshm.read_from_shared_memory(space, memory, n)
    read = batch_reader(space, memory, n, copied if copies else viewed)
    assert_same(read(), expected)
    kept, before = read(), copy.deepcopy(read())
    gymshm.write_to_shared_memory(space, 0, items[-1], memory)
    if copies:
        assert_same(kept, before)
    assert_same(read(), gymshm.read_from_shared_memory(space, memory, n))


@given(batches(), st.data())
def test_gathered_rows_are_those_of_the_environments_asked_for(drawn, data):
    space, items = drawn
    n = len(items)
    memory = gymshm.create_shared_memory(space, n)
    for i, item in enumerate(items):
        gymshm.write_to_shared_memory(space, i, item, memory)
    chosen = data.draw(st.lists(st.integers(0, n - 1), min_size=1, unique=True))
    smaller = gymshm.create_shared_memory(space, len(chosen))
    for row, i in enumerate(chosen):
        gymshm.write_to_shared_memory(space, row, items[i], smaller)
    expected = gymshm.read_from_shared_memory(space, smaller, len(chosen))
    rows = gathered(space, memory, n, np.array(chosen))
    assert_same(rows, expected)
    before = copy.deepcopy(rows)
    gymshm.write_to_shared_memory(space, chosen[0], items[0], memory)
    assert_same(rows, before)


@pytest.mark.parametrize(
    ("space", "batch"),
    [
        (BOX, np.ones((2, 2))),  # another dtype
        (BOX, np.ones((2, 2), ">f4")),
        (BOX, np.ones((3, 2), np.float32)),  # another number
        (BOX, np.ones((2, 3), np.float32)),  # another shape
        (BOX, [[1.0, 2.0], [3.0, 4.0]]),
        (BOX, 1.0),
        (BOX, None),
        (gs.Discrete(5), [1, 2]),
        (gs.Discrete(5), np.array([1, 2], np.int32)),
        (gs.Discrete(5), np.array([1, 2], ">i8")),
        (gs.Discrete(5), np.array([1, 2, 3])),
        (gs.Discrete(5), np.array([[1, 2]])),
        (gs.Discrete(5), np.array(1)),
        (gs.Discrete(5), np.array([1, 2], object)),
        (gs.Discrete(5), np.array(["2026-12-03"] * 2, "M8[D]")),
        (gs.Dict(a=BOX), {"b": np.ones((2, 2), np.float32)}),
        (gs.Dict(a=BOX, b=BOX), {"a": np.ones((2, 2), np.float32), "b": np.ones((2, 2))}),
        (gs.Tuple([BOX]), ()),
        (gs.Tuple([BOX]), (np.ones((2, 2), np.float32),) * 2),
        (gs.Text(3), ("a", "b", "c")),
        (gs.Text(3), ("a", "toolong")),
        (gs.Text(3), ("a", 5)),
        (gs.OneOf([gs.Discrete(3), BOX]), ((0, np.int64(1)),) * 2),  # an index of Python's
        (gs.OneOf([gs.Discrete(3), BOX]), ((np.int64(0), 1),) * 2),
        (gs.OneOf([gs.Discrete(3), BOX]), ((np.int64(2), 1),) * 2),
        (gs.OneOf([gs.Discrete(3), BOX]), ([np.int64(0), np.int64(1)],) * 2),
        (gs.OneOf([gs.Discrete(3), BOX]), ((np.int64(1), [1.0, 2.0]),) * 2),
        (gs.OneOf([gs.Dict(a=BOX)]), ((np.int64(0), {"a": np.ones(2, np.float32), "b": 1}),) * 2),
        (gs.OneOf([gs.Text(2)]), ((np.int64(0), np.str_("a")),) * 2),
    ],
)
def test_what_would_be_converted_is_not_taken_and_leaves_no_trace(space, batch):
    memory = gymshm.create_shared_memory(space, 2)
    before = detached(gymshm.read_from_shared_memory(space, memory, 2))
    assert not batch_writer(space, memory, 2)(batch)
    assert_same(gymshm.read_from_shared_memory(space, memory, 2), before)


@pytest.mark.parametrize("start", [-3, 0, 5])
def test_an_action_outside_of_a_discrete_reaches_the_environment(start):
    space = gs.Discrete(4, start=start)
    memory = gymshm.create_shared_memory(space, 2)
    batch = np.array([start, start + 400])
    assert batch_writer(space, memory, 2)(batch)
    assert_same(rows_reader(space, memory, 0, 2)(), list(batch))


NUMBERS = np.array([3, 1, 2])


@pytest.mark.parametrize(
    "batch",
    [NUMBERS, NUMBERS[::-1], np.repeat(NUMBERS, 2)[::2], crooked(NUMBERS), NUMBERS.astype(np.longlong)],
    ids=["whole", "backwards", "strided", "crooked", "longlong"],
)
def test_numbers_of_the_dtype_are_taken_however_they_lie(batch):
    space = gs.Discrete(5)
    memory = gymshm.create_shared_memory(space, 3)
    assert batch_writer(space, memory, 3)(batch)
    assert gymshm.read_from_shared_memory(space, memory, 3).tolist() == batch.tolist()


def test_strided_and_read_only_batches_are_taken():
    memory = gymshm.create_shared_memory(BOX, 2)
    batch = np.arange(8, dtype=np.float32).reshape(4, 2)[::2]
    batch.flags.writeable = False
    assert batch_writer(BOX, memory, 2)(batch)
    assert_same(rows_reader(BOX, memory, 0, 2)(), list(batch))


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (BOX, [1.0, 2.0]),
        (BOX, np.ones(2)),
        (BOX, np.ones((1, 2), np.float32)),
        (gs.Box(-1, 1, (), np.float32), np.float32(0.5)),  # it would come back as an array
        (gs.Discrete(3), 1),
        (gs.Discrete(3), np.int32(1)),
        (gs.Discrete(3), np.array(1)),
        (gs.Text(3), np.str_("a")),
        (gs.Dict(a=BOX), {"a": np.ones(2, np.float32), "more": 1}),
        (gs.Dict(a=gs.Discrete(2), b=gs.Discrete(2)), {"b": np.int64(1), "a": np.int64(1)}),  # another order
        (gs.Tuple([gs.Discrete(2)]), [np.int64(1)]),
        (gs.OneOf([gs.Discrete(2)]), (0, np.int64(1))),
    ],
)
def test_what_comes_back_as_something_else_does_not_survive(space, value):
    assert not survives(space, value)
