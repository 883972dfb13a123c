"""``ShmVectorEnv`` against ``SyncVectorEnv``: the same environments, the same calls, and every output the same.

Where the two differ on purpose (each has a test of its own in ``test_vector_env`` or ``test_vector_errors``):

* SyncVectorEnv pops "reset_mask" from the caller's options; so each side gets a dict of its own here.
* SyncVectorEnv hands the environments views of the caller's actions, and gives terminal observations as the very
  object of the environment: what one side changes, the other sees. Here nothing is changed afterwards.
* In DISABLED mode SyncVectorEnv asserts that an episode that ended was reset; AsyncVectorEnv steps on, and so do we.
  Here ended episodes are reset.
* SyncVectorEnv turns a reward of None into NaN; ours is an error. Here rewards are numbers.
* ``OneOf`` observations come with the types of the space: an index of numpy's, and numpy's scalars and arrays. Here
  observations have these types already.
"""

from __future__ import annotations

import copy
import fractions
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
from gymnasium import spaces as gs
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import SyncVectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array
from hypothesis import given, settings

import gymshm
from environments import Replay, assert_same
from strategies import spaces, values
from support import needs_gymnasium

MODES = ["NextStep", "SameStep", "Disabled"]


# --- what the environments give ---------------------------------------------------------------------------------------

#: What an info may hold under a key. A key has one kind of value, as gymnasium's batching wants.
INFO_ITEMS = {
    "float": lambda random: float(random.normal()),
    "int": lambda random: int(random.integers(-(1 << 62), 1 << 62)),
    "bool": lambda random: bool(random.integers(2)),
    "half": lambda random: np.float16(random.normal()),
    "single": lambda random: np.float32(random.normal()),
    "byte": lambda random: np.uint8(random.integers(256)),
    "unsigned": lambda random: np.uint64(random.integers(1 << 63)),
    "numpy bool": lambda random: np.bool_(random.integers(2)),
    "complex": lambda random: np.complex128(random.normal() + 1j),
    "any number": lambda random: random.choice([1, 2.5, True, np.int8(3), np.float64(4.5)]).item(),
    "nan": lambda random: [np.nan, np.inf, 1.0][random.integers(3)],
    "array": lambda random: random.integers(0, 9, (2, 2)).astype(np.int16),
    "vector": lambda random: random.normal(size=3),
    "text": lambda random: "abc"[: random.integers(4)],
    "bytes": lambda random: bytes(random.integers(3)),
    "nothing": lambda random: None,
    "object": lambda random: (1, {"a": fractions.Fraction(1, 3)}, frozenset({2})),
    "list": lambda random: [1, "x", 2.5][: random.integers(4)],
    "nested": lambda random: some_items(random, {"x": "float", "y": "int", "text": "text", "deep": "nested"}),
    5: lambda random: float(random.normal()),
    "_float": lambda random: bool(random.integers(2)),
    "final_obs": lambda random: int(random.integers(9)),
}


def some_items(random: np.random.Generator, kinds: dict[Any, Any]) -> dict[Any, Any]:
    """An info with some of the keys, in any order."""
    keys = [key for key in kinds if random.random() < 0.6]
    random.shuffle(keys)
    return {key: INFO_ITEMS[kinds[key]](random) for key in keys}


def steady_items(random: np.random.Generator, keys: list[Any]) -> dict[Any, Any]:
    """An info that has always the same keys and types, as most environments have it."""
    return {key: INFO_ITEMS[key](random) for key in keys}


INFOS = {
    "none": lambda random: {},
    "a few numbers": lambda random: steady_items(random, ["float", "int", "byte", "half", "bool"]),
    "numbers that come and go": lambda random: (
        steady_items(random, ["single", "bool"]) if random.random() < 0.8 else some_items(random, {"single": "single"})
    ),
    "two sets of numbers": lambda random: steady_items(random, [["float", "int"], ["int", "half"]][random.integers(2)]),
    "numbers under odd keys": lambda random: steady_items(
        random, ["float", "_float", "final_obs"][: random.integers(4)]
    ),
    "numbers, seldom": lambda random: steady_items(random, ["float", "int"]) if random.random() < 0.3 else {},
    "anything": lambda random: some_items(random, {key: key for key in INFO_ITEMS}),
}

#: What a reward may be.
REWARDS = [0.5, -3, True, np.float32(0.25), np.int8(-2), np.array(1.5), np.float64(np.nan), np.bool_(True)]


