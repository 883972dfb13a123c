"""Hypothesis strategies: space trees of every kind that has a fixed size; values of a space, good, loose and bad."""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from types import MappingProxyType
from typing import Any

import hypothesis.strategies as st
import numpy as np
from gymnasium import spaces as gs
from hypothesis.extra import numpy as hnp

from gymshm.compat import discrete
from support import GYMNASIUM

INTEGER_DTYPES = [np.dtype(code) for code in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "q", ">i2", ">u4", ">i8")]
FLOAT_DTYPES = [np.dtype(code) for code in ("f2", "f4", "f8", "g", ">f2", ">f4", ">f8")]
BOX_DTYPES = [np.dtype("?"), *INTEGER_DTYPES, *FLOAT_DTYPES]

#: Without dimensions, without items, and plain ones.
SHAPES = [(), (0,), (1,), (3,), (2, 3), (2, 0, 2), (1, 2, 2)]

#: NUL, a letter, one of two UTF-16 units, the greatest there is, both kinds of lone surrogates, and a few more.
CHARACTERS = "\0aZ9é\n\uffff😀\U0010ffff\ud800\udfff "


class Color(enum.Enum):
    """Keys that JSON can't tell."""

    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    """Keys that are equal to integers."""

    LOW = 7


KEYS: list[Hashable] = [
    *("a", "b", "", "1", "a.b", "a/b", "['a']", "é", "\n", "\ud800", "😀", "seed", "spaces", "None"),
    *(0, 1, -1, 2**70, True, 1.0, 0.5, float("inf"), float("nan"), None, b"a", (), ("a", 1), (("a",), Color.RED)),
    *(Color.RED, Color.BLUE, Level.LOW, np.int64(5), np.str_("numpy"), frozenset({1})),
]


def boxes() -> st.SearchStrategy[gs.Box]:
    """Boxes of every dtype and shape, unbounded or with bounds of their own for each item."""

    @st.composite
    def build(draw: st.DrawFn) -> gs.Box:
        dtype, shape = draw(st.sampled_from(BOX_DTYPES)), draw(st.sampled_from(SHAPES))
        if draw(st.booleans()):
            ends = draw(hnp.arrays(dtype, (2, *shape), elements=_elements(dtype)))
            return gs.Box(np.asarray(ends.min(axis=0)), np.asarray(ends.max(axis=0)), shape, dtype)
        if dtype.kind == "f":
            return gs.Box(-np.inf, np.inf, shape, dtype)
        low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        return gs.Box(int(low), int(high), shape, dtype)

    return build()


def _elements(dtype: np.dtype[Any]) -> st.SearchStrategy[Any]:
    if dtype.kind == "f":
        return hnp.from_dtype(dtype, allow_nan=False, allow_infinity=False)
    return hnp.from_dtype(dtype)


def discretes() -> st.SearchStrategy[gs.Discrete]:
    """Discretes of every integer dtype that gymnasium's may have, with a start."""

    def build(dtype: np.dtype[Any], n: int, start: int) -> gs.Discrete:
        return discrete(n, start if dtype.kind == "i" else abs(start), dtype)

    dtypes = INTEGER_DTYPES if GYMNASIUM >= (1, 2) else [np.dtype(np.int64)]
    return st.builds(build, st.sampled_from(dtypes), st.integers(1, 20), st.integers(-100, 100))


def multi_discretes() -> st.SearchStrategy[gs.MultiDiscrete]:
    """MultiDiscretes of one and more dimensions, of every integer dtype, with a start."""

    @st.composite
    def build(draw: st.DrawFn) -> gs.MultiDiscrete:
        dtype, shape = draw(st.sampled_from(INTEGER_DTYPES)), draw(st.sampled_from([(1,), (3,), (2, 2), (1, 2, 2)]))
        nvec = draw(hnp.arrays(np.int64, shape, elements=st.integers(1, 9)))
        start = draw(hnp.arrays(np.int64, shape, elements=st.integers(-9 if dtype.kind == "i" else 0, 9)))
        return gs.MultiDiscrete(nvec, dtype=dtype, start=start)

    return build()


