from __future__ import annotations

import gc
import pickle
import weakref

import numpy as np
import pytest
from gymnasium import Space
from gymnasium import spaces as gs
from hypothesis import given
from hypothesis import strategies as st

import gymshm
from gymshm import create_shared_memory, describe, read_from_shared_memory, row_writer, write_to_shared_memory
from gymshm.row_writer import plain_row
from gymshm.views import leaves
from strategies import bad_values, spaces, values, values_and_loosened
from support import crooked, same

TREE = gs.Dict(
    [
        ("image", gs.Box(0, 255, (4, 3), np.uint8)),
        ("vector", gs.Box(-1, 1, (3,))),
        ("parts", gs.Tuple([gs.Discrete(3), gs.Box(-1, 1, (), np.float64), gs.Text(4)])),
        ("one", gs.OneOf([gs.Discrete(9), gs.Dict(a=gs.MultiBinary(3))])),
    ]
)


def bytes_of(memory):
    """All bytes of a memory; of the 16 of a longdouble those that are its value."""
    used = np.finfo(np.longdouble).nmant // 8 + 3
    arrays = [np.ascontiguousarray(leaf.view) for leaf in leaves(memory)]
    return [
        (array.reshape(-1, 1).view(np.uint8)[:, :used] if array.dtype.char == "g" else array).tobytes()
        for array in arrays
    ]


def outcome(write, value, memory):
    """What ``write(value)`` did: what it raised, if it did, and the bytes that it left behind."""
    try:
        raised = write(value)
    except Exception as error:
        raised = (type(error), str(error), {key: repr(told) for key, told in vars(error).items()})
    return raised, bytes_of(memory)


def outcomes(space, value):
    """What ``write_to_shared_memory`` does, and what a bound writer does."""
    one, other = create_shared_memory(space, 3), create_shared_memory(space, 3)
    return (
        outcome(lambda value: write_to_shared_memory(space, 1, value, one), value, one),
        outcome(row_writer(space, other, 1), value, other),
    )


@given(spaces().flatmap(lambda space: st.tuples(st.just(space), values(space))))
def test_a_bound_writer_writes_the_same(drawn):
    expected, bound = outcomes(*drawn)
    assert expected[0] is None
    assert bound == expected


@given(spaces().flatmap(lambda space: st.tuples(st.just(space), values_and_loosened(space))))
def test_a_bound_writer_writes_values_in_other_types_the_same(drawn):
    space, (_, loose) = drawn
    expected, bound = outcomes(space, loose)
    assert expected[0] is None
    assert bound == expected


@given(spaces().flatmap(lambda space: st.tuples(st.just(space), bad_values(space))))
def test_a_bound_writer_refuses_the_same_in_the_same_words(drawn):
    expected, bound = outcomes(*drawn)
    assert expected[0] is not None
    assert bound == expected


SCALARS = [
    *(0, 1, -1, 2, 255, 256, 2**31, 2**63 - 1, 2**63, -(2**63), 2**64, True, False),
    *(
        0.0,
        1.5,
        -0.0,
        65504.0,
        70000.0,
        3.4028234663852886e38,
        3.5e38,
        1e300,
        float("inf"),
        float("-inf"),
        float("nan"),
    ),
    *(np.int64(3), np.uint8(3), np.int8(-3), np.float32(0.1), np.float64(0.1), np.float16(0.1), np.longdouble(0.1)),
    *(np.bool_(True), np.array(1), np.array(1.0), np.array(True), 1j, None, "1", b"1", [1], [[1.0]], np.array([1])),
]


@pytest.mark.parametrize("value", SCALARS, ids=repr)
@pytest.mark.parametrize("code", ["?", "i1", "u1", "i2", "u4", "i8", "u8", ">i4", "f2", "f4", "f8", "g", ">f4"])
@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
def test_a_bound_writer_takes_the_same_scalars(code, value):
    expected, bound = outcomes(box(code, ()), value)
    assert bound == expected


