"""A watched directory as an input that ends, once nothing is new."""

from __future__ import annotations

import pyarrow as pa

from dataflow.source import END, EndOfSplit, Json, Source, SourceContext, Split, SplitReader

__all__ = ["UntilQuiet"]


class UntilQuiet(Source):
    """A watched directory whose splits end once nothing is new, so that a job over it ends; few ``rows`` at a time."""

    def __init__(self, source: Source, rows: int = 3) -> None:
        self.source = source
        self.rows = rows

    @property
    def schema(self) -> pa.Schema:
        return self.source.schema

    def splits(self) -> tuple[Split, ...]:
        return tuple(self.source.splits())

    def check(self, split: Split) -> None:
        self.source.check(split)

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        return _UntilQuiet(self.source.reader(split, offset, context), self.rows)


class _UntilQuiet(SplitReader):
    def __init__(self, reader: SplitReader, rows: int) -> None:
        self.reader = reader
        self.rows = rows

    def poll(self, max_rows: int) -> pa.RecordBatch | EndOfSplit:  # type: ignore[override]
        batch = self.reader.poll(min(max_rows, self.rows))
        return END if batch is None else batch

    @property
    def offset(self) -> Json:
        return self.reader.offset

    def close(self) -> None:
        self.reader.close()
