"""``gymshm watch``: what it reads, how it lays that out, and that it comes, looks and goes without a trace."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces as gs

import gymshm
from environments import Clock, clock_envs, zeros
from gymshm import cli
from gymshm.cli.onlooker import Onlooker
from gymshm.cli.pace import Pace
from gymshm.cli.panel import Panel, spark
from gymshm.cli.pictures import as_blocks, as_png
from support import running_python, wait_until

COMMAND = [sys.executable, "-m", "gymshm", "watch"]
SPACE = gs.Dict(
    [
        ("image", gs.Box(0, 255, (6, 6), np.uint8)),
        ("pair", gs.Box(-np.inf, np.inf, (2,), np.float64)),
        ("grid", gs.MultiDiscrete([[9, 9], [9, 9]])),
        ("many", gs.Box(-np.inf, np.inf, (10,), np.float32)),
        ("word", gs.Text(5)),
    ]
)


def value(t: int) -> dict[str, Any]:
    return {
        "image": np.full((6, 6), t, np.uint8),
        "pair": np.array([t, t / 2]),
        "grid": np.array([[0, 1], [2, t]]),
        "many": np.arange(10, dtype=np.float32) + t,
        "word": f"w{t}",
    }


def values_memory(n: int, **options: Any) -> Any:
    """Memory of ``SPACE`` in which environment i shows ``value(i)``."""
    memory = gymshm.create_shared_memory(SPACE, n=n, **options)
    for index in range(n):
        gymshm.write_to_shared_memory(SPACE, index, value(index), memory)
    return memory


def told(onlooker: Onlooker) -> dict[str, list[Any]]:
    read = {quantity.path: quantity.values() for quantity in onlooker.quantities}
    return {path: list(values) if isinstance(values, tuple) else values.tolist() for path, values in read.items()}


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = cli.main(["watch", *argv])
    said = capsys.readouterr()
    return code, said.out, said.err


# --- what it reads ----------------------------------------------------------------------------------------------------


def test_few_numbers_are_told_one_by_one_and_many_as_their_mean():
    memory = values_memory(3)
    onlooker = Onlooker(gymshm.segment_of(memory))
    assert told(onlooker) == {
        "values['pair'][0]": [0, 1, 2],
        "values['pair'][1]": [0, 0.5, 1],
        "values['grid'][0, 0]": [0, 0, 0],
        "values['grid'][0, 1]": [1, 1, 1],
        "values['grid'][1, 0]": [2, 2, 2],
        "values['grid'][1, 1]": [0, 1, 2],
        "values['many'], mean of 10": [4.5, 5.5, 6.5],
        "values['word']": ["w0", "w1", "w2"],
    }
    (album,) = onlooker.albums
    assert album.path == "values['image']"
    assert [album.picture(index).tolist() for index in range(3)] == [[[index] * 6] * 6 for index in range(3)]


def test_a_mean_of_very_many_takes_some_of_them():
    space = gs.Box(-np.inf, np.inf, (100_000,), np.float32)
    memory = gymshm.create_shared_memory(space, n=1)
    memory.view[:] = np.linspace(0, 2, 100_000)
    ((path, (mean,)),) = told(Onlooker(gymshm.segment_of(memory))).items()
    assert path == "values, mean of 100000"
    assert mean == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("num_workers", [0, 1, 2])
@pytest.mark.parametrize("slots", [1, 3])
def test_of_a_vector_environment_the_current_slot_is_read(num_workers, slots):
    envs = clock_envs(
        2, num_workers=num_workers, slots=slots, copy=False, observation_space=SPACE, observe=value, episode=5
    )
    onlooker = Onlooker(gymshm.attach(envs.segment_name, read_only=True).segment)
    envs.reset()
    for t in range(1, 5):
        envs.step(np.array([t, 0]))
        seen = told(onlooker)
        assert seen["observations['pair'][0]"] == [t, t]
        assert seen["observations['word']"] == [f"w{t}"] * 2
        assert seen["actions"] == [t, 0]
        assert seen["rewards"] == [t, t]
        assert (seen["terminations"], seen["truncations"]) == ([0, 0], [0, 0])
        (album,) = onlooker.albums
        assert album.picture(1).tolist() == [[t] * 6] * 6
    envs.step(zeros(2))
    assert told(onlooker)["terminations"] == [1, 1]
    envs.close()
    # What the two sides keep for themselves is nobody's business.
    assert {path.partition("[")[0].partition(",")[0] for path in seen} == {
        *("observations", "actions", "rewards", "terminations", "truncations")
    }


def test_final_observations_are_read_too():
    envs = clock_envs(2, autoreset_mode="SameStep", episode=3)
    onlooker = Onlooker(gymshm.attach(envs.segment_name, read_only=True).segment)
    envs.reset()
    for _ in range(3):
        envs.step(zeros(2))
    seen = told(onlooker)
    assert seen["observations[0]"] == [0, 0]
    assert seen["final_observations[0]"] == [3, 3]
    envs.close()


def test_a_picture_is_never_half_of_one_step_and_half_of_another():
    big = gs.Box(0, 255, (200, 200), np.uint8)
    envs = clock_envs(
        1, observation_space=big, observe=lambda t: np.full((200, 200), t % 256, np.uint8), slots=2, copy=False
    )
    (album,) = Onlooker(gymshm.attach(envs.segment_name, read_only=True).segment).albums
    envs.reset()
    for t in range(1, 200):
        envs.step_async(zeros(1))
        picture = album.picture(0)
        assert picture.min() == picture.max()
        envs.step_wait()
        assert album.picture(0).tolist()[0] == [t % 256] * 200
    envs.close()


# --- how fast it goes -------------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that a pace goes by, in seconds: a list of one."""
    now = [100.0]
    monkeypatch.setattr("gymshm.cli.pace.monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize("num_workers", [0, 2])
def test_steps_of_all_environments_count(clock, num_workers):
    envs = clock_envs(3, num_workers=num_workers)
    pace = Pace(gymshm.attach(envs.segment_name, read_only=True).segment)
    envs.reset()
    pace.look()
    assert str(pace) == "- steps/s"
    for _ in range(10):
        envs.step(zeros(3))
    clock[0] += 2
    pace.look()
    assert (str(pace), pace.is_estimate) == ("15 steps/s", False)
    clock[0] += 0.5
    pace.look()
    assert pace.per_second == 12  # 30 in 2.5 seconds
    clock[0] += 100
    pace.look()
    assert str(pace) == "0.0 steps/s"
    envs.close()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_turns_count_one_by_one(clock, num_workers):
    envs = gymshm.ShmVectorEnv([Clock] * 4, num_workers=num_workers, batch_size=2)
    pace = Pace(gymshm.attach(envs.segment_name, read_only=True).segment)
    pace.look()
    envs.async_reset()
    for _ in range(5):
        envs.send(zeros(2), envs.recv()[4]["env_id"])
    envs.recv(), envs.recv()
    clock[0] += 1
    pace.look()
    assert pace.per_second == 14  # 4 resets and 10 steps
    envs.close()


def test_writes_count_where_rows_have_versions(clock):
    memory = values_memory(3, snapshots=True)
    pace = Pace(gymshm.segment_of(memory))
    pace.look()
    for index in (0, 1, 1, 2, 2, 2):
        gymshm.write_to_shared_memory(SPACE, index, value(index), memory)
    clock[0] += 0.5
    pace.look()
    assert (str(pace), pace.is_estimate) == ("12 writes/s", False)


def test_a_restarted_worker_does_not_make_it_go_back(clock):
    envs = clock_envs(2, num_workers=0)  # nobody listens to what this test writes
    lines = envs._exchange._array("lines")
    lines[:, 0, 0] = 5 << 24
    pace = Pace(gymshm.attach(envs.segment_name, read_only=True).segment)
    for now, expected in ((0, 0), (2, 0), (5, 0), (6, 2), (8, 6)):
        lines[:, 0, 0] = now << 24  # the number of the last request
        clock[0] += 1
        pace.look()
        assert pace._counts[-1][1] == expected
    envs.close()


@pytest.mark.parametrize("which", [0, 1])
def test_without_anybody_who_tells_changes_are_counted(monkeypatch, which):
    memory = values_memory(2)
    pace = Pace(gymshm.segment_of(memory))
    ticks = iter(range(10**6))

    def perf_counter() -> float:
        tick = next(ticks)
        if tick % 4 == 1:  # between every fourth look and the next
            memory["pair"].view[which] += 1
        return tick / 10_000

    monkeypatch.setattr("gymshm.cli.pace.perf_counter", perf_counter)
    pace.look()
    assert pace.is_estimate
    assert pace.unit == "writes/s"
    if which == 0:
        assert pace.per_second == pytest.approx(2 * 2500, rel=0.1)
        assert re.fullmatch(r"about [\d,]+ writes/s", str(pace))
    else:
        assert str(pace) == "about 0.0 writes/s"  # it looks at the first row alone


# --- how it is laid out -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("numbers", "bars"),
    [
        ([], ""),
        ([5], "▁"),
        ([0, 1, 2, 3, 4, 5, 6, 7], "▁▂▃▄▅▆▇█"),
        ([7, 0, 3.6, 0], "█▁▅▁"),
        ([1, np.nan, 2, np.inf], "▁ █ "),
        ([np.nan, -np.inf], "  "),
        ([-1.7e308, 1.7e308, 0], "▁█▅"),
    ],
)
def test_sparklines(numbers, bars):
    assert spark(numbers) == bars


