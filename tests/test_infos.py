"""``infos``: batches of infos are, in every respect, those that ``SyncVectorEnv`` makes."""

from __future__ import annotations

import copy
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from gymnasium import spaces as gs
from gymnasium.vector import SyncVectorEnv
from hypothesis import given

from environments import Replay, assert_same, zeros
from gymshm import ShmVectorEnv
from gymshm.exchange import Exchange, Terms
from gymshm.infos import adder, batch, batch_with_ends, snapshot
from gymshm.reply import Reply
from support import needs_gymnasium

BOX = gs.Box(-9.0, 9.0, (2,), np.float32)
BOTH = pytest.mark.parametrize("num_workers", [0, 2])
MODES = needs_gymnasium("1.1", "its vector environments know no modes")


# --- batch ------------------------------------------------------------------------------------------------------------


def test_nobody_told_anything():
    assert batch({}, adder(3)) == {}


def test_numbers_have_their_own_dtype_and_zeros_where_there_are_none():
    told = {0: {"i": 1, "f": 0.5}, 2: {"f": 2.5, "half": np.float16(1), "flag": True}}
    infos = batch(told, adder(3))
    expected = {
        "i": np.array([1, 0, 0]),
        "_i": np.array([True, False, False]),
        "f": np.array([0.5, 0, 2.5]),
        "_f": np.array([True, False, True]),
        "half": np.array([0, 0, 1], np.float16),
        "_half": np.array([False, False, True]),
        "flag": np.array([False, False, True]),
        "_flag": np.array([False, False, True]),
    }
    assert_same(infos, expected)


def test_what_is_no_number_is_an_object_and_arrays_are_stacked():
    told = {1: {"text": "x", "array": np.arange(2, dtype=np.int16), "numpy flag": np.bool_(True), "none": None}}
    objects = [np.full(2, None, object) for _ in range(3)]
    objects[0][1], objects[1][1] = "x", np.bool_(True)
    mask = np.array([False, True])
    expected = {
        "text": objects[0],
        "_text": mask,
        "array": np.array([[0, 0], [0, 1]], np.int16),
        "_array": mask,
        "numpy flag": objects[1],
        "_numpy flag": mask,
        "none": objects[2],
        "_none": mask,
    }
    assert_same(batch(told, adder(2)), expected)


def test_dicts_are_batched_within():
    infos = batch({0: {"a": {"x": 1}}, 1: {"a": {"y": 2.5}}}, adder(2))
    expected = {
        "a": {
            "x": np.array([1, 0]),
            "_x": np.array([True, False]),
            "y": np.array([0, 2.5]),
            "_y": np.array([False, True]),
        },
        "_a": np.array([True, True]),
    }
    assert_same(infos, expected)


def test_batches_do_not_know_of_each_other():
    add_info = adder(1)
    first = batch({0: {"a": 1}}, add_info)
    assert_same(batch({0: {"b": 2}}, add_info), {"b": np.array([2]), "_b": np.array([True])})
    assert_same(first, {"a": np.array([1]), "_a": np.array([True])})


# --- ends of episodes -------------------------------------------------------------------------------------------------


def test_ends_are_told_before_what_began_anew_row_by_row():
    exchange = Exchange.create(Terms(BOX, None, 4, 1, 1, keeps_final=True))
    memory = exchange.final_observations
    memory.live_view()[...] = np.arange(8).reshape(4, 2)
    reply = Reply()
    reply.final_infos = [(3, {"t": 9, "why": "fell"})]
    reply.final_observations = [(2, "not of the space")]
    told = {1: {"t": 0}, 3: {"t": 1}}
    # Rows 0, 1 and 2 are the environments 1, 2 and 3: the ones that are received, say.
    infos = batch_with_ends(told, [None, reply], [False, True, True], [1, 2, 3], exchange, adder(3))
    final = np.full(3, None, object)
    final[1], final[2] = "not of the space", np.array([6, 7], np.float32)
    why = np.full(3, None, object)
    why[2] = "fell"
    last = np.array([False, False, True])
    expected = {
        "t": np.array([0, 0, 1]),
        "_t": np.array([True, False, True]),
        "final_obs": final,
        "_final_obs": np.array([False, True, True]),
        "final_info": {"t": np.array([0, 0, 9]), "_t": last, "why": why, "_why": last},
        "_final_info": np.array([False, True, True]),
    }
    assert_same(infos, expected)
    memory.live_view()[...] = 0  # it is a copy
    assert infos["final_obs"][2].tolist() == [6, 7]
    exchange.segment.close()


