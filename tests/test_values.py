from __future__ import annotations

import array
import fractions

import numpy as np
import pytest
from gymnasium import spaces as gs
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gymshm.errors import Mismatch
from gymshm.values import TextCode, fit, shown
from strategies import BOX_DTYPES, INTEGER_DTYPES, texts
from support import same


class ArrayLike:
    """Something that is no array, and can be made one."""

    def __init__(self, items):
        self.items = items

    def __array__(self, dtype=None, copy=None):
        return np.array(self.items, dtype)


class Broken:
    """Something that pretends to be an array-like."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("no array today")


class Subclass(np.ndarray):
    """An array of another class."""


def read_only(values):
    result = np.array(values, np.float32)
    result.flags.writeable = False
    return result


def unaligned(dtype, count):
    return np.zeros(count * np.dtype(dtype).itemsize + 1, np.uint8)[1:].view(dtype)


FITTING = {
    "list": ([1, 2], "f4", [1, 2]),
    "tuple": ((1, 2), "f4", [1, 2]),
    "nested list": ([[1, 2], [3, 4]], "i2", [[1, 2], [3, 4]]),
    "list of arrays": ([np.ones(2), np.zeros(2)], "f4", [[1, 1], [0, 0]]),
    "list of numpy scalars": ([np.int32(3), np.uint8(4)], "i8", [3, 4]),
    "int": (3, "i8", 3),
    "float": (2.5, "f8", 2.5),
    "bool": (True, "i8", 1),
    "numpy scalar": (np.int32(3), "u1", 3),
    "array without dimensions": (np.array(3), "u1", 3),
    "array-like": (ArrayLike([1.5, 2.5]), "f4", [1.5, 2.5]),
    "array of the standard library": (array.array("d", [1, 2]), "f4", [1, 2]),
    "memoryview": (memoryview(bytearray([1, 2])), "u1", [1, 2]),
    "Fortran order": (np.asfortranarray([[1, 2], [3, 4]]), "i8", [[1, 2], [3, 4]]),
    "negative strides": (np.arange(4)[::-1], "i4", [3, 2, 1, 0]),
    "not contiguous": (np.arange(8)[::3], "i4", [0, 3, 6]),
    "read-only": (read_only([1, 2]), "f8", [1, 2]),
    "not aligned": (unaligned("f4", 2), "f4", [0, 0]),
    "subclass of ndarray": (np.array([1, 2]).view(Subclass), "f4", [1, 2]),
    "masked nowhere": (np.ma.masked_array([1.0, 2.0], [False, False]), "f4", [1, 2]),
    "float64 to float32": (np.array([0.1]), "f4", [np.float32(0.1)]),
    "float64 to float16": (np.array([0.5]), "f2", [0.5]),
    "longdouble to float64": (np.array([0.5], "g"), "f8", [0.5]),
    "infinity and NaN": ([np.inf, np.nan], "f4", [np.inf, np.nan]),
    "integers to float": (np.array([3], "u8"), "f2", [3]),
    "an integer of more than 64 bits to float": (2**70, "f4", 2.0**70),
    "integers of more than 64 bits to float": ([2**70, -(2**65)], "f8", [2.0**70, -(2.0**65)]),
    "integers of more than 64 bits and floats to float": (
        (2**70, 0.5, np.float32(2), True),
        "f8",
        [2.0**70, 0.5, 2, 1],
    ),
    "integers of more than 64 bits to big-endian": ([2**70], ">f4", [2.0**70]),
    "bools to float": (np.array([True]), "f4", [1]),
    "big-endian to native": (np.array([258], ">i4"), "i4", [258]),
    "native to big-endian": (np.array([258], "i4"), ">i4", [258]),
    "int64 that fit uint8": (np.array([0, 255]), "u1", [0, 255]),
    "int64 that fit int8": (np.array([-128, 127]), "i1", [-128, 127]),
    "uint64 that fit int64": (np.array([2**63 - 1], "u8"), "i8", [2**63 - 1]),
    "integers of all 64 bits": ([2**64 - 1, 0], "u8", [2**64 - 1, 0]),
    "zeros and ones to bool": ([0, 1], "?", [False, True]),
    "bools to integers": (np.array([True, False]), "u1", [1, 0]),
    "nothing": ([], "u1", []),
    "nothing, with dimensions": (np.zeros((2, 0)), "i4", [[], []]),
}


@pytest.mark.parametrize("name", FITTING)
def test_what_fits_comes_back_with_the_dtype_asked_for(name):
    value, dtype, expected = FITTING[name]
    expected = np.array(expected, dtype)
    assert same(fit(value, expected.dtype, expected.shape), expected)


@pytest.mark.parametrize("dtype", BOX_DTYPES, ids=lambda dtype: dtype.str)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0)])
def test_an_array_that_fits_as_it_is_comes_back_itself(dtype, shape):
    value = np.zeros(shape, dtype)
    assert fit(value, dtype, shape) is value


SHAPED = {
    "scalar": (5.0, "float 5.0 of shape ()"),
    "None": (None, "NoneType None of shape ()"),
    "dict": ({}, "dict {} of shape ()"),
    "one item": ([5.0], "shape (1,)"),
    "flat": (np.zeros(6), "shape (6,)"),
    "transposed": (np.zeros((3, 2)), "shape (3, 2)"),
    "one dimension more": (np.zeros((1, 2, 3)), "shape (1, 2, 3)"),
    "would broadcast": (np.zeros(3), "shape (3,)"),
}


@pytest.mark.parametrize("name", SHAPED)
def test_another_shape_is_a_value_error_that_names_both(name):
    value, got = SHAPED[name]
    with pytest.raises(Mismatch) as caught:
        fit(value, np.dtype("f4"), (2, 3))
    assert (caught.value.cls, caught.value.expected, caught.value.got) == (ValueError, "shape (2, 3)", got)


def test_a_ragged_list_is_a_value_error_that_tells_why():
    with pytest.raises(Mismatch) as caught:
        fit([[1, 2], [3]], np.dtype("f4"), (2, 2))
    assert (caught.value.cls, caught.value.expected) == (ValueError, "an array of shape (2, 2)")
    assert "inhomogeneous" in caught.value.got


def test_the_error_of_a_foreign_array_like_is_told_and_kept():
    with pytest.raises(Mismatch) as caught:
        fit(Broken(), np.dtype("f4"), ())
    assert caught.value.cls is ValueError
    assert "no array today" in caught.value.got
    assert type(caught.value.__cause__) is RuntimeError


TYPED = {
    "float to int": (1.0, "i8", (), "dtype int64", "float 1.0"),
    "floats to int": ([1.0, 2.0], "i8", (2,), "dtype int64", "dtype float64"),
    "floats and ints to int": ([1.0, 2], "i8", (2,), "dtype int64", "dtype float64"),
    "float array to bool": (np.zeros(2), "?", (2,), "dtype bool", "dtype float64"),
    "None for a float": (None, "f4", (), "dtype float32", "NoneType None"),
    "None among floats": ([None, 1.0], "f4", (2,), "dtype float32", "dtype object"),
    "None among ints": ([None, 1], "i4", (2,), "dtype int32", "dtype object"),
    "text": ("7", "i8", (), "dtype int64", "str '7'"),
    "texts": (["7"], "f8", (1,), "dtype float64", "dtype <U1"),
    "complex to float": (1j, "f8", (), "dtype float64", "complex 1j"),
    "object array of ints": (np.array([1, 2], object), "i8", (2,), "dtype int64", "dtype object"),
    "fraction": (fractions.Fraction(1, 2), "f8", (), "dtype float64", "Fraction Fraction(1, 2)"),
    "date": (np.array(["2020-01-01"], "M8[D]"), "i8", (1,), "dtype int64", "dtype datetime64[D]"),
    "duration": (np.array([1], "m8[s]"), "i8", (1,), "dtype int64", "dtype timedelta64[s]"),
    "record": (np.zeros(1, [("a", "f4")]), "f4", (1,), "dtype float32", "dtype [('a', '<f4')]"),
    "objects in an empty array": (np.array([], object), "f4", (0,), "dtype float32", "dtype object"),
}


@pytest.mark.parametrize("name", TYPED)
def test_another_dtype_is_a_type_error_that_names_both(name):
    value, dtype, shape, expected, got = TYPED[name]
    with pytest.raises(Mismatch) as caught:
        fit(value, np.dtype(dtype), shape)
    assert (caught.value.cls, caught.value.expected, caught.value.got) == (TypeError, expected, got)


RANGED = {
    "300 into uint8": (np.array([1, 300]), "u1", (2,), "uint8 (0 to 255)", "300"),
    "-1 into uint8": (np.array([-1, 5]), "u1", (2,), "uint8 (0 to 255)", "-1"),
    "128 into int8": ([128], "i1", (1,), "int8 (-128 to 127)", "128"),
    "2 into bool": ([0, 2], "?", (2,), "bool (0 to 1)", "2"),
    "a scalar": (256, "u1", (), "uint8 (0 to 255)", "256"),
    "2**63 into int64": ([2**63], "i8", (1,), f"int64 ({-(2**63)} to {2**63 - 1})", str(2**63)),
    "2**63 and -1 into int64": ([2**63, -1], "i8", (2,), f"int64 ({-(2**63)} to {2**63 - 1})", str(2**63)),
    "-1 and 2**63 into uint64": ([-1, 2**63], "u8", (2,), f"uint64 (0 to {2**64 - 1})", "-1"),
    "10**30": (10**30, "i8", (), f"int64 ({-(2**63)} to {2**63 - 1})", str(10**30)),
    "into big-endian": (np.array([70000]), ">i2", (1,), ">i2 (-32768 to 32767)", "70000"),
}


@pytest.mark.parametrize("name", RANGED)
def test_an_integer_out_of_range_is_a_type_error_that_names_it(name):
    value, dtype, shape, expected, got = RANGED[name]
    with pytest.raises(Mismatch) as caught:
        fit(value, np.dtype(dtype), shape)
    assert (caught.value.cls, caught.value.expected, caught.value.got) == (
        TypeError,
        f"integers that fit {expected}",
        got,
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_integer_that_no_float_can_be_is_a_type_error(dtype):
    for value, shape in ((10**400, ()), ([1, 10**400], (2,))):
        with pytest.raises(Mismatch) as caught:
            fit(value, np.dtype(dtype), shape)
        assert (caught.value.cls, caught.value.expected) == (TypeError, f"numbers that fit {np.dtype(dtype)}")


@pytest.mark.parametrize("value", [1e300, [1e300, 1.0], 2**200, np.array([-1e300])])
def test_a_number_too_large_for_its_float_is_infinite_and_numpy_says_so_as_with_gymnasium(value):
    space = gs.Box(-np.inf, np.inf, np.shape(value), np.float32)
    with pytest.warns(RuntimeWarning, match="overflow encountered in cast"):
        expected = np.asarray(value, space.dtype)  # what gymnasium stores
    assert np.isinf(expected).any()
    with pytest.warns(RuntimeWarning, match="overflow encountered in cast"):
        assert same(fit(value, space.dtype, space.shape), expected)


@given(st.lists(st.integers(-(2**70), 2**70), min_size=1, max_size=4), st.sampled_from(INTEGER_DTYPES))
def test_integers_fit_if_and_only_if_all_are_in_range(values, dtype):
    info = np.iinfo(dtype)
    if all(info.min <= value <= info.max for value in values):
        assert same(fit(values, dtype, (len(values),)), np.array(values, dtype))
    else:
        with pytest.raises(Mismatch):
            fit(values, dtype, (len(values),))


@given(st.sampled_from(BOX_DTYPES).flatmap(lambda dtype: hnp.arrays(dtype, (3,))), st.sampled_from(INTEGER_DTYPES))
def test_arrays_fit_integers_if_and_only_if_they_are_integers_in_range(value, dtype):
    info = np.iinfo(dtype)
    fits = value.dtype.kind in "iub" and all(info.min <= item <= info.max for item in value.tolist())
    if fits:
        assert fit(value, dtype, (3,)).tolist() == value.tolist()
    else:
        with pytest.raises(Mismatch):
            fit(value, dtype, (3,))


@pytest.mark.parametrize(
    "value", [np.ma.masked_array([1.0, 2.0], [True, False]), np.ma.masked], ids=["array", "constant"]
)
def test_a_masked_value_is_none_at_all(value):
    with pytest.raises(Mismatch) as caught:
        fit(value, np.dtype("f8"), value.shape)
    assert (caught.value.cls, caught.value.expected) == (ValueError, "values without a mask")


def test_what_is_shown_is_short():
    assert shown("x") == "str 'x'"
    assert len(shown(list(range(10**5)))) < 100
    assert len(shown(np.zeros(10**5))) < 100


# --- text -----------------------------------------------------------------------------------------------------------


@given(
    texts().flatmap(
        lambda space: st.tuples(st.just(space), st.lists(st.text(space.character_list, max_size=space.max_length)))
    )
)
def test_every_text_of_the_set_survives(drawn):
    space, values = drawn
    code = TextCode("".join(space.character_list), space.max_length)
    codes = np.array([code.encode(value) for value in values], np.int32).reshape(len(values), space.max_length)
    assert code.decode(codes) == tuple(values)


@given(
    texts().flatmap(lambda space: st.tuples(st.just(space), st.text(space.character_list, max_size=space.max_length)))
)
def test_the_codes_are_gymnasiums(drawn):
    space, value = drawn
    code = TextCode("".join(space.character_list), space.max_length)
    assert same(code.encode(value), gs.flatten(space, value))


@given(hnp.arrays(np.int32, (2, 4)), st.sampled_from(["ab", "\0", "\0a", "a\0", "", "\ud800\U0010ffff"]))
def test_any_codes_at_all_are_read_as_some_text_of_the_set(codes, characters):
    code = TextCode(characters, 4)
    expected = ["".join(characters[i] for i in row if 0 <= i < len(characters)) for row in codes.tolist()]
    assert code.decode(codes) == tuple(expected)


def test_a_str_subclass_is_text():
    assert TextCode("ab", 2).encode(np.str_("ba")).tolist() == [1, 0]


@pytest.mark.parametrize("value", [None, 3, b"ab", ["a", "b"], ("a",), np.array("ab")], ids=repr)
def test_what_is_no_text_is_a_type_error(value):
    with pytest.raises(Mismatch) as caught:
        TextCode("ab", 2).encode(value)
    assert (caught.value.cls, caught.value.expected) == (TypeError, "a str")


def test_a_text_too_long_is_a_value_error():
    with pytest.raises(Mismatch) as caught:
        TextCode("ab", 2).encode("aba")
    assert (caught.value.cls, caught.value.expected) == (ValueError, "a text of at most 2 characters")
    assert caught.value.got == "3 characters 'aba'"


def test_a_character_outside_the_set_is_a_value_error():
    with pytest.raises(Mismatch) as caught:
        TextCode("ab", 4).encode("abc")
    assert (caught.value.cls, caught.value.expected) == (ValueError, "characters of the set 'ab'")
    assert caught.value.got == "'c' in 'abc'"
