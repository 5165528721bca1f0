"""The pairs of two batches of rows with equal keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.state.arrays import Numbers
from dataflow.state.index import Slots
from dataflow.state.keyed import KeyIndex, index_kernels
from operators.stateful.chunks import CHUNK
from operators.stateful.columns import without_null

__all__ = ["Matching", "linked_pairs"]


class Matching:
    """Matches left and right rows by key; null equals nothing.

    >>> keys = pa.schema({"k": pa.string()})
    >>> matching = Matching(keys, [pa.array(["a", "b", None])], [pa.array(["b", "b", "c", None])])
    >>> [(left.tolist(), right.tolist()) for left, right in matching.pairs()]
    [([1, 1], [0, 1])]
    >>> matching.left_alone().tolist(), matching.right_alone().tolist()
    ([0, 2], [2, 3])
    """

    def __init__(self, keys: pa.Schema, left: Sequence[pa.Array], right: Sequence[pa.Array]) -> None:
        from operators.kernels.linked_rows import link_all

        index = KeyIndex(keys)
        self._right = without_null(index.slots(list(right)).copy() if len(right[0]) else _NONE, right)
        self._left = without_null(index.find(list(left)) if len(left[0]) else _NONE, left)
        self._count = len(index)
        self._heads = np.zeros((self._count, 2), np.int32)
        self._links = np.empty(len(self._right), np.int32)
        link_all(self._right, self._heads, self._links)

    @staticmethod
    def kernels_for(keys: pa.Schema) -> Sequence[str]:
        """Return the modules with the kernels that are called for such keys."""
        return *index_kernels(keys), "operators.kernels.linked_rows"

    def pairs(self) -> Iterator[tuple[Slots, Slots]]:
        """Yield the rows of pairs, the left and the right ones, at most `CHUNK` pairs at a time."""
        return linked_pairs(self._left, self._heads, self._links)

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


def linked_pairs(slots: Slots, heads: npt.NDArray[np.int32], links: Slots) -> Iterator[tuple[Slots, Slots]]:
    """Yield the pairs of an entry of ``slots`` and a row of that slot, at most `CHUNK` at a time.

    ``heads`` and ``links`` are those of ``operators.kernels.linked_rows``.
    """
    from operators.kernels.linked_rows import pair_linked

    position = np.zeros(2, np.int64)
    while position[0] < len(slots):
        at, rows = np.empty(CHUNK, np.int32), np.empty(CHUNK, np.int32)
        count = pair_linked(slots, heads, links, position, at, rows)
        yield at[:count], rows[:count]


_NONE: Slots = np.empty(0, np.int32)
