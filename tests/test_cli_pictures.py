"""Which arrays are pictures, how they get smaller and larger, and what a terminal and a PNG reader make of them."""

from __future__ import annotations

import os
import re
import struct
import zlib

import numpy as np
import pytest
from gymnasium import spaces as gs

from gymshm.cli.pictures import as_blocks, as_png, developer, fitted
from gymshm.spaces import outline

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
random = np.random.default_rng(5)


def box(*shape: int, low: float = 0, high: float = 255, dtype: type = np.uint8) -> gs.Box:
    return gs.Box(low, high, shape, dtype)


def pixels(*shape: int) -> np.ndarray:
    return random.integers(0, 256, shape, np.uint8)


# --- which arrays -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "part"),
    [
        ((12, 10), np.s_[:, :]),
        ((12, 10, 1), np.s_[:, :, 0]),
        ((12, 10, 3), np.s_[:, :, :]),
        ((12, 10, 4), np.s_[:, :, 3]),  # four gray frames: the newest
        ((12, 10, 12), np.s_[:, :, 9:]),  # four frames in colours
        ((1, 20, 30), np.s_[0]),
        ((4, 20, 30), np.s_[3]),
        ((4, 12, 10, 3), np.s_[3]),
        ((2, 12, 10, 1), np.s_[1, :, :, 0]),
    ],
)
def test_the_newest_frame_is_shown(shape, part):
    value = pixels(*shape)
    picture = developer(outline(box(*shape)))(value)
    assert picture.dtype == np.uint8
    assert picture.tolist() == value[part].tolist()


def test_channels_in_front_are_put_last():
    value = pixels(6, 20, 30)
    picture = developer(outline(box(6, 20, 30)))(value)
    assert picture.shape == (20, 30, 3)
    assert all((picture[..., channel] == value[3 + channel]).all() for channel in range(3))


@pytest.mark.parametrize(
    "space",
    [
        box(84),
        box(4, 84),
        box(84, 4),
        box(3, 3, 3),
        box(40, 40, 40),
        box(2, 2, 9, 9, 3),
        box(9, 9, low=-np.inf, high=np.inf, dtype=np.float32),
        box(9, 9, low=5, high=5),
        box(0, 9),
        gs.MultiDiscrete(np.full((9, 9), 3)),
        gs.Discrete(9),
        gs.Text(9),
    ],
    ids=str,
)
def test_what_is_no_picture(space):
    assert developer(outline(space)) is None


def test_a_value_of_a_size_that_only_a_forged_header_tells_is_no_picture():
    node = outline(box(9, 9))
    assert developer(type(node)(node.dtype, (1 << 40, 1 << 40), node.space)) is None


def test_parameters_that_fit_no_space_make_no_picture():
    node = outline(box(9, 9))
    assert developer(type(node)(node.dtype, node.shape, {"type": "Box"})) is None


def test_numbers_are_shades_from_the_least_to_the_greatest_bound():
    develop = developer(outline(box(5, 5, low=-1, high=1, dtype=np.float32)))
    value = np.zeros((5, 5), np.float32)
    value[0] = [-1, 1, 0.5, np.nan, 7]
    assert develop(value)[0].tolist() == [0, 255, 191, 0, 255]
    assert develop(value)[1].tolist() == [128] * 5
    assert developer(outline(gs.MultiBinary((5, 5))))(np.eye(5, dtype=np.int8)).tolist() == (np.eye(5) * 255).tolist()
    assert developer(outline(box(5, 5, high=5)))(np.full((5, 5), 2, np.uint8)).tolist() == [[102] * 5] * 5


# --- sizes ------------------------------------------------------------------------------------------------------------


def test_smaller_is_averages():
    picture = np.array([[0, 100, 10, 10], [100, 200, 10, 10], [7, 7, 0, 0], [7, 7, 0, 1]], np.uint8)
    assert fitted(picture, 2, 2).tolist() == [[100, 10], [7, 0]]
    colours = np.dstack([picture, picture, 255 - picture])
    assert fitted(colours, 2, 100)[0, 0].tolist() == [100, 100, 155]


