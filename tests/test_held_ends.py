"""An environment forks a process that lives on, and holds its worker's connection and sentinel: nobody waits for it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from environments import Clock, times, zeros
from gymshm import ShmVectorEnv, WorkerDiedError
from mortal import KILL, Mortal, count, fates
from support import wait_until

#: Seconds that such a process lives, unless the test ends it: who waits for its end finds it gone.
LIFE = 60


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Path]:
    """A file for the pid of the process that holds on; it is ended at last."""
    path = tmp_path / "holder"
    yield path
    if path.exists():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(path.read_text()), signal.SIGKILL)


def fork_a_holder(path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        time.sleep(LIFE)
        os._exit(0)
    path.write_text(str(pid))


def lives(path: Path) -> bool:
    return Path(f"/proc/{path.read_text()}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def ends(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    return True


class Holding(Clock):
    """Forks a process that holds on when it is made."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        fork_a_holder(path)


def test_a_death_in_construction_is_told(holder):
    def build() -> Any:
        fork_a_holder(holder)
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkerDiedError, match=r"worker 1 of 2 \(environment 1\) died \(SIGKILL"):
        ShmVectorEnv([Clock, build], num_workers=2, context="fork")
    assert lives(holder)


@pytest.mark.parametrize("how", ["step", "send"])
def test_a_death_in_a_restart_is_told(how, holder, tmp_path):
    def build() -> Mortal:
        if count(tmp_path / "calls") == 2:
            fork_a_holder(holder)
            os.kill(os.getpid(), signal.SIGKILL)
        return Mortal()

    options = {"num_workers": 2, "context": "fork", "on_worker_death": "restart"}
    with contextlib.closing(ShmVectorEnv([Mortal, build], **options)) as envs:
        envs.reset()
        if how == "step":
            results = envs.step(fates(2, env1=KILL))
        else:
            envs.send(fates(2, env1=KILL), [0, 1])
            results = envs.recv()
        assert lives(holder)
        assert results[3].tolist() == [False, True]


@pytest.mark.parametrize("policy", ["raise", "restart"])
def test_what_is_sent_to_one_that_died_is_not_waited_for(policy, holder):
    with contextlib.closing(
        ShmVectorEnv([lambda: Holding(holder), Clock], num_workers=2, context="fork", on_worker_death=policy)
    ) as envs:
        envs.reset()
        pid = envs.processes[0].pid
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: ends(pid))
        much = np.zeros(3_000_000, np.uint8)  # more than a connection takes
        if policy == "raise":
            with pytest.raises(WorkerDiedError, match=r"died \(SIGKILL"):
                envs.set_attr("secret", [much, much])
        else:
            envs.set_attr("secret", [much, much])
            assert [value.nbytes for value in envs.get_attr("secret")] == [much.nbytes] * 2
        assert not envs.processes[0].is_alive() or policy == "restart"


def test_close_does_not_wait(holder):
    envs = ShmVectorEnv([lambda: Holding(holder), Clock], num_workers=2, context="fork")
    envs.reset()
    assert times(envs.step(zeros(2))[0]) == [1, 1]
    processes = envs.processes
    envs.close(timeout=10 * LIFE)
    assert lives(holder)
    assert [process.exitcode for process in processes] == [0, 0]
