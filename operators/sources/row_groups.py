"""How the row groups of a Parquet file become splits and batches.

Writers choose small row groups (pandas and Polars some 100,000 rows), and a batch of the engine should be larger: each
one costs time in every operator, whatever it holds. So neighbouring row groups are put together. Event time moves by
source batches, so they depend on nothing but the footer and the options: neither on the columns that are read, nor on
the parallelism, nor on speed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    import pyarrow.parquet as pq

__all__ = ["BATCH_BYTES", "MOST_ROWS", "GroupSizes", "DecodedRows", "Piece", "SplitBy", "SplitLayout"]

MOST_ROWS: Final = 1 << 19
"""The most rows of a batch, and of a split that has several row groups."""
BATCH_BYTES: Final = 64 << 20
"""The most bytes of a batch: all columns of the file, uncompressed, as the footer has them."""

SplitBy = Literal["auto", "row_group", "file"]


@dataclass(frozen=True, slots=True)
class GroupSizes:
    """The rows and the uncompressed bytes of each row group of a file.

    >>> sizes = GroupSizes([300_000, 200_000, 100_000, 900_000], [0, 0, 0, 0])
    >>> sizes.splits("auto")
    [range(0, 2), range(2, 3), range(3, 4)]
    >>> sizes.splits("file"), len(sizes.splits("row_group"))
    ([range(0, 4)], 4)
    """

    rows: Sequence[int]
    bytes: Sequence[int]

    @classmethod
    def of(cls, metadata: pq.FileMetaData) -> GroupSizes:
        """Return the sizes that a footer has."""
        groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
        return cls([group.num_rows for group in groups], [max(0, group.total_byte_size) for group in groups])

    def splits(self, by: SplitBy) -> list[range]:
        """Return the row groups of each split.

        Args:
            by: ``"file"``: one split; ``"row_group"``: one each; ``"auto"``: runs of neighbours of at most
                ``MOST_ROWS`` rows, a larger row group alone.
        """
        groups = range(len(self.rows))
        if by == "file":
            return [groups]
        return [range(group, group + 1) for group in groups] if by == "row_group" else list(self._runs(groups))

    def layout(self, groups: range, batch_rows: int | None) -> SplitLayout:
        """Return the batches of a split that has the row groups ``groups``.

        Args:
            groups: neighbouring row groups.
            batch_rows: the rows of a batch, across row groups; None: whole row groups of at most ``MOST_ROWS`` rows and
                ``BATCH_BYTES`` together, and parts of a larger row group.
        """
        total = sum(self.rows[group] for group in groups)
        if batch_rows is not None:
            ends = [*range(batch_rows, total, batch_rows), total]
            return SplitLayout([Piece(0, groups, batch_rows)], ends, self.rows)
        pieces, ends, start = [], [], 0
        for run in self._runs(groups, BATCH_BYTES):
            rows = sum(self.rows[group] for group in run)
            piece = Piece(start, run, self._batch_of(run))
            pieces.append(piece)
            ends += [*range(start + piece.batch_rows, start + rows, piece.batch_rows), start + rows]
            start += rows
        return SplitLayout(pieces, ends, self.rows)

    def _runs(self, groups: range, most_bytes: int | None = None) -> Iterator[range]:
        """Yield neighbours that have at most ``MOST_ROWS`` rows and ``most_bytes`` together."""
        first, rows, size = groups.start, 0, 0
        for group in groups:
            rows, size = rows + self.rows[group], size + self.bytes[group]
            if group > first and (rows > MOST_ROWS or (most_bytes is not None and size > most_bytes)):
                yield range(first, group)
                first, rows, size = group, self.rows[group], self.bytes[group]
        if first < groups.stop:
            yield range(first, groups.stop)

    def _batch_of(self, run: range) -> int:
        """Return the rows of a batch of ``run``: all of them, unless it is one row group that is too large."""
        rows, size = sum(self.rows[group] for group in run), sum(self.bytes[group] for group in run)
        within = rows if size <= BATCH_BYTES else max(1, rows * BATCH_BYTES // size)
        return max(1, min(rows, within, MOST_ROWS))


@dataclass(frozen=True, slots=True)
class Piece:
    """Row groups that are decoded in one go, from row ``start`` of the split on, ``batch_rows`` rows at a time."""

    start: int
    groups: Sequence[int]
    batch_rows: int


@dataclass(frozen=True, slots=True)
class SplitLayout:
    """The batches of a split. ``ends`` has the row after each batch; ``rows`` those of each row group of the file.

    The row groups ``pruned`` are not decoded. Their rows keep their numbers, so batches end where they would without.

    >>> layout = GroupSizes([300_000, 200_000, 100_000, 900_000], [0, 0, 0, 0]).layout(range(4), None)
    >>> layout.ends
    [500000, 600000, 1124288, 1500000]
    >>> layout.end_of_batch(499_999), layout.end_of_batch(500_000)
    (500000, 600000)
    >>> layout.after(450_000)[0]
    Piece(start=300000, groups=[1], batch_rows=500000)
    """

    pieces: Sequence[Piece]
    ends: Sequence[int]
    rows: Sequence[int]
    pruned: Set[int] = frozenset()

    def without(self, pruned: Set[int]) -> SplitLayout:
        """Return the same batches, of which the row groups ``pruned`` are not decoded."""
        return replace(self, pruned=pruned)

    @property
    def total(self) -> int:
        """The number of rows, pruned ones included."""
        return self.ends[-1] if self.ends else 0

    def end_of_batch(self, row: int) -> int:
        """Return the first row after the batch of ``row``; after the last row, the number of rows."""
        return self.ends[min(bisect_right(self.ends, row), len(self.ends) - 1)]

    def is_between(self, row: int) -> bool:
        """Return whether a batch ends before ``row``."""
        place = bisect_left(self.ends, row)
        return row == 0 or (place < len(self.ends) and self.ends[place] == row)

    def rows_of(self, piece: Piece) -> int:
        """Return the number of rows of ``piece``."""
        return sum(self.rows[group] for group in piece.groups)

    def after(self, row: int) -> list[Piece]:
        """Return what must be decoded to read from ``row`` on, without the row groups that end before it."""
        rest = []
        for piece in self.pieces:
            places = [(start, group) for start, group in self._places(piece) if start + self.rows[group] > row]
            if places:
                rest.append(Piece(places[0][0], [group for _, group in places], piece.batch_rows))
        return rest

    def kept(self) -> DecodedRows:
        """Return the rows that are decoded."""
        kept = DecodedRows([], [0])
        for start, group in (place for piece in self.pieces for place in self._places(piece)):
            kept.starts.append(start)
            kept.before.append(kept.before[-1] + self.rows[group])
        return kept

    def _places(self, piece: Piece) -> list[tuple[int, int]]:
        """Return the first row and the number of each row group that is decoded."""
        starts = accumulate((self.rows[group] for group in piece.groups), initial=piece.start)
        places = zip(starts, piece.groups, strict=False)
        return [(start, group) for start, group in places if self.rows[group] and group not in self.pruned]


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """The rows of a split that are decoded. ``starts`` has the first row of each row group, ``before`` the number of
    decoded rows ahead of it, and at the end of all.

    >>> layout = GroupSizes([10, 10, 10], [0, 0, 0]).layout(range(3), None).without({1})
    >>> kept = layout.kept()
    >>> kept.count(15), kept.count(25), kept.row_after(10), kept.row_after(11)
    (10, 15, 10, 21)
    """

    starts: list[int]
    before: list[int]

    def count(self, row: int) -> int:
        """Return the number of decoded rows ahead of ``row``."""
        place = bisect_right(self.starts, row) - 1
        return 0 if place < 0 else min(self.before[place] + row - self.starts[place], self.before[place + 1])

    def row_after(self, count: int) -> int:
        """Return the row after the first ``count`` (at least one) decoded rows."""
        place = bisect_left(self.before, count) - 1
        return self.starts[place] + count - self.before[place]
