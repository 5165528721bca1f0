"""Keyed aggregates against brute force, through restores, and at the edges of their types."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.clock import ManualClock
from dataflow.contracts.operator import OperatorContext, Snapshot
from dataflow.contracts.updates import CHANGE
from dataflow.errors import CheckpointMismatch, ConfigurationError, SchemaMismatch, UnknownColumn
from dataflow.expressions import Aggregation, col, count
from dataflow.planning.aggregate_specs import Emit
from dataflow.state.hashing import key_group_range
from operators.aggregation.aggregate import AggregateOperator
from operators.stateful.chunks import CHUNK
from tests.operators.operating import frozen, joined, made, read_stored, rows_of, stored
from tests.seeds import seeds

NAN = float("nan")
SCHEMA = pa.schema({"k": pa.string(), "i": pa.int64(), "f": pa.float64()})
ALL = [
    count(),
    col("i").count().alias("values"),
    col("i").sum(),
    col("i").min(),
    col("i").max(),
    col("i").mean(),
    col("f").sum(),
    col("f").min(),
    col("f").max(),
    col("f").mean(),
]


class Rows:
    """An Out that keeps its batches."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    def emit(self, batch: pa.RecordBatch, tag: str | None = None) -> None:
        batch.validate(full=True)
        self.batches.append(batch)

    def take(self) -> list[dict[str, Any]]:
        rows = [row for batch in self.batches for row in batch.to_pylist()]
        self.batches.clear()
        return rows


