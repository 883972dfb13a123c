"""``ShmVectorEnv`` when something goes wrong: the caller is told what, where, and at once; and nothing stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import multiprocessing
import os
import pathlib
import signal
import sys
import threading
import time
import traceback
import warnings
import weakref
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces as gs
from gymnasium.error import ClosedEnvironmentError
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import OrderEnforcing

import gymshm
from environments import Clock, assert_same, clock_envs, clocks, made, times, zeros
from gymshm import ShmVectorEnv, WorkerDiedError
from gymshm.errors import TimedOutError
from mortal import FATES, SEGV

BOTH = pytest.mark.parametrize("num_workers", [0, 2])
EVERY_CONTEXT = pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
BOX = gs.Box(-9, 9, (2,), np.float32)


# --- an environment raises --------------------------------------------------------------------------------------------


class SimError(Exception):
    """An exception whose constructor takes other arguments than those that it passes on."""

    def __init__(self, code, where):
        super().__init__(f"{code}@{where}")
        self.code, self.where = code, where

    def __reduce__(self):
        return SimError, (self.code, self.where)


class Unbuildable(Exception):
    """Pickles, and can't be rebuilt."""

    def __init__(self, code, where):
        super().__init__(f"{code}@{where}")


class Unpicklable(Exception):
    """Says no."""

    def __reduce__(self):
        raise TypeError("not this one")


def raising(make: Any, at: int = 2, index: int | None = None):
    """What a clock raises in its step ``at``; where environments are told apart, only the one called ``index``."""

    def act(env, action):
        if env.t + 1 == at and index in (None, env.secret):
            env.t += 1
            raise make()

    return act


def sim_error():
    return SimError(7, "joint")


def bad():
    return ValueError("bad")


def told_apart(envs):
    """Gives each environment its index to know."""
    envs.set_attr("secret", list(range(envs.num_envs)))
    return envs


@BOTH
@pytest.mark.parametrize(
    "make", [bad, sim_error, KeyboardInterrupt, asyncio.CancelledError, AssertionError], ids=lambda make: make.__name__
)
def test_what_an_environment_raises_comes_to_the_caller_and_all_can_be_used_again(num_workers, make):
    error = make()
    with made(3, num_workers=num_workers, act=raising(make, index=1)) as envs:
        told_apart(envs).reset()
        envs.step(zeros(3))
        with pytest.raises(type(error)) as caught:
            envs.step(zeros(3))
        assert str(caught.value) == str(error)
        assert vars(caught.value).keys() >= vars(error).keys()
        cause = str(caught.value.__cause__)
        assert "Environment 1:" in cause
        assert "raise make()" in cause
        # Its neighbours have made that step, and so has it, as far as it came.
        assert times(envs.step(zeros(3))[0]) == [3, 3, 3]
        assert times(envs.reset()[0]) == [0, 0, 0]


@EVERY_CONTEXT
def test_that_holds_under_every_start_method(context):
    with made(2, context=context, act=raising(sim_error, index=0)) as envs:
        told_apart(envs).reset()
        envs.step(zeros(2))
        with pytest.raises(SimError, match="7@joint"):
            envs.step(zeros(2))
        assert times(envs.step(zeros(2))[0]) == [3, 3]


@pytest.mark.parametrize("cause", [None, KeyError("the reason")])
def test_in_process_it_is_the_very_exception_with_its_own_traceback_and_nothing_keeps_it(cause):
    def act(env, action):
        error = Unpicklable("7@joint")
        raised.append(weakref.ref(error))
        try:
            raise error from cause
        finally:
            del error  # else its traceback would hold it

    raised: list[Any] = []
    with made(1, num_workers=0, act=act) as envs:
        envs.reset()
        gc.disable()
        try:
            envs.step(zeros(1))
        except Unpicklable as error:
            is_it, function = error is raised[0](), traceback.extract_tb(error.__traceback__)[-1].name
            keeps_its_cause = cause is None or error.__cause__ is cause
        finally:
            gc.enable()
        assert (is_it, function, keeps_its_cause) == (True, "act", True)
        assert raised[0]() is None


@pytest.mark.parametrize("make", [lambda: Unbuildable(7, "joint"), lambda: Unpicklable("7@joint")])
def test_an_exception_that_cannot_travel_is_a_runtime_error_with_its_repr_and_traceback(make):
    with made(2, act=raising(make, at=1)) as envs:
        envs.reset()
        with pytest.raises(RuntimeError) as caught:
            envs.step(zeros(2))
        assert repr(make()) in str(caught.value)
        assert "raise make()" in str(caught.value)
        assert times(envs.step(zeros(2))[0]) == [2, 2]


@BOTH
def test_of_several_exceptions_all_are_named(num_workers):
    def act(env, action):
        raise [ValueError("first"), None, KeyError("third")][env.secret] or OSError("second")

    with made(3, num_workers=num_workers, act=act) as envs:
        told_apart(envs).reset()
        with pytest.raises(KeyError, match="third") as caught:
            envs.step(zeros(3))
        cause = str(caught.value.__cause__)
        for part in ("Environment 0", "first", "Environment 1", "second", "Environment 2", "third"):
            assert part in cause


