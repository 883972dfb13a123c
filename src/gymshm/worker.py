"""The child's side of a worker: what its process runs from start to end. ``crew`` is the parent's side.

First a conversation by pickles: the child reports its environments, is told its setup, and says whether the spaces
match. From then on it answers requests (see ``requests``).

A worker ends when its parent does, whatever it is doing: a thread watches. Ctrl-C is the parent's to handle, and so is
SIGTERM where the parent does.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from gymnasium.vector.utils import CloudpickleWrapper

from .agreement import misfits
from .compat import AutoresetMode
from .doorbell import SLEEP_SECONDS, Doorbell
from .env_group import EnvGroup
from .exchange import Exchange
from .failures import capture
from .ordering import fence
from .reply import ALL_IN_COLUMNS, FAREWELL, Reply, dumps, pickled
from .requests import INFOS_IN_COLUMNS, NOTHING_TO_ADD, PAYLOAD_FOLLOWS, STEP, Operation, Report, Setup
from .segment import attach_once

__all__ = ["STACK_SIGNAL", "begin", "main", "perform", "report"]


#: Asks a worker to write down where it is, if it was told to prepare for that.
STACK_SIGNAL = signal.SIGUSR2


def report(group: EnvGroup) -> Report:
    """What ``group`` has to say of itself."""
    first = group.envs[0]
    return Report(
        [env.observation_space for env in group.envs], first.action_space, dict(first.metadata), first.render_mode
    )


def main(
    connection: Connection,
    inherited: Sequence[Connection],
    env_fns: CloudpickleWrapper[Any],
    start: int,
    autoreset_mode: AutoresetMode,
    stack: Connection | None,
) -> None:
    """What a worker process runs.

    Args:
        connection: To the parent.
        inherited: The parent's ends of connections, that a fork copied; held here, they would hide the parent's end.
        env_fns: The functions that create the environments.
        start: Index of the first environment.
        autoreset_mode: What happens after the end of an episode.
        stack: Where to write, when it is asked for, where this process is.
    """
    if stack is not None:
        faulthandler.register(STACK_SIGNAL, stack.fileno(), all_threads=False)
    for end in inherited:
        end.close()
    begin()
    with connection, contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent is gone
        group = _build(connection, env_fns.fn, start, autoreset_mode)
        if group is not None:
            try:
                bell = _set_up(connection, group)
                if bell is not None:
                    _serve(bell, group)
            finally:
                connection.close()  # the parent need not wait for environments that are slow to close
                group.close()


def begin() -> None:
    """What a process for environments does first.

    It leaves its parent's garbage and signals to the parent, and sees to it that it ends with the parent.
    """
    # A fork has all objects of its parent, in pages that both share. A full collection would write to each of them: the
    # pages would be copied, which takes as long as many steps, and the parent's garbage would be finalized here, too.
    # From now on only what is made here is looked at.
    gc.freeze()
    signal.set_wakeup_fd(-1)  # a fork's leads to the event loop of the parent, which would take our signals for its own
    if callable(signal.getsignal(signal.SIGTERM)):
        # A fork's handler is the parent's, as one that saves a checkpoint before a batch system ends the job. Such a
        # system tells all processes of the job: the parent does its work, and has to find its workers alive meanwhile;
        # they would do it once more each. An environment may set a handler of its own.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # who started this process has held it back
    threading.Thread(target=_exit_with_parent, name="gymshm-parent-watch", daemon=True).start()


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    assert parent.pid is not None
    ends = [parent.sentinel]
    if hasattr(os, "pidfd_open"):
        # The sentinel is a pipe, whose other end also every process has that the parent forked since.
        try:
            ends.append(os.pidfd_open(parent.pid))
        except ProcessLookupError:
            os._exit(1)
        except OSError:
            pass  # the kernel is too old
    wait(ends)
    os._exit(1)


def _build(connection: Connection, env_fns: Any, start: int, autoreset_mode: AutoresetMode) -> EnvGroup | None:
    group = EnvGroup(start, autoreset_mode)
    try:
        group.build(env_fns)
        connection.send_bytes(_dumped(report(group)))
    except SystemExit:
        raise
    except BaseException as error:
        connection.send_bytes(dumps(capture(group.building, error)))
        return None
    return group


def _dumped(told: Report) -> bytes:
    try:
        return dumps(told)
    except Exception as error:
        raise TypeError(
            f"Expected spaces and metadata of environments that can be pickled, got some that can't ({error}). Where "
            "processes are not forked, define custom spaces in a module that the script imports, not in the script."
        ) from error


def _set_up(connection: Connection, group: EnvGroup) -> Doorbell | None:
    setup: Setup | None = pickle.loads(connection.recv_bytes())
    if setup is None:
        return None  # another worker failed
    try:
        exchange = Exchange(attach_once(*setup.segment), setup.terms)
        group.bind(exchange)
        told = misfits(setup, group)
        if setup.loss is not None:
            group.recover(setup.loss.slot, setup.loss.seeds, setup.loss.observations)
    except SystemExit:
        raise
    except BaseException as error:
        connection.send_bytes(dumps(capture(group.building, error)))
        return None
    theirs, ours = exchange.lines(setup.worker)
    connection.send_bytes(dumps(told))
    return Doorbell(ours, theirs, connection)


def _serve(bell: Doorbell, group: EnvGroup) -> None:
    """Answers requests until it is told to close."""
    sequence = 0
    while True:
        while not bell.spin(sequence + 1):
            bell.sleep(sequence + 1, SLEEP_SECONDS)
        sequence, operation, slot = bell.said()
        if operation == STEP:
            reply = group.step(slot)
        elif operation == Operation.TURN or operation == Operation.TURN_RESET:
            _take_turns(bell, group, sequence, operation)
            continue
        elif operation == Operation.CLOSE:
            reply = Reply()
            reply.turn = FAREWELL
            reply.failures = group.close()
        else:
            reply = _perform_pickled(group, operation, slot, bell.receive())
        if reply is None:
            bell.signal(sequence, NOTHING_TO_ADD)
        elif reply is ALL_IN_COLUMNS:
            bell.signal(sequence, INFOS_IN_COLUMNS)
        else:
            payload = pickled(reply, group.start)
            bell.signal(sequence, PAYLOAD_FOLLOWS)
            bell.connection.send_bytes(payload)
        if operation == Operation.CLOSE:
            return


def _perform_pickled(group: EnvGroup, operation: int, slot: int, payload: bytes) -> Reply | None:
    """Does what came with a payload; one that can't be rebuilt here is a failure of what was asked."""
    try:
        arguments = pickle.loads(payload)
    except Exception as error:
        reply = Reply()
        reply.failures.append(capture(group.start, error))
        return reply
    return perform(group, operation, slot, arguments)


