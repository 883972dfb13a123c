"""The types from a user's side: mypy, strict, on files that use the public names."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="mypy is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["public", "register", "sb3"])
def test_a_users_file_passes_mypy_strict(name: str) -> None:
    if name == "sb3" and find_spec("stable_baselines3") is None:
        pytest.skip("Stable-Baselines3 is not installed: the extra sb3")
    path = Path(__file__).parent / "typing" / f"{name}.py"
    done = subprocess.run(
        # Without our own configuration, which users don't have.
        [sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull, str(path)],
        cwd=path.parents[2],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("Success: no issues found in 1 source file\n", 0)
