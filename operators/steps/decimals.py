"""Sums of decimals: exact, in decimal128 of 38 digits and the scale of the argument."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dataflow.state.arrays import Numbers, validity
from dataflow.state.copy_on_write import CopyOnWriteRows
from dataflow.state.index import Slots
from operators.steps.step import Frozen, Rows, Step, Sum128Overflow, put_words, restore_flag, seen

__all__ = ["DecimalSum"]


class DecimalSum(Step):
    """A 128-bit sum: two words, the lower one first. Takes its argument as decimal128."""

    initial = (0, 0)
    kernels: tuple[str, ...] = ("operators.kernels.decimals",)

    def fold(self, rows: CopyOnWriteRows, slots: Slots, inputs: Sequence[pa.Array]) -> None:
        from operators.kernels.decimals import fold_decimals

        (array,) = inputs
        if not len(array):
            return
        row = fold_decimals(rows.rows, slots, _halves(array), *validity(array), self.place.word, self.place.flag)
        if row >= 0:
            raise Sum128Overflow(row)

    def merge(self, records: Rows, slots: Slots, partials: Rows) -> None:
        from operators.kernels.decimals import merge_decimals

        row = merge_decimals(records, slots, partials, self.place.word)
        if row >= 0:
            raise Sum128Overflow(row)

    def read(self, records: Rows, always: int) -> pa.Array:
        return self._column(records, seen(self.place.flag, records, always))

    def _column(self, records: Rows, bitmap: pa.Buffer | None) -> pa.Array:
        word = self.place.word
        sums = records[:, word : word + 2].copy()  # a slice of one record would be a view
        return pa.Array.from_buffers(self.dtype, len(records), [bitmap, pa.py_buffer(sums)])

    def stored(self) -> list[pa.Field]:
        return [pa.field(f"{self.place.state}/sum", self.dtype)]

    def freeze(self) -> Frozen:
        return Frozen(lambda records, flags: [self._column(records, flags.bitmap(self.place.flag))])

    def restore(self, records: Rows, slots: Slots, columns: Sequence[pa.Array]) -> None:
        present = restore_flag(records, self.place.flag, columns, self.name)
        halves = _halves(columns[0])
        for i in range(2):
            put_words(records, self.place.word + i, halves[i::2], present)


def _halves(array: pa.Array) -> Numbers:
    """Return the words of decimals, two each."""
    if not len(array):
        return np.empty(0, np.int64)
    halves = np.frombuffer(array.buffers()[1], np.int64, 2 * len(array), 16 * array.offset)
    return halves if halves.flags.aligned else halves.copy()
