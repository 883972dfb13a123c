"""The bytes in front of a segment's data: written once by the creator, trusted by nobody.

::

    0   8   magic      b"gymshm" 0 0
    8   4   version    layout of everything behind it
    12  4   json_size  bytes of JSON, from HEADER_SIZE on
    16  8   nbytes     bytes of the whole segment
    24  8   pid        the creator's process
    32  8   start      when that process started, in the system's own unit; 0 where unknown
    40  16  digest     BLAKE2 of the JSON and of the fields above; tells one creation of a name from the next
    56  8   ready      1, written after everything else
    64      JSON       n; token; boot and pid_namespace of the creator; the fields with their descriptions; the offsets
                       of the leaves of each; then the data, aligned

Rules of this file:

1. Pure: bytes in, facts out, and the other way round. No I/O.
2. :func:`parse` raises :class:`SegmentFormatError` for whatever it is given that is no header, and nothing else. It
   recomputes the plan from the description and compares it with what stands there: so no offset, size or dtype is
   ever taken on trust, and leaves can't overlap or lie outside.
3. Nothing is told twice but what tells two plans apart, the offsets: reading JSON is the most of what attaching takes.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass
from typing import Any

from .creator import Creator
from .errors import SegmentFormatError
from .plan import Field, LayoutPlan, align, plan
from .space_json import from_json, to_json

__all__ = ["HEADER_SIZE", "MAGIC", "READY_OFFSET", "VERSION", "Header", "build", "parse"]

MAGIC = b"gymshm\0\0"
VERSION = 2
_FIXED = struct.Struct("<8sIIQQQ16sQ")
HEADER_SIZE = _FIXED.size
READY_OFFSET = HEADER_SIZE - 8
_DIGEST_OFFSET = READY_OFFSET - 16


@dataclass(frozen=True)
class Header:
    """What a segment says about itself. ``data_offset`` and ``nbytes`` in bytes."""

    layout: LayoutPlan
    n: int
    creator: Creator
    token: str
    digest: bytes
    data_offset: int
    nbytes: int


def build(layout: LayoutPlan, n: int, creator: Creator, token: str) -> tuple[bytes, Header]:
    """The bytes of a header, not yet marked as ready, and what they say.

    Args:
        layout: The plan of the data.
        n: Number of environments.
        creator: This process.
        token: Random text; keeps two segments of the same name and plan apart.
    """
    text = json.dumps(
        {
            "n": n,
            "token": token,
            "boot": creator.boot,
            "pid_namespace": creator.pid_namespace,
            "fields": [_field_to_json(field) for field in layout.fields],
            "offsets": _offsets(layout),
        },
        separators=(",", ":"),
    ).encode("ascii")
    data_offset = align(HEADER_SIZE + len(text))
    nbytes = data_offset + layout.nbytes
    fixed = _FIXED.pack(MAGIC, VERSION, len(text), nbytes, creator.pid, creator.start, bytes(16), 0)
    digest = _digest(fixed, text)
    raw = fixed[:_DIGEST_OFFSET] + digest + fixed[READY_OFFSET:] + text
    return raw, Header(layout, n, creator, token, digest, data_offset, nbytes)


def head_nbytes(fixed: bytes) -> int:
    """Bytes of the whole header that starts with ``fixed``; the length of ``fixed`` itself, if that starts none."""
    if len(fixed) < HEADER_SIZE or fixed[: len(MAGIC)] != MAGIC:
        return len(fixed)
    return HEADER_SIZE + int(_FIXED.unpack(fixed)[2])


def parse(raw: bytes, name: str, size: int) -> Header:
    """What the header at the start of ``raw``, the bytes of the segment ``name``, says.

    Args:
        raw: The whole header, at least.
        name: The segment's name, for errors.
        size: Bytes of the whole segment.

    Raises:
        SegmentFormatError: It is not ours, of another version, unfinished, truncated or broken.
    """

    def broken(why: str) -> SegmentFormatError:
        return SegmentFormatError(name, f"Segment {name!r} can't be read: {why}.")

    if len(raw) < HEADER_SIZE:
        raise broken(f"expected a header of {HEADER_SIZE} bytes, got {len(raw)} bytes in all")
    magic, version, json_size, nbytes, pid, start, digest, ready = _FIXED.unpack(raw[:HEADER_SIZE])
    if magic != MAGIC:
        raise broken("it was not made by gymshm (no magic number at its start)")
    if version != VERSION:
        raise broken(f"it is of version {version}, this gymshm reads {VERSION}; use the same gymshm on both sides")
    if ready != 1:
        raise broken("its creator has not finished it; try again")
    if nbytes > size or HEADER_SIZE + json_size > nbytes:
        raise broken(f"it is truncated: its header tells of {nbytes} bytes, there are {size}")
    text = raw[HEADER_SIZE : HEADER_SIZE + json_size]
    fixed = _FIXED.pack(magic, version, json_size, nbytes, pid, start, bytes(16), 0)
    if _digest(fixed, text) != digest:
        raise broken("its header is damaged (the digest differs)")
    try:
        told = json.loads(text)
        fields = [_field_from_json(field) for field in told["fields"]]
        layout, n = plan(fields), _count(told["n"])
        creator = Creator(pid, start, str(told["boot"]), str(told["pid_namespace"]))
        data_offset = align(HEADER_SIZE + json_size)
        if _offsets(layout) != told["offsets"]:
            raise ValueError("the leaves are not where the description puts them")
        if data_offset + layout.nbytes != nbytes:
            raise ValueError(f"{layout.nbytes} bytes from {data_offset} on do not end at {nbytes}")
        return Header(layout, n, creator, str(told["token"]), digest, data_offset, nbytes)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError, MemoryError, IndexError) as error:
        raise broken(f"its header makes no sense ({type(error).__name__}: {error})") from error


def _digest(fixed: bytes, text: bytes) -> bytes:
    return hashlib.blake2b(fixed + text, digest_size=16).digest()


def _field_to_json(field: Field) -> Any:
    return {"name": field.name, "lead": list(field.lead), "tree": to_json(field.description)}


def _field_from_json(obj: Any) -> Field:
    return Field(str(obj["name"]), tuple(_count(length) for length in obj["lead"]), from_json(obj["tree"]))


def _offsets(layout: LayoutPlan) -> list[list[int]]:
    return [[leaf.offset for leaf in leaves] for leaves in layout.leaves]


def _count(obj: Any) -> int:
    if type(obj) is not int or obj < 0:
        raise ValueError(f"{obj!r} is no count")
    return int(obj)
