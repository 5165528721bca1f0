"""Project: a new set of columns computed from each batch. Implements ``select`` and ``with_columns``."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dataflow.contracts.operator import Operator, OperatorContext, Out
from dataflow.expressions import Expr, compile_expression, output_schema
from dataflow.state.dictionaries import either_schema

__all__ = ["ProjectOperator"]


class ProjectOperator(Operator):
    """Emits one row for each row, with ``columns`` as its columns; a plain ``col(name)`` is passed on without a copy.

    Raises: GraphError for two columns of one name or one without a name; UnknownColumn, SchemaMismatch at construction.
    """

    stateless = True

    def __init__(self, context: OperatorContext, columns: Sequence[Expr]) -> None:
        (schema,) = context.input_schemas
        where = f"select {context.name!r}"
        output = output_schema(tuple(columns), schema, where)
        assert output.equals(context.output_schema), f"{where} makes {output}, its context says {context.output_schema}"
        self._schema = context.output_schema
        self._columns = [compile_expression(expr, schema, where) for expr in columns]
        self._dictionaries = [field.name for field in self._schema if pa.types.is_dictionary(field.type)]
        self._kernels = tuple(name for expr in columns for name in expr.kernels())

    @property
    def kernels(self) -> Sequence[str]:
        return self._kernels

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        if batch.num_rows == 0:
            return
        if not self._columns:
            out.emit(batch.select([]))
            return
        arrays = [column(batch) for column in self._columns]
        schema = self._schema
        if self._dictionaries:
            schema = either_schema(schema, self._dictionaries, [array.type for array in arrays])
        out.emit(pa.RecordBatch.from_arrays(arrays, schema=schema))
