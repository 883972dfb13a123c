"""``env_group``: what one request does with the environments of one worker."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces as gs

from environments import Clock, clocks, zeros
from gymshm.compat import AutoresetMode
from gymshm.env_group import EnvGroup
from gymshm.exchange import Exchange, Terms
from gymshm.reply import ALL_IN_COLUMNS

BOX = gs.Box(-1e6, 1e6, (2,), np.float32)


def bound(
    fns: list[Any], start: int = 2, num_envs: int = 7, mode: str = "NextStep", **changes: Any
) -> tuple[EnvGroup, Exchange]:
    """A group of environments from ``start`` on, of ``num_envs`` in all, and its exchange."""
    terms = {
        "observation_space": BOX,
        "action_space": gs.Discrete(5),
        "num_envs": num_envs,
        "num_workers": 2,
        "slots": 1,
    }
    exchange = Exchange.create(Terms(**{**terms, "keeps_final": mode == "SameStep", **changes}))
    group = EnvGroup(start, AutoresetMode(mode))
    group.build(fns)
    group.bind(exchange)
    return group, exchange


def reset(group: EnvGroup, slot: int = 0) -> None:
    n = len(group.envs)
    assert not group.reset(slot, [None] * n, None, [True] * n)


def rows(exchange: Exchange, slot: int = 0) -> list[float]:
    return exchange.observations[slot].live_view()[:, 0].tolist()


def test_each_function_is_called_once_in_order():
    made = []

    def make(i):
        made.append(i)
        return Clock()

    group = EnvGroup(3, AutoresetMode.NEXT_STEP)
    group.build([lambda i=i: make(i) for i in range(3)])
    assert made == [0, 1, 2]
    assert group.indices == range(3, 6)


def test_when_one_cannot_be_built_its_index_is_known_and_those_before_it_are_closed():
    closed = []

    def fail():
        raise ValueError("bad")

    def close(env):
        closed.append(env)
        raise KeyError("not this one")

    group = EnvGroup(3, AutoresetMode.NEXT_STEP)
    with pytest.raises(ValueError, match="bad"):
        group.build([*clocks(2, act_in_close=close), fail])
    assert group.building == 5
    assert len(closed) == 2


def test_a_step_writes_the_rows_of_its_own_environments_alone():
    group, exchange = bound(clocks(3, episode=1))
    exchange.rewards[:] = -1
    exchange.observations[0].live_view()[:] = -1
    reset(group)
    assert group.step(0, zeros(3)) is None
    assert exchange.rewards.tolist() == [[-1, -1, 1, 1, 1, -1, -1]]
    assert rows(exchange) == [-1, -1, 1, 1, 1, -1, -1]
    assert exchange.terminations.tolist() == [[False, False, True, True, True, False, False]]


def test_actions_come_from_the_exchange_unless_they_are_given():
    given = []
    group, exchange = bound(clocks(3, act=lambda env, action: given.append(action)))
    reset(group)
    exchange.actions[0].live_view()[:] = np.arange(7) % 5
    group.step(0)
    group.step(0, ["a", "b", "c"])
    assert given == [2, 3, 4, "a", "b", "c"]


def test_results_go_to_the_slot_that_is_named():
    group, exchange = bound(clocks(2), start=0, num_envs=2, slots=3)
    reset(group, 2)
    group.step(1, zeros(2))
    group.step(0, zeros(2))
    assert [rows(exchange, slot) for slot in range(3)] == [[2, 2], [1, 1], [0, 0]]
    assert exchange.rewards.tolist() == [[2, 2], [1, 1], [0, 0]]


def test_infos_are_told_until_they_have_columns():
    group, exchange = bound(clocks(2, info=lambda t: {"t": t, "half": t / 2}))
    group.reset(0, [None] * 2, None, [True] * 2)
    first = group.step(0, zeros(2))
    assert first.infos == [(2, {"t": 1, "half": 0.5}), (3, {"t": 1, "half": 0.5})]
    assert first.schema == (("t", "half"), (int, float))
    assert group.step(0, zeros(2)) is ALL_IN_COLUMNS
    assert exchange.info_columns["integers"][0].tolist() == [0, 0, 2, 2, 0, 0, 0]
    assert exchange.info_columns["floats"][0].tolist() == [0, 0, 1, 1, 0, 0, 0]


def test_one_environments_exception_stops_neither_its_neighbours_nor_the_request():
    def act(env, action):
        if action:
            raise GeneratorExit("bad")

    group, exchange = bound(clocks(3, act=act))
    reset(group)
    reply = group.step(0, [0, 1, 0])
    assert [failure.env for failure in reply.failures] == [3]
    assert "GeneratorExit" in reply.failures[0].text
    assert [env.t for env in group.envs] == [1, 0, 1]
    assert rows(exchange)[2] == rows(exchange)[4] == 1


def test_system_exit_is_left_alone():
    def leave(env, *arguments):
        raise SystemExit(3)

    group, _ = bound(clocks(1, act=leave))
    reset(group)
    with pytest.raises(SystemExit):
        group.step(0, zeros(1))


def test_a_reset_leaves_those_that_are_not_marked():
    group, exchange = bound(clocks(3))
    reset(group)
    group.step(0, zeros(3))
    assert not group.reset(0, [None] * 3, None, [False, True, False])
    assert rows(exchange)[2:5] == [1, 0, 1]
    assert [env.resets for env in group.envs] == [1, 2, 1]


def test_pickled_observations_are_all_told_also_of_those_that_were_not_reset():
    group, _ = bound(clocks(2), observation_space=None)
    assert [row.tolist() for row in group.reset(0, [None] * 2, None, [True] * 2).observations] == [[0, 0]] * 2
    group.step(0, zeros(2))
    told = group.reset(0, [None] * 2, None, [True, False]).observations
    assert [row.tolist() for row in told] == [[0, 0], [1, 1]]


def test_calls_give_a_result_for_each_and_failures_for_those_that_raise():
    group, _ = bound(clocks(2))
    assert group.call("double", (3,), {"plus": 1}).results == [7, 7]
    assert not group.set_attr("secret", [1, None]).failures
    assert group.call("secret", (), {}).results == [1, None]
    assert [failure.env for failure in group.call("nonsense", (), {}).failures] == [2, 3]


def test_close_closes_all_and_gives_what_each_raised():
    closed = []

    def close(env):
        closed.append(env)
        if len(closed) != 2:
            raise ValueError(f"number {len(closed)}")

    group, _ = bound(clocks(3, act_in_close=close))
    told = [(failure.env, failure.text) for failure in group.close()]
    assert told == [(4, "ValueError('number 1')"), (2, "ValueError('number 3')")]
    assert len(closed) == 3
    assert group.close() == []
    assert len(closed) == 3
