from __future__ import annotations

import functools
import gc
import types
import weakref

import gymnasium.vector.utils as gymnasium_utils
import numpy as np
import pytest
from gymnasium import Space
from gymnasium import spaces as gs
from gymnasium.vector.utils import batch_space
from hypothesis import given

import gymshm
from gymshm import create_shared_memory, describe, dispatch, iterate, read_from_shared_memory, write_to_shared_memory
from gymshm.spaces import BUILT_IN
from gymshm.views import ArrayLeaf
from strategies import spaces_with_values
from support import row, same

FUNCTIONS = [create_shared_memory, read_from_shared_memory, write_to_shared_memory]


class Custom(Space):
    """A custom space."""


class Special(Custom):
    """A custom space of a custom space."""


class Pixels(gs.Box):
    """A subclass of a built-in space."""


class Mixin:
    """Something that is no space, and may be registered all the same."""


def handlers(name):
    """Three handlers, whose memory is a list that says whose it is."""
    return (
        lambda space, n=1, ctx=None: [name] * (n + 1),
        lambda space, memory, n=1: memory[1:],
        lambda space, index, value, memory: memory.__setitem__(index + 1, (name, value)),
    )


def register(functions, cls, name):
    for function, handler in zip(functions, handlers(name), strict=True):
        function.register(cls, handler)


THEIRS = [getattr(gymnasium_utils, function.__name__) for function in FUNCTIONS]


def used(space, value):
    """Whose memory a space has: a handler's name, or None for a packed one. It is written and read as well."""
    memory = create_shared_memory(space, 2)
    write_to_shared_memory(space, 1, value, memory)
    batch = read_from_shared_memory(space, memory, 2)
    if isinstance(memory, list):
        assert batch[1] == (memory[0], value)
        return memory[0]
    assert (np.asarray(batch[1]) == value).all()
    return None


@pytest.fixture(autouse=True)
def _clean(registries):
    """Each test here registers something."""


# --- register -------------------------------------------------------------------------------------------------------

WRAPS = {
    "root": (lambda space: space, lambda value: value, lambda batch: batch),
    "Dict": (lambda s: gs.Dict(a=s, b=gs.Discrete(9)), lambda v: {"a": v, "b": 1}, lambda b: b["a"]),
    "Tuple": (lambda s: gs.Tuple([gs.Discrete(9), s]), lambda v: (1, v), lambda b: b[1]),
    "OneOf": (lambda s: gs.OneOf([gs.Discrete(9), s]), lambda v: (1, v), lambda b: [b[0][1], b[1][1]]),
    "deep": (lambda s: gs.Dict(a=gs.Tuple([gs.Dict(b=s)])), lambda v: {"a": ({"b": v},)}, lambda b: b["a"][0]["b"]),
}


@pytest.mark.parametrize("functions", [FUNCTIONS, THEIRS], ids=["ours", "gymnasium's"])
@pytest.mark.parametrize("wrap", WRAPS)
def test_registered_handlers_serve_at_the_root_and_at_any_depth(functions, wrap):
    register(functions, Custom, "handler")
    in_space, in_value, out_of_batch = WRAPS[wrap]
    space = in_space(Custom())
    memory = create_shared_memory(space, 2)
    for index, value in enumerate(("first", "second")):
        write_to_shared_memory(space, index, in_value(value), memory)
    batch = out_of_batch(read_from_shared_memory(space, memory, n=2))
    assert list(batch) == [("handler", "first"), ("handler", "second")]


def test_a_handler_gets_n_and_ctx_by_name_as_from_gymnasium():
    seen = []
    create_shared_memory.register(Custom, lambda space, *, n, ctx: seen.append((n, ctx)) or [])
    read_from_shared_memory.register(Custom, lambda space, memory, *, n: seen.append(n))
    space = gs.Tuple([Custom()])
    memory = create_shared_memory(space, 3, types)
    read_from_shared_memory(space, memory, 3)
    assert seen == [(3, types), 3]


def test_register_is_a_decorator_for_a_class_a_union_and_an_annotated_function():
    @create_shared_memory.register(Custom)
    def for_class(space, n=1, ctx=None):
        return "class"

    @create_shared_memory.register
    def for_annotation(space: Special, n=1, ctx=None):
        return "annotation"

    assert (create_shared_memory(Custom()), create_shared_memory(Special())) == ("class", "annotation")
    assert create_shared_memory.registry[Custom] is for_class
    assert create_shared_memory.dispatch(Special) is for_annotation
    with pytest.raises(TypeError):
        create_shared_memory.register("no class")


