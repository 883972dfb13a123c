"""``info_columns``: numbers in infos are not pickled, and what comes out is what ``SyncVectorEnv`` gives."""

from __future__ import annotations

import contextlib
import copy
import enum
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from gymnasium import spaces as gs
from hypothesis import given, settings

from environments import Clock, assert_same, clocks, zeros
from gymshm import ShmVectorEnv
from gymshm.compat import AutoresetMode, VectorEnv
from gymshm.env_group import EnvGroup
from gymshm.exchange import INFO_COLUMNS, Exchange, Terms, share
from gymshm.info_columns import ColumnReader
from gymshm.infos import adder, batch
from gymshm.reply import ALL_IN_COLUMNS, Reply, pickled, unpickled
from mortal import KILL, Mortal, fates

BOTH = pytest.mark.parametrize("num_workers", [0, 2])

#: Types whose every value survives a column.
KINDS: dict[str, Callable[[float], Any]] = {
    **{kind.__name__: kind for kind in (float, int, bool, np.float64, np.float32, np.float16)},
    **{kind.__name__: kind for kind in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32)},
}


class Level(enum.IntEnum):
    LOW = 1


class Key(str):
    """Equal to a str, and none."""


def expected(infos: Sequence[dict[Any, Any]]) -> dict[str, Any]:
    """What gymnasium makes of them."""
    batching = VectorEnv()
    batching.num_envs = len(infos)
    told: dict[str, Any] = {}
    for i, info in enumerate(infos):
        told = batching._add_info(told, info, i)
    return told


class Workers:
    """Workers without processes; their replies travel as those of processes do."""

    def __init__(self, n: int, num_workers: int) -> None:
        self.info: list[dict[Any, Any]] = [{}] * n
        self.shares = share(n, num_workers)
        self.exchange = Exchange.create(Terms(gs.Discrete(2), gs.Discrete(2), n, num_workers, 1, keeps_final=False))
        self.reader = ColumnReader(self.exchange, self.shares)
        self.groups = [EnvGroup(envs.start, AutoresetMode.NEXT_STEP) for envs in self.shares]
        for group, envs in zip(self.groups, self.shares, strict=True):
            group.build([self._clock(i) for i in envs])
            group.bind(self.exchange)
            group.reset(0, [None] * len(envs), None, [True] * len(envs))

    def _clock(self, i: int) -> Callable[[], Clock]:
        return lambda: Clock(observation_space=gs.Discrete(2), observe=lambda t: 0, info=lambda t: self.info[i])

    def step(self, infos: list[dict[Any, Any]]) -> tuple[list[Reply | None], dict[str, Any]]:
        """The replies to a step in which the environments give ``infos``, and the batch of these."""
        self.info = infos
        replies = []
        for group in self.groups:
            reply = group.step(0)
            travels = reply is not None and reply is not ALL_IN_COLUMNS
            replies.append(unpickled(pickled(reply, group.start), group.start) if travels else reply)
        self.reader.take_note(replies)
        common = self.reader.common(replies)
        return replies, batch(self.reader.told(replies), adder(len(infos))) if common is None else common

    def close(self) -> None:
        self.exchange.segment.close()


@contextlib.contextmanager
def workers(n: int = 3, num_workers: int = 1) -> Iterator[Workers]:
    made = Workers(n, num_workers)
    try:
        yield made
    finally:
        made.close()


def check(made: Workers, infos: list[dict[Any, Any]]) -> list[Reply | None]:
    """Steps, and checks the batch; the replies."""
    replies, told = made.step(infos)
    assert_same(told, expected(infos))
    return replies


# --- what needs no pickling -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_numbers_of_a_steady_type_stand_in_columns_from_the_third_step_on(kind, num_workers):
    with workers(4, num_workers) as made:
        for t in range(6):
            infos = [{"x": KINDS[kind](t + i), "y": t * 0.5} for i in range(4)]
            replies = check(made, infos)
            if t >= 2:
                assert all(reply is ALL_IN_COLUMNS for reply in replies)


