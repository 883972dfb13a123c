"""A ``/dev/shm`` that is too small: each test has one of its own, 1 MB, in a mount namespace."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from support import run_isolated

BEGIN = """
import gc, json, os, re, signal, stat, subprocess, sys, warnings
import numpy as np
import gymshm
from gymnasium import spaces as gs
from gymshm import FallbackWarning
from support import wait_until

SPACE = gs.Dict({"image": gs.Box(0, 255, (1000, 1000), np.uint8), "word": gs.Text(5)})

def create(**options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        memory = gymshm.create_shared_memory(SPACE, n=2, **options)
    return memory, caught

def python(code, *argv, **options):
    command = [sys.executable, "-X", "faulthandler", "-W", "ignore::RuntimeWarning", "-c", code, *argv]
    return subprocess.run(command, capture_output=True, text=True, **options)

def clean():
    "Nothing is left, neither a name nor room that is taken."
    return not os.listdir("/dev/shm") and not os.listdir(os.environ["TMPDIR"]) and used() == before

def used():
    told = os.statvfs(os.environ["TMPDIR"])
    return told.f_blocks - told.f_bfree

before = used()
"""


@pytest.fixture
def run(tmp_path: Path):
    """Runs code with a temporary directory of 32 MB, whose room can be counted."""

    def run_there(code: str, shm: str = "1m", tmp: str = "32m") -> str:
        done = run_isolated(BEGIN + textwrap.dedent(code), shm=shm, tmp=(tmp_path, tmp))
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout

    return run_there


def test_the_segment_is_a_file_and_one_warning_says_so(run):
    run(
        """
        memory, caught = create()
        segment = gymshm.segment_of(memory)
        (warning,) = caught
        assert warning.category is FallbackWarning
        text = str(warning.message)
        assert f"{segment.nbytes} bytes were needed" in text, text
        assert "1048576 bytes are free in /dev/shm" in text, text
        assert "--shm-size" in text and os.environ["TMPDIR"] in text, text
        assert stat.S_IMODE(os.stat(segment.path).st_mode) == 0o600
        assert os.readlink(segment.path).startswith(os.environ["TMPDIR"])
        small = gymshm.create_shared_memory(gs.Discrete(2))  # it still finds its place, without a warning
        assert gymshm.segment_of(small).path is None
        """
    )


def test_every_byte_can_be_written_and_read(run):
    run(
        """
        memory, _ = create()
        memory["image"].view[:] = 255
        memory["word"].view[:] = -1
        batch = gymshm.read_from_shared_memory(SPACE, memory, n=2)
        assert batch["image"].all() and batch["word"] == ("", "")
        gymshm.write_to_shared_memory(SPACE, 1, {"image": np.full((1000, 1000), 3, np.uint8), "word": "words"}, memory)
        assert memory["image"].view[1].sum() == 3_000_000
        assert gymshm.read_from_shared_memory(SPACE, memory, n=2)["word"] == ("", "words")
        """
    )


def test_it_is_attached_to_by_name_under_any_temporary_directory(run):
    run(
        """
        memory, _ = create()
        name = gymshm.segment_of(memory).name
        code = '''if True:
            import sys, gymshm, numpy as np
            attachment = gymshm.attach(sys.argv[1])
            attachment.write(1, {"image": np.full((1000, 1000), 7, np.uint8), "word": "seven"})
            print(attachment.read()["image"].sum(), attachment.segment.path)
        '''
        for directory in (os.environ["TMPDIR"], "/var/tmp", "/not/there"):
            memory["image"].view[:] = 0
            done = python(code, name, env={**os.environ, "TMPDIR": directory})
            assert (done.returncode, done.stderr) == (0, ""), done
            assert done.stdout.split() == ["7000000", gymshm.segment_of(memory).path]
            assert memory["image"].view[1].all() and not memory["image"].view[0].any()
        """
    )


def test_read_only_arrays_refuse_writes(run):
    run(
        """
        memory, _ = create()
        attachment = gymshm.attach(gymshm.segment_of(memory).name, read_only=True)
        memory["image"].view[:] = 9
        assert attachment.read()["image"].min() == 9
        for attempt in (
            lambda: attachment.arrays["image"].fill(0),
            lambda: attachment.arrays["image"].setflags(write=True),
            lambda: attachment.write(0, {"image": np.zeros((1000, 1000), np.uint8), "word": ""}),
        ):
            try:
                attempt()
            except ValueError:
                continue
            raise AssertionError(attempt)
        """
    )


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_memory_travels_under_every_start_method(run, method):
    run(
        f"""
        import multiprocessing
        import child_tasks
        if __name__ == "__main__":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                memory = gymshm.create_shared_memory(gs.Dict(
                    {{**child_tasks.SPACE.spaces, "zz": gs.Box(0, 1, (500_000,), np.uint8)}}), n=3)
            part = {{key: memory[key] for key in ("numbers", "word")}}
            context = multiprocessing.get_context({method!r})
            processes = [context.Process(target=child_tasks.write_row, args=(part, index)) for index in range(2)]
            for process in processes:
                process.start()
            for process in processes:
                process.join()
            assert [process.exitcode for process in processes] == [0, 0]
            assert gymshm.read_from_shared_memory(child_tasks.SPACE, part, n=3)["word"] == ("w0", "w1", "")
            del memory, part, process, processes
            wait_until(lambda: not os.listdir("/dev/shm"))
        """
    )


def test_the_command_line_sees_it(run):
    run(
        """
        memory, _ = create()
        name = gymshm.segment_of(memory).name
        gymshm_ = [sys.executable, "-m", "gymshm"]
        (told,) = json.loads(subprocess.run([*gymshm_, "list", "--json"], stdout=subprocess.PIPE).stdout)
        assert (told["name"], told["kind"], told["status"], told["n"]) == (name, "file", "alive", 2), told
        done = subprocess.run([*gymshm_, "inspect", name], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "") and "values['image']" in done.stdout, done
        done = subprocess.run([*gymshm_, "clean", "--yes"], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, "There is nothing to remove.\\n"), done
        assert gymshm.attach(name).n == 2
        """
    )


def test_it_goes_with_the_last_view(run):
    run(
        """
        memory, _ = create()
        assert used() - before >= 2_000_000 // 4096
        view = memory["image"].view[0, ::2]
        del memory
        assert os.listdir("/dev/shm")
        view[:] = 1
        del view
        assert clean(), os.listdir("/dev/shm")
        """
    )


def test_close_and_unlink_work_as_in_shared_memory(run):
    run(
        """
        memory, _ = create()
        segment = gymshm.segment_of(memory)
        view = memory["image"].view
        segment.unlink(); segment.unlink(); segment.close(); segment.close()
        assert not os.listdir("/dev/shm")
        view[:] = 4
        assert view.min() == 4
        memory, _ = create(name="chosen")
        try:
            create(name="chosen")
        except gymshm.SegmentExistsError:
            pass
        gymshm.attach("chosen").segment.unlink()
        assert not os.listdir("/dev/shm") and memory["image"].view.sum() == 0
        """
    )


@pytest.mark.parametrize(
    ("end", "returncode"),
    [
        ("", 0),
        ("raise RuntimeError('on purpose')", 1),
        ("sys.exit(3)", 3),
        ("os._exit(4)", 4),
        ("os.kill(os.getpid(), signal.SIGINT)", -2),
        ("os.kill(os.getpid(), signal.SIGTERM)", -15),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9),
        ("os.killpg(0, signal.SIGHUP)", -1),
    ],
)
def test_nothing_stays_however_the_creator_ends(run, end, returncode):
    run(
        f"""
        code = '''if True:
            import os, signal, sys, gymshm, numpy as np
            from gymnasium import spaces as gs
            memory = gymshm.create_shared_memory(gs.Box(0, 255, (3_000_000,), np.uint8))
            memory.view[:] = 1
            assert os.listdir("/dev/shm")
            {end}
        '''
        done = python(code, start_new_session=True)
        assert done.returncode == {returncode}, done
        assert "resource_tracker" not in done.stderr
        assert done.stderr.count("Traceback") == ({returncode} in (1, -2)), done
        assert clean(), os.listdir("/dev/shm")
        """
    )


def test_an_attacher_s_end_harms_nothing(run):
    run(
        """
        memory, _ = create()
        name = gymshm.segment_of(memory).name
        for end in ("", "os._exit(0)", "os.kill(os.getpid(), 9)"):
            python(f"import os, sys, gymshm; a = gymshm.attach(sys.argv[1]); a.arrays['image'][:] = 5; {end}", name)
            assert memory["image"].view.min() == 5
            memory["image"].view[:] = 0
            assert gymshm.attach(name).n == 2
        """
    )


def test_when_both_places_are_full_there_is_one_clear_error_and_nothing_is_left(run):
    run(
        """
        try:
            create(name="nowhere")
        except OSError as error:
            text = str(error)
            assert "Expected room for a segment of 2000" in text, text
            assert "in /dev/shm (No space left on device)" in text, text
            assert f"in {os.environ['TMPDIR']} (No space left on device)" in text, text
            assert "--shm-size" in text and "TMPDIR" in text and "\\n" not in text, text
        else:
            raise AssertionError
        assert clean(), os.listdir("/dev/shm")
        assert gymshm.segment_of(gymshm.create_shared_memory(gs.Discrete(2), name="nowhere")).name == "nowhere"
        """,
        tmp="1m",
    )


def test_a_shared_memory_without_a_free_page_or_that_can_t_be_written_to_is_no_obstacle(run):
    run(
        """
        with open("/dev/shm/theirs", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, os.statvfs("/dev/shm").f_bavail * 4096)
        assert os.statvfs("/dev/shm").f_bavail == 0
        memory, _ = create()
        assert gymshm.attach(gymshm.segment_of(memory).name).n == 2
        del memory
        subprocess.run(["mount", "-o", "remount,ro", "/dev/shm"], check=True)
        memory, (warning,) = create()
        assert "Read-only file system" in str(warning.message)
        segment = gymshm.segment_of(memory)
        assert os.listdir(os.environ["TMPDIR"]) == [f"{segment.name}.gymshm"]
        done = python("import sys, gymshm; print(gymshm.attach(sys.argv[1]).n)", segment.name)
        assert (done.stdout, done.stderr) == ("2\\n", ""), done
        del memory, segment
        assert os.listdir(os.environ["TMPDIR"]) == [] and used() == before
        from child_tasks import orphans
        (name,) = orphans(1)
        assert os.listdir(os.environ["TMPDIR"]) == [f"{name}.gymshm"] and used() == before  # the link alone
        done = subprocess.run([sys.executable, "-m", "gymshm", "clean", "--yes"], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "") and name in done.stdout, done
        assert os.listdir(os.environ["TMPDIR"]) == []
        """
    )


def test_links_that_somebody_planted_are_not_followed(run):
    run(
        """
        victim = os.path.join(os.environ["TMPDIR"], "victim")
        with open(victim, "wb") as file:
            file.write(b"precious")
        os.symlink(victim, "/dev/shm/planted")
        os.symlink(victim, os.path.join(os.environ["TMPDIR"], "other.gymshm"))
        try:
            create(name="planted")
        except gymshm.SegmentExistsError:
            pass
        else:
            raise AssertionError
        for name in ("planted", "other"):
            try:
                gymshm.attach(name)
            except gymshm.SegmentNotFoundError:
                continue
            raise AssertionError(name)
        memory, _ = create(name="other")
        assert gymshm.attach("other").n == 2
        assert open(victim, "rb").read() == b"precious"
        """
    )


def test_a_vector_environment_works_as_ever(run):
    run(
        """
        import child_tasks
        from environments import Clock
        space = gs.Box(0, 255, (600_000,), np.uint8)
        def observe(t):
            return np.full(600_000, t, np.uint8)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FallbackWarning)
            env = gymshm.ShmVectorEnv([lambda: Clock(observation_space=space, observe=observe)] * 2, context="fork")
        env.reset()
        for _ in range(3):
            observations = env.step(np.zeros(2, np.int64))[0]
        assert (observations == 3).all()
        env.close()
        del env
        gc.collect()
        assert not os.listdir("/dev/shm")
        """
    )
