"""Variance and standard deviation: three words a record (Welford's method avoids a difference of two large sums)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dataflow.state.arrays import fresh_words, validity, words
from dataflow.state.copy_on_write import CopyOnWriteRows
from dataflow.state.index import Slots
from operators.steps.step import Rows, Step, StepPlace

__all__ = ["StandardDeviation", "Variance"]


class Variance(Step):
    """Squared deviations from the mean over (number of values - ``ddof``), null unless the divisor is positive."""

    initial = (0, 0, 0)
    words = (("count", pa.int64()), ("mean", pa.float64()), ("squares", pa.float64()))
    kernels: tuple[str, ...] = ("operators.kernels.moments",)

    def __init__(self, place: StepPlace, ddof: int) -> None:
        super().__init__(place)
        self._ddof = ddof

    def fold(self, rows: CopyOnWriteRows, slots: Slots, inputs: Sequence[pa.Array]) -> None:
        from operators.kernels.moments import fold_moments

        (array,) = inputs
        fold_moments(rows.rows, slots, words(array), *validity(array), self.place.word)

    def merge(self, records: Rows, slots: Slots, partials: Rows) -> None:
        from operators.kernels.moments import merge_moments

        merge_moments(records, slots, partials, self.place.word)

    def read(self, records: Rows, always: int) -> pa.Array:
        from operators.kernels.moments import read_moments

        out, present = fresh_words(len(records)).view(np.float64), np.empty(len(records), bool)
        read_moments(records, self.place.word, self._ddof, out, present)
        bitmap = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
        return pa.Array.from_buffers(pa.float64(), len(out), [bitmap, pa.py_buffer(self._finish(out))])

    def _finish(self, variances: np.ndarray[tuple[int], np.dtype[np.float64]]) -> object:
        return variances


class StandardDeviation(Variance):
    """The square root of the variance."""

    def _finish(self, variances: np.ndarray[tuple[int], np.dtype[np.float64]]) -> object:
        return np.sqrt(variances)