@BOTH
@pytest.mark.parametrize("method", ["reset", "call", "get_attr", "set_attr"])
def test_every_call_tells_of_exceptions(num_workers, method):
    def fail(env, *arguments):
        if env.secret == "fail":
            raise SimError(7, "joint")

    with made(2, num_workers=num_workers, act_in_reset=fail) as envs:
        envs.set_attr("secret", ["none", "fail"])
        call = {
            "reset": envs.reset,
            "call": lambda: envs.call("double", None),
            "get_attr": lambda: envs.get_attr("nonsense"),
            "set_attr": lambda: envs.set_attr("np_random_seed", 5),  # a property without a setter
        }[method]
        with pytest.raises((SimError, TypeError, AttributeError)) as caught:
            call()
        assert "Environment 1:" in str(caught.value.__cause__)
        envs.set_attr("secret", "none")
        assert times(envs.reset()[0]) == [0, 0]
        assert times(envs.step(zeros(2))[0]) == [1, 1]


@BOTH
def test_a_reset_that_fails_in_the_place_of_a_step_is_tried_again_in_the_next_one(num_workers):
    def fail(env, seed, options):
        if env.secret == "fail":
            env.secret = "failed"
            raise SimError(7, "joint")

    with made(2, num_workers=num_workers, episode=1, act_in_reset=fail) as envs:
        envs.reset()
        assert envs.step(zeros(2))[2].all()
        envs.set_attr("secret", ["fail", "none"])
        with pytest.raises(SimError):
            envs.step(zeros(2))
        # The other one was reset, and so steps now; this is what SyncVectorEnv does with the one that failed.
        observations, rewards, terminations, _, _ = envs.step(zeros(2))
        assert times(observations) == [0, 1]
        assert rewards.tolist() == [0, 1]
        assert terminations.tolist() == [False, True]
        assert envs.get_attr("steps") == (1, 2)


@BOTH
def test_infos_that_follow_a_failed_step_are_right(num_workers):
    def info(t):
        return {"t": t, "half": t / 2} if t < 4 else {"half": t / 2, "t": float(t)}

    for at in range(1, 12):
        failing = made(3, num_workers=num_workers, info=info, act=raising(bad, at, index=2))
        with failing as envs, made(3, num_workers=num_workers, info=info) as others:
            told_apart(envs).reset()
            others.reset()
            for t in range(1, 16):
                expected = others.step(zeros(3))
                if t == at:
                    with pytest.raises(ValueError, match="bad"):
                        envs.step(zeros(3))
                else:
                    assert_same(envs.step(zeros(3)), expected)


# --- what an environment gives is no good -----------------------------------------------------------------------------

TREE = gs.Dict(cam=gs.Tuple([BOX, gs.Discrete(5)]), text=gs.Text(3))


def tree(**changes: Any) -> Any:
    """A value of ``TREE``, or nearly."""
    good = {"box": np.zeros(2, np.float32), "number": 1, "text": "abc"}
    parts = {**good, **changes}
    return {"cam": (parts["box"], parts["number"]), "text": parts["text"]}


BAD_OBSERVATIONS = [
    (BOX, None, ValueError, ""),
    (BOX, np.zeros(3, np.float32), ValueError, ""),
    (BOX, np.zeros((1, 2), np.float32), ValueError, ""),
    (BOX, np.float32(1), ValueError, ""),
    (BOX, "text", (ValueError, TypeError), ""),
    (gs.Box(0, 255, (2,), np.uint8), np.array([0.5, 1.0]), TypeError, ""),
    (gs.Box(0, 255, (2,), np.uint8), np.array([300, -1]), TypeError, ""),
    (gs.Discrete(5), None, TypeError, ""),
    (gs.Discrete(5), 1.5, TypeError, ""),
    (TREE, tree(box=np.zeros(3, np.float32)), ValueError, "['cam'][0]"),
    (TREE, tree(number=None), TypeError, "['cam'][1]"),
    (TREE, tree(text="too long"), ValueError, "['text']"),
    (TREE, tree(text=None), TypeError, "['text']"),
    (TREE, {"cam": (np.zeros(2, np.float32), 1)}, KeyError, ""),
    (TREE, {"cam": (np.zeros(2, np.float32),), "text": ""}, ValueError, "['cam']"),
    (gs.OneOf([BOX, gs.Discrete(5)]), (0, np.zeros(3, np.float32)), ValueError, "[0]"),
    (gs.OneOf([BOX, gs.Discrete(5)]), (2, 1), (ValueError, IndexError), ""),
]


@BOTH
@pytest.mark.parametrize("method", ["reset", "step"])
@pytest.mark.parametrize(("space", "bad", "error", "path"), BAD_OBSERVATIONS, ids=range(len(BAD_OBSERVATIONS)))
def test_a_bad_observation_is_an_error_that_names_environment_and_path(num_workers, method, space, bad, error, path):
    good = space.sample()

    class Sick(Clock):
        def __init__(self):
            super().__init__(observation_space=space, observe=lambda t: bad if self.secret == "sick" else good)

    with contextlib.closing(ShmVectorEnv([Sick] * 3, context="fork", num_workers=num_workers)) as envs:
        before, _ = envs.reset()
        envs.set_attr("secret", ["none", "sick", "none"])
        with pytest.raises(error) as caught:
            envs.reset() if method == "reset" else envs.step(zeros(3))
        text = str(caught.value)
        assert f"- at {method}()['observation']{path}, index 1" in text
        assert (caught.value.path, caught.value.index) == (f"{method}()['observation']{path}", 1)
        assert "Expected" in text
        assert "Environment 1:" in str(caught.value.__cause__)
        envs.set_attr("secret", "none")
        assert str(envs.reset()[0]) == str(before)


