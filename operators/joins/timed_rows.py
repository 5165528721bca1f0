"""The rows of one side of a join, by key and time, until their time is over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from dataflow.state.arrays import Numbers
from dataflow.state.index import Slots
from dataflow.state.keyed_rows import TIME
from dataflow.state.keyed_state import KeyedState
from dataflow.state.ranges import SLOT
from operators.joins.result import JoinRows
from operators.stateful.chunks import pairs_by_chunk
from operators.stateful.columns import without_null
from operators.stateful.nested_columns import NestedColumns

__all__ = ["TimedRows"]


class TimedRows:
    """Rows in the order of their times."""

    def __init__(self, keys: pa.Schema, rows: pa.Schema) -> None:
        self._columns = NestedColumns(rows)
        self.state = KeyedState(keys, pa.schema([]), rows=self._columns.kept)

    @property
    def kernels(self) -> Sequence[str]:
        """The modules with the kernels that are called."""
        return self.state.kernels

    def add(self, rows: JoinRows) -> None:
        """Add rows; their numbers are times."""
        if len(rows):
            slots, _ = self.state.insert(list(rows.keys))
            self.state.append(slots.copy(), rows.numbers, self._columns.encode(rows.rows))

    def find(self, keys: Sequence[pa.Array]) -> Slots:
        """Return the slot of the key of each row; null equals nothing, so it has -1."""
        return without_null(self.state.find(list(keys)), keys)

    def most(self, slots: Slots) -> Numbers:
        """Return the number of rows of each slot."""
        return self.state.count_rows(slots)

    def pairs(self, slots: Slots, low: Numbers, high: Numbers, counts: Numbers) -> Iterator[tuple[Numbers, Slots]]:
        """Yield the pairs of an entry of ``slots`` and a row of that slot: its place in ``slots``, and its number.

        Args:
            slots: the slots, or -1.
            low: the first time of the rows of each slot.
            high: the time after the last.
            counts: how many rows each slot has in between, or more.
        """
        return pairs_by_chunk(counts, lambda some: self.state.rows_between(slots[some], low[some], high[some]))

    def of(self, numbers: Slots) -> JoinRows:
        """Return rows by their numbers, with their times."""
        return JoinRows(self.keys(numbers), self.read(numbers), self.times(numbers))

    def times(self, numbers: Slots) -> Numbers:
        """Return the times of rows by their numbers."""
        return np.asarray(self.state.row_records[numbers, TIME])

    def read(self, numbers: Slots) -> pa.RecordBatch:
        """Return rows by their numbers."""
        return self._columns.decode(self.state.read_rows(numbers))

    def keys(self, numbers: Slots) -> list[pa.Array]:
        """Return the key columns of rows by their numbers."""
        return self.state.keys(self.state.row_records[numbers, SLOT].astype(np.int32))
