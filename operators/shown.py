"""The state of keyed aggregates as a user knows it: rows of keys and values, in the columns that the aggregate emits.

What a checkpoint holds are words: of keys, of records, and of records that were on their way folded. Restoring is
constructing, so records are made of them as a restart would, and read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dataflow.operator import Snapshot
from dataflow.specs import Aggregate, WindowAggregate
from operators.partials import RECORD, WINDOW, folded_columns
from operators.records import Records
from operators.windows.times import edges

__all__ = ["rows_of_partials", "rows_of_state"]


def rows_of_state(spec: Aggregate | WindowAggregate, taken: pa.Schema, made: pa.Schema, state: Snapshot) -> pa.Table:
    """One row for each key (and window) that the aggregate holds; ``taken`` and ``made`` are its rows' columns."""
    if not state.tables:
        return made.empty_table()
    keys, stored = state.tables["keys"], state.tables["records"]
    assert isinstance(keys, pa.Table), "the state of a checkpoint is read, not being written"
    records = _records(spec, taken)
    records.restore(stored)
    columns = [keys.column(name).combine_chunks() for name in spec.keys]
    return _rows(spec, made, columns, _numbers(keys), records, keys.num_rows)


def rows_of_partials(
    spec: Aggregate | WindowAggregate, taken: pa.Schema, made: pa.Schema, batch: pa.RecordBatch
) -> pa.Table:
    """Rows that were folded on their way: what they come to for each key, as the aggregate would say it."""
    records, count = _records(spec, taken), batch.num_rows
    records.merge(batch.column(RECORD), np.arange(count, dtype=np.int32), count)
    columns = [batch.column(name) for name in spec.keys]
    return _rows(spec, made, columns, _numbers(batch), records, count)


def _records(spec: Aggregate | WindowAggregate, taken: pa.Schema) -> Records:
    schema = taken if isinstance(spec, Aggregate) else folded_columns(taken, spec.keys, spec.aggregations)
    return Records(spec.aggregations, schema, "state")


def _numbers(rows: pa.Table | pa.RecordBatch) -> np.ndarray | None:
    """Which window each row is of."""
    return rows.column(WINDOW).to_numpy() if WINDOW in rows.schema.names else None


def _rows(
    spec: Aggregate | WindowAggregate,
    made: pa.Schema,
    keys: Sequence[pa.Array],
    numbers: np.ndarray | None,
    records: Records,
    count: int,
) -> pa.Table:
    bounds: list[pa.Array] = []
    if isinstance(spec, WindowAggregate):
        assert numbers is not None, f"rows of windows without {WINDOW}"
        kind, starts = made.field("window_start").type, numbers * spec.window.size + spec.window.offset
        bounds = [edges(starts, kind), edges(starts + spec.window.size, kind)]
    values = records.read(np.arange(count, dtype=np.int32))
    return pa.Table.from_arrays([*keys, *bounds, *values], schema=made)
