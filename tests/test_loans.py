"""What is lent stays as it was for as long as anybody has it, or what was made of it; then it is used again."""

from __future__ import annotations

import contextlib
import copy
import gc
import multiprocessing
import pickle
import sys
import threading
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from gymnasium import spaces as gs
from hypothesis import given, settings

import gymshm
from environments import Clock, Replay, clocks, zeros
from gymshm import ShmVectorEnv, loans
from strategies import spaces, values
from support import CHILD_ENV, check_python, run_isolated, same, sync_vector_env, wait_until
from test_slots import as_told

#: Observations of which a batch of two is large enough to be lent.
LARGE = gs.Box(0, 255, (200, 200), np.uint8)
SMALL = gs.Box(0, 255, (3,), np.uint8)

BOTH = pytest.mark.parametrize("num_workers", [0, 2])


def observe(t: int) -> np.ndarray:
    return np.full(LARGE.shape, t, np.uint8)


def large(n: int = 2, *, act: Any = lambda env, action: None, **options: Any) -> contextlib.closing[ShmVectorEnv]:
    """Clocks that show their time in large observations."""
    fns = clocks(n, observation_space=LARGE, observe=observe, act=act)
    return contextlib.closing(ShmVectorEnv(fns, **{"context": "fork", "num_workers": 2, **options}))


def lent(array: np.ndarray) -> bool:
    """Whether nobody copied it."""
    return not array.flags.owndata


@BOTH
def test_large_observations_are_lent_and_right(num_workers):
    with large(num_workers=num_workers) as envs:
        observations, _ = envs.reset()
        assert lent(observations)
        for t in range(1, 12):
            observations = envs.step(zeros(2))[0]
            assert lent(observations)
            assert observations.dtype == np.uint8
            assert observations.flags.writeable
            assert observations.flags.c_contiguous
            assert (observations == t).all()


@BOTH
def test_what_is_kept_stays_as_it_was_and_is_copied_once_all_are_lent(num_workers):
    with large(num_workers=num_workers) as envs:
        kept = [envs.reset()[0], *(envs.step(zeros(2))[0] for _ in range(9))]
    assert [set(array.ravel().tolist()) for array in kept] == [{t} for t in range(10)]
    assert [lent(array) for array in kept] == [True] * 3 + [False] * 7


def test_what_was_let_go_is_lent_again():
    with large() as envs:
        kept = [envs.reset()[0], *(envs.step(zeros(2))[0] for _ in range(6))]
        del kept[1]
        assert lent(envs.step(zeros(2))[0])
        kept.clear()
        for _ in range(8):
            assert lent(envs.step(zeros(2))[0])


@pytest.mark.parametrize("count", [1, 2], ids=["one batch", "a batch and the next"])
def test_a_caller_with_few_batches_at_a_time_never_gets_a_copy(count):
    with large() as envs:
        latest = [envs.reset()[0]]
        for _ in range(20):
            latest.append(envs.step(zeros(2))[0])
            latest = latest[-count:]
            assert lent(latest[-1])


def made_of(array: np.ndarray) -> dict[str, Any]:
    """What a caller may keep in the place of the array."""
    return {
        "the array": array,
        "a row": array[1],
        "every other": array[:, ::2],
        "reshaped": array.reshape(2, -1).T,
        "another dtype": array.view(np.int8),
        "its base": array.base,
        "a buffer": memoryview(array),
        "a part of a buffer": memoryview(array)[1:],
        "a reader of the buffer": np.frombuffer(array, np.uint16),
        "the iterator": iter(array),
        "within others": [{"a": (array[0],)}],
    }


@pytest.mark.parametrize("what", list(made_of(np.zeros((2, 4, 4), np.uint8)[:])))
def test_whatever_is_made_of_it_keeps_it(what):
    with large() as envs:
        envs.reset()
        observations = envs.step(zeros(2))[0]
        assert lent(observations)
        kept, address = made_of(observations)[what], observations.ctypes.data
        del observations
        for _ in range(8):
            assert envs.step(zeros(2))[0].ctypes.data != address
        assert what != "a row" or (kept == 1).all()
        del kept
        assert address in {envs.step(zeros(2))[0].ctypes.data for _ in range(4)}


def test_a_tensor_keeps_it():
    torch = pytest.importorskip("torch")
    with large() as envs:
        envs.reset()
        tensor = torch.from_numpy(envs.step(zeros(2))[0])[1]
        for _ in range(8):
            envs.step(zeros(2))
        assert bool((tensor == 1).all())


