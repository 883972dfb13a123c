"""``ShmVectorEnv`` from start to end: however the end comes, it is quiet and complete."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gymshm
from environments import Clock, clock_envs, zeros
from gymshm import ShmVectorEnv
from support import check_python, run_python, running_python, wait_until

EVERY_CONTEXT = pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
HERE = str(Path(__file__).parent)

#: What every child interpreter begins with.
HEAD = """
import gc, os, signal, sys, time
import numpy as np
from environments import *

def tell(envs):
    print(*[process.pid for process in envs.processes], envs.segment_name, flush=True)

def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.001)
"""


def script(body: str) -> str:
    return HEAD + body


def is_gone(pid: int) -> bool:
    """Whether a process has ended, whoever has to wait for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def check_nothing_left(told: str) -> None:
    """The processes and the segment that ``told`` names are gone, or soon will be."""
    *pids, name = told.split()
    assert pids
    wait_until(lambda: all(is_gone(int(pid)) for pid in pids))

    def is_unlinked():
        try:
            gymshm.attach(name)
        except gymshm.SegmentNotFoundError:
            return True
        return False

    wait_until(is_unlinked)


# --- the interpreter ends ---------------------------------------------------------------------------------------------


@EVERY_CONTEXT
@pytest.mark.parametrize("daemon", [True, False])
def test_exit_without_close_is_quiet_and_complete(context, daemon):
    code = script(f"""
envs = clock_envs(3, context={context!r}, daemon={daemon}, num_workers=2)
envs.reset()
envs.step(zeros(3))
tell(envs)
""")
    check_nothing_left(check_python(code, cwd=HERE))


@pytest.mark.parametrize("first", ["import weakref; weakref.finalize(print, str)", "import multiprocessing.util", ""])
@pytest.mark.parametrize("daemon", [True, False])
def test_that_holds_in_whatever_order_exit_handlers_come(first, daemon):
    code = first + script(f"""
envs = clock_envs(2, context="fork", daemon={daemon})
envs.reset()
tell(envs)
""")
    check_nothing_left(check_python(code, cwd=HERE))


@pytest.mark.parametrize("kind", ["step", "reset", "call"])
def test_exit_with_a_call_pending_is_quiet_and_complete(kind):
    code = script(f"""
envs = clock_envs(2, context="fork", info=lambda t: {{"big": bytes(1 << 20)}})
envs.reset()
tell(envs)
envs.{kind}_async(*{dict(step="[zeros(2)]", reset="[]", call="['double', 1]")[kind]})
""")
    check_nothing_left(check_python(code, cwd=HERE))


def test_exit_does_not_wait_for_environments_that_are_slow_to_close(tmp_path):
    code = script(f"""
envs = clock_envs(2, context="fork", daemon=False, act_in_close=lambda env: wait_for({str(tmp_path / "never")!r}))
envs.reset()
tell(envs)
""")
    check_nothing_left(check_python(code, cwd=HERE))


@pytest.mark.parametrize(
    ("end", "returncode", "stderr"),
    [("sys.exit(3)", 3, ""), ("raise SystemExit", 0, ""), ("os.abort", None, None), ("1 / 0", 1, "ZeroDivisionError")],
)
def test_an_early_end_leaves_nothing(end, returncode, stderr):
    code = script(f"""
def use():
    envs = clock_envs(3, context="fork", num_workers=2)
    envs.reset()
    tell(envs)
    {"os.abort()" if end == "os.abort" else end}

use()
""")
    done = run_python(code, cwd=HERE)
    check_nothing_left(done.stdout)
    if returncode is not None:
        assert done.returncode == returncode
        assert done.stderr.count("Traceback") == (stderr != "")
        assert stderr in done.stderr


