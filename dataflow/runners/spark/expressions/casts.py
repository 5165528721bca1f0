"""Casts on Spark as the local engine does them, with checks where Spark's own casts round, wrap or accept more.

==================================  ======================================================================
text                                int, float, bool, decimal, date and timestamp are read in the forms that
                                    the local engine reads; two of them always raise ``ValueError``:
                                    decimals with an exponent, zones of 18 hours or more
int, bool, date, decimal to text    as locally; dates outside the years 1 to 9999 raise ``OverflowError``
decimal to float                    of at most 15 digits, for which both engines round alike
refused                             float, timestamp or duration to text, float to decimal, ...
==================================  ======================================================================
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import types

from dataflow.errors import UnsupportedOnRunner
from dataflow.expressions.coercion import family, integer_digits, value_type
from dataflow.runners.spark.expressions.microseconds import PER_UNIT, day_in_zone, from_ticks, to_ticks
from dataflow.runners.spark.expressions.run_time_errors import Otherwise, fail
from dataflow.runners.spark.expressions.shared_columns import Operand
from dataflow.runners.spark.expressions.spark_types import spark_type
from dataflow.runners.spark.expressions.text_parsing import parse
from dataflow.runners.spark.session import functions

__all__ = ["cast"]

_EXACT_DIGITS: Final = 15  # so that a decimal's digits and its power of ten are both exact float64s
_PLAIN_SCALE: Final = 6  # from seven places on, the local engine writes small decimals with an exponent


def cast(operand: Operand, source: pa.DataType, target: pa.DataType, what: str, *, otherwise: Otherwise = fail) -> Any:
    """Return the column of ``operand``, whose values are of type ``source``, cast to ``target``.

    Args:
        what: start of the errors' messages.
        otherwise: the column for values that cannot be cast.

    Raises: UnsupportedOnRunner if Spark cannot cast exactly.
    """
    source, target = value_type(source), value_type(target)
    sparks, column = spark_type(target, what), operand.column
    if source.equals(target):
        return column
    if types.is_null(source):
        return column.cast(sparks)
    match (_kind(source), _kind(target)):
        case ("int", "float") if types.is_float32(target):
            return _rounded(column.cast(sparks))
        case ("int" | "bool", "float") | ("float", "float") | ("bool", "int"):
            return column.cast(sparks)
        case ("int", "decimal") if integer_digits(source) <= target.precision - target.scale:
            return column.cast(sparks)
        case ("int" | "bool", "string") | ("string", "binary"):
            return column.cast(sparks)
        case ("string", "string") | ("binary", "binary") | ("date", "date"):
            return column
        case ("int" | "float", "bool"):
            return column != 0
        case ("binary", "string"):
            validated = "validate_utf8" if otherwise is fail else "try_validate_utf8"
            return functions().call_function(validated, column.cast(sparks))
        case ("int", "int") if _widens(source, target):
            return column.cast(sparks)
    check = _Check(source, target, sparks, what, otherwise)
    return operand.bind(check.cast)


def _rounded(floats: Any) -> Any:
    """Return 32-bit floats that stay rounded: Spark would join their cast with a later one to 64 bits.

    Nothing is NaN here, so the values are unchanged, and the optimizer does not look through the function.
    """
    return functions().nanvl(floats, functions().lit(0.0).cast("float"))


def _kind(dtype: pa.DataType) -> str:
    return "timestamp" if types.is_timestamp(dtype) else family(dtype)


def _limits(dtype: pa.DataType) -> tuple[int, int]:
    info = np.iinfo(dtype.to_pandas_dtype())
    return int(info.min), int(info.max)


def _widens(source: pa.DataType, target: pa.DataType) -> bool:
    (low, high), (least, most) = _limits(target), _limits(source)
    return low <= least and most <= high


class _Check:
    """A cast that fails for some values."""

    def __init__(self, source: pa.DataType, target: pa.DataType, sparks: Any, what: str, otherwise: Otherwise) -> None:
        self.source, self.target, self.sparks, self.what, self.otherwise = source, target, sparks, what, otherwise
        self.outside = f"{what}: a value is out of the range of {target}; cast to a wider type, or filter such rows out"
        self.lossy = f"{what}: a value of {source} has digits that {target} would lose; floor or round it first"

    def cast(self, column: Any) -> Any:
        match (_kind(self.source), _kind(self.target)):
            case ("int", "int"):
                return self._checked(column, column.between(*_limits(self.target)), column.cast(self.sparks))
            case ("int", "decimal"):
                narrowed = column.try_cast(self.sparks)
                return self._checked(column, narrowed.isNotNull(), narrowed, ValueError)
            case ("float", "int"):
                return self._float_to_int(column)
            case ("decimal", _):
                return self._from_decimal(column)
            case ("string", "int" | "float" | "bool" | "decimal" | "date" | "timestamp"):
                return parse(column, self.target, self.sparks, self.what, self.otherwise)
        return self._time(column)

    def _checked(self, column: Any, holds: Any, result: Any, kind: type[Exception] = OverflowError) -> Any:
        """Return a column that is ``result`` where ``holds``, null for null, and a failure otherwise."""
        reason = self.outside if kind is OverflowError else self.lossy
        return functions().when(column.isNull() | holds, result).otherwise(self.otherwise(kind, reason))

    def _unsupported(self) -> UnsupportedOnRunner:
        reason = f"Spark's cast from {self.source} to {self.target} gives other values than the local engine's"
        instead = "cast to another type first, or cast where the rows are made"
        return UnsupportedOnRunner(self.what, "spark", reason, instead)

    def _float_to_int(self, column: Any) -> Any:
        low, high = _limits(self.target)
        above = column >= float(low) if low == -(2**63) else column > float(low - 1)
        inside = above & (column < float(high + 1))  # false for NaN, which is greatest
        return self._checked(column, inside, column.cast("bigint").cast(self.sparks))

    def _from_decimal(self, column: Any) -> Any:
        source, target = self.source, self.target
        match _kind(target):
            case "float" if source.precision <= _EXACT_DIGITS and types.is_float64(target):
                return column.cast(self.sparks)
            case "int":
                whole = column.cast("decimal(38,0)")
                inside = self._checked(column, whole.between(*_limits(target)), whole.cast(self.sparks))
                return self._checked(column, column % 1 == 0, inside, ValueError)
            case "string" if source.scale <= _PLAIN_SCALE:
                return column.cast(self.sparks)
            case "decimal" if _comparable(source, target):
                narrowed = column.try_cast(self.sparks)
                return self._checked(column, narrowed.isNotNull() & (narrowed == column), narrowed, ValueError)
        raise self._unsupported()

    def _time(self, column: Any) -> Any:
        """Cast among dates, timestamps, durations and the ints that count them."""
        f, source, target = functions(), self.source, self.target
        match (_kind(source), _kind(target)):
            case ("date", "int") if types.is_date32(source) and types.is_int32(target):
                return f.unix_date(column)
            case ("int", "date") if types.is_date32(target) and types.is_int32(source):
                return f.date_from_unix_date(column)
            case ("timestamp", "date"):
                return day_in_zone(column, source)
            case ("date", "timestamp"):
                return from_ticks(to_ticks(column, source), target)
            case ("timestamp", "timestamp") | ("duration", "duration"):
                ticks, step = to_ticks(column, source), PER_UNIT[target.unit]
                result = from_ticks(ticks, target)
                return (
                    result
                    if step <= PER_UNIT[source.unit]
                    else self._checked(column, ticks % step == 0, result, ValueError)
                )
            case ("timestamp" | "duration", "int") if types.is_int64(target):
                return f.call_function("div", to_ticks(column, source), f.lit(PER_UNIT[source.unit]).cast("bigint"))
            case ("int", "timestamp" | "duration") if types.is_int64(source):
                return from_ticks(column * f.lit(PER_UNIT[target.unit]).cast("bigint"), target)
            case ("date", "string"):
                plain = column.isNull() | f.year(column).between(1, 9999)
                beyond = fail(
                    OverflowError,
                    f"{self.what}: Spark writes a year outside 1 to 9999 differently; filter such rows out",
                )
                return f.when(plain, column.cast(self.sparks)).otherwise(beyond)
        raise self._unsupported()


def _comparable(a: pa.DataType, b: pa.DataType) -> bool:
    """Return whether Spark compares decimals of the two types without rounding either."""
    return max(a.scale, b.scale) + max(a.precision - a.scale, b.precision - b.scale) <= 38
