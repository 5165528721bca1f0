"""The rows of a join's result, made of left and right rows, and how many of them are made at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataflow.arrow_values import to_array, to_numbers
from dataflow.planning.join_columns import JoinColumns
from dataflow.state.arrays import Mask, Numbers
from dataflow.state.dictionaries import decoded_schema
from dataflow.state.index import Slots
from operators.stateful.chunks import CHUNK
from operators.stateful.columns import typed

__all__ = ["ResultRows", "adjacent_pairs", "expanded", "has_null", "taken", "without_null"]


class ResultRows:
    """Makes rows of the result. ``keys`` are the key columns, with the names of the left side.

    Args:
        columns: the columns of the join.
        inputs: the columns of the left rows and of the right rows, perhaps without some that no operator reads.
        output: the columns of the result.
    """

    def __init__(self, columns: JoinColumns, inputs: Sequence[pa.Schema], output: pa.Schema) -> None:
        self._names = columns.keys.left, columns.keys.right
        self._pairs = [columns.of(port, output) for port in (0, 1)]
        self._output = output
        left = inputs[0]
        self.keys = _plain(pa.schema([left.field(name) for name in columns.keys.left]))
        self.rows = tuple(
            _plain(pa.schema([schema.field(origin).with_name(name) for name, origin in pairs]))
            for schema, pairs in zip(inputs, self._pairs, strict=True)
        )
        """The columns of each side that the result has, apart from the keys, with their names there."""

    def keys_of(self, port: int, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the key columns of rows of input ``port``."""
        names = self._names[port]
        return [_one_zero(typed(batch.column(name), type_)) for name, type_ in zip(names, self.keys.types, strict=True)]

    def rows_of(self, port: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns ``rows`` of rows of input ``port``."""
        schema = self.rows[port]
        if not len(schema):  # a batch without columns does not know how many rows it has
            return batch.select([])
        origins = [origin for _, origin in self._pairs[port]]
        columns = [typed(batch.column(name), type_) for name, type_ in zip(origins, schema.types, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def pairs(
        self,
        keys: Sequence[pa.Array],
        sides: tuple[pa.RecordBatch | None, pa.RecordBatch | None],
        *,
        edges: Sequence[pa.Array] = (),
        weights: npt.NDArray[np.int8] | None = None,
    ) -> pa.RecordBatch:
        """Return rows of the result: row i is of row i of each side.

        Args:
            keys: their key columns.
            sides: the columns ``rows`` of left and right rows; None: there is no such row, its columns are null.
            edges: the columns after the keys.
            weights: +1 or -1 for each row; None: the result has no column ``change``.
        """
        count = len(keys[0])
        columns = [*keys, *edges]
        for schema, side in zip(self.rows, sides, strict=True):
            columns += [pa.nulls(count, type_) for type_ in schema.types] if side is None else side.columns
        if weights is not None:
            columns.append(to_array(weights))
        return pa.RecordBatch.from_arrays(columns, schema=self._output)

    def all_pairs(
        self,
        port: int,
        keys: Sequence[pa.Array],
        rows: pa.RecordBatch,
        at: npt.NDArray[Any],
        others: npt.NDArray[Any],
        read: Callable[[Any], pa.RecordBatch],
        weights: Numbers | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the result for pairs: pair i is of row ``at[i]`` of input ``port``, and row ``others[i]`` of the other.

        Args:
            keys: the key columns of the rows of input ``port``.
            rows: their columns ``rows``.
            at: which of them.
            others: numbers of the other side's rows.
            read: returns these by their numbers.
            weights: how often each pair is added (or taken back, below 0); None: the result has no column ``change``.
        """
        if weights is not None and not (np.abs(weights) == 1).all():
            copies = np.abs(weights)
            at, others, weights = np.repeat(at, copies), np.repeat(others, copies), np.repeat(np.sign(weights), copies)
        for begin in range(0, len(at), CHUNK):
            chosen = slice(begin, begin + CHUNK)
            own_keys, own = taken(keys, rows, at[chosen])
            theirs = read(others[chosen])
            yield self.pairs(
                own_keys,
                (own, theirs) if port == 0 else (theirs, own),
                weights=None if weights is None else weights[chosen].astype(np.int8),
            )

    def all_alone(
        self,
        port: int,
        keys: Sequence[pa.Array],
        rows: pa.RecordBatch,
        at: Numbers,
        weights: Numbers | None = None,
        edges: Sequence[pa.Array] = (),
    ) -> Iterator[pa.RecordBatch]:
        """Yield the result for the rows ``at`` of input ``port``, which have no counterpart.

        ``weights`` has an entry for each of ``at``; ``edges`` are the columns after the keys, the same in all rows.
        """
        for begin in range(0, len(at), CHUNK):
            chosen = at[begin : begin + CHUNK]
            yield self.alone(
                port,
                *taken(keys, rows, chosen),
                edges=[edge.slice(0, len(chosen)) for edge in edges],
                weights=None if weights is None else weights[begin : begin + CHUNK].astype(np.int8),
            )

    def alone(
        self,
        port: int,
        keys: Sequence[pa.Array],
        rows: pa.RecordBatch,
        *,
        edges: Sequence[pa.Array] = (),
        weights: npt.NDArray[np.int8] | None = None,
    ) -> pa.RecordBatch:
        """Return the rows of the result for rows of side ``port`` that have no counterpart."""
        return self.pairs(keys, (rows, None) if port == 0 else (None, rows), edges=edges, weights=weights)


def has_null(keys: Sequence[pa.Array]) -> Mask | None:
    """Return which rows have a null key; None: none."""
    found: Mask | None = None
    for column in keys:
        if column.null_count:
            null = to_numbers(column.is_null())
            found = null if found is None else found | null
    return found


def without_null(slots: Slots, keys: Sequence[pa.Array]) -> Slots:
    """Return ``slots``, which may be overwritten, with -1 for the rows with a null key: null equals nothing."""
    null = has_null(keys)
    if null is not None:
        slots[null] = -1
    return slots


def taken(
    keys: Sequence[pa.Array], rows: pa.RecordBatch, at: npt.NDArray[np.integer[Any]]
) -> tuple[list[pa.Array], pa.RecordBatch]:
    """Return the key columns and the columns of the rows ``at``."""
    if len(at) == len(keys[0]) and (at == np.arange(len(at))).all():
        return list(keys), rows
    index = to_array(at)
    return [column.take(index) for column in keys], rows.take(index)


def expanded(offsets: Numbers) -> Numbers:
    """Return the number of the row that each counterpart belongs to: row i has those from ``offsets[i]`` on.

    >>> expanded(np.array([0, 2, 2, 3])).tolist()
    [0, 0, 2]
    """
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def adjacent_pairs(counts: Numbers, firsts: Numbers) -> tuple[Numbers, Numbers]:
    """Return the pairs of rows with their counterparts, which are adjacent: the row, and the place of the counterpart.

    Row i has the counterparts ``firsts[i]`` to ``firsts[i] + counts[i]`` - 1.

    >>> [numbers.tolist() for numbers in adjacent_pairs(np.array([2, 0, 1]), np.array([5, 9, 3]))]
    [[0, 0, 2], [5, 6, 3]]
    """
    before = np.cumsum(counts) - counts
    at = np.repeat(np.arange(len(counts)), counts)
    return at, np.arange(len(at)) + (firsts - before)[at]


def _plain(schema: pa.Schema) -> pa.Schema:
    """Return ``schema`` with the values of dictionaries, and large text in the place of views."""
    from dataflow.expressions.coercion import value_type

    schema = decoded_schema(schema, [field.name for field in schema if pa.types.is_dictionary(field.type)])
    return pa.schema([field.with_type(value_type(field.type)).with_nullable(nullable=True) for field in schema])


def _one_zero(column: pa.Array) -> pa.Array:
    """Return a key column in which -0.0 is 0.0, so that the result does not depend on which row came first."""
    if not pa.types.is_floating(column.type):
        return column
    if column.type == pa.float16():  # has no sum in Arrow
        return pc.add(column.cast(pa.float32()), 0.0).cast(column.type)
    return pc.add(column, 0.0).cast(column.type)
