"""Least and greatest values of sliding windows that do not fit into a record, such as text: the number of their row.

As ``scans``, but of numbers of rows whose values are compared. Within a batch, values are compared by their rank.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow.arrow_values import to_array, to_numbers
from dataflow.state.arrays import Mask, Numbers
from dataflow.state.index import Slots

__all__ = ["Comparison", "ExtremeValues", "best_apart"]


_NONE = -1
_NULL = -(2**63)


class Comparison:
    """Which of two values is better: the greater one, or with ``least`` the smaller one. Null is no value.

    >>> Comparison(least=True).scores(pa.array(["b", None, "a"])).tolist()
    [-2, -9223372036854775808, -1]
    """

    def __init__(self, *, least: bool) -> None:
        self._sign = -1 if least else 1

    def scores(self, values: pa.Array) -> Numbers:
        """Return numbers in the order of the values, a greater one for a better value."""
        if pa.types.is_decimal(values.type) and values.type.bit_width < 128:
            values = values.cast(pa.decimal128(values.type.precision, values.type.scale))
        if pa.types.is_decimal(values.type) or pa.types.is_fixed_size_binary(values.type):
            distinct = values.dictionary_encode()
            order = pc.array_sort_indices(distinct.dictionary)
            ranks = np.empty(len(distinct.dictionary), np.int64)
            ranks[to_numbers(order)] = np.arange(len(ranks)) + 1
            found = ranks[to_numbers(distinct.indices.fill_null(0))] if len(ranks) else np.zeros(len(values), np.int64)
        else:
            found = to_numbers(pc.rank(values, sort_keys="ascending", tiebreaker="dense")).astype(np.int64)
        return np.where(to_numbers(values.is_valid()), self._sign * found, _NULL)


class ExtremeValues:
    """The best values of one argument; ``values`` returns those of rows by their numbers."""

    def __init__(self, comparison: Comparison, values: Callable[[Slots], pa.Array]) -> None:
        self._comparison = comparison
        self._values = values
        self._merged = np.empty(0, np.int64)  # by slot: the best row of the block so far
        self._from = np.empty(0, np.int64)  # by row: itself, then the best row of its block from it on

    def grow(self, slots: int, rows: int) -> None:
        """Make room for ``slots`` slots and ``rows`` numbers of rows."""
        self._merged, self._from = _longer(self._merged, slots), _longer(self._from, rows)

    def enter(self, numbers: Slots, values: pa.Array) -> None:
        """Take note of the values of rows."""
        self._from[numbers] = _with_value(numbers, values)

    def absorb(
        self, numbers: Slots, slots: Slots, starts: Mask, seeded: Numbers, lasts: Numbers, values: pa.Array
    ) -> Numbers:
        """Return the number of the best row of each row's block up to it, or -1; the rows were entered.

        ``starts`` says which rows begin a block, ``seeded`` are those that continue the block of their key, and
        ``lasts`` the last row of each key.
        """
        from operators.kernels.sliding import best_before

        seeds = self._merged[slots[seeded]]
        known = seeds >= 0
        both = pa.concat_arrays([values, self._values(seeds[known].astype(np.int32)).cast(values.type)])
        scores = self._comparison.scores(both)
        rows = _with_value(numbers, values)
        begin, begin_scores = np.full(len(values), _NONE, np.int64), np.full(len(values), _NULL, np.int64)
        begin[seeded[known]], begin_scores[seeded[known]] = seeds[known], scores[len(values) :]
        best = np.empty(len(values), np.int64)
        best_before(starts, rows, scores[: len(values)], begin, begin_scores, best)
        self._merged[slots[lasts]] = best[lasts]
        return best

    def turn(self, numbers: Slots, starts: Mask) -> None:
        """Find, from each row on, the best row of its block; ``starts`` says which rows begin a block."""
        from operators.kernels.sliding import best_after

        rows = self._from[numbers]
        scores = np.full(len(rows), _NULL, np.int64)
        scores[rows >= 0] = self._comparison.scores(self._values(rows[rows >= 0].astype(np.int32)))
        best = np.empty(len(rows), np.int64)
        best_after(starts, rows, scores, best)
        self._from[numbers] = best

    def joined(self, heads: Slots, has_end: Mask, beginnings: Numbers) -> pa.Array:
        """Return the better value, for each i, of those from row ``heads[i]`` on, if it has them, and a beginning."""
        ends = np.where(has_end, self._from[heads], _NONE)
        rows, places = np.unique(np.concatenate([ends, beginnings]), return_inverse=True)
        has_none = bool(len(rows) and rows[0] < 0)
        values = self._values(rows[int(has_none) :].astype(np.int32))
        if has_none:
            values = pa.concat_arrays([pa.nulls(1, values.type), values])
        scores = self._comparison.scores(values)
        first, second = places[: len(ends)], places[len(ends) :]
        return values.take(to_array(np.where(scores[first] > scores[second], first, second)))


def best_apart(
    comparison: Comparison, values: pa.Array, starts: Mask, heads: Numbers, has_end: Mask, lasts: Numbers
) -> pa.Array:
    """Return the best value in the window of each row, from row ``heads[i]`` to row ``lasts[i]``.

    ``starts`` says which rows begin a block, and ``has_end`` whether the window begins in the block before.
    """
    from operators.kernels.sliding import best_after, best_before

    count = len(values)
    scores = comparison.scores(values)
    rows = np.where(scores == _NULL, _NONE, np.arange(count))
    before, after = np.empty(count, np.int64), np.empty(count, np.int64)
    nothing = np.full(count, _NONE, np.int64)
    best_before(starts, rows, scores, nothing, np.full(count, _NULL, np.int64), before)
    best_after(starts, rows, scores, after)
    first, second = np.where(has_end, after[heads], _NONE), before[lasts]
    padded = np.append(scores, _NULL)  # row -1
    best = np.where(padded[first] > padded[second], first, second)
    return values.take(to_array(best, mask=best < 0))


def _with_value(numbers: Slots, values: pa.Array) -> Numbers:
    """Return the numbers of the rows; -1 for those without a value."""
    return np.where(to_numbers(values.is_valid()), numbers.astype(np.int64), _NONE)


def _longer(array: Numbers, length: int) -> Numbers:
    """Return ``array`` with at least ``length`` entries, twice as many if it grows; new ones are -1."""
    if length <= len(array):
        return array
    grown = np.full(2 * length, _NONE, np.int64)
    grown[: len(array)] = array
    return grown
