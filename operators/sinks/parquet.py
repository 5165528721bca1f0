"""Parquet files, written exactly once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from dataflow.store.files import DISK, FileSystem
from operators.sinks.files import (
    ROW_GROUP_BYTES,
    ROW_GROUP_ROWS,
    FileSink,
    IfExists,
    chosen,
    committed_files,
    read_committed,
)
from operators.sinks.formats import FileFormat, Form, TableWriter, quoted
from operators.sinks.partitions import column_names

__all__ = [
    "Compression",
    "IfExists",
    "ParquetFormat",
    "ParquetSink",
    "committed_files",
    "read_committed",
    "write_parquet",
]

Compression = Literal["zstd", "snappy", "lz4", "gzip", "brotli", "none"]


class ParquetFormat(FileFormat):
    """The Parquet format. A table becomes row groups of at most ``row_group_rows`` rows."""

    name: ClassVar[str] = "parquet"
    title: ClassVar[str] = "Parquet"

    def __init__(self, *, compression: Compression, row_group_rows: int) -> None:
        self._compression = compression
        self._row_group_rows = row_group_rows

    def open(self, target: Any, schema: pa.Schema) -> TableWriter:
        return _Writer(pq.ParquetWriter(target, schema, compression=self._compression), self._row_group_rows)

    def form(self, schema: pa.Schema) -> None:
        return None  # the first commit lists had no forms, only Parquet

    def ways_to_read(self, pattern: str, *, in_folders: bool) -> Mapping[str, str]:
        duckdb = f"FROM read_parquet({quoted(pattern)}, union_by_name=true)"
        return {**super().ways_to_read(pattern, in_folders=in_folders), "DuckDB": duckdb}

    @staticmethod
    def schema(path: Path, form: Form | None) -> pa.Schema:
        return pq.read_schema(path)

    @staticmethod
    def read(path: Path, form: Form | None) -> pa.Table:
        return pq.ParquetFile(path).read()


class _Writer:
    def __init__(self, parquet: pq.ParquetWriter, row_group_rows: int) -> None:
        self._parquet = parquet
        self._row_group_rows = row_group_rows

    def write(self, table: pa.Table) -> None:
        self._parquet.write_table(table, row_group_size=self._row_group_rows)

    def close(self) -> None:
        self._parquet.close()


class ParquetSink(FileSink):
    """The sink that ``write_parquet`` makes."""


def write_parquet(
    directory: str | os.PathLike[str],
    *,
    if_exists: IfExists = "error",
    row_group_rows: int = ROW_GROUP_ROWS,
    row_group_bytes: int = ROW_GROUP_BYTES,
    compression: Compression = "zstd",
    partition_by: str | Sequence[str] | None = None,
    files: FileSystem = DISK,
) -> ParquetSink:
    """Write rows to Parquet files in ``directory``, exactly once.

    One sink and one job can use a directory at a time: a graph with two sinks of one directory raises GraphError, and a
    job that starts while another one writes there raises DirectoryInUse. A killed job leaves the directory free.

    A file is named ``part-<checkpoint>-<subtask>-<number>.parquet`` and appears whole, when its checkpoint completes;
    ``directory/**/*.parquet`` never matches anything else. A crash while checkpoint n commits may show part of n until
    the restart; ``read_committed`` returns all of a checkpoint or nothing of it.

    Args:
        directory: a local directory, made if it does not exist.
        if_exists: for a fresh start in a directory with Parquet files: "error" raises OutputExists, "append" keeps
            them, "overwrite" deletes those that this sink wrote (and raises OutputExists if there are others). With
            "append" the rows must have the columns of the newest committed file, in the same order, of the same Parquet
            types, and in the same partition folders; otherwise the job raises SchemaMismatch or OutputExists before it
            writes anything.
        row_group_rows: rows wait in memory until a row group has this many ...
        row_group_bytes: ... or this many bytes; a barrier writes all that are waiting.
        compression: of the columns' pages.
        partition_by: names of columns of text, integers, booleans or dates. Rows are divided into folders
            ``name=value``, the first column outermost, and files do not hold these columns. Values are escaped as in
            URLs, and a null is ``__HIVE_DEFAULT_PARTITION__``, as DuckDB, polars, pyarrow and Spark read it;
            ``read_committed`` returns all columns with their types. ``row_group_rows`` and ``row_group_bytes`` count
            the rows of all partitions together, and each writer holds at most 32 files open. A restore must not change
            it.
        files: the file system, for tests.

    Returns: a sink.

    Raises: ConfigurationError for settings out of range; ValueError, while the job runs, for a value that needs a
    longer name than a folder can have.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     sink = write_parquet(directory)
    ...     sink.check(pa.schema({"x": pa.int64()}))
    ...     sink.begin()
    ...     committed_files(directory)
    []
    """
    chosen("compression", compression, Compression)
    return ParquetSink(
        directory,
        ParquetFormat(compression=compression, row_group_rows=row_group_rows),
        if_exists=if_exists,
        rows=row_group_rows,
        size=row_group_bytes,
        partition_by=column_names(partition_by),
        files=files,
    )
