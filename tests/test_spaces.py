from __future__ import annotations

import numpy as np
import pytest
from gymnasium import Space
from gymnasium import spaces as gs
from gymnasium.error import CustomSpaceError
from hypothesis import given

from gymshm.spaces import BUILT_IN, Array, Branch, Coded, Foreign, Union, describe, outline
from strategies import spaces


class Quaternion(Space):
    """A custom space."""


class Pixels(gs.Box):
    """A subclass of a built-in space."""


@given(spaces())
def test_a_built_in_space_stands_for_itself(space):
    assert describe(space) is space


def test_a_subclass_of_a_built_in_space_stands_for_itself():
    space = Pixels(0, 255, (2,), np.uint8)
    assert describe(space) is space
    assert outline(space) == Array(np.dtype("u1"), (2,), None)


def test_every_built_in_space_of_a_fixed_size_is_known():
    everything = {getattr(gs, name) for name in gs.__all__}
    known = {cls for cls in everything if isinstance(cls, type) and issubclass(cls, Space)}
    assert set(BUILT_IN) == known - {Space, gs.Sequence, gs.Graph}


def test_the_outline_nests_as_the_space_does():
    space = gs.Dict(
        [
            ("b", gs.Box(-1, 1, (2, 3), np.float16)),
            ("a", gs.Tuple([gs.Discrete(3), gs.Text(4, min_length=2, charset="xyz"), gs.MultiBinary([2, 2])])),
            (1, gs.OneOf([gs.MultiDiscrete([2, 3], dtype=np.int32), gs.Dict({})])),
        ]
    )
    assert outline(space) == Branch(
        ("b", "a", 1),
        (
            Array(np.dtype("f2"), (2, 3), None),
            Branch(None, (Array(np.dtype("i8"), (), None), Coded(4, 2, "xyz"), Array(np.dtype("i1"), (2, 2), None))),
            Union((Array(np.dtype("i4"), (2,), None), Branch((), ()))),
        ),
    )


def test_byte_order_is_part_of_the_outline():
    assert outline(gs.Box(-1, 1, (), np.dtype(">f4"))).dtype.str == ">f4"


def test_a_custom_space_needs_a_rule():
    text = (
        f"Space of type `{Quaternion}` doesn't have an registered `describe` rule. Register `{Quaternion}` for "
        "`describe` to say which built-in space stands for it."
    )
    with pytest.raises(CustomSpaceError) as caught:
        describe(Quaternion())
    assert str(caught.value) == text


def test_what_is_no_space_is_said_to_be_none():
    with pytest.raises(
        TypeError, match=r"The space provided to `describe` is not a gymnasium Space instance, type: <class 'str'>, x$"
    ):
        describe("x")


@pytest.mark.parametrize(
    "space", [gs.Sequence(gs.Discrete(2)), gs.Graph(gs.Discrete(2), None)], ids=["Sequence", "Graph"]
)
@pytest.mark.parametrize(
    "wrap", [lambda s: s, lambda s: gs.Dict(a=s), lambda s: gs.Tuple([s]), lambda s: gs.OneOf([s])]
)
def test_a_space_without_a_fixed_size_is_refused_at_any_depth(space, wrap):
    with pytest.raises(TypeError, match="has a dynamic shape so its not possible to make a static shared memory"):
        outline(wrap(space))


@pytest.mark.usefixtures("registries")
def test_a_rule_says_which_space_stands_for_a_custom_one():
    describe.register(Quaternion, lambda space: gs.Box(-1, 1, (4,)))
    assert outline(gs.Dict(q=Quaternion())) == Branch(("q",), (Array(np.dtype("f4"), (4,), None),))


@pytest.mark.usefixtures("registries")
def test_a_rule_may_lead_to_another_rule():
    class Pair(Space):
        pass

    describe.register(Quaternion, lambda space: gs.Box(-1, 1, (4,)))
    describe.register(Pair, lambda space: gs.Tuple([Quaternion(), gs.Discrete(2)]))
    leaves = (Array(np.dtype("f4"), (4,), None), Array(np.dtype("i8"), (), None))
    assert outline(Pair()) == Branch(None, leaves)


@pytest.mark.usefixtures("registries")
def test_a_rule_for_a_subclass_of_a_built_in_space_goes_before_its_base():
    describe.register(Pixels, lambda space: gs.Discrete(7))
    assert outline(Pixels(0, 1, (2,))) == Array(np.dtype("i8"), (), None)


@pytest.mark.usefixtures("registries")
def test_a_rule_that_gives_no_space_is_told_so():
    describe.register(Quaternion, lambda space: None)
    with pytest.raises(TypeError, match="not a gymnasium Space instance, type: <class 'NoneType'>"):
        outline(Quaternion())


@pytest.mark.parametrize("dtype", [object, np.complex64, "U3", "M8[s]", [("a", "f4")]], ids=str)
def test_a_dtype_that_is_no_number_of_a_fixed_size_is_refused(dtype):
    space = gs.Box(-1, 1, (2,))
    space.dtype = np.dtype(dtype)
    with pytest.raises(TypeError, match="Expected a numeric dtype"):
        outline(space)


def test_a_foreign_part_is_known_by_its_type_alone():
    space = gs.Tuple([Quaternion(), gs.Discrete(2)])
    described = outline(space, lambda part: isinstance(part, Quaternion))
    assert described.children[0] == Foreign(f"{__name__}.Quaternion")
