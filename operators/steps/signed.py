"""Aggregates over signed changes: rows are added and taken back, in any order; see ``operators.kernels.signed``.

Every step takes the weights of the rows, +1 or -1, as its last argument. Its state depends only on the rows that are
left, and on rows that were taken back before they were added, so it is ``vacant`` again when there are none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.state.arrays import fresh_words, from_words, validity, words
from dataflow.state.copy_on_write import CopyOnWriteRows
from dataflow.state.index import Slots
from operators.steps.step import Rows, Step, StepPlace, Sum128Overflow, Words

__all__ = ["Reversible", "SignedCount", "SignedDeviation", "SignedMean", "SignedStep", "SignedSum", "SignedTotal"]
__all__ += ["SignedVariance"]

_KERNELS = ("operators.kernels.signed",)
_HIGHEST = 10**38


class Reversible(ABC):
    """A part of a record from which rows can be taken back."""

    @abstractmethod
    def vacant(self, records: Rows) -> npt.NDArray[np.bool_]:
        """Return whether this part of each of ``records`` is as without rows."""


class SignedStep(Step, Reversible):
    """A step from which rows can be taken back."""

    mergeable = False
    kernels: tuple[str, ...] = _KERNELS

    def _vacant(self, records: Rows, places: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Return whether words of each record are zero; ``places`` counts from this step's first word."""
        from operators.kernels.signed import vacant_words

        vacant = np.ones(len(records), np.bool_)
        vacant_words(records, np.array(places, np.int64) + self.place.word, vacant)
        return vacant


class SignedCount(SignedStep):
    """The number of rows that are left, or of those that are not null. Below zero it is shown as zero."""

    initial = (0,)
    words = (("count", pa.int64()),)

    def fold(self, rows: CopyOnWriteRows, slots: Slots, inputs: Sequence[pa.Array]) -> None:
        from operators.kernels.signed import count_changes

        bits = validity(inputs[0]) if len(inputs) > 1 else (np.empty(0, np.uint8), 0)
        count_changes(rows.rows, slots, words(inputs[-1]), *bits, self.place.word)

    def counts(self, records: Rows) -> npt.NDArray[np.int64]:
        """Return the number of rows of each record, below zero if more were taken back than added."""
        return records[:, self.place.word]

    def read(self, records: Rows, always: int) -> pa.Array:
        return from_words(np.maximum(self.counts(records), 0), pa.int64())

    def vacant(self, records: Rows) -> npt.NDArray[np.bool_]:
        return self._vacant(records, (0,))


class SignedSum(SignedStep):
    """The sum of integers, booleans, durations or decimals: 128 bits and the number of values."""

    initial = (0, 0, 0)
    words = (("low", pa.int64()), ("high", pa.int64()), ("count", pa.int64()))

    def fold(self, rows: CopyOnWriteRows, slots: Slots, inputs: Sequence[pa.Array]) -> None:
        from operators.kernels.signed import fold_integers, fold_wide

        values, weights = inputs
        if not len(values):
            return
        bits, word = validity(values), self.place.word
        if pa.types.is_decimal(self.dtype):
            halves = np.frombuffer(values.buffers()[1], np.int64, 2 * len(values), 16 * values.offset)
            halves = halves if halves.flags.aligned else halves.copy()
            fold_wide(rows.rows, slots, halves, *bits, words(weights), word)
        else:
            unsigned = pa.types.is_unsigned_integer(self.dtype)
            fold_integers(rows.rows, slots, words(values), *bits, words(weights), word, unsigned)

    def read(self, records: Rows, always: int) -> pa.Array:
        low, high, counts = records[:, self.place.word : self.place.word + 3].T.copy()  # of one record a view
        present = counts > 0
        self._check(low, high, present)
        bitmap = _bitmap(present)
        if not pa.types.is_decimal(self.dtype):
            return from_words(low, self.dtype, bitmap)
        halves = np.ascontiguousarray(np.stack([low, high], axis=1))
        return pa.Array.from_buffers(self.dtype, len(low), [bitmap, pa.py_buffer(halves)])

    def _check(self, low: npt.NDArray[np.int64], high: npt.NDArray[np.int64], present: npt.NDArray[np.bool_]) -> None:
        """Raise Sum128Overflow for the first sum that does not fit into its type."""
        if pa.types.is_decimal(self.dtype):
            bound = _HIGHEST >> 64
            bad = np.flatnonzero(present & ((high >= bound) | (high < -bound)))
            bad = np.array([i for i in bad if abs((int(high[i]) << 64) + (int(low[i]) % 2**64)) >= _HIGHEST], np.int64)
        else:
            expected = np.zeros_like(low) if pa.types.is_unsigned_integer(self.dtype) else low >> 63
            bad = np.flatnonzero(present & (high != expected))
        if len(bad):
            raise Sum128Overflow(int(bad[0]))

    def vacant(self, records: Rows) -> npt.NDArray[np.bool_]:
        return self._vacant(records, (0, 1, 2))


class SignedTotal(SignedStep):
    """The sum of floats: see ``fold_pairs`` for the words."""

    initial: tuple[int, ...] = (0,) * 7
    words: Words = (
        *[(name, pa.int64()) for name in ("count", "hashes", "nans", "infinite", "negative infinite")],
        *[(name, pa.float64()) for name in ("sum", "rest of sum")],
    )
    _squares = _mean = False

    def fold(self, rows: CopyOnWriteRows, slots: Slots, inputs: Sequence[pa.Array]) -> None:
        from operators.kernels.signed import fold_pairs

        values, weights = inputs
        word = self.place.word
        fold_pairs(rows.rows, slots, words(values), *validity(values), words(weights), word, self._squares)

    def read(self, records: Rows, always: int) -> pa.Array:
        out, present = fresh_words(len(records)).view(np.float64), np.empty(len(records), np.bool_)
        self._read(np.ascontiguousarray(records), out, present)
        return pa.Array.from_buffers(pa.float64(), len(out), [_bitmap(present), pa.py_buffer(out)])

    def _read(self, records: Rows, out: npt.NDArray[np.float64], present: npt.NDArray[np.bool_]) -> None:
        from operators.kernels.signed import read_totals

        read_totals(records, self.place.word, self._mean, out, present)

    def vacant(self, records: Rows) -> npt.NDArray[np.bool_]:
        return self._vacant(records, range(5))  # what is left of sums is rounding


class SignedMean(SignedTotal):
    """The mean of floats."""

    _mean = True


class SignedVariance(SignedTotal):
    """The variance of floats, from the sums of values and of squares."""

    initial = (0,) * 9
    words = (*SignedTotal.words, ("squares", pa.float64()), ("rest of squares", pa.float64()))
    _squares = True

    def __init__(self, place: StepPlace, ddof: int) -> None:
        super().__init__(place)
        self._ddof = ddof

    def _read(self, records: Rows, out: npt.NDArray[np.float64], present: npt.NDArray[np.bool_]) -> None:
        from operators.kernels.signed import read_variances

        read_variances(records, self.place.word, self._ddof, out, present)


class SignedDeviation(SignedVariance):
    """The standard deviation of floats."""

    def _read(self, records: Rows, out: npt.NDArray[np.float64], present: npt.NDArray[np.bool_]) -> None:
        super()._read(records, out, present)
        np.sqrt(out, out=out)


def _bitmap(present: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    """Return the validity bitmap; None if no value is missing."""
    return None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
