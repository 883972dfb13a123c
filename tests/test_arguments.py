"""``arguments``: what is refused before anything starts, and how many workers there are."""

from __future__ import annotations

import os

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from gymshm.arguments import check_concurrency, check_mode, positive, workers_for


def test_as_many_workers_as_the_scheduler_gives_this_process_cpus(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 4, 7})
    assert workers_for(None, 100, None) == 3


@pytest.mark.parametrize(
    ("num_workers", "num_envs", "max_concurrency", "expected"),
    [
        (2, 8, None, 2),
        (8, 3, None, 3),  # more would have nothing to do
        (8, 8, 5, 5),  # each worker executes one at a time
        (2, 8, 5, 2),
        (np.int64(2), 8, None, 2),
        (0, 8, None, 0),
        (0, 8, 1, 0),
    ],
)
def test_no_more_workers_than_there_are_environments_or_may_execute(num_workers, num_envs, max_concurrency, expected):
    workers = workers_for(num_workers, num_envs, max_concurrency)
    assert workers == expected
    assert type(workers) is int


def test_the_default_is_bounded_likewise(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    assert workers_for(None, 5, None) == 5
    assert workers_for(None, 100, 7) == 7


@pytest.mark.parametrize("num_workers", [-1, 1.0, "2"])
def test_what_is_no_number_of_workers_is_refused(num_workers):
    with pytest.raises(ValueError, match="num_workers"):
        workers_for(num_workers, 4, None)


@pytest.mark.parametrize("value", [0, -3, 1.0, None, "1"])
def test_positive_names_the_argument_and_what_came(value):
    with pytest.raises(ValueError, match="Expected slots to be a positive integer, got") as caught:
        positive(value, "slots")
    assert repr(value) in str(caught.value)


def test_positive_takes_integers_of_numpy():
    assert positive(np.uint8(3), "slots") == 3
    assert type(positive(np.uint8(3), "slots")) is int


def test_max_concurrency_is_none_or_a_positive_integer():
    assert check_concurrency(None) is None
    assert check_concurrency(np.int32(4)) == 4
    # gymnasium's own texts
    with pytest.raises(ValueError, match=r"^`max_concurrency` must be an integer or None, got <class 'float'>\.$"):
        check_concurrency(1.5)
    with pytest.raises(ValueError, match=r"^`max_concurrency` must be a positive or None, got 0\.$"):
        check_concurrency(0)


@pytest.mark.parametrize("mode", ["same", "different", (Discrete(2), Box(0, 1, (2,)))])
def test_observation_modes_of_gymnasium_are_taken(mode):
    check_mode(mode)


@pytest.mark.parametrize("mode", ["other", None, (Discrete(2),), (Discrete(2),) * 3])
def test_another_observation_mode_is_refused_in_gymnasiums_words(mode):
    text = (
        "Invalid `observation_mode`, expected: 'same' or 'different' or tuple of single and batch observation space, "
        f"actual got {mode}"
    )
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the whole text is checked
        check_mode(mode)
    assert str(caught.value) == text


def test_a_pair_that_is_no_pair_of_spaces_is_refused_in_gymnasiums_words():
    text = "Expected both elements of observation_mode to be Spaces, got <class 'int'> and <class 'str'>"
    with pytest.raises(TypeError) as caught:
        check_mode((1, "x"))
    assert str(caught.value) == text
