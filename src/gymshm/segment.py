"""One named segment: header, plan and data; who owns it, and when it goes.

Rules of this file (the facts behind them stand in ``backing``):

1. Every view derives from the mapping's one root array. The mapping ends with the last view: :meth:`Segment.close`
   gives up this process's own views and never unmaps under somebody else's.
2. The name is tied to the creator's root array, not to a handle: when the last view in the creator is gone, or the
   creator exits, the name is unlinked.
3. A reader trusts nothing: see ``header``.
"""

from __future__ import annotations

import secrets
import time
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import allocation, backing, inventory
from .creator import this_process
from .errors import SegmentExistsError, SegmentFormatError, SegmentNotFoundError
from .header import HEADER_SIZE, MAGIC, READY_OFFSET, Header, build, head_nbytes, parse
from .layout import entries, layout_html
from .ordering import store_fence
from .plan import Field, Leaf, plan

__all__ = ["VERSIONS", "Segment", "attach", "attach_once", "create"]

#: The field that has the versions of rows: int64, shape ``(n,)``.
VERSIONS = "versions"

#: What this process has mapped, by digest: so that a hundred handles of one segment make one mapping. Forks inherit it.
_mapped: weakref.WeakValueDictionary[bytes, Segment] = weakref.WeakValueDictionary()

#: Seconds that :func:`attach` waits for a creator that is still at work on the header.
_READY_PATIENCE = 1.0


class Segment:
    """A named segment, as this process sees it.

    Attributes:
        name: What others attach by.
        header: What it says about itself: plan, n, creator.
        writeable: Whether this process may write.
        path: The file that it is, where shared memory had no room, as others can open it; else None.
        dependents: Objects that hold views, and are told (``release()``) when this process closes the segment.
    """

    def __init__(self, named: backing.Backing, header: Header, root: np.ndarray, writeable: bool) -> None:
        """For :func:`create` and :func:`attach`."""
        self.name, self.path, self.header, self.writeable = named.name, named.path, header, writeable
        self.dependents: weakref.WeakSet[Any] = weakref.WeakSet()
        self._named = named
        self._root: np.ndarray | None = root
        self._versions: memoryview | None = None
        if writeable and self.field_number(VERSIONS) is not None:
            self._versions = self.words(VERSIONS, header.n).data

    @property
    def nbytes(self) -> int:
        """Bytes of the whole segment, header included."""
        return self.header.nbytes

    @property
    def n(self) -> int:
        """Number of environments."""
        return self.header.n

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called in this process."""
        return self._root is None

    def array(self, leaf: Leaf) -> np.ndarray:
        """The array of ``leaf``, shape ``leaf.shape``: a view, which keeps the mapping alive.

        Raises:
            ValueError: The segment is closed in this process.
        """
        if self._root is None:
            raise self.closed_error()
        # Of the root array: `buffer=` of the mapping itself would not keep it alive.
        return np.ndarray(leaf.shape, leaf.dtype, self._root, self.header.data_offset + leaf.offset)

    def field_number(self, name: str) -> int | None:
        """The number of the field called ``name``; None where there is none."""
        names = [field.name for field in self.header.layout.fields]
        return names.index(name) if name in names else None

    def words(self, name: str, *shape: int) -> np.ndarray:
        """The field ``name`` as an int64 array of ``shape``: what writers tell onlookers with.

        Raises:
            ValueError: It is something else; or the segment is closed in this process.
        """
        number = self.field_number(name)
        leaves = () if number is None else self.header.layout.leaves[number]
        if [(leaf.dtype.str, leaf.shape) for leaf in leaves] != [(np.dtype(np.int64).str, shape)]:
            raise ValueError(f"expected the field {name!r} to be int64 of shape {shape}, got {leaves}")
        return self.array(leaves[0])

    @property
    def versions(self) -> memoryview | None:
        """A number for each row, odd while the row is written and even after; None where nobody keeps them."""
        return self._versions

    def closed_error(self) -> ValueError:
        """The error for using a closed segment."""
        return ValueError(
            f"Segment {self.name!r} is closed in this process. Attach to it anew with `gymshm.attach({self.name!r})`."
        )

    def close(self) -> None:
        """Ends this process's use of the segment; arrays that it handed out stay readable. Idempotent."""
        for dependent in list(self.dependents):
            dependent.release()
        self._root = self._versions = None

    def unlink(self) -> None:
        """Removes the name: nobody can attach any more; processes that have attached go on. Idempotent."""
        self._named.unlink()

    def __repr__(self) -> str:
        """Name, size, n."""
        return f"<gymshm.Segment {self.name!r}: {self.nbytes} bytes, n={self.n}{', closed' if self.closed else ''}>"

    def _repr_html_(self) -> str:
        """The same for notebooks, and the layout."""
        return layout_html(repr(self), entries(self.header))


