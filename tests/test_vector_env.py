"""``ShmVectorEnv``: arguments, methods, attributes and errors of ``AsyncVectorEnv``, and what it has beside them."""

from __future__ import annotations

import contextlib
import inspect
import math
import mmap
import os
import threading
import time
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces as gs
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import RescaleObservation, TimeLimit

import gymshm
from environments import Clock, assert_same, clock_envs, clocks, made, times, zeros
from gymshm import ShmVectorEnv
from gymshm.compat import AutoresetMode
from support import needs_gymnasium

BOTH = pytest.mark.parametrize("num_workers", [0, 2])
MODES = pytest.mark.parametrize("mode", list(AutoresetMode))


# --- arguments and attributes -----------------------------------------------------------------------------------------


@needs_gymnasium("1.4", "AsyncVectorEnv has no max_concurrency")
def test_the_arguments_are_those_of_async_vector_env_in_their_order():
    theirs = inspect.signature(AsyncVectorEnv.__init__).parameters
    ours = inspect.signature(ShmVectorEnv.__init__).parameters
    assert list(ours)[: len(theirs)] == list(theirs)
    assert all(ours[name].default == parameter.default for name, parameter in theirs.items())
    assert all(ours[name].kind is inspect.Parameter.KEYWORD_ONLY for name in list(ours)[len(theirs) :])


@needs_gymnasium("1.1", "SyncVectorEnv has no modes")
@BOTH
def test_attributes_are_those_of_sync_vector_env(num_workers):
    options = {"render_mode": "rgb_array", "action_space": gs.Discrete(7, start=2)}
    theirs = SyncVectorEnv(clocks(3, **options))
    metadata = dict(Clock.metadata)  # into which older SyncVectorEnvs write
    with made(3, num_workers=num_workers, **options) as ours:
        for name in (
            "num_envs",
            "metadata",
            "render_mode",
            "spec",
            "autoreset_mode",
            "copy",
            "observation_mode",
            "closed",
        ):
            assert_same(getattr(ours, name), getattr(theirs, name), name)
        for name in ("single_observation_space", "observation_space", "single_action_space", "action_space"):
            assert getattr(ours, name) == getattr(theirs, name)
        assert isinstance(ours, VectorEnv)
        assert ours.unwrapped is ours
        assert str(ours) == "ShmVectorEnv(num_envs=3)"
    assert Clock.metadata == metadata


def test_the_batched_action_space_samples_what_sync_vector_env_samples():
    theirs = SyncVectorEnv(clocks(3))
    with made(3, num_workers=0) as ours:
        theirs.action_space.seed(5)
        ours.action_space.seed(5)
        assert_same(ours.action_space.sample(), theirs.action_space.sample())


def test_arguments_are_kept_as_attributes():
    env_fns = clocks(2)
    envs = ShmVectorEnv(env_fns, False, False, "fork", False, None, "different", "SameStep", 1)
    with contextlib.closing(envs):
        assert envs.env_fns is env_fns
        assert (envs.shared_memory, envs.copy, envs.context, envs.daemon) == (False, False, "fork", False)
        assert (envs.observation_mode, envs.autoreset_mode) == ("different", AutoresetMode.SAME_STEP)
        assert (envs.max_concurrency, envs.num_workers, envs.slots) == (1, 1, 1)


def test_a_custom_worker_is_refused_with_a_way_out():
    with pytest.raises(ValueError, match=r"gymnasium\.vector\.AsyncVectorEnv\(env_fns, worker=\.\.\.\)"):
        ShmVectorEnv(clocks(1), worker=lambda *arguments: None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_concurrency": 0},
        {"observation_mode": "other"},
        {"autoreset_mode": "Never"},
        {"num_workers": -1},
        {"slots": 0},
        {"slots": (1 << 16) + 1},
        {"slots": True},
        {"batch_size": 2},
        {"context": "thread"},
        {"worker": print},
        {"on_worker_death": "bogus"},
        {"max_restarts": -1},
        {"restart_window": math.nan},
        {"step_timeout": 0},
        {"start_timeout": -1},
    ],
)
@pytest.mark.parametrize("num_workers", [1, "auto"])
def test_a_wrong_argument_is_refused_before_any_environment_is_built(wrong, num_workers, tmp_path):
    def build():
        (tmp_path / "built").touch()
        return Clock()

    (argument,) = wrong
    with pytest.raises(ValueError, match="find context" if argument == "context" else "AutoresetMode|" + argument):
        ShmVectorEnv([build], **{"num_workers": num_workers, **wrong})
    assert not (tmp_path / "built").exists()


