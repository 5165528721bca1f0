"""Emission in batches of limited size, so that a barrier never waits long for one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from dataflow.contracts.operator import Out
from dataflow.state.arrays import Numbers

__all__ = ["CHUNK", "emitted", "pieces"]

CHUNK = 65_536
"""The most rows of an emitted batch."""


def emitted(batches: Iterable[pa.RecordBatch], out: Out) -> Iterator[None]:
    """Emit each of ``batches``, and yield after it."""
    for batch in batches:
        out.emit(batch)
        yield


def pieces(counts: Numbers) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows with at most ``CHUNK`` counterparts together, or of one row; ``counts`` has those of each.

    >>> list(pieces(np.array([1, CHUNK, 5, 7])))
    [(0, 1), (1, 2), (2, 4)]
    """
    before = np.cumsum(counts)
    start, done = 0, 0
    while start < len(counts):
        stop = max(start + 1, int(np.searchsorted(before, done + CHUNK, side="right")))
        yield start, stop
        start, done = stop, int(before[stop - 1])