@pytest.mark.parametrize(("space", "bad", "error", "path"), BAD_OBSERVATIONS[:5], ids=range(5))
def test_the_class_of_the_error_is_that_of_sync_vector_env(space, bad, error, path):
    with pytest.raises(error):
        SyncVectorEnv(clocks(2, observation_space=space, observe=lambda t: bad)).reset()


@BOTH
@pytest.mark.parametrize("reward", [None, "much", [1.0, 2.0], np.zeros(2), 1j, {}])
def test_a_reward_that_is_no_number_is_an_error_that_names_environment_and_reward(num_workers, reward):
    def act(env, action):
        env.reward = (lambda t: reward) if env.secret == 2 and env.t == 0 else float

    with made(3, num_workers=num_workers, act=act) as envs:
        told_apart(envs).reset()
        with pytest.raises(TypeError, match=r"^Expected a number, got .* - at step\(\)\['reward'\], index 2"):
            envs.step(zeros(3))
        assert envs.step(zeros(3))[1].tolist() == [2, 2, 2]


@BOTH
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("method", ["reset", "step", "last step"])
@pytest.mark.parametrize("info", [None, [], [1], "text", 0, np.zeros(3), np.zeros(0)], ids=repr)
def test_an_info_that_is_no_dict_is_an_error_that_names_environment_and_info(num_workers, mode, method, info):
    def give(t):
        return info if t == (method != "reset") else {}

    episode = 1 if method == "last step" else 5
    with made(2, num_workers=num_workers, autoreset_mode=mode, info=give, episode=episode) as envs:
        name = method.rpartition(" ")[2]
        if method != "reset":
            envs.reset()
        with pytest.raises(TypeError, match=rf"^Expected a dict, got .* - at {name}\(\)\['info'\], index 1"):
            envs.reset() if method == "reset" else envs.step(zeros(2))
        assert envs.call("double", 1) == (2, 2)


class PicklesNot:
    """Can't be pickled."""

    def __reduce__(self):
        raise TypeError("not this one")


class BreaksElsewhere:
    """Can be pickled; only the process that did so can rebuild it."""

    def __init__(self):
        self.pid = os.getpid()

    def __setstate__(self, state):
        self.pid = state["pid"]
        if self.pid != os.getpid():
            raise OSError("not in this process")


class OddDict(dict):
    """Its items can be pickled, and it can not."""

    def __reduce__(self):
        raise TypeError("not this one")


#: How to make the info, in the worker; and what the caller is told of it.
INFOS = [
    (lambda: {"fine": 1, "bad": PicklesNot()}, TypeError, r"Expected info\['bad'\] of environment 1 to be picklable"),
    (lambda: {"deep": {"er": [PicklesNot()]}}, TypeError, r"Expected info\['deep'\] of environment 1 to be picklable"),
    (
        lambda: {"bad": lambda: None},
        Exception,
        r"Expected info\['bad'\] of environment 1 to be picklable, got function",
    ),
    (lambda: {"bad": (i for i in range(3))}, TypeError, r"Expected info\['bad'\] of environment 1 to be picklable"),
    (lambda: {PicklesNot(): 1}, TypeError, "not this one"),
    (lambda: {"bad": BreaksElsewhere()}, OSError, "not in this process"),
]


@pytest.mark.parametrize("method", ["reset", "step"])
@pytest.mark.parametrize(("make", "error", "text"), INFOS, ids=range(len(INFOS)))
def test_an_info_that_cannot_travel_is_an_error_that_names_environment_and_key(method, make, error, text):
    class Sick(Clock):
        def __init__(self):
            super().__init__(info=lambda t: make() if self.secret == "sick" else {})

    with contextlib.closing(ShmVectorEnv([Sick] * 2, context="fork", num_workers=2)) as envs:
        envs.reset()
        envs.set_attr("secret", ["none", "sick"])
        for _ in range(2):
            with pytest.raises(error, match=text) as caught:
                envs.reset() if method == "reset" else envs.step(zeros(2))
            assert "Environment 1:" in str(caught.value.__cause__)
        envs.set_attr("secret", "none")
        envs.reset()
        assert times(envs.step(zeros(2))[0]) == [1, 1]


def test_an_info_that_is_a_dict_of_a_kind_that_cannot_be_pickled_travels():
    with made(2, num_workers=2, info=lambda t: OddDict(fine=t, deep=OddDict(x=t))) as envs:
        envs.reset()
        infos = envs.step(zeros(2))[4]
        assert infos["fine"].tolist() == infos["deep"]["x"].tolist() == [1, 1]


def test_a_terminal_info_that_cannot_travel_is_named():
    def info(t):
        return {"bad": PicklesNot()} if t == 2 else {}

    with made(2, num_workers=1, autoreset_mode="SameStep", episode=2, info=info) as envs:
        envs.reset()
        envs.step(zeros(2))
        with pytest.raises(TypeError, match=r"Expected final_info\['bad'\] of environment 1 to be picklable"):
            envs.step(zeros(2))
        assert times(envs.step(zeros(2))[0]) == [1, 1]


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (PicklesNot, TypeError, "Expected result of environment 1 to be picklable, got PicklesNot"),
        (BreaksElsewhere, OSError, "not in this process"),
    ],
)
def test_a_result_that_cannot_travel_is_named(value, error, text):
    with made(2, num_workers=1) as envs:
        envs.reset()
        for _ in range(2):
            with pytest.raises(error, match=text):
                envs.call("apply", value)
        assert envs.call("double", 1) == (2, 2)


