"""Rows of keyed aggregates on their way to the subtask that keeps the key: as they are, or folded into records.

A partial batch has the key columns, ``WINDOW`` and ``ROWS`` where there are windows, and ``RECORD``. Both kinds travel
on one channel; a batch's schema says which kind it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from dataflow.errors import CheckpointDamaged
from dataflow.expressions import Aggregation
from dataflow.specs import Aggregate, WindowAggregate
from operators.records import partial_type

__all__ = [
    "RECORD",
    "ROWS",
    "WINDOW",
    "check_partial",
    "check_windows",
    "folded_columns",
    "is_partial",
    "partial_schema",
]

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


def check_partial(batch: pa.RecordBatch, spec: object, what: str) -> None:
    """Check a batch of records from a checkpoint, with the columns of ``partial_schema``.

    Raises: CheckpointDamaged if a record, its window or its number of rows is null, or a window lies out of range.
    """
    own = [name for name in (RECORD, ROWS, WINDOW) if name in batch.schema.names]
    if any([batch.column(name).null_count for name in own]):
        raise CheckpointDamaged(f"{what}: records are null")
    if isinstance(spec, WindowAggregate):
        check_windows(batch.column(WINDOW), spec.window.size, what)


def check_windows(numbers: pa.Array | pa.ChunkedArray, size: int, what: str) -> None:
    """Check the ``numbers`` of windows of ``size`` microseconds: all must begin and end at some time.

    Raises: CheckpointDamaged.
    """
    if numbers.type != pa.int64() or numbers.null_count:
        raise CheckpointDamaged(f"{what}: the numbers of windows are {numbers.type} with {numbers.null_count} nulls")
    bounds = pc.min_max(numbers).as_py() if len(numbers) else {"min": 0, "max": 0}
    most = 2**62 // size
    if not -most <= bounds["min"] <= bounds["max"] <= most:
        raise CheckpointDamaged(f"{what}: there are windows {bounds['min']} to {bounds['max']}, which are at no time")


def folded_columns(schema: pa.Schema, keys: Sequence[str], aggregations: Sequence[Aggregation]) -> pa.Schema:
    """The columns of rows of ``schema`` that keyed ``aggregations`` look at: keys and arguments, in their order."""
    needed = {*keys, *(name for a in aggregations for name in a.columns())}
    return pa.schema([field for field in schema if field.name in needed])
