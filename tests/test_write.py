from __future__ import annotations

import array
import collections
import types

import gymnasium.vector.utils as gymnasium_utils
import numpy as np
import pytest
from gymnasium import spaces as gs
from hypothesis import given
from hypothesis import strategies as st

import gymshm
from gymshm import create_shared_memory, read_from_shared_memory, write_to_shared_memory
from gymshm.views import leaves
from strategies import bad_values, spaces, spaces_with_values, values, values_and_loosened
from support import GYMNASIUM, row, same

FLOATS = gs.Box(-9, 9, (2, 3), np.float32)
BYTES = gs.Box(0, 255, (2,), np.uint8)
TREE = gs.Dict(
    [
        ("cam", gs.Tuple([gs.Box(0, 255, (3,), np.uint8), gs.Discrete(5)])),
        ("name", gs.Text(4)),
        ("one", gs.OneOf([gs.Discrete(9), gs.Box(-1, 1, (2,))])),
    ]
)
GOOD = {"cam": (np.array([1, 2, 3], np.uint8), np.int64(4)), "name": "ab", "one": (1, np.ones(2, np.float32))}


def bytes_of(memory):
    """All bytes of a memory."""
    return [leaf.view.tobytes() for leaf in leaves(memory)]


def written(space, *items):
    """A memory with these values, one for each environment."""
    memory = create_shared_memory(space, len(items))
    for i, item in enumerate(items):
        assert write_to_shared_memory(space, i, item, memory) is None
    return memory


def roundtrip(space, *items):
    return read_from_shared_memory(space, written(space, *items), len(items))


# --- what was written is what is read -------------------------------------------------------------------------------


@given(spaces_with_values())
def test_what_was_written_is_read(drawn):
    space, items = drawn
    batch = roundtrip(space, *items)
    for i, item in enumerate(items):
        assert same(row(space, batch, i), item)


@given(spaces().flatmap(lambda space: st.tuples(st.just(space), values(space), values(space))))
def test_the_last_value_stays_and_other_rows_are_not_touched(drawn):
    space, first, second = drawn
    memory = written(space, first, first, first)
    write_to_shared_memory(space, 1, second, memory)
    batch = read_from_shared_memory(space, memory, 3)
    for i, item in enumerate((first, second, first)):
        assert same(row(space, batch, i), item)


@given(spaces().flatmap(lambda space: st.tuples(st.just(space), values_and_loosened(space))))
def test_a_value_in_other_types_is_read_in_the_types_of_the_space(drawn):
    space, (value, loose) = drawn
    assert same(row(space, roundtrip(space, loose), 0), value)


def knows_it_right(space):
    """Whether gymnasium reads the space rightly: of a container in a OneOf it takes row i for part i.

    Older versions have no memory for the floats that ``array.array`` does not have.
    """
    if isinstance(space, gs.Box) and GYMNASIUM < (1, 2):
        return space.dtype.char in "?" + array.typecodes
    if isinstance(space, gs.OneOf):
        return all(knows_it_right(child) and not isinstance(child, gs.Dict | gs.Tuple) for child in space.spaces)
    children = space.spaces.values() if isinstance(space, gs.Dict) else getattr(space, "spaces", ())
    return all(map(knows_it_right, children))


@given(spaces_with_values().filter(lambda drawn: knows_it_right(drawn[0])))
def test_gymnasium_reads_the_same_out_of_its_own_memory(drawn):
    space, items = drawn
    theirs = gymnasium_utils.create_shared_memory(space, len(items))
    for i, item in enumerate(items):
        gymnasium_utils.write_to_shared_memory(space, i, item, theirs)
    assert same(roundtrip(space, *items), gymnasium_utils.read_from_shared_memory(space, theirs, len(items)))


