"""Casts on Spark: those of the local engine, each checked where Spark's own would round, wrap or read more than ours.

==================================  ======================================================================
text                                int, float, bool, decimal, date and timestamp are read in the forms that
                                    the local engine reads; hexadecimal ints, and decimals with an exponent,
                                    raise ``ValueError``
int, bool, date, decimal to text    as locally; dates outside the years 1 to 9999 raise ``OverflowError``
decimal to float                    of at most 15 digits, which is where both sides round alike
refused                             float, timestamp or duration to text, float to decimal, ...
==================================  ======================================================================
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import types

from dataflow.errors import UnsupportedOnRunner
from dataflow.expressions.coercion import family, value_type
from dataflow.runners.spark.binding import Operand
from dataflow.runners.spark.failures import checked
from dataflow.runners.spark.parsing import parse
from dataflow.runners.spark.session import functions
from dataflow.runners.spark.ticks import PER_UNIT, day_in_zone, from_ticks, to_ticks
from dataflow.runners.spark.types import spark_type

__all__ = ["cast", "limits"]

_EXACT_DIGITS: Final = 15  # so that a decimal's digits and its power of ten are both exact float64s
_PLAIN_SCALE: Final = 6  # from seven places on, the local engine writes small decimals with an exponent


def cast(operand: Operand, source: pa.DataType, target: pa.DataType, what: str) -> Any:
    """The operand, which carries values of ``source``, as ``target``; ``what`` begins the errors' texts.

    Raises: UnsupportedOnRunner where Spark cannot do it exactly.
    """
    source, target = value_type(source), value_type(target)
    sparks = spark_type(target, what)
    column = operand.column
    if types.is_null(source) or source.equals(target):
        return column.cast(sparks)
    match (_kind(source), _kind(target)):
        case ("int" | "bool", "float") | ("float", "float") | ("bool", "int") | ("int", "decimal"):
            return column.cast(sparks)
        case ("int" | "bool", "string") | ("string", "binary"):
            return column.cast(sparks)
        case ("string", "string") | ("binary", "binary") | ("date", "date"):
            return column
        case ("int" | "float", "bool"):
            return column != 0
        case ("binary", "string"):
            return functions().validate_utf8(column.cast(sparks))
        case ("int", "int") if _widens(source, target):
            return column.cast(sparks)
    return operand.bind(lambda once: _checked(once, source, target, sparks, what))


def _checked(column: Any, source: pa.DataType, target: pa.DataType, sparks: Any, what: str) -> Any:
    match (_kind(source), _kind(target)):
        case ("int", "int"):
            inside = column.between(*limits(target))
            return checked(column, inside, column.cast(sparks), OverflowError, _outside(what, target))
        case ("float", "int"):
            return _float_to_int(column, target, sparks, what)
        case ("decimal", _):
            return _from_decimal(column, source, target, sparks, what)
        case ("string", "int" | "float" | "bool" | "decimal" | "date" | "timestamp"):
            return parse(column, target, sparks, what)
    return _time(column, source, target, sparks, what)


def _kind(dtype: pa.DataType) -> str:
    return "timestamp" if types.is_timestamp(dtype) else family(dtype)


def _refused(what: str, source: pa.DataType, target: pa.DataType) -> UnsupportedOnRunner:
    return UnsupportedOnRunner(
        what,
        "spark",
        f"Spark's cast from {source} to {target} gives other values than the local engine's",
        "cast by way of a type between the two, or do it where the rows are made",
    )


def limits(dtype: pa.DataType) -> tuple[int, int]:
    """The least and the greatest int of an integer type."""
    info = np.iinfo(dtype.to_pandas_dtype())
    return int(info.min), int(info.max)


def _widens(source: pa.DataType, target: pa.DataType) -> bool:
    (low, high), (least, most) = limits(target), limits(source)
    return low <= least and most <= high


def _outside(what: str, target: pa.DataType) -> str:
    return f"{what}: a value is out of the range of {target}; cast to a wider type, or filter such rows out first"


def _float_to_int(column: Any, target: pa.DataType, sparks: Any, what: str) -> Any:
    low, high = limits(target)
    above = column >= float(low) if low == -(2**63) else column > float(low - 1)
    inside = above & (column < float(high + 1))  # false of NaN, which is greatest
    return checked(column, inside, column.cast("bigint").cast(sparks), OverflowError, _outside(what, target))


def _from_decimal(column: Any, source: pa.DataType, target: pa.DataType, sparks: Any, what: str) -> Any:
    lossy = f"{what}: a value of {source} has digits that {target} would lose; round it where the rows are made"
    match _kind(target):
        case "float" if source.precision <= _EXACT_DIGITS and types.is_float64(target):
            return column.cast(sparks)
        case "int":
            low, high = limits(target)
            whole = column.cast("decimal(38,0)")
            inside = checked(
                column, whole.between(low, high), whole.cast(sparks), OverflowError, _outside(what, target)
            )
            return checked(column, column % 1 == 0, inside, ValueError, lossy)
        case "string" if source.scale <= _PLAIN_SCALE:
            return column.cast(sparks)
        case "decimal" if max(source.scale, target.scale) + source.precision - source.scale <= 38:
            narrowed = column.try_cast(sparks)
            return checked(column, narrowed.isNotNull() & (narrowed == column), narrowed, ValueError, lossy)
    raise _refused(what, source, target)


def _time(column: Any, source: pa.DataType, target: pa.DataType, sparks: Any, what: str) -> Any:
    """Among dates, timestamps, durations and the ints that count them."""
    f = functions()
    kinds = (_kind(source), _kind(target))
    match kinds:
        case ("date", "int") if types.is_date32(source) and not types.is_int64(target):
            return f.unix_date(column)
        case ("int", "date") if types.is_date32(target) and types.is_int32(source):
            return f.date_from_unix_date(column)
        case ("timestamp", "date"):
            return day_in_zone(column, source)
        case ("date", "timestamp"):
            return from_ticks(to_ticks(column, source), target)
        case ("timestamp", "timestamp") | ("duration", "duration"):
            ticks, step = to_ticks(column, source), PER_UNIT[target.unit]
            lossy = f"{what}: a value of {source} has a fraction that {target} would lose; floor it first"
            made = from_ticks(ticks, target)
            if step <= PER_UNIT[source.unit]:
                return made
            return checked(column, ticks % step == 0, made, ValueError, lossy)
        case ("timestamp" | "duration", "int") if types.is_int64(target):
            return f.call_function("div", to_ticks(column, source), f.lit(PER_UNIT[source.unit]).cast("bigint"))
        case ("int", "timestamp" | "duration") if types.is_int64(source):
            return from_ticks(column * f.lit(PER_UNIT[target.unit]).cast("bigint"), target)
        case ("date", "string"):
            known = f.year(column).between(1, 9999)
            return checked(column, known, column.cast(sparks), OverflowError, f"{what}: a year outside 1 to 9999")
    raise _refused(what, source, target)
