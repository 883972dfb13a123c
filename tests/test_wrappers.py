"""Every vector wrapper of gymnasium's over ShmVectorEnv, and what it gives over SyncVectorEnv.

What a wrapper needs and is not installed is told by a skip: opencv, moviepy, array-api-compat, jax, torch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces as gs
from gymnasium.wrappers import vector as wrappers

import gymshm
from environments import assert_same
from gymshm.compat import AutoresetMode
from support import sync_vector_env
from wanderers import Wanderer

N = 5
STEPS = 25

SPACES: dict[str, gs.Space[Any]] = {
    "vector": gs.Box(-10, 10, (4,), np.float32),
    "image": gs.Box(0, 255, (16, 12, 3), np.uint8),
    "dict": gs.Dict(image=gs.Box(0, 255, (4, 4, 3), np.uint8), speed=gs.Discrete(7), vector=gs.Box(0, 1, (2,))),
}


class Case(NamedTuple):
    """How a wrapper is used.

    Attributes:
        wrap: Wraps a vector environment.
        kind: The environments' observations.
        needs: Packages.
        actions: Makes a batch of actions out of numpy's.
        look: What the wrapper knows besides what it returns.
    """

    wrap: Callable[[Any], Any]
    kind: str = "vector"
    needs: tuple[str, ...] = ()
    actions: Callable[[np.ndarray], Any] = lambda actions: actions
    look: Callable[[Any], Any] = lambda envs: None


def case(name: str, kind: str = "vector", needs: tuple[str, ...] = (), **options: Any) -> Case:
    """A wrapper that is used with nothing but keyword arguments."""
    return Case(lambda envs: getattr(wrappers, name)(envs, **options), kind, needs)


def to_torch(actions: np.ndarray) -> Any:
    return pytest.importorskip("torch").from_numpy(actions)


def to_jax(actions: np.ndarray) -> Any:
    return pytest.importorskip("jax").numpy.asarray(actions)


def array_conversion(envs: Any) -> Any:
    return wrappers.ArrayConversion(envs, env_xp=np, target_xp=pytest.importorskip("torch"))


def statistics(envs: Any) -> Any:
    return list(envs.return_queue), list(envs.length_queue), envs.episode_count


def window(envs: Any) -> Any:
    return pytest.importorskip("pygame").surfarray.array3d(envs.window)


ACTIONS = gs.Box(-1, 1, (2,), np.float32)
WIDE = gs.Box(-20, 20, (4,), np.float32)
ARRAYS = ("array_api_compat",)

CASES: dict[str, Case] = {
    "TransformObservation": case("TransformObservation", func=lambda observations: 2 * observations),
    "VectorizeTransformObservation": Case(
        lambda envs: wrappers.VectorizeTransformObservation(
            envs, gym.wrappers.TransformObservation, func=lambda observation: 2 * observation, observation_space=WIDE
        )
    ),
    "FilterObservation": case("FilterObservation", "dict", filter_keys=["speed", "image"]),
    "FlattenObservation": case("FlattenObservation", "dict"),
    "GrayscaleObservation": case("GrayscaleObservation", "image"),
    "ResizeObservation": case("ResizeObservation", "image", ("cv2",), shape=(8, 6)),
    "ReshapeObservation": case("ReshapeObservation", "image", shape=(8, 24, 3)),
    "RescaleObservation": case("RescaleObservation", min_obs=-1.0, max_obs=1.0),
    "DtypeObservation": case("DtypeObservation", "image", dtype=np.float64),
    "NormalizeObservation": case("NormalizeObservation")._replace(
        look=lambda envs: (envs.obs_rms.mean, envs.obs_rms.var)
    ),
    "TransformAction": case("TransformAction", func=lambda actions: actions / 2),
    "VectorizeTransformAction": Case(
        lambda envs: wrappers.VectorizeTransformAction(
            envs, gym.wrappers.TransformAction, func=lambda action: action / 2, action_space=ACTIONS
        )
    ),
    "ClipAction": case("ClipAction"),
    "RescaleAction": case("RescaleAction", min_action=-3.0, max_action=3.0),
    "TransformReward": case("TransformReward", func=lambda rewards: rewards - 1),
    "VectorizeTransformReward": Case(
        lambda envs: wrappers.VectorizeTransformReward(
            envs, gym.wrappers.TransformReward, func=lambda reward: reward - 1
        )
    ),
    "ClipReward": case("ClipReward", min_reward=-0.5, max_reward=1.5),
    "NormalizeReward": case("NormalizeReward")._replace(look=lambda envs: envs.return_rms.var),
    "RecordEpisodeStatistics": case("RecordEpisodeStatistics", buffer_length=7)._replace(look=statistics),
    "DictInfoToList": case("DictInfoToList"),
    "HumanRendering": case("HumanRendering", "vector", ("pygame", "cv2"))._replace(look=window),
    "RecordVideo": Case(
        lambda envs: wrappers.RecordVideo(envs, "videos"),
        needs=("moviepy",),
        look=lambda envs: list(envs.recorded_frames),
    ),
    "ArrayConversion": Case(array_conversion, needs=(*ARRAYS, "torch"), actions=to_torch),
    "JaxToNumpy": Case(lambda envs: wrappers.JaxToNumpy(envs), needs=(*ARRAYS, "jax"), actions=to_jax),
    "NumpyToTorch": Case(lambda envs: wrappers.NumpyToTorch(envs), needs=(*ARRAYS, "torch"), actions=to_torch),
    "JaxToTorch": Case(
        lambda envs: wrappers.JaxToTorch(wrappers.JaxToNumpy(envs)),
        needs=(*ARRAYS, "jax", "torch"),
        actions=to_torch,
    ),
}


def is_conversion(case: Case) -> bool:
    """Whether the wrapper turns numpy's arrays into another library's."""
    return set(ARRAYS) <= set(case.needs)


def told(results: Any) -> Any:
    """``results`` with numpy arrays, and the name of their type, in the place of other libraries' arrays."""
    if isinstance(results, tuple | list):
        return type(results)(told(part) for part in results)
    if isinstance(results, dict):
        return {key: told(part) for key, part in results.items()}
    if type(results).__module__.partition(".")[0] in ("torch", "jax", "jaxlib"):
        return type(results).__name__, np.asarray(results)
    return results


