"""The windows of rows as columns, by the arithmetic of `dataflow.contracts.windows` on microseconds.

Spark's own ``window`` is not used: it has no windows that grow, and other edges for months.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from dataflow.contracts.window_kinds import SameWindow
from dataflow.contracts.windows import EventTime, Sliced, Slices, Window
from dataflow.expressions.coercion import value_type
from dataflow.runners.spark.expressions.microseconds import PER_UNIT, from_ticks, to_ticks
from dataflow.runners.spark.expressions.run_time_errors import fail
from dataflow.runners.spark.lowering.inputs import NotLowered
from dataflow.runners.spark.session import column, functions

__all__ = ["Windows", "event_ticks", "windows_of"]

_WINDOW: Final = "barrierflow:window"
_START, _END = "barrierflow:start", "barrierflow:end"


@dataclass(frozen=True)
class Whole:
    """A column of int64 with the operations of Python's integers, for the arithmetic of windows."""

    column: Any

    def __add__(self, other: Any) -> Whole:
        return Whole(self.column + _column(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Whole:
        return Whole(self.column - _column(other))

    def __mul__(self, other: int) -> Whole:
        return self if other == 1 else Whole(self.column * _column(other))

    def __floordiv__(self, other: int) -> Whole:
        if other == 1:
            return self
        divisor = _column(other)
        return Whole(functions().call_function("div", self.column - (self % other).column, divisor))

    def __mod__(self, other: int) -> Whole:
        return Whole(functions().pmod(self.column, _column(other)))


def _column(number: Any) -> Any:
    return number.column if isinstance(number, Whole) else functions().lit(number).cast("bigint")


def event_ticks(time: EventTime, schema: pa.Schema, where: str) -> Any:
    """Return the event time of rows in microseconds. Spark raises ValueError for a row whose time is null."""
    f, dtype = functions(), value_type(schema.field(time.column).type)
    value = column(time.column)
    ticks = to_ticks(value, dtype)
    if time.back:
        ticks = ticks - f.lit(time.back * PER_UNIT[dtype.unit])
    reason = (
        f"{where}: an event time is null in {time.column!r}; filter such rows out, or give with_watermark(on_error=)"
    )
    return f.coalesce(ticks, fail(ValueError, reason).cast("bigint"))


@dataclass(frozen=True)
class Windows:
    """The windows of rows.

    Attributes:
        window: the kind of the windows.
        columns: the columns that ``of`` adds, by name: together they are one window.
        repeated: whether a row is repeated for each of its windows, which are an array in the only column.
    """

    window: Window
    columns: dict[str, Any]
    repeated: bool = False

    @property
    def names(self) -> Sequence[str]:
        """The names of the columns that are a window."""
        return list(self.columns)

    def of(self, frame: Any) -> Any:
        """Return the rows with their windows, each row once for each of them."""
        f = functions()
        if self.repeated:
            return frame.select("*", *(f.explode(value).alias(name) for name, value in self.columns.items()))
        return frame.select("*", *(value.alias(name) for name, value in self.columns.items()))

    def edges(self, dtype: pa.DataType) -> tuple[Any, Any]:
        """Return the first time of the window that a row has in its columns, and the one after it, as ``dtype``."""
        if not isinstance(self.window, Sliced):
            start, end = column(_START), column(_END)
        else:
            number = Whole(column(_WINDOW))
            start, end = self.window.start(number).column, self.window.end(number).column  # type: ignore[type-var]
        return from_ticks(start, dtype), from_ticks(end, dtype)


def windows_of(window: Window, time: EventTime, schema: pa.Schema, where: str) -> Windows:
    """Return the windows of rows of ``schema`` with event time ``time``.

    Raises: NotLowered for kinds of windows that are no arithmetic.
    """
    if type(window) is SameWindow:
        given = {
            _START: EventTime("window_start"),
            _END: EventTime("window_end"),
        }
        return Windows(window, {name: event_ticks(edge, schema, where) for name, edge in given.items()})
    if not isinstance(window, Sliced) or type(window).__module__.partition(".")[0] != "dataflow":
        raise NotLowered(f"Spark cannot compute windows of the kind {type(window).__name__}")
    number = _slice_of(window.slices, Whole(event_ticks(time, schema, where)))
    if not window.overlaps:
        return Windows(window, {_WINDOW: number.column})
    first, last = window.containing(number)  # type: ignore[type-var]
    return Windows(window, {_WINDOW: functions().sequence(first.column, last.column)}, repeated=True)


def _slice_of(slices: Slices, ticks: Whole) -> Whole:
    since = ticks - slices.offset if slices.offset else ticks
    steps = since // slices.every
    if not slices.split:
        return steps
    second = ((since % slices.every).column >= _column(slices.split)).cast("bigint")
    return steps * 2 + Whole(second)
