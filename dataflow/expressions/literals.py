"""What a literal may be."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np

from dataflow.errors import GraphError

__all__ = ["plain"]

_PLAIN = (bool, int, float, str, bytes, Decimal, datetime.date, datetime.time, datetime.datetime, datetime.timedelta)


def plain(value: object) -> object:
    """``value``, numpy's scalars as Python's own.

    Raises: TypeError for a value no column can hold; GraphError for an int that 64 bits cannot.
    """
    if isinstance(value, np.datetime64 | np.timedelta64):
        raise TypeError(f"expected a datetime or a timedelta, got {value!r}: numpy's nanoseconds have no plain value")
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise GraphError(f"the literal {value} does not fit 64 bits: use a Decimal or a float")
    if value is None or isinstance(value, _PLAIN):
        return value
    raise TypeError(f"expected a column expression or a plain value (number, text, time, None), got {value!r}")
