"""``gymshm tune``: what it measures, whom it advises, and that what it says to write works."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import gymnasium as gym
import pytest

from gymshm import ShmVectorEnv, cli
from gymshm.cli import comparison, tune
from gymshm.cli.trial import Candidate, Sample, TrialError
from gymshm.cpus import usable_cpus

CPUS = f"{usable_cpus()} CPU{'' if usable_cpus() == 1 else 's'}"

#: How a combination is named in these tests: (workers, slots, batch).
Combination = tuple[int, int, int]


def combination(candidate: Candidate, n: int) -> Combination:
    options = candidate.options
    assert options.get("copy", True) is (options.get("slots", 1) == 1)
    return options["num_workers"], options.get("slots", 1), options.get("batch_size", n)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Combination], float]], list[Combination]]:
    """Has trials give the rates that a function tells of a combination; they note whose turn it was."""

    def measured(rate: Callable[[Combination], float]) -> list[Combination]:
        turns: list[Combination] = []

        def attempt(env_id: str, num_envs: int, candidate: Candidate, seconds: float) -> Sample:
            turns.append(combination(candidate, num_envs))
            if not (told := rate(turns[-1])):
                raise TrialError("broke off")
            return Sample(told, 0.25)

        monkeypatch.setattr(comparison, "attempt", attempt)
        return turns

    return measured


@pytest.fixture
def four_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "usable_cpus", lambda: 4)


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = cli.main(["tune", *argv])
    said = capsys.readouterr()
    return code, said.out, said.err


# --- what is measured -------------------------------------------------------------------------------------------------


def test_every_combination_that_can_be_is_measured_the_plainest_first(four_cpus, measured, capsys):
    turns = measured(lambda told: 1.0)
    assert run(capsys, "Some-v0", "--turns", "1")[0] == 0
    steps = [(workers, slots, 8) for slots in (1, 8) for workers in (0, 1, 2, 4)]
    assert turns == [*steps, *((workers, 1, batch) for batch in (4, 2) for workers in (1, 2, 4))]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("--num-envs", "1"), {(0, 1, 1), (1, 1, 1), (0, 8, 1), (1, 8, 1)}),
        (("--workers", "3", "--slots", "2,1,2", "--batch-size", "8"), {(3, 1, 8), (3, 2, 8)}),
        (("--workers", "0,2", "--batch-size", "3"), {(2, 1, 3)}),
        (("--num-envs", "2", "--workers", "9,2", "--slots", "1", "--batch-size", "2"), {(2, 1, 2)}),
    ],
)
def test_lists_say_what_is_measured(four_cpus, measured, capsys, argv, expected):
    turns = measured(lambda told: 1.0)
    assert run(capsys, "Some-v0", "--turns", "1", *argv)[0] == 0
    assert sorted(turns) == sorted(expected)


@pytest.mark.parametrize(("cpus", "workers"), [(1, [0, 1]), (2, [0, 1, 2]), (6, [0, 1, 2, 4, 6]), (8, [0, 1, 2, 4, 8])])
def test_workers_double_up_to_the_cpus(monkeypatch, measured, capsys, cpus, workers):
    monkeypatch.setattr(tune, "usable_cpus", lambda: cpus)
    turns = measured(lambda told: 1.0)
    run(capsys, "Some-v0", "--turns", "1", "--slots", "1", "--batch-size", "8")
    assert [number for number, _, _ in turns] == workers


def test_who_is_far_behind_has_one_turn_only(measured, capsys):
    rates = {0: 100.0, 1: 71.0, 2: 69.0}
    turns = measured(lambda told: rates[told[0]])
    run(capsys, "Some-v0", "--turns", "4", "--workers", "0,1,2", "--slots", "1", "--batch-size", "8")
    assert [turns.count((workers, 1, 8)) for workers in (0, 1, 2)] == [4, 4, 1]


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (("--batch-size", "9"), "a batch of 9 is more than 8 environments"),
        (("--batch-size", "4", "--slots", "8"), "nothing to measure: batches below 8 environments need --slots 1"),
        (("--batch-size", "4", "--workers", "0"), "nothing to measure: batches below 8 environments need --slots 1"),
    ],
)
def test_what_can_t_be_is_one_line_on_stderr(capsys, argv, text):
    code, out, err = run(capsys, "Some-v0", *argv)
    assert (code, out) == (2, "")
    assert err.startswith(f"gymshm tune: {text}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("argv", [("--workers", "-1"), ("--slots", "0"), ("--slots", "1,"), ("--batch-size", "x")])
def test_a_wrong_command_line_ends_with_2(capsys, argv):
    with pytest.raises(SystemExit) as end:
        run(capsys, "Some-v0", *argv)
    assert end.value.code == 2
    least = 0 if argv[0] == "--workers" else 1
    told = f"argument {argv[0]}: expected integers from {least} up, with commas, got '{argv[1]}'\n"
    assert capsys.readouterr().err.endswith(told)


# --- what is advised --------------------------------------------------------------------------------------------------


def advised(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, object]:
    code, out, err = run(capsys, "Some-v0", "--turns", "2", "--workers", "0,1,2", "--json", *argv)
    assert (code, err) == (0, "")
    told: dict[str, object] = json.loads(out)["advised"]
    return told


def test_the_fastest_is_advised(measured, capsys):
    measured(lambda told: {(2, 8, 8): 100.0}.get(told, 94.0))
    assert advised(capsys) == {"num_workers": 2, "copy": False, "slots": 8}
    measured(lambda told: {(2, 1, 4): 100.0}.get(told, 94.0))
    assert advised(capsys) == {"num_workers": 2, "batch_size": 4}


def test_of_those_that_are_as_good_the_plainest_is_advised(measured, capsys):
    measured(lambda told: {(2, 8, 8): 100.0, (1, 1, 8): 96.0}.get(told, 94.0))
    assert advised(capsys) == {"num_workers": 1}


def test_who_had_one_turn_only_or_broke_off_is_not_advised(measured, capsys):
    falling = iter([100.0, 10.0])
    measured(lambda told: {(0, 1, 8): 60.0, (1, 1, 8): 0.0}.get(told) if told[0] < 2 else next(falling))
    assert advised(capsys, "--slots", "1", "--batch-size", "8") == {"num_workers": 2}


def test_the_table_tells_each_combination_and_what_to_write(measured, capsys):
    measured(lambda told: {(0, 1, 4): 1000.0, (2, 1, 4): 2000.0, (2, 2, 4): 4000.0, (2, 1, 2): 0.0}.get(told, 500.0))
    argv = ("--num-envs", "4", "--workers", "0,2", "--slots", "1,2", "--batch-size", "4,2", "--turns", "1")
    assert run(capsys, "Some-v0", *argv) == (
        0,
        f"""\
