"""The numbers that keyed state stores for itself: without a value, or twice for a key, they are damage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pytest

from dataflow.errors import CheckpointDamaged
from dataflow.state.keyed_state import KeyedState, Ttl
from dataflow.state.parts import number_field
from dataflow.state.timers import TimeDomain

KEYS = pa.schema({"k": pa.int64()})
ROWS = pa.schema([number_field("never null"), pa.field("x", pa.int64())])
Tables = Mapping[str, pa.Table]


def empty(*, timers: bool) -> KeyedState:
    return KeyedState(KEYS, ROWS, rows=ROWS) if timers else KeyedState(KEYS, ROWS, ttl=Ttl(10))


def stored(*, timers: bool) -> Tables:
    """Return the tables of keys, rows and timers; or those of keys that expire."""
    state = empty(timers=timers)
    slots, _ = state.insert([pa.array([1, 2, 3])], 0)
    batch = pa.RecordBatch.from_arrays([pa.array([7, 8, 9]), pa.array([None, 1, 2])], schema=ROWS)
    state.write(slots, batch)
    if timers:
        state.append(slots, np.arange(3), batch)
        state.set_timers(slots, np.arange(3), TimeDomain.EVENT)
    return {name: reader.read_all() for name, reader in state.freeze(1, None).items()}


def with_column(tables: Tables, name: str, column: str, values: pa.Array) -> Tables:
    table = tables[name]
    changed = table.set_column(table.schema.get_field_index(column), pa.field(column, values.type), values)
    return {**tables, name: changed.replace_schema_metadata(table.schema.metadata)}


NUMBERS = {
    "keys": ["never null", "/live"],
    "rows": ["/sequence", "/time", "never null", "/live"],
    "timers": ["due", "domain", "sequence", "/live"],
}


def forgeries() -> Iterator[tuple[bool, str, str]]:
    yield from ((True, table, column) for table, columns in NUMBERS.items() for column in columns)
    yield False, "keys", "/stamp"


@pytest.mark.parametrize(("timers", "table", "column"), [*forgeries()])
@pytest.mark.parametrize("some", ["all", "last"])
def test_numbers_without_a_value_are_damage(*, timers: bool, table: str, column: str, some: str) -> None:
    tables = stored(timers=timers)
    kept = tables[table].column(column).to_pylist()[: 2 if some == "last" else 0]
    values = pa.array([*kept, *[None] * (3 - len(kept))], tables[table].schema.field(column).type)
    with pytest.raises(CheckpointDamaged, match=f"of 3 stored rows have no '{column}', which is never null"):
        empty(timers=timers).restore([with_column(tables, table, column, values)])


@pytest.mark.parametrize(("table", "column"), [("rows", "/sequence"), ("timers", "sequence")])
def test_a_sequence_number_twice_for_a_key_is_damage(table: str, column: str) -> None:
    tables = stored(timers=True)
    twice = {**tables, table: pa.concat_tables([tables[table], tables[table].slice(1)])}
    with pytest.raises(CheckpointDamaged, match="4 stored rows have 2 distinct keys and sequence numbers"):
        empty(timers=True).restore([twice])


@pytest.mark.parametrize("order", [[0, 0, 1], [1, 0, 0]])
@pytest.mark.parametrize(("table", "column"), [("rows", "/sequence"), ("timers", "sequence")])
def test_keys_of_several_tasks_may_have_the_same_sequence_numbers(table: str, column: str, order: list[int]) -> None:
    state = empty(timers=True)
    state.restore([with_column(stored(timers=True), table, column, pa.array(order))])
    state.validate()
    assert len(state.slots) == 3