@given(spaces_with_values().filter(lambda drawn: knows_it_right(drawn[0])))
def test_gymnasium_reads_and_writes_our_memory(drawn):
    space, items = drawn
    n = len(items)
    ours = written(space, *items)
    assert same(gymnasium_utils.read_from_shared_memory(space, ours, n), read_from_shared_memory(space, ours, n))
    theirs = create_shared_memory(space, n)
    for i, item in enumerate(items):
        gymnasium_utils.write_to_shared_memory(space, i, item, theirs)
    assert same(read_from_shared_memory(space, theirs, n), read_from_shared_memory(space, ours, n))


# --- what does not fit leaves no trace ------------------------------------------------------------------------------


@given(spaces().flatmap(lambda space: st.tuples(st.just(space), values(space), bad_values(space))))
def test_a_value_that_is_refused_leaves_every_byte_as_it_was(drawn):
    space, good, bad = drawn
    memory = written(space, good, good)
    before = bytes_of(memory)
    with pytest.raises((TypeError, ValueError, KeyError)) as caught:
        write_to_shared_memory(space, 1, bad, memory)
    assert bytes_of(memory) == before
    assert caught.value.index == 1
    assert caught.value.path.startswith("value")
    text = f"Expected {caught.value.expected}, got {caught.value.got} - at {caught.value.path}, index 1."
    assert str(caught.value).startswith(text)


@given(
    spaces().flatmap(lambda space: st.tuples(st.just(space), values(space))), st.sampled_from([-1, 2, 2**70, 0.0, None])
)
def test_an_index_that_is_refused_leaves_every_byte_as_it_was(drawn, index):
    space, good = drawn
    memory = create_shared_memory(space, 2)
    before = bytes_of(memory)
    if not before:
        return  # nothing to write, and nothing that knows how many rows there are
    with pytest.raises(IndexError):
        write_to_shared_memory(space, index, good, memory)
    assert bytes_of(memory) == before


# --- each sentence on writes that tell the truth --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (5.0, "float 5.0 of shape ()"),
        (None, "NoneType None of shape ()"),
        ([5.0], "shape (1,)"),
        (np.arange(6), "shape (6,)"),
        (np.zeros((3, 2)), "shape (3, 2)"),
        (np.zeros((1, 2, 3)), "shape (1, 2, 3)"),
        (np.zeros(3), "shape (3,)"),
    ],
)
def test_the_shape_is_exact(value, got):
    text = f"Expected shape (2, 3), got {got} - at value, index 0. "
    with pytest.raises(ValueError, match=r"^Expected shape") as caught:
        roundtrip(FLOATS, value)
    assert str(caught.value) == text + "Return values of the space's shape, or correct the space."


@pytest.mark.parametrize("index", [-1, -2, 2, 7, 2**70, np.int64(-1), np.uint8(2), np.array(2)], ids=repr)
@pytest.mark.parametrize(
    ("space", "value"), [(FLOATS, np.zeros((2, 3), np.float32)), (TREE, GOOD), (gs.Discrete(9), 3)]
)
def test_an_index_outside_the_rows_is_an_index_error(space, value, index):
    memory = create_shared_memory(space, 2)
    with pytest.raises(IndexError, match=r"^Expected an integer index in \[0, 2\), got ") as caught:
        write_to_shared_memory(space, index, value, memory)
    assert caught.value.index == index
    assert (caught.value.path, caught.value.expected) == ("value", "an integer index in [0, 2)")


@pytest.mark.parametrize("index", [1.0, np.float64(1), None, "1", [1], np.array([1]), slice(0, 2)], ids=repr)
@pytest.mark.parametrize(
    ("space", "value"), [(FLOATS, np.zeros((2, 3), np.float32)), (TREE, GOOD), (gs.Discrete(9), 3)]
)
def test_an_index_that_is_no_integer_is_an_index_error(space, value, index):
    memory = create_shared_memory(space, 2)
    with pytest.raises(IndexError, match=r"^Expected an integer index in \[0, 2\), got "):
        write_to_shared_memory(space, index, value, memory)


