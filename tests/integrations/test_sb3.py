"""ShmVecEnv against Stable-Baselines3's DummyVecEnv: the same environments, the same calls, every output the same."""

from __future__ import annotations

import contextlib
import copy
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces as gs
from gymnasium.wrappers import ClipReward, TimeLimit

import gymshm
from environments import assert_same
from wanderers import Loose, Wanderer

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed: the extra sb3")

import torch
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
)

from gymshm.integrations.sb3 import ShmVecEnv

N = 5

# More would only wait for each other, and for whatever else this machine does.
torch.set_num_threads(1)

OBSERVATIONS: dict[str, gs.Space[Any]] = {
    "vector": gs.Box(-1, 1, (3,), np.float32),
    "double": gs.Box(-np.inf, np.inf, (2, 2), np.float64),
    "image": gs.Box(0, 255, (16, 14, 3), np.uint8),
    "boxes": gs.Dict(image=gs.Box(0, 255, (16, 14, 3), np.uint8), vector=gs.Box(-1, 1, (2,), np.float32)),
    "discrete": gs.Discrete(9, start=2),
    "multi discrete": gs.MultiDiscrete([3, 4]),
    "multi binary": gs.MultiBinary(4),
    "dict": gs.Dict(
        image=gs.Box(0, 255, (36, 36, 1), np.uint8), vector=gs.Box(-1, 1, (2,), np.float32), kind=gs.Discrete(3)
    ),
    "tuple": gs.Tuple((gs.Box(-1, 1, (2,), np.float32), gs.Discrete(4))),
}

ACTIONS: dict[str, gs.Space[Any]] = {
    "discrete": gs.Discrete(4),
    "box": gs.Box(-1, 1, (2,), np.float32),
    "multi discrete": gs.MultiDiscrete([3, 2]),
    "multi binary": gs.MultiBinary(3),
}


def wanderer(observations: str = "vector", actions: str = "discrete", **options: Any) -> Wanderer:
    return Wanderer(OBSERVATIONS[observations], ACTIONS[actions], **options)


def wanderers(observations: str = "vector", actions: str = "discrete", **options: Any) -> list[Callable[[], Any]]:
    return [partial(Wanderer, OBSERVATIONS[observations], ACTIONS[actions], **options)] * N


