"""The columns of chosen rows in the types that state takes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from operators.stateful.columns import ALL, typed

__all__ = ["KeyColumns", "RowColumns"]


class KeyColumns:
    """The key columns of rows: dictionaries are decoded, views are large text, and over all rows there is one key.

    >>> keys = KeyColumns(pa.schema({"k": pa.string(), "x": pa.int64()}), ["k"])
    >>> keys.schema.names, keys.of(pa.record_batch({"k": ["a"], "x": [1]}))[0].to_pylist()
    (['k'], ['a'])
    """

    def __init__(self, schema: pa.Schema, names: Sequence[str]) -> None:
        from dataflow.expressions.coercion import value_type

        self.names = list(names)
        fields = [pa.field(name, value_type(schema.field(name).type)) for name in names]
        self.schema = pa.schema(fields or [pa.field(ALL, pa.int8())])

    def of(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the key columns of a batch."""
        if not self.names:
            return [to_array(np.zeros(batch.num_rows, np.int8))]
        return [typed(batch.column(field.name), field.type) for field in self.schema]


class RowColumns:
    """The columns of rows that are kept beside the key columns, at least one, and how rows become output.

    Args:
        inputs: the columns of the input.
        output: the columns of the output.
        keys: the names of the key columns.
        made: the columns of the output that are not of the input.
        read: more columns that are kept, because the operator reads them.
    """

    def __init__(
        self, inputs: pa.Schema, output: pa.Schema, keys: Sequence[str], made: Collection[str], read: Sequence[str] = ()
    ) -> None:
        from dataflow.expressions.coercion import value_type

        names = [name for name in output.names if name not in made]
        others = [name for name in dict.fromkeys([*names, *read]) if name not in keys] or names[:1]
        self.schema = pa.schema([pa.field(name, value_type(inputs.field(name).type)) for name in others])
        self._output = output
        self._keys = list(keys)

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns ``schema`` of a batch."""
        columns = [typed(batch.column(field.name), field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def output(self, keys: Sequence[pa.Array], rows: pa.RecordBatch, **made: pa.Array) -> pa.RecordBatch:
        """Return rows of the output, from their key columns, the columns ``schema``, and those that are made."""
        own = dict(zip(rows.schema.names, rows.columns, strict=True))
        own |= dict(zip(self._keys, keys, strict=False)) | made
        return pa.RecordBatch.from_arrays([own[name] for name in self._output.names], schema=self._output)
