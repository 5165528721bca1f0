"""Types that Spark's columns may have in place of the declared Arrow types, and the cast to the declared ones.

Spark has fewer types: no unsigned integers, no unit of time but the microsecond, no dictionaries. So a column may have
another type if that type holds every value of the declared type. Workers cast it, and check each value. A cast that
changes a value, or guesses a time zone, is refused. Nullability is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa
from pyarrow import types

from dataflow.errors import SchemaMismatch, did_you_mean

__all__ = ["cast_batch", "differences", "fits"]

_TEXT: Final = (types.is_string, types.is_large_string, types.is_string_view)
_BYTES: Final = (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary)
_LISTS: Final = (types.is_list, types.is_large_list, types.is_fixed_size_list)


def differences(given: pa.Schema, declared: pa.Schema) -> list[str]:
    """Return the reasons why Spark's columns ``given`` cannot be cast to ``declared``. Additional columns are ignored.

    >>> spark = pa.schema({"id": pa.int64(), "at": pa.timestamp("us", "UTC"), "note": pa.string()})
    >>> differences(spark, pa.schema({"id": pa.int32(), "at": pa.timestamp("ms", "Europe/Paris")}))
    []
    >>> for reason in differences(spark, pa.schema({"id": pa.float64(), "at": pa.timestamp("ms")})): print(reason)
    column 'id' is declared as double, found int64: cast it in the DataFrame, or declare the source with that type
    column 'at' is declared as timestamp[ms], found timestamp[us, tz=UTC]: cast it to TIMESTAMP_NTZ, in the zone meant
    """
    reasons = []
    for field in declared:
        at = given.get_field_index(field.name)
        if at < 0:
            others = [name for name in given.names if name != field.name]
            what = "missing" if len(others) == len(given) else "there more than once"
            same = [name for name in others if name.lower() == field.name.lower()]
            reasons.append(f"column {field.name!r} is {what}{did_you_mean(same[0] if same else field.name, others)}")
        elif not fits(given.field(at).type, field.type):
            actual = given.field(at).type
            reasons.append(
                f"column {field.name!r} is declared as {field.type}, found {actual}: {_instead(actual, field.type)}"
            )
    return reasons


def fits(given: pa.DataType, declared: pa.DataType) -> bool:
    """Return whether values of Spark's type ``given`` may be cast to ``declared`` with a check of each value.

    >>> fits(pa.int16(), pa.uint8()), fits(pa.float64(), pa.int64()), fits(pa.string(), pa.large_string())
    (True, False, True)
    """
    if given == declared:
        return True
    if types.is_dictionary(declared):
        return fits(given, declared.value_type)
    if types.is_integer(declared):
        return types.is_integer(given) or (types.is_uint64(declared) and given == pa.decimal128(20, 0))
    if types.is_floating(declared):
        return types.is_floating(given) and given.bit_width <= declared.bit_width
    if types.is_decimal(declared):
        return types.is_decimal(given) and _whole(given) <= _whole(declared) and given.scale <= declared.scale
    if types.is_timestamp(declared):
        return types.is_timestamp(given) and (given.tz is None) == (declared.tz is None)
    if types.is_struct(declared):
        return types.is_struct(given) and _same(list(given), list(declared))
    if types.is_map(declared):
        return (
            types.is_map(given)
            and fits(given.key_type, declared.key_type)
            and fits(given.item_type, declared.item_type)
        )
    if _any(declared, _LISTS):
        return _any(given, _LISTS) and fits(given.value_type, declared.value_type)
    kinds = (_TEXT, _BYTES, (types.is_date,), (types.is_duration,), (types.is_time,))
    return any([_any(given, kind) and _any(declared, kind) for kind in kinds])


def _same(given: list[pa.Field], declared: list[pa.Field]) -> bool:
    return [f.name for f in given] == [d.name for d in declared] and all(
        [fits(f.type, d.type) for f, d in zip(given, declared, strict=True)]
    )


def _any(dtype: pa.DataType, kind: tuple[Callable[[pa.DataType], bool], ...]) -> bool:
    return any([of(dtype) for of in kind])


def _whole(dtype: pa.DataType) -> int:
    """Return the number of digits before the decimal point."""
    return int(dtype.precision - dtype.scale)


def _instead(given: pa.DataType, declared: pa.DataType) -> str:
    if types.is_timestamp(given) and types.is_timestamp(declared):
        wanted = "TIMESTAMP_NTZ" if declared.tz is None else "TIMESTAMP"
        return f"cast it to {wanted}, in the zone meant"
    return "cast it in the DataFrame, or declare the source with that type"


def cast_batch(batch: pa.RecordBatch, schema: pa.Schema, source: str) -> pa.RecordBatch:
    """Return a batch of Spark's, which has all columns of ``schema`` by name, with the columns and types of ``schema``.

    Raises: SchemaMismatch if a value does not fit the declared type, naming the column.
    """
    if batch.schema == schema:
        return batch
    return pa.record_batch(list(_cast(batch, schema, source)), schema=schema)


def _cast(batch: pa.RecordBatch, schema: pa.Schema, source: str) -> Iterator[pa.Array]:
    for field in schema:
        column = batch.column(field.name)
        try:
            yield column if column.type == field.type else column.cast(field.type)
        except pa.ArrowException as error:
            raise SchemaMismatch(
                f"source {source!r}, read by Spark: column {field.name!r} is declared as {field.type}, and a value of "
                f"Spark's {column.type} does not fit ({error}): filter such rows in the DataFrame, or declare a wider "
                "type"
            ) from error
