"""PyTorch's tensors over our arrays: the same memory, both ways, and what ``slots`` says of how long it holds."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces as gs

import gymshm
from environments import clock_envs, zeros

torch = pytest.importorskip("torch", reason="torch is not installed", exc_type=ImportError)


def test_tensors_share_the_segments_memory():
    space = gs.Dict(image=gs.Box(0, 255, (4, 4, 3), np.uint8), speed=gs.Box(-1, 1, (2,), np.float32))
    memory = gymshm.create_shared_memory(space, n=3)
    batch = gymshm.read_from_shared_memory(space, memory, n=3)
    tensors = {key: torch.from_numpy(array) for key, array in batch.items()}
    gymshm.write_to_shared_memory(
        space, 1, {"image": np.full((4, 4, 3), 7, np.uint8), "speed": np.ones(2, np.float32)}, memory
    )
    assert tensors["image"][1].eq(7).all()
    assert tensors["speed"].tolist() == [[0, 0], [1, 1], [0, 0]]
    tensors["speed"][2] = 0.5
    assert memory["speed"].view[2].tolist() == [0.5, 0.5]


def test_a_rollout_is_tensors_without_a_copy():
    envs = clock_envs(2, copy=False, slots=4)
    envs.reset()
    rollout = envs.rollout()
    observations, rewards = torch.from_numpy(rollout.observations), torch.from_numpy(rollout.rewards)
    for t in range(3):
        step = torch.from_numpy(envs.step(zeros(2))[0])
        assert step.eq(t + 1).all()
    assert observations[:, 0, 0].tolist() == [0, 1, 2]
    assert rewards[:, 1].tolist() == [1, 2, 3]
    kept = observations.clone()
    assert envs.rollout().observations.ctypes.data == observations.data_ptr()
    envs.step(zeros(2))
    assert not observations.equal(kept)  # the next rollout writes over it: what is to stay has to be copied before
    envs.close()
