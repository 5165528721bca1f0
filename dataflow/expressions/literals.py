"""The values that a literal may have."""

from __future__ import annotations

import datetime
from decimal import Decimal
from uuid import UUID

import numpy as np

from dataflow.arrow_values import to_scalar
from dataflow.errors import GraphError

__all__ = ["plain"]

_PLAIN = (bool, int, float, str, bytes, Decimal, datetime.date, datetime.time, datetime.datetime, datetime.timedelta)


def plain(value: object) -> object:
    """Return ``value``; numpy scalars become Python values, UUIDs text.

    Raises: TypeError for a value no column can hold; GraphError for one that Arrow cannot hold, such as an int that
    does not fit 64 bits.
    """
    if isinstance(value, np.datetime64 | np.timedelta64):
        raise TypeError(f"expected a datetime or a timedelta, got {value!r}: numpy's nanoseconds have no plain value")
    if isinstance(value, UUID):
        value = str(value)  # as columns of UUIDs are
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise GraphError(f"the literal {value} does not fit 64 bits: use a Decimal or a float")
    if value is None:
        return None
    if not isinstance(value, _PLAIN):
        raise TypeError(f"expected a column expression or a plain value (number, text, time, None), got {value!r}")
    if not isinstance(value, int):
        _check(value)
    return value


def _check(value: object) -> None:
    """Raise GraphError for a value that Arrow cannot hold without loss."""
    import pyarrow as pa

    shown = f"the literal {value!r}"
    if isinstance(value, Decimal) and not value.is_finite():
        raise GraphError(f"{shown} is not a decimal number: use a float, such as float('nan'), or None")
    if isinstance(value, datetime.time) and value.tzinfo is not None:
        raise GraphError(f"{shown} has a zone, which a time of day cannot have: leave it out")
    try:
        to_scalar(value)
    except (pa.ArrowException, OverflowError, ValueError) as error:
        raise GraphError(f"{shown} fits no type: {error}") from error
    if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):  # pandas' times are datetimes as well
        raise GraphError(f"{shown} has nanoseconds, which would be cut off: round it to microseconds")
