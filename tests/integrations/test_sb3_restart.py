"""ShmVecEnv with ``on_worker_death="restart"`` and limits of time: what is told when workers die or hang."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces as gs

import gymshm
from environments import assert_same
from mortal import HANG, KILL, Mortal, fates
from wanderers import Wanderer

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed: the extra sb3")

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from gymshm.integrations.sb3 import ShmVecEnv

# More would only wait for each other, and for whatever else this machine does.
torch.set_num_threads(1)

#: Environments 0 and 1 have the first worker, 2 and 3 the second.
MORTALS = {"start_method": "fork", "num_workers": 2, "on_worker_death": "restart"}


def mortals(**options: Any) -> ShmVecEnv:
    """Four clocks that die as their actions say, with infos that tell their time."""
    return ShmVecEnv([partial(Mortal, episode=5, info=tell_time)] * 4, **{**MORTALS, **options})


def tell_time(t: int) -> dict[str, Any]:
    return {"t": t}


def observed(*times: int) -> np.ndarray:
    """What clocks show at these times."""
    return np.array([[t, t] for t in times], np.float32)


def goes_on(t: int) -> dict[str, Any]:
    """The info of a clock whose episode goes on."""
    return {"t": t, "TimeLimit.truncated": False}


def lost(t: int) -> dict[str, Any]:
    """The info of a clock that was lost after it had shown ``t``."""
    return {"worker_restarted": True, "TimeLimit.truncated": True, "terminal_observation": observed(t)[0]}


def test_a_lost_step_is_truncated_and_says_so_and_the_others_go_on() -> None:
    envs = mortals()
    envs.reset()
    for _ in range(2):
        envs.step(fates(4))
    observations, rewards, dones, infos = envs.step(fates(4, env1=KILL))
    assert_same(observations, observed(0, 0, 3, 3))
    assert_same(rewards, np.array([0, 0, 3, 3], np.float32))
    assert_same(dones, np.array([True, True, False, False]))
    assert_same(infos, [lost(2), lost(2), goes_on(3), goes_on(3)])
    assert_same(envs.reset_infos, [{"t": 0}] * 4)
    assert_same(
        envs.step(fates(4)),
        (
            observed(1, 1, 4, 4),
            np.array([1, 1, 4, 4], np.float32),
            np.zeros(4, np.bool_),
            [goes_on(1), goes_on(1), goes_on(4), goes_on(4)],
        ),
    )
    ended = {"t": 5, "TimeLimit.truncated": False, "terminal_observation": observed(5)[0]}
    assert_same(envs.step(fates(4))[3], [goes_on(2), goes_on(2), ended, ended])
    assert envs.get_attr("resets") == [2, 2, 2, 2]
    envs.close()


def test_a_lost_step_in_which_other_episodes_end() -> None:
    envs = mortals()
    envs.reset()
    for _ in range(4):
        envs.step(fates(4))
    observations, _, dones, infos = envs.step(fates(4, env3=KILL))
    ended = {"t": 5, "TimeLimit.truncated": False, "terminal_observation": observed(5)[0]}
    assert_same(observations, observed(0, 0, 0, 0))
    assert_same(dones, np.ones(4, np.bool_))
    assert_same(infos, [ended, ended, lost(4), lost(4)])
    assert_same(envs.reset_infos, [{"t": 0}] * 4)
    envs.close()


def test_a_lost_step_of_environments_without_infos() -> None:
    envs = ShmVecEnv([Mortal] * 4, **MORTALS)
    envs.reset()
    _, _, dones, infos = envs.step(fates(4, env0=KILL))
    assert_same(dones, np.array([True, True, False, False]))
    assert_same(infos, [lost(0), lost(0), *[{"TimeLimit.truncated": False}] * 2])
    assert_same(envs.reset_infos, [{}] * 4)
    envs.close()


def test_a_worker_that_died_between_the_calls_is_told_of_by_the_next_reset() -> None:
    envs = mortals()
    envs.reset()
    kill(envs, 1)
    assert_same(envs.reset(), observed(0, 0, 0, 0))
    assert_same(envs.reset_infos, [{"t": 0}, {"t": 0}, *[{"t": 0, "worker_restarted": True}] * 2])
    assert_same(envs.step(fates(4))[3], [goes_on(1)] * 4)
    envs.close()


def kill(envs: ShmVecEnv, worker: int) -> None:
    """Kills a worker and waits until it is gone."""
    process = envs.vector_env.processes[worker]
    os.kill(process.pid, signal.SIGKILL)
    process.join(30)


def test_dict_observations_of_a_lost_step() -> None:
    space = gs.Dict(image=gs.Box(0, 255, (8, 8, 1), np.uint8), kind=gs.Discrete(3))
    envs = ShmVecEnv([partial(Wanderer, space, gs.Discrete(4))] * 4, **MORTALS)
    envs.seed(3)
    before = envs.reset()
    kill(envs, 0)
    _, _, dones, infos = envs.step(np.zeros(4, np.int64))
    assert ["worker_restarted" in info for info in infos] == [True, True, False, False]
    for env in (0, 1):
        assert (dones[env], infos[env]["TimeLimit.truncated"]) == (True, True)
        assert_same(infos[env]["terminal_observation"], {key: before[key][env] for key in before})
    envs.close()


def test_a_step_that_hangs_is_lost() -> None:
    envs = mortals(step_timeout=0.5)
    envs.reset()
    infos = envs.step(fates(4, env2=HANG))[3]
    assert_same(infos, [goes_on(1), goes_on(1), lost(0), lost(0)])
    envs.close()


def test_too_many_deaths_are_raised() -> None:
    envs = mortals(max_restarts=1, restart_window=500.0)
    envs.reset()
    envs.step(fates(4, env0=KILL))
    with pytest.raises(gymshm.WorkerDiedError, match=r"max_restarts=1 .*500\.0 s"):
        envs.step(fates(4, env0=KILL))
    envs.close()


def test_environments_that_take_too_long_to_build() -> None:
    with pytest.raises(multiprocessing.TimeoutError):
        ShmVecEnv([partial(Mortal, partial(time.sleep, 600))] * 2, start_method="fork", start_timeout=0.2)


def test_what_is_said_of_deaths_is_what_shm_vector_env_says() -> None:
    names = ("on_worker_death", "max_restarts", "restart_window", "step_timeout", "start_timeout")
    ours, below = (signature(cls).parameters for cls in (ShmVecEnv, gymshm.ShmVectorEnv))
    assert [ours[name] for name in names] == [below[name] for name in names]


class KillsAWorker(BaseCallback):
    """Kills the first worker at the hundredth step, and keeps whom that is told of."""

    def _on_training_start(self) -> None:
        self.told: list[tuple[int, int]] = []

    def _on_step(self) -> bool:
        if self.n_calls == 100:
            kill(self.training_env, 0)
        self.told += [
            (self.n_calls, env) for env, info in enumerate(self.locals["infos"]) if "worker_restarted" in info
        ]
        return True


def test_ppo_goes_on_when_a_worker_is_killed() -> None:
    options = {"num_workers": 2, "on_worker_death": "restart"}
    envs = make_vec_env("CartPole-v1", n_envs=4, seed=7, vec_env_cls=ShmVecEnv, vec_env_kwargs=options)
    killer = KillsAWorker()
    model = PPO("MlpPolicy", envs, n_steps=64, n_epochs=1, seed=7, device="cpu").learn(1_024, callback=killer)
    assert model.num_timesteps == 1_024
    assert killer.told == [(101, 0), (101, 1)]
    assert all(process.is_alive() for process in envs.vector_env.processes)
    envs.close()
