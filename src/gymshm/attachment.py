"""``attach(name)``: a segment, its space and its arrays, for a process that has nothing but the name."""

from __future__ import annotations

import functools
import time
from os import sched_yield
from types import TracebackType
from typing import Any

from gymnasium import spaces as gs

from .batches import exact_row
from .errors import SegmentFormatError, TimedOutError
from .layout import entries, layout_html, layout_text
from .ordering import fence
from .plan import Field, plan
from .read import read_from_shared_memory
from .segment import Segment
from .segment import attach as attach_segment
from .snapshot import places
from .space_json import rebuild
from .time_limits import deadline_of, seconds
from .views import Memory, assemble, at_slot, views
from .write import checked_index, write_to_shared_memory

__all__ = ["Attachment", "attach"]

#: Bytes that one value may have beyond what its segment has (one of n=0 has no value): a space's bounds are arrays of
#: its shape, and a forged header can ask for any shape.
_SPARE = 1 << 24


class Attachment:
    """An open segment: what :func:`attach` returns. Also a context manager, which closes it.

    Attributes:
        segment: The segment; it has ``name``, ``nbytes``, ``n``, ``close()`` and ``unlink()``.
    """

    def __init__(self, segment: Segment) -> None:
        """For :func:`attach`."""
        fields = segment.header.layout.fields
        lead = fields[0].lead if fields else ()
        self._slots = lead[0] if len(lead) == 2 else 1
        if lead != (segment.n,) and (self._slots < 2 or lead[1:] != (segment.n,)):
            raise SegmentFormatError(segment.name, f"Segment {segment.name!r} has no field of {segment.n} rows.")
        self.segment = segment
        self._whole = assemble(segment)
        self._memories: dict[int, Memory] = {}
        try:
            self._places = places(segment)
        except ValueError as error:
            raise SegmentFormatError(segment.name, f"Segment {segment.name!r} can't be read: {error}.") from error

    @property
    def name(self) -> str:
        """The segment's name."""
        return self.segment.name

    @property
    def nbytes(self) -> int:
        """Bytes of the whole segment, header included."""
        return self.segment.nbytes

    @property
    def n(self) -> int:
        """Number of environments."""
        return self.segment.n

    @functools.cached_property
    def space(self) -> gs.Space[Any]:
        """The space of one environment's value, as the header tells it; it has a random state of its own.

        Custom spaces appear as the built-in space that stands for them, a part that lives elsewhere as ``Tuple(())``.

        Raises:
            SegmentFormatError: The header describes no space.
        """
        description = self.segment.header.layout.fields[0].description
        try:
            if (nbytes := plan([Field("value", (), description)]).nbytes) > self.nbytes + _SPARE:
                raise ValueError(f"one value takes {nbytes} bytes, and the segment has {self.nbytes}")
            return rebuild(description)
        except Exception as error:  # whatever gymnasium's constructors say of parameters that somebody forged
            raise SegmentFormatError(self.name, f"Segment {self.name!r} describes no space ({error}).") from error

    @property
    def memory(self) -> Memory:
        """Its tree of leaf handles, for ``read_from_shared_memory`` and ``write_to_shared_memory``.

        Of a vector environment with several slots, those of the slot that is current now: after its next step that may
        be another one. (A vector environment has slots also where it lends large observations.)

        Raises:
            ValueError: The attachment is closed, and there are slots.
        """
        return self._at(0 if self._places is None or self.n == 0 else self._places(0)[0])

    @property
    def arrays(self) -> Any:
        """The arrays themselves, shape ``(n, *shape)``, nested as the space is; text and choices as codes.

        Of a vector environment with several slots, all of them: shape ``(slots, n, *shape)``. They are views: they keep
        the mapping alive, and what the environments write appears in them. They refuse writes where the attachment is
        read-only.

        Raises:
            ValueError: The attachment is closed.
        """
        return views(self._whole)

    def read(self) -> Any:
        """The batch as ``read_from_shared_memory`` gives it: arrays are views, text and choices are decoded.

        Of a vector environment with several slots, the current one.

        Raises:
            ValueError: The attachment is closed.
        """
        return read_from_shared_memory(self.space, self.memory, self.n)

    def snapshot(self, index: int, timeout: float | None = 1.0) -> Any:
        """A copy of environment ``index``'s value that no write was at work on: never half old, half new.

        For vector environments, and for memory that was created with ``snapshots=True``; of writers, those of gymshm
        tell what they do.

        Args:
            index: The environment, in ``[0, n)``.
            timeout: Seconds to wait for a moment of calm at most; None for no limit.

        Raises:
            TimeoutError: There was none in time.
            ValueError: The writers of this segment do not tell when they write; or the attachment is closed.
            ValueError, TypeError: ``timeout`` is not a time limit.
            IndexError: ``index`` is out of range.
        """
        if self._places is None:
            raise ValueError(
                f"Segment {self.name!r} can't give consistent rows: its writers do not tell when they write. Create it "
                "with `create_shared_memory(..., snapshots=True)`."
            )
        index = checked_index(index, self._whole)
        deadline = deadline_of(seconds(timeout, "timeout", zero=True))
        while True:
            slot, state = before = self._places(index)
            if state is not None:
                fence()
                row = exact_row(self.space, self._at(slot), index)
                fence()
                if self._places(index) == before:
                    return row
            if deadline is not None and time.monotonic() > deadline:
                raise TimedOutError(
                    f"Expected a moment in which nobody writes row {index} of segment {self.name!r} within {timeout} "
                    "seconds, got none. Wait longer, or give the vector environment a second slot (`slots=2`)."
                )
            sched_yield()

    def write(self, index: int, value: Any) -> None:
        """Writes one environment's value, as ``write_to_shared_memory`` does and with its errors.

        Of a vector environment with several slots, into the current one.

        Raises:
            ValueError: The attachment is read-only, or closed; the value does not fit.
            IndexError, KeyError, TypeError: See ``write_to_shared_memory``.
        """
        if not self.segment.writeable:
            raise ValueError(f"Segment {self.name!r} is attached read-only. Attach without `read_only=True` to write.")
        write_to_shared_memory(self.space, index, value, self.memory)

    def _at(self, slot: int) -> Memory:
        """The memory of one slot; the only one is all there is."""
        if self._slots == 1:
            return self._whole
        memory = self._memories.get(slot)
        if memory is None:
            memory = self._memories[slot] = at_slot(self._whole, slot % self._slots)
        return memory

    def close(self) -> None:
        """Ends this use of the segment; arrays that were handed out stay readable. Idempotent."""
        self.segment.close()

    def __enter__(self) -> Attachment:
        """Itself."""
        return self

    def __exit__(
        self, cls: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes it."""
        self.close()

    def __repr__(self) -> str:
        """Name, size, n, and the layout of the segment."""
        return f"<gymshm.Attachment to {self.segment!r}>\n{layout_text(entries(self.segment.header))}"

    def _repr_html_(self) -> str:
        """The same for notebooks."""
        return layout_html(f"gymshm.Attachment to {self.segment!r}", entries(self.segment.header))


def attach(name: str, read_only: bool = False) -> Attachment:
    """Attaches to the segment ``name``, from any process of the same user; nothing of its contents is run or trusted.

    Attaching never changes who owns the segment: it lives on when the attacher ends, and its memory stays valid here
    when its creator ends.

    Whoever truncates a segment kills (SIGBUS) whoever reads the part that is lost, as with any mapped file; no process
    of gymshm's ever does.

    Args:
        name: ``segment_of(memory).name``, or ``ShmVectorEnv.segment_name``.
        read_only: True gives arrays that refuse writes; the mapping itself is read-only.

    Raises:
        SegmentNotFoundError: There is no segment of that name.
        SegmentFormatError: It is not ours, of another version, truncated, or its header is broken.
        ValueError, TypeError: ``name`` can't be a name.
        PermissionError: It is another user's.
    """
    return Attachment(attach_segment(name, writeable=not read_only))
