"""``copy=True`` without a copy: slots that are lent to the caller, and not written again while anything refers to them.

``copy=True`` promises arrays that are the caller's. Copying a large batch takes longer than the step it belongs to: it
goes to new memory each time, every page of which is a fault. So there are a few more slots than history asks for. A
step writes a slot of which nobody has an array, and returns views of it; as long as one of these lives, or anything
made of it, the slot is left alone. Where all slots are lent, because the caller keeps the arrays, a step writes slot 0,
and what it returns is copied.

Reference counts tell whether an array is out. Whatever is made of an array refers to the object that owns the memory:
numpy gives every view the same ``base``. Here that is an array per slot and leaf, the *keeper*, over its own buffer.
(Who goes on from the keeper to its buffer, and makes another array of that, is past what can be counted.)

Rules of this file:

1. The slot that was returned last is not written next, even if the caller has dropped it: onlookers need what it holds,
   and so does an environment that fails in the next step.
2. A fork may hold what is lent, and nobody learns when it drops it: what is out at a fork is never lent again.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces as gs

from .allocation import room
from .batches import Take, batch_reader, copied
from .exchange import Exchange
from .plan import Field, plan
from .spaces import outline

__all__ = ["Loans", "slots_to_lend"]

#: Bytes of a leaf's batch from which on lending it costs less than copying it.
_LEAST_NBYTES = 1 << 16

#: Slots to lend. Two are enough for a caller that holds one batch at a time, three for one that compares two.
_FEWEST, _MOST = 2, 3

#: The most bytes that they may take, and which part of the room that shared memory has.
_MOST_NBYTES, _PART_OF_ROOM = 1 << 26, 8

#: How often to try whether reference counts tell: an interpreter may count otherwise once code has run a few times.
_TRIALS = 32


def slots_to_lend(space: gs.Space[Any], n: int) -> int:
    """How many slots more than one it takes to lend observations of ``space``; 0 where copies do, or there is no room.

    Args:
        space: The observation space of one environment.
        n: Number of environments.
    """
    layout = plan([Field("observations", (n,), outline(space))])
    if all(leaf.nbytes < _LEAST_NBYTES for leaf in layout.leaves[0]) or not _counts_tell():
        return 0
    slots = min(_MOST_NBYTES, room() // _PART_OF_ROOM) // layout.nbytes
    return min(slots, _MOST) if slots >= _FEWEST else 0


class Loans:
    """The slots of an exchange from 1 on, as they are lent and come back.

    Args:
        space: The observation space of one environment.
        exchange: Has the observations.

    Attributes:
        observe: For each slot a function that gives its batch, which is the caller's from then on.
    """

    def __init__(self, space: gs.Space[Any], exchange: Exchange) -> None:
        """Has lent nothing yet."""
        n, (first, *others) = exchange.terms.num_envs, exchange.observations
        loans = [_Loan(functools.partial(batch_reader, space, memory, n)) for memory in others]
        self._loans = dict(enumerate(loans, 1))
        self.observe: list[Callable[[], Any]] = [batch_reader(space, first, n, copied), *(loan.give for loan in loans)]
        _all.add(self)

    def next_slot(self, current: int) -> int:
        """The slot to write next: one that nobody has, and not ``current``; 0 where there is none."""
        for slot, loan in self._loans.items():
            if slot != current and not loan.is_out():
                return slot
        return 0

    def write_off(self) -> None:
        """Does not count on getting back what is out."""
        self._loans = {slot: loan for slot, loan in self._loans.items() if not loan.is_out()}


class _Loan:
    """One slot.

    Args:
        reader: Makes, as :func:`batch_reader` does, a function that gives a batch.

    Attributes:
        give: Gives its batch.
    """

    def __init__(self, reader: Callable[[Take], Callable[[], Any]]) -> None:
        self._keepers: list[np.ndarray] = []
        self.give = reader(self._lent)
        self._counts_at_home = self._counts()

    def is_out(self) -> bool:
        """Whether somebody has an array of it."""
        return self._counts() != self._counts_at_home

    def _counts(self) -> list[int]:
        return [sys.getrefcount(keeper) for keeper in self._keepers]

    def _lent(self, view: np.ndarray) -> Callable[[], np.ndarray]:
        """A function that gives ``view`` as an array of which the keeper is the base; or, if it is small, a copy."""
        if view.nbytes < _LEAST_NBYTES:
            return copied(view)
        keeper = np.frombuffer(view.reshape(-1).view(np.uint8).data, view.dtype)
        self._keepers.append(keeper)
        return keeper.reshape(view.shape).view


def _counts_tell() -> bool:
    """Whether reference counts tell here who has an array: not every interpreter counts all, and at once."""
    if not hasattr(sys, "getrefcount"):
        return False
    loan = _Loan(lambda lend: lend(np.zeros(_LEAST_NBYTES, np.uint8)))
    for _ in range(_TRIALS):
        part = loan.give()[:1]
        told = loan.is_out()
        del part
        if not told or loan.is_out():
            return False
    return True


#: All that a fork might inherit.
_all: weakref.WeakSet[Loans] = weakref.WeakSet()


def _before_fork() -> None:
    for loans in list(_all):
        loans.write_off()


os.register_at_fork(before=_before_fork)
