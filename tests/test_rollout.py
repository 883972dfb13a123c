"""``rollout``: a whole rollout stands in the segment as ``(T, n, ...)`` arrays, and nobody copied it."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces as gs
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError
from gymnasium.vector import SyncVectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array

import gymshm
from environments import assert_same, clocks, zeros
from gymshm import ShmVectorEnv
from gymshm.rollout import Rollout
from mortal import KILL, fates, mortals
from support import same
from wanderers import Wanderer

BOTH = pytest.mark.parametrize("num_workers", [0, 2])
BOX = gs.Box(-1.0, 1.0, (2, 3), np.float32)
NESTED = gs.Dict(camera=gs.Box(0, 255, (2, 2), np.uint8), parts=gs.Tuple([gs.Discrete(5), gs.MultiBinary(3)]), v=BOX)
#: Its own, for an environment that samples its observations of the space of its actions gives others.
ACTIONS = copy.deepcopy(NESTED)
ARRAYS = ["observations", "last_observations", "actions", "rewards", "terminations", "truncations"]


def made(n: int = 2, *, env: dict[str, Any] | None = None, **options: Any) -> contextlib.closing[ShmVectorEnv]:
    """``n`` clocks; ``env`` are options of theirs."""
    options = {"num_workers": 2, "copy": False, "slots": 4, **options}
    return contextlib.closing(ShmVectorEnv(clocks(n, **(env or {})), **options))


def leaves(tree: Any) -> list[np.ndarray]:
    if isinstance(tree, dict | tuple):
        return [leaf for part in (tree.values() if isinstance(tree, dict) else tree) for leaf in leaves(part)]
    return [tree]


def at(tree: Any, t: int) -> Any:
    """Row ``t`` of each array."""
    if isinstance(tree, dict):
        return {key: at(part, t) for key, part in tree.items()}
    return tuple(at(part, t) for part in tree) if isinstance(tree, tuple) else tree[t]


def shares(left: Any, right: Any) -> bool:
    """Whether each array of the one shares its memory with the same of the other."""
    return all(np.shares_memory(a, b) for a, b in zip(leaves(left), leaves(right), strict=True))


def stacked(rows: list[Any]) -> Any:
    """Batches one behind the other, as new arrays."""
    if isinstance(rows[0], dict):
        return {key: stacked([row[key] for row in rows]) for key in rows[0]}
    if isinstance(rows[0], tuple):
        return tuple(stacked(list(parts)) for parts in zip(*rows, strict=True))
    return np.stack(rows)


# --- the same as stacking what steps give -----------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [0, 1, 2])
@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize(("observations", "actions"), [(BOX, gs.Discrete(4)), (NESTED, ACTIONS), (gs.Discrete(3), BOX)])
def test_it_is_what_stacking_the_steps_of_sync_vector_env_gives(num_workers, copies, steps, observations, actions):
    fns = [lambda: Wanderer(observations, actions)] * 3
    if isinstance(actions, gs.Dict):
        fns = [lambda: Plain(observations, actions)] * 3
    theirs = SyncVectorEnv(fns)
    ours = ShmVectorEnv(fns, num_workers=num_workers, copy=copies, slots=steps + 1)
    theirs.single_action_space.seed(1)
    try:
        seen = copy.deepcopy(theirs.reset(seed=5)[0])
        ours.reset(seed=5)
        for _ in range(3):
            rollout = ours.rollout()
            rows: list[Any] = []
            for t in range(steps):
                # What a policy would see.
                assert same(at(rollout.observations, t), seen)
                made = [theirs.single_action_space.sample() for _ in fns]
                given = concatenate(actions, made, create_empty_array(actions, len(made)))
                after, rewards, terminations, truncations, infos = copy.deepcopy(theirs.step(given))
                rows.append((seen, after, given, rewards, terminations, truncations))
                seen = after
                result = ours.step(given)
                assert same(result[0], after)
                assert_same(result[1:], (rewards, terminations, truncations, infos))
                shown = at(rollout.observations, t + 1) if t + 1 < steps else rollout.last_observations
                assert shares(result[0], shown) is not copies
            wanted = list(map(stacked, zip(*rows, strict=True)))
            wanted[1] = seen
            for name, expected in zip(ARRAYS, wanted, strict=True):
                assert same(getattr(rollout, name), expected), name
    finally:
        ours.close()


class Plain(Wanderer):
    """Takes actions of any kind."""

    def step(self, action: Any) -> tuple[Any, ...]:
        observation, _, terminated, truncated, info = super().step(0)
        return observation, float(action["v"][0, 0]), terminated, truncated, {"left": info.get("left", 0)}


# --- where it stands --------------------------------------------------------------------------------------------------


@BOTH
def test_arrays_are_contiguous_views_of_the_segment_with_the_dtypes_of_the_spaces(num_workers):
    with made(3, num_workers=num_workers, slots=6) as envs:
        envs.reset()
        rollout = envs.rollout()
        for name, shape, dtype in [
            ("observations", (5, 3, 2), np.float32),
            ("last_observations", (3, 2), np.float32),
            ("actions", (5, 3), np.int64),
            ("rewards", (5, 3), np.float64),
            ("terminations", (5, 3), np.bool_),
            ("truncations", (5, 3), np.bool_),
        ]:
            array = getattr(rollout, name)
            assert (array.shape, array.dtype) == (shape, dtype), name
            assert array.flags.c_contiguous, name
        for t in range(5):
            envs.step(np.full(3, t % 5))
        # What any process sees that attaches.
        watched = gymshm.attach(envs.segment_name).arrays
        assert watched.shape == (6, 3, 2)
        steps = np.arange(6.0)[:, None, None]
        assert (watched == steps).all()
        assert (rollout.observations == steps[:5]).all()
        watched[3, 1] = 88
        assert rollout.observations[3, 1].tolist() == [88, 88]


@BOTH
def test_the_next_one_goes_on_where_the_last_ended_and_writes_over_it(num_workers):
    with made(2, num_workers=num_workers, slots=4, env={"episode": 5}) as envs:
        envs.reset()
        first = envs.rollout()
        for t in range(3):
            envs.step(np.full(2, t))
        kept = copy.deepcopy(first)
        assert kept.observations[:, 0, 0].tolist() == [0, 1, 2]
        assert kept.last_observations[:, 0].tolist() == [3, 3]
        second = envs.rollout()
        assert all(shares(getattr(first, name), getattr(second, name)) for name in ARRAYS)
        assert second.observations[0, :, 0].tolist() == [3, 3]
        for t in range(3):
            envs.step(np.full(2, t + 2))
        # Steps 4 and 5, whose end is the end of the episode; then the reset.
        assert first.observations[:, 0, 0].tolist() == [3, 4, 5]
        assert first.last_observations[:, 0].tolist() == [0, 0]
        assert first.rewards[:, 1].tolist() == [4, 5, 0]
        assert first.terminations[:, 1].tolist() == [False, True, False]
        assert first.actions[:, 0].tolist() == [2, 3, 4]
        third = envs.rollout()
        envs.step(zeros(2))
        assert third.observations[:2, 0, 0].tolist() == [0, 1]
        assert third.terminations[0].tolist() == [False, False]


@BOTH
@pytest.mark.parametrize("before", range(6))
def test_it_begins_with_what_is_seen_now_wherever_that_stands(num_workers, before):
    with made(2, num_workers=num_workers, slots=4) as envs:
        envs.reset()
        for _ in range(before):
            envs.step(zeros(2))
        rollout = envs.rollout()
        assert (envs.observations == before).all()
        for t in range(3):
            assert (rollout.observations[t] == before + t).all()
            envs.step(zeros(2))
        assert (rollout.last_observations == before + 3).all()


@BOTH
def test_a_rollout_that_is_cut_short_or_reset_between(num_workers):
    with made(2, num_workers=num_workers, slots=4) as envs:
        envs.reset()
        rollout = envs.rollout()
        envs.step(zeros(2))
        rollout = envs.rollout()
        assert (rollout.observations[0] == 1).all()
        envs.step(zeros(2))
        envs.reset()
        rollout = envs.rollout()
        envs.step(zeros(2))
        assert rollout.observations[:2, 0, 0].tolist() == [0, 1]
        envs.reset(options={"reset_mask": np.array([False, True])})
        assert envs.rollout().observations[0, :, 0].tolist() == [1, 0]


@BOTH
@pytest.mark.parametrize("one_more", ["step", "step, pickled", "reset", "reset of some"])
def test_what_would_write_over_a_rollout_is_refused(num_workers, one_more):
    with made(2, num_workers=num_workers, slots=4) as envs:
        envs.reset()
        rollout = envs.rollout()
        for _ in range(3):
            envs.step(zeros(2))
        before = copy.deepcopy([getattr(rollout, name) for name in ARRAYS])
        with pytest.raises(RuntimeError, match=r"at most 3 steps and resets .* Call `rollout\(\)` for"):
            {
                "step": lambda: envs.step(zeros(2)),
                "step, pickled": lambda: envs.step([0, 0]),
                "reset": envs.reset,
                "reset of some": lambda: envs.reset(options={"reset_mask": np.array([True, False])}),
            }[one_more]()
        assert_same([getattr(rollout, name) for name in ARRAYS], before)
        assert envs.get_attr("steps") == (3, 3)
        assert envs.get_attr("resets") == (1, 1)
        assert (envs.rollout().observations[0] == 3).all()
        assert (envs.step(zeros(2))[0] == 4).all()


@BOTH
def test_a_reset_before_the_first_step_takes_no_row(num_workers):
    with made(2, num_workers=num_workers, slots=3) as envs:
        rollout = envs.rollout()
        envs.reset()
        for _ in range(2):
            envs.step(zeros(2))
        assert rollout.observations[..., 0].tolist() == [[0, 0], [1, 1]]
        assert rollout.last_observations[:, 0].tolist() == [2, 2]
        assert rollout.rewards.tolist() == [[1, 1], [2, 2]]
        envs.rollout()
        envs.reset(options={"reset_mask": np.array([False, True])})
        for _ in range(2):
            envs.step(zeros(2))
        assert rollout.observations[..., 0].tolist() == [[2, 0], [3, 1]]
        assert rollout.last_observations[:, 0].tolist() == [4, 2]
        assert rollout.rewards.tolist() == [[3, 1], [4, 2]]


@BOTH
@pytest.mark.parametrize("mask", [None, [False, True]])
def test_the_row_of_a_reset_tells_of_no_step(num_workers, mask):
    options = None if mask is None else {"reset_mask": np.array(mask)}
    with made(2, num_workers=num_workers, slots=4, autoreset_mode="Disabled", env={"episode": 3}) as envs:
        envs.reset()
        rollout = envs.rollout()
        for _ in range(3):
            envs.step(zeros(2))
        assert (rollout.rewards[2] != 0).all()
        assert (rollout.terminations[2] | rollout.truncations[2]).all()
        rollout = envs.rollout()
        envs.reset()
        for _ in range(2):
            envs.step(zeros(2))
        envs.reset(options=options)
        assert (rollout.rewards[:2] != 0).all()
        assert rollout.rewards[2].tolist() == [0, 0]
        assert not (rollout.terminations[2] | rollout.truncations[2]).any()


@BOTH
def test_the_row_of_a_step_that_failed_has_no_reward_of_an_older_one(num_workers):
    def refuse_one(env: Any, action: Any) -> None:
        if action == 1:
            raise ArithmeticError("on purpose")

    with made(2, num_workers=num_workers, slots=3, env={"act": refuse_one}) as envs:
        envs.reset()
        rollout = envs.rollout()
        envs.step(zeros(2))
        envs.step(zeros(2))
        assert rollout.rewards.tolist() == [[1, 1], [2, 2]]
        rollout = envs.rollout()
        with pytest.raises(ArithmeticError, match="on purpose"):
            envs.step(np.array([0, 1]))
        assert rollout.rewards[0].tolist() == [3, 0]


@BOTH
def test_texts_and_choices_stand_there_as_codes(num_workers):
    space = gs.Dict(choice=gs.OneOf([gs.Discrete(9), gs.Discrete(9, start=5)]), text=gs.Text(3, charset="abc"))

    def observe(t: int) -> dict[str, Any]:
        return {"choice": (t % 2, t + 5), "text": "abc"[: t % 4]}

    with made(2, num_workers=num_workers, slots=5, env={"observation_space": space, "observe": observe}) as envs:
        envs.reset()
        rollout = envs.rollout()
        shown = [envs.step(zeros(2))[0]["text"] for _ in range(4)]
        assert shown == [("abc"[: t % 4],) * 2 for t in range(1, 5)]
        assert rollout.observations["text"].shape == (4, 2, 3)
        index, first, second = rollout.observations["choice"]
        assert index.tolist() == [[0, 0], [1, 1]] * 2
        assert (first[0].tolist(), second[1].tolist()) == ([5, 5], [6, 6])


# --- actions ----------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("space", "actions", "expected"),
    [
        (gs.Discrete(5), [1, 4], np.array([1, 4])),
        (gs.Discrete(5), np.array([1, 4], np.int32), np.array([1, 4])),
        (gs.Box(-9.0, 9.0, (2,), np.float32), np.array([[1, 2], [3, 4.5]]), np.array([[1, 2], [3, 4.5]], np.float32)),
        (gs.Tuple([gs.Discrete(5)]), ([1, 4],), (np.array([1, 4]),)),
    ],
)
def test_actions_of_another_form_stand_there_too(num_workers, space, actions, expected):
    with made(2, num_workers=num_workers, env={"action_space": space}) as envs:
        envs.reset()
        rollout = envs.rollout()
        envs.step(envs.action_space.sample())
        envs.step(actions)
        assert same(at(rollout.actions, 1), expected)


@BOTH
def test_an_action_that_can_not_stand_there_is_refused_before_any_environment_stepped(num_workers):
    with made(2, num_workers=num_workers) as envs:
        envs.reset()
        envs.step(["left", "right"])  # as they are: environments may know what that is
        rollout = envs.rollout()
        envs.step(np.array([3, 4]))
        with pytest.raises(TypeError):
            envs.step([1, "right"])
        assert envs.get_attr("steps") == (2, 2)
        envs.step(np.array([1, 2]))
        assert rollout.actions[:2].tolist() == [[3, 4], [1, 2]]
        assert rollout.observations[:, 0, 0].tolist() == [1, 2, 3]


@BOTH
def test_actions_of_no_fixed_size_do_not_stand_there(num_workers):
    with made(2, num_workers=num_workers, env={"action_space": gs.Sequence(gs.Discrete(3))}) as envs:
        envs.reset()
        rollout = envs.rollout()
        envs.step(((1, 2), (0,)))
        assert rollout.actions is None
        assert rollout.rewards[0].tolist() == [1, 1]


# --- deaths -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("died_at", [0, 1, 2])
def test_the_loss_of_a_worker_is_one_truncated_step(died_at):
    envs = mortals(slots=4, copy=False)
    try:
        envs.reset()
        for _ in range(2):
            envs.step(fates(4))
        rollout: Rollout = envs.rollout()
        for t in range(3):
            envs.step(fates(4, env1=KILL) if t == died_at else fates(4))
        seen = [*rollout.observations[:, 0, 0], rollout.last_observations[0, 0]]
        before = [2 + t for t in range(died_at + 1)]
        assert seen == [*before, before[-1], *range(3)][:4]
        assert rollout.truncations[:, 0].tolist() == [t == died_at for t in range(3)]
        assert [*rollout.observations[:, 3, 0], rollout.last_observations[3, 0]] == [2, 3, 4, 5]
        assert not rollout.truncations[:, 2:].any()
    finally:
        envs.close()


def test_what_was_seen_last_stands_in_the_first_slot_once_a_rollout_began():
    envs = mortals(slots=2, copy=False)
    try:
        envs.reset()
        for _ in range(2):
            envs.step(fates(4))
        rollout = envs.rollout()
        envs.step(fates(4, env1=KILL))  # which environment 0 has stepped before
        assert rollout.observations[0, :, 0].tolist() == [2, 2, 2, 2]
        assert rollout.last_observations[:, 0].tolist() == [2, 2, 3, 3]
    finally:
        envs.close()


# --- errors -----------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("options", [{"slots": 1}, {"shared_memory": False}])
def test_it_needs_slots_in_shared_memory(num_workers, options):
    with made(2, num_workers=num_workers, **options) as envs:
        envs.reset()
        told = f"slots={options.get('slots', 4)}, shared_memory={options.get('shared_memory', True)}"
        with pytest.raises(ValueError, match=rf"Expected slots=T \+ 1 and observations in shared memory.*{told}"):
            envs.rollout()
        envs.step(zeros(2))


def test_two_rows_that_restarts_need_are_no_slots():
    envs = mortals(2)
    try:
        with pytest.raises(ValueError, match="slots=1"):
            envs.rollout()
    finally:
        envs.close()


@BOTH
def test_it_is_refused_while_a_call_is_pending_and_after_close(num_workers):
    with made(2, num_workers=num_workers) as envs:
        envs.reset()
        envs.step_async(zeros(2))
        with pytest.raises(
            AlreadyPendingCallError, match="Calling `rollout` while waiting for a pending call to `step`"
        ):
            envs.rollout()
        envs.step_wait()
        envs.rollout()
    with pytest.raises(ClosedEnvironmentError):
        envs.rollout()


@BOTH
def test_arrays_stay_readable_after_close(num_workers):
    with made(2, num_workers=num_workers) as envs:
        envs.reset()
        rollout = envs.rollout()
        envs.step(np.array([3, 4]))
    assert rollout.actions[0].tolist() == [3, 4]
    assert rollout.observations[1].tolist() == [[1, 1], [1, 1]]
