"""A crew without processes: the same requests, carried out in the calling process as they are posted. For debugging.

Environments' exceptions come to the caller as they were raised, so that a debugger stops where they happen: once all
environments had their turn, as with workers.
"""

from __future__ import annotations

import collections
import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gymnasium import Env

from .agreement import Misfits, misfits
from .compat import AutoresetMode
from .doorbell import MESSAGE
from .env_group import EnvGroup
from .exchange import Exchange
from .failures import Failure, keep
from .ordering import STORES_ARE_ORDERED, fence
from .reply import Reply
from .requests import Operation, Report, Setup
from .restarts import TurnKeeper
from .worker import perform, report

__all__ = ["LocalCrew"]


class LocalCrew:
    """Has the interface of :class:`~gymshm.crew.Crew`, which says what each method does.

    Args:
        env_fns: Functions that create the environments.
        autoreset_mode: What happens after the end of an episode.
    """

    processes: Sequence[Any] = ()
    torn = is_busy = False
    nothing_to_add: Sequence[Reply | None] = (None,)

    def __init__(self, env_fns: Sequence[Callable[[], Env[Any, Any]]], autoreset_mode: AutoresetMode) -> None:
        """Builds nothing yet."""
        self._env_fns, self._autoreset_mode = env_fns, autoreset_mode
        self.shares = [range(len(env_fns))]
        self._group: EnvGroup | None = None
        self._replies: Sequence[Reply | None] = self.nothing_to_add
        self.seeds: Sequence[int | None] = [None] * len(env_fns)
        self._told: collections.deque[Reply] = collections.deque()
        self._sequence = 0

    def start(self, timeout: float | None) -> list[Report]:
        """Builds the environments; ``timeout`` can't be kept here."""
        group = EnvGroup(0, self._autoreset_mode, keep)
        group.build(self._env_fns)
        self._group = group
        return [report(group)]

    def set_up(self, setup: Setup, exchange: Exchange, timeout: float | None) -> list[Misfits]:
        """Binds the arrays."""
        assert self._group is not None
        self._group.bind(exchange)
        self._line, self._reply_line = exchange.lines(0)
        self._seen_slot, self._slot = exchange.seen_slot, 0
        return [misfits(setup, self._group)]

    def post(self, operation: Operation, slot: int = 0, payloads: Sequence[Any] | None = None) -> None:
        """Carries out ``operation``."""
        assert self._group is not None
        group = self._group
        if payloads is not None and operation is Operation.STEP_WITH:
            # As pickling does: environments may keep actions, and the caller may go on using them.
            payloads = copy.deepcopy(payloads)
        self.is_busy = True
        message, self._slot = self._announce(operation, slot), slot
        reply = group.step(slot) if payloads is None else perform(group, operation, slot, payloads[0])
        self._replies = self.nothing_to_add if reply is None else (reply,)
        if not STORES_ARE_ORDERED:
            fence()
        self._reply_line[MESSAGE] = message
        self.is_busy = False

    def _announce(self, operation: int, slot: int = 0) -> int:
        """Writes down what is under way, as ``Doorbell.post`` does: onlookers go by it (see ``snapshot``)."""
        self._sequence = sequence = self._sequence + 1
        self._line[MESSAGE] = message = sequence << 24 | operation << 16 | slot
        if not STORES_ARE_ORDERED:
            fence()
        return message

    def wait(self, timeout: float | None = None) -> Sequence[Reply | None]:
        """The reply to what was posted; there is nothing to wait for."""
        self._seen_slot[0] = self._slot
        return self._replies

    def post_turns(self, workers: Iterable[int]) -> None:
        """Serves the environments that are asked."""
        self._announce(Operation.TURN)
        self._serve_turns(None)

    def post_turn_resets(self, payloads: Sequence[Any], mark: Callable[[], None]) -> None:
        """Resets all environments, each as a turn of its own."""
        self._announce(Operation.TURN_RESET)
        self.is_busy = True  # before anybody is marked as asked: what is raised from here on leaves some asked for good
        mark()
        self._serve_turns(payloads[0])

    def _serve_turns(self, resets: Any) -> None:
        assert self._group is not None
        self.is_busy = True
        for i, reply in self._group.turns(resets, lambda: False):
            if reply is not None:
                reply.turn = i
                self._told.append(reply)
            self._group.end_turn(i, reply is not None)
        self.is_busy = False

    def take_turn_payload(self, number: int) -> Reply | None:
        """The next thing to tell of a turn that is done."""
        return self._told.popleft()

    def sleep_for_turns(
        self, until: int, is_over: Callable[[], bool], is_told_more: Callable[[], bool], seconds: float
    ) -> tuple[bool, list[int]]:
        """Never needed: all turns are done when they were posted."""
        raise AssertionError("there is nothing to wait for")

    def attend(self, hung: Sequence[int], gone: Sequence[int], turns: TurnKeeper) -> None:
        """Nobody can die here without the caller."""

    def disown(self) -> None:
        """What a fork does with the crew that it inherited: its environments are the parent's to close."""
        self._group = None

    @property
    def has_ended(self) -> bool:
        """Whether all environments were closed."""
        return self._group is None or not self._group.envs

    def close(self, timeout: float | None) -> list[Failure]:
        """Closes the environments; nothing bounds the time that takes."""
        return [] if self._group is None else self._group.close()
