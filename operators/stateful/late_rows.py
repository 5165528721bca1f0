"""Late rows of windows: which rows of a batch have windows that still take them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.contracts.operator import Out
from dataflow.contracts.row_errors import LATE, LATE_RIGHT, RowTally
from dataflow.state.arrays import Numbers
from operators.stateful.columns import ROWS, is_partial
from operators.stateful.window_numbers import Numbered, Numbering

__all__ = ["without_late"]


def without_late(
    batch: pa.RecordBatch,
    entries: Numbered,
    numbering: Numbering,
    closed: int,
    tally: RowTally,
    out: Out,
    tag: str = LATE,
) -> tuple[pa.RecordBatch, Numbered | None]:
    """Remove late rows, count them with how late they are, and emit them unless they are records.

    Args:
        batch: rows, or records of rows.
        entries: their numbers.
        closed: the watermark less the allowed lateness: the windows that it completes are over.
        tally: counts late and partly late rows.
        out: takes the late rows.
        tag: the side output of the late rows.

    Returns: the batch and its entries in windows that are not over; None if there are none. The batch is shorter only
    if each row has one entry.
    """
    begun = numbering.begun(closed)
    if entries.low > begun:
        return batch, entries
    over = entries.numbers <= numbering.over(closed)
    weights = to_numbers(batch.column(ROWS)) if is_partial(batch.schema) else np.ones(batch.num_rows, np.int64)
    if entries.rows is None:
        late = over
        partly = ~over & (entries.numbers <= begun)
    else:
        gone, taken = (np.bincount(entries.rows[which], minlength=batch.num_rows) for which in (over, ~over))
        late, partly = (gone > 0) & (taken == 0), (gone > 0) & (taken > 0)
    tally.partly_late += int(np.sum(weights[partly]))
    if late.any():
        ends = _last_ends(entries, numbering, batch.num_rows)[late]
        tally.late += int(np.sum(weights[late]))
        tally.late_right += int(np.sum(weights[late])) if tag == LATE_RIGHT else 0
        tally.lateness.add(closed - ends, weights[late])
        if not is_partial(batch.schema):
            out.emit(batch.filter(to_array(late)), tag)
    return _remaining(batch, entries, over)


def _last_ends(entries: Numbered, numbering: Numbering, rows: int) -> Numbers:
    """Return the end of the last window of each row."""
    ends = numbering.last_ends(entries.numbers)
    if entries.rows is None:
        return ends
    last = np.full(rows, -(2**63), np.int64)
    np.maximum.at(last, entries.rows, ends)
    return last


def _remaining(
    batch: pa.RecordBatch, entries: Numbered, over: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> tuple[pa.RecordBatch, Numbered | None]:
    if not over.any():
        return batch, entries
    if over.all():
        return batch, None
    numbers = entries.numbers[~over]
    starts = None if entries.starts is None else entries.starts[~over]
    rows = entries.rows
    if rows is None:
        batch = batch.filter(to_array(~over))
    else:
        rows = rows[~over]
    return batch, Numbered(numbers, int(numbers.min()), entries.high, starts, rows)
