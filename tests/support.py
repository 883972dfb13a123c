"""What several test files need: child interpreters, and waiting on a condition with a deadline."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from typing import Any


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