def wrapped(case: Case, make: Callable[..., Any], mode: AutoresetMode) -> Any:
    """A wrapped vector environment; or, where the wrapper refuses it, the error."""
    # Not even gymnasium's conversion of arrays takes anything but numbers in infos.
    env_fn = partial(Wanderer, SPACES[case.kind], ACTIONS, numbers=is_conversion(case))
    envs = make([env_fn] * N, autoreset_mode=mode)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what the wrapper says of the mode, and of a folder it meets again
            return case.wrap(envs)
    except Exception as error:
        envs.close()
        return error


def outcome(function: Callable[[Any], Any], argument: Any) -> Any:
    """What it returns; or, where it raises, the exception's type and text."""
    try:
        return function(argument)
    except Exception as error:
        return type(error), str(error)


def test_all_wrappers_are_here() -> None:
    assert set(CASES) >= set(wrappers.__all__)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP], ids=lambda mode: mode.name)
@pytest.mark.parametrize("name", CASES)
def test_gives_what_it_gives_over_sync_vector_env(
    name: str, mode: AutoresetMode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    case = CASES[name]
    for package in case.needs:
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setattr("gymnasium.wrappers.vector.common.time", SimpleNamespace(perf_counter=lambda: 1.0))
    # Not a fork: neither torch nor jax lives on in one.
    our_class = partial(gymshm.ShmVectorEnv, context="forkserver" if is_conversion(case) else None)
    ours, theirs = wrapped(case, our_class, mode), wrapped(case, sync_vector_env, mode)
    if isinstance(theirs, Exception):
        assert (type(ours), str(ours).replace("ShmVectorEnv", "SyncVectorEnv")) == (type(theirs), str(theirs))
        return
    try:
        for attribute in ("observation_space", "single_observation_space", "action_space", "single_action_space"):
            assert getattr(ours, attribute) == getattr(theirs, attribute)
        assert ours.metadata == theirs.metadata
        assert (ours.num_envs, ours.render_mode, ours.spec) == (theirs.num_envs, theirs.render_mode, theirs.spec)
        assert repr(ours).replace("ShmVectorEnv", "SyncVectorEnv") == repr(theirs)
        assert_same(told(ours.reset(seed=7)), told(theirs.reset(seed=7)))
        random = np.random.default_rng(3)
        for step in range(STEPS):
            actions = random.uniform(-1, 1, (N, 2)).astype(np.float32)
            # Each gets its own, for some wrappers change them in place.
            given, expected = (outcome(envs.step, case.actions(actions.copy())) for envs in (ours, theirs))
            assert_same(told(given), told(expected), f"step {step}")
            if isinstance(expected[0], type):
                # Of final observations, which come in an array of objects.
                assert is_conversion(case)
                assert mode is AutoresetMode.SAME_STEP
                break
            assert_same(case.look(ours), case.look(theirs), f"step {step}")
    finally:
        ours.close()
        theirs.close()
