"""What happens when a worker dies, or does not come back: told once, at construction."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DeathPolicy"]


@dataclass(frozen=True)
class DeathPolicy:
    """How a crew takes the death of a worker.

    Attributes:
        restarts: Whether a dead worker is started anew; else its death is raised.
        max_restarts: How many deaths within ``restart_window`` are too many; the next one is raised.
        restart_window: Seconds.
        step_timeout: Seconds that a step may take before its worker counts as hung, and is killed; None for any time.
    """

    restarts: bool = False
    max_restarts: int = 10
    restart_window: float = 600.0
    step_timeout: float | None = None

    @classmethod
    def of(
        cls, on_worker_death: str, max_restarts: int, restart_window: float, step_timeout: float | None
    ) -> DeathPolicy:
        """The policy that these arguments of ``ShmVectorEnv`` ask for.

        Raises:
            ValueError: One of them is out of range.
        """
        if on_worker_death not in ("raise", "restart"):
            raise ValueError(f"Expected on_worker_death to be 'raise' or 'restart', got {on_worker_death!r}.")
        if max_restarts < 0 or restart_window <= 0:
            raise ValueError(
                "Expected max_restarts from 0 up and restart_window above 0 seconds, got "
                f"{max_restarts!r} and {restart_window!r}."
            )
        if step_timeout is not None and step_timeout <= 0:
            raise ValueError(f"Expected step_timeout above 0 seconds, or None, got {step_timeout!r}.")
        return cls(on_worker_death == "restart", max_restarts, restart_window, step_timeout)
