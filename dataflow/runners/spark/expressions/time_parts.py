"""Parts of times on Spark, and times as text, by the clock of the column's zone."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyarrow import types

from dataflow.expressions.calls import Function
from dataflow.expressions.time_formats import BEYOND, NAMES, OFFSET, WIDTHS, parse_format
from dataflow.runners.spark.expressions.microseconds import from_ticks, to_ticks, wall_clock
from dataflow.runners.spark.expressions.run_time_errors import fail
from dataflow.runners.spark.session import functions

__all__ = ["format_times", "part"]

_F = Function


def part(function: Function, column: Any, own: pa.DataType) -> Any:
    """Return a part of timestamps, dates or times of day, whose type is ``own``."""
    f = functions()
    shown = wall_clock(column, own) if types.is_timestamp(own) else column
    if function is _F.DATE:
        return shown.cast("date")
    if function in (_F.MILLISECOND, _F.MICROSECOND):
        micros = f.pmod(to_ticks(column, own), f.lit(1_000_000).cast("bigint"))
        return micros if function is _F.MICROSECOND else f.call_function("div", micros, f.lit(1000).cast("bigint"))
    if function is _F.WEEKDAY:
        return (f.weekday(shown) + 1).cast("bigint")
    return getattr(f, _PARTS[function])(shown).cast("bigint")


_PARTS: Final = {
    _F.YEAR: "year",
    _F.MONTH: "month",
    _F.DAY: "dayofmonth",
    _F.HOUR: "hour",
    _F.MINUTE: "minute",
    _F.SECOND: "second",
    _F.ORDINAL_DAY: "dayofyear",
}


def format_times(column: Any, own: pa.DataType, text: str, what: str) -> Any:
    """Return timestamps or dates, whose type is ``own``, as text in a format of ``dt.strftime``."""
    f = functions()
    shown = wall_clock(column, own) if types.is_timestamp(own) else from_ticks(to_ticks(column, own), _PLAIN)
    parts = parse_format(text)
    codes = [part for part, is_code in parts if is_code]
    pattern = "".join(_pattern(part) if is_code else part.replace("%", "%%") for part, is_code in parts)
    written = f.format_string(pattern, *(_written(code, shown, column, own) for code in codes))
    plain = f.when(f.year(shown).between(1, 9999), written).otherwise(fail(OverflowError, f"{what}: {BEYOND}"))
    return f.when(column.isNotNull(), plain)


_PLAIN: Final = pa.timestamp("us")


def _pattern(code: str) -> str:
    return f"%0{WIDTHS[code]}d" if code in WIDTHS else "%s"


def _written(code: str, shown: Any, column: Any, own: pa.DataType) -> Any:
    """Return the number or the text that a code stands for; ``shown`` is what the clock of the column's zone shows."""
    f = functions()
    if code in NAMES:
        number, texts = NAMES[code]
        return f.element_at(f.array(*[f.lit(text) for text in texts]), _number(number, shown).cast("int") + 1)
    if code != OFFSET:
        return _number(code, shown)
    if not types.is_timestamp(own) or own.tz is None:
        return f.lit("")
    seconds = f.call_function("div", to_ticks(shown, _PLAIN) - to_ticks(column, own), f.lit(1_000_000))
    rest = f.abs(seconds) % 60
    minutes = f.call_function("div", f.abs(seconds), f.lit(60))
    sign, hours = f.when(seconds < 0, "-").otherwise("+"), f.call_function("div", minutes, f.lit(60))
    more = f.when(rest == 0, "").otherwise(f.format_string("%02d", rest))
    return f.format_string("%s%02d%02d%s", sign, hours, minutes % 60, more)


def _number(code: str, shown: Any) -> Any:
    f = functions()
    match code:
        case "%y":
            return f.year(shown) % 100
        case "%I":
            return (f.hour(shown) + 11) % 12 + 1
        case "%f":
            return part(_F.MICROSECOND, shown, _PLAIN)
        case "%w":
            return f.dayofweek(shown) - 1
        case "%G":
            return f.extract(f.lit("YEAROFWEEK"), shown)
        case "%V":
            return f.weekofyear(shown)
        case "%U":
            return f.call_function("div", f.dayofyear(shown) + 7 - f.dayofweek(shown), f.lit(7))
        case "%W":
            return f.call_function("div", f.dayofyear(shown) + 6 - f.weekday(shown), f.lit(7))
    return part(_CODES[code], shown, _PLAIN)


_CODES: Final = {
    "%Y": _F.YEAR,
    "%m": _F.MONTH,
    "%d": _F.DAY,
    "%j": _F.ORDINAL_DAY,
    "%H": _F.HOUR,
    "%M": _F.MINUTE,
    "%S": _F.SECOND,
    "%u": _F.WEEKDAY,
}
