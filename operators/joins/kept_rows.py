"""The rows of one side of a join without windows, by key: the other side's rows meet them.

``operators.joins.arrived_rows`` keeps rows that are never taken back. ``SignedRows`` keeps signed changes: each
distinct row once, with the sum of its changes, and none whose sum is zero.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.declared_state import Restorable
from dataflow.state.arrays import Numbers
from dataflow.state.index import Slots
from dataflow.state.keyed_state import KeyedState
from operators.joins.members import Members
from operators.joins.result import JoinRows
from operators.stateful.chunks import pairs_by_chunk
from operators.stateful.columns import without_null

__all__ = ["KeptRows", "SignedRows"]


class KeptRows(ABC):
    """Rows by key. A *slot* is the number of a key; a key without rows has -1. Rows have *numbers*, too."""

    state: Restorable
    """The state that is in checkpoints."""

    @property
    @abstractmethod
    def kernels(self) -> Sequence[str]:
        """The modules with the kernels that are called."""

    @abstractmethod
    def add(self, rows: JoinRows) -> None:
        """Add rows, whose keys are not null; their numbers say how often, or how often they are taken back."""

    @abstractmethod
    def find(self, keys: Sequence[pa.Array]) -> Slots:
        """Return the slot of the key of each row; null equals nothing, so it has -1."""

    @abstractmethod
    def most(self, slots: Slots) -> Numbers:
        """Return the number of rows of each slot, or more."""

    @abstractmethod
    def net(self, slots: Slots) -> Numbers:
        """Return how many rows are left of each slot when those that are taken back are subtracted."""

    @abstractmethod
    def rows(self, slots: Slots) -> tuple[Numbers, Slots]:
        """Return the numbers of the rows of each slot, and their offsets."""

    def pairs(self, slots: Slots) -> Iterator[tuple[Numbers | Slots, Slots]]:
        """Yield the pairs of an entry of ``slots`` and a row of that slot: its place in ``slots``, and its number."""
        return pairs_by_chunk(self.most(slots), lambda some: self.rows(slots[some]))

    @abstractmethod
    def read(self, numbers: Slots) -> pa.RecordBatch:
        """Return rows by their numbers."""

    @abstractmethod
    def weights(self, numbers: Slots) -> Numbers:
        """Return the sum of the changes of rows."""

    @property
    @abstractmethod
    def slots(self) -> Slots:
        """The slots of all keys with rows."""

    @abstractmethod
    def keys_of(self, slots: Slots) -> list[pa.Array]:
        """Return the key columns of slots."""

    @abstractmethod
    def keys(self, numbers: Slots) -> list[pa.Array]:
        """Return the key columns of rows by their numbers."""

    @abstractmethod
    def restored(self) -> None:
        """Find the rows that were restored by their keys."""


class SignedRows(KeptRows):
    """Distinct rows, each with the sum of its changes. The number of a row is its slot in ``state``."""

    state: KeyedState

    def __init__(self, keys: pa.Schema, rows: pa.Schema) -> None:
        self._rows = rows
        self.state = KeyedState(pa.schema([*keys, *rows]), pa.schema([]), words=1, grouped_by=len(keys))
        self._members = Members(keys)

    @property
    def kernels(self) -> Sequence[str]:
        return (*self.state.kernels, *self._members.kernels)

    def add(self, rows: JoinRows) -> None:
        slots = self.state.insert([*rows.keys, *rows.rows.columns])[0].copy()
        touched, first, inverse = np.unique(slots, return_index=True, return_inverse=True)
        sums = np.zeros(len(touched), np.int64)
        np.add.at(sums, inverse, rows.numbers)
        records = self.state.records
        was = records[touched, 1]
        records[touched, 1] += sums
        left = records[touched, 1]
        changes = (left != 0).astype(np.int64) - (was != 0)
        self._members.change([column.take(to_array(first)) for column in rows.keys], touched, changes, sums)
        self.state.delete(touched[left == 0])

    def find(self, keys: Sequence[pa.Array]) -> Slots:
        return without_null(self._members.find(keys), keys)

    def most(self, slots: Slots) -> Numbers:
        return self._members.sizes(slots)

    def net(self, slots: Slots) -> Numbers:
        return self._members.sums(slots)

    def rows(self, slots: Slots) -> tuple[Numbers, Slots]:
        return self._members.rows(slots)

    def read(self, numbers: Slots) -> pa.RecordBatch:
        columns = self.state.keys(numbers)[-len(self._rows) :] if len(self._rows) else []
        return pa.RecordBatch.from_arrays(columns, schema=self._rows)

    def weights(self, numbers: Slots) -> Numbers:
        return np.asarray(self.state.records[numbers, 1])

    @property
    def slots(self) -> Slots:
        return self._members.slots

    def keys_of(self, slots: Slots) -> list[pa.Array]:
        return self._members.keys_of(slots)

    def keys(self, numbers: Slots) -> list[pa.Array]:
        return self.state.keys(numbers)[: len(self._members.keys)]

    def restored(self) -> None:
        slots = self.state.slots
        self._members.change(self.keys(slots), slots, np.ones(len(slots), np.int64), self.weights(slots))
