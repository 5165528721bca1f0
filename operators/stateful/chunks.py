"""Emission in batches of limited size, so that a barrier never waits long for one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa

from dataflow.contracts.operator import Out
from dataflow.state.arrays import Numbers
from dataflow.state.index import Slots

__all__ = ["CHUNK", "adjacent_pairs", "emitted", "pairs_by_chunk", "pieces"]

CHUNK = 65_536
"""The most rows of an emitted batch."""


def emitted(batches: Iterable[pa.RecordBatch], out: Out) -> Iterator[None]:
    """Emit each of ``batches``, and yield after it."""
    for batch in batches:
        out.emit(batch)
        yield


def pieces(counts: Numbers) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows with at most ``CHUNK`` counterparts together, or of one row.

    ``counts`` has the number of counterparts of each row.

    >>> list(pieces(np.array([1, CHUNK, 5, 7])))
    [(0, 1), (1, 2), (2, 4)]
    """
    before = np.cumsum(counts)
    start, done = 0, 0
    while start < len(counts):
        stop = max(start + 1, int(np.searchsorted(before, done + CHUNK, side="right")))
        yield start, stop
        start, done = stop, int(before[stop - 1])


def pairs_by_chunk(
    counts: Numbers, counterparts: Callable[[Numbers], tuple[Numbers, Slots]]
) -> Iterator[tuple[Numbers, Slots]]:
    """Yield pairs of a row and a counterpart: the row, and the number of its counterpart.

    A chunk has about ``CHUNK`` pairs, unless one row has more counterparts.

    Args:
        counts: how many counterparts each row has at most.
        counterparts: returns the numbers of the counterparts of rows, and where those of each row begin and end.

    >>> numbers = {0: [7, 8], 2: [9]}
    >>> def counterparts(rows):
    ...     return np.array([0, 2, 3]), np.array([number for row in rows for number in numbers[row]])
    >>> [(rows.tolist(), found.tolist()) for rows, found in pairs_by_chunk(np.array([2, 0, 1]), counterparts)]
    [([0, 0, 2], [7, 8, 9])]
    """
    found = np.flatnonzero(counts)
    for start, stop in pieces(counts[found]):
        some = found[start:stop]
        offsets, numbers = counterparts(some)
        yield np.repeat(some, np.diff(offsets)), numbers


def adjacent_pairs(counts: Numbers, firsts: Numbers) -> tuple[Numbers, Numbers]:
    """Return the pairs of rows with their counterparts, which are adjacent: the row, and the place of the counterpart.

    Row i has the counterparts ``firsts[i]`` to ``firsts[i] + counts[i]`` - 1.

    >>> [numbers.tolist() for numbers in adjacent_pairs(np.array([2, 0, 1]), np.array([5, 9, 3]))]
    [[0, 0, 2], [5, 6, 3]]
    """
    before = np.cumsum(counts) - counts
    at = np.repeat(np.arange(len(counts)), counts)
    return at, np.arange(len(at)) + (firsts - before)[at]