def panel_of(memory: Any) -> Panel:
    """Shows environment 1, and a pace that is never known."""
    segment = gymshm.segment_of(memory)
    pace = Pace(segment)
    pace.look = lambda: None  # type: ignore[method-assign]
    return Panel(segment, Onlooker(segment), pace, 1)


def test_the_table_tells_one_environment_and_all():
    memory = values_memory(4)
    panel, segment = panel_of(memory), gymshm.segment_of(memory)
    panel.look()
    segment.array(segment.header.layout.leaves[0][1])[1] += 3
    panel.look()
    assert panel.text() == [
        f"{segment.name}: n=4, created by process {os.getpid()}, - writes/s",
        "",
        "                            ENV 1  MEAN  LEAST  GREATEST  LATELY",
        "values['pair'][0]               4  2.25      0         4  ▁█",
        "values['pair'][1]             3.5   1.5      0       3.5  ▁█",
        "values['grid'][0, 0]            0     0      0         0  ▁▁",
        "values['grid'][0, 1]            1     1      1         1  ▁▁",
        "values['grid'][1, 0]            2     2      2         2  ▁▁",
        "values['grid'][1, 1]            1   1.5      0         3  ▁▁",
        "values['many'], mean of 10    5.5     6    4.5       7.5  ▁▁",
        "values['word']                 w1",
    ]


