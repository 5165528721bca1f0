"""Rows by the number of their slice of time, appended and dropped slice by slice: a log whose deltas have new rows.

Nothing is copied when rows come: the batches are kept as they are. A *piece* is some batches of one slice; a piece is
closed when it is large enough, and when a checkpoint has frozen it. Then its batches are joined into one, but not while
the task takes a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sortedcontainers import SortedDict

from dataflow.arrow_values import to_array, to_numbers
from dataflow.state.arrays import Numbers
from dataflow.state.index import Slots
from dataflow.state.partition import order_by_target
from dataflow.state.parts import LIVE_FIELD, marked, number_field, rows_since_base

__all__ = ["NUMBER", "RowLog"]

NUMBER = "barrierflow:slice"
_ROWS, _BATCHES = 16_384, 256
"""The rows, and the batches, after which a piece takes no more."""
_MANY = 1024
"""The range of slices of a batch from which on they are sorted instead of counted."""


@dataclass(slots=True)
class _Piece:
    """Rows of a slice. ``first``: the first checkpoint that has them; None: none has."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    first: int | None = None


class RowLog:
    """Rows by slice. It is state for `Snapshot.logs`.

    Args:
        schema: the columns of the rows.

    >>> log = RowLog(pa.schema({"k": pa.int64()}))
    >>> log.add(3, pa.record_batch({"k": [7, 8]}))
    >>> log.add(5, pa.record_batch({"k": [9]}))
    >>> log.numbers.tolist(), log.rows(3, 5).to_pylist()
    ([3, 5], [{'k': 7}, {'k': 8}])
    >>> log.drop(4)
    >>> log.numbers.tolist()
    [5]
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._stored = pa.schema([*schema, number_field(NUMBER), LIVE_FIELD])
        self._slices: SortedDict[int, list[_Piece]] = SortedDict()

    @property
    def numbers(self) -> Numbers:
        """The slices with rows, in ascending order."""
        return np.fromiter(self._slices.keys(), np.int64, len(self._slices))

    @property
    def entries(self) -> int:
        """The number of rows."""
        return sum([piece.rows for pieces in self._slices.values() for piece in pieces])

    def add(self, number: int, batch: pa.RecordBatch) -> None:
        """Add rows of a slice, at least one."""
        pieces = self._slices.setdefault(number, [])
        if not pieces or pieces[-1].first is not None or _is_full(pieces[-1]):
            pieces.append(_Piece())
        piece = pieces[-1]
        piece.batches.append(batch)
        piece.rows += batch.num_rows
        if _is_full(piece) and len(piece.batches) > 1:
            piece.batches = [_joined(piece.batches, self.schema)]

    def rows(self, first: int, stop: int) -> pa.RecordBatch:
        """Return the rows of the slices ``first`` to ``stop`` - 1, in order of the slices and then of arrival."""
        numbers = self._slices.irange(first, stop, inclusive=(True, False))
        batches = [batch for number in numbers for piece in self._slices[number] for batch in piece.batches]
        return _joined(batches, self.schema)

    def count(self, number: int) -> int:
        """Return the number of rows of a slice."""
        return sum([piece.rows for piece in self._slices.get(number, ())])

    def keep(self, number: int, chosen: npt.NDArray[np.bool_]) -> None:
        """Keep only some rows of a slice; ``chosen`` has an entry for each of ``rows(number, number + 1)``.

        A checkpoint made of a base and deltas may still have the others.
        """
        pieces, begin = self._slices[number], 0
        for piece in pieces:
            own, begin = chosen[begin : begin + piece.rows], begin + piece.rows
            piece.batches = [_joined(piece.batches, self.schema).filter(to_array(own))]  # readers keep the old list
            piece.rows = piece.batches[0].num_rows
        self._slices[number] = [piece for piece in pieces if piece.rows]
        if not self._slices[number]:
            del self._slices[number]

    def drop(self, below: int) -> None:
        """Drop the slices before ``below``."""
        slices = self._slices
        while slices and slices.peekitem(0)[0] < below:
            slices.popitem(0)

    # --- checkpoints

    def freeze(self, checkpoint: int, since: int | None) -> Mapping[str, pa.RecordBatchReader]:
        """Return a reader of all rows, or of those that came after checkpoint ``since``."""
        frozen: list[tuple[int, list[pa.RecordBatch]]] = []
        for number, pieces in self._slices.items():
            for piece in pieces:
                if piece.first is None:
                    piece.first = checkpoint
                if since is None or piece.first > since:
                    frozen.append((number, piece.batches))
        schema = marked(self._stored, base=since is None)
        return {"rows": pa.RecordBatchReader.from_batches(schema, _stored_rows(frozen, schema))}

    def durable(self, checkpoint: int) -> None:
        """Do nothing: a piece knows its first checkpoint."""

    @property
    def stored(self) -> Mapping[str, pa.Schema]:
        """The columns of a checkpoint."""
        return {"rows": self._stored}

    def restore(self, parts: Sequence[Mapping[str, pa.Table]]) -> None:
        """Add the rows of checkpoints: the tables of a base and of the deltas after it. Raises: CheckpointDamaged."""
        for table in rows_since_base(parts, self._stored):
            for batch in table.to_batches():
                rows = pa.RecordBatch.from_arrays(batch.columns[: len(self.schema)], schema=self.schema)
                for number, chosen in by_number(to_numbers(batch.column(NUMBER))):
                    self.add(number, rows if chosen is None else rows.take(to_array(chosen)))
        for pieces in self._slices.values():
            for piece in pieces:
                piece.first = 0


def by_number(numbers: Numbers) -> Iterator[tuple[int, Slots | None]]:
    """Yield each of ``numbers`` once, in ascending order, and the rows that have it; None: all.

    >>> [(number, rows.tolist()) for number, rows in by_number(np.array([4, 2, 4]))]
    [(2, [1]), (4, [0, 2])]
    """
    if not len(numbers):
        return
    low, high = int(numbers.min()), int(numbers.max())
    if low == high:
        yield low, None
        return
    if high - low < _MANY:
        order, offsets = order_by_target((numbers - low).astype(np.int32), high - low + 1)
        parts = [order[start:stop] for start, stop in pairwise(offsets.tolist()) if stop > start]
    else:
        order = np.argsort(numbers, kind="stable").astype(np.int32)
        begins = np.flatnonzero(np.diff(numbers[order], prepend=numbers[order[0]] - 1))
        parts = np.split(order, begins[1:])
    for rows in parts:
        yield int(numbers[rows[0]]), rows


def _is_full(piece: _Piece) -> bool:
    return piece.rows >= _ROWS or len(piece.batches) >= _BATCHES


def _joined(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of ``batches`` as one batch."""
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return pa.RecordBatch.from_pylist([], schema)
    return pa.concat_batches(batches)


def _stored_rows(frozen: Sequence[tuple[int, list[pa.RecordBatch]]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for number, batches in frozen:
        rows = pa.concat_batches(batches) if len(batches) > 1 else batches[0]
        count = rows.num_rows
        own = [to_array(np.full(count, number, np.int64)), to_array(np.ones(count, np.bool_))]
        yield pa.RecordBatch.from_arrays([*rows.columns, *own], schema=schema)