@pytest.mark.parametrize("method", ["step", "call", "set_attr", "reset"])
def test_an_argument_that_the_worker_cannot_rebuild_is_an_error_and_nobody_dies(method):
    argument = BreaksElsewhere()
    with made(2, num_workers=2) as envs:
        envs.reset()
        pids = envs.call("pid")
        with pytest.raises(OSError, match="not in this process"):
            {
                "step": lambda: envs.step([argument, argument]),
                "call": lambda: envs.call("double", argument),
                "set_attr": lambda: envs.set_attr("secret", argument),
                "reset": lambda: envs.reset(options={"x": argument}),
            }[method]()
        assert envs.call("pid") == pids
        assert times(envs.step(zeros(2))[0]) == [1, 1]


@pytest.mark.parametrize("method", ["step", "call", "set_attr", "reset"])
def test_an_argument_that_cannot_be_pickled_is_refused_before_anybody_is_asked(method):
    with made(2, num_workers=2) as envs:
        envs.reset()
        with pytest.raises(TypeError, match="not this one"):
            {
                "step": lambda: envs.step([0, PicklesNot()]),
                "call": lambda: envs.call("double", PicklesNot()),
                "set_attr": lambda: envs.set_attr("secret", [0, PicklesNot()]),
                "reset": lambda: envs.reset(options={"x": PicklesNot()}),
            }[method]()
        assert envs.get_attr("steps") == (0, 0)
        assert envs.get_attr("resets") == (1, 1)
        assert times(envs.step(zeros(2))[0]) == [1, 1]


@BOTH
def test_what_an_environment_says_is_no_format(num_workers):
    def fail(env: Clock, *given: Any) -> None:
        raise ArithmeticError("100% sure, 5 %d")

    with contextlib.closing(ShmVectorEnv(clocks(1, act=fail), num_workers=num_workers)) as envs:
        envs.reset()
        with pytest.raises(ArithmeticError, match=r"^100% sure, 5 %d$"):
            envs.step(zeros(1))
    envs = ShmVectorEnv(clocks(1, act_in_close=fail), num_workers=num_workers)
    with pytest.warns(UserWarning, match=r"(?s)Environment 0 raised while it was closed:\n.*100% sure, 5 %d"):
        envs.close()
    assert envs.closed


class Frozen(Exception):
    """An exception that takes no attribute, as a frozen dataclass."""

    def __setattr__(self, name, value):
        raise AttributeError("frozen")


class Unspeakable(Exception):
    """An exception of which nothing can be said."""

    @property
    def __dict__(self):
        raise RuntimeError("no attributes")


@BOTH
@pytest.mark.parametrize(
    ("cls", "args"), [(Frozen, (3,)), (Unspeakable, ("no",)), (SyntaxError, ("x", ("file", "no number", "line", 7)))]
)
def test_exceptions_of_odd_classes_are_raised_as_they_are(num_workers, cls, args):
    def fail(env: Clock, action: Any) -> None:
        if action:
            raise cls(*args)

    with contextlib.closing(ShmVectorEnv(clocks(2, act=fail), num_workers=num_workers)) as envs:
        envs.reset()
        with pytest.raises(cls) as caught:
            envs.step(np.array([0, 1]))
        assert caught.value.args == args
        assert "Environment 1:" in str(caught.value.__cause__)
        assert times(envs.step(zeros(2))[0]) == [2, 1]


@pytest.mark.parametrize("wrap", [lambda env: env, OrderEnforcing])
@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_environments_that_are_one_and_the_same_are_refused_where_they_would_step_each_other(num_workers, wrap):
    env = wrap(Clock())
    fns = [Clock, Clock, lambda: env, lambda: wrap(env)]
    with pytest.raises(ValueError, match=r"got the same one from env_fns\[2\] and env_fns\[3\]\. Write `lambda: gym"):
        ShmVectorEnv(fns, num_workers=num_workers)
    # A fork gives each worker its own.
    with contextlib.closing(ShmVectorEnv([lambda: env] * 2, num_workers=2, context="fork")) as envs:
        envs.reset()
        assert envs.get_attr("resets") == (1, 1)


class Secret(gs.Box):
    """A space that can't be pickled."""

    def __reduce__(self):
        raise RuntimeError("not this one")


def test_spaces_that_cannot_be_pickled_are_told_of_with_what_to_do():
    with pytest.raises(TypeError, match=r"can't \(not this one\)\. Where .* define custom spaces in a module that"):
        ShmVectorEnv([lambda: Clock(observation_space=Secret(0, 1, (2,)))], num_workers=1, context="fork")


def test_without_workers_options_that_cannot_be_copied_are_handed_over():
    told = []
    fns = clocks(2, act_in_reset=lambda env, seed, options: told.append(options))
    with contextlib.closing(ShmVectorEnv(fns, num_workers=0)) as envs:
        lock = threading.Lock()
        envs.reset(options={"lock": lock})
        assert told == [{"lock": lock}] * 2
        assert told[0] is not told[1]


def test_without_workers_nothing_is_pickled():
    with made(2, num_workers=0, info=lambda t: {"x": lambda: 5}) as envs:
        envs.reset()
        assert envs.step(zeros(2))[4]["x"][1]() == 5


# --- time runs out ----------------------------------------------------------------------------------------------------


