"""``async_reset``, ``send`` and ``recv``: each environment's turns are what it gives alone, and none waits for ever."""

from __future__ import annotations

import collections
import contextlib
import copy
import itertools
import math
import multiprocessing
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces as gs
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.vector.utils import concatenate, create_empty_array

from environments import Clock, assert_same, clocks, times, zeros
from gymshm import ShmVectorEnv, doorbell, turns, turns_env
from gymshm.compat import AutoresetMode, VectorEnv
from gymshm.errors import TimedOutError
from gymshm.local_crew import LocalCrew
from gymshm.turns import Turns
from support import CHILD_ENV, check_python, same, wait_until
from wanderers import Wanderer

BOTH = pytest.mark.parametrize("num_workers", [0, 2])
MODES = [mode.value for mode in AutoresetMode]

BOX = gs.Box(-1.0, 1.0, (2, 3), np.float32)
NESTED = gs.Dict(
    text=gs.Text(6),
    choice=gs.OneOf([gs.Discrete(9), gs.Box(0.0, 9.0, (2,), np.float32), gs.Text(3)]),
    parts=gs.Tuple([gs.Discrete(4, start=-2), gs.MultiBinary(3), gs.Box(0, 255, (2, 2), np.uint8)]),
)

#: In the order in which gymnasium has the keys of a batch of actions.
SORTED = gs.Dict(dict(sorted(NESTED.items())))


def made(n: int = 4, *, env: dict[str, Any] | None = None, **options: Any) -> contextlib.closing[ShmVectorEnv]:
    """``n`` clocks; ``env`` are options of theirs."""
    return contextlib.closing(ShmVectorEnv(clocks(n, **(env or {})), **{"num_workers": 2, **options}))


def ids_of(result: Any) -> list[int]:
    return result[4]["env_id"].tolist()


def drain(envs: ShmVectorEnv) -> dict[int, int]:
    """The time of each environment that is received until nobody is asked any more."""
    told: dict[int, int] = {}
    while True:
        try:
            result = envs.recv(timeout=60)
        except NoAsyncCallError:
            return dict(sorted(told.items()))
        for env, t in zip(ids_of(result), times(result[0]), strict=True):
            assert env not in told, f"environment {env} was received twice"
            told[env] = t


class Halves(np.ndarray):
    """Numbers that are read in two looks, with what happens in between; once."""

    between: Callable[[], Any] = staticmethod(lambda: None)

    def __rshift__(self, bits: int) -> np.ndarray:
        numbers = np.asarray(self)
        first = numbers[:1] >> bits
        between, Halves.between = Halves.between, staticmethod(lambda: None)
        between()
        return np.concatenate([first, numbers[1:] >> bits])


def test_what_is_told_of_one_that_was_not_seen_to_be_done_is_not_taken_for_another(tmp_path, monkeypatch):
    gate = tmp_path / "gate"

    def act(env, action):
        while not gate.exists():
            time.sleep(0.001)

    with made(2, num_workers=1, batch_size=1, env={"info": lambda t: {"text": f"time {t}"}, "act": act}) as envs:
        envs.reset()
        turns, done = envs._turns, envs._turns._done
        monkeypatch.setattr(turns, "_done", done.view(Halves))

        def both_end():
            gate.touch()
            wait_until(lambda: done[1] >> 1 == turns._asked[1])

        monkeypatch.setattr(Halves, "between", staticmethod(both_end))
        envs.send(zeros(2), [0, 1])
        told = [envs.recv(timeout=60) for _ in range(2)]
        assert [(ids_of(result), result[4]["text"].tolist()) for result in told] == [
            ([1], ["time 1"]),
            ([0], ["time 1"]),
        ]
        envs.send(zeros(2), [0, 1])
        told = [envs.recv(timeout=60) for _ in range(2)]
        assert sorted((ids_of(result), result[4]["text"].tolist()) for result in told) == [
            ([0], ["time 2"]),
            ([1], ["time 2"]),
        ]


