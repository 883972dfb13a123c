"""make_vec: gymnasium's arguments, gymnasium's results, a spec that creates the same thing once more."""

from __future__ import annotations

import dataclasses
import multiprocessing
import re
import sys
import types
import warnings
from collections.abc import Iterator
from inspect import signature
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.envs.registration import VectorizeMode
from gymnasium.wrappers import ClipReward, TimeAwareObservation

import gymshm
from environments import assert_same
from gymshm import ShmVectorEnv

#: For tests of warnings: from Python 3.12 on, a fork beside numpy's own threads warns as well.
IN_PROCESS = {"num_workers": 0}


@pytest.fixture(scope="module", autouse=True)
def _heap() -> None:
    """Starts multiprocessing's heap, which stays; gymnasium's AsyncVectorEnv takes its memory from there."""
    multiprocessing.Array("B", 1)


@pytest.fixture
def family() -> Iterator[None]:
    """Environments registered as Family-v0, Family-v1 and Alone."""
    for id in ("Family-v0", "Family-v1", "Alone"):
        gym.register(id, CartPoleEnv)
    yield
    for id in ("Family-v0", "Family-v1", "Alone"):
        del gym.registry[id]


def clip(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    return ClipReward(env, max_reward=0.5)


ARGUMENTS: list[dict[str, Any]] = [
    {},
    {"num_envs": 3},
    {"num_envs": 2, "vector_kwargs": {"copy": False}},
    {"num_envs": 2, "wrappers": (TimeAwareObservation, clip)},
    {"num_envs": 2, "max_episode_steps": 5},
    {"num_envs": 2, "sutton_barto_reward": True},
    {"render_mode": "rgb_array"},
]

WITH_ARGUMENTS = pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda arguments: ", ".join(arguments) or "none")


@WITH_ARGUMENTS
def test_gives_what_gymnasium_gives(arguments: dict[str, Any]) -> None:
    envs = gymshm.make_vec("CartPole-v1", **arguments)
    theirs = gym.make_vec("CartPole-v1", vectorization_mode="sync", **arguments)
    try:
        assert type(envs) is ShmVectorEnv
        assert envs.num_envs == theirs.num_envs
        assert envs.render_mode == theirs.render_mode
        assert envs.single_observation_space == theirs.single_observation_space
        assert envs.observation_space == theirs.observation_space
        assert envs.action_space == theirs.action_space
        assert_same(envs.reset(seed=3), theirs.reset(seed=3))
        theirs.action_space.seed(4)
        for _ in range(20):
            actions = theirs.action_space.sample()
            assert_same(envs.step(actions), theirs.step(actions))
    finally:
        envs.close()
        theirs.close()


@WITH_ARGUMENTS
def test_the_spec_is_gymnasiums_and_creates_the_same_once_more(arguments: dict[str, Any]) -> None:
    theirs = gym.make_vec("CartPole-v1", vectorization_mode="async", **arguments)
    theirs.close()
    envs = gymshm.make_vec("CartPole-v1", **arguments)
    envs.close()
    assert envs.spec == theirs.spec
    assert envs.spec is not None
    again = gymshm.make_vec(envs.spec)
    again.close()
    assert again.spec == envs.spec
    assert again.num_envs == envs.num_envs
    assert again.copy == envs.copy
    assert again.observation_space == envs.observation_space
    of_gymnasium = gym.make_vec(envs.spec)
    of_gymnasium.close()
    assert type(of_gymnasium) is gym.vector.AsyncVectorEnv
    assert of_gymnasium.observation_space == envs.observation_space


def test_vector_kwargs_reach_shm_vector_env() -> None:
    envs = gymshm.make_vec("CartPole-v1", num_envs=4, vector_kwargs={"num_workers": 2, "slots": 3, "copy": False})
    envs.close()
    assert (envs.num_workers, envs.slots, envs.copy) == (2, 3, False)


def test_repr_tells_the_id() -> None:
    envs = gymshm.make_vec("CartPole-v1", num_envs=2)
    envs.close()
    assert str(envs) == "ShmVectorEnv(CartPole-v1, num_envs=2)"