def test_a_handler_for_a_built_in_space_replaces_ours_everywhere():
    space = gs.Dict(a=gs.Discrete(9), b=gs.Box(0, 1, (2,)))
    create_shared_memory(space)
    register(FUNCTIONS, gs.Discrete, "mine")
    memory = create_shared_memory(space, 2)
    assert memory["a"] == ["mine"] * 3
    assert type(memory["b"]) is ArrayLeaf
    write_to_shared_memory(space, 1, {"a": 5, "b": [0, 1]}, memory)
    assert read_from_shared_memory(space, memory, 2)["a"] == ["mine", ("mine", 5)]
    assert used(gs.Discrete(3), 2) == "mine"
    assert used(gs.MultiBinary(1), [1]) is None


def test_a_handler_that_comes_later_is_seen_also_in_rows_that_were_written_before():
    space, value = gs.Box(0, 9, (2,)), np.ones(2, np.float32)
    memory = create_shared_memory(space)
    for _ in range(2):
        write_to_shared_memory(space, 0, value, memory)
    seen = []
    write_to_shared_memory.register(gs.Box, lambda space, index, value, memory: seen.append(index))
    write_to_shared_memory(space, 0, value * 2, memory)
    assert seen == [0]
    assert memory.view.tolist() == [[1, 1]]


def test_a_handler_that_a_third_party_puts_in_the_place_of_gymnasiums_is_honoured():
    space = gs.Dict(a=gs.Discrete(9), b=gs.Box(0, 1, (2,)))
    before = create_shared_memory(space, 2)
    register(THEIRS, gs.Discrete, "plug-in")
    # Also where nothing is created any more: memory that arrives in another process.
    theirs = {"a": ["plug-in"] * 3, "b": before["b"]}
    write_to_shared_memory(space, 1, {"a": 5, "b": [0, 1]}, theirs)
    assert read_from_shared_memory(space, theirs, 2)["a"] == ["plug-in", ("plug-in", 5)]
    assert used(gs.Discrete(3), 2) == "plug-in"


def test_a_handler_that_wraps_gymnasiums_own_is_a_third_partys():
    own = gymnasium_utils.write_to_shared_memory.dispatch(gs.Discrete)
    seen = []

    @functools.wraps(own)
    def wrapped(space, index, value, memory):
        seen.append(value)

    gymnasium_utils.write_to_shared_memory.register(gs.Discrete, wrapped)
    memory = create_shared_memory(gs.Discrete(9))
    write_to_shared_memory(gs.Discrete(9), 0, 5, memory)
    assert seen == [5]


def test_built_in_spaces_have_handlers_that_can_be_looked_up():
    for function in FUNCTIONS:
        for space in BUILT_IN:
            assert callable(function.dispatch(space))
            assert space in function.registry
        assert Custom not in function.registry


# --- the order of lookup --------------------------------------------------------------------------------------------


def test_ours_goes_before_a_third_partys_before_a_rule_before_the_error():
    with pytest.raises(gymshm.CustomSpaceError):
        create_shared_memory(Custom())
    describe.register(Custom, lambda space: gs.Box(0, 9, (2,)))
    assert used(Custom(), [1, 2]) is None
    register(THEIRS, Custom, "theirs")
    assert used(Custom(), [1, 2]) == "theirs"
    register(FUNCTIONS, Custom, "ours")
    assert used(Custom(), [1, 2]) == "ours"


def test_the_most_specific_class_goes_first():
    register(FUNCTIONS, Custom, "general")
    assert used(Special(), 1) == "general"
    register(FUNCTIONS, Special, "special")
    assert used(Special(), 1) == "special"
    assert used(Custom(), 1) == "general"


@pytest.mark.parametrize("functions", [FUNCTIONS, THEIRS], ids=["ours", "gymnasium's"])
def test_a_handler_for_all_spaces_is_for_custom_ones(functions):
    register(functions, Space, "any")
    assert used(Custom(), 1) == "any"
    assert used(gs.Discrete(9), 1) is None
    assert used(Pixels(0, 9, (2,)), [1, 2]) is None
    assert type(create_shared_memory(gs.Dict(a=gs.Discrete(2), b=Custom()))["a"]) is ArrayLeaf


