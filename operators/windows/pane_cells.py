"""Cells of sessions that are shown in panes: besides its rows, a cell says what panes have shown.

Word by word, after the two times of a cell:

- ``ROWS``: its rows that no pane has shown;
- ``PANES``: the panes of its session, and of sessions that merged into it;
- ``SINCE``: the complement of the time at which the first row not shown came, by the clock;
- ``DONE``: the greatest last time that its session had when it came out at its end.

They are aggregates of the operator's own, so a cell that is merged into the next one takes them along: rows and panes
add up, and of times the first or the last counts. For a session, its cells are taken together in the same way. When
sessions merge, the number of the next pane is above the numbers of all their panes.

The other aggregates are of the rows that no pane has shown. The times of a cell are of all its rows: they decide which
rows make a session, whether or not they were shown.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.errors import CheckpointDamaged
from dataflow.expressions import Aggregation, col, count, lit
from dataflow.state.arrays import Numbers
from dataflow.state.index import Slots
from operators.aggregation.records import Records
from operators.windows.row_cells import RowCells
from operators.windows.session_cells import TIME, Cells, MergedCells
from operators.windows.session_chains import Sessions
from operators.windows.session_dues import SessionDues

__all__ = ["NEVER", "MergedPaneCells", "PaneCells", "RowPaneCells", "make_pane_cells"]

ROWS, PANES, SINCE, DONE = 3, 4, 5, 6
NEVER: Final = 2**63 - 1
"""The time since which the rows of a session wait if all are shown."""

_UNSET = -(2**63)
_LOCAL = np.int64(_UNSET | 1)  # the flags of a record that say nothing of its aggregates
_NO_ROWS = lit(value=False)  # for words that no row changes


class PaneCells(Cells):
    """The cells of a subtask whose sessions are shown in panes."""

    own = (
        *Cells.own,
        count().alias("barrierflow:new rows"),
        col(TIME).count(where=_NO_ROWS).alias("barrierflow:panes"),
        col(TIME).min(where=_NO_ROWS).alias("barrierflow:since"),
        col(TIME).max(where=_NO_ROWS).alias("barrierflow:done"),
    )
    flags = ()

    def __init__(
        self, keys: pa.Schema, gap: int, aggregations: Sequence[Aggregation], rows: pa.Schema, where: str, time: str
    ) -> None:
        super().__init__(keys, gap, aggregations, rows, where, time)
        self.waiting = SessionDues()
        """When cells are to be looked at by the clock."""

    @property
    def kernels(self) -> Sequence[str]:
        return (*super().kernels, "operators.kernels.merging")

    # --- what was not shown

    def new_rows(self, sessions: Sessions) -> Numbers:
        """Return how many rows of each session no pane has shown."""
        return self._total(sessions, ROWS)

    def panes(self, sessions: Sessions) -> Numbers:
        """Return how many panes were shown of each session."""
        return self._total(sessions, PANES)

    def since(self, sessions: Sessions) -> Numbers:
        """Return since when rows of each session wait, by the clock, or ``NEVER``."""
        if not len(sessions):
            return np.empty(0, np.int64)
        return ~np.maximum.reduceat(self.state.records[sessions.cells, SINCE], sessions.offsets[:-1])

    def _total(self, sessions: Sessions, word: int) -> Numbers:
        if not len(sessions):
            return np.empty(0, np.int64)
        total: Numbers = np.add.reduceat(self.state.records[sessions.cells, word], sessions.offsets[:-1])
        return total

    def begin_waiting(self, slots: Slots, now: int) -> None:
        """Take note that cells, each once, have rows that were not shown, since ``now`` unless since an earlier time.

        Call it right after ``fold``.
        """
        records = self.state.records
        records[slots, SINCE] = np.maximum(records[slots, SINCE], ~now)

    # --- what was shown

    def is_done(self, ends: Slots) -> npt.NDArray[np.bool_]:
        """Return whether the session of each last cell came out at the end that it has now."""
        done: npt.NDArray[np.bool_] = self.state.records[ends, DONE] >= self.lasts(ends)
        return done

    def set_done(self, ends: Slots) -> None:
        """Take note that no pane is to come at the end of the session of each last cell."""
        self.state.change(ends)
        self.state.records[ends, DONE] = self.lasts(ends)

    def set_shown(self, sessions: Sessions) -> None:
        """Take note of a pane of each session, with all of its rows that were not shown."""
        cells, records = sessions.cells, self.state.records
        self.state.change(cells)
        self._drop_values(cells[records[cells, ROWS] > 0])
        records[cells, ROWS] = 0
        records[cells, SINCE] = _UNSET
        records[sessions.ends, PANES] += 1

    @abstractmethod
    def _drop_values(self, slots: Slots) -> None:
        """Let the aggregates of cells, each once, be of no rows."""

    @abstractmethod
    def absorb_shown(self, slots: Slots) -> None:
        """Take note that cells take no more rows, nor do the cells before them. All rows of these cells are shown."""

    def delete(self, slots: Slots) -> None:
        self.waiting.drop(slots)
        super().delete(slots)

    def restored(self) -> None:
        super().restored()
        words = self.state.records[self.state.slots]
        if (words[:, [ROWS, PANES]] < 0).any():
            raise CheckpointDamaged("cells of sessions have fewer than no rows or panes")


class MergedPaneCells(PaneCells, MergedCells):
    """Cells with a record of the rows that were not shown."""

    def _drop_values(self, slots: Slots) -> None:
        records, words = self.state.records, 1 + len(self.own)
        kept = records[slots, :words].copy()
        kept[:, 0] &= _LOCAL
        self._records.reset(slots)
        records[slots, :words] = kept

    def absorb_shown(self, slots: Slots) -> None:
        """Do nothing: such cells are absorbed when they are due."""


class RowPaneCells(MergedPaneCells, RowCells):
    """Cells that also have the rows that were not shown, for aggregates whose records cannot be merged.

    A cell is merged into the next one after panes have shown its rows, and the rows of all cells before it.
    """

    def _drop_values(self, slots: Slots) -> None:
        super()._drop_values(slots)
        self.state.drop_before(NEVER, slots)

    def absorb_shown(self, slots: Slots) -> None:
        if not len(slots):
            return
        after = self._after[slots]
        heads = after[~np.isin(after, slots)]
        sessions = self.sessions(heads)
        others = sessions.before_ends
        self.state.change(heads)
        self._records.merge(self._records.partials(others), np.repeat(heads, np.diff(sessions.offsets) - 1))
        self._records.forget_touched()
        self.delete(others)


def make_pane_cells(
    keys: pa.Schema, gap: int, aggregations: Sequence[Aggregation], rows: pa.Schema, where: str, time: str
) -> PaneCells:
    """Return empty cells for ``aggregations`` of rows whose event times are the column ``time``.

    Raises: SchemaMismatch for arguments that cannot be aggregated, or rows that cannot be kept.
    """
    kind = MergedPaneCells if Records(aggregations, rows, where).mergeable else RowPaneCells
    return kind(keys, gap, aggregations, rows, where, time)