@pytest.mark.parametrize(
    "values",
    [
        [float("nan"), float("inf"), -0.0, 5e-324, 1.7976931348623157e308],
        [np.float16("nan"), np.float16("-inf"), np.float16(-0.0), np.float16(6e-8), np.float16(65504)],
        [np.float32(1e-45), np.float32(3.4e38), np.float32("-inf"), np.float32(0.1), np.float32("nan")],
        [(1 << 63) - 1, -(1 << 63), 0, -1, (1 << 53) + 1],
        [np.int64((1 << 63) - 1), np.int64(-(1 << 63)), np.int64(0), np.int64(-1), np.int64((1 << 53) + 1)],
        [np.uint32((1 << 32) - 1), np.uint32(0), np.uint32(1), np.uint32(2), np.uint32(1 << 31)],
        [True, False, True, True, False],
    ],
    ids=repr,
)
def test_the_limits_of_each_type_survive(values):
    with workers(1) as made:
        for value in values * 2:
            _, told = made.step([{"x": value}])
            assert_same(told, expected([{"x": value}]))
            assert np.signbit(float(told["x"][0])) == np.signbit(float(value))
        assert made.step([{"x": values[0]}])[0] == [ALL_IN_COLUMNS]


@pytest.mark.parametrize(
    "value",
    [
        np.uint64(1 << 63),
        np.bool_(True),
        np.longdouble(1),
        np.complex64(1j),
        1j,
        "text",
        None,
        np.zeros(2),
        np.array(1.0),
        [1, 2],
        {"deep": 1},
        Level.LOW,
    ],
    ids=repr,
)
def test_what_no_column_holds_travels_as_before(value):
    with workers(2, 2) as made:
        for t in range(20):
            replies = check(made, [{"t": t, "x": value}, {"t": t + 1}])
        assert replies[0].infos == [(0, {"t": 19, "x": value})] if type(value) is not np.ndarray else replies[0].infos
        assert replies[1] is ALL_IN_COLUMNS


@pytest.mark.parametrize(
    "keys",
    [
        ["x", "_x"],
        ["", "_"],
        ["_x", "x"],
        ["x", "y", "_y"],
        ["final_obs"],
        ["a", "final_obs"],
        [1, 2],
        [True, "a"],
        [("a", 1)],
        [None],
        [Key("a")],
        ["a", Key("b")],
    ],
    ids=repr,
)
def test_keys_that_gymnasium_treats_apart_travel_as_before(keys):
    with workers(2) as made:
        for t in range(20):
            replies = check(made, [{key: t + i for i, key in enumerate(keys)}] * 2)
        assert len(replies[0].infos) == 2


