"""What child processes do in tests: functions that every start method can import."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces as gs

import gymshm
from environments import Clock

SPACE = gs.Dict({"numbers": gs.Box(-100, 100, (3,), np.float32), "word": gs.Text(5)})

#: What stays until the process ends.
kept: list[Any] = []


def value(k: int) -> dict[str, Any]:
    """A value of ``SPACE`` that tells ``k``."""
    return {"numbers": np.full(3, k, np.float32), "word": f"w{k}"}


def attach_and_write(name: str, index: int) -> None:
    """Attaches by name, writes one row, and ends without closing anything."""
    attachment = gymshm.attach(name)
    kept.append(attachment)
    attachment.write(index, value(index))


def write_row(memory: Any, index: int) -> None:
    """Writes one row of memory that came as an argument."""
    kept.append(memory)
    gymshm.write_to_shared_memory(SPACE, index, value(index), memory)


def write_received(channel: Any, index: int) -> None:
    """Writes one row of memory that comes out of a pipe or queue."""
    write_row(channel.recv() if hasattr(channel, "recv") else channel.get(), index)


def unlink_by_name(name: str) -> None:
    """Removes the name of a segment that another process made."""
    with gymshm.attach(name) as attachment:
        attachment.segment.unlink()


def create_and_end(connection: Any, how: str) -> None:
    """Creates a segment, tells its name, and ends."""
    memory = gymshm.create_shared_memory(SPACE, n=2)
    kept.append(memory)
    connection.send(gymshm.segment_of(memory).name)
    if how == "exit":
        sys.exit(3)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


ORPHANS = """
import os, signal, sys, warnings
import gymshm, numpy as np
from gymnasium.spaces import Box
from gymshm import tracker
warnings.simplefilter("ignore")
made = [gymshm.create_shared_memory(Box(0, 1, (int(sys.argv[2]),), np.uint8), n=2) for _ in range(int(sys.argv[1]))]
print(*[gymshm.segment_of(memory).name for memory in made], flush=True)
os.kill(tracker._tracker._pid, signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"""


def orphans(count: int, nbytes: int = 1000) -> list[str]:
    """The names of ``count`` segments whose creator was killed together with its tracker."""
    command = [sys.executable, "-c", ORPHANS, str(count), str(nbytes)]
    names = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout.split()
    assert len(names) == count
    return names


def plain(batch: Any) -> Any:
    """A batch as JSON has it."""
    if isinstance(batch, dict):
        return {key: plain(part) for key, part in batch.items()}
    return [plain(part) for part in batch] if isinstance(batch, tuple) else getattr(batch, "tolist", lambda: batch)()


# --- an environment with everything in its observations ---------------------------------------------------------------

NESTED = gs.Dict(
    {
        "camera": gs.Dict({"image": gs.Box(0, 255, (8, 8, 3), np.uint8), "on": gs.Discrete(2)}),
        "speed": gs.Box(-1000, 1000, (4,), np.float64),
        "sign": gs.Text(8, charset="t0123456789"),  # a set's order is another one in each process, before gymnasium 1.4
        "gear": gs.Tuple((gs.Discrete(5, start=-1), gs.MultiBinary(3))),
    }
)


def nested(t: int) -> dict[str, Any]:
    """The observation of step ``t``."""
    return {
        "camera": {"image": np.full((8, 8, 3), t % 256, np.uint8), "on": np.int64(t % 2)},
        "speed": np.full(4, t / 4, np.float64),
        "sign": f"t{t}",
        "gear": (np.int64(t % 5 - 1), np.full(3, t % 2, np.int8)),
    }


def make(env_id: str) -> gym.Env[Any, Any]:
    """The environment of that id, where "nested" is the one above."""
    if env_id == "nested":
        return Clock(observation_space=NESTED, observe=nested, episode=7)
    return gym.make(env_id)


class Failing(Clock):
    """A clock that stops."""

    def step(self, action: Any) -> Any:
        if self.t == 5:
            raise RuntimeError("on purpose")
        return super().step(action)


gym.register("Failing-v0", entry_point="child_tasks:Failing", disable_env_checker=True)
