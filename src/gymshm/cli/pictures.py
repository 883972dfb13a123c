"""Arrays as pictures: which of them are some, and their way to a terminal and into a PNG file. Pure.

A picture is uint8, of shape (height, width) where it is gray, (height, width, 3) where it has colours.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from gymnasium import spaces as gs

from ..space_json import rebuild_leaf
from ..spaces import Array, Description

__all__ = ["Picture", "as_blocks", "as_png", "developer", "fitted"]

Picture: TypeAlias = np.ndarray

#: A picture has this many pixels each way at least, and this many channels (of stacked frames, too) at most.
_LEAST_SIDE, _MOST_CHANNELS = 5, 16

#: How much larger than it is a picture is shown at most.
_MOST_ZOOM = 8


def developer(node: Description) -> Callable[[np.ndarray], Picture] | None:
    """A function that makes a picture of one environment's value; None where it is none.

    Pictures are what ``Box`` and ``MultiBinary`` describe with finite bounds, and two dimensions, or three: channels
    last or first, or four: a stack of those. Of stacked frames the last is shown, for that is the newest.
    """
    if not isinstance(node, Array) or len(node.shape) not in (2, 3, 4) or 0 in node.shape:
        return None
    shape = node.shape[-3:]
    channels_last = len(shape) == 2 or shape[2] <= _MOST_CHANNELS
    if not channels_last and shape[0] > _MOST_CHANNELS:
        return None
    height, width = shape[:2] if channels_last else shape[1:]
    bounds = _bounds(node)
    if min(height, width) < _LEAST_SIDE or bounds is None:
        return None
    low, high = bounds

    def develop(value: np.ndarray) -> Picture:
        value = value[-1] if value.ndim == 4 else value
        if value.ndim == 3:
            value = value if channels_last else np.moveaxis(value, 0, 2)
            value = value[..., -3:] if value.shape[2] % 3 == 0 else value[..., -1]
        if value.dtype != np.uint8 or (low, high) != (0, 255):
            with np.errstate(all="ignore"):  # who shows what others wrote must not complain of it
                shares = (value.astype(np.float64) - low) / (high - low)
            value = np.nan_to_num(shares * 255).clip(0, 255).round().astype(np.uint8)
        return value

    return develop


def _bounds(node: Array) -> tuple[float, float] | None:
    """The least and the greatest number that a value may have; None where there are none, or not two."""
    space = rebuild_leaf(node)
    if isinstance(space, gs.MultiBinary):
        return 0.0, 1.0
    if not isinstance(space, gs.Box):
        return None
    low, high = float(space.low.min()), float(space.high.max())
    return (low, high) if np.isfinite([low, high]).all() and low < high else None


def fitted(picture: Picture, width: int, height: int) -> Picture:
    """``picture`` in its proportions, as large as fits: made smaller by averages, larger by whole factors.

    Args:
        picture: The picture.
        width: Pixels there are, from 1 up.
        height: Pixels there are, from 1 up.
    """
    has = picture.shape[:2]
    if has[0] <= height and has[1] <= width:
        zoom = max(1, min(height // has[0], width // has[1], _MOST_ZOOM))
        return picture.repeat(zoom, axis=0).repeat(zoom, axis=1)
    scale = min(height / has[0], width / has[1])
    result = picture.astype(np.float64)
    for axis in (0, 1):
        wanted = max(1, int(has[axis] * scale))
        starts = np.arange(wanted) * has[axis] // wanted
        counts = np.diff([*starts, has[axis]])
        sums = np.add.reduceat(result, starts, axis=axis)
        result = sums / counts.reshape([-1 if number == axis else 1 for number in range(result.ndim)])
    return result.round().astype(np.uint8)


def as_blocks(picture: Picture) -> list[str]:
    """``picture`` as lines for a terminal of 24-bit colours: each character is two pixels, one above the other."""
    colours = np.broadcast_to(picture.reshape(*picture.shape[:2], -1), (*picture.shape[:2], 3)).tolist()
    if len(colours) % 2:
        colours.append([None] * len(colours[0]))
    return [_line(upper, lower) for upper, lower in zip(colours[::2], colours[1::2], strict=True)]


def _line(upper: list[list[int]], lower: list[list[int] | None]) -> str:
    parts: list[str] = []
    before = None
    for above, below in zip(upper, lower, strict=True):
        if (above, below) != before:
            behind = "49" if below is None else "48;2;{};{};{}".format(*below)
            parts.append("\x1b[38;2;{};{};{};{}m".format(*above, behind))
            before = above, below
        parts.append("\N{UPPER HALF BLOCK}")
    return f"{''.join(parts)}\x1b[0m"


def as_png(picture: Picture) -> bytes:
    """``picture`` as the contents of a PNG file."""
    height, width = picture.shape[:2]
    kind = 0 if picture.ndim == 2 else 2  # gray, or red, green and blue; 8 bits of each
    head = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    # In front of each line stands how it was filtered: not at all.
    lines = np.zeros((height, 1 + picture[0].size), np.uint8)
    lines[:, 1:] = picture.reshape(height, -1)
    data = zlib.compress(lines.tobytes())
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
