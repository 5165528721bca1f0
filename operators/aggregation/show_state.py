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
from dataflow.contracts.operator import Rule, Snapshot
from dataflow.contracts.panes import PANE, PANE_INDEX
from dataflow.contracts.source import Json
from dataflow.contracts.updates import CHANGE
from dataflow.expressions import col
from dataflow.planning.aggregate_specs import Aggregate, Emit, Grouped, WindowAggregate
from dataflow.state.arrays import LEAST
from dataflow.state.index import Slots
from dataflow.state.keyed_state import KeyedState
from dataflow.state.parts import arranged, counting
from dataflow.untrusted import Time, parsed
from operators.aggregation.partials import folded_columns, merge_column, numbering_of
from operators.aggregation.records import Records, without_flags
from operators.stateful.columns import RECORD, START, WINDOW
from operators.stateful.time_units import TimeUnit

__all__ = ["rows_of_partials", "shown_state", "shown_values"]

_ROWS = "rows"


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


def shown_values(state: Snapshot) -> Mapping[str, Json]:
    """Return the values of a state without those that say nothing to users."""
    hidden = {"emitted", *(name for name, rule in state.rules.items() if rule.kind == "fixed")}
    return {name: value for name, value in state.values.items() if name not in hidden}


def shown_state(spec: Grouped, state: Snapshot, taken: pa.Schema, made: pa.Schema) -> Snapshot:
    """Return the state with one table, ``rows``: the keys and values as the aggregate emits them."""
    hidden = [*([CHANGE] if spec.emit is Emit.CHANGES else []), *([PANE, PANE_INDEX] if spec.has_pane_columns else [])]
    made = pa.schema([field for field in made if field.name not in hidden])
    return Snapshot(shown_values(state), _Rows(lambda: _rows_of_state(spec, taken, made, state)))


def _rows_of_state(spec: Grouped, taken: pa.Schema, made: pa.Schema, state: Snapshot) -> pa.Table:
    """One row for each key, or each key and open window or slice; ``taken`` and ``made`` are its rows' columns.

    Values that have expired and windows that are complete are left out, whether or not they are removed yet.
    """
    parts: Any = state.logs.get("state", ())
    if not parts:
        return made.empty_table()
    unit = TimeUnit.of_time(taken, spec.time) if isinstance(spec, Aggregate) else TimeUnit.MICROSECOND
    records, ttl = _records(spec, taken, state), unit.ttl(spec.ttl) if isinstance(spec, Aggregate) else None
    count = max(1, len(spec.keys))
    if isinstance(spec, WindowAggregate):
        count += len(numbering_of(spec, taken, state).key_fields)
    if spec.windowed:
        count += 1
    held = KeyedState(pa.schema(list(parts[0]["keys"].schema)[:count]), records, ttl=ttl)
    low = state.rules.get("state", Rule("log")).low
    if low is not None:
        parts = [{name: counting(table, *low) for name, table in part.items()} for part in parts]
    stored = held.stored
    held.restore([{n: arranged(without_flags(table), stored.get(n)) for n, table in part.items()} for part in parts])
    slots = held.slots
    slots = slots[records.present(slots)]
    if ttl is not None:
        slots = slots[held.visible(slots, _now(state, unit))]
    keys = held.keys(slots)
    return _rows(made, keys[: len(spec.keys)], _edges_of(spec, taken, made, keys, state), records, slots)


def _now(state: Snapshot, unit: TimeUnit) -> int:
    """Return the time by which keys expire: the watermark, or time by the clock when the last rows came."""
    if "now" in state.values:
        return parsed(Time, state.values["now"], "the time of the state")
    watermark = parsed(Time | None, state.values["time"], "the watermark")
    return LEAST if watermark is None else unit.first(watermark)


def rows_of_partials(spec: Grouped, taken: pa.Schema, made: pa.Schema, batch: pa.RecordBatch) -> pa.Table:
    """Rows that were folded on their way: what they come to for each key, as the aggregate would say it."""
    records, count = _records(spec, taken), batch.num_rows
    records.merge(batch.column(RECORD), np.arange(count, dtype=np.int32), count)
    columns = [batch.column(name) for name in (*spec.keys, START, WINDOW) if name in batch.schema.names]
    bounds = _edges_of(spec, taken, made, columns)
    return _rows(made, columns[: len(spec.keys)], bounds, records, np.arange(count, dtype=np.int32))


def _records(spec: Grouped, taken: pa.Schema, state: Snapshot | None = None) -> Records:
    schema = taken if isinstance(spec, Aggregate) else folded_columns(taken, spec.keys, spec.aggregations)
    merged_by = merge_column(numbering_of(spec, taken, state)) if isinstance(spec, WindowAggregate) else None
    return Records(spec.aggregations, schema, "state", col(CHANGE) if spec.signed else None, merged_by)


def _edges_of(
    spec: Grouped, taken: pa.Schema, made: pa.Schema, keys: Sequence[pa.Array], state: Snapshot | None = None
) -> list[pa.Array]:
    """Return the edges of the window, or the slice, of each row; ``keys`` ends with the columns that number them."""
    if not isinstance(spec, WindowAggregate):
        return [keys[-1]] if spec.windowed else []
    own, kind = numbering_of(spec, taken, state), made.field("window_start").type
    starts = to_numbers(keys[-2]) if own.key_fields else None
    return [own.unit.edges(times, kind) for times in own.edges(to_numbers(keys[-1]), starts)]


def _rows(
    made: pa.Schema, keys: Sequence[pa.Array], bounds: Sequence[pa.Array], records: Records, slots: Slots
) -> pa.Table:
    return pa.Table.from_arrays([*keys, *bounds, *records.read(slots)], schema=made)