def test_no_environments_is_refused():
    with pytest.raises(ValueError, match="env_fns"):
        ShmVectorEnv([])


@pytest.mark.parametrize("daemon", [True, False])
def test_processes_are_listed_in_the_order_of_their_environments(daemon):
    with made(5, num_workers=2, daemon=daemon) as envs:
        assert [process.pid for process in envs.processes] == list(dict.fromkeys(envs.call("pid")))
        assert all(process.daemon is daemon for process in envs.processes)
        assert all("ShmVectorEnv" in process.name for process in envs.processes)


@pytest.mark.parametrize(
    ("n", "num_workers", "shares"), [(17, 6, [3, 3, 3, 3, 3, 2]), (3, 3, [1, 1, 1]), (2, 5, [1, 1]), (4, 1, [4])]
)
def test_environments_are_shared_out_contiguously_and_evenly(n, num_workers, shares):
    with made(n, num_workers=num_workers) as envs:
        pids = envs.call("pid")
        assert list(pids) == sorted(pids, key=list(dict.fromkeys(pids)).index)
        assert [pids.count(pid) for pid in dict.fromkeys(pids)] == shares
        assert os.getpid() not in pids
        assert envs.num_workers == len(shares)


def test_without_workers_everything_runs_in_this_process():
    with made(3, num_workers=0) as envs:
        assert envs.call("pid") == (os.getpid(),) * 3
        assert list(envs.processes) == []


def test_no_more_environments_execute_at_a_time_than_max_concurrency_says():
    # Shared by the fork: which environments are at work, and the most that one of them has seen at work.
    at_work, most = mmap.mmap(-1, 8), mmap.mmap(-1, 8)

    def act(env, action):
        at_work[action] = 1
        time.sleep(0.001)  # the others have time to come in
        most[action] = max(most[action], sum(at_work[:]))
        at_work[action] = 0

    with made(8, max_concurrency=2, num_workers=8, context="fork", act=act, action_space=gs.Discrete(8)) as envs:
        assert len(envs.processes) == 2
        envs.reset()
        for _ in range(5):
            envs.step(np.arange(8))
    assert max(most[:]) <= 2


def test_it_can_be_made_and_stepped_in_a_thread():
    seen = []

    def run():
        with made(2) as envs:
            envs.reset()
            seen.append(times(envs.step(zeros(2))[0]))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert seen == [[1, 1]]


# --- reset ------------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("seed", [None, 5, np.int64(5), [5, 6, 7], [5, None, 7], (5, 6, 7)])
def test_every_environment_gets_its_seed(num_workers, seed):
    seeds: list[Any] = []
    seen = "seen"

    def act(env, given, options):
        setattr(env, seen, (given, options))

    with made(3, num_workers=num_workers, act_in_reset=act) as envs:
        envs.reset(seed=seed, options={"x": 1})
        seeds = [given for given, _ in envs.get_attr("seen")]
        assert {type(given) for given in seeds} <= {int, type(None)}
        expected = [None] * 3 if seed is None else list(seed) if isinstance(seed, list | tuple) else [5, 6, 7]
        assert seeds == expected
        assert [options for _, options in envs.get_attr("seen")] == [{"x": 1}] * 3
        if seed is not None and None not in expected:
            assert envs.np_random_seed == (5, 6, 7)
            assert [random.bit_generator.state for random in envs.np_random] == [
                np.random.Generator(np.random.PCG64(np.random.SeedSequence(one))).bit_generator.state
                for one in (5, 6, 7)
            ]


@BOTH
def test_a_wrong_number_of_seeds_is_refused_in_gymnasiums_words(num_workers):
    with made(3, num_workers=num_workers) as envs:
        with pytest.raises(ValueError) as caught:  # noqa: PT011  # the whole text is checked
            envs.reset(seed=[1, 2])
        assert str(caught.value) == ("If seeds are passed as a list the length must match num_envs=3 but got length=2.")
        envs.reset(seed=[1, 2, 3])