def test_a_handler_for_a_base_behind_the_built_in_one_does_not_take_its_subclasses():
    # As functools.singledispatch has it: Box comes first in the order of the bases.
    class Mixed(gs.Box, Mixin):
        pass

    class Custom2(Mixin, Space):
        pass

    register(FUNCTIONS, Mixin, "mixin")
    assert used(Mixed(0, 9, (2,)), [1, 2]) is None
    assert used(Custom2(), 1) == "mixin"


def test_a_handler_for_a_subclass_leaves_its_base_alone():
    register(FUNCTIONS, Pixels, "pixels")
    assert used(Pixels(0, 9, (2,)), [1, 2]) == "pixels"
    assert used(gs.Box(0, 9, (2,)), [1, 2]) is None


@pytest.mark.parametrize("base", BUILT_IN, ids=lambda base: base.__name__)
def test_a_subclass_of_a_built_in_space_works_as_its_base_does(base):
    arguments = {
        gs.Box: (0, 9, (2,)),
        gs.Discrete: (9,),
        gs.MultiDiscrete: ([2, 3],),
        gs.MultiBinary: (3,),
        gs.Text: (4,),
        gs.Dict: ({"a": gs.Discrete(3)},),
        gs.Tuple: ([gs.Discrete(3)],),
        gs.OneOf: ([gs.Discrete(3)],),
    }[base]
    space = type("Sub", (base,), {})(*arguments)
    value = space.sample()
    for whole, part in ((space, value), (gs.Dict(a=space), {"a": value})):
        memory = create_shared_memory(whole, 2)
        write_to_shared_memory(whole, 1, part, memory)
        assert same(row(whole, read_from_shared_memory(whole, memory, 2), 1), part)
    assert gymshm.attach(gymshm.segment_of(memory).name).space == gs.Dict(a=base(*arguments))


class Base(gs.Box):
    """Stands between a built-in space and a subclass."""


class Derived(Base):
    """A subclass of a subclass of a built-in space."""


class Branch(gs.Dict):
    """A subclass of a built-in space that has parts."""


def written_often(space, value):
    """Memory of ``space`` that was written to and read from more than once, so that all is remembered that can be."""
    memory = create_shared_memory(space, 2)
    for _ in range(3):
        write_to_shared_memory(space, 1, value, memory)
        assert same(row(space, read_from_shared_memory(space, memory, 2), 1), value)
    return memory


#: What may come late: (on whose functions, for which class).
LATER = [(functions, cls) for functions in (FUNCTIONS, THEIRS) for cls in (Base, Derived)]


@pytest.mark.parametrize(("functions", "cls"), LATER)
@pytest.mark.parametrize("wrap", ["root", "Dict", "Tuple"])
def test_a_handler_for_a_subclass_is_obeyed_from_then_on(wrap, functions, cls):
    in_space, in_value, out_of_batch = WRAPS[wrap]
    value = np.array([1, 2], np.float32)
    space = in_space(Derived(0, 9, (2,)))
    memory = written_often(space, in_value(value))
    seen = []
    functions[2].register(cls, lambda space, index, value, memory: seen.append((index, value)))
    write_to_shared_memory(space, 1, in_value(value * 2), memory)
    assert same(seen[0][1], value * 2)
    functions[1].register(cls, lambda space, memory, n=1: "read by handler")
    assert out_of_batch(read_from_shared_memory(space, memory, 2)) == "read by handler"
    functions[0].register(cls, lambda space, n=1, ctx=None: ["made by handler"])
    made = create_shared_memory(space, 2)
    assert (made if wrap == "root" else out_of_batch(made)) == ["made by handler"]
    assert used(gs.Box(0, 9, (2,)), value) is None


def test_a_rule_for_a_subclass_is_obeyed_from_then_on():
    space = Derived(0, 9, (2,))
    memory = written_often(space, np.array([1, 2], np.float32))
    describe.register(Base, lambda space: gs.Box(0, 9, (3,), np.float64))
    with pytest.raises(ValueError, match=r"Expected shape \(2,\), got shape \(3,\)"):
        write_to_shared_memory(space, 0, np.zeros(3), memory)
    assert create_shared_memory(space, 2).view.shape == (2, 3)


