"""The results of sliding windows that late rows change: as they were shown, and as they are now.

A row at time t is in the windows of the rows from t to t + period. These results are computed twice, without and with
the new rows, from the rows between t - period and t + period. What was shown was computed by the same merges in the
same order (``scans``), so a row is taken back exactly as it was. Both are computed after the new rows were appended: to
read the rows before that as well took 1.11 times as long (nine pairs of runs in turns, CPU time).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.state.arrays import GREATEST, Mask, Numbers
from dataflow.state.copy_on_write import Rows
from dataflow.state.index import Slots
from dataflow.state.keyed_rows import TIME
from dataflow.state.keyed_state import KeyedState
from dataflow.state.ranges import SEQUENCE, SLOT
from operators.aggregation.records import SumOverflow
from operators.stateful.changes import Change, changes
from operators.windows.distinct_values import counted_apart
from operators.windows.extreme_values import Comparison, best_apart
from operators.windows.row_aggregates import RowAggregates
from operators.windows.running import changes_at
from operators.windows.scans import earlier, joined, later

__all__ = ["LateResults"]


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Rows of keys between two times: ``starts`` has the first row of each stretch, and after them their number."""

    numbers: Slots
    starts: Numbers
    times: Numbers
    leaves: Rows
    values: list[pa.Array]

    def chosen(self, which: Mask) -> _Stretch:
        """Return some of the rows."""
        before = np.append(0, np.cumsum(which))
        only = to_array(which)
        values = [column.filter(only) for column in self.values]
        return _Stretch(self.numbers[which], before[self.starts], self.times[which], self.leaves[which], values)


class LateResults:
    """Changes of results by late rows; the arguments are those of ``Running``."""

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
        self._period = period
        self._read = read
        self._overflow = overflow

    def changes(self, numbers: Slots, watermark: int) -> Iterator[Change]:
        """Yield what changes in the results before ``watermark``, in the order of time, the old one before the new.

        ``numbers`` are those of the last rows that were appended to the state, of which the late ones count.
        """
        records = self._state.row_records
        since = int(records[numbers, SEQUENCE].min())
        numbers = numbers[records[numbers, TIME] < watermark]
        stretch = self._stretch(numbers, watermark)
        new = records[stretch.numbers, SEQUENCE] >= since
        now, heads, lasts = self._results(stretch)
        counted = np.append(0, np.cumsum(new))
        affected = counted[lasts + 1] > counted[heads]
        old = stretch.chosen(~new)
        then, _, _ = self._results(old)
        rows = np.flatnonzero(affected).astype(np.int32)
        rows = rows[np.lexsort((records[stretch.numbers[rows], SEQUENCE], stretch.times[rows]))]
        shown = ~new[rows]
        before = self._columns(then, (np.cumsum(~new) - 1)[rows[shown]])
        for changed, columns, weights in changes(rows, shown, before, lambda some: self._columns(now, some)):
            yield stretch.numbers[changed], columns, weights

    def _stretch(self, numbers: Slots, watermark: int) -> _Stretch:
        """Return the rows that are in a window together with one of ``numbers``, and before ``watermark``."""
        records = self._state.row_records
        slots, times = records[numbers, SLOT].astype(np.int32), records[numbers, TIME]
        order = np.lexsort((times, slots))
        slots, times = slots[order], times[order]
        low, high = times - self._period + 1, _after(times, self._period, watermark)
        apart = changes_at(slots)
        apart[1:] |= low[1:] >= high[:-1]
        firsts = np.flatnonzero(apart)
        lasts = np.append(firsts[1:], len(slots)) - 1
        starts, rows = self._state.rows_between(slots[firsts], low[firsts], high[lasts])
        batch = self._read(rows)
        leaves = self._aggregates.leaves(batch, rows, records[rows, SEQUENCE])
        return _Stretch(rows, starts, records[rows, TIME], leaves, self._aggregates.values(batch))

    def _results(self, rows: _Stretch) -> tuple[tuple[Rows, list[pa.Array]], Numbers, Numbers]:
        """Return the records of windows and what has no record, and the first and the last row of each window."""
        from operators.kernels.sliding import find_windows

        count, records = len(rows.numbers), self._aggregates.records
        heads, lasts = np.empty(count, np.int64), np.empty(count, np.int64)
        if not count:
            counts = pa.array([], pa.int64())
            apart = zip(self._aggregates.apart, rows.values, strict=True)
            results = [counts if a.least is None else values for a, values in apart]
            return (rows.leaves, results), heads, lasts
        find_windows(rows.starts, rows.times, self._period, heads, lasts)
        segments, blocks = np.repeat(np.arange(len(rows.starts) - 1), np.diff(rows.starts)), rows.times // self._period
        starts = changes_at(segments, blocks)
        try:
            merged = earlier(records, rows.leaves, starts, rows.leaves[:0], heads[:0])
            ends = later(records, rows.leaves, starts)
            has_end = blocks[heads] != blocks
            words = joined(records, ends[heads], has_end, merged[lasts])
        except SumOverflow as error:
            slot = int(self._state.row_records[rows.numbers[error.row], SLOT])
            raise self._overflow(error, slot) from error
        results = []
        for a, values in zip(self._aggregates.apart, rows.values, strict=True):
            if a.least is None:
                results.append(to_array(counted_apart(rows.starts, rows.times, values, self._period)))
            else:
                comparison = Comparison(least=a.least)
                results.append(best_apart(comparison, values, starts, heads, has_end, lasts))
        return (words, results), heads, lasts

    def _columns(self, results: tuple[Rows, list[pa.Array]], rows: Numbers | Slots) -> list[pa.Array]:
        """Return the results of rows."""
        records, apart = results
        chosen = to_array(rows)
        return self._aggregates.columns(records[rows], [column.take(chosen) for column in apart], self._read)


def _after(times: Numbers, period: int, most: int) -> Numbers:
    """Return ``times`` plus ``period``, at most ``most``."""
    return np.where(times > GREATEST - period, most, np.minimum(times + period, most))