@BOTH
@pytest.mark.parametrize("shared_memory", [True, False])
@pytest.mark.parametrize("slots", [1, 3])
def test_a_mask_resets_those_environments_alone(num_workers, shared_memory, slots):
    with made(3, num_workers=num_workers, shared_memory=shared_memory, slots=slots, info=lambda t: {"t": t}) as envs:
        envs.reset()
        for _ in range(4):
            envs.step(zeros(3))
        options = {"reset_mask": np.array([True, False, True]), "x": 1}
        observations, infos = envs.reset(options=options)
        assert times(observations) == [0, 4, 0]
        assert_same(infos, {"t": np.array([0, 0, 0]), "_t": np.array([True, False, True])})
        assert times(envs.step(zeros(3))[0]) == [1, 5, 1]
        assert list(options) == ["reset_mask", "x"]  # SyncVectorEnv takes the mask out of the caller's dict
        assert options["reset_mask"].tolist() == [True, False, True]


@BOTH
@MODES
def test_a_reset_clears_what_is_pending_at_the_end_of_an_episode(num_workers, mode):
    with made(2, num_workers=num_workers, autoreset_mode=mode, episode=2) as envs:
        for options in (None, {"reset_mask": np.array([True, True])}):
            envs.reset()
            envs.step(zeros(2))
            assert envs.step(zeros(2))[2].all()
            envs.reset(options=options)
            observations, rewards, terminations, _, _ = envs.step(zeros(2))
            assert times(observations) == [1, 1]
            assert rewards.tolist() == [1, 1]
            assert not terminations.any()


@pytest.mark.parametrize(
    ("mask", "error", "text"),
    [
        ([True, False], TypeError, "`options['reset_mask']` must be a numpy array, got <class 'list'>"),
        (np.ones(3, bool), ValueError, "`options['reset_mask']` must have shape `(2,)`, got (3,)"),
        (np.ones(2, int), TypeError, "`options['reset_mask']` must have `dtype=np.bool_`, got int64"),
        (
            np.zeros(2, bool),
            ValueError,
            "`options['reset_mask']` must contain a boolean array with at least one True value, got "
            "reset_mask=[False False]",
        ),
    ],
)
def test_a_mask_that_is_none_is_refused_in_gymnasiums_words(mask, error, text):
    with made(2) as envs:
        envs.reset()
        with pytest.raises(error) as caught:
            envs.reset(options={"reset_mask": mask})
        assert str(caught.value) == text
        envs.step(zeros(2))


@BOTH
def test_options_of_one_environment_are_not_those_of_another(num_workers):
    def act(env, seed, options):
        options["list"].append(1)
        env.seen = options["list"]

    options = {"list": []}
    with made(3, num_workers=num_workers, act_in_reset=act) as envs:
        envs.reset(options=options)
        assert envs.get_attr("seen") == ([1],) * 3
    assert options == {"list": []}


# --- autoreset --------------------------------------------------------------------------------------------------------


@BOTH
def test_next_step_resets_in_the_step_after_the_end(num_workers):
    with made(2, num_workers=num_workers, episode=2, info=lambda t: {"t": t}) as envs:
        envs.reset()
        rows = [envs.step(zeros(2)) for _ in range(5)]
    assert [times(row[0]) for row in rows] == [[1, 1], [2, 2], [0, 0], [1, 1], [2, 2]]
    assert [row[1].tolist() for row in rows] == [[1, 1], [2, 2], [0, 0], [1, 1], [2, 2]]
    assert [row[2].tolist() for row in rows] == [[False] * 2, [True] * 2, [False] * 2, [False] * 2, [True] * 2]
    assert [row[4]["t"].tolist() for row in rows] == [[1, 1], [2, 2], [0, 0], [1, 1], [2, 2]]
    assert not any(row[3].any() or "final_obs" in row[4] for row in rows)


@BOTH
def test_same_step_resets_at_once_and_tells_the_terminal_observation_and_info(num_workers):
    with made(2, num_workers=num_workers, episode=2, autoreset_mode="SameStep", info=lambda t: {"t": t}) as envs:
        envs.reset()
        assert "final_obs" not in envs.step(zeros(2))[4]
        observations, rewards, terminations, truncations, infos = envs.step(zeros(2))
    assert times(observations) == [0, 0]
    assert rewards.tolist() == [2, 2]
    assert terminations.tolist() == [True, True]
    assert truncations.tolist() == [False, False]
    assert [row.tolist() for row in infos["final_obs"]] == [[2, 2], [2, 2]]
    assert infos["final_info"]["t"].tolist() == [2, 2]
    assert infos["t"].tolist() == [0, 0]
    assert list(infos) == ["final_obs", "_final_obs", "final_info", "_final_info", "t", "_t"]


