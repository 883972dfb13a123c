from __future__ import annotations

import hypothesis
import hypothesis.strategies as st
import pytest
from gymnasium import spaces as gs
from hypothesis import given

from strategies import BOX_DTYPES, CHARACTERS, KEYS, SHAPES, boxes, dicts, leaves, spaces, spaces_with_values, texts


def find(strategy, condition):
    settings = hypothesis.settings(max_examples=5000, phases=[hypothesis.Phase.generate])
    return hypothesis.find(strategy, condition, settings=settings)


@given(spaces_with_values())
def test_values_are_members_of_their_space(drawn):
    space, items = drawn
    assert all(item in space for item in items)


def _sorted(space):
    keys = [key for key in space.spaces if isinstance(key, str)]
    return keys == sorted(keys)


FORMS = {
    "an empty Dict": lambda space: isinstance(space, gs.Dict) and not space.spaces,
    "an empty Tuple": lambda space: isinstance(space, gs.Tuple) and not space.spaces,
    "a Dict in a OneOf": lambda space: isinstance(space, gs.OneOf) and isinstance(space.spaces[0], gs.Dict),
    "a Tuple in a Dict": lambda space: isinstance(space, gs.Dict) and gs.Tuple in map(type, space.spaces.values()),
    "keys of several types": lambda space: isinstance(space, gs.Dict) and len(set(map(type, space.spaces))) > 1,
    "keys out of order": lambda space: isinstance(space, gs.Dict) and not _sorted(space),
}


@pytest.mark.parametrize("form", FORMS)
def test_trees_of_every_form_are_drawn(form):
    find(spaces(), FORMS[form])


@pytest.mark.parametrize("kind", [gs.Box, gs.Discrete, gs.MultiDiscrete, gs.MultiBinary, gs.Text])
def test_leaves_of_every_kind_are_drawn(kind):
    find(leaves(), lambda space: type(space) is kind)


@pytest.mark.parametrize("dtype", BOX_DTYPES, ids=lambda dtype: dtype.str)
def test_boxes_of_every_dtype_are_drawn(dtype):
    find(boxes(), lambda space: space.dtype == dtype)


@pytest.mark.parametrize("shape", SHAPES)
def test_boxes_of_every_shape_are_drawn(shape):
    find(boxes(), lambda space: space.shape == shape)


@pytest.mark.parametrize("character", CHARACTERS, ids=ascii)
def test_texts_of_every_character_are_drawn(character):
    find(texts(), lambda space: character in space.character_set)


@pytest.mark.parametrize("key", KEYS, ids=ascii)
def test_dicts_of_every_key_are_drawn(key):
    find(dicts(st.just(gs.Discrete(2))), lambda space: any(key is drawn for drawn in space.spaces))
