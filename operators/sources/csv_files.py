"""CSV files as a source. Arrow parses block by block; if it fails, the bad rows of the block are searched for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import csv, types

from dataflow.contracts.row_errors import OnError
from dataflow.errors import SchemaMismatch, SourceError
from operators.sources.blocks import Block, BlockStart
from operators.sources.csv_numbers import has_padded_number, hexadecimal_columns, is_inferred_integer, number_types
from operators.sources.csv_rescue import rescued
from operators.sources.csv_settings import CsvSettings, QuotedNulls, texts_of
from operators.sources.csv_tables import is_text, parse_options, read_rows_of_full_length, read_table
from operators.sources.files import Files
from operators.sources.known_file import KnownFiles
from operators.sources.paths import SUFFIXES, Paths, expand
from operators.sources.text import Unparsable, Wrong, no_rows, opened_blocks, undecodable
from operators.sources.text_source import (
    TextReading,
    TextSource,
    Types,
    check_distinct,
    check_known,
    given_names,
    given_types,
    ordered,
    selected,
)
from operators.sources.time_parsers import KERNELS, has_formats, inferred_time_type, parse_times

__all__ = ["CsvDialect", "read_csv"]

_KERNELS: Final = ("operators.kernels.csv_rows",)
_HEAD: Final = 1 << 16
_TEXT: Final = pa.string()


def read_csv(
    paths: Paths,
    *,
    schema: Types = None,
    columns: Sequence[str] | None = None,
    column_names: Sequence[str] | None = None,
    skip_rows: int = 0,
    delimiter: str = ",",
    quote: str | None = '"',
    escape: str | None = None,
    null_values: Sequence[str] = ("",),
    quoted_nulls: QuotedNulls = "typed",
    decimal_point: str = ".",
    timestamp_parsers: Sequence[str] = (),
    encoding: str = "utf-8",
    on_error: str | OnError = "fail",
    batch_rows: int = 65_536,
    block_bytes: int = 1 << 20,
    filesystem: Any = None,
) -> TextSource:
    """Read CSV files, in order of their names; each file is one split, read in its own order by one subtask.

    Columns: files may order them differently, but without ``columns`` all files must have the same. Types that
    ``schema`` does not have are inferred from the first ``block_bytes`` of the first file that has rows: text if a
    column has no value there, microseconds if its times have no fractions. Whole numbers are int64, or uint64 if one of
    them is above int64 and none is below zero; if neither type holds them, name one in ``schema`` (float64 would round
    ids). A column with a fraction or an exponent among these is float64. Otherwise it is text if one of them has a plus
    or zeros in front, as ``+41791234567`` and ``00501``, or is hexadecimal, as ``0xFF``. A later value that does not
    fit, such as ``00501`` in a column inferred to be int64, is an error of its row.

    Values: times are ISO 8601 (with an offset or ``Z`` for timestamps with a zone, which are in UTC if inferred, and
    without for others). A quoted field may span lines. Empty lines are skipped. The values of columns that a pipeline
    does not use are not checked. A quote that is not closed costs its line, not the rest of the file.

    Memory: some blocks of ``block_bytes``, or of the longest row if that is longer; rows end within 64 MiB.

    Args:
        paths: a file, a directory, a glob, a URI that pyarrow knows (``s3://``, ``gs://``, ``file://``) or a list of
            these. Of a directory, files whose names do not end in ``.csv`` or ``.CSV`` (or that and ``.gz``, ``.bz2``
            or ``.zst``) are left out; a FilesLeftOutWarning has the pattern that reads them. Files that end in ``.gz``,
            ``.bz2`` or ``.zst`` are decompressed, after a restore from their beginning.
        schema: the types, or names of types, of some or all columns; these columns come first, in this order.
        columns: the columns to read; None: all.
        column_names: the names of the columns. None: the first row of each file has them.
        skip_rows: lines to skip at the beginning of each file.
        delimiter: one ASCII character, as are ``quote``, ``escape`` and ``decimal_point``.
        quote: None: quotes are ordinary characters.
        escape: the character before one that is taken as it is; None: there is none.
        null_values: fields that are null, in every column. None of them may contain ``escape``.
        quoted_nulls: whether such a field is null in quotes, too: ``"typed"``, in columns of numbers, booleans, times
            and other values that are not text; ``"always"``, in columns of text and bytes, too; ``"never"``.
        decimal_point: the character before the fraction of a number.
        timestamp_parsers: formats of ``strptime`` for timestamps and dates, tried in their order, before ISO 8601. A
            value fits only if each part that is read is that of the resulting time: 30 February and 25 hours do not.
            ``%Y`` has four digits, ``%f`` 1 to 9; names are English, in any case; other numbers may have fewer digits
            than usual. Formats with ``%z`` are for timestamps with a zone, others for those without.
        encoding: UTF-8, or an encoding of one byte per character (``"latin-1"``, ``"cp1252"``).
        on_error: for rows with too few or too many fields, or with a value that does not fit: ``"fail"`` ends the job,
            naming file and line; ``"skip"`` drops and counts them; ``"side"`` emits them at side output ``errors``,
            with place, text and reason.
        batch_rows: the most rows of a batch.
        block_bytes: bytes that are parsed at once.
        filesystem: one of ``pyarrow.fs`` or of fsspec, in which ``paths`` are paths; None: this machine's.

    Returns: a bounded, replayable source.

    Raises: SourceError for a missing or unreadable file, or one without anything to infer types from; SchemaMismatch
    if files differ in their columns; UnknownColumn; ConfigurationError for settings out of range.

    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> _ = pathlib.Path(folder.name, "bids.csv").write_text("price,at\\n12.5,2024-01-01T10:00:00\\n")
    >>> print(read_csv(f"{folder.name}/*.csv").schema)
    price: double
    at: timestamp[us]
    >>> folder.cleanup()
    """
    format = CsvDialect(
        None if column_names is None else tuple(column_names),
        skip_rows,
        delimiter,
        quote,
        escape,
        texts_of("null_values", null_values),
        quoted_nulls,
        decimal_point,
        texts_of("timestamp_parsers", timestamp_parsers),
        encoding,
        given_names(schema),
    )
    format.check()
    reading = TextReading.of(format.label, batch_rows, block_bytes, on_error)
    where, found = expand(paths, SUFFIXES["read_csv"], filesystem)
    files = KnownFiles.look(format.label, found, where)
    whole = format.schema_of(found, where, given_types(schema), block_bytes, columns)
    check_known(f"{format.label}({found[0]!r})", columns or (), whole.names)
    names = whole.names if columns is None else columns
    CsvParser(format, whole.names, whole)  # raises for a type that cannot be read, before anything runs
    for path in found:
        format.check_columns(found[0], path, where, names, everything=columns is None)
    return TextSource(format, files, whole, names, reading)


def _kernels(timestamp_parsers: Sequence[str] = (), **_: Any) -> tuple[str, ...]:
    return (*_KERNELS, *(KERNELS if timestamp_parsers else ()))


read_csv.kernels = _kernels  # type: ignore[attr-defined]  # for ``watch``, which may open no file before the job runs
read_csv.suffixes = SUFFIXES["read_csv"]  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class CsvDialect(CsvSettings):
    """How to parse a file."""

    @property
    def label(self) -> str:
        return "read_csv"

    @property
    def kernels(self) -> tuple[str, ...]:
        return _kernels(self.timestamp_parsers)

    @property
    def other_encodings(self) -> str:
        return "name its encoding with encoding=, such as 'latin-1', or convert the file, such as with iconv"

    def head(self, path: str, where: Files, block_bytes: int = _HEAD) -> Head:
        """Return the names of a file's columns, where its rows begin, and its first block of rows."""
        with opened_blocks(self.label, path, where, self.cut, block_bytes) as blocks:
            for _ in range(self.skip_rows):
                blocks.skip_line()
            block = next((block for block in blocks if block.data.strip(b"\r\n")), None)
            more = next(blocks, None)  # for a header that fills its block
        if block is None:
            return Head(self.names or (), blocks.place, b"")
        if self.names is not None:
            return Head(self.names, BlockStart(block.at, block.line), block.data)
        if block.broken:
            raise SourceError(
                f"read_csv: {path}:{block.line}: the header does not end: is a quote left open? quote=None reads "
                f"quotes as ordinary characters"
            )
        end = next(end for end in self.ends(block.data) if block.data[:end].strip(b"\r\n"))
        header = Block(block.data[:end], block.at, block.line)
        if (cause := undecodable(header.data, self.encoding, header.at)) is not None:
            raise SourceError(f"read_csv: {path}:{header.line}: {cause}; {self.other_encodings}")
        names = csv.read_csv(
            pa.BufferReader(self.utf8(header.data) + b"\n"), parse_options=parse_options(self)
        ).column_names
        check_distinct(f"read_csv({path!r})", names)
        return Head(tuple(names), header.after, block.data[end:].strip(b"\r\n") or (more.data if more else b""))

    def schema_of(
        self,
        paths: Sequence[str],
        where: Files,
        given: dict[str, pa.DataType],
        block_bytes: int,
        wanted: Sequence[str] | None = None,
    ) -> pa.Schema:
        """Return the columns of the first file that has any, with the types given, or inferred from its first rows.

        Raises: SourceError if there are no columns, or whole numbers in ``wanted`` columns that fit no type.
        """
        first: Head | None = None
        source = paths[0]
        for path in paths:
            head = self.head(path, where, block_bytes)
            if head.names and (first is None or head.rows.strip()):
                first, source = head, path
            if first is not None and (first.rows.strip() or set(given) == set(first.names)):
                break
        if first is None:
            if given:
                return pa.schema(given)
            raise SourceError(f"read_csv({paths[0]!r}): there is nothing to infer columns from; give schema=")
        check_known(f"read_csv({paths[0]!r}, schema=)", given, first.names)
        chosen = first.names if wanted is None else wanted
        return ordered(given, self._inferred(source, first, given, chosen))

    def _inferred(self, path: str, head: Head, given: dict[str, pa.DataType], wanted: Collection[str]) -> pa.Schema:
        # given types are applied later, when an error can name the row
        others = [name for name in head.names if name not in given]
        if not others or not head.rows.strip():
            return pa.schema(dict.fromkeys(others, pa.string()))
        schema = read_rows_of_full_length(self, head.rows, head.names, {}, others).schema
        inferred = dict(zip(schema.names, schema.types, strict=True))
        numbers = [name for name, type_ in inferred.items() if types.is_integer(type_) or types.is_floating(type_)]
        inferred |= number_types(f"read_csv({path!r})", self._sample(head, numbers), inferred, frozenset(wanted))
        if self.timestamp_parsers:
            texts = [name for name, type_ in inferred.items() if types.is_string(type_)]
            for name, column in self._sample(head, texts, pa.binary()).items():
                inferred[name] = inferred_time_type(self.timestamp_parsers, column.drop_null()) or inferred[name]
        return pa.schema(inferred)

    def _sample(self, head: Head, columns: Sequence[str], type_: pa.DataType = _TEXT) -> dict[str, pa.Array]:
        """Return the values of columns in the first rows as text, or as bytes."""
        if not columns:
            return {}
        table = read_rows_of_full_length(self, head.rows, head.names, dict.fromkeys(columns, type_), columns)
        return {name: table[name].combine_chunks() for name in columns}

    def check_columns(self, first: str, path: str, where: Files, names: Sequence[str], *, everything: bool) -> None:
        found = self.head(path, where).names
        if not found:
            return
        known, expected = frozenset(found), frozenset(names)
        missing = [name for name in names if name not in known]
        extra = [name for name in found if name not in expected] if everything else []
        if missing or extra:
            raise SchemaMismatch(
                f"read_csv: {path!r} has other columns than {first!r}: missing {missing}, additional {extra}; read "
                f"them as two sources, or choose the columns they share with columns=[...]"
            )

    def open(self, path: str, where: Files, schema: pa.Schema, columns: Sequence[str]) -> tuple[CsvParser, BlockStart]:
        head = self.head(path, where)
        names = head.names or schema.names  # an empty file has no names, and no rows
        return CsvParser(self, names, selected(schema, columns)), head.begin


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a file: column names, where rows begin, and the first of them."""

    names: tuple[str, ...]
    begin: BlockStart
    rows: bytes


class CsvParser:
    """Parses the rows of one file, whose columns are called ``names``, to ``schema``."""

    label = "read_csv"

    def __init__(self, format: CsvDialect, names: Sequence[str], schema: pa.Schema) -> None:
        self.schema = schema
        self.cut = format.cut
        self.text = format.text
        self.encoding, self.other_encodings = format.encoding, format.other_encodings
        self._format = format
        self._names = names
        self._timed = [field.name for field in schema if format.timestamp_parsers and has_formats(field.type)]
        self._types = {f.name: pa.binary() if f.name in self._timed else f.type for f in schema}
        self._texts = [field.name for field in schema if is_text(field.type)]
        watched = {field.name for field in schema if is_inferred_integer(format, field)}
        self._watched = np.array([name in watched for name in names], np.uint8)
        self._watches = bool(watched)
        try:
            read_table(format, b"\n", names, self._types, schema.names)
        except pa.ArrowNotImplementedError as error:
            raise SchemaMismatch(f"read_csv(schema=): {error}; read it as text, or leave the column out") from error

    def parse(self, data: bytes) -> pa.RecordBatch:
        if not data.strip(b"\r\n"):
            return no_rows(self.schema)
        table = read_table(self._format, data, self._names, self._types, self.schema.names, texts=self._texts)
        if columns := hexadecimal_columns(self._format, data, self._names, self.schema):
            raise Unparsable(f"hexadecimal numbers in the integer columns {columns}")
        if self._watches and has_padded_number(self._format, data, self._watched):
            raise Unparsable("zeros in front of whole numbers")
        if not table.num_rows:
            return no_rows(self.schema)
        return pa.RecordBatch.from_arrays([self._column(table, field) for field in self.schema], schema=self.schema)

    def _column(self, table: pa.Table, field: pa.Field) -> pa.Array:
        column = table[field.name]
        assert column.num_chunks == 1, f"a block is read in one piece, got {column.num_chunks} chunks"
        values = column.chunk(0)
        return parse_times(self._format.timestamp_parsers, values, field.type) if field.name in self._timed else values

    def rescue(self, data: bytes) -> tuple[pa.RecordBatch, list[Wrong]]:
        return rescued(self._format, self._names, self.schema, data)