@BOTH
def test_disabled_leaves_the_reset_to_the_caller(num_workers):
    # AsyncVectorEnv steps on too; SyncVectorEnv asserts that the caller did its part.
    with made(2, num_workers=num_workers, episode=2, autoreset_mode="Disabled") as envs:
        envs.reset()
        rows = [envs.step(zeros(2)) for _ in range(3)]
        assert [times(row[0]) for row in rows] == [[1, 1], [2, 2], [3, 3]]
        assert [row[2].tolist() for row in rows] == [[False] * 2, [True] * 2, [True] * 2]
        assert times(envs.reset(options={"reset_mask": np.array([True, False])})[0]) == [0, 3]


@BOTH
def test_flags_are_those_of_their_own_step(num_workers):
    with made(2, num_workers=num_workers, episode=1, autoreset_mode="SameStep", slots=3) as envs:
        envs.reset()
        for _ in range(5):
            assert envs.step(zeros(2))[2].all()
        envs.set_attr("episode", [1 << 30, 1])
        for _ in range(5):
            assert envs.step(zeros(2))[2].tolist() == [False, True]


# --- step -------------------------------------------------------------------------------------------------------------


@BOTH
def test_results_are_copies_with_the_types_of_gymnasium(num_workers):
    with made(2, num_workers=num_workers) as envs:
        envs.reset()
        first = envs.step(zeros(2))
        envs.step(zeros(2))
    assert_same(
        first,
        (
            np.ones((2, 2), np.float32),
            np.ones(2, np.float64),
            np.zeros(2, np.bool_),
            np.zeros(2, np.bool_),
            {},
        ),
    )


@BOTH
@pytest.mark.parametrize(
    "reward", [2, True, np.float32(0.5), np.int8(-3), np.array(1.5), np.array([2.5]), np.array([[3]])]
)
def test_rewards_of_any_type_of_number_are_floats(num_workers, reward):
    with made(2, num_workers=num_workers, reward=lambda t: reward) as envs:
        envs.reset()
        rewards = envs.step(zeros(2))[1]
    assert rewards.dtype == np.float64
    assert rewards.tolist() == [float(np.asarray(reward).item())] * 2


@BOTH
def test_without_copy_the_batch_is_a_view_that_the_next_step_changes(num_workers):
    with made(2, num_workers=num_workers, copy=False) as envs:
        observations, _ = envs.reset()
        assert times(observations) == [0, 0]
        later = envs.step(zeros(2))[0]
        assert times(observations) == times(later) == [1, 1]
        assert np.shares_memory(observations, later)


@BOTH
@pytest.mark.parametrize("slots", [2, 4])
def test_with_slots_what_was_returned_stays_for_all_but_one_of_them(num_workers, slots):
    with made(2, num_workers=num_workers, copy=False, slots=slots) as envs:
        rows = [envs.reset()[0]]
        for t in range(1, 11):
            rows.append(envs.step(zeros(2))[0])
            for back, row in enumerate(rows[: -slots - 1 : -1]):
                assert times(row) == [t - back] * 2


@BOTH
def test_observations_are_those_of_the_last_step(num_workers):
    with made(2, num_workers=num_workers, slots=3) as envs:
        envs.reset()
        for t in range(1, 5):
            envs.step(zeros(2))
            assert times(envs.observations) == [t, t]


@BOTH
def test_any_process_can_watch_by_the_name_of_the_segment(num_workers):
    with made(3, num_workers=num_workers) as envs:
        envs.reset()
        envs.step(zeros(3))
        watched = gymshm.attach(envs.segment_name, read_only=True)
        assert watched.n == 3
        assert sum(np.array_equal(array, np.ones((3, 2))) for array in all_arrays(watched.arrays)) == 1


def all_arrays(tree: Any) -> list[np.ndarray]:
    if isinstance(tree, dict | tuple):
        return [array for part in (tree.values() if isinstance(tree, dict) else tree) for array in all_arrays(part)]
    return [tree]


@BOTH
def test_text_and_choices_are_current_at_every_step(num_workers):
    space = gs.Dict(
        text=gs.Text(5), choice=gs.OneOf([gs.Discrete(9), gs.Box(0, 9, (1,), np.float32)]), t=gs.Discrete(9)
    )

    def observe(t):
        choice = (0, t) if t % 2 else (1, np.full(1, t, np.float32))
        return {"text": "abcde"[: t + 1], "choice": choice, "t": t}

    with made(2, num_workers=num_workers, observation_space=space, observe=observe) as envs:
        seen = [envs.reset()[0], *[envs.step(zeros(2))[0] for _ in range(2)]]
    for t, observations in enumerate(seen):
        assert observations["text"] == ("abcde"[: t + 1],) * 2
        assert observations["t"].tolist() == [t, t]
        for index, value in observations["choice"]:
            assert int(index) == (0 if t % 2 else 1)
            assert int(np.asarray(value).item()) == t