Pair = Callable[..., tuple[Any, Any]]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Makes a ShmVecEnv and a DummyVecEnv of the same environments, and closes them."""
    made: list[Any] = []

    def make(env_fns: Any = None, wrap: Callable[[Any], Any] = lambda envs: envs, **options: Any) -> tuple[Any, Any]:
        env_fns = env_fns or wanderers()
        made.append(wrap(ShmVecEnv(env_fns, **{"start_method": "fork", "num_workers": 2, **options})))
        made.append(wrap(DummyVecEnv(env_fns)))
        return made[-2], made[-1]

    yield make
    while made:
        made.pop().close()


def plain(results: Any) -> Any:
    """``results`` with dicts of any kind as ``dict``, and without the time that Monitors tell."""
    if isinstance(results, dict):
        return {key: plain(part) for key, part in results.items() if key != "t"}
    if isinstance(results, tuple | list):
        return type(results)(plain(part) for part in results)
    return results


def step_both(ours: Any, theirs: Any, steps: int = 40, actions: Callable[[Any], Any] = np.asarray) -> None:
    """Asserts that a reset and ``steps`` steps give the same; the actions are samples."""
    theirs.action_space.seed(3)
    assert_same(plain(ours.reset()), plain(theirs.reset()), "reset")
    assert_same(ours.reset_infos, theirs.reset_infos, "reset infos")
    ends = set()
    for step in range(steps):
        given = actions([theirs.action_space.sample() for _ in range(N)])
        results, expected = ours.step(given), theirs.step(given)
        assert_same(plain(results), plain(expected), f"step {step}")
        assert_same(plain(ours.reset_infos), plain(theirs.reset_infos), f"reset infos, step {step}")
        ends |= {("terminal_observation" in info, info["TimeLimit.truncated"]) for info in results[3]}
    assert ends == {(False, False), (True, False), (True, True)}


# --- steps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("observations", OBSERVATIONS)
def test_observations_of_every_kind(pair: Pair, observations: str) -> None:
    ours, theirs = pair(wanderers(observations=observations))
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    ours.seed(11)
    theirs.seed(11)
    step_both(ours, theirs)


@pytest.mark.parametrize("actions", ACTIONS)
def test_actions_of_every_kind(pair: Pair, actions: str) -> None:
    ours, theirs = pair(wanderers(actions=actions))
    ours.seed(11)
    theirs.seed(11)
    step_both(ours, theirs)


@pytest.mark.parametrize("form", [list, lambda samples: np.asarray(samples, np.float64)], ids=["list", "float64"])
def test_actions_of_another_form_than_the_spaces(pair: Pair, form: Callable[[Any], Any]) -> None:
    ours, theirs = pair(wanderers(actions="box"))
    ours.seed(11)
    theirs.seed(11)
    step_both(ours, theirs, actions=form)


@pytest.mark.parametrize("start_method", [None, "fork", "spawn", "forkserver"])
def test_every_start_method(pair: Pair, start_method: str | None) -> None:
    ours, theirs = pair(start_method=start_method)
    ours.seed(1)
    theirs.seed(1)
    step_both(ours, theirs)


@pytest.mark.parametrize("num_workers", [0, 1, 3, N])
def test_any_number_of_workers(pair: Pair, num_workers: int) -> None:
    ours, theirs = pair(num_workers=num_workers)
    assert len(ours.vector_env.processes) == num_workers
    ours.seed(1)
    theirs.seed(1)
    step_both(ours, theirs)


def test_values_that_are_not_of_the_types_of_the_space(pair: Pair) -> None:
    ours, theirs = pair([partial(Loose, OBSERVATIONS["vector"], ACTIONS["discrete"])] * N)
    ours.seed(2)
    theirs.seed(2)
    assert_same(ours.reset(), theirs.reset())
    for _ in range(30):
        results, expected = ours.step(np.zeros(N, np.int64)), theirs.step(np.zeros(N, np.int64))
        for info in expected[3]:
            info["TimeLimit.truncated"] = bool(info["TimeLimit.truncated"])  # ours always is one
        assert_same(results, expected)


def test_what_was_returned_does_not_change_with_later_steps(pair: Pair) -> None:
    ours, _ = pair(wanderers(observations="dict"))
    results = [ours.step(np.zeros(N, np.int64)) for _ in range(20) if ours.reset() is not None]
    kept = copy.deepcopy(results)
    ours.step(np.zeros(N, np.int64))
    assert_same(results, kept)


def test_step_async_and_step_wait_are_the_halves_of_step(pair: Pair) -> None:
    ours, theirs = pair()
    ours.seed(0)
    theirs.seed(0)
    ours.reset()
    theirs.reset()
    ours.step_async(np.zeros(N, np.int64))
    assert ours.waiting
    results = ours.step_wait()
    assert not ours.waiting
    assert_same(results, theirs.step(np.zeros(N, np.int64)))


# --- seeds and options ------------------------------------------------------------------------------------------------


def test_seeds_go_to_the_next_reset_alone(pair: Pair) -> None:
    ours, theirs = pair()
    assert ours.seed(40) == theirs.seed(40) == [40, 41, 42, 43, 44]
    for _ in range(2):
        assert_same(ours.reset(), theirs.reset())
    expected = [[(40 + i, None), (None, None)] for i in range(N)]
    assert ours.get_attr("told") == theirs.get_attr("told") == expected


def test_without_a_seed_each_environment_gets_one_of_its_own(pair: Pair) -> None:
    ours, _ = pair()
    seeds = ours.seed()
    ours.reset()
    assert [told[0][0] for told in ours.get_attr("told")] == list(seeds)
    assert len(set(seeds)) == N


@pytest.mark.parametrize(
    "options",
    [{"a": [1]}, {"reset_mask": 3}, [{"a": i} if i % 2 else {} for i in range(N)], {}, None],
    ids=["for all", "any key", "for each", "empty", "None"],
)
def test_options_go_to_the_next_reset_alone(pair: Pair, options: Any) -> None:
    ours, theirs = pair()
    for envs in (ours, theirs):
        envs.seed(0)
        envs.set_options(options)
        envs.reset()
        envs.reset()
    assert ours.get_attr("told") == theirs.get_attr("told")
    own = options if isinstance(options, list) else [options] * N
    assert [told[0][1] for told in ours.get_attr("told")] == [each or None for each in own]
    assert [told[1][1] for told in ours.get_attr("told")] == [None] * N


# --- calls ------------------------------------------------------------------------------------------------------------

INDICES = [None, 2, [1, 3], (4, 0), range(2, 5), [], [-1], [1, 1]]


@pytest.mark.parametrize("indices", INDICES, ids=str)
def test_calls_reach_the_environments_that_are_named_and_no_other(pair: Pair, indices: Any) -> None:
    ours, theirs = pair([wrapped_wanderer] * N)
    for envs in (ours, theirs):
        envs.seed(0)
        envs.reset()
    for request in (
        lambda envs: envs.env_method("add", 2, y=3, indices=indices),
        lambda envs: envs.get_attr("tag", indices=indices),
        lambda envs: envs.set_attr("mark", "outermost", indices=indices),
        lambda envs: envs.get_attr("tag"),
        lambda envs: [envs.get_attr("mark", indices=i)[0] for i in range(N) if envs.env_method("has", "mark")[i]],
        lambda envs: envs.env_is_wrapped(ClipReward, indices=indices),
        lambda envs: envs.env_is_wrapped(TimeLimit, indices=indices),
        lambda envs: envs.env_method("render", indices=indices),
        lambda envs: envs.get_attr("rendered"),
    ):
        assert_same(request(ours), request(theirs))


class Inspected(ClipReward):
    """A wrapper that tells what it has."""

    def has(self, name: str) -> bool:
        return name in vars(self)


def wrapped_wanderer() -> Any:
    return Inspected(wanderer(), max_reward=1.0)


def test_an_index_out_of_range_is_an_index_error(pair: Pair) -> None:
    ours, _ = pair()
    with pytest.raises(IndexError, match=rf"Expected indices below {N}, the number of environments, got {N}\."):
        ours.get_attr("tag", indices=N)


def test_attributes_that_are_not_there(pair: Pair, capfd: pytest.CaptureFixture[str]) -> None:
    ours, theirs = pair()
    assert ours.has_attr("tag") is theirs.has_attr("tag") is True
    assert ours.has_attr("no_such_thing") is theirs.has_attr("no_such_thing") is False
    assert capfd.readouterr().err == ""
    for envs in (ours, theirs):
        with pytest.raises(AttributeError, match="no_such_thing"):
            envs.get_attr("no_such_thing")


def test_a_method_as_an_attribute_is_not_called(pair: Pair) -> None:
    ours, _ = pair()
    assert [method(1, y=1) for method in ours.get_attr("add")] == [2] * N


def test_what_a_method_raises_is_raised_and_the_environments_go_on(pair: Pair) -> None:
    ours, theirs = pair()
    ours.seed(0)
    theirs.seed(0)
    with pytest.raises(LookupError, match="as asked"):
        ours.env_method("fail", indices=[3])
    step_both(ours, theirs)


# --- rendering --------------------------------------------------------------------------------------------------------


def test_images_and_their_mosaic(pair: Pair) -> None:
    ours, theirs = pair()
    for envs in (ours, theirs):
        envs.seed(4)
        envs.reset()
    assert ours.render_mode == theirs.render_mode == "rgb_array"
    assert ours.metadata == theirs.metadata
    assert_same(ours.get_images(), theirs.get_images())
    assert_same(ours.render(), theirs.render())
    assert_same(ours.render("rgb_array"), theirs.render("rgb_array"))


def test_the_mode_human_renders_in_the_workers(pair: Pair) -> None:
    ours, _ = pair(wanderers(render_mode="human"))
    ours.reset()
    assert ours.render() is None
    assert ours.get_attr("rendered") == [1] * N
    with pytest.warns(UserWarning, match="'human'"):
        assert list(ours.get_images()) == [None] * N


# --- Stable-Baselines3's own wrappers ---------------------------------------------------------------------------------


WRAPS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "VecFrameStack, VecTransposeImage": ("image", lambda envs: VecTransposeImage(VecFrameStack(envs, 4))),
    "VecFrameStack, VecTransposeImage, Dict": ("boxes", lambda envs: VecTransposeImage(VecFrameStack(envs, 2))),
    "VecNormalize": ("vector", VecNormalize),
    "VecNormalize, Dict": ("dict", lambda envs: VecNormalize(envs, norm_obs_keys=["vector"])),
    "VecMonitor": ("vector", VecMonitor),
    "VecMonitor, VecNormalize, VecFrameStack": (
        "vector",
        lambda envs: VecFrameStack(VecNormalize(VecMonitor(envs)), 3),
    ),
}


@pytest.mark.parametrize("name", WRAPS)
def test_vec_env_wrappers(pair: Pair, name: str) -> None:
    observations, wrap = WRAPS[name]
    ours, theirs = pair(wanderers(observations=observations), wrap)
    ours.seed(5)
    theirs.seed(5)
    step_both(ours, theirs)
    assert ours.get_attr("tag") == theirs.get_attr("tag")


# --- training ---------------------------------------------------------------------------------------------------------


def trained(algorithm: Any, vec_env_cls: Any, options: dict[str, Any], steps: int, **env: Any) -> Any:
    """A model that learned for ``steps`` steps, its environments closed."""
    started = {"start_method": "forkserver"} if vec_env_cls is ShmVecEnv else {}
    envs = make_vec_env(n_envs=4, seed=7, vec_env_cls=vec_env_cls, vec_env_kwargs=started, **env)
    model = algorithm(env=envs, seed=7, device="cpu", **options)
    model.learn(steps)
    envs.close()
    return model


def assert_same_training(ours: Any, theirs: Any) -> None:
    """Asserts equal parameters, and equal episodes: returns and lengths in their order."""
    expected = theirs.policy.state_dict()
    assert ours.num_timesteps == theirs.num_timesteps
    assert_same(
        {name: value.numpy() for name, value in ours.policy.state_dict().items()},
        {name: value.numpy() for name, value in expected.items()},
    )
    episodes = [[(episode["r"], episode["l"]) for episode in model.ep_info_buffer] for model in (ours, theirs)]
    assert episodes[0] == episodes[1]
    assert len(episodes[0]) > 0


def test_ppo_learns_on_the_same_trajectory() -> None:
    options = {"policy": "MlpPolicy", "n_steps": 64, "n_epochs": 2}
    ours, theirs = (trained(PPO, cls, options, 2_000, env_id="CartPole-v1") for cls in (ShmVecEnv, DummyVecEnv))
    assert_same_training(ours, theirs)
    for name in ("observations", "actions", "rewards", "episode_starts", "values", "log_probs", "advantages"):
        assert_same(getattr(ours.rollout_buffer, name), getattr(theirs.rollout_buffer, name), name)


def test_ppo_with_dict_observations_learns_on_the_same_trajectory() -> None:
    options = {"policy": "MultiInputPolicy", "n_steps": 32, "n_epochs": 1}
    env = {
        "env_id": Wanderer,
        "env_kwargs": {"observation_space": OBSERVATIONS["dict"], "action_space": ACTIONS["box"]},
    }
    ours, theirs = (trained(PPO, cls, options, 256, **env) for cls in (ShmVecEnv, DummyVecEnv))
    assert_same_training(ours, theirs)


def test_dqn_learns_on_the_same_trajectory() -> None:
    options = {"policy": "MlpPolicy", "learning_starts": 100, "buffer_size": 1_000}
    ours, theirs = (trained(DQN, cls, options, 600, env_id="CartPole-v1") for cls in (ShmVecEnv, DummyVecEnv))
    assert_same_training(ours, theirs)


def test_a_model_is_saved_loaded_and_evaluated(tmp_path: Any) -> None:
    envs = VecNormalize(make_vec_env("CartPole-v1", n_envs=2, seed=1, vec_env_cls=ShmVecEnv))
    model = PPO("MlpPolicy", envs, n_steps=32, n_epochs=1, seed=1, device="cpu").learn(64)
    model.save(tmp_path / "model")
    envs.save(str(tmp_path / "statistics"))
    envs.close()
    fresh = make_vec_env("CartPole-v1", n_envs=2, seed=2, vec_env_cls=ShmVecEnv)
    loaded = VecNormalize.load(str(tmp_path / "statistics"), fresh)
    model = PPO.load(tmp_path / "model", env=loaded, device="cpu")
    returned, lengths = evaluate_policy(model, loaded, n_eval_episodes=4, return_episode_rewards=True)
    assert returned == lengths  # CartPole pays 1 a step
    fresh.close()


@pytest.mark.slow
def test_ppo_learns_cartpole() -> None:
    envs = make_vec_env("CartPole-v1", n_envs=8, seed=2, vec_env_cls=ShmVecEnv, vec_env_kwargs={"num_workers": 2})
    options = {"n_steps": 32, "batch_size": 256, "n_epochs": 20, "learning_rate": 1e-3}
    model = PPO("MlpPolicy", envs, gamma=0.98, gae_lambda=0.8, seed=2, device="cpu", **options)
    before, _ = evaluate_policy(model, envs, n_eval_episodes=8)
    after, _ = evaluate_policy(model.learn(30_000), envs, n_eval_episodes=8)
    envs.close()
    assert before < 200 < 350 < after  # 500 is the most


# --- how it is shown --------------------------------------------------------------------------------------------------


def test_it_is_shown_with_the_layout_of_its_segment(pair: Pair) -> None:
    ours, _ = pair()
    assert repr(ours) == f"ShmVecEnv over {ours.vector_env!r}"
    assert repr(ours).splitlines()[1].split() == ["PATH", "SPACE", "DTYPE", "SHAPE", "OFFSET", "BYTES"]
    assert ours._repr_html_() == ours.vector_env._repr_html_()
    assert "<table>" in ours._repr_html_()


def test_one_that_did_not_come_about_is_shown_too() -> None:
    envs = ShmVecEnv.__new__(ShmVecEnv)
    assert repr(envs) == "ShmVecEnv over None"
    assert envs._repr_html_() is None


# --- construction and end ---------------------------------------------------------------------------------------------


def test_make_vec_env_wraps_each_environment_in_a_monitor() -> None:
    envs = make_vec_env("CartPole-v1", n_envs=3, vec_env_cls=ShmVecEnv, vec_env_kwargs={"num_workers": 1})
    assert envs.env_is_wrapped(Monitor) == [True] * 3
    envs.close()


def test_closures_reach_interpreters_of_their_own(pair: Pair) -> None:
    start = 3
    ours, _ = pair(
        [lambda: Wanderer(OBSERVATIONS["dict"], ACTIONS["box"]) if start else None] * N, start_method="spawn"
    )
    assert ours.reset()["image"].shape == (N, 36, 36, 1)


def test_one_environment_for_all_is_refused(pair: Pair) -> None:
    env = wanderer()
    for number_of_workers in (0, 1, 2):
        with pytest.raises(ValueError, match="an environment of its own"):
            ShmVecEnv([lambda: env] * 4, start_method="fork", num_workers=number_of_workers)
    envs = ShmVecEnv([lambda: env] * 2, start_method="fork", num_workers=2)  # a copy for each, as in SubprocVecEnv
    envs.close()


@pytest.mark.parametrize("env_fns", [wanderers()[0], [wanderers()[0]()]], ids=["a function", "an environment"])
def test_what_is_no_sequence_of_functions_is_refused_as_by_shm_vector_env(env_fns: Any) -> None:
    with pytest.raises(TypeError, match=r"^Expected env_fns to be a sequence of functions that return an environment"):
        ShmVecEnv(env_fns)


def test_functions_may_come_from_an_iterator() -> None:
    with contextlib.closing(ShmVecEnv(iter(wanderers()), num_workers=0)) as envs:
        assert envs.num_envs == len(envs.reset()) == N


def test_nested_observations_are_refused_as_in_stable_baselines3() -> None:
    space = gs.Dict(a=gs.Dict(b=gs.Discrete(2)))
    OBSERVATIONS["nested"] = space
    try:
        for make in (DummyVecEnv, partial(ShmVecEnv, start_method="fork")):
            with pytest.raises(NotImplementedError, match="Nested observation spaces are not supported"):
                make(wanderers(observations="nested"))
    finally:
        del OBSERVATIONS["nested"]


def test_what_an_environment_raises_in_construction_is_raised() -> None:
    with pytest.raises(KeyError, match="no such kind"):
        ShmVecEnv(wanderers(observations="no such kind"), start_method="fork")


def test_a_worker_that_is_killed_is_an_error_and_close_works(pair: Pair) -> None:
    ours, _ = pair()
    ours.reset()
    os.kill(ours.vector_env.processes[1].pid, signal.SIGKILL)
    ours.vector_env.processes[1].join()
    with pytest.raises(gymshm.WorkerDiedError, match="SIGKILL"):
        ours.step(np.zeros(N, np.int64))


def test_close_ends_the_workers_and_can_be_called_twice() -> None:
    envs = ShmVecEnv(wanderers(), start_method="fork", num_workers=2)
    processes = envs.vector_env.processes
    assert not envs.closed
    envs.close()
    envs.close()
    assert envs.closed
    assert not any(process.is_alive() for process in processes)


def test_the_segment_can_be_watched(pair: Pair) -> None:
    ours, _ = pair()
    observations = ours.reset()
    with gymshm.attach(ours.vector_env.segment_name) as watched:
        assert_same(np.array(watched.read()), observations)
