"""Workers die and hang at random moments under ``on_worker_death="restart"``; nobody else may notice.

    python benchmarks/storm_kill.py [--quick] [--kills N] [--seed N]

A thread sends SIGKILL, SIGSEGV and SIGSTOP to workers that it picks by chance, whatever they are at; some actions make
an environment end its process by ``os._exit``. Each step, and each turn, has to come back within its bound; what it
gives has to be in its space and to agree with itself and with a model of every environment: who lost a step, and where
everybody else is. Afterwards nothing may be left.
"""

from __future__ import annotations

import functools
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from gymshm import ShmVectorEnv
from leaks import held, settled
from verdict import Verdict, options
from witness import EXIT, SPACE, Witness, checksum, expected

NUM_ENVS, NUM_WORKERS, EPISODE = 8, 4, 60

#: Seconds. A step may take its limit, what asking a stopped worker for its stack takes, and starts of new workers, some
#: of which are stopped as well.
STEP_TIMEOUT, BOUND = 1.0, 60.0
START_TIMEOUTS = {"fork": 4.0, "spawn": 20.0, "forkserver": 15.0}

#: Seconds from one death to the next, at most; a start of an interpreter takes longer than a fork.
PAUSES = {"fork": 0.25, "spawn": 3.0, "forkserver": 1.0}

SIGNALS = [signal.SIGKILL] * 7 + [signal.SIGSEGV] * 2 + [signal.SIGSTOP]


class Model:
    """Where each environment has to be."""

    def __init__(self, verdict: Verdict, envs: ShmVectorEnv) -> None:
        self.lost = 0
        self.slowest = 0.0
        self._verdict, self._envs = verdict, envs
        self._time = np.full(NUM_ENVS, -1)  # before its first reset
        self._life = np.zeros(NUM_ENVS, np.int64)
        self._ended = np.zeros(NUM_ENVS, np.bool_)
        #: Steps that the environments of today have made.
        self.steps = np.zeros(NUM_ENVS, np.int64)

    def take(self, result: Any, actions: np.ndarray, ids: np.ndarray, began: float, where: str) -> None:
        """Checks what a step or a turn gave to the environments ``ids``."""
        expect, took = self._verdict.expect, time.monotonic() - began
        self.slowest = max(self.slowest, took)
        expect(took < BOUND, where, "took", took, "s")
        observations, rewards, terminations, truncations, infos = result
        restarted = infos.get("worker_restarted", np.zeros(len(ids), np.bool_))
        for row, env in enumerate(ids.tolist()):
            one = {key: part[row] for key, part in observations.items()}
            index, life, t = one["who"].tolist()
            place = f"{where}, environment {env}:"
            inside = SPACE.contains({**one, "sum": np.asarray(one["sum"])})
            expect(inside, place, "not in its space:", one)
            expect(one["sum"] == checksum(index, life, t, one["action"]), place, "wrong sum:", one)
            expect((one["fill"] == expected(one["sum"])).all(), place, "torn:", one)
            expect(index == env, place, "shows environment", index)
            before, same_life = self._time[env], life == self._life[env]
            told = (t, bool(truncations[row]), bool(terminations[row]), float(rewards[row]))
            if restarted[row] and before >= 0:
                self.lost += 1
                expect(told == (before, True, False, 0.0) and same_life, place, "lost at", before, "told", told)
                self.steps[env] = 0
            elif before < 0 or self._ended[env]:
                expect(told == (0, False, False, 0.0) and not same_life, place, "reset, told", told)
            else:
                due = (before + 1, False, before + 1 >= EPISODE, before + 1.0)
                expect(told == due and same_life, place, "told", told, "expected", due)
                expect(one["action"] == actions[row], place, "did", one["action"], "was told", actions[row])
                self.steps[env] += 1
            self._time[env], self._life[env] = t, life
            self._ended[env] = terminations[row] or truncations[row]

    def begin(self, observations: Any) -> None:
        """Takes what a reset gave."""
        self._time[:], self._life[:] = observations["who"][:, 2], observations["who"][:, 1]
        self._ended[:] = False


class Killer(threading.Thread):
    """Ends workers, one at a time, at moments that chance decides."""

    def __init__(self, envs: ShmVectorEnv, kills: int, pause: float, seed: int) -> None:
        super().__init__(daemon=True)
        self.sent: dict[str, int] = {}
        self.error: BaseException | None = None
        self._envs, self._kills, self._pause, self._random = envs, kills, pause, random.Random(seed)

    def run(self) -> None:
        """Until it has had its kills."""
        try:
            for _ in range(self._kills):
                time.sleep(self._random.uniform(0, self._pause))
                self._strike(self._random.choice(SIGNALS))
        except BaseException as error:
            self.error = error

    def _strike(self, number: signal.Signals) -> None:
        while True:
            process = self._random.choice(self._envs.processes)
            try:
                descriptor = os.pidfd_open(process.pid)
            except ProcessLookupError:
                continue
            try:
                # Who is a zombie already can't be killed any more: that would be no death.
                if process in self._envs.processes and _lives(process.pid):
                    signal.pidfd_send_signal(descriptor, number)
                    self.sent[number.name] = self.sent.get(number.name, 0) + 1
                    return
            except ProcessLookupError:
                pass
            finally:
                os.close(descriptor)
            time.sleep(0.001)


