"""Compares ``ShmVecEnv`` with Stable-Baselines3's own, side by side in one run, and prints a table.

    python benchmarks/bench_sb3.py [--quick] [--rows PATTERN] [--json [FILE]]

All contenders of a row live in one interpreter: whoever waits there, SubprocVecEnv and ours, sleeps. Where
Stable-Baselines3 is absent, that is said, and nothing measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

import machine
from asks import Ask, judge
from contenders import Stepper
from environments import WORKLOADS
from figures import spread, table
from outputs import parse, write_json

OURS, SUBPROC, DUMMY = "gymshm ShmVecEnv", "SB3 SubprocVecEnv", "SB3 DummyVecEnv"

ROUNDS, SECONDS = 21, 0.25
QUICK_ROUNDS, QUICK_SECONDS, QUICK_N = 2, 0.05, 4

#: Seconds that a contender steps before each sample, to have its memory in the caches again.
WARM_UP = 0.05


@dataclass(frozen=True)
class Row:
    """One comparison: the workload, the number of environments, and how many times SubprocVecEnv is asked for."""

    workload: str
    n: int
    goals: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """What it is called."""
        return f"{WORKLOADS[self.workload].text}, n = {self.n}"


ROWS = [
    Row("vector", 32, (20,)),
    Row("image", 32, (10,)),
    Row("infos", 32),
    Row("episodes", 32),
    Row("busy-200", 32),
]


def main() -> int:
    """Measures the rows and prints them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options = parse(parser)
    if options.readme:
        parser.error("--readme: this table has no place there")
    if find_spec("stable_baselines3") is None:
        print("stable_baselines3 is not installed: nothing measured.")
        return 0
    rows = [replace(row, n=QUICK_N) for row in ROWS] if options.quick else ROWS
    chosen = [row for row in rows if options.rows in row.name]
    if not chosen:
        parser.error(f"no row has {options.rows!r} in its name")
    rounds, seconds = (QUICK_ROUNDS, QUICK_SECONDS) if options.quick else (ROUNDS, SECONDS)
    described, neighbours = machine.describe("stable-baselines3", "torch"), machine.Neighbours()
    lines: list[dict[str, Any]] = [{"machine": described}]
    cells = []
    for row in chosen:
        print(f"  {row.name} ...", file=sys.stderr, flush=True)
        samples = _measure(row.workload, row.n, rounds, seconds)
        lines += [{"row": row.name, "contender": name, "samples": values} for name, values in samples.items()]
        cells += [
            _line(row, ask, samples, not options.quick)
            for ask in (Ask(OURS, "times", row.goals, SUBPROC), Ask(OURS, "times", (), DUMMY))
        ]
    described["others"] = neighbours.share()
    if options.json:
        write_json(options.json, lines)
    if options.json != "-":
        asked = table(["workload", "yardstick", "gymshm", "ratio", "asked for", "met"], cells)
        print(f"{machine.sentence(described)}\n\n{asked}")
    return 0


def _measure(workload: str, n: int, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Samples by contender, taken in turn; every other round in reverse, so that none always follows the same one."""
    samples: dict[str, list[float]] = {name: [] for name in _classes()}
    with ExitStack() as stack:
        contenders = {name: stack.enter_context(_contender(make, workload, n)) for name, make in _classes().items()}
        for i in range(rounds):
            for name in samples if i % 2 == 0 else reversed(samples):
                contenders[name].run(min(WARM_UP, seconds))
                samples[name].append(contenders[name].run(seconds))
    return samples


def _classes() -> dict[str, Callable[[Any], Any]]:
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

    from gymshm.integrations.sb3 import ShmVecEnv

    # With the default, a fresh interpreter for each environment of SubprocVecEnv, starting would take minutes.
    return {
        OURS: partial(ShmVecEnv, start_method="fork"),
        SUBPROC: partial(SubprocVecEnv, start_method="fork"),
        DUMMY: DummyVecEnv,
    }


@contextmanager
def _contender(make: Callable[[Any], Any], workload: str, n: int) -> Iterator[Stepper]:
    envs = make(WORKLOADS[workload].env_fns(n))
    try:
        envs.reset()
        yield Stepper(partial(envs.step, np.zeros(n, np.int64)), n, envs.close)
    finally:
        envs.close()


def _line(row: Row, ask: Ask, samples: dict[str, list[float]], judges: bool) -> list[str]:
    judgement = judge(ask, samples, "steps/s", higher_is_better=True, judges=judges)
    texts = (f"{name}: {spread(samples[name]).text('steps/s')}" for name in (ask.yardstick, ask.ours))
    return [row.name, *texts, *judgement]


if __name__ == "__main__":
    sys.exit(main())