def test_the_registered_spec_is_left_alone() -> None:
    before = repr(gym.spec("CartPole-v1"))
    gymshm.make_vec("CartPole-v1", num_envs=2, max_episode_steps=5).close()
    assert repr(gym.spec("CartPole-v1")) == before


def test_a_callers_spec_is_left_alone() -> None:
    envs = gymshm.make_vec("CartPole-v1", num_envs=2)
    envs.close()
    assert envs.spec is not None
    before = repr(envs.spec)
    gymshm.make_vec(envs.spec).close()
    assert repr(envs.spec) == before


def test_each_environment_has_the_wrappers_in_their_order() -> None:
    envs = gymshm.make_vec("CartPole-v1", num_envs=2, wrappers=[clip, TimeAwareObservation])
    try:
        assert all(text.startswith("<TimeAwareObservation<ClipReward<") for text in envs.call("__str__"))
    finally:
        envs.close()


def test_what_spec_says_of_wrappers_is_done() -> None:
    gym.register(
        "Clipped-v0", CartPoleEnv, additional_wrappers=(ClipReward.wrapper_spec(min_reward=-0.5, max_reward=0.5),)
    )
    try:
        envs = gymshm.make_vec("Clipped-v0", num_envs=2)
        envs.reset(seed=0)
        np.testing.assert_array_equal(envs.step(np.array([0, 1]))[1], [0.5, 0.5])
        envs.close()
    finally:
        del gym.registry["Clipped-v0"]


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_an_environment_that_only_this_process_registered(context: str, family: None) -> None:
    envs = gymshm.make_vec("Family-v1", num_envs=2, vector_kwargs={"context": context})
    assert envs.reset(seed=0)[0].shape == (2, 4)
    envs.close()


@pytest.mark.parametrize("mode", [None, *VectorizeMode, *(mode.value for mode in VectorizeMode)], ids=str)
def test_vectorization_mode_is_taken_and_ignored(mode: Any) -> None:
    envs = gymshm.make_vec("CartPole-v1", num_envs=2, vectorization_mode=mode, vector_kwargs=IN_PROCESS)
    envs.close()
    assert type(envs) is ShmVectorEnv


@pytest.mark.parametrize("mode", ["asynch", "ASYNC", "", 3, ["async"]], ids=str)
def test_a_vectorization_mode_that_gymnasium_does_not_know_is_refused(mode: Any) -> None:
    message = re.escape(f"None or one of ['async', 'sync', 'vector_entry_point'], got {mode!r}")
    with pytest.raises(ValueError, match=message):
        gymshm.make_vec("CartPole-v1", 2, mode)
    with pytest.raises(ValueError, match=r"[Ii]nvalid vectorization mode"):
        gym.make_vec("CartPole-v1", 2, mode)


def test_one_that_a_spec_holds_is_refused_too() -> None:
    spec = gym.spec("CartPole-v1")
    spec = dataclasses.replace(spec, kwargs={"vectorization_mode": "asynch"})
    with pytest.raises(ValueError, match="got 'asynch'"):
        gymshm.make_vec(spec)


def test_the_signature_is_gymnasiums() -> None:
    ours, theirs = (
        [(parameter.name, parameter.kind, parameter.default) for parameter in signature(make).parameters.values()]
        for make in (gymshm.make_vec, gym.make_vec)
    )
    assert ours == theirs


def test_all_arguments_can_be_positional_as_in_gymnasium() -> None:
    envs = gymshm.make_vec("CartPole-v1", 2, "async", {"num_workers": 0, "slots": 3}, [clip], max_episode_steps=5)
    theirs = gym.make_vec("CartPole-v1", 2, "sync", None, [clip], max_episode_steps=5)
    assert (envs.num_envs, envs.num_workers, envs.slots) == (2, 0, 3)
    for made in (envs, theirs):
        made.reset(seed=1)
    for _ in range(8):
        actions = np.zeros(2, np.int64)
        assert_same(envs.step(actions), theirs.step(actions))
    envs.close()
    theirs.close()


# --- which environment an id names ------------------------------------------------------------------------------------


