from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces as gs

import gymshm
from forgery import segment_bytes
from gymshm import cli
from gymshm.cli.text import size_text
from support import own, run_isolated, run_python

SHM = Path("/dev/shm")
SPACE = gs.Dict({"cam": gs.Tuple((gs.Box(0, 255, (4, 4), np.uint8), gs.Discrete(3))), "word": gs.Text(5)})
COMMAND = [sys.executable, "-m", "gymshm"]


@pytest.fixture
def damaged() -> Iterator[str]:
    """The name of a segment whose header is damaged."""
    path = SHM / f"test-cli-{os.getpid()}"
    path.write_bytes(bytes(segment_bytes()).replace(b"token", b"Token"))
    yield path.name
    path.unlink()


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of a command."""
    try:
        code = cli.main(argv)
    except SystemExit as end:
        code = end.code  # type: ignore[assignment]
    said = capsys.readouterr()
    return code, said.out, said.err


def isolated(code: str) -> str:
    """Runs ``code`` where it may remove every orphan; it has to end well and in silence."""
    begin = """
        import json, subprocess, sys
        import gymshm
        from gymnasium.spaces import Discrete
        from child_tasks import orphans
        def gymshm_(*argv, **options):
            command = [sys.executable, "-m", "gymshm", *argv]
            return subprocess.run(command, capture_output=True, text=True, **options)
    """
    done = run_isolated(textwrap.dedent(begin) + textwrap.dedent(code))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


# --- the whole --------------------------------------------------------------------------------------------------------


def test_help_tells_every_command_and_the_exit_codes(capsys):
    code, out, err = run(capsys, "--help")
    assert (code, err) == (0, "")
    for command in cli.COMMANDS:
        assert re.search(rf"^    {command} +\S", out, re.MULTILINE)
        code, told, err = run(capsys, command, "--help")
        assert (code, err) == (0, "")
        assert "exit codes: 0" in told
    assert "exit codes: 0" in out


@pytest.mark.parametrize("argv", [(), ("nonsense",), ("list", "--nonsense"), ("inspect",), ("demo", "--steps", "0")])
def test_a_wrong_command_line_ends_with_2(argv, capsys):
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    assert err.startswith("usage: python -m gymshm")


def test_the_version_is_told(capsys):
    assert run(capsys, "--version") == (0, f"gymshm {gymshm.__version__}\n", "")


def test_it_runs_as_a_module_and_as_a_script():
    for command in (COMMAND, [str(Path(sys.executable).parent / "gymshm")]):
        done = subprocess.run([*command, "inspect", "not-there"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.count("\n") == 1
        assert done.stderr.startswith("gymshm inspect: Expected a segment named 'not-there', found none.")


def test_who_reads_only_the_beginning_is_not_troubled():
    done = run_python(
        """
        import os, sys
        from gymshm import cli
        read, write = os.pipe()
        os.close(read)
        os.dup2(write, 1)
        sys.exit(cli.main(["list", "--json"]))
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


# --- text -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (5 * 2**20, "5.0 MiB"), (2**44, "16.0 TiB")],
)
def test_sizes_are_told_in_binary_units(nbytes, text):
    assert size_text(nbytes) == text


# --- list -------------------------------------------------------------------------------------------------------------


def test_list_shows_size_n_creator_and_status(capsys):
    name = own("test-cli-listed")
    memory = gymshm.create_shared_memory(SPACE, n=3, name=name)
    code, out, err = run(capsys, "list")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["NAME", "SIZE", "N", "CREATOR", "STATUS", "KIND"]
    (line,) = (line for line in out.splitlines() if name in line)
    size = size_text(gymshm.segment_of(memory).nbytes)
    assert line.split() == [name, *size.split(), "3", str(os.getpid()), "alive", "shm"]


def test_list_as_json_is_a_list_of_objects(capsys, damaged):
    name = own("test-cli-listed")
    memory = gymshm.create_shared_memory(SPACE, n=3, name=name)
    code, out, err = run(capsys, "list", "--json")
    assert (code, err) == (0, "")
    told = {segment["name"]: segment for segment in json.loads(out)}
    assert told[name] == {
        "name": name,
        "nbytes": gymshm.segment_of(memory).nbytes,
        "n": 3,
        "creator": os.getpid(),
        "status": "alive",
        "kind": "shm",
        "problem": None,
    }
    assert (told[damaged]["status"], told[damaged]["n"], told[damaged]["creator"]) == ("unknown", None, None)
    assert "damaged" in told[damaged]["problem"]


def test_list_shows_what_can_t_be_read_and_why(capsys, damaged):
    code, out, _ = run(capsys, "list")
    assert code == 0
    assert re.search(rf"^{damaged} .* -  +-  +unknown\*  +shm$", out, re.MULTILINE)
    assert re.search(rf"^\* Segment '{damaged}' can't be read: its header is damaged", out, re.MULTILINE)


def test_list_never_touches_the_data():
    printed = isolated(
        """
        import os
        memory = gymshm.create_shared_memory(gymshm.create.gs.Box(0, 1, (100_000,)), n=2)
        name = gymshm.segment_of(memory).name
        os.truncate(f"/dev/shm/{name}", 4096)  # reading behind it would be the end
        for argv in (["list"], ["inspect", name], ["clean", "--yes"]):
            done = gymshm_(*argv)
            print(argv[0], done.returncode, done.stderr.count("truncated"), (name in done.stdout))
        """
    )
    assert printed.splitlines() == ["list 0 0 True", "inspect 1 1 False", "clean 0 0 False"]


def test_list_of_nothing_says_so():
    assert isolated("print(gymshm_('list').stdout, gymshm_('list', '--json').stdout)").split("\n") == [
        *("There are no segments.", " []", "", "")
    ]


