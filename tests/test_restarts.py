"""``on_worker_death="restart"`` and ``step_timeout``: what a caller sees when workers die or hang."""

from __future__ import annotations

import collections
import contextlib
import errno
import gc
import multiprocessing
import os
import signal
import struct
import threading
import time
import types
import warnings
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces as gs

from environments import Clock, assert_same
from gymshm import ShmVectorEnv, restarts
from gymshm.errors import WorkerDiedError
from gymshm.worker_process import WorkerProcess
from mortal import EXIT, HANG, HOLD, KILL, SEGV, STOP, Mortal, count, descriptors, fail_from, fates, meet, mortals, once
from support import check_python, wait_until

CONTEXTS = ["fork", "spawn", "forkserver"]


def kill(envs: Any, worker: int) -> None:
    """Kills a worker and waits until it is gone."""
    process = envs.processes[worker]
    os.kill(process.pid, signal.SIGKILL)
    process.join(30)


def times(result: Any) -> list[float]:
    """The first number of each observation: the environments' own time."""
    return result[0][:, 0].tolist()


def restarted(*of: bool) -> dict[str, Any]:
    """The infos that say of whom the worker was restarted."""
    return {"worker_restarted": np.array(of), "_worker_restarted": np.array(of)}


# --- step -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("fate", [KILL, SEGV, EXIT])
def test_a_lost_step_ends_the_episode_as_truncated_with_what_was_seen_last(context, fate):
    envs = mortals(context=context)
    envs.reset(seed=1)
    for _ in range(3):
        envs.step(fates(4))
    observations, rewards, terminations, truncations, infos = envs.step(fates(4, env1=fate))
    assert_same(observations, np.array([[3, 3], [3, 3], [4, 4], [4, 4]], np.float32))
    assert_same(rewards, np.array([0.0, 0.0, 4.0, 4.0]))
    assert_same(terminations, np.zeros(4, np.bool_))
    assert_same(truncations, np.array([True, True, False, False]))
    assert_same(infos, restarted(True, True, False, False))
    assert times(envs.step(fates(4))) == [0, 0, 5, 5]
    assert times(envs.step(fates(4))) == [1, 1, 6, 6]
    # The others are the same ones still, and were stepped once for each step; nobody was stepped instead of them.
    assert envs.get_attr("steps") == (1, 1, 6, 6)
    assert envs.get_attr("resets") == (2, 2, 1, 1)
    envs.close()


def test_same_step_mode_resets_within_the_lost_step():
    envs = mortals(autoreset_mode="SameStep")
    envs.reset()
    envs.step(fates(4))
    result = envs.step(fates(4, env3=KILL))
    assert times(result) == [2, 2, 0, 0]
    assert result[3].tolist() == [False, False, True, True]
    assert [None if row is None else row.tolist() for row in result[4]["final_obs"]] == [None, None, [1, 1], [1, 1]]
    assert_same(result[4]["final_info"], restarted(False, False, True, True))
    assert times(envs.step(fates(4))) == [3, 3, 1, 1]
    envs.close()


def test_disabled_mode_leaves_the_reset_to_the_caller():
    envs = mortals(autoreset_mode="Disabled")
    envs.reset()
    envs.step(fates(4))
    result = envs.step(fates(4, env0=KILL))
    assert times(result) == [1, 1, 2, 2]
    assert result[3].tolist() == [True, True, False, False]
    observations, infos = envs.reset(options={"reset_mask": result[3]})
    assert times((observations,)) == [0, 0, 2, 2]
    assert infos == {}
    assert times(envs.step(fates(4))) == [1, 1, 3, 3]
    envs.close()


@pytest.mark.parametrize("num_workers", [1, 4])
def test_any_number_of_workers(num_workers):
    envs = mortals(num_workers=num_workers)
    envs.reset()
    envs.step(fates(4))
    lost = [True] * 4 if num_workers == 1 else [False, False, True, False]
    result = envs.step(fates(4, env2=KILL))
    assert result[3].tolist() == lost
    assert times(result) == [1 if is_lost else 2 for is_lost in lost]
    envs.close()


def test_all_workers_die_in_the_same_step():
    envs = mortals()
    envs.reset()
    result = envs.step(fates(4, env0=KILL, env3=EXIT))
    assert result[3].tolist() == [True] * 4
    assert_same(result[4], restarted(True, True, True, True))
    assert times(envs.step(fates(4))) == [0] * 4
    envs.close()


def test_who_died_between_two_steps_is_missed_in_the_next_one():
    envs = mortals()
    envs.reset()
    envs.step(fates(4))
    kill(envs, 1)
    result = envs.step(fates(4))
    assert times(result) == [2, 2, 1, 1]
    assert result[3].tolist() == [False, False, True, True]
    envs.close()


