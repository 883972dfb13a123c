"""``exchange``: both sides see the same arrays, each in its place."""

from __future__ import annotations

import enum
import pickle

import numpy as np
import pytest
from gymnasium import spaces as gs

from gymshm.doorbell import LINE_WORDS
from gymshm.exchange import Exchange, Terms
from gymshm.segment import attach


class Key(enum.Enum):
    """A key that JSON can't tell."""

    ONE = 1


SPACE = gs.Dict({Key.ONE: gs.Box(-9, 9, (2,), np.float32), frozenset({2}): gs.Tuple([gs.Discrete(5), gs.Text(3)])})
CHOICE = gs.OneOf([gs.Dict({b"k": gs.Discrete(5)}), gs.Discrete(3)])


def both_sides(**changes):
    """The creator's side, and what another process sees that attaches by name."""
    terms = {"observation_space": SPACE, "action_space": CHOICE, "num_envs": 3, "num_workers": 2, "slots": 1}
    ours = Exchange.create(Terms(**{**terms, "keeps_final": True, **changes}))
    theirs = Exchange(attach(ours.segment.name), pickle.loads(pickle.dumps(ours.terms)))
    return ours, theirs


def arrays(memory):
    """The views in a tree of memory, with their paths."""
    if isinstance(memory, dict):
        return {(key, *path): view for key, part in memory.items() for path, view in arrays(part).items()}
    if isinstance(memory, tuple):
        return {(i, *path): view for i, part in enumerate(memory) for path, view in arrays(part).items()}
    return {(): memory.live_view()}


def check_shared(one, other):
    """Both are the same memory."""
    assert one.shape == other.shape
    assert one.dtype == other.dtype
    one[...] = np.arange(one.size).reshape(one.shape) % 2 + 1
    assert np.array_equal(one, other)


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("name", ["observations", "actions"])
def test_the_trees_of_both_sides_have_the_keys_of_the_space_and_the_same_memory(name, slots):
    ours, theirs = both_sides(slots=slots)
    assert len(getattr(ours, name)) == len(getattr(theirs, name)) == slots
    for our_memory, memory in zip(getattr(ours, name), getattr(theirs, name), strict=True):
        our_arrays, their_arrays = arrays(our_memory), arrays(memory)
        assert list(our_arrays) == list(their_arrays)
        for path in our_arrays:
            assert our_arrays[path].shape[0] == 3
            check_shared(our_arrays[path], their_arrays[path])


def test_keys_keep_their_types():
    _, theirs = both_sides()
    assert list(theirs.observations[0]) == [Key.ONE, frozenset({2})]
    assert list(theirs.final_observations) == [Key.ONE, frozenset({2})]
    assert list(theirs.actions[0][1]) == [b"k"]


@pytest.mark.parametrize("slots", [1, 4])
def test_results_have_a_row_for_each_slot_and_a_column_for_each_environment(slots):
    ours, theirs = both_sides(slots=slots)
    for name, dtype in (("rewards", np.float64), ("terminations", np.bool_), ("truncations", np.bool_)):
        assert getattr(ours, name).shape == (slots, 3)
        assert getattr(ours, name).dtype == dtype
        check_shared(getattr(ours, name), getattr(theirs, name))


def test_slots_do_not_overlap():
    ours, _ = both_sides(slots=3)
    for slot in range(3):
        for view in arrays(ours.observations[slot]).values():
            view[...] = slot + 1
    for slot in range(3):
        assert all((view == slot + 1).all() for view in arrays(ours.observations[slot]).values())


def test_terminal_observations_have_a_place_of_their_own_where_they_are_kept():
    ours, theirs = both_sides()
    before = {path: view.copy() for path, view in arrays(ours.observations[0]).items()}
    for path, view in arrays(ours.final_observations).items():
        check_shared(view, arrays(theirs.final_observations)[path])
    assert all(np.array_equal(view, before[path]) for path, view in arrays(ours.observations[0]).items())
    assert both_sides(keeps_final=False)[1].final_observations is None


def test_what_has_no_fixed_size_has_no_place():
    _, theirs = both_sides(observation_space=None, action_space=None)
    assert theirs.observations == theirs.actions == []
    assert theirs.final_observations is None
    assert theirs.rewards.shape == (1, 3)


def test_every_worker_has_two_cache_lines_that_nobody_else_has():
    ours, theirs = both_sides()
    lines = [line for worker in range(2) for line in ours.lines(worker)]
    assert all(line.nbytes == LINE_WORDS * 8 == 64 for line in lines)
    for i, line in enumerate(lines):
        line[:] = np.full(LINE_WORDS, i + 1)
    seen = [line.tolist() for worker in range(2) for line in theirs.lines(worker)]
    assert seen == [[i + 1] * LINE_WORDS for i in range(4)]
    addresses = [np.frombuffer(line, np.int64).__array_interface__["data"][0] for line in lines]
    assert all(address % 64 == 0 for address in addresses)


def test_the_segment_is_owned_by_its_creator():
    ours, theirs = both_sides()
    name = ours.segment.name
    del theirs
    assert attach(name).n == 3