def test_what_another_thread_has_is_kept():
    with large() as envs:
        envs.reset()
        may_go, seen = threading.Event(), []

        def look(array: np.ndarray) -> None:
            may_go.wait(60)
            seen.append(bool((array == 1).all()))

        thread = threading.Thread(target=look, args=envs.step(zeros(2))[:1])
        thread.start()
        for _ in range(8):
            envs.step(zeros(2))
        may_go.set()
        thread.join()
    assert seen == [True]


def test_what_is_in_a_cycle_is_kept_until_it_is_collected():
    with large() as envs:
        envs.reset()
        cycle: list[Any] = [envs.step(zeros(2))[0]]
        cycle.append(cycle)
        address = cycle[0].ctypes.data
        del cycle
        addresses = set()
        gc.collect()
        for _ in range(4):
            addresses.add(envs.step(zeros(2))[0].ctypes.data)
        assert address in addresses


def test_changes_in_place_are_the_callers_alone():
    with large() as envs:
        latest = envs.reset()[0]
        for t in range(1, 12):
            latest[...] = 99
            fresh = envs.step(zeros(2))[0]
            assert (fresh == t).all()
            assert (latest == 99).all()
            latest = fresh


def test_it_outlives_the_vector_environment():
    with large() as envs:
        observations = envs.reset()[0]
    del envs
    gc.collect()
    assert (observations == 0).all()
    assert same(pickle.loads(pickle.dumps(observations)), observations)
    assert lent(observations)
    assert not lent(copy.deepcopy(observations))


def test_a_fork_goes_on_seeing_what_it_inherited():
    with large() as envs:
        observations = envs.reset()[0]
        ours, theirs = multiprocessing.Pipe()
        fork = multiprocessing.get_context("fork").Process(target=look_when_told, args=(theirs, observations))
        fork.start()
        del observations
        for _ in range(8):
            envs.step(zeros(2))
        ours.send(None)
        assert ours.poll(60)
        assert ours.recv() == [0]
        fork.join()
        fork.close()
        for end in (ours, theirs):
            end.close()


def look_when_told(connection: Any, array: np.ndarray) -> None:
    connection.recv()
    connection.send(np.unique(array).tolist())


def test_forks_leave_what_nobody_has():
    with large() as envs:
        envs.reset()
        for _ in range(5):
            fork = multiprocessing.get_context("fork").Process(target=int)
            fork.start()
            fork.join()
            fork.close()
        kept = [envs.step(zeros(2))[0] for _ in range(2)]
        assert all(map(lent, kept))


@pytest.mark.parametrize(
    "options",
    [
        {"copy": False},
        {"slots": 2},
        {"shared_memory": False},
        {"on_worker_death": "restart"},
        {"autoreset_mode": "Disabled"},
    ],
    ids=str,
)
def test_where_nothing_is_lent(options):
    with large(**options) as envs:
        assert envs._loans is None
        kept = [envs.reset()[0], *(envs.step(zeros(2))[0] for _ in range(6))]
        if envs.copy:
            assert [int(array[0, 0, 0]) for array in kept] == list(range(7))


def test_small_observations_are_copied():
    with contextlib.closing(ShmVectorEnv(clocks(2), context="fork")) as envs:
        assert not lent(envs.reset()[0])
        assert gymshm.attach(envs.segment_name).arrays.shape == (2, 2)


def test_of_a_tree_the_large_leaves_are_lent():
    space = gs.Dict(camera=LARGE, parts=gs.Tuple([SMALL, gs.Text(4, charset="abc"), gs.Discrete(9)]))

    def observe_all(t: int) -> dict[str, Any]:
        return {"camera": observe(t), "parts": (np.full(3, t, np.uint8), "abc"[t % 3], np.int64(t % 9))}

    fns = clocks(2, observation_space=space, observe=observe_all)
    theirs = sync_vector_env(fns)
    with contextlib.closing(ShmVectorEnv(fns, context="fork", num_workers=2)) as envs:
        kept = [(envs.reset()[0], copy.deepcopy(theirs.reset()[0]))]
        kept += [(envs.step(zeros(2))[0], copy.deepcopy(theirs.step(zeros(2))[0])) for _ in range(6)]
        assert [lent(ours["camera"]) for ours, _ in kept] == [True] * 3 + [False] * 4
        assert not any(lent(ours["parts"][0]) for ours, _ in kept)
    for ours, expected in kept:
        assert same(ours["camera"], expected["camera"])
        assert same(ours["parts"][0], expected["parts"][0])
        assert ours["parts"][1] == expected["parts"][1]


