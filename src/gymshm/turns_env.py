"""A ``VectorEnv`` over a crew whose environments take turns: ``async_reset``, ``send``, ``recv``, as EnvPool has them.

How turns are asked and taken stands in ``turns``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from .arguments import spread_seeds
from .crew_env import CrewVectorEnv
from .exchange import Exchange
from .policy import DeathPolicy
from .time_limits import seconds
from .turns import Turns, batch_of_turns

__all__ = ["StepResult", "TurnsVectorEnv"]

#: Observations, rewards, terminations, truncations and infos.
StepResult: TypeAlias = tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]


class TurnsVectorEnv(CrewVectorEnv):
    """The part of :class:`~gymshm.ShmVectorEnv` that serves single environments."""

    batch_size: int
    slots: int
    _exchange: Exchange
    _policy: DeathPolicy

    def _take_turns(self) -> None:
        """Makes ready for turns, once the exchange is there."""
        self._turns = Turns(self._crew, self._exchange, self._policy.step_timeout)

    def async_reset(
        self, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> None:
        """Asks every environment for a reset, as a turn of its own: :meth:`recv` gives those that are ready.

        Args:
            seed: As for :meth:`reset`.
            options: Handed to each environment.

        Raises:
            AlreadyPendingCallError: Another call is pending.
            ClosedEnvironmentError: It is closed.
            ValueError: A seed is missing; or there are several slots, or no ``shared_memory``.
            TypeError: ``seed`` is neither an integer nor a sequence.
        """
        self._check_idle("async_reset")
        self._check_turns()
        self._begin_turns()
        seeds = spread_seeds(seed, self.num_envs)
        self._with_turns("async_reset", self._turns.ask_resets, seeds, options)
        self._remember_seeds(seeds, [True] * self.num_envs)

    def send(self, actions: Any, env_id: Any) -> None:
        """Asks the environments ``env_id`` for a step each; :meth:`recv` gives those that are ready.

        Args:
            actions: A batch of actions, one for each of ``env_id``.
            env_id: Distinct indices of environments, as ``info["env_id"]`` gives them.

        Raises:
            AlreadyPendingCallError: One of them was sent to already and not received; or another call is pending.
            ClosedEnvironmentError: It is closed.
            ValueError, TypeError, KeyError: An action does not fit, or ``env_id`` is no such thing. Nobody was asked.
        """
        if not self._in_turns:
            self._check_idle("send")
            self._check_turns()
        self._check_running()
        self._begin_turns()
        self._with_turns("send", self._turns.ask, actions, env_id)

    def recv(self, timeout: float | None = None) -> StepResult:
        """Waits until ``batch_size`` environments are ready, whichever they are, and gives their results.

        Who waits longest for being received comes first, so none starves. Fewer than ``batch_size`` come where fewer
        were asked.

        Args:
            timeout: Seconds to wait at most; None for no limit.

        Returns:
            As :meth:`step`, with one row for each of ``info["env_id"]``. All are copies.

        Raises:
            NoAsyncCallError: Nobody was asked.
            ValueError, TypeError: ``timeout`` is not a time limit; it can be called again.
            multiprocessing.TimeoutError: ``timeout`` ran out; it can be called again.
            WorkerDiedError: A worker process ended.
            ClosedEnvironmentError: It is closed.
            Exception: What an environment raised, or its infos do not go with those of others; the others can still be
                received.
        """
        self._check_running()
        limit = seconds(timeout, "timeout", zero=True)
        result: StepResult = self._with_turns("recv", self._receive, limit)
        return result

    def _receive(self, timeout: float | None) -> StepResult:
        ids, replies = self._turns.wait(self.batch_size, timeout)
        if self._policy.restarts:
            seen = np.zeros(self.num_envs, np.bool_)
            seen[ids] = True
            self._exchange.carry_over(0, 1, seen)

        def result() -> StepResult:
            return batch_of_turns(self.single_observation_space, self._exchange, ids, replies)

        try:
            batch = result()
        except Exception:
            # Infos that do not go together never will: they are lost, as in a step. What a signal's handler raised
            # does not come twice.
            try:
                result()
            except Exception:
                self._turns.take(ids)
            raise
        self._turns.take(ids)  # last: who is interrupted before calls again, and gets the same
        return batch

    def _with_turns(self, caller: str, do: Callable[..., Any], *arguments: Any) -> Any:
        """What ``do``, a method of the turns, gives; whatever it raises, it is known afterwards what can go on."""
        self._in_turns = True
        try:
            return do(*arguments)
        except BaseException as error:
            self._refuse_unanswered(error, caller)
            raise
        finally:
            self._in_turns = self._turns.is_anybody_pending

    def _begin_turns(self) -> None:
        """Sees to it that what was seen last stands where turns expect it.

        They write to slot 0, and where workers are restarted, what was received is carried to slot 1.
        """
        if not self._in_turns:
            self._move_to(1 if self._policy.restarts else 0)

    def _move_to(self, slot: int) -> None:
        """Has what was seen last stand in ``slot``."""
        seen_slot = self._exchange.seen_slot
        if seen_slot[0] != slot:
            self._exchange.carry_over(seen_slot[0], slot, np.ones(self.num_envs, np.bool_))
            self._slot = seen_slot[0] = slot

    def _check_turns(self) -> None:
        if self.slots != 1 or not self._exchange.observations:
            raise ValueError(
                "Expected slots=1 and observations in shared memory for `send` and `recv`, got "
                f"slots={self.slots}, shared_memory={bool(self._exchange.observations)}."
            )