def test_larger_is_whole_factors():
    picture = pixels(5, 7)
    assert fitted(picture, 20, 99).tolist() == picture.repeat(2, axis=0).repeat(2, axis=1).tolist()
    assert fitted(picture, 13, 99).tolist() == picture.tolist()
    assert fitted(picture, 9999, 9999).shape == (40, 56)


@pytest.mark.parametrize("shape", [(64, 64), (210, 160), (5, 300), (300, 5), (84, 84)])
@pytest.mark.parametrize("room", [(1, 1), (3, 50), (50, 3), (33, 21), (80, 60)])
def test_it_always_fits_and_keeps_its_proportions(shape, room):
    height, width = fitted(pixels(*shape, 3), *room).shape[:2]
    assert 1 <= width <= room[0]
    assert 1 <= height <= room[1]
    scale = min(room[0] / shape[1], room[1] / shape[0])
    if scale < 1:
        assert abs(height - max(1, shape[0] * scale)) < 1
        assert abs(width - max(1, shape[1] * scale)) < 1


# --- a terminal -------------------------------------------------------------------------------------------------------


def seen(lines: list[str]) -> np.ndarray:
    """What a terminal shows: two pixels to a character, -1 where its own colour is seen."""
    rows: list[list[list[int]]] = []
    for line in lines:
        upper, lower = [], []
        above = below = [-1] * 3
        for codes, character in re.findall(r"\x1b\[([0-9;]*)m|(.)", line):
            if character:
                assert character == "▀"
                upper.append(above)
                lower.append(below)
            elif codes == "0":
                above = below = [-1] * 3
            else:
                told = re.fullmatch(r"38;2;(\d+);(\d+);(\d+);(?:49|48;2;(\d+);(\d+);(\d+))", codes)
                numbers = [int(number or -1) for number in told.groups()]
                above, below = numbers[:3], numbers[3:]
        assert above == [-1] * 3  # nothing behind the picture is coloured
        rows += [upper, lower]
    return np.array(rows)


def test_two_pixels_are_one_character():
    picture = pixels(6, 9, 3)
    assert (seen(as_blocks(picture)) == picture).all()


def test_a_gray_picture_of_an_odd_height_ends_in_the_terminals_own_colour():
    picture = pixels(5, 4)
    shown = seen(as_blocks(picture))
    assert (shown[:5] == picture[..., np.newaxis]).all()
    assert (shown[5] == -1).all()


def test_colours_that_stay_are_said_once():
    (line,) = as_blocks(np.full((2, 50, 3), 9, np.uint8))
    assert line == "\x1b[38;2;9;9;9;48;2;9;9;9m" + "▀" * 50 + "\x1b[0m"


# --- PNG --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(7, 5), (7, 5, 3), (1, 1), (64, 48, 3)])
def test_a_png_reader_reads_what_was_written(shape, tmp_path):
    pygame = pytest.importorskip("pygame")
    picture = pixels(*shape)
    path = tmp_path / "picture.png"
    path.write_bytes(as_png(picture))
    surface = pygame.image.load(str(path))
    assert surface.get_size() == (shape[1], shape[0])
    for y, x in np.ndindex(shape[:2]):
        assert list(surface.get_at((x, y)))[:3] == np.broadcast_to(picture[y, x], 3).tolist()


def test_a_png_consists_of_checked_chunks():
    data = as_png(pixels(2, 3))
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    rest, names = data[8:], []
    while rest:
        (size,) = struct.unpack(">I", rest[:4])
        body, (check,) = rest[4 : 8 + size], struct.unpack(">I", rest[8 + size : 12 + size])
        assert zlib.crc32(body) == check
        names.append(body[:4])
        rest = rest[12 + size :]
    assert names == [b"IHDR", b"IDAT", b"IEND"]