class Harness:
    """A KeyedAggregate with what an engine gives it."""

    def __init__(
        self,
        aggregations: Sequence[Aggregation],
        schema: pa.Schema = SCHEMA,
        keys: Sequence[str] = ("k",),
        emit: Emit = Emit.UPDATES,
        every: int | None = None,
        restored: Snapshot | None = None,
        groups: range = range(128),
        weight: str | None = None,
    ) -> None:
        output = [*(schema.field(key) for key in keys), *(pa.field(a.name, a.dtype(schema)) for a in aggregations)]
        if emit is Emit.CHANGES:
            output.append(pa.field(CHANGE, pa.int8()))
        self.clock, self.due, self.out, self.schema = ManualClock(), list[int](), Rows(), schema
        context = OperatorContext(
            "totals", 0, 1, (schema,), pa.schema(output), groups, 128, restored, self.clock, self.due.append
        )
        self.operator = made(AggregateOperator(context, keys, aggregations, emit, every, weight=weight), context)
        self.operator.open()

    def process(self, *rows: Sequence[Any]) -> list[dict[str, Any]]:
        columns = [
            pa.array(column, type_) for column, type_ in zip(zip(*rows, strict=True), self.schema.types, strict=True)
        ]
        return self.feed(pa.record_batch(columns, schema=self.schema))

    def feed(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        for _ in self.operator.process(0, batch, self.out) or ():
            pass
        return self.out.take()

    def stored(self) -> Snapshot:
        """Its state, written and read back."""
        return stored(self.operator.snapshot())

    def fire(self) -> list[dict[str, Any]]:
        for _ in self.operator.timer(self.due.pop(0), self.out) or ():
            pass
        return self.out.take()

    def finish(self) -> list[dict[str, Any]]:
        for _ in self.operator.finish(self.out) or ():
            pass
        return self.out.take()


def brute_force(rows: Sequence[Sequence[Any]]) -> dict[Any, list[Any]]:
    """The aggregates of ``ALL`` per key, by Python."""
    found = {}
    for key in dict.fromkeys(row[0] for row in rows):
        mine = [row for row in rows if row[0] == key]
        ints, floats = [r[1] for r in mine if r[1] is not None], [r[2] for r in mine if r[2] is not None]
        numbers = [f for f in floats if f == f]
        found[key] = [
            len(mine),
            len(ints),
            *((sum(ints), min(ints), max(ints), sum(ints) / len(ints)) if ints else (None,) * 4),
            math.fsum(floats) if floats else None,
            (min(numbers) if numbers else NAN) if floats else None,
            (NAN if len(numbers) < len(floats) else max(numbers)) if floats else None,
            math.fsum(floats) / len(floats) if floats else None,
        ]
    return found


def last_per_key(rows: Sequence[dict[str, Any]]) -> dict[Any, list[Any]]:
    """The last row of each key that was added."""
    added = [row for row in rows if row.get(CHANGE) != -1]
    return {row["k"]: [value for name, value in row.items() if name not in ("k", CHANGE)] for row in added}


def agree(found: dict[Any, list[Any]], expected: dict[Any, list[Any]]) -> None:
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        assert found[key] == [None if v is None else pytest.approx(v, nan_ok=True, rel=1e-9, abs=1e-9) for v in values]


ROWS = st.tuples(
    st.sampled_from(["a", "b", "c", "", None]),
    st.none() | st.integers(-(2**50), 2**50),
    st.none() | st.sampled_from([0.0, -0.0, NAN, -NAN]) | st.floats(-1e6, 1e6),
)


@given(st.lists(ROWS, max_size=30), st.lists(ROWS, max_size=30), st.sampled_from(Emit), st.integers(0, 2))
def test_it_agrees_with_brute_force_through_a_restore(
    before: list[Any], after: list[Any], emit: Emit, restores: int
) -> None:
    harness = Harness(ALL, emit=emit)
    rows = harness.process(*before) if before else []
    for _ in range(restores):
        harness = Harness(ALL, emit=emit, restored=harness.stored())
    rows += harness.process(*after) if after else []
    rows += harness.finish()
    agree(last_per_key(rows), brute_force(before + after))


def test_an_update_is_one_row_per_key_of_the_batch_in_order_of_first_touch() -> None:
    harness = Harness([count()])
    assert harness.process(("b", 1, 0), ("a", 1, 0), ("b", 1, 0)) == [{"k": "b", "count": 2}, {"k": "a", "count": 1}]
    assert harness.process(("c", 1, 0), ("a", 1, 0)) == [{"k": "c", "count": 1}, {"k": "a", "count": 2}]
    assert harness.feed(pa.RecordBatch.from_pylist([], schema=SCHEMA)) == []
    assert harness.finish() == []


def test_with_an_interval_updates_come_at_timers_and_the_rest_at_the_end() -> None:
    harness = Harness([count()], every=1000)
    assert harness.process(("a", 1, 0)) == harness.process(("b", 1, 0), ("a", 1, 0)) == []
    assert harness.due == [1000]
    assert harness.fire() == [{"k": "a", "count": 2}, {"k": "b", "count": 1}]
    harness.clock.advance(1500)
    assert harness.process(("b", 1, 0)) == []
    assert harness.due == [2500]
    assert harness.finish() == [{"k": "b", "count": 2}]
    assert harness.finish() == []


def test_keys_waiting_for_a_timer_survive_a_restore() -> None:
    harness = Harness([count()], every=1000)
    harness.process(("a", 1, 0))
    harness.fire()
    harness.process(("b", 1, 0))
    restored = Harness([count()], every=1000, restored=harness.stored())
    assert restored.due == [1000]
    assert restored.fire() == [{"k": "b", "count": 1}]


def test_the_final_emission_comes_in_chunks_and_empties_the_state() -> None:
    schema = pa.schema({"k": pa.int64()})
    harness = Harness([count()], schema=schema, emit=Emit.FINAL)
    harness.feed(pa.record_batch({"k": np.arange(CHUNK + 5)}))
    emission = harness.operator.finish(harness.out)
    assert emission is not None
    assert [len(harness.out.take()) for _ in emission] == [CHUNK, 5]
    assert rows_of(harness.stored()).num_rows == 0


def test_a_snapshot_does_not_see_later_rows() -> None:
    harness = Harness(ALL)
    harness.process(("a", 1, 1.0), ("b", None, None))
    snapshot, before = frozen(harness.operator.snapshot()), harness.stored()
    harness.process(("a", 5, 5.0), *((f"key {i}", 1, 1.0) for i in range(3000)))
    assert read_stored(snapshot) == before


def test_emitted_rows_do_not_see_later_rows() -> None:
    harness = Harness([col("i").sum()])
    harness.operator.process(0, pa.record_batch([["a"], [1], [1.0]], schema=SCHEMA), harness.out)
    harness.operator.process(0, pa.record_batch([["a"], [1], [1.0]], schema=SCHEMA), harness.out)
    assert [row["i_sum"] for row in harness.out.take()] == [1, 2]


def test_joined_snapshots_are_split_again_by_key_group() -> None:
    one, other = Harness(ALL), Harness(ALL)
    one.process(*((f"key {i}", i, 1.0) for i in range(50)))
    other.process(*((f"key {i}", i, 1.0) for i in range(50, 90)))
    both = joined(one.stored(), other.stored())
    ranges = [key_group_range(subtask, 3, 128) for subtask in range(3)]
    subtasks = [Harness(ALL, emit=Emit.FINAL, restored=both, groups=groups) for groups in ranges]
    found = [row for subtask in subtasks for row in subtask.finish()]
    assert sorted(row["i_max"] for row in found) == list(range(90))


@pytest.mark.parametrize(
    ("type_", "before", "more", "message"),
    [
        (pa.int64(), 2**63 - 1, 1, "'v_sum' of key {'k': 'big'}"),
        (pa.int64(), -(2**63), -1, "v_sum"),
        (pa.uint64(), 2**64 - 1, 1, "v_sum"),
    ],
)
def test_an_integer_sum_never_wraps(type_: pa.DataType, before: int, more: int, message: str) -> None:
    harness = Harness([count(), col("v").sum()], schema=pa.schema({"k": pa.string(), "v": type_}))
    assert harness.process(("big", before), ("small", 3))[0]["v_sum"] == before
    with pytest.raises(OverflowError, match=message):
        harness.process(("small", 1), ("big", more))


def test_what_stands_under_a_null_cannot_overflow() -> None:
    values = pa.Array.from_buffers(
        pa.int64(), 3, [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([1, 2**63 - 1, 2**63 - 1]))]
    )
    harness = Harness([col("v").sum()], schema=pa.schema({"k": pa.int64(), "v": pa.int64()}))
    assert harness.feed(pa.record_batch({"k": [1, 1, 1], "v": values})) == [{"k": 1, "v_sum": 1}]