def create(fields: Sequence[Field], n: int, name: str | None = None) -> Segment:
    """A new segment that holds ``fields``, owned by this process.

    Args:
        fields: What it holds.
        n: Number of environments.
        name: Its name, or None for a new one.

    Raises:
        SegmentExistsError: ``name`` is in use.
        OSError: There is no room for it.
    """
    raw, header = build(plan(fields), n, this_process(), secrets.token_hex(8))
    named, root = _allocate(name, header.nbytes, raw)
    segment = Segment(named, header, root, writeable=True)
    for leaves in header.layout.leaves:
        for leaf in leaves:
            if leaf.fill:
                segment.array(leaf)[...] = leaf.fill
    # Last, and no store overtakes another here: who finds this mark finds everything.
    store_fence()
    root[READY_OFFSET : READY_OFFSET + 8].view(np.uint64)[0] = 1
    _mapped[header.digest] = segment
    return segment


def _allocate(name: str | None, nbytes: int, head: bytes) -> tuple[backing.Backing, np.ndarray]:
    """Room for a new segment: what dead creators left makes way, and where there is still none, it is in a file."""
    while True:
        try:
            return allocation.create(name, nbytes, head)
        except SegmentExistsError:
            if not inventory.sweep(name):
                raise
        except allocation.NoRoomError as error:
            if not inventory.sweep():
                return allocation.create_file(name, nbytes, head, error)


def attach(name: str, *, writeable: bool = True) -> Segment:
    """The segment that another process (or this one) made under ``name``, mapped anew.

    Args:
        name: Its name.
        writeable: False maps it read-only: the hardware refuses writes.

    Raises:
        SegmentNotFoundError: There is none.
        SegmentFormatError: It is not ours, of another version, truncated, or its header is broken.
    """
    while True:
        read, header = _read_header(name)
        named, root = backing.attach(name, writeable=writeable)
        if named.identity == read.identity:  # else the name has been given anew meanwhile
            break
    if root.nbytes < header.nbytes:
        raise SegmentFormatError(name, f"Segment {name!r} can't be read: it was truncated while it was attached to.")
    try:
        segment = Segment(named, header, root, writeable)
        for leaves in header.layout.leaves:
            for leaf in leaves:
                segment.array(leaf)
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise SegmentFormatError(name, f"Segment {name!r} can't be read: a leaf is no array ({error}).") from error
    return segment


def attach_once(name: str, digest: bytes) -> Segment:
    """The segment ``name`` that is known by ``digest``, mapped once per process: for what travels between processes.

    Raises:
        SegmentNotFoundError: It is gone; the name may lead to another one.
        SegmentFormatError: See :func:`attach`.
    """
    segment = _mapped.get(digest)
    if segment is None or segment.closed:
        segment = attach(name)
        if segment.header.digest != digest:
            raise SegmentNotFoundError(name, f"Segment {name!r} is gone; another one has taken its name since.")
        _mapped[digest] = segment
    return segment


def _read_header(name: str) -> tuple[backing.Backing, Header]:
    """What has the name, and its header; a creator that has yet to finish it is given a moment.

    The header is read and not mapped: who truncates a segment meanwhile would kill us with a SIGBUS.
    """
    deadline = time.monotonic() + _READY_PATIENCE
    while True:
        named, raw, nbytes = backing.read_head(name, HEADER_SIZE, head_nbytes)
        started = raw[: len(MAGIC)] in (b"", bytes(len(MAGIC)), MAGIC)
        if not started or any(raw[READY_OFFSET:HEADER_SIZE]) or time.monotonic() > deadline:
            break
        time.sleep(0.001)
    return named, parse(raw, name, nbytes)
