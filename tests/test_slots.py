"""Slots: of ``slots=K``, whatever ``reset`` and ``step`` returned without a copy holds for K - 1 further calls."""

from __future__ import annotations

import collections
import contextlib
import copy
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from gymnasium import spaces as gs
from gymnasium.vector import SyncVectorEnv
from hypothesis import given, settings

from environments import Clock, Replay, clocks, zeros
from gymshm import ShmVectorEnv
from mortal import KILL, fates, mortals
from strategies import spaces, values
from support import needs_gymnasium, same

BOTH = pytest.mark.parametrize("num_workers", [0, 2])
MODES = needs_gymnasium("1.1", "its vector environments know no modes")
BOX = gs.Box(-9.0, 9.0, (2, 2), np.float32)

#: One of each kind, and some within each other.
FIXED: list[gs.Space[Any]] = [
    BOX,
    gs.Discrete(7, start=-2),
    gs.MultiDiscrete([3, 9]),
    gs.MultiBinary(4),
    gs.Text(4, charset="abcd"),
    gs.OneOf([gs.Discrete(5), BOX, gs.Text(2)]),
    gs.Dict(camera=gs.Box(0, 255, (3, 2), np.uint8), text=gs.Text(3), number=gs.Discrete(9)),
    gs.Tuple([BOX, gs.Dict(a=gs.OneOf([gs.Discrete(3), gs.Tuple([BOX])]), b=gs.MultiBinary(2)), gs.Text(2)]),
]


class Holder:
    """Keeps what was returned for as long as it has to hold."""

    def __init__(self, slots: int) -> None:
        self._held: collections.deque[tuple[Any, Any]] = collections.deque(maxlen=slots)

    def take(self, returned: Any) -> None:
        """Takes the latest, and looks at all that have to hold now."""
        self._held.append((returned, copy.deepcopy(returned)))
        self.check()

    def check(self) -> None:
        for back, (returned, before) in enumerate(reversed(self._held)):
            assert same(returned, before), f"{back} calls later: {returned}, was {before}"


def mask_of(bits: int, n: int) -> np.ndarray:
    mask = np.array([bool(bits >> i & 1) for i in range(n)])
    mask[bits % n] = True
    return mask


@st.composite
def histories(draw: st.DrawFn) -> dict[str, Any]:
    """A space with some values, and calls: a step, a reset, a reset of some, or a look at an attribute."""
    space = draw(st.one_of(st.sampled_from(FIXED), spaces(max_leaves=4)))
    n = draw(st.integers(2, 4))
    script = st.tuples(values(space), st.just(0.0), st.sampled_from([False, False, True]), st.just(False), st.just({}))
    return {
        "space": space,
        "scripts": draw(st.lists(st.lists(script, min_size=2, max_size=5), min_size=n, max_size=n)),
        "slots": draw(st.integers(1, 5)),
        "mode": draw(st.sampled_from(["NextStep", "SameStep"])),
        "calls": draw(st.lists(st.sampled_from(["step"] * 4 + ["reset", "look", 1, 2, 5, 6]), min_size=4, max_size=18)),
    }


def play(history: dict[str, Any], num_workers: int) -> None:
    space, slots, scripts = history["space"], history["slots"], history["scripts"]
    n = len(scripts)
    fns = [lambda script=script: Replay(space, gs.Discrete(2), script) for script in scripts]
    try:
        theirs: Any = SyncVectorEnv(fns, autoreset_mode=history["mode"])
        theirs.reset()
    except Exception:
        hypothesis.reject()  # there are spaces that gymnasium can't batch
    ours = ShmVectorEnv(
        fns, copy=False, slots=slots, autoreset_mode=history["mode"], num_workers=num_workers, context="fork"
    )
    holder = Holder(slots)
    try:
        holder.take(ours.reset()[0])
        for call in history["calls"]:
            if call == "look":
                ours.get_attr("log")
                holder.check()
                continue
            if call == "step":
                returned, expected = ours.step(zeros(n))[0], theirs.step(zeros(n))[0]
            elif call == "reset":
                returned, expected = ours.reset()[0], theirs.reset()[0]
            else:
                returned = ours.reset(options={"reset_mask": mask_of(call, n)})[0]
                expected = theirs.reset(options={"reset_mask": mask_of(call, n)})[0]
            assert same(as_told(space, returned), as_told(space, expected))
            holder.take(returned)
    finally:
        ours.close()


