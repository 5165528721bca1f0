"""The aggregates of sliding windows over rows that are kept: a record for each row, and what a record cannot hold.

A record of a window is merged from those of its rows (``scans``). Values that do not fit into a record, such as text,
stay in the row: the record has its number instead. Apart from that, distinct values are counted (``distinct_values``),
and such values compared (``extreme_values``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataflow.arrow_values import to_array, to_numbers
from dataflow.expressions import Aggregation, col, compile_expression, count
from dataflow.expressions.coercion import value_type
from dataflow.state.arrays import is_word, plain
from dataflow.state.copy_on_write import Rows
from dataflow.state.dictionaries import decoded
from dataflow.state.index import Slots
from operators.aggregation.kinds import computed
from operators.aggregation.records import Records
from operators.stateful.columns import ARRIVAL

__all__ = ["ReadApart", "RowAggregates"]

ROW = "barrierflow:row"
"""The column with the number of a row, beside its own columns."""

Evaluate = Callable[[pa.RecordBatch], pa.Array]
ReadRows = Callable[[Slots], pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class _Folded:
    """An aggregate that is a column of the records."""

    column: int


@dataclass(frozen=True, slots=True)
class _Chosen:
    """An aggregate that is the value of a row, whose number is a column of the records."""

    column: int
    value: Evaluate
    dtype: pa.DataType


@dataclass(frozen=True, slots=True)
class _Apart:
    """An aggregate that is number ``place`` of those without records."""

    place: int


@dataclass(frozen=True, slots=True)
class ReadApart:
    """An aggregate without records. ``values`` returns its argument, of type ``dtype``; null in rows left out.

    It is the least or the greatest value, or the number of different ones if ``least`` is None.
    """

    least: bool | None
    dtype: pa.DataType
    values: Evaluate


class RowAggregates:
    """What is computed of rows with the columns ``schema``, which are merged in the order of ``time``, one of them.

    Raises: SchemaMismatch for arguments that cannot be aggregated.
    """

    def __init__(self, aggregations: Sequence[Aggregation], schema: pa.Schema, time: str, where: str) -> None:
        folded = [count().alias(ROW)]
        self._results: list[_Folded | _Chosen | _Apart] = []
        self.apart: list[ReadApart] = []
        """The aggregates without records."""
        for a in aggregations:
            argument, dtype = a.argument, a.dtype(schema, where)
            kind = computed(a)
            if kind.is_apart(dtype):
                assert argument is not None, f"{a} has no argument"
                self._results.append(_Apart(len(self.apart)))
                self.apart.append(ReadApart(kind.least, value_type(argument.dtype(schema)), _where_true(a, schema)))
            elif a.chooses_a_row and not is_word(dtype):
                assert argument is not None, f"{a} has no argument"
                self._results.append(_Chosen(len(folded), compile_expression(argument, schema), dtype))
                folded.append(_of_row_number(a))
            else:
                self._results.append(_Folded(len(folded)))
                folded.append(a)
        self.records = Records(folded, schema.append(pa.field(ROW, pa.int64())), where, merged_by=time)

    def values(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the values of the aggregates without records."""
        return [apart.values(batch) for apart in self.apart]

    def leaves(self, batch: pa.RecordBatch, numbers: Slots, arrivals: npt.NDArray[np.int64]) -> Rows:
        """Return the record of each row alone; rows arrive in the order of ``arrivals``."""
        self.records.clear()
        places = np.arange(len(numbers), dtype=np.int32)
        rows = batch.append_column(ROW, to_array(numbers.astype(np.int64))).append_column(ARRIVAL, to_array(arrivals))
        self.records.fold(rows, places, len(numbers))
        return self.records.copied(places)

    def columns(self, records: Rows, apart: Sequence[pa.Array], read: ReadRows) -> list[pa.Array]:
        """Return the results, a column for each aggregate.

        Args:
            records: the record of each window.
            apart: the results of the aggregates without records.
            read: returns rows by their numbers.
        """
        folded = self.records.read_rows(records)
        columns = []
        for result in self._results:
            match result:
                case _Folded(column):
                    columns.append(folded[column])
                case _Chosen(column, value, dtype):
                    columns.append(_values_of(folded[column], value, dtype, read))
                case _Apart(place):
                    columns.append(apart[place])
        return columns


def _of_row_number(aggregation: Aggregation) -> Aggregation:
    """Return the aggregate that chooses the number of the row that ``aggregation`` chooses the value of."""
    where = aggregation.where
    if aggregation.ignore_nulls:
        assert aggregation.argument is not None, f"{aggregation} has no argument"
        present = aggregation.argument.is_not_null()
        where = present if where is None else where & present
    return replace(aggregation, argument=col(ROW), ignore_nulls=False, where=where)


def _values_of(numbers: pa.Array, value: Evaluate, dtype: pa.DataType, read: ReadRows) -> pa.Array:
    """Return the value of each row; null where there is no row."""
    present = numbers.is_valid()
    values = value(read(to_numbers(numbers.drop_null()).astype(np.int32))).cast(dtype)
    if not numbers.null_count:
        return values
    places = np.cumsum(to_numbers(present)) - 1
    return values.take(to_array(places, mask=~to_numbers(present)))


def _where_true(aggregation: Aggregation, schema: pa.Schema) -> Evaluate:
    """Return a function that evaluates the argument, which is null where the predicate is not true."""
    assert aggregation.argument is not None, f"{aggregation} has no argument"
    argument = compile_expression(aggregation.argument, schema)
    where = None if aggregation.where is None else compile_expression(aggregation.where, schema)

    def evaluate(batch: pa.RecordBatch) -> pa.Array:
        values = decoded(plain(argument(batch)))
        return values if where is None else pc.if_else(where(batch), values, pa.scalar(None, values.type))

    return evaluate
