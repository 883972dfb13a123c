from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gymshm
from gymshm import cli
from support import CHILD_ENV, run_python, wait_until

SHM = Path("/dev/shm")
COMMAND = [sys.executable, "-m", "gymshm"]


def names_of(pid: int) -> list[str]:
    return [name for name in os.listdir(SHM) if name.startswith(f"gymshm-{pid}-")]


def test_demo_steps_environments_that_know_the_name_and_sums_up():
    done = subprocess.run(
        [*COMMAND, "demo", "--num-envs", "2", "--steps", "300"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")  # no bar, since stderr is no terminal
    assert re.search(r"^600 steps in \d+\.\d\d s: [\d,]+ steps/s", done.stdout, re.MULTILINE)
    assert re.search(r"^values\['observation'\]  float32  \(2, 4\)  \[.*\d.*\]$", done.stdout, re.MULTILINE)
    assert re.search(r"^values\['steps'\] +int64 +\(2,\) +300$", done.stdout, re.MULTILINE)


def test_demo_draws_a_bar_on_a_terminal():
    ours, theirs = pty.openpty()
    command = [*COMMAND, "demo", "Blackjack-v1", "--num-envs", "1", "--steps", "100"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, check=False)
    os.close(theirs)
    bar = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert done.returncode == 0
    assert re.search(r"\r\[#{30}\] 100 % +[\d,]+ steps/s \r?\n$", bar)


@pytest.mark.parametrize("env_id", ["NotThere-v0", "no_such_module:Env-v0", "a b c"])
def test_demo_of_no_environment_is_one_line_on_stderr(env_id, capsys):
    code = cli.main(["demo", env_id])
    out, err = capsys.readouterr()
    assert (code, out) == (1, "")
    assert err.startswith(f"gymshm demo: can't make {env_id}: ")
    assert err.count("\n") == 1


def test_demo_tells_of_an_environment_that_fails():
    done = run_python(
        """
        import sys
        from gymshm.cli import main
        if __name__ == "__main__":
            sys.exit(main(["demo", "child_tasks:Failing-v0", "--num-envs", "2", "--steps", "100"]))
        """,
        env=CHILD_ENV,
    )
    assert done.returncode == 1
    assert re.search(r"^gymshm demo: environment [01] ended with exit code 1$", done.stderr, re.MULTILINE)
    assert "on purpose" in done.stderr  # its own traceback


@pytest.mark.parametrize(("signal_", "returncode"), [(signal.SIGINT, 130), (signal.SIGTERM, -15), (signal.SIGKILL, -9)])
def test_demo_that_is_interrupted_leaves_nothing(signal_, returncode):
    command = [*COMMAND, "demo", "--num-envs", "2", "--steps", "1000000000"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes) as process:
        (name,) = wait_until(lambda: names_of(process.pid))
        arrays = gymshm.attach(name, read_only=True).arrays
        wait_until(lambda: (arrays["steps"] > 10).all())
        if signal_ == signal.SIGINT:
            os.killpg(process.pid, signal_)  # as a terminal does
        else:
            process.send_signal(signal_)
        _, stderr = process.communicate(timeout=30)
    assert (process.returncode, stderr) == (returncode, "")
    assert names_of(process.pid) == []

    def alone() -> bool:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return True
        return False

    wait_until(alone)
