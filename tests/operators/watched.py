"""A watched directory as an input that ends, for jobs that come to an end: once so many names were read."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pyarrow as pa

from dataflow.source import END, EndOfSplit, Json, Source, SourceContext, Split, SplitReader
from operators import read_csv, watch

__all__ = ["FirstNames", "bring"]


def bring(elsewhere: Path, inbox: Path) -> None:
    """Move what is ``elsewhere`` into a watched directory, as it is; somebody else may be at it, too."""
    for file in sorted(elsewhere.glob("*.csv")):
        file.rename(inbox / file.name)


class FirstNames(Source):
    """The first ``names`` files of a directory of CSV files with a column x, three rows at a time."""

    def __init__(self, directory: Path, names: int) -> None:
        self.source = watch(directory, read_csv, schema={"x": pa.int64()}, every="1us", remember=1)
        self.names = names

    @property
    def schema(self) -> pa.Schema:
        return self.source.schema

    def splits(self) -> tuple[Split, ...]:
        return tuple(self.source.splits())

    def check(self, split: Split) -> None:
        self.source.check(split)

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        return _FirstNames(self.source.reader(split, offset, context), self.names)


class _FirstNames(SplitReader):
    def __init__(self, reader: SplitReader, names: int) -> None:
        self.reader = reader
        self.names = names

    def poll(self, max_rows: int) -> pa.RecordBatch | EndOfSplit | None:  # type: ignore[override]
        batch = self.reader.poll(min(max_rows, 3))
        at: Any = self.offset
        return END if batch is None and len(base64.b64decode(at["names"])) == 8 * self.names else batch

    @property
    def offset(self) -> Json:
        return self.reader.offset

    def close(self) -> None:
        self.reader.close()
