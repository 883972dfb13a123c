"""Every array that ``step``, ``reset`` and ``recv`` ever returned with ``copy=True`` keeps its bytes for the whole run.

    python benchmarks/aliasing.py [--quick] [--calls N] [--seed N]

All of them are kept, with a digest of what they held when they were given. At the end each has to have the same one; on
the way the caller overwrites some, which must not show in any other. Workers die and are restarted meanwhile; all three
autoreset modes, with and without shared memory, steps and turns.

Where observations are large, they are lent. There the caller keeps a few at a time, some of them for long, lets go of
others, and each has to have its digest when he does.
"""

from __future__ import annotations

import functools
import hashlib
import os
import random
import signal
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from gymshm import ShmVectorEnv
from verdict import Verdict, options
from witness import PLAIN, Witness

NUM_ENVS, EPISODE = 6, 17

#: Numbers in an observation, where it is to be lent; and how many arrays the caller has at most then.
LARGE, FEW = 4096, 24


def arrays(value: Any) -> Iterator[np.ndarray]:
    """The arrays in a result, at any depth."""
    if isinstance(value, np.ndarray):
        yield value
        if value.dtype == object:
            for item in value.ravel():
                yield from arrays(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from arrays(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from arrays(item)


def digest(array: np.ndarray) -> bytes:
    """Of what it holds; of an array of objects, of which ones."""
    held = repr([id(item) for item in array.ravel()]).encode() if array.dtype == object else array.tobytes()
    return hashlib.blake2b(held, digest_size=8).digest()


def trial(verdict: Verdict, mode: str, shared_memory: bool, way: str, calls: int, seed: int) -> None:
    """One run that keeps everything."""
    chance = random.Random(seed)
    lends = way == "steps, lent"
    fill: dict[str, Any] = {"fill": LARGE} if lends else {}
    deadly: dict[str, Any] = {} if lends else {"on_worker_death": "restart", "max_restarts": 1 << 30}
    envs = ShmVectorEnv(
        [functools.partial(Witness, i, EPISODE, told=True, **fill) for i in range(NUM_ENVS)],
        autoreset_mode=mode,
        shared_memory=shared_memory,
        num_workers=2,
        batch_size=NUM_ENVS // 2 if shared_memory else None,
        **deadly,
    )
    what = f"{mode}, shared_memory={shared_memory}, {way}:"
    kept: list[tuple[np.ndarray, bytes]] = []
    overwritten = deaths = seen = changed = 0

    def keep(result: Any) -> None:
        nonlocal overwritten, seen, changed
        while lends and len(kept) > FEW:
            # Mostly the latest, so that some stay for long.
            array, before = kept.pop(max(chance.randrange(len(kept)) for _ in range(2)))
            changed += digest(array) != before
        given = list(arrays(result))
        seen += len(given)
        kept.extend((array, digest(array)) for array in given)
        if chance.random() < 0.1:
            for array in given:
                if array.dtype != object and array.flags.writeable and array.size:
                    array[...] = 1
                    overwritten += 1
            kept[-len(given) :] = [(array, digest(array)) for array in given]

    def ended(result: Any) -> np.ndarray:
        return (result[2] | result[3]).copy()

    if way == "turns":
        envs.async_reset(seed=seed)
    else:
        keep(envs.reset(seed=seed))
    for _ in range(calls):
        actions = np.array([chance.randrange(PLAIN + 2, 1 << 20) for _ in range(NUM_ENVS)])
        if deadly and chance.random() < 0.003:
            deaths += 1
            os.kill(envs.processes[chance.randrange(2)].pid, signal.SIGKILL)
        if way != "turns":
            result = envs.step(actions)
            done = ended(result)
            keep(result)
            del result  # or it would be one more that the caller has
            if mode == "Disabled" and done.any():
                keep(envs.reset(options={"reset_mask": done}))
            elif chance.random() < 0.01:
                keep(envs.reset())
        else:
            result = envs.recv(timeout=60)
            ids = result[4]["env_id"].copy()
            keep(result)
            envs.send(actions[: len(ids)], ids)
    envs.close()
    changed += sum(digest(array) != before for array, before in kept)
    verdict.expect(changed == 0, what, changed, "arrays changed")
    verdict.row(mode, "yes" if shared_memory else "no", way, calls, deaths, seen, overwritten, changed)


def main() -> int:
    """Trials of every kind."""
    chosen = options(__doc__, calls=(100, 5_000, "calls of step or recv, in each trial"))
    columns = ("autoreset", "shared memory", "in", "calls", "deaths", "arrays", "overwritten", "changed")
    verdict = Verdict(*columns)
    for number, mode in enumerate(("NextStep", "SameStep", "Disabled")):
        for shared_memory, way in ((True, "steps"), (False, "steps"), (True, "turns"), (True, "steps, lent")):
            if mode == "Disabled" and way in ("turns", "steps, lent"):
                continue  # who ended is reset by a call for all; and there nothing is lent
            trial(verdict, mode, shared_memory, way, chosen.calls, chosen.seed + number)
    return verdict.finish()


if __name__ == "__main__":
    sys.exit(main())