def test_a_handler_for_a_subclass_with_parts_is_obeyed_from_then_on():
    space, value = Branch(a=gs.Discrete(9)), {"a": np.int64(3)}
    memory = written_often(space, value)
    seen = []
    gymnasium_utils.write_to_shared_memory.register(Branch, lambda space, index, value, memory: seen.append(value))
    write_to_shared_memory(space, 0, value, memory)
    assert seen == [value]


def test_a_handler_for_a_built_in_space_is_for_its_subclasses_from_then_on():
    space, value = Derived(0, 9, (2,)), np.array([1, 2], np.float32)
    memory = written_often(space, value)
    seen = []
    write_to_shared_memory.register(gs.Box, lambda space, index, value, memory: seen.append(index))
    write_to_shared_memory(space, 1, value * 2, memory)
    assert seen == [1]
    assert memory.view[1].tolist() == [1, 2]


def test_a_subclass_is_refused_what_its_base_is_also_once_it_is_known():
    known, plain = Derived(0, 9, (2,)), gs.Box(0, 9, (2,))
    memories = [written_often(space, np.array([1, 2], np.float32)) for space in (known, plain)]
    told = []
    for space, memory in zip((known, plain), memories, strict=True):
        for index, value in ((0, [1]), (2, [1, 2]), (0, ["x", "y"]), (0, {})):
            with pytest.raises((ValueError, TypeError, IndexError)) as caught:
                write_to_shared_memory(space, index, value, memory)
            told.append((type(caught.value), str(caught.value)))
        with pytest.raises(ValueError, match="Expected n=2"):
            read_from_shared_memory(space, memory, 3)
    assert told[:4] == told[4:]


def test_what_serves_a_subclass_is_found_out_once(monkeypatch):
    space = gs.Dict(a=Derived(0, 9, (2,)), b=Branch(c=gs.OneOf([Derived(0, 9, (2,))])))
    value = {"a": np.array([1, 2], np.float32), "b": {"c": (0, np.array([3, 4], np.float32))}}
    memory = written_often(space, value)
    monkeypatch.setattr(dispatch.Function, "custom", lambda self, cls: pytest.fail(f"looked for {cls} again"))
    write_to_shared_memory(space, 1, value, memory)
    assert same(read_from_shared_memory(space, memory, 2)["a"][1], value["a"])


def test_subclasses_are_remembered_no_longer_than_they_live_and_only_so_many(monkeypatch):
    monkeypatch.setattr(dispatch, "_MOST_SUBCLASSES", 3)
    gone = []
    for number in range(8):
        cls = type(f"Sub{number}", (gs.Box,), {})
        written_often(cls(0, 9, (2,)), np.array([1, 2], np.float32))
        gone.append(weakref.ref(cls))
        for function in dispatch._functions:
            assert len(function._subclasses) <= 3
    del cls
    gc.collect()
    assert [reference() for reference in gone] == [None] * 8


def test_one_rule_packs_a_custom_space_and_who_attaches_by_name_sees_it():
    @describe.register
    def _(space: Custom) -> Space:
        return gs.Box(-1, 1, (4,))

    space = gs.Dict(pose=Custom(), step=gs.Discrete(100))
    memory = create_shared_memory(space, 2)
    write_to_shared_memory(space, 1, {"pose": [1, 0, 0, 0], "step": 7}, memory)
    attached = gymshm.attach(gymshm.segment_of(memory).name)
    assert attached.space == gs.Dict(pose=gs.Box(-1, 1, (4,)), step=gs.Discrete(100))
    assert attached.read()["pose"][1].tolist() == [1, 0, 0, 0]
    attached.write(0, {"pose": np.zeros(4), "step": 3})
    assert read_from_shared_memory(space, memory, 2)["step"].tolist() == [3, 7]


def test_handlers_of_several_parts_write_in_the_order_of_the_tree_before_ours():
    seen = []
    create_shared_memory.register(Custom, lambda space, n=1, ctx=None: memory_view)
    memory_view = {"image": None}

    @write_to_shared_memory.register(Custom)
    def write(space, index, value, memory):
        seen.append((value, memory["image"].view.tolist()))

    space = gs.Tuple([gs.Discrete(9), Custom(), gs.Dict(a=Custom()), gs.OneOf([Custom()])])
    memory = create_shared_memory(space, 1)
    memory_view["image"] = memory[0]
    write_to_shared_memory(space, 0, (5, "first", {"a": "second"}, (0, "third")), memory)
    assert seen == [("first", [0]), ("second", [0]), ("third", [0])]
    assert memory[0].view.tolist() == [5]


