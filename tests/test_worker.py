"""``worker``: how a worker process begins and ends, and what it says of its environments."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import pickle
import signal
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces as gs
from gymnasium.vector.utils import CloudpickleWrapper

from environments import Clock, clocks, group_of
from gymshm import ShmVectorEnv
from gymshm.compat import AutoresetMode
from gymshm.exchange import Terms
from gymshm.failures import Failure
from gymshm.requests import Report, Setup
from gymshm.worker import main, report
from support import CHILD_ENV, check_python, wait_until

FORK = multiprocessing.get_context("fork")
GO_AWAY = pickle.dumps(None)


@contextlib.contextmanager
def started(fns: list[Any], start: int = 0):
    """A worker's process, and the parent's end of its connection."""
    ours, theirs = FORK.Pipe()
    process = FORK.Process(
        target=main, args=(theirs, [ours], CloudpickleWrapper(fns), start, AutoresetMode.NEXT_STEP, None), daemon=True
    )
    process.start()
    theirs.close()
    try:
        yield process, ours
    finally:
        ours.close()
        process.kill()
        process.join()
        process.close()


def test_a_forked_worker_leaves_sigterm_to_a_parent_that_handles_it_and_has_not_its_wakeup_descriptor():
    check_python(
        """
        import contextlib, functools, signal, socket
        from environments import clock_envs
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        signal.signal(signal.SIGTERM, lambda *arguments: print("the parent's handler ran", flush=True))
        signal.set_wakeup_fd(theirs.fileno())
        envs = clock_envs(2, context="fork", num_workers=2)
        processes = envs.processes
        assert envs.call("apply", functools.partial(signal.getsignal, signal.SIGTERM)) == (signal.SIG_IGN,) * 2
        assert envs.call("apply", functools.partial(signal.set_wakeup_fd, -1)) == (-1, -1)
        assert callable(signal.getsignal(signal.SIGTERM))
        assert signal.set_wakeup_fd(-1) == theirs.fileno()
        for process in processes:  # as a batch system does, which warns all processes of a job
            process.terminate()
        envs.reset()
        envs.close(terminate=True)
        assert [process.exitcode for process in processes] == [-signal.SIGKILL] * 2
        for end in (ours, theirs):
            end.close()
        """,
        env=CHILD_ENV,
    )


def test_a_forked_worker_leaves_garbage_of_its_parent_alone_and_collects_its_own():
    printed = check_python(
        """
        import gc, os, weakref
        from environments import clock_envs

        class Cycle:
            def __init__(self):
                self.me = self

        class Parents(Cycle):
            def __del__(self):
                print("finalized by", "the parent" if os.getpid() == parent else "a worker", flush=True)

        def collect():
            own = weakref.ref(Cycle())
            before = own() is not None
            gc.collect()
            return before, own() is not None

        parent = os.getpid()
        gc.disable()
        Parents()
        envs = clock_envs(2, context="fork")
        assert envs.call("apply", collect) == ((True, False),) * 2
        gc.collect()
        envs.close()
        """,
        env=CHILD_ENV,
    )
    assert printed == "finalized by the parent\n"


@pytest.mark.parametrize("kind", [signal.SIG_IGN, signal.default_int_handler])
def test_what_an_environment_does_at_sigterm_is_its_own(kind):
    def make():
        signal.signal(signal.SIGTERM, kind)
        return Clock()

    with contextlib.closing(ShmVectorEnv([make], context="fork", num_workers=1)) as envs:
        assert envs.call("apply", functools.partial(signal.getsignal, signal.SIGTERM)) == (kind,)


def test_a_report_has_the_facts_of_the_first_and_every_observation_space():
    boxes = [gs.Box(0, high, (2,), np.float32) for high in (1, 2)]
    told = report(group_of([lambda box=box: Clock(observation_space=box, render_mode="rgb_array") for box in boxes]))
    assert told == Report(boxes, gs.Discrete(5), Clock.metadata, "rgb_array")
    assert told.metadata is not Clock.metadata


def test_a_worker_that_is_sent_away_closes_its_environments_and_ends(tmp_path):
    closed = tmp_path / "closed"
    with started(clocks(2, act_in_close=lambda env: closed.touch())) as (process, connection):
        assert isinstance(pickle.loads(connection.recv_bytes()), Report)
        connection.send_bytes(GO_AWAY)
        process.join(60)
        assert process.exitcode == 0
    assert closed.exists()


def test_bounds_keep_their_byte_order_on_the_way_to_the_parent():
    space = gs.Box(-1, 1, (2,), np.dtype(">f4"))
    with started([lambda: Clock(observation_space=space)]) as (_, connection):
        told = pickle.loads(connection.recv_bytes()).observation_spaces[0]
        assert (told.dtype.str, told.low.dtype.str, told.high.dtype.str) == (">f4", ">f4", ">f4")


def test_a_worker_whose_parent_hangs_up_closes_its_environments_and_ends(tmp_path):
    closed = tmp_path / "closed"
    with started(clocks(2, act_in_close=lambda env: closed.touch())) as (process, connection):
        connection.recv_bytes()
        connection.close()
        process.join(60)
        assert process.exitcode == 0
    assert closed.exists()


def test_a_failure_to_build_is_told_with_the_index_of_the_environment():
    def fail():
        raise ValueError("bad")

    with started([Clock, fail], start=4) as (process, connection):
        failure = pickle.loads(connection.recv_bytes())
        assert isinstance(failure, Failure)
        assert failure.env == 5
        assert "bad" in failure.text
        process.join(60)
        assert process.exitcode == 0


def test_ctrl_c_is_the_parents_to_handle():
    with started(clocks(1)) as (process, connection):
        connection.recv_bytes()
        os.kill(process.pid, signal.SIGINT)
        connection.send_bytes(GO_AWAY)
        process.join(60)
        assert process.exitcode == 0


def test_a_setup_that_leads_nowhere_is_told():
    with started(clocks(1)) as (process, connection):
        told = pickle.loads(connection.recv_bytes())
        space = told.observation_spaces[0]
        terms = Terms(space, told.action_space, 1, 1, 1, False)
        setup = Setup(("gymshm-is-not-there", b"digest"), 0, terms, space, told.action_space, True)
        connection.send_bytes(pickle.dumps(setup))
        failure = pickle.loads(connection.recv_bytes())
        assert "gymshm-is-not-there" in failure.text
        wait_until(lambda: not process.is_alive())
