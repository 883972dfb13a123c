from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from gymshm import ShmVectorEnv, probe
from gymshm.probe import Advisor, best_number_of_workers, measure_step
from support import wait_until


class Costly(gym.Env[Any, Any]):
    """A step takes ``seconds`` at least; who steps it is told by its info."""

    observation_space = gym.spaces.Discrete(2)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return 0, {"pid": os.getpid()}

    def step(self, action: Any) -> Any:
        until = time.perf_counter() + self.seconds
        while time.perf_counter() < until:
            pass
        return 0, 0.0, False, False, {}


def fails() -> Any:
    raise RuntimeError("on purpose")


def ends() -> Any:
    os._exit(3)


@pytest.mark.parametrize(
    ("step_seconds", "num_envs", "cpus", "workers"),
    [
        (0.0, 8, 2, 0),  # nothing to share out
        (0.0, 8, 64, 0),
        (200e-6, 8, 2, 2),
        (200e-6, 1, 2, 0),  # one environment is stepped fastest where the caller is
        (200e-6, 64, 1, 0),  # one CPU: a worker could only take turns with the caller
        (1e-3, 64, 64, 64),
        (1e-3, 5, 64, 5),  # never more workers than environments
        (1.0, 17, 6, 6),
    ],
)
def test_cheap_environments_stay_here_and_dear_ones_take_all_cpus(step_seconds, num_envs, cpus, workers):
    assert best_number_of_workers(step_seconds, num_envs, cpus, num_envs) == workers


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_a_step_is_measured_in_a_process_that_is_gone_afterwards(context):
    told = measure_step(multiprocessing.get_context(context), partial(Costly, 0.003))
    assert told is not None
    assert told >= 0.003
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("env_fn", [fails, ends])
def test_what_can_not_be_measured_is_none(env_fn):
    assert measure_step(multiprocessing.get_context("fork"), env_fn) is None
    assert multiprocessing.active_children() == []


class Fragile(Costly):
    """Says when it is closed, by a file; fails in ``fails_in``."""

    def __init__(self, path: Path, fails_in: str) -> None:
        super().__init__()
        self.path, self.fails_in = path, fails_in

    def reset(self, **options: Any) -> Any:
        if self.fails_in == "reset":
            raise RuntimeError("on purpose")
        return super().reset(**options)

    def step(self, action: Any) -> Any:
        if self.fails_in == "step":
            raise RuntimeError("on purpose")
        return super().step(action)

    def close(self) -> None:
        self.path.touch()


@pytest.mark.parametrize("fails_in", ["reset", "step", "nothing"])
def test_the_environment_is_closed_in_any_case(fails_in, tmp_path):
    told = measure_step(multiprocessing.get_context("fork"), partial(Fragile, tmp_path / "closed", fails_in))
    assert (told is None) == (fails_in != "nothing")
    assert (tmp_path / "closed").exists()


class Busy(Costly):
    """Runs a process of its own."""

    def __init__(self) -> None:
        super().__init__(0.001)
        self.process = multiprocessing.Process(target=threading.Event().wait)
        self.process.start()

    def close(self) -> None:
        self.process.kill()
        self.process.join()


def test_an_environment_with_processes_of_its_own_is_measured_where_workers_are_not_daemonic():
    context = multiprocessing.get_context("fork")
    assert measure_step(context, Busy) is None  # as in a worker, it can't be built
    told = measure_step(context, Busy, daemon=False)
    assert told is not None
    assert told >= 0.001


@pytest.mark.parametrize("daemon", [True, False])
def test_the_process_is_of_the_kind_that_the_workers_will_be(daemon, tmp_path):
    def make() -> Any:
        (tmp_path / f"{multiprocessing.current_process().name}-{multiprocessing.current_process().daemon}").touch()
        return Costly()

    ShmVectorEnv([make], num_workers="auto", context="fork", daemon=daemon).close()
    assert (tmp_path / f"gymshm-probe-{daemon}").exists()


HANGS = """
import os, sys, time
from gymshm import ShmVectorEnv

def make():
    print(os.getpid(), flush=True)
    time.sleep(3600)

if __name__ == "__main__":
    ShmVectorEnv([make], num_workers="auto", context=sys.argv[1])
"""


@pytest.fixture(params=["fork", "spawn", "forkserver"])
def parent_that_measures(request, tmp_path):
    """An interpreter that measures an environment which hangs, and the process in which that is."""
    (tmp_path / "script.py").write_text(HANGS)
    command = [sys.executable, str(tmp_path / "script.py"), request.param]
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes) as parent:
        try:
            yield parent, int(parent.stdout.readline())
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(parent.pid, signal.SIGKILL)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_it_ends_with_a_parent_that_is_killed(parent_that_measures):
    parent, pid = parent_that_measures
    assert not is_gone(pid)
    parent.kill()
    wait_until(lambda: is_gone(pid))
    assert parent.communicate(timeout=60)[1] == ""


