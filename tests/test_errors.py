from __future__ import annotations

import copy
import errno
import multiprocessing
import pickle

import gymnasium.error
import pytest

import gymshm
from gymshm import errors
from gymshm.errors import Mismatch, MissingKeyError

SEGMENT_ERRORS = [errors.SegmentNotFoundError, errors.SegmentExistsError, errors.SegmentFormatError]


def test_custom_space_error_is_gymnasiums_own():
    assert gymshm.CustomSpaceError is gymnasium.error.CustomSpaceError


@pytest.mark.parametrize(
    ("cls", "base"),
    [
        (errors.SegmentNotFoundError, FileNotFoundError),
        (errors.SegmentExistsError, FileExistsError),
        (errors.SegmentFormatError, ValueError),
        (errors.WorkerDiedError, RuntimeError),
        (errors.FallbackWarning, RuntimeWarning),
        (errors.MissingKeyError, KeyError),
        (errors.TimedOutError, TimeoutError),
        (errors.TimedOutError, multiprocessing.TimeoutError),
    ],
)
def test_each_error_is_caught_as_the_built_in_one_that_fits(cls, base):
    assert issubclass(cls, base)


@pytest.mark.parametrize("cls", SEGMENT_ERRORS)
@pytest.mark.parametrize("travel", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_a_segment_error_keeps_its_name_and_text_when_it_travels(cls, travel):
    error = travel(cls("some-name", "What is wrong."))
    assert type(error) is cls
    assert (error.name, error.filename, str(error)) == ("some-name", "some-name", "What is wrong.")


def test_a_segment_error_of_the_system_has_its_errno():
    assert errors.SegmentNotFoundError("a", "b").errno == errno.ENOENT
    assert errors.SegmentExistsError("a", "b").errno == errno.EEXIST


def test_that_time_is_over_travels_with_its_text():
    back = pickle.loads(pickle.dumps(errors.TimedOutError("Not in time.")))
    assert (type(back), str(back)) == (errors.TimedOutError, "Not in time.")


def test_the_text_of_a_missing_key_is_not_quoted_once_more():
    assert str(MissingKeyError("Expected 'a'.")) == "Expected 'a'."


def test_a_dead_workers_facts_travel():
    error = errors.WorkerDiedError("worker 1 died", 1, range(4, 8), -9, "step")
    back = pickle.loads(pickle.dumps(error))
    assert (str(back), back.worker, back.envs, back.exitcode, back.during) == (
        "worker 1 died",
        1,
        range(4, 8),
        -9,
        "step",
    )


def test_a_mismatch_becomes_an_error_that_says_what_where_and_what_to_do():
    mismatch = Mismatch(ValueError, "shape (3,)", "shape (4,)", "Correct the space.")
    mismatch.below(0)
    mismatch.below("cam")
    error = mismatch.as_error(2, "obs")
    assert type(error) is ValueError
    assert str(error) == "Expected shape (3,), got shape (4,) - at obs['cam'][0], index 2. Correct the space."
    assert error.path == "obs['cam'][0]"
    assert (error.index, error.expected, error.got) == (2, "shape (3,)", "shape (4,)")


def test_a_mismatch_without_index_and_remedy_is_shorter():
    assert str(Mismatch(TypeError, "a str", "int 3").as_error(None)) == "Expected a str, got int 3 - at value."


def test_what_a_mismatch_says_travels_with_the_error():
    error = pickle.loads(pickle.dumps(Mismatch(MissingKeyError, "a key", "none").as_error(1)))
    assert (type(error), error.path, error.index, error.expected, error.got) == (
        MissingKeyError,
        "value",
        1,
        "a key",
        "none",
    )