ITEMS = {
    "t": st.integers(-5, 5),
    "reward": st.floats(allow_nan=False),
    "lives": st.integers(0, 9).map(np.int32),
    "text": st.text("ab", max_size=2),
    "array": st.lists(st.integers(0, 9), min_size=2, max_size=2).map(np.array),
    "deep": st.fixed_dictionaries({}, optional={"x": st.integers(0, 3), "deeper": st.just({"y": 1.5})}),
    "episode": st.just({"r": 1.0, "l": 20}),
}


def infos() -> st.SearchStrategy[dict[str, Any]]:
    return st.permutations(list(ITEMS)).flatmap(
        lambda keys: st.fixed_dictionaries({}, optional={key: ITEMS[key] for key in keys})
    )


def lines() -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """What an environment gives: see ``Replay``."""
    observation = st.integers(0, 9).map(lambda value: np.full(2, value, np.float32))
    return st.lists(st.tuples(observation, st.just(1.0), st.booleans(), st.booleans(), infos()), min_size=1, max_size=6)


@MODES
@given(st.lists(lines(), min_size=1, max_size=4), st.sampled_from(["NextStep", "SameStep"]))
def test_infos_of_every_kind_are_those_of_sync_vector_env(scripts, mode):
    fns = [lambda script=script: Replay(BOX, gs.Discrete(2), copy.deepcopy(script)) for script in scripts]
    theirs = SyncVectorEnv(fns, autoreset_mode=mode)
    ours = ShmVectorEnv(fns, autoreset_mode=mode, num_workers=0)
    try:
        assert_same(ours.reset(), theirs.reset(), "reset")
        for number in range(8):
            actions = zeros(len(fns))
            assert_same(ours.step(actions), theirs.step(actions), f"step {number}")
    finally:
        ours.close()


# --- of which moment --------------------------------------------------------------------------------------------------


class Reuser(Replay):
    """Gives the same dict, and the same array in it, again and again."""

    shared: dict[str, Any] = {"deep": {}}

    def __init__(self, own: bool) -> None:
        super().__init__(BOX, gs.Discrete(2), [(np.zeros(2, np.float32), 0.0, False, False, {})])
        self.info = {"deep": {}} if own else self.shared
        self.info["array"] = np.zeros(2)
        self.t = 0

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        observation, _ = super().reset(**options)
        return observation, self._at(0)

    def step(self, action: Any) -> tuple[Any, ...]:
        observation, *_ = super().step(action)
        info = self._at(self.t + 1)
        return observation, 0.0, self.t == 3, False, info

    def _at(self, t: int) -> dict[str, Any]:
        self.t = t
        self.info["t"] = self.info["deep"]["t"] = t
        self.info["array"][:] = t
        return self.info


@MODES
@BOTH
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("own", [True, False])
def test_a_dict_that_environments_use_again_is_told_as_it_was(num_workers, mode, own):
    fns = [lambda: Reuser(own)] * 4
    ours, theirs = (
        ShmVectorEnv(fns, num_workers=num_workers, autoreset_mode=mode),
        SyncVectorEnv(fns, autoreset_mode=mode),
    )
    try:
        kept = []
        for number in range(9):
            if number in (0, 6):
                mask = np.array([True, False, True, True])
                options = {"reset_mask": mask} if number else None
                got, expected = ours.reset(options=copy.deepcopy(options)), theirs.reset(options=options)
            else:
                got, expected = ours.step(zeros(4)), theirs.step(zeros(4))
            assert_same(got[-1], expected[-1], f"call {number}")
            kept.append((got[-1], copy.deepcopy(got[-1])))
        for got, before in kept:
            assert_same(got, before)
    finally:
        ours.close()


@BOTH
def test_a_dict_that_environments_share_is_told_turn_by_turn(num_workers):
    envs = ShmVectorEnv([lambda: Reuser(False)] * 3, num_workers=num_workers, autoreset_mode="SameStep")
    try:
        envs.async_reset()
        envs.recv(timeout=60)
        for t in (1, 2):
            envs.send(zeros(1), [0])
            assert envs.recv(timeout=60)[4]["t"].tolist() == [t]
        envs.send(zeros(3), np.arange(3))
        infos = envs.recv(timeout=60)[4]
        assert infos["t"].tolist() == infos["deep"]["t"].tolist() == infos["array"][:, 0].tolist() == [0, 1, 1]
        assert infos["final_info"]["t"].tolist() == infos["final_info"]["array"][:, 1].tolist() == [3, 0, 0]
    finally:
        envs.close()


def test_a_snapshot_shares_no_dict_and_no_array():
    info = {"b": {"x": np.arange(3), "deep": {"y": [1]}}, "a": np.zeros(2), 3: "text"}
    before = copy.deepcopy(info)
    taken = snapshot(info)
    info["b"]["x"][:] = 7
    info["b"]["deep"]["y"] = None
    info["a"][:] = 7
    info[3] = info["new"] = 0
    assert_same(taken, before)