def multi_binaries() -> st.SearchStrategy[gs.MultiBinary]:
    """MultiBinaries of one and more dimensions."""
    return st.sampled_from([1, 8, [3], (2, 3), [1, 2, 2]]).map(gs.MultiBinary)


def texts() -> st.SearchStrategy[gs.Text]:
    """Texts of any length from 0, over sets of any characters."""

    def build(lengths: list[int], characters: list[str], sort: bool) -> gs.Text:
        charset = frozenset(characters) if sort else "".join(characters)
        return gs.Text(max(lengths), min_length=min(lengths), charset=charset)

    lengths = st.lists(st.integers(0, 5), min_size=2, max_size=2)
    # Older versions, told a character twice, read and write it by two codes.
    characters = st.lists(st.sampled_from(CHARACTERS), min_size=1, unique=GYMNASIUM < (1, 4))
    return st.builds(build, lengths, characters, st.booleans())


def leaves() -> st.SearchStrategy[gs.Space[Any]]:
    """Spaces without parts."""
    return st.one_of(boxes(), discretes(), multi_discretes(), multi_binaries(), texts())


def dicts(children: st.SearchStrategy[gs.Space[Any]]) -> st.SearchStrategy[gs.Dict]:
    """Dicts, also empty, in an order of their own, whose keys may look alike."""
    pairs = st.lists(st.tuples(st.sampled_from(KEYS), children), max_size=4, unique_by=lambda pair: pair[0])
    # Older versions compare the keys of a mapping by sorting them together with the spaces.
    mappings = st.booleans() if GYMNASIUM >= (1, 1) else st.just(False)
    return st.builds(lambda pairs, ordered: gs.Dict(OrderedDict(pairs) if ordered else pairs), pairs, mappings)


def spaces(max_leaves: int = 6) -> st.SearchStrategy[gs.Space[Any]]:
    """Space trees of any form."""

    def extend(children: st.SearchStrategy[gs.Space[Any]]) -> st.SearchStrategy[gs.Space[Any]]:
        some = st.lists(children, max_size=3)
        return st.one_of(dicts(children), some.map(gs.Tuple), st.lists(children, min_size=1, max_size=3).map(gs.OneOf))

    return st.recursive(leaves(), extend, max_leaves=max_leaves)


def values(space: gs.Space[Any]) -> st.SearchStrategy[Any]:
    """Values of ``space``, in the types in which ``space.sample()`` gives them."""
    if isinstance(space, gs.Dict):
        keys = list(space.spaces)
        return st.tuples(*map(values, space.spaces.values())).map(lambda items: dict(zip(keys, items, strict=True)))
    if isinstance(space, gs.Tuple):
        return st.tuples(*map(values, space.spaces))
    if isinstance(space, gs.OneOf):
        choices = range(len(space.spaces))
        return st.sampled_from(choices).flatmap(
            lambda chosen: values(space.spaces[chosen]).map(lambda item: (np.int64(chosen), item))
        )
    if isinstance(space, gs.Text):
        return st.text(space.character_list, min_size=space.min_length, max_size=space.max_length)
    dtype: Any = space.dtype
    if isinstance(space, gs.Discrete):
        least = int(space.start)
        return st.integers(least, least + int(space.n) - 1).map(dtype.type)
    if isinstance(space, gs.MultiBinary):
        low, high = np.zeros(space.shape, dtype), np.ones(space.shape, dtype)
    elif isinstance(space, gs.MultiDiscrete):
        low, high = space.start, space.start + (space.nvec - 1)
    else:
        low, high = space.low, space.high
    return hnp.arrays(dtype, space.shape, elements=_elements(dtype)).map(
        lambda array: np.asarray(np.minimum(np.maximum(array, low), high), dtype)
    )


@st.composite
def spaces_with_values(draw: st.DrawFn, max_rows: int = 3) -> tuple[gs.Space[Any], list[Any]]:
    """A space tree, and a list of values of it."""
    space = draw(spaces())
    return space, draw(st.lists(values(space), max_size=max_rows))