# --- actions ----------------------------------------------------------------------------------------------------------

BOX = gs.Box(-9, 9, (2,), np.float32)


class Keeper(Clock):
    """Keeps the very objects that it was given."""

    def __init__(self, action_space):
        super().__init__(action_space=action_space, act=lambda env, action: env.kept.append(action))
        self.kept = []


@BOTH
@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize(
    "space",
    [
        BOX,
        gs.Box(-9, 9, (), np.float64),
        gs.Discrete(200),
        gs.Discrete(1 << 40),
        gs.MultiDiscrete([3, 4]),
        gs.MultiBinary(3),
        gs.Text(4),
        gs.Dict(a=BOX, b=gs.Tuple([gs.Discrete(5), gs.Text(3)])),
        gs.OneOf([BOX, gs.Discrete(5), gs.Dict(a=BOX)]),
        gs.Sequence(gs.Discrete(5)),
        gs.Box(-9, 9, (3,), ">i4"),
    ],
    ids=repr,
)
def test_an_environment_may_keep_its_actions(space, slots, num_workers):
    with contextlib.closing(
        ShmVectorEnv([lambda: Keeper(space)] * 2, context="fork", num_workers=num_workers, slots=slots)
    ) as envs:
        envs.reset()
        envs.action_space.seed(3)
        expected: list[list[Any]] = [[], []]
        for _ in range(7):
            actions = envs.action_space.sample()
            for env, action in enumerate(gym.vector.utils.iterate(envs.action_space, actions)):
                expected[env].append(action)
            envs.step(actions)
        assert_same(envs.get_attr("kept"), tuple(expected))


def test_what_the_caller_does_to_its_actions_does_not_reach_the_environments_and_the_other_way():
    def act(env, action):
        env.kept = action
        action += 1

    with made(2, num_workers=0, action_space=BOX, act=act) as envs:
        envs.reset()
        for actions in (np.zeros((2, 2), np.float32), np.zeros((2, 2))):
            envs.step(actions)
            assert not actions.any()
            actions[...] = 5
            assert [kept.tolist() for kept in envs.get_attr("kept")] == [[1, 1]] * 2


@BOTH
@pytest.mark.parametrize(
    ("space", "actions"),
    [
        (gs.Discrete(5), [1, 2]),
        (gs.Discrete(5), np.array([1, 2], np.int32)),
        (gs.Discrete(5), np.array([1.0, 2.0])),
        (gs.Discrete(5), (np.int8(1), True)),
        (gs.Discrete(5), ["left", None]),
        (BOX, [[1, 2], [3, 4]]),
        (BOX, np.ones((2, 2))),
        (BOX, np.ones((2, 3), np.float32)),
        (BOX, [np.ones(2), 5]),
        (gs.Dict(a=BOX), {"a": np.ones((2, 2)), "b": 1}),
        (gs.Tuple([gs.Discrete(3), BOX]), [[1, 2], np.ones((2, 2), np.float32)]),
        (gs.Text(3), ["too long", 5]),
        (gs.Text(3), "ab"),
        (gs.OneOf([BOX]), [(0, [1.0, 2.0]), (0, 5)]),
    ],
    ids=repr,
)
def test_actions_of_another_form_are_handed_over_as_gymnasium_does(num_workers, space, actions):
    sync = SyncVectorEnv([lambda: Keeper(space)] * 2)
    with contextlib.closing(ShmVectorEnv([lambda: Keeper(space)] * 2, context="fork", num_workers=num_workers)) as envs:
        for either in (sync, envs):
            either.reset()
            either.step(actions)
        assert_same(envs.get_attr("kept"), sync.get_attr("kept"))


