"""``send`` and ``recv`` where workers die or hang: what each environment's turn gives."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest
from gymnasium.error import NoAsyncCallError

from environments import Clock
from gymshm.env_group import EnvGroup
from gymshm.errors import WorkerDiedError
from gymshm.exchange import Exchange, Terms
from mortal import EXIT, HANG, HOLD, KILL, STOP, Mortal, count, fail_from, fates, mortals, once
from support import wait_until

CONTEXTS = ["fork", "spawn", "forkserver"]


def everybody(envs: Any, **fate: int) -> dict[int, Any]:
    """Sends to all, and receives all, one by one or as they come."""
    envs.send(fates(envs.num_envs, **fate), np.arange(envs.num_envs))
    return received(envs)


def received(envs: Any) -> dict[int, Any]:
    """What is received until nobody is asked any more: (time, reward, terminated, truncated, restarted) of each."""
    told: dict[int, Any] = {}
    while True:
        try:
            observations, rewards, terminations, truncations, infos = envs.recv(timeout=60)
        except NoAsyncCallError:
            return dict(sorted(told.items()))
        marks = infos.get("worker_restarted", np.zeros(len(rewards), np.bool_))
        rows = zip(observations[:, 0], rewards, terminations, truncations, marks, strict=True)
        for env, row in zip(infos["env_id"].tolist(), rows, strict=True):
            assert env not in told, f"environment {env} was received twice"
            told[env] = tuple(item.item() for item in row)


def goes_on(t: int) -> tuple[Any, ...]:
    return (float(t), float(t), False, False, False)


def lost(t: int) -> tuple[Any, ...]:
    return (float(t), 0.0, False, True, True)


def was_reset(mark: bool = False) -> tuple[Any, ...]:
    return (0.0, 0.0, False, False, mark)


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_lost_turn_ends_the_episode_as_truncated_with_what_was_seen_last(context, batch_size):
    envs = mortals(context=context, batch_size=batch_size)
    envs.async_reset(seed=1)
    assert received(envs) == dict.fromkeys(range(4), was_reset())
    assert everybody(envs) == dict.fromkeys(range(4), goes_on(1))
    # Environment 0 has had its turn when 1 dies.
    assert everybody(envs, env1=KILL) == {0: goes_on(2), 1: lost(1), 2: goes_on(2), 3: goes_on(2)}
    # So its loss is told in the turn after that, with what it showed by then.
    assert everybody(envs) == {0: lost(2), 1: was_reset(), 2: goes_on(3), 3: goes_on(3)}
    assert everybody(envs) == {0: was_reset(), 1: goes_on(1), 2: goes_on(4), 3: goes_on(4)}
    assert envs.get_attr("steps") == (0, 1, 4, 4)
    envs.close()


@pytest.mark.parametrize("fate", [EXIT, HANG, HOLD, STOP])
def test_every_kind_of_end(fate):
    envs = mortals(step_timeout=1.5)
    envs.async_reset()
    received(envs)
    assert everybody(envs, env2=fate) == {0: goes_on(1), 1: goes_on(1), 2: lost(0), 3: lost(0)}
    envs.close()


def test_a_hang_is_an_error_where_nobody_is_restarted():
    envs = mortals(step_timeout=1.0, on_worker_death="raise", batch_size=1)
    envs.async_reset()
    received(envs)
    envs.send(fates(4, env2=HANG), np.arange(4))
    with pytest.raises(WorkerDiedError, match=r"within step_timeout=1.0 s during a turn(.*\n)*.*mortal.py"):
        received(envs)
    envs.close()


def test_the_rest_is_received_while_one_hangs():
    envs = mortals(step_timeout=2.0, batch_size=2)
    envs.async_reset()
    received(envs)
    envs.send(fates(4, env2=HANG), np.arange(4))
    done = {0: 0, 1: 0}
    for _ in range(50):
        ids = envs.recv(timeout=60)[4]["env_id"].tolist()
        if set(ids) & {2, 3}:
            break
        for env in ids:
            done[env] += 1
        envs.send(fates(len(ids)), np.array(ids))
    assert min(done.values()) >= 1
    received(envs)
    envs.close()


def test_same_step_mode_resets_within_the_lost_turn():
    envs = mortals(autoreset_mode="SameStep")
    envs.async_reset()
    received(envs)
    everybody(envs)
    envs.send(fates(4, env2=KILL), np.arange(4))
    observations, _, _, truncations, infos = envs.recv(timeout=60)
    assert observations[:, 0].tolist() == [2, 2, 0, 0]
    assert truncations.tolist() == [False, False, True, True]
    assert infos["final_obs"][2].tolist() == infos["final_obs"][3].tolist() == [1, 1]
    assert infos["final_info"]["worker_restarted"].tolist() == [False, False, True, True]
    assert [row[0] for row in everybody(envs).values()] == [3, 3, 1, 1]
    envs.close()


# --- resets -----------------------------------------------------------------------------------------------------------


def die_at_reset(path: Any, number: int) -> Any:
    def act_in_reset(env: Clock, seed: Any, options: Any) -> None:
        if count(path) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return act_in_reset


def test_a_reset_that_was_asked_stays_one_with_its_own_seed_and_options(tmp_path):
    seen: dict[str, Any] = {"act_in_reset": die_at_reset(tmp_path / "resets", 2)}
    envs = mortals(3, env=seen, num_workers=1)
    envs.async_reset(seed=[5, 6, 7])
    told = received(envs)
    assert [row[:4] for row in told.values()] == [(0.0, 0.0, False, False)] * 3
    assert envs.np_random_seed[1:] == (6, 7)
    # The first one was reset before the second died in its reset: that was lost.
    assert everybody(envs) == {0: lost(0), 1: goes_on(1), 2: goes_on(1)}
    envs.close()


def test_resets_and_steps_that_are_asked_of_one_worker_stay_what_they_are(tmp_path):
    hold = tmp_path / "hold"

    def act_in_reset(env: Clock, seed: Any, options: Any) -> None:
        if seed == 6 and options is not None:
            once(tmp_path / "holds", lambda: wait_until(lambda: not hold.exists(), 120))

    envs = mortals(2, env={"act_in_reset": act_in_reset}, num_workers=1, batch_size=1)
    hold.touch()
    envs.async_reset(seed=[5, 6], options={"x": 1})
    assert envs.recv(timeout=60)[4]["env_id"].tolist() == [0]
    wait_until((tmp_path / "holds").exists)
    envs.send(fates(1), np.array([0]))  # waits for its turn, behind the reset that goes on
    os.kill(envs.processes[0].pid, signal.SIGKILL)
    assert received(envs) == {0: lost(0), 1: was_reset(mark=True)}
    assert envs.np_random_seed[1] == 6
    envs.close()


def test_seeds_of_a_reset_without_any_are_those_of_the_one_before():
    drawn = []
    for _ in range(2):
        envs = mortals(2, num_workers=1)
        envs.async_reset(seed=3)
        received(envs)
        envs.async_reset()
        received(envs)
        everybody(envs, env0=KILL)
        drawn.append(envs.np_random_seed)
        envs.close()
    assert drawn[0] == drawn[1]


def test_a_worker_that_looks_for_its_next_turn_takes_no_reset_for_a_step():
    terms = Terms(Clock().observation_space, Clock().action_space, 2, 1, 1, keeps_final=False)
    exchange = Exchange.create(terms)
    group = EnvGroup(0, "NextStep")
    group.build([Clock, Clock])
    group.bind(exchange)
    group.reset(0, [None, None], None, [True, True])
    exchange.turns_asked[0] += 1
    is_reset = [False]
    turns = group.turns(None, lambda: is_reset[0])
    assert next(turns)[0] == 0
    group.end_turn(0, payload_follows=False)
    is_reset[0] = True
    exchange.turns_asked[1] += 1
    assert list(turns) == []
    assert [env.steps for env in group.envs] == [1, 0]
    exchange.segment.close()


def test_options_that_can_not_be_pickled_leave_nobody_asked():
    envs = mortals()
    with pytest.raises(Exception, match="pickle"):
        envs.async_reset(options={"f": lambda: 0})
    with pytest.raises(NoAsyncCallError):
        envs.recv()
    envs.async_reset()
    assert received(envs) == dict.fromkeys(range(4), was_reset())
    envs.close()


# --- what was told, and what was not ----------------------------------------------------------------------------------


def test_what_a_worker_told_before_it_died_arrives():
    envs = mortals(2, env={"info": lambda t: {"t": t}}, num_workers=1)
    envs.async_reset()
    envs.recv(timeout=60)
    envs.send(fates(2, env1=KILL), np.arange(2))
    envs.processes[0].join(30)
    infos = envs.recv(timeout=60)[4]
    assert infos["t"].tolist() == [1, 0]
    assert infos["_t"].tolist() == [True, False]
    assert infos["worker_restarted"].tolist() == [False, True]
    envs.close()


def test_a_turn_that_is_done_and_was_not_told_of_is_done_again():
    # It dies between the mark and the packet. What the packet holds is too much for the pipe: so that is when it waits.
    envs = mortals(2, env={"info": lambda t: {"blob": bytes(1 << 22)} if t else {}}, num_workers=1)
    envs.async_reset()
    received(envs)
    envs.send(fates(1), np.array([0]))
    wait_until(lambda: envs._exchange.turns_done[0] & 1)
    os.kill(envs.processes[0].pid, signal.SIGKILL)
    envs.processes[0].join(30)
    assert received(envs) == {0: lost(0)}
    assert everybody(envs) == {0: was_reset(), 1: lost(0)}
    envs.close()


def test_who_stops_in_the_middle_of_what_it_tells_counts_as_hung():
    envs = mortals(2, env={"info": lambda t: {"blob": bytes(1 << 22)} if t else {}}, num_workers=1, step_timeout=1.5)
    envs.async_reset()
    received(envs)
    envs.send(fates(1), np.array([0]))
    wait_until(lambda: envs._exchange.turns_done[0] & 1)
    os.kill(envs.processes[0].pid, signal.SIGSTOP)
    assert received(envs) == {0: lost(0)}
    envs.close()


def test_what_is_done_and_not_received_yet_is_what_was_seen_last():
    envs = mortals(2, num_workers=1, batch_size=1)
    envs.async_reset()
    received(envs)
    everybody(envs)
    envs.send(fates(2, env1=KILL), np.arange(2))
    envs.processes[0].join(30)
    assert received(envs) == {0: goes_on(2), 1: lost(1)}
    assert everybody(envs)[0] == lost(2)
    envs.close()


def test_turns_after_steps_and_calls_know_what_was_seen_last():
    envs = mortals(2, num_workers=1)
    envs.reset()
    for _ in range(4):
        envs.step(fates(2))
    assert everybody(envs) == {0: goes_on(5), 1: goes_on(5)}
    assert envs.get_attr("t") == (5, 5)
    assert everybody(envs, env1=KILL) == {0: goes_on(6), 1: lost(5)}
    assert everybody(envs) == {0: lost(6), 1: was_reset()}
    observations, _, _, truncations, _ = envs.step(fates(2))
    assert (observations[:, 0].tolist(), truncations.tolist()) == ([0, 1], [False, False])
    observations, _, _, truncations, _ = envs.step(fates(2, env0=KILL))
    assert (observations[:, 0].tolist(), truncations.tolist()) == ([0, 1], [True, True])
    envs.close()


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_a_recv_that_runs_out_of_time_during_a_restart_can_be_called_again(tmp_path):
    def make() -> Mortal:
        if count(tmp_path / "calls") == 2:
            wait_until((tmp_path / "go").exists, 120)
        return Mortal()

    envs = mortals(3, fns=[Mortal, make, Mortal], num_workers=3, batch_size=3)
    envs.async_reset()
    received(envs)
    envs.send(fates(2, env1=KILL), np.arange(2))
    for _ in range(3):
        with pytest.raises(multiprocessing.TimeoutError):
            envs.recv(timeout=0.3)
    envs.send(fates(1), np.array([2]))  # to another one, meanwhile
    with pytest.raises(multiprocessing.TimeoutError):
        envs.recv(timeout=0.3)
    (tmp_path / "go").touch()
    assert received(envs) == {0: goes_on(1), 1: lost(0), 2: goes_on(1)}
    envs.close()


@pytest.mark.parametrize("context", CONTEXTS)
def test_nobody_waits_for_the_restart_of_another(context, tmp_path):
    wait_for = fail_from(tmp_path / "calls", 2, 2, lambda: wait_until((tmp_path / "go").exists, 60))
    envs = mortals(3, fns=[wait_for, Mortal, Mortal], num_workers=3, context=context, batch_size=1)
    envs.async_reset()
    received(envs)
    envs.send(fates(3, env0=KILL), np.arange(3))
    turns = {1: 0, 2: 0}
    until = time.monotonic() + 60  # a busy machine may leave one of them without a CPU for hundreds of turns
    while sum(turns.values()) < 100 or min(turns.values()) == 0:
        assert time.monotonic() < until, turns
        observations, _, _, _, infos = envs.recv(timeout=60)
        (env,) = infos["env_id"].tolist()
        turns[env] += 1  # a KeyError for environment 0
        assert observations[0, 0] == turns[env]
        envs.send(fates(1), infos["env_id"])
    (tmp_path / "go").touch()
    assert received(envs) == {0: lost(0), **{env: goes_on(done + 1) for env, done in turns.items()}}
    envs.close()


@pytest.mark.parametrize("then", ["step", "call", "close"])
def test_what_follows_turns_while_a_restart_goes_on(then, tmp_path):
    wait_for = fail_from(tmp_path / "calls", 2, 2, lambda: wait_until((tmp_path / "go").exists, 60))
    envs = mortals(2, fns=[wait_for, Mortal], num_workers=2, batch_size=1)
    envs.async_reset()
    received(envs)
    envs.processes[0].kill()
    envs.processes[0].join()

    def is_seen() -> bool:
        envs.send(fates(1), np.array([1]))
        envs.recv(timeout=60)
        return envs._crew.restarts == [1, 0]

    wait_until(is_seen, 60)
    timer = threading.Timer(0.2, (tmp_path / "go").touch)
    timer.start()
    if then == "step":
        _, _, _, truncations, infos = envs.step(fates(2))
        assert truncations.tolist() == [True, False]
        assert infos["worker_restarted"].tolist() == [True, False]
    elif then == "call":
        assert len(envs.call("draw")) == 2
    envs.close()
    timer.join()


def test_who_dies_again_and_again_ends_the_run_with_the_whole_history():
    envs = mortals(max_restarts=1)
    envs.async_reset()
    received(envs)
    everybody(envs, env0=KILL)
    everybody(envs)
    envs.send(fates(4, env1=EXIT), np.arange(4))
    with pytest.raises(
        WorkerDiedError, match=r"than max_restarts=1 of one worker in 600.0 s:(\n- .* during a turn){2}"
    ):
        received(envs)
    with pytest.raises(WorkerDiedError):
        envs.send(fates(1), np.array([0]))
    envs.close()


def test_many_deaths_at_random_moments_never_lose_or_double_a_turn():
    envs = mortals(6, num_workers=3, max_restarts=1000, batch_size=2)
    random = np.random.default_rng(0)
    envs.async_reset()
    now = dict.fromkeys(range(6), 0.0)
    ends = dict.fromkeys(range(6), False)
    first = set(range(6))
    deaths = 0
    for _ in range(400):
        observations, _, _, truncations, infos = envs.recv(timeout=60)
        for row, env in enumerate(infos["env_id"].tolist()):
            t = observations[row, 0].item()
            if env in first:
                first.discard(env)
                assert t == 0
            elif truncations[row]:
                assert t == now[env]
            else:
                assert t == (0 if ends[env] else now[env] + 1)
            now[env], ends[env] = t, bool(truncations[row])
        if random.random() < 0.1:
            deaths += 1
            envs.processes[random.integers(3)].kill()
        envs.send(fates(len(infos["env_id"])), infos["env_id"])
    assert deaths > 20
    assert sum(envs._crew.restarts) > 10
    received(envs)
    envs.close()


@pytest.mark.parametrize("policy", ["raise", "restart"])
def test_who_leaves_and_is_slow_to_end_is_dead_all_the_same(policy, tmp_path):
    def leave(env: Clock, action: Any) -> None:
        if action == EXIT:
            sys.exit(3)

    def linger(env: Clock) -> None:
        wait_until((tmp_path / "go").exists, 120)

    envs = mortals(2, env={"act": leave, "act_in_close": linger}, on_worker_death=policy)
    envs.reset()
    if policy == "restart":
        assert everybody(envs, env0=EXIT) == {0: lost(0), 1: goes_on(1)}
    else:
        with pytest.raises(WorkerDiedError, match=r"environment 0\) died \(closed its connection\) during a turn"):
            everybody(envs, env0=EXIT)
    (tmp_path / "go").touch()
    envs.close()


def test_who_was_started_anew_has_all_of_its_time(monkeypatch):
    envs = mortals(2, step_timeout=600.0)
    envs.reset()
    process = envs.processes[0]
    process.kill()
    process.join(60)
    # Whatever the limit was when the worker died.
    monkeypatch.setattr(envs._turns, "_hung_workers", lambda: [0])
    assert everybody(envs) == {0: lost(0), 1: goes_on(1)}
    assert envs._crew.restarts == [1, 0]
    envs.close()
