"""Errors at run time: raised inside Spark's columns, and read back as the errors the local engine raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dataflow.runners.spark.session import functions, pyspark

__all__ = ["Otherwise", "fail", "null", "translated"]

_KINDS: Final[dict[str, type[Exception]]] = {"OverflowError": OverflowError, "ValueError": ValueError}
_OVERFLOWS: Final = (
    "ARITHMETIC_OVERFLOW",
    "CAST_OVERFLOW",
    "DATETIME_OVERFLOW",
    "INTERVAL_ARITHMETIC_OVERFLOW",
    "NUMERIC_VALUE_OUT_OF_RANGE",
)


Otherwise = Callable[[type[Exception], str], Any]
"""What stands where a value cannot be: ``fail``, or ``null``."""


def fail(kind: type[Exception], reason: str) -> Any:
    """A column that raises in every row in which it is evaluated."""
    assert kind.__name__ in _KINDS, kind
    return functions().raise_error(functions().lit(f"{kind.__name__}: {reason}"))


def null(kind: type[Exception], reason: str) -> Any:
    """Null in the place of a failure, for what need not be strict."""
    return functions().lit(None)


def translated(error: Exception) -> Exception | None:
    """What the local engine would have raised for an error that a Spark job raised; None for any other failure."""
    if not isinstance(error, pyspark("pyspark.errors").PySparkException):
        return None
    condition = (error.getCondition() or "").partition(".")[0]
    if condition in _OVERFLOWS:
        return OverflowError(str(error))
    if condition == "INVALID_UTF8_STRING":
        return ValueError(str(error))
    kind, _, reason = str((error.getMessageParameters() or {}).get("errorMessage", "")).partition(": ")
    return _KINDS[kind](reason) if condition == "USER_RAISED_EXCEPTION" and kind in _KINDS else None
