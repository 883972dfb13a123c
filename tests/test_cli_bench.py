"""``gymshm bench``, and what it shares with ``gymshm tune``: trials in interpreters of their own, in turns."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gymshm import cli
from gymshm.cli import comparison
from gymshm.cli.text import CommandError
from gymshm.cli.trial import Candidate, Sample, TrialError, attempt
from gymshm.cpus import usable_cpus
from support import wait_until

COMMAND = [sys.executable, "-m", "gymshm", "bench"]
QUICK = ["--num-envs", "2", "--seconds", "0.02", "--turns", "2"]
CPUS = f"{usable_cpus()} CPU{'' if usable_cpus() == 1 else 's'}"

#: Environments that misbehave, for interpreters that have nothing but this module's name.
ENVIRONMENTS = """
import os, sys, time
import gymnasium as gym
import numpy as np
from gymnasium import spaces as gs

class Still(gym.Env):
    observation_space, action_space = gs.Box(0, 1, (2,)), gs.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}
    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}

class Loud(Still):
    def step(self, action):
        print("noise"), print("noise", file=sys.stderr)
        return super().step(action)

class Leaver(Still):
    def step(self, action):
        print("last words", file=sys.stderr, flush=True)
        os._exit(5)

class Slow(Still):
    def step(self, action):
        with open(os.environ["SEEN"], "a") as file:
            print(os.getpid(), file=file)
        time.sleep(0.01)
        return super().step(action)

for cls in (Still, Loud, Leaver, Slow):
    gym.register(f"{cls.__name__}-v0", entry_point=cls, disable_env_checker=True)
