"""The exact number of different values of a key: a set of pairs of slot and value, and a counter in the record.

A snapshot has the values themselves, one list a record. Pairs are never removed, so a snapshot's set is the first n
pairs, and any thread can read it while more are added.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.errors import CheckpointDamaged
from dataflow.state.arrays import canonical_words, from_words, is_word
from dataflow.state.copy_on_write import CopyOnWriteRows
from dataflow.state.index import Slots, WideSlotIndex
from dataflow.state.interning import InternedValues, Interner
from operators.steps.step import Rows, Step, StepPlace, Store, read_word

__all__ = ["CountDistinct"]


class CountDistinct(Step):
    """The number of different values; one word a record."""

    initial = (0,)
    mergeable = False
    kernels: tuple[str, ...] = ("operators.kernels.distinct", "dataflow.state.kernels.index")

    def __init__(self, place: StepPlace) -> None:
        super().__init__(place)
        (self._type,) = place.types
        self._interner = None if is_word(self._type) else Interner()
        if self._interner is not None:
            self.kernels = (*self.kernels, "dataflow.state.kernels.interning")
        self._pairs = WideSlotIndex(2)

    def fold(self, rows: CopyOnWriteRows, slots: Slots, inputs: Sequence[pa.Array]) -> None:
        from operators.kernels.distinct import count_new

        (array,) = inputs
        if array.null_count:
            present = array.is_valid()
            slots, array = slots[to_numbers(present)], array.filter(present)
        pairs = np.empty((2, len(slots)), np.int64)
        pairs[0] = slots
        pairs[1] = canonical_words(array) if self._interner is None else self._interner.codes(array)
        known = len(self._pairs)
        count_new(rows.rows, slots, self._pairs.lookup(pairs), known, self.place.word)

    def read(self, records: Rows, always: int) -> pa.Array:
        return read_word(records, self.place.word, pa.int64())

    def stored(self) -> list[pa.Field]:
        return [pa.field(f"{self.name}.values", pa.large_list(self._type))]

    def freeze(self) -> Store:
        values = None if self._interner is None else self._interner.values()
        return _Lists(self._pairs.words, values, self._type).of

    def restore(self, records: Rows, columns: Sequence[pa.Array]) -> None:
        (lists,) = columns
        if lists.null_count:  # the offsets of null lists are arbitrary
            raise CheckpointDamaged(f"{self.name}: {lists.null_count} lists of values in the checkpoint are null")
        lengths = np.diff(to_numbers(lists.offsets))
        slots = np.repeat(np.arange(len(records), dtype=np.int32), lengths)
        self.fold(CopyOnWriteRows(records), slots, [lists.flatten()])


class _Lists:
    """The pairs of a snapshot as lists, in the order of slots; sorted when the first chunk is read."""

    def __init__(self, pairs: npt.NDArray[np.int64], values: InternedValues | None, type_: pa.DataType) -> None:
        self._pairs = pairs
        self._values = values
        self._type = type_
        self._order: npt.NDArray[np.int64] | None = None

    def of(self, records: Rows, start: int) -> list[pa.Array]:
        """Return the lists of the records from slot ``start`` on."""
        if self._order is None:
            self._order = np.argsort(self._pairs[:, 0], kind="stable")
            self._ends = np.cumsum(np.bincount(self._pairs[:, 0], minlength=1))
        slots = np.arange(start - 1, start + len(records))
        ends = np.append(self._ends, 0)[np.minimum(slots, len(self._ends) - 1)]  # of slot -1: 0
        words = self._pairs[self._order[ends[0] : ends[-1]], 1]
        flat = from_words(words, self._type) if self._values is None else self._values.of(words, self._type)
        return [pa.LargeListArray.from_arrays(to_array(ends - ends[0]), flat)]