def plain(lines: list[str]) -> list[str]:
    return [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]


def test_pictures_stand_below_side_by_side():
    panel = panel_of(values_memory(4))
    panel.look()
    lines = panel.lines(60, 25)
    assert lines[:13] == [*(line[:60] for line in panel.text()), "", "values['image'], env 1 to 2"]
    (album,) = panel._onlooker.albums
    pictures = [as_blocks(album.picture(index).repeat(4, axis=0).repeat(4, axis=1)) for index in (1, 2)]
    assert lines[13:] == [" ".join(pair) for pair in zip(*pictures, strict=True)]
    assert plain(lines)[13:] == [f"{'▀' * 24} {'▀' * 24}"] * 12


@pytest.mark.parametrize("width", [1, 10, 40, 200])
@pytest.mark.parametrize("height", [1, 2, 5, 12, 14, 30, 100])
def test_nothing_stands_outside_of_the_screen(width, height):
    panel = panel_of(values_memory(4))
    panel.look()
    lines = plain(panel.lines(width, height))
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_what_finds_no_room_is_counted():
    panel = panel_of(values_memory(4))
    panel.look()
    lines = plain(panel.lines(80, 12))
    assert lines[:8] == panel.text()[:8]
    assert lines[8:11] == ["... 3 more lines", "", "values['image'], env 1 to 3"]
    assert lines[11:] == ["▀▀ ▀▀ ▀▀"]


