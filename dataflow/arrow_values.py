"""Convert between Arrow and Python or numpy, without an import of pandas.

pyarrow imports pandas, if it is installed, at the first call of ``pa.array``, ``pa.scalar`` or ``to_numpy``, to
recognize its objects. That costs a process 0.2 to 0.4 s of CPU. The engine converts numbers, booleans, text and plain
times, so it reads and writes Arrow's buffers here; all other values go through pyarrow.

Invariant: a result equals that of pyarrow's function, in type, values, nulls, and the error raised.

>>> to_array(np.array([1, 2, 3]), mask=np.array([False, True, False])).to_pylist()
[1, None, 3]
>>> to_scalar("a")
<pyarrow.StringScalar: 'a'>
>>> to_numbers(to_array([True, False], pa.bool_())).tolist()
[True, False]
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["storage", "storage_dtype", "to_array", "to_numbers", "to_scalar"]

_EPOCH: Final = datetime.datetime(1970, 1, 1)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_OWN_TYPES: Final[dict[type, pa.DataType]] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    datetime.datetime: pa.timestamp("us"),
    datetime.timedelta: pa.duration("us"),
    datetime.date: pa.date32(),
}
"""The type that Arrow infers for a value of exactly this class; a ``datetime`` with a zone is not converted here."""


def to_array(
    values: npt.NDArray[Any] | Sequence[Any],
    type_: pa.DataType | None = None,
    mask: npt.NDArray[np.bool_] | None = None,
) -> pa.Array:
    """Return ``pa.array(values, type_, mask=mask)``. An array of numpy shares its memory, as it does there.

    Args:
        values: numbers of numpy in one dimension, or a sequence of Python values.
        type_: the type of the result; None for the type that Arrow infers.
        mask: true where the result is null; only with numpy's numbers.

    Raises: ArrowInvalid, ArrowTypeError, OverflowError, as ``pa.array`` does.
    """
    # an array of a subclass may mean more than its memory: a masked array has nulls
    made = _of_numpy(values, type_, mask) if type(values) is np.ndarray else _of_python(values, type_)
    return pa.array(values, type_, mask=mask) if made is None else made


def to_scalar(value: object, type_: pa.DataType | None = None) -> pa.Scalar:
    """Return ``pa.scalar(value, type_)``.

    Raises: ArrowInvalid, ArrowTypeError, OverflowError, as ``pa.scalar`` does.
    """
    made = _of_python([value], type_)
    return pa.scalar(value, type_) if made is None else made[0]


def to_numbers(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return ``column.to_numpy(zero_copy_only=False)``. The result may share memory, and must not be written to."""
    if isinstance(column, pa.ChunkedArray):
        if not column.num_chunks:
            is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
            return np.empty(
                0, storage_dtype(column.type) if is_number else np.bool_ if pa.types.is_boolean(column.type) else object
            )
        column = column.combine_chunks()
    if isinstance(column, pa.Array) and not column.null_count:
        if pa.types.is_boolean(column.type):
            return _unpacked(column)
        if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            return storage(column)
    return np.asarray(column.to_numpy(zero_copy_only=False))


def storage_dtype(type_: pa.DataType) -> np.dtype[Any]:
    """Return the numpy type of a fixed-width Arrow type's memory; dates and times are signed integers."""
    width = type_.bit_width // 8
    if pa.types.is_floating(type_):
        return np.dtype(f"f{width}")
    return np.dtype(f"u{width}" if pa.types.is_unsigned_integer(type_) else f"i{width}")


def storage(array: pa.Array) -> npt.NDArray[Any]:
    """Return the values of a fixed-width array; values of null rows are undefined. Copies unaligned memory."""
    dtype = storage_dtype(array.type)
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(len(array), dtype)
    view = np.frombuffer(buffer, dtype, len(array), array.offset * dtype.itemsize)
    return view if view.flags.aligned else view.copy()


