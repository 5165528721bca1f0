"""The rows of a side of a join without windows that are never taken back: each stays, so none is ever looked for.

The rows of a key are linked, and both sides number their keys alike if neither has signed changes: then one lookup
serves both. Keys and links are derived from the rows, so they are not in checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.state.appended_rows import AppendedRows
from dataflow.state.arrays import Numbers, fresh
from dataflow.state.index import Slots
from dataflow.state.keyed import KeyIndex, index_kernels
from operators.joins.kept_rows import KeptRows
from operators.joins.matching import linked_pairs
from operators.joins.result import JoinRows
from operators.stateful.chunks import CHUNK
from operators.stateful.columns import without_null

__all__ = ["ArrivedRows", "KeyNumbers"]

_FEW = 512


class KeyNumbers:
    """The numbers of keys, for one side of a join or for both.

    >>> keys, some = KeyNumbers(pa.schema({"k": pa.int64()})), [pa.array([5, 6, 5])]
    >>> keys.find(some).tolist(), keys.add(some).tolist(), keys.find(some).tolist()
    ([-1, -1, -1], [0, 1, 0], [0, 1, 0])
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.index = KeyIndex(schema)
        self._last: Sequence[pa.Array] = ()  # the last keys that were added, with their slots
        self._slots: Slots = np.empty(0, np.int32)

    def find(self, keys: Sequence[pa.Array]) -> Slots:
        """Return the slot of each key, in memory of its own; -1 if it was never added."""
        return self._slots.copy() if keys is self._last else self.index.find(keys)

    def add(self, keys: Sequence[pa.Array]) -> Slots:
        """Return the slot of each key, which must not be written to."""
        if keys is not self._last:
            self._last, self._slots = keys, self.index.slots(keys).copy()
        return self._slots


class ArrivedRows(KeptRows):
    """Rows that are never taken back, in order of arrival.

    >>> side = ArrivedRows(pa.schema({"k": pa.int64()}), pa.schema({"x": pa.string()}))
    >>> side.add(JoinRows([pa.array([7, 8, 7])], pa.record_batch({"x": ["a", "b", "c"]}), np.ones(3, np.int64)))
    >>> slots = side.find([pa.array([7, 9])])
    >>> offsets, numbers = side.rows(slots)
    >>> offsets.tolist(), side.read(numbers)["x"].to_pylist()
    ([0, 2, 2], ['c', 'a'])
    """

    state: AppendedRows

    def __init__(self, keys: pa.Schema, rows: pa.Schema, shared: KeyNumbers | None = None) -> None:
        self._keys = KeyNumbers(keys) if shared is None else shared
        self._width = len(keys)
        self._schema = rows
        self.state = AppendedRows(pa.schema([*keys, *rows]))
        self._heads: npt.NDArray[np.int32] = np.zeros((_FEW, 2), np.int32)
        self._links: Slots = np.empty(_FEW, np.int32)

    @property
    def kernels(self) -> Sequence[str]:
        return (*index_kernels(self._keys.index.schema), "operators.kernels.linked_rows")

    def add(self, rows: JoinRows) -> None:
        slots, first = self._keys.add(rows.keys), self.state.count
        self.state.append(pa.RecordBatch.from_arrays([*rows.keys, *rows.rows.columns], schema=self.state.schema))
        self._link(slots, first)

    def _link(self, slots: Slots, first: int) -> None:
        """Link the rows from number ``first`` on, one for each of ``slots``."""
        from operators.kernels.linked_rows import link_newest

        if self.state.count > len(self._links):
            links = fresh(np.int32, 2 * self.state.count)
            links[:first] = self._links[:first]
            self._links = links
        if len(self._keys.index) > len(self._heads):
            heads = np.zeros((2 * len(self._keys.index), 2), np.int32)
            heads[: len(self._heads)] = self._heads
            self._heads = heads
        link_newest(slots, first, self._heads, self._links)

    def find(self, keys: Sequence[pa.Array]) -> Slots:
        return without_null(self._keys.find(keys), keys)

    def most(self, slots: Slots) -> Numbers:
        from operators.kernels.linked_rows import count_linked

        counts = np.empty(len(slots), np.int64)
        count_linked(slots, self._heads, counts)
        return counts

    def net(self, slots: Slots) -> Numbers:
        return self.most(slots)

    def rows(self, slots: Slots) -> tuple[Numbers, Slots]:
        from operators.kernels.linked_rows import list_linked

        offsets = np.zeros(len(slots) + 1, np.int64)
        np.cumsum(self.most(slots), out=offsets[1:])
        rows = np.empty(int(offsets[-1]), np.int32)
        list_linked(slots, offsets, self._heads, self._links, rows)
        return offsets, rows

    def pairs(self, slots: Slots) -> Iterator[tuple[Slots, Slots]]:
        return linked_pairs(slots, self._heads, self._links)

    def read(self, numbers: Slots) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(self.state.read(numbers, slice(self._width, None)), schema=self._schema)

    def weights(self, numbers: Slots) -> Numbers:
        return np.ones(len(numbers), np.int64)

    @property
    def slots(self) -> Slots:
        return np.flatnonzero(self._heads[:, 1]).astype(np.int32)

    def keys_of(self, slots: Slots) -> list[pa.Array]:
        return self._keys.index.keys(slots)

    def keys(self, numbers: Slots) -> list[pa.Array]:
        return self.state.read(numbers, slice(0, self._width))

    def restored(self) -> None:
        for first in range(0, self.state.count, CHUNK):
            numbers = np.arange(first, min(first + CHUNK, self.state.count), dtype=np.int32)
            self._link(self._keys.add(self.keys(numbers)), first)
