"""The README, and the docstrings that stand for a manual: code runs, commands are checked, and links lead somewhere."""

from __future__ import annotations

import doctest
import inspect
import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import gymshm
from gymshm import cli
from support import CHILD_ENV, run_python

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
LIMIT = 150


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_it_is_short():
    assert len(README.splitlines()) <= LIMIT


def test_every_block_of_python_runs_one_after_the_other(tmp_path):
    code = blocks("python")
    assert len(code) == README.count("```python")
    parts = []
    for number, block in enumerate(code):
        (tmp_path / f"block{number}.py").write_text(block)
        # Compiled from a file, so that a traceback shows the line.
        parts.append(f"exec(compile(Path('block{number}.py').read_text(), 'block{number}.py', 'exec'), names)")
    begin = ["from pathlib import Path", "names = {'__name__': '__main__'}"]
    program = "\n".join([*begin, *parts, "print('all of it ran')"])
    done = run_python(program, cwd=tmp_path, timeout=120.0, env={**os.environ, "PYTHONWARNINGS": "error"})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("all of it ran\n")


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_as_a_script_below_the_guard_it_runs_where_nothing_is_forked(context, tmp_path):
    script = tmp_path / "script.py"
    code = "import multiprocessing\n\nif __name__ == '__main__':\n"
    code += f"    multiprocessing.set_start_method({context!r})\n"
    script.write_text(code + textwrap.indent("\n".join([*blocks("python"), "print('all of it ran')"]), "    "))
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        env=CHILD_ENV,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("all of it ran\n")


def test_what_a_comment_says_of_an_error_is_what_is_printed(tmp_path):
    (said,) = re.findall(r"print\(error\)  # (.*?) …$", README, re.MULTILINE)
    before = "\n".join(block for block in blocks("python")[:2])
    assert said in run_python(before, cwd=tmp_path).stdout


def commands(line: str) -> list[list[str]]:
    """The commands of a line of shell, options in their long form."""
    long = {"-q": "--quiet", "-e": "--editable"}
    return [[long.get(word, word) for word in shlex.split(command)] for command in line.split("&&")]


def test_the_first_shell_command_runs_a_demo_in_an_environment_of_its_own():
    (block,) = blocks("sh")
    make, install, run = commands(block.splitlines()[0])
    assert make[:3] == ["python3", "-m", "venv"]
    assert install == [f"{make[3]}/bin/pip", "install", "--quiet", "."]
    assert run[:3] == [f"{make[3]}/bin/python", "-m", "gymshm"]
    assert run[3:] == ["demo"]
    assert set(run[3:]) <= set(cli.COMMANDS)


def test_the_second_shell_command_is_what_ci_runs():
    (block,) = blocks("sh")
    assert len(block.splitlines()) == 2
    make, install, run = commands(block.splitlines()[1])
    checked = [shlex.split(line) for line in (ROOT / ".ci" / "run").read_text().splitlines() if ".venv" in line[:40]]
    in_ci = [" ".join(command) for command in checked]
    assert " ".join(make) in in_ci
    assert " ".join(run) in in_ci
    assert install[:4] == [f"{make[3]}/bin/pip", "install", "--quiet", "--editable"]
    assert re.fullmatch(r"\.\[test\]", install[4])
    assert any(command.startswith(" ".join(install)[:-1]) for command in in_ci)  # with other extras beside
    assert 'test = ["pytest' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize("link", re.findall(r"\]\((?!https?://)([^)#\s]+)", README) or [None])
def test_relative_links_lead_somewhere(link):
    assert link is None or (ROOT / link).exists()


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\b((?:benchmarks|tests|src)/[\w./-]+\w)", README))))
def test_files_that_are_named_are_there(path):
    assert (ROOT / path).exists()


def test_every_command_is_told():
    (section,) = re.findall(r"^## Command line\n(.*?)^## ", README, re.MULTILINE | re.DOTALL)
    named = re.findall(r"`(?:python -m gymshm )?([a-z]+)(?: [^`]*)?`", section)
    assert set(cli.COMMANDS) <= set(named)


# --- help(gymshm.ShmVectorEnv) ----------------------------------------------------------------------------------------


def test_the_examples_of_the_vector_environments_docstring_run():
    parser = doctest.DocTestParser()
    examples = parser.get_doctest(gymshm.ShmVectorEnv.__doc__, {}, "ShmVectorEnv", None, None)
    assert len(examples.examples) > 10
    said: list[str] = []
    doctest.DocTestRunner().run(examples, out=said.append)
    assert said == []


def test_the_table_of_the_package_names_what_there_is():
    (table,) = re.findall(r"^=+  =+\nhere.*?\n=+  =+\n(.*)\n=+  =+$", gymshm.__doc__, re.MULTILINE | re.DOTALL)
    here = " ".join(line[:32] for line in table.splitlines())
    signature = inspect.signature(gymshm.ShmVectorEnv.__init__).parameters
    assert set(re.findall(r"(\w+)=", here)) - {"options"} <= set(signature)
    for name in ("async_reset", "recv", "send", "call", "get_attr", "set_attr"):
        assert name in here
        assert hasattr(gymshm.ShmVectorEnv, name)
