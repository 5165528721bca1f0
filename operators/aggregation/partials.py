"""Partial batches: rows of keyed aggregates folded into records before the shuffle to the subtask that owns the key.

A partial batch has the key columns, ``WINDOW`` and ``ROWS`` if there are windows, and ``RECORD``. Windows that are not
numbered by slice have ``START`` before ``WINDOW`` (see ``window_numbers``). Channels carry partial and plain batches;
the schema tells them apart.

Aggregates over all rows have no key columns. Their state has the key ``ALL`` instead, which is 0 in every row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.declared_state import naming_state
from dataflow.contracts.operator import Snapshot
from dataflow.errors import CheckpointDamaged
from dataflow.expressions import Aggregation
from dataflow.planning.aggregate_specs import Grouped, WindowAggregate
from operators.aggregation.records import Records, is_mergeable, partial_type
from operators.stateful.columns import ARRIVAL, RECORD, ROWS, START, WINDOW
from operators.stateful.window_numbers import BySlice, Numbering, numbering

__all__ = [
    "check_partial",
    "folded_columns",
    "is_by_window",
    "merge_column",
    "numbering_of",
    "partial_schema",
    "takes_records",
    "with_arrivals",
]


def partial_schema(spec: Grouped, schema: pa.Schema) -> pa.Schema:
    """Return the columns of partial batches for ``spec`` over rows of ``schema``."""
    keys: Sequence[pa.Field] = [schema.field(key) for key in spec.keys]
    record = pa.field(RECORD, partial_type(spec.aggregations, schema))
    if not isinstance(spec, WindowAggregate):
        return pa.schema([*keys, record])
    own = [*numbering_of(spec, schema).key_fields, pa.field(WINDOW, pa.int64()), pa.field(ROWS, pa.int64())]
    return pa.schema([*keys, *own, record])


def numbering_of(spec: WindowAggregate, schema: pa.Schema, stored: Snapshot | None = None) -> Numbering:
    """Return how the state of ``spec`` over rows of ``schema`` is numbered, perhaps in a checkpoint."""
    mergeable = spec.merges_slices and not is_by_window(stored) and is_mergeable(spec.aggregations, schema)
    return numbering(spec.window, spec.time, mergeable=mergeable)


def is_by_window(stored: Snapshot | None) -> bool:
    """Return whether a checkpoint has state of windows by window, each with its start, and not by slice.

    It stays so if there are no other aggregates any more than those whose records can be merged from slices.
    """
    parts: Any = () if stored is None else stored.logs.get("state", ())
    return any([START in table.column_names for part in parts for table in part.values()])


def merge_column(numbers: Numbering) -> str | None:
    """Return the column of event times if results are merged from the records of several numbers; None: they are not.

    It is ``merged_by`` of ``Records``: records are then merged in the order of time.
    """
    return numbers.time.column if isinstance(numbers, BySlice) and numbers.window.overlaps else None


def takes_records(spec: Grouped, schema: pa.Schema) -> bool:
    """Return whether rows of ``schema`` may be folded before they reach the operator of ``spec``.

    They may not if it has to compare rows by their arrival, which a record of rows does not say.
    """
    if not is_mergeable(spec.aggregations, schema):
        return False
    if not isinstance(spec, WindowAggregate):
        return True
    merged_by = merge_column(numbering_of(spec, schema))
    return not Records(spec.aggregations, schema, "aggregate", merged_by=merged_by).goes_by_arrival


def with_arrivals(rows: pa.RecordBatch, place: int, first: int) -> pa.RecordBatch:
    """Return ``rows`` with the column ``ARRIVAL``, which counts them from ``first``, as column number ``place``."""
    return rows.add_column(place, ARRIVAL, to_array(np.arange(first, first + rows.num_rows)))


def check_partial(batch: pa.RecordBatch, spec: object, what: str) -> None:
    """Check a batch of records from a checkpoint, with the columns of ``partial_schema``.

    Raises: CheckpointDamaged if a record, its window or its number of rows is null, or a window lies out of range.
    """
    own = [name for name in (RECORD, ROWS, WINDOW, START) if name in batch.schema.names]
    if any([batch.column(name).null_count for name in own]):
        raise CheckpointDamaged(f"{what}: some records are null")
    if isinstance(spec, WindowAggregate):
        # records that are here can be merged
        with naming_state(what, spec):
            numbering(spec.window, spec.time, mergeable=True).check(batch.column(WINDOW))


def folded_columns(schema: pa.Schema, keys: Sequence[str], aggregations: Sequence[Aggregation]) -> pa.Schema:
    """Return the columns of ``schema`` that keyed ``aggregations`` use: keys and arguments, in their order."""
    needed = {*keys, *(name for a in aggregations for name in a.columns())}
    return pa.schema([field for field in schema if field.name in needed])
