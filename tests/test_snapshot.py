"""Which rows of a segment are current, and whether they are calm, as writers of every kind tell it."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import signal

import numpy as np
import pytest
from gymnasium import spaces as gs

import gymshm
from environments import clock_envs, zeros
from gymshm.doorbell import Doorbell
from gymshm.errors import TimedOutError
from gymshm.exchange import Exchange, Terms
from gymshm.requests import Operation
from gymshm.snapshot import places
from mortal import KILL, STOP, Mortal, count, fates, mortals
from support import wait_until

BOX = gs.Box(-1e6, 1e6, (2,), np.float32)


class Pair:
    """Both ends of one worker's line, without the worker; and what an onlooker makes of it."""

    def __init__(self, slots: int) -> None:
        self.exchange = Exchange.create(Terms(BOX, gs.Discrete(2), 2, 1, slots, keeps_final=False))
        ours, theirs = self.exchange.lines(0)
        self.near, self.far = multiprocessing.Pipe()
        self.parent, self.worker = Doorbell(ours, theirs, self.near), Doorbell(theirs, ours, self.far)
        self.place = places(self.exchange.segment)

    def close(self) -> None:
        self.near.close()
        self.far.close()
        self.exchange.segment.close()
        self.__dict__.clear()  # pytest keeps it longer than the leak guard waits


@pytest.fixture(params=[1, 2, 3])
def pair(request):
    made = Pair(request.param)
    made.slots = request.param
    yield made
    made.close()


def test_a_step_that_was_answered_is_calm_in_its_slot(pair):
    slot = pair.slots - 1
    pair.parent.post(5, Operation.STEP, slot)
    pair.worker.post(5, 0)
    assert pair.place(0)[0] == slot
    assert pair.place(0)[1] is not None


def test_while_a_step_goes_on_the_slot_before_is_calm_if_there_is_one(pair):
    pair.exchange.seen_slot[0] = pair.slots - 1
    pair.parent.post(5, Operation.STEP, 0)
    slot, state = pair.place(1)
    assert (slot == pair.slots - 1 and state is not None) if pair.slots > 1 else state is None


def test_what_was_seen_last_is_calm_in_whichever_slot_it_is(pair):
    pair.exchange.seen_slot[0] = 0
    for slot in range(1, pair.slots):
        pair.parent.post(slot, Operation.STEP, slot)
        assert pair.place(0)[0] == 0
        assert pair.place(0)[1] is not None


def test_that_another_slot_was_seen_is_another_state(pair):
    """Or a row that is written to again while somebody copies it might be taken for calm."""
    pair.parent.post(5, Operation.STEP, pair.slots)
    states = set()
    for slot in range(pair.slots):
        pair.exchange.seen_slot[0] = slot
        states.add(pair.place(0)[1])
    assert len(states) == pair.slots


def test_a_reset_that_goes_on_is_not_calm(pair):
    pair.parent.post(5, Operation.RESET, 0)
    assert pair.place(0)[1] is None


def test_two_requests_for_the_same_slot_are_two_states(pair):
    states = []
    for sequence in (5, 6):
        pair.parent.post(sequence, Operation.STEP, 0)
        pair.worker.post(sequence, 0)
        states.append(pair.place(0))
    assert states[0] != states[1]


def test_a_turn_is_calm_for_each_environment_by_itself(pair):
    pair.parent.post(5, Operation.TURN)
    pair.exchange.turns_asked[:] = [3, 4]
    pair.exchange.turns_done[:] = [3 << 1 | 1, 3 << 1]
    assert pair.place(0)[0] == 0
    assert pair.place(0)[1] is not None
    assert pair.place(1)[1] is None


