"""Kernels of aggregates over signed changes: counts and sums from which rows can be taken back.

Integers and decimals are added up in 128 bits, so that a sum can exceed its type for a while: only its value when it is
read has to fit. Floats are added up as a pair of float64s, whose sum has twice the digits: T. J. Dekker 1971, "A
floating-point technique for extending the available precision". NaN and infinities are counted apart, because they
cannot be subtracted. The digits of a pair are limited, too, so a wrapping sum of hashes of the values says whether
nothing is left.

A weight is +1 for a row that is added, and -1 for one that is taken back. Rows that are null count for nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import READ_RECORDS, RECORDS, RI32, RI64, RU8, hash_word, valid

__all__ = ["count_changes", "fold_integers", "fold_pairs", "fold_wide", "read_totals", "read_variances", "vacant_words"]

INT = types.int64
SPLIT = 134_217_729.0  # 2**27 + 1
HUGE = 1e150
"""Above it a square does not fit into a float64."""
BOOLS = types.boolean[::1]
FLOATS = types.float64[::1]


@kernel(types.void(RECORDS, RI32, RI64, RU8, INT, INT))
def count_changes(records: Any, slots: Any, weights: Any, bits: Any, first: Any, word: Any) -> None:
    """Add the weights of the rows that are not null to ``word``; empty ``bits``: no nulls."""
    at = types.uint64(word)
    for i in range(slots.size):
        if bits.size == 0 or valid(bits, first + i):
            records[types.uint64(slots[i]), at] += weights[i]


@kernel(types.void(RECORDS, types.uint64, types.uint64, INT, INT, INT))
def add_wide(records: Any, slot: Any, at: Any, low: Any, high: Any, weight: Any) -> None:
    """Add ``weight`` times a 128-bit number to the words (low, high, count) at ``at``."""
    if weight < 0:
        low, high = ~low + 1, ~high + (1 if low == 0 else 0)
    held = types.uint64(records[slot, at])
    total = held + types.uint64(low)
    records[slot, at] = types.int64(total)
    records[slot, at + types.uint64(1)] += high + (1 if total < held else 0)
    records[slot, at + types.uint64(2)] += weight


@kernel(types.void(RECORDS, RI32, RI64, RU8, INT, RI64, INT, types.boolean))
def fold_integers(
    records: Any, slots: Any, values: Any, bits: Any, first: Any, weights: Any, word: Any, unsigned: Any
) -> None:
    """Add 64-bit integers to the words (low, high, count) at ``word``."""
    for i in range(slots.size):
        if bits.size == 0 or valid(bits, first + i):
            high = types.int64(0) if unsigned else values[i] >> 63
            add_wide(records, types.uint64(slots[i]), types.uint64(word), values[i], high, weights[i])


@kernel(types.void(RECORDS, RI32, RI64, RU8, INT, RI64, INT))
def fold_wide(records: Any, slots: Any, halves: Any, bits: Any, first: Any, weights: Any, word: Any) -> None:
    """Add 128-bit integers, number i in ``halves[2 * i : 2 * i + 2]``, to the words (low, high, count) at ``word``."""
    for i in range(slots.size):
        if bits.size == 0 or valid(bits, first + i):
            slot = types.uint64(slots[i])
            add_wide(records, slot, types.uint64(word), halves[2 * i], halves[2 * i + 1], weights[i])


@kernel(types.UniTuple(types.float64, 2)(types.float64, types.float64, types.float64, types.float64))
def add_pairs(high: Any, low: Any, more: Any, rest: Any) -> Any:
    """Return the sum of two numbers, each a pair of float64s."""
    total = high + more
    part = total - high
    error = (high - (total - part)) + (more - part) + low + rest
    result = total + error
    return result, error - (result - total)


@kernel(types.UniTuple(types.float64, 2)(types.float64))
def square(value: Any) -> Any:
    """Return the exact square of a number below ``HUGE`` as a pair."""
    product = value * value
    scaled = SPLIT * value
    upper = scaled - (scaled - value)
    lower = value - upper
    return product, ((upper * upper - product) + 2.0 * upper * lower) + lower * lower


@kernel(types.void(RECORDS, RI32, RI64, RU8, INT, RI64, INT, types.boolean))
def fold_pairs(
    records: Any, slots: Any, values: Any, bits: Any, first: Any, weights: Any, word: Any, squares: Any
) -> None:
    """Add float64s to the words at ``word``: count, hashes, NaN, +inf, -inf, then the pair of the sum.

    With ``squares`` two words follow, the pair of the sum of squares; a finite number whose square is none counts as an
    infinity of its sign.
    """
    floats = records.view(types.float64)
    numbers = values.view(types.float64)
    for i in range(slots.size):
        if bits.size != 0 and not valid(bits, first + i):
            continue
        slot, at = types.uint64(slots[i]), types.uint64(word)
        weight, value = weights[i], numbers[i]
        records[slot, at] += weight
        if value != value:
            records[slot, at + types.uint64(2)] += weight
            continue
        if abs(value) == np.inf or (squares and abs(value) > HUGE):
            records[slot, at + types.uint64(3 if value > 0 else 4)] += weight
            continue
        if value == 0:
            continue
        hashed = types.int64(hash_word(types.uint64(values[i])))
        records[slot, at + types.uint64(1)] += hashed * weight
        total = at + types.uint64(5)
        high, low = add_pairs(floats[slot, total], floats[slot, total + types.uint64(1)], value * weight, 0.0)
        floats[slot, total], floats[slot, total + types.uint64(1)] = high, low
        if squares:
            power = at + types.uint64(7)
            more, rest = square(value)
            high, low = floats[slot, power], floats[slot, power + types.uint64(1)]
            high, low = add_pairs(high, low, more * weight, rest * weight)
            floats[slot, power], floats[slot, power + types.uint64(1)] = high, low


@kernel(types.float64(READ_RECORDS, types.float64[:, ::1], INT, INT))
def total_of(records: Any, floats: Any, i: Any, word: Any) -> Any:
    """Return the sum of record ``i``: its pair, or NaN or an infinity if it has such values."""
    if records[i, word + 2] > 0 or (records[i, word + 3] > 0 and records[i, word + 4] > 0):
        return np.nan
    if records[i, word + 3] > 0:
        return np.inf
    if records[i, word + 4] > 0:
        return -np.inf
    return floats[i, word + 5] + floats[i, word + 6]


@kernel(types.void(RECORDS, INT, types.boolean, FLOATS, BOOLS), error_model="numpy")
def read_totals(records: Any, word: Any, mean: Any, out: Any, present: Any) -> None:
    """Write each record's sum of floats, or their ``mean``; set ``present`` where there are values."""
    floats = records.view(types.float64)
    for i in range(out.size):
        count = records[i, word]
        present[i] = count > 0
        out[i] = total_of(records, floats, i, word) / (count if mean else 1) if count > 0 else 0.0


