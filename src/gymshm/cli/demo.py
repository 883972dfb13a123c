"""``gymshm demo``: real environments in processes that know a segment's name and nothing else.

The memory of the demo is a ``Dict``: beside each environment's observation stands what the two sides have to tell each
other. ``steps`` counts the steps that an environment has done, from -1 (it is not ready yet) over 0 (it waits) up;
``go`` is set to 1 by the parent when all are ready.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Callable, Sequence
from multiprocessing import connection, get_context
from multiprocessing.process import BaseProcess
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces as gs

from ..attachment import attach
from ..create import create_shared_memory
from ..layout import entries
from ..row_writer import row_writer
from ..tables import table
from ..views import leaves, segment_of, views
from .text import CommandError, positive, progress_bar, show_progress, size_text

__all__ = ["SUMMARY", "configure", "run"]

SUMMARY = "Runs environments in processes that attach by name, and reads what they write without copying it."

#: Seconds between two looks at the counters.
_INTERVAL = 0.05


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("env_id", metavar="ENV_ID", nargs="?", default="CartPole-v1", help="default: %(default)s")
    parser.add_argument("--num-envs", metavar="N", type=positive, default=4, help="one process each; default: 4")
    parser.add_argument(
        "--steps", metavar="STEPS", type=positive, default=10_000, help="of each environment; default: 10000"
    )


def run(arguments: argparse.Namespace) -> int:
    """Runs the demo."""
    env_id, num_envs, steps = arguments.env_id, arguments.num_envs, arguments.steps
    counter = gs.Box(-1, np.iinfo(np.int64).max, (), np.int64)
    memory = create_shared_memory(
        gs.Dict([("observation", _observation_space(env_id)), ("steps", counter), ("go", gs.Discrete(2))]),
        n=num_envs,
    )
    name = segment_of(memory).name
    arrays = views(memory)
    arrays["steps"][:] = -1
    # Not forked: so that the processes have nothing but what they are told.
    context = get_context("spawn")
    processes = [
        context.Process(target=_play, args=(name, index, env_id, steps, os.getpid()), daemon=True)
        for index in range(num_envs)
    ]
    try:
        print(f"Starting {num_envs} x {env_id} on segment {name} ({size_text(segment_of(memory).nbytes)}) ...")
        _start(processes)
        _wait(processes, lambda: bool((arrays["steps"] >= 0).all()))
        arrays["go"][:] = 1
        start = time.perf_counter()
        _wait(processes, lambda: _show(int(arrays["steps"].sum()), num_envs * steps, start))
        seconds = time.perf_counter() - start
        for process in processes:
            process.join()
    finally:
        for process in processes:
            if process.pid is not None:
                process.terminate()
                process.join()
    total = num_envs * steps
    print(f"{total:,} steps in {seconds:.2f} s: {total / seconds:,.0f} steps/s, one process per environment.\n")
    print(_what_is_there(memory))
    return 0


def _play(name: str, index: int, env_id: str, steps: int, parent: int) -> None:
    """One environment's process: it takes random actions, and leaves what it observes in the segment."""
    with attach(name) as attachment:
        arrays = attachment.arrays
        space: Any = attachment.space
        write = row_writer(space["observation"], attachment.memory["observation"], index)
        env = gym.make(env_id)
        env.action_space.seed(index)
        write(env.reset(seed=index)[0])
        arrays["steps"][index] = 0
        while not arrays["go"][index] and os.getppid() == parent:
            time.sleep(0.001)
        for step in range(1, steps + 1):
            observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                observation, _ = env.reset()
                if os.getppid() != parent:
                    break
            write(observation)
            arrays["steps"][index] = step
        env.close()


def _observation_space(env_id: str) -> gs.Space[Any]:
    try:
        env = gym.make(env_id)
        env.close()
    except Exception as error:  # it is anybody's code
        raise CommandError(f"can't make {env_id}: {error}") from error
    return env.observation_space


def _start(processes: Sequence[BaseProcess]) -> None:
    """Starts them deaf to Ctrl-C: that is this process's affair, which ends them."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # they inherit it
    try:
        for process in processes:
            process.start()
    finally:
        signal.signal(signal.SIGINT, before)


def _wait(processes: Sequence[BaseProcess], done: Callable[[], bool]) -> None:
    """Looks again and again until ``done()``; a process that failed ends that."""
    while not done():
        connection.wait([process.sentinel for process in processes if process.exitcode is None], _INTERVAL)
        for index, process in enumerate(processes):
            if process.exitcode:
                raise CommandError(f"environment {index} ended with exit code {process.exitcode}")


def _show(steps: int, total: int, start: float) -> bool:
    """Draws the progress bar, where somebody sees it; whether all is done."""
    rate = steps / (time.perf_counter() - start)
    show_progress(f"{progress_bar(steps, total)} {rate:12,.0f} steps/s ", end="\n" if steps == total else "")
    return steps == total


def _what_is_there(memory: Any) -> str:
    """The first environment's row of each array, as it stands in the segment."""
    header = segment_of(memory).header
    table_rows = []
    for entry, leaf in zip(entries(header), leaves(memory), strict=True):
        first = np.array2string(leaf.live_view()[0], precision=3, threshold=8, edgeitems=2).replace("\n", "")
        table_rows.append((entry.path, entry.dtype, entry.shape, first if len(first) < 60 else f"{first[:57]}..."))
    return table(("PATH", "DTYPE", "SHAPE", "ENVIRONMENT 0, READ IN PLACE"), table_rows)
