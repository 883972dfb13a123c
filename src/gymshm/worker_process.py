"""The parent's side of one worker: its process, the ways to it, and what to say of its end.

Only here are workers' processes started and ended.
"""

from __future__ import annotations

import contextlib
import enum
import multiprocessing.process
import os
import pickle
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from gymnasium import Env
from gymnasium.vector.utils import CloudpickleWrapper, clear_mpi_env_vars

from . import tracker
from .compat import AutoresetMode
from .doorbell import Doorbell
from .errors import WorkerDiedError
from .time_limits import deadline_of, left_until
from .worker import STACK_SIGNAL, main

__all__ = ["END_SECONDS", "LOOK_SECONDS", "Employment", "Stage", "WorkerProcess", "end_all", "interrupts_held", "join"]

#: Seconds that a process is given to end after SIGTERM before SIGKILL, and to be gone after that.
END_SECONDS = 1.0

#: Seconds between two looks whether a process has ended. Its sentinel is a pipe, and so is its connection: a process
#: that an environment forked has copies of both, and while it lives they tell of no end.
LOOK_SECONDS = 0.05

#: Seconds that a hung worker is given to begin to write down where it hangs, and to go on with that.
_STACK_SECONDS, _LINE_SECONDS = 1.0, 0.1

#: Why it may not do so.
_SILENCE = "stopped, or in code that holds the interpreter, or SIGUSR2 is handled by somebody else"


class Stage(enum.Enum):
    """How far a worker is."""

    ENDED = "ended"  # or not begun
    BUILDING = "building"
    SETTING_UP = "setting up"
    SERVING = "serving"


@dataclass(frozen=True)
class Employment:
    """What all workers of a crew have in common.

    Attributes:
        context: A multiprocessing context.
        env_fns: Functions that create the environments, all of them.
        autoreset_mode: What happens after the end of an episode.
        daemon: Whether the processes are daemonic.
        name: The vector environment's class, for the names of the processes.
        num_workers: How many there are.
        patience: Seconds that one packet to or from a serving worker may take once it has begun; None for no limit.
    """

    context: Any
    env_fns: Sequence[Callable[[], Env[Any, Any]]]
    autoreset_mode: AutoresetMode
    daemon: bool
    name: str
    num_workers: int
    patience: float | None

    @property
    def forks(self) -> bool:
        """Whether a new process begins as a copy of this one."""
        return bool(self.context.get_start_method() == "fork")


