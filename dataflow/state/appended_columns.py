"""Columns of Arrow values of any type that are only appended to, and read by the numbers of their rows.

Values of a fixed width are copied into one piece of memory that doubles, so a row is read from one place. Others stay
Arrow arrays, of which an older one is joined with those after it once they are as long together: a column has few
arrays, and a value is copied a few times.

>>> column = appended_column(pa.string())
>>> column.append(pa.array(["a", None])); column.append(pa.array(["b"]))
>>> column.take(np.array([2, 0, 1])).to_pylist()
['b', 'a', None]
>>> frozen = column.freeze()
>>> column.append(pa.array(["c"]))
>>> frozen(1, 3).to_pylist()
[None, 'b']
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.arrow_values import storage, storage_dtype, to_array, to_numbers
from dataflow.state.arrays import fresh, is_word

__all__ = ["AppendedColumn", "FewArrays", "Frozen", "appended_column"]

Numbers = npt.NDArray[np.integer[Any]]

Frozen = Callable[[int, int], pa.Array]
"""Returns the values of the rows from one number to before another; it may be called on any thread."""

_FEW = 1024
_LARGE = 1 << 26
"""Bytes of an array above which it is not joined with another one."""


class AppendedColumn(ABC):
    """A column of values. Row i is the i-th one that was appended."""

    @abstractmethod
    def append(self, array: pa.Array) -> None:
        """Add the values of ``array`` after the last row."""

    @abstractmethod
    def take(self, numbers: Numbers) -> pa.Array:
        """Return the values of rows by their numbers, from 0, in memory of their own."""

    @abstractmethod
    def freeze(self) -> Frozen:
        """Return a function that returns the values of ranges of the present rows, at any later time."""


def appended_column(type_: pa.DataType) -> AppendedColumn:
    """Return an empty column of values of ``type_``."""
    has_memory = is_word(type_) and not pa.types.is_boolean(type_) and not pa.types.is_null(type_)
    return _FixedWidth(type_) if has_memory else _AnyWidth(type_)


class _FixedWidth(AppendedColumn):
    """Numbers and times. Memory that a reader has is never written again: rows are added after its end."""

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self._values = fresh(storage_dtype(type_).type, _FEW)
        self._valid: npt.NDArray[np.bool_] | None = None  # None: no row is null
        self._count = 0

    def append(self, array: pa.Array) -> None:
        start, stop = self._count, self._count + len(array)
        if stop > len(self._values):
            self._values = _grown(self._values, start, 2 * stop)
            if self._valid is not None:
                self._valid = _grown(self._valid, start, 2 * stop)
        self._values[start:stop] = storage(array)
        if array.null_count and self._valid is None:
            self._valid = np.ones(len(self._values), np.bool_)
        if self._valid is not None:
            self._valid[start:stop] = to_numbers(array.is_valid()) if array.null_count else True
        self._count = stop

    def take(self, numbers: Numbers) -> pa.Array:
        return _array(self._type, self._values[numbers], None if self._valid is None else self._valid[numbers])

    def freeze(self) -> Frozen:
        type_, values, valid = self._type, self._values, self._valid

        def rows(start: int, stop: int) -> pa.Array:
            return _array(type_, values[start:stop], None if valid is None else valid[start:stop])

        return rows


class _AnyWidth(AppendedColumn):
    """Text, binary, nested and all other values."""

    def __init__(self, type_: pa.DataType) -> None:
        self._arrays = FewArrays(type_)

    def append(self, array: pa.Array) -> None:
        self._arrays.append(array)

    def take(self, numbers: Numbers) -> pa.Array:
        return self._arrays.take(to_array(np.ascontiguousarray(numbers)))

    def freeze(self) -> Frozen:
        return self._arrays.freeze()


class FewArrays:
    """The same values as in the arrays appended, in few arrays: their number grows with the logarithm of the rows."""

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self._arrays: list[pa.Array] = []
        self.count = 0

    def append(self, array: pa.Array) -> None:
        """Add the values of ``array``; an array before it that is no longer is joined with it."""
        self.count += len(array)
        while self._arrays and len(self._arrays[-1]) <= len(array) and array.nbytes < _LARGE:
            array = pa.concat_arrays([self._arrays.pop(), array])
        if len(array):
            self._arrays.append(array)

    def take(self, numbers: pa.Array) -> pa.Array:
        """Return the values of rows by their numbers; null for null."""
        return taken_from(self._arrays, self._type, numbers)

    def present(self) -> tuple[pa.Array, ...]:
        """Return the arrays, which never change."""
        return tuple(self._arrays)

    def freeze(self) -> Frozen:
        """Return a function that returns the values of ranges of the present rows, at any later time."""
        whole = pa.chunked_array(self._arrays, self._type)
        return lambda start, stop: _joined(whole.slice(start, stop - start))


def taken_from(arrays: list[pa.Array] | tuple[pa.Array, ...], type_: pa.DataType, numbers: pa.Array) -> pa.Array:
    """Return values by their numbers in ``arrays``, counted from the first row of the first one; null for null."""
    if not arrays:
        return pa.nulls(len(numbers), type_)
    return _joined(pa.chunked_array(list(arrays), type_).take(numbers))


def _joined(column: pa.ChunkedArray) -> pa.Array:
    chunks = column.chunks
    if len(chunks) == 1:
        return chunks[0]
    return pa.concat_arrays(chunks) if chunks else pa.nulls(0, column.type)


def _grown(values: npt.NDArray[Any], used: int, size: int) -> npt.NDArray[Any]:
    """Return memory for ``size`` values that begins with the first ``used`` ones."""
    grown: npt.NDArray[Any] = fresh(values.dtype.type, size)
    grown[:used] = values[:used]
    return grown


def _array(type_: pa.DataType, values: npt.NDArray[Any], valid: npt.NDArray[np.bool_] | None) -> pa.Array:
    """Return an array that shares the memory of ``values``."""
    bitmap = None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(type_, len(values), [bitmap, pa.py_buffer(values)])
