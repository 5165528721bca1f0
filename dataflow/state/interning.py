"""Strings to dense integers: equal bytes get equal codes, numbered in the order of their first rows.

The arena is append-only. Strings, binaries and decimals (their 16 bytes) are interned alike. The dictionary of a
dictionary-encoded column is interned once, and its rows only look up their codes.

>>> interner = Interner()
>>> interner.codes(pa.array(["x", "y", "x"])).tolist()
[0, 1, 0]
>>> interner.codes(pa.array(["y", "x"]).dictionary_encode()).tolist()
[1, 0]
>>> interner.values().of(np.array([1, 0]), pa.string()).to_pylist()
['y', 'x']
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.state.arrays import byte_ranges, validity, words
from dataflow.state.remembered import Remembered

__all__ = ["InternedValues", "Interner"]

Codes = npt.NDArray[np.int64]

_MAX_CODES = 2**32 - 2


class Interner:
    """A growing, numbered set of byte strings, and perhaps null, which has a code like any value.

    Invariant: value k is ``arena[starts[k]:starts[k + 1]]``, and the table, at most half full, has its code unless it
    is that of null.
    """

    def __init__(self, capacity: int = 512) -> None:
        """``capacity`` is the initial room, in values; a power of two."""
        assert capacity.bit_count() == 1, f"the capacity is a power of two, got {capacity}"
        self._state = np.array([0, -1], np.int64)
        self._table = np.zeros(2 * capacity, np.uint64)
        self._starts = np.zeros(capacity + 1, np.int64)
        self._arena = np.empty(16 * capacity, np.uint8)
        self._dictionaries = Remembered[Codes]()

    def __len__(self) -> int:
        return int(self._state[0])

    @property
    def nbytes(self) -> int:
        """The bytes of all values together."""
        return int(self._starts[len(self)])

    @property
    def null_code(self) -> int | None:
        """The code of null, or None before its first row."""
        code = int(self._state[1])
        return None if code < 0 else code

    def codes(self, array: pa.Array) -> Codes:
        """Return the code of each row. Dictionary arrays give the codes of their values, and of null rows any code."""
        if not pa.types.is_dictionary(array.type):
            return self._intern(array)
        if len(array.dictionary) == 0:
            return np.zeros(len(array), np.int64)
        dictionary = array.dictionary
        codes = self._dictionaries.of(dictionary, lambda: self._intern(dictionary))
        return codes.take(words(array.indices), mode="clip")

    def _intern(self, array: pa.Array) -> Codes:
        from dataflow.state.kernels.interning import intern_rows

        data, offsets = byte_ranges(array)
        bits, first = validity(array)
        codes = np.empty(len(array), np.int64)
        row = 0
        while True:
            row = intern_rows(
                data, offsets, bits, first, row, self._table, self._arena, self._starts, self._state, codes
            )
            if row == len(codes):
                return codes
            self._grow(int(offsets[row + 1] - offsets[row]))

    def _grow(self, length: int) -> None:
        """Make room for one more value, of ``length`` bytes, and many after it."""
        from dataflow.state.kernels.interning import rehash_codes

        count = len(self)
        used = int(self._starts[count])
        if used + length > len(self._arena):
            arena = np.empty(max(2 * len(self._arena), used + length), np.uint8)
            arena[:used] = self._arena[:used]
            self._arena = arena
        if count + 1 >= len(self._starts):
            capacity = (len(self._starts) - 1) * (4 if count < 2**17 else 2)
            assert capacity <= _MAX_CODES, f"an interner numbers at most {_MAX_CODES} values"
            starts = np.zeros(capacity + 1, np.int64)
            starts[: count + 1] = self._starts[: count + 1]
            self._starts = starts
            self._table = np.zeros(2 * capacity, np.uint64)
            rehash_codes(self._arena, starts, count, self._state[1], self._table)

    def values(self) -> InternedValues:
        """Return the values that have a code now, unaffected by later ones."""
        return InternedValues(self._starts, self._arena)


@dataclass(frozen=True, slots=True)
class InternedValues:
    """The values of an interner up to a moment, which any thread may read while it continues.

    Needs no lock, because the entries of existing values are never written again: new values are appended, and growth
    allocates other arrays.
    """

    starts: Codes
    arena: npt.NDArray[np.uint8]

    def of(self, codes: Codes, type_: pa.DataType, bitmap: pa.Buffer | None = None) -> pa.Array:
        """Return the values of ``codes`` as a new array of ``type_``; rows whose bit in ``bitmap`` is 0 are null.

        ``type_`` is a type whose bytes were interned. Raises ``pa.ArrowInvalid`` if a string column of 32-bit offsets
        would exceed 2 GiB.
        """
        from dataflow.state.kernels.interning import gather_bytes

        bits = np.empty(0, np.uint8) if bitmap is None else np.frombuffer(bitmap, np.uint8)
        fixed = pa.types.is_fixed_size_binary(type_) or pa.types.is_decimal(type_)
        if fixed:
            ends = np.arange(1, len(codes) + 1, dtype=np.int64) * (type_.bit_width // 8)
        else:
            lengths = self.starts[codes + 1] - self.starts[codes]
            if bitmap is not None:
                lengths *= np.unpackbits(bits, bitorder="little", count=len(codes))
            ends = np.cumsum(lengths)
        data = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
        gather_bytes(self.arena, self.starts, codes, bits, ends, data)
        buffers = [bitmap, pa.py_buffer(data)]
        if not fixed:
            large = pa.types.is_large_string(type_) or pa.types.is_large_binary(type_)
            if not large and len(data) >= 2**31:
                raise pa.ArrowInvalid(f"{len(data)} bytes do not fit into one array of {type_}: use a large_ type")
            offsets = np.zeros(len(codes) + 1, np.int64 if large else np.int32)
            offsets[1:] = ends
            buffers.insert(1, pa.py_buffer(offsets))
        return pa.Array.from_buffers(type_, len(codes), buffers)
