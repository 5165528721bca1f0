"""Strings to dense integers: equal bytes get equal codes, numbered in the order of their first rows.

Strings, binaries and decimals (their 16 bytes) are interned alike. The dictionary of a dictionary-encoded column is
interned once, and its rows only look up their codes. Values without a holder are removed, and their memory is used
again.

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
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.state.arrays import byte_ranges, validity, words
from dataflow.state.free_numbers import FreeNumbers
from dataflow.state.remembered import Remembered

__all__ = ["InternedValues", "Interner"]

Codes = npt.NDArray[np.int64]

_FIRST = 512
_MAX_CODES = 2**32 - 2
_SOME_BYTES = 1 << 20
"""Dead bytes of an arena that are never worth a copy."""


class Interner:
    """A numbered set of byte strings, and perhaps null, which has a code like any value.

    Values leave in one of two ways, and their codes are then used again. With ``counted``, each holder of a code calls
    ``hold`` and ``drop``, and values without a holder are removed when memory for new ones is needed. Otherwise the
    owner calls ``remove`` and ``release``, as for a ``SlotIndex``.

    Invariant: the value of code k is ``arena[places[k, 0]:places[k, 1]]``, and the table, at most half full, has its
    code unless it was removed or is that of null.
    """

    def __init__(self, capacity: int = _FIRST, *, counted: bool = False) -> None:
        """``capacity`` is the initial room, in values; a power of two."""
        assert capacity.bit_count() == 1, f"the capacity is a power of two, got {capacity}"
        self._state = np.array([0, -1, 0, 0, 0], np.int64)  # see the kernels
        self._table = np.zeros(2 * capacity, np.uint64)
        self._places = np.zeros((capacity, 2), np.int64)
        self._arena = np.empty(16 * capacity, np.uint8)
        self._free = FreeNumbers(self._state)
        self._fresh = np.empty(0, np.int32)
        self._holders = np.zeros(capacity if counted else 0, np.int32)
        self._counted = counted
        self._dead = 0  # bytes of the arena that belong to no code
        self._dictionaries = Remembered[Codes]()

    def __len__(self) -> int:
        """Return the number of codes that were ever used and still exist."""
        return self._free.used

    @property
    def nbytes(self) -> int:
        """The bytes of all values together, those that left since the arena was last compacted included."""
        return int(self._state[4])

    @property
    def free(self) -> int:
        """The number of codes that were released and not used again."""
        return len(self._free)

    @property
    def null_code(self) -> int | None:
        """The code of null, or None if it has none."""
        code = int(self._state[1])
        return None if code < 0 else code

    @property
    def fresh(self) -> npt.NDArray[np.int32]:
        """The rows of the last plain array with a new code, in order; valid until the next call."""
        return self._fresh[: self._state[3]]

    def codes(self, array: pa.Array) -> Codes:
        """Return the code of each row. Dictionary arrays give the codes of their values, and of null rows any code."""
        if not pa.types.is_dictionary(array.type):
            return self._intern(array)
        if len(array.dictionary) == 0:
            return np.zeros(len(array), np.int64)
        if self._counted:
            self._make_room(len(array.dictionary), array.dictionary.nbytes)
        dictionary = array.dictionary
        codes = self._dictionaries.of(dictionary, lambda: self._intern(dictionary))
        return codes.take(words(array.indices), mode="clip")

    def find(self, array: pa.Array) -> Codes:
        """Return the code of each row, or -1 if its value has none; null rows of a dictionary array get any code."""
        from dataflow.state.kernels.interning import seek_values

        if pa.types.is_dictionary(array.type):
            found = self.find(array.dictionary)
            return found.take(words(array.indices), mode="clip") if len(found) else np.zeros(len(array), np.int64)
        data, offsets = byte_ranges(array)
        codes = np.empty(len(array), np.int64)
        where = (self._table, self._arena, self._places)
        seek_values(data, offsets, *validity(array), *where, self._state[1], codes)
        return codes

    def hold(self, codes: Codes) -> None:
        """Count one more holder of each of ``codes``."""
        np.add.at(self._holders, codes, 1)

    def drop(self, codes: Codes) -> None:
        """Count one holder less of each of ``codes``."""
        np.subtract.at(self._holders, codes, 1)
        if self._free.withholds:
            self._leave(np.unique(codes[self._holders[codes] == 0]).astype(np.int32))

    def remove(self, codes: npt.NDArray[np.int32]) -> None:
        """Remove the values of ``codes``: they are not found any more, but stay readable until released."""
        from dataflow.state.kernels.interning import remove_codes

        where = (self._arena, self._places, self._table, self._state)
        missing = remove_codes(codes.astype(np.int64), *where)
        assert not missing, f"{missing} of {len(codes)} codes have no value to remove"

    def release(self, codes: npt.NDArray[np.int32]) -> None:
        """Let new values have ``codes``, whose values were removed; frees their bytes when that is worth a copy."""
        self._free.release(codes)
        places = self._places[codes]
        self._dead += int(np.sum(places[:, 1] - places[:, 0]))
        if self._dead > _SOME_BYTES and 2 * self._dead > self.nbytes:
            self._compact(len(self._arena) // 2)

    def shrink(self, live: int) -> bool:
        """Give memory back if ``live`` of many codes are in use; return whether the highest ones do not exist any more.

        Call it while no caller keeps a free code. Readers keep the values that they have.
        """
        if not self._free.is_worth_sorting(live) or not self._free.sort(live):
            return False
        self._compact(16 * _FIRST)
        self._rebuild(max(_FIRST, 1 << max(len(self) - 1, 0).bit_length()))
        return True

    def shrink_counted(self, *, lost_many: bool) -> None:
        """Give memory back, if holders are counted. ``lost_many``: whether many holders were just dropped.

        Call it between two batches: the codes of a batch have no holder before its keys are entered.
        """
        if lost_many:
            self._remove_idle()
        self.shrink(len(self) - len(self._free))

    def _remove_idle(self) -> None:
        """Remove the values without a holder."""
        idle = self._in_use()
        idle[self._holders[: len(idle)] > 0] = 0
        self._leave(np.flatnonzero(idle).astype(np.int32))

    def _intern(self, array: pa.Array) -> Codes:
        from dataflow.state.kernels.interning import intern_rows

        data, offsets = byte_ranges(array)
        bits, first = validity(array)
        codes = np.empty(len(array), np.int64)
        if self._counted:
            self._make_room(len(codes), int(offsets[-1] - offsets[0]))
        if len(self._fresh) < len(codes):
            self._fresh = np.empty(max(len(codes), 2 * len(self._fresh)), np.int32)
        self._state[3] = row = 0
        self._free.prepare(len(codes))
        while True:
            where = (self._table, self._arena, self._places, self._state, self._free.stack, codes, self._fresh)
            row = intern_rows(data, offsets, bits, first, row, *where)
            if row == len(codes):
                return codes
            self._grow(int(offsets[row + 1] - offsets[row]))

    def _make_room(self, values: int, size: int) -> None:
        """Remove the values without a holder, if there is no room for new ones, or else for the next call to grow.

        Only between two batches: the codes of a batch have no holder before its keys are entered.
        """
        unused = len(self._places) - len(self) + len(self._free)
        if unused < values or self.nbytes + size > len(self._arena):
            self._remove_idle()

    def _leave(self, codes: npt.NDArray[np.int32]) -> None:
        """Remove the values of ``codes``, which have no holder."""
        if len(codes):
            self.remove(codes)
            self.release(codes)
            self._dictionaries = Remembered[Codes]()

    def _in_use(self) -> npt.NDArray[np.uint8]:
        """Return for each code whether it has a value."""
        kept = np.ones(len(self), np.uint8)
        for codes in self._free.parts():
            kept[codes] = 0
        return kept

    def _compact(self, least: int) -> None:
        """Copy the values in use to another arena of at least ``least`` bytes. Readers of the old one keep theirs."""
        from dataflow.state.kernels.interning import copy_values

        arena = np.empty(max(least, 2 * (self.nbytes - self._dead)), np.uint8)
        places = np.zeros_like(self._places)
        self._state[4] = copy_values(self._arena, self._places, self._in_use(), arena, places)
        self._arena, self._places, self._dead = arena, places, 0

    def _grow(self, length: int) -> None:
        """Make room for one more value, of ``length`` bytes, and many after it."""
        used, capacity = self.nbytes, len(self._places)
        if used + length > len(self._arena):
            self._arena = _longer(self._arena, used, max(2 * len(self._arena), used + length))
        if len(self) == capacity and not self._state[2]:
            self._rebuild(capacity * (4 if capacity <= 2**17 else 2))

    def _rebuild(self, capacity: int) -> None:
        """Continue with room for ``capacity`` codes, in other arrays."""
        from dataflow.state.kernels.interning import rehash_codes

        assert capacity <= _MAX_CODES, f"an interner numbers at most {_MAX_CODES} values"
        self._places = _longer(self._places, len(self), capacity)
        if self._counted:
            self._holders = _longer(self._holders, len(self), capacity)
        old, self._table = self._table, np.zeros(2 * capacity, np.uint64)
        rehash_codes(old, self._arena, self._places, self._table)

    def values(self) -> InternedValues:
        """Return the values that have a code now, unaffected by later ones."""
        return InternedValues(self._places, self._arena)


def _longer(array: npt.NDArray[Any], used: int, length: int) -> npt.NDArray[Any]:
    """Return zeroed memory of ``length`` rows that begins with the first ``used`` rows of ``array``."""
    grown = np.zeros((length, *array.shape[1:]), array.dtype)
    grown[:used] = array[:used]
    return grown


@dataclass(frozen=True, slots=True)
class InternedValues:
    """The values of an interner up to a moment, which any thread may read while it continues.

    Needs no lock: the entry of a value is not written again before its code is released, which the interner's owner
    does when no reader needs it; growth and compaction allocate other arrays.
    """

    places: Codes
    arena: npt.NDArray[np.uint8]

    def of(self, codes: Codes, type_: pa.DataType, bitmap: pa.Buffer | None = None) -> pa.Array:
        """Return the values of ``codes`` as a new array of ``type_``; rows whose bit in ``bitmap`` is 0 are null.

        ``type_`` is a type whose bytes were interned. Raises ``pa.ArrowInvalid`` if a string column of 32-bit offsets
        would exceed 2 GiB.
        """
        from dataflow.state.kernels.interning import gather_bytes

        bits = _bits(bitmap)
        fixed = pa.types.is_fixed_size_binary(type_) or pa.types.is_decimal(type_)
        if fixed:
            ends = np.arange(1, len(codes) + 1, dtype=np.int64) * (type_.bit_width // 8)
        else:
            ends = np.cumsum(self._lengths(codes, bits))
        data = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
        gather_bytes(self.arena, self.places, codes, bits, ends, data)
        buffers = [bitmap, pa.py_buffer(data)]
        if not fixed:
            large = pa.types.is_large_string(type_) or pa.types.is_large_binary(type_)
            if not large and len(data) >= 2**31:
                raise pa.ArrowInvalid(f"{len(data)} bytes do not fit into one array of {type_}: use a large_ type")
            offsets = np.zeros(len(codes) + 1, np.int64 if large else np.int32)
            offsets[1:] = ends
            buffers.insert(1, pa.py_buffer(offsets))
        return pa.Array.from_buffers(type_, len(codes), buffers)

    def text_bytes(self, codes: Codes, bitmap: pa.Buffer | None = None) -> int:
        """Return the bytes of the values of ``codes``; rows whose bit in ``bitmap`` is 0 have none."""
        return int(self._lengths(codes, _bits(bitmap)).sum())

    def _lengths(self, codes: Codes, bits: npt.NDArray[np.uint8]) -> Codes:
        chosen = self.places[codes]
        lengths: Codes = chosen[:, 1] - chosen[:, 0]
        if len(bits):
            lengths *= np.unpackbits(bits, bitorder="little", count=len(codes))
        return lengths


def _bits(bitmap: pa.Buffer | None) -> npt.NDArray[np.uint8]:
    return np.empty(0, np.uint8) if bitmap is None else np.frombuffer(bitmap, np.uint8)
