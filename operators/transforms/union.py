"""Union: the rows of every input, in the order they come."""

from __future__ import annotations

import pyarrow as pa

from dataflow.contracts.operator import Operator, OperatorContext, Out

__all__ = ["UnionOperator"]


class UnionOperator(Operator):
    """Passes the batches of all ports on, with the output's columns in its order.

    Ports may have more columns, or differ in nullability and metadata, but not in the types of columns.
    """

    stateless = True

    def __init__(self, context: OperatorContext) -> None:
        self._schema = context.output_schema
        for port, schema in enumerate(context.input_schemas):
            types = dict(zip(schema.names, schema.types, strict=True))
            same = all(types.get(field.name) == field.type for field in self._schema)
            assert same, f"union {context.name!r}: port {port} has {schema}, the output {self._schema}"

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        if batch.num_rows == 0:
            return
        if batch.num_columns and not batch.schema.equals(self._schema, check_metadata=True):
            columns = [batch.column(name) for name in self._schema.names]
            batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        out.emit(batch)
