"""What follows from the death of a worker, as the caller wants it, and a count of recent deaths."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from .arguments import not_negative
from .errors import WorkerDiedError
from .time_limits import seconds

__all__ = ["DeathPolicy", "Deaths", "derived_seed"]


@dataclass(frozen=True)
class DeathPolicy:
    """How a crew takes the death of a worker.

    Attributes:
        restarts: Whether a dead worker is started anew; else its death is raised.
        max_restarts: How many deaths of one worker within ``restart_window`` are restarted; the next one is raised.
        restart_window: Seconds; None for no limit.
        step_timeout: Seconds that a step or reset may take before its worker counts as hung, and is killed; None for
            no limit.
    """

    restarts: bool = False
    max_restarts: int = 10
    restart_window: float | None = 600.0
    step_timeout: float | None = None

    @classmethod
    def of(
        cls, on_worker_death: str, max_restarts: int, restart_window: float | None, step_timeout: float | None
    ) -> DeathPolicy:
        """The policy that these arguments of ``ShmVectorEnv`` ask for.

        Raises:
            ValueError: One of them is out of range.
            TypeError: A time is no number.
        """
        if on_worker_death not in ("raise", "restart"):
            raise ValueError(f"Expected on_worker_death to be 'raise' or 'restart', got {on_worker_death!r}.")
        return cls(
            on_worker_death == "restart",
            not_negative(max_restarts, "max_restarts"),
            seconds(restart_window, "restart_window"),
            seconds(step_timeout, "step_timeout"),
        )


class Deaths:
    """The deaths that were restarted.

    Args:
        policy: How many are too many.
    """

    def __init__(self, policy: DeathPolicy) -> None:
        """Nobody died yet."""
        self._policy = policy
        # Their texts: an exception holds on to the frames that it went through, and all that these know.
        self._recent: list[tuple[float, int, str]] = []

    def count(self, death: WorkerDiedError) -> None:
        """Takes note of ``death``.

        Raises:
            WorkerDiedError: There were too many of this worker; it tells of all, the others' included.
        """
        now, policy = time.monotonic(), self._policy
        window = policy.restart_window
        self._recent = [past for past in self._recent if window is None or now - past[0] < window]
        self._recent.append((now, death.worker, str(death)))
        if sum(worker == death.worker for _, worker, _ in self._recent) > policy.max_restarts:
            history = "\n".join(f"- {now - when:.1f} s ago: {past}" for when, _, past in self._recent)
            within = "" if window is None else f" in {window} s"
            text = f"{death}. That is more than max_restarts={policy.max_restarts} of one worker{within}:\n{history}"
            raise WorkerDiedError(text, death.worker, death.envs, death.exitcode, death.during) from death.__cause__


def derived_seed(seed: int | None, attempt: int) -> int | None:
    """A seed for the environment that takes the place of one that was reset with ``seed``; the same in every run.

    Args:
        seed: The seed; None has no successor.
        attempt: How often its worker was started anew.
    """
    return None if seed is None else int(np.random.SeedSequence((seed, attempt)).generate_state(1)[0])
