"""The columns of all files of an output directory: they must have the same names, in the same order, and one type each.

Types are compared as Parquet stores them (``operators.parquet_types``), and rows are read in a type that holds the
values of all files. A column without a value has the null type, and takes the type of the other files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import types

from dataflow.arrow_values import to_array
from dataflow.errors import OutputExists, SchemaMismatch, StoreError
from dataflow.store.files import storing
from operators.parquet_types import common_type
from operators.sinks.commits import CommittedFile
from operators.sinks.formats import format_named
from operators.sinks.partitions import folder_columns, schema_with_folders

__all__ = ["check_appended", "united"]


def check_appended(
    what: str, directory: Path, newest_first: Iterable[CommittedFile], schema: pa.Schema, partition_by: Sequence[str]
) -> None:
    """Check that rows of ``schema`` can be appended to the committed files of ``directory``.

    The newest file decides. Older ones are only read while there are columns of the null type in all newer ones.

    Raises: SchemaMismatch for other columns; OutputExists for other partition folders; StoreError.
    """
    untyped = set(schema.names)
    for committed in newest_first:
        path = directory / committed.file
        there = _schema_of(path, committed)
        if there is None:  # readers may move files away
            continue
        by = folder_columns(committed.form)
        if by != list(partition_by):
            raise OutputExists(
                f"{what}: expected rows in folders by {list(partition_by)}, found {path} in folders by {by}: use the "
                "same partition_by=, or write to another directory"
            )
        if reason := _difference(there, schema, f"in {path}", "here"):
            raise SchemaMismatch(
                f"{what}: {reason}; make the columns the same with select() and cast(), or write to another directory"
            )
        untyped &= {field.name for field in there if types.is_null(field.type)}
        if not untyped:
            return


def united(files: Sequence[tuple[Path, pa.Table]]) -> pa.Table:
    """Return the rows of all ``files`` as one table. Raises: StoreError, naming two files, if they do not fit."""
    (first, table), *others = files
    schema = table.schema
    sources = [first] * len(schema)  # by column: the file that has its type
    for path, other in others:
        if other.schema.equals(table.schema):
            continue
        number = _differing(schema, other.schema)
        if number is not None:
            reason = _difference(schema, other.schema, f"in {sources[number]}", f"in {path}")
            raise StoreError(
                f"the committed files do not have the same columns: {reason}; move the files of one kind away, and "
                "read them by themselves"
            )
        for number, (field, second) in enumerate(zip(schema, other.schema, strict=True)):
            if types.is_null(field.type) and not types.is_null(second.type):
                sources[number] = path
            type_ = common_type(field.type, second.type)
            schema = schema.set(number, pa.field(field.name, type_, field.nullable or second.nullable))
    return pa.concat_tables([_as_schema(table, schema) for _, table in files])


def _schema_of(path: Path, committed: CommittedFile) -> pa.Schema | None:
    """Return all columns of the rows of a file; None if it is gone. Raises: StoreError."""
    try:
        with storing("read", path):
            schema = format_named(committed.format).schema(path, committed.form)
            return schema_with_folders(schema, committed.form)
    except StoreError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
    except (pa.ArrowException, ValueError, IndexError) as error:
        raise StoreError(f"{path}: a committed file is not whole ({error}); put the original back") from error


def _difference(one: pa.Schema, other: pa.Schema, here: str, there: str) -> str:
    """Return how two schemas differ, in words for the places of both; "": rows of both fit into one table."""
    number = _differing(one, other)
    if number is None:
        return ""
    if one.names != other.names:
        return f"the columns are {one.names} {here}, and {other.names} {there}"
    return f"column {one.names[number]!r} is {one.types[number]} {here}, and {other.types[number]} {there}"


def _differing(one: pa.Schema, other: pa.Schema) -> int | None:
    """Return the number of the first column that differs; None: all have the same names, and one type each."""
    if one.names != other.names:
        return 0
    pairs = enumerate(zip(one.types, other.types, strict=True))
    return next((number for number, (first, second) in pairs if common_type(first, second) is None), None)


def _as_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows of ``table`` with the types of ``schema``."""
    if table.schema.equals(schema):
        return table
    columns = [_cast(column, type_) for column, type_ in zip(table.columns, schema.types, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def _cast(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """Return ``column`` as ``type_``. Arrow casts list views to wrong values, so they go through Python values."""
    if column.type == type_:
        return column
    if "list_view" in f"{column.type} {type_}":
        return to_array(column.to_pylist(), type_)
    return column.cast(type_)