@pytest.mark.parametrize("index", [1, True, np.int8(1), np.uint64(1), np.int64(1), np.array(1)], ids=repr)
@pytest.mark.parametrize(("space", "value"), [(FLOATS, np.ones((2, 3), np.float32)), (gs.Discrete(9), 3)])
def test_an_index_of_any_integer_type_is_fine(space, value, index):
    memory = create_shared_memory(space, 2)
    write_to_shared_memory(space, index, value, memory)
    batch = read_from_shared_memory(space, memory, 2)
    assert not batch[0].any()
    assert (batch[1] == value).all()


@pytest.mark.parametrize("index", [1.0, np.float64(1), -1, 2], ids=repr)
@pytest.mark.parametrize("snapshots", [False, True])
def test_an_index_is_checked_also_where_its_row_was_written_before(index, snapshots):
    # Among the keys of a dict, 1.0 would be 1.
    memory = create_shared_memory(BYTES, 2, snapshots=snapshots)
    value = np.ones(2, np.uint8)
    for row_index in (0, 1, 0, 1):
        write_to_shared_memory(BYTES, row_index, value, memory)
    with pytest.raises(IndexError, match=r"Expected an integer index in \[0, 2\)"):
        write_to_shared_memory(BYTES, index, value * 2, memory)
    assert (memory.view == 1).all()


@pytest.mark.parametrize("bad", [np.ones(3, np.uint8), np.ones((1, 2), np.uint8), np.ones(2), np.ones(1, np.uint8)])
@pytest.mark.parametrize("snapshots", [False, True])
def test_a_value_is_checked_also_where_its_row_was_written_before(bad, snapshots):
    memory = create_shared_memory(BYTES, 1, snapshots=snapshots)
    for _ in range(3):
        write_to_shared_memory(BYTES, 0, np.full(2, 7, np.uint8), memory)
    with pytest.raises((TypeError, ValueError)):
        write_to_shared_memory(BYTES, 0, bad, memory)
    assert memory.view.tolist() == [[7, 7]]


@pytest.mark.parametrize("snapshots", [False, True])
def test_a_row_that_was_written_before_is_closed_with_the_others(snapshots):
    memory = create_shared_memory(BYTES, 1, snapshots=snapshots)
    value = np.ones(2, np.uint8)
    for _ in range(2):
        write_to_shared_memory(BYTES, 0, value, memory)
    gymshm.segment_of(memory).close()
    with pytest.raises(ValueError, match="is closed in this process"):
        write_to_shared_memory(BYTES, 0, value, memory)


def test_a_handle_keeps_a_bounded_number_of_rows(monkeypatch):
    monkeypatch.setattr(gymshm.views, "_MOST_ROWS", 3)
    memory = create_shared_memory(BYTES, 10)
    for _ in range(2):
        for index in range(10):
            write_to_shared_memory(BYTES, index, np.full(2, index, np.uint8), memory)
            assert len(memory.rows) <= 3
    assert memory.view.tolist() == [[index] * 2 for index in range(10)]


def test_a_version_is_even_again_after_every_write_that_came_to_its_end():
    memory = create_shared_memory(BYTES, 2, snapshots=True)
    versions = [0]
    for value in (np.ones(2, np.uint8), np.ones(2, np.uint8), [1, 2], np.zeros(2, np.uint8)):
        write_to_shared_memory(BYTES, 1, value, memory)
        versions.append(memory.versions[1])
    with pytest.raises(ValueError, match="Expected shape"):
        write_to_shared_memory(BYTES, 1, [1], memory)
    assert versions == sorted(set(versions))
    assert not any(version % 2 for version in versions)
    assert (memory.versions[0], memory.versions[1]) == (0, versions[-1])


class Interrupting(np.ndarray):
    """An array in which Ctrl-C comes before the store."""

    def __setitem__(self, key, value):
        raise KeyboardInterrupt


