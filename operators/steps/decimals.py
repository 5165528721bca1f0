"""Sums of decimals: exact, in decimal128 of 38 digits and the scale of the argument."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dataflow.state.arrays import validity
from dataflow.state.copy_on_write import CopyOnWriteRows
from dataflow.state.index import Slots
from operators.steps.step import Rows, Step, Sum128Overflow, seen

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
        halves = np.frombuffer(array.buffers()[1], np.int64, 2 * len(array), 16 * array.offset)
        halves = halves if halves.flags.aligned else halves.copy()
        row = fold_decimals(rows.rows, slots, halves, *validity(array), self.place.word, self.place.flag)
        if row >= 0:
            raise Sum128Overflow(row)

    def merge(self, records: Rows, slots: Slots, partials: Rows) -> None:
        from operators.kernels.decimals import merge_decimals

        row = merge_decimals(records, slots, partials, self.place.word)
        if row >= 0:
            raise Sum128Overflow(row)

    def read(self, records: Rows, always: int) -> pa.Array:
        word = self.place.word
        sums = records[:, word : word + 2].copy()  # a slice of one record would be a view
        bitmap = seen(self.place.flag, records, always)
        return pa.Array.from_buffers(self.dtype, len(records), [bitmap, pa.py_buffer(sums)])