def test_text_that_is_no_text_for_terminals_is_escaped():
    space = gs.Text(8, charset="\x1b[2Ja")
    memory = gymshm.create_shared_memory(space, n=1)
    gymshm.write_to_shared_memory(space, 0, "\x1b[2J", memory)
    segment = gymshm.segment_of(memory)
    panel = Panel(segment, Onlooker(segment), Pace(segment), 0)
    panel.look()
    assert r"'\x1b[2J'" in panel.text()[-1]


# --- the command ------------------------------------------------------------------------------------------------------


def test_frames_are_tables_one_after_the_other_where_there_is_no_terminal(capsys):
    memory = values_memory(2)
    name = gymshm.segment_of(memory).name
    code, out, err = run(capsys, name, "--frames", "3", "--interval", "0.01", "--env", "1")
    assert (code, err) == (0, "")
    frames = out.split("\n\n" + f"{name}: ")
    assert len(frames) == 3
    assert "\x1b" not in out
    assert out.count("ENV 1") == 3
    assert re.search(r"^values\['pair'\]\[1\] +0\.5 +0\.25 +0 +0\.5  ▁▁▁$", frames[-1], re.MULTILINE)


def test_png_writes_each_picture_at_each_look(capsys, tmp_path):
    memory = values_memory(2)
    target = tmp_path / "new" / "directory"
    argv = ("--png", str(target), "--frames", "2", "--interval", "0.01", "--env", "1")
    assert run(capsys, gymshm.segment_of(memory).name, *argv) == (0, "", "")
    names = ["0-values-image-env1-000000.png", "0-values-image-env1-000001.png"]
    assert sorted(path.name for path in target.iterdir()) == names
    assert (target / names[0]).read_bytes() == as_png(np.full((6, 6), 1, np.uint8))


def test_png_of_what_has_no_images_is_one_line_on_stderr(capsys, tmp_path):
    memory = gymshm.create_shared_memory(gs.Discrete(3), n=2)
    name = gymshm.segment_of(memory).name
    assert run(capsys, name, "--png", str(tmp_path / "x")) == (1, "", f"gymshm watch: {name} has no images\n")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("env", ["-1", "2"])
def test_an_environment_that_is_not_there_is_one_line_on_stderr(capsys, env):
    memory = values_memory(2)
    name = gymshm.segment_of(memory).name
    code, out, err = run(capsys, name, "--env", env)
    assert (code, out, err) == (1, "", f"gymshm watch: there is no environment {env}: {name} has 2\n")


