"""CSV files as a source. Arrow parses block by block; if it fails, the bad rows of the block are searched for."""

from __future__ import annotations

import codecs
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import csv, types

from dataflow.contracts.row_errors import OnError
from dataflow.errors import ConfigurationError, SchemaMismatch, SourceError
from operators.sources.blocks import Block, Blocks, BlockStart
from operators.sources.csv_rescue import is_hexadecimal, read_as_integer, rescued
from operators.sources.files import Files
from operators.sources.known_file import UNREADABLE, KnownFiles
from operators.sources.paths import Paths, expand
from operators.sources.text import Unparsable, Wrong, no_rows, undecodable
from operators.sources.text_source import (
    Reading,
    TextSource,
    Types,
    check_distinct,
    check_known,
    given_types,
    ordered,
    selected,
    whole_number,
    whole_number_type,
)

__all__ = ["CsvDialect", "read_csv"]

_KERNELS: Final = ("operators.kernels.csv_rows",)
_SUFFIXES: Final = (".csv", ".csv.gz", ".csv.bz2", ".csv.zst")
_WHOLE: Final = (1 << 30) - 1
_HEAD: Final = 1 << 16
_WHOLE_NUMBER: Final = re.compile(r"[ \t]*[+-]?[0-9]+[ \t]*")
_ROW_END: Final = re.compile(rb"\n|\r(?=[^\n])")
_DIGIT: Final = re.compile(r"[0-9]")
_MINUS_ZERO: Final = re.compile(r"[ \t]*-0+[ \t]*")
_MAYBE_HEX: Final = re.compile(rb"(?<![0-9A-Za-z])0[xX][0-9A-Fa-f]{1,16}(?![0-9A-Za-z])")


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
    ids). A column with a fraction, an exponent or a plus among these is float64. Whole numbers have decimal digits: a
    column with ``0xFF`` among them is text. A later value that does not fit is an error of its row.

    Values: times are ISO 8601 (with an offset or ``Z`` for timestamps with a zone, which are in UTC if inferred, and
    without for others). A quoted field may span lines. Empty lines are skipped. The values of columns that a pipeline
    does not use are not checked. A quote that is not closed costs its line, not the rest of the file.

    Memory: some blocks of ``block_bytes``, or of the longest row if that is longer; rows end within 64 MiB.

    Args:
        paths: a file, a directory, a glob, a URI that pyarrow knows (``s3://``, ``gs://``, ``file://``) or a list of
            these. Files that end in ``.gz``, ``.bz2`` or ``.zst`` are decompressed, after a restore from their
            beginning.
        schema: the types, or names of types, of some or all columns; these columns come first, in this order.
        columns: the columns to read; None: all.
        column_names: the names of the columns. None: the first row of each file has them.
        skip_rows: lines to skip at the beginning of each file.
        delimiter: one ASCII character, as are ``quote``, ``escape`` and ``decimal_point``.
        quote: None: quotes are ordinary characters.
        escape: the character before one that is taken as it is; None: there is none.
        null_values: unquoted fields that are null, in every column.
        decimal_point: the character before the fraction of a number.
        timestamp_parsers: formats of ``strptime``, tried before ISO 8601.
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
        tuple(null_values),
        decimal_point,
        tuple(timestamp_parsers),
        encoding,
        tuple(given_types(schema)),
    )
    format.check()
    reading = Reading.of(format.label, batch_rows, block_bytes, on_error)
    where, found = expand(paths, _SUFFIXES, filesystem)
    files = KnownFiles.look(format.label, found, where)
    whole = format.schema_of(found, where, given_types(schema), block_bytes, columns)
    check_known(f"{format.label}({found[0]!r})", columns or (), whole.names)
    names = whole.names if columns is None else columns
    CsvParser(format, whole.names, whole)  # raises for a type that cannot be read, before anything runs
    for path in found:
        format.check_columns(found[0], path, where, names, everything=columns is None)
    return TextSource(format, files, whole, names, reading)