def _unpacked(column: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    if len(column) == 0:
        return np.empty(0, np.bool_)
    first, skipped = divmod(column.offset, 8)
    octets = np.frombuffer(column.buffers()[1], np.uint8)[first:]
    return np.unpackbits(octets, count=skipped + len(column), bitorder="little")[skipped:].view(np.bool_)


def _packed(bits: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(bits, bitorder="little"))


def _of_numpy(
    values: npt.NDArray[Any], type_: pa.DataType | None, mask: npt.NDArray[np.bool_] | None
) -> pa.Array | None:
    """Return the array, or None if pyarrow must convert these values."""
    if values.dtype.kind not in "biuf" or not values.dtype.isnative or values.ndim != 1 or values.itemsize > 8:
        return None
    if mask is not None and (mask.dtype != np.bool_ or mask.shape != values.shape):
        return None
    truths = values.dtype.kind == "b"
    own = pa.bool_() if truths else pa.from_numpy_dtype(values.dtype)
    ticks = (
        type_ is not None and own.equals(pa.int64()) and (pa.types.is_timestamp(type_) or pa.types.is_duration(type_))
    )
    if not (type_ is None or type_.equals(own) or ticks or (not truths and type_ in (pa.int64(), pa.float64()))):
        return None
    validity = _packed(~mask) if mask is not None and mask.any() else None
    data = _packed(values) if truths else pa.py_buffer(np.ascontiguousarray(values))
    made = pa.Array.from_buffers(type_ if ticks else own, len(values), [validity, data])
    return made if type_ is None or type_.equals(made.type) else made.cast(type_)


def _of_python(values: npt.NDArray[Any] | Sequence[Any], type_: pa.DataType | None) -> pa.Array | None:
    """Return the array of values of one class, or of nulls only; None if pyarrow must convert these values."""
    if not isinstance(values, (list, tuple)):
        return None
    classes = set(map(type, values)) - {type(None)}
    if not classes:
        return pa.nulls(len(values), type_)
    kind = classes.pop()
    own = _OWN_TYPES.get(kind)
    if classes or own is None:
        return None
    made = _of_bytes(values, own) if kind in (str, bytes) else _of_words(values, own)
    if made is None or type_ is None or type_.equals(own):
        return made
    return _cast(made, type_)


def _cast(made: pa.Array, type_: pa.DataType) -> pa.Array | None:
    """Return ints as other ints or float64, and text as large text; None for the rest, or if a value does not fit."""
    numeric = pa.types.is_int64(made.type) and (pa.types.is_integer(type_) or type_.equals(pa.float64()))
    if not numeric and not (pa.types.is_string(made.type) and pa.types.is_large_string(type_)):
        return None
    try:
        return made.cast(type_)
    except pa.ArrowInvalid:
        return None  # pyarrow words the error


def _of_words(values: Sequence[Any], own: pa.DataType) -> pa.Array | None:
    if any([isinstance(value, datetime.datetime) and value.tzinfo is not None for value in values]):
        return None
    words = [0 if value is None else _word(value) for value in values]
    mask = np.array([value is None for value in values])
    try:
        stored = np.array(words, np.bool_ if pa.types.is_boolean(own) else storage_dtype(own))
    except OverflowError:
        return None
    made = _of_numpy(stored, None, mask)
    return made if made is None or made.type.equals(own) else made.view(own)


def _word(value: Any) -> Any:
    """Return the number that Arrow stores for a value."""
    if isinstance(value, datetime.datetime):
        return (value - _EPOCH) // _MICROSECOND
    if isinstance(value, datetime.timedelta):
        return value // _MICROSECOND
    return (value - _EPOCH.date()).days if isinstance(value, datetime.date) else value


def _of_bytes(values: Sequence[Any], own: pa.DataType) -> pa.Array | None:
    try:
        octets = [b"" if value is None else value.encode() if isinstance(value, str) else value for value in values]
    except UnicodeEncodeError:
        return None
    ends = np.cumsum([0, *map(len, octets)])
    if ends[-1] > np.iinfo(np.int32).max:
        return None
    mask = np.array([value is None for value in values])
    buffers = [
        _packed(~mask) if mask.any() else None,
        pa.py_buffer(ends.astype(np.int32)),
        pa.py_buffer(b"".join(octets)),
    ]
    return pa.Array.from_buffers(own, len(values), buffers)
