"""What follows from a death: the policy, counting, and seeds."""

from __future__ import annotations

import math
import time

import pytest

from gymshm.errors import WorkerDiedError
from gymshm.policy import DeathPolicy, Deaths, derived_seed


def death(text: str, worker: int = 0) -> WorkerDiedError:
    return WorkerDiedError(text, worker, range(worker, worker + 1), -9, "step")


@pytest.fixture
def clock(monkeypatch):
    """A clock that is set by hand."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_the_policy_takes_what_it_is_told():
    assert DeathPolicy.of("raise", 10, 600.0, None) == DeathPolicy(False, 10, 600.0, None)
    assert DeathPolicy.of("restart", 0, 0.5, 2.5) == DeathPolicy(True, 0, 0.5, 2.5)
    assert DeathPolicy.of("restart", 0, math.inf, math.inf) == DeathPolicy(True, 0, None, None)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("ignore", 10, 600.0, None), "on_worker_death to be 'raise' or 'restart', got 'ignore'"),
        (("restart", -1, 600.0, None), "max_restarts to be an integer from 0 up, got -1"),
        (("restart", "3", 600.0, None), "max_restarts to be an integer from 0 up, got '3'"),
        (("restart", True, 600.0, None), "max_restarts to be an integer from 0 up, got True"),
        (("restart", 2.5, 600.0, None), "max_restarts to be an integer from 0 up, got 2.5"),
        (("restart", 10, 0.0, None), "restart_window above 0"),
        (("restart", 10, math.nan, None), "restart_window above 0 seconds, or None, got nan"),
        (("restart", 10, 600.0, 0.0), "step_timeout above 0 seconds, or None, got 0.0"),
        (("restart", 10, 600.0, -1.0), "step_timeout above 0 seconds, or None, got -1.0"),
        (("restart", 10, 600.0, float("nan")), "step_timeout above 0 seconds, or None, got nan"),
    ],
)
def test_what_is_out_of_range_is_refused(arguments, says):
    with pytest.raises(ValueError, match=says):
        DeathPolicy.of(*arguments)


def test_as_many_deaths_as_are_allowed_pass_and_the_next_one_tells_all(clock):
    deaths = Deaths(DeathPolicy(True, max_restarts=2, restart_window=10.0))
    deaths.count(death("first", 2))
    clock[0] += 1.5
    deaths.count(death("second", 1))
    deaths.count(death("third", 2))
    clock[0] += 2.0
    with pytest.raises(WorkerDiedError) as caught:
        deaths.count(death("fourth", 2))
    assert str(caught.value).splitlines() == [
        "fourth. That is more than max_restarts=2 of one worker in 10.0 s:",
        "- 3.5 s ago: first",
        "- 2.0 s ago: second",
        "- 2.0 s ago: third",
        "- 0.0 s ago: fourth",
    ]
    assert (caught.value.worker, caught.value.envs, caught.value.exitcode) == (2, range(2, 3), -9)


def test_many_workers_that_die_once_are_no_worker_that_dies_again_and_again():
    deaths = Deaths(DeathPolicy(True, max_restarts=1))
    for worker in range(100):
        deaths.count(death("once", worker))


def test_deaths_outside_the_window_are_forgotten(clock):
    deaths = Deaths(DeathPolicy(True, max_restarts=1, restart_window=10.0))
    for _ in range(5):
        deaths.count(death("again"))
        clock[0] += 10.0


def test_without_a_window_no_death_is_forgotten(clock):
    deaths = Deaths(DeathPolicy(True, max_restarts=1, restart_window=None))
    deaths.count(death("first"))
    clock[0] += 1e9
    with pytest.raises(WorkerDiedError, match=r"^second\. That is more than max_restarts=1 of one worker:\n"):
        deaths.count(death("second"))


def test_no_restart_at_all():
    with pytest.raises(WorkerDiedError, match="more than max_restarts=0"):
        Deaths(DeathPolicy(True, max_restarts=0)).count(death("only"))


def test_the_cause_of_the_last_death_stays_its_cause():
    last, cause = death("last"), ValueError("why")
    last.__cause__ = cause
    with pytest.raises(WorkerDiedError) as caught:
        Deaths(DeathPolicy(True, max_restarts=0)).count(last)
    assert caught.value.__cause__ is cause


def test_a_derived_seed_is_the_same_in_every_run_and_another_for_each_attempt():
    # numpy promises that SeedSequence never changes.
    assert derived_seed(1, 1) == 1189033389
    assert derived_seed(None, 3) is None
    seeds = [derived_seed(seed, attempt) for seed in range(20) for attempt in range(20)]
    assert len(set(seeds)) == 400
    assert all(0 <= seed < 2**32 for seed in seeds)
