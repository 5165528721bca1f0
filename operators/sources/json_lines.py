"""JSON lines as a source: one object a line, parsed by Arrow a block at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from json import JSONDecoder
from math import isfinite
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, json, types

from dataflow.arrow_values import to_scalar
from dataflow.contracts.row_errors import OnError
from dataflow.errors import SchemaMismatch, SourceError
from operators.sources.blocks import Block, BlockStart
from operators.sources.files import Files
from operators.sources.known_file import KnownFiles
from operators.sources.paths import Paths, expand
from operators.sources.text import Unparsable, Wrong, no_rows, opened_blocks, searched, undecodable
from operators.sources.text_source import (
    Reading,
    TextSource,
    Types,
    check_known,
    given_types,
    inferred_type,
    selected,
    whole_number,
    whole_number_type,
)

__all__ = ["JsonFormat", "read_json"]

_SUFFIXES: Final = tuple(
    name + packed for name in (".jsonl", ".ndjson", ".json") for packed in ("", ".gz", ".bz2", ".zst")
)
_OTHER_ENCODINGS: Final = "JSON is UTF-8: convert the file, such as with iconv -f latin1 -t utf-8"
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_AMBIGUOUS: Final = re.compile(rb'[0-9]{19}|NaN|Inf|"[0-9]{4}-[0-9]{2}-[0-9]{2}')
"""Text in which Arrow may infer other types than ``read_csv``. Whole numbers outside int64 have 19 digits, those beside
NaN or Inf may be rounded if they have 16, and text that Arrow takes for times begins with a date.
"""
_INFINITY: Final = re.compile(r'("(?:[^"\\]|\\.)*")|\bInf\b')
"""A string, or an infinity that Arrow reads and Python writes in full."""
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[0-9T:.Z+ -]*")
_ROW: Final = re.compile(r" in row (\d+)$")
_AS_TEXT: Final = (types.is_date, types.is_time, types.is_timestamp, types.is_dictionary)
"""Types read as text, then cast: Arrow's reader reads dates and times of day as numbers, and ignores offsets."""


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
    """Read files of JSON lines (one object per line), in order of their names; each file is one split.

    Columns are fields of the objects, nested ones included; a field that a line does not have is null. Without
    ``schema``, fields and types are inferred from the first ``block_bytes`` of the first file with rows: whole numbers,
    dates and timestamps as in ``read_csv``, also in lists and objects; times of day stay text. An unexpected field, or
    a value of another type, is an error of its row.

    Timestamps, dates and times of day are text in ISO 8601. A timestamp with a zone needs an offset or ``Z`` in its
    text, one without a zone must have none. Durations are whole numbers of their unit.

    Memory: some blocks of ``block_bytes``, or of the longest line if that is longer; lines end within 64 MiB.

    Args:
        paths: as in ``read_csv``, compressed files included.
        schema: the types, or names of types, of all columns; None: inferred.
        columns: the columns to read; None: all. All other fields are ignored, except unexpected fields inside a chosen
            column.
        on_error: as in ``read_csv``.
        batch_rows: the most rows of a batch.
        block_bytes: bytes that are parsed at once.
        filesystem: as in ``read_csv``.

    Returns: a bounded, replayable source.

    Raises: SourceError for a missing or unreadable file, or one without anything to infer types from; SchemaMismatch
    for a type that JSON cannot be converted to; UnknownColumn; ConfigurationError for settings out of range.

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
    whole = (
        format.inferred_from(found, where, block_bytes, columns) if schema is None else pa.schema(given_types(schema))
    )
    check_known(f"{format.label}({found[0]!r})", columns or (), whole.names)
    JsonParser(format, whole, whole.names)  # raises for a type that cannot be read, before anything runs
    return TextSource(format, files, whole, whole.names if columns is None else columns, reading)


read_json.suffixes = _SUFFIXES  # type: ignore[attr-defined]  # for ``watch``


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """How to parse files: the policy for fields that are not columns, and whether the columns were inferred."""

    unexpected: Literal["error", "ignore"]
    inferred: bool

    @property
    def label(self) -> str:
        return "read_json"

    @property
    def kernels(self) -> tuple[str, ...]:
        return ()

    def inferred_from(
        self, paths: Sequence[str], where: Files, block_bytes: int, wanted: Sequence[str] | None = None
    ) -> pa.Schema:
        """Return the fields of the first rows, with their types.

        Raises: SourceError if there are no rows, or whole numbers in ``wanted`` fields that fit no type.
        """
        for path in paths:
            block = self._first(path, where, block_bytes)
            if block is not None:
                return _inferred(path, block, wanted)
        raise SourceError(f"read_json({paths[0]!r}): there is nothing to infer columns from; give schema=")

    def open(self, path: str, where: Files, schema: pa.Schema, columns: Sequence[str]) -> tuple[JsonParser, BlockStart]:
        with opened_blocks(self.label, path, where, _cut, 1) as blocks:
            return JsonParser(self, schema, columns), blocks.place

    def _first(self, path: str, where: Files, block_bytes: int) -> Block | None:
        """Return the first block of a file that has rows."""
        with opened_blocks(self.label, path, where, _cut, block_bytes) as blocks:
            return next((block for block in blocks if block.data.strip()), None)


class JsonParser:
    """Parses lines to ``columns`` of ``schema``."""

    label = "read_json"
    encoding = "utf-8"
    other_encodings = _OTHER_ENCODINGS

    def __init__(self, format: JsonFormat, schema: pa.Schema, columns: Sequence[str]) -> None:
        self.schema = selected(schema, columns)
        self._unseen_columns = format.unexpected == "ignore"
        self._looks_inside = self._unseen_columns and any(_has_fields(type_) for type_ in self.schema.types)
        parsed = schema if format.unexpected == "error" else self.schema
        self._options = json.ParseOptions(
            explicit_schema=pa.schema([field.with_type(_parsed_type(field.type)) for field in parsed]),
            unexpected_field_behavior=format.unexpected,
        )
        self._known = dict(zip(parsed.names, parsed.types, strict=True))
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
        table = self._table(data)
        if table.num_rows != lines:
            raise Unparsable("more than one object in a line")
        return pa.RecordBatch.from_arrays(
            [_only_chunk(table[field.name], field.type) for field in self.schema], schema=self.schema
        )

    def _table(self, data: bytes) -> pa.Table:
        """Parse ``data``. Arrow ignores unexpected fields everywhere or nowhere; those within columns are found here.

        Raises: Unparsable for a field within a chosen column that its type does not have.
        """
        if not self._looks_inside:
            return _parsed(data, self._options)
        try:
            table = _parsed(data, json.ParseOptions(explicit_schema=self._options.explicit_schema))
        except pa.ArrowInvalid:  # perhaps because of a field that is not a column
            table = _parsed(data, self._options)
            rows = list(_objects(data.decode()))
            extra = next(filter(None, (self._unexpected(row) for row in rows)), None)
        else:
            extra = next(
                filter(None, (_more(field.name, field.type, table.field(field.name).type) for field in self.schema)),
                None,
            )
        if extra is not None:
            raise Unparsable(f"unexpected field {extra!r}")
        return table

    def _unexpected(self, row: dict[str, Any]) -> str | None:
        """Return the first field of ``row``, by its path, that is neither a column nor part of one."""
        names = [name for name in row if name in self._known or not self._unseen_columns]
        return next(
            (extra for name in names if (extra := _extra(name, self._known.get(name), row[name])) is not None),
            None,
        )

    def rescue(self, data: bytes) -> tuple[pa.RecordBatch, list[Wrong]]:
        ends = (np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1).tolist()
        if not data.endswith(b"\n"):
            ends.append(len(data))
        batch, wrong = searched(self.parse, self.schema, data, ends, _suspect)
        return batch, [Wrong(row.start, row.end, self._explained(row, data)) for row in wrong]

    def _explained(self, row: Wrong, data: bytes) -> Unparsable:
        reason = str(row.error)
        if "UTF" in reason:
            return Unparsable(reason)
        if "unexpected field" in reason:
            with suppress(ValueError, UnicodeDecodeError):
                (read,) = _objects(data[row.start : row.end].decode())
                if (name := self._unexpected(read)) is not None:
                    hint = "the fields were inferred from the first rows, " * bool(self._hint)
                    return Unparsable(f"unexpected field {name!r}: {hint}schema= adds it, columns= leaves others out")
        return Unparsable(f"{reason}{self._hint}")


def _has_fields(type_: pa.DataType) -> bool:
    return types.is_struct(type_) or (types.is_list(type_) and _has_fields(type_.value_type))


def _more(path: str, expected: pa.DataType, found: pa.DataType) -> str | None:
    """Return the path of the first field that ``found`` has and ``expected`` has not."""
    if types.is_list(expected):
        return _more(path, expected.value_type, found.value_type)
    if not types.is_struct(expected):
        return None
    names = [field.name for field in expected]
    for field in found:
        inner = f"{path}.{field.name}"
        if field.name not in names:
            return inner
        if (extra := _more(inner, expected.field(field.name).type, field.type)) is not None:
            return extra
    return None


def _extra(path: str, type_: pa.DataType | None, value: Any) -> str | None:
    """Return the path of the first field in ``value`` that ``type_`` does not have; None as a type: not a column."""
    if type_ is None:
        return path
    if types.is_list(type_) and isinstance(value, list):
        return next((extra for item in value if (extra := _extra(path, type_.value_type, item)) is not None), None)
    if types.is_struct(type_) and isinstance(value, dict):
        fields = {field.name: field.type for field in type_}
        inner = (_extra(f"{path}.{name}", fields.get(name), item) for name, item in value.items())
        return next((extra for extra in inner if extra is not None), None)
    return None


def _cut(data: bytes, final: bool) -> int:  # noqa: FBT001
    return len(data) if final else data.rfind(b"\n") + 1


def _lines(data: bytes) -> int:
    """Return how many lines are not blank. Raises: Unparsable unless each of them begins an object, in UTF-8.

    Arrow checks neither: it returns invalid text, and a line that is ``null`` ends the process.
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
    rows = [line for line in data.split(b"\n") if line.strip()]
    if not all(line.lstrip().startswith(b"{") for line in rows):
        raise Unparsable("expected a JSON object, {...}, in each line")
    return len(rows)


