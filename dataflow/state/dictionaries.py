"""The types that columns have in a stream: dictionaries with 32-bit indices, and no extension types.

Indices have 32 bits so that the dictionaries of a stream cannot overflow their index type. See ``extension_types``.

The index type of a batch may be just wide enough for its own dictionary (pandas uses int8 for up to 128 categories).
All batches of a stream together may hold more values, and their unified dictionary would overflow it. Only columns are
widened: dictionaries inside lists and structs stay as they are.

>>> batch = pa.record_batch({"c": pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), ["a", "b"])})
>>> str(widened(batch).schema.field("c").type)
'dictionary<values=string, indices=int32, ordered=0>'
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.state.extension_types import has_extensions, stored_values, without_extensions

__all__ = [
    "decoded",
    "decoded_schema",
    "either_schema",
    "encoded",
    "encoded_schema",
    "is_textual",
    "key_schema",
    "wide_schema",
    "wide_type",
    "widened",
    "widened_array",
]


def is_textual(type_: pa.DataType) -> bool:
    """Return whether columns of this type may be read as dictionaries: text or bytes, also large ones."""
    types = pa.types
    return any(
        check(type_) for check in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    )


def wide_type(type_: pa.DataType) -> pa.DataType:
    """Return ``type_`` without extension types, and with int32 indices if it is a dictionary type."""
    type_ = without_extensions(type_)
    return pa.dictionary(pa.int32(), type_.value_type, type_.ordered) if pa.types.is_dictionary(type_) else type_


def wide_schema(schema: pa.Schema) -> pa.Schema:
    """Return ``schema`` with the wide types of its columns."""
    fields = [field.with_type(wide_type(field.type)) for field in schema]
    return pa.schema(fields, schema.metadata)


def key_schema(schema: pa.Schema, keys: Sequence[str]) -> pa.Schema:
    """Return the key columns of ``schema``, with the types in which keyed state returns them."""
    return wide_schema(pa.schema([schema.field(key) for key in keys]))


def encoded_schema(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """Return ``schema`` with dictionaries of int32 indices for ``columns``."""
    chosen = frozenset(columns)
    fields = [
        field.with_type(pa.dictionary(pa.int32(), field.type)) if field.name in chosen else field for field in schema
    ]
    return pa.schema(fields, schema.metadata)


def decoded_schema(schema: pa.Schema, columns: Collection[str]) -> pa.Schema:
    """Return ``schema`` with the values of the dictionaries ``columns`` in their place."""
    if not columns:
        return schema
    fields = [field.with_type(field.type.value_type) if field.name in columns else field for field in schema]
    return pa.schema(fields, schema.metadata)


def either_schema(schema: pa.Schema, columns: Collection[str], types: Sequence[pa.DataType | None]) -> pa.Schema:
    """Return ``schema``; those of its dictionaries ``columns`` whose entry in ``types`` is their text are text.

    ``types`` has a type, or None, for each column of ``schema``.
    """
    text = [
        field.name
        for field, type_ in zip(schema, types, strict=True)
        if field.name in columns and pa.types.is_dictionary(field.type) and type_ == field.type.value_type
    ]
    return decoded_schema(schema, text)


def decoded(array: pa.Array) -> pa.Array:
    """Return the values of ``array``, which may be a dictionary."""
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def encoded(array: pa.Array) -> pa.DictionaryArray:
    """Return ``array`` as a dictionary with int32 indices."""
    return array if pa.types.is_dictionary(array.type) else array.dictionary_encode()


def widened(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return ``batch`` in its wide schema. Other columns, and the values of dictionaries, are shared."""
    if not any([pa.types.is_dictionary(type_) or has_extensions(type_) for type_ in batch.schema.types]):
        return batch  # the usual case, at once
    schema = wide_schema(batch.schema)
    if schema.types == batch.schema.types and not any(_has_null_entry(column) for column in batch.columns):
        return batch
    return pa.RecordBatch.from_arrays([widened_array(column) for column in batch.columns], schema=schema)


def widened_array(array: pa.Array) -> pa.Array:
    """Return ``array`` in its wide type; narrower indices and the text of UUIDs are copied, other values are shared.

    A null among the values of a dictionary becomes a null index, because readers look for nulls there.
    """
    type_ = wide_type(array.type)
    array = stored_values(array)
    if _has_null_entry(array):
        return _without_null_entries(array, type_)
    if array.type == type_:
        return array
    indices = array.indices.cast(type_.index_type)
    return pa.DictionaryArray.from_arrays(indices, array.dictionary, ordered=type_.ordered)


def _has_null_entry(array: pa.Array) -> bool:
    return isinstance(array, pa.DictionaryArray) and array.dictionary.null_count > 0


def _without_null_entries(array: pa.DictionaryArray, type_: pa.DataType) -> pa.DictionaryArray:
    import numpy as np

    valid = to_numbers(array.dictionary.is_valid())
    places = to_array((np.cumsum(valid) - 1).astype(np.int32), mask=~valid)
    indices = places.take(array.indices).cast(type_.index_type)
    return pa.DictionaryArray.from_arrays(indices, array.dictionary.drop_null(), ordered=type_.ordered)
