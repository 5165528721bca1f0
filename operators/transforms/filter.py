"""Filter: the rows for which a predicate is true."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyarrow import types

from dataflow.contracts.operator import Operator, OperatorContext, Out
from dataflow.errors import SchemaMismatch
from dataflow.expressions import Expr, compile_value

__all__ = ["FilterOperator"]


class FilterOperator(Operator):
    """Emits the rows where ``predicate`` is true; false and null drop a row. A batch that passes whole is not copied.

    Raises: UnknownColumn, SchemaMismatch at construction if the predicate is not a boolean over the input's columns.
    """

    stateless = True

    def __init__(self, context: OperatorContext, predicate: Expr) -> None:
        (schema,) = context.input_schemas
        where = f"filter {context.name!r}"
        dtype = predicate.dtype(schema, where)
        if not (types.is_boolean(dtype) or types.is_null(dtype)):
            raise SchemaMismatch(
                f"{where}: a predicate must be a bool, but {predicate} is {dtype}; compare it with a value"
            )
        self._passes = compile_value(predicate, schema, where)
        self._kernels = predicate.kernels()

    @property
    def kernels(self) -> Sequence[str]:
        return self._kernels

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        passes = self._passes(batch)
        if isinstance(passes, pa.Scalar):
            count = batch.num_rows if passes.as_py() else 0
        else:
            count = passes.true_count if types.is_boolean(passes.type) else 0
        if count == batch.num_rows > 0:
            out.emit(batch)
        elif count:
            out.emit(batch.filter(passes))