def _parsed(data: bytes, options: json.ParseOptions) -> pa.Table:
    read = json.ReadOptions(use_threads=False, block_size=len(data) + 1)
    return json.read_json(pa.BufferReader(data), read, options)


def _parsed_type(type_: pa.DataType) -> pa.DataType:
    if types.is_duration(type_):
        return pa.int64()
    if types.is_struct(type_):
        return pa.struct([field.with_type(_parsed_type(field.type)) for field in type_])
    if types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_parsed_type(type_.value_type)))
    return pa.string() if any(check(type_) for check in _AS_TEXT) else type_


def _only_chunk(column: pa.ChunkedArray, type_: pa.DataType) -> pa.Array:
    assert column.num_chunks == 1, f"a block is read in one piece, got {column.num_chunks} chunks"
    values = column.chunk(0)
    if types.is_time(type_):  # Arrow cannot cast text to times of day, but to timestamps
        values = pc.binary_join_element_wise(to_scalar("1970-01-01T"), values, to_scalar(""))
        values = values.cast(pa.timestamp(type_.unit))
    return values.cast(type_)


def _suspect(error: Exception) -> int | None:
    named = _ROW.search(str(error))
    return int(named[1]) if named else None


def _inferred(path: str, block: Block, wanted: Sequence[str] | None) -> pa.Schema:
    """Return the fields of as many of the first rows as can be parsed, with types that hold their values."""
    lines = block.data.split(b"\n")
    count = len(lines)
    while True:
        first = b"\n".join(lines[:count])
        try:
            _lines(first)
            schema = _parsed(first, json.ParseOptions()).schema
            break
        except (pa.ArrowException, Unparsable) as error:
            if count == 1:
                cause = undecodable(first, "utf-8", block.at)
                if cause is not None:
                    instead = f"{path}:{block.line}: {cause}; {_OTHER_ENCODINGS}"
                elif first.lstrip().startswith(b"["):
                    instead = "write one object a line, such as with jq -c '.[]'"
                else:
                    instead = "give schema="
                raise SourceError(
                    f"read_json({path!r}): its first row cannot be parsed ({error}), so there is nothing to infer "
                    f"columns from; {instead}"
                ) from error
            count //= 2
    if _AMBIGUOUS.search(first):
        where, objects = f"read_json({path!r})", list(_objects(first.decode()))
        for at, field in enumerate(schema):
            if wanted is None or field.name in wanted:
                values = [row[field.name] for row in objects if field.name in row]
                schema = schema.set(at, field.with_type(_exact_type(where, field.name, field.type, values)))
    return pa.schema({field.name: inferred_type(field.type) for field in schema})


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of ``text``, which Arrow could parse, with whole numbers as they are written."""
    decoder, at = JSONDecoder(parse_int=whole_number), 0
    if "Inf" in text:
        text = _INFINITY.sub(lambda found: found[1] or "Infinity", text)
    while (at := _SPACE.match(text, at).end()) < len(text):  # type: ignore[union-attr]
        row, at = decoder.raw_decode(text, at)
        yield row


def _exact_type(where: str, column: str, type_: pa.DataType, values: Sequence[Any]) -> pa.DataType:
    """Return the type that ``read_csv`` would infer for ``values``, given Arrow's ``type_``.

    Whole numbers that Arrow would round are integers; text that ``read_csv`` reads as dates or timestamps is these.
    """
    valid = [value for value in values if value is not None]
    if types.is_struct(type_):
        return pa.struct(
            [
                field.with_type(
                    _exact_type(
                        where,
                        f"{column}.{field.name}",
                        field.type,
                        [value[field.name] for value in valid if field.name in value],
                    )
                )
                for field in type_
            ]
        )
    if types.is_list(type_):
        items = [item for value in valid for item in value]
        return pa.list_(_exact_type(where, f"{column}[]", type_.value_type, items))
    if types.is_floating(type_) and not any(isinstance(value, float) and isfinite(value) for value in valid):
        others = [str(value) for value in valid if isinstance(value, float)]  # NaN and infinities
        numbers = [value for value in valid if not isinstance(value, float)]
        return whole_number_type(where, column, numbers, others) or type_
    if types.is_string(type_) or types.is_timestamp(type_):
        return _time_type(valid) or pa.string()
    return type_


def _time_type(texts: Sequence[str]) -> pa.DataType | None:
    """Return the type that ``read_csv`` infers for ``texts`` if it is a date or a timestamp, else None."""
    if not texts or not all(_TIME.fullmatch(text) for text in texts):
        return None
    lines = "\n".join(texts).encode()
    read = csv.ReadOptions(use_threads=False, block_size=len(lines) + 1, column_names=["text"])
    (found,) = csv.read_csv(pa.BufferReader(lines), read).schema.types
    return found if types.is_date(found) or types.is_timestamp(found) else None