@pytest.fixture
def without_collection():
    """Only reference counts free objects."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collection")
@pytest.mark.parametrize("make_cycle", [False, True])
def test_dropping_the_last_reference_ends_everything(make_cycle):
    envs = clock_envs(3, num_workers=2)
    envs.reset()
    envs.step(zeros(3))
    told = " ".join([str(process.pid) for process in envs.processes] + [envs.segment_name])
    gone = weakref.ref(envs)
    if make_cycle:
        envs.itself = envs
    del envs
    if make_cycle:
        gc.collect()
    assert gone() is None
    check_nothing_left(told)


def test_what_was_returned_outlives_a_vector_environment_that_was_dropped():
    envs = clock_envs(2, copy=False)
    envs.reset()
    observations = envs.step(zeros(2))[0]
    del envs
    gc.collect()
    assert observations.tolist() == [[1, 1], [1, 1]]


# --- the parent is killed ---------------------------------------------------------------------------------------------

BUSY = {
    "idle": "",
    "in Python": "def act(env, action):\n    while True: pass",
    "asleep": "def act(env, action): time.sleep(3600)",
}


@contextlib.contextmanager
def parent_at_work(context: str, busy: str, before: str = "") -> Iterator[tuple[Any, str]]:
    """A child interpreter with a vector environment whose environments are ``busy``, and what it told of it."""
    code = script(f"""
act = lambda env, action: None
{BUSY[busy]}
envs = clock_envs(3, context={context!r}, num_workers=2, act=act)
envs.reset()
{before}
envs.step_async(zeros(3))
tell(envs)
time.sleep(3600)
""")
    with running_python(code, cwd=HERE, start_new_session=True) as parent:
        yield parent, parent.stdout.readline()


@EVERY_CONTEXT
@pytest.mark.parametrize("busy", list(BUSY))
def test_workers_end_with_a_parent_that_is_killed(context, busy):
    with parent_at_work(context, busy) as (parent, told):
        parent.kill()
        # To the end of the pipe: that is, until no worker has it open any more.
        _, stderr = parent.communicate(timeout=60)
        check_nothing_left(told)
        assert stderr == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_workers_end_with_a_parent_that_is_terminated(number):
    with parent_at_work("fork", "asleep") as (parent, told):
        parent.send_signal(number)
        _, stderr = parent.communicate(timeout=60)
        check_nothing_left(told)
        assert stderr == ""


@EVERY_CONTEXT
def test_a_fork_of_the_parent_does_not_keep_the_workers_of_a_parent_that_is_killed(context):
    before = """
fork = os.fork()
if fork == 0:
    for end in (0, 1, 2): os.close(end)
    time.sleep(3600)
print(fork, flush=True)
"""
    with parent_at_work(context, "asleep", before) as (parent, told):
        fork, told = int(told), parent.stdout.readline()
        try:
            parent.kill()
            parent.wait(60)
            *pids, _ = told.split()
            wait_until(lambda: all(is_gone(int(pid)) for pid in pids))
            assert not is_gone(fork)
        finally:
            os.kill(fork, signal.SIGKILL)
        check_nothing_left(told)


# --- Ctrl-C -----------------------------------------------------------------------------------------------------------


def press_ctrl_c(parent: Any) -> str:
    """What a terminal does: to the whole process group. Gives what is written to stderr from then on."""
    os.killpg(parent.pid, signal.SIGINT)
    _, stderr = parent.communicate(timeout=60)
    assert parent.returncode in (-signal.SIGINT, 1, 130)
    return stderr


@EVERY_CONTEXT
def test_ctrl_c_gives_one_traceback_and_leaves_nothing(context):
    code = script(f"""
envs = clock_envs(3, context={context!r}, num_workers=2, act=lambda env, action: time.sleep(0.01))
envs.reset()
tell(envs)
while True:
    envs.step(zeros(3))
""")
    with running_python(code, cwd=HERE, start_new_session=True) as parent:
        told = parent.stdout.readline()
        stderr = press_ctrl_c(parent)
    check_nothing_left(told)
    assert stderr.count("Traceback (most recent call last)") == 1
    assert stderr.rstrip().endswith("KeyboardInterrupt")


@EVERY_CONTEXT
def test_ctrl_c_during_construction_gives_one_traceback_and_leaves_nothing(context, tmp_path):
    code = script(f"""
