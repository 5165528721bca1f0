"""Text columns that a Parquet reader decodes as dictionaries, until their values no longer repeat.

The planner measures only the first row group. A dictionary of distinct values costs more than text: every value is
hashed, and every entry is interned. So a reader that finds more entries than a quarter of the rows gives text from that
batch on, and the next readers of its subtask do, too. Operators take both (`Source.may_be_text`).

The last row group of a file may be small, and then has many entries for its rows. So row groups count together until
they have as many rows as the largest one of the file.

This code assumes of pyarrow: a batch ends where a row group ends; the dictionary of a row group that was written as one
is whole in each batch, else it grows with the rows read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import pyarrow as pa
from pyarrow import types

from dataflow.contracts.row_errors import RowTally
from dataflow.contracts.tuning import Choice

__all__ = ["ENTRIES", "Dictionaries"]

ENTRIES: Final = 4
"""Rows that an entry of a dictionary must stand for, for dictionaries to pay."""
ENOUGH: Final = 1 << 17
"""The most rows that must be looked at before a dictionary is given up."""


class Dictionaries:
    """Decides which of ``columns`` have become text. ``text`` are those that an earlier reader gave as text.

    ``largest`` is the number of rows of the largest row group of the file.
    """

    def __init__(self, columns: Sequence[str], text: frozenset[str], tally: RowTally, largest: int) -> None:
        self.text = text
        self._columns = columns
        self._tally = tally
        self._enough = min(largest, ENOUGH)
        self._groups: list[int] = []
        self._read = 0
        self._first: dict[str, int] = {}  # entries that a column had in the first batch of the row group
        self._last: dict[str, tuple[int, int]] = {}  # rows and entries of the row group so far
        self._before: dict[str, tuple[int, int]] = {}  # of the row groups before it, if they were not enough

    def begin(self, groups: Sequence[int]) -> None:
        """Begin to read row groups with these numbers of rows, one after the other."""
        self._end_group()
        self._groups, self._read = list(groups), 0

    def look(self, batch: pa.RecordBatch) -> None:
        """Decide, by the next batch that was decoded."""
        while self._groups and self._read >= self._groups[0]:
            self._read -= self._groups.pop(0)
            self._end_group()
        self._read += batch.num_rows
        for name in self._columns:
            column = None if name in self.text else batch.column(name)
            if column is None or not types.is_dictionary(column.type):
                continue
            entries = len(column.dictionary)
            grows = self._first.setdefault(name, entries) < entries
            size = max(self._read, *self._groups[:1])
            self._last[name] = size, entries
            together, entries = self._together(name)
            rows = together - size + self._read if grows else together
            if together >= self._enough and entries * ENTRIES > rows:
                self.text |= {name}
                self._tally.report(partial(_dropped, name, entries, rows))

    def _together(self, name: str) -> tuple[int, int]:
        """Return the rows of the row groups that are looked at together, and the entries of a column there so far."""
        (before, old), (rows, new) = self._before.get(name, (0, 0)), self._last.get(name, (0, 0))
        return before + rows, old + new

    def _end_group(self) -> None:
        together = {name: self._together(name) for name in self._last}
        self._before = {name: found for name, found in together.items() if found[0] < self._enough}
        self._first, self._last = {}, {}


def _dropped(column: str, entries: int, rows: int) -> Choice:
    reason = "later row groups had {entries:,} entries for {rows:,} rows; at most a quarter pays"
    return Choice("dictionary", "text from then on", reason, {"entries": entries, "rows": rows}, part=column)
