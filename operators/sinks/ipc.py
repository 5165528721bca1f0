"""Arrow IPC files (also called Feather, version 2), written exactly once: what other Arrow programs map into memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow as pa

from dataflow.store.files import DISK, FileSystem
from operators.sinks.files import ROW_GROUP_BYTES, ROW_GROUP_ROWS, FileSink, IfExists, chosen
from operators.sinks.formats import FileFormat, Form, TableWriter

__all__ = ["IpcFormat", "write_ipc"]

Compression = Literal["lz4", "zstd", "none"]


class IpcFormat(FileFormat):
    """The IPC file format, in which a dictionary stands once for all batches.

    The format knows deltas for dictionaries that grow, but not all readers do (polars 2 refuses them), so a table whose
    dictionary has values that the file's has not begins another file.
    """

    name: ClassVar[str] = "ipc"
    title: ClassVar[str] = "Arrow IPC"

    def __init__(self, *, compression: Compression) -> None:
        self._compression = None if compression == "none" else compression

    def open(self, target: Any, schema: pa.Schema) -> TableWriter:
        return _Writer(pa.ipc.new_file(target, schema, options=pa.ipc.IpcWriteOptions(compression=self._compression)))

    @staticmethod
    def read(path: Path, form: Form) -> pa.Table:
        with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
            return reader.read_all()


class _Writer:
    def __init__(self, ipc: pa.ipc.RecordBatchFileWriter) -> None:
        self._ipc = ipc
        self._seen: pa.Table | None = None  # a row at most, for the sake of its dictionaries

    def write(self, table: pa.Table) -> bool:
        known = [] if self._seen is None else [self._seen]
        united = pa.concat_tables([*known, table]).unify_dictionaries()  # known values keep their places
        rows = united.slice(sum(t.num_rows for t in known)).combine_chunks()
        try:
            for batch in rows.to_batches():
                self._ipc.write_batch(batch)
        except pa.ArrowInvalid as error:
            if self._seen is None or "ictionary replacement" not in str(error):
                raise
            return False  # raised before a byte of the batch was written
        self._seen = rows.slice(0, 1)
        return True

    def close(self) -> None:
        self._ipc.close()


def write_ipc(
    directory: str | os.PathLike[str],
    *,
    if_exists: IfExists = "error",
    batch_rows: int = ROW_GROUP_ROWS,
    batch_bytes: int = ROW_GROUP_BYTES,
    compression: Compression = "lz4",
    files: FileSystem = DISK,
) -> FileSink:
    """Write rows to Arrow IPC files in ``directory``, exactly once: ``part-<checkpoint>-<subtask>-<number>.arrow``.

    Any Arrow type can be written. ``pyarrow.feather``, pandas' ``read_feather`` and polars' ``read_ipc`` read the
    files. Rows wait in memory until a record batch has ``batch_rows`` rows or ``batch_bytes`` bytes. Directories,
    ``if_exists`` and what a crash may leave are as in ``write_parquet``.

    >>> write_ipc("out", compression="zstd")
    write_ipc('out')
    """
    chosen("compression", compression, Compression)
    format_ = IpcFormat(compression=compression)
    return FileSink(directory, format_, if_exists=if_exists, rows=batch_rows, size=batch_bytes, files=files)
