"""What a request gave besides what stands in the segment: the payload of a reply."""

from __future__ import annotations

import pickle
import struct
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final, TypeAlias

from .failures import Failure, capture

__all__ = ["ALL_IN_COLUMNS", "FAREWELL", "RESTARTED", "Info", "Reply", "Schema", "dumps", "pickled", "unpickled"]

#: The key of an info that tells that the environment was lost, with its worker, and built anew.
RESTARTED: Final = "worker_restarted"

#: (index of the environment, its info).
Info: TypeAlias = tuple[int, dict[str, Any]]

#: Keys and types of infos whose values stand in the columns of the segment, in order (see ``info_columns``).
Schema: TypeAlias = tuple[tuple[str, ...], tuple[type, ...]]


class Reply:
    """What there is to tell; empty where all stands in the segment.

    Attributes:
        infos: Of the environments that had any to give, unless they stand in columns.
        in_columns: Environments whose infos stand in columns.
        schema: What the columns hold from now on, where that is new.
        final_infos: Of the episodes that ended in this step, where there were any.
        final_observations: (index, observation) of the episodes that ended, where it would not survive the segment.
        observations: One per environment, where observations travel pickled.
        results: One per environment, of a call.
        failures: Of the environments that raised.
        turn: The environment whose turn this is the reply to, where environments take turns; :data:`FAREWELL` of the
            reply to being told to close; else -1.
    """

    __slots__ = (
        "failures",
        "final_infos",
        "final_observations",
        "in_columns",
        "infos",
        "observations",
        "results",
        "schema",
        "turn",
    )
    _CONTENT = tuple(name for name in __slots__ if name != "turn")

    def __init__(self) -> None:
        """Empty."""
        self.infos: list[Info] = []
        self.in_columns: list[int] = []
        self.schema: Schema | None = None
        self.final_infos: list[Info] = []
        self.final_observations: list[tuple[int, Any]] = []
        self.observations: list[Any] | None = None
        self.results: list[Any] | None = None
        self.failures: list[Failure] = []
        self.turn = -1

    def __bool__(self) -> bool:
        """Whether there is anything to tell."""
        return any(getattr(self, name) not in (None, []) for name in self._CONTENT)


#: The ``turn`` of a worker's last reply.
FAREWELL: Final = -2

#: The reply that every environment's info stands in columns, and there is nothing else to tell.
ALL_IN_COLUMNS: Final = Reply()


#: What stands in front of a packet: the turn, and how many bytes of the schema's pickle come next.
_HEAD = struct.Struct("<qq")


def dumps(value: Any) -> bytes:
    """``value`` as what travels between processes: with protocol 5, since those before lose arrays' byte order."""
    # Bytes, not the view that it gives: one that is collected before its buffer complains (3.13).
    return bytes(ForkingPickler.dumps(value, 5))


def pickled(reply: Reply, start: int) -> bytes:
    """``reply`` as bytes; what can't be pickled becomes the failure of the environment that gave it.

    Args:
        reply: The reply.
        start: Index of the worker's first environment.
    """
    # In front, and apart: what has to be known also where the rest can't be pickled, or not be rebuilt. Of a schema
    # that the parent has not heard of, all later infos would be lost.
    schema = b"" if reply.schema is None else dumps(reply.schema)
    head = _HEAD.pack(reply.turn, len(schema)) + schema
    try:
        packet: bytes = head + dumps(reply)
    except Exception as whole:
        parts: list[tuple[int, str, Any]] = [(i, f"info[{k!r}]", v) for i, info in reply.infos for k, v in info.items()]
        parts += [(i, f"final_info[{k!r}]", v) for i, info in reply.final_infos for k, v in info.items()]
        parts += [(start + i, "observation", value) for i, value in enumerate(reply.observations or [])]
        parts += [(i, "final observation", value) for i, value in reply.final_observations]
        parts += [(start + i, "result", value) for i, value in enumerate(reply.results or [])]
        cleaned = Reply()
        cleaned.failures, cleaned.turn, cleaned.schema = list(reply.failures), reply.turn, reply.schema
        before = len(cleaned.failures)
        for env, what, value in parts:
            try:
                dumps(value)
            except Exception as error:
                told = TypeError(
                    f"Expected {what} of environment {env} to be picklable, got {type(value).__name__}: {error}"
                )
                cleaned.failures.append(capture(env, told.with_traceback(error.__traceback__)))
        if len(cleaned.failures) == before:  # all of its parts can be: it is a key
            cleaned.failures.append(capture(reply.turn if reply.turn >= 0 else start, whole))
        packet = head + dumps(cleaned)
    return packet


def unpickled(packet: bytes, start: int) -> Reply:
    """The reply in ``packet``; one that can't be rebuilt in this process is a reply with that failure.

    Args:
        packet: What :func:`pickled` made.
        start: Index of the worker's first environment.

    Raises:
        Exception: What the handler of a signal raised meanwhile.
    """
    turn, size = _HEAD.unpack_from(packet)
    rest = _HEAD.size + size
    try:
        reply: Reply = pickle.loads(memoryview(packet)[rest:])
    except Exception as error:
        if _can_be_rebuilt(memoryview(packet)[rest:]):
            raise  # it came from the handler of a signal, and is no failure of an environment
        reply = Reply()
        if size:
            reply.schema = pickle.loads(memoryview(packet)[_HEAD.size : rest])
        reply.failures.append(capture(turn if turn >= 0 else start, error))
    reply.turn = turn
    return reply


def _can_be_rebuilt(pickled: memoryview) -> bool:
    try:
        pickle.loads(pickled)
    except Exception:
        return False
    return True
