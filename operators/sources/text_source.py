"""Files of text as a source, whatever their format: one split a file, positions by block, rows that may be rejected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from pyarrow import types

from dataflow.errors import ConfigurationError, SchemaMismatch, UnknownColumn
from dataflow.row_errors import ERRORS, OnError, errors_schema
from dataflow.source import Json, Source, SourceContext, Split, SplitReader
from dataflow.state.dictionaries import wide_type
from operators.sources.arrow import plain_type
from operators.sources.blocks import Place
from operators.sources.files import Files
from operators.sources.known_file import KnownFile, check_unmoved, own_file
from operators.sources.text import RowParser, TextReader

__all__ = ["Reading", "TextFormat", "TextSource", "given_types", "inferred_type", "selected"]

Types = Any
"""A ``pa.Schema``, a mapping of names to types, or None."""


class TextFormat(Protocol):
    """A format with its settings. Picklable."""

    @property
    def label(self) -> str:
        """The function that reads it, for messages."""
        ...

    def open(self, path: str, where: Files, schema: pa.Schema, columns: Sequence[str]) -> tuple[RowParser, Place]:
        """The parser of a file that gives ``columns`` of ``schema``, and where its rows begin."""
        ...


@dataclass(frozen=True, slots=True)
class Reading:
    """How much is read at a time, and what becomes of rows that cannot be parsed."""

    batch_rows: int
    block_bytes: int
    on_error: OnError

    @classmethod
    def of(cls, label: str, batch_rows: int, block_bytes: int, on_error: str | OnError) -> Reading:
        if batch_rows < 1 or block_bytes < 1:
            raise ConfigurationError(
                f"{label}: batch_rows and block_bytes are at least 1, got {batch_rows} and {block_bytes}"
            )
        return cls(batch_rows, block_bytes, OnError.of(on_error, label))


class TextSource(Source):
    """See ``read_csv`` and ``read_json``. Picklable where its filesystem is."""

    def __init__(
        self,
        format: TextFormat,
        files: Sequence[KnownFile],
        where: Files,
        whole: pa.Schema,
        columns: Sequence[str],
        reading: Reading,
    ) -> None:
        self.blocking = where.remote
        self._format = format
        self._files = tuple(files)
        self._where = where
        self._whole = whole
        self._columns = tuple(name for name in whole.names if name in columns)
        self._reading = reading

    @property
    def schema(self) -> pa.Schema:
        return selected(self._whole, self._columns)

    @property
    def sides(self) -> Mapping[str, pa.Schema]:
        return {ERRORS: errors_schema()} if self._reading.on_error is OnError.SIDE else {}

    def splits(self) -> tuple[Split, ...]:
        """One split for each file that is not empty."""
        return tuple(file.split for file in self._files if file.status.bytes)

    def check(self, split: Split) -> None:
        own_file(self._format.label, split, self._files, self._where).check(self._format.label, split, self._where)

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        path = check_unmoved(self._format.label, split, self._files, self._where)
        parser, begin = self._format.open(path, self._where, self._whole, self._columns)
        return TextReader(
            path,
            self._where,
            parser,
            begin,
            offset,
            batch_rows=self._reading.batch_rows,
            block_bytes=self._reading.block_bytes,
            on_error=self._reading.on_error,
            tally=context.tally,
        )

    def select(self, columns: Sequence[str]) -> TextSource:
        check_known(self._format.label, columns, self.schema.names)
        return TextSource(self._format, self._files, self._where, self._whole, columns, self._reading)

    def __repr__(self) -> str:
        more = f" and {len(self._files) - 1} more" if len(self._files) > 1 else ""
        return f"{self._format.label}({self._files[0].path!r}{more})"


def check_known(where: str, columns: Iterable[str], valid: Sequence[str]) -> None:
    for name in columns:
        if name not in valid:
            raise UnknownColumn(name, valid, where)


def check_distinct(where: str, names: Sequence[str]) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise SchemaMismatch(
            f"{where}: column names must differ, but {repeated} occur more than once among {list(names)}; give each a "
            f"name of its own"
        )


def given_types(schema: Types) -> dict[str, pa.DataType]:
    """The types that a user gave, as batches will have them: int32 indices, no view types."""
    if schema is None:
        return {}
    fields = zip(schema.names, schema.types, strict=True) if isinstance(schema, pa.Schema) else schema.items()
    return {name: wide_type(plain_type(pa.field(name, type_).type)) for name, type_ in fields}


def inferred_type(type_: pa.DataType) -> pa.DataType:
    """What a column whose first values were read as ``type_`` is taken for: text where nothing is known but nulls (or
    bytes that are no text), microseconds where no fractions of seconds came yet.
    """
    if types.is_null(type_) or types.is_binary(type_):
        return pa.string()
    if types.is_timestamp(type_) and type_.unit == "s":
        return pa.timestamp("us", type_.tz)
    if types.is_list(type_):
        return pa.list_(inferred_type(type_.value_type))
    if types.is_struct(type_):
        return pa.struct([pa.field(field.name, inferred_type(field.type)) for field in type_])
    return type_


def ordered(given: Mapping[str, pa.DataType], inferred: pa.Schema) -> pa.Schema:
    """The given columns in the order they were given, then the inferred ones."""
    found = {field.name: inferred_type(field.type) for field in inferred if field.name not in given}
    return pa.schema({**given, **found})


def selected(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    return pa.schema([field for field in schema if field.name in columns])