def make():
    open({str(tmp_path)!r} + f"/{{os.getpid()}}", "w").close()
    time.sleep(3600)

import gymshm
gymshm.ShmVectorEnv([make] * 2, context={context!r}, num_workers=2)
""")
    with running_python(code, cwd=HERE, start_new_session=True) as parent:
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
        stderr = press_ctrl_c(parent)
    wait_until(lambda: all(is_gone(int(path.name)) for path in tmp_path.iterdir()))
    assert stderr.count("Traceback (most recent call last)") == 1


@pytest.mark.parametrize("context", ["fork", "spawn"])
@pytest.mark.parametrize("delay", [0.02, 0.1, 0.3])
def test_ctrl_c_while_workers_start_gives_one_traceback(context, delay):
    code = script(f"""
import gymshm
print("starts", flush=True)
envs = clock_envs(8, context={context!r})
print("started", flush=True)
time.sleep(3600)
""")
    with running_python(code, cwd=HERE, start_new_session=True) as parent:
        parent.stdout.readline()
        threading.Event().wait(delay)  # any moment does; these are some
        stderr = press_ctrl_c(parent)
    assert stderr.count("Traceback (most recent call last)") == 1


@pytest.mark.parametrize("daemon", [True, False])
def test_ctrl_c_while_close_waits_ends_everything(daemon, tmp_path):
    code = script(f"""
def close(env):
    open({str(tmp_path / "closing")!r}, "w").close()
    time.sleep(3600)

envs = clock_envs(2, context="fork", daemon={daemon}, act_in_close=close)
tell(envs)
envs.close(timeout=3600)
""")
    with running_python(code, cwd=HERE, start_new_session=True) as parent:
        told = parent.stdout.readline()
        wait_until((tmp_path / "closing").exists)
        stderr = press_ctrl_c(parent)
    check_nothing_left(told)
    assert stderr.count("Traceback (most recent call last)") == 1


CLOSE_AGAIN = """
import sys
import gymshm

SOURCE = os.path.dirname(gymshm.__file__)

def interrupt_at(number):
    \"\"\"Has the line of gymshm's that is executed as this number from now on raise KeyboardInterrupt.\"\"\"
    left = [number]

    def line(frame, event, argument):
        if event == "line":
            left[0] -= 1
            if left[0] == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return line

    sys.settrace(lambda frame, *given: line if frame.f_code.co_filename.startswith(SOURCE) else None)

came, number = True, 0
while came:
    number += 1
    envs = clock_envs(2, context="fork", num_workers=2)
    envs.reset()
    processes, name, came = envs.processes, envs.segment_name, False
    interrupt_at(number)
    try:
        envs.close()
    except KeyboardInterrupt:
        came = True
    finally:
        sys.settrace(None)
    envs.close()
    assert envs.closed
    assert not any(process.is_alive() for process in processes), number
    assert not os.path.exists(f"/dev/shm/{name}"), number
assert number > 20
"""


@pytest.mark.slow
def test_who_is_interrupted_anywhere_in_close_can_close_again():
    check_python(script(CLOSE_AGAIN), cwd=HERE)


MASKED = """
import random
import sys

class Deadline(Exception):
    pass

def interrupt(number, frame):
    raise Deadline

gc.disable()  # Python swallows what is raised in a finalizer, or in what other modules do in a fork
sys.unraisablehook = lambda unraisable: None
signal.signal(signal.SIGALRM, interrupt)
random.seed(1)
handler, came = signal.getsignal(signal.SIGINT), 0
for _ in range(300):
    envs = None
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0002, 0.012))
        try:
            envs = clock_envs(2, context="fork", num_workers=2)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Deadline:
        came += 1
    if envs is not None:
        envs.close()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
    assert signal.getsignal(signal.SIGINT) is handler
