"""Machines that are wide, narrow or odd, and parents that fork."""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading

import numpy as np
import pytest

import gymshm
from environments import clock_envs, clocks, zeros
from mortal import KILL, descriptors, fates, mortals
from support import check_python

TESTS = {**os.environ, "PYTHONPATH": os.path.dirname(__file__)}


def held():
    gc.collect()
    return sorted(descriptors()), threading.active_count(), len(multiprocessing.active_children())


def test_one_environment():
    envs = gymshm.ShmVectorEnv(clocks(1))
    envs.reset()
    assert envs.num_workers == 1
    assert envs.step(zeros(1))[0].tolist() == [[1, 1]]
    envs.close()


@pytest.mark.parametrize("num_workers", [2, 7])
def test_a_thousand_and_twenty_four_environments(num_workers):
    n = 1024
    envs = gymshm.ShmVectorEnv(clocks(n), num_workers=num_workers, on_worker_death="restart")
    envs.reset(seed=1)
    for t in range(1, 4):
        observations, rewards, *_ = envs.step(zeros(n))
        assert (observations == t).all()
        assert (rewards == t).all()
    envs.processes[-1].kill()
    observations, _, _, truncations, infos = envs.step(zeros(n))
    share = len(envs._crew.shares[-1])
    assert truncations.sum() == infos["worker_restarted"].sum() == share
    assert (observations[:-share] == 4).all()
    assert (observations[-share:] == 3).all()
    envs.async_reset()
    assert (envs.recv()[0] == 0).all()
    envs.close()


@pytest.mark.slow
def test_two_hundred_workers():
    n = 200
    before = held()
    envs = gymshm.ShmVectorEnv(clocks(n), num_workers=n)
    envs.reset()
    started = held()
    for t in range(1, 21):
        assert (envs.step(zeros(n))[0] == t).all()
    assert envs.get_attr("t") == (20,) * n
    assert len(set(envs.call("pid"))) == n
    assert held() == started
    envs.close()
    del envs  # with the processes, whose sentinels are open as long as somebody may ask for them
    assert held() == before


def test_one_cpu():
    printed = check_python(
        """
        import os
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        from environments import clock_envs, clocks, zeros
        import gymshm
        envs = gymshm.ShmVectorEnv(clocks(4))
        print(envs.num_workers)
        envs.reset()
        for _ in range(300):
            observations = envs.step(zeros(4))[0]
        print(observations[:, 0].tolist())
        envs.close()
        envs = clock_envs(4, num_workers=4)
        envs.reset()
        for _ in range(300):
            observations = envs.step(zeros(4))[0]
        print(observations[:, 0].tolist())
        envs.async_reset()
        envs.recv()
        for _ in range(100):
            envs.send(zeros(4), range(4))
            observations = envs.recv()[0]
        print(observations[:, 0].tolist())
        envs.close()
        """,
        env=TESTS,
    )
    assert printed.split("\n") == ["1", *["[300.0, 300.0, 300.0, 300.0]"] * 2, "[100.0, 100.0, 100.0, 100.0]", ""]


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_nothing_is_left_of_a_step(context):
    envs = clock_envs(4, context=context, num_workers=2, info=lambda t: {"t": t, "text": "x" * (t % 3)}, episode=5)
    envs.reset()
    envs.step(zeros(4))
    before = held()
    for _ in range(300):
        envs.step(zeros(4))
        envs.step(zeros(4).tolist())
    envs.call("double", 1)
    envs.set_attr("secret", "x")
    envs.reset()
    envs.async_reset()
    envs.recv()
    for _ in range(100):
        envs.send(zeros(4), np.arange(4))
        envs.recv()
    assert held() == before
    envs.close()


def test_a_fork_of_the_parent_neither_ends_nor_unlinks_nor_answers():
    # As a data loader makes them: one that ends by itself, one that is killed, one by multiprocessing.
    printed = check_python(
        """
        import multiprocessing, os, signal, sys
        import gymshm
        from mortal import KILL, fates, mortals

        envs = mortals(4)
        envs.reset()
        envs.step(fates(4))

        def load():
            try:
                envs.step(fates(4))
            except RuntimeError as error:
                assert "is a fork" in str(error), error
                os._exit(7)

        for end in (lambda: sys.exit(0), lambda: os._exit(0), lambda: os.kill(os.getpid(), signal.SIGKILL)):
            if (pid := os.fork()) == 0:
                end()
            os.waitpid(pid, 0)
            assert os.path.exists(f"/dev/shm/{envs.segment_name}")
            envs.step(fates(4))
        loader = multiprocessing.get_context("fork").Process(target=load)
        loader.start()
        loader.join()
        print(loader.exitcode)
        print(envs.step(fates(4))[0][:, 0].tolist())
        # Also where a worker is restarted while a fork lives.
        if (pid := os.fork()) == 0:
            signal.pause()
        result = envs.step(fates(4, env0=KILL))
        print(result[0][:, 0].tolist(), result[3].tolist())
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        envs.close()
        print(os.path.exists(f"/dev/shm/{envs.segment_name}"))
        """,
        env=TESTS,
    )
    assert printed.splitlines() == [
        "7",
        "[5.0, 5.0, 5.0, 5.0]",
        "[5.0, 5.0, 6.0, 6.0] [True, True, False, False]",
        "False",
    ]


def test_half_of_many_workers_die_in_one_step():
    envs = mortals(32, num_workers=16, max_restarts=100)
    envs.reset()
    result = envs.step(fates(32, **{f"env{i}": KILL for i in range(0, 32, 4)}))
    assert result[3].tolist() == [True, True, False, False] * 8
    assert result[0][:, 0].tolist() == [0, 0, 1, 1] * 8
    envs.close()
