"""``requests``: which spaces a setup takes for a match."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces as gs

from environments import Clock, group_of
from gymshm.exchange import Terms
from gymshm.requests import Operation, Setup


def test_operations_fit_into_a_message():
    assert all(0 < operation < 256 for operation in Operation)


@pytest.mark.parametrize(
    ("same_spaces", "spaces", "expected"),
    [
        (True, [gs.Box(0, 1, (2,)), gs.Box(0, 1, (2,))], True),
        (True, [gs.Box(0, 1, (2,)), gs.Box(0, 2, (2,))], False),
        (False, [gs.Box(0, 1, (2,)), gs.Box(0, 2, (2,))], True),
        (False, [gs.Box(0, 1, (2,)), gs.Box(0, 1, (3,))], False),
        (False, [gs.Box(0, 1, (2,)), gs.Box(0, 1, (2,), np.float64)], False),
    ],
)
def test_spaces_have_to_be_equal_or_only_alike(same_spaces, spaces, expected):
    terms = Terms(spaces[0], gs.Discrete(5), 2, 1, 1, False)
    setup = Setup(("name", b"digest"), 0, terms, spaces[0], gs.Discrete(5), same_spaces)
    group = group_of([lambda space=space: Clock(observation_space=space) for space in spaces])
    told = "" if expected else f" Expected {spaces[0]}, got {spaces[1]} - in environment 1."
    assert setup.misfits(group) == (told, "")


def test_action_spaces_have_to_be_equal():
    terms = Terms(None, gs.Discrete(5), 2, 1, 1, False)
    setup = Setup(("name", b"digest"), 0, terms, Clock().observation_space, gs.Discrete(5), True)
    fns = [Clock, lambda: Clock(action_space=gs.Discrete(6))]
    assert setup.misfits(group_of(fns)) == ("", " Expected Discrete(5), got Discrete(6) - in environment 1.")


class Plain(gs.Space):
    """A custom space without ``__eq__``."""


def test_a_space_that_can_not_be_compared_is_told_of():
    terms = Terms(None, gs.Discrete(5), 1, 1, 1, False)
    setup = Setup(("name", b"digest"), 0, terms, Plain(), gs.Discrete(5), True)
    observations, actions = setup.misfits(group_of([lambda: Clock(observation_space=Plain())]))
    assert observations.endswith(" - in environment 0. Spaces are compared by `__eq__`, which `Plain` does not define.")
    assert actions == ""
