"""Conversion of Arrow data to record batches of a declared schema, with errors that name columns that do not fit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from dataflow.contracts.declared_schema import DeclaredSchema

__all__ = ["ArrowBatches", "speaks_arrow"]

_UNNAMED_INDEX: Final = re.compile(r"__index_level_\d+__")  # pandas' name for an index without a name


class ArrowBatches:
    """Makes batches of ``schema``. ``where`` names the producer of the data in messages.

    Columns may come in any order, dictionaries with indices of any width. Frames of other libraries are imported. Their
    text layout varies (views, large, dictionaries), so it is converted to the declared type, and the index that pandas
    adds after a filter is dropped.
    """

    def __init__(self, schema: pa.Schema, where: str) -> None:
        self._schema = schema
        self._where = where
        self._declared = DeclaredSchema(
            schema, f"{where}: the function's output", "change the function or the schema declared for it"
        )

    def parts(self, output: Any) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a batch, table, frame or iterable of these. Raises: TypeError for anything else."""
        if isinstance(output, pa.RecordBatch):
            yield output
        elif isinstance(output, pa.Table):
            self._declared.check(output.schema)
            yield from output.to_batches()
        elif speaks_arrow(output) and not isinstance(output, pa.RecordBatchReader):
            yield from self.parts(self._imported(output))
        elif isinstance(output, Iterable) and not isinstance(output, str | bytes | dict):
            for part in output:
                if part is None:
                    continue
                if not speaks_arrow(part):
                    raise self._no_batch(part)
                yield from self.parts(part)
        else:
            raise self._no_batch(output)

    def _imported(self, frame: Any) -> pa.Table:
        """Return a frame of another library as a table, its text in the declared layout."""
        try:
            streams = hasattr(frame, "__arrow_c_stream__")
            data = pa.RecordBatchReader.from_stream(frame) if streams else pa.record_batch(frame)
        except (pa.ArrowException, TypeError, ValueError) as error:  # a series or an array has no column name
            raise self._no_batch(frame) from error
        table = data.read_all() if streams else pa.Table.from_batches([data])
        expected = {field.name: field.type for field in self._schema}
        for i in range(table.num_columns - 1, -1, -1):
            name, found = table.schema.names[i], table.schema.types[i]
            if name not in expected and _UNNAMED_INDEX.fullmatch(name):
                table = table.remove_column(i)
            elif found != expected.get(name, found) and _layout(found) == _layout(expected[name]):
                table = table.set_column(i, name, table.column(i).cast(expected[name]))
        return table

    def _no_batch(self, output: object) -> TypeError:
        return TypeError(
            f"{self._where}: the function must return a RecordBatch, a Table, a polars or pandas frame, an iterable of "
            f"them, or None; "
            f"it returned a {type(output).__module__}.{type(output).__qualname__}"
        )

    def conformed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return ``batch`` in the declared schema. Raises: SchemaMismatch that names the columns that do not fit."""
        return self._declared.conformed(batch)


def speaks_arrow(output: object) -> bool:
    """Return whether ``output`` has one of Arrow's C interfaces."""
    return hasattr(output, "__arrow_c_stream__") or hasattr(output, "__arrow_c_array__")


def _layout(type_: pa.DataType) -> pa.DataType:
    """Return one representative for all types that hold the same text, or bytes, in different layouts."""
    types = pa.types
    if types.is_dictionary(type_):
        return pa.dictionary(pa.int32(), _layout(type_.value_type))
    if types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_):
        return pa.string()
    if types.is_binary(type_) or types.is_large_binary(type_) or types.is_binary_view(type_):
        return pa.binary()
    return type_