@pytest.mark.parametrize("key", ["left", "right"])
def test_one_leaf_of_a_batch_keeps_it(key):
    fns = clocks(
        2,
        observation_space=gs.Dict(left=LARGE, right=LARGE),
        observe=lambda t: {"left": observe(t), "right": observe(t)},
    )
    with contextlib.closing(ShmVectorEnv(fns, context="fork")) as envs:
        envs.reset()
        kept = envs.step(zeros(2))[0][key]
        for _ in range(8):
            envs.step(zeros(2))
        assert (kept == 1).all()


# --- room -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("room", "slots"), [(0, 0), (8 * 160_000, 0), (8 * 2 * 160_064, 2), (8 * 3 * 160_064, 3), (1 << 40, 3)]
)
def test_as_many_slots_as_there_is_ample_room_for(monkeypatch, room, slots):
    monkeypatch.setattr(loans, "room", lambda: room)
    assert loans.slots_to_lend(LARGE, 4) == slots


def test_batches_that_would_take_too_much_memory_are_copied(monkeypatch):
    monkeypatch.setattr(loans, "room", lambda: 1 << 50)
    assert loans.slots_to_lend(LARGE, 400) == 3  # 48 MB more
    assert loans.slots_to_lend(LARGE, 800) == 2
    assert loans.slots_to_lend(LARGE, 1000) == 0


def test_nothing_is_lent_without_reference_counts(monkeypatch):
    monkeypatch.delattr("sys.getrefcount")
    assert loans.slots_to_lend(LARGE, 4) == 0


#: What other interpreters might tell, out of the counts that are right: all there were so far.
WAYS_TO_COUNT = {
    "never": lambda counts: 2,
    "late": max,
    "not views": min,
    "otherwise at times": lambda counts: counts[-1] - (len(counts) % 40 > 20),
}


@pytest.mark.parametrize("way", WAYS_TO_COUNT)
def test_nothing_is_lent_where_reference_counts_tell_nothing(monkeypatch, way):
    count, counts = sys.getrefcount, []

    def getrefcount(keeper: Any) -> int:
        counts.append(count(keeper))
        return WAYS_TO_COUNT[way](counts)

    monkeypatch.setattr(sys, "getrefcount", getrefcount)
    assert loans.slots_to_lend(LARGE, 4) == 0
    with large(num_workers=0) as envs:
        kept = [envs.reset()[0], *(envs.step(zeros(2))[0] for _ in range(6))]
        assert not any(map(lent, kept))
        assert [int(array[0, 0, 0]) for array in kept] == list(range(7))


