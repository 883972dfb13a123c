"""``arguments``: what is refused before anything starts, and how many workers there are."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from gymshm import ShmVectorEnv, arguments
from gymshm.arguments import (
    as_autoreset_mode,
    check_concurrency,
    check_context,
    check_flags,
    check_mode,
    not_negative,
    positive,
    seconds,
    spread_seeds,
    usable_cpus,
    workers_for,
)


@pytest.fixture
def cgroups(tmp_path, monkeypatch):
    """A host of 64 CPUs; gives a function that says which cgroups the process is in, and what their files hold."""
    monkeypatch.setattr(arguments, "_OWN_CGROUPS", str(tmp_path / "cgroup"))
    monkeypatch.setattr(arguments, "_CGROUP_MOUNTS", str(tmp_path / "mounts"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))

    def be_in(lines: str, files: dict[str, str]) -> None:
        (tmp_path / "cgroup").write_text(lines)
        for name, text in files.items():
            path = tmp_path / "mounts" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return be_in


def quota(folder: str, microseconds: int, period: int = 100000) -> dict[str, str]:
    """The files of a cgroup of version 1."""
    return {f"{folder}/cpu.cfs_quota_us": f"{microseconds}\n", f"{folder}/cpu.cfs_period_us": f"{period}\n"}


V1 = "9:name=systemd:/\n4:memory:/a/b\n3:cpuset:/tight\n2:cpu,cpuacct:/a/b\n"
HYBRID = "2:cpuacct:/tight\n1:cpu:/a/b\n0::/u\n"


@pytest.mark.parametrize(
    ("lines", "files", "expected"),
    [
        ("0::/a/b\n", {"a/b/cpu.max": "300000 100000\n"}, 3),
        ("0::/a/b\n", {"a/b/cpu.max": "200000 50000\n"}, 4),
        ("0::/a/b\n", {"a/b/cpu.max": "150000 100000\n"}, 2),  # a fraction is a worker more, not less
        ("0::/a/b\n", {"a/b/cpu.max": "10000 100000\n"}, 1),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n"}, 64),
        ("0::/a/b\n", {"a/b/cpu.max": "9900000 100000\n"}, 64),  # more than there are
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "200000 100000\n"}, 2),
        ("0::/a/b\n", {"a/b/cpu.max": "500000 100000\n", "a/cpu.max": "max 100000\n"}, 5),
        ("0::/a/b\n", {"a/b/cpu.max": "200000 100000\n", "a/cpu.max": "500000 100000\n"}, 2),
        ("0::/a/b\n", {"a/c/cpu.max": "200000 100000\n"}, 64),  # somebody else's
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/docker/host/path\n", {"cpu.max": "200000 100000\n"}, 2),  # in a container
        ("0::/../../host\n", {"cpu.max": "200000 100000\n"}, 2),  # in a cgroup namespace
        ("0::/u\n", {"unified/u/cpu.max": "700000 100000\n"}, 7),
        (V1, quota("cpu,cpuacct/a/b", 300000), 3),
        (V1, quota("cpu/a/b", 300000), 3),  # another name of the same mount
        (V1, quota("cpu,cpuacct/a/b", 250000), 3),
        (V1, quota("cpu/a/b", 200000, period=50000), 4),
        (V1, quota("cpu/a/b", -1), 64),
        (V1, {**quota("cpu/a/b", -1), **quota("cpu/a", 200000)}, 2),
        (V1, {**quota("cpu/a/b", 400000), **quota("cpu", -1)}, 4),
        (V1, quota("cpu", 200000), 2),  # in a container
        (V1, quota("cpu/tight", 100000), 64),  # the path under another controller
        (HYBRID, quota("cpu/a/b", 300000), 3),
        (HYBRID, {**quota("cpu/a/b", -1), **quota("cpu/tight", 100000)}, 64),
        (HYBRID, {**quota("cpu/a/b", 300000), "unified/u/cpu.max": "200000 100000\n"}, 2),
    ],
)
def test_a_limit_of_a_cgroup_is_a_limit_of_workers(cgroups, lines, files, expected):
    cgroups(lines, files)
    assert usable_cpus() == expected
    assert workers_for(None, 100, None) == expected


@pytest.mark.parametrize(
    ("lines", "files"),
    [
        ("0::/a\n" + V1, {}),
        ("", {"cpu.max": "200000 100000\n"}),
        ("no line of that file\n\n", {"cpu.max": "200000 100000\n"}),
        ("0::/\n", {"cpu.max": ""}),
        ("0::/\n", {"cpu.max": "200000\n"}),
        ("0::/\n", {"cpu.max": "two three\n"}),
        ("0::/\n", {"cpu.max": "200000 0\n"}),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "200000\n"}),  # and no period
        ("1:cpu:/\n", quota("cpu", 0)),
    ],
)
def test_what_tells_no_limit_is_none(cgroups, lines, files):
    cgroups(lines, files)
    assert usable_cpus() == 64


@pytest.mark.usefixtures("cgroups")
def test_without_cgroups_there_is_no_limit():
    assert usable_cpus() == 64


def test_a_limit_that_may_not_be_read_is_none(cgroups, tmp_path):
    cgroups("0::/a\n", {"cpu.max": "200000 100000\n"})
    (tmp_path / "mounts" / "a" / "cpu.max").mkdir(parents=True)
    assert usable_cpus() == 2


def test_as_many_workers_as_the_scheduler_gives_this_process_cpus(cgroups, monkeypatch):
    cgroups("0::/\n", {"cpu.max": "max 100000\n"})
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 4, 7})
    assert workers_for(None, 100, None) == 3


@pytest.mark.parametrize(
    ("num_workers", "num_envs", "max_concurrency", "expected"),
    [
        (2, 8, None, 2),
        (8, 3, None, 3),  # more would have nothing to do
        (8, 8, 5, 5),  # each worker executes one at a time
        (2, 8, 5, 2),
        (np.int64(2), 8, None, 2),
        (0, 8, None, 0),
        (0, 8, 1, 0),
    ],
)
def test_no_more_workers_than_there_are_environments_or_may_execute(num_workers, num_envs, max_concurrency, expected):
    workers = workers_for(num_workers, num_envs, max_concurrency)
    assert workers == expected
    assert type(workers) is int


@pytest.mark.usefixtures("cgroups")
def test_the_default_is_bounded_likewise():
    assert workers_for(None, 5, None) == 5
    assert workers_for(None, 100, 7) == 7


@pytest.mark.parametrize("num_workers", [-1, 1.0, 0.0, "2", "Auto", True, False, np.True_, np.float32(2)])
def test_what_is_no_number_of_workers_is_refused(num_workers):
    text = f'Expected num_workers to be None, "auto" or an integer from 0 up, got {num_workers!r}.'
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the whole text is checked
        workers_for(num_workers, 4, None)
    assert str(caught.value) == text


@pytest.mark.parametrize("value", [0, -3, 1.0, None, "1", True, np.True_])
def test_positive_names_the_argument_and_what_came(value):
    with pytest.raises(ValueError, match="Expected slots to be a positive integer, got") as caught:
        positive(value, "slots")
    assert repr(value) in str(caught.value)


def test_positive_takes_integers_of_numpy():
    assert positive(np.uint8(3), "slots") == 3
    assert type(positive(np.uint8(3), "slots")) is int


def test_not_negative_takes_0_and_names_the_argument_and_what_came():
    assert not_negative(0, "max_restarts") == 0
    assert type(not_negative(np.uint8(3), "max_restarts")) is int
    for value in (-1, 1.0, None, "3", False):
        with pytest.raises(ValueError, match="Expected max_restarts to be an integer from 0 up, got") as caught:
            not_negative(value, "max_restarts")
        assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (0.25, 0.25),
        (3, 3.0),
        (np.float32(0.5), 0.5),
        (np.int64(7), 7.0),
        (1e6, 1e6),
        (math.inf, None),
        (np.float32("inf"), None),
        (1e7, None),  # more milliseconds than poll() takes
        (1e30, None),
        (10**400, None),  # no float is as large
    ],
)
def test_a_time_limit_is_a_float_or_none_where_it_is_longer_than_anybody_waits(value, expected):
    limit = seconds(value, "timeout")
    assert limit == expected
    assert type(limit) in (float, type(None))


@pytest.mark.parametrize("value", [0, -1, -1e-9, -math.inf, math.nan, np.float64("nan")])
def test_a_time_limit_that_is_too_small_or_no_number_is_refused(value):
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the whole text is checked
        seconds(value, "step_timeout")
    assert str(caught.value) == f"Expected step_timeout above 0 seconds, or None, got {value!r}."


@pytest.mark.parametrize("value", [0, -1, -1e-9, -math.inf, -(10**400)])
def test_who_may_look_without_waiting_may_be_late(value):
    assert seconds(value, "timeout", zero=True) == 0.0


def test_nan_is_no_time_limit_there_either():
    with pytest.raises(ValueError, match=r"^Expected timeout to be a number of seconds, or None, got nan\.$"):
        seconds(math.nan, "timeout", zero=True)


@pytest.mark.parametrize("value", [True, False, np.True_, "3", 1j, [1.0]])
def test_what_is_no_number_of_seconds_is_refused(value):
    with pytest.raises(TypeError) as caught:
        seconds(value, "timeout", zero=True)
    assert str(caught.value) == f"Expected timeout to be a number of seconds, or None, got {value!r}."


def test_max_concurrency_is_none_or_a_positive_integer():
    assert check_concurrency(None) is None
    assert check_concurrency(np.int32(4)) == 4
    # gymnasium's own texts
    with pytest.raises(ValueError, match=r"^`max_concurrency` must be an integer or None, got <class 'float'>\.$"):
        check_concurrency(1.5)
    with pytest.raises(ValueError, match=r"^`max_concurrency` must be an integer or None, got <class 'bool'>\.$"):
        check_concurrency(True)
    with pytest.raises(ValueError, match=r"^`max_concurrency` must be a positive or None, got 0\.$"):
        check_concurrency(0)


@pytest.mark.parametrize("mode", ["same", "different", (Discrete(2), Box(0, 1, (2,)))])
def test_observation_modes_of_gymnasium_are_taken(mode):
    check_mode(mode)


@pytest.mark.parametrize("mode", ["other", None, (Discrete(2),), (Discrete(2),) * 3])
def test_another_observation_mode_is_refused_in_gymnasiums_words(mode):
    text = (
        "Invalid `observation_mode`, expected: 'same' or 'different' or tuple of single and batch observation space, "
        f"actual got {mode}"
    )
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the whole text is checked
        check_mode(mode)
    assert str(caught.value) == text


def test_a_pair_that_is_no_pair_of_spaces_is_refused_in_gymnasiums_words():
    text = "Expected both elements of observation_mode to be Spaces, got <class 'int'> and <class 'str'>"
    with pytest.raises(TypeError) as caught:
        check_mode((1, "x"))
    assert str(caught.value) == text


@pytest.mark.parametrize("value", [True, False, np.True_, np.False_, 0, 1])
def test_a_bool_is_one_of_numpys_too(value):
    check_flags(copy=value)


@pytest.mark.parametrize("value", ["yes", "no", "", None, 2, 1.0, [], np.zeros(1)], ids=repr)
def test_another_flag_is_refused_by_its_name(value):
    with pytest.raises(TypeError) as caught:
        check_flags(shared_memory=True, copy=value)
    assert str(caught.value) == f"Expected copy to be True or False, got {value!r}."


@pytest.mark.parametrize("flag", ["shared_memory", "copy", "daemon"])
def test_the_vector_environment_refuses_it(flag):
    with pytest.raises(TypeError, match=f"^Expected {flag} to be True or False, got 'no'"):
        ShmVectorEnv([None.__class__], num_workers=0, **{flag: "no"})


def test_another_context_is_refused_in_multiprocessings_words_and_ours_also_without_workers():
    check_context("fork")
    check_context(None)
    with pytest.raises(ValueError, match=r"^cannot find context for 'thread'\. Expected .* None or one of \[.*'spawn'"):
        ShmVectorEnv([None.__class__], context="thread", num_workers=0)


def test_another_autoreset_mode_is_refused_in_gymnasiums_words_and_ours():
    assert as_autoreset_mode("SameStep").value == "SameStep"
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the whole text is checked
        as_autoreset_mode("next_step")
    assert str(caught.value) == (
        "'next_step' is not a valid AutoresetMode. Expected autoreset_mode to be one of ['NextStep', 'SameStep', "
        "'Disabled']."
    )


def test_a_seed_is_spread_and_a_list_of_them_taken():
    assert spread_seeds(3, 3) == spread_seeds(np.int64(3), 3) == [3, 4, 5]
    assert spread_seeds((7, None, 8), 3) == [7, None, 8]
    assert spread_seeds(None, 2) == [None, None]


@pytest.mark.parametrize(
    "seed", ["a", "abc", b"abc", 1.5, iter([1, 2, 3]), np.array(3)], ids=lambda seed: type(seed).__name__
)
def test_what_is_neither_a_seed_nor_a_list_of_them_is_refused(seed):
    with pytest.raises(TypeError) as caught:
        spread_seeds(seed, 3)
    assert str(caught.value) == f"Expected seed to be an int, a sequence of 3 ints, or None, got {seed!r}."


@pytest.mark.parametrize("options", [{"slots": 3}, {"shared_memory": False}])
def test_a_batch_size_is_refused_where_there_are_no_turns(options):
    with pytest.raises(ValueError, match=r"^Expected slots=1 and observations in shared memory with a batch_size"):
        ShmVectorEnv([None.__class__] * 3, batch_size=2, num_workers=0, **options)