DAY = dt.date(1969, 5, 17)
EXTREMES: list[tuple[pa.DataType, list[Any], Any, Any]] = [
    (pa.int8(), [-128, 127, None], -128, 127),
    (pa.uint8(), [255, 0], 0, 255),
    (pa.uint64(), [2**64 - 1, 1, 2**63], 1, 2**64 - 1),
    (pa.int64(), [-(2**63), None, 2**63 - 1], -(2**63), 2**63 - 1),
    (pa.int64(), [-(2**63)], -(2**63), -(2**63)),
    (pa.float32(), [1.5, -2.5, None], -2.5, 1.5),
    (pa.float64(), [float("-inf"), 1e308, float("inf")], float("-inf"), float("inf")),
    (pa.float64(), [-1.0, -2.0], -2.0, -1.0),
    (pa.bool_(), [True, None, False], False, True),
    (pa.bool_(), [None, None], None, None),
    (pa.date32(), [DAY, dt.date(2000, 1, 1)], DAY, dt.date(2000, 1, 1)),
    (pa.date64(), [DAY, dt.date(2000, 1, 1)], DAY, dt.date(2000, 1, 1)),
    (pa.time32("s"), [dt.time(1), dt.time(2)], dt.time(1), dt.time(2)),
    (pa.duration("us"), [dt.timedelta(-1), dt.timedelta(1)], dt.timedelta(-1), dt.timedelta(1)),
    (pa.timestamp("us"), [dt.datetime(1900, 1, 1), None], dt.datetime(1900, 1, 1), dt.datetime(1900, 1, 1)),
]


@pytest.mark.parametrize(("type_", "values", "least", "greatest"), EXTREMES, ids=lambda value: str(value)[:20])
def test_extremes_keep_their_type(type_: pa.DataType, values: list[Any], least: Any, greatest: Any) -> None:
    harness = Harness([col("v").min(), col("v").max()], schema=pa.schema({"k": pa.int8(), "v": type_}))
    assert harness.process(*((1, value) for value in values)) == [{"k": 1, "v_min": least, "v_max": greatest}]


def test_nan_is_greater_than_every_number() -> None:
    harness = Harness([col("f").min(), col("f").max()])
    (first,) = harness.process(("a", 1, -NAN))
    assert math.isnan(first["f_min"])
    (second,) = harness.process(("a", 1, float("inf")), ("a", 1, None))
    assert second["f_min"] == float("inf")
    assert math.isnan(second["f_max"])


