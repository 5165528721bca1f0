"""Columns as words whose order as signed integers is the order of the values; the words of a text are looked up.

Integers, booleans and times are their own word. Floats are ordered as numbers, all NaNs are one value, the greatest,
and -0.0 is 0.0. A decimal has a word for every 8 bytes, the highest first. A byte string (text, binary) has one word,
the code that an ``Interner`` gives it, which has no order by itself.

>>> column = OrderColumn(pa.float64(), number=0, first=0)
>>> words = np.stack(column.words(pa.array([1.5, -2.0, float("nan")])), axis=1)
>>> np.argsort(words[:, 0]).tolist()
[1, 0, 2]
>>> column.values(words, None).to_pylist()
[1.5, -2.0, nan]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.arrow_values import to_numbers
from dataflow.errors import SchemaMismatch
from dataflow.state.arrays import byte_ranges, canonical_words, from_words, is_bytes, is_word
from dataflow.state.copy_on_write import Rows

__all__ = ["NO_TEXT", "OrderColumn", "order_columns"]

Words = npt.NDArray[np.int64]

_SIGN, _REST = -(2**63), 2**63 - 1
NO_TEXT = -1
"""The word of a text that is null."""


@dataclass(frozen=True, slots=True)
class OrderColumn:
    """A column of ordered values: its type, its bit of the nulls, and the first of its words."""

    dtype: pa.DataType
    number: int
    first: int

    @property
    def is_text(self) -> bool:
        """Whether the word is the code of a byte string."""
        return is_bytes(self.dtype) and not pa.types.is_decimal(self.dtype)

    @property
    def width(self) -> int:
        """The number of words."""
        return max(1, self.dtype.bit_width // 64) if pa.types.is_decimal(self.dtype) else 1

    @property
    def bits(self) -> list[int]:
        """An entry for each word: the bit of the nulls; negative if the word is a code. See the kernels."""
        bit = 1 << self.number
        return [-bit] if self.is_text else [bit] * self.width

    def words(self, array: pa.Array) -> list[Words]:
        """Return the words of an array that is no text; those of nulls are 0."""
        words = self._decimal_words(array) if pa.types.is_decimal(self.dtype) else [self._number_words(array)]
        if not array.null_count:
            return words
        present = to_numbers(array.is_valid())
        return [np.where(present, word, 0) for word in words]

    def values(self, words: Rows, bitmap: pa.Buffer | None) -> pa.Array:
        """Return the array of these ``words``, one row a value, as ``words`` made them."""
        if pa.types.is_decimal(self.dtype):
            return self._decimals(words, bitmap)
        own = np.ascontiguousarray(words[:, 0])
        if self.dtype == pa.uint64():
            own ^= _SIGN
        elif pa.types.is_floating(self.dtype):
            own ^= (own >> 63) & _REST
        return from_words(own, self.dtype, bitmap)

    def _number_words(self, array: pa.Array) -> Words:
        words = canonical_words(array)
        if self.dtype == pa.uint64():
            return words ^ _SIGN
        if pa.types.is_floating(self.dtype):
            return words ^ ((words >> 63) & _REST)
        return words

    def _decimal_words(self, array: pa.Array) -> list[Words]:
        data, offsets = byte_ranges(array)
        size = self.dtype.bit_width // 8
        octets = data[int(offsets[0]) : int(offsets[-1])]
        if size < 8:
            return [np.frombuffer(octets.tobytes(), f"<i{size}").astype(np.int64)]
        parts = np.frombuffer(octets.tobytes(), np.int64).reshape(len(array), self.width)
        return [parts[:, -1], *[parts[:, k] ^ _SIGN for k in range(self.width - 2, -1, -1)]]

    def _decimals(self, words: Rows, bitmap: pa.Buffer | None) -> pa.Array:
        size = self.dtype.bit_width // 8
        if size < 8:
            data = words[:, 0].astype(f"<i{size}")
        else:
            data = np.empty((len(words), self.width), np.int64)
            data[:, -1] = words[:, 0]
            for k in range(1, self.width):
                data[:, -1 - k] = words[:, k] ^ _SIGN
        return pa.Array.from_buffers(self.dtype, len(words), [bitmap, pa.py_buffer(data.tobytes())])


def order_columns(types: list[pa.DataType]) -> list[OrderColumn]:
    """Return the columns of values of ``types``. Raises: SchemaMismatch for a type without an order."""
    columns: list[OrderColumn] = []
    for number, type_ in enumerate(types):
        if not is_word(type_) and not is_bytes(type_):
            raise SchemaMismatch(
                f"values of type {type_} have no order here: expected numbers, booleans, times, decimals, text or "
                "binary"
            )
        columns.append(OrderColumn(type_, number, sum([column.width for column in columns])))
    return columns