@pytest.mark.parametrize("value", [np.ones(2, np.uint8), [1, 1]], ids=["as it is", "converted"])
def test_a_row_is_not_calm_where_a_write_was_interrupted_until_the_next_one_has_come_to_its_end(value):
    space = gs.Dict(a=BYTES, b=BYTES)
    memory = create_shared_memory(space, 2, snapshots=True)
    versions, whole = memory["a"].versions, memory["b"].view
    memory["b"].view = whole.view(Interrupting)
    with pytest.raises(KeyboardInterrupt):
        write_to_shared_memory(space, 1, {"a": value, "b": value}, memory)
    assert (memory["a"].view[1].tolist(), whole[1].tolist()) == ([1, 1], [0, 0])  # neither old nor new
    assert (versions[0], versions[1] % 2) == (0, 1)
    memory["b"].view = whole
    with pytest.raises(ValueError, match="Expected shape"):
        write_to_shared_memory(space, 1, {"a": [1], "b": value}, memory)
    assert versions[1] % 2 == 1
    write_to_shared_memory(space, 1, {"a": value, "b": value}, memory)
    assert versions[1] % 2 == 0


@pytest.mark.usefixtures("registries")
def test_a_row_stays_calm_where_a_handler_raises():
    class Custom(gs.Space):
        """A space that a handler writes."""

    def write(space, index, value, memory):
        raise RuntimeError("not today")

    create_shared_memory.register(Custom, lambda space, n=1, ctx=None: [None] * n)
    write_to_shared_memory.register(Custom, write)
    space = gs.Tuple([BYTES, Custom()])
    memory = create_shared_memory(space, 1, snapshots=True)
    with pytest.raises(RuntimeError, match="not today"):
        write_to_shared_memory(space, 0, (np.ones(2, np.uint8), None), memory)
    assert not memory[0].view.any()
    assert memory[0].versions[0] == 0  # nothing of ours was written, so nobody had to wait


def test_no_index_is_in_range_of_no_rows():
    with pytest.raises(IndexError, match=r"Expected an integer index in \[0, 0\), got int 0"):
        write_to_shared_memory(BYTES, 0, np.zeros(2, np.uint8), create_shared_memory(BYTES, 0))


@pytest.mark.parametrize("value", [[1, 300], [-1, 5], np.array([1, 300]), np.array([1, 300], np.uint16)], ids=repr)
def test_an_integer_that_does_not_fit_is_refused(value):
    with pytest.raises(
        TypeError, match=r"^Expected integers that fit uint8 \(0 to 255\), got (300|-1) - at value, index 0"
    ):
        roundtrip(BYTES, value)


@pytest.mark.parametrize(
    "value",
    [[1, 255], (1, 255), np.array([1, 255]), np.array([1, 255], ">u4"), (np.int32(1), 255), [True, 255]],
    ids=repr,
)
def test_integers_of_any_type_whose_values_fit_are_fine(value):
    assert same(roundtrip(BYTES, value), np.array([[1, 255]], np.uint8))


@pytest.mark.parametrize(
    ("space", "value"), [(BYTES, [1.0, 2.0]), (gs.Discrete(3), 1.0), (gs.MultiBinary(2), np.ones(2))]
)
def test_a_float_for_an_integer_is_refused(space, value):
    with pytest.raises(TypeError, match=r"^Expected dtype u?int\d+, got (dtype float64|float 1.0) - at value, index 0"):
        roundtrip(space, value)


@pytest.mark.parametrize("value", [None, [None] * 2, np.array([None, 1.0])], ids=repr)
def test_none_never_becomes_nan(value):
    space = gs.Box(-9, 9, np.shape(value), np.float64)
    with pytest.raises(
        TypeError, match=r"^Expected dtype float64, got (NoneType None|dtype object) - at value, index 0"
    ):
        roundtrip(space, value)


def test_float64_into_float32_is_fine():
    values64 = np.linspace(-1, 1, 6).reshape(2, 3)
    assert same(roundtrip(FLOATS, values64), values64.astype(np.float32)[np.newaxis])


