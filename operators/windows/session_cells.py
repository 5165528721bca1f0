"""Cells: the state of sessions, rows of a key folded by intervals of event time as long as the gap.

Two rows of a key in one cell are less than the gap apart, so a cell is of one session, and a session is a chain of
neighbouring cells, each *joined* to the next: it begins at most a gap after the last time of the one before. So a row
is folded into its cell, which a hash finds, whatever its order and whichever sessions it brings together. Sessions are
read off the cells when they come out, at a cost by their cells.

``MergedCells`` hold records. A cell that takes no more rows is merged into the next one of its session, so a session
that never ends has few cells. ``row_cells.RowCells`` also hold rows, for aggregates whose records cannot be merged:
their sessions are folded when they are read, or, if they change after they came out, when their rows come.

Not stored, but made of the cells after a restore: the cells before and after each (``operators.kernels.sessions``), and
when each is to be looked at (``dues``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.errors import CheckpointDamaged, CheckpointMismatch
from dataflow.expressions import Aggregation, col
from dataflow.planning.evolved_aggregates import WAY_OUT
from dataflow.state.arrays import GREATEST, Numbers
from dataflow.state.index import Slots
from dataflow.state.keyed_state import KeyedState
from operators.aggregation.layout import SHOWN
from operators.aggregation.partials import with_arrivals
from operators.aggregation.records import Records, SumOverflow
from operators.windows.session_chains import Sessions
from operators.windows.session_dues import SessionDues

__all__ = ["CELL", "TIME", "Cells", "MergedCells", "Overflow"]

CELL = "barrierflow:cell"
"""The key column of cells: event time divided by the gap, both in the unit of the event time."""
TIME = "barrierflow:time"
"""The column of event times, in their unit."""

_TIMES = (col(TIME).min().alias("barrierflow:first time"), col(TIME).max().alias("barrierflow:last time"))

Overflow = Callable[[SumOverflow, list[pa.Array]], OverflowError]
"""Makes the error of a sum that overflows, from it and the key columns of its cell."""


class Cells(ABC):
    """The cells of a subtask. ``rows`` has the columns of the rows that are folded, ``time`` is that of event time."""

    own: ClassVar[tuple[Aggregation, ...]] = _TIMES
    """The aggregates of each cell that make sessions of them."""
    flags: ClassVar[tuple[int, ...]] = (SHOWN,)
    """The flags of each cell that a checkpoint has."""

    def __init__(
        self, keys: pa.Schema, gap: int, aggregations: Sequence[Aggregation], rows: pa.Schema, where: str, time: str
    ) -> None:
        self._gap = gap
        self._keys = keys
        self._aggregations = aggregations
        self._rows = rows
        self._where = where
        self._time = time
        self._records = self._cell_records()
        self.state = self._new_state(keys.append(pa.field(CELL, pa.int64())))
        self.dues = SessionDues()
        self._before = self._after = self._memo = np.full(0, -1, np.int32)

    @abstractmethod
    def _cell_records(self) -> Records:
        """Return the records of cells; they have the aggregates ``own``, which begin with ``_TIMES``, first."""

    @abstractmethod
    def _new_state(self, keys: pa.Schema) -> KeyedState:
        """Return empty state."""

    @property
    def kernels(self) -> Sequence[str]:
        """The modules with the kernels that cells call."""
        return ("operators.kernels.sessions", *self.dues.kernels, *self.state.kernels)

    @property
    def owners(self) -> Mapping[str, Sequence[str]]:
        """The columns of a checkpoint that each aggregate is read from."""
        return self._records.owners

    @property
    def initial(self) -> Mapping[str, object]:
        """The values that these columns have for a cell without rows, as far as they are not null."""
        return self._records.initial

    def converted(
        self, part: Mapping[str, pa.Table], owners: Mapping[str, Sequence[str]], added: Collection[str]
    ) -> Mapping[str, pa.Table]:
        """Return a part of stored cells, which had other aggregates, with the tables that these cells have.

        Args:
            part: what is stored.
            owners: the columns of each aggregate there.
            added: the aggregates that are not there.

        Raises: CheckpointMismatch if an aggregate has another kind of state now.
        """
        for identity, columns in self.owners.items():
            if identity in owners and {*owners[identity]} != {*columns}:
                raise CheckpointMismatch(
                    f"the state of the aggregate {identity} is kept in another way now, as rows or not, because "
                    f"another aggregate that chooses a row was added or removed; {WAY_OUT}"
                )
        has_rows = "rows" in self.state.stored
        return {name: table for name, table in part.items() if has_rows or name != "rows"}

    def check_shown(self, parts: Sequence[Mapping[str, pa.Table]], added: Collection[str]) -> None:
        """Raise CheckpointMismatch if an added aggregate has values for sessions that were shown without it."""

    def __len__(self) -> int:
        return self.state.live

    # --- rows

    def enter(self, keys: Sequence[pa.Array], times: Numbers) -> tuple[Slots, Slots]:
        """Return the cell of each row, and the new ones among them. Cells are valid until they are deleted."""
        numbers = times // self._gap
        slots, fresh = self.state.insert([*keys, to_array(numbers)])
        slots = slots.copy()
        new = slots[fresh]
        if len(new):
            self._link(new)
        return slots, new

    def _link(self, slots: Slots) -> None:
        """Enter new cells between those before and after them."""
        from operators.kernels.sessions import link

        self._make_room()
        before, after = self.state.find_beside(slots, len(self._keys))
        link(slots, before, after, self._before, self._after)

    def _make_room(self) -> None:
        room = len(self.state.records)
        if room > len(self._before):
            more = np.full(2 * room - len(self._before), -1, np.int32)
            self._before, self._after, self._memo = (
                np.concatenate([column, more]) for column in (self._before, self._after, self._memo)
            )

    def fold(self, batch: pa.RecordBatch, times: Numbers, slots: Slots, overflow: Overflow) -> Slots:
        """Fold rows into their cells; return these, each once."""
        try:
            self._fold(batch.append_column(TIME, to_array(times)), times, slots)
        except SumOverflow as error:
            raise overflow(error, self.state.keys(slots[error.row : error.row + 1])) from error
        touched = self._records.touched.copy()
        self._records.forget_touched()
        return touched

    @abstractmethod
    def _fold(self, batch: pa.RecordBatch, times: Numbers, slots: Slots) -> None:
        """Fold rows with their times into the cells."""

    # --- cells

    def firsts(self, slots: Slots) -> Numbers:
        """Return the first time of each cell, and of the earlier cells that are merged into it."""
        from operators.kernels.sessions import FIRST

        times: Numbers = ~self.state.records[slots, FIRST]
        return times

    def lasts(self, slots: Slots) -> Numbers:
        """Return the last time of each cell."""
        from operators.kernels.sessions import LAST

        times: Numbers = self.state.records[slots, LAST]
        return times

    def ends(self, slots: Slots) -> Slots:
        """Return the last cell of the session of each cell."""
        from operators.kernels.sessions import find_ends

        out = np.empty(len(slots), np.int32)
        find_ends(slots, self.state.records, self._after, self._gap, self._memo, out)
        return out

    def existing(self, slots: Slots) -> Slots:
        """Return the slots among ``slots`` that were not deleted since rows were last entered."""
        records = self.state.records
        slots = slots[slots < len(records)]
        return slots[records[slots, 0] < 0]

    def look(self, slots: Slots) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """Return the last time of each cell, and whether it is joined to the one after it."""
        from operators.kernels.sessions import look

        lasts, joined = np.empty(len(slots), np.int64), np.empty(len(slots), np.bool_)
        look(slots, self.state.records, self._after, self._gap, lasts, joined)
        return lasts, joined

    def sessions(self, ends: Slots) -> Sessions:
        """Return the cells of the sessions up to each of ``ends``."""
        from operators.kernels.sessions import count_back, list_back

        offsets = np.empty(len(ends) + 1, np.int64)
        count_back(ends, self.state.records, self._before, self._gap, offsets)
        cells = np.empty(int(offsets[-1]), np.int32)
        list_back(ends, self._before, offsets, cells)
        return Sessions(cells, offsets)

    def all_sessions(self, *, shown: bool) -> Sessions:
        """Return all sessions; if not ``shown``, without those that are shown."""
        slots = self.state.slots
        ends = slots[~self.look(slots)[1]]
        return self.sessions(ends if shown else ends[~self.shown(ends)])

    def met(self, slots: Slots, times: Numbers) -> Slots:
        """Return the cells of shown sessions that rows merge with, each once; ``slots`` are the cells of the rows."""
        from operators.kernels.sessions import meet

        out = np.empty(3 * len(slots), np.int32)
        count = meet(slots, times, self.state.records, self._before, self._after, self._gap, SHOWN, out)
        return np.unique(out[:count])

    def shown(self, slots: Slots) -> npt.NDArray[np.bool_]:
        """Return whether the session of each cell is shown."""
        return self._records.shown(slots)

    def show(self, slots: Slots, *, shown: bool) -> None:
        """Set whether the session of each cell, each once, is shown."""
        self.state.change(slots)
        self._records.show(slots, np.full(len(slots), shown))

    # --- sessions

    def edges(self, sessions: Sessions) -> tuple[Numbers, Numbers]:
        """Return the start and the end of each session."""
        if not len(sessions):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        starts = np.minimum.reduceat(self.firsts(sessions.cells), sessions.offsets[:-1])
        return starts, self.lasts(sessions.ends) + self._gap

    def keys(self, sessions: Sessions) -> list[pa.Array]:
        """Return the key columns of each session."""
        return self.state.keys(sessions.ends)[: len(self._keys)]

    def read(self, sessions: Sessions, overflow: Overflow) -> list[pa.Array]:
        """Return the aggregates of each session, a column each."""
        try:
            return self._read(sessions)
        except SumOverflow as error:
            raise overflow(error, self._key_of(sessions, error.row)) from error

    @abstractmethod
    def _read(self, sessions: Sessions) -> list[pa.Array]:
        """Return the aggregates; a ``SumOverflow`` has the number of a session."""

    def expect_changes(self, sessions: Sessions) -> None:
        """Take note that sessions came out and change, perhaps often. They are read before and after each change."""

    def _key_of(self, sessions: Sessions, number: int) -> list[pa.Array]:
        return self.state.keys(sessions.ends[number : number + 1])

    @abstractmethod
    def absorb(self, slots: Slots, overflow: Overflow) -> None:
        """Take note that cells, all joined to the next one, take no more rows, as all cells before them."""

    def delete(self, slots: Slots) -> None:
        """Remove cells, each once."""
        from operators.kernels.sessions import unlink

        if not len(slots):
            return
        unlink(slots, self._before, self._after)
        self.dues.drop(slots)
        self.state.delete(slots)

    # --- restoring

    def restored(self) -> None:
        """Link the cells that were restored. Raises: CheckpointDamaged for cells that no rows can make."""
        slots = self.state.slots
        if not len(slots):
            return
        cells = self.state.keys(slots)[-1]
        if cells.null_count:
            raise CheckpointDamaged(f"{cells.null_count} cells of sessions have no number")
        numbers, firsts, lasts = to_numbers(cells), self.firsts(slots), self.lasts(slots)
        if (firsts > lasts).any() or (lasts // self._gap != numbers).any() or lasts.max() > GREATEST - self._gap:
            raise CheckpointDamaged("cells of sessions have times that are not theirs")
        self._link(slots)


class MergedCells(Cells):
    """Cells with a record of their rows each, for records that can be merged."""

    def _cell_records(self) -> Records:
        self._scratch = self._new_records()
        self._goes_by_arrival = self._scratch.goes_by_arrival
        self._next_arrival = 0
        return self._new_records()

    def _new_records(self) -> Records:
        schema = self._rows.append(pa.field(TIME, pa.int64()))
        own, flags = self.own, self.flags
        return Records(self._aggregations, schema, self._where, merged_by=self._time, own=own, flags=flags)

    def _new_state(self, keys: pa.Schema) -> KeyedState:
        return KeyedState(keys, self._records)

    @property
    def kernels(self) -> Sequence[str]:
        return (*super().kernels, "operators.kernels.merging")

    def _fold(self, batch: pa.RecordBatch, times: Numbers, slots: Slots) -> None:
        if self._goes_by_arrival:
            batch = with_arrivals(batch, batch.num_columns, self._next_arrival)
            self._next_arrival += batch.num_rows
        self._records.fold(batch, slots)

    def restored(self) -> None:
        super().restored()
        if self._goes_by_arrival:
            self._next_arrival = self._records.next_arrival(self.state.slots)

    def _read(self, sessions: Sessions) -> list[pa.Array]:
        if len(sessions.cells) == len(sessions):
            return self._records.read(sessions.cells)
        self._merge(sessions)
        columns = self._scratch.read(np.arange(len(sessions), dtype=np.int32))
        self._scratch.clear()
        return columns

    def _merge(self, sessions: Sessions) -> None:
        """Merge the records of session i, in the order of time, into record i of the scratch."""
        numbers = sessions.numbers
        try:
            self._scratch.merge(self._records.partials(sessions.cells), numbers, len(sessions))
        except SumOverflow as error:
            error.row = int(numbers[error.row])
            raise

    def absorb(self, slots: Slots, overflow: Overflow) -> None:
        if not len(slots):
            return
        after = self._after[slots]
        heads = after[~np.isin(after, slots)]
        sessions = self.sessions(heads)
        try:
            self._merge(sessions)
        except SumOverflow as error:
            raise overflow(error, self._key_of(sessions, error.row)) from error
        self.state.change(heads)
        merged = self._scratch.partials(np.arange(len(sessions), dtype=np.int32))
        self._records.replace(heads, merged)
        self._scratch.clear()
        self.delete(sessions.before_ends)
