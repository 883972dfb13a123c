"""Many steps with 8 environments: every output checked against a checksum, and nothing that grows.

    python benchmarks/soak.py [--quick] [--steps N]

Memory (PSS of all processes together), descriptors, threads and segments are counted 40 times on the way. They have to
be flat: the median of the last quarter no higher than that of the second one, for memory by more than 1 %. The first
quarter is for what fills once: caches, the allocator's pools. Of memory, what counts is the processes' own pages: see
``leaks.pss``.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from statistics import median

import numpy as np

from gymshm import ShmVectorEnv
from leaks import held, pss
from verdict import Verdict, options
from witness import PLAIN, Witness, checksum, expected

NUM_ENVS, NUM_WORKERS, EPISODE, LOOKS = 8, 2, 1000, 40


def main() -> int:
    """Steps, checks, and counts."""
    chosen = options(__doc__, steps=(40_000, 10_000_000, "steps of environments, 8 in each call"))
    verdict = Verdict(
        "calls of step()", "steps of environments", "calls/s", "own pages, 2nd and last quarter", "PSS", "held"
    )
    env_fns = [functools.partial(Witness, i, EPISODE, told=i % 2 == 0) for i in range(NUM_ENVS)]
    envs = ShmVectorEnv(env_fns, num_workers=NUM_WORKERS)
    who = np.arange(NUM_ENVS)
    envs.reset(seed=0)
    actions = np.random.default_rng(0).integers(PLAIN + 2, 1 << 20, (997, NUM_ENVS))
    time_now = np.zeros(NUM_ENVS, np.int64)
    ended = np.zeros(NUM_ENVS, np.bool_)
    looks = []
    began = time.monotonic()
    calls = max(LOOKS, chosen.steps // NUM_ENVS)
    for step in range(1, calls + 1):
        told = actions[step % len(actions)]
        observations, rewards, terminations, truncations, infos = envs.step(told)
        index, life, t = observations["who"].T
        time_now = np.where(ended, 0, time_now + 1)
        did = np.where(ended, 0, told)
        sums = observations["sum"]
        good = (
            (sums == checksum(who, life, time_now, did)).all()
            and (index == who).all()
            and (t == time_now).all()
            and (observations["action"] == did).all()
            and (observations["fill"] == expected(sums)[:, None]).all()
            and (rewards == time_now).all()
            and (terminations == (time_now == EPISODE)).all()
            and not truncations.any()
            and (ended.any() or (infos["t"][::2] == time_now[::2]).all())
        )
        if not good:
            verdict.expect(False, "step", step, "told", observations["who"], rewards, terminations, truncations, infos)
            time_now = t.copy()
        ended = terminations
        if step % (calls // LOOKS) == 0:
            pids = [os.getpid(), *(process.pid for process in envs.processes)]
            looks.append({**pss(pids), **held()})
    rate = round(calls / (time.monotonic() - began))
    quarter = len(looks) // 4
    middle = {kind: median(look[kind] for look in looks[quarter : 2 * quarter]) for kind in looks[0]}
    end = {kind: median(look[kind] for look in looks[-quarter:]) for kind in looks[0]}
    for kind, before in middle.items():
        if kind == "PSS":
            continue  # told, and not judged
        allowed = 1.01 * before if kind == "own pages" else before
        verdict.expect(end[kind] <= allowed, kind, "grew from", before, "to", end[kind])
    envs.close()
    memory = [f"{middle[kind] / 1e6:.2f} and {end[kind] / 1e6:.2f} MB" for kind in ("own pages", "PSS")]
    counts = ", ".join(f"{int(number)} {kind}" for kind, number in end.items() if kind not in ("PSS", "own pages"))
    verdict.row(calls, calls * NUM_ENVS, rate, *memory, counts)
    return verdict.finish()


if __name__ == "__main__":
    sys.exit(main())
