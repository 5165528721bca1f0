"""The event times of a join's rows, and its late rows: those before a time."""

from __future__ import annotations

import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.operator import OperatorContext, Out
from dataflow.contracts.row_errors import LATE, LATE_RIGHT
from dataflow.contracts.windows import EventTime
from operators.aggregation.window_times import Numbers, row_times, time_column

__all__ = ["TAGS", "event_times", "times_of", "without_late"]

TAGS = LATE, LATE_RIGHT
"""The side outputs of late rows, by input."""


def times_of(batch: pa.RecordBatch, time: EventTime, context: OperatorContext) -> Numbers:
    """Return the event time of each row in microseconds, and count the rows, of which some may be late.

    Raises: as ``event_times``.
    """
    context.tally.lateness.checked += batch.num_rows
    return event_times(batch, time, context.name)


def event_times(batch: pa.RecordBatch, time: EventTime, where: str) -> Numbers:
    """Return the event time of each row in microseconds.

    Raises: ValueError for a null event time; OverflowError for one that does not fit.
    """
    times = time_column(batch, time.column, where)
    try:
        return row_times(times, time.back)
    except OverflowError as error:
        raise OverflowError(
            f"{where}: event times in {time.column!r} are out of range: {error}; filter such rows out"
        ) from error


def without_late(
    port: int, batch: pa.RecordBatch, times: Numbers, closed: int, context: OperatorContext, out: Out
) -> tuple[pa.RecordBatch, Numbers]:
    """Remove rows before ``closed``; count them and emit them as the late rows of input ``port``."""
    late = times < closed
    if not late.any():
        return batch, times
    context.tally.late += int(late.sum())
    context.tally.late_right += int(late.sum()) if port == 1 else 0
    context.tally.lateness.add(closed - times[late])
    out.emit(batch.filter(to_array(late)), TAGS[port])
    return batch.filter(to_array(~late)), times[~late]