def scripts(
    observations: list[Any], n: int, info: str, endings: float, seed: int, length: int = 23
) -> list[list[tuple[Any, ...]]]:
    """A script for each of ``n`` environments; a share ``endings`` of the steps ends an episode."""
    random = np.random.default_rng(seed)
    made = []
    for _ in range(n):
        lines = []
        for _ in range(length):
            ends = random.random() < endings
            truncated = [False, True, np.True_][random.integers(3)] if ends else False
            terminated = ends and (not truncated or bool(random.integers(2)))
            observation = observations[random.integers(len(observations))]
            reward = REWARDS[random.integers(len(REWARDS))]
            lines.append((observation, reward, terminated, truncated, INFOS[info](random)))
        made.append(lines)
    return made


# --- what is asked of them --------------------------------------------------------------------------------------------


def batch(space: gs.Space[Any], items: list[Any]) -> Any:
    """A batch of actions, as gymnasium makes it."""
    return concatenate(space, items, create_empty_array(space, len(items)))


def off(actions: Any, random: np.random.Generator) -> Any:
    """``actions`` in a form that gymnasium takes too, if there is one: another dtype, a list, other strides."""
    if isinstance(actions, dict):
        changed = {key: off(part, random) for key, part in actions.items()}
        return dict(reversed(changed.items())) | {"a key too many": 1}
    if isinstance(actions, tuple):
        return tuple(off(part, random) for part in actions)
    if not isinstance(actions, np.ndarray):
        return actions
    # Pickling loses a byte order that is not the machine's, unless an array is in C order and not of long doubles.
    native = actions.dtype.isnative
    forms = [
        actions.tolist(),
        actions.astype(np.float64),
        actions.astype(object),
        np.asfortranarray(actions) if native else actions,
        np.repeat(actions, 2, axis=0)[::2] if native else actions,
        actions[::-1][::-1],
        actions.astype(actions.dtype.newbyteorder()) if actions.dtype.char != "g" else actions,
        list(actions),
    ]
    return forms[random.integers(len(forms))]


def plan(
    n: int, actions: list[Any], action_space: gs.Space[Any], seed: int, length: int
) -> list[tuple[str, dict[str, Any]]]:
    """Calls of all sorts: (method's name, arguments)."""
    random = np.random.default_rng(seed)
    calls: list[Any] = [("reset", {"seed": int(random.integers(1000))})]
    for _ in range(length):
        chance = random.random()
        if chance < 0.08:
            seeds = [None if random.random() < 0.3 else int(random.integers(1000)) for _ in range(n)]
            calls.append(("reset", {"seed": seeds, "options": {"x": [1, {"y": 2}]}}))
        elif chance < 0.2:
            mask = random.integers(2, size=n).astype(bool)
            mask[random.integers(n)] = True
            calls.append(("reset", {"options": {"reset_mask": mask, "x": 1}}))
        elif chance < 0.25:
            calls.append(("set_attr", {"name": "note", "values": [{"of": i} for i in range(n)]}))
            calls.append(("get_attr", {"name": "note"}))
        else:
            items = [actions[random.integers(len(actions))] for _ in range(n)]
            made = batch(action_space, items)
            calls.append(("step", {"actions": off(made, random) if random.random() < 0.25 else made}))
    calls.append(("get_attr", {"name": "log"}))
    calls.append(("get_attr", {"name": "np_random_seed"}))
    return calls


def play(envs: Any, calls: list[tuple[str, dict[str, Any]]], mode: str) -> list[tuple[str, Any]]:
    """What the calls give, up to the first that fails."""
    gave: list[tuple[str, Any]] = []
    ended = np.zeros(envs.num_envs, np.bool_)
    for name, arguments in calls:
        arguments = {key: dict(value) if key == "options" else value for key, value in arguments.items()}
        if name == "step" and mode == "Disabled" and ended.any():
            gave.append(("reset", envs.reset(options={"reset_mask": ended})))
        try:
            outcome = getattr(envs, name)(**arguments)
        except Exception as error:
            gave.append((name, error))
            return gave
        if name == "step":
            ended = outcome[2] | outcome[3]
        gave.append((name, copy.deepcopy(outcome) if not getattr(envs, "copy", True) else outcome))
    return gave


def as_read(space: gs.Space[Any], value: Any, chosen: bool = False) -> Any:
    """``value`` with scalars in the place of arrays without dimensions wherever a ``OneOf`` has them."""
    if isinstance(space, gs.OneOf):
        return value[0], as_read(space.spaces[value[0]], value[1], chosen=True)
    if isinstance(space, gs.Dict):
        return {key: as_read(child, value[key], chosen) for key, child in space.spaces.items()}
    if isinstance(space, gs.Tuple):
        return tuple(as_read(child, part, chosen) for child, part in zip(space.spaces, value, strict=True))
    return value[()] if chosen and isinstance(value, np.ndarray) and value.ndim == 0 else value