def test_dictionary_arguments_and_keys_are_read_through() -> None:
    schema = pa.schema({"k": pa.dictionary(pa.int32(), pa.string()), "v": pa.dictionary(pa.int8(), pa.int64())})
    harness = Harness([col("v").sum(), col("v").max()], schema=schema)
    for values in (["a", "b", "a"], ["c", "a", "c"]):
        numbers = pa.array([1, None, 3]).dictionary_encode().cast(schema.field("v").type)
        rows = harness.feed(pa.record_batch([pa.array(values).dictionary_encode(), numbers], schema=schema))
    assert rows == [{"k": "c", "v_sum": 4, "v_max": 3}, {"k": "a", "v_sum": 4, "v_max": 3}]


def test_more_instructions_than_one_call_takes() -> None:
    aggregations = [(col("i") + number).sum().alias(f"s{number}") for number in range(20)]
    (row,) = Harness(aggregations).process(("a", 1, 0.0), ("a", None, 0.0), ("a", 2, 0.0))
    assert row == {"k": "a", **{f"s{number}": 3 + 2 * number for number in range(20)}}


def test_it_agrees_with_duckdb_over_many_keys_and_batches() -> None:
    rng = np.random.default_rng(4)
    rows = 60_000
    table = pa.table(
        {
            "a": pa.array((9000 * rng.random(rows) ** 3).astype(np.int64), mask=rng.random(rows) < 0.01),
            "b": pa.array(rng.integers(0, 3, rows).astype(str)),
            "v": pa.array(rng.integers(-1000, 1000, rows), mask=rng.random(rows) < 0.2),
        }
    )
    aggregations = [count(), col("v").count().alias("n"), col("v").sum(), col("v").min(), col("v").max()]
    harness = Harness(aggregations, schema=table.schema, keys=("a", "b"), emit=Emit.FINAL)
    for batch in table.slice(1).to_batches(max_chunksize=7001):
        harness.feed(batch)
    table = table.slice(1)
    groups = duckdb.from_arrow(table).aggregate("a, b, count(*), count(v), sum(v)::bigint, min(v), max(v)", "a, b")
    assert {tuple(row.values()) for row in harness.finish()} == set(groups.fetchall())


@pytest.mark.parametrize("type_", [pa.list_(pa.int8()), pa.struct({"x": pa.int8()})], ids=str)
def test_extremes_of_nested_types_are_refused(type_: pa.DataType) -> None:
    with pytest.raises(SchemaMismatch, match=r"max takes all but nested.*col\('v'\) is .*cast\(type\) it first"):
        Harness([col("v").max()], schema=pa.schema({"k": pa.int8(), "v": type_}))


def test_records_of_another_form_are_refused() -> None:
    harness = Harness([count()])
    harness.process(("a", 1, 1.0))
    held = harness.stored()
    rows = rows_of(held).append_column("more", pa.array(["x"]))
    with pytest.raises(CheckpointMismatch, match=r"totals: state: the checkpoint's state has \{'more': 'string'\}"):
        Harness([count()], restored=Snapshot(held.values, {}, {"state": [{"keys": rows}]}, held.rules))


def test_text_can_be_counted() -> None:
    harness = Harness([col("v").count()], schema=pa.schema({"k": pa.int8(), "v": pa.string()}))
    assert harness.process((1, "x"), (1, None), (1, "")) == [{"k": 1, "v_count": 2}]


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(UnknownColumn, match="'q'"):
        AggregateOperator(
            OperatorContext("totals", 0, 1, (SCHEMA,), SCHEMA, range(128), 128, None, ManualClock(), lambda due: None),
            ["q"],
            [count()],
            Emit.FINAL,
        )


def test_an_interval_of_a_final_emission_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="every"):
        Harness([count()], emit=Emit.FINAL, every=5)


@pytest.mark.parametrize("seed", seeds(2, 5))
def test_restores_at_random_points_change_nothing(seed: int) -> None:
    rng = random.Random(seed)
    rows = [(rng.choice("abcdefgh"), rng.choice([None, 1, 2]), rng.random()) for _ in range(300)]
    plain, restarted = Harness(ALL), Harness(ALL)
    while rows:
        taken = [rows.pop() for _ in range(min(len(rows), rng.randrange(1, 40)))]
        if rng.random() < 0.5:
            restarted = Harness(ALL, restored=restarted.stored())
        assert plain.process(*taken) == restarted.process(*taken)
