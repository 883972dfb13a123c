"""``crew``: all workers are asked at once, and each reply is the one to what was asked. Deaths are elsewhere."""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces as gs

from environments import Clock, clocks
from gymshm.compat import AutoresetMode
from gymshm.crew import Crew
from gymshm.exchange import Exchange, Terms, share
from gymshm.policy import DeathPolicy
from gymshm.requests import Operation, Setup
from gymshm.worker_process import Employment

BOX, DISCRETE = gs.Box(-1e6, 1e6, (2,), np.float32), gs.Discrete(5)


def hired(fns: list[Any], num_workers: int) -> Crew:
    """A crew that nobody has started."""
    fork = multiprocessing.get_context("fork")
    return Crew(Employment(fork, fns, AutoresetMode.NEXT_STEP, True, "Test", num_workers, None), DeathPolicy())


@contextlib.contextmanager
def at_work(fns: list[Any], num_workers: int):
    """A crew that has begun, and its exchange."""
    crew = hired(fns, num_workers)
    try:
        crew.start(60)
        exchange = Exchange.create(Terms(BOX, DISCRETE, len(fns), num_workers, 1, False))
        segment = exchange.segment
        setup = Setup((segment.name, segment.header.digest), 0, exchange.terms, BOX, DISCRETE, True)
        assert crew.set_up(setup, exchange, 60) == [("", "")] * num_workers
        yield crew, exchange
    finally:
        crew.close(60)


@pytest.mark.parametrize(
    ("num_envs", "num_workers", "lengths"),
    [(17, 6, [3, 3, 3, 3, 3, 2]), (6, 6, [1] * 6), (7, 1, [7]), (1024, 3, [342, 341, 341])],
)
def test_environments_are_shared_out_contiguously_and_as_even_as_possible(num_envs, num_workers, lengths):
    shares = share(num_envs, num_workers)
    assert [len(envs) for envs in shares] == lengths
    assert [env for envs in shares for env in envs] == list(range(num_envs))


def test_reports_come_in_the_order_of_the_workers():
    def make(i):
        time.sleep(0.02 * (3 - i))  # the last one is the first to be ready
        return Clock(observation_space=gs.Box(0, 1 + i, (2,)))

    crew = hired([lambda i=i: make(i) for i in range(3)], 3)
    try:
        reports = crew.start(60)
    finally:
        crew.close(60)
    assert [report.observation_spaces[0].high[0] for report in reports] == [1, 2, 3]


def test_replies_come_in_the_order_of_the_workers():
    def act(env, action):
        time.sleep(0.02 * (3 - action))

    with at_work(clocks(3, act=act, info=lambda t: {"text": "x"}), 3) as (crew, exchange):
        crew.post(Operation.RESET, 0, [(0, [None], None, [True])] * 3)
        assert [reply.infos[0][0] for reply in crew.wait()] == [0, 1, 2]
        exchange.actions[0].live_view()[:] = [0, 1, 2]
        crew.post(Operation.STEP)
        assert [reply.infos[0][0] for reply in crew.wait()] == [0, 1, 2]
        assert exchange.rewards.tolist() == [[1, 1, 1]]


def test_each_worker_gets_the_payload_that_is_its_own():
    with at_work(clocks(4), 2) as (crew, _):
        crew.post(Operation.SET_ATTR, 0, [("secret", ["a", "b"]), ("secret", ["c", "d"])])
        crew.wait()
        crew.post(Operation.CALL, 0, [("secret", (), {})] * 2)
        assert [reply.results for reply in crew.wait()] == [["a", "b"], ["c", "d"]]


def test_a_wait_that_runs_out_of_time_goes_on_where_it_was(tmp_path):
    def act(env, seed, options):
        while not (tmp_path / "go").exists():
            time.sleep(0.001)

    with at_work(clocks(2, act_in_reset=act), 2) as (crew, exchange):
        crew.post(Operation.RESET, 0, [(0, [None], None, [True])] * 2)
        for seconds in (0.0, 0.02, 0.0):
            with pytest.raises(multiprocessing.TimeoutError):
                crew.wait(seconds)
        (tmp_path / "go").touch()
        assert not any(crew.wait(60))
        assert exchange.observations[0].live_view().tolist() == [[0, 0], [0, 0]]


def test_a_payload_that_cannot_be_pickled_asks_nobody():
    with at_work(clocks(2), 2) as (crew, _):
        with pytest.raises((TypeError, AttributeError)):
            crew.post(Operation.SET_ATTR, 0, [("secret", [1]), ("secret", [lambda: None])])
        crew.post(Operation.CALL, 0, [("secret", (), {})] * 2)
        assert [reply.results for reply in crew.wait()] == [["none"], ["none"]]


def test_a_crew_that_never_began_can_be_closed():
    hired(clocks(2), 2).close(1)


def test_a_crew_that_is_not_set_up_closes_its_environments(tmp_path):
    crew = hired(clocks(2, act_in_close=lambda env: (tmp_path / str(id(env))).touch()), 1)
    crew.start(60)
    assert crew.close(60) == []
    assert len(list(tmp_path.iterdir())) == 2
    assert crew.close(60) == []


def test_close_gives_what_environments_raised_while_they_were_closed():
    def fail(env):
        raise ValueError("bad")

    crew = hired(clocks(2, act_in_close=fail), 2)
    crew.start(60)
    exchange = Exchange.create(Terms(BOX, DISCRETE, 2, 2, 1, False))
    segment = exchange.segment
    crew.set_up(Setup((segment.name, segment.header.digest), 0, exchange.terms, BOX, DISCRETE, True), exchange, 60)
    assert sorted(failure.env for failure in crew.close(60)) == [0, 1]
