"""Uses the public names as a user would; mypy reads it, strictly, and nobody runs it.

What is a mistake carries an ``ignore``: mypy complains of one that is not needed.
"""

from __future__ import annotations

import multiprocessing
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

import gymshm
from gymshm import legacy


def memory(space: spaces.Dict) -> None:
    shared = gymshm.create_shared_memory(space, n=8)
    gymshm.create_shared_memory(space, 8, multiprocessing.get_context("spawn"), name="mine")
    gymshm.write_to_shared_memory(space, 3, space.sample(), shared)
    gymshm.write_to_shared_memory(space=space, index=3, value=space.sample(), shared_memory=shared)
    batch = gymshm.read_from_shared_memory(space, shared, n=8)
    for row in gymshm.iterate(space, batch):
        print(row)
    write = gymshm.row_writer(space, shared, 3)
    write(space.sample())
    segment: gymshm.Segment = gymshm.segment_of(shared)
    name: str = segment.name
    with gymshm.attach(name, read_only=True) as attachment:
        told: gymshm.Attachment = attachment
        size: int = told.nbytes
        print(size, told.n, told.space, told.arrays, told.read(), told.snapshot(0, timeout=0.5))


def old_code(space: spaces.Box) -> None:
    shared = legacy.create_shared_memory(space, n=2)
    legacy.write_to_shared_memory(0, space.sample(), shared, space)
    legacy.read_from_shared_memory(shared, space, n=2)


class Celsius(spaces.Space[float]):
    pass


@gymshm.describe.register(Celsius)
def _(space: Celsius) -> spaces.Box:
    return spaces.Box(-273.15, np.inf, ())


def make_env() -> gym.Env[Any, Any]:
    return gym.make("CartPole-v1")


def environments() -> None:
    envs = gymshm.ShmVectorEnv([make_env] * 4, copy=False, num_workers=2, slots=9, on_worker_death="restart")
    as_gymnasium: gym.vector.VectorEnv[Any, Any, Any] = envs
    observations, infos = as_gymnasium.reset(seed=1)
    observations, rewards, terminations, truncations, infos = envs.step(np.zeros(4, np.int64))
    mean: float = float(rewards[~(terminations | truncations)].mean())
    envs.step_async(envs.action_space.sample())
    envs.step_wait(timeout=1.0)
    results: tuple[Any, ...] = envs.call("render")
    envs.set_attr("gravity", [9.8] * 4)
    watched: str = envs.segment_name
    envs.async_reset(seed=1)
    envs.send(np.zeros(4, np.int64), envs.recv()[4]["env_id"])
    print(observations, infos, mean, results, watched, envs.num_workers, envs.rollout())
    envs.close()


def factory() -> None:
    envs: gymshm.ShmVectorEnv = gymshm.make_vec(
        "CartPole-v1", num_envs=8, vector_kwargs={"copy": False}, wrappers=[gym.wrappers.NormalizeReward], gravity=9.0
    )
    gymshm.make_vec("CartPole-v1", 4, "async", {"slots": 2}, [gym.wrappers.NormalizeReward]).close()
    gymshm.make_vec("CartPole-v1", vectorization_mode=gym.VectorizeMode.SYNC).close()
    wrapped = gym.wrappers.vector.RecordEpisodeStatistics(envs)
    wrapped.reset()
    gymshm.patch_gymnasium().undo()
    with gymshm.patch_gymnasium() as patch:
        patch.undo()


def errors(name: str) -> str:
    try:
        gymshm.attach(name)
    except gymshm.SegmentNotFoundError as error:
        return error.name
    except (gymshm.SegmentExistsError, gymshm.SegmentFormatError, gymshm.SegmentError, gymshm.CustomSpaceError):
        return gymshm.__version__
    except gymshm.WorkerDiedError as died:
        return f"{died.worker} {died.envs.start} {died.exitcode} {died.during} {gymshm.FallbackWarning.__name__}"
    return ""


def mistakes(space: spaces.Dict) -> None:
    gymshm.create_shared_memory(space, n="8")  # type: ignore[arg-type]
    gymshm.write_to_shared_memory(space, 3, space.sample())  # type: ignore[call-arg]
    gymshm.ShmVectorEnv([make_env], slot=3)  # type: ignore[call-arg]
    gymshm.make_vec(3)  # type: ignore[arg-type]
    gymshm.attach(3)  # type: ignore[arg-type]
