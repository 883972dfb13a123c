from __future__ import annotations

import fcntl
import os
import signal
import sys
import termios
from pathlib import Path

import pytest

from gymshm import tracker
from support import check_python, wait_until


def test_starting_it_changes_neither_signals_nor_warnings_of_this_process():
    printed = check_python(
        """
        import os, signal, sys
        from gymshm import tracker
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
        tracker.start()
        print(signal.pthread_sigmask(signal.SIG_BLOCK, ()) == {signal.SIGUSR2}, sys.warnoptions)
        """
    )
    assert printed == "True []\n"


def has_read_all() -> bool:
    unread = fcntl.ioctl(tracker._tracker._fd, termios.FIONREAD, bytes(4))
    return int.from_bytes(unread, sys.byteorder) == 0


@pytest.mark.parametrize("kind", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGQUIT])
def test_no_signal_but_kill_ends_it(kind):
    tracker.start()
    before = tracker._tracker._pid
    os.kill(before, kind)
    # Twice: one that is ended may have been reading already, and does not come back for more.
    for _ in range(2):
        assert tracker._tell("PROBE:0:noop")
        wait_until(has_read_all)
    assert Path(f"/proc/{before}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    tracker.start()
    assert tracker._tracker._pid == before


def test_a_killed_one_is_replaced_and_told_of_all_names_and_nobody_is_warned():
    check_python(
        """
        import os, signal, warnings
        from pathlib import Path
        from gymshm import tracker
        warnings.simplefilter("error")
        first = Path("/dev/shm/gymshm-test-tracker-1")
        second = Path("/dev/shm/gymshm-test-tracker-2")
        for path in (first, second):
            path.write_bytes(b"x")
        pid = os.fork()
        if pid == 0:
            tracker.start()
            tracker.watch(first.name, (0, 1))
            old = tracker._tracker._pid
            os.kill(old, signal.SIGKILL)
            os.waitid(os.P_PID, old, os.WEXITED | os.WNOWAIT)
            tracker.watch(second.name, (0, 2))
            assert tracker._tracker._pid != old
            new = tracker._tracker._pid
            os.close(tracker._tracker._fd)
            os.waitpid(new, 0)
            assert not first.exists() and not second.exists()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        """
    )


def test_what_was_forgotten_is_left_alone_and_only_by_who_has_that_very_object():
    check_python(
        """
        import os
        from pathlib import Path
        from gymshm import tracker
        ours = Path("/dev/shm/gymshm-test-tracker-3")
        theirs = Path("/dev/shm/gymshm-test-tracker-4")
        try:
            for path in (ours, theirs):
                path.write_bytes(b"x")
                tracker.watch(path.name, (0, 1))
            tracker.forget(ours.name, (0, 2))
            tracker.forget(theirs.name, (0, 1))
            tracker.forget(theirs.name, (0, 1))
            tracker.forget("gymshm-test-never-seen", (0, 1))
            tracker._tracker._stop()
            assert not ours.exists() and theirs.exists()
        finally:
            theirs.unlink()
        """
    )


def test_a_fork_lets_go_of_it_and_starts_its_own():
    check_python(
        """
        import os
        from gymshm import tracker
        tracker.watch("gymshm-test-tracker-5", (0, 1))
        ours = tracker._tracker._pid
        pid = os.fork()
        if pid == 0:
            assert tracker._tracker._fd is None and not tracker._watched
            tracker.start()
            assert tracker._tracker._pid != ours
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert tracker._tell("PROBE:0:noop")
        """
    )


def test_a_fork_after_all_descriptors_were_closed_is_quiet_and_its_threads_can_start_one():
    check_python(
        """
        import os, threading
        from gymshm import tracker
        tracker.start()
        ours = tracker._tracker._pid
        os.closerange(3, 4096)
        pid = os.fork()
        if pid == 0:
            thread = threading.Thread(target=tracker.start, daemon=True)
            thread.start()
            thread.join(20)
            started = not thread.is_alive() and tracker._tell("PROBE:0:noop") and tracker._tracker._pid != ours
            os._exit(0 if started else 1)
        code = os.waitpid(pid, 0)[1]
        os.waitpid(ours, 0)
        tracker._tracker._fd = tracker._tracker._pid = None
        assert code == 0
        """
    )


def test_forgetting_takes_no_lock():
    check_python(
        """
        import threading
        from gymshm import tracker
        tracker.watch("gymshm-test-tracker-6", (0, 1))
        tracker._lock.acquire()
        tracker._tracker._lock.acquire()
        thread = threading.Thread(target=tracker.forget, args=("gymshm-test-tracker-6", (0, 1)))
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
        """
    )
