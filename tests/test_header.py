from __future__ import annotations

import hypothesis
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forgery import CREATOR, GOOD, boxes_of, lies, parsed, segment_bytes, signed, told_by
from gymshm import header
from gymshm.errors import SegmentFormatError
from gymshm.header import HEADER_SIZE, MAGIC, READY_OFFSET, VERSION
from strategies import spaces


def parse_or_none(raw):
    """The header, or None for a SegmentFormatError; any other exception is a failure."""
    try:
        return parsed(raw)
    except SegmentFormatError:
        return None


def test_what_was_built_is_parsed():
    told = parsed(segment_bytes())
    assert (told.n, told.creator, told.token) == (3, CREATOR, "token")
    assert told.data_offset % 64 == 0
    assert told.nbytes == len(segment_bytes()) == told.data_offset + told.layout.nbytes


def test_the_forger_signs_as_build_does():
    told = parsed(GOOD)
    assert parsed(signed(told_by(GOOD), told.layout.nbytes)) is not None


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "expected a header of 64 bytes, got 0 bytes in all"),
        (b"gymshm", "expected a header of 64 bytes, got 6 bytes in all"),
        (bytes(4096), "it was not made by gymshm (no magic number at its start)"),
        (b"\x7fELF" + bytes(4096), "it was not made by gymshm (no magic number at its start)"),
        (MAGIC + b"\1" + bytes(4096), f"it is of version 1, this gymshm reads {VERSION}"),
        (bytes(segment_bytes()[:READY_OFFSET]) + bytes(4096), "its creator has not finished it; try again"),
        (bytes(segment_bytes()[:-1]), "it is truncated: its header tells of"),
        (bytes(segment_bytes()[:HEADER_SIZE]), "it is truncated: its header tells of"),
        (bytes(segment_bytes()).replace(b"token", b"Token"), "its header is damaged (the digest differs)"),
        (signed(b"{"), "its header makes no sense (JSONDecodeError"),
        (signed(b'"\xff"'), "its header makes no sense (UnicodeDecodeError"),
        (signed([]), "its header makes no sense (TypeError"),
        (signed({}), "its header makes no sense (KeyError"),
    ],
)
def test_each_kind_of_damage_is_said(raw, text):
    with pytest.raises(SegmentFormatError) as caught:
        parsed(raw)
    assert f"Segment 'name' can't be read: {text}" in str(caught.value)
    assert caught.value.name == "name"


def test_a_segment_that_is_longer_than_it_says_is_fine():
    # macOS rounds up to pages.
    assert parse_or_none(segment_bytes() + bytes(100)) is not None


@given(st.binary(max_size=300))
@example(MAGIC + bytes(200))
def test_any_bytes_are_refused_in_one_way(raw):
    assert parse_or_none(raw) is None


@given(st.integers(0, len(segment_bytes())))
def test_any_truncation_is_noticed(size):
    whole = segment_bytes()
    assert (parse_or_none(whole[:size]) is None) == (size < len(whole))


JSON_END = HEADER_SIZE + header._FIXED.unpack(GOOD[:HEADER_SIZE])[2]


@given(st.lists(st.tuples(st.integers(0, JSON_END - 1), st.integers(1, 255)), min_size=1, max_size=5))
def test_any_flipped_bits_of_the_header_are_noticed(flips):
    raw = segment_bytes()
    for position, bits in flips:
        raw[position] ^= bits
    assert (parse_or_none(raw) is None) == (raw != GOOD)


HUGE = st.sampled_from([0, 1, 63, 64, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1])


@given(HUGE, HUGE, HUGE, HUGE)
def test_huge_numbers_in_front_are_refused_without_being_believed(json_size, nbytes, pid, start):
    json_size %= 2**32
    raw = header._FIXED.pack(MAGIC, VERSION, json_size, nbytes, pid, start, bytes(16), 1) + bytes(300)
    assert parse_or_none(raw) is None


@hypothesis.settings(max_examples=300)
@given(lies())
def test_a_lie_that_is_signed_is_refused_or_harmless(raw):
    check_harmless(raw)


def check_harmless(raw):
    """Whatever a header tells that is taken: all of its leaves are numbers, and lie in the segment."""
    told = parse_or_none(raw)
    if told is None:
        return
    leaves = [leaf for leaves in told.layout.leaves for leaf in leaves]
    assert told.data_offset + told.layout.nbytes == told.nbytes <= len(raw)
    assert all(0 <= leaf.offset <= leaf.offset + leaf.nbytes <= told.layout.nbytes for leaf in leaves)
    assert all(leaf.dtype.kind in "biuf" for leaf in leaves)


@pytest.mark.parametrize("n", [0, 1, 2**40, 2**70])
@pytest.mark.parametrize("shape", [[10**9], [2**62], [10**30], [0, 10**30], [1] * 70, [0] * 70, [2**31, 2**31, 0]])
def test_a_shape_of_any_size_is_refused_or_harmless(n, shape):
    check_harmless(boxes_of(shape, n))


def test_a_header_that_nests_too_deep_is_refused():
    text = b'{"n":0,"fields":[{"name":"","lead":[],"tree":' + b'{"kind":"branch","keys":null,"children":[' * 20000
    assert parse_or_none(signed(text + b"]}" * 20000 + b"}]}")) is None
    assert parse_or_none(signed(b"[" * 100000)) is None


@given(spaces(), st.integers(0, 3))
def test_headers_of_all_spaces_are_taken(space, n):
    raw = segment_bytes(space, n)
    assert parse_or_none(raw) is not None
    check_harmless(raw)
