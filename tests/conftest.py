"""The leak guard around every test, and hypothesis's profiles."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing import forkserver, resource_tracker
from typing import Any

import hypothesis
import pytest
from gymnasium.spaces import Discrete

import gymshm
from gymshm import backing, dispatch, links
from gymshm.header import HEADER_SIZE, MAGIC
from gymshm.spaces import describe
from support import wait_until

hypothesis.settings.register_profile("tests", deadline=None, database=None, derandomize=True, max_examples=60)
hypothesis.settings.register_profile("fast", parent=hypothesis.settings.get_profile("tests"), max_examples=10)
hypothesis.settings.register_profile(
    "long", parent=hypothesis.settings.get_profile("tests"), derandomize=False, max_examples=2000
)
#: HYPOTHESIS_PROFILE=fast for a quick look, =long for a night.
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tests"))


def pytest_configure() -> None:
    """Undoes what ``nohup`` does: tests send that signal, and children inherit that it is ignored."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def _servants() -> None:
    """Starts what stays for the whole session: the resource tracker."""
    gymshm.create_shared_memory(Discrete(2), n=1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[Any]:
    """Remembers a failure: its traceback keeps objects alive, which then are no leak."""
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


_FAILED = pytest.StashKey[bool]()


@pytest.fixture(autouse=True)
def leak_guard(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test opens is closed when it ends: segments, descriptors, processes, threads."""
    before = {kind: look() for kind, look in _LOOKS.items()}
    yield
    if request.node.stash.get(_FAILED, False):
        return

    def left() -> dict[str, Any]:
        return {kind: new for kind, look in _LOOKS.items() if (new := _ours(kind, look() - before[kind]))}

    if not left():
        return
    gc.collect()
    try:
        wait_until(lambda: not left(), 10.0)
    except AssertionError:
        pytest.fail(f"left behind: {left()}")


@pytest.fixture
def registries() -> Iterator[None]:
    """Afterwards all functions know the handlers again that they knew before; ``describe``, its rules."""
    functions: list[Any] = [describe, dispatch._gymnasium_iterate]
    functions += [function._ours for function in dispatch._functions]
    functions += [function._theirs for function in dispatch._functions]
    before = [dict(function.registry) for function in functions]
    yield
    for function, handlers in zip(functions, before, strict=True):
        (registry,) = gc.get_referents(function.registry)  # what the read-only view is a view of
        registry.clear()
        registry.update(handlers)
        function._clear_cache()
    for function in dispatch._functions:
        function.plain.update(function._built_in)
        function.refresh()


def _segments() -> set[str]:
    return set(backing.names(MAGIC))


def _descriptors() -> set[tuple[str, str]]:
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found.add((descriptor, os.readlink(f"/proc/self/fd/{descriptor}")))
        except FileNotFoundError:
            continue  # the listing's own
    return found


def _processes() -> set[int]:
    """The children of this process, the dead ones that nobody waited for included."""
    found: set[int] = set()
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/self/task/{thread}/children") as file:
            found.update(map(int, file.read().split()))
    return found


def _threads() -> set[threading.Thread]:
    return set(threading.enumerate())


_LOOKS = {"segments": _segments, "descriptors": _descriptors, "processes": _processes, "threads": _threads}


def _ours(kind: str, new: set[Any]) -> set[Any]:
    """``new`` without what other processes of this machine do, and what multiprocessing keeps for good."""
    if kind == "segments":
        return {name for name in new if _is_ours(name)}
    server: Any = forkserver._forkserver  # type: ignore[attr-defined]
    tracker: Any = resource_tracker._resource_tracker  # type: ignore[attr-defined]
    if kind == "descriptors":
        kept = {str(server._forkserver_alive_fd), str(tracker._fd)}
        # "pym-": the heap of multiprocessing.Array, which gymnasium's own functions use
        return {(number, target) for number, target in new if number not in kept and "/pym-" not in target}
    if kind == "processes":
        return new - {server._forkserver_pid, tracker._pid}
    return new


def _is_ours(name: str) -> bool:
    """Whether a segment was made by this process, by one that it started, or by one that is gone."""
    try:
        # Read and not mapped: it may be another session's, who may truncate it at any moment.
        with open(os.path.join(links.SHM_DIRECTORY, name), "rb") as file:
            raw = file.read(HEADER_SIZE)
    except OSError:
        return False  # gone meanwhile
    pid: int | None = int.from_bytes(raw[24:32], "little")
    if _parent(pid) is None:
        return True
    while pid not in (None, 0, os.getpid()):
        pid = _parent(pid)
    return bool(pid)


def _parent(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return None
