"""Lists of rows by key, in which a row is added or removed in constant time. Derived: checkpoints lack them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dataflow.state.arrays import Numbers
from dataflow.state.index import Slots
from dataflow.state.keyed_state import KeyedState

__all__ = ["Members"]

_FEW = 512
_SIZE, _SUM = 2, 3


class Members:
    """The rows of each key, by number, and the sum of their changes.

    >>> members = Members(pa.schema({"k": pa.int64()}))
    >>> keys = [pa.array([7, 8, 7])]
    >>> members.change(keys, np.array([0, 1, 2], np.int32), np.array([1, 1, 1]), np.array([1, 1, 3]))
    >>> slots = members.find([pa.array([7, 9])])
    >>> offsets, rows = members.rows(slots)
    >>> offsets.tolist(), rows.tolist(), members.sums(slots).tolist()
    ([0, 2, 2], [2, 0], [4, 0])
    """

    kernels_of_own = ("operators.kernels.members",)

    def __init__(self, keys: pa.Schema) -> None:
        self.keys = keys
        self._state = KeyedState(keys, pa.schema([]), words=3)
        self._links = np.full((_FEW, 2), -1, np.int32)

    @property
    def kernels(self) -> Sequence[str]:
        """The modules with the kernels that are called."""
        return (*self._state.kernels, *self.kernels_of_own)

    def change(self, keys: Sequence[pa.Array], rows: Slots, changes: Numbers, sums: Numbers) -> None:
        """Add and remove rows of keys.

        Args:
            keys: the key of each row.
            rows: the numbers of the rows, each once.
            changes: 1: add the row, -1: remove it, 0: neither.
            sums: what is added to the sum of the key.
        """
        from operators.kernels.members import link_rows

        if not len(rows):
            return
        slots = self._state.insert(list(keys))[0].copy()
        short = int(rows.max()) + 1 - len(self._links)
        if short > 0:
            more = np.full((max(short, len(self._links)), 2), -1, np.int32)
            self._links = np.concatenate([self._links, more])
        records = self._state.records
        link_rows(slots, rows, changes, records, self._links)
        np.add.at(records[:, _SUM], slots, sums)
        touched = np.unique(slots)
        self._state.delete(touched[records[touched, _SIZE] == 0])

    def find(self, keys: Sequence[pa.Array]) -> Slots:
        """Return the slot of each key, -1 if it has no rows."""
        return self._state.find(list(keys))

    @property
    def slots(self) -> Slots:
        """The slots of all keys with rows."""
        return self._state.slots

    def keys_of(self, slots: Slots) -> list[pa.Array]:
        """Return the key columns of slots."""
        return self._state.keys(slots)

    def sizes(self, slots: Slots) -> Numbers:
        """Return the number of rows of each slot."""
        return self._of(slots, _SIZE)

    def sums(self, slots: Slots) -> Numbers:
        """Return the sum of the changes of the rows of each slot."""
        return self._of(slots, _SUM)

    def rows(self, slots: Slots) -> tuple[Numbers, Slots]:
        """Return the rows of each slot, and their offsets."""
        from operators.kernels.members import list_rows

        offsets = np.zeros(len(slots) + 1, np.int64)
        np.cumsum(self.sizes(slots), out=offsets[1:])
        rows = np.empty(int(offsets[-1]), np.int32)
        list_rows(slots, offsets, self._state.records, self._links, rows)
        return offsets, rows

    def _of(self, slots: Slots, word: int) -> Numbers:
        if not self._state.live:
            return np.zeros(len(slots), np.int64)
        return np.where(slots >= 0, self._state.records[np.maximum(slots, 0), word], 0)