assert came > 100, came
"""


@pytest.mark.slow
def test_a_deadline_in_construction_leaves_ctrl_c_as_it_was():
    check_python(script(MASKED), cwd=HERE)


@contextlib.contextmanager
def alarm_raises(exception: type[BaseException]) -> Iterator[None]:
    """Within, an alarm raises ``exception`` wherever the main thread is."""

    def interrupt(number: int, frame: Any) -> None:
        raise exception

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_after_an_interrupt_what_is_pending_can_be_waited_for(tmp_path):
    path = tmp_path / "go"

    def act(env, action):
        while not path.exists():
            time.sleep(0.001)

    with alarm_raises(KeyboardInterrupt), contextlib.closing(clock_envs(2, context="fork", act=act)) as envs:
        envs.reset()
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            envs.step(zeros(2))
        path.touch()
        assert envs.step_wait()[0].tolist() == [[1, 1], [1, 1]]
        assert envs.step(zeros(2))[0].tolist() == [[2, 2], [2, 2]]


INTERRUPTIBLE = """
import random
from gymnasium.error import NoAsyncCallError

class Deadline(Exception):
    pass

def interrupt(number, frame):
    raise WHAT

def stop_clock():
    signal.setitimer(signal.ITIMER_REAL, 0)

def endure(work, resume, renew_every):
    # Interrupts work over and over; then resume must give right results, or be refused.
    resumed, refused = 0, 0
    until = time.monotonic() + 3
    begin()
    while time.monotonic() < until:
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 4e-4))
            while True:
                work()
        except WHAT:
            stop_clock()
        try:
            resume()
            resumed += 1
            renew = resumed % renew_every == 0
        except RuntimeError as error:
            assert "was interrupted in the middle" in str(error), error
            refused += 1
            renew = True
        if renew:
            envs.close()
            gc.collect()
            begin()
    assert resumed > 10, (resumed, refused)
    envs.close()

gc.disable()  # Python swallows what is raised in a finalizer, and nothing would end the work any more
signal.signal(signal.SIGALRM, interrupt)
random.seed(1)
"""

INTERRUPTED = (
    INTERRUPTIBLE
    + """
def begin():
    global envs, t
    envs, t = clock_envs(4, context="fork", num_workers=2, info=INFO), 0
    envs.reset()

def check(result):
    observations, rewards, _, _, infos = result
    seen = observations[:, 0].astype(int).tolist()
    assert len(set(seen)) == 1, seen
    assert rewards.tolist() == seen, (rewards, seen)
    assert infos == {} if SILENT else infos["t"].tolist() == seen, (infos, seen)
    # The result of one step may have been lost on its way to us.
    assert t < seen[0] <= t + 2, (t, seen)
    return seen[0]

SILENT = (INFO)(0) == {}

def step():
    global t
    t = check(envs.step(zeros(4)))

def resume():
    global t
    try:
        t = check(envs.step_wait())
    except NoAsyncCallError:
        step()
    step()

endure(step, resume, renew_every=4)  # the first steps are those in which workers make up their minds about infos
"""
)

EXCEPTIONS = pytest.mark.parametrize("exception", ["KeyboardInterrupt", "Deadline"])


@pytest.mark.slow
@EXCEPTIONS
@pytest.mark.parametrize("info", ["lambda t: {}", "lambda t: {'t': t}", "lambda t: {'t': t, 'text': 'x' * (t % 50)}"])
def test_after_an_interrupt_at_any_moment_results_are_right_or_refused(info, exception):
    code = INTERRUPTED.replace("INFO", info).replace("WHAT", exception)
    check_python(script(code), cwd=HERE)


INTERRUPTED_TURNS = (
    INTERRUPTIBLE
    + """
import numpy as np
from environments import clocks
from gymshm import ShmVectorEnv