def blocked_by(path: pathlib.Path, when: Any = lambda env, *arguments: True):
    """What a clock does: nothing, until ``path`` is there."""

    def act(env, *arguments):
        while when(env, *arguments) and not path.exists():
            time.sleep(0.001)

    return act


#: What is no time limit, and the error that says so.
NO_TIMEOUTS = [(math.nan, ValueError), (True, TypeError), ("3", TypeError)]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_any_time_may_be_said_in_any_number_that_is_large(num_workers):
    limits = {"step_timeout": 1e30, "start_timeout": math.inf, "restart_window": math.inf}
    with contextlib.closing(gymshm.ShmVectorEnv(clocks(2), num_workers=num_workers, **limits)) as envs:
        for timeout in (math.inf, 1e7, 1e30, 10**400, np.float32("inf"), None):
            envs.reset_async()
            assert times(envs.reset_wait(timeout=timeout)[0]) == [0, 0]
            envs.step_async(zeros(2))
            assert times(envs.step_wait(timeout=timeout)[0]) == [1, 1]
            envs.call_async("double", 4)
            assert envs.call_wait(timeout=timeout) == (8, 8)
            envs.send(zeros(2), np.arange(2))
            assert times(envs.recv(timeout=timeout)[0]) == [2, 2]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(("timeout", "error"), NO_TIMEOUTS)
def test_a_wait_whose_timeout_is_none_loses_nothing(num_workers, timeout, error):
    with made(2, num_workers=num_workers) as envs:
        asked = {
            "reset_wait": envs.reset_async,
            "step_wait": lambda: envs.step_async(zeros(2)),
            "call_wait": lambda: envs.call_async("double", 4),
            "recv": lambda: envs.send(zeros(2), np.arange(2)),
        }
        for name, ask in asked.items():
            ask()
            with pytest.raises(error, match=rf"^Expected timeout .*, or None, got {timeout!r}\.$"):
                getattr(envs, name)(timeout=timeout)
            getattr(envs, name)(timeout=60)
        assert envs.get_attr("t") == (2, 2)


@EVERY_CONTEXT
@pytest.mark.parametrize("workers", [1, 3])
def test_a_step_that_takes_too_long_can_be_waited_for_again(context, workers, tmp_path):
    act = blocked_by(tmp_path / "go", lambda env, action: action == 1)
    with made(3, context=context, num_workers=workers, act=act) as envs:
        envs.reset()
        envs.step_async(np.array([0, 1, 0]))
        for seconds in (0.05, 0.0, 1e-6):
            with pytest.raises(TimedOutError) as caught:
                envs.step_wait(timeout=seconds)
            assert str(caught.value) == f"The call to `step_wait` has timed out after {seconds} second(s)."
        with pytest.raises(Exception, match="pending call to `step`"):
            envs.step_async(zeros(3))
        (tmp_path / "go").touch()
        observations, rewards, *_ = envs.step_wait(timeout=60)
        assert times(observations) == [1, 1, 1]
        assert rewards.tolist() == [1, 1, 1]
        assert times(envs.step(zeros(3))[0]) == [2, 2, 2]


def test_no_late_reply_is_taken_for_anothers(tmp_path):
    gates = [tmp_path / str(i) for i in range(30)]

    def act(env, *arguments):
        for gate in gates[env.secret : env.secret + 1]:
            while not gate.exists():
                time.sleep(0.001)

    def info(t):
        return {"t": t, "text": "x" * (t * 100_000)}

    with made(2, act=act, act_in_reset=act, info=info) as envs:
        envs.set_attr("secret", len(gates))
        envs.reset()
        steps = 0
        for i, gate in enumerate(gates):
            envs.set_attr("secret", [i, len(gates)] if i % 2 else [len(gates), i])
            kind = ("step", "reset")[i % 5 == 4]
            if kind == "step":
                envs.step_async(zeros(2))
            else:
                envs.reset_async()
            for _ in range(i % 3):
                with pytest.raises(multiprocessing.TimeoutError):
                    getattr(envs, f"{kind}_wait")(timeout=0.001)
            gate.touch()
            observations, *_, infos = getattr(envs, f"{kind}_wait")(timeout=60)
            steps = steps + 1 if kind == "step" else 0
            assert times(observations) == [steps, steps]
            assert infos["t"].tolist() == [steps, steps]
            assert [len(text) for text in infos["text"]] == [steps * 100_000] * 2


@pytest.mark.parametrize("name", ["reset", "call"])
def test_other_calls_can_be_waited_for_again_too(name, tmp_path):
    act = blocked_by(tmp_path / "go")
    with made(2, act_in_reset=act) as envs:
        if name == "reset":
            envs.reset_async()
        else:
            envs.call_async("reset_later")
        with pytest.raises(multiprocessing.TimeoutError) as caught:
            getattr(envs, f"{name}_wait")(timeout=0.02)
        assert str(caught.value) == f"The call to `{name}_wait` has timed out after 0.02 second(s)."
        (tmp_path / "go").touch()
        getattr(envs, f"{name}_wait")(timeout=60)
        assert times(envs.step(zeros(2))[0]) == [1, 1]


def test_a_stopped_worker_is_no_dead_worker():
    with made(2) as envs:
        envs.reset()
        os.kill(envs.processes[1].pid, signal.SIGSTOP)
        envs.step_async(zeros(2))
        with pytest.raises(multiprocessing.TimeoutError):
            envs.step_wait(timeout=0.1)
        os.kill(envs.processes[1].pid, signal.SIGCONT)
        assert times(envs.step_wait(timeout=60)[0]) == [1, 1]


