"""A watched directory as an input that ends: once so many names were read, if that is asked, and nothing is new."""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa

from dataflow.contracts.source import END, EndOfSplit, Json, Source, SourceContext, Split, SplitReader

__all__ = ["UntilQuiet"]


class UntilQuiet(Source):
    """A watched directory whose splits end once nothing is new, so that a job over it ends.

    Args:
        rows: the most rows that a poll returns.
        names: the number of files that must have been read before; None: any.
    """

    def __init__(self, source: Source, rows: int = 3, names: int | None = None) -> None:
        self.source = source
        self.rows = rows
        self.names = names

    @property
    def schema(self) -> pa.Schema:
        return self.source.schema

    def splits(self) -> tuple[Split, ...]:
        return tuple(self.source.splits())

    def check(self, split: Split) -> None:
        self.source.check(split)

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        return _UntilQuiet(self.source.reader(split, offset, context), self.rows, self.names)


class _UntilQuiet(SplitReader):
    def __init__(self, reader: SplitReader, rows: int, names: int | None) -> None:
        self.reader = reader
        self.rows = rows
        self.names = names

    def poll(self, max_rows: int) -> pa.RecordBatch | EndOfSplit | None:  # type: ignore[override]
        batch = self.reader.poll(min(max_rows, self.rows))
        return END if batch is None and self.names in (None, self._read()) else batch

    def _read(self) -> int:
        """Return how many names the offset has: eight bytes each."""
        at: Any = self.offset
        return len(base64.b64decode(at["names"])) // 8

    @property
    def offset(self) -> Json:
        return self.reader.offset

    def close(self) -> None:
        self.reader.close()
