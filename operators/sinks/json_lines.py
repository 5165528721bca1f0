"""JSON lines (NDJSON), written exactly once: one object per row. ``json_text`` makes the text."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.json as pc_json

from dataflow.store.files import DISK, FileSystem
from operators.sinks.compressed import COMPRESSED_SUFFIX, TextCompression, compressed, opened
from operators.sinks.files import ROW_GROUP_BYTES, ROW_GROUP_ROWS, FileSink, IfExists, chosen
from operators.sinks.formats import FileFormat, Form, TableWriter, encoded, polars_by_name, quoted
from operators.sinks.json_text import json_lines
from operators.sinks.restoring import carrier, restored

__all__ = ["JsonLinesFormat", "JsonLinesSink", "write_json"]

_ROWS: Final = 16_384
_BYTES: Final = 16 << 20
_LARGEST_BLOCK: Final = (1 << 31) - 1


class JsonLinesFormat(FileFormat):
    """One JSON object per line; a commit list stores the types, for ``read_committed``."""

    name: ClassVar[str] = "json"
    title: ClassVar[str] = "JSON"

    def __init__(self, *, compression: TextCompression) -> None:
        self._compression: TextCompression = compression

    @property
    def suffix(self) -> str:
        return super().suffix + COMPRESSED_SUFFIX[self._compression]

    def open(self, target: Any, schema: pa.Schema) -> TableWriter:
        return _Writer(compressed(target, self._compression))

    def form(self, schema: pa.Schema) -> Form:
        return Form(self.name, encoded(schema))

    def ways_to_read(self, pattern: str, *, in_folders: bool) -> Mapping[str, str]:
        polars = polars_by_name(pattern, "pl.scan_ndjson(f)", "diagonal_relaxed")
        return {"polars": polars, "DuckDB": f"FROM read_json({quoted(pattern)}, union_by_name=true)"}

    @staticmethod
    def read(path: Path, form: Form | None) -> pa.Table:
        assert form is not None, f"{path} is listed without its columns"
        schema = form.arrow_schema()
        with opened(path) as file:
            text = file.read()
        table = pc_json.read_json(
            pa.BufferReader(text),
            read_options=pc_json.ReadOptions(block_size=min(max(len(text), 1), _LARGEST_BLOCK)),
            parse_options=pc_json.ParseOptions(
                explicit_schema=pa.schema([(field.name, carrier(field.type)) for field in schema]),
                newlines_in_values=False,
                unexpected_field_behavior="error",
            ),
        )
        return restored(table, schema)


class _Writer:
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, table: pa.Table) -> None:
        for batch in _slices(table):
            lines = json_lines(batch)
            _, offsets, data = lines.buffers()
            if data is not None:
                self._stream.write(data.slice(0, int(memoryview(offsets).cast("i")[len(lines)])))

    def close(self) -> None:
        self._stream.close()


def _slices(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield batches whose text fits into one Arrow array of text; an empty one if there are no rows."""
    nothing = pa.RecordBatch.from_arrays([pa.nulls(0, type_) for type_ in table.schema.types], schema=table.schema)
    for batch in table.to_batches() or [nothing]:
        rows = min(_ROWS, max(1, batch.num_rows * _BYTES // max(batch.nbytes, 1)))
        for start in range(0, max(batch.num_rows, 1), rows):
            yield batch.slice(start, rows)


class JsonLinesSink(FileSink):
    """The sink that ``write_json`` makes."""


def write_json(
    directory: str | os.PathLike[str],
    *,
    if_exists: IfExists = "error",
    compression: TextCompression = "none",
    files: FileSystem = DISK,
) -> JsonLinesSink:
    """Write rows to JSON lines in ``directory``, exactly once: ``part-<checkpoint>-<subtask>-<number>.jsonl``.

    A row is an object with every column, nulls as ``null``. Nested columns are arrays and objects, a map is an array of
    ``{"key": ..., "value": ...}``. NaN and infinities are ``null``, because JSON does not have them. Decimals are text,
    dates and times ISO 8601 (in UTC if they have a zone), durations whole numbers of their unit. Bytes, unions and
    intervals raise SchemaMismatch while the graph is built: cast them to text.

    Args:
        directory: as in ``write_parquet``, also after a crash.
        if_exists: as in ``write_parquet``.
        compression: "gzip" and "zstd" add ``.gz`` and ``.zst`` to the names.
        files: the file system, for tests.

    Returns: a sink.

    Raises: ConfigurationError for settings out of range.

    >>> write_json("out", compression="gzip")
    write_json('out')
    """
    chosen("compression", compression, TextCompression)
    format_ = JsonLinesFormat(compression=compression)
    return JsonLinesSink(
        directory, format_, if_exists=if_exists, rows=ROW_GROUP_ROWS, size=ROW_GROUP_BYTES, files=files
    )