# --- a worker dies ----------------------------------------------------------------------------------------------------

DEATHS = {
    "SIGKILL": (
        lambda: os.kill(os.getpid(), signal.SIGKILL),
        -9,
        "SIGKILL, exit code -9: often the kernel's out-of-memory killer",
    ),
    "SIGSEGV": (FATES[SEGV], -11, "SIGSEGV, exit code -11"),  # pytest's own dump of it left out
    "SIGTERM": (lambda: os.kill(os.getpid(), signal.SIGTERM), -15, "SIGTERM, exit code -15"),
    "sys.exit": (lambda: sys.exit(3), 3, "exit code 3, as from sys.exit or os._exit"),
    "sys.exit()": (lambda: sys.exit(), 0, "exit code 0, as from sys.exit or os._exit"),
    "os._exit": (lambda: os._exit(4), 4, "exit code 4, as from sys.exit or os._exit"),
}


class Mortal(Clock):
    """Dies in the way and at the time that is said, if it is the environment that is said."""

    def __init__(self, index: int, victim: int, death: str, when: str) -> None:
        def die(env: Any, *arguments: Any) -> None:
            DEATHS[death][0]()

        mine = index == victim
        super().__init__(
            act=die if mine and when == "step" else lambda env, action: None,
            act_in_reset=die if mine and when == "reset" else lambda env, seed, options: None,
        )
        self.die = (lambda: die(self)) if mine else lambda: None
        if mine and when == "construction":
            die(self)


def mortals(n: int, **options: Any) -> list[Any]:
    return [lambda i=i: Mortal(i, **options) for i in range(n)]


def check_death(caught: Any, death: str, during: str) -> None:
    """What is told of a death of worker 1 of 3, which has environments 2 and 3 of 5."""
    error = caught.value
    _, exitcode, text = DEATHS[death]
    assert (error.worker, error.envs, error.exitcode, error.during) == (1, range(2, 4), exitcode, during)
    advice = ". Call `close()`. With on_worker_death='restart' the worker would be started anew, and all go on."
    told = f"worker 1 of 3 (environments 2-3) died ({text}) during {during}"
    assert str(error) == (told if during == "construction" else told + advice)


@pytest.mark.parametrize("death", list(DEATHS))
@pytest.mark.parametrize("when", ["construction", "reset", "step", "call"])
def test_a_worker_that_dies_is_told_of_with_all_there_is_to_tell(death, when):
    fns = mortals(5, victim=3, death=death, when=when)
    if when == "construction":
        with pytest.raises(WorkerDiedError) as caught:
            ShmVectorEnv(fns, context="fork", num_workers=3)
        check_death(caught, death, when)
        return
    with contextlib.closing(ShmVectorEnv(fns, context="fork", num_workers=3)) as envs:
        if when == "step":
            envs.reset()
        with pytest.raises(WorkerDiedError) as caught:
            {"reset": envs.reset, "step": lambda: envs.step(zeros(5)), "call": lambda: envs.call("die")}[when]()
        check_death(caught, death, when)
        for call in (envs.reset, lambda: envs.step(zeros(5)), lambda: envs.get_attr("t"), envs.step_wait):
            with pytest.raises(WorkerDiedError, match="environments 2-3"):
                call()
        processes = envs.processes
    assert not any(process.is_alive() for process in processes)
    with pytest.raises(ClosedEnvironmentError):
        envs.reset()


def test_a_death_in_a_step_is_one_of_a_step_however_the_actions_travel():
    fns = mortals(5, victim=3, death="SIGKILL", when="step")
    with contextlib.closing(ShmVectorEnv(fns, context="fork", num_workers=3)) as envs:
        envs.reset()
        with pytest.raises(WorkerDiedError) as caught:
            envs.step([0] * 5)
        check_death(caught, "SIGKILL", "step")


@EVERY_CONTEXT
@pytest.mark.parametrize("when", ["construction", "step"])
def test_that_holds_for_deaths_under_every_start_method(context, when):
    fns = mortals(5, victim=3, death="SIGKILL", when=when)
    if when == "construction":
        with pytest.raises(WorkerDiedError) as caught:
            ShmVectorEnv(fns, context=context, num_workers=3)
    else:
        with contextlib.closing(ShmVectorEnv(fns, context=context, num_workers=3)) as envs:
            envs.reset()
            with pytest.raises(WorkerDiedError) as caught:
                envs.step(zeros(5))
    check_death(caught, "SIGKILL", when)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
@pytest.mark.parametrize("wait_for_the_end", [True, False])
def test_a_death_between_steps_is_told_of_in_the_next_step(number, wait_for_the_end):
    with made(5, num_workers=3) as envs:
        envs.reset()
        envs.step(zeros(5))
        os.kill(envs.processes[1].pid, number)
        if wait_for_the_end:
            envs.processes[1].join()
        with pytest.raises(WorkerDiedError) as caught:
            envs.step(zeros(5))
        check_death(caught, number.name, "step")


@pytest.mark.parametrize("payload", [0, 8 << 20])
def test_a_death_is_told_of_whatever_is_on_its_way_to_the_worker(payload):
    with made(5, num_workers=3) as envs:
        envs.reset()
        os.kill(envs.processes[1].pid, signal.SIGKILL)
        with pytest.raises(WorkerDiedError) as caught:
            envs.call("double", bytes(payload))
        check_death(caught, "SIGKILL", "call")


