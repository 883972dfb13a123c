"""``cpus``: how many CPUs this process may use."""

from __future__ import annotations

import os

import pytest

from gymshm import cpus
from gymshm.cpus import usable_cpus


@pytest.fixture
def cgroups(tmp_path, monkeypatch):
    """A host of 64 CPUs; gives a function that says which cgroups the process is in, and what their files hold."""
    monkeypatch.setattr(cpus, "_OWN_CGROUPS", str(tmp_path / "cgroup"))
    monkeypatch.setattr(cpus, "_CGROUP_MOUNTS", str(tmp_path / "mounts"))
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
def test_a_limit_of_a_cgroup_counts(cgroups, lines, files, expected):
    cgroups(lines, files)
    assert usable_cpus() == expected


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


def test_so_does_what_the_scheduler_gives_this_process(cgroups, monkeypatch):
    cgroups("0::/\n", {"cpu.max": "max 100000\n"})
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 4, 7})
    assert usable_cpus() == 3
