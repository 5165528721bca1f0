"""The exact number of different values of a key: a set of pairs of slot and value, and two words in the record.

A snapshot has the values themselves, one list a record. The pairs of a record are a linked list that begins in the
record, so a snapshot costs what its records hold, and the pairs of a key that is deleted are freed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.errors import CheckpointDamaged
from dataflow.state.arrays import canonical_words, from_words, is_word
from dataflow.state.columns import PIECE_BYTES
from dataflow.state.copy_on_write import CopyOnWriteRows, Readers, Rows
from dataflow.state.index import Slots, WideSlotIndex
from dataflow.state.interning import Interner
from operators.steps.step import Flags, Frozen, Step, StepPlace, read_word

__all__ = ["CountDistinct"]

_FEW = 512


class CountDistinct(Step):
    """The number of different values; the words of a record are this number and its newest pair, or -1."""

    initial = (0, -1)
    mergeable = False
    kernels: tuple[str, ...] = ("operators.kernels.distinct", "dataflow.state.kernels.index")

    def __init__(self, place: StepPlace) -> None:
        super().__init__(place)
        (self._type,) = place.types
        self._interner = None if is_word(self._type) else Interner(counted=True)
        if self._interner is not None:
            self.kernels = (*self.kernels, "dataflow.state.kernels.interning")
        self._pairs = WideSlotIndex(2)
        self._live = 0  # pairs of keys that are not deleted
        self._before: Slots = np.empty(_FEW, np.int32)

    def fold(self, rows: CopyOnWriteRows, slots: Slots, inputs: Sequence[pa.Array]) -> None:
        self.shrink(rows)
        (array,) = inputs
        if array.null_count:
            present = array.is_valid()
            slots, array = slots[to_numbers(present)], array.filter(present)
        self._add(rows.rows, slots, slots, array)

    def _add(self, records: Rows, places: Slots, slots: Slots, values: pa.Array) -> None:
        """Add value i, not null, to the set of ``slots[i]``, whose words are in record ``places[i]``."""
        from operators.kernels.distinct import link_pairs

        pairs = np.empty((2, len(slots)), np.int64)
        pairs[0] = slots
        pairs[1] = canonical_words(values) if self._interner is None else self._interner.codes(values)
        numbers, new = self._pairs.lookup(pairs), self._pairs.fresh
        self._live += len(new)
        if len(self._pairs) > len(self._before):
            before = np.empty(2 * len(self._pairs), np.int32)
            before[: len(self._before)] = self._before
            self._before = before
        link_pairs(records, places, numbers, new, self._before, self.place.word)
        if self._interner is not None:
            self._interner.hold(pairs[1, new])

    def read(self, records: Rows, always: int) -> pa.Array:
        return read_word(records, self.place.word, pa.int64())

    def forget(self, records: Rows, slots: Slots, readers: Readers) -> None:
        numbers, _ = _listed(records[slots], self.place.word, self._before)
        if len(numbers):
            self._pairs.remove(numbers)
            self._live -= len(numbers)
            readers.defer(lambda: self._release(numbers))

    def _release(self, numbers: Slots) -> None:
        if self._interner is not None:
            self._interner.drop(self._pairs.words[numbers, 1])
        self._pairs.release(numbers)

    def shrink(self, rows: CopyOnWriteRows) -> None:
        fewer = self._pairs.shrink(self._live)
        if fewer:
            self._before = self._before[: max(_FEW, len(self._pairs))].copy()
        if self._interner is not None:
            self._interner.shrink_counted(lost_many=fewer)

    def stored(self) -> list[pa.Field]:
        return [pa.field(f"{self.place.state}/values", pa.large_list(self._type), nullable=False)]

    def freeze(self) -> Frozen:
        interned = None if self._interner is None else self._interner.values()
        pairs, before, word, type_ = self._pairs.words, self._before, self.place.word, self._type

        def lists(records: Rows, flags: Flags) -> list[pa.Array]:
            numbers, ends = _listed(records, word, before)
            words = pairs[numbers, 1]
            values = from_words(words, type_) if interned is None else interned.of(words, type_)
            return [pa.LargeListArray.from_arrays(to_array(ends), values)]

        def text_bytes(records: Rows) -> int:
            size = 8 * int(records[:, word].sum())
            if interned is None or size > PIECE_BYTES:
                return size  # there is no need to list so many pairs
            return size + interned.text_bytes(pairs[_listed(records, word, before)[0], 1])

        return Frozen(lists, text_bytes)

    def restore(self, records: Rows, slots: Slots, columns: Sequence[pa.Array]) -> None:
        (lists,) = columns
        if lists.null_count:  # the offsets of null lists are arbitrary
            raise CheckpointDamaged(f"{self.name}: {lists.null_count} lists of values in the checkpoint are null")
        values = lists.flatten()
        if values.null_count:
            raise CheckpointDamaged(f"{self.name}: {values.null_count} values in the checkpoint are null")
        places = np.repeat(np.arange(len(records), dtype=np.int32), np.diff(to_numbers(lists.offsets)))
        self._add(records, places, slots[places], values)


def _listed(records: Rows, word: int, before: Slots) -> tuple[Slots, npt.NDArray[np.int64]]:
    """Return the pairs of all ``records``, and the end of each record's pairs after a leading zero."""
    from operators.kernels.distinct import list_pairs

    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(records[:, word])])
    numbers = np.empty(int(ends[-1]), np.int32)
    list_pairs(records, word, before, ends[1:], numbers)
    return numbers, ends
