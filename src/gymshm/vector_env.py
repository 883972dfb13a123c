"""``ShmVectorEnv``: a gymnasium ``VectorEnv`` over workers, where ``AsyncVectorEnv`` stood."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from copy import deepcopy
from time import perf_counter
from typing import Any, Final

import numpy as np
from gymnasium import Env, Space, logger
from gymnasium.error import CustomSpaceError
from gymnasium.vector.async_vector_env import AsyncState
from gymnasium.vector.utils import concatenate, create_empty_array

from .agreement import batch_spaces, refuse_misfits
from .arguments import (
    as_autoreset_mode,
    as_batch_size,
    as_max_concurrency,
    as_slots,
    check_context,
    check_flags,
    check_observation_mode,
    check_worker,
    split_mask,
    spread_seeds,
    workers_for,
)
from .batches import batch_reader, batch_writer, copied, viewed
from .compat import AutoresetMode
from .create import can_be_packed
from .crew import Crew
from .dispatch import iterate
from .doorbell import MOST_ARGUMENTS
from .env_fns import as_functions
from .exchange import Exchange, Terms
from .info_columns import ColumnReader
from .infos import batch, batch_with_ends
from .loans import Loans, slots_to_lend
from .local_crew import LocalCrew
from .policy import DeathPolicy
from .probe import Advisor, choose
from .read import read_from_shared_memory
from .reply import Reply
from .requests import STEP, Operation, Report, Setup
from .rollout import Rollout, rollout_of, store_actions
from .time_limits import seconds
from .turns_env import StepResult, TurnsVectorEnv
from .values import shown
from .worker_process import Employment

__all__ = ["ShmVectorEnv"]

_STEPPING: Final = AsyncState.WAITING_STEP  # looked up at every step: see ``requests.STEP``


class ShmVectorEnv(TurnsVectorEnv):
    """Steps many environments in few processes, with everything that moves at each step in one named segment.

    It goes where ``gymnasium.vector.AsyncVectorEnv`` stood: the same arguments, methods and results, the results being
    those of ``SyncVectorEnv``.

    Example:
        >>> import gymnasium as gym
        >>> from gymshm import ShmVectorEnv
        >>> envs = ShmVectorEnv([lambda: gym.make("CartPole-v1")] * 8)
        >>> observations, infos = envs.reset(seed=42)
        >>> observations.shape
        (8, 4)
        >>> observations, rewards, terminations, truncations, infos = envs.step(envs.action_space.sample())
        >>> envs.close()

        Where processes are not forked (``context="spawn"`` or ``"forkserver"``; the default on macOS, and from Python
        3.14 on), each worker imports the script anew: its work has to start below ``if __name__ == "__main__":``.

    See Also:
        ``gymshm.make_vec`` makes one from the name of an environment; ``gymshm.patch_gymnasium`` puts it where code
        that can't be changed constructs ``AsyncVectorEnv``; ``gymshm.integrations.sb3.ShmVecEnv`` is one for
        Stable-Baselines3. ``help(gymshm)`` has what other projects call things beside what they are called here.

    How many workers:
        A worker is a process that steps its share of the environments one after the other. The default, one for each
        CPU that this process may use, suits environments that do some work. Waking a process takes a few microseconds,
        so those whose step takes no longer are done sooner by fewer workers, or by none: ``num_workers="auto"``
        measures a step and decides, and ``python -m gymshm tune ENV_ID`` tries what there is and says what to write.
        More workers than CPUs help where environments wait for something else than a CPU. With ``num_workers=0`` all
        runs in the calling process: for a debugger, and with no protection from an environment that crashes.

    Copies and slots, or who owns what:
        Observations stand in the segment; workers write them there. With ``copy=True`` what a step returns is the
        caller's. Small batches are copied. Batches with an array of 64 KB or more are lent, as long as two of them fit
        into 64 MB and into an eighth of the shared memory that is free: views of a slot that is not written again while
        anybody has such an array, or anything that was made of it. Three slots are lent, or two where three do not
        fit; a caller that keeps more gets copies. Changing a lent array in place changes what attached processes see,
        and what a partial reset (``reset_mask``) shows of the other environments. With ``autoreset_mode="Disabled"``,
        where such resets are the rule, with ``on_worker_death="restart"``, which shows an observation again, and with
        ``slots`` > 1, all are copied. A process that is forked shares what is lent: what it writes there shows here,
        too.

        With ``copy=False`` a step returns views that show what workers write. Steps, and resets, write slot after slot
        and then the first again, so of ``slots=K`` the K-th step after the one that returned a view writes over it, and
        it holds for K - 1. Rewards, ends of episodes and infos are copies always, and so are ``Text`` and ``OneOf``.

        >>> envs = ShmVectorEnv([lambda: gym.make("CartPole-v1")] * 8, copy=False, slots=2)
        >>> before, _ = envs.reset(seed=42)
        >>> after = envs.step(envs.action_space.sample())[0]
        >>> bool((before == after).any())  # both can be read: enough for (observation, action, next observation)
        False
        >>> envs.close()

        :meth:`rollout` fills K = T + 1 slots as one array of T steps. It begins at the first slot whatever was written
        last, so views from before it do not hold any more; and it refuses to be written over by a step too many.

        A tensor that ``torch.from_numpy`` makes of a view shares its memory, and with it all of this. A copy to a GPU
        that goes on in the background (``non_blocking=True``) may read the segment after the call has returned: it has
        to end before the slot comes round, or the GPU gets a part of another step. Wait for it, by
        ``torch.cuda.synchronize()`` or an event recorded behind the copy, before the K-th step or the next rollout.

    Environments that take turns:
        :meth:`step` waits for the slowest environment. :meth:`send` and :meth:`recv` do not: ``recv`` gives those
        ``batch_size`` environments that are ready first, told by ``infos["env_id"]``, while the others go on. What it
        returns are copies. Such environments have one slot.

        >>> envs = ShmVectorEnv([lambda: gym.make("CartPole-v1")] * 8, batch_size=4)
        >>> envs.async_reset(seed=42)
        >>> for _ in range(10):
        ...     observations, rewards, terminations, truncations, infos = envs.recv()
        ...     actions = (observations[:, 2] > 0).astype(int)
        ...     envs.send(actions, infos["env_id"])
        >>> observations.shape
        (4, 4)
        >>> envs.close()

    What happens when something dies:
        * An environment raises: so does the call that waits for it, with the same exception, and the worker's traceback
          as its cause. The environments can be used again.
        * A worker dies: the call raises :class:`WorkerDiedError` within a second, and says which worker, which
          environments and how. All that is left then is ``close()``. With ``on_worker_death="restart"`` it is started
          anew instead; its environments' episodes end as truncated, with ``worker_restarted`` in their infos.
        * An environment hangs: with ``step_timeout`` its worker is killed, and that is a death, too.
        * The calling process ends, in whatever way: its workers end, and nothing of the segment is left.
        * Somebody forgets ``close()``: it is done when the object is dropped, or the interpreter exits.

    Attributes:
        num_envs: Number of environments, n.
        num_workers: Number of processes; 0 where all runs in this one.
        observations: The batch as it stands in the segment now.
        processes: The worker processes.
        segment_name: What any process may ``gymshm.attach`` to, to watch.
        observation_space, action_space, single_observation_space, single_action_space, metadata, render_mode: As in
            gymnasium.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Env[Any, Any]]],
        shared_memory: bool = True,
        copy: bool = True,
        context: str | None = None,
        daemon: bool = True,
        worker: None = None,
        observation_mode: str | tuple[Space[Any], Space[Any]] = "same",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        max_concurrency: int | None = None,
        *,
        num_workers: int | str | None = None,
        slots: int = 1,
        batch_size: int | None = None,
        start_timeout: float | None = None,
        on_worker_death: str = "raise",
        max_restarts: int = 10,
        restart_window: float | None = 600.0,
        step_timeout: float | None = None,
    ) -> None:
        """Starts the workers and builds the environments; each of ``env_fns`` is called once, none in this process.

        Args:
            env_fns: Functions that create the environments.
            shared_memory: False sends observations pickled: for spaces that have no fixed size.
            copy: Whether the observations that ``reset`` and ``step`` return are the caller's: copies, or lent where
                they are large. False returns views of the segment, which change with the next step, or after ``slots``
                steps.
            context: The start method of the processes; None for the default.
            daemon: False lets environments start processes of their own.
            worker: Not supported: a custom worker function speaks gymnasium's protocol. Give it to gymnasium's
                ``AsyncVectorEnv``, which runs over our memory (see the README).
            observation_mode: ``"same"``, ``"different"``, or (batched space, single space), as in gymnasium.
            autoreset_mode: What happens after the end of an episode.
            max_concurrency: The most environments that may execute at a time, which is the most workers.
            num_workers: Number of processes; each runs its environments one after the other. None: as many as there are
                CPUs for this process. 0: no process, everything in the calling one, for debugging. ``"auto"``: what
                suits the environment's step, which is measured on one more environment, built and stepped in a
                process of its own; for the cheapest that means no process, and so no protection from one that crashes.
                Where :meth:`step` finds later that another number suits them better, it says so once, as a warning.
            slots: Steps whose results are kept, K: what ``step`` returned with ``copy=False`` stays valid for K - 1
                further steps.
            batch_size: How many environments :meth:`recv` gives at a time; None for all.
            start_timeout: Seconds that building the environments may take, also anew after a death; None for no limit.
            on_worker_death: ``"raise"``, or ``"restart"``: the dead worker's environments are built anew and reset
                (with seeds derived from those of the last reset). Their next step ends the lost episode as truncated,
                with the last observation that was seen, and says ``worker_restarted`` in its info; attributes that were
                set are lost. The other workers never notice. A reset, a call or a ``set_attr`` in which a worker dies
                is made again in the new one: what may not run twice is the caller's to take care of. Without processes
                (``num_workers=0``) there is nothing to restart.
            max_restarts: How many deaths of one worker within ``restart_window`` seconds are restarted; one more is
                raised, with the whole history.
            restart_window: Seconds; None for no limit.
            step_timeout: Seconds that a step or reset may take, also that of a restart; None for no limit. A worker
                that takes longer is killed, and counts as dead; the error tells the Python stack it hung in, which the
                worker writes down at SIGUSR2 (an environment that handles that signal hides it). Calls and ``render``
                are not limited. Where no ``start_timeout`` is given, a rebuild is limited to ten times the first start,
                or a minute.

        Raises:
            RuntimeError: The spaces of the environments do not match.
            ValueError: An argument is out of range; the observation space is custom and can't be shared; or two
                environments of a worker are the same object.
            TypeError: ``env_fns`` is no sequence of functions; ``observation_mode`` is no pair of spaces; a flag is no
                bool; a time limit is no number; or the observation space has no fixed size.
            OSError: There is no room for the segment, neither in shared memory nor in a file.
            WorkerDiedError: A worker ended while it built its environments.
            multiprocessing.TimeoutError: ``start_timeout`` ran out.
            Exception: What an environment raised.
        """
        self.env_fns = env_fns = as_functions(env_fns)
        check_flags(shared_memory=shared_memory, copy=copy, daemon=daemon)
        check_context(context)
        self.shared_memory, self.copy, self.context, self.daemon = shared_memory, copy, context, daemon
        self.observation_mode = observation_mode
        self.autoreset_mode = as_autoreset_mode(autoreset_mode)
        self.num_envs = len(env_fns)
        self.slots = as_slots(slots, MOST_ARGUMENTS)
        self.batch_size = as_batch_size(batch_size, self.num_envs, self.slots, shared_memory)
        self.max_concurrency = as_max_concurrency(max_concurrency)
        check_observation_mode(observation_mode)
        if self.num_envs == 0:
            raise ValueError("Expected at least one function in env_fns, got none.")
        check_worker(worker)
        start_timeout = seconds(start_timeout, "start_timeout")
        policy = DeathPolicy.of(on_worker_death, max_restarts, restart_window, step_timeout)
        self._policy = policy
        self._advisor: Advisor | None = None
        own_context = multiprocessing.get_context(context)
        # From here on something is started: all else has been checked.
        if isinstance(num_workers, str) and num_workers == "auto":  # an array would be compared by element
            # Restarts and time limits are about processes.
            least = 1 if policy.restarts or policy.step_timeout is not None else 0
            most = workers_for(self.num_envs, self.num_envs, self.max_concurrency)
            num_workers, self._advisor = choose(own_context, env_fns, daemon=daemon, least=least, most=most)
        self.num_workers = workers_for(num_workers, self.num_envs, self.max_concurrency)
        if self.num_workers:
            name, patience = type(self).__name__, policy.step_timeout
            employment = Employment(own_context, env_fns, self.autoreset_mode, daemon, name, self.num_workers, patience)
            self._hire(Crew(employment, policy))
        else:
            self._hire(LocalCrew(env_fns, self.autoreset_mode))
        try:
            self._take_spaces(self._crew.start(start_timeout))
            self._set_up(start_timeout)
        except BaseException:
            if self._finalizer is not None:
                self._finalizer()
            self.closed = True
            raise

    # --- construction -------------------------------------------------------------------------------------------------

    def _take_spaces(self, reports: list[Report]) -> None:
        first = reports[0]
        self.metadata = {**first.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = first.render_mode
        spaces = batch_spaces(reports, self.observation_mode, self.num_envs)
        self.single_observation_space, self.observation_space = spaces.single_observation, spaces.observation
        self.single_action_space, self.action_space = spaces.single_action, spaces.action

    def _set_up(self, timeout: float | None) -> None:
        shares = self._shares_observations()
        lent = slots_to_lend(self.single_observation_space, self.num_envs) if shares and self._may_lend() else 0
        # What was seen last has to survive a worker that dies while it writes: so steps alternate between two slots.
        slots = max(2, self.slots) if self._policy.restarts else self.slots + lent
        terms = Terms(
            observation_space=self.single_observation_space if shares else None,
            action_space=self.single_action_space if self._packs_actions() else None,
            num_envs=self.num_envs,
            num_workers=max(1, self.num_workers),
            slots=slots,
            keeps_final=self.autoreset_mode is AutoresetMode.SAME_STEP,
        )
        self._terms = terms
        self._exchange = Exchange.create(terms)
        segment = self._exchange.segment
        self._answer_for(segment)
        setup = Setup(
            (segment.name, segment.header.digest),
            0,
            terms,
            self.single_observation_space,
            self.single_action_space,
            self.observation_mode == "same",
        )
        refuse_misfits(self._crew.set_up(setup, self._exchange, timeout), setup, type(self).__name__)
        self._write_actions = [
            batch_writer(self.single_action_space, memory, self.num_envs) for memory in self._exchange.actions
        ]
        self._loans = Loans(self.single_observation_space, self._exchange) if lent else None
        take = copied if self.copy else viewed
        self._observe = (
            self._loans.observe
            if self._loans is not None
            else [
                batch_reader(self.single_observation_space, memory, self.num_envs, take)
                for memory in self._exchange.observations
            ]
        )
        ends = zip(self._exchange.rewards, self._exchange.terminations, self._exchange.truncations, strict=True)
        self._copies = [tuple(array.copy for array in arrays) for arrays in ends]
        self._take_turns()
        self._infos = ColumnReader(self._exchange, self._crew.shares)
        self._rolls = False  # whether somebody reads actions out of the segment
        self._pickled_observations: Any = create_empty_array(self.single_observation_space, self.num_envs)

    def _shares_observations(self) -> bool:
        """Whether observations go through the segment; refuses what ``shared_memory=True`` can't do."""
        if not self.shared_memory:
            return False
        try:
            return can_be_packed(self.single_observation_space)
        except CustomSpaceError as error:
            raise ValueError(
                f"Using `{type(self).__name__}(..., shared_memory=True)` caused an error, you can disable this "
                "feature with `shared_memory=False` however this is slower."
            ) from error

    def _may_lend(self) -> bool:
        """Whether ``copy=True`` may be kept by lending (see ``loans``).

        Not where a later call shows again what is in a slot, which a caller may change once it is his.
        """
        shows_again = self._policy.restarts or self.autoreset_mode is AutoresetMode.DISABLED
        return self.copy and self.slots == 1 and not shows_again

    def _next_slot(self) -> int:
        """The slot that is written next.

        Raises:
            RuntimeError: It is one of a rollout that has all its rows.
        """
        if self._loans is not None:
            return self._loans.next_slot(self._slot)
        slot = (self._slot + 1) % self._terms.slots
        if slot == 0 and self._rolls:
            most = self._terms.slots - 1
            raise RuntimeError(
                f"Expected at most {most} steps and resets in a rollout (slots - 1), got one more, which would write "
                "over its first row. Call `rollout()` for the next one."
            )
        return slot

    def _packs_actions(self) -> bool:
        try:
            return can_be_packed(self.single_action_space)
        except (CustomSpaceError, TypeError):
            return False

    # --- reset --------------------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Resets the environments.

        Args:
            seed: One for each environment; or a number, from which environment i gets seed + i; or None.
            options: Handed to each environment. ``options["reset_mask"]``, a bool array of shape ``(n,)``, resets only
                the environments that it marks. The dict is left as it is.

        Returns:
            The batch of observations, and the infos.

        Raises:
            Exception: See :meth:`reset_async` and :meth:`reset_wait`.
        """
        self.reset_async(seed=seed, options=options)
        return self.reset_wait()

    def reset_async(
        self, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> None:
        """Asks all workers to reset; :meth:`reset_wait` gives the result.

        Raises:
            AlreadyPendingCallError: Another call is pending.
            ClosedEnvironmentError: It is closed.
            ValueError, TypeError: A seed is missing, or the mask is not a bool array of shape ``(n,)`` with a True.
            RuntimeError: The rollout has all its rows.
        """
        self._check_idle("reset_async")
        seeds = spread_seeds(seed, self.num_envs)
        options, mask = split_mask(options, self.num_envs)
        # Where a rollout has just begun, it begins with what the reset shows.
        slot = 0 if self._rolls and self._slot == 0 else self._next_slot()
        if slot != self._slot and not all(mask):
            self._exchange.carry_over(self._slot, slot, np.logical_not(mask))
        payloads = [(slot, seeds[e.start : e.stop], options, mask[e.start : e.stop]) for e in self._crew.shares]
        self._ask(AsyncState.WAITING_RESET, Operation.RESET, slot, payloads)
        self._remember_seeds(seeds, mask)

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        """Waits for :meth:`reset_async` and gives what :meth:`reset` gives.

        Args:
            timeout: Seconds to wait at most; None for no limit.

        Raises:
            NoAsyncCallError: Nothing was asked.
            ValueError, TypeError: ``timeout`` is not a time limit; it can be called again.
            multiprocessing.TimeoutError: ``timeout`` ran out; it can be called again.
            WorkerDiedError: A worker process ended.
            ClosedEnvironmentError: It is closed.
            Exception: What an environment raised, with the worker's traceback as its cause. The environments can be
                used again.
        """
        replies = self._wait(AsyncState.WAITING_RESET, timeout)
        infos = batch(self._infos.told(replies), self._add_info)
        return self._take_observations(replies), infos

    # --- step ---------------------------------------------------------------------------------------------------------

    def step(self, actions: Any) -> StepResult:
        """Steps every environment.

        Args:
            actions: A batch of ``action_space``. One of exactly its dtype and shape goes through the segment; anything
                else that can be iterated over is handed to the environments as it is, by pickle, which is slower.

        Returns:
            Observations, rewards (float64), terminations and truncations (bool), all with ``n`` rows, and infos.

        Raises:
            Exception: See :meth:`step_async` and :meth:`step_wait`.
        """
        advisor = self._advisor
        if advisor is None or not advisor.is_due():
            self.step_async(actions)
            return self.step_wait()
        start = perf_counter()
        self.step_async(actions)
        result = self.step_wait()
        if (advice := advisor.take(perf_counter() - start)) is not None:
            logger.warn("%s", advice)
        return result

    def step_async(self, actions: Any) -> None:
        """Asks all workers to step; :meth:`step_wait` gives the result.

        Raises:
            ValueError, TypeError, KeyError: ``actions`` is no batch of ``n`` actions; no environment was stepped.
            RuntimeError: The rollout has all its rows; no environment was stepped.
            AlreadyPendingCallError: Another call is pending.
            ClosedEnvironmentError: It is closed.
        """
        self._check_idle("step_async")
        slot = 0 if self._terms.slots == 1 else self._next_slot()  # mostly there is one: not worth a call
        if self._write_actions and self._write_actions[slot](actions):
            self._ask(_STEPPING, STEP, slot)
        else:
            # As gymnasium hands them over: whatever iterating gives, pickled.
            try:
                rows = list(iterate(self.action_space, actions))
            except TypeError as error:
                if hasattr(actions, "__iter__") and getattr(actions, "ndim", 1) > 0:
                    raise
                expected = f"Expected a batch of {self.num_envs} actions"
                raise TypeError(f"{error}. {expected}, got {shown(actions)}.") from None
            if len(rows) != self.num_envs:
                raise ValueError(f"Expected a batch of {self.num_envs} actions, got {len(rows)} of them.")
            if self._rolls:
                store_actions(self._exchange, slot, rows)
            payloads = [rows[envs.start : envs.stop] for envs in self._crew.shares]
            self._ask(_STEPPING, Operation.STEP_WITH, slot, payloads)

    def step_wait(self, timeout: float | None = None) -> StepResult:
        """Waits for :meth:`step_async` and gives what :meth:`step` gives.

        Args:
            timeout: Seconds to wait at most; None for no limit.

        Raises:
            NoAsyncCallError: Nothing was asked.
            ValueError, TypeError: ``timeout`` is not a time limit; it can be called again.
            multiprocessing.TimeoutError: ``timeout`` ran out; it can be called again.
            WorkerDiedError: A worker process ended.
            ClosedEnvironmentError: It is closed.
            Exception: What an environment raised, with the worker's traceback as its cause. The environments can be
                used again.
        """
        replies = self._wait(_STEPPING, timeout)
        copy_rewards, copy_terminations, copy_truncations = self._copies[self._slot]
        rewards, terminations, truncations = copy_rewards(), copy_terminations(), copy_truncations()
        infos: dict[str, Any] | None
        if self._terms.keeps_final and (terminations.any() or truncations.any()):
            ended, envs = (terminations | truncations).tolist(), range(self.num_envs)
            told = self._infos.told(replies)
            infos = batch_with_ends(told, replies, ended, envs, self._exchange, self._add_info)
        elif replies is self._crew.nothing_to_add:
            infos = {}
        else:
            infos = self._infos.common(replies)
            if infos is None:
                infos = batch(self._infos.told(replies), self._add_info)
        return self._take_observations(replies), rewards, terminations, truncations, infos

    def rollout(self) -> Rollout:
        """Begins a rollout of T = ``slots`` - 1 steps; its arrays fill in the segment as steps are made.

        ::

            envs = ShmVectorEnv(env_fns, copy=False, slots=129)
            envs.reset(seed=0)
            for update in range(updates):
                rollout = envs.rollout()
                for t in range(128):
                    envs.step(policy(rollout.observations[t]))
                learn(rollout)  # (128, n, ...) arrays: observations, actions, rewards, terminations, truncations

        From now on each action has to be one of the action space: what has another dtype is shown as converted. And
        after T steps comes the next :meth:`rollout`. A reset before the first of them takes no row; one in between
        takes a row as a step does, of rewards 0 and no ends, in which nobody chose the actions.

        Returns:
            Views, the same ones each time: the next rollout writes over this one.

        Raises:
            ValueError: There is one slot only, or observations are not in shared memory.
            AlreadyPendingCallError: A call is pending.
            ClosedEnvironmentError: It is closed.
        """
        self._check_idle("rollout")
        if self.slots < 2 or not self._exchange.observations:
            raise ValueError(
                "Expected slots=T + 1 and observations in shared memory for a rollout of T steps, got "
                f"slots={self.slots}, shared_memory={bool(self._exchange.observations)}."
            )
        self._move_to(0)  # one row in T is copied: the price for arrays that are contiguous
        self._rolls = True
        return rollout_of(self._exchange)

    # --- results ------------------------------------------------------------------------------------------------------

    @property
    def observations(self) -> Any:
        """The batch as it stands in the segment: views, which the next step changes. Text and choices are decoded."""
        if not self._exchange.observations:
            return self._pickled_observations
        return read_from_shared_memory(
            self.single_observation_space, self._exchange.observations[self._slot], self.num_envs
        )

    def _take_note(self, replies: Sequence[Reply | None]) -> None:
        self._infos.take_note(replies)

    def _take_observations(self, replies: Sequence[Reply | None]) -> Any:
        if self._observe:
            return self._observe[self._slot]()
        rows = [row for reply in replies for row in (reply.observations or () if reply is not None else ())]
        self._pickled_observations = concatenate(self.single_observation_space, rows, self._pickled_observations)
        return deepcopy(self._pickled_observations) if self.copy else self._pickled_observations

    @property
    def segment_name(self) -> str:
        """The name of the segment: any process may ``gymshm.attach`` to it and watch."""
        return self._exchange.segment.name