def begin():
    global envs, times
    envs = ShmVectorEnv(clocks(4, info=INFO), context="fork", num_workers=2, batch_size=2)
    times = np.full(4, -1)
    envs.async_reset()

def check(result):
    observations, rewards, _, _, infos = result
    ids, seen = infos["env_id"], observations[:, 0].astype(int)
    assert rewards.tolist() == seen.tolist(), (rewards, seen)
    assert infos["t"].tolist() == seen.tolist() and infos["_t"].all(), (infos, seen)
    # The result of one turn may have been lost on its way to us.
    assert (times[ids] < seen).all() and (seen <= times[ids] + 2).all(), (times, seen)
    times[ids] = seen

def turn():
    check(envs.recv(timeout=30))
    idle = np.flatnonzero(~envs._turns.pending)
    envs.send(zeros(len(idle)), idle)

def resume():
    idle = np.flatnonzero(~envs._turns.pending)
    if len(idle):
        envs.send(zeros(len(idle)), idle)
    for _ in range(4):
        turn()

endure(turn, resume, renew_every=16)
"""
)


@pytest.mark.slow
@EXCEPTIONS
@pytest.mark.parametrize("info", ["lambda t: {'t': t}", "lambda t: {'t': t, 'text': 'x' * (t % 50)}"])
def test_after_an_interrupt_at_any_moment_turns_are_right_or_refused(info, exception):
    code = INTERRUPTED_TURNS.replace("INFO", info).replace("WHAT", exception)
    check_python(script(code), cwd=HERE)


def test_an_exception_in_the_midst_of_a_reply_refuses_what_follows(tmp_path):
    # A deadline by SIGALRM is no KeyboardInterrupt, and leaves half a reply behind all the same.
    class Deadline(Exception):
        pass

    envs = clock_envs(2, context="fork", num_workers=1, info=lambda t: {"blob": bytes(1 << 28)})
    with alarm_raises(Deadline), contextlib.closing(envs):
        envs.reset()
        envs.step_async(zeros(2))
        connection = envs._crew._workers[0].connection
        assert wait_until(lambda: connection.poll(0), 60)
        signal.setitimer(signal.ITIMER_REAL, 0.03)
        with pytest.raises(Deadline):
            envs.step_wait()
        with pytest.raises(RuntimeError, match="`step_wait` was interrupted in the middle"):
            envs.step_wait()


# --- forks of the parent ----------------------------------------------------------------------------------------------

FORKS = {
    "exits": "sys.exit(0)",
    "ends at once": "os._exit(0)",
    "drops it": "del envs; gc.collect(); sys.exit(0)",
    "closes it": "envs.close(); sys.exit(0)",
    "closes it at once": "envs.close(terminate=True); envs.close(); sys.exit(0)",
}


@pytest.mark.parametrize(
    ("context", "daemon", "fork"),
    [*(("fork", daemon, fork) for daemon in (True, False) for fork in FORKS), ("spawn", True, "exits")],
)
def test_a_fork_of_the_parent_harms_nothing(context, fork, daemon):
    code = script(f"""
envs = clock_envs(2, context={context!r}, daemon={daemon})
envs.reset()
child = os.fork()
if child == 0:
    {FORKS[fork]}
assert os.waitpid(child, 0)[1] == 0
for t in range(1, 4):
    assert envs.step(zeros(2))[0].tolist() == [[t, t]] * 2
import gymshm
gymshm.attach(envs.segment_name)
tell(envs)
envs.close()
""")
    check_nothing_left(check_python(code, cwd=HERE))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_fork_that_uses_it_is_told_whose_it_is(num_workers):
    code = script(f"""
