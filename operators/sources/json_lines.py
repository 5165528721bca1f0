"""JSON lines as a source: one object a line, parsed by Arrow a block at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json, types

from dataflow.errors import SchemaMismatch, SourceError
from dataflow.row_errors import OnError
from operators.sources.blocks import Blocks, Place
from operators.sources.files import Files
from operators.sources.known_file import UNREADABLE, KnownFiles
from operators.sources.paths import Paths, expand
from operators.sources.text import Unparsable, Wrong, no_rows, searched
from operators.sources.text_source import Reading, TextSource, Types, check_known, given_types, inferred_type, selected

__all__ = ["JsonFormat", "read_json"]

_SUFFIXES: Final = tuple(
    name + packed for name in (".jsonl", ".ndjson", ".json") for packed in ("", ".gz", ".bz2", ".zst")
)
_ROW: Final = re.compile(r" in row (\d+)$")
_AS_TEXT: Final = (types.is_date, types.is_time, types.is_dictionary)  # Arrow reads these as numbers, or not at all


def read_json(
    paths: Paths,
    *,
    schema: Types = None,
    columns: Sequence[str] | None = None,
    on_error: str | OnError = "fail",
    batch_rows: int = 65_536,
    block_bytes: int = 1 << 20,
    filesystem: Any = None,
) -> TextSource:
    """The rows of files of JSON lines (an object a line), in order of file names; one subtask reads a file as a whole.

    ``paths``, ``filesystem``, packed files and ``on_error`` are as with ``read_csv``.

    Columns are fields of the objects, nested ones included; a field that a line leaves out is null. ``schema`` has all
    of them with their types; without it they are inferred from the first ``block_bytes`` of the first file with rows. A
    field that is not among these, or a value of another type, is an error of its row; with ``columns`` only these
    fields are read, and all others are left out unseen. Timestamps, dates and times of day are text in ISO 8601,
    durations whole numbers of their unit.

    Memory: some blocks of ``block_bytes``, or of the longest line where that is longer; lines end within 64 MiB.

    Raises: SourceError for a missing or unreadable file, or one without anything to infer types from; SchemaMismatch
    for a type that JSON cannot be read to; UnknownColumn; ConfigurationError for settings out of range.

    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> _ = pathlib.Path(folder.name, "bids.jsonl").write_text('{"price": 12.5, "tags": ["new"]}\\n')
    >>> print(read_json(folder.name).schema.types)
    [DataType(double), ListType(list<item: string>)]
    >>> folder.cleanup()
    """
    format = JsonFormat("error" if columns is None else "ignore", schema is None)
    reading = Reading.of(format.label, batch_rows, block_bytes, on_error)
    where, found = expand(paths, _SUFFIXES, filesystem)
    files = KnownFiles.look(format.label, found, where)
    whole = format.inferred_from(found, where, block_bytes) if schema is None else pa.schema(given_types(schema))
    check_known(f"{format.label}({found[0]!r})", columns or (), whole.names)
    JsonParser(format, whole, whole.names)  # refuses a type that cannot be read before anything runs
    return TextSource(format, files, whole, whole.names if columns is None else columns, reading)


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """What becomes of fields that are no columns, and whether the columns were inferred."""

    unexpected: Literal["error", "ignore"]
    inferred: bool

    @property
    def label(self) -> str:
        return "read_json"

    def inferred_from(self, paths: Sequence[str], where: Files, block_bytes: int) -> pa.Schema:
        """The fields of the first rows there are."""
        for path in paths:
            rows = self._first(path, where, block_bytes)[1]
            if rows.strip():
                return pa.schema({field.name: inferred_type(field.type) for field in _inferred(path, rows)})
        raise SourceError(f"read_json({paths[0]!r}): there is nothing to infer columns from; give schema=")

    def open(self, path: str, where: Files, schema: pa.Schema, columns: Sequence[str]) -> tuple[JsonParser, Place]:
        return JsonParser(self, schema, columns), self._first(path, where, 1)[0]

    def _first(self, path: str, where: Files, block_bytes: int) -> tuple[Place, bytes]:
        try:
            with where.open_text(path, 0) as stream:
                blocks = Blocks(stream, _cut, Place(0, 1), block_bytes=block_bytes)
                blocks.skip_mark()
                return blocks.place, next((block.data for block in blocks if block.data.strip()), b"")
        except UNREADABLE as error:
            raise SourceError(f"read_json: cannot read {path!r}: {error}; restore it from a good copy") from error


class JsonParser:
    """Parses lines to ``columns`` of ``schema``."""

    label = "read_json"

    def __init__(self, format: JsonFormat, schema: pa.Schema, columns: Sequence[str]) -> None:
        self.schema = selected(schema, columns)
        parsed = schema if format.unexpected == "error" else self.schema
        self._options = json.ParseOptions(
            explicit_schema=pa.schema([field.with_type(_parsed_type(field.type)) for field in parsed]),
            unexpected_field_behavior=format.unexpected,
        )
        self._hint = " (fields and types were inferred from the first rows; schema= gives others)" * format.inferred
        try:
            self.parse(b"{}\n")
        except pa.ArrowNotImplementedError as error:
            raise SchemaMismatch(f"read_json(schema=): {error}; read it as text, or leave the column out") from error

    def cut(self, data: bytes, final: bool) -> int:  # noqa: FBT001  the shape of blocks.Cut
        return _cut(data, final)

    def text(self, data: bytes) -> str:
        return data.decode("utf-8", "backslashreplace").strip()

    def parse(self, data: bytes) -> pa.RecordBatch:
        lines = _lines(data)
        if not lines:
            return no_rows(self.schema)
        table = _parsed(data, self._options)
        if table.num_rows != lines:
            raise Unparsable("more than one object in a line")
        return pa.RecordBatch.from_arrays(
            [_only_chunk(table[field.name], field.type) for field in self.schema], schema=self.schema
        )

    def rescue(self, data: bytes) -> tuple[pa.RecordBatch, list[Wrong]]:
        ends = (np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1).tolist()
        if not data.endswith(b"\n"):
            ends.append(len(data))
        batch, wrong = searched(self.parse, self.schema, data, ends, _suspect)
        return batch, [Wrong(row.start, row.end, Unparsable(f"{row.error}{self._hint}")) for row in wrong]


def _cut(data: bytes, final: bool) -> int:  # noqa: FBT001
    return len(data) if final else data.rfind(b"\n") + 1


def _lines(data: bytes) -> int:
    """How many lines hold something. Raises: Unparsable unless each of them begins an object, in UTF-8.

    Arrow checks neither: it gives text that is none, and a line that is ``null`` ends the process.
    """
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise Unparsable(f"not UTF-8: {error}") from error
    text = np.frombuffer(data, np.uint8)
    ends = text == ord("\n")
    lines = int(np.count_nonzero(ends)) + (not data.endswith(b"\n"))
    if np.count_nonzero(ends[:-1] & (text[1:] == ord("{"))) + data.startswith(b"{") == lines:
        return lines
    held = [line for line in data.split(b"\n") if line.strip()]
    if not all(line.lstrip().startswith(b"{") for line in held):
        raise Unparsable("a line is a JSON object, {...}")
    return len(held)


def _parsed(data: bytes, options: json.ParseOptions) -> pa.Table:
    read = json.ReadOptions(use_threads=False, block_size=len(data) + 1)
    return json.read_json(pa.BufferReader(data), read, options)


def _parsed_type(type_: pa.DataType) -> pa.DataType:
    if types.is_duration(type_):
        return pa.int64()
    return pa.string() if any(check(type_) for check in _AS_TEXT) else type_


def _only_chunk(column: pa.ChunkedArray, type_: pa.DataType) -> pa.Array:
    assert column.num_chunks == 1, f"a block is read in one piece, got {column.num_chunks} chunks"
    values = column.chunk(0)
    if types.is_time(type_):  # Arrow casts no text to times of day, but to timestamps
        values = pc.binary_join_element_wise("1970-01-01T", values, "").cast(pa.timestamp(type_.unit))
    return values.cast(type_)


def _suspect(error: Exception) -> int | None:
    named = _ROW.search(str(error))
    return int(named[1]) if named else None


def _inferred(path: str, rows: bytes) -> pa.Schema:
    """The fields of as many of the first rows as can be parsed."""
    lines = rows.split(b"\n")
    count = len(lines)
    while True:
        first = b"\n".join(lines[:count])
        try:
            _lines(first)
            return _parsed(first, json.ParseOptions()).schema
        except (pa.ArrowException, Unparsable) as error:
            if count == 1:
                raise SourceError(
                    f"read_json({path!r}): its first row cannot be parsed ({error}), so there is nothing to infer "
                    f"columns from; give schema="
                ) from error
            count //= 2
