from __future__ import annotations

import math

import numpy as np
from gymnasium import spaces as gs
from hypothesis import given
from hypothesis import strategies as st

from gymshm.creator import Creator
from gymshm.header import build, parse
from gymshm.plan import ALIGNMENT, Field, align, plan
from gymshm.spaces import outline
from strategies import Color, spaces

FIELDS = st.lists(
    st.builds(
        Field, st.text("ab", max_size=3), st.lists(st.integers(0, 5), max_size=2).map(tuple), spaces().map(outline)
    ),
    max_size=3,
)


@given(FIELDS)
def test_leaves_are_aligned_and_never_overlap(fields):
    layout = plan(fields)
    end = 0
    for leaf in (leaf for leaves in layout.leaves for leaf in leaves):
        assert leaf.offset % ALIGNMENT == 0
        assert leaf.offset >= end
        assert leaf.nbytes == math.prod(leaf.shape) * leaf.dtype.itemsize
        end = leaf.offset + leaf.nbytes
    assert layout.nbytes == end


@given(FIELDS)
def test_no_more_is_left_between_leaves_than_alignment_asks_for(fields):
    layout = plan(fields)
    leaves = [leaf for leaves in layout.leaves for leaf in leaves]
    assert layout.nbytes <= sum(leaf.nbytes + ALIGNMENT - 1 for leaf in leaves)


@given(FIELDS)
def test_the_same_fields_give_the_same_plan(fields):
    assert plan(fields) == plan(list(fields))


@given(FIELDS, st.integers(0, 2**40))
def test_a_plan_survives_the_header(fields, n):
    layout = plan(fields)
    raw, header = build(layout, n, Creator(1, 2, "boot", "namespace"), "token")
    segment = bytearray(header.nbytes)
    segment[: len(raw)] = raw
    segment[56] = 1
    back = parse(bytes(segment), "name", len(segment))
    assert (back.layout.leaves, back.layout.nbytes, back.n) == (layout.leaves, layout.nbytes, n)
    assert [(field.name, field.lead) for field in back.layout.fields] == [(field.name, field.lead) for field in fields]


def test_leaves_stand_in_the_order_of_the_tree_and_say_where():
    space = gs.Dict(
        [
            ("b", gs.Box(-1, 1, (3,), np.float64)),
            ("a", gs.Tuple([gs.Discrete(2), gs.OneOf([gs.Text(5), gs.MultiBinary(2)])])),
            (Color.RED, gs.Discrete(4)),
        ]
    )
    (leaves,) = plan([Field("values", (4,), outline(space))]).leaves
    assert [(leaf.path, leaf.dtype.str, leaf.shape, leaf.offset) for leaf in leaves] == [
        ("['b']", "<f8", (4, 3), 0),
        ("['a'][0]", "<i8", (4,), 128),
        ("['a'][1].index", "<i8", (4,), 192),
        ("['a'][1][0]", "<i4", (4, 5), 256),
        ("['a'][1][1]", "|i1", (4, 2), 384),
        ("[<Color.RED: 1>]", "<i8", (4,), 448),
    ]


def test_fields_stand_one_behind_the_other_with_dimensions_of_their_own():
    number = outline(gs.Box(-1, 1, (), np.float64))
    layout = plan([Field("a", (2, 3), number), Field("b", (), number), Field("c", (9,), number)])
    assert [(leaf.shape, leaf.offset) for (leaf,) in layout.leaves] == [((2, 3), 0), ((), 64), ((9,), 128)]
    assert layout.nbytes == 128 + 72


def test_only_a_text_starts_out_as_something_else_than_zero():
    space = gs.Tuple([gs.Text(2, charset="abc"), gs.Discrete(2), gs.Text(2, min_length=0, charset="")])
    (leaves,) = plan([Field("values", (1,), outline(space))]).leaves
    assert [leaf.fill for leaf in leaves] == [-3, 0, 0]


def test_nothing_takes_no_room():
    assert plan([]).nbytes == 0
    assert plan([Field("values", (5,), outline(gs.Dict({})))]).nbytes == 0
    assert plan([Field("values", (0,), outline(gs.Box(0, 1, (7,))))]).nbytes == 0


@given(st.integers(0, 2**70))
def test_align_rounds_up_to_the_next_multiple(offset):
    aligned = align(offset)
    assert aligned % ALIGNMENT == 0
    assert 0 <= aligned - offset < ALIGNMENT
