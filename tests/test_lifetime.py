"""What stays of a segment, and what is said on stderr, however its creator and its attachers end."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import gymshm
from child_tasks import SPACE
from support import CHILD_ENV as TESTS
from support import check_python, run_python, wait_until

SHM = Path("/dev/shm")

CREATE = """
    import atexit, gc, os, signal, sys, threading, time
    import numpy as np
    import gymshm
    from child_tasks import SPACE, value
    memory = gymshm.create_shared_memory(SPACE, n=2)
    name = gymshm.segment_of(memory).name
    assert os.path.exists(f"/dev/shm/{name}")
    print(name, flush=True)
"""

#: How a creator ends: what it does, its return code, and the last line that it then says on stderr.
ENDS = {
    "normal exit": ("", 0, ""),
    "views that outlive everything": ("sys.modules['x'] = gymshm.read_from_shared_memory(SPACE, memory, 2)", 0, ""),
    "sys.exit": ("sys.exit(3)", 3, ""),
    "exception": ("raise RuntimeError('on purpose')", 1, "RuntimeError: on purpose"),
    "os._exit": ("os._exit(4)", 4, ""),
    "exec": ("sys.stdout.flush(); os.execv(sys.executable, [sys.executable, '-c', ''])", 0, ""),
    "SIGINT": ("os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT, "KeyboardInterrupt"),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, ""),
    "SIGKILL": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
    "SIGHUP to the whole group": ("os.killpg(0, signal.SIGHUP)", -signal.SIGHUP, ""),
    "SIGUSR1 to the whole group": ("os.killpg(0, signal.SIGUSR1)", -signal.SIGUSR1, ""),
    "thread that still creates": (
        "threading.Thread(target=lambda: [gymshm.create_shared_memory(SPACE) for _ in range(10**6)], daemon=True)"
        ".start(); time.sleep(0.02)",
        0,
        "",
    ),
}


def create_and(end: str, *options: str, env: dict[str, str] = TESTS) -> tuple[str, int, str]:
    """The name of what a creator made that then ended like this; its return code and stderr."""
    # In a session of its own: some ends are the end of a whole group.
    done = run_python(f"{CREATE}\n    {end}", *options, env=env, start_new_session=True)
    return done.stdout.strip(), done.returncode, done.stderr


@pytest.mark.parametrize("end", ENDS)
def test_nothing_stays_and_nothing_is_said_when_the_creator_ends(end):
    code, expected, says = ENDS[end]
    name, returncode, stderr = create_and(code)
    assert returncode == expected
    assert name
    assert not (SHM / name).exists()
    assert (stderr.splitlines() or [""])[-1] == says
    assert stderr.count("Traceback") == bool(says)
    assert "resource_tracker" not in stderr
    if not says:
        assert stderr == ""


@pytest.mark.parametrize("end", ["normal exit", "SIGKILL"])
def test_a_tracker_that_others_started_before_says_nothing_either(end):
    code, expected, _ = ENDS[end]
    others = "from multiprocessing import resource_tracker; resource_tracker.ensure_running(); "
    name, returncode, stderr = create_and(others + (code or "pass"))
    assert (returncode, stderr) == (expected, "")
    assert not (SHM / name).exists()


def test_a_creator_whose_tracker_was_killed_starts_another_at_the_next_creation():
    name, returncode, stderr = create_and(
        "from gymshm import tracker; os.kill(tracker._tracker._pid, signal.SIGKILL); "
        "os.waitid(os.P_PID, tracker._tracker._pid, os.WEXITED | os.WNOWAIT); "
        "more = gymshm.create_shared_memory(SPACE); print(gymshm.segment_of(more).name, flush=True); "
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert (returncode, stderr) == (-signal.SIGKILL, "")
    assert len(name.split()) == 2
    assert not any((SHM / one).exists() for one in name.split())


def test_a_process_that_changed_its_user_ends_in_silence():
    if os.geteuid() != 0:
        pytest.skip("needs root, to become somebody else")
    name, returncode, stderr = create_and("os.setuid(65534)")
    assert (returncode, stderr) == (0, "")
    assert not (SHM / name).exists()  # the tracker is root still


def test_an_exit_handler_that_was_there_before_reads_what_was_written():
    printed = check_python(
        """
        import atexit
        atexit.register(lambda: print(memory.view.sum()))
        import numpy as np, gymnasium as gym, gymshm
        memory = gymshm.create_shared_memory(gym.spaces.Box(0, 9, (4,), np.int64), n=2)
        memory.view[:] = 3
        """
    )
    assert printed == "24\n"


def test_views_are_readable_after_close_and_after_everything_else_is_gone():
    printed = check_python(
        """
        import gc, os
        import numpy as np, gymnasium as gym, gymshm
        memory = gymshm.create_shared_memory(gym.spaces.Box(0, 9, (1 << 20,), np.int64), n=2)
        name = gymshm.segment_of(memory).name
        view = memory.view[1, ::2]
        memory.view[:] = 7
        gymshm.segment_of(memory).close()
        print(view.sum() == 7 << 19, os.path.exists(f"/dev/shm/{name}"))
        gymshm.segment_of(memory).close()
        del memory
        gc.collect()
        view[:] += 1
        print(view.sum() == 8 << 19, os.path.exists(f"/dev/shm/{name}"))
        del view
        print(os.path.exists(f"/dev/shm/{name}"))
        """
    )
    assert printed.split() == ["True", "True", "True", "True", "False"]


def test_an_unrelated_attacher_harms_nothing_however_it_ends():
    memory = gymshm.create_shared_memory(SPACE, n=8)
    segment = gymshm.segment_of(memory)
    for index, (code, expected, says) in enumerate(list(ENDS.values())[2:9]):
        done = run_python(
            f"import os, signal, sys; from child_tasks import attach_and_write; attach_and_write({segment.name!r}, "
            f"{index}); {code}",
            env=TESTS,
        )
        assert done.returncode == expected
        assert (done.stderr.splitlines() or [""])[-1] == says
    assert (SHM / segment.name).exists()
    assert gymshm.attach(segment.name).read()["word"] == ("w0", "w1", "w2", "w3", "w4", "w5", "w6", "")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_attach_get_memory_in_every_way_and_end_without_harm(method):
    check_python(
        f"""
        import multiprocessing, os
        import gymshm
        from child_tasks import *
        if __name__ == "__main__":
            context = multiprocessing.get_context({method!r})
            memory = gymshm.create_shared_memory(SPACE, n=5, ctx=context)
            segment = gymshm.segment_of(memory)
            ours, theirs = context.Pipe()
            queue = context.Queue()
            processes = [
                context.Process(target=attach_and_write, args=(segment.name, 0)),
                context.Process(target=write_row, args=(memory, 1)),
                context.Process(target=write_received, args=(theirs, 2)),
                context.Process(target=write_received, args=(queue, 3)),
            ]
            for process in processes:
                process.start()
            ours.send(memory)
            queue.put(memory)
            for process in processes:
                process.join()
            assert [process.exitcode for process in processes] == [0, 0, 0, 0]
            assert os.path.exists(f"/dev/shm/{{segment.name}}")
            batch = gymshm.read_from_shared_memory(SPACE, memory, n=5)
            assert batch["word"] == ("w0", "w1", "w2", "w3", ""), batch
            assert batch["numbers"][:, 0].tolist() == [0, 1, 2, 3, 0]
            part = memory["numbers"]
            ours.send(part)
            assert gymshm.segment_of(theirs.recv()) is segment  # mapped once per process
        """,
        env=TESTS,
    )


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize(("how", "exitcode"), [("return", 0), ("exit", 3), ("kill", -9)])
def test_what_a_child_of_multiprocessing_created_goes_with_the_child(method, how, exitcode):
    check_python(
        f"""
        import multiprocessing, os
        from child_tasks import create_and_end
        from support import wait_until
        if __name__ == "__main__":
            context = multiprocessing.get_context({method!r})
            ours, theirs = context.Pipe()
            process = context.Process(target=create_and_end, args=(theirs, {how!r}))
            process.start()
            name = ours.recv()
            process.join()
            assert process.exitcode == {exitcode}
            wait_until(lambda: not os.path.exists(f"/dev/shm/{{name}}"))  # a killed one's tracker takes a moment
        """,
        env=TESTS,
    )


def test_a_fork_neither_unlinks_nor_keeps_what_its_parent_made():
    name, returncode, stderr = create_and(
        "pid = os.fork(); pid or sys.exit(); os.waitpid(pid, 0); assert os.path.exists(f'/dev/shm/{name}'); "
        "pid = os.fork(); time.sleep(60 if pid == 0 else 0); "
        "print(pid, flush=True); os.close(1); os.close(2); os.kill(os.getpid(), signal.SIGKILL)".replace(
            "time.sleep(60 if pid == 0 else 0); ", "pid or (os.close(1), os.close(2), time.sleep(60)); "
        )
    )
    name, child = name.split()
    try:
        assert (returncode, stderr) == (-signal.SIGKILL, "")
        os.kill(int(child), 0)  # it lives still
        wait_until(lambda: not (SHM / name).exists())
    finally:
        os.kill(int(child), signal.SIGKILL)


def test_forks_beside_a_thread_that_creates_can_create_too():
    check_python(
        """
        import os, signal, threading
        import gymshm
        from child_tasks import SPACE
        done = threading.Event()
        def create():
            while not done.is_set():
                gymshm.create_shared_memory(SPACE)
        thread = threading.Thread(target=create)
        thread.start()
        for _ in range(30):
            pid = os.fork()
            if pid == 0:
                signal.alarm(20)
                gymshm.create_shared_memory(SPACE)
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        done.set()
        thread.join()
        """,
        env={**TESTS, "PYTHONWARNINGS": "ignore::DeprecationWarning"},
    )


def test_a_main_process_that_ends_first_still_serves_the_children_that_it_waits_for():
    printed = check_python(
        """
        import multiprocessing, sys
        import gymshm
        from child_tasks import SPACE, attach_and_write
        memory = gymshm.create_shared_memory(SPACE, n=1)
        name = gymshm.segment_of(memory).name
        multiprocessing.get_context("spawn").Process(target=attach_and_write, args=(name, 0)).start()
        print(name)
        """,
        env=TESTS,
    )
    assert not (SHM / printed.strip()).exists()


def test_an_interrupt_at_any_instruction_of_creation_leaves_nothing():
    printed = check_python(
        """
        import gc, os, sys
        import gymshm
        from gymnasium.spaces import Discrete
        from child_tasks import SPACE

        package = os.path.dirname(gymshm.__file__)
        left = -1

        def interrupt(frame, event, argument):
            global left
            if os.path.dirname(frame.f_code.co_filename) != package:
                return None
            frame.f_trace_opcodes = True
            if event in ("line", "opcode"):  # 3.12 may tell lines alone
                left -= 1
                if left == 0:
                    sys.settrace(None)
                    raise KeyboardInterrupt
            return interrupt

        def names():
            return {name for name in os.listdir("/dev/shm") if name.startswith(f"gymshm-{os.getpid()}-")}

        gymshm.create_shared_memory(Discrete(2))
        gc.freeze()
        descriptors = len(os.listdir("/proc/self/fd"))
        interrupted = finished = 0
        start = 1
        while not finished:
            left = start
            start += 1
            sys.settrace(interrupt)
            try:
                memory = gymshm.create_shared_memory(Discrete(2))
            except KeyboardInterrupt:
                interrupted += 1
            else:
                sys.settrace(None)
                finished = left > 0
                del memory
            gc.collect()
            assert not names(), (start, names())
        print(interrupted, len(os.listdir("/proc/self/fd")) - descriptors)
        """,
        env=TESTS,
        timeout=240,
    )
    interrupted, descriptors = map(int, printed.split())
    assert interrupted > 100
    assert descriptors < 20  # where one of the few instructions that close it was interrupted


def test_memory_in_a_cycle_goes_with_the_cycle():
    class Holder:
        pass

    holder = Holder()
    holder.memory, holder.self = gymshm.create_shared_memory(SPACE), holder
    name = gymshm.segment_of(holder.memory).name
    del holder
    assert (SHM / name).exists()
    import gc

    gc.collect()
    assert not (SHM / name).exists()


def test_a_segment_is_one_mapping_and_one_descriptor():
    def count() -> tuple[int, int]:
        links = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
        maps = Path("/proc/self/maps").read_text().splitlines()
        return sum(name in link for link in links), sum(name in line for line in maps)

    memory = gymshm.create_shared_memory(SPACE, n=100)
    name = gymshm.segment_of(memory).name
    views = gymshm.read_from_shared_memory(SPACE, memory, n=100), memory["numbers"].view[::2]
    assert count() == (1, 1)
    attachment = gymshm.attach(name)
    arrays = attachment.arrays
    assert count() == (2, 2)
    del attachment, arrays
    assert count() == (1, 1)
    assert views


def test_what_is_collected_while_the_temporary_directory_is_looked_for_does_not_look_for_it(tmp_path):
    # The standard library does so below a lock, and a collection may come anywhere.
    printed = check_python(
        """
        import gc, tempfile
        import gymshm
        from gymnasium.spaces import Discrete

        gc.disable()
        memory = gymshm.create_shared_memory(Discrete(3), 2)
        gymshm.segment_of(memory).unlink()  # as closing a vector environment does
        cycle = [memory]
        cycle.append(cycle)
        del memory, cycle
        candidates = tempfile._candidate_tempdir_list

        def collected():
            print(gc.collect() > 0)
            return candidates()

        tempfile._candidate_tempdir_list = collected
        assert tempfile.tempdir is None
        tempfile.gettempdir()
        """,
        timeout=30,
    )
    assert printed == "True\n"