def box(code, shape):
    dtype = np.dtype(code)
    if dtype.kind == "f":
        return gs.Box(-np.inf, np.inf, shape, dtype)
    low, high = (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    return gs.Box(low, high, shape, dtype)


@pytest.mark.parametrize("value", [3.5e38, 1e300], ids=repr)
def test_a_float_that_overflows_is_told_by_both(value):
    # numpy's warning, which is an error here: nothing is written, also not what comes before it.
    space = gs.Tuple([gs.Discrete(3), gs.Box(-np.inf, np.inf, (), np.float32)])
    expected, bound = outcomes(space, (2, value))
    assert expected[0][:2] == (RuntimeWarning, "overflow encountered in cast")
    assert bound == expected
    assert not any(map(any, bound[1]))


@pytest.mark.parametrize("code", ["?", "i1", "u2", "i8", "f2", "f4", "f8", "g", ">f8"])
def test_a_bound_writer_takes_arrays_of_every_layout(code):
    dtype = np.dtype(code)
    plain = np.arange(4).astype(dtype)
    unaligned = np.frombuffer(b"\0" + plain.tobytes(), np.uint8)[1:].view(dtype)
    for value in (plain, plain[::-1], plain.repeat(2)[::2], unaligned, plain.astype(dtype.newbyteorder("S"))):
        expected, bound = outcomes(gs.Tuple([gs.Discrete(3), box(code, (4,))]), (1, value))
        assert expected[0] is None
        assert bound == expected


def test_a_bound_writer_sees_what_is_not_in_order_of_its_own():
    for value in ({0: 1, 1: 1}, {1, 2}, "ab"):
        expected, bound = outcomes(gs.Tuple([gs.Discrete(9)] * 2), value)
        assert expected[0][0] is TypeError
        assert bound == expected


@pytest.mark.parametrize("value", [[1, 2], (1, 2), np.array([1, 2])], ids=repr)
def test_a_bound_writer_takes_no_list_for_a_dict(value):
    expected, bound = outcomes(gs.Dict({0: gs.Discrete(9), 1: gs.Discrete(9)}), value)
    assert expected[0][0] is TypeError
    assert bound == expected


def test_an_iterator_can_be_asked_only_once():
    # The list takes the bound writer's slow way, behind the choice whose value is an iterator.
    space = gs.Tuple([gs.OneOf([gs.Tuple([gs.Discrete(9)])]), gs.Box(0, 9, (2,))])
    memory = create_shared_memory(space, 1)
    row_writer(space, memory, 0)(((0, iter([7])), [1, 2]))
    ((choice,), numbers) = read_from_shared_memory(space, memory, 1)
    assert (choice, numbers.tolist()) == ((0, (7,)), [[1, 2]])


@pytest.mark.parametrize("index", [-1, 3, 1.0, None, 2**70], ids=repr)
def test_an_index_that_is_none_is_refused_at_once(index):
    memory = create_shared_memory(TREE, 3)
    with pytest.raises(IndexError, match=r"Expected an integer index in \[0, 3\), got "):
        row_writer(TREE, memory, index)


@pytest.mark.parametrize("index", [np.int64(2), np.uint8(2), np.array(2)], ids=repr)
def test_an_index_of_any_integer_type_is_fine(index):
    space = gs.Discrete(9)
    memory = create_shared_memory(space, 3)
    row_writer(space, memory, index)(5)
    assert memory.view.tolist() == [0, 0, 5]


@pytest.mark.parametrize(
    ("space", "other"),
    [
        (gs.Dict(a=gs.Discrete(2)), gs.Dict(b=gs.Discrete(2))),
        (gs.Tuple([gs.Discrete(2)]), gs.Tuple([gs.Discrete(2)] * 2)),
        (gs.OneOf([gs.Discrete(2)]), gs.Discrete(2)),
        (gs.Discrete(2), gs.Tuple([gs.Discrete(2)])),
    ],
)
def test_memory_of_another_tree_is_refused_at_once(space, other):
    with pytest.raises(TypeError, match=r"Expected the memory that `gymshm\.create_shared_memory` returned for "):
        row_writer(space, create_shared_memory(other, 1), 0)


def test_a_closed_segment_is_refused_at_once():
    memory = create_shared_memory(TREE, 1)
    gymshm.segment_of(memory).close()
    with pytest.raises(ValueError, match="is closed in this process"):
        row_writer(TREE, memory, 0)


def test_a_bound_writer_keeps_the_mapping_alive_and_nothing_else():
    space = gs.Box(0, 9, (2,))
    memory = create_shared_memory(space, 1)
    view, write = memory.view, row_writer(space, memory, 0)
    gymshm.segment_of(memory).close()
    del memory
    write(np.ones(2, np.float32))
    assert view.tolist() == [[1, 1]]


def test_a_bound_writer_is_no_cycle():
    gc.disable()
    try:
        memory = create_shared_memory(TREE, 1)
        segment = weakref.ref(gymshm.segment_of(memory))
        write = row_writer(TREE, memory, 0)
        write(TREE.sample())
        del memory, write
        assert segment() is None
    finally:
        gc.enable()


def test_read_only_memory_is_refused_by_both_in_the_same_words():
    space = gs.Tuple([gs.Discrete(3), gs.Box(0, 1, (3,))])
    memory = create_shared_memory(space, 1)
    attached = gymshm.attach(gymshm.segment_of(memory).name, read_only=True).memory
    value = space.sample()
    expected = outcome(lambda value: write_to_shared_memory(space, 0, value, attached), value, memory)
    bound = outcome(row_writer(space, attached, 0), value, memory)
    assert expected[0][:2] == (ValueError, "assignment destination is read-only")
    assert bound == expected


def test_a_writer_for_nothing_does_nothing():
    for space, value in ((gs.Tuple(()), ()), (gs.Dict({}), {})):
        assert row_writer(space, create_shared_memory(space, 2), 1)(value) is None


def test_keys_and_values_never_become_source():
    key = "']; raise SystemExit; x['"
    space = gs.Dict({key: gs.Discrete(9), "__import__('os')": gs.Discrete(9)})
    memory = create_shared_memory(space, 1)
    row_writer(space, memory, 0)({key: 1, "__import__('os')": 2})
    assert read_from_shared_memory(space, memory) == {key: [1], "__import__('os')": [2]}


def test_a_tree_of_a_thousand_leaves_can_be_bound():
    space = gs.Tuple([gs.Discrete(9)] * 1000)
    memory = create_shared_memory(space, 1)
    row_writer(space, memory, 0)((7,) * 1000)
    assert {int(leaf.view[0]) for leaf in leaves(memory)} == {7}


class Angle(Space):
    """A custom space."""


@pytest.mark.usefixtures("registries")
def test_a_described_space_and_a_handled_one_are_written_the_same():
    describe.register(Angle, lambda space: gs.Box(-1, 1, (2,)))
    for space, value in ((Angle(), [0.5, 0.5]), (gs.Dict(a=Angle(), b=gs.Discrete(3)), {"a": [0.5, 0.5], "b": 2})):
        expected, bound = outcomes(space, value)
        assert expected[0] is None
        assert bound == expected


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize(
    "wrap", [lambda s: gs.Tuple([s, gs.Discrete(3)]), lambda s: gs.Tuple([gs.OneOf([s]), gs.Discrete(3)])]
)
def test_a_handlers_part_is_written_before_ours(wrap):
    seen = []
    create_shared_memory.register(Angle, lambda space, n=1, ctx=None: [None] * n)

    @write_to_shared_memory.register(Angle)
    def write(space, index, value, memory):
        seen.append(value)
        raise RuntimeError("no angle today")

    space = wrap(Angle())
    memory = create_shared_memory(space, 1)
    bind = row_writer(space, memory, 0)
    before = bytes_of(memory)
    value = (3.0, 2) if isinstance(space.spaces[0], Angle) else ((0, 3.0), 2)
    with pytest.raises(RuntimeError, match="no angle today"):
        bind(value)
    assert seen == [3.0]
    assert bytes_of(memory) == before


def test_custom_spaces_that_nobody_knows_are_refused_at_once():
    memory = create_shared_memory(gs.Tuple([gs.Discrete(2)]), 1)
    with pytest.raises(gymshm.CustomSpaceError, match="Cannot write to a shared memory for space with type"):
        row_writer(gs.Tuple([Angle()]), memory, 0)


def test_the_same_form_of_space_is_compiled_once():
    from gymshm.row_writer import _compiled

    _compiled.cache_clear()
    memory = create_shared_memory(gs.Dict(a=gs.Discrete(3), b=gs.Box(0, 1, (2,))), 8)
    for i in range(8):
        row_writer(gs.Dict(a=gs.Discrete(3), b=gs.Box(0, 1, (2,))), memory, i)
    assert _compiled.cache_info().misses == 1


def test_a_writer_can_be_bound_to_memory_that_travelled():
    memory = create_shared_memory(TREE, 2)
    value = TREE.sample()
    row_writer(TREE, pickle.loads(pickle.dumps(memory)), 1)(value)
    again = create_shared_memory(TREE, 2)
    write_to_shared_memory(TREE, 1, value, again)
    assert same(read_from_shared_memory(TREE, memory, 2), read_from_shared_memory(TREE, again, 2))


# --- versions of rows -----------------------------------------------------------------------------------------------


class Interrupting(np.ndarray):
    """An array in which Ctrl-C comes before the store."""

    def __setitem__(self, key, value):
        raise KeyboardInterrupt


#: The first leaf is stored through a memoryview, which may refuse; the second, which is not native, by numpy.
TWO = gs.Dict(a=gs.Box(0, 9, (2,), np.float32), b=gs.Box(0, 9, (2,), np.dtype(">f4")))


def two(number):
    return {key: np.full(2, number, space.dtype) for key, space in TWO.spaces.items()}


def test_a_row_is_not_calm_where_a_write_was_interrupted_until_the_next_one_has_come_to_its_end():
    memory = create_shared_memory(TWO, 2, snapshots=True)
    versions, whole = memory["a"].versions, memory["b"].view
    memory["b"].view = whole.view(Interrupting)
    interrupted = row_writer(TWO, memory, 1)
    memory["b"].view = whole
    with pytest.raises(KeyboardInterrupt):
        interrupted(two(1))
    assert (memory["a"].view[1].tolist(), whole[1].tolist()) == ([1, 1], [0, 0])  # neither old nor new
    assert (versions[0], versions[1] % 2) == (0, 1)
    write = row_writer(TWO, memory, 1)
    with pytest.raises(ValueError, match="Expected shape"):
        write({**two(1), "a": np.ones(3, np.float32)})
    assert versions[1] % 2 == 1
    write(two(2))
    assert versions[1] % 2 == 0
    assert same(read_from_shared_memory(TWO, memory, 2)["b"][1], two(2)["b"])


def test_a_row_is_as_calm_as_before_where_nothing_was_written():
    memory = create_shared_memory(TWO, 2, snapshots=True)
    versions, write = memory["a"].versions, row_writer(TWO, memory, 1)
    write(two(1))
    before = versions[1]
    for key, value, error in (
        ("a", np.ones(3, np.float32), ValueError),
        ("a", np.array(["x", "y"]), TypeError),
        ("b", np.ones(3, np.float32), ValueError),
    ):
        with pytest.raises(error) as caught:
            write({**two(2), key: value})
        assert caught.value.path == f"value[{key!r}]"
        assert versions[1] == before
        assert (memory["a"].view[1] == 1).all()


def test_a_row_is_calm_after_a_write_whose_value_is_converted_or_not_aligned():
    memory = create_shared_memory(gs.Dict(a=TWO["a"], c=gs.Box(0, 9, (2,), np.float32)), 1, snapshots=True)
    write = row_writer(gs.Dict(a=TWO["a"], c=gs.Box(0, 9, (2,), np.float32)), memory, 0)
    unaligned = crooked(np.full(2, 3, np.float32))
    seen = []
    for a in (np.array([3, 3]), unaligned, np.full(2, 3, np.float32)):
        for c in (unaligned, [3, 3]):
            write({"a": a, "c": c})
            assert (memory["a"].view == 3).all()
            assert (memory["c"].view == 3).all()
            seen.append(memory["a"].versions[0])
            memory["a"].view[...] = memory["c"].view[...] = 0
    assert seen == sorted(set(seen))
    assert not any(version % 2 for version in seen)


def test_memory_in_the_place_of_the_index_is_told_of():
    space = gs.Dict(a=gs.Discrete(2))
    with pytest.raises(TypeError, match=r"^Expected row_writer\(space, shared_memory, index\), got the memory"):
        row_writer(space, 0, create_shared_memory(space))


# --- plain rows -------------------------------------------------------------------------------------------------------


PLAIN = [
    gs.Box(-1, 1, (4,), np.float32),
    gs.Box(-1, 1, (1,), np.float64),
    gs.Box(0, 255, (5,), np.uint8),
    gs.MultiBinary(3),
    gs.MultiDiscrete([3, 4]),
]


@pytest.mark.parametrize("space", PLAIN, ids=repr)
def test_a_plain_row_takes_just_what_fits_and_stores_nothing_else(space):
    memory, other = create_shared_memory(space, 3), create_shared_memory(space, 3)
    row, write = plain_row(space, memory, 1), row_writer(space, other, 1)
    value = (np.arange(space.shape[0]) + 1).astype(space.dtype)
    backwards = value[::-1].copy()[::-1]
    for fits in (value, backwards, np.lib.stride_tricks.as_strided(value[:1], value.shape, (0,))):
        row[:] = fits
        write(fits)
        assert bytes_of(memory) == bytes_of(other)
    before = bytes_of(memory)
    unfit = [value.astype(np.complex64), value.astype(object), value[:-1], value[None], value > 0]
    if space.dtype.itemsize > 1:
        unfit.append(value.astype(space.dtype.newbyteorder()))
    for other_value in unfit:
        with pytest.raises(ValueError, match=r"memoryview assignment|cannot include dtype"):
            row[:] = other_value
    assert bytes_of(memory) == before


@pytest.mark.parametrize(
    "space",
    [
        gs.Box(-1, 1, (2, 2)),
        gs.Box(-1, 1, ()),
        gs.Box(-1, 1, (3,), np.float16),
        gs.Box(-1, 1, (3,), np.dtype(">f4")),
        gs.Box(0, 1, (3,), np.bool_),
        gs.Discrete(3),
        gs.Text(3),
        gs.Dict(a=gs.Box(-1, 1, (3,))),
    ],
    ids=repr,
)
def test_what_takes_more_than_a_store_is_no_plain_row(space):
    assert plain_row(space, create_shared_memory(space, 3), 1) is None


def test_rows_with_versions_are_not_plain():
    space = PLAIN[0]
    assert plain_row(space, create_shared_memory(space, 3, snapshots=True), 1) is None
