"""CSV files, written exactly once. pyarrow formats the text; this module checks types and reads files back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

import pyarrow as pa
import pyarrow.csv as pc_csv
from pyarrow import types

from dataflow.errors import CheckpointMismatch, ConfigurationError, SchemaMismatch
from dataflow.store.files import DISK, FileSystem
from operators.sinks.compressed import COMPRESSED_SUFFIX, TextCompression, compressed, opened
from operators.sinks.files import ROW_GROUP_BYTES, ROW_GROUP_ROWS, FileSink, IfExists, chosen
from operators.sinks.formats import FileFormat, Form, TableWriter, encoded, polars_by_name, quoted
from operators.sinks.restoring import carrier, restored
from operators.sinks.temporal import utc, within_text

__all__ = ["CsvFormat", "CsvSink", "write_csv"]

Quoting = Literal["needed", "all_valid", "none"]

_BATCH = 16_384
_DEFAULTS: Final = {"header": True, "delimiter": ",", "null_text": ""}
"""As ``write_csv`` has them."""


class CsvFormat(FileFormat):
    """CSV with the options of ``write_csv``; a commit list stores them, and the types, for ``read_committed``."""

    name: ClassVar[str] = "csv"
    title: ClassVar[str] = "CSV"

    def __init__(
        self, *, header: bool, delimiter: str, quoting: Quoting, null_text: str, compression: TextCompression
    ) -> None:
        if any(character in null_text for character in (delimiter, '"', "\r", "\n")):
            raise ConfigurationError(
                f"write_csv: null_text= is not quoted, so it must not contain a delimiter, quote or line end; "
                f"got {null_text!r}"
            )
        extra = {"null_string": null_text} if null_text else {}  # older versions of pyarrow do not have it
        self._options = {
            "include_header": header,
            "delimiter": delimiter,
            "quoting_style": quoting,
            "batch_size": _BATCH,
            **extra,
        }
        try:
            pc_csv.WriteOptions(**self._options).validate()
        except (TypeError, ValueError, pa.ArrowException) as error:
            raise ConfigurationError(
                f"write_csv: pyarrow {pa.__version__} does not take delimiter={delimiter!r}, null_text={null_text!r} "
                f"({error}); a delimiter must be one character, but no quote or line end"
            ) from error
        self._header = header
        self._delimiter = delimiter
        self._null_text = null_text
        self._compression: TextCompression = compression

    @property
    def suffix(self) -> str:
        return super().suffix + COMPRESSED_SUFFIX[self._compression]

    @property
    def fixed_settings(self) -> Mapping[str, str | bool]:
        options: dict[str, str | bool] = {
            "header": self._header,
            "delimiter": self._delimiter,
            "null_text": self._null_text,
        }
        return {name: value for name, value in options.items() if value != _DEFAULTS[name]}

    def check(self, schema: pa.Schema, sink: object) -> None:
        for field in schema:
            value = field.type.value_type if types.is_dictionary(field.type) else field.type
            if not _fits(value):
                raise SchemaMismatch(
                    f"{sink!r}: CSV cannot hold column {field.name!r} of type {field.type}: nested types, bytes "
                    "and intervals are not text; cast it to text, leave it out with select(), or use write_json()"
                )
        super().check(schema, sink)

    def open(self, target: Any, schema: pa.Schema) -> TableWriter:
        return _Writer(compressed(target, self._compression), schema, pc_csv.WriteOptions(**self._options))

    def form(self, schema: pa.Schema) -> Form:
        options = (("delimiter", self._delimiter), ("header", str(self._header)), ("null_text", self._null_text))
        return Form(self.name, encoded(schema), options)

    def check_columns(self, sink: object) -> None:
        if not self._header:
            raise CheckpointMismatch(
                f"{sink!r} writes files without a header, whose columns are told apart by their places, and these "
                "cannot change; keep the columns, or write to another directory with header=True"
            )

    def ways_to_read(self, pattern: str, *, in_folders: bool) -> Mapping[str, str]:
        polars = polars_by_name(pattern, "pl.scan_csv(f)", "diagonal_relaxed")
        return {"polars": polars, "DuckDB": f"FROM read_csv({quoted(pattern)}, union_by_name=true)"}

    @staticmethod
    def read(path: Path, form: Form | None) -> pa.Table:
        assert form is not None, f"{path} is listed without its columns"
        schema, options = form.arrow_schema(), dict(form.options)
        as_text = {field.name: carrier(field.type) for field in schema}
        with opened(path) as file:
            table = pc_csv.read_csv(
                file,
                read_options=pc_csv.ReadOptions(
                    column_names=schema.names,
                    skip_rows_after_names=1 if options["header"] == "True" else 0,
                    block_size=1 << 24,
                ),
                parse_options=pc_csv.ParseOptions(
                    delimiter=options["delimiter"], newlines_in_values=True, ignore_empty_lines=False
                ),
                convert_options=pc_csv.ConvertOptions(
                    column_types=as_text,
                    null_values=[options["null_text"]],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        return restored(table, schema)


class _Writer:
    def __init__(self, stream: Any, schema: pa.Schema, options: pc_csv.WriteOptions) -> None:
        self._stream = stream
        self._schema = pa.schema([pa.field(field.name, _plain(field.type)) for field in schema])
        self._csv = pc_csv.CSVWriter(stream, self._schema, write_options=options)

    def write(self, table: pa.Table) -> None:
        columns = []
        for name, column, type_ in zip(table.schema.names, table.columns, self._schema.types, strict=True):
            plain = utc(column.cast(type_) if types.is_dictionary(column.type) else column)
            within_text(plain, name)
            columns.append(plain.cast(type_))
        self._csv.write_table(pa.Table.from_arrays(columns, schema=self._schema))

    def close(self) -> None:
        self._csv.close()
        self._stream.close()


def _plain(type_: pa.DataType) -> pa.DataType:
    """Return the type to which values of ``type_`` are cast before pyarrow writes them."""
    if types.is_dictionary(type_):
        return _plain(type_.value_type)
    if types.is_timestamp(type_) and type_.tz is not None:
        return pa.timestamp(type_.unit, "UTC")
    return pa.string() if types.is_string_view(type_) else type_


def _fits(type_: pa.DataType) -> bool:
    """Return whether a field of CSV can hold values of ``type_``."""
    text = types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_)
    number = types.is_boolean(type_) or types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_)
    time = types.is_temporal(type_) and not types.is_interval(type_)
    return text or number or time or types.is_null(type_)


class CsvSink(FileSink):
    """The sink that ``write_csv`` makes."""


def write_csv(
    directory: str | os.PathLike[str],
    *,
    if_exists: IfExists = "error",
    header: bool = True,
    delimiter: str = ",",
    quoting: Quoting = "needed",
    null_text: str = "",
    compression: TextCompression = "none",
    files: FileSystem = DISK,
) -> CsvSink:
    """Write rows to CSV files in ``directory``, exactly once: ``part-<checkpoint>-<subtask>-<number>.csv``.

    Dates and times are ISO 8601 with a space between them, times with a zone are in UTC, durations are whole numbers of
    their unit. Nested types, bytes and intervals raise SchemaMismatch while the graph is built. In a file of one column
    a null is an empty line, which some readers skip: give a ``null_text``.

    Args:
        directory: as in ``write_parquet``, also after a crash.
        if_exists: as in ``write_parquet``.
        header: whether every file begins with the names of the columns.
        delimiter: one character.
        quoting: "needed" (text is quoted, so that the empty text, ``""``, is not null; quotes in it are doubled),
            "all_valid" (all values but nulls), or "none" (text that would need quotes breaks the sink, and the empty
            text is read as null).
        null_text: the text of null, unquoted.
        compression: "gzip" and "zstd" add ``.gz`` and ``.zst`` to the names.
        files: the file system, for tests.

    Returns: a sink.

    Raises: ConfigurationError for settings out of range.

    >>> write_csv("out", delimiter=";", null_text="NULL")
    write_csv('out')
    """
    chosen("compression", compression, TextCompression)
    chosen("quoting", quoting, Quoting)
    format_ = CsvFormat(
        header=header, delimiter=delimiter, quoting=quoting, null_text=null_text, compression=compression
    )
    return CsvSink(directory, format_, if_exists=if_exists, rows=ROW_GROUP_ROWS, size=ROW_GROUP_BYTES, files=files)
