"""Runs contenders, each in a fresh interpreter of its own, in turns.

    python benchmarks/runner.py CONTENDER WORKLOAD N [--context fork] [--metric rate] [--rounds 5]

prints the samples of one contender as a JSON line; ``bench_vector_env`` uses :func:`measure` for many.

While it is not a contender's turn, all its processes are stopped (SIGSTOP): one that spins while it waits, or has a
hundred processes, takes nothing from the others. Metrics:

* ``rate``: environment steps per second;
* ``start``: seconds from the constructor's call to the first ``reset``'s return, imports done; a fresh interpreter
  for each sample;
* ``memory``: bytes (PSS) of all processes that the contender started;
* ``idle``: CPU time that it takes, its own process included, from 10 ms after a step on, as a share of one CPU.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import probes
from machine import cpus

__all__ = ["METRICS", "Failed", "Spec", "measure"]

#: Unit of each metric, and whether more of it is better.
METRICS = {"rate": ("steps/s", True), "start": ("s", False), "memory": ("bytes", False), "idle": ("CPU", False)}

#: Seconds that a contender may take to start, or beyond what was asked for to answer.
_PATIENCE = 120.0

#: Seconds that a contender steps before each sample, to have its memory in the caches again.
_WARM_UP = 0.05

#: Seconds after a step in which idling may still cost something.
_GRACE = 0.01

#: Seconds that a contender is given to end by itself.
_END_PATIENCE = 60.0


@dataclass(frozen=True)
class Spec:
    """A contender at work: its name, the workload, the number of environments, the processes' start method."""

    contender: str
    workload: str
    n: int
    context: str | None = None


class Failed(Exception):
    """A contender took no part, or broke off; the text says why."""


def measure(specs: Sequence[Spec], metric: str, rounds: int, seconds: float) -> dict[Spec, list[float] | Failed]:
    """Samples of each contender, taken in turns, every other round in reverse; or why there are none.

    Args:
        specs: The contenders.
        metric: What to measure.
        rounds: Number of samples.
        seconds: Duration of one sample of ``rate`` and ``idle``.
    """
    results: dict[Spec, list[float] | Failed] = {spec: [] for spec in specs}
    lives: dict[Spec, _Life] = {}

    def begin(spec: Spec) -> None:
        try:
            lives[spec] = _Life(spec)
        except Failed as failure:
            results[spec] = failure

    def end(spec: Spec) -> None:
        if spec in lives:
            lives.pop(spec).end()

    with ThreadPoolExecutor(cpus()) as pool:
        try:
            if metric != "start":  # where nobody looks at it, several may start at a time
                list(pool.map(begin, specs))
            for i in range(rounds):
                for spec in specs if i % 2 == 0 else reversed(specs):
                    if metric == "start":
                        begin(spec)
                    samples = results[spec]
                    try:
                        if not isinstance(samples, Failed):
                            samples.append(lives[spec].sample(metric, seconds))
                    except Failed as failure:
                        results[spec] = failure
                    if metric == "start":
                        end(spec)
        finally:
            list(pool.map(end, specs))
    return results


class _Life:
    """A contender from its start to its end; stopped, except while it is asked for something."""

    def __init__(self, spec: Spec) -> None:
        self._errors = tempfile.TemporaryFile("w+")
        self._connection, theirs = Pipe()
        arguments = json.dumps([theirs.fileno(), spec.contender, spec.workload, spec.n, spec.context])
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--child", arguments],
            stdin=subprocess.DEVNULL,
            stdout=self._errors,
            stderr=self._errors,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        try:
            self._start_seconds = self._answer(_PATIENCE)
        except BaseException:
            self._kill()
            raise
        self._signal(signal.SIGSTOP)

    def sample(self, metric: str, seconds: float) -> float:
        """One sample.

        Raises:
            Failed: It broke off, or gave no answer.
        """
        if metric == "start":
            return self._start_seconds
        self._signal(signal.SIGCONT)
        try:
            self._connection.send_bytes(json.dumps([metric, seconds]).encode())
            return self._answer(seconds + _PATIENCE)
        except OSError:
            raise Failed(self._last_words()) from None
        finally:
            self._signal(signal.SIGSTOP)

    def end(self) -> None:
        """Lets it close what it started; kills what is left of it."""
        self._signal(signal.SIGCONT)
        try:
            self._connection.send_bytes(b"null")
            self._process.wait(_END_PATIENCE)
            deadline = time.monotonic() + _END_PATIENCE
            while probes.group_lives(self._process.pid) and time.monotonic() < deadline:
                time.sleep(0.01)  # a resource tracker outlives the others, and has things to remove
        except (OSError, subprocess.TimeoutExpired):
            pass
        self._kill()

    def _answer(self, patience: float) -> float:
        deadline = time.monotonic() + patience
        while not self._connection.poll(0.05):
            if self._process.poll() is not None:
                raise Failed(self._last_words())
            if time.monotonic() > deadline:
                raise Failed(f"no answer within {patience:.0f} s")
        try:
            answer = json.loads(self._connection.recv_bytes())
        except (OSError, EOFError):
            raise Failed(self._last_words()) from None
        if isinstance(answer, str):
            raise Failed(answer)
        return float(answer)

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors if line.strip()]
        return lines[-1] if lines else f"ended with code {self._process.poll()}"

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            pass  # nobody is left

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._connection.close()
        self._errors.close()


# --- in the fresh interpreter -----------------------------------------------------------------------------------------


def _child(fd: int, name: str, workload: str, n: int, context: str | None) -> None:
    connection = Connection(fd)

    def answer(value: float | str) -> None:
        connection.send_bytes(json.dumps(value).encode())

    from contenders import Absent
    from peers import LINEUP

    make = LINEUP[name].prepare()
    try:
        start = time.perf_counter()
        contender = make(workload, n, context)
    except Absent as absent:
        answer(str(absent))
        return
    answer(time.perf_counter() - start)
    while (request := json.loads(connection.recv_bytes())) is not None:
        answer(_sample(contender, *request))
    contender.close()
    for process in multiprocessing.active_children():
        process.join(1)  # or nobody counts the CPU time that it took


def _sample(contender: Any, metric: str, seconds: float) -> float:
    contender.run(_WARM_UP)
    if metric == "rate":
        return float(contender.run(seconds))
    if metric == "memory":
        return float(probes.pss(probes.descendants()))
    time.sleep(_GRACE)
    return probes.cpu_share([os.getpid(), *probes.descendants()], seconds)


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("contender")
    parser.add_argument("workload")
    parser.add_argument("n", type=int)
    parser.add_argument("--context")
    parser.add_argument("--metric", choices=METRICS, default="rate")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3)
    options = parser.parse_args()
    spec = Spec(options.contender, options.workload, options.n, options.context)
    (result,) = measure([spec], options.metric, options.rounds, options.seconds).values()
    line = {"contender": spec.contender, "workload": spec.workload, "n": spec.n, "metric": options.metric}
    failed = isinstance(result, Failed)
    print(json.dumps({**line, **({"absent": str(result)} if failed else {"samples": result})}))
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _child(*json.loads(sys.argv[2]))
    else:
        sys.exit(_main())
