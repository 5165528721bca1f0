"""A column as JSON: one text for each value, made by vectorised kernels, nested values included.

Values that JSON does not have: NaN and infinities are ``null``; decimals, dates and times are text (ISO 8601, zones as
UTC); a duration is the whole number of its unit; a map is an array of ``{"key": ..., "value": ...}``, because its keys
may not be text. Bytes, unions and intervals raise an error. Integers beyond 2**53 are exact, if the reader supports it.
"""

from __future__ import annotations

import json
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dataflow.arrow_values import to_array, to_scalar
from operators.sinks.temporal import utc, within_text

__all__ = ["json_lines", "json_text"]

_NULL: Final = "null"
_ESCAPES: Final = {i: json.dumps(chr(i))[1:-1] for i in (*range(32), ord('"'), ord("\\"))}


def json_lines(batch: pa.RecordBatch) -> pa.Array:
    r"""Return one JSON object for each row, line end included.

    >>> json_lines(pa.record_batch({"x": [1.5, float("nan")], "s": ['say "é"', None]})).to_pylist()
    ['{"x":1.5,"s":"say \\"é\\""}\n', '{"x":null,"s":null}\n']
    """
    texts = [json_text(column, name) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
    return _join(*_members(batch.schema.names, texts), "}\n")


def json_text(array: pa.Array, column: str) -> pa.Array:
    """Return the JSON text of each value, ``null`` included. Errors name ``column``.

    Raises: pa.ArrowNotImplementedError for a type that JSON cannot hold; SchemaMismatch for a year beyond 9999.
    """
    text = _text(array, column)
    return text.fill_null(to_scalar(_NULL)) if text.null_count else text


def _text(array: pa.Array, column: str) -> pa.Array:
    """Return the JSON text of each value; null may represent ``null``."""
    type_ = array.type
    if types.is_null(type_):
        return array.cast(pa.string())
    if types.is_dictionary(type_):
        return json_text(array.dictionary, column).take(array.indices)
    if types.is_run_end_encoded(type_):
        return _text(pc.run_end_decode(array), column)
    if types.is_boolean(type_) or types.is_integer(type_):
        return array.cast(pa.string())
    if types.is_duration(type_):
        return array.cast(pa.int64()).cast(pa.string())
    if types.is_floating(type_):
        wide = array.cast(pa.float32()) if types.is_float16(type_) else array
        return pc.if_else(pc.is_finite(wide), wide.cast(pa.string()), to_scalar(None, pa.string()))
    if types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_):
        return _join('"', _escaped(array.cast(pa.string())), '"')
    if types.is_decimal(type_) or types.is_time(type_) or types.is_date(type_) or types.is_timestamp(type_):
        within_text(array, column)
        text = utc(array).cast(pa.string())
        return _join('"', pc.replace_substring(text, " ", "T") if types.is_timestamp(type_) else text, '"')
    if types.is_struct(type_):
        return _struct(array, column)
    if types.is_map(type_):
        return _map(array, column)
    if types.is_list(type_):
        return _list(array, array.values, column)
    if types.is_large_list(type_) or types.is_fixed_size_list(type_) or _is_list_view(type_):
        return _text(_plain_list(array), column)
    raise pa.ArrowNotImplementedError(f"JSON cannot hold {type_}")


def _is_list_view(type_: pa.DataType) -> bool:
    return types.is_list_view(type_) or types.is_large_list_view(type_)


def _plain_list(array: pa.Array) -> pa.ListArray:
    """Return a list of any layout as a plain list. (A cast from views loses elements in pyarrow 26.)"""
    lengths = pc.list_value_length(array).cast(pa.int32()).fill_null(to_scalar(0, pa.int32()))
    offsets = pa.concat_arrays([to_array([0], pa.int32()), pc.cumulative_sum(lengths)])
    return pa.ListArray.from_arrays(offsets, pc.list_flatten(array), mask=array.is_null())


def _struct(array: pa.StructArray, column: str) -> pa.Array:
    names = [field.name for field in array.type]
    texts = [json_text(child, column) for child in array.flatten()]
    whole = _join(*_members(names, texts), "}") if names else pa.repeat(to_scalar("{}"), len(array))
    return pc.if_else(array.is_valid(), whole, to_scalar(None, pa.string()))


def _map(array: pa.MapArray, column: str) -> pa.Array:
    entries = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
    return _list(array, entries, column)


def _list(array: pa.ListArray | pa.MapArray, values: pa.Array, column: str) -> pa.Array:
    """Return lists of ``values`` as JSON text. ``array`` has the offsets; a slice may begin at any offset."""
    first, last = (array.offsets[0].as_py(), array.offsets[-1].as_py()) if len(array) else (0, 0)
    texts = json_text(values.slice(first, last - first), column)
    start = to_scalar(first, pa.int32())
    offsets = pc.subtract(array.offsets, start) if len(array) else to_array([0], pa.int32())
    lists = pa.ListArray.from_arrays(offsets, texts)
    whole = _join("[", pc.binary_join(lists, to_scalar(",")), "]")
    return pc.if_else(array.is_valid(), whole, to_scalar(None, pa.string()))


def _members(names: list[str], texts: list[pa.Array]) -> list[str | pa.Array]:
    """Return ``{"a":`` text ``,"b":`` text, to be joined, without the closing brace."""
    parts: list[str | pa.Array] = []
    for name, text in zip(names, texts, strict=True):
        parts += [f"{',' if parts else '{'}{json.dumps(name, ensure_ascii=False)}:", text]
    return parts


def _join(*parts: str | pa.Array) -> pa.Array:
    values = [to_scalar(part) if isinstance(part, str) else part for part in (*parts, "")]
    return pc.binary_join_element_wise(*values)


def _escaped(array: pa.StringArray) -> pa.Array:
    """Return ``array`` with the escapes of JSON. Only characters that occur in the bytes are replaced."""
    _, offsets, data = array.buffers()
    if data is None or not len(array):
        return array
    ends = np.frombuffer(offsets, np.int32)[[array.offset, array.offset + len(array)]]
    occurring = np.bincount(np.frombuffer(data, np.uint8)[ends[0] : ends[1]], minlength=256)
    for character in sorted(_ESCAPES, key=lambda c: c != ord("\\")):  # the backslash first: the others make new ones
        if occurring[character]:
            array = pc.replace_substring(array, chr(character), _ESCAPES[character])
    return array