def test_a_module_in_the_id_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("registers_modular")
    monkeypatch.setitem(sys.modules, "registers_modular", module)
    gym.register("Modular-v0", CartPoleEnv)
    try:
        envs = gymshm.make_vec("registers_modular:Modular-v0")
        envs.close()
        assert envs.spec is not None
        assert envs.spec.id == "Modular-v0"
    finally:
        del gym.registry["Modular-v0"]
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        gymshm.make_vec("no_such_module:Modular-v0")


def test_without_a_version_it_is_the_newest_with_a_warning(family: None) -> None:
    with pytest.warns(UserWarning, match="Using the latest versioned environment `Family-v1`"):
        envs = gymshm.make_vec("Family", vector_kwargs=IN_PROCESS)
    envs.close()
    assert envs.spec is not None
    assert envs.spec.id == "Family-v1"


def test_an_outdated_version_is_made_with_a_warning(family: None) -> None:
    with pytest.warns(DeprecationWarning, match="Family-v0 is out of date"):
        envs = gymshm.make_vec("Family-v0", vector_kwargs=IN_PROCESS)
    envs.close()
    assert envs.spec is not None
    assert envs.spec.id == "Family-v0"


def test_an_environment_without_versions_and_the_newest_come_without_warning(family: None) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gymshm.make_vec("Alone", vector_kwargs=IN_PROCESS).close()
        gymshm.make_vec("Family-v1", vector_kwargs=IN_PROCESS).close()
    assert [str(warning.message) for warning in caught] == []


@pytest.mark.parametrize("id", ["NoSuchThing-v0", "CartPole-v99", "CartPole-v", "no such id", 3], ids=str)
def test_errors_of_the_id_are_gymnasiums(id: Any) -> None:
    with pytest.raises(gym.error.Error) as theirs:
        gym.make_vec(id, vectorization_mode="async")
    with pytest.raises(gym.error.Error) as ours:
        gymshm.make_vec(id)
    assert type(ours.value) is type(theirs.value)


def test_an_id_without_single_environments_is_refused() -> None:
    gym.register("VectorOnly-v0", vector_entry_point=CartPoleVectorEnv)
    try:
        with pytest.raises(gym.error.Error, match="Expected VectorOnly-v0 to have an entry point"):
            gymshm.make_vec("VectorOnly-v0", num_envs=2)
    finally:
        del gym.registry["VectorOnly-v0"]


@pytest.mark.parametrize("name", ["num_workers", "slots"])
def test_an_argument_of_the_vector_environment_is_sent_where_it_belongs(name: str) -> None:
    with pytest.raises(
        TypeError, match=rf"unexpected keyword argument '{name}'.*: put it into `vector_kwargs="
    ) as caught:
        gymshm.make_vec("CartPole-v1", 2, **{name: 1})
    assert str(caught.value).endswith(f"`vector_kwargs={{'{name}': ...}}`.")
    with pytest.raises(TypeError) as caught:
        gymshm.make_vec("CartPole-v1", 2, colour=1)
    assert "vector_kwargs" not in str(caught.value)


@pytest.mark.parametrize("num_envs", ["a", 2.0, None])
def test_a_number_of_environments_is_an_integer(num_envs: Any) -> None:
    with pytest.raises(TypeError, match=rf"^Expected num_envs to be an integer, got {num_envs!r}\.$"):
        gymshm.make_vec("CartPole-v1", num_envs)


@pytest.mark.parametrize("num_envs", [0, -1])
def test_there_is_an_environment_at_least(num_envs: int) -> None:
    with pytest.raises(ValueError, match=rf"^Expected num_envs to be 1 or more, got {num_envs}\.$"):
        gymshm.make_vec("CartPole-v1", num_envs)


@pytest.mark.parametrize("wrappers", [TimeAwareObservation, clip, 3, [3]])
def test_wrappers_are_a_sequence_of_functions(wrappers: Any) -> None:
    with pytest.raises(TypeError, match=r"^Expected wrappers to be a sequence of functions of an environment, got "):
        gymshm.make_vec("CartPole-v1", 2, wrappers=wrappers)
