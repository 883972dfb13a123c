"""Forged segments: bytes whose header is signed as it has to be, and tells what it should not."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces as gs
from hypothesis import strategies as st

from gymshm import header
from gymshm.creator import Creator
from gymshm.doorbell import LINE_WORDS
from gymshm.header import HEADER_SIZE, MAGIC, READY_OFFSET, VERSION, build
from gymshm.plan import Field, plan
from gymshm.spaces import outline

CREATOR = Creator(1234, 5678, "boot", "namespace")
SPACE = gs.Dict(
    [
        ("image", gs.Box(0, 255, (2, 3), np.uint8)),
        (("odd", 1), gs.Tuple([gs.Discrete(3), gs.Text(4, charset="\0ab"), gs.MultiBinary(2)])),
        ("one", gs.OneOf([gs.MultiDiscrete([2, 3]), gs.Box(-np.inf, np.inf, (), np.float64)])),
    ]
)


def segment_bytes(space: gs.Space[Any] = SPACE, n: int = 3, fields: Sequence[Field] = ()) -> bytearray:
    """The bytes of a whole segment: of a space, or of the ``fields`` given."""
    raw, told = build(plan(fields or [Field("values", (n,), outline(space))]), n, CREATOR, "token")
    segment = bytearray(told.nbytes)
    segment[: len(raw)] = raw
    segment[READY_OFFSET] = 1
    return segment


def told_by(segment: bytes) -> Any:
    """The JSON of a segment."""
    size = header._FIXED.unpack(segment[:HEADER_SIZE])[2]
    return json.loads(bytes(segment[HEADER_SIZE : HEADER_SIZE + size]))


def parsed(segment: bytes) -> header.Header:
    """What the header of a whole segment, called "name", says."""
    return header.parse(bytes(segment), "name", len(segment))


def signed(told: Any, nbytes: int = 4096) -> bytes:
    """A segment whose JSON is ``told`` (or is that text), with ``nbytes`` of data, and a digest that is right.

    There are as many bytes as it tells of, up to a megabyte.
    """
    text = told if isinstance(told, bytes) else json.dumps(told).encode()
    nbytes = min(header.align(HEADER_SIZE + len(text)) + nbytes, 2**64 - 1)
    fixed = [MAGIC, VERSION, len(text), nbytes, CREATOR.pid, CREATOR.start]
    digest = header._digest(header._FIXED.pack(*fixed, bytes(16), 0), text)
    raw = header._FIXED.pack(*fixed, digest, 1) + text
    return raw + bytes(max(0, min(nbytes, 2**20) - len(raw)))


#: What may stand where something sensible is expected.
ODD_WORDS = ["", "a", "array", "branch", "union", "coded", "foreign", "|O", "<f8", "|u1", "Box", "opaque", "versions"]
ODD_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([-1, 0, 1, 2, 3, 64, 2**31, 2**62, 2**63, 2**64, 10**30]),
    st.floats(),
    st.sampled_from([*ODD_WORDS, "observations", "lines", "turns_asked"]),
    st.text(max_size=3),
    st.sampled_from([[], {}, [[]], [0], [1, 2], {"kind": "array"}, [["str", "a"]]]),
)


def places(told: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of everything in a JSON value."""
    yield path
    items = told.items() if isinstance(told, dict) else enumerate(told) if isinstance(told, list) else ()
    for key, child in items:
        yield from places(child, (*path, key))


def changed(told: Any, path: tuple[Any, ...], value: Any) -> Any:
    """``told`` with another value at ``path``; an ellipsis takes it away."""
    told = copy.deepcopy(told)
    at = told
    for key in path[:-1]:
        at = at[key]
    if value is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return told


def consistent(told: Any, nbytes: int) -> Iterator[tuple[Any, int]]:
    """``told`` and its bytes of data: with its offsets as they were, and with those that go with its fields, if any."""
    yield told, nbytes
    try:
        layout = plan([header._field_from_json(field) for field in told["fields"]])
    except Exception:
        return
    yield {**told, "offsets": header._offsets(layout)}, layout.nbytes


def boxes_of(shape: list[int], n: int, leaves: int = 1) -> bytes:
    """A segment of Boxes of the given shape, and everything else right."""
    array = {**header.to_json(outline(gs.Box(0, 1, (1,)))), "shape": shape}
    tree = {"kind": "branch", "keys": None, "children": [array] * leaves}
    field = {"name": "values", "lead": [n], "tree": tree}
    layout = plan([header._field_from_json(field)])
    told = {"n": n, "token": "", "boot": "", "pid_namespace": "", "fields": [field]}
    told["offsets"] = header._offsets(layout)
    return signed(told, layout.nbytes)


#: Good segments: of a plain memory, of one that has versions of its rows, and of a vector environment.
GOOD = bytes(segment_bytes())
_NUMBER = outline(gs.Discrete(9))
_VERSIONED = [Field("values", (2,), outline(gs.Box(0, 1, (2,)))), Field("versions", (2,), _NUMBER)]
_EXCHANGE = [
    Field("observations", (2, 3), outline(gs.Dict(a=gs.Text(2)))),
    Field("turns_asked", (3,), _NUMBER),
    Field("turns_done", (3,), _NUMBER),
    Field("seen_slot", (1,), _NUMBER),
    Field("lines", (2, 2), outline(gs.Box(0, 1, (LINE_WORDS,), np.int64))),
]
ALL_GOOD = [GOOD, bytes(segment_bytes(n=2, fields=_VERSIONED)), bytes(segment_bytes(n=3, fields=_EXCHANGE))]


@st.composite
def lies(draw: st.DrawFn) -> bytes:
    """A good segment with one thing changed in what it says."""
    good = draw(st.sampled_from(ALL_GOOD))
    told = told_by(good)
    path = draw(st.sampled_from([path for path in places(told) if path]))
    lie = changed(told, path, draw(st.one_of(st.just(...), ODD_VALUES)))
    return signed(*draw(st.sampled_from(list(consistent(lie, parsed(good).layout.nbytes)))))
