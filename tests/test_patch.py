"""patch_gymnasium: what it replaces, every order of patching and undoing, and that children need no patch."""

from __future__ import annotations

import itertools
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces as gs
from gymnasium.vector.utils import shared_memory as home

import gymshm
from environments import assert_same
from support import check_python

NAMES = {
    "AsyncVectorEnv": gymshm.ShmVectorEnv,
    "create_shared_memory": gymshm.create_shared_memory,
    "read_from_shared_memory": gymshm.read_from_shared_memory,
    "write_to_shared_memory": gymshm.write_to_shared_memory,
}
ORIGINALS = {name: getattr(gymnasium.vector.async_vector_env, name) for name in NAMES}
START_METHODS = ["fork", "spawn", "forkserver"]


@pytest.fixture(scope="module")
def places() -> list[tuple[ModuleType, str]]:
    """Wherever gymnasium has bound what is to be replaced."""
    return [
        (module, name)
        for module in [module for name, module in sys.modules.items() if name.split(".")[0] == "gymnasium"]
        for name, value in vars(module).items()
        if any(value is original for original in ORIGINALS.values())
    ]


@pytest.fixture(autouse=True)
def _ends_unpatched() -> Iterator[None]:
    yield
    assert not is_patched()


def is_patched() -> bool:
    return gymnasium.vector.AsyncVectorEnv is gymshm.ShmVectorEnv


# --- what is replaced -------------------------------------------------------------------------------------------------


def test_wherever_gymnasium_binds_the_names_ours_stand(places: list[tuple[ModuleType, str]]) -> None:
    assert {(module.__name__, name) for module, name in places} >= {
        ("gymnasium.vector", "AsyncVectorEnv"),
        ("gymnasium.vector.utils", "create_shared_memory"),
        ("gymnasium.vector.async_vector_env", "create_shared_memory"),
    }
    with gymshm.patch_gymnasium():
        for module, name in places:
            assert getattr(module, name) is NAMES[name], f"{module.__name__}.{name}"
    for module, name in places:
        assert getattr(module, name) is ORIGINALS[name], f"{module.__name__}.{name}"


def test_make_vec_of_gymnasium_makes_ours() -> None:
    with gymshm.patch_gymnasium():
        envs = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="async")
    try:
        assert type(envs) is gymshm.ShmVectorEnv
        assert str(envs) == "ShmVectorEnv(CartPole-v1, num_envs=2)"
        theirs = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
        assert_same(envs.reset(seed=1), theirs.reset(seed=1))
        actions = np.array([0, 1])
        assert_same(envs.step(actions), theirs.step(actions))
        theirs.close()
    finally:
        envs.close()


def test_a_module_that_is_imported_while_patched_takes_ours() -> None:
    text = "from gymnasium.vector import AsyncVectorEnv\nfrom gymnasium.vector.utils import create_shared_memory"
    library: dict[str, Any] = {}
    with gymshm.patch_gymnasium():
        exec(text, library)
    assert library["AsyncVectorEnv"] is gymshm.ShmVectorEnv
    assert library["create_shared_memory"] is gymshm.create_shared_memory


def test_importing_gymshm_patches_nothing() -> None:
    printed = check_python(
        """
        import gymnasium.vector as vector
        before = [dict(vars(module)) for module in (vector, vector.utils, vector.async_vector_env)]
        import gymshm, gymshm.patch
        print(before == [dict(vars(module)) for module in (vector, vector.utils, vector.async_vector_env)])
        """
    )
    assert printed == "True\n"


# --- patching and undoing ---------------------------------------------------------------------------------------------


def test_it_is_in_force_at_once_and_until_undo() -> None:
    patch = gymshm.patch_gymnasium()
    assert is_patched()
    patch.undo()
    assert not is_patched()
    assert gymnasium.vector.AsyncVectorEnv is ORIGINALS["AsyncVectorEnv"]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_several_patches_last_until_the_last_undo_in_any_order(order: tuple[int, ...]) -> None:
    patches = [gymshm.patch_gymnasium() for _ in range(3)]
    for i in order[:-1]:
        patches[i].undo()
        assert is_patched()
    patches[order[-1]].undo()
    assert not is_patched()
    assert {name: getattr(home, name) for name in NAMES if hasattr(home, name)} == {
        name: ORIGINALS[name] for name in NAMES if hasattr(home, name)
    }


def test_undoing_twice_withdraws_one_patch_only() -> None:
    first, second = gymshm.patch_gymnasium(), gymshm.patch_gymnasium()
    first.undo()
    first.undo()
    assert is_patched()
    second.undo()
    assert not is_patched()


def test_patching_again_after_undo() -> None:
    gymshm.patch_gymnasium().undo()
    with gymshm.patch_gymnasium():
        assert is_patched()


def test_as_a_context_manager_it_ends_where_the_block_does_also_by_an_exception() -> None:
    seen = []
    with pytest.raises(ZeroDivisionError), gymshm.patch_gymnasium():
        seen.append(is_patched() / 0)
    with gymshm.patch_gymnasium():
        seen.append(is_patched())
    assert seen == [True]
    assert not is_patched()


def test_what_somebody_else_put_there_before_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    class Theirs:
        pass

    monkeypatch.setattr(gymnasium.vector, "AsyncVectorEnv", Theirs)
    with gymshm.patch_gymnasium():
        assert is_patched()
    assert gymnasium.vector.AsyncVectorEnv is Theirs


def test_what_somebody_else_put_over_ours_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    class Theirs:
        pass

    monkeypatch.setattr(gymnasium.vector, "AsyncVectorEnv", ORIGINALS["AsyncVectorEnv"])  # puts it back at the end
    patch = gymshm.patch_gymnasium()
    setattr(gymnasium.vector, "AsyncVectorEnv", Theirs)  # noqa: B010
    patch.undo()
    assert gymnasium.vector.AsyncVectorEnv is Theirs
    assert gymnasium.vector.utils.create_shared_memory is ORIGINALS["create_shared_memory"]