def test_ends_that_a_dead_worker_told_are_not_told_again():
    # It tells the end of an episode in one slot, and dies before it comes back to that.
    envs = mortals(2, num_workers=1, autoreset_mode="SameStep")
    envs.reset()
    assert envs.step(fates(2, env0=KILL))[3].tolist() == [True, True]
    assert envs.step(fates(2, env1=KILL))[3].tolist() == [True, True]
    for t in (1, 2, 3):
        observations, _, terminations, truncations, _ = envs.step(fates(2))
        assert observations[:, 0].tolist() == [t, t]
        assert not terminations.any()
        assert not truncations.any()
    envs.close()


def test_actions_that_travel_pickled_are_handed_over_again():
    envs = mortals()
    envs.reset()
    result = envs.step([np.int64(KILL), np.int64(0), np.int64(0), np.int64(0)])
    assert result[3].tolist() == [True, True, False, False]
    assert times(envs.step(fates(4).tolist())) == [0, 0, 2, 2]
    envs.close()


def test_without_shared_memory_the_terminal_observation_is_what_was_seen_last_too():
    envs = mortals(shared_memory=False)
    envs.reset()
    for _ in range(3):
        envs.step(fates(4))
    result = envs.step(fates(4, env1=KILL))
    assert times(result) == [3, 3, 4, 4]
    assert result[3].tolist() == [True, True, False, False]
    assert times(envs.step(fates(4))) == [0, 0, 5, 5]
    envs.close()


def test_observations_of_any_space_are_told_exactly():
    space = gs.Dict({"word": gs.Text(8), "pair": gs.Tuple((gs.Discrete(9), gs.Box(0, 9, (2,), np.int16)))})

    def observe(t: int) -> Any:
        return {"word": f"t{t}", "pair": (np.int64(t), np.full(2, t, np.int16))}

    envs = mortals(2, env={"observation_space": space, "observe": observe})
    envs.reset()
    for _ in range(4):
        envs.step(fates(2))
    observations = envs.step(fates(2, env0=KILL))[0]
    assert observations["word"] == ("t4", "t5")
    assert observations["pair"][0].tolist() == [4, 5]
    assert observations["pair"][1].tolist() == [[4, 4], [5, 5]]
    envs.close()


def test_numeric_infos_go_on_after_a_restart():
    envs = mortals(env={"info": lambda t: {"t": t, "half": t / 2}})
    envs.reset()
    for _ in range(5):
        envs.step(fates(4))
    infos = envs.step(fates(4, env0=KILL))[4]
    assert infos["worker_restarted"].tolist() == [True, True, False, False]
    assert infos["t"].tolist() == [0, 0, 6, 6]
    assert infos["_t"].tolist() == [False, False, True, True]
    for step in range(12):
        infos = envs.step(fates(4))[4]
        assert infos["t"].tolist() == [step, step, step + 7, step + 7]
        assert infos["half"].tolist() == [step / 2, step / 2, (step + 7) / 2, (step + 7) / 2]
        assert "worker_restarted" not in infos
    envs.close()


# --- history ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [2, 3])
def test_rollouts_tell_the_loss_in_their_own_arrays(slots):
    envs = mortals(slots=slots, copy=False)
    envs.reset()
    seen = 0
    for _ in range(3):
        rollout = envs.rollout()
        assert rollout.observations[0][:, 0].tolist() == [seen] * 4
        for _ in range(slots - 1):
            envs.step(fates(4))
            seen += 1
    rollout = envs.rollout()
    envs.step(fates(4, env3=KILL))
    assert rollout.truncations[0].tolist() == [False, False, True, True]
    after = rollout.last_observations if slots == 2 else rollout.observations[1]
    assert after[:, 0].tolist() == [seen + 1, seen + 1, seen, seen]
    envs.close()


def test_slots_keep_what_was_given_before():
    envs = mortals(slots=3, copy=False)
    given = [envs.reset()[0]]
    for fate in ({}, {"env0": KILL}):
        given.append(envs.step(fates(4, **fate))[0])
    assert [observations[:, 0].tolist() for observations in given] == [[0, 0, 0, 0], [1, 1, 1, 1], [1, 1, 2, 2]]
    envs.close()


def fail_or_die(env: Clock, action: Any) -> None:
    if action == HOLD:
        raise ValueError("on purpose")
    if action == KILL:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("shared_memory", [True, False])
def test_who_failed_and_then_dies_showed_last_what_it_showed_before_it_failed(shared_memory):
    envs = mortals(env={"act": fail_or_die}, num_workers=1, shared_memory=shared_memory)
    envs.reset()
    for _ in range(3):
        envs.step(fates(4))
    with pytest.raises(ValueError, match="on purpose"):
        envs.step(fates(4, env3=HOLD))
    result = envs.step(fates(4, env3=KILL))
    assert result[3].tolist() == [True] * 4
    assert times(result)[3] == 3
    envs.close()


