"""``ShmVecEnv``: a Stable-Baselines3 ``VecEnv`` over ``ShmVectorEnv``, where ``SubprocVecEnv`` stood."""

from __future__ import annotations

import copy
import multiprocessing
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.preprocessing import check_for_nested_spaces
from stable_baselines3.common.vec_env import VecEnv

from ..compat import AutoresetMode
from ..env_fns import as_functions
from ..reply import RESTARTED
from ..vector_env import ShmVectorEnv
from .sb3_env import INFO, OPTIONS, Sb3Env

__all__ = ["ShmVecEnv"]

#: What Stable-Baselines3 calls "indices": None for all environments, one index, or several.
Indices = int | Iterable[int] | None


class ShmVecEnv(VecEnv):
    """Steps many environments in few processes; goes where Stable-Baselines3's ``SubprocVecEnv`` goes.

    Its results are those of ``DummyVecEnv``, bit for bit, but for one thing: ``TimeLimit.truncated`` is always a bool.

    Example::

        from gymshm.integrations.sb3 import ShmVecEnv

        if __name__ == "__main__":
            envs = make_vec_env("CartPole-v1", n_envs=8, vec_env_cls=ShmVecEnv)
            PPO("MlpPolicy", envs).learn(100_000)

    Attributes:
        vector_env: The ``ShmVectorEnv`` below; its ``segment_name`` is what any process may attach to, to watch.
        waiting: Whether a step is pending.
        closed: Whether it is closed.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], gym.Env[Any, Any]]],
        start_method: str | None = None,
        num_workers: int | str | None = None,
        *,
        on_worker_death: str = "raise",
        max_restarts: int = 10,
        restart_window: float | None = 600.0,
        step_timeout: float | None = None,
        start_timeout: float | None = None,
    ) -> None:
        """Starts the workers and builds the environments; each of ``env_fns`` is called once, none in this process.

        Args:
            env_fns: Functions that create the environments.
            start_method: Of the processes; None for "forkserver", or "spawn" where there is none, as in
                ``SubprocVecEnv``. Both need the script's main part below ``if __name__ == "__main__":``.
            num_workers: Number of processes, as for ``ShmVectorEnv``: None for as many as there are CPUs, 0 for none,
                "auto" for what suits the environment.
            on_worker_death: As for ``ShmVectorEnv``, and so are all that follow: ``"raise"``, or ``"restart"``, which
                starts a dead worker anew. Its environments' next step ends the lost episode: done, with
                ``TimeLimit.truncated``, ``worker_restarted`` and the last observation that was seen as
                ``terminal_observation``. Such an episode has no ``episode`` from its ``Monitor``.
            max_restarts: How many deaths of a worker within ``restart_window`` are restarted.
            restart_window: Seconds; None for no limit.
            step_timeout: Seconds that a step or reset may take before its worker is killed; None for no limit.
            start_timeout: Seconds that building the environments may take, also anew; None for no limit.

        Raises:
            ValueError: Two environments are the same object.
            NotImplementedError: Observations are nested deeper than Stable-Baselines3 takes.
            Exception: What ``ShmVectorEnv`` or an environment raises.
        """
        self.waiting, self.closed = False, False
        if start_method is None:
            start_method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
        env_fns = as_functions(env_fns)
        self.vector_env = ShmVectorEnv(
            [partial(Sb3Env, env_fn, index) for index, env_fn in enumerate(env_fns)],
            context=start_method,
            # As in Stable-Baselines3, bounds may differ; dtypes and shapes may not.
            observation_mode="different",
            autoreset_mode=AutoresetMode.SAME_STEP,
            num_workers=num_workers,
            on_worker_death=on_worker_death,
            max_restarts=max_restarts,
            restart_window=restart_window,
            step_timeout=step_timeout,
            start_timeout=start_timeout,
        )
        try:
            self.num_envs = len(env_fns)
            check_for_nested_spaces(self.vector_env.single_observation_space)
            super().__init__(
                self.num_envs, self.vector_env.single_observation_space, self.vector_env.single_action_space
            )
            self.metadata = self.get_attr("metadata", indices=0)[0]
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        """What is below, with the layout of its segment."""
        return f"{type(self).__name__} over {getattr(self, 'vector_env', None)!r}"

    def _repr_html_(self) -> str | None:
        """The same for notebooks; None where it did not come about, and they show the text."""
        vector_env: ShmVectorEnv | None = getattr(self, "vector_env", None)
        return None if vector_env is None else vector_env._repr_html_()

    # --- reset and step -----------------------------------------------------------------------------------------------

    def reset(self) -> Any:
        """Resets all environments, with what :meth:`seed` and :meth:`set_options` said last.

        Returns:
            The batch of observations, with ``n`` rows. The infos are ``reset_infos``.

        Raises:
            Exception: What ``ShmVectorEnv.reset`` raises.
        """
        options = {OPTIONS: self._options} if any(self._options) else None
        observations, told = self.vector_env.reset(seed=self._seeds, options=options)
        self.reset_infos = self._infos(told)
        self._reset_seeds()
        self._reset_options()
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        """Asks all workers to step; :meth:`step_wait` gives the result. Raises as ``ShmVectorEnv.step_async``."""
        self.vector_env.step_async(actions)
        self.waiting = True

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Waits for :meth:`step_async`.

        Returns:
            Observations, rewards (float32), dones (bool), all with ``n`` rows, and a list of ``n`` infos. Where an
            episode ended, the observation is the next one's first, and the info has ``terminal_observation``.

        Raises:
            Exception: What ``ShmVectorEnv.step_wait`` raises.
        """
        self.waiting = False
        observations, rewards, terminations, truncations, told = self.vector_env.step_wait()
        rewards = rewards.astype(np.float32)
        dones = terminations | truncations
        if not told:  # nor has an episode ended
            return observations, rewards, dones, [{"TimeLimit.truncated": False} for _ in range(self.num_envs)]
        infos, ended = self._infos(told), np.flatnonzero(dones).tolist()
        if ended:
            last_infos = self._infos(told["final_info"])
            for env in ended:
                self.reset_infos[env], infos[env] = infos[env], last_infos[env]
        limited = (truncations & ~terminations).tolist()
        for info, is_limited in zip(infos, limited, strict=True):
            info["TimeLimit.truncated"] = is_limited
        for env in ended:
            infos[env]["terminal_observation"] = told["final_obs"][env]
        return observations, rewards, dones, infos

    def _infos(self, told: dict[str, Any]) -> list[dict[str, Any]]:
        """The info of each environment, out of what ``Sb3Env`` made of them, and what was said of lost ones."""
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        # What came from another process is nobody else's; in this one, environments may keep what they gave.
        own = dict if self.vector_env.num_workers else copy.deepcopy
        for env, packed in enumerate(told[INFO].tolist() if INFO in told else ()):
            if packed is not None:
                infos[env] = own(packed[0])
        if RESTARTED in told:  # no environment's own word, but its worker's: it was not packed
            for env in np.flatnonzero(told[RESTARTED]).tolist():
                infos[env][RESTARTED] = True
        return infos

    # --- calls --------------------------------------------------------------------------------------------------------

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Calls a method of the environments ``indices``; a list of the results. Raises what they raise."""
        return self._call(indices, "env_method", method_name, method_args, method_kwargs)

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """An attribute of the environments ``indices``, or of what they wrap; a list of the values.

        Raises:
            AttributeError: One has none of that name.
        """
        return self._call(indices, "get_attr", attr_name)

    def has_attr(self, attr_name: str) -> bool:
        """Whether every environment has an attribute of that name."""
        return all(self._call(None, "has_attr", attr_name))

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Sets an attribute of the environments ``indices``: of the outermost wrapper, as in Stable-Baselines3."""
        self._call(indices, "set_attr", attr_name, value)

    def env_is_wrapped(
        self, wrapper_class: type[gym.Wrapper[Any, Any, Any, Any]], indices: Indices = None
    ) -> list[bool]:
        """Whether the environments ``indices`` are wrapped by a ``wrapper_class``; a list."""
        return self._call(indices, "env_is_wrapped", wrapper_class)

    def get_images(self) -> Sequence[np.ndarray | None]:
        """A frame of every environment; where they do not render arrays, None for each, and a warning."""
        if self.render_mode != "rgb_array":
            warnings.warn(f"Expected the render mode 'rgb_array' for images, got {self.render_mode!r}.", stacklevel=2)
            return [None] * self.num_envs
        return self.env_method("render")

    def _call(self, indices: Indices, request: str, *args: Any) -> list[Any]:
        numbers = [self._index(i) for i in self._get_indices(indices)]
        results = [iter(results) for results in self.vector_env.call("sb3_call", numbers, request, *args)]
        return [next(results[number]) for number in numbers]

    def _index(self, i: int) -> int:
        try:
            return range(self.num_envs)[i]
        except IndexError:
            raise IndexError(f"Expected indices below {self.num_envs}, the number of environments, got {i}.") from None

    def close(self) -> None:
        """Ends the workers, in bounded time; twice is fine."""
        if not self.closed:
            self.closed = True
            self.vector_env.close()
