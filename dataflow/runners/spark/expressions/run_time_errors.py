"""Errors in the data: raised inside Spark's columns when a job runs, and translated to the local engine's errors."""

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
"""Returns the column for a value that cannot be computed: ``fail`` or ``null``."""


def fail(kind: type[Exception], reason: str) -> Any:
    """Return a column that raises in every row in which it is evaluated."""
    assert kind.__name__ in _KINDS, kind
    return functions().raise_error(functions().lit(f"{kind.__name__}: {reason}"))


def null(kind: type[Exception], reason: str) -> Any:
    """Return a null column instead of a failure, for expressions that are not strict."""
    return functions().lit(None)


def translated(error: BaseException) -> Exception | None:
    """Return the local engine's error for an error of a Spark job; None if it is no error in the data.

    Args:
        error: an exception that Spark raised when it computed a column of ``to_column``.
    """
    if not isinstance(error, pyspark("pyspark.errors").PySparkException):
        return None
    condition = (error.getCondition() or "").partition(".")[0]
    if condition in _OVERFLOWS:
        return OverflowError(str(error))
    if condition == "INVALID_UTF8_STRING":
        return ValueError(str(error))
    kind, _, reason = str((error.getMessageParameters() or {}).get("errorMessage", "")).partition(": ")
    return _KINDS[kind](reason) if condition == "USER_RAISED_EXCEPTION" and kind in _KINDS else None