def test_who_failed_shows_in_each_slot_what_it_showed_before():
    envs = mortals(env={"act": fail_or_die}, slots=3, on_worker_death="raise")
    envs.reset()
    for _ in range(4):
        envs.step(fates(4))
    with pytest.raises(ValueError, match="on purpose"):
        envs.step(fates(4, env1=HOLD))
    assert envs.observations[:, 0].tolist() == [5, 4, 5, 5]
    envs.close()


# --- reset, call, set_attr --------------------------------------------------------------------------------------------


def die_in_first_reset(path: Any) -> Any:
    return lambda env, seed, options: once(path, lambda: os.kill(os.getpid(), signal.SIGKILL))


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_reset_is_made_again_with_its_own_seeds(tmp_path, context):
    envs = mortals(env={"act_in_reset": die_in_first_reset(tmp_path / "died")}, context=context)
    observations, infos = envs.reset(seed=[10, 11, 12, 13])
    assert times((observations,)) == [0] * 4
    assert sorted(infos["worker_restarted"].tolist()) == [False, False, True, True]
    assert envs.np_random_seed == (10, 11, 12, 13)
    result = envs.step(fates(4))
    assert times(result) == [1] * 4
    assert not result[3].any()  # it was told already
    envs.close()


def test_a_call_is_made_again(tmp_path):
    envs = mortals(num_workers=4)
    envs.reset()
    envs.step(fates(4))
    assert sorted(envs.call("die_once", str(tmp_path / "mark"))) == [0, 1, 1, 1]
    result = envs.step(fates(4))
    assert sorted(result[3].tolist()) == [False, False, False, True]
    assert sorted(times(result)) == [1, 2, 2, 2]  # the one that was lost shows what was seen last
    envs.close()


def test_an_attribute_is_set_again():
    envs = mortals()
    envs.reset()
    kill(envs, 0)
    envs.set_attr("secret", ["a", "b", "c", "d"])
    assert envs.get_attr("secret") == ("a", "b", "c", "d")
    result = envs.step(fates(4))
    assert result[3].tolist() == [True, True, False, False]
    assert times(result) == [0, 0, 1, 1]
    envs.close()


# --- seeds ------------------------------------------------------------------------------------------------------------


def trajectory(**options: Any) -> list[Any]:
    envs = mortals(env={"episode": 4}, **options)
    envs.reset(seed=7)
    told = []
    for step in range(12):
        result = envs.step(fates(4, **({"env1": KILL} if step in (2, 6) else {"env3": EXIT} if step == 5 else {})))
        told.append([part.tolist() for part in result[:4]] + [envs.call("draw"), envs.np_random_seed])
    envs.close()
    return told


def test_two_runs_with_the_same_deaths_are_the_same():
    first = trajectory()
    assert first == trajectory()
    seeds = [line[-1] for line in first]
    assert seeds[1] == (7, 8, 9, 10)
    assert seeds[2][2:] == (9, 10)
    # Each restart has seeds of its own: what was drawn before is not drawn once more.
    assert len({*seeds[1], *seeds[2], *seeds[5], *seeds[6]}) == 4 + 2 + 2 + 2


class Unpicklable:
    def __reduce__(self):
        raise RuntimeError("not this one")


@pytest.mark.parametrize("reset", ["reset", "async_reset"])
def test_the_seeds_of_a_reset_that_could_not_be_asked_are_not_used(reset):
    envs = mortals(2, num_workers=1)
    envs.reset(seed=7)
    with pytest.raises(RuntimeError, match="not this one"):
        getattr(envs, reset)(seed=100, options={"bad": Unpicklable()})
    assert envs._crew.seeds == [7, 8]
    assert envs.step(fates(2, env0=KILL))[3].tolist() == [True, True]
    assert times(envs.step(fates(2))) == [0, 0]
    envs.close()


def test_environments_that_were_reset_without_a_seed_are_reset_without_one():
    seeds = []
    for _ in range(2):
        envs = mortals()
        envs.reset()
        envs.step(fates(4, env0=KILL))
        seeds.append(envs.np_random_seed)
        envs.close()
    assert seeds[0] != seeds[1]


# --- too many deaths --------------------------------------------------------------------------------------------------


