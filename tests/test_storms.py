"""The short form of each script in ``benchmarks`` that looks for violations."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

SCRIPTS = ["storm_kill", "storm_lifecycle", "storm_headers", "soak", "torn_reads", "full_shm", "aliasing"]


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_short_form_finds_no_violation(script):
    done = run(script, "--quick")
    assert (done.returncode, done.stderr) == (0, ""), f"{done.stdout}\n{done.stderr}"
    assert "\n0 violations" in done.stdout or done.stdout.startswith("skipped")


def test_violations_are_told_counted_and_the_exit_code():
    code = """
from verdict import Verdict
verdict = Verdict("a", "b")
assert verdict.expect(True, "nothing")
assert not verdict.expect(0, "what", 3, "was")
verdict.row("x", 12345)
raise SystemExit(verdict.finish())
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "violation: what 3 was\n"
    assert "| x | 12 345 |" in done.stdout
    assert "\n1 violations" in done.stdout


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    # No faulthandler: some workers are meant to crash, and would say so.
    command = [sys.executable, str(BENCHMARKS / f"{script}.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
