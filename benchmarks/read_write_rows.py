"""The rows of ``bench_read_write.py``: which statements are timed against each other, and what is asked of them.

Every row that reads or writes checks first that gymnasium's and our memory end with the same values.
"""

from __future__ import annotations

import json
import subprocess
import sys
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium.vector.utils as theirs
import numpy as np
from gymnasium import spaces as gs
from gymnasium.utils.env_checker import data_equivalence

import gymshm
from asks import Ask

__all__ = ["Row", "Work", "rows"]

#: Seconds that one sample of a repeated statement takes at least.
_SAMPLE_SECONDS = 1e-3

_INDEX = 3


@dataclass(frozen=True)
class Work:
    """What one contender does in a row; ``sample()`` measures it once."""

    name: str
    sample: Callable[[], float]


@dataclass(frozen=True)
class Row:
    """Work that is measured side by side. ``unit`` is "s" or, for what is counted, empty."""

    name: str
    works: list[Work]
    asks: list[Ask]
    unit: str = "s"
    rounds: int | None = None


def rows() -> list[Row]:
    """All of them, in the order in which they are printed."""
    observation = gs.Dict(
        image=gs.Box(0, 255, (64, 64, 3), np.uint8),
        vector=gs.Box(-np.inf, np.inf, (32,), np.float32),
        speed=gs.Discrete(5),
    )
    tree = gs.Dict(
        arm=gs.Tuple([gs.Box(-1, 1, (3,), np.float32), gs.Discrete(4), gs.MultiBinary(6)]),
        base=gs.Dict(
            position=gs.Box(-1, 1, (2,), np.float64), speed=gs.Box(-1, 1, (), np.float32), gear=gs.Discrete(6)
        ),
        goal=gs.Tuple([gs.MultiDiscrete([3, 4]), gs.Dict(near=gs.Discrete(2), at=gs.Box(-1, 1, (3,), np.float32))]),
        time=gs.Box(0, np.inf, (1,), np.float32),
    )
    vector, image = gs.Box(-np.inf, np.inf, (4,), np.float32), gs.Box(0, 255, (84, 84, 4), np.uint8)
    return [
        _write("write, Dict of image (64, 64, 3), vector (32,), discrete", observation, faster=8, bound_faster=20),
        _write("write, Box (4,) float32", vector, faster=10),
        _write("write, Box (84, 84, 4) uint8", image, within_copy=1.3),
        _write("write, nested Dict/Tuple of ten small leaves", tree, faster=8, bound_faster=20),
        _read("read, Dict of three, n = 64", observation, 64, faster=5),
        _read("read, Text(32), n = 64", gs.Text(32), 64, faster=20),
        *_create("create, Dict of ten leaves, n = 1024"),
        *_attach("attach, 100-leaf plan"),
    ]


def _write(
    name: str, space: gs.Space[Any], *, faster: float = 0, bound_faster: float = 0, within_copy: float = 0
) -> Row:
    n = 8
    space.seed(1)
    value = space.sample()
    memory, foreign = gymshm.create_shared_memory(space, n), theirs.create_shared_memory(space, n)
    bound_memory = gymshm.create_shared_memory(space, n)
    names = {"space": space, "value": value, "index": _INDEX}
    statement = "write(space, index, value, memory)"
    works = [
        _repeated("gymnasium", statement, {**names, "write": theirs.write_to_shared_memory, "memory": foreign}),
        _repeated("gymshm", statement, {**names, "write": gymshm.write_to_shared_memory, "memory": memory}),
        _repeated(
            "gymshm, bound", "write(value)", {"write": gymshm.row_writer(space, bound_memory, _INDEX), "value": value}
        ),
    ]
    expected = theirs.read_from_shared_memory(space, foreign, n)
    for ours in (memory, bound_memory):
        assert data_equivalence(theirs.read_from_shared_memory(space, ours, n), expected), name
    asks = [
        Ask("gymshm", "times", (faster,) if faster else (), "gymnasium"),
        Ask("gymshm, bound", "times", (bound_faster,) if bound_faster else (), "gymnasium"),
    ]
    if within_copy:
        row = np.empty(value.shape, value.dtype)
        works.append(_repeated("np.copyto", "copyto(row, value)", {"copyto": np.copyto, "row": row, "value": value}))
        asks += [Ask(ours, "within", (within_copy,), "np.copyto") for ours in ("gymshm", "gymshm, bound")]
    return Row(name, works, asks)


