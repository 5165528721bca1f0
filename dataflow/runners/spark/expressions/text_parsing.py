"""Parsing of text as numbers and times, in exactly the forms that the local engine reads. Spark alone reads more forms.

A pattern selects the text that may be read, and Spark parses it; other text cannot be cast. Forms that only the local
engine reads raise even in a cast that is not strict, because null would differ from the local result.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import types

from dataflow.runners.spark.expressions.run_time_errors import Otherwise, fail
from dataflow.runners.spark.session import functions

__all__ = ["parse"]

_FLOAT: Final = r"\A[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\z"
_EXPONENT: Final = r"\A[+-]?[0-9.]+[eE][+-]?[0-9]+\z"
_DAY: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_ZONE: Final = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)"
_FAR_ZONE: Final = rf"\A{_DAY}([ T][0-9:.]+)?[+-](1[89]|2[0-9])(:?[0-9]{{2}})?\z"
_FRACTION: Final = {"s": "", "ms": r"(\.[0-9]{1,3})?", "us": r"(\.[0-9]{1,6})?"}


def parse(column: Any, target: pa.DataType, sparks: Any, what: str, otherwise: Otherwise) -> Any:
    """Return the column of values that the text denotes.

    Args:
        column: text.
        target: an int, float, bool, decimal, date or timestamp type.
        sparks: Spark's type for ``target``.
        what: start of the error's message.
        otherwise: the column for text that cannot be read.
    """
    f = functions()
    unreadable = otherwise(
        ValueError,
        f"{what}: not all of this text can be read as {target}: filter such rows out before the cast, or parse them "
        "with expressions that fit their format",
    )
    unread = fail(
        ValueError,
        f"{what}: Spark cannot read this form of {target}, which the local engine reads; rewrite the text before the "
        "cast, or use the local runner",
    )
    if types.is_boolean(target):
        return _bool(column, unreadable)
    if types.is_floating(target):
        return _float(column, sparks, unreadable)
    if types.is_integer(target):
        holds, read, foreign = _int(column, target), column.try_cast("bigint").cast(sparks), None
    elif types.is_decimal(target):
        holds, read, foreign = column.rlike(_decimal(target.scale)), column.try_cast(sparks), _EXPONENT
    elif types.is_timestamp(target):
        holds, read, foreign = column.rlike(_timestamp(target)), _canonical(column).try_cast(sparks), _FAR_ZONE
    else:
        holds, read, foreign = column.rlike(rf"\A{_DAY}\z"), column.try_cast(sparks), None
    chosen = f.when(column.isNull(), f.lit(None).cast(sparks))
    if foreign is not None and not (types.is_timestamp(target) and target.tz is None):
        chosen = chosen.when(column.rlike(foreign), unread)
    return chosen.when(holds & read.isNotNull(), read).otherwise(unreadable)


def _int(column: Any, target: pa.DataType) -> Any:
    info = np.iinfo(target.to_pandas_dtype())
    read = column.try_cast("bigint")
    written = column.rlike(r"\A[0-9]+\z" if types.is_unsigned_integer(target) else r"\A-?[0-9]+\z")
    return written & read.isNotNull() & read.between(int(info.min), int(info.max))


def _decimal(scale: int) -> str:
    """Return the pattern of decimals with at most ``scale`` digits after the point: Spark would round others."""
    room = f"[0-9]{{0,{scale}}}0*"
    return rf"\A[+-]?([0-9]+(\.{room})?|\.(?=[0-9]){room})\z"


def _timestamp(target: pa.DataType) -> str:
    time = rf"[ T][0-9]{{2}}(:[0-9]{{2}}(:[0-9]{{2}}{_FRACTION[target.unit]})?)?"
    return rf"\A{_DAY}({time})?\z" if target.tz is None else rf"\A{_DAY}{time}{_ZONE}\z"


def _canonical(column: Any) -> Any:
    """Return the text with seconds, and with a colon and minutes in the offset, which Spark requires."""
    f = functions()
    written = f.regexp_replace(column, r"\A(.{10}[ T][0-9]{2})(?!:)", "$1:00")
    written = f.regexp_replace(written, r"\A(.{10}[ T][0-9]{2}:[0-9]{2})(?!:)", "$1:00")
    written = f.regexp_replace(written, r"([+-][0-9]{2})([0-9]{2})\z", "$1:$2")
    return f.regexp_replace(written, r"\A(.{19,}[+-][0-9]{2})\z", "$1:00")


def _bool(column: Any, unreadable: Any) -> Any:
    f = functions()
    word = f.lower(column)
    read = f.when(word.isin("true", "1"), f.lit(True)).when(word.isin("false", "0"), f.lit(False))  # noqa: FBT003
    return read.when(column.isNotNull(), unreadable)


def _float(column: Any, sparks: Any, unreadable: Any) -> Any:
    f = functions()
    return (
        f.when(column.rlike(r"(?i)\A[+-]?nan(\([0-9a-z_]*\))?\z"), f.lit(math.nan).cast(sparks))
        .when(column.rlike(r"(?i)\A\+?inf(inity)?\z"), f.lit(math.inf).cast(sparks))
        .when(column.rlike(r"(?i)\A-inf(inity)?\z"), f.lit(-math.inf).cast(sparks))
        .when(column.rlike(_FLOAT), column.cast(sparks))
        .when(column.isNotNull(), unreadable)
    )
