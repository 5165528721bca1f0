"""Text read as numbers and times: exactly the forms the local engine reads, where Spark alone would read more of them.

A pattern decides what may be read, Spark reads it, and what is left raises ``ValueError``.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import types

from dataflow.runners.spark.failures import checked, fail
from dataflow.runners.spark.session import functions
from dataflow.runners.spark.ticks import PER_UNIT

__all__ = ["parse"]

_FLOAT: Final = r"\A[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\z"
_DAY: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_FRACTION: Final = {"s": "", "ms": r"(\.[0-9]{1,3})?", "us": r"(\.[0-9]{1,6})?"}


def parse(column: Any, target: pa.DataType, sparks: Any, what: str) -> Any:
    """The values that text stands for.

    Args:
        column: text.
        target: an int, float, bool, decimal, date or timestamp type, which ``sparks`` carries.
        what: begins the error's text.
    """
    reason = (
        f"{what}: not all of this text can be read as {target}: filter such rows out before the cast, or parse them "
        "as they are written"
    )
    if types.is_boolean(target):
        return _bool(column, reason)
    if types.is_floating(target):
        return _float(column, sparks, reason)
    if types.is_timestamp(target):
        return _timestamp(column, target, sparks, reason)
    if types.is_integer(target):
        pattern = r"\A[0-9]+\z" if types.is_unsigned_integer(target) else r"\A-?[0-9]+\z"
        read = column.try_cast("bigint")
        info = np.iinfo(target.to_pandas_dtype())
        fits = read.isNotNull() & read.between(int(info.min), int(info.max))
        return checked(column, column.rlike(pattern) & fits, read.cast(sparks), ValueError, reason)
    if types.is_decimal(target):
        places = rf"(\.[0-9]{{0,{target.scale}}}0*)?"
        pattern = rf"\A[+-]?([0-9]+{places}|\.[0-9]{{1,{max(target.scale, 1)}}}0*)\z"
        if target.scale == 0:
            pattern = r"\A[+-]?([0-9]+(\.0*)?|\.0+)\z"
    else:
        pattern = rf"\A{_DAY}\z"
    read = column.try_cast(sparks)
    return checked(column, column.rlike(pattern) & read.isNotNull(), read, ValueError, reason)


def _bool(column: Any, reason: str) -> Any:
    f = functions()
    word = f.lower(column)
    known = f.when(column.isNull(), f.lit(None).cast("boolean"))
    known = known.when(word.isin("true", "1"), f.lit(True)).when(word.isin("false", "0"), f.lit(False))  # noqa: FBT003
    return known.otherwise(fail(ValueError, reason))


def _float(column: Any, sparks: Any, reason: str) -> Any:
    f = functions()
    read = checked(column, column.rlike(_FLOAT), column.cast(sparks), ValueError, reason)
    return (
        f.when(column.rlike(r"(?i)\A[+-]?nan\z"), f.lit(math.nan))
        .when(column.rlike(r"(?i)\A\+?inf(inity)?\z"), f.lit(math.inf))
        .when(column.rlike(r"(?i)\A-inf(inity)?\z"), f.lit(-math.inf))
        .otherwise(read)
        .cast(sparks)
    )


def _timestamp(column: Any, target: pa.DataType, sparks: Any, reason: str) -> Any:
    f = functions()
    assert target.unit in PER_UNIT, f"Spark carries no {target}"
    zone = "" if target.tz is None else r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)"
    pattern = rf"\A{_DAY}([ T][0-9]{{2}}(:[0-9]{{2}}(:[0-9]{{2}}{_FRACTION[target.unit]})?)?)?{zone}\z"
    # Spark reads neither hours without minutes nor offsets without a colon
    written = f.regexp_replace(column, r"\A(.{10}[ T][0-9]{2})(?!:)", "$1:00")
    written = f.regexp_replace(written, r"(:[0-9.]+[+-][0-9]{2})([0-9]{2})\z", "$1:$2")
    read = written.try_cast(sparks)
    return checked(column, column.rlike(pattern) & read.isNotNull(), read, ValueError, reason)
