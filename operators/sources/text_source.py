"""Text files of any format as a source: one split per file, positions by block, rows that may be rejected."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from pyarrow import types

from dataflow.contracts.row_errors import ERRORS, OnError, errors_schema
from dataflow.contracts.source import InputIdentity, Json, Source, SourceContext, Split, SplitReader
from dataflow.errors import GraphError, SchemaMismatch, SourceError, UnknownColumn, check_count, repeated_names
from dataflow.expressions.type_names import named_type
from dataflow.state.dictionaries import wide_type
from operators.sources.arrow import plain_type
from operators.sources.blocks import BlockStart
from operators.sources.files import Files, compression
from operators.sources.known_file import KnownFiles, changed
from operators.sources.text import RowParser, TextReader

__all__ = [
    "KnownTypes",
    "TextReading",
    "TextFormat",
    "TextSource",
    "given_names",
    "given_types",
    "inferred_type",
    "selected",
    "whole_number",
    "whole_number_type",
]

Types = Any
"""A ``pa.Schema``, a mapping of names to types, or None."""


class TextFormat(Protocol):
    """A format with its settings. Picklable."""

    @property
    def label(self) -> str:
        """The name of the function that reads it, for messages."""
        ...

    @property
    def kernels(self) -> Sequence[str]:
        """See ``Source.kernels``."""
        ...

    def open(self, path: str, where: Files, schema: pa.Schema, columns: Sequence[str]) -> tuple[RowParser, BlockStart]:
        """Return a parser of a file to ``columns`` of ``schema``, and where its rows begin."""
        ...


@dataclass(frozen=True, slots=True)
class TextReading:
    """How much to read at a time, and the policy for rows that cannot be parsed."""

    batch_rows: int
    block_bytes: int
    on_error: OnError

    @classmethod
    def of(cls, label: str, batch_rows: int, block_bytes: int, on_error: str | OnError) -> TextReading:
        check_count(f"{label}: batch_rows", batch_rows)
        check_count(f"{label}: block_bytes", block_bytes)
        return cls(batch_rows, block_bytes, OnError.of(on_error, label))


class TextSource(Source):
    """The source that ``read_csv`` and ``read_json`` make. Picklable if its filesystem is."""

    def __init__(
        self,
        format: TextFormat,
        files: KnownFiles,
        whole: pa.Schema,
        columns: Sequence[str],
        reading: TextReading,
    ) -> None:
        self.blocking = files.where.remote
        self._format = format
        self._files = files
        self._whole = whole
        chosen = frozenset(columns)
        self._columns = tuple(name for name in whole.names if name in chosen)
        self._reading = reading

    @property
    def schema(self) -> pa.Schema:
        return selected(self._whole, self._columns)

    @property
    def sides(self) -> Mapping[str, pa.Schema]:
        return {ERRORS: errors_schema()} if self._reading.on_error is OnError.SIDE else {}

    @property
    def kernels(self) -> Sequence[str]:
        return self._format.kernels

    def splits(self) -> tuple[Split, ...]:
        """Return a split for each file that is not empty."""
        return tuple(file.split for file in self._files.files.values() if file.identity.bytes)

    def check(self, split: Split) -> None:
        self._files.check(split)

    def identified_by(self, identity: InputIdentity) -> TextSource:
        return self._with(self._files.identified_by(identity), self._columns)

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        file, where = self._files.check(split), self._files.where
        parser, begin = self._format.open(file.path, where, self._whole, self._columns)
        return TextReader(
            file.path,
            where,
            parser,
            begin,
            offset,
            batch_rows=self._reading.batch_rows,
            block_bytes=self._reading.block_bytes,
            on_error=self._reading.on_error,
            tally=context.tally,
            whole=lambda read: self._check_whole(split, read),
        )

    @staticmethod
    def _check_whole(split: Split, read: int) -> None:
        """Raise InputChanged if a file grew or shrank while it was read; decompression detects that by itself."""
        if compression(str(split.info["path"])) is None and read != split.info["bytes"]:
            raise changed(split, f"it had {split.info['bytes']} bytes and {read} were read")

    def select(self, columns: Sequence[str]) -> TextSource:
        check_known(self._format.label, columns, self.schema.names)
        return self._with(self._files, columns)

    def _with(self, files: KnownFiles, columns: Sequence[str]) -> TextSource:
        return TextSource(self._format, files, self._whole, columns, self._reading)

    def __repr__(self) -> str:
        return repr(self._files)


def check_known(where: str, columns: Iterable[str], valid: Sequence[str]) -> None:
    known = frozenset(valid)
    for name in columns:
        if name not in known:
            raise UnknownColumn(name, valid, where)


def check_distinct(where: str, names: Sequence[str]) -> None:
    if repeated := repeated_names(names):
        raise SchemaMismatch(
            f"{where}: column names must differ, but {repeated} occur more than once among {list(names)}; give each a "
            f"name of its own"
        )


class KnownTypes(dict[str, pa.DataType]):
    """The types of columns of many files, as ``schema=`` of a reader of one of them.

    A user gave those of the columns ``given``; others were inferred from another file.
    """

    def __init__(self, types: pa.Schema, given: Collection[str]) -> None:
        super().__init__(zip(types.names, types.types, strict=True))
        self.given = tuple(name for name in types.names if name in given)


def given_names(schema: Types) -> tuple[str, ...]:
    """Return the columns whose types a user gave."""
    return schema.given if isinstance(schema, KnownTypes) else tuple(given_types(schema))


def given_types(schema: Types) -> dict[str, pa.DataType]:
    """Return the types that a user gave, as batches have them: int32 indices, no view types."""
    if schema is None:
        return {}
    if not isinstance(schema, pa.Schema | Mapping):
        raise GraphError(
            f"schema=: expected a pyarrow schema, or types by column such as {{'id': 'int64'}}, got {schema!r}"
        )
    if isinstance(schema, pa.Schema) and (repeated := repeated_names(schema.names)):
        raise GraphError(f"schema=: column names must differ, but {repeated} occur more than once")
    fields = zip(schema.names, schema.types, strict=True) if isinstance(schema, pa.Schema) else schema.items()
    return {name: wide_type(plain_type(_given_type(name, type_), name)) for name, type_ in fields}


def _given_type(name: str, type_: pa.DataType | str) -> pa.DataType:
    where = f"schema= of column {name!r}"
    if isinstance(type_, str):
        return named_type(type_, where)
    if not isinstance(type_, pa.DataType):
        raise GraphError(f"{where}: expected a pyarrow type or its name, got {type_!r} ({type(type_).__name__})")
    return type_


def inferred_type(type_: pa.DataType) -> pa.DataType:
    """Return the type of a column whose first values Arrow reads as ``type_``.

    It is text if these are all null, or bytes that are not text. Times without fractions of seconds get microseconds.
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


