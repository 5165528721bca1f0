"""The state of keyed aggregates as a user knows it: rows of keys and values, in the columns that the aggregate emits.

What a checkpoint holds are words: of keys, of records, and of records that were on their way folded. Restoring is
constructing, so records are made of them as a restart would, and read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_numbers
from dataflow.contracts.operator import Snapshot
from dataflow.contracts.updates import CHANGE
from dataflow.expressions import col
from dataflow.planning.specs import Aggregate, Emit, Grouped, WindowAggregate
from dataflow.state.index import Slots
from dataflow.state.keyed_state import KeyedState
from dataflow.untrusted import parsed
from operators.aggregation.partials import OPEN, RECORD, WINDOW, folded_columns
from operators.aggregation.records import Records
from operators.aggregation.restoring import first_format
from operators.aggregation.window_times import edges

__all__ = ["rows_of_partials", "shown_state"]

_ROWS = "rows"
_LEAST = -(2**63)


class _Rows(Mapping[str, pa.Table]):
    """The one table of an aggregate, made of its records when it is read."""

    def __init__(self, make: Callable[[], pa.Table]) -> None:
        self._made = cache(make)

    def __getitem__(self, table: str) -> pa.Table:
        if table != _ROWS:
            raise KeyError(table)
        return self._made()

    def __iter__(self) -> Iterator[str]:
        return iter((_ROWS,))

    def __len__(self) -> int:
        return 1


def shown_state(spec: Grouped, state: Snapshot, taken: pa.Schema, made: pa.Schema) -> Snapshot:
    """Return the state with one table, ``rows``: the keys and values as the aggregate emits them."""
    values = {name: value for name, value in state.values.items() if name != "aggregations"}
    if spec.emit is Emit.CHANGES:
        made = made.remove(made.get_field_index(CHANGE))
    return Snapshot(values, _Rows(lambda: _rows_of_state(spec, taken, made, state)))


def _rows_of_state(spec: Grouped, taken: pa.Schema, made: pa.Schema, state: Snapshot) -> pa.Table:
    """One row for each key, or each key and open window; ``taken`` and ``made`` are its rows' columns.

    Values that have expired and windows that are complete are left out, whether or not they are removed yet.
    """
    parts: Any = state.logs.get("state", ())
    if "keys" in state.tables:
        keys, stored = state.tables["keys"], state.tables["records"]
        assert isinstance(keys, pa.Table), "the state of a checkpoint is read, not being written"
        assert isinstance(stored, pa.Table), "the state of a checkpoint is read, not being written"
        parts = [first_format(keys, stored, "state")]
    if not parts:
        return made.empty_table()
    records, ttl = _records(spec, taken), spec.ttl if isinstance(spec, Aggregate) else None
    count = len(spec.keys) + isinstance(spec, WindowAggregate)
    held = KeyedState(pa.schema(list(parts[0]["keys"].schema)[:count]), records, ttl=ttl)
    held.restore(parts)
    slots = held.slots
    slots = slots[records.present(slots)]
    if ttl is not None:
        slots = slots[held.visible(slots, parsed(int, state.values["now"], "the time of the state"))]
    if isinstance(spec, WindowAggregate):
        first = parsed(int, state.values.get(OPEN, _LEAST), "the first open window")
        slots = slots[to_numbers(held.keys(slots)[-1]) >= first]
    keys = pa.RecordBatch.from_arrays(held.keys(slots), [*spec.keys, WINDOW][:count])
    return _rows(spec, made, keys.columns[: len(spec.keys)], _numbers(keys), records, slots)


def rows_of_partials(spec: Grouped, taken: pa.Schema, made: pa.Schema, batch: pa.RecordBatch) -> pa.Table:
    """Rows that were folded on their way: what they come to for each key, as the aggregate would say it."""
    records, count = _records(spec, taken), batch.num_rows
    records.merge(batch.column(RECORD), np.arange(count, dtype=np.int32), count)
    columns = [batch.column(name) for name in spec.keys]
    return _rows(spec, made, columns, _numbers(batch), records, np.arange(count, dtype=np.int32))


def _records(spec: Grouped, taken: pa.Schema) -> Records:
    schema = taken if isinstance(spec, Aggregate) else folded_columns(taken, spec.keys, spec.aggregations)
    return Records(spec.aggregations, schema, "state", col(CHANGE) if spec.signed else None)


def _numbers(rows: pa.Table | pa.RecordBatch) -> np.ndarray | None:
    """Which window each row is of."""
    return to_numbers(rows.column(WINDOW)) if WINDOW in rows.schema.names else None


def _rows(
    spec: Grouped,
    made: pa.Schema,
    keys: Sequence[pa.Array],
    numbers: np.ndarray | None,
    records: Records,
    slots: Slots,
) -> pa.Table:
    bounds: list[pa.Array] = []
    if isinstance(spec, WindowAggregate):
        assert numbers is not None, f"rows of windows without {WINDOW}"
        kind, starts = made.field("window_start").type, numbers * spec.window.size + spec.window.offset
        bounds = [edges(starts, kind), edges(starts + spec.window.size, kind)]
    values = records.read(slots)
    return pa.Table.from_arrays([*keys, *bounds, *values], schema=made)