def test_a_value_that_does_not_fit_calls_no_handler():
    register(FUNCTIONS, Custom, "handler")
    space = gs.Tuple([Custom(), gs.Discrete(9)])
    memory = create_shared_memory(space, 1)
    with pytest.raises(TypeError):
        write_to_shared_memory(space, 0, ("new", 0.5), memory)
    assert memory[0] == ["handler"] * 2


@pytest.mark.parametrize("index", [-1, 0.0, None])
def test_an_index_that_is_none_calls_no_handler(index):
    register(FUNCTIONS, Custom, "handler")
    memory = create_shared_memory(Custom(), 1)
    with pytest.raises(IndexError):
        write_to_shared_memory(Custom(), index, 1, memory)
    assert memory == ["handler"] * 2


def test_registering_on_one_function_alone_is_not_enough():
    create_shared_memory.register(Custom, lambda space, n=1, ctx=None: [])
    memory = create_shared_memory(Custom())
    for use in (
        lambda: read_from_shared_memory(Custom(), memory),
        lambda: write_to_shared_memory(Custom(), 0, 1, memory),
    ):
        with pytest.raises(gymshm.CustomSpaceError):
            use()


# --- the texts of write (create's and read's stand with them) -------------------------------------------------------


@pytest.mark.parametrize("wrap", WRAPS)
def test_a_custom_space_that_nobody_registered_is_refused_in_both_texts(wrap):
    in_space, in_value, _ = WRAPS[wrap]
    memory = create_shared_memory(in_space(gs.Discrete(2)))
    with pytest.raises(gymshm.CustomSpaceError) as caught:
        write_to_shared_memory(in_space(Custom()), 0, in_value(1), memory)
    assert str(caught.value) == (
        f"Cannot write to a shared memory for space with type `{Custom}`. Shared memory only supports default Gym "
        "spaces (e.g. `Box`, `Tuple`, `Dict`, etc...), and does not support custom Gym spaces. Space of type "
        f"`{Custom}` doesn't have an registered `write_to_shared_memory` function. Register `{Custom}` for "
        "`write_to_shared_memory` to support it."
    )


@pytest.mark.parametrize("space", ["space", None, 3, gs.Discrete], ids=repr)
def test_what_is_no_space_is_a_type_error(space):
    with pytest.raises(TypeError) as caught:
        write_to_shared_memory(space, 1, None, None)
    assert str(caught.value) == (
        "The space provided to `write_to_shared_memory` is not a gymnasium Space instance, type: "
        f"{type(space)}, {space}"
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda space, memory: write_to_shared_memory(space, 1, {"a": 2}, memory),
        lambda space, memory: write_to_shared_memory(space, 1, value={"a": 2}, shared_memory=memory),
        lambda space, memory: write_to_shared_memory(shared_memory=memory, value={"a": 2}, index=1, space=space),
    ],
)
def test_positional_mixed_and_all_keyword_calls(call):
    space = gs.Dict(a=gs.Discrete(3))
    memory = create_shared_memory(space, 2)
    assert call(space, memory) is None
    assert memory["a"].view.tolist() == [0, 2]


# --- iterate --------------------------------------------------------------------------------------------------------


@given(spaces_with_values())
def test_iterating_over_a_batch_gives_what_was_written(drawn):
    space, items = drawn
    if not items or not can_be_batched(space):
        return
    memory = create_shared_memory(space, len(items))
    for i, item in enumerate(items):
        write_to_shared_memory(space, i, item, memory)
    batch = read_from_shared_memory(space, memory, len(items))
    rows = list(iterate(batch_space(space, len(items)), batch))
    assert len(rows) == (len(items) if has_leaves(space) else 0)
    assert all(map(same, rows, items))


def can_be_batched(space):
    """Whether gymnasium's batch_space knows it: an empty Dict or Tuple, say, has no batch of n."""
    if isinstance(space, gs.Dict | gs.Tuple):
        children = list(space.spaces.values() if isinstance(space, gs.Dict) else space.spaces)
        return bool(children) and all(map(can_be_batched, children))
    dtype = None if space.dtype is None or isinstance(space, gs.Text) else space.dtype
    return dtype is None or (dtype.isnative and dtype != np.uint64 and dtype.char != "g")


def has_leaves(space):
    return not isinstance(space, gs.Dict | gs.Tuple) or bool(space.spaces)