Some-v0, 4 environments on {CPUS}; each stepped for 2 s in 1 turn

WORKERS  SLOTS  BATCH  STEPS/S          SPREAD   START
0            1      4    1,000  1,000 to 1,000  0.25 s
2            1      4    2,000  2,000 to 2,000  0.25 s
0            2      4      500      500 to 500  0.25 s
2            2      4    4,000  4,000 to 4,000  0.25 s
2            1      2       -*               -       -
* ShmVectorEnv, num_workers=2, batch_size=2: broke off

The plainest of those within 5% of the best. To have it, write

    envs = ShmVectorEnv([lambda: gym.make("Some-v0")] * 4, num_workers=2, copy=False, slots=2)

What `step` returns are views then, valid for 1 further step.
""",
        "",
    )


def test_what_it_says_to_write_works(capsys):
    argv = (
        "--num-envs",
        "2",
        "--workers",
        "1",
        "--slots",
        "1",
        "--batch-size",
        "1",
        "--seconds",
        "0.02",
        "--turns",
        "1",
    )
    code, out, err = run(capsys, "CartPole-v1", *argv)
    assert (code, err) == (0, "")
    (line,) = re.findall(r"^    (envs = .*)$", out, re.MULTILINE)
    assert line == 'envs = ShmVectorEnv([lambda: gym.make("CartPole-v1")] * 2, num_workers=1, batch_size=1)'
    names = {"ShmVectorEnv": ShmVectorEnv, "gym": gym}
    exec(line, names)
    envs = names["envs"]
    assert '`envs.async_reset()`, `envs.recv()` and `envs.send(actions, infos["env_id"])`' in out
    envs.async_reset()
    infos = envs.recv()[4]
    assert len(infos["env_id"]) == 1
    envs.close()
