"""Spark's types for Arrow's types: a type that holds every value of the Arrow type, or none.

==========================  ================================================================================
``uint8 uint16 uint32``     the next wider signed int; ``uint64`` has none and is refused
``timestamp duration``      microseconds, as ``timestamp`` with a zone and ``timestamp_ntz`` without; ``ns`` is refused
dictionaries                plain values
lists, structs              arrays and structs of these types
``time``, ``decimal256``,   refused, as are ``float16`` and maps
==========================  ================================================================================
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import types

from dataflow.errors import UnsupportedOnRunner
from dataflow.runners.spark.session import pyspark

__all__ = ["carrier", "is_exact", "nullable", "spark_schema", "spark_type", "to_carriers"]

_WIDER = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
_AS_IS = (pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())


def carrier(dtype: pa.DataType) -> pa.DataType | None:
    """Return the Arrow type in which Spark holds values of ``dtype``; None if no type of Spark's holds all of them.

    Args:
        dtype: an Arrow type.

    >>> carrier(pa.uint8()), carrier(pa.timestamp("s", "Europe/Paris")), carrier(pa.uint64())
    (DataType(int16), TimestampType(timestamp[us, tz=UTC]), None)
    """
    if types.is_dictionary(dtype):
        return carrier(dtype.value_type)
    if dtype in _AS_IS:
        return dtype
    if types.is_string(dtype) or types.is_large_string(dtype) or types.is_string_view(dtype):
        return pa.string()
    if types.is_binary(dtype) or types.is_large_binary(dtype) or types.is_binary_view(dtype):
        return pa.binary()
    if types.is_date(dtype):
        return pa.date32()
    if types.is_timestamp(dtype) and dtype.unit != "ns":
        return pa.timestamp("us", None if dtype.tz is None else "UTC")
    if types.is_duration(dtype) and dtype.unit != "ns":
        return pa.duration("us")
    if types.is_decimal(dtype) and dtype.precision <= 38 and 0 <= dtype.scale <= dtype.precision:
        return pa.decimal128(dtype.precision, dtype.scale)
    if _is_list(dtype) and (values := carrier(dtype.value_type)) is not None:
        return pa.list_(values)
    if types.is_struct(dtype) and all([carrier(field.type) is not None for field in dtype]):
        return pa.struct([pa.field(field.name, carrier(field.type)) for field in dtype])
    return _WIDER.get(dtype)


def is_exact(dtype: pa.DataType) -> bool:
    """Return whether `carrier` holds no other values than those of ``dtype``.

    >>> is_exact(pa.large_string()), is_exact(pa.timestamp("us", "Asia/Tokyo")), is_exact(pa.uint8())
    (True, True, False)
    """
    if types.is_dictionary(dtype):
        return is_exact(dtype.value_type)
    if types.is_timestamp(dtype):
        return bool(dtype.unit == "us")
    held = carrier(dtype)
    return held == dtype or held in (pa.string(), pa.binary())


def _is_list(dtype: pa.DataType) -> bool:
    return bool(types.is_list(dtype) or types.is_large_list(dtype) or types.is_fixed_size_list(dtype))


def spark_type(dtype: pa.DataType, what: str) -> Any:
    """Return the ``pyspark.sql.types.DataType`` for values of ``dtype``.

    Args:
        dtype: an Arrow type.
        what: start of the error's message.

    Raises: UnsupportedOnRunner if Spark has no such type.

    >>> spark_type(pa.uint64(), "column 'id'")
    Traceback (most recent call last):
    dataflow.errors.UnsupportedOnRunner: column 'id': not on the spark runner: Spark has no type for the values of ...
    """
    carried = carrier(dtype)
    if carried is None:
        raise UnsupportedOnRunner(what, "spark", f"Spark has no type for the values of {dtype}", _instead(dtype))
    t = pyspark("pyspark.sql.types")
    if types.is_decimal(carried):
        return t.DecimalType(carried.precision, carried.scale)
    if types.is_list(carried):
        return t.ArrayType(spark_type(carried.value_type, what))
    if types.is_struct(carried):
        return t.StructType([t.StructField(field.name, spark_type(field.type, what)) for field in carried])
    plain = {
        pa.null(): t.NullType,
        pa.bool_(): t.BooleanType,
        pa.int8(): t.ByteType,
        pa.int16(): t.ShortType,
        pa.int32(): t.IntegerType,
        pa.int64(): t.LongType,
        pa.float32(): t.FloatType,
        pa.float64(): t.DoubleType,
        pa.string(): t.StringType,
        pa.binary(): t.BinaryType,
        pa.date32(): t.DateType,
        pa.timestamp("us"): t.TimestampNTZType,
        pa.timestamp("us", "UTC"): t.TimestampType,
        pa.duration("us"): t.DayTimeIntervalType,
    }
    return plain[carried]()


def _instead(dtype: pa.DataType) -> str:
    if types.is_uint64(dtype):
        return "cast to int64 or to decimal128(20, 0) where the rows are made"
    if types.is_timestamp(dtype) or types.is_duration(dtype):
        return "cast to microseconds where the rows are made, for example timestamp[us]"
    return "cast to another type where the rows are made, or run this pipeline on the local runner"


def spark_schema(schema: pa.Schema, where: str = "schema") -> Any:
    """Return the ``StructType`` of a DataFrame for rows of ``schema``.

    Args:
        schema: an Arrow schema.
        where: start of the error's message.

    Raises: UnsupportedOnRunner, naming the column, if Spark has no type for it.

    >>> spark_schema(pa.schema({"shop": pa.string(), "price": pa.uint8()})).simpleString()
    'struct<shop:string,price:smallint>'
    """
    t = pyspark("pyspark.sql.types")
    return t.StructType(
        [
            t.StructField(field.name, spark_type(field.type, f"{where}: column {field.name!r}"), field.nullable)
            for field in schema
        ]
    )


def nullable(schema: pa.Schema) -> pa.Schema:
    """Return the schema with nulls allowed in each column: Spark relies on it where they are not.

    >>> nullable(pa.schema([pa.field("x", pa.int64(), nullable=False)])).field("x").nullable
    True
    """
    return pa.schema([field.with_nullable(nullable=True) for field in schema])


def to_carriers(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with the types in which Spark holds them.

    >>> to_carriers(pa.record_batch({"x": pa.array([1], pa.uint8())})).schema.field("x").type
    DataType(int16)
    """
    columns = [column.cast(carrier(column.type)) for column in rows.columns]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)
