"""The Arrow types that Parquet files store as one type.

An Arrow schema says more than a Parquet file: the layout of texts and lists, dictionaries, the name of a zone. Writers
of Arrow data store this as a note beside the Parquet schema; others do not. Files of several writers hold the same
columns if their Parquet types are the same, whatever their notes are.

Types of other meaning are not one, even if files store them alike: a duration is stored as int64, without its unit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
from pyarrow import types

__all__ = ["common_type", "holds_all", "is_one_type", "list_field"]


def is_one_type(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether Parquet files store values of both types alike, so that a directory may have files of both.

    The null type, of columns without a value, is one with every type.

    >>> is_one_type(pa.large_string(), pa.dictionary(pa.int8(), pa.string()))
    True
    >>> is_one_type(pa.timestamp("us", "UTC"), pa.timestamp("us", "+00:00"))
    True
    >>> is_one_type(pa.timestamp("us"), pa.timestamp("ms")), is_one_type(pa.int32(), pa.int64())
    (False, False)
    """
    return common_type(one, other) is not None


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type that holds the values of both, if they are one Parquet type; else None.

    It does not depend on which of them is first, except for the names of fields inside lists and maps. Two names of a
    zone give UTC, text and a dictionary give text, and a field of a struct may be null if it may be in one of them.

    >>> str(common_type(pa.list_(pa.null()), pa.large_list(pa.string_view())))
    'large_list<item: string_view>'
    >>> str(common_type(pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us", "+00:00")))
    'timestamp[us, tz=UTC]'
    >>> common_type(pa.struct({"a": pa.int64()}), pa.struct({"b": pa.int64()})) is None
    True
    """
    if one == other:
        return one
    if types.is_null(one) or types.is_null(other):
        return other if types.is_null(one) else one
    if isinstance(one, pa.BaseExtensionType) or isinstance(other, pa.BaseExtensionType):
        return common_type(_without_extension(one), _without_extension(other))
    if types.is_dictionary(one) or types.is_dictionary(other):
        return _common_dictionary(one, other)
    if types.is_struct(one) and types.is_struct(other):
        return _common_struct(one, other)
    if types.is_map(one) and types.is_map(other):
        key, item = _common_field(one.key_field, other.key_field), _common_field(one.item_field, other.item_field)
        return None if key is None or item is None else pa.map_(key, item)
    if (first := list_field(one)) is not None and (second := list_field(other)) is not None:
        value = _common_field(first, second)
        return None if value is None else _common_list(one, other)(value)
    if types.is_decimal(one) and types.is_decimal(other):
        same = (one.precision, one.scale) == (other.precision, other.scale)
        return _decimal(one.precision, one.scale) if same else None
    if types.is_timestamp(one) and types.is_timestamp(other):
        same = _stored_unit(one) == _stored_unit(other) and (one.tz is None) == (other.tz is None)
        return pa.timestamp(_stored_unit(one), one.tz if one.tz == other.tz else "UTC") if same else None
    for alike, widest in _ALIKE:
        if any(is_one(one) for is_one in alike) and any(is_one(other) for is_one in alike):
            return widest
    return None


def holds_all(one: pa.DataType, common: pa.DataType) -> bool:
    """Return whether ``one`` holds all values of ``common``, the common type of ``one`` and others.

    >>> holds_all(pa.string(), pa.large_string()), holds_all(pa.list_(pa.null()), pa.list_(pa.int8()))
    (True, False)
    >>> holds_all(pa.list_(pa.int8(), 2), pa.list_(pa.int8()))
    False
    """
    if types.is_null(one) or types.is_fixed_size_list(one):
        return bool(one == common)
    if one.num_fields != common.num_fields:  # a dictionary has none
        return is_one_type(one, common)
    inner = [(one.field(place), common.field(place)) for place in range(one.num_fields)]
    return is_one_type(one, common) and all(holds_all(part.type, whole.type) for part, whole in inner)


def list_field(type_: pa.DataType) -> pa.Field | None:
    """Return the field of the values of a list type of any layout; None for other types."""
    return type_.value_field if any(is_one(type_) for is_one in _LISTS) else None


_LISTS: Final[Sequence[Callable[[pa.DataType], bool]]] = (
    types.is_list,
    types.is_large_list,
    types.is_fixed_size_list,
    types.is_list_view,
    types.is_large_list_view,
)
_ALIKE: Final[Sequence[tuple[Sequence[Callable[[pa.DataType], bool]], pa.DataType]]] = (
    ((types.is_string, types.is_large_string, types.is_string_view), pa.large_string()),
    ((types.is_binary, types.is_large_binary, types.is_binary_view), pa.large_binary()),
    ((types.is_date32, types.is_date64), pa.date32()),
    ((types.is_time32,), pa.time32("ms")),
)
"""Types that files store alike, and the one that holds the values of all of them."""


def _without_extension(type_: pa.DataType) -> pa.DataType:
    return type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_


def _common_dictionary(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return a dictionary if both are, else the type of the values."""
    both = types.is_dictionary(one) and types.is_dictionary(other)
    values = [type_.value_type if types.is_dictionary(type_) else type_ for type_ in (one, other)]
    value = common_type(*values)
    return pa.dictionary(pa.int32(), value, one.ordered and other.ordered) if both and value is not None else value


def _common_struct(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if [field.name for field in one] != [field.name for field in other]:
        return None
    fields = [_common_field(*pair) for pair in zip(one, other, strict=True)]
    return None if any(field is None for field in fields) else pa.struct(fields)


def _common_field(one: pa.Field, other: pa.Field) -> pa.Field | None:
    type_ = common_type(one.type, other.type)
    return None if type_ is None else pa.field(one.name, type_, one.nullable or other.nullable)


def _common_list(one: pa.DataType, other: pa.DataType) -> Any:
    if types.is_fixed_size_list(one) and types.is_fixed_size_list(other) and one.list_size == other.list_size:
        return lambda value: pa.list_(value, one.list_size)
    large = (types.is_large_list, types.is_large_list_view)
    return pa.large_list if any(is_one(type_) for is_one in large for type_ in (one, other)) else pa.list_


def _decimal(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def _stored_unit(type_: pa.DataType) -> str:
    """Return the unit of times in a file, which has no seconds."""
    return "ms" if type_.unit == "s" else str(type_.unit)