def test_a_death_is_told_of_while_another_worker_is_at_work(tmp_path):
    def act(env, action):
        if env.secret == 2:
            os._exit(4)
        blocked_by(tmp_path / "never")(env)

    with made(5, num_workers=3, act=act) as envs:
        told_apart(envs).reset()
        with pytest.raises(WorkerDiedError) as caught:
            envs.step(zeros(5))
        assert caught.value.worker == 1
        envs.close(terminate=True)


def test_a_worker_that_dies_within_a_big_reply_is_told_of():
    def act(env, action):
        # The reply does not fit into the pipe, and the parent does not read: then the worker dies.
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        signal.setitimer(signal.ITIMER_REAL, 0.1)

    with made(1, num_workers=1, act=act, info=lambda t: {"big": bytes(8 << 20)} if t else {}) as envs:
        envs.reset()
        envs.step_async(zeros(1))
        envs.processes[0].join(60)
        with pytest.raises(WorkerDiedError, match="SIGKILL"):
            envs.step_wait()


def test_who_leaves_by_sys_exit_is_not_waited_for(tmp_path):
    fns = [lambda: Clock(act=lambda env, action: sys.exit(3), act_in_close=blocked_by(tmp_path / "never"))]
    with contextlib.closing(ShmVectorEnv(fns, context="fork", num_workers=1)) as envs:
        envs.reset()
        with pytest.raises(WorkerDiedError, match="during step"):
            envs.step(zeros(1))
        envs.close(timeout=0.1)


def test_the_error_pickles_with_all_of_its_facts():
    error = WorkerDiedError("text", 1, range(2, 4), -9, "step")
    copied = multiprocessing.reduction.ForkingPickler.loads(multiprocessing.reduction.ForkingPickler.dumps(error))
    assert str(copied) == "text"
    assert vars(copied) == vars(error)


# --- construction -----------------------------------------------------------------------------------------------------


def failing_fns(n: int, index: int, closed: Any = lambda env: None) -> list[Any]:
    def make(i):
        if i == index:
            raise SimError(7, "joint")
        return Clock(act_in_close=closed)

    return [lambda i=i: make(i) for i in range(n)]


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver", None])
@pytest.mark.parametrize("index", [0, 3])
def test_when_one_environment_cannot_be_built_its_exception_is_raised_and_nothing_stays(context, index):
    workers = {} if context else {"num_workers": 0}
    with pytest.raises(SimError, match="7@joint") as caught:
        ShmVectorEnv(failing_fns(4, index), context=context, **{"num_workers": 2, **workers})
    assert context is None or f"Environment {index}:" in str(caught.value.__cause__)


@BOTH
def test_the_environments_before_it_are_closed_and_what_they_raise_then_is_not_told(num_workers, tmp_path):
    def closed(env):
        (tmp_path / str(id(env))).touch()
        raise ValueError("not this one")

    with pytest.raises(SimError, match="7@joint"):
        ShmVectorEnv(failing_fns(4, 3, closed), context="fork", num_workers=min(num_workers, 1))
    assert len(list(tmp_path.iterdir())) == 3


def test_several_that_cannot_be_built_are_all_named():
    def make(i):
        raise ValueError(f"number {i}")

    with pytest.raises(ValueError, match="number") as caught:
        ShmVectorEnv([lambda i=i: make(i) for i in range(2)], context="fork", num_workers=2)
    assert "number 0" in str(caught.value.__cause__)
    assert "number 1" in str(caught.value.__cause__)


@EVERY_CONTEXT
def test_construction_that_blocks_ends_with_start_timeout(context, tmp_path):
    def make(i):
        if i == 2:
            blocked_by(tmp_path / "never")(None)
        return Clock()

    with pytest.raises(
        TimedOutError, match=r"still waiting for worker .*1 \(environments 2-3\)\. .* more than 1.0 seconds"
    ):
        ShmVectorEnv([lambda i=i: make(i) for i in range(4)], context=context, num_workers=2, start_timeout=1)


@EVERY_CONTEXT
def test_functions_that_cannot_travel_are_an_error_and_nothing_stays(context):
    generator = (i for i in range(3))

    def make():
        return Clock(observe=lambda t: next(generator))

    if context == "fork":
        with contextlib.closing(ShmVectorEnv([make], context=context, num_workers=1)) as envs:
            assert envs.call("double", 1) == (2,)  # a fork has them already
    else:
        with pytest.raises(TypeError, match="generator"):
            ShmVectorEnv([Clock, make], context=context, num_workers=2)


def test_spaces_that_cannot_travel_are_an_error_and_nothing_stays():
    class Local(gs.Discrete):
        def __reduce__(self):
            raise TypeError("not this one")

    with pytest.raises(TypeError, match="not this one"):
        ShmVectorEnv(clocks(2, action_space=Local(3)), context="fork", num_workers=1)


# --- the end ----------------------------------------------------------------------------------------------------------


@EVERY_CONTEXT
@pytest.mark.parametrize("how", [{"timeout": 0.1}, {"timeout": 0}, {"terminate": True}, {"timeout": -1.0}])
def test_close_does_not_wait_for_environments_that_are_slow_to_close(context, how, tmp_path):
    envs = clock_envs(2, context=context, act_in_close=blocked_by(tmp_path / "never"))
    processes = envs.processes
    envs.reset()
    envs.close(**how)
    assert not any(process.is_alive() for process in processes)
    envs.close(**how)