@BOTH
@pytest.mark.parametrize(
    ("space", "actions"),
    [
        (gs.Discrete(5), zeros(1)),
        (gs.Discrete(5), zeros(3)),
        (gs.Discrete(5), []),
        (gs.Discrete(5), [0, 0, 0]),
        (BOX, np.zeros((3, 2), np.float32)),
        (BOX, np.zeros((1, 2))),
        (gs.Dict(a=BOX, b=gs.Discrete(5)), {"a": np.zeros((3, 2), np.float32), "b": zeros(3)}),
        (gs.Dict(a=BOX, b=gs.Discrete(5)), {"a": np.zeros((2, 2), np.float32), "b": zeros(3)}),
        (gs.Tuple([BOX, gs.Discrete(5)]), (np.zeros((2, 2), np.float32), zeros(1))),
        (gs.Text(3), ("a",)),
        (gs.Text(3), "abc"),
        (gs.OneOf([BOX]), ((0, np.zeros(2, np.float32)),)),
    ],
    ids=repr,
)
def test_a_wrong_number_of_actions_is_a_value_error_before_any_environment_stepped(num_workers, space, actions):
    with made(2, num_workers=num_workers, action_space=space) as envs:
        envs.reset()
        with pytest.raises(ValueError, match=r"actions|argument|shorter|longer"):
            envs.step(actions)
        assert envs.get_attr("steps") == (0, 0)
        envs.step(envs.action_space.sample())
        assert envs.get_attr("steps") == (1, 1)


@pytest.mark.parametrize(
    ("space", "actions", "error"),
    [(gs.Discrete(5), 1, TypeError), (gs.Discrete(5), None, TypeError), (gs.Dict(a=BOX), {"b": zeros(2)}, KeyError)],
)
def test_what_is_no_batch_of_actions_is_refused_before_any_environment_stepped(space, actions, error):
    with made(2, action_space=space) as envs:
        envs.reset()
        with pytest.raises(error):
            envs.step(actions)
        assert envs.get_attr("steps") == (0, 0)
        envs.step(envs.action_space.sample())


def test_an_action_that_cannot_be_pickled_is_refused_before_any_environment_stepped():
    with made(2, num_workers=2) as envs:
        envs.reset()
        with pytest.raises((TypeError, AttributeError)):
            envs.step([0, (i for i in range(3))])
        assert envs.get_attr("steps") == (0, 0)
        envs.step(zeros(2))


# --- spaces -----------------------------------------------------------------------------------------------------------


def of_spaces(*spaces: gs.Space[Any], **options: Any) -> list[Any]:
    return [
        lambda space=space: Clock(observation_space=space, observe=lambda t: space.sample(), **options)
        for space in spaces
    ]


@BOTH
def test_differing_spaces_are_refused_unless_they_are_meant(num_workers):
    fns = of_spaces(gs.Box(0, 1, (2,), np.float32), gs.Box(0, 2, (2,), np.float32))
    with pytest.raises(RuntimeError, match="spaces are not equivalent") as caught:
        ShmVectorEnv(fns, num_workers=num_workers)
    assert "instead. Expected Box(0.0, 1.0, (2,), float32), got Box(0.0, 2.0, (2,)" in str(caught.value)
    with contextlib.closing(ShmVectorEnv(fns, num_workers=num_workers, observation_mode="different")) as envs:
        assert envs.single_observation_space == gs.Box(0, 1, (2,), np.float32)
        assert envs.observation_space == SyncVectorEnv(fns, observation_mode="different").observation_space
        observations, _ = envs.reset()
        assert observations in envs.observation_space


@BOTH
def test_texts_of_other_characters_are_refused_as_sync_vector_env_does(num_workers):
    fns = of_spaces(gs.Text(3, charset="ab"), gs.Text(3, charset="cd"))
    with pytest.raises((RuntimeError, AssertionError), match="do not share a common shape and dtype"):
        SyncVectorEnv(fns, observation_mode="different")
    with pytest.raises(RuntimeError, match="do not share a common shape and dtype"):
        ShmVectorEnv(fns, num_workers=num_workers, observation_mode="different")


@BOTH
def test_spaces_that_differ_in_shape_or_dtype_are_always_refused(num_workers):
    pair = (gs.Box(0, 9, (2, 2), np.float32), gs.Box(0, 9, (2,), np.float32))
    other_dtype = of_spaces(gs.Box(0, 1, (2,), np.float32), gs.Box(0, 1, (2,), np.float64))
    with pytest.raises((RuntimeError, ValueError)):
        ShmVectorEnv(other_dtype, num_workers=num_workers, observation_mode="different")
    with pytest.raises(RuntimeError, match="do not share a common shape and dtype"):
        ShmVectorEnv(other_dtype, num_workers=num_workers, observation_mode=pair)


