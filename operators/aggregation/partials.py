"""Partial batches: rows of keyed aggregates folded into records before the shuffle to the subtask that owns the key.

A partial batch has the key columns, ``WINDOW`` and ``ROWS`` if there are windows, and ``RECORD``. Channels carry
partial and plain batches; the schema tells them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from dataflow.errors import CheckpointDamaged
from dataflow.expressions import Aggregation
from dataflow.planning.specs import Grouped, WindowAggregate
from operators.aggregation.records import partial_type

__all__ = [
    "OPEN",
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
"""The column of window numbers."""
OPEN: Final = "open"
"""The value of a snapshot with the number of the first window that was not complete, or still took late rows."""
ROWS: Final = "barrierflow:rows"
"""The column with the number of rows that a record holds."""


def is_partial(schema: pa.Schema) -> bool:
    """Return whether batches of ``schema`` hold records."""
    return RECORD in schema.names


def partial_schema(spec: Grouped, schema: pa.Schema) -> pa.Schema:
    """Return the columns of partial batches for ``spec`` over rows of ``schema``."""
    keys: Sequence[pa.Field] = [schema.field(key) for key in spec.keys]
    record = pa.field(RECORD, partial_type(spec.aggregations, schema))
    if not spec.windowed:
        return pa.schema([*keys, record])
    return pa.schema([*keys, pa.field(WINDOW, pa.int64()), pa.field(ROWS, pa.int64()), record])


def check_partial(batch: pa.RecordBatch, spec: object, what: str) -> None:
    """Check a batch of records from a checkpoint, with the columns of ``partial_schema``.

    Raises: CheckpointDamaged if a record, its window or its number of rows is null, or a window lies out of range.
    """
    own = [name for name in (RECORD, ROWS, WINDOW) if name in batch.schema.names]
    if any([batch.column(name).null_count for name in own]):
        raise CheckpointDamaged(f"{what}: some records are null")
    if isinstance(spec, WindowAggregate):
        check_windows(batch.column(WINDOW), spec.window.size, what)


def check_windows(numbers: pa.Array | pa.ChunkedArray, size: int, what: str) -> None:
    """Raise CheckpointDamaged unless ``numbers`` are of windows that begin and end within 64 bits.

    ``size`` is the length of a window in microseconds.
    """
    if numbers.type != pa.int64() or numbers.null_count:
        raise CheckpointDamaged(f"{what}: window numbers are {numbers.type} with {numbers.null_count} nulls")
    bounds = pc.min_max(numbers).as_py() if len(numbers) else {"min": 0, "max": 0}
    most = 2**62 // size
    if not -most <= bounds["min"] <= bounds["max"] <= most:
        raise CheckpointDamaged(f"{what}: window numbers {bounds['min']} to {bounds['max']} are out of range")


def folded_columns(schema: pa.Schema, keys: Sequence[str], aggregations: Sequence[Aggregation]) -> pa.Schema:
    """Return the columns of ``schema`` that keyed ``aggregations`` use: keys and arguments, in their order."""
    needed = {*keys, *(name for a in aggregations for name in a.columns())}
    return pa.schema([field for field in schema if field.name in needed])
