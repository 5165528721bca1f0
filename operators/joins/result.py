"""The rows of a join's result, made of left and right rows, and how many of them are made at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataflow.arrow_values import to_array
from dataflow.planning.join_specs import Join
from dataflow.state.arrays import Mask, Numbers
from dataflow.state.dictionaries import decoded_schema
from operators.stateful.chunks import CHUNK
from operators.stateful.columns import typed
from operators.stateful.row_log import RowLog

__all__ = ["JoinRows", "ResultRows"]


@dataclass(frozen=True, slots=True)
class JoinRows:
    """Rows of one side of a join.

    Attributes:
        keys: their key columns.
        rows: their columns ``ResultRows.rows``.
        numbers: a number for each: its time, that of its slice of time, or how often it is added.
    """

    keys: Sequence[pa.Array]
    rows: pa.RecordBatch
    numbers: Numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def taken(self, at: npt.NDArray[np.integer[Any]]) -> JoinRows:
        """Return the rows ``at``."""
        return JoinRows(*_taken(self.keys, self.rows, at), self.numbers[at])

    def add_to(self, log: RowLog) -> None:
        """Add the rows to a log, if there are some."""
        if len(self):
            log.add(pa.RecordBatch.from_arrays([*self.keys, *self.rows.columns], schema=log.schema), self.numbers)

    def where(self, chosen: Mask) -> JoinRows:
        """Return the rows that are ``chosen``."""
        return self if chosen.all() else self.taken(np.flatnonzero(chosen))


class ResultRows:
    """Makes rows of the result. ``keys`` are the key columns, with the names of the left side.

    Args:
        spec: the join.
        inputs: the columns of the left rows and of the right rows, perhaps without some that no operator reads.
        output: the columns of the result.
    """

    def __init__(self, spec: Join, inputs: Sequence[pa.Schema], output: pa.Schema) -> None:
        columns = spec.columns
        self._is_signed = spec.is_signed
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

    def of(self, port: int, batch: pa.RecordBatch, numbers: Numbers) -> JoinRows:
        """Return rows of input ``port``, with a number for each."""
        keys = [
            _one_zero(typed(batch.column(name), type_))
            for name, type_ in zip(self._names[port], self.keys.types, strict=True)
        ]
        origins = [origin for _, origin in self._pairs[port]]
        types = self.rows[port].types
        columns = [typed(batch.column(name), type_) for name, type_ in zip(origins, types, strict=True)]
        return JoinRows(keys, self._batch(port, columns, batch), numbers)

    def logged(self, port: int) -> pa.Schema:
        """Return the columns of rows of side ``port`` in a `RowLog`."""
        return pa.schema([*self.keys, *self.rows[port]])

    def of_log(self, port: int, batch: pa.RecordBatch, numbers: Numbers) -> JoinRows:
        """Return rows of side ``port`` that were in a `RowLog`, with a number for each."""
        width = len(self.keys)
        return JoinRows(batch.columns[:width], self._batch(port, batch.columns[width:], batch), numbers)

    def _batch(self, port: int, columns: list[pa.Array], batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns ``rows`` of side ``port`` as a batch; ``batch`` has as many rows."""
        if not columns:  # a batch without columns does not know how many rows it has
            return batch.select([])
        return pa.RecordBatch.from_arrays(columns, schema=self.rows[port])

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
            weights: +1 or -1 for each row, if the result has signed changes; None: +1.
        """
        count = len(keys[0])
        columns = [*keys, *edges]
        for schema, side in zip(self.rows, sides, strict=True):
            columns += [pa.nulls(count, type_) for type_ in schema.types] if side is None else side.columns
        if self._is_signed:
            columns.append(to_array(np.ones(count, np.int8) if weights is None else weights))
        return pa.RecordBatch.from_arrays(columns, schema=self._output)

    def all_pairs(
        self,
        port: int,
        rows: JoinRows,
        at: npt.NDArray[Any],
        others: npt.NDArray[Any] | pa.RecordBatch | None,
        read: Callable[[Any], pa.RecordBatch],
        *,
        edges: Sequence[pa.Array] = (),
        weights: Numbers | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the result for pairs: pair i is of row ``at[i]`` of input ``port``, and row ``others[i]`` of the other.

        Args:
            rows: rows of input ``port``.
            at: which of them.
            others: the other side's rows, by number or as they are; None: these rows have no counterpart.
            read: returns them.
            edges: the columns after the keys, the same in all rows, for at least `CHUNK` rows.
            weights: how often each pair is added (or taken back, below 0), if the result is signed; None: once.
        """
        if not self._is_signed:
            weights = None
        if weights is not None and not (np.abs(weights) == 1).all():
            copies = np.abs(weights)
            at, weights = np.repeat(at, copies), np.repeat(np.sign(weights), copies)
            others = None if others is None else np.repeat(others, copies)
        for begin in range(0, len(at), CHUNK):
            chosen = slice(begin, begin + CHUNK)
            keys, own = _taken(rows.keys, rows.rows, at[chosen])
            theirs = None if others is None else read(others[chosen])
            yield self.pairs(
                keys,
                (own, theirs) if port == 0 else (theirs, own),
                edges=[edge.slice(0, len(keys[0])) for edge in edges],
                weights=None if weights is None else weights[chosen].astype(np.int8),
            )


def _taken(
    keys: Sequence[pa.Array], rows: pa.RecordBatch, at: npt.NDArray[np.integer[Any]]
) -> tuple[Sequence[pa.Array], pa.RecordBatch]:
    if len(at) == len(keys[0]) and (at == np.arange(len(at))).all():
        return keys, rows
    index = to_array(at)
    return [column.take(index) for column in keys], rows.take(index)


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
