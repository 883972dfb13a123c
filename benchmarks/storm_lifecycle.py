"""Parents create or construct, use, and end in ways that chance decides; nothing may be left of any of them.

    python benchmarks/storm_lifecycle.py [--quick] [--rounds N] [--seed N] [--python PATH ...]

Each round is a process of its own, in a session of its own, that makes memory or a vector environment under some start
method, uses it, and closes it, drops it, raises an exception, exits, or is sent SIGTERM or SIGKILL at some moment. Then
no process of its session may be there (zombies included), none of its segments, and nothing on its stderr but the
exception. Who lives on after closing or dropping counts its own descriptors, threads and children, too.

One thing is counted apart: a parent that is killed between starting an interpreter and telling it what to do leaves
that with nothing to read, and it says so in multiprocessing's words, before any code of ours runs there.
"""

from __future__ import annotations

import argparse
import functools
import gc
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

from leaks import held, segments_of, session, settled
from verdict import Verdict, options

CONTEXTS = ["fork", "spawn", "forkserver"]
KINDS = ["memory", "vector", "vector", "restarting", "turns"]
ENDS = ["close", "drop", "exception", "exit", "os._exit", "SIGTERM", "SIGKILL"]

#: What an interpreter says whose parent was killed before telling it what to do.
UNTOLD = re.compile(
    r"Traceback \(most recent call last\):\n(  .*\n)+?"
    r"    preparation_data = reduction\.pickle\.load\(from_parent\)\n( +\^+\n)?EOFError: Ran out of input\n"
)

#: The last line that an end leaves on stderr.
SAYS = {"exception": "RuntimeError: on purpose"}
CODES = {"exception": 1, "exit": 3, "os._exit": 4, "SIGTERM": -signal.SIGTERM, "SIGKILL": -signal.SIGKILL}


def one_round(context: str, kind: str, end: str, seed: int) -> None:
    """What a round's process does."""
    chance = random.Random(seed)
    if end in ("SIGTERM", "SIGKILL"):
        number = getattr(signal, end)
        # From a thread: so it comes at any moment, that of construction included.
        after = chance.choice([0.0, 0.01, 0.05, 0.2, 1.0]) * chance.random()
        threading.Thread(target=_strike, args=(number, after), daemon=True).start()
    before = None
    for _ in range(2 if end in ("close", "drop") else 1):
        made = _make(context, kind, chance)
        if end == "exception":
            raise RuntimeError("on purpose")
        if end == "exit":
            sys.exit(3)
        if end == "os._exit":
            os._exit(4)
        if end == "close" and hasattr(made, "close"):
            made.close()
        del made
        gc.collect()
        if end in ("close", "drop"):
            # The first time starts what stays for good: a tracker, a fork server.
            if before is not None and (left := settled(held, before)) != before:
                print(f"held {before}, then {left}", file=sys.stderr)
            before = held()
    if end in ("SIGTERM", "SIGKILL"):
        _kept = _make(context, kind, chance)
        while True:
            time.sleep(1.0)


def _strike(number: int, after: float) -> None:
    time.sleep(after)
    os.kill(os.getpid(), number)


def _make(context: str, kind: str, chance: random.Random) -> Any:
    """Something, used."""
    import numpy as np

    import gymshm
    from witness import SPACE, Witness

    if kind == "memory":
        memory = gymshm.create_shared_memory(SPACE, n=3)
        gymshm.write_to_shared_memory(SPACE, 1, Witness(1).reset(seed=0)[0], memory)
        with gymshm.attach(gymshm.segment_of(memory).name) as attached:
            assert attached.read()["who"][1, 0] == 1
        return memory
    more: dict[str, Any] = {"on_worker_death": "restart", "step_timeout": 60.0} if kind == "restarting" else {}
    n = 2
    envs = gymshm.ShmVectorEnv(
        [functools.partial(Witness, i) for i in range(n)],
        context=context,
        num_workers=2 if context == "fork" else 1,
        **more,
    )
    if kind == "turns":
        envs.async_reset(seed=0)
        envs.recv()
        envs.send(np.full(n, 9), np.arange(n))
    else:
        envs.reset(seed=0)
        for _ in range(3):
            envs.step(np.full(n, 9))
        if kind == "restarting":
            os.kill(envs.processes[0].pid, signal.SIGKILL)
            envs.step(np.full(n, 9))
        if chance.random() < 0.3:
            envs.step_async(np.full(n, 9))  # which nobody waits for
            if chance.random() < 0.5:
                envs.step_wait()
    return envs


#: Where gymnasium says that a call was pending, which is no complaint here.
QUIET = ["-W", "ignore::UserWarning"]


def look(verdict: Verdict, python: str, context: str, kind: str, end: str, seed: int) -> int:
    """Runs a round in a process of its own, and looks at what is left; how many interpreters were left untold."""
    with tempfile.TemporaryFile("w+") as stderr:
        command = [python, *QUIET, "-X", "faulthandler", __file__, "--round", context, kind, end, str(seed)]
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=stderr, start_new_session=True)
        try:
            code = child.wait(120)
        except subprocess.TimeoutExpired:
            child.kill()
            code = child.wait()
            verdict.expect(False, _told(python, context, kind, end, seed), "did not end")
        where = _told(python, context, kind, end, seed)
        left: Callable[[], list[int]] = functools.partial(session, child.pid)
        verdict.expect(not settled(left, []), where, "left processes", left())
        verdict.expect(not settled(lambda: segments_of([child.pid]), []), where, "left", segments_of([child.pid]))
        stderr.seek(0)
        said, untold = stderr.read(), 0
        if context == "spawn" and end in ("SIGTERM", "SIGKILL"):
            said, untold = UNTOLD.subn("", said)
        verdict.expect(code == CODES.get(end, 0), where, "ended with", code)
        verdict.expect((said.splitlines() or [""])[-1] == SAYS.get(end, ""), where, "said", said)
        verdict.expect(said.count("Traceback") == (end in SAYS), where, "said", said)
        for pid in left():
            os.kill(pid, signal.SIGKILL)
    return untold


def _told(python: str, context: str, kind: str, end: str, seed: int) -> str:
    return f"{python} {context} {kind} {end} (seed {seed}):"


def main() -> int:
    """Rounds under each start method and each interpreter."""
    if sys.argv[1:2] == ["--round"]:
        context, kind, end, seed = sys.argv[2:]
        one_round(context, kind, end, int(seed))
        return 0
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--python", nargs="*", default=[sys.executable])
    interpreters, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    text = f"{__doc__}\n--python PATH ...: interpreters, each with gymshm installed; this one unless told.\n"
    chosen = options(text, rounds=(3, 1000, "rounds for each start method and interpreter"))
    verdict = Verdict("Python", "start method", "rounds", "ends", "untold")
    for python in interpreters.python:
        code = "import platform; print(platform.python_version())"
        version = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        for number, context in enumerate(CONTEXTS):
            chance = random.Random(f"{chosen.seed} {context}")
            counts: dict[str, int] = dict.fromkeys(ENDS, 0)
            untold = 0
            for i in range(chosen.rounds):
                end = ENDS[(chosen.seed + number * chosen.rounds + i) % len(ENDS)]
                counts[end] += 1
                untold += look(verdict, python, context, chance.choice(KINDS), end, chance.randrange(1 << 30))
            ends = ", ".join(f"{count} {end}" for end, count in counts.items() if count)
            verdict.row(version, context, chosen.rounds, ends, untold)
    return verdict.finish()


if __name__ == "__main__":
    sys.exit(main())
