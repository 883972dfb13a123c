"""What several test files need: comparing values, waiting with a deadline, and child interpreters."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces as gs
from gymnasium.vector import SyncVectorEnv

from gymshm.compat import AutoresetMode

#: The version of gymnasium, as in ``(1, 4)``.
GYMNASIUM = tuple(int(part) for part in gymnasium.__version__.split(".")[:2])


def needs_gymnasium(version: str, why: str) -> pytest.MarkDecorator:
    """Skips a test under older versions of gymnasium than ``version``, as in ``"1.4"``; ``why`` says what they lack."""
    wanted = tuple(int(part) for part in version.split("."))
    return pytest.mark.skipif(wanted > GYMNASIUM, reason=f"needs gymnasium {version}: {why}")


def sync_vector_env(env_fns: Any, autoreset_mode: Any = "NextStep", **options: Any) -> SyncVectorEnv:
    """Gymnasium's, in that mode; skips the test where this version knows no modes."""
    if GYMNASIUM >= (1, 1):
        return SyncVectorEnv(env_fns, autoreset_mode=autoreset_mode, **options)
    if AutoresetMode(autoreset_mode) is not AutoresetMode.NEXT_STEP:
        pytest.skip("needs gymnasium 1.1: SyncVectorEnv has no modes")
    envs = SyncVectorEnv(env_fns, **options)
    envs.metadata = {**envs.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}  # as later ones have it
    return envs


def crooked(array: np.ndarray) -> np.ndarray:
    """The values of ``array`` at an address that is no multiple of their size."""
    moved = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype)
    moved[...] = array
    return moved


def same(left: Any, right: Any) -> bool:
    """Whether two values, or batches, are the same: nesting, order of keys, dtype with byte order, shape, every bit."""
    if isinstance(left, dict) and isinstance(right, dict):
        keys = zip(left, right, strict=False)
        return (
            len(left) == len(right)
            and all(a is b or a == b for a, b in keys)
            and all(map(same, left.values(), right.values()))
        )
    if isinstance(left, tuple) or isinstance(right, tuple):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, str) or isinstance(right, str):
        return type(left) is type(right) and left == right
    if isinstance(left, np.generic) or isinstance(right, np.generic):  # whose byte order is the machine's
        left, right = (item.astype(item.dtype.newbyteorder("=")) for item in (np.asarray(left), np.asarray(right)))
    left, right = np.asarray(left), np.asarray(right)
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if left.dtype.kind != "f":
        return bool((left == right).all())
    return np.array_equal(left, right, equal_nan=True) and np.array_equal(np.signbit(left), np.signbit(right))


def row(space: gs.Space[Any], batch: Any, i: int) -> Any:
    """Environment ``i``'s value out of a batch of ``space``."""
    if isinstance(space, gs.Dict):
        return {key: row(child, batch[key], i) for key, child in space.spaces.items()}
    if isinstance(space, gs.Tuple):
        return tuple(row(child, part, i) for child, part in zip(space.spaces, batch, strict=True))
    return batch[i, ...] if isinstance(batch, np.ndarray) else batch[i]


#: The environment of a child that imports what tests share; what this process was told to import stays ahead of others.
CHILD_ENV = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(filter(None, [os.path.dirname(__file__), os.environ.get("PYTHONPATH")])),
}


def own(name: str) -> str:
    """``name`` for a segment, made one that no other run of the tests uses."""
    return f"{name}-{os.getpid()}"


def wait_until(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    """The first true result of ``condition()``; an AssertionError where none comes within ``seconds``."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} seconds: {condition}"
        time.sleep(0.005)
    return result


def run_python(code: str, *arguments: str, timeout: float = 60.0, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs ``code`` in an interpreter of its own, which shows a traceback where it crashes; options of ``run``."""
    command = [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, **options)


def check_python(code: str, *arguments: str, **options: Any) -> str:
    """Runs ``code`` likewise; it has to end well and in silence. Returns what it printed on stdout."""
    done = run_python(code, *arguments, **options)
    assert (done.returncode, done.stderr) == (0, ""), f"exit code {done.returncode}, stderr:\n{done.stderr}"
    return done.stdout


@contextlib.contextmanager
def running_python(code: str, *arguments: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """An interpreter that runs ``code`` beside the test, with pipes; it is killed where it does not end by itself."""
    command = [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code), *arguments]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, **{**pipes, **options}) as process:
        try:
            yield process
        finally:
            process.kill()


def run_isolated(
    code: str, *arguments: str, shm: str = "1m", tmp: tuple[Path, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Runs ``code`` as :func:`run_python` does, with a ``/dev/shm`` of its own, of the size ``shm``.

    Args:
        code: What to run.
        *arguments: Its arguments.
        shm: The size, as ``mount`` takes it.
        tmp: A directory, and the size that it gets as the temporary directory.
        **options: Of ``subprocess.run``.
    """
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs the permission to mount, in a mount namespace of its own")
    env = dict(CHILD_ENV)
    mounts = f"mount -t tmpfs -o size={shm} tmpfs /dev/shm"
    if tmp is not None:
        env["TMPDIR"] = str(tmp[0])
        mounts += f" && mount -t tmpfs -o size={tmp[1]} tmpfs {env['TMPDIR']}"
    python = [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code), *arguments]
    command = ["unshare", "-m", "sh", "-ec", f'{mounts} && exec "$@"', "sh", *python]
    options = {"env": env, "timeout": 60.0, **options}
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)