@pytest.mark.parametrize("operation", [Operation.STEP, Operation.RESET, Operation.TURN])
def test_what_a_dead_worker_left_unfinished_is_not_calm_while_another_takes_its_place(operation):
    pair = Pair(2)
    pair.exchange.seen_slot[0] = 1
    pair.exchange.turns_asked[:] = 1
    pair.parent.post(5, operation, 0)
    before = pair.place(0)
    pair.parent.renew()
    slot, state = pair.place(0)
    # Of a step, the slot before the one that is written to.
    assert (slot == before[0] == 1 and state is not None) if operation is Operation.STEP else state is None
    assert not pair.parent.heard(1)
    assert not pair.worker.heard(1)  # it has to be asked again
    pair.parent.post(5, operation, 0)
    assert pair.worker.heard(5)
    pair.close()


# --- by the vector environment ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [1, 2])
def test_an_onlooker_sees_what_the_environments_show(slots):
    envs = clock_envs(3, slots=slots, num_workers=2)
    with gymshm.attach(envs.segment_name, read_only=True) as onlooker:
        envs.reset()
        for t in range(1, 6):
            envs.step(zeros(3))
            assert [onlooker.snapshot(i)[0] for i in range(3)] == [t] * 3
        envs.step_async(zeros(3))
        envs.step_wait()
        envs.call("double", 1)
        assert onlooker.snapshot(2)[0] == 6
    envs.close()


def test_an_onlooker_of_turns_sees_those_that_are_done():
    envs = clock_envs(2, num_workers=1)
    with gymshm.attach(envs.segment_name, read_only=True) as onlooker:
        envs.async_reset()
        envs.recv()
        envs.send(zeros(1), np.array([1]))
        envs.recv()
        assert [onlooker.snapshot(i)[0] for i in range(2)] == [0, 1]
    envs.close()


def test_no_calm_moment_in_time_is_an_error_that_says_what_to_do():
    envs = mortals(2, on_worker_death="raise")
    with gymshm.attach(envs.segment_name, read_only=True) as onlooker:
        envs.reset()
        envs.step_async(fates(2, env1=STOP))
        wait_until(lambda: is_stopped(envs.processes[1].pid))
        with pytest.raises(TimedOutError, match=r"within 0.3 seconds, got none.*second slot \(`slots=2`\)"):
            onlooker.snapshot(1, timeout=0.3)
        os.kill(envs.processes[1].pid, signal.SIGCONT)
        envs.step_wait()
        assert onlooker.snapshot(1)[0] == 1
    envs.close()


def test_a_time_to_wait_for_calm_is_a_number_of_seconds_or_none():
    with contextlib.closing(clock_envs(1, num_workers=0)) as envs:
        envs.reset()
        with gymshm.attach(envs.segment_name, read_only=True) as onlooker:
            for timeout in (0, math.inf, None):
                assert onlooker.snapshot(0, timeout).tolist() == [0, 0]
            with pytest.raises(ValueError, match="Expected timeout to be a number of seconds, or None, got nan"):
                onlooker.snapshot(0, math.nan)  # or it would look for calm for ever where there is none


def is_stopped(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"


def test_an_onlooker_sees_the_slot_before_while_a_worker_is_started_anew(tmp_path):
    def make() -> Mortal:
        if count(tmp_path / "calls") == 2:
            wait_until((tmp_path / "go").exists, 60)
        return Mortal()

    envs = mortals(2, fns=[make, Mortal])
    with gymshm.attach(envs.segment_name, read_only=True) as onlooker:
        envs.reset()
        for _ in range(3):
            envs.step(fates(2))
        envs.step_async(fates(2, env0=KILL))
        with pytest.raises(multiprocessing.TimeoutError):
            envs.step_wait(timeout=0.5)
        assert onlooker.snapshot(0)[0] == 3
        (tmp_path / "go").touch()
        envs.step_wait()
        assert onlooker.snapshot(0)[0] == 3  # the terminal observation
        envs.step(fates(2))
        assert [onlooker.snapshot(i)[0] for i in range(2)] == [0, 5]
    envs.close()
