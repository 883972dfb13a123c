"""One trial: a vector environment of somebody's environment, stepped for a while in an interpreter of its own.

So it starts as a training script would, whatever was measured before; what crashes there, or writes to the terminal,
does so there; and nothing is left of it. As a program (``python -m gymshm.cli.trial``, for :func:`attempt` alone) this
module is the other side. It ends when who asked does.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import IO, Any

import gymnasium as gym
from gymnasium.vector.utils import batch_space

from .text import CommandError

__all__ = ["Candidate", "Sample", "TrialError", "attempt"]

#: Seconds that are stepped before it counts, for the first steps are slower; and between two looks at the clock, about.
_WARM_UP, _CHUNK_SECONDS = 0.1, 1e-3

#: Different batches of random actions; they come over and over again.
_BATCHES = 32

#: Seconds between two looks whether the interpreter still lives, and that it is given to end by itself.
_LOOK_SECONDS, _PATIENCE = 0.05, 15.0


@dataclass(frozen=True)
class Candidate:
    """A vector environment to be measured.

    Attributes:
        cls: ``"ShmVectorEnv"``, or one of gymnasium's classes.
        options: Arguments of its constructor. One that has a ``batch_size`` is driven by ``send`` and ``recv``.
    """

    cls: str
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """The class, and the arguments."""
        return ", ".join([self.cls, *(f"{name}={value!r}" for name, value in self.options.items())])


@dataclass(frozen=True)
class Sample:
    """What a trial gave.

    Attributes:
        rate: Environment steps per second.
        start: Seconds from the constructor's call to the end of the first reset.
    """

    rate: float
    start: float


class TrialError(Exception):
    """This candidate can't do it; the text says why."""


def attempt(env_id: str, num_envs: int, candidate: Candidate, seconds: float) -> Sample:
    """Makes the vector environment, and steps it for ``seconds`` with random actions.

    Args:
        env_id: The environment, as ``gymnasium.make`` takes it.
        num_envs: Number of environments.
        candidate: The vector environment.
        seconds: How long to step it.

    Raises:
        TrialError: It broke off.
        CommandError: The environment can't be made at all.
    """
    connection, theirs = Pipe()
    asked = json.dumps([theirs.fileno(), env_id, num_envs, candidate.cls, candidate.options, seconds])
    with tempfile.TemporaryFile("w+", errors="replace") as said, connection:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, asked],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # a terminal's Ctrl-C is for who asked
        )
        try:
            theirs.close()
            answer = _answer(connection, process, said)
        except BaseException:
            process.terminate()  # whatever it started ends with it
            raise
        finally:
            connection.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE)
            process.kill()
            process.wait()
    if "rate" in answer:
        return Sample(answer["rate"], answer["start"])
    raise CommandError(answer["no_env"]) if "no_env" in answer else TrialError(answer["problem"])


def _answer(connection: Connection, process: subprocess.Popen[bytes], said: IO[str]) -> dict[str, Any]:
    # Not the connection alone: processes that it started may hold it open.
    while not connection.poll(_LOOK_SECONDS):
        if process.poll() is not None and not connection.poll():
            break
    try:
        answer: dict[str, Any] = json.loads(connection.recv_bytes())
    except (EOFError, OSError):
        said.seek(0)
        lines = [line.strip() for line in said if line.strip()]
        return {"problem": f"ended with code {process.wait()}" + (f": {lines[-1]}" if lines else "")}
    return answer


# --- in the interpreter of its own ------------------------------------------------------------------------------------


def _main(fd: int, env_id: str, num_envs: int, cls: str, options: dict[str, Any], seconds: float) -> None:
    connection = Connection(fd)
    make = partial(gym.make, env_id)
    try:
        start = time.perf_counter()
        envs = _class(cls)([make] * num_envs, **options)
        try:
            step = _turns(envs, options["batch_size"]) if "batch_size" in options else _steps(envs)
            started = time.perf_counter() - start
            threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
            chunk = max(1, int(_rate(step, 1, _WARM_UP) * _CHUNK_SECONDS))
            rate = _rate(step, chunk, seconds) * options.get("batch_size", num_envs)
        finally:
            envs.close()
        answer: dict[str, Any] = {"rate": rate, "start": started}
    except Exception as error:  # it is anybody's code
        answer = {"problem": f"{type(error).__name__}: {error}"}
        try:
            make().close()
        except Exception as cause:
            answer = {"no_env": f"can't make {env_id}: {cause}"}
    with contextlib.suppress(OSError):
        connection.send_bytes(json.dumps(answer).encode())


def _class(name: str) -> Any:
    if name == "ShmVectorEnv":
        from ..vector_env import ShmVectorEnv

        return ShmVectorEnv
    return getattr(gym.vector, name)


def _steps(envs: Any) -> Callable[[], object]:
    """Resets ``envs``; gives a function that makes one step of all."""
    envs.reset(seed=0)
    batches = _batches(envs.action_space)
    return lambda: envs.step(next(batches))


def _turns(envs: Any, batch_size: int) -> Callable[[], object]:
    """Resets ``envs``; gives a function that receives one batch and sends the next."""
    envs.async_reset(seed=0)
    batches = _batches(batch_space(envs.single_action_space, batch_size))
    envs.send(next(batches), envs.recv()[4]["env_id"])
    return lambda: envs.send(next(batches), envs.recv()[4]["env_id"])


def _batches(space: gym.Space[Any]) -> itertools.cycle[Any]:
    space.seed(0)
    return itertools.cycle([space.sample() for _ in range(_BATCHES)])


def _rate(step: Callable[[], object], chunk: int, seconds: float) -> float:
    """Calls per second, the clock being looked at after each ``chunk`` of calls."""
    calls, start = 0, time.perf_counter()
    now = start
    while now < start + seconds:
        for _ in itertools.repeat(None, chunk):
            step()
        calls += chunk
        now = time.perf_counter()
    return calls / (now - start)


def _end_with(connection: Connection) -> None:
    """Ends this process when who asked is gone, or wants no answer any more."""
    with contextlib.suppress(EOFError, OSError):
        connection.recv_bytes()
    os._exit(1)


if __name__ == "__main__":
    _main(*json.loads(sys.argv[1]))