def test_keys_that_are_equal_and_not_the_same_stay_what_they_are():
    with workers(1) as made:
        for t in range(20):
            check(made, [{[1, True, 1.0][t % 3]: t}])
            check(made, [{[1, True, 1.0][t // 7]: t}])


@pytest.mark.parametrize("keys", [[""], ["final_info"], ["env_id"], ["é\n", "\ud800"], ["_a", "__a0"]], ids=repr)
def test_odd_names_have_columns(keys):
    with workers(2) as made:
        for t in range(5):
            replies = check(made, [{key: t + i for i, key in enumerate(keys)}] * 2)
        assert replies == [ALL_IN_COLUMNS]


@pytest.mark.parametrize(
    ("floats", "integers", "fits"),
    [
        (INFO_COLUMNS, INFO_COLUMNS, True),
        (INFO_COLUMNS + 1, 0, False),
        (0, INFO_COLUMNS + 1, False),
        (1, INFO_COLUMNS, True),
        (1, INFO_COLUMNS + 1, False),
    ],
)
def test_more_numbers_than_columns_travel_as_before(floats, integers, fits):
    with workers(2) as made:
        for t in range(20):
            info = {f"f{i}": t + i / 8 for i in range(floats)} | {f"i{i}": t * i for i in range(integers)}
            replies = check(made, [info, dict(reversed(info.items()))] if t < 2 else [info, info])
        assert (replies == [ALL_IN_COLUMNS]) == fits


def test_an_int_beyond_64_bits_travels_as_before():
    with workers(2) as made:
        for t in range(4):
            replies = check(made, [{"x": 0.5, "n": t}, {"x": 0.5, "n": t}])
        assert replies == [ALL_IN_COLUMNS]
        for big in (1 << 63, -(1 << 63) - 1, 1 << 200):
            infos = [{"x": 0.5, "n": 1}, {"x": 1.5, "n": big}]
            with pytest.raises(OverflowError):
                expected(infos)
            with pytest.raises(OverflowError):
                made.step(infos)
            assert check(made, [{"x": 2.5, "n": 2}, {"x": 3.5, "n": 3}]) == [ALL_IN_COLUMNS]
        # Into an array of floats it goes.
        check(made, [{"x": 2.5}, {"x": 1 << 70}])
        check(made, [{"n": 2.5, "x": 1.0}, {"x": 0.5, "n": 1 << 70}])


# --- schemas that change ----------------------------------------------------------------------------------------------


def test_one_environment_that_gives_other_keys_does_not_keep_the_others_from_their_columns():
    with workers(4, 2) as made:
        for t in range(12):
            odd = {"other": "text", "t": t + 1}
            replies = check(made, [{"t": t}, odd, {"t": 2 * t}, {"t": 3 * t}])
        assert (replies[0].in_columns, replies[0].infos) == ([0], [(1, {"other": "text", "t": 12})])
        assert replies[1] is ALL_IN_COLUMNS


def test_environments_that_give_different_numbers_in_one_worker():
    with workers(3, 1) as made:
        for t in range(12):
            (reply,) = check(made, [{"a": t}, {"b": 0.5 * t}, {"a": t, "b": 0.5 * t}])
            # One of the schemas has columns, and stays: who changed again and again would pickle all the same.
            assert t < 3 or (len(reply.in_columns), reply.schema) == (1, None)


def test_infos_that_are_new_each_time_are_not_counted_without_end():
    with workers(2) as made:
        for t in range(50):
            check(made, [{f"key {t}": t}, {f"other {t}": t}])
        assert len(made.groups[0]._columns._seen) < 10
        for t in range(4):
            replies = check(made, [{"t": t}, {"t": t}])
        assert replies == [ALL_IN_COLUMNS]


def test_an_environment_that_tells_nothing_now_and_then():
    with workers(4, 2) as made:
        for t in range(12):
            infos = [{"t": t, "x": 0.5} if (t + i) % 3 else {} for i in range(4)]
            replies = check(made, infos)
            assert t < 3 or all(reply is None or reply.infos == [] for reply in replies)
        assert check(made, [{}] * 4) == [None, None]


def test_what_comes_now_and_then_does_not_take_the_place_of_what_is_steady():
    with workers(1) as made:
        replies = [check(made, [{"b": t, "a": 1.5} if t % 3 == 2 else {"a": 0.5}])[0] for t in range(30)]
    in_columns = [reply is ALL_IN_COLUMNS for reply in replies]
    assert in_columns[3:] == [t % 3 != 2 for t in range(3, 30)]


@pytest.mark.parametrize(
    "after",
    [
        {"a": 1, "b": 2.0},
        {"b": 1.0, "a": 2},
        {"a": 1.0},
        {"a": np.float32(1), "b": 2},
        {"c": True},
        {"a": 1.0, "b": True},
    ],
)
def test_other_keys_or_types_that_stay_get_the_columns(after):
    with workers(3, 2) as made:
        for t in range(4):
            replies = check(made, [{"a": float(t), "b": t}] * 3)
        assert replies == [ALL_IN_COLUMNS] * 2
        for _ in range(8):
            replies = check(made, [after] * 3)
        assert replies == [ALL_IN_COLUMNS] * 2


def test_workers_whose_environments_give_other_numbers():
    with workers(4, 2) as made:
        for t in range(10):
            replies = check(made, [{"a": t, "b": 0.5}] * 2 + [{"b": 1, "_a": 0.5}] * 2)
        assert replies == [ALL_IN_COLUMNS] * 2
        for t in range(10):
            check(made, [{"a": t}, {"a": 0.5}, {"a": True}, {"a": np.int8(t)}])


def test_what_was_told_is_the_callers():
    with workers(2) as made:
        kept = []
        for t in range(6):
            told = made.step([{"t": t, "flag": t > 2, "half": np.float16(t)}] * 2)[1]
            kept.append((told, copy.deepcopy(told)))
        for told, before in kept:
            assert_same(told, before)
        kept[-1][0]["t"][:] = 99
        check(made, [{"t": 7, "flag": True, "half": np.float16(7)}, {}])


# --- infos of any kind ------------------------------------------------------------------------------------------------

NUMBERS: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-9, 9),
    "wide int": st.integers(-(1 << 70), 1 << 70),
    "float": st.floats(),
    "bool": st.booleans(),
    "single": st.floats(width=32).map(np.float32),
    "half": st.floats(width=16).map(np.float16),
    "byte": st.integers(0, 255).map(np.uint8),
    "unsigned": st.integers(0, (1 << 64) - 1).map(np.uint64),
    "flag": st.booleans().map(np.bool_),
    "text": st.sampled_from(["", "a"]),
    "array": st.lists(st.integers(0, 5), min_size=2, max_size=2).map(np.array),
    "dict": st.fixed_dictionaries({"x": st.integers(0, 5)}, optional={"y": st.floats()}),
}

#: (key, kind) of each item of an info.
SHAPES = st.lists(
    st.tuples(st.sampled_from(["a", "b", "_a", "final_obs", 1, True]), st.sampled_from(list(NUMBERS))),
    max_size=4,
    unique_by=lambda item: item[0],
)


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, int, list[list[dict[Any, Any]]]]:
    """Environments, workers, and the infos of each step: runs of the same shape, with an odd one in between."""
    n = draw(st.integers(1, 4))
    num_workers = draw(st.integers(1, n))
    steps = []
    for _ in range(draw(st.integers(1, 4))):
        usual = draw(SHAPES)
        shapes = [usual if draw(st.integers(0, 3)) else draw(SHAPES) for _ in range(n)]
        for _ in range(draw(st.integers(1, 7))):
            odd = draw(st.integers(-6, n - 1))
            own = [draw(SHAPES) if i == odd else shape for i, shape in enumerate(shapes)]
            steps.append([{key: draw(NUMBERS[kind]) for key, kind in shape} for shape in own])
    return n, num_workers, steps


@settings(max_examples=2 * settings.default.max_examples)
@given(histories())
def test_infos_of_any_kind_in_any_order_are_those_of_gymnasium(history):
    n, num_workers, steps = history
    with workers(n, num_workers) as made:
        for number, infos in enumerate(steps):
            try:
                wanted = expected(infos)
            except Exception as error:  # a value that does not fit the array that the first one made
                with pytest.raises(type(error)):
                    made.step(copy.deepcopy(infos))
                continue
            assert_same(made.step(copy.deepcopy(infos))[1], wanted, f"step {number}")


# --- in a vector environment ------------------------------------------------------------------------------------------


def replies_of(envs: ShmVectorEnv) -> list[Reply | None]:
    return list(envs._crew.wait())


@BOTH
@pytest.mark.parametrize("shared_memory", [True, False])
def test_a_step_pickles_no_steady_numbers(num_workers, shared_memory):
    fns = clocks(4, info=lambda t: {"t": t, "x": t / 2, "alive": t < 4})
    with contextlib.closing(ShmVectorEnv(fns, num_workers=num_workers, shared_memory=shared_memory)) as envs:
        envs.reset()
        for t in range(1, 6):
            infos = envs.step(zeros(4))[4]
            assert_same(infos, expected([{"t": t, "x": t / 2, "alive": t < 4}] * 4))
        for reply in replies_of(envs):
            if shared_memory:
                assert reply is ALL_IN_COLUMNS
            else:
                assert reply.infos == []


@BOTH
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_ends_of_episodes_leave_the_columns_in_place(num_workers, mode):
    fns = clocks(2, info=lambda t: {"t": t}, episode=3)
    with contextlib.closing(ShmVectorEnv(fns, num_workers=num_workers, autoreset_mode=mode)) as envs:
        assert_same(envs.reset()[1], expected([{"t": 0}] * 2))
        told = [envs.step(zeros(2))[4] for _ in range(8)]
        assert all(reply is None or reply.infos == [] for reply in replies_of(envs))
    period = [1, 2, 3, 0] if mode == "NextStep" else [1, 2, 0]
    for number, infos in enumerate(told):
        if mode == "SameStep" and number % 3 == 2:
            assert infos["final_info"]["t"].tolist() == [3, 3]
        assert infos["t"].tolist() == [period[number % len(period)]] * 2
        assert infos["_t"].tolist() == [True, True]


class TravelsNot:
    """Can't be pickled, or can't be rebuilt in the other process."""

    def __init__(self, way: str) -> None:
        self.way = way

    def __reduce__(self) -> Any:
        if self.way == "pickle":
            raise pickle.PicklingError("not this one")
        return fail, ()


def fail() -> None:
    raise OSError("not in this process")


@pytest.mark.parametrize("way", ["pickle", "rebuild", "raise"])
def test_a_schema_is_known_though_the_reply_that_tells_of_it_fails(way):
    # It is told of in the step in which the first two environments give the same numbers for the second time.
    def info(t: int) -> dict[str, Any]:
        return {"t": t, "x": t / 2}

    def act(env: Clock, action: Any) -> None:
        env.info = lambda t: {"bad": TravelsNot(way)} if action == 1 else info(t)
        if action == 1 and way == "raise":
            raise OSError("not this one")

    with contextlib.closing(ShmVectorEnv(clocks(3, info=info, act=act), num_workers=1)) as envs:
        envs.reset()
        with pytest.raises((pickle.PicklingError, TypeError, OSError), match="not"):
            envs.step(np.array([0, 0, 1]))
        for t in range(2, 6):
            infos = envs.step(zeros(3))[4]
            assert_same(infos, expected([info(t), info(t), info(t - (way == "raise"))]))
        assert replies_of(envs) == [ALL_IN_COLUMNS]


def test_a_worker_that_is_started_anew_finds_its_columns_again():
    fns = [lambda: Mortal(info=lambda t: {"t": t, "x": t / 2})] * 4
    envs = ShmVectorEnv(fns, num_workers=2, on_worker_death="restart")
    with contextlib.closing(envs):
        envs.reset()
        for _ in range(4):
            envs.step(fates(4))
        infos = envs.step(fates(4, env1=KILL))[4]
        lost: dict[str, Any] = {"worker_restarted": True}
        assert_same(infos, expected([lost, lost, {"t": 5, "x": 2.5}, {"t": 5, "x": 2.5}]))
        for t in range(6):
            infos = envs.step(fates(4))[4]
            assert_same(infos, expected([{"t": t, "x": t / 2}] * 2 + [{"t": t + 6, "x": t / 2 + 3}] * 2))
        assert replies_of(envs) == [ALL_IN_COLUMNS] * 2


@BOTH
def test_turns_leave_the_columns_in_place(num_workers):
    fns = clocks(3, info=lambda t: {"t": t, "x": t / 2})
    with contextlib.closing(ShmVectorEnv(fns, num_workers=num_workers)) as envs:
        envs.reset()
        for _ in range(4):
            envs.step(zeros(3))
        envs.send(zeros(2), [0, 2])
        infos = envs.recv(timeout=60)[4]
        assert_same(infos, {"env_id": np.array([0, 2]), **expected([{"t": 5, "x": 2.5}] * 2)})
        assert_same(envs.step(zeros(3))[4], expected([{"t": t, "x": t / 2} for t in (6, 5, 6)]))
        assert all(reply is ALL_IN_COLUMNS for reply in replies_of(envs))
