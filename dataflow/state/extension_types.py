"""Columns of extension types as plain columns: a UUID as its text, all others as their storage.

Extension types say what values mean, such as JSON in text. No kernel of Arrow's takes them, and neither do keyed state,
expressions and Spark. So their columns are plain from where they enter a pipeline. The storage of a UUID is 16 bytes,
which CSV and JSON cannot hold, so a UUID becomes its text.

>>> import uuid
>>> stored_values(pa.array([uuid.UUID(int=5).bytes, None], pa.uuid())).to_pylist()
['00000000-0000-0000-0000-000000000005', None]
>>> print(without_extensions(pa.list_(pa.json_())), without_extensions(pa.bool8()))
list<item: string> int8
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import types

__all__ = ["has_extensions", "plain_schema", "replaced", "stored_values", "without_extensions"]

_LISTS: Final[Sequence[tuple[Any, Any, int]]] = (
    (types.is_list, pa.list_, 2),
    (types.is_large_list, pa.large_list, 2),
    (types.is_list_view, pa.list_view, 3),
    (types.is_large_list_view, pa.large_list_view, 3),
)
"""For each kind of list: how it is recognised and made, and how many buffers it has."""
_DIGITS: Final = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint8).reshape(256, 2)
_TEXT_OF_UUID: Final = 36
_HYPHENS: Final = (8, 13, 18, 23)


def has_extensions(type_: pa.DataType) -> bool:
    """Return whether ``type_`` is an extension type, or has one inside."""
    if isinstance(type_, pa.BaseExtensionType):
        return True
    if types.is_dictionary(type_):
        return has_extensions(type_.value_type)
    return any([has_extensions(type_.field(at).type) for at in range(type_.num_fields)])


def without_extensions(type_: pa.DataType) -> pa.DataType:
    """Return ``type_``, with plain types in the place of extension types, also inside other types."""
    return replaced(type_, _plain) if has_extensions(type_) else type_


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return ``schema`` with the types of ``without_extensions``."""
    if not any([has_extensions(type_) for type_ in schema.types]):
        return schema
    return pa.schema([field.with_type(without_extensions(field.type)) for field in schema], schema.metadata)


def replaced(type_: pa.DataType, replace: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return ``type_`` with ``replace`` applied to all types in it that have no types inside."""

    def inside(field: pa.Field) -> pa.Field:
        return field.with_type(replaced(field.type, replace))

    if types.is_dictionary(type_):
        return pa.dictionary(type_.index_type, replaced(type_.value_type, replace), type_.ordered)
    if types.is_struct(type_):
        return pa.struct([inside(field) for field in type_])
    if types.is_map(type_):
        return pa.map_(inside(type_.key_field), inside(type_.item_field), type_.keys_sorted)
    if types.is_fixed_size_list(type_):
        return pa.list_(inside(type_.value_field), type_.list_size)
    make = next((make for is_one, make, _ in _LISTS if is_one(type_)), None)
    return replace(type_) if make is None else make(inside(type_.value_field))


def _plain(type_: pa.DataType) -> pa.DataType:
    if isinstance(type_, pa.UuidType):
        return pa.string()
    return without_extensions(type_.storage_type) if isinstance(type_, pa.BaseExtensionType) else type_


def stored_values(array: pa.Array) -> pa.Array:
    """Return ``array`` in the type ``without_extensions`` of its own. Only the text of UUIDs is copied."""
    type_ = array.type
    if not has_extensions(type_):
        return array
    if isinstance(type_, pa.UuidType):
        return _texts(array.storage)
    if isinstance(array, pa.ExtensionArray):
        return stored_values(array.storage)
    if types.is_dictionary(type_):
        return pa.DictionaryArray.from_arrays(array.indices, stored_values(array.dictionary), ordered=type_.ordered)
    plain = without_extensions(type_)
    if types.is_struct(type_):
        children = [stored_values(array.field(at)) for at in range(type_.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(plain), mask=array.is_null())
    if types.is_map(type_):
        entries = [stored_values(array.keys), stored_values(array.items)]
        child, buffers = pa.StructArray.from_arrays(entries, fields=[plain.key_field, plain.item_field]), 2
    else:
        buffers = next((count for is_one, _, count in _LISTS if is_one(type_)), 1)  # 1: a list of fixed size
        child = stored_values(array.values)
    return pa.Array.from_buffers(plain, len(array), array.buffers()[:buffers], array.null_count, array.offset, [child])


def _texts(uuids: pa.FixedSizeBinaryArray) -> pa.StringArray:
    """Return the text of UUIDs, which are 16 bytes each."""
    rows, data = len(uuids), uuids.buffers()[1]
    octets = np.zeros((rows, 16), np.uint8)
    if data is not None:
        octets = np.frombuffer(data, np.uint8, 16 * rows, 16 * uuids.offset).reshape(rows, 16)
    text = np.full((rows, _TEXT_OF_UUID), ord("-"), np.uint8)
    text[:, [at for at in range(_TEXT_OF_UUID) if at not in _HYPHENS]] = _DIGITS[octets].reshape(rows, 32)
    valid = None if not uuids.null_count else uuids.is_valid().buffers()[1]
    ends = np.arange(rows + 1, dtype=np.int64) * _TEXT_OF_UUID
    assert ends[-1] < 1 << 31, f"{rows} UUIDs in one array have more text than 32-bit offsets address"
    return pa.StringArray.from_buffers(rows, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(text), valid)
