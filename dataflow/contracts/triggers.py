"""The triggers of windows; ``dataflow.contracts.panes`` says what they do."""

from __future__ import annotations

from dataflow.clock import Duration, microseconds
from dataflow.contracts.panes import AfterRows, AfterTime, AtTimes
from dataflow.errors import ConfigurationError

__all__ = ["after_rows", "after_time", "at_times"]


def after_rows(n: int) -> AfterRows:
    """Return a trigger that shows a window when it has at least ``n`` rows that were not shown, judged after a batch.

    Args:
        n: the number of rows of a key in the window, above 0.

    Raises: ConfigurationError for anything else.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> table = pa.table({"at": pa.array([1, 2, 3, 4, 5], pa.timestamp("s"))})
    >>> rows = flow.Pipeline().source(op.from_arrow(table, batch_rows=1)).with_watermark("at")
    >>> counts = rows.window(op.tumbling("10s"), early=op.after_rows(2)).agg(n=op.count()).collect()
    >>> counts.select(["pane", "pane_index", "n"]).to_pylist()[1:]
    [{'pane': 'early', 'pane_index': 1, 'n': 4}, {'pane': 'on_time', 'pane_index': 2, 'n': 5}]
    """
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise ConfigurationError(f"after_rows(n) must be a whole number above 0, got {n!r}")
    return AfterRows(n)


def after_time(length: Duration) -> AfterTime:
    """Return a trigger that shows a window some time after its first row that was not shown, by the clock.

    On Spark the clock is read once a micro-batch. The time that a job is down before a restore counts.

    Args:
        length: the time from the first row on, above 0.

    Raises: ConfigurationError for zero, or text that is no duration.

    >>> import operators as op
    >>> str(op.after_time("1s"))
    'after_time(1s)'
    """
    return AfterTime(_length(length, "after_time(length)"))


def at_times(every: Duration) -> AtTimes:
    """Return a trigger that shows windows with new rows when the watermark passes a multiple of ``every``.

    Args:
        every: the distance of these times, above 0; the epoch, 1970, is one of them.

    Raises: ConfigurationError for zero, or text that is no duration.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> table = pa.table({"at": pa.array([1, 4, 5, 9, 12], pa.timestamp("s"))})
    >>> rows = flow.Pipeline().source(op.from_arrow(table, batch_rows=1)).with_watermark("at")
    >>> windows = rows.window(op.tumbling("10s"), early=op.at_times("5s"), panes="discarding")
    >>> windows.agg(n=op.count()).collect().select(["pane", "n"]).to_pylist()[1:3]
    [{'pane': 'early', 'n': 2}, {'pane': 'on_time', 'n': 1}]
    """
    return AtTimes(_length(every, "at_times(every)"))


def _length(given: Duration, what: str) -> int:
    length = microseconds(given, what)
    if length <= 0:
        raise ConfigurationError(f"{what} must be above zero, got {given!r}")
    return length
