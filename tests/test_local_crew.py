"""A vector environment without workers tells onlookers as much as one with workers."""

from __future__ import annotations

import numpy as np
import pytest

import gymshm
from environments import clocks, zeros


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("slots", [1, 3])
def test_onlookers_read_the_current_slot(num_workers, slots):
    envs = gymshm.ShmVectorEnv(clocks(2), num_workers=num_workers, slots=slots, copy=False)
    with gymshm.attach(envs.segment_name, read_only=True) as onlooker:
        envs.reset()
        for t in range(1, 8):
            envs.step(zeros(2))
            assert onlooker.read().tolist() == [[t, t], [t, t]]
            assert onlooker.snapshot(1).tolist() == [t, t]
        envs.call("double", 1)
        assert onlooker.read().tolist() == [[7, 7], [7, 7]]
        envs.reset()
        assert onlooker.read().tolist() == [[0, 0], [0, 0]]
    envs.close()


def test_during_a_step_no_row_of_the_only_slot_is_calm():
    seen = []

    def look(env, action):
        with pytest.raises(TimeoutError, match=r"^Expected a moment in which nobody writes row 1 "):
            onlooker.snapshot(1, timeout=0.0)
        seen.append(env.t)

    envs = gymshm.ShmVectorEnv(clocks(2, act=look), num_workers=0)
    onlooker = gymshm.attach(envs.segment_name, read_only=True)
    envs.reset()
    envs.step(zeros(2))
    assert seen == [0, 0]
    assert onlooker.snapshot(1).tolist() == [1, 1]
    envs.close()
    onlooker.close()


class Uncopyable:
    """As an action, it can't be handed over."""

    def __deepcopy__(self, memo):
        raise RuntimeError("not this one")


def test_a_step_that_never_began_leaves_all_calm():
    envs = gymshm.ShmVectorEnv(clocks(2), num_workers=0)
    envs.reset()
    envs.step(zeros(2))
    with pytest.raises(RuntimeError, match="not this one"):
        envs.step([np.int64(0), Uncopyable()])
    with gymshm.attach(envs.segment_name, read_only=True) as onlooker:
        assert onlooker.snapshot(1, timeout=0.0).tolist() == [1, 1]
    assert envs.step(zeros(2))[0].tolist() == [[2, 2], [2, 2]]
    envs.close()


@pytest.mark.parametrize("actions", [zeros(2), [np.int64(0), "x"]], ids=["in the segment", "by hand"])
def test_during_a_step_the_slot_before_is_calm(actions):
    seen = []

    def look(env, action):
        seen.append((env.t, onlooker.snapshot(0).tolist(), onlooker.snapshot(1).tolist()))

    envs = gymshm.ShmVectorEnv(clocks(2, act=look), num_workers=0, slots=2, copy=False)
    onlooker = gymshm.attach(envs.segment_name, read_only=True)
    envs.reset()
    for _ in range(3):
        envs.step(actions)
    assert seen == [(t, [t, t], [t, t]) for t in range(3) for _ in range(2)]
    envs.close()
    onlooker.close()


def test_during_a_turn_its_row_is_not_calm_and_the_others_are():
    seen = []

    def look(env, action):
        with pytest.raises(TimeoutError):
            onlooker.snapshot(int(action), timeout=0.0)
        seen.append(onlooker.snapshot(1 - int(action), timeout=0.0).tolist())

    envs = gymshm.ShmVectorEnv(clocks(2, act=look), num_workers=0, batch_size=1)
    onlooker = gymshm.attach(envs.segment_name, read_only=True)
    envs.async_reset()
    for _ in range(2):
        envs.recv()
    for env in (0, 1, 0):
        envs.send(np.array([env]), np.array([env]))
        envs.recv()
    assert seen == [[0, 0], [1, 1], [1, 1]]
    envs.close()
    onlooker.close()
