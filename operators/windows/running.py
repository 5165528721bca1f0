"""Results of sliding windows as rows come in the order of time: what is merged so far, by key and by row.

``scans`` says how a result is made of two blocks. Here are, for each key, the block of its latest row and the merge of
that block so far, and for each row its record, or, once its key has reached the next block, the merge of its block from
it on. So a row costs a constant, also if each comes in a batch of its own.

All of this is derived from the rows and nothing is stored. For a key without it (after a restore, or when a late row
came) the rows of one period are gone through again.

Invariant: if ``_block[slot]`` is set, all rows of the key before its latest one that are in a window of a later row are
merged: in ``_merged[slot]`` if they are of that block, in ``_words`` if they are of the one before. If the slot was
that of another key, its block is over, because the last row of that key was a period before any row that still comes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.state.arrays import LEAST, Mask, Numbers
from dataflow.state.copy_on_write import Rows
from dataflow.state.index import Slots
from dataflow.state.keyed_rows import TIME
from dataflow.state.keyed_state import KeyedState
from dataflow.state.ranges import SEQUENCE, SLOT
from operators.aggregation.records import SumOverflow
from operators.windows.distinct_values import DistinctValues
from operators.windows.extreme_values import Comparison, ExtremeValues
from operators.windows.row_aggregates import ReadApart, RowAggregates
from operators.windows.scans import earlier, joined, later

__all__ = ["Running", "changes_at"]


_NONE = LEAST


class Running:
    """The results of the rows of ``state``, which has them in the order of time.

    Args:
        aggregates: what is computed.
        period: the length of a window, in the unit of the rows' times.
        read: returns rows by their numbers.
        overflow: makes the error for a sum that overflows, from it and the slot of its key.
    """

    def __init__(
        self,
        state: KeyedState,
        aggregates: RowAggregates,
        period: int,
        read: Callable[[Slots], pa.RecordBatch],
        overflow: Callable[[SumOverflow, int], OverflowError],
    ) -> None:
        self._state = state
        self._aggregates = aggregates
        self._records = aggregates.records
        self._period = period
        self._read = read
        self._overflow = overflow
        width = len(self._records.template)
        self._block = np.empty(0, np.int64)  # by slot
        self._since = np.empty(0, np.int64)  # by slot: rows from this time on have words
        self._gone = np.empty(0, np.int64)  # by slot: rows before this time have left the latest window
        self._merged = np.empty((0, width), np.int64)  # by slot
        self._words = np.empty((0, width), np.int64)  # by row
        self._distinct: dict[int, DistinctValues] = {}
        self._extremes: dict[int, ExtremeValues] = {}
        for place, apart in enumerate(aggregates.apart):
            if apart.least is None:
                self._distinct[place] = DistinctValues(apart.dtype)
            else:
                comparison = Comparison(least=apart.least)
                self._extremes[place] = ExtremeValues(comparison, partial(_values_of, apart, read))

    @property
    def kernels(self) -> tuple[str, ...]:
        """The modules with the kernels that are called."""
        return tuple(name for distinct in self._distinct.values() for name in distinct.kernels)

    def forget(self, slots: Slots) -> None:
        """Drop what is known of keys, because a row came late, or they were restored."""
        self._grow()
        self._block[slots] = _NONE

    def leave(self, numbers: Slots) -> None:
        """Take note that rows were removed from the state, which has had no other rows since."""
        self._grow()
        slots = self._state.row_records[numbers, SLOT].astype(np.int32)
        for distinct in self._distinct.values():
            distinct.evict(slots, numbers)

    def results(self, numbers: Slots, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the results of rows: the next ones in the order of time, and all of their times.

        Args:
            numbers: their numbers.
            batch: the rows.
        """
        self._grow()
        slots = self._state.row_records[numbers, SLOT].astype(np.int32)
        order = np.argsort(slots, kind="stable")
        numbers, slots = numbers[order], slots[order]
        self._restore(slots, numbers)
        times = self._state.row_records[numbers, TIME]
        batch = batch.take(pa.array(order))
        merged, apart = self._absorb(numbers, slots, times, batch)
        heads = self._state.first_rows(slots, times - self._period + 1)
        in_block = self._state.row_records[heads, TIME] // self._period == times // self._period
        lasts = _lasts(slots, times)
        records = joined(self._records, self._words[heads], ~in_block, merged[lasts])
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        results = [
            self._extremes[place].joined(heads[back], ~in_block[back], numbers[lasts[back]])
            if place in self._extremes
            else to_array(numbers[back])
            for place, numbers in enumerate(apart)
        ]
        return self._aggregates.columns(records[back], results, self._read)

    def _absorb(
        self, numbers: Slots, slots: Slots, times: Numbers, batch: pa.RecordBatch
    ) -> tuple[Rows, list[Numbers]]:
        """Take rows in, by slot and time; return what is merged of each one's block up to it, and what has no record.

        The latter are the numbers of distinct values, or the numbers of the rows of the best values of that block.
        """
        leaves = self._aggregates.leaves(batch, numbers, self._state.row_records[numbers, SEQUENCE])
        self._words[numbers] = leaves
        values = self._aggregates.values(batch)
        for place, extreme in self._extremes.items():
            extreme.enter(numbers, values[place])
        blocks = times // self._period
        of_key, starts = changes_at(slots), changes_at(slots, blocks)
        firsts = np.flatnonzero(of_key)
        lasts = np.append(firsts[1:], len(slots)) - 1
        self._turn(slots, blocks, firsts, np.flatnonzero(starts & ~of_key))
        seeded = firsts[self._block[slots[firsts]] == blocks[firsts]]
        try:
            merged = earlier(self._records, leaves, starts, self._merged[slots[seeded]], seeded)
        except SumOverflow as error:
            raise self._overflow(error, int(slots[error.row])) from error
        self._merged[slots[lasts]] = merged[lasts]
        self._block[slots[lasts]] = blocks[lasts]
        counts = self._count(numbers, slots, times, firsts, lasts, values)
        for place, extreme in self._extremes.items():
            counts[place] = extreme.absorb(numbers, slots, starts, seeded, lasts, values[place])
        return merged, [counts[place] for place in range(len(counts))]

    def _turn(self, slots: Slots, blocks: Numbers, firsts: Numbers, nexts: Numbers) -> None:
        """Merge, from each row on, the blocks that keys leave for the next one.

        ``firsts`` are the first row of each key, ``nexts`` the first rows of further blocks of a key.
        """
        before = firsts[self._block[slots[firsts]] == blocks[firsts] - 1]
        after = nexts[blocks[nexts - 1] == blocks[nexts] - 1]
        rows = np.concatenate([before, after])
        if not len(rows):
            return
        keys, left = slots[rows], blocks[rows] - 1
        low = np.maximum(left * self._period, self._since[keys])
        offsets, numbers = self._state.rows_between(keys, low, (left + 1) * self._period)
        starts = np.zeros(len(numbers), np.bool_)
        starts[offsets[:-1][np.diff(offsets) > 0]] = True
        try:
            self._words[numbers] = later(self._records, self._words[numbers], starts)
        except SumOverflow as error:
            raise self._overflow(error, int(self._state.row_records[numbers[error.row], SLOT])) from error
        for extreme in self._extremes.values():
            extreme.turn(numbers, starts)

    def _count(
        self,
        numbers: Slots,
        slots: Slots,
        times: Numbers,
        firsts: Numbers,
        lasts: Numbers,
        values: list[pa.Array],
    ) -> dict[int, Numbers]:
        """Return the number of distinct values in the window of each row, by place."""
        if not self._distinct:
            return {}
        keys = slots[firsts]
        rows = np.append(firsts, len(slots)), keys, times
        until = times[lasts] - self._period + 1
        offsets, gone = self._state.rows_between(keys, self._gone[keys], until)
        self._gone[keys] = until
        left = offsets, keys, self._state.row_records[gone, TIME]
        return {
            place: distinct.slide(rows, numbers, values[place], left, gone, self._period)
            for place, distinct in self._distinct.items()
        }

    def _restore(self, slots: Slots, numbers: Slots) -> None:
        """Go through the rows before ``numbers`` that keys about which nothing is known need again."""
        firsts = np.flatnonzero(changes_at(slots))
        firsts = firsts[self._block[slots[firsts]] == _NONE]
        if not len(firsts):
            return
        keys, times = slots[firsts], self._state.row_records[numbers[firsts], TIME]
        if self._distinct:
            offsets, counted = self._state.rows_between(keys, LEAST, times)
            for distinct in self._distinct.values():
                distinct.evict(np.repeat(keys, np.diff(offsets)), counted)
        self._since[keys] = self._gone[keys] = times - self._period + 1
        offsets, rows = self._state.rows_between(keys, times - self._period + 1, times)
        if len(rows):
            keys = np.repeat(keys, np.diff(offsets))
            self._absorb(rows, keys, self._state.row_records[rows, TIME], self._read(rows))

    def _grow(self) -> None:
        slots, rows = len(self._state.records), len(self._state.row_records)
        if slots > len(self._block):
            self._block = _longer(self._block, slots)
            self._since = _longer(self._since, slots)
            self._gone = _longer(self._gone, slots)
            self._merged = _longer(self._merged, slots)
        self._words = _longer(self._words, rows)
        for distinct in self._distinct.values():
            distinct.grow(slots, rows)
        for extreme in self._extremes.values():
            extreme.grow(slots, rows)


def changes_at(*columns: npt.NDArray[np.int32] | Numbers) -> Mask:
    """Return for each row whether one of the columns differs from the row before; the first one always does."""
    changed = np.ones(len(columns[0]), np.bool_)
    changed[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return changed


def _values_of(apart: ReadApart, read: Callable[[Slots], pa.RecordBatch], numbers: Slots) -> pa.Array:
    return apart.values(read(numbers))


def _lasts(slots: Slots, times: Numbers) -> Numbers:
    """Return for each row the last one of its key with the same time."""
    starts = np.flatnonzero(changes_at(slots, times))
    ends = np.append(starts[1:], len(slots))
    return np.repeat(ends - 1, ends - starts)


def _longer(array: Numbers, length: int) -> Numbers:
    """Return ``array`` with at least ``length`` rows, twice as many if it grows; new ones are unknown."""
    if length <= len(array):
        return array
    grown = np.full((2 * length, *array.shape[1:]), _NONE, np.int64)
    grown[: len(array)] = array
    return grown
