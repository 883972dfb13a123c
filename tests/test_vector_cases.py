"""What users of vector environments have reported elsewhere: one test for each report, with the right value."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

import numpy as np
import pytest
from gymnasium import spaces as gs
from gymnasium.vector import SyncVectorEnv

from environments import Clock, clocks, made, zeros
from gymshm import ShmVectorEnv, WorkerDiedError
from support import running_python, wait_until

PAIR = gs.Box(-1e6, 1e6, (2,), np.float32)


def test_text_and_one_of_observations_change_with_each_step():
    choice = gs.OneOf([gs.Discrete(9), gs.Box(0, 9, (1,), np.float32)])
    space = gs.Dict(text=gs.Text(5), choice=choice)
    with made(observation_space=space, observe=lambda t: {"text": "abcde"[: t + 1], "choice": (0, t)}) as envs:
        envs.reset()
        observations = envs.step(zeros(2))[0]
    assert observations["text"] == ("ab", "ab")
    assert [int(value) for _, value in observations["choice"]] == [1, 1]


@pytest.mark.parametrize(
    ("space", "observation"),
    [
        (PAIR, np.float32(1)),
        (PAIR, np.ones((1, 2), np.float32)),
        (gs.Box(0, 255, (2,), np.uint8), np.array([300.7, -1.2])),
        (gs.Box(0, 255, (2,), np.uint8), np.array([300, -1])),
        (PAIR, None),
        (PAIR, np.ones(2)),
        (PAIR, np.ones(2, int)),
    ],
    ids=["scalar", "extra dimension", "float for uint8", "out of range", "None", "float64", "int64 for float32"],
)
def test_a_bad_observation_gives_what_it_gives_in_sync_vector_env(space, observation):
    def outcome(make):
        try:
            with contextlib.closing(make()) as envs:
                return envs.reset()[0].tolist()
        except Exception as error:
            return type(error)

    fns = clocks(2, observation_space=space, observe=lambda t: observation)
    assert outcome(lambda: ShmVectorEnv(fns, num_workers=2)) == outcome(lambda: SyncVectorEnv(fns))


class Lazy:
    """Only offers ``__array__``, as stacks of frames do."""

    def __init__(self, t):
        self.t = t

    def __array__(self, dtype=None, copy=None):
        return np.full(2, self.t, dtype or np.float32)


def test_an_observation_may_be_anything_that_offers_an_array():
    with made(observe=Lazy) as envs:
        envs.reset()
        envs.step(zeros(2))
        assert envs.step(zeros(2))[0].tolist() == [[2, 2], [2, 2]]


def test_copies_share_nothing_at_any_depth():
    space = gs.Dict(d=gs.Dict(x=gs.Box(0, 99, (2,), np.int32)), t=gs.Tuple((gs.Discrete(99),)))
    with made(observation_space=space, observe=lambda t: {"d": {"x": np.full(2, t, np.int32)}, "t": (t,)}) as envs:
        first, _ = envs.reset()
        second = envs.step(zeros(2))[0]
        envs.step(zeros(2))
    for t, observations in enumerate((first, second)):
        assert observations["d"]["x"].tolist() == [[t, t]] * 2
        assert observations["t"][0].tolist() == [t, t]


class Reuse(Clock):
    """Gives the same array each time."""

    def __init__(self):
        self.buffer = np.zeros(2, np.float32)
        super().__init__(episode=2, observe=self.fill)

    def fill(self, t):
        self.buffer[:] = t
        return self.buffer


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_terminal_observation_is_saved_before_the_reset_overwrites_it(num_workers):
    with contextlib.closing(ShmVectorEnv([Reuse] * 2, num_workers=num_workers, autoreset_mode="SameStep")) as envs:
        envs.reset()
        envs.step(zeros(2))
        observations, _, terminations, _, infos = envs.step(zeros(2))
    assert terminations.all()
    assert [final.tolist() for final in infos["final_obs"]] == [[2, 2], [2, 2]]
    assert observations.tolist() == [[0, 0], [0, 0]]


def test_a_wrong_number_of_actions_steps_nobody():
    with made(4) as envs:
        envs.reset()
        with pytest.raises(ValueError, match="4 actions"):
            envs.step(zeros(2))
        assert envs.step(zeros(4))[0][:, 0].tolist() == [1, 1, 1, 1]


class SimError(Exception):
    """Its constructor takes two arguments."""

    def __init__(self, code, where):
        super().__init__(f"{code}@{where}")
        self.code, self.where = code, where

    def __reduce__(self):
        return SimError, (self.code, self.where)


def test_an_exception_with_an_odd_constructor_comes_through():
    def fail(env, action):
        raise SimError(7, "joint")

    with made(act=fail) as envs:
        envs.reset()
        with pytest.raises(SimError, match="7@joint") as caught:
            envs.step(zeros(2))
        assert (caught.value.code, caught.value.where) == (7, "joint")


def test_a_worker_that_is_killed_between_steps_is_told_of_and_close_works():
    with made(3) as envs:
        envs.reset()
        processes = envs.processes
        os.kill(processes[1].pid, signal.SIGKILL)
        processes[1].join()
        with pytest.raises(WorkerDiedError, match=r"worker 1 of 3 \(environment 1\) died \(SIGKILL, exit code -9:"):
            envs.step(zeros(3))
    assert not any(process.is_alive() for process in processes)


def test_an_environment_that_calls_sys_exit_is_told_of_with_its_code():
    with made(act=lambda env, action: sys.exit(3)) as envs:
        envs.reset()
        with pytest.raises(WorkerDiedError, match="exit code 3"):
            envs.step(zeros(2))


def test_what_a_constructor_raises_in_a_worker_is_what_the_caller_sees():
    def make():
        raise RuntimeError("no licence for a second simulator")

    with pytest.raises(RuntimeError, match="no licence for a second simulator"):
        ShmVectorEnv([make] * 2, context="fork", num_workers=2)


def test_close_keeps_its_timeout():
    envs = ShmVectorEnv(
        [Clock, lambda: Clock(act_in_close=lambda env: time.sleep(3600))], context="fork", num_workers=2
    )
    envs.reset()
    processes = envs.processes
    envs.close(timeout=0.2)
    assert not any(process.is_alive() for process in processes)


@pytest.mark.parametrize("options", [{}, {"shared_memory": False}, {"observation_space": gs.Dict({})}])
def test_a_manual_reset_clears_the_pending_one(options):
    observe = {"observe": lambda t: {}} if "observation_space" in options else {}
    with made(1, episode=2, **options, **observe) as envs:
        envs.reset()
        envs.step(zeros(1))
        assert envs.step(zeros(1))[2][0]
        envs.reset()
        assert envs.step(zeros(1))[1].tolist() == [1]


def test_rewards_of_shape_1_are_numbers_in_every_step():
    fns = [lambda n=n: Clock(episode=n, reward=lambda t: np.array([t], float)) for n in (2, 5)]
    with contextlib.closing(ShmVectorEnv(fns, num_workers=2)) as envs:
        envs.reset()
        rewards = [envs.step(zeros(2))[1] for _ in range(4)]
    assert [row.tolist() for row in rewards] == [[1, 1], [2, 2], [0, 3], [1, 4]]


def test_the_options_of_a_reset_stay_the_callers():
    mask = np.array([True, False])
    options = {"reset_mask": mask, "x": 1}
    with made() as envs:
        envs.reset()
        envs.reset(options=options)
    assert options == {"reset_mask": mask, "x": 1}


def test_ctrl_c_is_quiet_and_leaves_nothing():
    code = """
    import time
    from environments import *
    envs = clock_envs(3, act=lambda env, action: time.sleep(0.01))
    envs.reset()
    print(*[process.pid for process in envs.processes], flush=True)
    while True:
        envs.step(zeros(3))
    """
    with running_python(code, cwd=os.path.dirname(__file__), start_new_session=True) as parent:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        os.killpg(parent.pid, signal.SIGINT)
        _, stderr = parent.communicate(timeout=60)
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))
    assert stderr.count("Traceback (most recent call last)") == 1


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_every_start_method_works(context):
    with made(context=context) as envs:
        envs.reset()
        assert envs.step(zeros(2))[0].tolist() == [[1, 1], [1, 1]]


def test_every_environment_is_built_once_and_none_in_the_main_process(tmp_path):
    log = tmp_path / "log"

    def make():
        with log.open("a") as file:
            file.write(f"{os.getpid()}\n")
        return Clock()

    with contextlib.closing(ShmVectorEnv([make] * 3, context="fork", num_workers=2)) as envs:
        pids = [process.pid for process in envs.processes]
    built = [int(line) for line in log.read_text().split()]
    assert sorted(built) == sorted([pids[0], pids[0], pids[1]])
