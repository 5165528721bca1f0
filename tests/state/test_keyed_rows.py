"""The rows of keys, what checkpoints hold of them, and what is freed. Random operations: test_keyed_state.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dataflow.errors import CheckpointDamaged, CheckpointMismatch, ConfigurationError, SchemaMismatch
from dataflow.state.keyed_state import KeyedState, Ttl
from dataflow.state.parts import is_base, resolved

KEYS = pa.schema({"k": pa.int64()})
ROWS = pa.schema({"x": pa.int64(), "s": pa.string()})
ALL = (-(2**63), 2**63 - 1)


def state(columns: pa.Schema | None = None, **arguments: Any) -> KeyedState:
    return KeyedState(KEYS, pa.schema({}) if columns is None else columns, rows=ROWS, **arguments)


def rows(values: Sequence[Any]) -> pa.RecordBatch:
    texts = [None if value is None else f"row {value}" for value in values]
    return pa.record_batch({"x": pa.array(values, pa.int64()), "s": pa.array(texts, pa.string())})


def append(held: KeyedState, keys: Sequence[int], times: Sequence[int], values: Sequence[Any]) -> None:
    slots, _ = held.insert([pa.array(keys, pa.int64())])
    held.append(slots, np.array(times, np.int64), rows(values))


def contents(held: KeyedState) -> dict[int, list[Any]]:
    slots = held.slots
    offsets, batch = held.between(slots, *ALL)
    values = batch["x"].to_pylist()
    keys = held.keys(slots)[0].to_pylist()
    return {key: values[offsets[i] : offsets[i + 1]] for i, key in enumerate(keys)}


def read(tables: Mapping[str, pa.RecordBatchReader]) -> dict[str, pa.Table]:
    return {name: reader.read_all() for name, reader in tables.items()}


def restored(parts: Sequence[Mapping[str, pa.Table]], columns: pa.Schema | None = None) -> KeyedState:
    held = state(columns)
    held.restore(parts)
    held.validate()
    return held


def test_rows_come_by_time_then_arrival() -> None:
    held = state()
    append(held, [1, 2, 1, 1], [5, 5, 3, 5], [10, 20, 11, 12])
    append(held, [1, 1], [5, 4], [13, 14])
    append(held, [1, 2, 1, 1], [4, 3, 4, 4], [15, 21, 16, 17])
    assert contents(held) == {1: [11, 14, 15, 16, 17, 10, 12, 13], 2: [21, 20]}
    slots = held.find([pa.array([1, 3, 1, 2])])
    offsets, batch = held.between(slots, np.array([4, 0, 5, 6]), np.array([5, 9, 6, 9]), "s")
    numbers = [14, 15, 16, 17, 10, 12, 13]
    assert (offsets.tolist(), batch.to_pydict()) == ([0, 4, 4, 7, 7], {"s": [f"row {n}" for n in numbers]})


def test_one_key_may_have_all_rows() -> None:
    """Batches in random order, and dropping from the front, agree with sorting; work per batch is a merge."""
    rng, held, expected = np.random.default_rng(1), state(), []
    for _ in range(40):
        times = rng.integers(0, 100_000, 2_000)
        append(held, [7] * len(times), times.tolist(), times.tolist())
        expected = sorted([*expected, *times.tolist()])
    held.validate()
    assert contents(held) == {7: expected}
    assert held.drop_before(50_000) == sum(time < 50_000 for time in expected)
    held.validate()
    assert contents(held) == {7: [time for time in expected if time >= 50_000]}


def test_many_keys_with_few_rows_each_reuse_the_memory_of_rows_that_are_gone() -> None:
    held, sizes = state(), set()
    for step in range(60):
        append(held, range(step * 500, step * 500 + 500), [step] * 500, range(500))
        held.drop_before(step - 3)
        held.validate()
        sizes.add((len(held._rows.records.rows), len(held._rows._runs._arena)))  # type: ignore[union-attr]
    assert held.live == 2_000
    assert max(rows for rows, _ in sizes) <= 4_096
    assert max(arena for _, arena in sizes) <= 16_384


def test_a_state_of_rows_alone_loses_a_key_with_its_last_row() -> None:
    held = state()
    append(held, [1, 2, 2], [1, 1, 5], [10, 20, 21])
    assert (held.drop_before(2), held.live) == (2, 1)
    assert held.drop_before(9, held.find([pa.array([2, 3])])) == 1
    assert held.live == 0
    held.validate()


def test_a_state_with_columns_keeps_a_key_without_rows() -> None:
    held = state(pa.schema({"n": pa.int64()}))
    append(held, [1], [1], [10])
    assert (held.drop_before(2), held.live, contents(held)) == (1, 1, {1: []})


def test_a_key_with_a_timer_stays_without_rows_until_the_timer_has_fired() -> None:
    held = state()
    append(held, [1], [1], [10])
    held.set_timers(held.find([pa.array([1])]), np.array([50]))
    held.drop_before(10)
    held.validate()
    assert (held.live, held.find([pa.array([1])]).tolist()) == (1, [-1])
    dues, slots = held.due(60)
    assert (dues.tolist(), held.between(slots, *ALL)[0].tolist()) == ([50], [0, 0])
    held.expire(0, 10)
    assert held.live == 0


def test_rows_go_with_an_expired_value() -> None:
    held = state(ttl=Ttl(10))
    slots, _ = held.insert([pa.array([1, 2])], 0, np.array([0, 8]))
    held.append(slots, np.array([0, 8]), rows([10, 20]))
    slots, fresh = held.insert([pa.array([1])], 12, 12)
    assert (fresh.tolist(), contents(held)) == ([True], {1: [], 2: [20]})
    assert (held.expire(18, 100), contents(held)) == (1, {1: []})
    held.validate()


def test_a_delta_has_rows_that_were_added_or_removed() -> None:
    held = state(pa.schema({"n": pa.int64()}))
    append(held, [1, 1, 2], [1, 2, 3], [10, 11, 20])
    base = read(held.freeze(1))
    held.durable(1)
    append(held, [1], [0], [9])  # added and removed again
    held.drop_before(2, held.find([pa.array([1])]))
    append(held, [3], [4], [30])
    delta = read(held.freeze(2, 1))
    shown = [(row["k"], row["/time"], row["x"], row["/live"]) for row in delta["rows"].to_pylist()]
    assert shown == [(1, 1, None, False), (3, 4, 30, True)]
    assert contents(restored([base, delta], pa.schema({"n": pa.int64()}))) == {1: [11], 2: [20], 3: [30]}
    whole = resolved([base, delta])["rows"]
    assert whole.column_names == ["k", "/sequence", "/time", "x", "s"]
    assert whole["x"].to_pylist() == [11, 20, 30]


def test_a_key_that_came_and_went_between_checkpoints_is_in_none() -> None:
    held = state()
    read(held.freeze(1))
    held.durable(1)
    append(held, [1, 2], [1, 9], [10, 20])
    held.drop_before(5)
    delta = read(held.freeze(2, 1))
    assert [row["k"] for row in delta["keys"].to_pylist()] == [2]
    assert [row["k"] for row in delta["rows"].to_pylist()] == [2]
    append(held, [3], [9], [30])
    assert (len(held._index), held._rows.count) == (2, 2)  # type: ignore[union-attr]


def test_rows_of_equal_times_keep_their_order_over_a_restore() -> None:
    """Later rows may get the lower numbers of rows that are gone."""
    held = state(pa.schema({"n": pa.int64()}))
    append(held, [1, 2, 2], [0, 5, 5], [10, 20, 21])
    held.drop_before(1)
    append(held, [2], [5], [22])
    assert contents(restored([read(held.freeze(1))], pa.schema({"n": pa.int64()}))) == {
        1: [],
        2: [20, 21, 22],
    }


def test_rows_and_timers_change_while_a_delta_is_read() -> None:
    """What was removed is read first; rows that are removed meanwhile are still those of the checkpoint."""
    held = state(pa.schema({"n": pa.int64()}))
    append(held, range(100), range(100), range(100))
    slots = held.find([pa.array(range(100))])
    held.set_timers(slots, np.arange(100))
    base = read(held.freeze(1))
    held.durable(1)
    append(held, range(50), [200] * 50, range(1000, 1050))
    held.set_timers(slots[:50], np.full(50, 200))
    held.drop_before(100)
    held.due(99)
    tables = held.freeze(2, 1)
    begun = {name: tables[name].read_next_batch() for name in ("rows", "timers")}
    held.drop_before(300)
    held.due(300)
    append(held, range(100), [400] * 100, range(2000, 2100))
    delta = {"keys": tables["keys"].read_all()}
    for name, batch in begun.items():
        delta[name] = pa.Table.from_batches([batch, *tables[name]])
    again = restored([base, delta], pa.schema({"n": pa.int64()}))
    assert contents(again) == {key: [1000 + key] if key < 50 else [] for key in range(100)}
    assert again.due(1000)[0].tolist() == [200] * 50


def test_timers_of_one_due_time_keep_their_order_over_a_restore() -> None:
    held = state(pa.schema({"n": pa.int64()}))
    append(held, [1, 2, 3], [0] * 3, [0] * 3)
    slots = held.find([pa.array([1, 2, 3])])
    held.set_timers(slots, np.array([5, 9, 9]))
    held.due(5)
    held.set_timers(slots[:1], np.array([9]))
    again = restored([read(held.freeze(1))], pa.schema({"n": pa.int64()}))
    assert again.keys(again.due(9)[1])[0].to_pylist() == [2, 3, 1]


def test_a_key_goes_when_it_has_neither_a_value_nor_a_timer() -> None:
    """Whatever comes first: the last timer fires, is cancelled, or is cancelled by a later part of a checkpoint."""
    held = KeyedState(KEYS, pa.schema({}), ttl=Ttl(10))
    slots, _ = held.insert([pa.array([1, 2, 3])], 0, 0)
    slots = slots.copy()
    held.set_timers(slots, np.array([20, 50, 60]))
    assert (held.expire(10, 100), held.live) == (3, 3)
    base = read(held.freeze(1))
    held.durable(1)
    assert held.due(20)[0].tolist() == [20]
    held.insert([pa.array([4])], 20, 20)
    assert held.live == 3
    held.cancel_timers(slots[1:2], np.array([50]))
    held.expire(20, 0)
    assert held.live == 2
    again = KeyedState(KEYS, pa.schema({}), ttl=Ttl(10))
    again.restore([base, read(held.freeze(2, 1))])
    again.validate()
    assert again.live == 2


def test_a_long_time_to_live_does_not_overflow() -> None:
    held = KeyedState(KEYS, pa.schema({}), ttl=Ttl(2**62))
    held.insert([pa.array([1])], 2**62 + 5, 2**62 + 5)
    assert held.find([pa.array([1])], 2**63 - 1).tolist() == [0]
    assert held.expire(2**63 - 1, 10) == 0
    held.insert([pa.array([2])], 0, 2**62 - 1)
    assert held.find([pa.array([2])], 2**63 - 2).tolist() == [1]
    assert held.find([pa.array([2])], 2**63 - 1).tolist() == [-1]


def test_timers_that_are_set_after_the_end_are_dropped_and_counted() -> None:
    held = state(pa.schema({"n": pa.int64()}))
    append(held, [1, 2], [0, 0], [0, 0])
    held.set_timers(held.slots, np.array([5, 9]))
    held.end_timers()
    fired = []
    while len((due := held.due(2**63 - 1, limit=1))[0]):
        fired += due[0].tolist()
        held.set_timers(due[1], due[0] + 1)
    assert (fired, held.dropped_timers) == ([5, 9], 2)


@pytest.mark.parametrize("kind", ["rows", "timers", "keys"])
def test_more_removals_than_are_worth_a_delta_give_a_base(kind: str) -> None:
    """So that what checkpoints that never become durable keep is limited; each table gives up on its own."""
    columns = pa.schema({"n": pa.int64()})
    held = state(columns)
    count = 70_000
    append(held, range(count), range(count), range(count))
    held.set_timers(held.find([pa.array(range(count))]), np.arange(count))
    base = read(held.freeze(1))
    held.durable(1)
    if kind == "rows":
        held.drop_before(count)
    elif kind == "timers":
        held.due(count, limit=count)
    else:
        held.delete(held.find([pa.array(range(count))]))
    append(held, [-1], [0], [1])
    held.set_timers(held.find([pa.array([-1])]), np.array([5]))
    delta = read(held.freeze(2, 1))
    assert {name for name, table in delta.items() if is_base(table)} == ({kind} if kind != "keys" else set(delta))
    again = restored([base, delta], columns)
    assert contents(again) == contents(held)
    assert again.due(2**62, limit=2 * count)[0].tolist() == held.due(2**62, limit=2 * count)[0].tolist()


def test_a_durable_checkpoint_frees_the_keys_and_rows_that_it_says_are_removed() -> None:
    held = state()
    append(held, [1], [1], [10])
    read(held.freeze(1))
    held.durable(1)
    held.drop_before(5)
    read(held.freeze(2, 1))
    held.durable(2)
    append(held, [2], [6], [20])
    assert (len(held._index), held._rows.count) == (1, 1)  # type: ignore[union-attr]


def test_times_at_both_ends() -> None:
    held = state()
    append(held, [1, 1], [-(2**63), 2**63 - 1], [1, 2])
    assert held.drop_before(-(2**63)) == 0
    assert held.drop_before(2**63 - 1) == 1
    assert held.between(held.find([pa.array([1])]), 0, 2**63 - 1)[1].num_rows == 0
    held.validate()


def test_empty_batches_nulls_and_long_text() -> None:
    held = state()
    append(held, [], [], [])
    append(held, [1], [0], [None])
    slots = held.find([pa.array([1])])
    text = "x" * 10_000_000
    held.append(slots, np.array([1]), pa.record_batch({"x": pa.array([1]), "s": pa.array([text])}))
    held.append(slots[:0], np.array([], np.int64), rows([]))
    again = restored([read(held.freeze(1))])
    assert again.between(again.find([pa.array([1])]), *ALL)[1].to_pylist() == [
        {"x": None, "s": None},
        {"x": 1, "s": text},
    ]


def test_bad_input_is_refused() -> None:
    held = state()
    slots, _ = held.insert([pa.array([1])])
    with pytest.raises(ConfigurationError, match=r"has no rows: give their columns, KeyedState\(..., rows=schema\)"):
        KeyedState(KEYS, ROWS).drop_before(0)
    with pytest.raises(ValueError, match="slot -1 has no key: call insert"):
        held.append(np.array([-1], np.int32), np.array([0]), rows([1]))
    with pytest.raises(ValueError, match="times has 2 entries for 1 rows"):
        held.append(slots, np.array([0, 1]), rows([1]))
    with pytest.raises(SchemaMismatch, match=r"'s': 'string'.*got \{'x': 'int64'\}: select and cast them"):
        held.append(slots, np.array([0]), rows([1]).select(["x"]))
    with pytest.raises(SchemaMismatch, match="no column 'y'"):
        held.between(slots, 0, 1, "y")
    with pytest.raises(SchemaMismatch, match="list<item: int64>"):
        KeyedState(KEYS, pa.schema({}), rows=pa.schema({"l": pa.list_(pa.int64())}))
    assert contents(held) == {1: []}
    held.validate()


def test_a_checkpoint_with_other_rows_or_rows_without_a_key_is_refused() -> None:
    held = state()
    append(held, [1], [1], [10])
    base = read(held.freeze(1))
    other = KeyedState(KEYS, pa.schema({}), rows=pa.schema({"x": pa.int64()}))
    with pytest.raises(CheckpointMismatch, match=r"the checkpoint's state has \{'s': 'string'\}"):
        other.restore([base])
    with pytest.raises(CheckpointMismatch, match="has rows of keys"):
        KeyedState(KEYS, pa.schema({})).restore([base])
    with pytest.raises(CheckpointDamaged, match="belong to a key that has no value"):
        state().restore([base | {"keys": base["keys"].slice(0, 0)}])