class WorkerProcess:
    """One worker.

    Attributes:
        number: Its number.
        envs: Its environments.
        process: Its process; None before the first :meth:`launch`.
        connection: To its process.
        bell: Wakes it; None before it knows the segment.
        stage: How far it is.
        launched_at: When its process was started.
        instructed_at: When it was told the segment, and to reset its environments where it takes a dead one's place.
        asked_at: When it was asked for what it is at, where somebody counts.
        foreseen: How it died, where that is known before somebody asks :meth:`died`.
    """

    def __init__(self, number: int, envs: range, employment: Employment) -> None:
        """Starts nothing yet."""
        self.number, self.envs, self._employment = number, envs, employment
        self.process: Any = None
        self.connection: Any = None
        self.bell: Any = None
        self.stage = Stage.ENDED
        self.launched_at = self.instructed_at = self.asked_at = 0.0
        self._stack: Any = None
        self.foreseen: WorkerDiedError | None = None

    def launch(self, colleagues: Sequence[WorkerProcess]) -> None:
        """Starts the process; ``colleagues`` have connections that a fork would copy.

        Raises:
            WorkerDiedError: The fork server ended, which had to start it.
        """
        job = self._employment
        self.connection, theirs = job.context.Pipe()
        self._stack, their_stack = job.context.Pipe(duplex=False) if job.patience is not None else (None, None)
        # Ends that a fork copies; a fresh interpreter gets none.
        inherited = [end for worker in (*colleagues, self) for end in worker.own_ends()] if job.forks else []
        own_fns = [job.env_fns[i] for i in self.envs]
        process = job.context.Process(
            target=main,
            name=f"Worker<{job.name}>-{self.number}",
            args=(
                theirs,
                inherited,
                CloudpickleWrapper(own_fns),  # type: ignore[arg-type]  # carries whatever it is given
                self.envs.start,
                job.autoreset_mode,
                their_stack,
            ),
            daemon=job.daemon,
        )
        try:
            with clear_mpi_env_vars(), interrupts_held(job.context.get_start_method()):
                process.start()
                self.process, self.bell, self.foreseen = process, None, None
                self.stage, self.launched_at = Stage.BUILDING, time.monotonic()
        except (EOFError, ConnectionError) as error:
            if job.context.get_start_method() != "forkserver":
                raise
            # Newer versions of Python have it import the script, and then it is what fails.
            text = f"could not be started, for the fork server ended{self._ask_for_guard()}"
            raise self._death(text, None, "construction") from error
        finally:
            theirs.close()
            if their_stack is not None:
                their_stack.close()

    def own_ends(self) -> list[Any]:
        """The open connections that lead to the process."""
        return [end for end in (self.connection, self._stack) if end is not None and not end.closed]

    def take_up(self, lines: tuple[memoryview, memoryview], *, again: bool) -> None:
        """Makes its bell, with new lines; ``again`` where it takes the place of one that was asked something."""
        self.bell = Doorbell(*lines, self.connection)
        if again:
            self.bell.renew()
        else:
            self.bell.clear()
        self.stage, self.instructed_at = Stage.SETTING_UP, time.monotonic()

    def serve(self) -> None:
        """Has set up: from now on it answers requests, and is hung where a packet does not get through."""
        if self._employment.patience is not None:
            seconds = max(1e-3, self._employment.patience)
            limit = struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))
            with socket.socket(fileno=os.dup(self.connection.fileno())) as end:
                for side in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                    end.setsockopt(socket.SOL_SOCKET, side, limit)
        self.stage = Stage.SERVING

    def hear(self) -> Any:
        """One message, by pickle.

        Raises:
            EOFError, OSError: The process is gone.
        """
        return pickle.loads(self.connection.recv_bytes())

    def died(self, during: str) -> WorkerDiedError:
        """What to raise where the process is gone, or its connection is."""
        if self.foreseen is not None:
            death, self.foreseen = self.foreseen, None  # it is not to be held here with all its frames
            return death
        join(self.process, END_SECONDS)  # its connection closes a moment before its exit code is there
        code = self.process.exitcode
        how = "closed its connection" if code is None else f"exit code {code}"
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                how = f"{signal.Signals(-code).name}, {how}"
            if code == -signal.SIGKILL:
                how += ": often the kernel's out-of-memory killer"
        # What the script raises when it is run anew, which is before the worker reports.
        first = code == 1 and during == "construction" and self.stage is Stage.BUILDING
        asked = self._ask_for_guard() if first and not self._employment.forks else ""
        if code is not None and code >= 0 and not asked:
            how += ", as from sys.exit or os._exit"
        return self._death(f"died ({how}) during {during}{asked}", code, during)

    def failed(self, why: str, during: str) -> WorkerDiedError:
        """Kills the process, which could not be made what it has to be; what to raise."""
        self.process.kill()
        join(self.process, END_SECONDS)
        return self._death(f"failed during {during}: {why}", self.process.exitcode, during)

    def hung(self, during: str, limit: str) -> WorkerDiedError:
        """Kills the process, which did not come back within ``limit``; what to raise, with the stack it hung in."""
        stack = self._told_stack()
        self.process.kill()
        join(self.process, END_SECONDS)
        told = f" in:\n{stack}" if stack else f"; it could not say where ({_SILENCE})"
        text = f"did not finish within {limit} during {during}, and was killed. It hung{told}"
        return self._death(text, self.process.exitcode, during)

    def _ask_for_guard(self) -> str:
        """What to add where the user's script may be the cause; multiprocessing's own words are in a child's stderr."""
        method = self._employment.context.get_start_method()
        if getattr(sys.modules["__main__"], "__file__", None) == "<stdin>":
            return (
                f". Under {method!r} each worker runs the script anew, and this one came from stdin: save it as a file."
            )
        return (
            f". Under {method!r} the script is run anew in each worker: does it start its work below "
            '`if __name__ == "__main__":`?'
        )

    def _death(self, text: str, code: int | None, during: str) -> WorkerDiedError:
        of = f"worker {self.number} of {self._employment.num_workers} ({self.span})"
        return WorkerDiedError(f"{of} {text}", self.number, self.envs, code, during)

    @property
    def span(self) -> str:
        """Its environments, in short."""
        first, last = self.envs.start, self.envs.stop - 1
        return f"environment {first}" if first == last else f"environments {first}-{last}"

    def _told_stack(self) -> str:
        """The Python stack of the process, by its own account (``faulthandler``); empty where it can't tell."""
        if self._stack is None:
            return ""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, STACK_SIGNAL)
        told, patience = b"", _STACK_SECONDS
        while wait([self._stack], patience):  # it comes line by line
            part = os.read(self._stack.fileno(), 1 << 16)
            told, patience = told + part, _LINE_SECONDS
            if not part:
                break
        return told.decode(errors="replace").strip()

    def end_now(self) -> None:
        """Ends the process, whatever it is at; :meth:`discharge` has to follow."""
        self.process.kill()

    def disown(self) -> None:
        """In a fork of the parent: lets go of the process, which multiprocessing would take for a child of the fork."""
        multiprocessing.process._children.discard(self.process)  # type: ignore[attr-defined]
        for end in self.own_ends():
            with contextlib.suppress(OSError):  # who becomes a daemon closes all descriptors first, and then forks
                end.close()

    def discharge(self) -> None:
        """Lets go of a process that has ended."""
        join(self.process, END_SECONDS)
        self.stage = Stage.ENDED
        for end in self.own_ends():
            end.close()


