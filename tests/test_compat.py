"""What ``compat`` gives is the same under every version of gymnasium."""

from __future__ import annotations

import gc
from typing import Any

import gymnasium
import gymnasium.vector
import numpy as np
import pytest
from gymnasium import spaces as gs

import gymshm
from environments import assert_same, clocks, zeros
from gymshm import compat
from gymshm.spaces import Coded, outline
from support import GYMNASIUM, needs_gymnasium


def test_the_modes_are_gymnasiums():
    assert {mode.name: mode.value for mode in compat.AutoresetMode} == {
        "NEXT_STEP": "NextStep",
        "SAME_STEP": "SameStep",
        "DISABLED": "Disabled",
    }


@needs_gymnasium("1.1", "vector environments have no modes")
def test_gymnasiums_own_enum_is_taken_where_there_is_one():
    assert compat.AutoresetMode is gymnasium.vector.AutoresetMode


def batched(*infos: dict[str, Any]) -> dict[str, Any]:
    """The batch of ``infos``, one of each environment."""
    envs = compat.VectorEnv()
    envs.num_envs = len(infos)
    batch: dict[str, Any] = {}
    for env, info in enumerate(infos):
        batch = envs._add_info(batch, info, env)
    return batch


def test_final_observations_stay_whole_and_all_else_is_batched():
    batch = batched(
        {"final_obs": {"a": np.ones(2)}, "final_info": {"x": 1.5, "deep": {"final_obs": (1,)}}, "y": 3},
        {"y": 4},
        {"final_obs": (0, "text")},
    )
    assert list(batch) == ["final_obs", "_final_obs", "final_info", "_final_info", "y", "_y"]
    assert batch["final_obs"].dtype == object
    assert_same(batch["final_obs"].tolist(), [{"a": np.ones(2)}, None, (0, "text")])
    assert batch["_final_obs"].tolist() == [True, False, True]
    assert batch["final_info"]["x"].tolist() == [1.5, 0.0, 0.0]
    assert batch["final_info"]["deep"]["final_obs"].tolist() == [(1,), None, None]
    assert batch["_final_info"].tolist() == [True, False, False]
    assert batch["y"].tolist() == [3, 4, 0]
    assert batch["_y"].tolist() == [True, True, False]


def test_the_garbage_collector_closes_nothing():
    closed = []

    class Closing(compat.VectorEnv):
        def close_extras(self, **options: Any) -> None:
            closed.append(self)

    Closing().closed = False
    gc.collect()
    assert not closed


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(
    ("mode", "times"),
    [
        ("NextStep", [[1, 1], [2, 2], [0, 0], [1, 1]]),
        ("SameStep", [[1, 1], [0, 0], [1, 1], [0, 0]]),
        ("Disabled", [[1, 1], [2, 2], [3, 3], [4, 4]]),
    ],
)
def test_every_mode_is_there_under_every_version(mode, times, num_workers):
    envs = gymshm.ShmVectorEnv(clocks(2, episode=2), autoreset_mode=mode, num_workers=num_workers)
    try:
        envs.reset(seed=1)
        steps = [envs.step(zeros(2)) for _ in range(4)]
        assert [step[0][:, 0].tolist() for step in steps] == times
        finals = [step[4].get("final_obs") for step in steps]
        if mode == "SameStep":
            assert [None if final is None else [row[0] for row in final] for final in finals] == [None, [2, 2]] * 2
        else:
            assert finals == [None] * 4
    finally:
        envs.close()


def test_a_discrete_of_int64_is_there_under_every_version():
    space = compat.discrete(5, -2, np.dtype(np.int64))
    assert space == gs.Discrete(5, start=-2)
    assert (space.n, space.start, space.dtype) == (5, -2, np.int64)


@needs_gymnasium("1.2", "Discrete has no dtype")
def test_a_discrete_has_the_dtype_that_is_asked_for():
    space = compat.discrete(5, 2, np.dtype(np.uint8))
    assert (space.n, space.start, space.dtype) == (5, 2, np.uint8)


@pytest.mark.skipif(GYMNASIUM >= (1, 2), reason="Discrete has a dtype")
def test_an_older_version_says_which_one_a_discrete_of_few_bits_needs():
    with pytest.raises(ValueError, match=r"a Discrete of dtype uint8 needs gymnasium 1\.2 or newer, not 1\.\d"):
        compat.discrete(5, 2, np.dtype(np.uint8))


def test_a_character_that_is_told_twice_is_one():
    space = gs.Text(3, charset="baab")
    assert compat.characters(space) == "ba"
    assert outline(space) == Coded(3, 1, "ba")
    memory = gymshm.create_shared_memory(space, n=1)
    gymshm.write_to_shared_memory(space, 0, "bab", memory)
    assert gymshm.read_from_shared_memory(space, memory, n=1) == ("bab",)
    assert gymshm.attach(gymshm.segment_of(memory).name).read() == ("bab",)


def test_spaces_that_differ_in_their_bounds_have_a_batched_space():
    spaces = [gs.Box(0, 1, (2,)), gs.Box(0, 2, (2,))]
    expected = gs.Box(np.zeros((2, 2), np.float32), np.array([[1, 1], [2, 2]], np.float32))
    assert compat.batch_differing_spaces(spaces) == expected


def test_spaces_that_differ_in_more_are_a_value_error():
    with pytest.raises(ValueError, match="Expected all dtypes to be equal"):
        compat.batch_differing_spaces([gs.Box(0, 1, (2,), np.float32), gs.Box(0, 1, (2,), np.float64)])
