"""Who may import whom, and who alone does what: read from the source, so that no import can hide.

Whoever adds a module adds a line to ``ORDER``, behind the modules that it imports.
"""

from __future__ import annotations

import ast
import pathlib

import pytest

import gymshm

SOURCE = pathlib.Path(gymshm.__file__).parent

#: The modules, each behind all that it may import. A package stands for its modules.
ORDER = """
    _version compat errors time_limits cpus arguments tables ordering spaces space_json plan creator header
    layout tracker links backing allocation inventory segment
    values env_fns returned views dispatch create read write row_writer
    batches doorbell exchange loans failures reply info_columns infos rollout policy env_group requests snapshot
    attachment
    legacy agreement worker worker_process roster restarts crew local_crew crew_env turns turns_env probe vector_env
    factory patch __init__ cli __main__ integrations
"""

#: What one group of modules alone does.
SHARED_MEMORY = {"tracker", "links", "backing", "allocation"}
REGISTRIES = {"dispatch"}
PATCHES = {"patch"}
PROCESSES = {"worker_process", "probe", "cli"}
PICKLES_FOR_PROCESSES = {"reply"}
VERSIONS = {"compat"}


def modules():
    """Every module: its name, as it stands in ``ORDER``, its path and its syntax tree."""
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        yield parts[0], parts, ast.parse(path.read_text(), str(path))


MODULES = list(modules())
EACH_MODULE = pytest.mark.parametrize(
    ("name", "parts", "tree"), MODULES, ids=[".".join(parts) for _, parts, _ in MODULES]
)


def imported(parts, tree):
    """The modules of the package that a module imports, wherever in it, by their names in ``ORDER``."""
    package = parts[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            dotted = [alias.name for alias in node.names if alias.name.split(".")[0] == "gymshm"]
            yield from (name.split(".")[1] if "." in name else "__init__" for name in dotted)
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0 and (node.module or "").split(".")[0] != "gymshm":
                continue
            base = package[: len(package) + 1 - node.level] if node.level else ()
            told = (node.module or "").split(".") if node.level else (node.module or "").split(".")[1:]
            path = (*base, *filter(None, told))
            if path and path[0] not in ("integrations", "cli") and not _is_module(path[0]):
                yield "__init__"
            elif path:
                yield path[0]
            else:
                yield from (alias.name if _is_module(alias.name) else "__init__" for alias in node.names)


def _is_module(name):
    return (SOURCE / f"{name}.py").exists() or (SOURCE / name / "__init__.py").exists()


def names_used(tree):
    """Every name, attribute and module that stands in the code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (getattr(node, "module", None) or "").split(".")
            yield from (part for alias in node.names for part in alias.name.split("."))


def texts(tree):
    """Every text that stands in the code, docstrings left out."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    docstrings = {
        id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, documented) and _has_docstring(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def _has_docstring(node):
    return ast.get_docstring(node, clean=False) is not None


def test_every_module_has_its_place():
    assert {name for name, _, _ in MODULES} == set(ORDER.split())


@EACH_MODULE
def test_a_module_imports_from_those_above_it_alone(name, parts, tree):
    order = ORDER.split()
    allowed = order[: order.index(name)]
    wrong = set(imported(parts, tree)) - set(allowed)
    if len(parts) > 1:
        wrong.discard(name)  # within a package
    assert not wrong


@EACH_MODULE
def test_nobody_imports_an_integration(name, parts, tree):
    assert name == "integrations" or "integrations" not in set(imported(parts, tree))


@EACH_MODULE
def test_who_touches_shared_memory(name, parts, tree):
    if name in SHARED_MEMORY:
        return
    touched = {"SharedMemory", "shared_memory", "ShareableList", "resource_tracker", "ResourceTracker", "mmap"}
    found = {*touched, "_posixshmem"} & set(names_used(tree))
    # A parameter of the contract's functions has that name, and so has gymnasium's module.
    found -= {"shared_memory"} if "shared_memory" not in _multiprocessing_imports(tree) else set()
    assert not found
    assert not [text for text in texts(tree) if "/dev/shm" in text]
    assert name == "cli" or "tempfile" not in set(names_used(tree))


def _multiprocessing_imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "multiprocessing":
            yield from (alias.name for alias in node.names)
            yield from node.module.split(".")
        elif isinstance(node, ast.Import):
            yield from (
                part for alias in node.names for part in alias.name.split(".") if "multiprocessing" in alias.name
            )


FUNCTIONS = {"create_shared_memory", "read_from_shared_memory", "write_to_shared_memory"}


@EACH_MODULE
def test_who_knows_gymnasiums_registries(name, parts, tree):
    if name in REGISTRIES:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gymnasium"):
            assert not FUNCTIONS & {alias.name for alias in node.names}
        if isinstance(node, ast.Attribute) and node.attr in ("dispatch", "registry", "register"):
            owner = ast.unparse(node.value)
            assert not FUNCTIONS & set(owner.split("."))
            assert "gymnasium" not in owner
    if name not in PATCHES:
        assert not {"gymnasium_utils", "async_vector_env.create_shared_memory"} & set(names_used(tree))
        assert "gymnasium.vector.utils.shared_memory" not in {
            alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
        }


@EACH_MODULE
def test_who_starts_and_ends_processes(name, parts, tree):
    if name in PROCESSES:
        return
    assert not {"subprocess", "Popen", "fork", "forkpty", "posix_spawn"} & set(names_used(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            called = ast.unparse(node.func)
            if called == "os.kill":  # signal 0 asks whether a process is there
                assert ast.unparse(node.args[1]) == "0"
            else:
                assert node.func.attr not in ("kill", "terminate", "Process"), called


@EACH_MODULE
def test_who_pickles_for_other_processes(name, parts, tree):
    if name not in PICKLES_FOR_PROCESSES:  # by itself, ForkingPickler takes a protocol that loses arrays' byte order
        assert "ForkingPickler" not in set(names_used(tree))


@EACH_MODULE
def test_who_knows_what_older_gymnasium_lacks(name, parts, tree):
    if name in VERSIONS:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").startswith("gymnasium"):
            assert not {"AutoresetMode", "VectorEnv", "__version__"} & {alias.name for alias in node.names}
        if isinstance(node, ast.Attribute) and node.attr in ("AutoresetMode", "VectorEnv", "Discrete", "__version__"):
            called = [other for other in ast.walk(tree) if isinstance(other, ast.Call) and other.func is node]
            assert node.attr == "Discrete", ast.unparse(node)
            assert not [keyword for call in called for keyword in call.keywords if keyword.arg == "dtype"]


@EACH_MODULE
def test_no_module_has_a_name_that_says_nothing(name, parts, tree):
    assert not {"utils", "util", "helpers", "misc", "common"} & set(parts)


@EACH_MODULE
def test_headers_are_never_pickled(name, parts, tree):
    if name in ("header", "space_json", "spaces", "plan", "segment", "backing", "attachment", "views"):
        assert not {"pickle", "marshal", "cloudpickle", "eval", "exec"} & set(names_used(tree))