def test_who_dies_again_and_again_ends_the_run_with_the_whole_history():
    envs = mortals(max_restarts=2)
    envs.reset()
    envs.step(fates(4, env0=KILL))
    envs.step(fates(4))
    envs.step(fates(4, env3=EXIT))
    envs.step(fates(4, env1=KILL))
    envs.step(fates(4))
    with pytest.raises(WorkerDiedError) as caught:
        envs.step(fates(4, env1=SEGV))
    lines = str(caught.value).splitlines()
    first = "worker 0 of 2 (environments 0-1) died (SIGSEGV, exit code -11) during step"
    killed = first.replace("SIGSEGV, exit code -11", "SIGKILL, exit code -9: often the kernel's out-of-memory killer")
    assert lines[0] == f"{first}. That is more than max_restarts=2 of one worker in 600.0 s:"
    assert [line.partition(" s ago: ")[2] for line in lines[1:]] == [
        killed,
        "worker 1 of 2 (environments 2-3) died (exit code 3, as from sys.exit or os._exit) during step",
        killed,
        first,
    ]
    assert (caught.value.worker, caught.value.envs) == (0, range(2))
    assert (caught.value.exitcode, caught.value.during) == (-signal.SIGSEGV, "step")
    with pytest.raises(WorkerDiedError):
        envs.step(fates(4))
    envs.close()


# --- rebuilding -------------------------------------------------------------------------------------------------------


def raise_busy() -> None:
    raise OSError("port is busy")


@pytest.mark.parametrize("how", [raise_busy, lambda: os._exit(7), lambda: os.kill(os.getpid(), signal.SIGKILL)])
def test_a_failure_to_rebuild_is_tried_again(tmp_path, how):
    envs = mortals(2, fns=[Mortal, fail_from(tmp_path / "calls", 2, 3, how)])
    envs.reset()
    assert envs.step(fates(2, env1=KILL))[3].tolist() == [False, True]
    assert times(envs.step(fates(2))) == [2, 0]
    envs.close()


def test_who_can_never_be_rebuilt_ends_the_run_and_says_why(tmp_path):
    envs = mortals(2, fns=[Mortal, fail_from(tmp_path / "calls", 2, 99, raise_busy)], max_restarts=3)
    envs.reset()
    with pytest.raises(WorkerDiedError) as caught:
        envs.step(fates(2, env1=KILL))
    lines = str(caught.value).splitlines()
    assert len(lines) == 5
    why = "worker 1 of 2 (environment 1) failed during its restart: OSError('port is busy')"
    assert [why in line for line in lines] == [True, False, True, True, True]
    assert isinstance(caught.value.__cause__, OSError)
    assert "in raise_busy" in str(caught.value.__cause__.__cause__)  # where in the worker
    with pytest.raises(WorkerDiedError):
        envs.reset()
    envs.close()


def test_an_environment_that_is_rebuilt_with_another_space_is_no_replacement(tmp_path):
    def build() -> Mortal:
        size = 3 if count(tmp_path / "calls") == 2 else 2
        return Mortal(observation_space=gs.Box(0, 9, (size,)))

    envs = mortals(2, fns=[lambda: Mortal(observation_space=gs.Box(0, 9, (2,))), build], max_restarts=1)
    envs.reset()
    with pytest.raises(WorkerDiedError) as caught:
        envs.step(fates(2, env1=KILL))
    last = str(caught.value).splitlines()[-1]
    assert (
        "failed during its restart: its environments have other spaces than before. Expected Box(0.0, 9.0, (2," in last
    )
    assert last.endswith(" - in environment 1.")
    envs.close()


def test_what_raises_in_the_reset_of_a_restart_is_told_with_its_environment(tmp_path):
    def fail(env: Clock, seed: Any, options: Any) -> None:
        if (tmp_path / "fails").exists():
            raise OSError("port is busy")

    fns = [Mortal, Mortal, lambda: Mortal(act_in_reset=fail)]
    envs = mortals(3, fns=fns, num_workers=1, max_restarts=1)
    envs.reset()
    (tmp_path / "fails").touch()
    with pytest.raises(WorkerDiedError, match="failed during its restart: OSError") as caught:
        envs.step(fates(3, env0=KILL))
    assert "Environment 2:\n" in str(caught.value.__cause__.__cause__)
    envs.close()


def test_a_reset_that_fails_after_a_rebuild_is_tried_again(tmp_path):
    def act_in_reset(env: Clock, seed: Any, options: Any) -> None:
        if count(tmp_path / "resets") == 2:
            raise OSError("not yet")

    envs = mortals(1, env={"act_in_reset": act_in_reset}, num_workers=1)
    envs.reset()
    assert envs.step(fates(1, env0=KILL))[3].tolist() == [True]
    assert times(envs.step(fates(1))) == [0]
    envs.close()


def test_rebuilding_is_bounded_by_the_time_that_a_start_may_take(tmp_path):
    hang = fail_from(tmp_path / "calls", 2, 99, lambda: time.sleep(600))
    envs = mortals(2, fns=[Mortal, hang], max_restarts=1, start_timeout=3.0, step_timeout=60.0)
    envs.reset()
    with pytest.raises(WorkerDiedError, match=r"did not finish within start_timeout=3.0 s during its restart"):
        envs.step(fates(2, env1=KILL))
    envs.close()


