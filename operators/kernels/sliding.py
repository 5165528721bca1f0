"""Kernels of sliding windows: the rows of each window, distinct values as rows come and go, and the best of values.

Rows are ordered by segment (a key, or a range of its rows) and then by time; ``starts`` has the first row of each
segment, and after them the number of rows.
"""

from __future__ import annotations

from typing import Any

from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import RI32, RI64, WI64

__all__ = ["best_after", "best_before", "count_distinct", "evict_values", "find_windows"]

MASK = types.Array(types.boolean, 1, "C", readonly=True)


@kernel(types.void(RI64, RI64, types.int64, WI64, WI64))
def find_windows(starts: Any, times: Any, period: Any, heads: Any, lasts: Any) -> None:
    """Set the first row of each row's window, which is (time - period, time], and its last one, of the same time."""
    for segment in range(starts.size - 1):
        head, row, stop = starts[segment], starts[segment], starts[segment + 1]
        while row < stop:
            after = row + 1
            while after < stop and times[after] == times[row]:
                after += 1
            while times[head] <= times[row] - period:
                head += 1
            for i in range(row, after):
                heads[i], lasts[i] = head, after - 1
            row = after


@kernel(types.void(RI64, RI32, RI64, RI64, RI64, RI64, RI64, types.int64, WI64, WI64, WI64))
def count_distinct(
    starts: Any,
    slots: Any,
    times: Any,
    pairs: Any,
    gone_starts: Any,
    gone_times: Any,
    gone_pairs: Any,
    period: Any,
    counts: Any,
    distinct: Any,
    results: Any,
) -> None:
    """Set the number of distinct values in the window of each row.

    Segment s is of key ``slots[s]``, whose windows have ``distinct`` values so far. ``pairs`` has the number of each
    row's pair of key and value, whose rows in the window are counted by ``counts``; -1: the row has no value.
    ``gone_starts`` to ``gone_pairs`` are the rows of each segment that may leave a window, in order.
    """
    for segment in range(starts.size - 1):
        slot = types.int64(slots[segment])
        gone, row, stop = gone_starts[segment], starts[segment], starts[segment + 1]
        while row < stop:
            after, time = row, times[row]
            while after < stop and times[after] == time:
                pair = pairs[after]
                if pair >= 0:
                    counts[pair] += 1
                    if counts[pair] == 1:
                        distinct[slot] += 1
                after += 1
            while gone < gone_starts[segment + 1] and gone_times[gone] <= time - period:
                pair = gone_pairs[gone]
                if pair >= 0:
                    counts[pair] -= 1
                    if counts[pair] == 0:
                        distinct[slot] -= 1
                gone += 1
            for i in range(row, after):
                results[i] = distinct[slot]
            row = after


@kernel(types.void(RI32, RI64, WI64, WI64))
def evict_values(slots: Any, pairs: Any, counts: Any, distinct: Any) -> None:
    """Take back one row of each pair, which is of key ``slots[i]``; -1: none."""
    for i in range(slots.size):
        pair = pairs[i]
        if pair >= 0:
            counts[pair] -= 1
            if counts[pair] == 0:
                distinct[types.int64(slots[i])] -= 1


@kernel(types.void(MASK, RI64, RI64, RI64, RI64, WI64))
def best_before(starts: Any, rows: Any, scores: Any, begin: Any, begin_scores: Any, best: Any) -> None:
    """Set, up to each row, the one of ``rows`` with the greatest score of its block, of which ``begin`` has the start.

    ``starts`` says which rows begin a block.
    """
    held, score = types.int64(-1), types.int64(0)
    for row in range(rows.size):
        if starts[row]:
            held, score = begin[row], begin_scores[row]
        if scores[row] > score or held < 0:
            held, score = rows[row], scores[row]
        best[row] = held


@kernel(types.void(MASK, RI64, RI64, WI64))
def best_after(starts: Any, rows: Any, scores: Any, best: Any) -> None:
    """Set, from each row on, the one of ``rows`` with the greatest score of its block."""
    held, score = types.int64(-1), types.int64(0)
    for row in range(rows.size - 1, -1, -1):
        if scores[row] > score or held < 0:
            held, score = rows[row], scores[row]
        best[row] = held
        if starts[row]:
            held = -1
