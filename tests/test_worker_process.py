"""``worker_process``: what is told of a worker that ends before it has built anything, and of one that can't tell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from environments import Clock
from gymshm import ShmVectorEnv, WorkerDiedError
from support import CHILD_ENV, wait_until

FRESH = pytest.mark.parametrize("context", ["spawn", "forkserver"])

UNGUARDED = """\
import sys

from gymnasium.envs.classic_control import CartPoleEnv

from gymshm import ShmVectorEnv

envs = ShmVectorEnv([CartPoleEnv] * 2, context=sys.argv[1], num_workers=2)
envs.reset(seed=42)
envs.close()
print("done")
"""
GUARDED = (
    UNGUARDED.replace("envs = ", 'if __name__ == "__main__":\n    envs = ')
    .replace("\nenvs.", "\n    envs.")
    .replace("\nprint", "\n    print")
)


def run_script(path, code, *arguments):
    """Runs a script, which may import what is beside it, until all that it started has ended.

    Returns:
        Its exit code, stdout and stderr.
    """
    path.write_text(code)
    command = [sys.executable, str(path), *arguments]
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    env = {**CHILD_ENV, "PYTHONPATH": os.pathsep.join([str(path.parent), CHILD_ENV["PYTHONPATH"]])}
    with subprocess.Popen(command, text=True, env=env, start_new_session=True, **pipes) as process:
        try:
            out, error = process.communicate(timeout=60)
            wait_until(lambda: not is_there(process.pid))
        finally:
            if is_there(process.pid):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, out, error


def is_there(group):
    """Whether the process group has a process."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def the_question(context):
    return (
        f"Under {context!r} the script is run anew in each worker: does it start its work below "
        '`if __name__ == "__main__":`?'
    )


@FRESH
def test_a_script_without_a_guard_is_told_what_it_lacks_and_leaves_nothing(context, tmp_path):
    code, out, error = run_script(tmp_path / "script.py", UNGUARDED, context)
    assert (code, out) == (1, "")
    last = error.splitlines()[-1]
    assert last.startswith("gymshm.errors.WorkerDiedError: worker ")
    assert last.endswith(f" during construction. {the_question(context)}")


@FRESH
def test_a_script_from_stdin_is_asked_to_be_a_file(context):
    done = subprocess.run(
        [sys.executable, "-", context], input=GUARDED, capture_output=True, text=True, timeout=60, env=CHILD_ENV
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].endswith(
        f" during construction. Under {context!r} each worker runs the script anew, and this one came from stdin: save "
        "it as a file."
    )


@FRESH
def test_with_the_guard_it_runs(context, tmp_path):
    assert run_script(tmp_path / "script.py", GUARDED, context) == (0, "done\n", "")


def test_under_fork_it_needs_none(tmp_path):
    assert run_script(tmp_path / "script.py", UNGUARDED, "fork") == (0, "done\n", "")


def test_a_fork_server_that_ends_by_what_it_imports_is_told_of_likewise(tmp_path):
    (tmp_path / "broken.py").write_text("raise ValueError('not importable')\n")
    lines = GUARDED.splitlines(keepends=True)
    lines.insert(1, "from multiprocessing import set_forkserver_preload\n")
    lines.insert(2, "set_forkserver_preload(['broken'])\n")
    code, out, error = run_script(tmp_path / "script.py", "".join(lines), "forkserver")
    assert (code, out) == (1, "")
    assert "ValueError: not importable" in error
    last = error.splitlines()[-1]
    assert last.startswith("gymshm.errors.WorkerDiedError: worker 0 of 2 (environment 0) could not be started")
    assert last.endswith(f", for the fork server ended. {the_question('forkserver')}")


@pytest.mark.parametrize(
    ("context", "code"), [("fork", 1), ("spawn", 0), ("spawn", 3), ("forkserver", 3), ("spawn", -signal.SIGKILL)]
)
def test_another_death_in_construction_is_not_put_down_to_the_script(context, code):
    def make():
        if code < 0:
            os.kill(os.getpid(), -code)
        os._exit(code)

    with pytest.raises(WorkerDiedError) as caught:
        ShmVectorEnv([Clock, make], context=context, num_workers=2)
    how = "SIGKILL, exit code -9: often the kernel's out-of-memory killer"
    if code >= 0:
        how = f"exit code {code}, as from sys.exit or os._exit"
    assert caught.value.exitcode == code
    assert str(caught.value) == f"worker 1 of 2 (environment 1) died ({how}) during construction"


def test_exit_code_1_after_construction_is_not_put_down_to_the_script():
    envs = ShmVectorEnv([lambda: Clock(act=lambda env, action: os._exit(1))], context="spawn", num_workers=1)
    envs.reset()
    with pytest.raises(WorkerDiedError) as caught:
        envs.step(envs.action_space.sample())
    assert str(caught.value).startswith(
        "worker 0 of 1 (environment 0) died (exit code 1, as from sys.exit or os._exit) during step."
    )
    envs.close()


def test_an_environment_that_handles_the_signal_for_the_stack_is_named_as_a_reason():
    def hang(env, action):
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        while True:
            signal.pause()

    envs = ShmVectorEnv([lambda: Clock(act=hang)], context="fork", num_workers=1, step_timeout=0.2)
    envs.reset()
    with pytest.raises(WorkerDiedError) as caught:
        envs.step(envs.action_space.sample())
    assert (
        "It hung; it could not say where (stopped, or in code that holds the interpreter, or SIGUSR2 is handled by "
        "somebody else). Call `close()`."
    ) in str(caught.value)
    envs.close()
