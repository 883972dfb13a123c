"""Other projects' vector environments, each where it is installed, used as its own documentation shows.

What differs is said here, since a number does not tell: PufferLib returns views of its buffers, others copies; tianshou
leaves resets to its user; TorchRL drops infos and returns tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from contenders import CONTENDERS, Absent, Contender, Entry, Stepper
from environments import WORKLOADS

__all__ = ["LINEUP", "PEERS"]


def _sb3(workload: str, n: int, context: str | None) -> Contender:
    from stable_baselines3.common.vec_env import SubprocVecEnv

    env = SubprocVecEnv(WORKLOADS[workload].env_fns(n), start_method=context or "fork")
    env.reset()
    return Stepper(partial(env.step, np.zeros(n, np.int64)), n, env.close)


def _tianshou(workload: str, n: int, context: str | None) -> Contender:
    from tianshou.env import ShmemVectorEnv

    env = ShmemVectorEnv(WORKLOADS[workload].env_fns(n))
    env.reset()
    actions = np.zeros(n, np.int64)

    def step() -> None:
        _, _, terminated, truncated, _ = env.step(actions)
        ended = np.flatnonzero(terminated | truncated)
        if len(ended):
            env.reset(ended)

    return Stepper(step, n, env.close)


class _FirstReady:
    """tianshou with ``wait_num``: a call waits for that many environments, and gives all that are ready by then."""

    def __init__(self, workload: str, n: int, context: str | None) -> None:
        from tianshou.env import ShmemVectorEnv

        self._env = ShmemVectorEnv(WORKLOADS[workload].env_fns(n), wait_num=max(1, n // 2))
        self._env.reset()
        self._ready = np.arange(n)

    def run(self, seconds: float) -> float:
        steps, start = 0, perf_counter()
        while (now := perf_counter()) < start + seconds:
            infos = self._env.step(np.zeros(len(self._ready), np.int64), self._ready)[4]
            self._ready = np.array([info["env_id"] for info in infos])
            steps += len(infos)
        return steps / (now - start)

    def close(self) -> None:
        self._env.close()


def _pufferlib(workload: str, n: int, context: str | None, *, num_workers: int) -> Contender:
    import pufferlib.vector

    if n % num_workers:
        raise Absent(f"n = {n} is no multiple of {num_workers} workers")
    env = pufferlib.vector.make(
        [partial(_puffer_env, env_fn) for env_fn in WORKLOADS[workload].env_fns(n)],
        env_args=[[]] * n,
        env_kwargs=[{}] * n,
        backend=pufferlib.vector.Multiprocessing,
        num_envs=n,
        num_workers=num_workers,
        overwork=True,
    )
    env.reset()
    return Stepper(partial(env.step, np.zeros(n, np.int32)), n, env.close)


def _puffer_env(env_fn: Callable[[], Any], buf: Any = None, seed: int = 0) -> Any:
    from pufferlib.emulation import GymnasiumPufferEnv

    return GymnasiumPufferEnv(env_creator=env_fn, buf=buf, seed=seed)


def _torchrl(workload: str, n: int, context: str | None) -> Contender:
    import torch
    from torchrl.envs import ParallelEnv

    torch.set_num_threads(1)
    makes = [partial(_torchrl_env, env_fn) for env_fn in WORKLOADS[workload].env_fns(n)]
    env = ParallelEnv(n, makes, mp_start_method=context or "fork")
    now = env.reset()
    action = env.rand_action(now)["action"]

    def step() -> None:
        nonlocal now
        now["action"] = action
        _, now = env.step_and_maybe_reset(now)

    return Stepper(step, n, env.close)


def _torchrl_env(env_fn: Callable[[], Any]) -> Any:
    from torchrl.envs import GymWrapper

    return GymWrapper(env_fn(), categorical_action_encoding=True)


#: By the name that tables show.
PEERS = {
    "SB3 SubprocVecEnv": Entry("stable_baselines3.common.vec_env", _sb3),
    "tianshou ShmemVectorEnv": Entry("tianshou.env", _tianshou),
    "tianshou, wait_num=n/2": Entry("tianshou.env", _FirstReady),
    "PufferLib, 1 worker": Entry("pufferlib.vector", partial(_pufferlib, num_workers=1)),
    "PufferLib, 2 workers": Entry("pufferlib.vector", partial(_pufferlib, num_workers=2)),
    "TorchRL ParallelEnv": Entry("torchrl.envs", _torchrl),
}

#: Everybody.
LINEUP = {**CONTENDERS, **PEERS}