# --- inspect ----------------------------------------------------------------------------------------------------------


def test_inspect_shows_the_layout_as_a_table(capsys):
    memory = gymshm.create_shared_memory(SPACE, n=3)
    segment = gymshm.segment_of(memory)
    code, out, err = run(capsys, "inspect", segment.name)
    assert (code, err) == (0, "")
    title, created, empty, heads, *rows = out.splitlines()
    assert title == f"{segment.name}: {size_text(segment.nbytes)} ({segment.nbytes} bytes), n=3, shm"
    assert (created, empty) == (f"created by process {os.getpid()} (alive)", "")
    assert heads.split() == ["PATH", "SPACE", "DTYPE", "SHAPE", "OFFSET", "BYTES"]
    start = segment.header.data_offset
    assert [re.split(r"  +", row) for row in rows] == [
        ["values['cam'][0]", "Box(0, 255)", "uint8", "(3, 4, 4)", str(start), "48"],
        ["values['cam'][1]", "Discrete(3)", "int64", "(3,)", str(start + 64), "24"],
        ["values['word']", "Text(1-5)", "int32", "(3, 5)", str(start + 128), "60"],
    ]


def test_inspect_as_json_is_one_object(capsys):
    memory = gymshm.create_shared_memory(SPACE, n=3)
    segment = gymshm.segment_of(memory)
    code, out, err = run(capsys, "inspect", segment.name, "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert (told["name"], told["nbytes"], told["n"]) == (segment.name, segment.nbytes, 3)
    assert told["arrays"][0] == {
        "path": "values['cam'][0]",
        "space": "Box(0, 255)",
        "dtype": "uint8",
        "shape": [3, 4, 4],
        "offset": told["data_offset"],
        "nbytes": 48,
    }


@pytest.mark.parametrize("name", ["not-there", "a/b", ""])
def test_inspect_of_nothing_is_one_line_on_stderr(name, capsys):
    code, out, err = run(capsys, "inspect", name)
    assert (code, out) == (1, "")
    assert err.startswith("gymshm inspect: Expected a ")
    assert err.count("\n") == 1


def test_inspect_of_what_can_t_be_read_is_one_line_on_stderr(capsys, damaged):
    code, out, err = run(capsys, "inspect", damaged)
    assert (code, out) == (1, "")
    assert err.startswith(f"gymshm inspect: Segment '{damaged}' can't be read: its header is damaged")
    assert err.count("\n") == 1


# --- clean ------------------------------------------------------------------------------------------------------------


def test_clean_removes_orphans_alone():
    isolated(
        """
        import os
        from pathlib import Path
        from forgery import segment_bytes
        memory = gymshm.create_shared_memory(Discrete(2))
        Path("/dev/shm/damaged").write_bytes(bytes(segment_bytes()).replace(b"token", b"Token"))
        Path("/dev/shm/elsewhere").write_bytes(segment_bytes())  # its creator was on another machine
        Path("/dev/shm/theirs").write_bytes(b"theirs")
        kept = set(os.listdir("/dev/shm"))
        left = orphans(3)
        done = gymshm_("clean", "--yes")
        assert done.returncode == 0 and done.stderr == "", done
        assert all(name in done.stdout for name in left) and "Removed 3 segments, " in done.stdout, done
        assert set(os.listdir("/dev/shm")) == kept
        assert gymshm_("clean").stdout == "There is nothing to remove.\\n"
        """
    )


def test_clean_removes_links_whose_file_has_gone():
    isolated(
        """
        import os
        left = orphans(2, nbytes=1_000_000)
        assert {os.path.islink(f"/dev/shm/{name}") for name in left} == {True}
        done = gymshm_("clean", "-y")
        assert (done.returncode, done.stderr) == (0, ""), done
        assert os.listdir("/dev/shm") == []
        """
    )


def test_clean_asks_first_and_without_a_terminal_nobody_can_answer():
    isolated(
        """
        import os, pty, re
        from support import wait_until
        (name,) = orphans(1)
        done = gymshm_("clean", stdin=subprocess.DEVNULL)
        assert done.returncode == 1 and "--yes" in done.stderr and done.stderr.count("\\n") == 1, done
        for answer, code in (("n", 1), ("", 1), ("y", 0)):
            assert os.path.exists(f"/dev/shm/{name}")
            ours, theirs = pty.openpty()
            os.write(ours, f"{answer}\\n".encode())
            done = gymshm_("clean", stdin=theirs)
            assert done.returncode == code and "Remove 1 segment? [y/N]" in done.stdout, done
        assert not os.path.exists(f"/dev/shm/{name}")
        """
    )


def test_cleaners_at_the_same_time_share_the_work():
    isolated(
        """
        import os, re
        memory = gymshm.create_shared_memory(Discrete(2))
        left = orphans(40)
        command = [sys.executable, "-m", "gymshm", "clean", "--yes"]
        pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        cleaners = [subprocess.Popen(command, **pipes) for _ in range(4)]
        said = [cleaner.communicate() for cleaner in cleaners]
        assert [cleaner.returncode for cleaner in cleaners] == [0] * 4, said
        assert [err for _, err in said] == [""] * 4, said
        removed = [int(number) for out, _ in said for number in re.findall(r"Removed (\\d+) segment", out)]
        assert sum(removed) == 40, removed
        assert os.listdir("/dev/shm") == [gymshm.segment_of(memory).name]
        """
    )


def test_clean_says_what_it_could_not_remove():
    isolated(
        """
        (name,) = orphans(1)
        subprocess.run(["mount", "-o", "remount,ro", "/dev/shm"], check=True)
        done = gymshm_("clean", "--yes")
        assert done.returncode == 1, done
        assert done.stderr == f"gymshm clean: could not remove {name} (Read-only file system)\\n", done
        """
    )
