"""The slots of the rows of a dictionary column: one lookup per entry, and one table read per row.

Only entries that a row refers to get a slot, because a dictionary may hold values that no row of the stream has.

>>> def lookup(values):
...     return np.arange(7, 7 + len(values), dtype=np.int32), np.arange(len(values))
>>> entries = EntrySlots()
>>> entries.slots(pa.array(["b", None, "b", "a"]).dictionary_encode(), lookup).tolist(), entries.fresh.tolist()
([7, 8, 7, 9], [0, 1, 3])
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.arrow_values import storage, to_array
from dataflow.state.arrays import validity
from dataflow.state.index import Slots
from dataflow.state.remembered import Remembered

__all__ = ["EntrySlots"]

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class _Table:
    """The slot of each entry of a dictionary, or ``UNKNOWN``; the last slot is for null rows."""

    slots: Slots
    missing: npt.NDArray[np.int32]  # scratch, with room for every entry
    rows: npt.NDArray[np.int32]  # scratch as well

    @staticmethod
    def of(dictionary: pa.Array) -> _Table:
        room = len(dictionary) + 1
        return _Table(np.full(room, UNKNOWN, np.int32), np.empty(room, np.int32), np.empty(room, np.int32))


Lookup = Callable[[pa.Array], tuple[Slots, npt.NDArray[np.int32]]]
"""A function that returns the slot of each row of a plain array, and the rows whose value is new."""


class EntrySlots:
    """The slots of dictionary rows, over any number of dictionaries.

    A ``lookup`` is called with values in the order in which rows first refer to them, each once per dictionary, and
    with null for null rows.
    """

    def __init__(self) -> None:
        self._tables = Remembered[_Table]()
        self._scratch: Slots = np.empty(0, np.int32)
        self.fresh: npt.NDArray[np.int32] = np.empty(0, np.int32)
        """The first row of each value of the last column that was new to ``lookup``, in order."""

    def forget(self) -> None:
        """Look every value up again, because some slots belong to others now."""
        self._tables = Remembered[_Table]()

    def slots(self, column: pa.DictionaryArray, lookup: Lookup) -> Slots:
        """Return the slot of each row's value, in scratch memory that is valid until the next call."""
        from dataflow.state.kernels.entries import read_slots

        dictionary, indices = column.dictionary, storage(column.indices).astype(np.int32, copy=False)
        table = self._tables.of(dictionary, lambda: _Table.of(dictionary))
        if len(self._scratch) < len(indices):
            self._scratch = np.empty(max(len(indices), 2 * len(self._scratch)), np.int32)
        slots = self._scratch[: len(indices)]
        bits, first = validity(column.indices)
        unknown = read_slots(indices, bits, first, table.slots, table.missing, table.rows, slots)
        self.fresh = table.rows[:0]
        if unknown:
            entries, rows = table.missing[:unknown], table.rows[:unknown]
            values = dictionary.take(to_array(entries, mask=entries == len(dictionary)))
            table.slots[entries], new = lookup(values)
            self.fresh = rows[new]
            read_slots(indices, bits, first, table.slots, table.missing, table.rows, slots)
        return slots