def test_a_segment_that_is_not_there_is_one_line_on_stderr(capsys):
    code, out, err = run(capsys, "gymshm-0-nothing")
    assert (code, out) == (1, "")
    assert err.startswith("gymshm watch: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("argv", [(), ("x", "--interval", "0"), ("x", "--interval", "nan"), ("x", "--frames", "0")])
def test_a_wrong_command_line_ends_with_2(argv, capsys):
    with pytest.raises(SystemExit) as end:
        run(capsys, *argv)
    assert end.value.code == 2


@contextlib.contextmanager
def watching(*argv: str, **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """The command beside the test; killed where it does not end by itself."""
    with subprocess.Popen([*COMMAND, *argv], **options) as process:
        try:
            yield process
            process.wait(30)
        finally:
            process.kill()


TRAINING = """
import sys, numpy as np
from environments import clock_envs, zeros
envs = clock_envs(2)
envs.reset()
print(envs.segment_name, flush=True)
while True:
    for _ in range(100):
        envs.step(zeros(2))
    if sys.stdin in __import__("select").select([sys.stdin], [], [], 0)[0]:
        break
envs.close()
print("closed", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def training() -> Iterator[subprocess.Popen[str]]:
    """A training in another process, which closes what it has once a line comes; its first line is the name."""
    with running_python(TRAINING, env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)}) as process:
        yield process


@pytest.mark.parametrize("how", ["closes", "is killed"])
def test_it_ends_when_the_creator_closes_it_or_ends(training, how):
    name = training.stdout.readline().strip()
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with watching(name, "--interval", "0.05", text=True, **pipes) as watch:
        head = watch.stdout.readline()
        assert head == f"{name}: n=2, created by process {training.pid}, - steps/s\n"
        wait_until(lambda: re.search(r" [\d,]+ steps/s", watch.stdout.readline()))
        if how == "closes":
            training.stdin.write("\n")
            training.stdin.flush()
        else:
            training.kill()
        out, err = watch.stdout.read(), watch.stderr.read()
    assert (watch.returncode, err) == (0, "")
    assert re.search(rf"^{name}: its creator has (closed it, or )?ended$", out.splitlines()[-1])
    if how == "closes":
        assert training.stdout.readline() == "closed\n"  # and lives


def test_a_creator_that_ended_before_the_next_look_is_not_waited_for(training):
    name = training.stdout.readline().strip()
    with watching(name, "--interval", "1000", stdout=subprocess.PIPE, text=True) as watch:
        watch.stdout.readline()
        training.kill()
        out = watch.stdout.read()
    assert watch.returncode == 0
    assert out.count("ENV 0") == 1


def test_watching_changes_nothing(training):
    name = training.stdout.readline().strip()
    for _ in range(3):
        done = subprocess.run([*COMMAND, name, "--frames", "1"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    with watching(name, stdout=subprocess.PIPE) as watch:
        watch.stdout.readline()
        watch.kill()
    with gymshm.attach(name, read_only=True) as attached:  # it is there still
        before = attached.read()[0, 0]
        wait_until(lambda: attached.read()[0, 0] > before)


def read_terminal(terminal: int, until: str, seconds: float = 20.0) -> str:
    """What comes out of a terminal, up to and including ``until``."""
    deadline, said = time.monotonic() + seconds, b""
    while until.encode() not in said:
        assert time.monotonic() < deadline, said[-500:]
        assert select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0], said[-500:]
        said += os.read(terminal, 1 << 16)
    return said.decode(errors="replace")


@pytest.mark.parametrize(("signal_", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_terminal_is_given_back_as_it_was(signal_, code):
    memory = values_memory(3)
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    env = {key: text for key, text in os.environ.items() if key not in ("COLUMNS", "LINES")}
    name = gymshm.segment_of(memory).name
    with watching(name, "--interval", "0.02", stdout=theirs, stderr=theirs, env=env) as process:
        said = read_terminal(ours, "▀")
        assert said.startswith("\x1b[?1049h\x1b[?25l\x1b[H")
        process.send_signal(signal_)
        said += read_terminal(ours, "\x1b[?1049l")
    assert process.returncode == code
    assert said.endswith("\x1b[?25h\x1b[?1049l")
    assert "Traceback" not in said
    assert termios.tcgetattr(theirs) == before
    os.close(theirs)
    os.close(ours)


def test_on_a_terminal_the_reason_of_the_end_stays():
    memory = values_memory(3)
    segment = gymshm.segment_of(memory)
    ours, theirs = pty.openpty()
    with watching(segment.name, "--interval", "0.02", stdout=theirs, stderr=theirs) as process:
        read_terminal(ours, "▀")
        segment.unlink()
        said = read_terminal(ours, "or ended\r\n")
    assert process.returncode == 0
    assert said.endswith(f"\x1b[?25h\x1b[?1049l{segment.name}: its creator has closed it, or ended\r\n")
    os.close(theirs)
    os.close(ours)


def test_another_segment_of_the_same_name_is_not_taken_for_it(capsys, monkeypatch):
    name = f"gymshm-watch-{os.getpid()}"
    kept = [values_memory(2, name=name)]

    def replace(seconds: float) -> None:
        gymshm.segment_of(kept[0]).unlink()
        kept.append(values_memory(2, name=name))

    monkeypatch.setattr("gymshm.cli.watch.sleep", replace)
    code, out, err = run(capsys, name, "--interval", "60", "--frames", "2")
    assert (code, err) == (0, "")
    assert out.endswith(f"\n{name}: its creator has closed it, or ended\n")
    assert out.count("ENV 0") == 1


def test_who_has_seen_enough_of_it_ends_it_well():
    memory = gymshm.create_shared_memory(gs.Discrete(3), n=2)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with watching(gymshm.segment_of(memory).name, "--interval", "0.01", text=True, **pipes) as watch:
        watch.stdout.readline()
        watch.stdout.close()
        assert watch.stderr.read() == ""
    assert watch.returncode == 0