envs = clock_envs(2, context="fork", num_workers={num_workers})
envs.reset()
child = os.fork()
if child == 0:
    for call in (envs.reset, lambda: envs.step(zeros(2)), lambda: envs.get_attr("t"), envs.step_wait):
        try:
            call()
        except RuntimeError as error:
            assert f"belongs to process {{os.getppid()}}" in str(error), error
        else:
            sys.exit("it was used")
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert envs.step(zeros(2))[0].tolist() == [[1, 1]] * 2
envs.close()
""")
    check_python(code, cwd=HERE)


def test_a_fork_after_all_descriptors_were_closed_is_quiet_and_owns_nothing():
    code = script("""
several = [clock_envs(2, context="fork") for _ in range(3)]
for envs in several:
    envs.reset()
tell(several[0])
os.closerange(3, 4096)
child = os.fork()
if child == 0:
    for envs in several:
        try:
            envs.reset()
        except RuntimeError as error:
            assert f"belongs to process {os.getppid()}" in str(error), error
        else:
            os._exit(1)
    os._exit(0)
os._exit(os.waitpid(child, 0)[1] != 0)
""")
    check_nothing_left(check_python(code, cwd=HERE))


def test_a_process_of_multiprocessing_harms_nothing():
    with contextlib.closing(clock_envs(2)) as envs:
        envs.reset()
        for target in (envs.close, gc.collect):
            process = multiprocessing.get_context("fork").Process(target=target)
            process.start()
            process.join(60)
            assert process.exitcode == 0
            process.close()
        assert envs.step(zeros(2))[0].tolist() == [[1, 1], [1, 1]]


def test_two_vector_environments_end_apart():
    with contextlib.closing(clock_envs(2, context="fork")) as first:
        with contextlib.closing(clock_envs(2, context="fork")) as second:
            for envs in (first, second):
                envs.reset()
        assert first.step(zeros(2))[0].tolist() == [[1, 1], [1, 1]]
        with contextlib.closing(clock_envs(2, context="fork")) as third:
            third.reset()
            first.close()
            assert third.step(zeros(2))[0].tolist() == [[1, 1], [1, 1]]


# --- the environments' own ways ---------------------------------------------------------------------------------------


class WithChild(Clock):
    """Has a process of its own, as simulators have."""

    def __init__(self):
        super().__init__()
        self.child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(3600,), daemon=True)
        self.child.start()
        self.secret = self.child.pid


@EVERY_CONTEXT
def test_environments_may_start_processes_where_workers_are_not_daemonic(context):
    with contextlib.closing(ShmVectorEnv([WithChild] * 2, context=context, daemon=False, num_workers=2)) as envs:
        envs.reset()
        assert envs.step(zeros(2))[0].tolist() == [[1, 1], [1, 1]]
        children = envs.get_attr("secret")
        assert not any(map(is_gone, children))
    wait_until(lambda: all(map(is_gone, children)))


def test_and_not_where_they_are():
    with pytest.raises(AssertionError, match="daemonic processes are not allowed to have children"):
        ShmVectorEnv([WithChild] * 2, context="fork", num_workers=2)


def test_a_vector_environment_may_stand_in_a_worker_of_another():
    class Nested(Clock):
        def __init__(self):
            super().__init__(act=lambda env, action: env.inner.step(zeros(2)))
            self.inner = clock_envs(2, context="fork")
            self.inner.reset()
            self.secret = [process.pid for process in self.inner.processes]

        def close(self):
            self.inner.close()

    with contextlib.closing(ShmVectorEnv([Nested] * 2, context="fork", daemon=False, num_workers=2)) as envs:
        envs.reset()
        envs.step(zeros(2))
        pids = [pid for some in envs.get_attr("secret") for pid in some]
    wait_until(lambda: all(map(is_gone, pids)))


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_mpi_variables_are_cleared_around_the_start_and_restored(context, monkeypatch):
    class Looks(Clock):
        def __init__(self):
            super().__init__()
            self.secret = [name for name in os.environ if name.startswith(("OMPI_", "PMI_", "GYMSHM_TEST"))]

    for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "GYMSHM_TEST"):
        monkeypatch.setenv(name, "1")
    with contextlib.closing(ShmVectorEnv([Looks] * 2, context=context, num_workers=2)) as envs:
        assert envs.get_attr("secret") == (["GYMSHM_TEST"],) * 2
        assert os.environ["OMPI_COMM_WORLD_RANK"] == os.environ["PMI_RANK"] == "1"


def test_mpi_variables_are_restored_where_the_start_fails_too(monkeypatch):
    monkeypatch.setenv("PMI_RANK", "1")

    def fail():
        raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        ShmVectorEnv([fail], context="fork", num_workers=1)
    assert os.environ["PMI_RANK"] == "1"


# --- what it takes ----------------------------------------------------------------------------------------------------


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@EVERY_CONTEXT
def test_descriptors_grow_with_workers_and_not_with_environments(context):
    with contextlib.closing(clock_envs(1, context=context)):
        pass  # starts what stays: the fork server, say

    def taken(n, num_workers):
        gc.collect()  # what ended before has to be gone, or it would be counted
        before = open_descriptors()
        with contextlib.closing(clock_envs(n, context=context, num_workers=num_workers)) as envs:
            envs.reset()
            envs.step(zeros(n))
            return open_descriptors() - before

    two, four = taken(2, 2), taken(4, 4)
    assert taken(40, 2) == two
    assert two < four <= two + 2 * 4


def test_a_thousand_steps_leave_no_descriptor_thread_or_process(tmp_path):
    def act(env, action):
        if action == 1:
            raise ValueError("bad")

    def info(t):
        return [{}, {"a": t}, {"a": t, "text": "x" * t}, {"b": np.zeros(t)}][t % 4]

    def taken():
        workers = [len(os.listdir(f"/proc/{process.pid}/fd")) for process in envs.processes]
        workers += [len(os.listdir(f"/proc/{process.pid}/task")) for process in envs.processes]
        return open_descriptors(), threading.active_count(), len(multiprocessing.active_children()), workers

    with contextlib.closing(clock_envs(2, act=act, info=info)) as envs:
        before = None
        for i in range(1000):
            if i % 50 == 0:
                envs.reset()
                envs.get_attr("t")
            if i % 100 == 99:
                with pytest.raises(ValueError, match="bad"):
                    envs.step(np.array([0, 1]))
                envs.step_async([0, 0])
                with contextlib.suppress(multiprocessing.TimeoutError):
                    envs.step_wait(timeout=0.0)
                    continue
                envs.step_wait()
            envs.step(zeros(2))
            if i == 120:
                before = taken()
        assert taken() == before


def cpu_seconds(pid: int) -> float:
    """What all threads of a process have used of CPUs so far."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


