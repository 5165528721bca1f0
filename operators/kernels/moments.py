"""Kernels of variance: count, mean and squared deviations from the mean, row by row and record by record.

B. P. Welford 1962, "Note on a method for calculating corrected sums of squares and products"; merged as in T. F. Chan,
G. H. Golub, R. J. LeVeque 1979, "Updating formulae and a pairwise algorithm for computing sample variances".
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import READ_RECORDS, RECORDS, RI32, RI64, RU8, valid

__all__ = ["fold_moments", "merge_moments", "read_moments"]


@kernel(types.void(RECORDS, RI32, RI64, RU8, types.int64, types.int64), error_model="numpy")
def fold_moments(records: Any, slots: Any, column: Any, bits: Any, first: Any, word: Any) -> None:
    """Fold the float64 bits of ``column`` into (count, mean, deviations) at ``word``; empty ``bits``: no nulls."""
    floats = records.view(types.float64)
    values = column.view(types.float64)
    at = types.uint64(word)
    one, two = types.uint64(1), types.uint64(2)
    for i in range(slots.size):
        if bits.size != 0 and not valid(bits, first + i):
            continue
        slot = types.uint64(slots[i])
        number = records[slot, at] + 1
        away = values[i] - floats[slot, at + one]
        mean = floats[slot, at + one] + away / number
        records[slot, at] = number
        floats[slot, at + one] = mean
        floats[slot, at + two] += away * (values[i] - mean)


@kernel(types.void(RECORDS, RI32, READ_RECORDS, types.int64), error_model="numpy")
def merge_moments(records: Any, slots: Any, partials: Any, word: Any) -> None:
    floats = records.view(types.float64)
    others = partials.view(types.float64)
    for i in range(slots.size):
        more = partials[i, word]
        if more == 0:
            continue
        slot = types.uint64(slots[i])
        held = records[slot, word]
        total = held + more
        away = others[i, word + 1] - floats[slot, word + 1]
        share = more / total
        records[slot, word] = total
        if held == 0:
            floats[slot, word + 1] = others[i, word + 1]
        else:
            floats[slot, word + 1] += away * share
        floats[slot, word + 2] += others[i, word + 2] + (away * away * held * share if held else 0.0)


@kernel(types.void(READ_RECORDS, types.int64, types.int64, types.float64[::1], types.boolean[::1]), error_model="numpy")
def read_moments(records: Any, word: Any, ddof: Any, out: Any, present: Any) -> None:
    """Write each record's variance to ``out``; set ``present`` where there are more than ``ddof`` values."""
    floats = records.view(types.float64)
    for i in range(out.size):
        number = records[i, word]
        present[i] = number > ddof
        out[i] = floats[i, word + 2] / (number - ddof) if number > ddof else np.float64(0)
