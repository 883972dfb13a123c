"""``agreement``: which spaces a batch has, and which spaces of environments match them."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces as gs

from environments import Clock, group_of
from gymshm.agreement import Misfits, batch_spaces, misfits, refuse_misfits
from gymshm.exchange import Terms
from gymshm.requests import Report, Setup

BOX, WIDER, DISCRETE = gs.Box(0, 1, (2,), np.float32), gs.Box(0, 2, (2,), np.float32), gs.Discrete(5)


def setup_of(space: gs.Space, same_spaces: bool = True) -> Setup:
    return Setup(("name", b"digest"), 0, Terms(None, DISCRETE, 2, 1, 1, False), space, DISCRETE, same_spaces)


@pytest.mark.parametrize(
    ("same_spaces", "spaces", "expected"),
    [
        (True, [BOX, gs.Box(0, 1, (2,), np.float32)], True),
        (True, [BOX, WIDER], False),
        (False, [BOX, WIDER], True),
        (False, [BOX, gs.Box(0, 1, (3,))], False),
        (False, [BOX, gs.Box(0, 1, (2,), np.float64)], False),
    ],
)
def test_spaces_have_to_be_equal_or_only_alike(same_spaces, spaces, expected):
    group = group_of([lambda space=space: Clock(observation_space=space) for space in spaces])
    told = "" if expected else f" Expected {spaces[0]}, got {spaces[1]} - in environment 1."
    assert misfits(setup_of(spaces[0], same_spaces), group) == (told, "")


def test_action_spaces_have_to_be_equal():
    fns = [Clock, lambda: Clock(action_space=gs.Discrete(6))]
    told = misfits(setup_of(Clock().observation_space), group_of(fns))
    assert told == ("", " Expected Discrete(5), got Discrete(6) - in environment 1.")


class Plain(gs.Space):
    """A custom space without ``__eq__``."""


def test_a_space_that_can_not_be_compared_is_told_of():
    observation, action = misfits(setup_of(Plain()), group_of([lambda: Clock(observation_space=Plain())]))
    assert observation.endswith(" - in environment 0. Spaces are compared by `__eq__`, which `Plain` does not define.")
    assert action == ""


@pytest.mark.parametrize(
    ("told", "same_spaces", "text"),
    [
        ([Misfits("", ""), Misfits(" Why.", " No.")], True, "use `observation_mode='different'` instead. Why."),
        ([Misfits(" Why.", "")], False, "do not share a common shape and dtype. Why."),
        ([Misfits("", ""), Misfits("", " No.")], True, "from all environments must be equal. No."),
    ],
)
def test_what_does_not_match_is_refused_observations_first(told, same_spaces, text):
    with pytest.raises(RuntimeError) as caught:
        refuse_misfits(told, setup_of(BOX, same_spaces), "Owner")
    assert str(caught.value).endswith(text)


def test_what_matches_is_not_refused():
    refuse_misfits([Misfits("", "")] * 2, setup_of(BOX), "Owner")


def test_the_spaces_of_a_batch_go_by_the_mode():
    reports = [Report([BOX, WIDER], DISCRETE, {}, None), Report([BOX], DISCRETE, {}, None)]
    actions = (DISCRETE, gs.MultiDiscrete([5, 5, 5]))
    assert batch_spaces(reports, "same", 3) == (BOX, gs.Box(0, 1, (3, 2), np.float32), *actions)
    single, batched, *_ = batch_spaces(reports, "different", 3)
    assert (single, batched.shape, batched.high.tolist()) == (BOX, (3, 2), [[1, 1], [2, 2], [1, 1]])
    given = gs.Box(0, 9, (3, 2), np.float32), WIDER
    assert batch_spaces(reports, given, 3) == (*reversed(given), *actions)