@contextlib.contextmanager
def interrupts_held(start_method: str) -> Iterator[None]:
    """Holds SIGINT back, here and in a process that is started meanwhile, which lets it through once it ignores it.

    Not where the fork server starts it: that has a mask of its own, for others too.
    """
    if start_method == "forkserver":
        yield
        return
    if start_method == "spawn":
        tracker.start_common()
    came: list[int] = []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    # The mask is this thread's alone: a thread of numpy's may take the signal, and then it is this one that Python
    # interrupts. So for as long as it takes, the signal is only noted.
    handler = signal.getsignal(signal.SIGINT)
    notes = threading.current_thread() is threading.main_thread() and handler is not None
    try:
        # All others are held meanwhile, here and at the end: what a handler raises must not come in between.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        if notes:
            signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
        signal.pthread_sigmask(signal.SIG_SETMASK, before | {signal.SIGINT})
        yield
    finally:
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        finally:
            try:
                if notes:
                    signal.signal(signal.SIGINT, handler)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if came:
            signal.raise_signal(signal.SIGINT)


def join(process: Any, seconds: float | None) -> None:
    """Waits until ``process`` has ended, or for ``seconds``; also where others hold its sentinel."""
    deadline = deadline_of(seconds)
    while process.is_alive() and (left := left_until(deadline)) != 0:
        wait([process.sentinel], LOOK_SECONDS if left is None else min(LOOK_SECONDS, left))


def end_all(processes: Sequence[Any]) -> None:
    """Ends those that still run: SIGTERM, and SIGKILL for those that ignore it, or where somebody is in a hurry."""
    try:
        for end in ("terminate", "kill"):
            deadline = time.monotonic() + END_SECONDS
            running = [process for process in processes if process.is_alive()]
            for process in running:
                getattr(process, end)()
            for process in running:
                join(process, max(0.0, deadline - time.monotonic()))
    except BaseException:  # Ctrl-C
        for process in processes:
            process.kill()
        raise