def as_told(space: gs.Space[Any], batch: Any, *, chosen: bool = False) -> Any:
    """``batch`` with the index of each choice as an int, and scalars for arrays without dimensions in it."""
    if isinstance(space, gs.Dict):
        return {key: as_told(child, batch[key], chosen=chosen) for key, child in space.spaces.items()}
    if isinstance(space, gs.Tuple):
        return tuple(as_told(child, part, chosen=chosen) for child, part in zip(space.spaces, batch, strict=True))
    if isinstance(space, gs.OneOf):
        pairs = (batch,) if chosen else batch
        told = tuple((int(i), as_told(space.spaces[i], value, chosen=True)) for i, value in pairs)
        return told[0] if chosen else told
    return batch[()] if chosen and isinstance(batch, np.ndarray) else batch


@MODES
@BOTH
@pytest.mark.parametrize("slots", range(1, 6))
@pytest.mark.parametrize("space", FIXED, ids=lambda space: type(space).__name__)
def test_what_was_returned_holds_in_spaces_of_every_kind(space, slots, num_workers):
    random = np.random.default_rng(slots)
    space.seed(slots)
    scripts = [[(space.sample(), 0.0, random.random() < 0.2, False, {}) for _ in range(7)] for _ in range(4)]
    calls = ["step", *random.choice(np.array(["step", "step", "reset", "look", 2, 5, 12], object), 30)]
    play({"space": space, "scripts": scripts, "slots": slots, "mode": "NextStep", "calls": calls}, num_workers)


@MODES
@given(histories())
def test_what_was_returned_holds_without_processes(history):
    play(history, num_workers=0)


@MODES
@settings(max_examples=max(5, settings.default.max_examples // 3))
@given(histories())
def test_what_was_returned_holds_with_processes(history):
    # Not a number is not even the same key as itself, once it has been in another process.
    hypothesis.assume("nan" not in str(history["space"]))
    play(history, num_workers=2)


@BOTH
@pytest.mark.parametrize("slots", range(1, 6))
def test_after_that_it_is_written_over_and_nothing_was_copied(num_workers, slots):
    with contextlib.closing(ShmVectorEnv(clocks(3), num_workers=num_workers, copy=False, slots=slots)) as envs:
        returned = [envs.reset()[0]]
        for t in range(1, 3 * slots + 2):
            returned.append(envs.step(zeros(3))[0])
            for before in range(t + 1):
                # The call that wrote last where this one stands.
                assert (returned[before] == t - (t - before) % slots).all()
                assert np.shares_memory(returned[before], returned[t]) == ((t - before) % slots == 0)


@BOTH
@pytest.mark.parametrize("slots", [1, 2, 4])
def test_a_call_that_fails_takes_a_slot_as_any_other(num_workers, slots):
    def act(env: Clock, action: Any) -> None:
        if action == 1:
            raise LookupError("as asked")

    with contextlib.closing(ShmVectorEnv(clocks(3, act=act), num_workers=num_workers, copy=False, slots=slots)) as envs:
        held: collections.deque[tuple[Any, Any]] = collections.deque(maxlen=slots)
        envs.reset()
        now = np.zeros(3)
        for number in range(20):
            if number % 3 == 1:
                with pytest.raises(LookupError):
                    envs.step(np.array([0, 1, 0]))
                now += [1, 0, 1]
                # Who failed shows what it showed before; who did not has stepped.
                assert envs.observations[:, 0].tolist() == now.tolist()
                held.append((None, None))
            else:
                returned = envs.step(zeros(3))[0]
                now += 1
                assert returned[:, 0].tolist() == now.tolist()
                held.append((returned, copy.deepcopy(returned)))
            assert all(view is None or same(view, before) for view, before in held)


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_what_was_returned_holds_while_a_worker_dies_and_is_started_anew(slots):
    envs = mortals(slots=slots, copy=False)
    holder = Holder(slots)
    try:
        holder.take(envs.reset()[0])
        for number in range(8):
            holder.take(envs.step(fates(4, env1=KILL) if number in (2, 5) else fates(4))[0])
    finally:
        envs.close()


@BOTH
def test_rewards_ends_and_infos_are_the_callers_for_good(num_workers):
    fns = clocks(2, episode=3, info=lambda t: {"t": t, "text": str(t)})
    with contextlib.closing(ShmVectorEnv(fns, num_workers=num_workers, copy=False, autoreset_mode="SameStep")) as envs:
        envs.reset()
        kept = []
        for _ in range(8):
            _, *rest, infos = envs.step(zeros(2))
            told = (*rest, {key: infos[key] for key in ("t", "_t", "text", "_text")}, infos.get("final_obs"))
            kept.append((told, copy.deepcopy(told)))
    for told, before in kept:
        assert str(told) == str(before)
