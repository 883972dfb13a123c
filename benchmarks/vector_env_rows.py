"""The rows of ``bench_vector_env.py``: a workload, who is measured on it, and what is asked."""

from __future__ import annotations

from dataclasses import dataclass

from asks import Ask
from peers import PEERS

__all__ = ["BEST_PEER", "Row", "rows"]

#: Stands for whichever peer is best in a row.
BEST_PEER = "best peer"

SYNC, ASYNC, BOUND, COPY, OURS = "SyncVectorEnv", "AsyncVectorEnv", "plain loops", "one copy", "gymshm"
ONE, IN_PROCESS = (f"gymshm, num_workers={workers}" for workers in (1, 0))
AUTO = 'gymshm, num_workers="auto"'
VIEWS, SLOTS, SEND = "gymshm, copy=False", "gymshm, copy=False, slots=8", "gymshm, send/recv"
PINNED = "gymshm, pinned"

_FIRST_READY = "tianshou, wait_num=n/2"
_BEATS_PEERS = Ask(OURS, "times", (1,), BEST_PEER)


@dataclass(frozen=True)
class Row:
    """One workload.

    Attributes:
        workload: Its name in ``environments.WORKLOADS``.
        n: Number of environments.
        contenders: Who is measured.
        asks: What is asked of whom.
        metric: What is measured: see ``runner``.
        context: The start method.
        quick: Whether a quick run has it too, with few environments.
    """

    workload: str
    n: int
    contenders: tuple[str, ...]
    asks: tuple[Ask, ...]
    metric: str = "rate"
    context: str | None = None
    quick: bool = False


def rows() -> list[Row]:
    """All of them, in the order in which they are printed."""
    peers = tuple(name for name in PEERS if name != _FIRST_READY)
    ours = (OURS, AUTO, ONE, IN_PROCESS, VIEWS)
    return [
        *(_few(n) for n in (1, 2, 4)),
        _free(
            "vector", 8, (*ours, BOUND), peers, (25, 60), *_beats_sync(1.5, headline=True), quick=True, headline=True
        ),
        Row("vector", 16, (SYNC, ASYNC, OURS, AUTO, ONE, BOUND), _beats_sync(1.5)),
        _free("vector", 64, (*ours, BOUND), peers, (50, 110), *_beats_sync(1.5)),
        Row("vector", 256, (SYNC, OURS, AUTO, ONE, BOUND), _beats_sync(1.5)),
        _free("image", 8, (*ours, SLOTS), peers, (15,)),
        _free(
            "image",
            64,
            (OURS, ONE, VIEWS, SLOTS, PINNED, COPY),
            peers,
            (),
            Ask(OURS, "within", (1.5,), COPY),
            Ask(PINNED, "within", (), COPY),
        ),
        _busy("busy-20", 8, peers, (0.9,), quick=True),
        _busy("busy-200", 8, peers, (0.9, 0.97), headline=True),
        _busy("busy-200", 32, (), (0.97,)),
        _busy("busy-200", 64, (), (0.97,)),
        Row(
            "busy-uneven",
            8,
            (ASYNC, OURS, SEND, BOUND, _FIRST_READY),
            (Ask(SEND, "share", (0.9,), BOUND), Ask(OURS, "share", (), BOUND), Ask(SEND, "times", (1,), _FIRST_READY)),
            quick=True,
        ),
        _free("dict", 32, (OURS, VIEWS), peers, (25,), quick=True, headline=True),
        _free("infos", 32, (OURS,), peers, (15,), quick=True, headline=True),
        _free("episodes", 32, (OURS, VIEWS), peers, (15,), quick=True),
        _cost("memory", 64, (10,), "fork"),
        _cost("memory", 64, (10,), "spawn", headline=True),
        _cost("start", 64, (5,), "fork"),
        _cost("start", 64, (5,), "spawn"),
        Row("vector", 8, (OURS, ASYNC, *peers), (Ask(OURS, "at most", (0.01,)),), "idle", quick=True),
    ]


def _few(n: int) -> Row:
    """So few environments that a plain loop is hard to beat."""
    return Row("vector", n, (SYNC, ASYNC, OURS, AUTO, ONE, IN_PROCESS, BOUND), _beats_sync(1))


def _beats_sync(goal: float, headline: bool = False) -> tuple[Ask, ...]:
    """A plain loop in one process is asked of who chooses for itself; what the default makes of it is shown."""
    return Ask(AUTO, "times", (goal,), SYNC), Ask(OURS, "times", (), SYNC, headline=headline)


def _free(
    workload: str,
    n: int,
    ours: tuple[str, ...],
    peers: tuple[str, ...],
    goals: tuple[float, ...],
    *asks: Ask,
    quick: bool = False,
    headline: bool = False,
) -> Row:
    """An environment that costs nothing, so that only the vector environment's own work shows."""
    best = AUTO if AUTO in ours else OURS
    first, peer = Ask(best, "times", goals, ASYNC, headline=headline), Ask(best, "times", (1,), BEST_PEER)
    return Row(workload, n, (SYNC, ASYNC, *ours, *peers), (first, *asks, peer), quick=quick)


def _busy(
    workload: str, n: int, peers: tuple[str, ...], goals: tuple[float, ...], quick: bool = False, headline: bool = False
) -> Row:
    """An environment that works: how much of the CPUs does it get?"""
    asks = (
        Ask(OURS, "share", goals, BOUND, headline=headline),
        Ask(PINNED, "share", (), BOUND),
        Ask(OURS, "times", (), ASYNC),
        *((_BEATS_PEERS,) if peers else ()),
    )
    return Row(workload, n, (ASYNC, OURS, PINNED, BOUND, *peers), asks, quick=quick)


def _cost(metric: str, n: int, goals: tuple[float, ...], context: str, headline: bool = False) -> Row:
    asks = (Ask(OURS, "times", goals, ASYNC, headline=headline),)
    return Row("vector", n, (ASYNC, OURS), asks, metric, context, quick=True)
