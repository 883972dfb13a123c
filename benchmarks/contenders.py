"""Gymnasium's vector environments, ours, and the bounds: all stepped through one interface. ``peers`` has the others.

A contender is made by a function of (workload, n, context) that constructs it and resets it once. Modules are imported
only where their contender is made, so that an interpreter holds nothing but the one contender that it measures.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import repeat
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np

from environments import WORKLOADS
from machine import cpus

__all__ = ["CONTENDERS", "Absent", "Contender", "Entry", "Stepper"]

#: A loop looks at the clock about this often, in seconds.
_CHUNK_SECONDS = 1e-3


class Absent(Exception):
    """This contender can't take part here; the text says why."""


class Contender(Protocol):
    """What is measured."""

    def run(self, seconds: float) -> float:
        """Steps for about ``seconds``; environment steps per second."""

    def close(self) -> None:
        """Ends everything that it started."""


Make = Callable[[str, int, str | None], Contender]


class Entry(NamedTuple):
    """A contender as it enters: what has to be imported for it, and what makes it."""

    module: str
    make: Make

    def absence(self) -> str | None:
        """Why it can't take part, told without importing anything; None where it can."""
        package = self.module.partition(".")[0]
        return None if find_spec(package) else f"{package} is not installed"

    def prepare(self) -> Make:
        """What makes it, once its imports are done: they are not part of what is measured."""
        import_module(self.module)
        return self.make


class Stepper:
    """A contender that is one call, repeated.

    Args:
        step: The call.
        steps: Environment steps that one call makes.
        close: Ends it.
    """

    def __init__(self, step: Callable[[], object], steps: int, close: Callable[[], object]) -> None:
        self._step, self._steps, self._close, self._chunk = step, steps, close, 1

    def run(self, seconds: float) -> float:
        step, chunk, calls = self._step, self._chunk, 0
        start = now = perf_counter()
        while now < start + seconds:
            for _ in repeat(None, chunk):
                step()
            calls += chunk
            now = perf_counter()
        rate = calls / (now - start)
        self._chunk = max(1, int(rate * _CHUNK_SECONDS))
        return rate * self._steps

    def close(self) -> None:
        self._close()


class PlainLoops:
    """The bound: as many processes as there are CPUs, each a plain loop over its share, and none talks to anybody."""

    def __init__(self, workload: str, n: int) -> None:
        self._workers = []
        workers = min(n, cpus())
        for number in range(workers):
            ours, theirs = multiprocessing.Pipe()
            process = multiprocessing.Process(target=self._loop, args=(workload, range(number, n, workers), theirs))
            process.start()
            self._workers.append((process, ours))

    @staticmethod
    def _loop(workload: str, indices: range, connection: Any) -> None:
        envs = [WORKLOADS[workload].make(index) for index in indices]
        steps = [(env.step, env.reset) for env in envs]
        for env in envs:
            env.reset()

        def step_all() -> None:
            for step, reset in steps:
                _, _, terminated, truncated, _ = step(0)
                if terminated or truncated:
                    reset()

        stepper = Stepper(step_all, len(envs), lambda: None)
        while (seconds := connection.recv()) is not None:
            connection.send(stepper.run(seconds))

    def run(self, seconds: float) -> float:
        for _, connection in self._workers:
            connection.send(seconds)
        return sum(connection.recv() for _, connection in self._workers)

    def close(self) -> None:
        for process, connection in self._workers:
            connection.send(None)
            process.join()


def _plain_loops(workload: str, n: int, context: str | None) -> Contender:
    return PlainLoops(workload, n)


def _one_copy(workload: str, n: int, context: str | None) -> Contender:
    """The other bound: the memory copy of one batch into an array that is there already."""
    source = np.ones(n * WORKLOADS[workload].row_nbytes, np.uint8)
    return Stepper(partial(np.copyto, np.empty_like(source), source), n, lambda: None)


def _sync(workload: str, n: int, context: str | None) -> Contender:
    from gymnasium.vector import SyncVectorEnv

    return _vector_env(SyncVectorEnv(WORKLOADS[workload].env_fns(n), autoreset_mode=WORKLOADS[workload].autoreset_mode))


def _async(workload: str, n: int, context: str | None) -> Contender:
    from gymnasium.vector import AsyncVectorEnv

    mode = WORKLOADS[workload].autoreset_mode
    return _vector_env(AsyncVectorEnv(WORKLOADS[workload].env_fns(n), context=context, autoreset_mode=mode))


def _gymshm(workload: str, n: int, context: str | None, **options: Any) -> Contender:
    return _vector_env(_shm_vector_env(workload, n, context, **options))


def _shm_vector_env(workload: str, n: int, context: str | None, **options: Any) -> Any:
    from gymshm import ShmVectorEnv

    mode = WORKLOADS[workload].autoreset_mode
    return ShmVectorEnv(WORKLOADS[workload].env_fns(n), context=context, autoreset_mode=mode, **options)


def _gymshm_pinned(workload: str, n: int, context: str | None) -> Contender:
    """Each worker on a CPU of its own, as a caller can have it: the kernel leaves two of them on one now and then."""
    if not hasattr(os, "sched_setaffinity"):
        raise Absent("processes can't be pinned here")
    env = _shm_vector_env(workload, n, context)
    for process, cpu in zip(env.processes, sorted(os.sched_getaffinity(0)), strict=False):
        os.sched_setaffinity(process.pid, {cpu})
    return _vector_env(env)


def _vector_env(env: Any) -> Contender:
    env.reset(seed=0)
    actions = np.zeros(env.num_envs, env.action_space.dtype)
    return Stepper(partial(env.step, actions), env.num_envs, env.close)


def _gymshm_send(workload: str, n: int, context: str | None) -> Contender:
    from gymshm import ShmVectorEnv

    if not hasattr(ShmVectorEnv, "send"):
        raise Absent("this gymshm has no send/recv")
    batch = max(1, n // 2)
    env: Any = ShmVectorEnv(WORKLOADS[workload].env_fns(n), context=context, batch_size=batch)
    actions = np.zeros(batch, env.single_action_space.dtype)
    env.async_reset()

    def step() -> None:
        infos = env.recv()[4]
        env.send(actions, infos["env_id"])

    return Stepper(step, batch, env.close)


#: By the name that tables show.
CONTENDERS = {
    "plain loops": Entry("gymnasium", _plain_loops),
    "one copy": Entry("numpy", _one_copy),
    "SyncVectorEnv": Entry("gymnasium.vector", _sync),
    "AsyncVectorEnv": Entry("gymnasium.vector", _async),
    "gymshm": Entry("gymshm", _gymshm),
    'gymshm, num_workers="auto"': Entry("gymshm", partial(_gymshm, num_workers="auto")),
    "gymshm, num_workers=0": Entry("gymshm", partial(_gymshm, num_workers=0)),
    "gymshm, num_workers=1": Entry("gymshm", partial(_gymshm, num_workers=1)),
    "gymshm, copy=False": Entry("gymshm", partial(_gymshm, copy=False)),
    "gymshm, copy=False, slots=8": Entry("gymshm", partial(_gymshm, copy=False, slots=8)),
    "gymshm, pinned": Entry("gymshm", _gymshm_pinned),
    "gymshm, send/recv": Entry("gymshm", _gymshm_send),
}
