"""Queries that end in the totals of their rows: windows, joins and ranks. Rows come late, and no row is dropped.

Times are 1 us apart, with a pause of 200 ms after each ``BLOCK`` rows, in which sessions end. Every fourth row comes up
to ``LATEST`` rows late, so many rows of a session come after the pause.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import numpy.typing as npt

import operators as op
from dataflow import Stream, col

__all__ = ["QUERIES", "TIME", "Query", "times"]

TIME = "at"
"""The column of event time."""
LATENESS = "300ms"
BLOCK, PAUSE, LATEST = 5_000, 200_000, 3_750
STEP = 2_654_435_761

_SUMS = (op.count().alias("n"), col("value").sum().alias("total"))


def times(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the event times, in microseconds, of the rows with these numbers.

    >>> times(np.array([1, 2, 5_001])).tolist()
    [1, 2, 205001]
    >>> times(np.array([5_004])).tolist()
    [3210]
    """
    late = np.where(rows % 4 == 0, rows * STEP % LATEST, 0)
    happened = np.maximum(rows - late, 0)
    return happened + happened // BLOCK * PAUSE


def _milliseconds(length: int) -> timedelta:
    return timedelta(milliseconds=length)


def _tumbling(rows: Stream) -> Stream:
    windows = rows.key_by("key").window(op.tumbling(_milliseconds(5)), lateness=LATENESS)
    return windows.agg(*_SUMS, emit="changes", name="windows")


def _hopping(rows: Stream) -> Stream:
    windows = rows.key_by("key").window(op.hopping(_milliseconds(10), every=_milliseconds(5)), lateness=LATENESS)
    return windows.agg(*_SUMS, emit="changes", name="windows")


def _sessions(rows: Stream) -> Stream:
    sessions = rows.key_by("key").window(op.session(_milliseconds(100)), lateness=LATENESS)
    median = col("value").quantile(0.5).alias("median")
    return sessions.agg(*_SUMS, median, emit="changes", name="sessions")


def _sliding(rows: Stream) -> Stream:
    last = rows.key_by("key").window(op.sliding(_milliseconds(1)), lateness=LATENESS)
    recent = last.agg(col("value").max().alias("most"), emit="changes", name="recent")
    return recent.with_columns(n=1, total=col("value"))


def _early(rows: Stream) -> Stream:
    windows = rows.key_by("key").window(
        op.tumbling(_milliseconds(5)), lateness=LATENESS, early=op.after_rows(10), panes="discarding"
    )
    return windows.agg(*_SUMS, name="panes").filter(col("n") > 0)


def _signed(rows: Stream) -> Stream:
    return rows.key_by("key").agg(*_SUMS, col("value").min().alias("least"), emit="changes", name="keys")


def _joined(rows: Stream) -> Stream:
    """Join each row with the first one of its key."""
    return rows.join(_keys(rows), on="key", name="join").with_columns(n=1, total=col("value"))


def _joined_in_time(rows: Stream) -> Stream:
    """Join each row with the first one of its key, which is at most an hour before it or after it."""
    joined = rows.join(_keys(rows), on="key", within=("-1h", "1h"), lateness=LATENESS, name="join")
    return joined.with_columns(n=1, total=col("value"))


def _keys(rows: Stream) -> Stream:
    return rows.unique("key", name="keys").select("key", TIME)


def _top(rows: Stream) -> Stream:
    """Rank the rows of each key and window; all of them are among the first ones."""
    windows = rows.key_by("key").window(op.tumbling(_milliseconds(5)), lateness=LATENESS)
    return windows.top(1_000_000, by="value", name="top").with_columns(n=1, total=col("value"))


@dataclass(frozen=True)
class Query:
    """A query that returns columns ``key``, ``n`` and ``total``; each row is counted ``times`` times in them."""

    title: str
    build: Callable[[Stream], Stream]
    times: int = 1


QUERIES: Mapping[str, Query] = {
    "tumbling": Query("rows in tumbling windows with changes, a quarter of them late", _tumbling),
    "hopping": Query("rows in hopping windows with changes, a quarter of them late", _hopping, times=2),
    "sessions": Query("rows in sessions with changes, a quarter of them late", _sessions),
    "sliding": Query("rows in sliding windows with changes, a quarter of them late", _sliding),
    "early": Query("rows in windows with early panes, a quarter of them late", _early),
    "signed": Query("rows of an aggregate with signed changes", _signed),
    "joined": Query("rows of a join without windows", _joined),
    "joined in time": Query("rows of a join within an hour, a quarter of them late", _joined_in_time),
    "top": Query("ranked rows of windows, a quarter of them late", _top),
}
"""The queries, by the name of their family."""
