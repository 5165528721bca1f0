"""JSON lines as a source: one object a line, parsed by Arrow a block at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json, types

from dataflow.arrow_values import to_scalar
from dataflow.contracts.row_errors import OnError
from dataflow.errors import SchemaMismatch, SourceError
from dataflow.expressions.localization import naming_localize
from operators.sources.blocks import BlockStart
from operators.sources.files import Files
from operators.sources.json_inference import OTHER_ENCODINGS, count_lines, decode_objects, infer_schema, parse_lines
from operators.sources.json_values import entries_type, has_map, has_text, rewritten, with_maps
from operators.sources.known_file import KnownFiles
from operators.sources.paths import SUFFIXES, Paths, expand
from operators.sources.text import Unparsable, Wrong, no_rows, opened_blocks, searched
from operators.sources.text_source import (
    TextReading,
    TextSource,
    Types,
    check_known,
    given_types,
    selected,
)

__all__ = ["JsonFormat", "read_json"]

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

    Columns are fields of the objects, nested ones included; a field that a line does not have is null. A map is read
    from an object whose fields are its keys, or from an array of ``{"key": ..., "value": ...}``. If ``schema`` says
    text, a value that is no string is the text that the file has for it. Both take longer to parse. Without
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
    reading = TextReading.of(format.label, batch_rows, block_bytes, on_error)
    where, found = expand(paths, SUFFIXES["read_json"], filesystem)
    files = KnownFiles.look(format.label, found, where)
    whole = (
        format.inferred_from(found, where, block_bytes, reading.on_error, columns)
        if schema is None
        else pa.schema(given_types(schema))
    )
    check_known(f"{format.label}({found[0]!r})", columns or (), whole.names)
    JsonParser(format, whole, whole.names)  # raises for a type that cannot be read, before anything runs
    return TextSource(format, files, whole, whole.names if columns is None else columns, reading)


read_json.suffixes = SUFFIXES["read_json"]  # type: ignore[attr-defined]  # for ``watch``


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
        self,
        paths: Sequence[str],
        where: Files,
        block_bytes: int,
        on_error: OnError,
        wanted: Sequence[str] | None = None,
    ) -> pa.Schema:
        """Return the fields of the first rows, with their types. ``on_error`` is the policy for bad lines among them.

        Raises: SourceError if there are no rows, or whole numbers in ``wanted`` fields that fit no type.
        """
        failed: SourceError | None = None
        for path in paths:
            with opened_blocks(self.label, path, where, _cut, block_bytes) as blocks:
                for block in (block for block in blocks if block.data.strip()):
                    schema = infer_schema(path, block, on_error, wanted)
                    if isinstance(schema, pa.Schema):
                        return schema
                    failed = failed or schema
        raise failed or SourceError(f"read_json({paths[0]!r}): there is nothing to infer columns from; give schema=")

    def open(self, path: str, where: Files, schema: pa.Schema, columns: Sequence[str]) -> tuple[JsonParser, BlockStart]:
        with opened_blocks(self.label, path, where, _cut, 1) as blocks:
            return JsonParser(self, schema, columns), blocks.place


class JsonParser:
    """Parses lines to ``columns`` of ``schema``."""

    label = "read_json"
    encoding = "utf-8"
    other_encodings = OTHER_ENCODINGS

    def __init__(self, format: JsonFormat, schema: pa.Schema, columns: Sequence[str]) -> None:
        self.schema = selected(schema, columns)
        self._unseen_columns = format.unexpected == "ignore"
        self._looks_inside = self._unseen_columns and any(_has_fields(_parsed_type(t)) for t in self.schema.types)
        parsed = schema if format.unexpected == "error" else self.schema
        self._options = json.ParseOptions(
            explicit_schema=pa.schema([field.with_type(_parsed_type(field.type)) for field in parsed]),
            unexpected_field_behavior=format.unexpected,
        )
        self._known = {field.name: _parsed_type(field.type) for field in parsed}
        self._columns = dict(zip(parsed.names, parsed.types, strict=True))
        self._has_maps = any(has_map(type_) for type_ in self.schema.types)
        self._has_texts = not format.inferred and any(has_text(type_) for type_ in self.schema.types)
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
        lines = count_lines(data)
        if not lines:
            return no_rows(self.schema)
        table = self._converted(data)
        if table.num_rows != lines:
            raise Unparsable("more than one object in a line")
        columns = [with_maps(_only_chunk(table[field.name]), field.type, _cast) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _converted(self, data: bytes) -> pa.Table:
        """Parse ``data``, of which some values may have to be rewritten first. Most text is text in the file, too."""
        if self._has_maps:
            return self._table(self._rewritten(data))
        try:
            return self._table(data)
        except (pa.ArrowInvalid, Unparsable) as error:
            if not self._has_texts:
                raise
            try:
                data = self._rewritten(data)
            except Unparsable:
                raise error from None  # which says more
        return self._table(data)

    def _rewritten(self, data: bytes) -> bytes:
        return rewritten(data.decode(), self._columns).encode()

    def _table(self, data: bytes) -> pa.Table:
        """Parse ``data``. Arrow ignores unexpected fields everywhere or nowhere; those within columns are found here.

        Raises: Unparsable for a field within a chosen column that its type does not have.
        """
        if not self._looks_inside:
            return parse_lines(data, self._options)
        try:
            table = parse_lines(data, json.ParseOptions(explicit_schema=self._options.explicit_schema))
        except pa.ArrowInvalid:  # perhaps because of a field that is not a column
            table = parse_lines(data, self._options)
            rows = list(decode_objects(data.decode()))
            extra = next(filter(None, (self._unexpected(row) for row in rows)), None)
        else:
            extra = next(
                filter(None, (_more(name, self._known[name], table.field(name).type) for name in self.schema.names)),
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
        reason = naming_localize(str(row.error))
        if "UTF" in reason:
            return Unparsable(reason)
        if "unexpected field" in reason:
            with suppress(ValueError, UnicodeDecodeError):
                (read,) = decode_objects(self._rewritten(data[row.start : row.end]).decode())
                if (name := self._unexpected(read)) is not None:
                    hint = "the fields were inferred from the first rows, " * bool(self._hint)
                    column, inside, _ = name.partition(".")
                    other = f"or has {column!r} as a map or as text" if inside else "columns= leaves others out"
                    return Unparsable(f"unexpected field {name!r}: {hint}schema= adds it, {other}")
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


def _parsed_type(type_: pa.DataType) -> pa.DataType:
    if types.is_duration(type_):
        return pa.int64()
    if types.is_struct(type_):
        return pa.struct([field.with_type(_parsed_type(field.type)) for field in type_])
    if types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_parsed_type(type_.value_type)))
    if types.is_map(type_):
        return entries_type(pa.string(), _parsed_type(type_.item_type))
    return pa.string() if any(check(type_) for check in _AS_TEXT) else type_


def _only_chunk(column: pa.ChunkedArray) -> pa.Array:
    assert column.num_chunks == 1, f"a block is read in one piece, got {column.num_chunks} chunks"
    return column.chunk(0)


def _cast(values: pa.Array, type_: pa.DataType) -> pa.Array:
    if types.is_time(type_):  # Arrow cannot cast text to times of day, but to timestamps
        values = pc.binary_join_element_wise(to_scalar("1970-01-01T"), values, to_scalar(""))
        values = values.cast(pa.timestamp(type_.unit))
    return values.cast(type_)


def _suspect(error: Exception) -> int | None:
    named = _ROW.search(str(error))
    return int(named[1]) if named else None