@pytest.mark.parametrize("how", ["step", "recv"])
def test_a_reset_that_hangs_in_a_restart_is_bounded_by_the_step_timeout(how, tmp_path, monkeypatch):
    monkeypatch.setattr(restarts, "_SETTING_UP_SECONDS", 0.2)

    def act_in_reset(env: Clock, seed: Any, options: Any) -> None:
        if count(tmp_path / "resets") == 2:
            time.sleep(600)

    envs = mortals(1, env={"act_in_reset": act_in_reset}, num_workers=1, step_timeout=0.5)
    if how == "step":
        envs.reset()
        assert envs.step(fates(1, env0=KILL))[3].tolist() == [True]
    else:
        envs.async_reset()
        envs.recv()
        envs.send(fates(1, env0=KILL), [0])
        assert envs.recv(timeout=60)[3].tolist() == [True]
    assert envs._crew.restarts == [2]
    envs.close()


@pytest.mark.parametrize("how", ["step", "recv"])
def test_a_rebuild_that_hangs_is_bounded_where_a_step_timeout_says_that_nothing_may_hang(how, tmp_path, monkeypatch):
    monkeypatch.setattr(restarts, "_LEAST_REBUILD_SECONDS", 1.0)
    monkeypatch.setattr(restarts, "_TIMES_FIRST_START", 0)
    hang = fail_from(tmp_path / "calls", 2, 99, lambda: time.sleep(600))
    envs = mortals(1, fns=[hang], num_workers=1, max_restarts=1, step_timeout=60.0)
    if how == "step":
        envs.reset()
        envs.step_async(fates(1, env0=KILL))
        wait = envs.step_wait
    else:
        envs.async_reset()
        envs.recv()
        envs.send(fates(1, env0=KILL), [0])
        wait = envs.recv
    with pytest.raises(WorkerDiedError, match=r"did not finish within 1 s, ten times the first start at least during"):
        wait()
    envs.close()


def test_who_dies_together_is_rebuilt_together(tmp_path):
    def build(own: str, other: str) -> Mortal:
        with open(tmp_path / own, "ab") as file:
            file.write(b"x")
            rebuilt = file.tell() > 1
        if rebuilt:
            wait_until(lambda: (tmp_path / other).stat().st_size > 1, 60)
        return Mortal()

    envs = mortals(2, fns=[partial(build, "one", "two"), partial(build, "two", "one")])
    envs.reset()
    assert envs.step(fates(2, env0=KILL, env1=SEGV))[3].tolist() == [True, True]
    envs.close()


def test_what_a_restarted_environment_raises_does_not_tell_of_the_death_before():
    def fail(env: Clock, action: Any) -> None:
        if action == STOP:
            raise KeyError("mine")
        meet(env, action)

    envs = mortals(1, env={"act": fail}, num_workers=1)
    envs.reset()
    envs.step(fates(1, env0=KILL))
    envs.step(fates(1))
    with pytest.raises(KeyError, match="mine") as caught:
        envs.step(fates(1, env0=STOP))
    assert "in fail" in str(caught.value.__cause__)
    assert "WorkerDiedError" not in str(caught.value.__cause__)
    envs.close()


def test_auto_never_gives_up_the_processes_that_a_restart_is_about():
    for wanted in ({"on_worker_death": "restart"}, {"step_timeout": 60.0}):
        envs = ShmVectorEnv([Mortal] * 2, num_workers="auto", **wanted)
        assert len(envs.processes) >= 1
        envs.close()


def test_a_wait_that_runs_out_of_time_during_a_restart_can_be_called_again(tmp_path):
    wait_for = fail_from(tmp_path / "calls", 2, 2, lambda: wait_until((tmp_path / "go").exists, 60))
    envs = mortals(2, fns=[Mortal, wait_for])
    envs.reset()
    envs.step(fates(2))
    envs.step_async(fates(2, env1=KILL))
    for _ in range(5):
        with pytest.raises(multiprocessing.TimeoutError, match=r"step_wait.*timed out after 0.2 second"):
            envs.step_wait(timeout=0.2)
    (tmp_path / "go").touch()
    result = envs.step_wait()
    assert times(result) == [2, 1]
    assert result[3].tolist() == [False, True]
    assert times(envs.step(fates(2))) == [3, 0]
    envs.close()


def test_close_ends_a_restart_that_is_under_way(tmp_path):
    wait_for = fail_from(tmp_path / "calls", 2, 2, lambda: time.sleep(600))
    envs = mortals(2, fns=[Mortal, wait_for])
    envs.reset()
    envs.step_async(fates(2, env1=KILL))
    with pytest.raises(multiprocessing.TimeoutError):
        envs.step_wait(timeout=0.5)
    processes = envs.processes
    with pytest.warns(UserWarning, match="pending call"):
        envs.close(timeout=1.0)
    assert not any(process.is_alive() for process in processes)