@pytest.mark.parametrize(
    "value",
    [
        [[1, 2, 3], [4, 5, 6]],
        ((1, 2, 3), (4, 5, 6)),
        np.arange(1, 7).reshape(2, 3),
        np.asfortranarray(np.arange(1.0, 7).reshape(2, 3)),
        np.arange(6.0, 0, -1).reshape(2, 3)[::-1, ::-1],
        np.arange(1.0, 13).repeat(2)[:12:2].reshape(2, 3),
        np.ma.masked_array(np.arange(1.0, 7).reshape(2, 3), False),
        np.array([[1, 2, 3], [4, 5, 6]], ">i2"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_array_likes_lists_and_arrays_of_any_order_are_fine(value):
    assert same(roundtrip(FLOATS, value), np.arange(1, 7, dtype=np.float32).reshape(1, 2, 3))


def test_a_read_only_array_is_fine_and_stays_so():
    value = np.ones((2, 3), np.float32)
    value.flags.writeable = False
    memory = written(FLOATS, value)
    write_to_shared_memory(FLOATS, 0, np.zeros((2, 3), np.float32), memory)
    assert value.all()


def test_what_was_written_is_a_copy():
    value = np.ones((2, 3), np.float32)
    memory = written(FLOATS, value)
    value[...] = 7
    assert (read_from_shared_memory(FLOATS, memory, 1) == 1).all()


def test_a_row_may_be_written_with_itself_turned_round():
    space = gs.Box(0, 9, (4,), np.int64)
    memory = written(space, np.arange(4))
    write_to_shared_memory(space, 0, memory.view[0, ::-1], memory)
    assert memory.view.tolist() == [[3, 2, 1, 0]]


def test_object_and_masked_arrays_are_refused():
    with pytest.raises(TypeError, match="Expected dtype uint8, got dtype object"):
        roundtrip(BYTES, np.array([1, 2], object))
    with pytest.raises(ValueError, match="Expected values without a mask"):
        roundtrip(BYTES, np.ma.masked_array([1, 2], [0, 1], np.uint8))


def test_a_missing_key_is_a_key_error_that_says_which_there_are():
    with pytest.raises(KeyError) as caught:
        roundtrip(TREE, {"cam": GOOD["cam"], "one": GOOD["one"]})
    assert str(caught.value) == (
        "Expected a value for each of the keys ['cam', 'name', 'one'], got none for 'name' (only ['cam', 'one']) "
        "- at value, index 0."
    )


def test_an_extra_key_is_ignored():
    assert same(roundtrip(TREE, {**GOOD, "more": object()}), roundtrip(TREE, GOOD))


@pytest.mark.parametrize("value", [None, 3, [1], (1, 2), np.zeros(2), "ab", b"ab", object], ids=repr)
@pytest.mark.parametrize("space", [gs.Dict({}), gs.Dict(a=gs.Discrete(3)), gs.Dict({0: gs.Discrete(3)})], ids=repr)
def test_what_is_no_mapping_is_none_also_where_it_has_such_an_item(space, value):
    with pytest.raises(TypeError, match=r"^Expected a mapping with the keys "):
        write_to_shared_memory(space, 0, value, create_shared_memory(space, 1))


@pytest.mark.parametrize(
    "value",
    [
        collections.OrderedDict(b=2, a=1),
        types.MappingProxyType({"a": 1, "b": 2}),
        collections.ChainMap({"a": 1}, {"b": 2}),
        collections.defaultdict(int, a=1, b=2),
        np.array([(1, 2)], [("a", "i8"), ("b", "i8")])[0],
        collections.UserDict(a=1, b=2),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_kind_of_mapping_is_fine(value):
    space = gs.Dict(a=gs.Discrete(9), b=gs.Discrete(9))
    assert roundtrip(space, value) == {"a": [1], "b": [2]}


def test_a_record_without_a_field_lacks_a_key():
    space = gs.Dict(a=gs.Discrete(9), b=gs.Discrete(9))
    with pytest.raises(KeyError, match=r"got none for 'b'"):
        roundtrip(space, np.array([(1, 2)], [("a", "i8"), ("c", "i8")])[0])


def test_keys_that_are_equal_are_one_key():
    space = gs.Dict({1: gs.Discrete(9)})
    for key in (1, True, 1.0, np.int64(1)):
        assert roundtrip(space, {key: 5}) == {1: [5]}


@pytest.mark.parametrize("value", [(1,), (1, 2, 3), [], np.zeros(3, int)], ids=repr)
def test_a_tuple_of_another_length_is_a_value_error(value):
    with pytest.raises(
        ValueError, match=rf"^Expected a sequence of 2 values, got {len(value)} values - at value, index 0"
    ):
        roundtrip(gs.Tuple([gs.Discrete(9)] * 2), value)


@pytest.mark.parametrize("value", [None, 3, {0: 1, 1: 2}, {1, 2}, "ab", b"ab", {1: 2, 3: 4}.keys()], ids=repr)
def test_what_has_no_order_of_its_own_is_no_tuple(value):
    with pytest.raises(TypeError, match=r"^Expected a sequence of 2 values, got "):
        roundtrip(gs.Tuple([gs.Discrete(99)] * 2), value)


@pytest.mark.parametrize(
    "value", [[1, 2], (1, 2), np.array([1, 2]), iter([1, 2]), range(1, 3)], ids=lambda v: type(v).__name__
)
def test_every_kind_of_sequence_is_a_tuple(value):
    first, second = roundtrip(gs.Tuple([gs.Discrete(9)] * 2), value)
    assert (first.tolist(), second.tolist()) == ([1], [2])


def test_the_error_says_where_in_the_tree():
    def said(value):
        with pytest.raises((TypeError, ValueError)) as caught:
            roundtrip(TREE, value)
        assert caught.value.path in str(caught.value)
        return caught.value.path

    assert said({**GOOD, "cam": (np.zeros(4, np.uint8), 4)}) == "value['cam'][0]"
    assert said({**GOOD, "cam": (np.zeros(3, np.uint8), 0.5)}) == "value['cam'][1]"
    assert said({**GOOD, "name": "much too long"}) == "value['name']"
    assert said({**GOOD, "one": (1, np.zeros(3))}) == "value['one'][1]"
    assert said({**GOOD, "one": 3}) == "value['one']"


def test_the_cause_of_a_foreign_error_is_kept():
    class Broken:
        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("no array today")

    with pytest.raises(ValueError, match="no array today") as caught:
        roundtrip(TREE, {**GOOD, "cam": (Broken(), 4)})
    assert type(caught.value.__cause__) is RuntimeError


# --- Text and OneOf -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"), [("abcde", "a text of at most 4 characters"), ("a b", "characters of the set")]
)
def test_a_text_that_is_none_of_the_space_is_a_value_error(value, text):
    memory = written(gs.Text(4), "old")
    with pytest.raises(ValueError, match=f"^Expected {text}"):
        write_to_shared_memory(gs.Text(4), 0, value, memory)
    assert read_from_shared_memory(gs.Text(4), memory, 1) == ("old",)


def test_a_text_shorter_than_the_shortest_may_be_written():
    # As gymnasium lets it: the least length is for sampling.
    assert roundtrip(gs.Text(4, min_length=3), "") == ("",)


def test_a_row_that_nobody_wrote_reads_as_no_text():
    for charset in ("ab", "\0", "a\0", "\ud800"):
        space = gs.Text(3, charset=charset)
        assert read_from_shared_memory(space, create_shared_memory(space, 2), 2) == ("", "")


def test_every_character_of_the_set_survives():
    characters = "\0a\n\uffff😀\U0010ffff\ud800"
    space = gs.Text(7, charset=characters)
    items = (characters, characters[::-1], "\0", "\0\0a", "a\0\0", "", "\U0010ffff\0")
    assert roundtrip(space, *items) == items


def test_a_write_to_one_of_touches_the_chosen_part_alone():
    space = gs.OneOf([gs.Discrete(9), gs.Box(-1, 1, (2,), np.float64), gs.Dict(a=gs.Discrete(5))])
    memory = written(space, (0, 7))
    write_to_shared_memory(space, 0, (2, {"a": 3}), memory)
    assert (memory[1].view.tolist(), memory[2].view.tolist(), memory[3]["a"].view.tolist()) == ([7], [[0, 0]], [3])
    assert read_from_shared_memory(space, memory, 1) == ((2, {"a": 3}),)


@pytest.mark.parametrize("chosen", [-1, 2, 2**70, np.int64(-1)], ids=repr)
def test_a_choice_that_there_is_not_is_a_value_error(chosen):
    with pytest.raises(ValueError, match=rf"^Expected the index of a subspace, from 0 to 1, got {chosen} - at value"):
        roundtrip(gs.OneOf([gs.Discrete(9)] * 2), (chosen, 1))


@pytest.mark.parametrize(
    "value", [None, 1, (1,), (0, 1, 2), "01", {0: 1, 1: 1}, (0.0, 1), ("0", 1), (None, 1)], ids=repr
)
def test_what_is_no_pair_is_refused(value):
    with pytest.raises((ValueError, TypeError), match=r"^Expected a pair \(index of a subspace, value of it\), got "):
        roundtrip(gs.OneOf([gs.Discrete(9)] * 2), value)


# --- memory that is not for this space, or not any more -------------------------------------------------------------


@pytest.mark.parametrize("value", [np.ones((2, 3), np.float32), [[1, 2, 3]] * 2], ids=["array", "list"])
def test_a_closed_segment_is_a_value_error(value):
    memory = create_shared_memory(FLOATS, 1)
    gymshm.segment_of(memory).close()
    with pytest.raises(ValueError, match=r"is closed in this process\. Attach to it anew"):
        write_to_shared_memory(FLOATS, 0, value, memory)


def test_a_closed_segment_is_a_value_error_in_a_tree():
    memory = create_shared_memory(TREE, 1)
    gymshm.segment_of(memory).close()
    with pytest.raises(ValueError, match=r"is closed in this process\. Attach to it anew"):
        write_to_shared_memory(TREE, 0, GOOD, memory)


@pytest.mark.parametrize(
    ("space", "value", "other"),
    [
        (gs.Dict(a=gs.Discrete(2)), {"a": 1}, gs.Dict(b=gs.Discrete(2))),
        (gs.Dict(a=gs.Discrete(2)), {"a": 1}, gs.Tuple([gs.Discrete(2)])),
        (gs.Dict(a=gs.Discrete(2)), {"a": 1}, gs.Discrete(2)),
        (gs.Tuple([gs.Discrete(2)]), (1,), gs.Tuple([gs.Discrete(2)] * 2)),
        (gs.Tuple([gs.Discrete(2)]), (1,), gs.Discrete(2)),
        (gs.OneOf([gs.Discrete(2)]), (0, 1), gs.Tuple([gs.Discrete(2)])),
        (gs.Discrete(2), 1, gs.Tuple([gs.Discrete(2)])),
    ],
)
def test_memory_of_another_tree_is_a_type_error(space, value, other):
    memory = create_shared_memory(other, 1)
    for use in (
        lambda: write_to_shared_memory(space, 0, value, memory),
        lambda: read_from_shared_memory(space, memory),
    ):
        with pytest.raises(TypeError, match=r"^Expected the memory that `gymshm\.create_shared_memory` returned for "):
            use()


def test_memory_that_gymnasium_made_is_a_type_error():
    memory = gymnasium_utils.create_shared_memory(TREE, 1)
    with pytest.raises(TypeError, match="Use the functions of one library"):
        write_to_shared_memory(TREE, 0, GOOD, memory)
    with pytest.raises(TypeError, match="Use the functions of one library"):
        read_from_shared_memory(TREE, memory)