def loosened(space: gs.Space[Any], value: Any) -> st.SearchStrategy[Any]:
    """``value`` in other types that stand for the same: lists, Python's numbers, other widths and strides."""
    if isinstance(space, gs.Dict):
        keys = list(space.spaces)

        def mapping(items: tuple[Any, ...], kind: Any) -> Any:
            return kind([*zip(keys, items, strict=True), ("an extra key", None)])

        items = st.tuples(*(loosened(child, value[key]) for key, child in space.spaces.items()))
        return st.builds(mapping, items, st.sampled_from(MAPPINGS))
    if isinstance(space, gs.Tuple):
        items = st.tuples(*map(loosened, space.spaces, value))
        return st.builds(lambda items, kind: kind(items), items, SEQUENCES)
    if isinstance(space, gs.OneOf):
        chosen, item = value
        index = st.sampled_from([int, np.int8, np.array]).map(lambda kind: kind(chosen))
        pairs = st.tuples(index, loosened(space.spaces[chosen], item))
        return st.builds(lambda pair, kind: kind(pair), pairs, SEQUENCES)
    if isinstance(space, gs.Text):
        return st.sampled_from([str, np.str_]).map(lambda kind: kind(value))
    return st.sampled_from(NUMBERS).map(lambda kind: kind(np.asarray(value)))


def values_and_loosened(space: gs.Space[Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    """A value of ``space``, and the same in other types."""
    return values(space).flatmap(lambda value: st.tuples(st.just(value), loosened(space, value)))


class Items:
    """A sequence that can only be iterated over."""

    def __init__(self, items: Any) -> None:
        self._items = tuple(items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)


MAPPINGS = [dict, OrderedDict, lambda pairs: MappingProxyType(dict(pairs))]
SEQUENCES = st.sampled_from([tuple, list, Items])
NUMBERS = [
    lambda array: array.tolist() if array.size else array,
    lambda array: np.array(array, order="F"),
    lambda array: np.repeat(array, 2, axis=0)[::2] if array.ndim else array,
    lambda array: array[::-1].copy()[::-1] if array.ndim else array,
    lambda array: array.astype(array.dtype.newbyteorder("S")),
    lambda array: array.astype("f8") if array.dtype.kind == "f" and array.dtype.itemsize < 8 else array,
    lambda array: np.frombuffer(b"\0" + array.tobytes(), np.uint8)[1:].view(array.dtype).reshape(array.shape),
    lambda array: array[()] if array.ndim == 0 else list(array),
]


WRONG = [None, object(), "text", 0.5, 2**80, np.zeros(7), b"", {"x": 1}]


def bad_values(space: gs.Space[Any]) -> st.SearchStrategy[Any]:
    """Values that are none of ``space``: one thing in them is wrong, at any depth."""
    choices = [st.sampled_from([value for value in WRONG if not _fits(space, value)])]
    if isinstance(space, gs.Dict):
        for key, child in space.spaces.items():
            choices.append(_replaced(values(space), key, bad_values(child)))
            choices.append(values(space).map(lambda value, key=key: {k: v for k, v in value.items() if k is not key}))
    elif isinstance(space, gs.Tuple):
        for position, child in enumerate(space.spaces):
            choices.append(_replaced(values(space), position, bad_values(child)))
        choices.append(values(space).map(lambda value: (*value, 0)))
    elif isinstance(space, gs.OneOf):
        for position, child in enumerate(space.spaces):
            choices.append(bad_values(child).map(lambda value, position=position: (position, value)))
        choices.append(st.sampled_from([(-1, 0), (len(space.spaces), 0), (0.0, 0), (0,)]))
    elif not isinstance(space, gs.Text):
        choices.append(values(space).map(lambda value: np.asarray(value)[np.newaxis]))
    return st.one_of(choices)


def _fits(space: gs.Space[Any], value: Any) -> bool:
    """Whether ``value`` is of the form of the space all the same."""
    if isinstance(space, gs.Dict):
        return isinstance(value, dict) and not space.spaces
    if isinstance(space, gs.Text):
        return isinstance(value, str)
    return isinstance(value, float) and space.shape == () and np.dtype(space.dtype).kind == "f"


def _replaced(containers: st.SearchStrategy[Any], key: Any, items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def replace(container: Any, item: Any) -> Any:
        if isinstance(container, tuple):
            return (*container[:key], item, *container[key + 1 :])
        return {**container, key: item}

    return st.builds(replace, containers, items)