def test_ctrl_c_while_it_measures_gives_one_traceback(parent_that_measures):
    parent, pid = parent_that_measures
    os.killpg(parent.pid, signal.SIGINT)
    _, stderr = parent.communicate(timeout=60)
    assert stderr.count("Traceback (most recent call last)") == 1
    assert stderr.rstrip().endswith("KeyboardInterrupt")
    assert is_gone(pid)


@pytest.mark.parametrize(("seconds", "workers"), [(0.0, 0), (0.02, 2)])
def test_auto_chooses_by_what_the_step_takes(seconds, workers, monkeypatch):
    monkeypatch.setattr(probe, "usable_cpus", lambda: 2)
    envs = ShmVectorEnv([partial(Costly, seconds)] * 4, num_workers="auto")
    assert envs.num_workers == workers
    assert len(envs.processes) == workers
    _, infos = envs.reset()
    assert len(set(infos["pid"].tolist())) == max(1, workers)
    assert (os.getpid() in infos["pid"]) == (workers == 0)
    np.testing.assert_array_equal(envs.step(np.zeros(4, np.int64))[1], np.zeros(4))
    envs.close()


def test_where_nothing_can_be_measured_the_environments_tell_their_error():
    with pytest.raises(RuntimeError, match="on purpose"):
        ShmVectorEnv([fails], num_workers="auto")


def told(advisor: Advisor, seconds: float) -> list[str]:
    """What is said of 10,000 steps of all environments that take so long each."""
    taken = [advisor.take(seconds) for _ in range(10_000) if advisor.is_due()]
    return [advice for advice in taken if advice is not None]


def test_who_chose_none_for_environments_that_became_dear_is_told_once():
    advisor = Advisor(0, num_envs=8, cpus=2, most=8)
    assert told(advisor, 8 * 0.5e-6) == []
    (advice,) = told(advisor, 8 * 200e-6)
    assert 'num_workers="auto" chose 0' in advice
    assert "num_workers=2 would be about" in advice
    assert told(advisor, 8 * 200e-6) == []


def test_who_chose_well_is_told_nothing():
    assert told(Advisor(2, num_envs=8, cpus=2, most=8), 4 * 200e-6) == []
    assert told(Advisor(0, num_envs=8, cpus=2, most=8), 5e-6) == []
    assert told(Advisor(0, num_envs=1, cpus=64, most=1), 0.1) == []


def test_more_workers_than_may_be_are_not_advised():
    assert told(Advisor(1, num_envs=8, cpus=2, most=1), 8 * 200e-6) == []
    (advice,) = told(Advisor(0, num_envs=8, cpus=8, most=3), 8 * 20e-3)
    assert "num_workers=3 would be about" in advice


def test_auto_chooses_no_more_workers_than_may_execute_at_a_time(monkeypatch):
    monkeypatch.setattr(probe, "usable_cpus", lambda: 4)
    with contextlib.closing(ShmVectorEnv([partial(Costly, 0.02)] * 4, num_workers="auto", max_concurrency=3)) as envs:
        # Two take as long as three, for four environments.
        assert (envs.num_workers, envs._advisor._chosen, envs._advisor._most) == (2, 2, 3)


def test_a_few_steps_that_take_long_are_no_reason():
    advisor = Advisor(0, num_envs=8, cpus=2, most=8)
    seconds = [5e-6, 5e-6, 1.0] * 40
    assert [advisor.take(each) for each in seconds] == [None] * 120


def step_often(envs: ShmVectorEnv) -> None:
    for _ in range(2000):
        envs.step(np.zeros(4, np.int64))


def test_the_vector_environment_passes_the_advice_on_as_a_warning(monkeypatch):
    monkeypatch.setattr(probe, "usable_cpus", lambda: 2)
    envs = ShmVectorEnv([Costly] * 4, num_workers="auto")
    envs.reset()
    envs.set_attr("seconds", 0.0001)
    with pytest.warns(UserWarning, match=r"num_workers=2 would be about [12]\.[0-9] times faster"):
        step_often(envs)
    envs.close()


def test_a_number_that_the_caller_chose_is_not_questioned():
    envs = ShmVectorEnv([partial(Costly, 0.0001)] * 4, num_workers=0)
    envs.reset()
    step_often(envs)  # a warning would be an error
    envs.close()
