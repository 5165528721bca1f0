"""Arrow IPC files (also called Feather, version 2), written exactly once. Other Arrow programs can memory-map them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow as pa

from dataflow.store.files import DISK, FileSystem
from operators.sinks.files import ROW_GROUP_BYTES, ROW_GROUP_ROWS, FileSink, IfExists, chosen
from operators.sinks.formats import FileFormat, Form, TableWriter

__all__ = ["IpcFormat", "IpcSink", "write_ipc"]

Compression = Literal["lz4", "zstd", "none"]


class IpcFormat(FileFormat):
    """The IPC file format, in which all batches of a file share one dictionary per column.

    The format has deltas for dictionaries that grow, but not all readers support them (polars 2 does not). So a table
    with values that are not in the file's dictionary begins another file. The dictionary of that file has all values so
    far, unless they need more bytes than the rows. If distinct values are few, there is soon no new one.
    """

    name: ClassVar[str] = "ipc"
    title: ClassVar[str] = "Arrow IPC"

    def __init__(self, *, compression: Compression) -> None:
        self._compression = None if compression == "none" else compression

    def open(self, target: Any, schema: pa.Schema) -> TableWriter:
        return _Writer(pa.ipc.new_file(target, schema, options=pa.ipc.IpcWriteOptions(compression=self._compression)))

    @staticmethod
    def schema(path: Path, form: Form | None) -> pa.Schema:
        with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
            return reader.schema

    @staticmethod
    def read(path: Path, form: Form | None) -> pa.Table:
        with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
            return reader.read_all()


class _Writer:
    def __init__(self, ipc: pa.ipc.RecordBatchFileWriter) -> None:
        self._ipc = ipc
        self._seen: pa.Table | None = None  # at most one row, kept for its dictionaries

    def write(self, table: pa.Table) -> pa.Table | None:
        known = [] if self._seen is None else [self._seen]
        united = pa.concat_tables([*known, table]).unify_dictionaries()  # known values keep their indices
        rows = united.slice(sum(t.num_rows for t in known)).combine_chunks()
        try:
            for batch in rows.to_batches():
                self._ipc.write_batch(batch)
        except pa.ArrowInvalid as error:
            if self._seen is None or "ictionary replacement" not in str(error):
                raise
            outweigh = rows.get_total_buffer_size() > 2 * table.get_total_buffer_size()  # raised before it wrote a byte
            return table if outweigh else rows
        self._seen = rows.slice(0, 1)
        return None

    def close(self) -> None:
        self._ipc.close()


class IpcSink(FileSink):
    """The sink that ``write_ipc`` makes."""


def write_ipc(
    directory: str | os.PathLike[str],
    *,
    if_exists: IfExists = "error",
    batch_rows: int = ROW_GROUP_ROWS,
    batch_bytes: int = ROW_GROUP_BYTES,
    compression: Compression = "lz4",
    files: FileSystem = DISK,
) -> IpcSink:
    """Write rows to Arrow IPC files in ``directory``, exactly once: ``part-<checkpoint>-<subtask>-<number>.arrow``.

    Any Arrow type can be written. A file has one dictionary per column, so new values begin another file, and a
    dictionary column whose values rarely repeat makes a file of each record batch: cast it. ``pyarrow.feather``,
    pandas' ``read_feather`` and polars' ``read_ipc`` read the files.

    Args:
        directory: as in ``write_parquet``, also after a crash.
        if_exists: as in ``write_parquet``.
        batch_rows: rows wait in memory until a record batch has this many ...
        batch_bytes: ... or this many bytes.
        compression: of the buffers.
        files: the file system, for tests.

    Returns: a sink.

    Raises: ConfigurationError for settings out of range.

    >>> write_ipc("out", compression="zstd")
    write_ipc('out')
    """
    chosen("compression", compression, Compression)
    format_ = IpcFormat(compression=compression)
    return IpcSink(directory, format_, if_exists=if_exists, rows=batch_rows, size=batch_bytes, files=files)