@BOTH
def test_a_pair_of_spaces_is_taken_as_batched_and_single_one(num_workers):
    pair = (gs.Box(-1, 9, (2, 2), np.float32), gs.Box(0, 9, (2,), np.float32))
    fns = of_spaces(gs.Box(0, 1, (2,), np.float32), gs.Box(0, 2, (2,), np.float32))
    with contextlib.closing(ShmVectorEnv(fns, num_workers=num_workers, observation_mode=pair)) as envs:
        assert (envs.observation_space, envs.single_observation_space) == pair
        envs.reset()


@BOTH
def test_differing_action_spaces_are_refused(num_workers):
    fns = [lambda n=n: Clock(action_space=gs.Discrete(n)) for n in (2, 3)]
    with pytest.raises(
        RuntimeError, match=r"Some environments have an action space different from `Discrete\(2\)`"
    ) as caught:
        ShmVectorEnv(fns, num_workers=num_workers)
    assert str(caught.value).endswith("equal. Expected Discrete(2), got Discrete(3) - in environment 1.")


@BOTH
@pytest.mark.parametrize("copy", [True, False])
def test_spaces_of_no_fixed_size_travel_pickled(num_workers, copy):
    space = gs.Dict(items=gs.Sequence(gs.Discrete(9)), graph=gs.Graph(BOX, None))
    space.seed(1)
    observations = [space.sample() for _ in range(5)]
    options = {
        "observation_space": space,
        "action_space": gs.Sequence(gs.Discrete(3)),
        "observe": observations.__getitem__,
    }
    sync = SyncVectorEnv(clocks(2, **options), copy=copy)
    with made(2, num_workers=num_workers, shared_memory=False, copy=copy, **options) as envs:
        for either in (sync, envs):
            either.action_space.seed(4)
        assert_same(envs.reset(), sync.reset())
        for _ in range(3):
            actions = sync.action_space.sample()
            assert str(envs.step(actions)) == str(sync.step(actions))


@BOTH
def test_in_shared_memory_such_a_space_is_an_error(num_workers):
    with pytest.raises(TypeError, match="has a dynamic shape so its not possible to make a static shared memory"):
        ShmVectorEnv(of_spaces(gs.Sequence(gs.Discrete(9))), num_workers=num_workers)


class Custom(gs.Space):
    """Nobody registered it."""

    def __init__(self):
        super().__init__((), np.float32)

    def __eq__(self, other):
        return type(other) is Custom

    def sample(self, *arguments, **options):
        return "custom"


@BOTH
def test_a_custom_space_is_refused_in_shared_memory_and_travels_pickled_without(num_workers):
    with pytest.raises(
        ValueError, match=r"shared_memory=True\)` caused an error, you can disable this feature with `shar"
    ):
        ShmVectorEnv(of_spaces(Custom()), num_workers=num_workers)
    with contextlib.closing(
        ShmVectorEnv(of_spaces(*[Custom()] * 2, action_space=Custom()), num_workers=num_workers, shared_memory=False)
    ) as envs:
        assert envs.reset()[0] == ("custom", "custom")
        assert envs.step(("a", "b"))[0] == ("custom", "custom")


# --- calls ------------------------------------------------------------------------------------------------------------


@BOTH
def test_calls_reach_every_environment(num_workers):
    with made(3, num_workers=num_workers, render_mode="rgb_array") as envs:
        envs.reset()
        envs.step(zeros(3))
        assert envs.call("double", 4) == (8, 8, 8)
        assert envs.call("double", 4, plus=1) == (9, 9, 9)
        assert envs.call("t") == envs.get_attr("t") == (1, 1, 1)
        assert_same(envs.render(), tuple(np.ones((2, 2, 3), np.uint8) for _ in range(3)))
        envs.call_async("double", 5)
        assert envs.call_wait() == (10, 10, 10)


class Named(Clock):
    def named(self, *, name):
        return name, self.t


@BOTH
def test_a_method_of_an_environment_may_have_an_argument_called_name(num_workers):
    with contextlib.closing(ShmVectorEnv([Named] * 2, num_workers=num_workers)) as envs:
        assert envs.call("named", name=3) == ((3, 0),) * 2


