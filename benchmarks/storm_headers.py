"""Headers that were changed and signed anew: each is refused with the one exception there is for that, or harmless.

    python benchmarks/storm_headers.py [--quick] [--headers N] [--seed N]

Child interpreters, whose crashes ``faulthandler`` shows, change good segments (bytes of the header, and whatever its
JSON says), give each the digest that it has to have, and attach to it by name. What is not refused is used in every
way: arrays, space, batch, snapshots. The forging is that of the tests.
"""

from __future__ import annotations

import collections
import contextlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from verdict import Verdict, options

CHUNK = 5_000


def child(first: int, count: int) -> None:
    """Tries ``count`` headers; prints how many were refused, and what else was raised."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    import forgery
    from gymshm import SegmentFormatError, attach, segment

    segment._READY_PATIENCE = 0.0  # else each that says "not ready" takes a second
    name = f"gymshm-{os.getpid()}-forged"
    outcomes: collections.Counter[str] = collections.Counter()
    originals = forgery.ALL_GOOD
    for number in range(first, first + count):
        chance = random.Random(number)
        raw = _forged(forgery, chance.choice(originals), chance)
        with open(f"/dev/shm/{name}", "wb") as file:
            os.chmod(file.fileno(), 0o600)
            file.write(raw)
        try:
            with attach(name, read_only=True) as attached:
                _use(attached)
            outcomes["harmless"] += 1
        except SegmentFormatError:
            outcomes["refused"] += 1
        except BaseException as error:
            outcomes[f"{type(error).__name__} at number {number}: {error}"] += 1
    os.unlink(f"/dev/shm/{name}")
    for outcome, times in outcomes.items():
        print(times, outcome, flush=True)


def _use(attached: Any) -> None:
    assert attached.arrays is not None
    repr(attached)
    repr(attached.space)
    attached.read()
    for index in range(min(attached.n, 3)):
        with contextlib.suppress(ValueError, TimeoutError):  # who tells of no writes, and whose writes never end
            attached.snapshot(index, timeout=0.0)


def _forged(forgery: Any, original: bytes, chance: random.Random) -> bytes:
    """A segment that says something else, or has other bytes, and is signed."""
    told = forgery.told_by(original)
    way = chance.random()
    if way < 0.2:
        raw = bytearray(original)
        size = forgery.parsed(original).data_offset
        for _ in range(chance.randint(1, 8)):
            raw[chance.randrange(size)] = chance.randrange(256)
        return bytes(raw)  # not signed: the digest is what refuses most of these
    if way < 0.3:
        text = bytearray(forgery.json.dumps(told).encode())
        for _ in range(chance.randint(1, 4)):
            text[chance.randrange(len(text))] = chance.choice(b'0123456789{}[]",:-eE.\\ \x00\xff')
        return forgery.signed(bytes(text), len(original))
    for _ in range(chance.randint(1, 3)):
        paths = [path for path in forgery.places(told) if path]
        told = forgery.changed(told, chance.choice(paths), _odd(chance, told, paths))
        if not isinstance(told, dict) or not told:
            break
    nbytes = forgery.parsed(original).layout.nbytes
    forms = list(forgery.consistent(told, nbytes))
    told, nbytes = chance.choice(forms)
    return forgery.signed(told, nbytes)


def _odd(chance: random.Random, told: Any, paths: list[Any]) -> Any:
    """What may stand where something sensible is expected; also what stands elsewhere in the same header."""
    if chance.random() < 0.25:
        value = told
        for key in chance.choice(paths):
            value = value[key]
        return value
    numbers = [-1, 0, 1, 2, 3, 63, 64, 255, 2**31, 2**62, 2**63 - 1, 2**63, 2**64, 10**30]
    texts = ["", "a", "\0", "array", "branch", "union", "coded", "foreign", "|O", "<f8", "|u1", ">i8", "Box", "Text"]
    others = [
        ...,
        None,
        True,
        False,
        0.5,
        float("nan"),
        float("inf"),
        [],
        {},
        [[]],
        [0],
        [1, 2],
        [2**40],
        {"kind": "array"},
    ]
    return chance.choice(chance.choice([numbers, texts, others]))


def main() -> int:
    """As many headers as are asked for, in as many child interpreters as that takes."""
    if sys.argv[1:2] == ["--child"]:
        child(int(sys.argv[2]), int(sys.argv[3]))
        return 0
    chosen = options(__doc__, headers=(1_000, 100_000, "headers in all"))
    verdict = Verdict("headers", "interpreters", "refused", "harmless", "headers/s")
    outcomes: collections.Counter[str] = collections.Counter()
    began, children = time.monotonic(), 0
    for first in range(0, chosen.headers, CHUNK):
        children += 1
        start = chosen.seed * 10**9 + first
        count = min(CHUNK, chosen.headers - first)
        command = [sys.executable, "-X", "faulthandler", __file__, "--child", str(start), str(count)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        verdict.expect(done.returncode == 0 and not done.stderr, f"exit code {done.returncode}, stderr:\n{done.stderr}")
        for line in done.stdout.splitlines():
            times, _, outcome = line.partition(" ")
            outcomes[outcome] += int(times)
    known = {"refused", "harmless"}
    for outcome in sorted(outcomes.keys() - known):
        verdict.expect(False, outcome)
    verdict.expect(outcomes["refused"] and outcomes["harmless"], "the forging forges nothing of one kind:", outcomes)
    verdict.expect(sum(outcomes.values()) == chosen.headers, sum(outcomes.values()), "headers were tried")
    rate = round(chosen.headers / (time.monotonic() - began))
    verdict.row(chosen.headers, children, outcomes["refused"], outcomes["harmless"], rate)
    return verdict.finish()


if __name__ == "__main__":
    sys.exit(main())