@pytest.mark.slow
@pytest.mark.parametrize("in_turns", [False, True])
def test_with_nothing_to_do_nobody_uses_a_cpu(in_turns):
    with contextlib.closing(clock_envs(8, num_workers=4)) as envs:
        if in_turns:
            envs.async_reset()
            envs.recv()
        else:
            envs.reset()
            envs.step(zeros(8))
        pids = [os.getpid(), *[process.pid for process in envs.processes]]
        threading.Event().wait(0.05)
        before, begin = sum(map(cpu_seconds, pids)), time.monotonic()
        threading.Event().wait(1.0)
        used, seconds = sum(map(cpu_seconds, pids)) - before, time.monotonic() - begin
    assert used < 0.01 * seconds


def test_threads_of_the_parent_go_on_while_it_waits(tmp_path):
    path = tmp_path / "go"

    def act(env, action):
        while not path.exists():
            time.sleep(0.001)

    def count():
        for _ in range(200_000):
            pass
        path.touch()

    with contextlib.closing(clock_envs(2, act=act)) as envs:
        envs.reset()
        thread = threading.Thread(target=count)
        thread.start()
        # It ends only once the thread has counted.
        assert envs.step(zeros(2))[0].tolist() == [[1, 1], [1, 1]]
        thread.join()
