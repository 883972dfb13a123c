"""``patch_gymnasium``: our functions and ``ShmVectorEnv`` in the place of gymnasium's, for code that can't be changed.

Rules of this file:

1. Nothing is patched unless somebody asks, and only in the process that asks. Children need no patch: what ours pickles
   names gymshm's modules, never gymnasium's. A forked child inherits the patch as it inherits everything.
2. gymnasium is patched as long as at least one patch has not been undone, whatever the order. The first saves what it
   finds, which need not be gymnasium's own; the last one to be undone puts it back.
3. What somebody else put over ours in the meantime is left alone.
"""

from __future__ import annotations

import threading
from types import ModuleType, TracebackType
from typing import Any

import gymnasium.vector
import gymnasium.vector.async_vector_env
import gymnasium.vector.utils
import gymnasium.vector.utils.shared_memory

from .create import create_shared_memory
from .read import read_from_shared_memory
from .vector_env import ShmVectorEnv
from .write import write_to_shared_memory

__all__ = ["Patch", "patch_gymnasium"]

#: Wherever gymnasium binds them. Its ``make_vec`` takes the class from ``gymnasium.vector`` at each call.
_PLACES: tuple[tuple[ModuleType, dict[str, Any]], ...] = (
    *(
        (
            module,
            {
                "create_shared_memory": create_shared_memory,
                "read_from_shared_memory": read_from_shared_memory,
                "write_to_shared_memory": write_to_shared_memory,
            },
        )
        for module in (
            gymnasium.vector.utils,
            gymnasium.vector.utils.shared_memory,
            gymnasium.vector.async_vector_env,
        )
    ),
    *((module, {"AsyncVectorEnv": ShmVectorEnv}) for module in (gymnasium.vector, gymnasium.vector.async_vector_env)),
)

_lock = threading.RLock()
_patches: set[Patch] = set()
_found: list[tuple[ModuleType, str, Any, Any]] = []  # module, name, what was there, what is there instead


class Patch:
    """One request to have gymnasium patched, in force from its creation until :meth:`undo`; a context manager."""

    def __init__(self) -> None:
        """Patches, unless another patch has done so."""
        with _lock:
            if not _patches:
                for module, names in _PLACES:
                    for name, ours in names.items():
                        _found.append((module, name, getattr(module, name), ours))
                        setattr(module, name, ours)
            _patches.add(self)

    def undo(self) -> None:
        """Withdraws the request; the last one to do so puts back what the first one found. Idempotent."""
        with _lock:
            if self not in _patches:
                return
            _patches.remove(self)
            if not _patches:
                for module, name, theirs, ours in _found:
                    if getattr(module, name) is ours:
                        setattr(module, name, theirs)
                _found.clear()

    def __enter__(self) -> Patch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.undo()


def patch_gymnasium() -> Patch:
    """Puts our three functions and ``ShmVectorEnv`` where gymnasium's functions and ``AsyncVectorEnv`` stand.

    From then on ``gymnasium.make_vec(..., vectorization_mode="async")`` and whoever takes these names from gymnasium
    get ours::

        gymshm.patch_gymnasium()            # for good
        with gymshm.patch_gymnasium():      # or as long as this block runs
            ...

    Patch first. Names that a module imported earlier (``from gymnasium.vector import AsyncVectorEnv`` at its top) stay
    what they are, and memory that gymnasium's functions made earlier can't be read through ours; memory that ours made
    can be read by gymnasium's, so that undoing is safe at any time. Handlers registered on gymnasium's functions go on
    working; those registered while they are patched stand on ours, and stay there. Only this process is patched, and
    its forks.

    Returns:
        The patch. ``undo()`` it, or use it as a context manager.
    """
    return Patch()
