"""``failures``: exceptions come back as what they were, or are told where they can't."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import environments
from gymshm.failures import Failure, WorkerTraceback, capture, rebuild
from support import same


class OddError(Exception):
    """Its constructor takes other arguments than ``args`` has, and it says how to be pickled."""

    def __init__(self, code, where):
        super().__init__(f"{code}@{where}")
        self.code, self.where = code, where

    def __reduce__(self):
        return OddError, (self.code, self.where)


class UnbuildableError(Exception):
    """Pickles, but can't be rebuilt: its constructor takes two arguments, and ``args`` has one."""

    def __init__(self, code, where):
        super().__init__(f"{code}@{where}")


class UnpicklableError(Exception):
    def __reduce__(self):
        raise TypeError("not this one")


class UnreprableError(Exception):
    def __reduce__(self):
        raise TypeError("not this one")

    def __repr__(self):
        raise RuntimeError("no repr")


class OtherClassError(Exception):
    """Comes back as something else than it was."""

    def __reduce__(self):
        return dict, ()


def caught(error):
    try:
        raise error
    except BaseException as raised:
        return raised


def travelled(failure):
    return pickle.loads(pickle.dumps(failure))


def test_an_exception_comes_back_as_the_same_class_with_its_attributes():
    error = rebuild([travelled(capture(3, caught(OddError(7, "joint"))))])
    assert type(error) is OddError
    assert (str(error), error.code, error.where) == ("7@joint", 7, "joint")


def test_arrays_that_an_exception_carries_keep_their_byte_order():
    error = rebuild([travelled(capture(3, caught(ValueError(np.array([1.5], ">f4")))))])
    assert same(error.args[0], np.array([1.5], ">f4"))


def test_the_cause_has_the_traceback_of_the_worker():
    error = rebuild([travelled(capture(3, caught(OddError(7, "joint"))))])
    assert isinstance(error.__cause__, WorkerTraceback)
    text = str(error.__cause__)
    assert "Environment 3" in text
    assert "raise error" in text
    assert "OddError: 7@joint" in text


def test_a_class_that_is_defined_in_a_function_comes_back_too():
    class LocalError(Exception):
        pass

    error = rebuild([travelled(capture(0, caught(LocalError("here"))))])
    assert type(error).__name__ == "LocalError"
    assert error.args == ("here",)


@pytest.mark.parametrize(
    "error", [UnbuildableError(7, "joint"), UnpicklableError("7@joint"), OtherClassError("7@joint")]
)
def test_what_cannot_travel_is_told_as_a_runtime_error_with_its_repr_and_traceback(error):
    rebuilt = rebuild([travelled(capture(2, caught(error)))])
    assert type(rebuilt) is RuntimeError
    assert repr(error) in str(rebuilt)
    assert "Environment 2" in str(rebuilt)
    assert "raise error" in str(rebuilt)


def test_an_exception_whose_repr_fails_is_told_by_its_class():
    rebuilt = rebuild([travelled(capture(2, caught(UnreprableError("x"))))])
    assert type(rebuilt) is RuntimeError
    assert "UnreprableError" in str(rebuilt)


def test_an_exception_that_holds_what_cannot_travel_is_told():
    error = ValueError("holds a generator")
    error.generator = (i for i in range(3))
    rebuilt = rebuild([travelled(capture(2, caught(error)))])
    assert type(rebuilt) is RuntimeError
    assert "holds a generator" in str(rebuilt)


def test_a_class_that_the_other_process_does_not_have_is_told():
    pickled = pickle.dumps(ValueError("x")).replace(b"ValueError", b"Val_eError")
    rebuilt = rebuild([Failure(1, pickled, "Val_eError('x')", "the worker's traceback")])
    assert type(rebuilt) is RuntimeError
    assert "Val_eError('x')" in str(rebuilt)
    assert "the worker's traceback" in str(rebuilt)


def test_of_several_the_last_is_raised_and_all_are_named():
    failures = [capture(0, caught(ValueError("first"))), capture(5, caught(KeyError("second")))]
    error = rebuild(failures)
    assert type(error) is KeyError
    for part in ("Environment 0", "ValueError: first", "Environment 5", "KeyError: 'second'"):
        assert part in str(error.__cause__)


def test_keyboard_interrupt_travels():
    assert type(rebuild([travelled(capture(0, caught(KeyboardInterrupt())))])) is KeyboardInterrupt


def test_the_chain_of_an_exception_is_in_the_traceback():
    try:
        try:
            raise OSError("the real reason")
        except OSError as reason:
            raise ValueError("what is seen") from reason
    except ValueError as error:
        failure = capture(0, error)
    assert "the real reason" in str(rebuild([failure]).__cause__)


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_an_exception_of_the_script_itself_is_the_class_that_its_except_clause_names(context, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
        import environments
        import gymshm

        class SimError(Exception):
            pass

        def fail(env, action):
            raise SimError("boom")

        def make():
            return environments.Clock(act=fail)

        if __name__ == "__main__":
            envs = gymshm.ShmVectorEnv([make, make], context={context!r}, num_workers=2)
            envs.reset()
            try:
                envs.step(environments.zeros(2))
            except SimError as error:
                print("caught", error)
            envs.close()
        """)
    )
    path = os.pathsep.join([os.path.dirname(environments.__file__), os.environ.get("PYTHONPATH", "")])
    command, own = [sys.executable, str(script)], {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=own)
    assert done.stdout == "caught boom\n", done.stderr
