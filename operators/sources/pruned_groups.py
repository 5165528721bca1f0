"""The row groups of a Parquet file that have no row for which all conditions hold, by the statistics in its footer.

This code assumes that a footer's statistics are true: no value lies outside of them, and null counts are exact. It uses
only those whose order is the one in which expressions compare. Statistics may be missing, or cover less than all rows:

- The bounds of floats leave out NaN, which fails every comparison but ``!=``, so floats are not pruned by that. Bounds
  that are NaN are ignored. A zero bound may have either sign, which compares equal.
- Writers shorten the bounds of long text. A lower bound that was cut is still one. An upper bound may have been cut
  without being raised, so text that begins with it counts as not above it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence, Set
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from dataflow.contracts.source import Condition
from operators.sources.parquet_file import leaf_places
from operators.sources.parquet_values import is_readable, per_unit

__all__ = ["pruned_groups"]

_UNITS: Final = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_Decode = Callable[[Any], Any]


def pruned_groups(
    metadata: pq.FileMetaData,
    groups: Sequence[int],
    stored: Mapping[str, pa.DataType],
    schema: pa.Schema,
    conditions: Sequence[Condition],
) -> Set[int]:
    """Return those of ``groups`` in which no row meets all ``conditions``, as far as the statistics show.

    Args:
        metadata: the footer.
        groups: numbers of row groups.
        stored: the types of the columns in the file.
        schema: the types as which they are read, in which they are compared.
        conditions: comparisons of columns of ``schema``.
    """
    pruned: set[int] = set()
    for condition in conditions:
        places = leaf_places(metadata, condition.column)
        if condition.column in stored and len(places) == 1:  # the path of a struct's field may read the same
            place, types_ = places[0], (stored[condition.column], schema.field(condition.column).type)
            fails = _Test(metadata.schema.column(place), *types_, condition).fails
            pruned.update(group for group in groups if fails(metadata.row_group(group), place))
    return pruned


class _Test:
    """Tells from the statistics of a column whether no row of a row group meets a condition."""

    def __init__(self, column: pq.ColumnSchema, stored: pa.DataType, type_: pa.DataType, condition: Condition) -> None:
        stored, type_ = [each.value_type if types.is_dictionary(each) else each for each in (stored, type_)]
        self._operator = condition.operator
        self._decode = _decoder(column, stored, type_, condition.value.type)
        self._is_text = isinstance(literal := _plain(condition.value), bytes)
        self._is_float = isinstance(literal, float)
        self._literal = literal

    def fails(self, group: pq.RowGroupMetaData, place: int) -> bool:
        """Return whether no row of ``group`` meets the condition, by the statistics of column ``place``."""
        statistics = group.column(place).statistics
        if statistics is None:
            return False
        if statistics.has_null_count and statistics.null_count == group.num_rows:
            return True
        if self._decode is None or not statistics.has_min_max:
            return False
        low, high = self._decode(statistics.min_raw), self._decode(statistics.max_raw)
        return bool(low <= high) and self._is_outside(low, high)  # not for NaN, nor for bounds that make no sense

    def _is_outside(self, low: Any, high: Any) -> bool:
        literal = self._literal
        below = high < literal and not (self._is_text and literal.startswith(high))
        match self._operator:
            case ">=":
                return below
            case ">":
                return below or (high == literal and not self._is_text)
            case "<=":
                return bool(low > literal)
            case "<":
                return bool(low >= literal)
            case "==":
                return below or bool(low > literal)
            case "!=":
                return not (self._is_text or self._is_float) and bool(low == high == literal)


def _plain(value: pa.Scalar) -> Any:
    """Return a value that Python compares as the expressions compare ``value``: times as their numbers."""
    if types.is_timestamp(value.type) or types.is_date(value.type):
        return value.value
    plain = value.as_py()
    return plain.encode() if isinstance(plain, str) else plain


def _decoder(column: pq.ColumnSchema, stored: pa.DataType, type_: pa.DataType, target: pa.DataType) -> _Decode | None:
    """Return a function from a bound, as the footer has it, to a value that compares with a ``_plain`` one.

    Args:
        column: the column in the file.
        stored: its type there.
        type_: the type as which it is read.
        target: the type in which it is compared.

    Returns: None if the order of the statistics is not that of the comparison, or not known to be.
    """
    logical = json.loads(column.logical_type.to_json())
    decode = _exact_decoder(column.physical_type, logical, stored)
    if decode is not None and stored != type_:
        decode = _as_declared(decode, stored, type_)
    if decode is None or target == type_:
        return decode
    if types.is_floating(target) and (types.is_integer(type_) or types.is_floating(type_)):
        return lambda raw: float(decode(raw))  # never decreases, and rounds as the comparison does
    same = (types.is_integer, types.is_decimal, _is_text, _is_binary)
    return decode if any(belongs(type_) and belongs(target) for belongs in same) else None


def _as_declared(decode: _Decode, stored: pa.DataType, type_: pa.DataType) -> _Decode | None:
    """Return a decoder of bounds in the type as which a column is read. Numbers of Python do not wrap."""
    factor = per_unit(stored, type_)
    if factor is not None:
        return lambda raw: decode(raw) * factor
    if types.is_integer(stored) and types.is_float64(type_):
        return lambda raw: float(decode(raw))
    return decode if is_readable(stored, type_) else None  # the values compare as they are


def _exact_decoder(physical: str, logical: dict[str, Any], type_: pa.DataType) -> _Decode | None:
    kind = logical["Type"]
    if types.is_signed_integer(type_) and physical in ("INT32", "INT64"):
        return int if kind == "None" or (kind == "Int" and logical["isSigned"]) else None
    if types.is_unsigned_integer(type_) and physical in ("INT32", "INT64"):
        mask = (1 << (32 if physical == "INT32" else 64)) - 1
        return (lambda raw: raw & mask) if kind == "Int" and not logical["isSigned"] else None
    if types.is_float32(type_) or types.is_float64(type_):
        return float if physical == ("FLOAT" if types.is_float32(type_) else "DOUBLE") else None
    if types.is_date32(type_):
        return int if kind == "Date" else None
    if types.is_timestamp(type_):
        known = kind == "Timestamp" and physical == "INT64" and _UNITS.get(logical["timeUnit"]) == type_.unit
        return int if known else None
    if types.is_decimal(type_) and kind == "Decimal" and logical["scale"] == type_.scale:
        return _decimals(physical, type_.scale)
    if _is_text(type_) and physical == "BYTE_ARRAY":
        return bytes if kind == "String" else None
    return bytes if _is_binary(type_) and physical == "BYTE_ARRAY" and kind == "None" else None


def _decimals(physical: str, scale: int) -> _Decode | None:
    if physical not in ("INT32", "INT64", "FIXED_LEN_BYTE_ARRAY"):
        return None

    def decode(raw: int | bytes) -> Decimal:
        unscaled = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw
        return Decimal(f"{unscaled}E{-scale}")  # exact, whatever the context's precision

    return decode


def _is_text(type_: pa.DataType) -> bool:
    return bool(types.is_string(type_) or types.is_large_string(type_))


def _is_binary(type_: pa.DataType) -> bool:
    return bool(types.is_binary(type_) or types.is_large_binary(type_))
