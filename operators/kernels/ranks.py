"""The kernel that ranks rows of groups by words: the first rows of each group, in order.

If a group is large and few of its rows come out, most of its rows cost one comparison, with the last row of those that
come out so far; else its rows are sorted.
"""

from __future__ import annotations

from typing import Any

from numba import types

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import READ_RECORDS, RI32, RI64, WI32, WI64

__all__ = ["rank_groups"]

INT = types.int64


@kernel(INT(READ_RECORDS, INT, INT))
def compare_words(words: Any, left: Any, right: Any) -> Any:
    """Return -1, 0 or 1 if the words of row ``left`` are less than, equal to or above those of row ``right``."""
    a, b = types.uint64(left), types.uint64(right)
    for k in range(words.shape[1]):
        if words[a, k] != words[b, k]:
            return -1 if words[a, k] < words[b, k] else 1
    return 0


@kernel(types.void(WI32, INT, WI32, READ_RECORDS))
def sort_rows(rows: Any, count: Any, other: Any, words: Any) -> None:
    """Sort the first ``count`` of ``rows`` by their words; equal ones keep their order. ``other`` is scratch memory."""
    run = 8
    for start in range(0, count, run):  # sort short runs by insertion, then merge them
        for i in range(start + 1, min(start + run, count)):
            row, j = rows[i], i
            while j > start and compare_words(words, row, rows[j - 1]) < 0:
                rows[j] = rows[j - 1]
                j -= 1
            rows[j] = row
    while run < count:
        for start in range(0, count, 2 * run):
            middle, stop = min(start + run, count), min(start + 2 * run, count)
            i, j = start, middle
            for at in range(start, stop):
                if i < middle and (j >= stop or compare_words(words, rows[j], rows[i]) >= 0):
                    other[at] = rows[i]
                    i += 1
                else:
                    other[at] = rows[j]
                    j += 1
        for at in range(count):
            rows[at] = other[at]
        run *= 2


@kernel(INT(RI32, INT, INT, READ_RECORDS, INT, WI32))
def select_rows(order: Any, start: Any, stop: Any, words: Any, n: Any, best: Any) -> Any:
    """Write the first ``n`` of the rows ``order[start:stop]`` to ``best``, sorted; return how many there are."""
    size = 0
    for at in range(start, stop):
        row = order[at]
        if size == n and compare_words(words, row, best[n - 1]) >= 0:
            continue
        j = size if size < n else n - 1
        while j > 0 and compare_words(words, row, best[j - 1]) < 0:
            best[j] = best[j - 1]
            j -= 1
        best[j] = row
        if size < n:
            size += 1
    return size


@kernel(INT(RI32, RI64, READ_RECORDS, INT, INT, INT, WI32, WI32, WI32, WI64))
def rank_groups(
    order: Any,
    offsets: Any,
    words: Any,
    n: Any,
    most: Any,
    ties: Any,
    rows: Any,
    scratch: Any,
    chosen: Any,
    ranks: Any,
) -> Any:
    """Write the rows with ranks up to ``n`` of each group to ``chosen``, and their ranks; return how many there are.

    The rows of group g are ``order[offsets[g]:offsets[g + 1]]``, in order of arrival. With ``ties`` = 1, rows with
    equal words have one rank. Rows of large groups are selected if ``n`` is at most ``most``. ``rows`` and ``scratch``
    have room for the rows of a group.
    """
    total = 0
    for group in range(offsets.size - 1):
        start, stop = offsets[group], offsets[group + 1]
        count = stop - start
        if n <= most and count > 2 * n:
            count = select_rows(order, start, stop, words, n, rows)
            if ties == 1:
                last = rows[count - 1]
                count = 0
                for at in range(start, stop):
                    if compare_words(words, order[at], last) <= 0:
                        rows[count] = order[at]
                        count += 1
                sort_rows(rows, count, scratch, words)
        else:
            for at in range(count):
                rows[at] = order[start + at]
            sort_rows(rows, count, scratch, words)
        rank = 0
        for at in range(count):
            if ties == 0 or at == 0 or compare_words(words, rows[at - 1], rows[at]) != 0:
                rank = at + 1
            if rank > n:
                break
            chosen[total] = rows[at]
            ranks[total] = rank
            total += 1
    return total
