"""Columns of nested types as bytes, so that keyed state can keep them: each row is a message of an Arrow IPC stream.

Messages put after each other are a stream, so all rows of a batch are decoded at once.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.state.arrays import is_key
from dataflow.state.ipc import messages_field, stream_of

__all__ = ["NestedColumns", "can_be_kept"]

_NESTED: Final = "barrierflow:nested"


def can_be_kept(type_: pa.DataType) -> bool:
    """Return whether rows with a column of this type can be kept: all but nested types with dictionaries in them."""
    return is_key(type_) or not _has_dictionaries(type_)


def _has_dictionaries(type_: pa.DataType) -> bool:
    inner = [type_.field(number).type for number in range(type_.num_fields)]
    return pa.types.is_dictionary(type_) or any(_has_dictionaries(each) for each in inner)


class NestedColumns:
    """Rows of ``schema``, and the same rows as keyed state can keep them: ``kept`` are their columns.

    >>> columns = NestedColumns(pa.schema({"tags": pa.list_(pa.string()), "n": pa.int64()}))
    >>> rows = pa.RecordBatch.from_pylist([{"tags": ["a"], "n": 1}, {"tags": None, "n": 2}], columns.schema)
    >>> columns.kept.names, columns.decode(columns.encode(rows)).equals(rows)
    (['n', 'barrierflow:nested'], True)
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._nested = pa.schema([field for field in schema if not is_key(field.type)])
        plain = [field for field in schema if is_key(field.type)]
        self.kept = pa.schema([*plain, *([messages_field(_NESTED, self._nested)] if len(self._nested) else [])])

    def encode(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return ``rows`` with the columns ``kept``."""
        if not len(self._nested):
            return rows
        nested = rows.select(self._nested.names)
        messages = [nested.slice(at, 1).serialize().to_pybytes() for at in range(rows.num_rows)]
        columns = [rows.column(name) for name in self.kept.names[:-1]]
        return pa.RecordBatch.from_arrays([*columns, to_array(messages, pa.binary())], schema=self.kept)

    def decode(self, kept: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that ``encode`` returned as ``kept``."""
        if not len(self._nested):
            return kept
        with pa.ipc.open_stream(stream_of(kept.column(_NESTED), self._nested)) as reader:
            nested = reader.read_all().combine_chunks()
        columns = {name: kept.column(name) for name in self.kept.names[:-1]}
        for name in self._nested.names:
            chunks = nested.column(name).chunks
            columns[name] = chunks[0] if chunks else pa.array([], self._nested.field(name).type)
        return pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)