def _read(name: str, space: gs.Space[Any], n: int, *, faster: float) -> Row:
    memory, foreign = gymshm.create_shared_memory(space, n), theirs.create_shared_memory(space, n)
    space.seed(1)
    for index in range(n):
        value = space.sample()
        gymshm.write_to_shared_memory(space, index, value, memory)
        theirs.write_to_shared_memory(space, index, value, foreign)
    expected = theirs.read_from_shared_memory(space, foreign, n)
    assert data_equivalence(gymshm.read_from_shared_memory(space, memory, n), expected), name
    statement, names = "read(space, memory, n)", {"space": space, "n": n}
    return Row(
        name,
        [
            _repeated("gymnasium", statement, {**names, "read": theirs.read_from_shared_memory, "memory": foreign}),
            _repeated("gymshm", statement, {**names, "read": gymshm.read_from_shared_memory, "memory": memory}),
        ],
        [Ask("gymshm", "times", (faster,), "gymnasium")],
    )


_CREATE = """
import os
from gymnasium import spaces as gs
from {module} import create_shared_memory
def held():
    with open("/proc/self/maps") as maps:
        mappings = sum(line.split()[4] != "0" for line in maps)
    return len(os.listdir("/proc/self/fd")), mappings
space = gs.Dict({{f"leaf{{i}}": gs.Box(-1, 1, (16,), "float32") for i in range(10)}})
created = create_shared_memory(gs.Box(-1, 1, (16,), "float32"), 1024)  # helpers that a process starts once
before = held()
start = perf_counter()
memory = create_shared_memory(space, 1024)
seconds = perf_counter() - start
after = held()
print(json.dumps({{"seconds": seconds, "descriptors": after[0] - before[0], "mappings": after[1] - before[1]}}))
"""


def _create(name: str) -> list[Row]:
    def works(metric: str) -> list[Work]:
        return [
            _fresh("gymnasium", _CREATE.format(module="gymnasium.vector.utils"), metric),
            _fresh("gymshm", _CREATE.format(module="gymshm"), metric),
        ]

    space = gs.Dict({f"leaf{i}": gs.Box(-1, 1, (16,), np.float32) for i in range(10)})
    again = [
        _repeated("gymnasium", "create(space, 1024)", {"create": theirs.create_shared_memory, "space": space}),
        _repeated("gymshm", "create(space, 1024)", {"create": gymshm.create_shared_memory, "space": space}),
    ]
    asks = [Ask("gymshm", "times", (1,), "gymnasium")]
    return [
        Row(f"{name}, first in a process", works("seconds"), asks, rounds=15),
        Row(f"{name}, again", again, asks, rounds=51),
        Row(f"{name}: descriptors", works("descriptors"), [Ask("gymshm", "at most", (1,))], "", rounds=1),
        Row(f"{name}: mappings", works("mappings"), [Ask("gymshm", "at most", (1,))], "", rounds=1),
    ]


_ATTACH = """
import gymshm
start = perf_counter()
attachment = gymshm.attach({name!r})
print(json.dumps({{"seconds": perf_counter() - start}}))
"""


def _attach(name: str) -> list[Row]:
    space = gs.Dict({f"leaf{i}": gs.Box(-1, 1, (4,), np.float32) for i in range(100)})
    memory = gymshm.create_shared_memory(space, 8)
    segment = gymshm.segment_of(memory).name
    again = {"attach": gymshm.attach, "name": segment, "memory": memory}
    return [
        Row(
            f"{name}, first in a process",
            [_fresh("gymshm", _ATTACH.format(name=segment), "seconds")],
            [Ask("gymshm", "at most", (1e-3,))],
            rounds=15,
        ),
        Row(
            f"{name}, again",
            [_repeated("gymshm", "attach(name)", again)],
            [Ask("gymshm", "at most", (1e-3,))],
            rounds=51,
        ),
    ]


def _repeated(name: str, statement: str, names: dict[str, Any]) -> Work:
    """Work that is timed in a loop, in this process; runs it once, so that what it does stands."""
    timer = timeit.Timer(statement, globals=names)
    number = 1
    while timer.timeit(number) < _SAMPLE_SECONDS:
        number *= 2
    return Work(name, lambda: timer.timeit(number) / number)


def _fresh(name: str, script: str, metric: str) -> Work:
    """Work that counts only the first time: ``script`` prints its figures as JSON, in an interpreter of its own."""

    def sample() -> float:
        text = subprocess.run(
            [sys.executable, "-c", f"import json\nfrom time import perf_counter\n{script}"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        return float(json.loads(text)[metric])

    return Work(name, sample)