"""


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that registers the environments above."""
    (tmp_path / "odd_environments.py").write_text(ENVIRONMENTS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "odd_environments"


Rates = dict[str, list[float | str]]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[[Rates], list[str]]:
    """Has trials give these rates, or break off for these reasons; they note which candidate's turn it was."""

    def measured(rates: Rates) -> list[str]:
        turns: list[str] = []

        def attempt(env_id: str, num_envs: int, candidate: Candidate, seconds: float) -> Sample:
            turns.append(str(candidate))
            told = rates[str(candidate)].pop(0)
            if isinstance(told, str):
                raise TrialError(told)
            return Sample(told, told / 1000)

        monkeypatch.setattr(comparison, "attempt", attempt)
        return turns

    return measured


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = cli.main(["bench", *argv])
    said = capsys.readouterr()
    return code, said.out, said.err


# --- the table --------------------------------------------------------------------------------------------------------


def test_median_spread_and_start_stand_side_by_side(measured, capsys):
    turns = measured(
        {"SyncVectorEnv": [900, 1000, 2000], "AsyncVectorEnv": [100, 90, 110.4], "ShmVectorEnv": [2000, 2500, 1e6]}
    )
    assert run(capsys, "Some-v0", "--num-envs", "3", "--turns", "3", "--seconds", "1.5") == (
        0,
        f"""\
Some-v0, 3 environments on {CPUS}; each stepped for 1.5 s in 3 turns

VECTOR ENVIRONMENT  STEPS/S              SPREAD   START
SyncVectorEnv         1,000        900 to 2,000  1.00 s
AsyncVectorEnv          100           90 to 110  0.10 s
ShmVectorEnv          2,500  2,000 to 1,000,000  2.50 s

ShmVectorEnv: 2.5 times SyncVectorEnv, 25.0 times AsyncVectorEnv.
""",
        "",
    )
    names = ["SyncVectorEnv", "AsyncVectorEnv", "ShmVectorEnv"]
    assert turns == [*names, *reversed(names), *names]


def test_who_breaks_off_has_no_numbers_and_no_further_turn(measured, capsys):
    turns = measured({"SyncVectorEnv": [900, 1000], "AsyncVectorEnv": ["it\x1b[2J broke"], "ShmVectorEnv": [1, 1]})
    code, out, err = run(capsys, "Some-v0", "--turns", "2")
    assert (code, err) == (0, "")
    assert re.search(r"^AsyncVectorEnv +-\* +- +-$", out, re.MULTILINE)
    assert r"* AsyncVectorEnv: 'it\x1b[2J broke'" in out.splitlines()
    advice = 'Try num_workers="auto"; `python -m gymshm tune Some-v0` tells what suits it best.'
    assert out.endswith(f"\nShmVectorEnv: 0.0 times SyncVectorEnv.\n{advice}\n")
    assert turns.count("AsyncVectorEnv") == 1


def test_who_breaks_off_later_has_no_numbers_either(measured, capsys):
    measured({"SyncVectorEnv": [900, 1000], "AsyncVectorEnv": [5, 5], "ShmVectorEnv": [1, "gone"]})
    _, out, _ = run(capsys, "Some-v0", "--turns", "2")
    assert out.endswith("\n* ShmVectorEnv: gone\n")


def test_where_all_break_off_there_is_one_line_on_stderr(measured, capsys):
    measured({"SyncVectorEnv": ["first\nreason"], "AsyncVectorEnv": ["second"], "ShmVectorEnv": ["third"]})
    assert run(capsys, "Some-v0") == (1, "", "gymshm bench: can't step Some-v0: first reason\n")


def test_json_has_every_sample(measured, capsys):
    measured({"SyncVectorEnv": [4, 2], "AsyncVectorEnv": ["broken"], "ShmVectorEnv": [8, 9]})
    code, out, err = run(capsys, "Some-v0", "--json", "--turns", "2", "--num-envs", "3")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told == {
        "env_id": "Some-v0",
        "num_envs": 3,
        "cpus": usable_cpus(),
        "seconds": 2.0,
        "results": [
            {
                "candidate": {"cls": "SyncVectorEnv", "options": {}},
                "rates": [4, 2],
                "starts": [0.004, 0.002],
                "rate": 3,
                "problem": None,
            },
            {
                "candidate": {"cls": "AsyncVectorEnv", "options": {}},
                "rates": [],
                "starts": [],
                "rate": None,
                "problem": "broken",
            },
            {
                "candidate": {"cls": "ShmVectorEnv", "options": {}},
                "rates": [8, 9],
                "starts": [0.008, 0.009],
                "rate": 8.5,
                "problem": None,
            },
        ],
    }


@pytest.mark.parametrize(
    ("option", "expected"), [("--num-envs", "a positive integer"), ("--seconds", "a number of seconds above 0")]
)
@pytest.mark.parametrize("text", ["x", "0", "-1"])
def test_an_argument_that_is_no_such_number_is_told_of(option, expected, text, capsys):
    with pytest.raises(SystemExit):
        run(capsys, "A-v0", f"{option}={text}")
    assert capsys.readouterr().err.endswith(f"argument {option}: expected {expected}, got '{text}'\n")


@pytest.mark.parametrize(
    "argv", [(), ("A-v0", "--num-envs", "0"), ("A-v0", "--seconds", "0"), ("A-v0", "--seconds", "inf")]
)
def test_a_wrong_command_line_ends_with_2(argv, capsys):
    with pytest.raises(SystemExit) as end:
        run(capsys, *argv)
    assert end.value.code == 2


# --- trials -----------------------------------------------------------------------------------------------------------


def test_all_three_step_a_real_environment(capsys):
    code, out, err = run(capsys, "CartPole-v1", *QUICK, "--json")
    assert (code, err) == (0, "")
    results = json.loads(out)["results"]
    assert [result["problem"] for result in results] == [None] * 3
    assert [len(result["rates"]) for result in results] == [2] * 3
    assert all(number > 0 for result in results for number in result["rates"] + result["starts"])


@pytest.mark.parametrize("env_id", ["NotThere-v0", "no_such_module:Env-v0"])
def test_no_environment_is_one_line_on_stderr(env_id, capsys):
    code, out, err = run(capsys, env_id, *QUICK)
    assert (code, out) == (1, "")
    assert err.startswith(f"gymshm bench: can't make {env_id}: ")
    assert err.count("\n") == 1


def test_a_module_that_registers_environments_is_imported(odd):
    assert attempt(f"{odd}:Still-v0", 2, Candidate("ShmVectorEnv"), 0.01).rate > 0


def test_turns_and_slots_are_driven_as_they_are_meant(odd):
    for options in ({"num_workers": 1, "batch_size": 2}, {"num_workers": 0, "copy": False, "slots": 3}):
        assert attempt(f"{odd}:Still-v0", 4, Candidate("ShmVectorEnv", options), 0.01).rate > 0


def test_a_rate_counts_every_environment(odd, tmp_path, monkeypatch):
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    for candidate in (Candidate("SyncVectorEnv"), Candidate("ShmVectorEnv", {"num_workers": 3, "batch_size": 2})):
        rate = attempt(f"{odd}:Slow-v0", 3, candidate, 0.2).rate
        assert 0 < rate <= (100 if candidate.cls == "SyncVectorEnv" else 300)


@pytest.mark.parametrize("cls", ["SyncVectorEnv", "ShmVectorEnv"])
def test_an_environment_that_ends_its_process_ends_a_trial_alone(odd, cls):
    with pytest.raises(TrialError) as caught:
        attempt(f"{odd}:Leaver-v0", 2, Candidate(cls), 0.01)
    if cls == "SyncVectorEnv":
        assert str(caught.value) == "ended with code 5: last words"
    else:
        assert re.search(
            r"WorkerDiedError: worker [01] of \d \(environments? [0-9-]+\) died \(exit code 5,", str(caught.value)
        )


def test_arguments_that_the_class_refuses_are_told():
    with pytest.raises(TrialError, match=r"^ValueError: Expected num_workers to be None, .* got -1"):
        attempt("CartPole-v1", 2, Candidate("ShmVectorEnv", {"num_workers": -1}), 0.01)


def test_what_can_t_be_made_is_told_from_what_can_t_be_done():
    with pytest.raises(CommandError, match=r"^can't make NotThere-v0: "):
        attempt("NotThere-v0", 2, Candidate("ShmVectorEnv", {"num_workers": -1}), 0.01)


def test_what_an_environment_prints_does_not_disturb(odd):
    done = subprocess.run([*COMMAND, f"{odd}:Loud-v0", *QUICK], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "noise" not in done.stdout


def test_on_a_terminal_a_bar_shows_whose_turn_it_is(odd):
    ours, theirs = pty.openpty()
    command = [*COMMAND, f"{odd}:Still-v0", *QUICK]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, check=False)
    os.close(theirs)
    bar = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert done.returncode == 0
    names = ["SyncVectorEnv", "AsyncVectorEnv", "ShmVectorEnv"]
    shares = ["[-----", "[#####-----", "[##########-----", "[###############-----", "[####################-----"]
    shown = re.findall(r"\x1b\[2K\r(\[[#-]{30}\]) +\d+ % (\w+)", bar)
    assert [name for _, name in shown] == [*names, *reversed(names)]
    assert all(bar.startswith(share) for (bar, _), share in zip(shown, shares, strict=False))
    assert bar.endswith("\x1b[2K\r")  # nothing is left of it


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -15), (signal.SIGKILL, -9)])
def test_interrupted_it_leaves_nobody_behind(odd, tmp_path, monkeypatch, how, code):
    seen = tmp_path / "seen"
    monkeypatch.setenv("SEEN", str(seen))
    command = [*COMMAND, f"{odd}:Slow-v0", "--seconds", "1000", "--turns", "1000", "--num-envs", "2"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes) as process:
        # Until all three had a turn: processes that started others included.
        wait_until(lambda: seen.exists() and len(set(seen.read_text().split())) >= 4)
        os.killpg(process.pid, how)
        _, stderr = process.communicate(timeout=30)
    assert (process.returncode, stderr) == (code, "")

    def alone() -> bool:
        return not any(Path(f"/proc/{pid}").exists() for pid in set(seen.read_text().split()))

    wait_until(alone)
