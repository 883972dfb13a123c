"""What is built: wheel and sdist, what stands in them, and what they require."""

from __future__ import annotations

import email
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import check_python

ROOT = Path(__file__).parents[1]
MODULES = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src/gymshm").rglob("*.py")}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist of a copy of the project, and the wheel that was built out of the sdist."""
    for package in ("build", "hatchling", "trove_classifiers", "tomlkit"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    project, dist = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("dist")
    for name in ("src", "tests", "benchmarks", ".ci"):
        shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, project)
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(dist), str(project)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return dist


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Iterator[zipfile.ZipFile]:
    (path,) = dist.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def metadata(archive: zipfile.ZipFile) -> email.message.Message:
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(archive.read(name))


def version() -> str:
    found = re.search(r'__version__ = "(.+)"', (ROOT / "src/gymshm/_version.py").read_text())
    assert found is not None
    return found[1]


def test_the_wheel_holds_all_modules_the_type_marker_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    info = f"gymshm-{version()}.dist-info"
    assert {name for name in names if not name.startswith(f"{info}/")} == MODULES | {"gymshm/py.typed"}
    assert f"{info}/entry_points.txt" in names
    assert "gymshm = gymshm.__main__:main" in wheel.read(f"{info}/entry_points.txt").decode()


def test_it_is_a_wheel_for_every_platform(dist: Path) -> None:
    assert [path.name for path in dist.glob("*.whl")] == [f"gymshm-{version()}-py3-none-any.whl"]


def test_it_requires_numpy_and_gymnasium_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    requirements = metadata(wheel).get_all("Requires-Dist")
    assert requirements is not None
    always = [re.split(r"[^\w-]", text)[0] for text in requirements if "extra ==" not in text]
    assert sorted(always) == ["gymnasium", "numpy"]


def test_it_has_the_extras_that_are_promised(wheel: zipfile.ZipFile) -> None:
    assert set(metadata(wheel).get_all("Provides-Extra") or ()) >= {"sb3", "bench", "test"}


def test_gymnasium_brings_cloudpickle() -> None:
    requirements = importlib.metadata.requires("gymnasium") or []
    assert any(text.startswith("cloudpickle") and "extra ==" not in text for text in requirements)


def test_the_sdist_holds_sources_tests_and_benchmarks(dist: Path) -> None:
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= {f"src/{module}" for module in MODULES} | {"src/gymshm/py.typed"}
    assert names >= {"pyproject.toml", "README.md", "CHANGELOG.md", "PKG-INFO"}
    assert ".ci/run" in names  # a test reads it
    assert {name.split("/")[0] for name in names} >= {"src", "tests", "benchmarks"}
    assert not [name for name in names if name.endswith(".pyc")]


def imported_by(modules: str) -> set[str]:
    code = f"import sys, {modules}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    return set(check_python(code).split())


def test_importing_it_imports_nothing_beyond_what_it_requires() -> None:
    ours = imported_by("gymshm") - imported_by("numpy, gymnasium") - set(sys.stdlib_module_names)
    assert ours <= {"gymshm", "cloudpickle"}
