"""Constants as Spark columns of an exact type, built from plain numbers and text: none passes through a time zone."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyarrow import types

from dataflow.expressions.coercion import literal_type, value_type
from dataflow.runners.spark.expressions.microseconds import PER_UNIT, from_ticks
from dataflow.runners.spark.expressions.spark_types import spark_type
from dataflow.runners.spark.session import functions

__all__ = ["constant"]


def constant(value: object, target: pa.DataType, what: str) -> Any:
    """The column that is ``value``, brought to ``target`` as the local engine does, in every row.

    Raises: UnsupportedOnRunner where Spark has no such type.
    """
    f = functions()
    target = value_type(target)
    sparks = spark_type(target, what)
    scalar = _brought(value, target)
    if not scalar.is_valid:
        return f.lit(None).cast(sparks)
    if types.is_timestamp(target) or types.is_duration(target):
        return from_ticks(f.lit(scalar.value * PER_UNIT[target.unit]).cast("bigint"), target)
    if types.is_date(target):
        return f.date_from_unix_date(f.lit(scalar.cast(pa.date32()).value).cast("int"))
    if types.is_decimal(target):
        return f.lit(format(scalar.as_py(), "f")).cast(sparks)
    return f.lit(scalar.as_py()).cast(sparks)


def _brought(value: object, target: pa.DataType) -> Any:
    if type(value) is int and types.is_decimal(target):
        return pa.scalar(Decimal(value), target)
    if type(value) is int and types.is_floating(target):
        return pa.scalar(float(value), target)
    return pa.scalar(value, literal_type(value)).cast(target)
