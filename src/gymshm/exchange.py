"""What a vector environment and its workers exchange at each step, all of it in one segment.

=====================  =================  =========================================================
field                  lead               written by
=====================  =================  =========================================================
observations           (n,) or (K, n)     workers, each its own rows; K is the number of slots
actions                (n,) or (K, n)     the parent
rewards                (n,) or (K, n)     workers; float64
terminations           (n,) or (K, n)     workers; bool
truncations            (n,) or (K, n)     workers; bool
final_observations     (n,)               workers, in SAME_STEP mode, before the reset
info_floats            (16, n)            workers; float64: see ``info_columns``
info_integers          (16, n)            workers; int64
turns_asked            (n,)               the parent; int64: see ``turns``
turns_done             (n,)               workers; int64: turns done << 1 | whether a payload follows
seen_slot              (1,)               the parent; int64: which slot holds what a caller has seen last
lines                  (workers, 2)       parent and worker, one cache line each: see ``doorbell``
=====================  =================  =========================================================

Observations or actions whose space has no fixed size are not here: they travel pickled.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces as gs

from . import segment as segments
from .doorbell import LINE_WORDS
from .plan import Field
from .segment import Segment
from .spaces import describe, outline
from .views import Memory, assemble, at_slot, leaves, views

__all__ = ["INFO_COLUMNS", "Exchange", "Terms", "share"]

#: Columns of each kind for numeric infos; an info with more numbers of a kind than that is pickled as a whole.
INFO_COLUMNS = 16


def share(num_envs: int, num_workers: int) -> list[range]:
    """Which environments each worker runs: contiguous, and as even as possible (17 on 6: 3, 3, 3, 3, 3, 2)."""
    least, more = divmod(num_envs, num_workers)
    starts = [worker * least + min(worker, more) for worker in range(num_workers + 1)]
    return [range(start, stop) for start, stop in itertools.pairwise(starts)]


@dataclass(frozen=True)
class Terms:
    """What both sides have to agree on.

    Attributes:
        observation_space: Of one environment; None where observations travel pickled.
        action_space: Of one environment; None where actions travel pickled.
        num_envs: Number of environments.
        num_workers: Number of workers.
        slots: Steps whose results are kept, K.
        keeps_final: Whether terminal observations have a field of their own.
    """

    observation_space: gs.Space[Any] | None
    action_space: gs.Space[Any] | None
    num_envs: int
    num_workers: int
    slots: int
    keeps_final: bool


class Exchange:
    """One side's view of the segment.

    Attributes:
        segment: The segment.
        observations, actions: The memory of each slot, as ``create_shared_memory`` shapes it; none where they travel
            pickled.
        final_observations: Likewise, without slots; None where there are none.
        rewards, terminations, truncations: Arrays of shape ``(slots, n)``.
        turns_asked, turns_done: Arrays of shape ``(n,)``.
        seen_slot: One int64: the slot that holds the observations that were returned to the caller last.
        info_columns: By kind, arrays of shape ``(INFO_COLUMNS, n)``.
    """

    def __init__(self, segment: Segment, terms: Terms) -> None:
        """Over a segment that :meth:`create` made or a worker attached to."""
        self.segment, self.terms = segment, terms
        self._numbers = {field.name: i for i, field in enumerate(segment.header.layout.fields)}
        self.observations = self._slots("observations")
        self.actions = self._slots("actions")
        self.rewards = self._array("rewards").reshape(terms.slots, terms.num_envs)
        self.terminations = self._array("terminations").reshape(terms.slots, terms.num_envs)
        self.truncations = self._array("truncations").reshape(terms.slots, terms.num_envs)
        self.info_columns = {kind: self._array(f"info_{kind}") for kind in ("floats", "integers")}
        self.turns_asked, self.turns_done = self._array("turns_asked"), self._array("turns_done")
        self.seen_slot: Any = self._array("seen_slot").data
        self.final_observations = self._memory("final_observations")

    @classmethod
    def create(cls, terms: Terms) -> Exchange:
        """A new segment on these ``terms``, owned by this process.

        Raises:
            CustomSpaceError, TypeError: A space has no fixed size.
            OSError: There is no room for it.
        """
        n, slots = terms.num_envs, terms.slots
        lead = (n,) if slots == 1 else (slots, n)
        number = gs.Box(-np.inf, np.inf, (), np.float64)
        flag = gs.Box(0, 1, (), np.bool_)  # type: ignore[arg-type]
        integer = gs.Box(np.iinfo(np.int64).min, np.iinfo(np.int64).max, (), np.int64)
        word = gs.Box(np.iinfo(np.int64).min, np.iinfo(np.int64).max, (LINE_WORDS,), np.int64)
        fields = [
            Field("rewards", lead, outline(number)),
            Field("terminations", lead, outline(flag)),
            Field("truncations", lead, outline(flag)),
            Field("info_floats", (INFO_COLUMNS, n), outline(number)),
            Field("info_integers", (INFO_COLUMNS, n), outline(integer)),
            Field("turns_asked", (n,), outline(integer)),
            Field("turns_done", (n,), outline(integer)),
            Field("seen_slot", (1,), outline(integer)),
            Field("lines", (terms.num_workers, 2), outline(word)),
        ]
        if terms.action_space is not None:
            fields.insert(0, Field("actions", lead, outline(terms.action_space)))
        if terms.observation_space is not None:
            fields.insert(0, Field("observations", lead, outline(terms.observation_space)))
            if terms.keeps_final:
                fields.append(Field("final_observations", (n,), outline(terms.observation_space)))
        return cls(segments.create(fields, n), terms)

    def lines(self, worker: int) -> tuple[memoryview, memoryview]:
        """The parent's line and the line of ``worker``: :data:`LINE_WORDS` int64 each."""
        pair = self._array("lines")[worker]
        return memoryview(pair[0]), memoryview(pair[1])

    def carry_over(self, before: int, after: int, rows: np.ndarray) -> None:
        """Copies the observations of ``rows``, a bool array of shape ``(n,)``, from one slot to another."""
        if self.observations:
            pairs = zip(leaves(self.observations[before]), leaves(self.observations[after]), strict=True)
            for old, new in pairs:
                new.live_view()[rows] = old.live_view()[rows]

    def count_turns(self) -> int:
        """How many turns all environments have done by now, the ones of other workers included."""
        return int((self.turns_done >> 1).sum())

    def field_arrays(self, name: str) -> Any:
        """The arrays of the field ``name``, nested as its space is; None where there is none.

        Their shape is ``(slots, n, *shape)``, or ``(n, *shape)`` where there is one slot.
        """
        memory = self._memory(name)
        return None if memory is None else views(memory)

    def _array(self, name: str) -> np.ndarray:
        (leaf,) = self.segment.header.layout.leaves[self._numbers[name]]
        return self.segment.array(leaf)

    def _slots(self, name: str) -> list[Memory]:
        memory = self._memory(name)
        if memory is None:
            return []
        if self.terms.slots == 1:
            return [memory]
        return [at_slot(memory, slot) for slot in range(self.terms.slots)]

    def _memory(self, name: str) -> Memory | None:
        """The tree of a field, all slots in each leaf; None where there is no such field."""
        number = self._numbers.get(name)
        if number is None:
            return None
        space = self.terms.action_space if name == "actions" else self.terms.observation_space
        return _keyed(space, assemble(self.segment, number))


def _keyed(space: gs.Space[Any] | None, memory: Memory) -> Memory:
    """``memory`` with the keys of ``space``: the header that it was made from can't tell keys of every type."""
    if isinstance(memory, dict):
        described: Any = describe(space)
        parts = zip(described.spaces.items(), memory.values(), strict=True)
        return {key: _keyed(child, part) for (key, child), part in parts}
    if isinstance(memory, tuple):
        described = describe(space)
        chosen = memory[:1] if isinstance(described, gs.OneOf) else ()
        parts = zip(described.spaces, memory[len(chosen) :], strict=True)
        return (*chosen, *(_keyed(child, part) for child, part in parts))
    return memory