@st.composite
def games(draw: st.DrawFn) -> dict[str, Any]:
    """Everything about one comparison."""
    n = draw(st.integers(1, 5))
    mode = draw(st.sampled_from(MODES))
    observation_space, action_space = draw(spaces(max_leaves=4)), draw(spaces(max_leaves=3))
    observations = [
        as_read(observation_space, value) for value in draw(st.lists(values(observation_space), min_size=1, max_size=4))
    ]
    actions = draw(st.lists(values(action_space), min_size=1, max_size=3))
    return {
        "n": n,
        "observation_space": observation_space,
        "action_space": action_space,
        "observations": observations,
        "actions": actions,
        "info": draw(st.sampled_from(list(INFOS))),
        "endings": draw(st.sampled_from([0.0, 0.15, 0.5])),
        "seed": draw(st.integers(0, 1 << 30)),
        "options": {
            "autoreset_mode": mode,
            "copy": draw(st.booleans()),
            "shared_memory": draw(st.sampled_from([True, True, True, False])),
            "observation_mode": draw(st.sampled_from(["same", "same", "different"])),
        },
    }


def compare(game: dict[str, Any], num_workers: int, length: int) -> None:
    """Plays the game on both sides."""
    n, options = game["n"], game["options"]
    mode = options["autoreset_mode"]

    lines = scripts(game["observations"], n, game["info"], game["endings"], game["seed"])

    def env_fns() -> list[Any]:
        spaces_of_both = game["observation_space"], game["action_space"]
        return [lambda script=script: Replay(*spaces_of_both, copy.deepcopy(script)) for script in lines]

    try:
        calls = plan(n, game["actions"], game["action_space"], game["seed"], length)
        sync_options = {key: value for key, value in options.items() if key != "shared_memory"}
        theirs = play(SyncVectorEnv(env_fns(), **sync_options), calls, mode)
    except Exception:
        hypothesis.reject()  # there are spaces that gymnasium can't batch
    if isinstance(theirs[-1][1], Exception):
        theirs.pop()  # or not iterate over, or not concatenate; where that is so, the tests of spaces have to tell
    envs = gymshm.ShmVectorEnv(env_fns(), **options, context="fork", num_workers=num_workers)
    try:
        ours = play(envs, calls[: len(theirs)], mode)
        assert_same_outcomes(ours, theirs)
        assert_same(envs.metadata, {"render_modes": [], "autoreset_mode": envs.autoreset_mode}, "metadata")
    finally:
        envs.close()


def assert_same_outcomes(ours: list[tuple[str, Any]], theirs: list[tuple[str, Any]]) -> None:
    for i, ((our_name, outcome), (name, expected)) in enumerate(zip(ours, theirs, strict=False)):
        if isinstance(outcome, Exception):
            raise AssertionError(f"call {i}, {name}: {outcome!r}, expected {expected!r}") from outcome
        assert our_name == name
        assert_same(outcome, expected, f"call {i}, {name}")
        if name == "step":
            assert is_beyond(expected) or data_equivalence(outcome, expected, exact=True)
    assert len(ours) >= len(theirs)


def is_beyond(value: Any) -> bool:
    """Whether ``data_equivalence`` can't tell: of a NaN, and of the other one of numpy's classes for 64 bits."""
    if isinstance(value, dict | list | tuple):
        return any(map(is_beyond, value.values() if isinstance(value, dict) else value))
    if isinstance(value, np.ndarray) and value.dtype == object:
        return any(map(is_beyond, value.ravel()))
    return type(value) is np.longlong or "nan" in repr(value)


#: Of the profile: seconds by default, a night's worth with HYPOTHESIS_PROFILE=long.
EXAMPLES = settings.default.max_examples


@needs_gymnasium("1.1", "SyncVectorEnv has no modes, no reset_mask and no final_obs")
@settings(max_examples=2 * EXAMPLES)
@given(games())
def test_everything_is_the_same_without_processes(game):
    compare(game, num_workers=0, length=30)


@needs_gymnasium("1.1", "SyncVectorEnv has no modes, no reset_mask and no final_obs")
@settings(max_examples=EXAMPLES // 2)
@given(games(), st.integers(1, 5))
def test_everything_is_the_same_with_processes(game, num_workers):
    # Not a number is not even the same key as itself, once it has been in another process.
    hypothesis.assume("nan" not in f"{game['observation_space']}{game['action_space']}")
    # Nor does the byte order of long doubles survive that.
    hypothesis.assume(">f16" not in f"{game['action_space']}")
    compare(game, num_workers=num_workers, length=40)
