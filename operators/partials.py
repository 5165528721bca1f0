"""Rows of keyed aggregates on their way to the subtask that keeps the key: as they are, or folded into records.

A partial batch has the key columns, ``WINDOW`` and ``ROWS`` where there are windows, and ``RECORD``. Both kinds travel
on one channel; a batch's schema says which kind it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from dataflow.expressions import Aggregation
from dataflow.specs import Aggregate, WindowAggregate
from operators.records import partial_type

__all__ = ["RECORD", "ROWS", "WINDOW", "folded_columns", "is_partial", "partial_schema"]

RECORD: Final = "barrierflow:record"
"""The column of records, in the memory layout of ``Records``."""
WINDOW: Final = "barrierflow:window"
"""The column of windows' numbers."""
ROWS: Final = "barrierflow:rows"
"""The column that says how many rows a record holds."""


def is_partial(schema: pa.Schema) -> bool:
    """Whether batches of ``schema`` hold records."""
    return RECORD in schema.names


def partial_schema(spec: Aggregate | WindowAggregate, schema: pa.Schema) -> pa.Schema:
    """The columns of partial batches for ``spec`` over rows of ``schema``."""
    keys: Sequence[pa.Field] = [schema.field(key) for key in spec.keys]
    record = pa.field(RECORD, partial_type(spec.aggregations, schema))
    if isinstance(spec, Aggregate):
        return pa.schema([*keys, record])
    return pa.schema([*keys, pa.field(WINDOW, pa.int64()), pa.field(ROWS, pa.int64()), record])


def folded_columns(schema: pa.Schema, keys: Sequence[str], aggregations: Sequence[Aggregation]) -> pa.Schema:
    """The columns of rows of ``schema`` that keyed ``aggregations`` look at: keys and arguments, in their order."""
    needed = {*keys, *(name for a in aggregations for name in a.columns())}
    return pa.schema([field for field in schema if field.name in needed])
