"""Arrow buffers as numpy views, for the kernels. A function copies only if its docstring says so.

>>> words(pa.array([1, None, 3]).slice(2)).tolist()
[3]
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataflow.arrow_values import storage, storage_dtype

__all__ = [
    "GREATEST",
    "LEAST",
    "Bits",
    "Mask",
    "Numbers",
    "byte_ranges",
    "canonical_words",
    "fills_word",
    "fresh",
    "fresh_words",
    "from_words",
    "is_bytes",
    "is_key",
    "is_word",
]
__all__ += ["plain", "validity", "words"]

Bits = tuple[npt.NDArray[np.uint8], int]
"""A validity bitmap and the bit of its first row; an empty bitmap means that no row is null."""

Mask = npt.NDArray[np.bool_]
"""Which rows, slots or entries are meant: one truth value for each."""

Numbers = npt.NDArray[np.int64]
"""Numbers of windows, slices or rows, or times in the unit that the context names."""

LEAST, GREATEST = -(2**63), 2**63 - 1
"""The ends of int64."""

_Number = TypeVar("_Number", bound=np.generic)

CANONICAL_NAN = 0x7FF8000000000000

_NO_BYTES = np.empty(0, np.uint8)


def is_word(type_: pa.DataType) -> bool:
    """Return whether a value of this type fits into one 64-bit word: integers, floats, booleans, dates, times, null."""
    return bool(
        pa.types.is_null(type_)
        or pa.types.is_integer(type_)
        or pa.types.is_floating(type_)
        or pa.types.is_boolean(type_)
        or pa.types.is_date(type_)
        or pa.types.is_time(type_)
        or pa.types.is_timestamp(type_)
        or pa.types.is_duration(type_)
    )


def fills_word(type_: pa.DataType) -> bool:
    """Return whether a value of this type is a word in Arrow's memory, too: it has 64 bits."""
    return is_word(type_) and not pa.types.is_null(type_) and type_.bit_width == 64


def is_bytes(type_: pa.DataType) -> bool:
    """Return whether a value of this type is handled as a byte string: strings, binaries, decimals."""
    return bool(
        pa.types.is_string(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_binary(type_)
        or pa.types.is_large_binary(type_)
        or pa.types.is_fixed_size_binary(type_)
        or pa.types.is_decimal(type_)
    )


def is_key(type_: pa.DataType) -> bool:
    """Return whether keyed state accepts a column of this type as a key: a word or bytes, or a dictionary of them."""
    return is_key(type_.value_type) if pa.types.is_dictionary(type_) else is_word(type_) or is_bytes(type_)


_LITTLE = 32 << 10
"""Bytes up to which numpy is asked for memory: Arrow lets another thread run, which may keep this one waiting."""


def validity(array: pa.Array) -> Bits:
    """Return the validity bitmap of ``array``, empty if it has no nulls."""
    if array.null_count == 0:
        return _NO_BYTES, 0
    if pa.types.is_null(array.type):
        return np.zeros(len(array) // 8 + 1, np.uint8), 0
    assert array.buffers()[0] is not None, f"an array of {array.type} has {array.null_count} nulls and no bitmap"
    return np.frombuffer(array.buffers()[0], np.uint8), array.offset


def words(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return one word per row: integers and times as 64 bits, floats as float64 bits. Copies narrow types."""
    if pa.types.is_null(array.type):
        return np.zeros(len(array), np.int64)
    if pa.types.is_boolean(array.type):
        return storage(array.cast(pa.int8())).astype(np.int64)
    values = storage(array)
    if values.dtype.kind == "f":
        return values.astype(np.float64, copy=False).view(np.int64)
    return values.view(np.int64) if values.dtype.itemsize == 8 else values.astype(np.int64)


def canonical_words(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return ``words`` with one zero and one NaN, so that equal values are equal words. Copies floats."""
    raw = words(array)
    if not pa.types.is_floating(array.type):
        return raw
    floats = raw.view(np.float64)
    with np.errstate(invalid="ignore"):
        bits: npt.NDArray[np.int64] = (floats + 0.0).view(np.int64)
    bits[np.isnan(floats)] = CANONICAL_NAN
    return bits


def fresh_words(rows: int) -> npt.NDArray[np.int64]:
    """Return uninitialised memory from Arrow's pool, which reuses pages; numpy would fault in new ones."""
    return fresh(np.int64, rows)


def fresh(dtype: type[_Number], rows: int) -> npt.NDArray[_Number]:
    """Return uninitialised memory for numbers: much of it from Arrow's pool, as numpy would fault in new pages."""
    size = np.dtype(dtype).itemsize * rows
    return np.empty(rows, dtype) if size <= _LITTLE else np.frombuffer(pa.allocate_buffer(size), dtype)


def from_words(values: npt.NDArray[np.int64], type_: pa.DataType, bitmap: pa.Buffer | None = None) -> pa.Array:
    """Return the array of these words (inverse of ``words``). 64-bit types share the memory; others copy it."""
    if pa.types.is_null(type_):
        return pa.nulls(len(values))
    if pa.types.is_boolean(type_):
        return from_words(values, pa.int8(), bitmap).cast(type_)
    dtype = storage_dtype(type_)
    typed = values.view(np.float64) if dtype.kind == "f" else values
    if dtype.itemsize != 8:
        with np.errstate(over="ignore", invalid="ignore"):
            typed = typed.astype(dtype)
    return pa.Array.from_buffers(type_, len(values), [bitmap, pa.py_buffer(typed)])


def byte_ranges(array: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the bytes of a string, binary or wide fixed-width array and the ``len + 1`` offsets of its rows."""
    type_, first, rows = array.type, array.offset, len(array)
    data = array.buffers()[-1]
    octets = _NO_BYTES if data is None else np.frombuffer(data, np.uint8)
    if pa.types.is_fixed_size_binary(type_) or pa.types.is_decimal(type_):
        width = type_.bit_width // 8
        return octets, np.arange(first, first + rows + 1, dtype=np.int64) * width
    large = pa.types.is_large_string(type_) or pa.types.is_large_binary(type_)
    dtype = np.dtype(np.int64 if large else np.int32)
    if rows == 0:
        return octets, np.zeros(1, np.int64)
    offsets = np.frombuffer(array.buffers()[1], dtype, rows + 1, first * dtype.itemsize)
    return octets, offsets.astype(np.int64, copy=not offsets.flags.aligned)


def plain(column: pa.Array) -> pa.Array:
    """Return the array in a layout this package reads, perhaps a copy: views become large arrays."""
    type_ = column.type
    if pa.types.is_string_view(type_):
        return column.cast(pa.large_string())
    if pa.types.is_binary_view(type_):
        return column.cast(pa.large_binary())
    if pa.types.is_run_end_encoded(type_):
        return pc.run_end_decode(column)
    return column
