"""Late rows: the one way to split a batch into rows on time, late rows, and rows that are late for some windows.

The bound is the watermark less the allowed lateness. A row is late by *time* if its event time is before the bound, and
by *number* if all of its windows are over, that is complete at the bound. If only some are, it is partly late, and the
others take it. The bound may be one for all rows, or one for each: ``Passed.closed`` knows the watermark that the key
of each row goes by.

Late rows are counted, with how late they are, and emitted to a side output. Records of rows (``is_partial``) are
counted as the rows they hold. They are not emitted, because nothing is left of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.contracts.declared_state import Passed
from dataflow.contracts.operator import OperatorContext, Out
from dataflow.contracts.row_errors import LATE, LATE_RIGHT
from dataflow.state.arrays import GREATEST, LEAST, Mask, Numbers
from operators.stateful.columns import ROWS, is_partial
from operators.stateful.entries import number_rows
from operators.stateful.time_units import TimeUnit
from operators.stateful.window_numbers import Numbered, Numbering

__all__ = ["LateRows"]


class LateRows:
    """Takes the late rows out of the batches of one input of an operator.

    Args:
        context: the operator's; its tally counts late and partly late rows, and those whose time was compared.
        passed: the watermark that the operator goes by.
        lateness: how long rows are taken that come after the watermark, in microseconds.
        keys: the key columns of the input; none: all rows have one key.
        tag: the side output of the late rows.
    """

    def __init__(
        self, context: OperatorContext, passed: Passed, lateness: int, keys: Sequence[str], tag: str = LATE
    ) -> None:
        self._where = context.name
        self._tally = context.tally
        self._passed = passed
        self._lateness = lateness
        self._keys = list(keys)
        self._tag = tag

    def split_times(
        self, batch: pa.RecordBatch, times: Numbers, unit: TimeUnit, out: Out
    ) -> tuple[pa.RecordBatch, Numbers]:
        """Return the rows that are not late, and their times; count and emit the others. There is at least one row."""
        late = self.note_times(batch, times, unit, out)
        return (batch, times) if late is None else (batch.filter(to_array(~late)), times[~late])

    def note_times(self, batch: pa.RecordBatch, times: Numbers, unit: TimeUnit, out: Out) -> Mask | None:
        """Count and emit the late rows, which stay in the batch; return which they are, None: no row is late."""
        self._tally.lateness.checked += batch.num_rows
        bounds = self._bounds(batch)
        if int(times.min()) >= unit.first(_greatest(bounds)):
            return None
        firsts = unit.first(bounds) if isinstance(bounds, int) else unit.first_at(bounds, TimeUnit.MICROSECOND)
        late: Mask = times < firsts
        if not late.any():
            return None
        self._take(batch, late, unit.microseconds(times[late]), bounds, out)
        return late

    def split_numbers(
        self, batch: pa.RecordBatch, numbering: Numbering, out: Out
    ) -> tuple[pa.RecordBatch, Numbered | None]:
        """Number rows, or records of rows, at least one; count and emit the late ones.

        Returns: the batch and its entries in windows that are not over; None if there are none. The batch is shorter
        only if each row has one entry.

        Raises: ValueError for a null event time; OverflowError for times out of range.
        """
        weights = to_numbers(batch.column(ROWS)) if is_partial(batch.schema) else None
        self._tally.lateness.checked += batch.num_rows if weights is None else int(np.sum(weights))
        entries = number_rows(batch, numbering, self._where)
        if entries is None:
            return batch, None
        bounds = self._bounds(batch)
        greatest = _greatest(bounds)
        if greatest == LEAST or entries.low > numbering.begun(greatest):
            return batch, entries
        by_entry = bounds if isinstance(bounds, int) or entries.rows is None else bounds[entries.rows]
        over: Mask = entries.numbers <= _each(numbering.over, by_entry)
        if entries.rows is None:
            late, partly = over, (entries.numbers <= _each(numbering.begun, by_entry)) & ~over
        else:
            gone, taken = (np.bincount(entries.rows[which], minlength=batch.num_rows) > 0 for which in (over, ~over))
            late, partly = gone & ~taken, gone & taken
        self._tally.partly_late += _total(weights, partly)
        if late.any():
            self._take(batch, late, _last_ends(entries, numbering, late), bounds, out, weights)
        return _remaining(batch, entries, ~over)

    def _bounds(self, batch: pa.RecordBatch) -> int | Numbers:
        """Return the time in microseconds before which rows are late, or one for each row."""
        return self._passed.closed(self._lateness, [batch.column(name) for name in self._keys])

    def _take(
        self,
        batch: pa.RecordBatch,
        late: Mask,
        ends: Numbers,
        bounds: int | Numbers,
        out: Out,
        weights: Numbers | None = None,
    ) -> None:
        """Count the late rows of a batch, at least one, and emit them unless they are records, which have ``weights``.

        ``ends`` are the event times of the late ones, or the ends of their last windows.
        """
        tally, rows = self._tally, _total(weights, late)
        tally.late += rows
        tally.late_right += rows if self._tag == LATE_RIGHT else 0
        how_late = (bounds if isinstance(bounds, int) else bounds[late]) - ends
        how_late[how_late < 0] = GREATEST  # 64 bits cannot hold the difference
        tally.lateness.add(how_late, None if weights is None else weights[late])
        if weights is None:
            out.emit(batch.filter(to_array(late)), self._tag)


def _total(weights: Numbers | None, chosen: Mask) -> int:
    """Return the number of the rows that are chosen."""
    return int(np.count_nonzero(chosen)) if weights is None else int(np.sum(weights[chosen]))


def _greatest(bounds: int | Numbers) -> int:
    return bounds if isinstance(bounds, int) else int(bounds.max())


def _each(number: Callable[[int], int], bounds: int | Numbers) -> int | Numbers:
    """Return the number of windows for a bound, or for each of several; before the first watermark it is the least.

    Few bounds are distinct: a job has them from the subtasks of a former run.
    """
    if isinstance(bounds, int):
        return LEAST if bounds == LEAST else max(LEAST, min(GREATEST, number(bounds)))
    distinct, places = np.unique(bounds, return_inverse=True)
    return np.array([_each(number, bound) for bound in distinct.tolist()], np.int64)[places]


def _last_ends(entries: Numbered, numbering: Numbering, late: Mask) -> Numbers:
    """Return the end of the last window of each late row."""
    if entries.rows is None:
        return numbering.last_ends(entries.numbers[late])
    of_late = late[entries.rows]
    rows = entries.rows[of_late]  # in ascending order
    ends: Numbers = np.maximum.reduceat(
        numbering.last_ends(entries.numbers[of_late]), np.flatnonzero(np.diff(rows, prepend=-1))
    )
    return ends


def _remaining(batch: pa.RecordBatch, entries: Numbered, open_: Mask) -> tuple[pa.RecordBatch, Numbered | None]:
    if open_.all():
        return batch, entries
    if not open_.any():
        return batch, None
    numbers = entries.numbers[open_]
    starts = None if entries.starts is None else entries.starts[open_]
    rows = None if entries.rows is None else entries.rows[open_]
    if rows is None:
        batch = batch.filter(to_array(open_))
    return batch, Numbered(numbers, int(numbers.min()), entries.high, starts, rows)
