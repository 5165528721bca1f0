"""Hive-style folders: rows are divided by the values of some columns, which the names of folders hold, not the files.

    out/country=DE/day=2024-02-29/part-00000007-00000-0000.parquet
    out/country=__HIVE_DEFAULT_PARTITION__/day=2024-02-29/...                 a null

Names and values are data, so they are escaped as in URLs: UTF-8 bytes other than letters, digits and ``_ . - ~`` become
``%`` and two hex digits. So no value can lead to another directory, and every value can be read back.

Invariant: equal values have one folder, and unequal ones different folders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dataflow.arrow_values import to_array, to_numbers
from dataflow.errors import ConfigurationError, SchemaMismatch, UnknownColumn, repeated_names
from operators.sinks.formats import MAX_FOLDER, FileFormat, Form, encoded

__all__ = [
    "ByColumns",
    "Layout",
    "OneFolder",
    "column_names",
    "folder_columns",
    "schema_with_folders",
    "with_partitions",
]

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_NO_NULL: Final = f"%5F{_NULL[1:]}"  # the text that is spelled like a null
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # of the years 1 and 9999


class Layout(Protocol):
    """How rows are divided into folders."""

    def file_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns of the files for rows of ``schema``."""
        ...

    def form(self, format_: FileFormat, schema: pa.Schema) -> Form | None:
        """Return how to read the files for rows of ``schema``."""
        ...

    def split(self, table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """Yield each folder ("" for the directory itself) and its rows, in the columns of its files."""
        ...


class OneFolder:
    """All rows are in the directory itself."""

    def file_schema(self, schema: pa.Schema) -> pa.Schema:
        return schema

    def form(self, format_: FileFormat, schema: pa.Schema) -> Form | None:
        return format_.form(schema)

    def split(self, table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        yield "", table


class ByColumns:
    """Rows are divided by ``columns``; the first one is the outermost folder."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)

    def check(self, schema: pa.Schema, sink: object) -> None:
        """Raise UnknownColumn or SchemaMismatch, naming ``sink``, if rows of ``schema`` cannot be divided."""
        for name in self.columns:
            if name not in schema.names:
                raise UnknownColumn(name, schema.names, f"{sink!r}: partition_by")
            if not _has_folders(schema.field(name).type):
                raise SchemaMismatch(
                    f"{sink!r}: partition_by takes columns of text, integers, booleans and dates, and {name!r} is "
                    f"{schema.field(name).type}; add such a column, for example with .dt.date() or .cast('string')"
                )
        if set(schema.names) <= set(self.columns):
            raise SchemaMismatch(f"{sink!r}: partition_by has all columns, so files would have none; leave one out")

    def file_schema(self, schema: pa.Schema) -> pa.Schema:
        kept = [field for field in schema if field.name not in self.columns]
        return pa.schema(kept, schema.metadata)

    def form(self, format_: FileFormat, schema: pa.Schema) -> Form:
        folders = pa.schema([schema.field(name) for name in self.columns])
        places = [("partition", str(schema.get_field_index(name))) for name in self.columns]
        return Form(format_.name, encoded(folders), tuple(places))

    def split(self, table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        groups: Any = np.zeros(table.num_rows, np.int64)
        named = []
        for name in self.columns:
            codes, folders = _encoded(table[name], name)
            named.append((codes, folders))
            groups = np.unique(groups * len(folders) + codes, return_inverse=True)[1]
        order = np.argsort(groups, kind="stable")
        starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
        rows = table.select([name for name in table.column_names if name not in self.columns])
        for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
            folder = "/".join(folders[codes[order[start]]] for codes, folders in named)
            yield folder, rows.take(to_array(order[start:end]))


def column_names(partition_by: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the names given as ``partition_by``. Raises: TypeError, ConfigurationError."""
    names = () if partition_by is None else (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"partition_by takes names of columns, got {name!r}")
    for name in repeated_names(names):
        raise ConfigurationError(f"partition_by has {name!r} more than once; leave one out")
    return names


def with_partitions(table: pa.Table, folders: Sequence[str], form: Form) -> pa.Table:
    """Return the rows of a file with the columns that its ``folders`` hold, in the places that ``form`` names.

    Raises: pa.ArrowException if a folder holds no value of its column's type.
    """
    for place, field, level in _placed(form):
        folder = folders[level]
        table = table.add_column(place, field, _repeated(folder.partition("=")[2], field.type, table.num_rows))
    return table


def folder_columns(form: Form | None) -> list[str]:
    """Return the columns that the folders of a file hold, the outermost first."""
    return [] if form is None or not form.levels else form.arrow_schema().names


def schema_with_folders(schema: pa.Schema, form: Form | None) -> pa.Schema:
    """Return the columns of rows whose file has the columns of ``schema``."""
    if form is None or not form.levels:
        return schema
    for place, field, _ in _placed(form):
        schema = schema.insert(place, field)
    return schema


def _placed(form: Form) -> list[tuple[int, pa.Field, int]]:
    """Return the columns that folders hold, in ascending order of their place: place, column, number of the folder."""
    places = [int(place) for name, place in form.options if name == "partition"]
    fields = zip(places, form.arrow_schema(), range(len(places)), strict=True)
    return sorted(fields, key=lambda column: column[0])


def _has_folders(dtype: pa.DataType) -> bool:
    if types.is_dictionary(dtype):
        return _has_folders(dtype.value_type)
    textual = types.is_string(dtype) or types.is_large_string(dtype)
    return bool(textual or types.is_integer(dtype) or types.is_boolean(dtype) or types.is_date32(dtype))


def _encoded(column: pa.ChunkedArray, name: str) -> tuple[Any, list[str]]:
    """Return a code for each row, and the folder for each code."""
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)  # its dictionary may hold a value twice
    codes = pa.concat_arrays(column.chunks).dictionary_encode(null_encoding="encode")
    values = codes.dictionary
    if types.is_date32(values.type):
        days = values.cast(pa.int32())
        if pc.any(pc.or_(pc.less(days, _FIRST_DAY), pc.greater(days, _LAST_DAY))).as_py():
            raise ValueError(
                f"partition_by: column {name!r} has a day before year 1 or after 9999; filter such rows out"
            )
    folders = [_folder(name, value) for value in values.cast(pa.large_string()).to_pylist()]
    return to_numbers(codes.indices), folders


def _folder(name: str, value: str | None) -> str:
    escaped = _NULL if value is None else _NO_NULL if value == _NULL else quote(value, safe="")
    folder = f"{quote(name, safe='')}={escaped}"
    if len(folder) > MAX_FOLDER:
        raise ValueError(
            f"partition_by: a value of column {name!r} needs a folder name of {len(folder)} bytes, and file systems "
            f"allow {MAX_FOLDER}; shorten it with .str.slice(), or partition by another column: {folder[:60]}..."
        )
    return folder


def _repeated(escaped: str, dtype: pa.DataType, rows: int) -> pa.Array:
    if escaped == _NULL:
        return pa.nulls(rows, dtype)
    value = to_array([unquote(escaped, errors="strict")], pa.string())
    if types.is_dictionary(dtype):
        indices = to_array(np.zeros(rows, np.int32)).cast(dtype.index_type)
        return pa.DictionaryArray.from_arrays(indices, value.cast(dtype.value_type), ordered=dtype.ordered)
    return pa.repeat(value.cast(dtype)[0], rows)
