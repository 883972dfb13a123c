"""What public bug reports on shared memory and vector environments ask for, as far as it concerns the functions."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Text, Tuple

from gymshm import create_shared_memory, read_from_shared_memory, write_to_shared_memory
from support import needs_gymnasium


def roundtrip(space, *items):
    memory = create_shared_memory(space, n=len(items))
    for i, item in enumerate(items):
        write_to_shared_memory(space, i, item, memory)
    return read_from_shared_memory(space, memory, n=len(items))


@pytest.mark.parametrize("code", [">i2", ">i4", ">u8", ">f4", ">f8"])
def test_a_big_endian_dtype_comes_back_with_its_byte_order(code):
    dtype = np.dtype(code)
    batch = roundtrip(Box(0, 999, (2,), dtype), np.array([1, 258], dtype))
    assert batch.dtype.str == code
    assert batch.tolist() == [[1, 258]]


def test_a_text_too_long_is_a_clear_error_and_the_old_one_stays():
    space = Text(5)
    memory = create_shared_memory(space, n=1)
    write_to_shared_memory(space, 0, "ab", memory)
    with pytest.raises(ValueError, match=r"Expected a text of at most 5 characters, got 7 characters 'toolong'"):
        write_to_shared_memory(space, 0, "toolong", memory)
    assert read_from_shared_memory(space, memory, n=1) == ("ab",)


@pytest.mark.parametrize("value", [[300, -1], [300, 0], [0, -1], [0, 2**40]])
def test_integer_overflow_is_not_silent(value):
    with pytest.raises(TypeError, match="Expected integers that fit uint8"):
        roundtrip(Box(0, 255, (2,), np.uint8), np.array(value))


def test_integers_in_range_stay_legal_whatever_their_type():
    space = Box(0, 255, (2,), np.uint8)
    batch = roundtrip(space, [1, 255], np.array([1, 255]), (np.int32(1), 255), np.array([True, True]))
    assert batch.tolist() == [[1, 255]] * 3 + [[1, 1]]
    assert roundtrip(Discrete(5), 4, np.int8(3), True).tolist() == [4, 3, 1]


@needs_gymnasium("1.2", "Discrete has no dtype")
def test_integers_in_range_stay_legal_for_a_discrete_of_few_bits():
    assert roundtrip(Discrete(5, dtype=np.uint8), 4, np.int64(3), True).tolist() == [4, 3, 1]


def test_floats_and_integers_stay_legal_for_floats():
    batch = roundtrip(Box(-9, 9, (2,), np.float32), np.array([0.5, 1.0]), [1, 2])
    assert batch.tolist() == [[0.5, 1.0], [1.0, 2.0]]


@pytest.mark.parametrize("value", [5.0, [5.0], np.arange(6), np.zeros((3, 2)), np.zeros((1, 2, 3)), np.zeros((2, 1))])
def test_a_wrong_shape_is_not_broadcast_and_not_flattened(value):
    with pytest.raises(ValueError, match=r"Expected shape \(2, 3\), got "):
        roundtrip(Box(-9, 9, (2, 3), np.float32), value)


@pytest.mark.parametrize("index", [2, 7, -1, -2])
@pytest.mark.parametrize(("space", "value"), [(Discrete(9), 3), (Box(-9, 9, (2,)), np.ones(2, np.float32))])
def test_an_index_never_reaches_another_environments_row(space, value, index):
    memory = create_shared_memory(space, n=2)
    with pytest.raises(IndexError, match="index"):
        write_to_shared_memory(space, index, value, memory)
    assert not read_from_shared_memory(space, memory, n=2).any()


def test_odd_and_colliding_keys_stay_apart():
    inner = Dict({"b": Discrete(9), "": Discrete(9)})
    space = Dict({1: Discrete(9), "1": Discrete(9), "a.b": Discrete(9), "a/b": Discrete(9), "a": inner})
    batch = roundtrip(space, {1: 1, "1": 2, "a.b": 3, "a/b": 4, "a": {"b": 5, "": 6}})
    assert batch == {1: [1], "1": [2], "a.b": [3], "a/b": [4], "a": {"b": [5], "": [6]}}


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), (2, 0, 2)])
def test_a_zero_sized_box_is_a_space_like_any_other(shape):
    batch = roundtrip(Box(-1, 1, shape, np.float32), np.zeros(shape, np.float32))
    assert (batch.shape, batch.dtype) == ((1, *shape), np.float32)


def test_an_empty_dict_and_an_empty_tuple_are_spaces_like_any_other():
    assert roundtrip(Dict({}), {}) == {}
    assert roundtrip(Tuple(()), ()) == ()
    assert roundtrip(Dict(a=Dict({}), b=Tuple(())), {"a": {}, "b": ()}) == {"a": {}, "b": ()}


@pytest.mark.parametrize(
    "bad", [{"a": 7}, {"a": 7, "b": 0.5}, {"a": 7, "b": None}, {"a": 7, "b": [1]}, {"a": 7, "c": 1}]
)
def test_a_bad_dict_value_leaves_the_row_as_it_was(bad):
    space = Dict(a=Discrete(9), b=Discrete(9))
    memory = create_shared_memory(space, n=1)
    write_to_shared_memory(space, 0, {"a": 1, "b": 1}, memory)
    with pytest.raises((KeyError, TypeError, ValueError)):
        write_to_shared_memory(space, 0, bad, memory)
    assert read_from_shared_memory(space, memory, n=1) == {"a": [1], "b": [1]}
