"""Restoring the columns of text files to the types they were written with.

A text file is read in *carriers*, types that every reader of text has: numbers, booleans, text, and for JSON lists and
structs of these. Then these are cast to the types that were written.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dataflow.arrow_values import to_scalar

__all__ = ["carrier", "restored"]


def carrier(type_: pa.DataType) -> pa.DataType:
    """Return the type in which values of ``type_`` are read from text.

    >>> str(carrier(pa.map_(pa.string(), pa.decimal128(10, 2))))
    'list<item: struct<key: string, value: string>>'
    """
    if types.is_dictionary(type_) or types.is_run_end_encoded(type_):
        return carrier(type_.value_type)
    if isinstance(type_, pa.BaseExtensionType):
        return carrier(type_.storage_type)
    if types.is_null(type_) or types.is_boolean(type_) or types.is_integer(type_):
        return type_
    if types.is_floating(type_):
        return pa.float32() if types.is_float16(type_) else type_
    if types.is_duration(type_):
        return pa.int64()
    if types.is_struct(type_):
        return pa.struct([(field.name, carrier(field.type)) for field in type_])
    if types.is_map(type_):
        return pa.list_(pa.struct([("key", carrier(type_.key_type)), ("value", carrier(type_.item_type))]))
    if types.is_nested(type_):
        return pa.list_(carrier(type_.value_type))
    return pa.string()


def restored(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return ``table``, which has the carriers of ``schema``, cast to ``schema``. Raises: pa.ArrowException."""
    columns = [
        pa.chunked_array([_restored(chunk, type_) for chunk in column.chunks], type_)
        for column, type_ in zip(table.columns, schema.types, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _restored(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if array.type == type_:
        return array
    if types.is_dictionary(type_):
        return _restored(array, type_.value_type).dictionary_encode().cast(type_)
    if types.is_run_end_encoded(type_):
        return pc.run_end_encode(_restored(array, type_.value_type), run_end_type=type_.run_end_type)
    if isinstance(type_, pa.BaseExtensionType):
        return type_.wrap_array(_restored(array, type_.storage_type))
    if types.is_time(type_):
        instants = pc.binary_join_element_wise(to_scalar("1970-01-01T"), array, to_scalar(""))
        return instants.cast(pa.timestamp(type_.unit)).cast(type_)
    if types.is_struct(type_):
        children = [_restored(array.field(i), field.type) for i, field in enumerate(type_)]
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=array.is_null())
    if types.is_map(type_):
        entries = array.values
        keys, items = _restored(entries.field(0), type_.key_type), _restored(entries.field(1), type_.item_type)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type_, mask=array.is_null())
    if types.is_list_view(type_) or types.is_large_list_view(type_):
        plain = _restored(array, pa.list_(type_.value_field))
        view = pa.ListViewArray if types.is_list_view(type_) else pa.LargeListViewArray
        sizes = pc.list_value_length(plain).fill_null(0)
        return view.from_arrays(plain.offsets[:-1], sizes, plain.values, type_, mask=plain.is_null())
    if types.is_nested(type_):
        values = _restored(array.values, type_.value_type)
        plain = pa.ListArray.from_arrays(array.offsets, values, pa.list_(type_.value_field), mask=array.is_null())
        return plain if plain.type == type_ else plain.cast(type_)
    return array.cast(type_)