@BOTH
def test_an_attribute_is_set_to_one_value_or_to_one_for_each(num_workers):
    with made(3, num_workers=num_workers) as envs:
        envs.set_attr("secret", "one")
        assert envs.get_attr("secret") == ("one",) * 3
        envs.set_attr("secret", [1, 2, 3])
        assert envs.get_attr("secret") == (1, 2, 3)
        envs.set_attr("secret", ("a", "b", "c"))
        assert envs.get_attr("secret") == ("a", "b", "c")
        with pytest.raises(ValueError) as caught:  # noqa: PT011  # the whole text is checked
            envs.set_attr("secret", [1, 2])
        assert str(caught.value) == (
            "Values must be a list or tuple with length equal to the number of environments. Got `2` values for 3 "
            "environments."
        )


@BOTH
def test_attributes_of_wrappers_are_found(num_workers):
    fns = [lambda: TimeLimit(RescaleObservation(Clock(), np.float32(0), np.float32(1)), 5)] * 2
    with contextlib.closing(ShmVectorEnv(fns, num_workers=num_workers)) as envs:
        assert envs.get_attr("_max_episode_steps") == (5, 5)
        assert envs.get_attr("secret") == ("none", "none")


@BOTH
@pytest.mark.parametrize("name", ["reset", "step", "close"])
def test_what_has_a_method_of_its_own_is_not_called(num_workers, name):
    with made(2, num_workers=num_workers) as envs:
        with pytest.raises(ValueError) as caught:  # noqa: PT011  # the whole text is checked
            envs.call(name)
        assert str(caught.value) == f"Trying to call function `{name}` with `call`, use `{name}` directly instead."
        assert envs.call("double", 1) == (2, 2)


@BOTH
def test_an_attribute_that_is_not_there_is_an_attribute_error(num_workers):
    with made(2, num_workers=num_workers) as envs:
        with pytest.raises(AttributeError, match="nonsense"):
            envs.get_attr("nonsense")
        assert envs.get_attr("t") == (0, 0)


# --- state ------------------------------------------------------------------------------------------------------------

CALLS = {"reset": (), "step": (zeros(2),), "call": ("double", 1)}


@BOTH
@pytest.mark.parametrize("pending", list(CALLS))
@pytest.mark.parametrize("wanted", [*CALLS, "set_attr"])
def test_a_second_call_while_one_is_pending_is_refused_in_gymnasiums_words(num_workers, pending, wanted):
    with made(2, num_workers=num_workers) as envs:
        envs.reset()
        getattr(envs, f"{pending}_async")(*CALLS[pending])
        method = wanted if wanted == "set_attr" else f"{wanted}_async"
        with pytest.raises(AlreadyPendingCallError) as caught:
            getattr(envs, method)(*(("secret", 1) if wanted == "set_attr" else CALLS[wanted]))
        assert str(caught.value) == f"Calling `{method}` while waiting for a pending call to `{pending}` to complete."
        assert caught.value.name == pending
        getattr(envs, f"{pending}_wait")()
        assert times(envs.reset()[0]) == [0, 0]


@BOTH
@pytest.mark.parametrize("name", list(CALLS))
def test_waiting_for_what_nobody_asked_is_refused_in_gymnasiums_words(num_workers, name):
    with made(2, num_workers=num_workers) as envs:
        envs.reset()
        for other in (None, *CALLS):
            if other == name:
                continue
            if other is not None:
                getattr(envs, f"{other}_async")(*CALLS[other])
            with pytest.raises(NoAsyncCallError) as caught:
                getattr(envs, f"{name}_wait")()
            assert str(caught.value) == f"Calling `{name}_wait` without any prior call to `{name}_async`."
            assert caught.value.name == name
            if other is not None:
                getattr(envs, f"{other}_wait")()


@BOTH
def test_after_close_everything_is_refused_in_gymnasiums_words(num_workers):
    envs = clock_envs(2, num_workers=num_workers)
    envs.close()
    assert envs.closed
    for call in (
        envs.reset,
        lambda: envs.step(zeros(2)),
        lambda: envs.call("t"),
        lambda: envs.get_attr("t"),
        lambda: envs.set_attr("secret", 1),
        envs.render,
        lambda: envs.reset_async(),
        lambda: envs.step_async(zeros(2)),
        envs.reset_wait,
        envs.step_wait,
        envs.call_wait,
    ):
        with pytest.raises(ClosedEnvironmentError) as caught:
            call()
        assert str(caught.value) == "Trying to operate on `ShmVectorEnv`, after a call to `close()`."
    envs.close()


def test_what_was_returned_stays_readable_after_close():
    with made(2, copy=False) as envs:
        observations, _ = envs.reset()
    assert times(observations) == [0, 0]
