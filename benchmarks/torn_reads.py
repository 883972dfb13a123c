"""Onlookers take snapshots of rows while a writer writes them at full speed: none may be half old, half new.

    python benchmarks/torn_reads.py [--quick] [--seconds N]

One writer, four onlookers, each in a process of its own, over memory with ``snapshots=True`` and over vector
environments with one slot and with two. Then the same with the guard taken out: the onlookers copy the row just as it
stands. That has to find torn rows, or the test could not have found any.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces as gs

import gymshm
from verdict import Verdict, options

ONLOOKERS = 4

#: Large enough for a copy to be cut in two, by the writer or by the scheduler.
NUMBERS = 1 << 15
SPACE = gs.Dict({"left": gs.Box(0, 1e18, (NUMBERS,), np.float64), "right": gs.Box(0, 1e18, (NUMBERS,), np.float64)})


class Uniform(gym.Env[Any, Any]):
    """Shows the number of its step, everywhere."""

    observation_space, action_space = SPACE, gs.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._t = 0
        return uniform(0), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._t += 1
        return uniform(self._t), 0.0, False, False, {}


def uniform(t: int) -> dict[str, np.ndarray]:
    """A value that holds ``t`` throughout."""
    return {key: np.full(NUMBERS, t, np.float64) for key in SPACE.spaces}


def write(way: str, seconds: float, report: Connection) -> None:
    """The writer: tells the segment's name, then writes, then how often it did."""
    writes = 0
    if way == "memory":
        memory = gymshm.create_shared_memory(SPACE, n=1, snapshots=True)
        row = gymshm.row_writer(SPACE, memory, 0)
        row(uniform(0))
        report.send(gymshm.segment_of(memory).name)
        report.recv()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            writes += 1
            row(uniform(writes))
    else:
        envs = gymshm.ShmVectorEnv([Uniform], num_workers=1, slots=int(way), copy=False)
        envs.reset()
        report.send(envs.segment_name)
        report.recv()
        actions = np.zeros(1, np.int64)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            writes += 1
            envs.step(actions)
        report.recv()  # the onlookers are done
        envs.close()
    report.send(writes)


def watch(name: str, guarded: bool, seconds: float, report: Connection) -> None:
    """An onlooker: how many rows it took, how many were torn or older than one before, and how many it missed."""
    taken = torn = backward = missed = 0
    latest = 0.0
    with gymshm.attach(name, read_only=True) as attached:
        arrays = attached.arrays
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                row = attached.snapshot(0) if guarded else {key: part[0].copy() for key, part in arrays.items()}
            except TimeoutError:
                missed += 1
                continue
            taken += 1
            first = row["left"][0]
            torn += not all((part == first).all() for part in row.values())
            backward += first < latest
            latest = max(latest, first)
    report.send((taken, torn, backward, missed))


def trial(verdict: Verdict, way: str, guarded: bool, seconds: float) -> int:
    """One writer and its onlookers; how many torn rows they saw."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    # Not daemonic: it has workers of its own.
    writer = context.Process(target=write, args=(way, seconds, theirs))
    writer.start()
    name = ours.recv()
    pipes = [context.Pipe(duplex=False) for _ in range(ONLOOKERS)]
    onlookers = [context.Process(target=watch, args=(name, guarded, seconds, sender)) for _, sender in pipes]
    for process in onlookers:
        process.start()
    ours.send("go")
    told = [receiver.recv() for receiver, _ in pipes]
    if way != "memory":
        ours.send("done")
    writes = ours.recv()
    for process in (writer, *onlookers):
        process.join()
    taken, torn, backward, missed = map(sum, zip(*told, strict=True))
    what = "memory" if way == "memory" else f"ShmVectorEnv, slots={way}"
    if guarded:
        verdict.expect(torn == 0, what, "gave", torn, "torn rows")
        verdict.expect(backward == 0, what, "went back in time", backward, "times")
        verdict.expect(taken > 0, what, "gave nothing")
    verdict.row(what, "yes" if guarded else "no", writes, taken, torn, missed)
    return torn


def main() -> int:
    """All trials."""
    chosen = options(__doc__, seconds=(1, 60, "seconds of each trial"))
    verdict = Verdict("writer", "guard", "writes", "rows taken", "torn", "timed out")
    for way in ("memory", "1", "2"):
        trial(verdict, way, True, chosen.seconds)
    torn = sum(trial(verdict, way, False, chosen.seconds) for way in ("memory", "1"))
    verdict.expect(torn > 0, "without the guard nothing was torn: this could not have found any")
    return verdict.finish()


if __name__ == "__main__":
    sys.exit(main())
