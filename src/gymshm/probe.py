"""How long an environment's step takes, and how many workers suit that: ``num_workers="auto"``.

The step is measured on one more environment, in a process of its own that is gone afterwards: stepping those of the
caller would change what they show. While they run, an :class:`Advisor` looks at how long they take now and then.

What a step costs besides the environments' own work is modelled by four constants, which ``benchmarks/`` measured on
two CPUs. The decision is coarse, and right where it matters: cheap environments are stepped in this process, expensive
ones on all CPUs.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

from gymnasium import Env
from gymnasium.vector.utils import CloudpickleWrapper, clear_mpi_env_vars

from .cpus import usable_cpus
from .worker import begin
from .worker_process import interrupts_held

__all__ = ["Advisor", "best_number_of_workers", "choose", "measure_step"]

#: Seconds that a vector environment adds to the step of each environment,
_PER_ENV = 0.25e-6
#: and to a step of all of them: without workers,
_IN_PROCESS = 3.5e-6
#: with fewer workers than CPUs,
_SPARE_CPU = 7e-6
#: and with a worker on every CPU.
_ALL_CPUS = 16e-6

#: Steps of all environments from one that is measured to the next, how many make a verdict, and from which factor on a
#: better number of workers is told. The model is coarse, and a warning that is wrong is worse than none.
_INTERVAL, _SAMPLES, _WORTH_TELLING = 64, 31, 1.4

#: Seconds that the measurement steps, and that it may take with building the environment.
_MEASURE_SECONDS, _PATIENCE_SECONDS = 0.05, 30.0


def choose(
    context: Any, env_fns: Sequence[Callable[[], Env[Any, Any]]], *, daemon: bool, least: int, most: int
) -> tuple[int | None, Advisor | None]:
    """What ``num_workers="auto"`` is for these environments, and who says later if it does not suit them any more.

    Args:
        context: A multiprocessing context.
        env_fns: Functions that create the environments; the first is called, in a process of its own.
        daemon: As for :func:`measure_step`.
        least: The fewest workers that will do; where that is one, nobody says later that none were faster.
        most: The most workers there may be.

    Returns:
        The number of workers, None where a step can't be measured; and the advisor, None where there is none.
    """
    step_seconds = measure_step(context, env_fns[0], daemon=daemon)
    if step_seconds is None:
        return None, None
    num_envs, cpus = len(env_fns), usable_cpus()
    number = max(least, best_number_of_workers(step_seconds, num_envs, cpus, most))
    return number, None if least else Advisor(number, num_envs, cpus, most)


def best_number_of_workers(step_seconds: float, num_envs: int, cpus: int, most: int) -> int:
    """The number of workers with which a step of all environments is done first; 0 for none.

    Args:
        step_seconds: What one environment's step takes.
        num_envs: Number of environments.
        cpus: The CPUs that may be used.
        most: The most workers there may be.
    """
    return min(range(min(cpus, most) + 1), key=lambda workers: _seconds(step_seconds, num_envs, cpus, workers))


def _seconds(step_seconds: float, num_envs: int, cpus: int, workers: int) -> float:
    """What a step of all environments takes with so many workers."""
    return _fixed_seconds(cpus, workers) + math.ceil(num_envs / max(1, workers)) * (step_seconds + _PER_ENV)


def _fixed_seconds(cpus: int, workers: int) -> float:
    return _IN_PROCESS if workers == 0 else _SPARE_CPU if workers < cpus else _ALL_CPUS


class Advisor:
    """Measures now and then while environments run, and says once where another number of workers suits them better.

    It can't do more than say so: environments can't move to another process.

    Args:
        num_workers: The number that was chosen.
        num_envs: Number of environments.
        cpus: The CPUs that may be used.
        most: The most workers there may be.

    Attributes:
        is_due: Whether this step, of all environments, is one to measure; to be asked once for each.
    """

    def __init__(self, num_workers: int, num_envs: int, cpus: int, most: int) -> None:
        """Has measured nothing yet."""
        self._chosen, self._num_envs, self._cpus, self._most = num_workers, num_envs, cpus, most
        self._samples: list[float] = []
        # Counts without a line of Python: every step asks.
        self.is_due: Callable[[], bool] = itertools.cycle([False] * (_INTERVAL - 1) + [True]).__next__

    def take(self, seconds: float) -> str | None:
        """Takes note of how long such a step took; what to tell the user, where there is something."""
        self._samples.append(seconds)
        if len(self._samples) < _SAMPLES:
            return None
        seconds = median(self._samples)  # resets, and whatever else disturbs a few, left out
        self._samples.clear()
        share = math.ceil(self._num_envs / max(1, self._chosen))
        step_seconds = max(0.0, (seconds - _fixed_seconds(self._cpus, self._chosen)) / share - _PER_ENV)
        best = best_number_of_workers(step_seconds, self._num_envs, self._cpus, self._most)
        factor = seconds / _seconds(step_seconds, self._num_envs, self._cpus, best)
        if factor < _WORTH_TELLING:
            return None
        self.is_due = itertools.repeat(False).__next__  # once is enough
        return (
            f'num_workers="auto" chose {self._chosen} at the start. By now an environment\'s step takes about '
            f"{step_seconds * 1e6:.0f} µs, for which num_workers={best} would be about {factor:.1f} times faster."
        )


def measure_step(context: Any, env_fn: Callable[[], Env[Any, Any]], *, daemon: bool = True) -> float | None:
    """Seconds that a step of the environment takes, resets left out; None where it can't be told.

    Args:
        context: A multiprocessing context.
        env_fn: Creates the environment: in a process of its own, stepped there with random actions, and closed.
        daemon: Whether that process is daemonic, as the workers will be; else the environment may start others.
    """
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(
        target=_measure, args=(theirs, CloudpickleWrapper(env_fn)), name="gymshm-probe", daemon=daemon
    )
    try:
        with theirs, clear_mpi_env_vars(), interrupts_held(context.get_start_method()):
            process.start()
        told = ours.recv() if ours.poll(_PATIENCE_SECONDS) else None
    except (EOFError, ConnectionError):
        told = None  # it failed, or who starts it; so will the environments themselves, and their errors are told
    finally:
        ours.close()
        if process.pid is not None:
            _end(process)
    return told if isinstance(told, float) else None


def _end(process: Any) -> None:
    """Ends the process, which is given a moment to close its environment."""
    try:
        process.join(1.0)
    finally:  # also where Ctrl-C cuts it short
        process.kill()
        process.join()


def _measure(connection: Connection, env_fn: CloudpickleWrapper[Any]) -> None:
    """What the process runs."""
    begin()
    with contextlib.suppress(Exception):  # reported as nothing measured
        env = env_fn()
        try:
            connection.send(_step_seconds(env))
        finally:
            connection.close()  # the parent need not wait for an environment that is slow to close
            env.close()


def _step_seconds(env: Env[Any, Any]) -> float:
    """What a step of ``env`` takes, resets left out."""
    env.reset()
    actions = [env.action_space.sample() for _ in range(64)]
    spent, steps = 0.0, 0
    env.step(actions[0])
    env.reset()
    until = time.perf_counter() + _MEASURE_SECONDS
    while time.perf_counter() < until or steps == 0:
        start = time.perf_counter()
        _, _, terminated, truncated, _ = env.step(actions[steps % len(actions)])
        spent += time.perf_counter() - start
        steps += 1
        if terminated or truncated:
            env.reset()
    return spent / steps
