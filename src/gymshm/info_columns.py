"""Numeric infos without pickling: keys that recur with the same types get a column of the segment.

Many environments give the same few numbers in each step (MuJoCo's reward terms, Atari's lives). A worker that sees the
same keys with the same numeric types for the second time makes that its *schema*, tells the parent once, and from then
on stores the values: one array of ``n`` numbers per key, which is also the form that gymnasium's batching wants. An
info that does not fit the schema travels as before, and so does everything of a step that is not numbers.

What comes out is, byte for byte, what ``VectorEnv._add_info`` makes of the infos one by one: values, dtypes, masks
(``_key``), and the order of keys. (But for one thing: a key that is equal to one of the schema and of a subclass of
``str`` comes out as that ``str``.)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .exchange import Exchange
from .reply import ALL_IN_COLUMNS, Reply, Schema

__all__ = ["ColumnReader", "ColumnWriter"]

#: Types whose every value survives a column, and the kind of column: gymnasium makes arrays of just these types.
_COLUMN_KINDS: dict[type, str] = {
    float: "floats",
    np.float64: "floats",
    np.float32: "floats",
    np.float16: "floats",
    int: "integers",
    bool: "integers",
    **dict.fromkeys((np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32), "integers"),
}

#: How often a new schema has to be seen, per environment, before it replaces one that has not fitted since.
_PATIENCE = 4

#: How many schemas a worker counts before it begins anew: there may be no end of them.
_MOST_CANDIDATES = 8


class ColumnWriter:
    """A worker's side.

    Args:
        exchange: Has the columns.
        envs: The worker's environments.
    """

    def __init__(self, exchange: Exchange, envs: range) -> None:
        """Knows no schema yet."""
        own = slice(envs.start, envs.stop)
        self._free = {kind: [column[own].data for column in columns] for kind, columns in exchange.info_columns.items()}
        self._patience = _PATIENCE * len(envs)
        self._columns: list[Any] = []
        self._keys: tuple[str, ...] | None = None
        self._types: tuple[type, ...] = ()
        # How often what could be a schema was seen; none while the one in use fits.
        self._seen: dict[Schema, int] = {}

    def store(self, i: int, info: dict[str, Any]) -> bool:
        """Whether ``info`` of the worker's environment ``i`` now stands in the columns."""
        if tuple(info) == self._keys:
            try:
                for value, cls, column in zip(info.values(), self._types, self._columns):  # noqa: B905  # the hot loop
                    if type(value) is not cls:
                        break
                    column[i] = value
                else:
                    if self._seen:
                        self._seen.clear()
                    return True
            except ValueError:
                pass  # an int beyond 64 bits
        return False

    def propose(self, info: dict[str, Any]) -> Schema | None:
        """Considers an info that did not fit; a new schema, if this makes one, for the caller to :meth:`adopt`."""
        schema = (tuple(info), tuple(map(type, info.values())))
        seen = self._seen
        if schema not in seen and len(seen) == _MOST_CANDIDATES:
            seen.clear()
        seen[schema] = seen.get(schema, 0) + 1
        if seen[schema] < (2 if self._keys is None else self._patience):
            return None
        kinds = [_COLUMN_KINDS.get(cls) for cls in schema[1]]
        # gymnasium gives "final_obs" an array of objects, and each key "x" a mask "_x", which may be a key of its own.
        if "final_obs" in schema[0] or not {f"_{key}" for key in schema[0]}.isdisjoint(schema[0]):
            return None
        # Keys of other types may be equal and yet not the same: 1, 1.0 and True.
        if any(type(key) is not str for key in schema[0]):
            return None
        if None in kinds or any(kinds.count(kind) > len(free) for kind, free in self._free.items()):
            return None
        seen.clear()
        return schema

    def adopt(self, schema: Schema) -> None:
        """Uses ``schema`` from now on; between two steps, since the parent reads a whole step by one of them."""
        free = {kind: iter(columns) for kind, columns in self._free.items()}
        self._keys, self._types = schema
        self._columns = [next(free[_COLUMN_KINDS[cls]]) for cls in self._types]


class ColumnReader:
    """The parent's side: batches infos, those in columns and those that travelled.

    Args:
        exchange: Has the columns.
        shares: The environments of each worker.
    """

    def __init__(self, exchange: Exchange, shares: Sequence[range]) -> None:
        """Knows no schema yet."""
        self._columns = exchange.info_columns
        self._shares = shares
        self._schemas: list[Schema | None] = [None] * len(shares)
        self._latest: Sequence[Reply | None] = ()
        # What makes the arrays of a batch, by their keys, where all workers have one schema; none where they have not.
        self._common: list[tuple[str, Callable[[], np.ndarray]]] = []
        self._all = np.ones(exchange.terms.num_envs, np.bool_)

    def take_note(self, replies: Sequence[Reply | None]) -> None:
        """Has to come first, once the replies of a step, or of any other request, are there. Idempotent.

        A schema in them holds from the next replies on.
        """
        if replies is self._latest:
            return
        for worker, reply in enumerate(self._latest):
            if reply is not None and reply.schema is not None:
                self._schemas[worker] = reply.schema
                self._common = self._in_common()
        self._latest = replies

    def common(self, replies: Sequence[Reply | None]) -> dict[str, Any] | None:
        """The batched infos, where every environment's stands in columns of one schema; else None: see :meth:`told`."""
        if not self._common or replies.count(ALL_IN_COLUMNS) != len(replies):
            return None
        return {key: make() for key, make in self._common}

    def _in_common(self) -> list[tuple[str, Callable[[], np.ndarray]]]:
        schema = self._schemas[0]
        if schema is None or self._schemas.count(schema) != len(self._schemas):
            return []
        arrays: list[tuple[str, Callable[[], np.ndarray]]] = []
        for key, cls, column in self._of(schema):
            # Copies, of the dtype that gymnasium's array has for this type.
            make = column.copy if column.dtype == cls else functools.partial(column.astype, cls)
            arrays += [(key, make), (f"_{key}", self._all.copy)]
        return arrays

    def told(self, replies: Sequence[Reply | None]) -> dict[int, dict[str, Any]]:
        """The info of each environment that gave one, one by one, in the order of the environments."""
        infos: dict[int, dict[str, Any]] = {}
        for worker, reply in enumerate(replies):
            if reply is None:
                continue
            rows: Sequence[int] = self._shares[worker] if reply is ALL_IN_COLUMNS else reply.in_columns
            schema = self._schemas[worker]
            if rows and schema is not None:
                columns = self._of(schema)
                infos.update((env, {key: cls(column[env]) for key, cls, column in columns}) for env in rows)
            infos.update(reply.infos)
        return dict(sorted(infos.items()))

    def _of(self, schema: Schema) -> list[tuple[str, type, np.ndarray]]:
        free = {kind: iter(columns) for kind, columns in self._columns.items()}
        return [(key, cls, next(free[_COLUMN_KINDS[cls]])) for key, cls in zip(*schema, strict=True)]
