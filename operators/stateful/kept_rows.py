"""Result rows by slot, each kept until it is taken: what was shown of a window before new rows came."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.state.index import Slots

__all__ = ["KeptRows"]


class KeptRows:
    """At most one row for each slot. ``types`` are the types of its columns.

    Rows are kept as the batches that they came in, and a batch is dropped with its last row.

    >>> rows = KeptRows([pa.int64()])
    >>> rows.keep(np.array([3, 5], np.int32), [pa.array([30, 50])])
    >>> mask, columns = rows.take(np.array([4, 5], np.int32))
    >>> mask.tolist(), columns[0].to_pylist(), rows.slots.tolist()
    ([False, True], [50], [3])
    """

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._empty = [pa.array([], type_) for type_ in types]
        self._batches: dict[int, list[pa.Array]] = {}
        self._live: dict[int, int] = {}  # how many rows of each batch are kept
        self._next = 0
        self._batch = np.empty(0, np.int64)  # by slot: the number of the batch; -1: no row is kept
        self._row = np.empty(0, np.int64)

    @property
    def slots(self) -> Slots:
        """The slots that have a row, in ascending order."""
        return np.flatnonzero(self._batch >= 0).astype(np.int32)

    def keep(self, slots: Slots, columns: list[pa.Array]) -> None:
        """Keep row i of ``columns`` for ``slots[i]``, each once and without a row."""
        if not len(slots):
            return
        short = int(slots.max()) + 1 - len(self._batch)
        if short > 0:
            short = max(short, len(self._batch))
            self._batch = np.append(self._batch, np.full(short, -1, np.int64))
            self._row = np.append(self._row, np.zeros(short, np.int64))
        assert (self._batch[slots] < 0).all(), "a slot has at most one row"
        self._batches[self._next], self._live[self._next] = columns, len(slots)
        self._batch[slots], self._row[slots] = self._next, np.arange(len(slots))
        self._next += 1

    def take(self, slots: Slots) -> tuple[npt.NDArray[np.bool_], list[pa.Array]]:
        """Return whether each of ``slots``, each once, has a row, and the columns of these rows; drop them."""
        kept, columns = self.read(slots)
        for batch, rows in zip(*np.unique(self._batch[slots[kept]], return_counts=True), strict=True):
            self._live[int(batch)] -= int(rows)
            if not self._live[int(batch)]:
                del self._live[int(batch)], self._batches[int(batch)]
        self._batch[slots[kept]] = -1
        return kept, columns

    def read(self, slots: Slots) -> tuple[npt.NDArray[np.bool_], list[pa.Array]]:
        """Return whether each of ``slots`` has a row, and the columns of these rows."""
        kept = np.zeros(len(slots), np.bool_)
        known = slots < len(self._batch)
        kept[known] = self._batch[slots[known]] >= 0
        batches, rows = self._batch[slots[kept]], self._row[slots[kept]]
        if not len(batches):
            return kept, self._empty
        order = np.argsort(batches, kind="stable")
        numbers, starts = np.unique(batches[order], return_index=True)
        parts = np.split(rows[order], starts[1:])
        taken = [
            [column.take(to_array(part)) for column in self._batches[int(number)]]
            for number, part in zip(numbers, parts, strict=True)
        ]
        back = to_array(np.argsort(order))
        return kept, [pa.concat_arrays(column).take(back) for column in zip(*taken, strict=True)]