def test_close_takes_what_a_restarted_worker_says_of_its_spaces_for_no_farewell(tmp_path):
    # It has built its environments, and is about to say that they match.
    envs = mortals(2, env={"act_in_reset": lambda env, seed, options: wait_if_restarted(tmp_path)})
    envs.reset()
    envs.step_async(fates(2, env1=KILL))
    (tmp_path / "hold").touch()
    with pytest.raises(multiprocessing.TimeoutError):
        envs.step_wait(timeout=2.0)
    (tmp_path / "hold").unlink()
    with pytest.warns(UserWarning, match="pending call"):
        envs.close()


def wait_if_restarted(path: Any) -> None:
    wait_until(lambda: not (path / "hold").exists(), 60)


def test_a_death_is_found_by_who_only_looks():
    envs = mortals()
    envs.reset()
    kill(envs, 0)
    envs.step_async(fates(4))

    def result() -> Any:
        try:
            return envs.step_wait(timeout=0)
        except multiprocessing.TimeoutError:
            return None

    assert wait_until(result, 60)[3].tolist() == [True, True, False, False]
    envs.close()


# --- step_timeout -----------------------------------------------------------------------------------------------------


def test_a_hang_in_python_is_an_error_that_tells_where():
    envs = mortals(on_worker_death="raise", step_timeout=1.0)
    envs.reset()
    with pytest.raises(WorkerDiedError) as caught:
        envs.step(fates(4, env2=HANG))
    text = str(caught.value)
    assert text.startswith(
        "worker 1 of 2 (environments 2-3) did not finish within step_timeout=1.0 s during step, and was killed. "
        "It hung in:\n"
    )
    assert 'mortal.py", line' in text
    assert " in meet" in text
    assert " in main" in text  # the whole of it, down to the worker's own loop
    assert caught.value.exitcode == -signal.SIGKILL
    envs.close()


def test_a_hang_in_c_that_holds_the_interpreter_is_an_error_that_tells_where():
    envs = mortals(on_worker_death="raise", step_timeout=1.0)
    envs.reset()
    with pytest.raises(WorkerDiedError, match=r"within step_timeout=1.0 s during step.*It hung in:(\n.*)* in meet"):
        envs.step(fates(4, env2=HOLD))
    envs.close()


def test_a_stopped_worker_is_an_error_that_says_so():
    envs = mortals(on_worker_death="raise", step_timeout=1.0)
    envs.reset()
    with pytest.raises(WorkerDiedError, match=r"step_timeout=1.0 s during step.*could not say where \(stopped, or in"):
        envs.step(fates(4, env2=STOP))
    envs.close()


@pytest.mark.parametrize(
    ("context", "fate"), [("fork", HANG), ("fork", HOLD), ("fork", STOP), ("spawn", HANG), ("forkserver", STOP)]
)
def test_who_hangs_is_restarted_like_who_died(context, fate):
    envs = mortals(context=context, step_timeout=2.0)
    envs.reset()
    envs.step(fates(4))
    result = envs.step(fates(4, env0=fate))
    assert times(result) == [1, 1, 2, 2]
    assert result[3].tolist() == [True, True, False, False]
    assert times(envs.step(fates(4))) == [0, 0, 3, 3]
    envs.close()


@pytest.mark.parametrize("wait", ["step", "recv"])
def test_several_that_hang_are_all_killed_where_the_first_is_an_error(wait):
    envs = mortals(8, num_workers=4, on_worker_death="raise", step_timeout=1.0)
    if wait == "step":
        envs.reset()
        envs.step_async(fates(8, env0=HANG, env2=HANG, env7=HANG))
    else:
        envs.async_reset()
        envs.recv()
        envs.send(fates(8, env0=HANG, env2=HANG, env7=HANG), range(8))
    processes = envs.processes
    results = iter(envs.step_wait if wait == "step" else envs.recv, None)
    with pytest.raises(WorkerDiedError, match="did not finish within step_timeout"):
        collections.deque(results)
    codes = [process.exitcode for process in processes]
    assert codes == [-signal.SIGKILL, -signal.SIGKILL, None, -signal.SIGKILL]
    envs.close()


def test_several_that_hang_in_one_step_are_all_replaced():
    envs = mortals(8, num_workers=8, step_timeout=2.0)
    envs.reset()
    result = envs.step(fates(8, **{f"env{i}": HANG for i in range(8)}))
    assert result[3].tolist() == [True] * 8
    envs.close()