def test_a_shared_memory_that_just_has_room_for_one_slot_is_enough():
    done = run_isolated(
        """
        import gymshm
        from test_loans import large, zeros

        with large(4) as envs:
            envs.reset()
            print(envs.step(zeros(4))[0].max(), gymshm.attach(envs.segment_name).memory.view.shape)
        """,
        shm="400k",
        env=CHILD_ENV,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 (4, 200, 200)\n", "")


# --- with others ------------------------------------------------------------------------------------------------------


def fail_at(t: int) -> Any:
    def act(env: Clock, action: Any) -> None:
        if env.t == t and action == 1:
            raise ValueError("on purpose")

    return act


@BOTH
def test_an_environment_that_fails_shows_what_was_seen_last(num_workers):
    with large(act=fail_at(3), num_workers=num_workers) as envs:
        envs.reset()
        kept = [envs.step(zeros(2))[0] for _ in range(3)]
        with pytest.raises(ValueError, match="on purpose"):
            envs.step(np.array([1, 0]))
        assert envs.observations[:, 0, 0].tolist() == [3, 4]
        assert [int(array[0, 0, 0]) for array in kept] == [1, 2, 3]
        assert envs.step(zeros(2))[0][:, 0, 0].tolist() == [4, 5]


@BOTH
def test_a_reset_of_some_shows_the_others_as_they_were(num_workers):
    with large(num_workers=num_workers) as envs:
        envs.reset()
        kept = [envs.step(zeros(2))[0] for _ in range(3)]
        shown = envs.reset(options={"reset_mask": np.array([True, False])})[0]
        assert shown[:, 0, 0].tolist() == [0, 3]
        assert [int(array[0, 0, 0]) for array in kept] == [1, 2, 3]


@BOTH
def test_turns_after_steps_begin_with_what_was_seen_last(num_workers):
    with large(num_workers=num_workers, batch_size=1) as envs:
        envs.reset()
        kept = [envs.step(zeros(2))[0] for _ in range(5)]
        assert envs._slot == 0
        envs.step(zeros(2))
        del kept[0]
        kept.append(envs.step(zeros(2))[0])
        assert envs._slot != 0
        envs.send(zeros(1), [1])
        observations, *_, infos = envs.recv()
        assert infos["env_id"].tolist() == [1]
        assert (observations == 8).all()
        assert envs.observations[:, 0, 0].tolist() == [7, 8]
        assert (kept[-1] == 7).all()
        assert envs.step(zeros(2))[0][:, 0, 0].tolist() == [8, 9]


def test_an_onlooker_sees_the_current_slot(tmp_path):
    def act(env: Clock, action: Any) -> None:
        if action == 1:
            wait_until((tmp_path / "go").exists)

    with large(act=act) as envs, gymshm.attach(envs.segment_name, read_only=True) as onlooker:
        kept = [envs.reset()[0]]
        for t in range(1, 7):
            kept.append(envs.step(zeros(2))[0])
            assert (onlooker.snapshot(1) == t).all()
            assert (onlooker.read() == t).all()
        kept.pop(1)
        envs.step(zeros(2))
        envs.step_async(np.array([1, 1]))  # from one slot to another: what was seen last is calm meanwhile
        assert (onlooker.snapshot(0) == 7).all()
        (tmp_path / "go").touch()
        assert (envs.step_wait()[0] == 8).all()
        assert (onlooker.snapshot(0) == 8).all()


def test_nothing_is_left_where_lent_arrays_are_all_that_is_left():
    told = check_python(
        """
        import gc, os
        from test_loans import large, zeros

        with large() as envs:
            kept = envs.reset()[0]
            name = envs.segment_name
        del envs
        gc.collect()
        print(os.path.exists(f"/dev/shm/{name}"), kept.max())
        """,
        env=CHILD_ENV,
    )
    assert told == "False 0\n"


# --- any history ------------------------------------------------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn) -> dict[str, Any]:
    """A space with some values; calls, each with the numbers of what the caller lets go of before it."""
    space, n = draw(spaces(max_leaves=4)), draw(st.integers(1, 3))
    script = st.tuples(values(space), st.just(0.0), st.sampled_from([False, False, True]), st.just(False), st.just({}))
    call = st.tuples(st.sampled_from(["step"] * 5 + ["reset"]), st.sets(st.integers(0, 9), max_size=4))
    return {
        "space": space,
        "scripts": draw(st.lists(st.lists(script, min_size=2, max_size=4), min_size=n, max_size=n)),
        "mode": draw(st.sampled_from(["NextStep", "SameStep"])),
        "calls": draw(st.lists(call, min_size=4, max_size=24)),
    }


def play(history: dict[str, Any], num_workers: int) -> None:
    n = len(history["scripts"])
    fns = [lambda script=script: Replay(history["space"], gs.Discrete(2), script) for script in history["scripts"]]
    try:
        theirs: Any = sync_vector_env(fns, history["mode"])
        theirs.reset()
    except Exception:
        hypothesis.reject()  # there are spaces that gymnasium can't batch
    ours = ShmVectorEnv(fns, autoreset_mode=history["mode"], num_workers=num_workers, context="fork")
    kept: dict[int, tuple[Any, Any]] = {}
    try:
        ours.reset()
        for number, (call, let_go) in enumerate(history["calls"]):
            for back in let_go:
                kept.pop(number - back, None)
            args = (zeros(n),) if call == "step" else ()
            returned, expected = getattr(ours, call)(*args)[0], getattr(theirs, call)(*args)[0]
            assert same(as_told(history["space"], returned), as_told(history["space"], expected))
            kept[number] = returned, copy.deepcopy(returned)
            for given_then, before in kept.values():
                assert same(given_then, before)
    finally:
        ours.close()


@pytest.fixture
def _lends_all(monkeypatch):
    monkeypatch.setattr(loans, "_LEAST_NBYTES", 1)


@pytest.mark.usefixtures("_lends_all")
@settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@given(histories())
def test_any_history_leaves_what_is_kept_as_it_was(history):
    play(history, num_workers=0)


@pytest.mark.usefixtures("_lends_all")
@settings(max_examples=8, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@given(histories())
def test_any_history_with_workers_leaves_what_is_kept_as_it_was(history):
    play(history, num_workers=2)


def test_forks_do_not_concern_a_vector_environment_that_is_gone():
    before = len(loans._all)
    with large(num_workers=0) as envs:
        assert len(loans._all) == before + 1
    del envs
    gc.collect()
    assert len(loans._all) == before
