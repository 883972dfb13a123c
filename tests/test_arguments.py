"""``arguments``: what is refused before anything starts, and how many workers there are to be."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from gymshm import ShmVectorEnv, arguments
from gymshm.arguments import (
    as_autoreset_mode,
    as_max_concurrency,
    check_context,
    check_flags,
    check_observation_mode,
    not_negative,
    positive,
    spread_seeds,
    workers_for,
)


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


def test_the_default_is_one_for_each_cpu_and_bounded_likewise(monkeypatch):
    monkeypatch.setattr(arguments, "usable_cpus", lambda: 64)
    assert workers_for(None, 100, None) == 64
    assert workers_for(None, 5, None) == 5
    assert workers_for(None, 100, 7) == 7


@pytest.mark.parametrize("num_workers", [-1, 1.0, 0.0, "2", "Auto", True, False, np.True_, np.float32(2)])
def test_what_is_no_number_of_workers_is_refused(num_workers):
    text = f'Expected num_workers to be None, "auto" or an integer from 0 up, got {num_workers!r}.'
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the whole text is checked
        workers_for(num_workers, 4, None)
    assert str(caught.value) == text


@pytest.mark.parametrize("value", [0, -3, 1.0, None, "1", True, np.True_])
def test_positive_names_the_argument_and_what_came(value):
    with pytest.raises(ValueError, match="Expected slots to be a positive integer, got") as caught:
        positive(value, "slots")
    assert repr(value) in str(caught.value)


def test_positive_takes_integers_of_numpy():
    assert positive(np.uint8(3), "slots") == 3
    assert type(positive(np.uint8(3), "slots")) is int


def test_not_negative_takes_0_and_names_the_argument_and_what_came():
    assert not_negative(0, "max_restarts") == 0
    assert type(not_negative(np.uint8(3), "max_restarts")) is int
    for value in (-1, 1.0, None, "3", False):
        with pytest.raises(ValueError, match="Expected max_restarts to be an integer from 0 up, got") as caught:
            not_negative(value, "max_restarts")
        assert repr(value) in str(caught.value)


def test_max_concurrency_is_none_or_a_positive_integer():
    assert as_max_concurrency(None) is None
    assert as_max_concurrency(np.int32(4)) == 4
    # gymnasium's own texts
    with pytest.raises(ValueError, match=r"^`max_concurrency` must be an integer or None, got <class 'float'>\.$"):
        as_max_concurrency(1.5)
    with pytest.raises(ValueError, match=r"^`max_concurrency` must be an integer or None, got <class 'bool'>\.$"):
        as_max_concurrency(True)
    with pytest.raises(ValueError, match=r"^`max_concurrency` must be a positive or None, got 0\.$"):
        as_max_concurrency(0)


@pytest.mark.parametrize("mode", ["same", "different", (Discrete(2), Box(0, 1, (2,)))])
def test_observation_modes_of_gymnasium_are_taken(mode):
    check_observation_mode(mode)


@pytest.mark.parametrize("mode", ["other", None, (Discrete(2),), (Discrete(2),) * 3])
def test_another_observation_mode_is_refused_in_gymnasiums_words(mode):
    text = (
        "Invalid `observation_mode`, expected: 'same' or 'different' or tuple of single and batch observation space, "
        f"actual got {mode}"
    )
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the whole text is checked
        check_observation_mode(mode)
    assert str(caught.value) == text


def test_a_pair_that_is_no_pair_of_spaces_is_refused_in_gymnasiums_words():
    text = "Expected both elements of observation_mode to be Spaces, got <class 'int'> and <class 'str'>"
    with pytest.raises(TypeError) as caught:
        check_observation_mode((1, "x"))
    assert str(caught.value) == text


@pytest.mark.parametrize("value", [True, False, np.True_, np.False_, 0, 1])
def test_a_bool_is_one_of_numpys_too(value):
    check_flags(copy=value)


@pytest.mark.parametrize("value", ["yes", "no", "", None, 2, 1.0, [], np.zeros(1)], ids=repr)
def test_another_flag_is_refused_by_its_name(value):
    with pytest.raises(TypeError) as caught:
        check_flags(shared_memory=True, copy=value)
    assert str(caught.value) == f"Expected copy to be True or False, got {value!r}."


@pytest.mark.parametrize("flag", ["shared_memory", "copy", "daemon"])
def test_the_vector_environment_refuses_it(flag):
    with pytest.raises(TypeError, match=f"^Expected {flag} to be True or False, got 'no'"):
        ShmVectorEnv([None.__class__], num_workers=0, **{flag: "no"})


def test_another_context_is_refused_in_multiprocessings_words_and_ours_also_without_workers():
    check_context("fork")
    check_context(None)
    with pytest.raises(ValueError, match=r"^cannot find context for 'thread'\. Expected .* None or one of \[.*'spawn'"):
        ShmVectorEnv([None.__class__], context="thread", num_workers=0)


def test_another_autoreset_mode_is_refused_in_gymnasiums_words_and_ours():
    assert as_autoreset_mode("SameStep").value == "SameStep"
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the whole text is checked
        as_autoreset_mode("next_step")
    assert str(caught.value) == (
        "'next_step' is not a valid AutoresetMode. Expected autoreset_mode to be one of ['NextStep', 'SameStep', "
        "'Disabled']."
    )


def test_a_seed_is_spread_and_a_list_of_them_taken():
    assert spread_seeds(3, 3) == spread_seeds(np.int64(3), 3) == [3, 4, 5]
    assert spread_seeds((7, None, 8), 3) == [7, None, 8]
    assert spread_seeds(None, 2) == [None, None]


@pytest.mark.parametrize(
    "seed", ["a", "abc", b"abc", 1.5, iter([1, 2, 3]), np.array(3)], ids=lambda seed: type(seed).__name__
)
def test_what_is_neither_a_seed_nor_a_list_of_them_is_refused(seed):
    with pytest.raises(TypeError) as caught:
        spread_seeds(seed, 3)
    assert str(caught.value) == f"Expected seed to be an int, a sequence of 3 ints, or None, got {seed!r}."


@pytest.mark.parametrize("options", [{"slots": 3}, {"shared_memory": False}])
def test_a_batch_size_is_refused_where_there_are_no_turns(options):
    with pytest.raises(ValueError, match=r"^Expected slots=1 and observations in shared memory with a batch_size"):
        ShmVectorEnv([None.__class__] * 3, batch_size=2, num_workers=0, **options)
