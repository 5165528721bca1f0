"""A watched directory as an input that ends, once nothing is new."""

from __future__ import annotations

import pyarrow as pa

from dataflow.source import END, EndOfSplit, Json, Source, SourceContext, Split, SplitReader

__all__ = ["UntilQuiet"]


class UntilQuiet(Source):
    """A watched directory whose splits end once nothing is new, so that a job over it does."""

    def __init__(self, source: Source) -> None:
        self.source = source

    @property
    def schema(self) -> pa.Schema:
        return self.source.schema

    def splits(self) -> tuple[Split, ...]:
        return tuple(self.source.splits())

    def check(self, split: Split) -> None:
        self.source.check(split)

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        return _UntilQuiet(self.source.reader(split, offset, context))


class _UntilQuiet(SplitReader):
    def __init__(self, reader: SplitReader) -> None:
        self.reader = reader

    def poll(self, max_rows: int) -> pa.RecordBatch | EndOfSplit:  # type: ignore[override]
        batch = self.reader.poll(min(max_rows, 3))
        return END if batch is None else batch

    @property
    def offset(self) -> Json:
        return self.reader.offset

    def close(self) -> None:
        self.reader.close()
