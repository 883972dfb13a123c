"""What is said between a parent and a worker: the setup, what is asked, and how a reply is marked.

A request is a sequence number with an :class:`Operation` (see ``doorbell``); a payload follows through the connection
where there is something that has no place in the segment. The reply is the same number with one of three words: that
there is nothing to add, that all infos stand in columns, or that a payload follows. Sequence numbers, not flags: so a
reply is never taken for another request's.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Final

from gymnasium import spaces as gs

from .exchange import Terms

__all__ = [
    "INFOS_IN_COLUMNS",
    "NOTHING_TO_ADD",
    "PAYLOAD_FOLLOWS",
    "STEP",
    "Loss",
    "Operation",
    "Report",
    "Setup",
]


class Operation(enum.IntEnum):
    """What is asked of a worker."""

    STEP = 1  # the actions stand in the segment
    STEP_WITH = 2  # the actions are the payload
    RESET = 3
    CALL = 4
    SET_ATTR = 5
    CLOSE = 6
    TURN = 7  # single environments are asked: see ``turns``
    TURN_RESET = 8  # some are to be reset, each as a turn of its own; which ones, seeds and options are the payload


#: The one that is looked up at every step: until Python 3.12, a member of an ``Enum`` takes 50 ns to get.
STEP: Final = Operation.STEP

#: The word that goes with a reply's number.
NOTHING_TO_ADD, INFOS_IN_COLUMNS, PAYLOAD_FOLLOWS = range(3)


@dataclass(frozen=True)
class Report:
    """What a worker says of the environments it built: the first one's facts, and every one's observation space."""

    observation_spaces: list[gs.Space[Any]]
    action_space: gs.Space[Any]
    metadata: dict[str, Any]
    render_mode: str | None


@dataclass(frozen=True)
class Loss:
    """What the replacement of a dead worker has to know.

    Attributes:
        slot: Where the last observations stand that a caller has seen.
        seeds: What to reset the environments with.
        observations: Those last observations, where they travel pickled and there were some.
    """

    slot: int
    seeds: list[int | None]
    observations: list[Any] | None


@dataclass(frozen=True)
class Setup:
    """What a worker is told once all have reported.

    Attributes:
        segment: Name and digest of the segment.
        worker: The number of the worker that is told.
        terms: What both sides agree on.
        single_observation_space, single_action_space: What its environments' spaces have to match.
        same_spaces: Whether observation spaces have to be equal; else equal in dtype and shape.
        loss: What went before, where the worker takes the place of one that died.
    """

    segment: tuple[str, bytes]
    worker: int
    terms: Terms
    single_observation_space: gs.Space[Any]
    single_action_space: gs.Space[Any]
    same_spaces: bool
    loss: Loss | None = None