def _lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "RSD"
    except OSError:
        return False


@contextmanager
def vector_env(context: str) -> Iterator[ShmVectorEnv]:
    """The vector environment that the storm rages in."""
    envs = ShmVectorEnv(
        [functools.partial(Witness, i, EPISODE, told=i % 2 == 1) for i in range(NUM_ENVS)],
        context=context,
        num_workers=NUM_WORKERS,
        batch_size=NUM_ENVS // 2,
        on_worker_death="restart",
        max_restarts=1 << 30,
        step_timeout=STEP_TIMEOUT,
        start_timeout=START_TIMEOUTS[context],
    )
    try:
        yield envs
    finally:
        envs.close()


def storm(verdict: Verdict, context: str, way: str, kills: int, seed: int) -> None:
    """One storm, in steps or in turns."""
    chance = np.random.default_rng(seed)
    with vector_env(context) as envs:
        model = Model(verdict, envs)
        killer = Killer(envs, kills, PAUSES[context], seed)
        steps = exits = 0
        everybody = np.arange(NUM_ENVS)
        actions = np.zeros(NUM_ENVS, np.int64)
        if way == "steps":
            model.begin(envs.reset(seed=seed)[0])
        else:
            envs.async_reset(seed=seed)
        killer.start()
        while killer.is_alive():
            steps += 1
            chosen = chance.integers(EXIT + 1, 1 << 20, NUM_ENVS)
            exits_now = chance.random() < 0.0003
            if exits_now:
                chosen[chance.integers(NUM_ENVS)] = EXIT
                exits += 1
            began = time.monotonic()
            if way == "steps":
                actions = chosen
                model.take(envs.step(actions), actions, everybody, began, f"{context} {way}, step {steps}")
            else:
                result = envs.recv(timeout=BOUND)
                ids = result[4]["env_id"]
                model.take(result, actions[ids], ids, began, f"{context} {way}, turn {steps}")
                actions[ids] = chosen[ids]
                envs.send(actions[ids], ids)
        while envs._in_turns:
            result = envs.recv(timeout=BOUND)
            ids = result[4]["env_id"]
            model.take(result, actions[ids], ids, time.monotonic(), f"{context} {way}, at the end")
        if killer.error is not None:
            raise killer.error
        # A last step tells of those that were lost since; then the counters of everybody are known.
        for _ in range(2):
            actions = chance.integers(EXIT + 1, 1 << 20, NUM_ENVS)
            began = time.monotonic()
            model.take(envs.step(actions), actions, everybody, began, f"{context} {way}, last step")
        counted = envs.get_attr("steps")
        verdict.expect(counted == tuple(model.steps.tolist()), context, way, "counters", counted, model.steps)
        hung = sum("start_timeout" in text for _, _, text in envs._crew._deaths._recent)
        stopped = killer.sent.get("SIGSTOP", 0)
        verdict.expect(hung <= stopped, context, way, hung, "starts hung, and only", stopped, "were stopped")
        sent = ", ".join(f"{number} {name}" for name, number in sorted(killer.sent.items()))
        restarts = sum(envs._crew.restarts)
        cells = [context, way, steps, f"{sent}, {exits} os._exit", restarts, model.lost, f"{model.slowest:.2f} s"]
    verdict.row(*cells)


def main() -> int:
    """Storms of every kind."""
    chosen = options(__doc__, kills=(40, 1000, "deaths in all, besides those by os._exit"))
    verdict = Verdict("start method", "in", "calls", "deaths", "restarts", "lost steps", "slowest call")
    shares = {("fork", "steps"): 0.45, ("fork", "turns"): 0.35}
    if not chosen.quick:
        for context in ("spawn", "forkserver"):
            shares[context, "steps"] = shares[context, "turns"] = 0.05
    with vector_env("fork"):
        pass  # starts what stays for good
    before = held()
    for i, ((context, way), share) in enumerate(shares.items()):
        storm(verdict, context, way, max(1, round(chosen.kills * share)), chosen.seed + i)
        if context == "fork":
            verdict.expect((left := settled(held, before)) == before, context, way, "held", before, "then", left)
    left = {kind: number for kind, number in held().items() if kind in ("threads", "segments")}
    verdict.expect(left == {kind: before[kind] for kind in left}, "held", before, "then", left)
    return verdict.finish()


if __name__ == "__main__":
    sys.exit(main())
