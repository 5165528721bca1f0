"""The pairs of two batches of rows with equal keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from dataflow.state.index import Slots
from dataflow.state.keyed import KeyIndex, index_kernels
from dataflow.state.partition import order_by_target
from operators.aggregation.window_times import Numbers
from operators.joins.result import adjacent_pairs, pieces, without_null

__all__ = ["Matching"]


class Matching:
    """Matches left and right rows by key; null equals nothing.

    >>> keys = pa.schema({"k": pa.string()})
    >>> matching = Matching(keys, [pa.array(["a", "b", None])], [pa.array(["b", "b", "c", None])])
    >>> [(left.tolist(), right.tolist()) for left, right in matching.pairs(100)]
    [([1, 1], [0, 1])]
    >>> matching.left_alone().tolist(), matching.right_alone().tolist()
    ([0, 2], [2, 3])
    """

    def __init__(self, keys: pa.Schema, left: Sequence[pa.Array], right: Sequence[pa.Array]) -> None:
        index = KeyIndex(keys)
        self._right = without_null(index.slots(list(right)).copy() if len(right[0]) else _NONE, right)
        self._left = without_null(index.find(list(left)).copy() if len(left[0]) else _NONE, left)
        self._count = len(index)

    @staticmethod
    def kernels_for(keys: pa.Schema) -> Sequence[str]:
        """Return the modules with the kernels that are called for such keys."""
        return *index_kernels(keys), "dataflow.state.kernels.partition"

    def pairs(self, most: int) -> Iterator[tuple[Numbers, Numbers]]:
        """Yield the rows of pairs, the left and the right ones, at most ``most`` pairs at a time."""
        right = np.flatnonzero(self._right >= 0)
        left = np.flatnonzero(self._left >= 0)
        if not len(right) or not len(left):
            return
        order, offsets = order_by_target(self._right[right], self._count)
        slots = self._left[left]
        counts = np.diff(offsets)[slots]
        for start, stop in pieces(counts):
            at, places = adjacent_pairs(counts[start:stop], offsets[slots[start:stop]])
            lefts, rights = left[start:stop][at], right[order[places]]
            for begin in range(0, len(at), most):
                yield lefts[begin : begin + most], rights[begin : begin + most]

    def left_alone(self) -> Numbers:
        """Return the left rows without a counterpart."""
        return self._alone(self._left, self._right)

    def right_alone(self) -> Numbers:
        """Return the right rows without a counterpart."""
        return self._alone(self._right, self._left)

    def _alone(self, slots: Slots, others: Slots) -> Numbers:
        there = np.zeros(self._count + 1, np.bool_)  # the last entry is for slot -1
        there[others[others >= 0]] = True
        return np.flatnonzero(~there[slots])


_NONE: Slots = np.empty(0, np.int32)
