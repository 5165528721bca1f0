"""``col(name).dt``: parts of timestamps, dates and times of day, truncation, and local times as instants.

Timestamps with a zone are read on that zone's own clock and calendar; those without, unchanged. The calendar is the
Gregorian, extended back before 1582, and times before 1970 also count from the start of their day. Zones come from the
system's time zone database; Arrow reads summer time from it up to 2037 only, and may use a place's standard time for
the local time before its introduction.

>>> import pyarrow as pa
>>> from datetime import datetime, UTC
>>> from dataflow.expressions import col
>>> instant = datetime(2024, 3, 1, 1, 30, tzinfo=UTC)
>>> batch = pa.record_batch({"t": pa.array([instant], pa.timestamp("ms", "America/New_York"))})
>>> col("t").dt.day().evaluate(batch).to_pylist(), col("t").dt.hour().evaluate(batch).to_pylist()
([29], [20])
>>> print(col("t").dt.truncate("1d").evaluate(batch)[0])
2024-02-29 00:00:00-05:00
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from dataflow.clock import Duration, microseconds, signed_microseconds
from dataflow.errors import GraphError
from dataflow.expressions.calls import Call, Function
from dataflow.expressions.localization import CHOICES
from dataflow.expressions.nodes import Expr
from dataflow.expressions.time_formats import parse_format
from dataflow.expressions.type_names import zoned_type

__all__ = ["TemporalMethods"]


@dataclass(frozen=True, slots=True, eq=False)
class TemporalMethods:
    """Functions of timestamps, dates and times of day; a null gives null. Parts are int64.

    >>> import datetime as dt, pyarrow as pa
    >>> from dataflow.expressions import col
    >>> col("day").dt.year().evaluate(pa.record_batch({"day": [dt.date(2013, 1, 31), None]})).to_pylist()
    [2013, None]
    """

    _time: Expr

    def year(self) -> Expr:
        """Return the year of timestamps and dates."""
        return Call(Function.YEAR, (self._time,))

    def month(self) -> Expr:
        """Return the month of timestamps and dates, 1 to 12."""
        return Call(Function.MONTH, (self._time,))

    def day(self) -> Expr:
        """Return the day of the month of timestamps and dates, 1 to 31."""
        return Call(Function.DAY, (self._time,))

    def hour(self) -> Expr:
        """Return the hour of timestamps and times of day, 0 to 23."""
        return Call(Function.HOUR, (self._time,))

    def minute(self) -> Expr:
        """Return the minute of timestamps and times of day, 0 to 59."""
        return Call(Function.MINUTE, (self._time,))

    def second(self) -> Expr:
        """Return the second of timestamps and times of day, 0 to 59."""
        return Call(Function.SECOND, (self._time,))

    def millisecond(self) -> Expr:
        """Return the whole milliseconds since the second, 0 to 999, of timestamps and times of day."""
        return Call(Function.MILLISECOND, (self._time,))

    def microsecond(self) -> Expr:
        """Return the whole microseconds since the second, 0 to 999,999 (Python's ``datetime.microsecond``).

        >>> import pyarrow as pa
        >>> from dataflow.expressions import col
        >>> batch = pa.record_batch({"t": pa.array([-1], pa.timestamp("ms"))})
        >>> col("t").dt.microsecond().evaluate(batch).to_pylist(), col("t").dt.year().evaluate(batch).to_pylist()
        ([999000], [1969])
        """
        return Call(Function.MICROSECOND, (self._time,))

    def weekday(self) -> Expr:
        """Return the weekday of timestamps and dates; Monday is 1 and Sunday 7 (ISO 8601)."""
        return Call(Function.WEEKDAY, (self._time,))

    def ordinal_day(self) -> Expr:
        """Return the day of the year of timestamps and dates, 1 to 366."""
        return Call(Function.ORDINAL_DAY, (self._time,))

    def date(self) -> Expr:
        """Return the day of timestamps and dates, as date32."""
        return Call(Function.DATE, (self._time,))

    def strftime(self, format: str) -> Expr:
        """Return timestamps and dates as text in ``format``, with Python's codes.

        The codes are ``%Y %y %m %d %j %H %I %M %S %f %u %w %G %V %U %W %%``, with zeros in front as Python documents
        them: ``%Y`` has 4 digits, ``%f`` the 6 of microseconds; ``%a %A %b %B %p %c %x %X`` as in the locale "C", with
        English names, whatever the language of the process; and ``%z``, the offset from UTC such as +0530, which is
        empty for columns without a zone. Times are read on the clock of their zone; the clock of a date shows midnight.

        Args:
            format: plain text with codes.

        Raises: TypeError if ``format`` is no text; GraphError, naming the code, for ``%Z``, whose names differ between
        engines, and for unknown codes; OverflowError, during evaluation, for years before 1 and after 9999.

        >>> import datetime as dt, pyarrow as pa
        >>> from dataflow.expressions import col
        >>> batch = pa.record_batch({"t": [dt.datetime(2024, 2, 9, 7, 5), None]})
        >>> col("t").dt.strftime("%d.%m.%Y, %H:%M").evaluate(batch).to_pylist()
        ['09.02.2024, 07:05', None]
        >>> col("t").dt.strftime("%A, %B %d").evaluate(batch).to_pylist()
        ['Friday, February 09', None]
        >>> col("t").dt.strftime("%Z")
        Traceback (most recent call last):
        dataflow.errors.GraphError: strftime: '%Z' is a name that Spark and Python have from different lists; use %z...
        """
        parse_format(format)
        return Call(Function.STRFTIME, (self._time,), (format,))

    def localize(self, zone: str, ambiguous: str = "raise", missing: str = "raise") -> Expr:
        """Return the instants at which the clock of ``zone`` shows the timestamps, which have no zone.

        Use it for local times, such as those of a log file: ``cast("timestamp[us, tz=Europe/Berlin]")`` would read them
        as UTC. The result has the column's unit, and the zone; a null gives null. After 2037 there is no summer time,
        as in all functions of times.

        Args:
            zone: a time zone such as ``"Europe/Berlin"``, ``"UTC"`` or ``"+05:30"``.
            ambiguous: what to do with a time that the clock shows twice, because it was set back: ``"raise"``; take the
                ``"earlier"`` or the ``"later"`` instant; or ``"null"``.
            missing: what to do with a time that the clock skips, because it was set forward: ``"raise"``; take the last
                instant before the gap (``"earlier"``), one unit before its end, or its end (``"later"``); or
                ``"null"``.

        Raises: GraphError for an unknown zone or choice; TypeError if ``zone`` is no text; SchemaMismatch, when it is
        used, for columns that have a zone already; during evaluation ValueError for times of which there are two or
        none, and OverflowError for an instant beyond the times of the type.

        >>> import datetime as dt, pyarrow as pa
        >>> from dataflow.expressions import col
        >>> at = [dt.datetime(2024, 7, 1, 12), dt.datetime(2024, 10, 27, 2, 30), dt.datetime(2024, 3, 31, 2, 30)]
        >>> batch = pa.record_batch({"at": pa.array(at, pa.timestamp("s"))})
        >>> berlin = col("at").dt.localize("Europe/Berlin", ambiguous="later", missing="later")
        >>> [str(time) for time in berlin.evaluate(batch)]
        ['2024-07-01 12:00:00+02:00', '2024-10-27 02:30:00+01:00', '2024-03-31 03:00:00+02:00']
        >>> col("at").dt.localize("Europe/Berlin").evaluate(batch)
        Traceback (most recent call last):
        ValueError: expression: col('at').dt.localize('Europe/Berlin'): the clock of Europe/Berlin shows 2024-10-27 ...
        """
        if not isinstance(zone, str):
            raise TypeError(f"localize: zone must be text such as 'Europe/Berlin', got {zone!r}")
        for name, choice in (("ambiguous", ambiguous), ("missing", missing)):
            if choice not in CHOICES:
                raise GraphError(f"localize: {name} must be 'raise', 'earlier', 'later' or 'null', got {choice!r}")
        zoned_type("us", zone, "localize")
        return Call(Function.LOCALIZE, (self._time,), (zone, ambiguous, missing))

    def truncate(self, every: Duration, *, offset: Duration = timedelta(0)) -> Expr:
        """Return the start of the interval that contains each time, for timestamps and dates; the type stays.

        Times before 1970 are rounded down, too. With a zone, both lengths are read on its clock, and intervals follow
        each other without gap or overlap, as the windows of ``op.tumbling(zone=)`` do. A start that the clock skips
        (summer time begins) is at the end of the gap. A start that the clock shows twice (summer time ends) counts
        once, the first time, so a day with two midnights is one interval; but if ``every`` is no longer than the clock
        is set back, it counts twice, so that both hours are intervals.

        Args:
            every: length of the intervals, at least a microsecond.
            offset: one interval starts this long after 1970-01-01 00:00; ``"7d"`` with ``offset="4d"`` starts on
                Mondays. It is taken modulo ``every``, and may be negative.

        Raises: ConfigurationError for an invalid length; GraphError if ``every`` is 0; SchemaMismatch if the column's
        unit is too coarse; OverflowError, during evaluation, if an interval begins beyond the times of the type.

        >>> import pyarrow as pa
        >>> from dataflow.expressions import col
        >>> batch = pa.record_batch({"t": pa.array([-1, 7_300, None], pa.timestamp("s"))})
        >>> hours = col("t").dt.truncate("1h")
        >>> hours
        col('t').dt.truncate('1h')
        >>> [str(time) for time in hours.evaluate(batch)]
        ['1969-12-31 23:00:00', '1970-01-01 02:00:00', 'None']
        """
        length = microseconds(every, "truncate: every")
        if length == 0:
            raise GraphError(f"truncate: every must be at least a microsecond, got {every!r}")
        return Call(
            Function.TRUNCATE, (self._time,), (length, signed_microseconds(offset, "truncate: offset") % length)
        )
