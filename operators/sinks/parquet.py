"""A directory of Parquet files, written exactly once: rows appear when the checkpoint that holds them completes."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from dataflow.errors import ConfigurationError, SchemaMismatch, StoreError
from dataflow.operator import Handle, OperatorContext, TwoPhaseSink
from dataflow.store.files import DISK, FileSystem, storing
from operators.sinks.parquet_files import OutputDirectory
from operators.sinks.parquet_writer import ParquetWriter

__all__ = ["Compression", "IfExists", "ParquetSink", "committed_files", "read_committed", "write_parquet"]

log = logging.getLogger("dataflow.parquet")

IfExists = Literal["error", "append", "overwrite"]
Compression = Literal["zstd", "snappy", "lz4", "gzip", "brotli", "none"]


class ParquetSink(TwoPhaseSink):
    """See ``write_parquet``."""

    def __init__(
        self,
        directory: Path,
        *,
        if_exists: IfExists,
        row_group_rows: int,
        row_group_bytes: int,
        compression: Compression,
        files: FileSystem,
    ) -> None:
        self._directory = OutputDirectory(directory, files=files)
        self._if_exists = if_exists
        self._row_group_rows = row_group_rows
        self._row_group_bytes = row_group_bytes
        self._compression = compression
        self._files = files

    def __repr__(self) -> str:
        return f"write_parquet({str(self._directory.path)!r})"

    @property
    def target(self) -> str:
        return os.path.realpath(self._directory.path)

    def check(self, schema: pa.Schema) -> None:
        if not schema.names:
            raise SchemaMismatch(f"{self!r}: rows have no columns, and Parquet cannot count rows without one")
        repeated = sorted({name for name in schema.names if schema.names.count(name) > 1})
        if repeated:
            raise SchemaMismatch(f"{self!r}: columns {repeated} appear more than once; rename them")
        for field in schema:
            try:
                pq.write_table(pa.schema([field]).empty_table(), pa.BufferOutputStream())
            except pa.ArrowException as error:
                raise SchemaMismatch(
                    f"{self!r}: Parquet has no place for column {field.name!r} of type {field.type} ({error}); cast it"
                ) from error

    def writer(self, context: OperatorContext) -> ParquetWriter:
        return ParquetWriter(
            context,
            self._directory,
            row_group_rows=self._row_group_rows,
            row_group_bytes=self._row_group_bytes,
            compression=self._compression,
            files=self._files,
        )

    def hold(self, run_id: str) -> AbstractContextManager[None]:
        return self._directory.hold(run_id)

    def begin(self) -> None:
        match self._if_exists:
            case "error":
                self._directory.refuse_output()
            case "append":
                self._directory.keep_output()
            case "overwrite":
                self._directory.remove_output()
        self._directory.make()
        self._directory.clean_staging()

    def commit(self, checkpoint: int, handles: Sequence[Handle]) -> None:
        self._directory.commit(checkpoint, handles)

    def recover(self, checkpoint: int, handles: Sequence[Handle]) -> None:
        """Commit ``handles``, delete all else that is staged, and take back what later checkpoints committed.

        Later ones are committed where an older one was restored, because the newest was damaged or the user asked for
        it: their rows come again. Readers may have seen them, so this is logged.
        """
        self._directory.make()
        self._directory.verify(checkpoint, handles)
        self._directory.commit(checkpoint, handles)
        self._directory.clean_staging()
        if rows := self._directory.take_back(checkpoint):
            log.warning("%r: %d rows committed after checkpoint %d are taken back", self, rows, checkpoint)


def write_parquet(
    directory: str | os.PathLike[str],
    *,
    if_exists: IfExists = "error",
    row_group_rows: int = 122_880,
    row_group_bytes: int = 64 << 20,
    compression: Compression = "zstd",
    files: FileSystem = DISK,
) -> ParquetSink:
    """Write rows to Parquet files in ``directory`` (made where missing), exactly once.

    One sink and one job at a time: a graph with two sinks of one directory raises GraphError, and a job that starts
    while another one writes there DirectoryInUse. A job that is killed leaves the directory free.

    A file is named ``part-<checkpoint>-<subtask>-<number>.parquet`` and appears whole, when its checkpoint completes;
    ``directory/**/*.parquet`` never finds anything else. A crash while checkpoint n commits may show part of n until
    the restart; ``read_committed`` gives all of a checkpoint or nothing of it.

    ``if_exists`` is for a fresh start into a directory with Parquet files: "error" raises OutputExists, "append" keeps
    them, "overwrite" deletes those this sink wrote (and raises OutputExists where there are others). Rows wait in
    memory until a row group has ``row_group_rows`` rows or ``row_group_bytes`` bytes; a barrier writes what there is.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     sink = write_parquet(directory)
    ...     sink.check(pa.schema({"x": pa.int64()}))
    ...     sink.begin()
    ...     committed_files(directory)
    []
    """
    if if_exists not in get_args(IfExists):
        raise ConfigurationError(f"if_exists= is one of {get_args(IfExists)}, got {if_exists!r}")
    if row_group_rows < 1 or row_group_bytes < 1:
        raise ConfigurationError(f"a row group has a row at least, got {row_group_rows} rows, {row_group_bytes} bytes")
    if compression not in get_args(Compression):
        raise ConfigurationError(f"compression= is one of {get_args(Compression)}, got {compression!r}")
    return ParquetSink(
        Path(directory),
        if_exists=if_exists,
        row_group_rows=row_group_rows,
        row_group_bytes=row_group_bytes,
        compression=compression,
        files=files,
    )


def committed_files(directory: str | os.PathLike[str], *, files: FileSystem = DISK) -> list[Path]:
    """The files of the checkpoints that are committed as a whole, oldest checkpoint first. Raises: StoreError."""
    output = OutputDirectory(Path(directory), files=files)
    names = [committed.file for listed in output.commits().values() for committed in listed]
    return [output.path / name for name in dict.fromkeys(names)]


def read_committed(directory: str | os.PathLike[str]) -> pa.Table:
    """The rows of all checkpoints that are committed as a whole.

    Raises: StoreError where there is none, or where a file of one is gone or cannot be read.
    """
    output = OutputDirectory(Path(directory), files=DISK)
    owners = {committed.file: checkpoint for checkpoint, listed in output.commits().items() for committed in listed}
    if not owners:
        raise StoreError(f"{directory}: no checkpoint is committed there yet, so there is not even a schema")
    return pa.concat_tables([_read(output.path / file, checkpoint) for file, checkpoint in owners.items()])


def _read(path: Path, checkpoint: int) -> pa.Table:
    owner = f"checkpoint {checkpoint}" if checkpoint else "an earlier job"
    listed = f"a file of {owner}, named in _commits/{checkpoint}.json"
    try:
        with storing("read", path):
            return pq.ParquetFile(path).read()
    except StoreError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        raise StoreError(
            f"{path}: {listed}, is gone; put it back, or read again if a job is replacing its output right now "
            "(committed_files() lists all that should be there)"
        ) from error
    except pa.ArrowException as error:
        raise StoreError(f"{path}: {listed}, is not whole ({error}); put the original back") from error