def whole_number(token: str) -> int:
    """Return the value of a whole number in decimal digits.

    Python limits the digits that it converts. So of a number that is too long for any type only the first digits are
    used; they suffice to reject it.
    """
    sign, digits = ("-" if "-" in token else ""), token.strip(" \t+-").lstrip("0")
    return int(f"{sign}{digits[:_MOST_DIGITS] or 0}")


def whole_number_type(
    where: str, column: str, numbers: Collection[int], others: Collection[str] = ()
) -> pa.DataType | None:
    """Return the type of a column whose first values are ``numbers``, without a fraction or an exponent among them.

    Arrow infers float64 for such a column if one of them is outside int64, or if there are ``others``: that would round
    ids, and make two of them one key.

    Args:
        where: begins the error's text, such as ``read_csv('a.csv')``.
        column: the column, for the error.
        numbers: all of its whole numbers that inference looks at.
        others: values among them that no integer type takes, such as ``nan`` or a number with a plus.

    Returns: int64 or uint64, whichever holds all of them; int64 if both do. None if only float64 does.

    Raises: SourceError if no type holds all of them.
    """
    least, most = min(numbers, default=0), max(numbers, default=0)
    if others and least >= -_EXACT and most <= _EXACT:
        return None
    if others:
        raise SourceError(
            f"{where}: column {column!r} has {next(iter(others))!r} among numbers that float64 would round, and no "
            f"integer type takes it: write it as a plain number or as null (null_values= in CSV), or name the column's "
            f"type with schema="
        )
    if least >= -(2**63) and most < 2**63:
        return pa.int64()
    if least >= 0 and most < 2**64:
        return pa.uint64()
    decimal = "decimal128(38, 0), " * (max(-least, most) < 10**38)
    alone = next((number for number in (least, most) if not -(2**63) <= number < 2**64), None)
    shown = f"{alone}: neither int64 nor uint64 holds it, and float64 would round it"
    if alone is None:
        shown = f"{least} and {most}: neither int64 nor uint64 holds both, and float64 would round them"
    raise SourceError(
        f"{where}: column {column!r} has {shown}; name its type with schema= (of all columns for "
        f"read_json), such as {decimal}string, or float64"
    )


_EXACT = 2**53  # float64 holds all whole numbers up to here
_MOST_DIGITS = 80  # decimal256 has 76


def ordered(given: Mapping[str, pa.DataType], inferred: pa.Schema) -> pa.Schema:
    """Return a schema of the given columns in their order, then the inferred ones."""
    found = {field.name: inferred_type(field.type) for field in inferred if field.name not in given}
    return pa.schema({**given, **found})


def selected(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    chosen = frozenset(columns)
    return pa.schema([field for field in schema if field.name in chosen])