def test_a_reset_has_the_limit_of_a_step(tmp_path):
    def act_in_reset(env: Clock, seed: Any, options: Any) -> None:
        once(tmp_path / "hung", lambda: time.sleep(600))

    envs = mortals(1, env={"act_in_reset": act_in_reset}, num_workers=1, step_timeout=1.0)
    observations, infos = envs.reset()
    assert times((observations,)) == [0]
    assert_same(infos, restarted(True))
    envs.close()


def test_a_call_has_no_limit(tmp_path):
    envs = mortals(1, num_workers=1, step_timeout=0.2)
    envs.reset()
    pid = envs.processes[0].pid
    envs.call_async("die_once", str(tmp_path / "none" / "mark"))  # which fails: the worker goes on
    with pytest.raises(FileNotFoundError):
        envs.call_wait()
    os.kill(pid, signal.SIGSTOP)
    envs.call_async("double", 4)
    with pytest.raises(multiprocessing.TimeoutError):
        envs.call_wait(timeout=1.0)
    os.kill(pid, signal.SIGCONT)
    assert envs.call_wait() == (8,)
    assert envs.processes[0].pid == pid
    envs.close()


def test_who_stops_in_the_middle_of_what_it_tells_counts_as_hung():
    envs = mortals(2, env={"info": lambda t: {"blob": bytes(1 << 24)}}, step_timeout=1.0)
    envs.reset()
    envs.step_async(fates(2))
    connections = [worker.connection for worker in envs._crew._workers]
    wait_until(connections[0].poll)
    os.kill(envs.processes[0].pid, signal.SIGSTOP)
    result = envs.step_wait()
    assert result[3].tolist() == [True, False]
    assert times(envs.step(fates(2))) == [0, 2]
    envs.close()


def test_who_stops_before_it_has_read_what_it_is_told_counts_as_hung():
    big = {"action_space": gs.Box(0, 9, (1 << 20,), np.float32), "act": lambda env, action: None}
    envs = mortals(2, env=big, step_timeout=2.0)
    envs.reset()
    envs.step(np.zeros((2, 1 << 20), np.float64))
    os.kill(envs.processes[1].pid, signal.SIGSTOP)
    result = envs.step(np.zeros((2, 1 << 20), np.float64))  # not the space's dtype: it travels pickled
    assert result[3].tolist() == [False, True]
    assert times(envs.step(np.zeros((2, 1 << 20), np.float64))) == [3, 0]
    envs.close()


@pytest.mark.parametrize("how", ["step", "turns"])
def test_time_in_which_all_were_stopped_counts_for_nobody(how):
    # A batch system suspends a job by stopping all of its processes, for as long as it likes.
    printed = check_python(
        """
        import os, signal, subprocess, sys, time
        import numpy as np
        from mortal import Mortal, mortals, fates

        def slow(env, action):
            deadline = time.monotonic() + 1.0
            while time.monotonic() < deadline:
                time.sleep(0.01)

        envs = mortals(2, env={"act": slow}, step_timeout=3.5, on_worker_death="raise")
        envs.reset()
        code = f"import os, signal, time; os.killpg({os.getpgid(0)}, signal.SIGSTOP); time.sleep(5); " \\
               f"os.killpg({os.getpgid(0)}, signal.SIGCONT)"
        def ask():
            envs.step_async(fates(2)) if sys.argv[1] == "step" else envs.send(fates(2), np.arange(2))

        wait = envs.step_wait if sys.argv[1] == "step" else envs.recv
        ask()
        suspend = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        for _ in range(3):
            observations = wait()[0]
            ask()
        wait()
        suspend.wait()
        print(observations.tolist(), flush=True)
        envs.close()
        """,
        how,
        env={**os.environ, "PYTHONPATH": os.path.dirname(__file__)},
        start_new_session=True,
    )
    assert printed.strip() == "[[3.0, 3.0], [3.0, 3.0]]"


# --- interrupts and shortages -----------------------------------------------------------------------------------------


def asked(envs: Any, how: str) -> Callable[..., Any]:
    """Kills the first of two workers, asks for a step in either way, and gives what waits for it."""
    envs.reset()
    kill(envs, 0)
    if how == "step":
        envs.step_async(fates(2))
        return envs.step_wait
    envs.send(fates(2), np.arange(2))
    return envs.recv


@pytest.mark.parametrize("how", ["step", "turns"])
@pytest.mark.parametrize(
    ("where", "exception"),
    [
        *((where, KeyboardInterrupt) for where in ("discharge", "launch", "hear", "take_up", "serve")),
        *((where, TimeoutError) for where in ("launch", "serve")),  # a deadline's; the system raises that class, too
    ],
)
def test_after_an_interrupt_in_the_middle_of_a_restart_what_follows_is_refused(how, where, exception, monkeypatch):
    real = getattr(WorkerProcess, where)

    def interrupted(worker: WorkerProcess, *arguments: Any, **options: Any) -> None:
        real(worker, *arguments, **options)
        monkeypatch.setattr(WorkerProcess, where, real)
        raise exception

    envs = mortals(2)
    wait = asked(envs, how)
    monkeypatch.setattr(WorkerProcess, where, interrupted)
    with pytest.raises(exception):
        wait(timeout=60)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="was interrupted in the middle"):
            wait(timeout=60)
    processes = envs.processes
    envs.close(timeout=60)
    assert not any(process.is_alive() for process in processes)