@pytest.mark.parametrize(
    "info", [lambda t: {}, lambda t: {"text": "x" * (t % 3)} if t % 3 else {}], ids=["bare", "told"]
)
@pytest.mark.parametrize("batch_size", [1, 3, 6])
def test_who_sleeps_for_a_batch_is_woken_for_it(batch_size, info, monkeypatch):
    # Nobody looks around but for a ring, and the receiver sleeps at once.
    monkeypatch.setattr(doorbell, "SLEEP_SECONDS", 600.0)
    monkeypatch.setattr(turns, "SLEEP_SECONDS", 600.0)
    monkeypatch.setattr(turns, "SPIN_SECONDS", 0.0)
    with made(6, env={"info": info}, batch_size=batch_size, context="fork") as envs:
        envs.async_reset()
        taken = dict.fromkeys(range(6), -1)
        for _ in range(1500 // batch_size):
            observations, _, _, _, infos = envs.recv(timeout=60)
            ids = infos["env_id"].tolist()
            for env, t in zip(ids, times(observations), strict=True):
                taken[env] += 1
                assert t == taken[env]
            envs.send(zeros(len(ids)), ids)
        assert drain(envs) == {env: t + 1 for env, t in taken.items()}


@BOTH
def test_a_fence_stands_between_actions_and_asking_and_between_being_done_and_results(num_workers, monkeypatch):
    done: list[str] = []

    def note(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **options: Any) -> Any:
            done.append(what)
            return function(*arguments, **options)

        return noted

    monkeypatch.setattr(Turns, "_store", note("actions", Turns._store))
    monkeypatch.setattr(Turns, "_hear", note("done", Turns._hear))
    monkeypatch.setattr(turns, "gathered", note("results", turns.gathered))
    with made(num_workers=num_workers) as envs:
        crew = type(envs._crew)
        monkeypatch.setattr(turns, "store_fence", note("fence", turns.store_fence))
        monkeypatch.setattr(crew, "post_turns", note("asked", crew.post_turns))
        envs.async_reset()
        envs.recv(timeout=60)
        done.clear()
        envs.send(zeros(4), range(4))
        assert done == ["actions", "fence", "asked"]
        envs.recv(timeout=60)
        assert done[-3:] == ["done", "fence", "results"]


# --- the same as alone ------------------------------------------------------------------------------------------------


class Recorder(Wanderer):
    """A wanderer that keeps the actions it was given."""

    def __init__(self, *spaces: gs.Space[Any]) -> None:
        super().__init__(*spaces)
        self.taken: list[Any] = []

    def step(self, action: Any) -> tuple[Any, ...]:
        self.taken.append(copy.deepcopy(action))
        observation, reward, *rest = super().step(0)
        return observation, reward + len(self.taken), *rest


class Alone:
    """One environment and what gymnasium's modes do with it; no vector environment at all.

    What it gives is (observation, reward, terminated, truncated, infos), the infos being those that gymnasium adds to
    the batch one after the other.
    """

    def __init__(self, env: Wanderer, mode: str) -> None:
        self.env, self.mode, self.has_ended = env, mode, False

    def reset(self, seed: int | None) -> tuple[Any, ...]:
        self.has_ended = False
        observation, info = self.env.reset(seed=seed)
        return observation, 0.0, False, False, [info]

    def step(self, action: Any) -> tuple[Any, ...]:
        if self.mode == "NextStep" and self.has_ended:
            return self.reset(None)
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.has_ended, infos = terminated or truncated, [info]
        if self.mode == "SameStep" and self.has_ended:
            infos = [{"final_obs": observation, "final_info": info}]
            observation, info = self.env.reset()
            infos.append(info)
        return observation, reward, terminated, truncated, infos


def batched(space: gs.Space[Any], ids: list[int], rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """What gymnasium's own functions make of ``rows``."""
    observations, rewards, terminations, truncations, infos = zip(*rows, strict=True)
    batching = VectorEnv()
    batching.num_envs = len(rows)
    told: dict[str, Any] = {}
    for i, several in enumerate(infos):
        for info in several:
            told = batching._add_info(told, info, i)
    return (
        concatenate(space, observations, create_empty_array(space, len(rows))),
        np.array(rewards, np.float64),
        np.array(terminations, np.bool_),
        np.array(truncations, np.bool_),
        {"env_id": np.array(ids), **told},
    )


def play(envs: ShmVectorEnv, alone: list[Alone], recvs: int, seed: int) -> list[list[Any]]:
    """Plays ``envs`` and each environment alone, side by side; the actions of each environment.

    For ``recvs`` results, and until each environment has been given three actions: how many an environment is given
    meanwhile is the scheduler's affair, as batches go to those that are done.
    """
    random = np.random.default_rng(seed)
    actions: list[list[Any]] = [[] for _ in alone]
    space, batch_size = envs.single_observation_space, envs.batch_size
    envs.async_reset(seed=seed)
    asked = {i: one.reset(seed + i) for i, one in enumerate(alone)}
    held: list[int] = []
    for number in itertools.count():
        if number >= recvs and min(map(len, actions)) >= 3:
            break
        result = envs.recv(timeout=60)
        ids = ids_of(result)
        assert len(ids) == min(batch_size, len(asked))
        expected = batched(space, ids, [asked.pop(i) for i in ids])
        assert same(result[0], expected[0]), f"recv {number}: {result[0]}, expected {expected[0]}"
        assert_same(result[1:], expected[1:], f"recv {number}")
        held += ids
        # Some are sent to later; those that are, in any order.
        random.shuffle(held)
        sent = held[: random.integers(len(held) + 1)] if asked else held[:]
        held = held[len(sent) :]
        if sent:
            given = [envs.single_action_space.sample() for _ in sent]
            made = concatenate(envs.single_action_space, given, create_empty_array(envs.single_action_space, len(sent)))
            for i, action in zip(sent, given, strict=True):
                actions[i].append(action)
                if alone[i].mode == "NextStep" and alone[i].has_ended:
                    actions[i].pop()  # it is reset instead
                asked[i] = alone[i].step(action)
            envs.send(made, np.array(sent) if random.random() < 0.5 else sent)
    with contextlib.suppress(NoAsyncCallError):
        while True:
            envs.recv(timeout=60)
    return actions


def compare(observation_space: Any, action_space: Any, mode: str, recvs: int, **options: Any) -> None:
    env_fns = [lambda: Recorder(observation_space, action_space)] * 5
    alone = [Alone(fn(), mode) for fn in env_fns]
    envs = ShmVectorEnv(env_fns, autoreset_mode=mode, **options)
    try:
        envs.single_action_space.seed(3)
        actions = play(envs, alone, recvs, seed=3)
        for i, (taken, sent) in enumerate(zip(envs.get_attr("taken"), actions, strict=True)):
            assert same(tuple(taken), tuple(sent)), f"environment {i} was given {taken}, expected {sent}"
    finally:
        envs.close()


@pytest.mark.parametrize("num_workers", [0, 1, 3])
@pytest.mark.parametrize("batch_size", [1, 3, None])
@pytest.mark.parametrize("mode", MODES)
def test_each_environment_gives_what_it_gives_alone(num_workers, batch_size, mode):
    compare(BOX, gs.Discrete(5), mode, 50, num_workers=num_workers, batch_size=batch_size)


@BOTH
@pytest.mark.parametrize(
    "space", [NESTED, gs.Text(5), gs.OneOf([gs.Discrete(3), BOX]), gs.Discrete(7, start=2), gs.Tuple([BOX, gs.Text(2)])]
)
def test_observations_of_every_kind_are_those_of_their_own_environment(space, num_workers):
    compare(space, gs.Discrete(5), "SameStep", 40, num_workers=num_workers, batch_size=2)


@BOTH
@pytest.mark.parametrize(
    "space", [SORTED, BOX, gs.Text(5), gs.OneOf([gs.Discrete(3), BOX]), gs.MultiDiscrete([3, 4]), gs.Tuple([BOX])]
)
def test_actions_of_every_kind_reach_their_own_environment(space, num_workers):
    compare(gs.Discrete(3), space, "NextStep", 40, num_workers=num_workers, batch_size=3)


@BOTH
def test_actions_of_another_form_become_actions_of_the_space(num_workers):
    taken: dict[str, Any] = {"act": lambda env, action: setattr(env, "taken", action)}
    space = gs.Box(-9.0, 9.0, (2,), np.float32)
    with made(3, env={**taken, "action_space": space}, num_workers=num_workers) as envs:
        envs.reset()
        envs.send([[1, 2], (3.5, 4)], [2, 0])
        assert drain(envs) == {0: 1, 2: 1}
        envs.send(np.array([[5.0, 6.0]]), [1])  # float64
        assert drain(envs) == {1: 1}
        assert_same(envs.get_attr("taken"), tuple(np.array(row, np.float32) for row in ([3.5, 4], [5, 6], [1, 2])))


@BOTH
def test_seeds_and_options_of_async_reset_reach_every_environment(num_workers):
    seen: dict[str, Any] = {
        "act_in_reset": lambda env, seed, options: setattr(env, "seen", (seed, options)),
        "info": lambda t: {"t": t},
    }
    with made(3, env=seen, num_workers=num_workers) as envs:
        for seed, seeds in ((5, [5, 6, 7]), ([1, None, 2], [1, None, 2]), (None, [None] * 3)):
            options = {"x": seeds}
            envs.async_reset(seed=seed, options=options)
            observations, rewards, terminations, truncations, infos = envs.recv(timeout=60)
            assert_same(observations, np.zeros((3, 2), np.float32))
            assert_same((rewards, terminations, truncations), (np.zeros(3), np.zeros(3, bool), np.zeros(3, bool)))
            assert_same(infos, {"env_id": np.arange(3), "t": zeros(3), "_t": np.ones(3, bool)})
            assert envs.get_attr("seen") == tuple((one, options) for one in seeds)


@BOTH
def test_a_reset_ends_what_went_before(num_workers):
    with made(2, env={"episode": 2}, num_workers=num_workers, autoreset_mode="NextStep") as envs:
        envs.async_reset()
        drain(envs)
        for _ in range(2):
            envs.send(zeros(2), [0, 1])
            result = envs.recv(timeout=60)
        assert result[2].tolist() == [True, True]
        envs.async_reset()
        result = envs.recv(timeout=60)
        assert (times(result[0]), result[1].tolist(), result[2].tolist()) == ([0, 0], [0, 0], [False, False])
        envs.send(zeros(2), [0, 1])
        assert times(envs.recv(timeout=60)[0]) == [1, 1]


@BOTH
def test_turns_and_steps_go_on_from_each_other(num_workers):
    with made(3, env={"episode": 4}, num_workers=num_workers, batch_size=2) as envs:
        assert times(envs.reset()[0]) == [0, 0, 0]
        assert times(envs.step(zeros(3))[0]) == [1, 1, 1]
        envs.send(zeros(2), [2, 0])
        assert drain(envs) == {0: 2, 2: 2}
        assert times(envs.step(zeros(3))[0]) == [3, 2, 3]
        envs.send(zeros(1), [2])
        result = envs.recv(timeout=60)
        assert (ids_of(result), times(result[0]), result[2].tolist()) == ([2], [4], [True])
        observations, _, terminations, _, _ = envs.step(zeros(3))
        assert times(observations) == [4, 3, 0]
        assert terminations.tolist() == [True, False, False]
        assert times(envs.observations) == [4, 3, 0]
        envs.async_reset()
        assert drain(envs) == {0: 0, 1: 0, 2: 0}


@BOTH
def test_infos_under_the_name_env_id_do_not_hide_whose_they_are(num_workers):
    with made(3, env={"info": lambda t: {"a": 1, "env_id": 7}}, num_workers=num_workers, batch_size=2) as envs:
        envs.async_reset()
        seen = [ids_of(envs.recv(timeout=60)) for _ in range(2)]
        assert sorted(seen[0] + seen[1]) == [0, 1, 2]


@BOTH
@pytest.mark.parametrize("batch_size", [2, 3])
def test_what_is_received_is_the_callers(num_workers, batch_size):
    received = []
    wanderers = [lambda: Wanderer(NESTED, gs.Discrete(5))] * 3
    envs = ShmVectorEnv(
        wanderers, num_workers=num_workers, batch_size=batch_size, copy=False, autoreset_mode="SameStep"
    )
    try:
        envs.async_reset(seed=1)
        for _ in range(20):
            result = envs.recv(timeout=60)
            ids = result[4]["env_id"]
            received.append((result, copy.deepcopy(result)))
            envs.send(zeros(len(ids)), ids)
        drain_all(envs)
    finally:
        envs.close()
    for result, before in received:
        assert same(result[0], before[0])
        assert_same(result[1:], before[1:])


def drain_all(envs: ShmVectorEnv) -> None:
    with contextlib.suppress(NoAsyncCallError):
        while True:
            envs.recv(timeout=60)


# --- who comes first --------------------------------------------------------------------------------------------------


def holding(go: Any) -> dict[str, Any]:
    """Clocks whose action 1 takes until the file ``go`` is there, and whose action 2 fails."""

    def act(env: Clock, action: Any) -> None:
        if action == 1:
            wait_until(go.exists, 120)
        if action == 2:
            raise LookupError(f"as asked, at {env.t}")

    return {"act": act}


def test_who_is_ready_first_is_served_first(tmp_path):
    go = tmp_path / "go"
    with made(4, env=holding(go), num_workers=4, batch_size=1) as envs:
        envs.async_reset()
        drain(envs)
        envs.send(np.array([0, 1, 0, 0]), np.arange(4))
        counts: collections.Counter[int] = collections.Counter()
        # Until all others had turns: on a busy machine that may take more than a few.
        deadline = time.monotonic() + 60
        while sum(counts.values()) < 60 or len(counts) < 3:
            assert time.monotonic() < deadline, f"served so far: {counts}"
            (env,) = ids_of(envs.recv(timeout=60))
            counts[env] += 1
            envs.send(zeros(1), [env])
        assert sorted(counts) == [0, 2, 3]
        go.touch()
        wait_until(lambda: envs._turns._ready()[1])
        # It has waited longest for being received: whoever else is ready comes later.
        assert ids_of(envs.recv(timeout=60)) == [1]


def test_who_waited_longest_comes_first():
    with made(7, num_workers=0, batch_size=3) as envs:
        envs.async_reset()
        order = []
        for _ in range(7):
            ids = ids_of(envs.recv(timeout=60))
            order.append(ids)
            envs.send(zeros(3), ids)
    # Without workers all are always ready; equal ones go in the order of their index.
    assert order == [[0, 1, 2], [3, 4, 5], [0, 1, 6], [2, 3, 4], [0, 1, 5], [2, 3, 6], [0, 1, 4]]


@pytest.mark.parametrize(("num_workers", "batch_size"), [(1, 1), (2, 2), (3, 4), (6, 1)])
def test_none_starves_where_one_is_a_hundred_times_slower(num_workers, batch_size):
    n = 6
    options = {"act": lambda env, action: time.sleep(action * 5e-5), "action_space": gs.Discrete(101)}
    bound = math.ceil(n / batch_size)
    with made(n, env=options, num_workers=num_workers, batch_size=batch_size) as envs:
        envs.async_reset()
        counts, waits = np.zeros(n, int), np.zeros(n, int)
        deadline = time.monotonic() + 60
        while counts.min() < 5:
            assert time.monotonic() < deadline, f"served so far: {counts}"
            waits[envs._turns._ready()] += 1
            ids = ids_of(envs.recv(timeout=60))
            counts[ids] += 1
            # Who is ready is received within as many calls as all of them take.
            assert waits.max() <= bound, f"environments are ready for {waits} calls"
            waits[ids] = 0
            envs.send(np.where(np.array(ids) == 2, 100, 1), ids)
        drain_all(envs)


@BOTH
def test_within_a_worker_everybody_that_is_asked_has_a_turn_before_anybody_has_another(num_workers):
    # Each is asked again as soon as it was received: those behind it are served in between.
    order = []
    with made(3, num_workers=min(num_workers, 1), batch_size=1) as envs:
        envs.async_reset()
        drain(envs)
        envs.send(zeros(3), np.arange(3))
        for _ in range(12):
            (env,) = ids_of(envs.recv(timeout=60))
            order.append(env)
            envs.send(zeros(1), [env])
    assert all(set(order[i : i + 5]) == {0, 1, 2} for i in range(len(order) - 4)), order


def test_a_recv_that_runs_out_of_time_loses_nothing(tmp_path):
    go = tmp_path / "go"
    with made(3, env=holding(go), num_workers=3, batch_size=2) as envs:
        envs.async_reset()
        drain(envs)
        envs.send(np.array([0, 1]), [0, 1])
        for timeout in (0.05, 0, 0.05):
            with pytest.raises(TimedOutError, match="`recv` has timed out"):
                envs.recv(timeout=timeout)
        envs.send(zeros(1), [2])  # to somebody else, meanwhile
        result = envs.recv(timeout=60)
        assert (ids_of(result), times(result[0])) == ([0, 2], [1, 1])
        with pytest.raises(multiprocessing.TimeoutError):
            envs.recv(timeout=0)
        go.touch()
        result = envs.recv(timeout=60)
        assert (ids_of(result), times(result[0])) == ([1], [1])


# --- errors -----------------------------------------------------------------------------------------------------------


@BOTH
def test_recv_with_nothing_pending_raises(num_workers):
    with made(2, num_workers=num_workers) as envs:
        for _ in range(2):
            with pytest.raises(NoAsyncCallError, match="`recv` without any prior call to `send` or `async_reset`"):
                envs.recv()
        envs.async_reset()
        envs.recv(timeout=60)
        with pytest.raises(NoAsyncCallError):
            envs.recv(timeout=60)
        envs.step_async(zeros(2))
        with pytest.raises(NoAsyncCallError):
            envs.recv(timeout=60)
        assert times(envs.step_wait()[0]) == [1, 1]


def test_an_interrupt_between_turns_in_process_refuses_what_follows(monkeypatch):
    def interrupted(*given: Any) -> None:
        raise KeyboardInterrupt

    for call in ("async_reset", "send"):
        with made(2, num_workers=0) as envs:
            envs.reset()
            monkeypatch.setattr(envs._crew._group, "end_turn", interrupted)
            with pytest.raises(KeyboardInterrupt):
                envs.async_reset() if call == "async_reset" else envs.send(zeros(2), [0, 1])
            with pytest.raises(RuntimeError, match=f"`{call}` was interrupted in the middle"):
                envs.recv(timeout=60)


@pytest.mark.parametrize(("owner", "name"), [(turns, "store_fence"), (LocalCrew, "_serve_turns")])
def test_an_interrupt_before_the_first_turn_in_process_does_so_too(owner, name, monkeypatch):
    def interrupted(*given: Any) -> None:
        raise KeyboardInterrupt

    with made(2, num_workers=0) as envs:
        envs.reset()
        envs.step(zeros(2))
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, interrupted)
            with pytest.raises(KeyboardInterrupt):
                envs.async_reset()
        with pytest.raises(RuntimeError, match="`async_reset` was interrupted in the middle"):
            envs.recv(timeout=60)


@BOTH
def test_who_is_interrupted_in_recv_gets_the_same_again(num_workers, monkeypatch):
    def interrupted(*given: Any) -> None:
        raise KeyboardInterrupt

    with made(4, num_workers=num_workers, batch_size=2, env={"info": lambda t: {"text": f"time {t}"}}) as envs:
        envs.async_reset()
        told = []
        for number in range(6):
            if number % 2:
                with monkeypatch.context() as patch:
                    patch.setattr(turns_env, "batch_of_turns", interrupted)
                    with pytest.raises(KeyboardInterrupt):
                        envs.recv(timeout=60)
            observations, _, _, _, infos = envs.recv(timeout=60)
            assert infos["text"].tolist() == [f"time {t}" for t in times(observations)]
            told += infos["env_id"].tolist()
            if number < 4:
                envs.send(zeros(2), infos["env_id"])
        assert sorted(set(told)) == [0, 1, 2, 3]
        assert len(told) == 12
        with pytest.raises(NoAsyncCallError):
            envs.recv(timeout=60)


@BOTH
@pytest.mark.parametrize("episode", [1 << 30, 1])
def test_infos_that_do_not_go_together_are_lost_and_nothing_else(num_workers, episode):
    clashing = [lambda i=i: Clock(episode=episode, info=lambda t: {"x": [1, "text"][i]} if t else {}) for i in range(2)]
    fns = [*clashing, *clocks(1)]
    with contextlib.closing(ShmVectorEnv(fns, num_workers=num_workers, autoreset_mode="SameStep")) as envs:
        envs.async_reset()
        envs.recv(timeout=60)
        for _ in range(2):
            envs.send(zeros(3), [0, 1, 2])
            with pytest.raises((ValueError, TypeError)):
                envs.recv(timeout=60)
            with pytest.raises(NoAsyncCallError):
                envs.recv(timeout=60)
        envs.send(zeros(2), [0, 2])
        assert ids_of(envs.recv(timeout=60)) == [0, 2]
        assert times(envs.reset()[0]) == [0, 0, 0]


@BOTH
def test_what_a_handler_raises_in_recv_loses_nothing(num_workers, monkeypatch):
    batch, came = turns_env.batch_of_turns, []

    def interrupted_once(*given: Any) -> Any:
        if not came:
            came.append(given)
            raise TimeoutError("a deadline")
        return batch(*given)

    with made(2, num_workers=num_workers) as envs:
        envs.async_reset()
        monkeypatch.setattr(turns_env, "batch_of_turns", interrupted_once)
        with pytest.raises(TimeoutError, match="a deadline"):
            envs.recv(timeout=60)
        assert ids_of(envs.recv(timeout=60)) == [0, 1]


class Unreadable:
    """What can be pickled, and not be rebuilt."""

    def __reduce__(self):
        return int, ("no number",)


def test_options_that_cannot_be_rebuilt_are_a_failure_of_each_reset():
    with made(3, num_workers=1, batch_size=1) as envs:
        envs.async_reset(options={"x": Unreadable()})
        for _ in range(3):
            with pytest.raises(ValueError, match="no number"):
                envs.recv(timeout=60)
        with pytest.raises(NoAsyncCallError):
            envs.recv(timeout=60)
        assert times(envs.reset()[0]) == [0, 0, 0]
        envs.send(zeros(3), [0, 1, 2])
        assert sorted(drain(envs)) == [0, 1, 2]


def test_who_polls_makes_room_for_what_workers_have_to_tell():
    # More than the connection takes: the worker goes on when somebody has read it.
    with made(
        2, num_workers=1, env={"info": lambda t: {"frame": bytes(1 << 20)} if t else {}}, step_timeout=60.0
    ) as envs:
        envs.reset()
        envs.send(zeros(2), [0, 1])
        results = []

        def poll() -> bool:
            with contextlib.suppress(TimedOutError):
                results.append(envs.recv(timeout=0))
            return bool(results)

        wait_until(poll, 60)
        assert ids_of(results[0]) == [0, 1]


@BOTH
def test_nobody_is_sent_to_twice(num_workers):
    with made(3, num_workers=num_workers) as envs:
        envs.async_reset()
        with pytest.raises(AlreadyPendingCallError, match=r"environments \[0, 2\]"):
            envs.send(zeros(2), [0, 2])
        drain(envs)
        envs.send(zeros(1), [1])
        with pytest.raises(AlreadyPendingCallError, match=r"environments \[1\]"):
            envs.send(zeros(2), [0, 1])
        assert drain(envs) == {1: 1}
        assert envs.get_attr("steps") == (0, 1, 0)


@BOTH
@pytest.mark.parametrize(
    "env_id",
    [[0, 0], [1, 2], [-1, 0], [0.0, 1.0], [0], [0, 1, 1], [[0, 1]], [True, False], ["0", "1"], None, 1, [2**70, 0], []],
)
def test_a_wrong_env_id_asks_nobody(num_workers, env_id):
    with made(2, num_workers=num_workers) as envs:
        envs.reset()
        with pytest.raises(ValueError, match=r"env_id"):
            envs.send(zeros(2), env_id)
        assert_nobody_is_asked(envs)


@BOTH
@pytest.mark.parametrize(
    ("space", "actions"),
    [
        (gs.Discrete(5), [0]),
        (gs.Discrete(5), zeros(3)),
        (gs.Discrete(5), [0, "1"]),
        (gs.Discrete(5), [0, None]),
        (gs.Discrete(5), [[0, 1], [2, 3]]),
        (gs.Discrete(5), 3),
        (gs.Discrete(5), None),
        (gs.Box(-1.0, 1.0, (2,), np.float32), np.zeros((2, 3), np.float32)),
        (gs.Box(-1.0, 1.0, (2,), np.float32), np.zeros((3, 2), np.float32)),
        (gs.Dict(a=gs.Discrete(2), b=gs.Discrete(2)), {"a": zeros(2)}),
        (gs.Dict(a=gs.Discrete(2), b=gs.Discrete(2)), {"a": zeros(2), "b": zeros(1)}),
        (gs.Dict(a=gs.Discrete(2), b=gs.Discrete(2)), {"a": zeros(2), "b": [0, "x"]}),
        (gs.Text(2), ["ab", "abc"]),
        (gs.Text(2), np.zeros((2, 2), np.int32)),
    ],
)
def test_a_wrong_action_asks_nobody(num_workers, space, actions):
    with made(2, num_workers=num_workers, env={"action_space": space}) as envs:
        envs.reset()
        with pytest.raises((ValueError, TypeError, KeyError)):
            envs.send(actions, [0, 1])
        assert_nobody_is_asked(envs)


def assert_nobody_is_asked(envs: ShmVectorEnv) -> None:
    with pytest.raises(NoAsyncCallError):
        envs.recv(timeout=60)
    assert envs.get_attr("steps") == (0,) * envs.num_envs


@BOTH
def test_sending_nothing_asks_nobody(num_workers):
    with made(2, num_workers=num_workers) as envs:
        envs.reset()
        envs.send(zeros(0), zeros(0))
        assert times(envs.step(zeros(2))[0]) == [1, 1]


@BOTH
def test_a_wrong_send_leaves_those_that_are_asked_as_they_are(num_workers):
    with made(3, num_workers=num_workers, env={"act": lambda env, action: setattr(env, "secret", action)}) as envs:
        envs.reset()
        envs.send(np.array([3]), [1])
        for actions, env_id in ((np.array([4, 4]), [0, 1]), ([1, "x"], [0, 2]), (zeros(1), [7])):
            with pytest.raises((ValueError, TypeError, AlreadyPendingCallError)):
                envs.send(actions, env_id)
        assert drain(envs) == {1: 1}
        assert envs.get_attr("steps") == (0, 1, 0)
        assert envs.get_attr("secret") == ("none", 3, "none")


@BOTH
def test_seeds_that_are_none_leave_nobody_asked(num_workers):
    with made(2, num_workers=num_workers) as envs:
        with pytest.raises(ValueError, match="num_envs=2 but got length=3"):
            envs.async_reset(seed=[1, 2, 3])
        with pytest.raises(NoAsyncCallError):
            envs.recv()
        envs.reset()


REFUSED: dict[str, Callable[[ShmVectorEnv], Any]] = {
    "reset_async": lambda envs: envs.reset(),
    "step_async": lambda envs: envs.step(zeros(3)),
    "call_async": lambda envs: envs.get_attr("t"),
    "set_attr": lambda envs: envs.set_attr("secret", 1),
    "rollout": lambda envs: envs.rollout(),
    "async_reset": lambda envs: envs.async_reset(),
}


@BOTH
@pytest.mark.parametrize("name", list(REFUSED))
def test_while_turns_are_pending_all_else_is_refused_in_gymnasiums_words(num_workers, name):
    with made(3, num_workers=num_workers, batch_size=2) as envs:
        envs.async_reset()
        told = f"Calling `{name}` while waiting for a pending call to `recv` to complete."
        for _ in range(2):  # with all of them pending, and with some
            with pytest.raises(AlreadyPendingCallError) as caught:
                REFUSED[name](envs)
            assert (str(caught.value), caught.value.name) == (told, "recv")
            envs.recv(timeout=60)
        if name != "rollout":
            REFUSED[name](envs)
        drain(envs)
        assert times(envs.step(zeros(3))[0]) == [2 if name == "step_async" else 1] * 3


@BOTH
def test_while_a_call_is_pending_turns_are_refused_in_gymnasiums_words(num_workers):
    with made(2, num_workers=num_workers) as envs:
        envs.reset()
        envs.step_async(zeros(2))
        for name, call in {"send": lambda: envs.send(zeros(1), [0]), "async_reset": envs.async_reset}.items():
            told = f"Calling `{name}` while waiting for a pending call to `step` to complete."
            with pytest.raises(AlreadyPendingCallError) as caught:
                call()
            assert (str(caught.value), caught.value.name) == (told, "step")
        assert times(envs.step_wait()[0]) == [1, 1]


@BOTH
@pytest.mark.parametrize("options", [{"slots": 2}, {"shared_memory": False}])
def test_turns_need_one_slot_in_shared_memory(num_workers, options):
    with made(2, num_workers=num_workers, **options) as envs:
        envs.reset()
        for call in (envs.async_reset, lambda: envs.send(zeros(2), [0, 1])):
            with pytest.raises(ValueError, match=r"slots=1 and observations in shared memory for `send` and `recv`"):
                call()
        assert times(envs.step(zeros(2))[0]) == [1, 1]


@BOTH
def test_actions_of_no_fixed_size_are_refused(num_workers):
    with made(2, num_workers=num_workers, env={"action_space": gs.Sequence(gs.Discrete(3))}) as envs:
        envs.reset()
        with pytest.raises(ValueError, match="actions of a fixed size for `send`"):
            envs.send(((1,), (2,)), [0, 1])
        assert_nobody_is_asked(envs)


@pytest.mark.parametrize("batch_size", [0, -1, 4, 1.5, "2"])
def test_a_wrong_batch_size_is_refused(batch_size):
    with pytest.raises((ValueError, TypeError), match="batch_size"):
        ShmVectorEnv(clocks(3), num_workers=0, batch_size=batch_size)


@BOTH
def test_after_close_turns_are_refused_in_gymnasiums_words(num_workers):
    with made(2, num_workers=num_workers) as envs:
        envs.async_reset()
    for call in (envs.async_reset, envs.recv, lambda: envs.send(zeros(1), [0])):
        with pytest.raises(ClosedEnvironmentError):
            call()


# --- environments that raise ------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("batch_size", [1, 2, 4])
def test_the_others_are_received_where_one_raises_and_it_can_be_used_again(num_workers, batch_size, tmp_path):
    with made(4, env=holding(tmp_path / "go"), num_workers=num_workers, batch_size=batch_size) as envs:
        envs.async_reset()
        drain(envs)
        envs.send(np.array([0, 0, 2, 0]), np.arange(4))
        told, raised = {}, []
        while True:
            try:
                result = envs.recv(timeout=60)
            except NoAsyncCallError:
                break
            except LookupError as error:
                raised.append(error)
                continue
            told.update(zip(ids_of(result), times(result[0]), strict=True))
        assert told == {0: 1, 1: 1, 3: 1}
        (error,) = raised
        assert str(error) == "as asked, at 0"
        assert "Environment 2:" in str(error.__cause__)
        assert "Environment 1:" not in str(error.__cause__)
        envs.send(zeros(4), np.arange(4))
        assert drain(envs) == {0: 2, 1: 2, 2: 1, 3: 2}
        assert times(envs.step(zeros(4))[0]) == [3, 3, 2, 3]


@BOTH
def test_a_reset_that_raises_is_one_environments_turn(num_workers):
    def act_in_reset(env: Clock, seed: Any, options: Any) -> None:
        if seed == 6:
            raise LookupError("as asked")

    with made(3, env={"act_in_reset": act_in_reset}, num_workers=num_workers, batch_size=3) as envs:
        envs.async_reset(seed=5)
        with pytest.raises(LookupError, match="as asked"):
            envs.recv(timeout=60)
        assert drain(envs) == {0: 0, 2: 0}
        envs.async_reset(seed=7)
        assert drain(envs) == {0: 0, 1: 0, 2: 0}


@BOTH
def test_who_fails_again_and_again_does_not_keep_the_others_from_being_received(num_workers, tmp_path):
    with made(4, env=holding(tmp_path / "go"), num_workers=num_workers, batch_size=1) as envs:
        envs.async_reset()
        drain(envs)
        envs.send(np.array([2, 0, 0, 0]), np.arange(4))
        wait_until(lambda: envs._turns._ready().all())
        seen = []
        for _ in range(8):
            try:
                seen += ids_of(envs.recv(timeout=60))
            except LookupError:
                envs.send(np.array([2]), [0])
                wait_until(lambda: envs._turns._ready()[0])
            if len(seen) == 3:
                break
        assert sorted(seen) == [1, 2, 3]


@BOTH
def test_an_info_that_is_none_is_one_environments_failure(num_workers):
    with made(2, env={"info": lambda t: {"t": 0} if t == 0 else ["no dict"]}, num_workers=num_workers) as envs:
        envs.async_reset()
        assert drain(envs) == {0: 0, 1: 0}
        envs.send(zeros(1), [1])
        with pytest.raises(TypeError, match=r"Expected a dict, got list .* at step\(\)\['info'\], index 1"):
            envs.recv(timeout=60)


# --- the end ----------------------------------------------------------------------------------------------------------


@BOTH
def test_close_with_turns_pending_is_quiet(num_workers):
    with made(3, num_workers=num_workers, batch_size=2) as envs:
        envs.async_reset()
        envs.recv(timeout=60)


@pytest.mark.parametrize("end", ["envs.close()", "del envs", "pass"])
def test_who_ends_with_turns_pending_says_nothing(end):
    check_python(
        f"""
        import numpy as np
        from environments import clocks
        from gymshm import ShmVectorEnv

        envs = ShmVectorEnv(clocks(4, info=lambda t: {{"blob": bytes(1 << 17)}}), num_workers=2, batch_size=1)
        envs.async_reset()
        ids = envs.recv(timeout=60)[4]["env_id"]
        envs.send(np.zeros(1, np.int64), ids)
        {end}
        """,
        env=CHILD_ENV,
    )
