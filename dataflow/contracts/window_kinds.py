"""The kinds of windows of the library, and the functions that make them. Durations are microseconds.

>>> windows = Tumbling(10_000_000)
>>> windows.start(-1), windows.end(-1)
(-10000000, 0)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dataflow.clock import Duration, microseconds, signed_microseconds
from dataflow.contracts.local_windows import LocalTumbling
from dataflow.contracts.windows import Assigned, EventTime, N, Sliced, Slices, Window
from dataflow.errors import ConfigurationError, GraphError

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.contracts.windows import Microseconds

__all__ = ["Cumulate", "Hopping", "SameWindow", "Session", "Tumbling"]
__all__ += ["cumulate", "hopping", "same_window", "session", "tumbling", "window_length"]

_CALENDAR = re.compile(r"\s*[\d.]*\s*(mo|mon|months?|q|quarters?|y|years?)\s*")


@dataclass(frozen=True, slots=True)
class Tumbling(Sliced):
    """Adjacent windows of one size; ``offset`` moves their edges away from the epoch. Each is one slice.

    >>> hours = Tumbling(3_600_000_000)
    >>> number = hours.slices.number(4_000_000_000)
    >>> number, hours.start(number), hours.end(number)
    (1, 3600000000, 7200000000)
    """

    overlaps: ClassVar[bool] = False
    ends_follow: ClassVar[bool] = True

    size: int
    offset: int = 0

    def __str__(self) -> str:
        return f"tumbling({self.size}us, offset={self.offset}us)"

    @property
    def slices(self) -> Slices:
        return Slices(self.size, self.offset)

    @property
    def lengths(self) -> tuple[int, ...]:
        return self.size, self.offset

    def covered(self, window: N) -> tuple[N, N]:
        return window, window + 1

    def containing(self, number: N) -> tuple[N, N]:
        return number, number

    def last_ending(self, time: int) -> int:
        return (time - self.offset) // self.size - 1


@dataclass(frozen=True, slots=True)
class Hopping(Sliced):
    """Windows of one size, ``period``, that begin every ``every``, which is at most ``period``.

    A window has as many slices as ``every`` fits into ``period``; if something is left, there are two slices in each
    ``every``, because windows then begin and end at different times.

    >>> windows = Hopping(10, 4)
    >>> windows.slices.parts, windows.covered(0), windows.containing(2)
    (2, (0, 5), (-1, 1))
    >>> windows.start(1), windows.end(1), windows.last_ending(14)
    (4, 14, 1)
    """

    ends_follow: ClassVar[bool] = True

    period: int
    every: int
    offset: int = 0

    def __str__(self) -> str:
        return f"hopping({self.period}us, every={self.every}us, offset={self.offset}us)"

    @property
    def slices(self) -> Slices:
        return Slices(self.every, self.offset, self.period % self.every)

    @property
    def lengths(self) -> tuple[int, ...]:
        return self.period, self.every, self.offset

    @property
    def _count(self) -> int:
        """The slices in a window."""
        whole, rest = divmod(self.period, self.every)
        return 2 * whole + 1 if rest else whole

    def covered(self, window: N) -> tuple[N, N]:
        first = window * self.slices.parts
        return first, first + self._count

    def containing(self, number: N) -> tuple[N, N]:
        parts = self.slices.parts
        return (number - self._count) // parts + 1, number // parts

    def last_ending(self, time: int) -> int:
        return (time - self.offset - self.period) // self.every


@dataclass(frozen=True, slots=True)
class Cumulate(Sliced):
    """Windows that begin every ``period`` and end ``every``, 2 * ``every``, ... up to ``period`` later.

    A window has the number of its last slice.

    >>> windows = Cumulate(6, 2)
    >>> [(windows.start(number), windows.end(number)) for number in range(4)]
    [(0, 2), (0, 4), (0, 6), (6, 8)]
    >>> windows.containing(1), windows.last_ending(7)
    ((1, 2), 2)
    """

    period: int
    every: int
    offset: int = 0

    def __str__(self) -> str:
        return f"cumulate({self.period}us, every={self.every}us, offset={self.offset}us)"

    @property
    def slices(self) -> Slices:
        return Slices(self.every, self.offset % self.every)

    @property
    def lengths(self) -> tuple[int, ...]:
        return self.every, self.offset

    def _first_of(self, number: N) -> N:
        """Return the first slice of the period that slice ``number`` is in."""
        steps, shift = self.period // self.every, self.offset // self.every
        return (number - shift) // steps * steps + shift

    def covered(self, window: N) -> tuple[N, N]:
        return self._first_of(window), window + 1

    def containing(self, number: N) -> tuple[N, N]:
        return number, self._first_of(number) + self.period // self.every - 1

    def last_ending(self, time: int) -> int:
        return (time - self.offset % self.every) // self.every - 1


@dataclass(frozen=True, slots=True)
class SameWindow(Window):
    """The windows that the rows came out of: their own ``window_start`` and ``window_end``.

    ``inclusive``: the end is part of the window, as that of a session. ``exact``: the edges are in nanoseconds.

    >>> str(SameWindow()), SameWindow().complete(10), SameWindow(inclusive=True).complete(10)
    ('same_window()', 10, 9)
    """

    overlaps: ClassVar[bool] = False
    columns: ClassVar[tuple[str, ...]] = ("window_start", "window_end")

    inclusive: bool = False
    exact: bool = False

    def __str__(self) -> str:
        words = [word for word, holds in (("inclusive", self.inclusive), ("ns", self.exact)) if holds]
        return f"same_window({', '.join(words)})"

    @property
    def edge_unit(self) -> str:
        return "ns" if self.exact else "us"

    def of(self, schema: pa.Schema, time: EventTime) -> SameWindow:
        """Return the windows of rows of ``schema`` that came out of a window with event time ``time``."""
        return SameWindow(inclusive=not time.exclusive, exact=schema.field("window_end").type.unit == "ns")

    def complete(self, watermark: int) -> int:
        return watermark - 1 if self.inclusive else watermark

    @property
    def lengths(self) -> tuple[int, ...]:
        return ()

    def check(self, schema: pa.Schema, time: EventTime) -> None:
        """Raise GraphError unless the rows came out of a window, and have its edges."""
        came = time.column == "window_end" and "window_start" in schema.names
        if not came or schema.field("window_start").type != schema.field("window_end").type:
            raise GraphError(
                "window: op.same_window() needs rows that came out of a window and still have its columns "
                f"'window_start' and 'window_end'; the event time of these is {time.column!r}, and their columns are "
                f"{schema.names}"
            )

    def assign(self, times: Microseconds, batch: pa.RecordBatch) -> Assigned:
        import numpy as np
        import pyarrow as pa

        self._check_nulls(batch)
        starts, ends = (
            np.asarray(
                batch.column(name).cast(pa.timestamp(self.edge_unit, batch.column(name).type.tz)).view(pa.int64())
            )
            for name in self.columns
        )
        return Assigned(starts, ends)

    def _check_nulls(self, batch: pa.RecordBatch) -> None:
        for name in self.columns:
            if nulls := batch.column(name).null_count:
                raise ValueError(
                    f"{self}: {nulls} of {batch.num_rows} values of {name!r} are null, so their rows are in no window; "
                    "filter such rows out first"
                )


@dataclass(frozen=True, slots=True)
class Session(Window):
    """Windows of activity of a key: a row is from its time to ``gap`` later, and what overlaps or touches is one.

    The end is inclusive: a row at ``window_end`` belongs to the session.

    >>> sessions = Session(10)
    >>> sessions.complete(30), str(sessions)
    (29, 'session(10us)')
    """

    merges: ClassVar[bool] = True
    overlaps: ClassVar[bool] = False

    gap: int

    def __str__(self) -> str:
        return f"session({self.gap}us)"

    @property
    def lengths(self) -> tuple[int, ...]:
        return (self.gap,)

    def complete(self, watermark: int) -> int:
        return watermark - 1

    def assign(self, times: Microseconds, batch: pa.RecordBatch) -> Assigned:
        """Return the window of each row, before windows are merged."""
        return Assigned(times, times + self.gap)


def tumbling(every: Duration, *, offset: Duration = "0s", zone: str | None = None) -> Tumbling | LocalTumbling:
    """Return adjacent windows of event time, each ``every`` long: ``stream.key_by("k").window(op.tumbling("10s"))``.

    Edges are whole multiples of ``every`` since 1970-01-01 (UTC, or local time if the column has no time zone), moved
    by ``offset``. With ``zone``, they are multiples on its clock, as for ``dt.truncate``: a day begins at local
    midnight, and has 23 or 25 hours when the clock changes. An edge that the clock skips is at the end of the gap. An
    edge that it shows twice counts once, the first time, so a day with two midnights is one window; but if windows are
    no longer than the clock is set back, it counts twice, so that both hours are windows.

    Args:
        every: the length of a window, above 0 and at most 100,000 days. Months have no fixed length, so they are
            refused; see `Window` for windows of months.
        offset: how far the edges are moved, modulo ``every``; may be negative, such as ``"-6h"``.
        zone: the time zone of the column of event time, such as ``"Europe/Berlin"``; None: edges in UTC.

    Raises: ConfigurationError for a length out of range, text that is no duration, or a zone that does not exist.

    >>> tumbling("1h", offset="15min").start(0) == 15 * 60 * 1_000_000
    True
    >>> tumbling("1d", offset="-6h") == tumbling("1d", offset="18h")
    True
    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> at = pa.array(["2024-03-30T22:30:00", "2024-03-30T23:30:00"]).cast(pa.timestamp("s"))
    >>> table = pa.table({"at": at.cast(pa.timestamp("s", "Europe/Berlin"))})
    >>> rows = flow.Pipeline().source(op.from_arrow(table)).with_watermark("at")
    >>> days = rows.window(op.tumbling("1d", zone="Europe/Berlin")).agg(n=op.count()).collect()
    >>> [f"{start:%d %H:%M}" for start in days["window_start"].to_pylist()]
    ['30 00:00', '31 00:00']
    """
    size = window_length(every, "tumbling(every)")
    shift = signed_microseconds(offset, "tumbling(offset=)") % size
    return Tumbling(size, shift) if zone is None else LocalTumbling(size, shift, _zone(zone))


def hopping(period: Duration, *, every: Duration, offset: Duration = "0s") -> Hopping:
    """Return windows of event time that overlap: each is ``period`` long, and one begins every ``every``.

    The windows are from ``offset + i * every`` to ``offset + i * every + period``, for all whole numbers i. A key has a
    result for each window with at least one of its rows. The cost of a row does not depend on ``period / every``: each
    row is folded once, and results are merged from records of it (except for aggregates whose records cannot be merged,
    such as ``count_distinct`` and extremes of text, which fold the row into each of its windows).

    Args:
        period: the length of a window, above 0 and at most 100,000 days.
        every: the distance between the starts of two windows, above 0 and at most ``period``; it need not divide it.
        offset: how far the edges are moved, modulo ``every``; may be negative, such as ``"-6h"``.

    Raises: ConfigurationError for a length out of range, or text that is no duration.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> table = pa.table({"k": ["a"] * 3, "at": pa.array([1, 6, 12], pa.timestamp("s"))})
    >>> rows = flow.Pipeline().source(op.from_arrow(table)).with_watermark("at")
    >>> counts = rows.key_by("k").window(op.hopping("10s", every="5s")).agg(n=op.count()).collect()
    >>> [(f"{row['window_start']:%S}", row["n"]) for row in counts.to_pylist()]
    [('55', 1), ('00', 2), ('05', 2), ('10', 1)]
    """
    length, step = _period_and_step(period, every, "hopping")
    return Hopping(length, step, signed_microseconds(offset, "hopping(offset=)") % step)


def cumulate(period: Duration, *, every: Duration, offset: Duration = "0s") -> Cumulate:
    """Return windows of event time that grow: one begins every ``period``, and has a result every ``every`` until then.

    The windows are from ``offset + i * period`` to ``every``, 2 * ``every``, ..., ``period`` after that. Each step has
    a result for all keys of the window so far.

    Args:
        period: the length of the longest window, above 0 and at most 100,000 days.
        every: the length of a step, above 0; it must divide ``period``.
        offset: how far the edges are moved, modulo ``period``; may be negative, such as ``"-6h"``.

    Raises: ConfigurationError for a length out of range or one that does not divide ``period``, or text that is no
        duration.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> table = pa.table({"k": ["a"] * 3, "at": pa.array([1, 6, 12], pa.timestamp("s"))})
    >>> rows = flow.Pipeline().source(op.from_arrow(table)).with_watermark("at")
    >>> counts = rows.key_by("k").window(op.cumulate("10s", every="5s")).agg(n=op.count()).collect()
    >>> [(f"{row['window_end']:%S}", row["n"]) for row in counts.to_pylist()]
    [('05', 1), ('10', 2), ('15', 1), ('20', 1)]
    """
    length, step = _period_and_step(period, every, "cumulate")
    if length % step:
        raise ConfigurationError(
            f"cumulate(every=) must divide the period, got a period of {period!r} and every={every!r}; "
            "op.hopping takes any two lengths"
        )
    return Cumulate(length, step, signed_microseconds(offset, "cumulate(offset=)") % length)


def same_window() -> SameWindow:
    """Return the windows that rows came out of, for aggregates of the results of a window: each row has its own.

    The rows need the columns ``window_start`` and ``window_end``, and the event time, that a window gave them.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> table = pa.table({"k": ["a", "b", "a", "b"], "at": pa.array([1, 2, 3, 12], pa.timestamp("s"))})
    >>> rows = flow.Pipeline().source(op.from_arrow(table)).with_watermark("at")
    >>> counts = rows.key_by("k").window(op.tumbling("10s")).agg(n=op.count())
    >>> most = counts.window(op.same_window()).agg(most=flow.col("n").max()).collect()
    >>> most.column_names, most["most"].to_pylist()
    (['window_start', 'window_end', 'most'], [2, 1])
    """
    return SameWindow()


def session(gap: Duration) -> Session:
    """Return windows of activity: rows of a key that follow each other by at most ``gap`` are of one session.

    A row at time t is from t to t + gap, both included; what overlaps or touches becomes one session. So
    ``window_start`` is the time of the first row, and ``window_end`` that of the last row plus ``gap``, which is the
    event time of the result. A session is complete when the watermark is above its ``window_end``, and a row is late if
    t + gap + lateness is below the watermark, whatever it would have merged with.

    ``emit`` of `WindowedStream.agg` decides what happens when a row merges with a session that came out:

    - ``"changes"``: the session is taken back (-1), and the merged one comes out when it is complete. The net is what a
      batch job computes over the rows that were not late.
    - ``"final"`` with lateness: no session comes out before all rows that can merge with it have come.
    - ``"final"`` without lateness: the row starts a session of its own. Such *split sessions* are counted in the
      summary and ``RunResult.split_sessions``, and a run warns of them.

    ``"updates"`` is an error, because an update cannot say that two sessions became one. With ``panes="discarding"``
    results are panes of the rows that were not shown before, and ``early`` and ``late`` say when they come. The panes
    between the start and the end of a session of a batch job add up to its result, if no row is late.

    A row costs the same whatever the number of open sessions of its key, and whatever the order of rows. Aggregates
    whose records cannot be merged (such as ``count_distinct``, ``quantile``, ``to_list``, ``aggregate_python`` and
    extremes of text) keep the columns that they read of the rows of open sessions, and fold them when a session comes
    out. With ``"changes"`` they fold all rows of a session again whenever it changes after it came out.

    Times are compared in microseconds; finer event times are rounded down to them.

    Args:
        gap: the longest time between two rows of a session, above 0 and at most 100,000 days.

    Raises: ConfigurationError for a length out of range, or text that is no duration.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> table = pa.table({"k": ["a"] * 4, "at": pa.array([1, 6, 30, 11], pa.timestamp("s"))})
    >>> rows = flow.Pipeline().source(op.from_arrow(table)).with_watermark("at")
    >>> sessions = rows.key_by("k").window(op.session("5s")).agg(n=op.count()).collect()
    >>> [(f"{row['window_start']:%S}", f"{row['window_end']:%S}", row["n"]) for row in sessions.to_pylist()]
    [('01', '16', 3), ('30', '35', 1)]
    """
    return Session(window_length(gap, "session(gap)"))


def _zone(zone: str) -> str:
    """Return ``zone``. Raises: ConfigurationError if there is none of this name."""
    from dataflow.expressions.type_names import zoned_type

    try:
        zoned_type("us", zone, "tumbling")
    except (GraphError, TypeError) as error:
        raise ConfigurationError(
            f"tumbling(zone=) must be a time zone such as 'Europe/Berlin', got {zone!r}"
        ) from error
    return zone


def window_length(given: Duration, what: str) -> int:
    """Return a length of windows in microseconds. Raises: ConfigurationError if it is out of range."""
    if isinstance(given, str) and _CALENDAR.fullmatch(given):
        raise ConfigurationError(
            f"{what}: months, quarters and years have no fixed length, got {given!r}; for windows of them write a "
            "subclass of dataflow.Window, whose documentation has months as its example"
        )
    length = microseconds(given, what)
    if length <= 0:
        raise ConfigurationError(f"{what} must be above 0 and at most 100,000 days, got {given!r}")
    return length


def _period_and_step(period: Duration, every: Duration, kind: str) -> tuple[int, int]:
    """Return both lengths in microseconds. Raises: ConfigurationError if one is out of range."""
    length, step = window_length(period, f"{kind}(period)"), window_length(every, f"{kind}(every=)")
    if step > length:
        raise ConfigurationError(
            f"{kind}(every=) must be at most the period, got a period of {period!r} and every={every!r}; between such "
            "windows rows would be lost"
        )
    return length, step
