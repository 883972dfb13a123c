"""An environment that dies, hangs or fails as its action says, which any start method can import."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces as gs

import gymshm
from environments import Clock

LIVE, KILL, SEGV, EXIT, STOP, HANG, HOLD = range(7)

#: What an action does to the process.
FATES: dict[int, Callable[[], Any]] = {
    LIVE: lambda: None,
    KILL: lambda: os.kill(os.getpid(), signal.SIGKILL),
    # Not with pytest's handler, which would dump what all threads are at.
    SEGV: lambda: (signal.signal(signal.SIGSEGV, signal.SIG_DFL), os.kill(os.getpid(), signal.SIGSEGV)),
    EXIT: lambda: os._exit(3),
    STOP: lambda: os.kill(os.getpid(), signal.SIGSTOP),
    HANG: lambda: time.sleep(600),
    HOLD: lambda: sum(range(1 << 60)),  # in C, with the interpreter's lock
}


class Mortal(Clock):
    """A clock whose actions are fates.

    Args:
        build: Called when it is made.
        options: As for a clock.
    """

    def __init__(self, build: Callable[[], Any] = lambda: None, **options: Any) -> None:
        super().__init__(**{"act": meet, "action_space": gs.Discrete(len(FATES)), **options})
        build()

    def die_once(self, mark: str) -> int:
        """Dies, unless somebody who was given the same mark has."""
        once(mark, FATES[KILL])
        return self.t

    def draw(self) -> float:
        """A number that its seed decides."""
        return float(self.np_random.random())


def meet(env: Clock, action: Any) -> None:
    """Meets the fate ``action``."""
    FATES[int(action)]()


def once(mark: str | Path, do: Callable[[], Any]) -> None:
    """Does it the first time only."""
    try:
        Path(mark).touch(exist_ok=False)
    except FileExistsError:
        return
    do()


def count(path: str | Path) -> int:
    """How often this was called with that path, with this time."""
    with open(path, "ab") as file:
        file.write(b"x")
        return file.tell()


def fail_from(path: Any, first: int, last: int, how: Any) -> Any:
    """An ``env_fn`` that does ``how`` at its calls from number ``first`` to ``last``."""

    def make() -> Mortal:
        if first <= count(path) <= last:
            how()
        return Mortal()

    return make


def mortals(
    n: int = 4, *, env: dict[str, Any] | None = None, fns: list[Callable[[], Any]] | None = None, **options: Any
) -> gymshm.ShmVectorEnv:
    """``n`` mortals in two workers that are restarted; ``env`` are options of theirs, ``fns`` what makes them."""
    made = fns or [lambda: Mortal(**(env or {}))] * n
    return gymshm.ShmVectorEnv(made, **{"num_workers": 2, "on_worker_death": "restart", **options})


def fates(n: int, **of: int) -> np.ndarray:
    """A batch of actions: ``env1=KILL`` kills environment 1, and the others live."""
    actions = np.zeros(n, np.int64)
    for name, fate in of.items():
        actions[int(name.removeprefix("env"))] = fate
    return actions


def descriptors() -> Iterator[str]:
    """What this process has open."""
    for entry in os.listdir("/proc/self/fd"):
        try:
            yield os.readlink(f"/proc/self/fd/{entry}").partition(":")[0]
        except FileNotFoundError:
            continue