def test_threads_that_patch_and_undo_at_random_leave_it_as_it_was() -> None:
    wrong: list[int] = []

    def work() -> None:
        for _ in range(300):
            with gymshm.patch_gymnasium():
                if not is_patched():
                    wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert not is_patched()


# --- handlers ---------------------------------------------------------------------------------------------------------


class Celsius(gs.Space[float]):
    """A space that gymnasium does not know."""


def test_handlers_on_gymnasiums_functions_go_on_working_while_patched() -> None:
    ORIGINALS["create_shared_memory"].register(Celsius, lambda space, n=1, ctx=None: [0.0] * n)
    with gymshm.patch_gymnasium():
        assert gymnasium.vector.utils.create_shared_memory(Celsius(), n=2) == [0.0, 0.0]
        nested = gymnasium.vector.utils.create_shared_memory(gs.Dict(a=Celsius()), n=2)
    assert nested["a"] == [0.0, 0.0]
    assert ORIGINALS["create_shared_memory"](Celsius(), n=1) == [0.0]


def test_a_handler_that_is_registered_while_patched_stands_on_ours() -> None:
    class Kelvin(gs.Space[float]):
        pass

    with gymshm.patch_gymnasium():
        gymnasium.vector.utils.create_shared_memory.register(Kelvin, lambda space, n=1, ctx=None: ["kelvin"] * n)
        assert gymnasium.vector.utils.create_shared_memory(Kelvin(), n=2) == ["kelvin", "kelvin"]
    assert gymshm.create_shared_memory(Kelvin(), n=1) == ["kelvin"]


# --- memory and environments that outlive a change --------------------------------------------------------------------

SPACE = gs.Dict(a=gs.Box(0, 9, (2,), np.float32), b=gs.Tuple((gs.Discrete(5), gs.MultiBinary(3))))


def test_memory_made_while_patched_works_with_gymnasiums_functions_afterwards() -> None:
    value = {"a": np.array([1, 2], np.float32), "b": (np.int64(3), np.array([1, 0, 1], np.int8))}
    with gymshm.patch_gymnasium():
        memory = gymnasium.vector.utils.create_shared_memory(SPACE, n=2)
    gymnasium.vector.utils.write_to_shared_memory(SPACE, 1, value, memory)
    batch = gymnasium.vector.utils.read_from_shared_memory(SPACE, memory, n=2)
    np.testing.assert_array_equal(batch["a"], [[0, 0], [1, 2]])
    np.testing.assert_array_equal(batch["b"][0], [0, 3])
    np.testing.assert_array_equal(batch["b"][1], [[0, 0, 0], [1, 0, 1]])


def test_an_environment_made_while_patched_works_afterwards() -> None:
    with gymshm.patch_gymnasium():
        envs = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="async")
    assert envs.reset(seed=0)[0].shape == (2, 4)
    assert envs.step(np.array([0, 1]))[0].shape == (2, 4)
    envs.close()


# --- start methods ----------------------------------------------------------------------------------------------------

PATCHED_SCRIPT = """
    import multiprocessing
    import sys

    import gymnasium as gym
    import numpy as np

    import gymshm


    def tell(queue):
        queue.put(gym.vector.AsyncVectorEnv is gymshm.ShmVectorEnv)


    if __name__ == "__main__":
        method, original = sys.argv[1], gym.vector.AsyncVectorEnv
        with gymshm.patch_gymnasium():
            envs = gym.make_vec(
                "CartPole-v1", num_envs=3, vectorization_mode="async", vector_kwargs={"context": method}
            )
            assert type(envs) is gymshm.ShmVectorEnv
            first = envs.reset(seed=5)[0]
            batch = envs.step(np.array([0, 1, 0]))[0]
            envs.close()
            # gymnasium's own class, for whoever took it earlier, over our memory.
            theirs = original([lambda: gym.make("CartPole-v1")] * 3, context=method)
            assert type(theirs) is original is not gymshm.ShmVectorEnv
            assert (theirs.reset(seed=5)[0] == first).all()
            assert (theirs.step(np.array([0, 1, 0]))[0] == batch).all()
            theirs.close()
            # Children: a fork has inherited the patch, an interpreter of its own knows nothing of it.
            context = multiprocessing.get_context(method)
            queue = context.SimpleQueue()
            child = context.Process(target=tell, args=(queue,))
            child.start()
            print(queue.get(), gym.vector.AsyncVectorEnv is gymshm.ShmVectorEnv)
            child.join()
        print(gym.vector.AsyncVectorEnv is gymshm.ShmVectorEnv)
"""


@pytest.mark.parametrize("method", START_METHODS)
def test_under_every_start_method(method: str, tmp_path: Path) -> None:
    script = tmp_path / "patched.py"
    script.write_text(textwrap.dedent(PATCHED_SCRIPT))
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(script), method],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    inherited = method == "fork"
    assert (done.returncode, done.stderr, done.stdout) == (0, "", f"{inherited} True\nFalse\n")


def test_a_forked_child_undoes_for_itself_alone() -> None:
    printed = check_python(
        """
        import os, sys
        import gymnasium as gym
        import gymshm

        patch = gymshm.patch_gymnasium()
        if os.fork() == 0:
            patch.undo()
            os._exit(0 if gym.vector.AsyncVectorEnv is not gymshm.ShmVectorEnv else 1)
        print(os.waitstatus_to_exitcode(os.wait()[1]), gym.vector.AsyncVectorEnv is gymshm.ShmVectorEnv)
        """
    )
    assert printed == "0 True\n"