@pytest.mark.parametrize("how", ["step", "turns"])
def test_an_interrupt_while_a_restart_is_waited_for_loses_nothing(how, tmp_path):
    def make() -> Mortal:
        if count(tmp_path / "calls") == 2:
            wait_until((tmp_path / "go").exists, 120)
        return Mortal()

    envs = mortals(2, fns=[make, Mortal])
    wait = asked(envs, how)
    main = threading.get_ident()

    def interrupt() -> None:
        wait_until(lambda: (tmp_path / "calls").stat().st_size == 2, 60)  # it is being built
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        wait(timeout=60)
    thread.join()
    (tmp_path / "go").touch()
    result = wait(timeout=60)
    assert (times(result), result[3].tolist()) == ([0, 1], [True, False])
    envs.close()


@pytest.mark.parametrize("how", ["step", "turns"])
def test_a_restart_that_lacks_descriptors_is_tried_again_and_close_raises_nothing(how, monkeypatch):
    def fail(worker: WorkerProcess, others: Any) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    for is_freed in (True, False):
        envs = mortals(2)
        wait = asked(envs, how)
        with monkeypatch.context() as short:
            short.setattr(WorkerProcess, "launch", fail)
            for _ in range(2):
                with pytest.raises(OSError, match="Too many open files"):
                    wait(timeout=60)
        if is_freed:
            assert wait(timeout=60)[3].tolist() == [True, False]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*Calling `close` while waiting")
            envs.close()


def test_what_is_left_of_a_torn_reply_is_not_waited_for():
    # A process that the worker forked may hold the other end open.
    ours, theirs = multiprocessing.Pipe()
    with ours, theirs:
        theirs.send_bytes(b"")
        os.write(theirs.fileno(), struct.pack("!i", 1000) + b"the first bytes")
        assert restarts._leftovers(types.SimpleNamespace(connection=ours, envs=range(2))) == []


# --- leaks ------------------------------------------------------------------------------------------------------------


def test_a_hundred_restarts_leave_nothing():
    envs = mortals(2, max_restarts=200, step_timeout=60.0)
    envs.reset()

    def held() -> tuple[list[str], int, int]:
        gc.collect()
        return sorted(descriptors()), threading.active_count(), len(multiprocessing.active_children())

    envs.step(fates(2, env0=KILL))
    envs.step(fates(2))
    before = held()
    for i in range(100):
        assert envs.step(fates(2, **{f"env{i % 2}": KILL}))[3].tolist() == [i % 2 == 0, i % 2 == 1]
        envs.step(fates(2))
    assert held() == before
    envs.close()


@pytest.mark.parametrize("policy", ["restart", "raise"])
@pytest.mark.parametrize("fate", [KILL, HANG])
def test_who_saw_deaths_and_is_dropped_ends_its_workers(policy, fate):
    envs = mortals(2, step_timeout=1.0, on_worker_death=policy)
    envs.reset()
    with contextlib.suppress(WorkerDiedError):
        envs.step(fates(2, env0=fate))
    processes = envs.processes
    gone = weakref.ref(envs)
    del envs
    gc.collect()
    assert gone() is None
    assert not any(process.is_alive() for process in processes)


def test_a_worker_ends_with_its_parent_also_where_that_has_forked():
    # As a data loader does. The worker is in the middle of a step: it finds out by itself or not at all.
    printed = check_python(
        """
        import os, signal, sys, time
        from mortal import HANG, fates, mortals
        from support import wait_until

        read, write = os.pipe()
        if os.fork() == 0:
            envs = mortals(1, num_workers=1)
            envs.reset()
            envs.step_async(fates(1, env0=HANG))
            if (loader := os.fork()) == 0:
                time.sleep(600)
            os.write(write, f"{envs.processes[0].pid} {loader}".encode())
            os.kill(os.getpid(), signal.SIGKILL)
        worker, loader = map(int, os.read(read, 100).split())

        def is_gone():
            try:
                with open(f"/proc/{worker}/stat") as file:
                    return file.read().rpartition(")")[2].split()[0] == "Z"
            except FileNotFoundError:
                return True

        try:
            wait_until(is_gone)
        finally:
            os.kill(loader, signal.SIGKILL)
        os.wait()
        print("gone")
        """,
        env={**os.environ, "PYTHONPATH": os.path.dirname(__file__)},
    )
    assert printed == "gone\n"