def perform(group: EnvGroup, operation: int, slot: int, payload: Any) -> Reply | None:
    """Does what is asked with a payload.

    Args:
        group: The environments that are asked.
        operation: What is asked.
        slot: Where the results of a step go.
        payload: The actions of a step; of anything else, the arguments.
    """
    if operation == Operation.STEP_WITH:
        return group.step(slot, payload)
    methods: dict[int, Callable[..., Reply]] = {
        Operation.RESET: group.reset,
        Operation.CALL: group.call,
        Operation.SET_ATTR: group.set_attr,
    }
    return methods[operation](*payload)


def _take_turns(bell: Doorbell, group: EnvGroup, sequence: int, operation: int) -> None:
    """Serves single environments until none is asked any more; each is told of before the next one starts."""
    resets = error = None
    if operation == Operation.TURN_RESET:
        packed = bell.receive()
        try:
            resets = pickle.loads(packed)
        except Exception as refusal:
            error = refusal

    def interrupted() -> bool:
        latest, asked, _ = bell.said()
        return latest != sequence and asked != Operation.TURN

    for i, reply in group.turns(resets, interrupted) if error is None else group.fail_turns(error):
        payload = None
        if reply is not None:
            reply.turn = group.start + i
            payload = pickled(reply, group.start)
        group.end_turn(i, payload is not None)
        fence()
        bell.ring_at(group.count_turns)  # the parent may sleep for more than one to be done
        if payload is not None:
            bell.connection.send_bytes(payload)