read_csv.kernels = _KERNELS  # type: ignore[attr-defined]  # for ``watch``, which may open no file before the job runs


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """How to parse a file; see ``read_csv``. ``given`` names the columns whose types were given."""

    names: tuple[str, ...] | None
    skip_rows: int
    delimiter: str
    quote: str | None
    escape: str | None
    null_values: tuple[str, ...]
    decimal_point: str
    timestamp_parsers: tuple[str, ...]
    encoding: str
    given: tuple[str, ...]

    @property
    def label(self) -> str:
        return "read_csv"

    @property
    def kernels(self) -> tuple[str, ...]:
        return _KERNELS

    @property
    def other_encodings(self) -> str:
        return "name its encoding with encoding=, such as 'latin-1', or convert the file, such as with iconv"

    def check(self) -> None:
        for what in ("delimiter", "quote", "escape", "decimal_point"):
            value = getattr(self, what)
            optional = what in ("quote", "escape")
            if not (value is None and optional) and not (value and len(value) == 1 and value.isascii()):
                raise ConfigurationError(f"read_csv: {what} must be one ASCII character, got {value!r}")
        if self.skip_rows < 0:
            raise ConfigurationError(f"read_csv: skip_rows must be at least 0, got {self.skip_rows}")
        if not _is_text_encoding(self.encoding):
            raise ConfigurationError(
                f"read_csv: encoding must be 'utf-8' or one of a byte per character that contains ASCII, such as "
                f"'latin-1', got {self.encoding!r}; convert the files first, such as with iconv"
            )
        if self.names is not None:
            check_distinct("read_csv(column_names=)", self.names)

    @property
    def _utf8(self) -> bool:
        return codecs.lookup(self.encoding).name in ("utf-8", "ascii")

    def utf8(self, data: bytes) -> bytes:
        """Return ``data`` in UTF-8. Bytes that are not text do not change, so that Arrow reports them."""
        if self._utf8:
            return data
        return data.decode(self.encoding, "surrogateescape").encode("utf-8", "surrogateescape")

    def text(self, data: bytes) -> str:
        return data.decode("utf-8" if self._utf8 else self.encoding, "backslashreplace").rstrip("\r\n")

    def row_ends(self, data: bytes, ends: Any) -> tuple[int, int, bool]:
        from operators.kernels.csv_rows import row_ends

        marks = [-1 if mark is None else ord(mark) for mark in (self.delimiter, self.quote, self.escape)]
        rows, last, opened = row_ends(np.frombuffer(data, np.uint8), *marks, ends)
        return rows, last, bool(opened)

    def cut(self, data: bytes, final: bool) -> int:  # noqa: FBT001  the shape of blocks.Cut
        if not self._special(data) and (whole := len(data) if final else data.rfind(b"\n") + 1):
            return whole
        _, last, opened = self.row_ends(data, np.empty(0, np.int64))
        return len(data) if final and not opened else last

    def _special(self, data: bytes) -> bool:
        """Return whether some newlines may end no row."""
        return any([mark is not None and mark.encode() in data for mark in (self.quote, self.escape)])

    def _maybe_hexadecimal(self, data: bytes) -> bool:
        """Return whether a hexadecimal number may be in ``data``. Cheap tests come first: every block is searched."""
        if b"x" not in data and b"X" not in data:
            return False
        data = self._unmarked(data)
        codes = np.frombuffer(data, np.uint8)
        if not np.any((codes[:-1] == ord("0")) & ((codes[1:] | 0x20) == ord("x"))):  # X | 0x20 is x
            return False
        return _MAYBE_HEX.search(data) is not None

    def _unmarked(self, data: bytes) -> bytes:
        """Return ``data`` without quotes and escapes, which may occur between the characters of a value."""
        marks = "".join(mark for mark in (self.quote, self.escape) if mark is not None)
        return data.translate(None, marks.encode()) if self._special(data) else data

    def ends(self, data: bytes) -> list[int]:
        """Return the offsets at which rows end, the end of ``data`` included. Text without quotes needs no kernel."""
        if not self._special(data):
            found = [end.end() for end in _ROW_END.finditer(data)]
            last = found[-1] if found else 0
        else:
            places = np.empty(data.count(b"\n") + data.count(b"\r") + 1, np.int64)
            rows, last, _ = self.row_ends(data, places)
            found = places[:rows].tolist()
        return found if last == len(data) else [*found, len(data)]

    def head(self, path: str, where: Files, block_bytes: int = _HEAD) -> Head:
        """Return the names of a file's columns, where its rows begin, and its first block of rows."""
        try:
            with where.open_text(path, 0) as stream:
                blocks = Blocks(stream, self.cut, BlockStart(0, 1), block_bytes=block_bytes)
                blocks.skip_mark()
                for _ in range(self.skip_rows):
                    blocks.skip_line()
                block = next(blocks, Block(b"", blocks.place.byte, blocks.place.line))
                more = next(blocks, None)  # for a header that fills its block
        except UNREADABLE as error:
            raise SourceError(f"read_csv: cannot read {path!r}: {error}; restore it from a good copy") from error
        if self.names is not None:
            return Head(self.names, BlockStart(block.at, block.line), block.data)
        end = next((end for end in self.ends(block.data) if block.data[:end].strip(b"\r\n")), 0)
        if not end:
            return Head((), block.after, b"")
        header = Block(block.data[:end], block.at, block.line)
        if (cause := undecodable(header.data, self.encoding, header.at)) is not None:
            raise SourceError(f"read_csv: {path}:{header.line}: {cause}; {self.other_encodings}")
        names = csv.read_csv(
            pa.BufferReader(self.utf8(header.data) + b"\n"), parse_options=self.parse_options()
        ).column_names
        check_distinct(f"read_csv({path!r})", names)
        return Head(tuple(names), header.after, block.data[end:].strip(b"\r\n") or (more.data if more else b""))

    @property
    def _marks(self) -> dict[str, Any]:
        return {"delimiter": self.delimiter, "quote_char": self.quote or False, "escape_char": self.escape or False}

    def parse_options(self) -> csv.ParseOptions:
        return csv.ParseOptions(**self._marks, newlines_in_values=True)

    def convert_options(self, types: dict[str, pa.DataType], columns: Collection[str] = ()) -> csv.ConvertOptions:
        return csv.ConvertOptions(
            column_types=types,
            include_columns=list(columns),
            null_values=list(self.null_values),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            decimal_point=self.decimal_point,
            timestamp_parsers=[*self.timestamp_parsers, csv.ISO8601] if self.timestamp_parsers else None,
        )

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
        inferred = self._sample(head, {}, others).schema
        for name in self.hexadecimal(head.rows, head.names, inferred):
            inferred = inferred.set(inferred.get_field_index(name), pa.field(name, pa.string()))
        used = frozenset(wanted)
        floats = [field.name for field in inferred if types.is_floating(field.type) and field.name in used]
        if not floats:
            return inferred
        texts = self._sample(head, dict.fromkeys(floats, pa.string()), floats)
        for name in floats:
            tokens = texts[name].unique().drop_null().to_pylist()
            numbers = [whole_number(token) for token in tokens if _WHOLE_NUMBER.fullmatch(token)]
            odd = [token for token in tokens if not _WHOLE_NUMBER.fullmatch(token)]
            if any(_DIGIT.search(token) for token in odd):
                continue  # a fraction or an exponent
            odd += [token for token in tokens if "+" in token and token not in odd]  # Arrow reads no such integer
            if max(numbers, default=0) >= 2**63:
                odd += [token for token in tokens if _MINUS_ZERO.fullmatch(token)]  # nor this one as uint64
            type_ = whole_number_type(f"read_csv({path!r})", name, numbers, odd)
            if type_ is None:
                continue
            inferred = inferred.set(inferred.get_field_index(name), pa.field(name, type_))
        return inferred

    def _sample(self, head: Head, types: dict[str, pa.DataType], columns: Sequence[str]) -> pa.Table:
        return self._lenient(head.rows, head.names, types, columns)

    def _lenient(
        self, data: bytes, names: Sequence[str], types: dict[str, pa.DataType], columns: Sequence[str]
    ) -> pa.Table:
        """Return ``columns`` of the rows in ``data`` that have as many fields as there are ``names``."""
        parse = self.parse_options()
        parse.invalid_row_handler = lambda _: "skip"
        read = csv.ReadOptions(use_threads=False, block_size=_WHOLE, column_names=list(names))
        return csv.read_csv(pa.BufferReader(self.utf8(data)), read, parse, self.convert_options(types, columns))

    def hexadecimal(self, data: bytes, names: Sequence[str], schema: pa.Schema) -> list[str]:
        """Return the integer columns of ``schema`` that have a hexadecimal number in ``data``.

        Arrow reads these as the bits of an integer: 0xFF as -1 where the type is int8. Durations are read as integers.

        Args:
            data: whole rows, whose columns are called ``names``.
        """
        integers = [field.name for field in schema if read_as_integer(field.type)]
        if not integers or not self._maybe_hexadecimal(data):
            return []
        texts = self._lenient(data, names, dict.fromkeys(integers, pa.binary()), integers)
        return [name for name in integers if any(map(is_hexadecimal, texts[name].unique().drop_null().to_pylist()))]

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
        return CsvParser(self, head.names, selected(schema, columns)), head.begin


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
        self._read = csv.ReadOptions(use_threads=False, block_size=_WHOLE, column_names=list(names))
        self._parse = format.parse_options()
        self._convert = format.convert_options(dict(zip(schema.names, schema.types, strict=True)), schema.names)
        self._names = names
        try:
            csv.read_csv(pa.BufferReader(b"\n"), self._read, self._parse, self._convert)
        except pa.ArrowNotImplementedError as error:
            raise SchemaMismatch(f"read_csv(schema=): {error}; read it as text, or leave the column out") from error

    def parse(self, data: bytes) -> pa.RecordBatch:
        if not data.strip(b"\r\n"):
            return no_rows(self.schema)
        text = pa.BufferReader(self._format.utf8(data))
        batches = csv.read_csv(text, self._read, self._parse, self._convert).to_batches()
        if columns := self._format.hexadecimal(data, self._names, self.schema):
            raise Unparsable(f"hexadecimal numbers in the integer columns {columns}")
        assert len(batches) <= 1, f"a block is read in one piece, got {len(batches)} batches"
        return pa.RecordBatch.from_arrays(batches[0].columns, schema=self.schema) if batches else no_rows(self.schema)

    def rescue(self, data: bytes) -> tuple[pa.RecordBatch, list[Wrong]]:
        return rescued(self._format, self._names, self.schema, data)


def _is_text_encoding(name: str) -> bool:
    """Return whether ``name`` is UTF-8, or has a byte per character and ASCII as its lower half (so newlines too)."""
    try:
        if codecs.lookup(name).name == "utf-8":
            return True
        lower = bytes(range(128))
        every = bytes(range(256)).decode(name, "replace")
    except (LookupError, UnicodeError):
        return False
    return len(every) == 256 and lower.decode(name) == lower.decode("ascii")
