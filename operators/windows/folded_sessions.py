"""Records of sessions that change after they came out, so that each batch folds its own rows only.

A session gets a record when it changes for the first time. From then on, the rows of its cells are folded into the
record when they come. When sessions become one, the record with the most rows is kept, and the rows of the other cells
are folded into it. So a row is folded again at most log2(n) times, where n is the number of rows of its session.

The records are not stored: they can be made again from the rows. So they must not depend on when their rows were
folded, because a row that is taken back must be equal to the one that came out before a restore. Rows of equal times
are folded in the order of arrival, because they are in one cell; other rows in any order. ``is_free_of_order`` says for
which aggregates this suffices.

Invariant: all cells that have one record are of one session; the record has all of their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.expressions import Aggregation, count
from dataflow.state.arrays import Numbers
from dataflow.state.index import Slots
from dataflow.state.keyed_state import KeyedState
from operators.aggregation.records import Records
from operators.windows.session_chains import Sessions

__all__ = ["FoldedSessions", "is_free_of_order"]

RowsOf = Callable[[Slots], tuple[Numbers, pa.RecordBatch]]
"""Returns the rows of cells in the order of time, and then of arrival, with the offsets of each cell's rows."""


def is_free_of_order(aggregation: Aggregation, time: str) -> bool:
    """Return whether a result depends on the order of rows only where their times in the column ``time`` are equal.

    >>> from dataflow.expressions import col
    >>> is_free_of_order(col("x").quantile(0.5), "at"), is_free_of_order(col("x").last(by="at"), "at")
    (True, True)
    >>> is_free_of_order(col("x").last(by="price"), "at")
    False
    """
    if aggregation.by is not None:
        return aggregation.by.is_column(time)
    return aggregation.is_free_of_order


class FoldedSessions:
    """The records of some sessions. ``rows`` has the columns of their rows.

    ``aggregations`` must be free of the order of rows (``is_free_of_order``).
    """

    def __init__(self, aggregations: Sequence[Aggregation], rows: pa.Schema, where: str) -> None:
        self._records = Records(aggregations, rows, where, own=[count().alias("barrierflow:rows")])
        #: The key of a record is one of the cells that have it.
        self._state = KeyedState(pa.schema({"cell": pa.int64()}), self._records)
        self._by_cell = np.empty(0, np.int32)  # the record of each cell; -1: it has none

    def __len__(self) -> int:
        return self._state.live

    @property
    def kernels(self) -> Sequence[str]:
        """The modules with the kernels that are called."""
        return self._state.kernels

    def fold(self, batch: pa.RecordBatch, cells: Slots) -> None:
        """Fold new rows of cells that have a record."""
        if not len(self):
            return
        slots = self._of_cells(cells)
        own = slots >= 0
        if own.any():
            self._fold(batch if own.all() else batch.filter(to_array(own)), slots[own])

    def make(self, sessions: Sessions, rows_of: RowsOf) -> None:
        """Give a record to each of the sessions that have none."""
        slots = self._largest(sessions)
        new = slots < 0
        if new.any():
            firsts = sessions.cells[sessions.offsets[:-1][new]]
            slots[new] = self._state.insert([to_array(firsts.astype(np.int64))])[0]
        self._join(sessions, slots, rows_of)

    def current(self, sessions: Sessions, rows_of: RowsOf) -> Slots:
        """Return the record of each session, with all of its rows; -1: it has none."""
        if not len(self):
            return np.full(len(sessions), -1, np.int32)
        slots = self._largest(sessions)
        self._join(sessions, slots, rows_of)
        return slots

    def read(self, slots: Slots) -> list[pa.Array]:
        """Return the aggregates of records, a column each."""
        return self._records.read(slots)

    def drop(self, cells: Slots) -> None:
        """Remove the records of ``cells``, which are all cells of their sessions."""
        if len(self):
            slots = np.unique(self._of_cells(cells))
            self._state.delete(slots[slots >= 0])
            self._by_cell[cells] = -1

    def _of_cells(self, cells: Slots) -> Slots:
        short = int(cells.max(initial=-1)) + 1 - len(self._by_cell)
        if short > 0:
            self._by_cell = np.append(self._by_cell, np.full(short + len(self._by_cell), -1, np.int32))
        return self._by_cell[cells]

    def _largest(self, sessions: Sessions) -> Slots:
        """Return for each session the record with the most rows that one of its cells has, or -1."""
        largest = np.full(len(sessions), -1, np.int32)
        slots = self._of_cells(sessions.cells)
        own = slots >= 0
        if own.any():
            numbers, slots = sessions.numbers[own], slots[own]
            rows = self._records.rows(slots)
            assert rows is not None, "an aggregate of its own counts the rows"
            order = np.argsort(rows, kind="stable")
            largest[numbers[order]] = slots[order]  # of several, numpy keeps the last
        return largest

    def _join(self, sessions: Sessions, slots: Slots, rows_of: RowsOf) -> None:
        """Let all cells of session i have record ``slots[i]``, unless it is -1: fold the rows that it does not have."""
        had, given = self._of_cells(sessions.cells), slots[sessions.numbers]
        other = (given >= 0) & (had != given)
        if not other.any():
            return
        cells = sessions.cells[other]
        offsets, rows = rows_of(cells)
        self._fold(rows, np.repeat(given[other], np.diff(offsets)))
        before = np.unique(had[other])
        self._state.delete(before[before >= 0])
        self._by_cell[cells] = given[other]

    def _fold(self, rows: pa.RecordBatch, slots: Slots) -> None:
        self._records.fold(rows, slots)
        self._records.forget_touched()