def test_iterate_over_a_dict_a_tuple_texts_and_choices():
    space = gs.Dict(
        a=gs.Box(0, 9, (2,), np.int64),
        b=gs.Tuple([gs.Discrete(9), gs.Text(3)]),
        c=gs.OneOf([gs.Discrete(9), gs.Text(3)]),
    )
    memory = create_shared_memory(space, 2)
    values = [{"a": [1, 2], "b": (3, "x"), "c": (0, 4)}, {"a": [5, 6], "b": (7, ""), "c": (1, "y")}]
    for i, value in enumerate(values):
        write_to_shared_memory(space, i, value, memory)
    rows = list(iterate(batch_space(space, 2), read_from_shared_memory(space, memory, 2)))
    assert [{**value, "a": value["a"].tolist()} for value in rows] == values


def test_iterate_takes_subclasses_of_built_in_spaces():
    space = gs.Tuple([Pixels(0, 9, (2, 3), np.int64), gs.MultiDiscrete([5, 5])])
    rows = list(iterate(space, (np.arange(6).reshape(2, 3), np.array([1, 2]))))
    assert [(first.tolist(), int(second)) for first, second in rows] == [([0, 1, 2], 1), ([3, 4, 5], 2)]


@pytest.mark.parametrize("space", [gs.Dict({}), gs.Tuple([])], ids=repr)
def test_iterating_over_nothing_gives_nothing(space):
    assert list(iterate(space, {} if isinstance(space, gs.Dict) else ())) == []


def test_iterate_refuses_a_custom_space_in_both_texts():
    space = Custom()
    with pytest.raises(gymshm.CustomSpaceError) as caught:
        iterate(space, [1, 2])
    assert str(caught.value) == (
        f"Unable to iterate over [1, 2], since {space} is a custom `gym.Space` instance (i.e. not one of `Box`, "
        f"`Dict`, etc...). Space of type `{Custom}` doesn't have an registered `iterate` function. Register "
        f"`{Custom}` for `iterate` to support it."
    )


def test_iterate_honours_a_handler_registered_with_gymnasium():
    gymnasium_utils.iterate.register(Custom, lambda space, items: iter(items))
    assert list(iterate(gs.Dict(a=Custom()), {"a": [1, 2]})) == [{"a": 1}, {"a": 2}]


def test_iterate_goes_by_the_space_that_stands_for_a_custom_one():
    gymshm.describe.register(Custom, lambda space: gs.Box(0, 9, (2,), np.int64))
    batch = np.arange(6).reshape(3, 2)
    assert [row.tolist() for row in iterate(Custom(), batch)] == [[0, 1], [2, 3], [4, 5]]
    rows = iterate(gs.Dict(a=Custom(), b=gs.MultiDiscrete([9, 9, 9])), {"a": batch, "b": np.arange(3)})
    assert [(row["a"].tolist(), int(row["b"])) for row in rows] == [([0, 1], 0), ([2, 3], 1), ([4, 5], 2)]
    gymnasium_utils.iterate.register(Custom, lambda space, items: iter("abc"))
    assert list(iterate(Custom(), batch)) == ["a", "b", "c"]


@pytest.mark.parametrize("space", [gs.Text(3), gs.Sequence(gs.Discrete(2)), gs.Graph(gs.Discrete(2), None)], ids=repr)
def test_iterate_refuses_built_in_spaces_that_gymnasium_does_not_take_apart(space):
    with pytest.raises(gymshm.CustomSpaceError, match=r"^Unable to iterate over \[\], since "):
        iterate(space, [])


def test_iterate_refuses_what_is_no_space_and_what_has_no_items():
    with pytest.raises(TypeError, match="The space provided to `iterate` is not a gymnasium Space instance"):
        iterate("space", [])
    with pytest.raises(TypeError, match="Unable to iterate over a space of type `Discrete`"):
        iterate(gs.Discrete(3), 1)
    with pytest.raises(TypeError, match="Unable to iterate over the following elements: 3"):
        iterate(gs.Box(0, 1, (2,)), 3)


def test_iterating_over_batches_of_different_lengths_is_an_error():
    space = gs.Dict(a=gs.Box(0, 1, (2,)), b=gs.Box(0, 1, (3,)))
    with pytest.raises(ValueError, match=r"zip\(\) argument 2 is longer than argument 1"):
        list(iterate(space, {"a": np.zeros(2), "b": np.zeros(3)}))
