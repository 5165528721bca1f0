"""Columns whose type has become wider between a checkpoint and its restore, so that each value fits as it is.

Integers widen within their sign, float32 to float64, text and binary to their large types, and decimals of one scale to
more digits. Lists widen with their values. A column that decides the key group of a row is an integer or text: equal
values of these have one hash, whatever their width (``dataflow.state.hashing``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from dataflow.errors import CheckpointDamaged
from dataflow.state.ipc import messages_schema, read_stream, stream_of

__all__ = ["widened", "widened_batch", "widens"]

_KEYS: Final = (
    ("int8", "int16", "int32", "int64"),
    ("uint8", "uint16", "uint32", "uint64"),
    ("string", "large_string"),
)
_OTHERS: Final = (("float", "double"), ("binary", "large_binary"))
_LIST: Final = re.compile(r"((?:large_)?list<\w+: )(.+)>")
_DECIMAL: Final = re.compile(r"decimal(\d+)\((\d+), (-?\d+)\)")


def widens(before: str, now: str, *, key: bool = False) -> bool:
    """Return whether a column of the type ``before`` (as Arrow prints it) may have the wider type ``now``.

    Args:
        before: the type in the checkpoint.
        now: the type in the pipeline.
        key: whether rows go to their subtask by the column.

    >>> widens("int32", "int64"), widens("int32", "uint64"), widens("int64", "int32"), widens("float", "double")
    (True, False, False, True)
    >>> widens("decimal128(9, 2)", "decimal128(12, 2)"), widens("decimal128(9, 2)", "decimal128(12, 3)")
    (True, False)
    >>> widens("list<item: int32>", "list<item: int64>")
    True
    >>> widens("string", "large_string", key=True), widens("float", "double", key=True)
    (True, False)
    """
    for kinds in _KEYS if key else (*_KEYS, *_OTHERS):
        if before in kinds and now in kinds:
            return kinds.index(before) < kinds.index(now)
    if key:
        return False
    if (inner := _LIST.fullmatch(before)) and (wider := _LIST.fullmatch(now)):
        return inner[1] == wider[1] and widens(inner[2], wider[2])
    old, new = _DECIMAL.fullmatch(before), _DECIMAL.fullmatch(now)
    if old is None or new is None:
        return False
    (width, digits, scale), (more_width, more_digits, same) = (tuple(map(int, each.groups())) for each in (old, new))
    return scale == same and before != now and width <= more_width and digits <= more_digits


def widened(table: pa.Table, expected: pa.Schema | None, keys: int = 0) -> pa.Table:
    """Return a stored table whose columns have the types of ``expected`` where these are wider; others are as stored.

    Args:
        table: a table of a checkpoint, with the columns of ``expected`` in their order.
        expected: the columns that the operator has now; None: it has no such table.
        keys: how many of the first columns decide the key group of a row.

    Raises: CheckpointDamaged for nested columns that cannot be read.

    >>> stored = pa.table({"k": pa.array([1], pa.int8()), "x": pa.array([0.5], pa.float32())})
    >>> widened(stored, pa.schema({"k": pa.int64(), "x": pa.float64()})).schema.types
    [DataType(int64), DataType(double)]
    """
    if expected is None or table.num_columns != len(expected):
        return table
    for place, field in enumerate(expected):
        found = table.schema.field(place)
        column: pa.ChunkedArray | None = None
        if _type_widens(found.type, field.type, key=place < keys):
            column = table.column(place).cast(field.type)
        elif found.type == field.type and (before := messages_schema(found)) is not None:
            now = messages_schema(field)
            if now is not None and before != now and _schema_widens(before, now):
                column = _widened_messages(table.column(place), before, now, found.name)
        if column is not None:
            kept = field.with_name(found.name) if column.type == field.type else found
            table = table.set_column(place, kept, column)
    return table


def widened_batch(batch: pa.RecordBatch, types: Sequence[pa.DataType]) -> pa.RecordBatch:
    """Return rows in flight with the ``types`` of the columns of their channel."""
    columns = [column.cast(type_) for column, type_ in zip(batch.columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _type_widens(before: pa.DataType, now: pa.DataType, *, key: bool) -> bool:
    if before == now:
        return False
    return widens(str(before), str(now), key=key)


def _schema_widens(before: pa.Schema, now: pa.Schema) -> bool:
    pairs = zip(before, now, strict=False)
    return before.names == now.names and all(
        [a.type == b.type or _type_widens(a.type, b.type, key=False) for a, b in pairs]
    )


def _widened_messages(column: pa.ChunkedArray, before: pa.Schema, now: pa.Schema, name: str) -> pa.ChunkedArray:
    """Return a column of messages, each of which is one row of ``before``, as rows of ``now``."""
    kept = column.drop_null().combine_chunks()
    stream = read_stream(stream_of(kept, before), f"column {name!r}")
    if len(stream.batches) != len(kept) or stream.rows != len(kept):
        raise CheckpointDamaged(f"column {name!r}: {len(kept)} rows were stored as {stream.rows}")
    messages = iter(
        [
            pa.RecordBatch.from_arrays(
                [value.cast(type_) for value, type_ in zip(row.columns, now.types, strict=True)], schema=now
            )
            .serialize()
            .to_pybytes()
            for row in stream.batches
        ]
    )
    return pa.chunked_array(
        [[next(messages) if valid else None for valid in column.is_valid().to_pylist()]], pa.binary()
    )