@pytest.mark.parametrize("how", [{}, {"timeout": 60}, {"timeout": math.inf}, {"timeout": 1e30}])
def test_close_lets_environments_close_in_their_time(how, tmp_path):
    def closed(env):
        time.sleep(0.05)
        (tmp_path / str(env.secret)).touch()

    envs = clock_envs(4, num_workers=2, act_in_close=closed)
    told_apart(envs)
    envs.close(**how)
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(("timeout", "error"), NO_TIMEOUTS)
def test_a_close_whose_timeout_is_none_ends_nothing_and_can_be_called_again(num_workers, timeout, error):
    envs = clock_envs(2, num_workers=num_workers)
    envs.reset()
    for options in ({}, {"terminate": True}):
        with pytest.raises(error, match=rf"^Expected timeout .*, or None, got {timeout!r}\.$"):
            envs.close(timeout=timeout, **options)
    assert times(envs.step(zeros(2))[0]) == [1, 1]
    envs.close()


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_worker_that_is_deaf_to_sigterm_is_killed(num_workers, tmp_path):
    def deafen(env, seed, options):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    for how in ({"timeout": 0.1}, {"terminate": True}):
        envs = clock_envs(2, num_workers=num_workers, act_in_reset=deafen, act_in_close=blocked_by(tmp_path / "never"))
        envs.reset()
        processes = envs.processes
        envs.close(**how)
        assert [process.exitcode for process in processes] == [-signal.SIGKILL] * num_workers


@pytest.mark.parametrize("how", [{"timeout": 0.1}, {"terminate": True}])
def test_a_worker_that_is_stopped_is_killed(how):
    envs = clock_envs(2)
    envs.reset()
    processes = envs.processes
    os.kill(processes[0].pid, signal.SIGSTOP)
    envs.close(**how)
    assert processes[0].exitcode in (-signal.SIGKILL, -signal.SIGTERM)
    assert not processes[1].is_alive()


@pytest.mark.parametrize("name", ["reset", "step", "call"])
@pytest.mark.parametrize("blocked", [True, False])
def test_close_drops_what_is_pending_and_warns(name, blocked, tmp_path):
    act = blocked_by(tmp_path / "go", lambda env, *arguments: env.secret == "blocked")
    envs = clock_envs(2, act=act, act_in_reset=act, info=lambda t: {"big": bytes(1 << 20)})
    envs.reset()
    envs.set_attr("secret", "blocked" if blocked else "free")
    getattr(envs, f"{name}_async")(*{"step": (zeros(2),), "reset": (), "call": ("reset_later",)}[name])
    processes = envs.processes
    with pytest.warns(UserWarning, match=f"Calling `close` while waiting for a pending call to `{name}` to complete"):
        envs.close(timeout=0.2)
    assert envs.closed
    assert not any(process.is_alive() for process in processes)


@BOTH
def test_what_environments_raise_while_they_are_closed_are_warnings(num_workers):
    def fail(env):
        if env.secret in (1, 2):
            raise SimError(env.secret, "joint")

    envs = clock_envs(4, num_workers=num_workers, act_in_close=fail)
    envs.set_attr("secret", [0, 1, 2, 3])
    with pytest.warns(UserWarning, match="raised while it was closed") as warned:
        envs.close()
    assert envs.closed
    told = sorted(str(warning.message) for warning in warned)
    for env, text in enumerate(told, 1):
        assert f"Environment {env} raised while it was closed:" in text
        assert f"{env}@joint" in text
    assert len(told) == 2
    envs.close()


@BOTH
def test_clean_up_does_not_replace_the_callers_own_exception(num_workers):
    def fail(env):
        raise SimError(7, "joint")

    envs = clock_envs(2, num_workers=num_workers, act_in_close=fail)

    def use():
        with contextlib.closing(envs):
            raise ZeroDivisionError

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises(ZeroDivisionError):
            use()
    assert "7@joint" in str(warned[0].message)


def test_even_where_warnings_are_errors_everything_ends():
    def fail(env):
        raise SimError(7, "joint")

    envs = clock_envs(2, act_in_close=fail)
    processes, name = envs.processes, envs.segment_name
    with pytest.raises(UserWarning, match="7@joint"):
        envs.close()
    assert envs.closed
    assert not any(process.is_alive() for process in processes)
    with pytest.raises(gymshm.SegmentNotFoundError):
        gymshm.attach(name)


def test_close_after_a_death_ends_the_others():
    envs = clock_envs(4, num_workers=4)
    processes = envs.processes
    for process in processes[:2]:
        os.kill(process.pid, signal.SIGKILL)
    envs.close()
    assert [process.exitcode for process in processes] == [-9, -9, 0, 0]


def test_the_name_is_gone_after_close():
    with made(2) as envs:
        name = envs.segment_name
        gymshm.attach(name)
    with pytest.raises(gymshm.SegmentNotFoundError):
        gymshm.attach(name)


@BOTH
@pytest.mark.parametrize("actions", [0, None, 1.5, np.int64(1), np.array(1)], ids=repr)
def test_one_action_is_no_batch_of_them(num_workers, actions):
    with made(4, num_workers=num_workers) as envs:
        envs.reset()
        with pytest.raises(TypeError, match=r"\. Expected a batch of 4 actions, got .*\."):
            envs.step(actions)
        assert envs.step(zeros(4))[1].tolist() == [1, 1, 1, 1]
