"""Uses the integration with Stable-Baselines3 as a user would; read by mypy alone.

What is a mistake carries an ``ignore``: mypy complains of one that is not needed.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

import gymshm
from gymshm.integrations.sb3 import ShmVecEnv


def make_env() -> gym.Env[Any, Any]:
    return gym.make("CartPole-v1")


def environments() -> None:
    envs = ShmVecEnv([make_env] * 4, "spawn", 2, on_worker_death="restart", max_restarts=3, restart_window=60.0)
    as_theirs: VecEnv = envs
    below: gymshm.ShmVectorEnv = envs.vector_env
    watched: str = below.segment_name
    envs.seed(3)
    envs.reset()
    observations, rewards, dones, infos = envs.step(np.zeros(4, np.int64))
    mean: float = float(rewards[~dones].mean())
    first: dict[str, Any] = infos[0]
    lengths: list[Any] = envs.get_attr("spec", indices=[0, 2])
    envs.set_attr("gravity", 9.8, indices=1)
    has: bool = envs.has_attr("gravity")
    wrapped: list[bool] = envs.env_is_wrapped(gym.wrappers.TimeLimit, indices=0)
    print(as_theirs, watched, observations, mean, first, lengths, has, wrapped, envs.env_method("render"))
    envs.close()


def training() -> None:
    options = {"num_workers": "auto", "on_worker_death": "restart", "step_timeout": 5.0, "start_timeout": 60.0}
    # Stable-Baselines3 allows for its own two classes alone, in the types; not in what it does.
    cls: Any = ShmVecEnv
    envs = make_vec_env("CartPole-v1", n_envs=8, vec_env_cls=cls, vec_env_kwargs=options)
    PPO("MlpPolicy", VecNormalize(envs)).learn(1_000)


def mistakes() -> None:
    ShmVecEnv([make_env], max_restarts="3")  # type: ignore[arg-type]
    ShmVecEnv([make_env], step_timout=3.0)  # type: ignore[call-arg]