@kernel(types.void(RECORDS, INT, INT, FLOATS, BOOLS), error_model="numpy")
def read_variances(records: Any, word: Any, ddof: Any, out: Any, present: Any) -> None:
    """Write each record's variance; set ``present`` where there are more than ``ddof`` values."""
    floats = records.view(types.float64)
    for i in range(out.size):
        count = records[i, word]
        present[i] = count > ddof
        out[i] = 0.0
        if not present[i]:
            continue
        if records[i, word + 2] > 0 or records[i, word + 3] > 0 or records[i, word + 4] > 0:
            out[i] = np.nan
            continue
        mean = (floats[i, word + 5] + floats[i, word + 6]) / count
        # The sum of (x - m)**2 for m close to the mean is q - 2 m s + n m**2, and the mean's own error adds n e**2.
        more, rest = square(mean)
        high, low = add_pairs(floats[i, word + 7], floats[i, word + 8], more * count, rest * count)
        product = mean * floats[i, word + 5]
        scaled, other = SPLIT * mean, SPLIT * floats[i, word + 5]
        upper, left = scaled - (scaled - mean), other - (other - floats[i, word + 5])
        lower, right = mean - upper, floats[i, word + 5] - left
        error = ((upper * left - product) + upper * right + lower * left) + lower * right
        error += mean * floats[i, word + 6]
        high, low = add_pairs(high, low, -2.0 * product, -2.0 * error)
        out[i] = max(high + low, 0.0) / (count - ddof)


@kernel(types.void(READ_RECORDS, RI64, BOOLS))
def vacant_words(records: Any, words: Any, vacant: Any) -> None:
    """Clear ``vacant`` for each record of which one of ``words`` is not zero."""
    for i in range(vacant.size):
        for word in words:
            if records[i, word] != 0:
                vacant[i] = False
