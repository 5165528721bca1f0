"""The formats of the file sink, each with programs that know nothing of us and read its files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pc_csv
import pyarrow.json as pc_json
import pyarrow.parquet as pq

from dataflow.store.files import DISK, FileSystem
from operators.sinks.csv import CsvFormat
from operators.sinks.files import FileSink
from operators.sinks.formats import FileFormat
from operators.sinks.ipc import IpcFormat
from operators.sinks.json_lines import JsonLinesFormat
from operators.sinks.parquet import ParquetFormat

__all__ = ["IN_FOLDERS", "KINDS", "Kind"]

Rows = list[dict[str, Any]]


def arrow_rows(read: Callable[[str], pa.Table]) -> Callable[[list[Path]], Rows]:
    """What pyarrow reads, file by file."""
    return lambda files: [row for file in files for row in read(str(file)).to_pylist()]


def polars_rows(read: Callable[[str], pl.DataFrame]) -> Callable[[list[Path]], Rows]:
    return lambda files: [row for file in files for row in read(str(file)).to_dicts()]


def pandas_rows(read: Callable[[str], pd.DataFrame]) -> Callable[[list[Path]], Rows]:
    return lambda files: [row for file in files for row in read(str(file)).to_dict("records")]


def duck_rows(function: str) -> Callable[[list[Path]], Rows]:
    """What DuckDB reads, all files at once."""

    def read(files: list[Path]) -> Rows:
        if not files:
            return []
        names = [str(file) for file in files]
        relation = duckdb.sql(f"select * from {function}({names})")
        return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]

    return read


@dataclass(frozen=True, slots=True)
class Kind:
    """A format, and readers of its files by name; the first is the quickest."""

    format: FileFormat
    readers: dict[str, Callable[[list[Path]], Rows]]
    partition_by: tuple[str, ...] = ()
    every: int = 1
    """Tests that disturb each operation of the disk in turn take every so many of them."""

    def sink(self, path: Path, *, rows: int = 1, files: FileSystem = DISK, **options: Any) -> FileSink:
        """A sink whose files grow row by row."""
        return FileSink(path, self.format, rows=rows, files=files, partition_by=self.partition_by, **options)

    def rows(self, x: int) -> pa.RecordBatch:
        """A row with ``x``, and with what it is partitioned by: every fourth value is null."""
        by = {name: pa.array([[None, "a/b", "..", ""][x % 4]], pa.string()) for name in self.partition_by}
        return pa.record_batch({"x": pa.array([x]), **by})

    def files(self, path: Path) -> list[Path]:
        """Every file that a glob for the suffix finds."""
        return sorted(path.rglob(f"*{self.format.suffix}"))

    def read(self, reader: str, path: Path) -> Rows:
        return self.readers[reader](self.files(path))


KINDS = {
    "parquet": Kind(
        ParquetFormat(compression="zstd", row_group_rows=1),
        {
            "pyarrow": arrow_rows(lambda file: pq.ParquetFile(file).read()),
            "duckdb": duck_rows("read_parquet"),
            "polars": polars_rows(pl.read_parquet),
            "pandas": pandas_rows(pd.read_parquet),
        },
    ),
    "csv": Kind(
        CsvFormat(header=True, delimiter=",", quoting="needed", null_text="", compression="none"),
        {
            "pyarrow": arrow_rows(pc_csv.read_csv),
            "duckdb": duck_rows("read_csv"),
            "polars": polars_rows(pl.read_csv),
            "pandas": pandas_rows(pd.read_csv),
        },
    ),
    "csv.gz": Kind(
        CsvFormat(header=True, delimiter=",", quoting="needed", null_text="", compression="gzip"),
        {
            "pyarrow": arrow_rows(pc_csv.read_csv),
            "duckdb": duck_rows("read_csv"),
            "polars": polars_rows(pl.read_csv),
            "pandas": pandas_rows(pd.read_csv),
        },
    ),
    "json": Kind(
        JsonLinesFormat(compression="none"),
        {
            "pyarrow": arrow_rows(pc_json.read_json),
            "duckdb": duck_rows("read_json"),
            "polars": polars_rows(pl.read_ndjson),
            "pandas": pandas_rows(lambda file: pd.read_json(file, lines=True)),
        },
    ),
    "json.zst": Kind(
        JsonLinesFormat(compression="zstd"),
        {
            "pyarrow": arrow_rows(pc_json.read_json),
            "duckdb": duck_rows("read_json"),
            "polars": polars_rows(pl.read_ndjson),
        },
    ),
    "ipc": Kind(
        IpcFormat(compression="lz4"),
        {
            "pyarrow": arrow_rows(lambda file: pa.ipc.open_file(file).read_all()),
            "polars": polars_rows(lambda file: pl.read_ipc(file)),
            "pandas": pandas_rows(pd.read_feather),
        },
    ),
}

IN_FOLDERS = replace(KINDS["parquet"], partition_by=("k",))
"""Parquet files in partition folders; its rows need a column ``k``."""
