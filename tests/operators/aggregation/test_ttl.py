"""Aggregates whose keys expire: judged row by row, whatever the batches, and gone from memory."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.clock import ManualClock
from dataflow.contracts.operator import Snapshot
from dataflow.contracts.windows import EventTime
from dataflow.errors import CheckpointMismatch, ConfigurationError, GraphError
from dataflow.planning.aggregate_specs import Aggregate, Emit
from dataflow.state import free_numbers, ordered_values
from dataflow.state.free_numbers import FreeNumbers
from dataflow.state.ordered_values import _Table
from dataflow.state.ttl import Ttl
from operators.aggregation.aggregate import AggregateOperator
from tests.forcing import Force
from tests.operators.operating import Emitted, context_of, drained, joined, made, stored
from tests.seeds import seeds

SCHEMA = pa.schema({"k": pa.string(), "x": pa.int64(), "t": pa.timestamp("us")})
AGGREGATIONS = [op.count(), col("x").sum(), col("x").max(), col("x").cast("string").last().alias("last")]
AGGREGATIONS += [col("x").count_distinct().alias("different"), col("x").cast("string").count_distinct().alias("texts")]
AGGREGATIONS += [col("x").to_list().alias("list"), col("x").quantile(0.5).alias("median")]
OUTPUT = pa.schema([("k", pa.string()), *((a.name, a.dtype(SCHEMA)) for a in AGGREGATIONS)])

Row = tuple[str | None, int, int]


@dataclass
class Model:
    """The rule for a row: its key is visible if max(row time, watermark) < the latest time of its rows + ttl."""

    ttl: int
    rows: dict[str | None, list[int]] = field(default_factory=dict)
    stamps: dict[str | None, int] = field(default_factory=dict)
    watermark: int = -(2**62)

    def feed(self, row: Row) -> None:
        key, x, time = row
        if key not in self.rows or max(time, self.watermark) >= self.stamps[key] + self.ttl:
            self.rows[key], self.stamps[key] = [], time
        self.rows[key].append(x)
        self.stamps[key] = max(self.stamps[key], time)

    def result(self, key: str | None) -> tuple[Any, ...]:
        xs = self.rows[key]
        return (key, len(xs), sum(xs), max(xs), str(xs[-1]), len(set(xs)), len(set(xs)), xs, median(xs))


class Aggregates:
    """The operator with a ttl, by event time or by the clock."""

    def __init__(
        self,
        ttl: int,
        *,
        event_time: bool = True,
        every: int | None = None,
        restored: Snapshot | None = None,
        groups: range = range(128),
    ) -> None:
        self.clock, self.out = ManualClock(), Emitted()
        context = context_of(SCHEMA, OUTPUT, restored=restored, groups=groups, clock=self.clock)
        time = EventTime("t") if event_time else None
        built = AggregateOperator(context, ["k"], AGGREGATIONS, Emit.UPDATES, every, Ttl(ttl), time)
        self.operator = made(built, context)
        self.operator.open()

    def feed(self, rows: Sequence[Row]) -> list[tuple[Any, ...]]:
        columns = [pa.array(column, type_) for column, type_ in zip(zip(*rows, strict=True), SCHEMA.types, strict=True)]
        self.operator.process(0, pa.RecordBatch.from_arrays(columns, schema=SCHEMA), self.out)
        self.operator._state.validate()
        return self.out.take()

    def advance(self, watermark: int) -> None:
        self.operator.advance(watermark, self.out)


def row_at(rng: random.Random, now: int) -> Row:
    return rng.choice([None, *"abcdefgh"]), rng.randrange(5), now + rng.randrange(-30, 30)


@pytest.mark.parametrize("seed", seeds(2, 8))
def test_it_agrees_with_the_rule_for_any_batches_and_restores(seed: int, force: Force) -> None:
    """With even seeds, memory is given back whenever few of the numbers of keys or values are in use."""
    if seed % 2 == 0:
        force(free_numbers, "MANY", 1, calls=FreeNumbers.sort)
        force(ordered_values, "MANY", 1, calls=_Table.shrink, giving=bool)
    rng = random.Random(seed)
    aggregates, model, now = Aggregates(20), Model(20), 0
    for _ in range(150):
        rows = [row_at(rng, now) for _ in range(rng.choice([1, 2, 40]))]
        found = aggregates.feed(rows)
        for row in rows:
            model.feed(row)
        assert sorted(found, key=repr) == sorted([model.result(key) for key in {key for key, _, _ in rows}], key=repr)
        if rng.random() < 0.5:
            now += rng.choice([0, 1, 10, 50])
            model.watermark = max(model.watermark, now - 10)
            aggregates.advance(model.watermark)
        if rng.random() < 0.1:
            snapshot = stored(aggregates.operator.snapshot())
            aggregates = Aggregates(20, restored=snapshot)


def test_how_rows_are_cut_into_batches_changes_nothing() -> None:
    rng = random.Random(1)
    rows = [(rng.choice("abc"), i, rng.randrange(300)) for i in range(400)]
    results = []
    for size in (1, 3, 50, 400):
        aggregates, last = Aggregates(15), dict[Any, Any]()
        for start in range(0, len(rows), size):
            last.update({row[0]: row for row in aggregates.feed(rows[start : start + size])})
        results.append(last)
    assert results[1:] == results[:1] * 3


def test_by_the_clock_a_key_lives_from_batch_to_batch() -> None:
    aggregates = Aggregates(1_000_000, event_time=False)
    assert [row[1] for row in aggregates.feed([("a", 1, 0), ("a", 1, 10**9)])] == [2]
    aggregates.clock.advance(999_999)
    assert [row[1] for row in aggregates.feed([("a", 1, 0)])] == [3]
    again = Aggregates(1_000_000, event_time=False, restored=stored(aggregates.operator.snapshot()))
    again.clock.advance(1_999_998)
    assert [row[1] for row in again.feed([("a", 1, 0), ("b", 1, 0)])] == [4, 1]
    again.clock.advance(1_000_000)
    assert [row[1] for row in again.feed([("b", 1, 0)])] == [1]


def test_keys_for_ever_take_the_memory_of_those_that_live() -> None:
    aggregates, sizes = Aggregates(1_000), []
    for turn in range(300):
        first = turn * 500
        aggregates.feed([(f"key number {i:09}", i, i) for i in range(first, first + 500)])
        aggregates.advance(first + 499)
        state = aggregates.operator._state
        sizes.append((len(state.records), state._index._texts.nbytes))
    assert max([slots for slots, _ in sizes]) < 3_000
    assert max([size for _, size in sizes]) < 2_500_000  # of 3 MB of text in all
    assert state.live < 4_000


def test_updates_that_wait_for_their_turn_are_emitted_though_their_keys_expire() -> None:
    aggregates = Aggregates(10, every=1_000)
    assert aggregates.feed([("a", 1, 0), ("b", 2, 0)]) == []
    aggregates.advance(500)
    aggregates.feed([("b", 3, 501)])
    drained(aggregates.operator.timer(1_000, aggregates.out))
    assert [(key, n) for key, n, *_ in aggregates.out.take()] == [("a", 1), ("b", 1)]
    aggregates.advance(10_000)
    assert aggregates.operator._state.live == 0


def test_expired_state_of_several_subtasks_can_be_joined_and_divided() -> None:
    one, other = Aggregates(10), Aggregates(10)
    one.feed([(f"k{i}", i, i) for i in range(50)])
    other.feed([(f"other {i}", i, i) for i in range(50)])
    both = joined(stored(one.operator.snapshot()), stored(other.operator.snapshot()))
    parts = [Aggregates(10, restored=both, groups=groups) for groups in (range(50), range(50, 128))]
    for part in parts:
        part.advance(45)
    assert sum(part.operator._state.live for part in parts) == 2 * 14  # times above 35


def test_a_null_time_is_refused_with_a_way_out() -> None:
    with pytest.raises(ValueError, match=r"1 event times are null in 't'.*on_error="):
        Aggregates(10).feed([("a", 1, None)])  # type: ignore[list-item]


# --- in pipelines


def pipeline(**options: Any) -> flow.Stream:
    table = pa.table({"k": ["a", "b", "a", "a"], "at": pa.array([0, 1, 9, 19], pa.timestamp("s"))})
    rows = flow.Pipeline().source(op.from_arrow(table, batch_rows=1)).with_watermark("at")
    return rows.key_by("k").agg(op.count().alias("n"), **options)


def test_a_key_that_returns_after_its_ttl_starts_anew() -> None:
    found = pipeline(emit="updates", ttl="10s").collect()
    assert found.sort_by("k").to_pydict() == {"k": ["a", "a", "a", "b"], "n": [1, 2, 1, 1]}
    assert pipeline(ttl=timedelta(seconds=11)).collect().sort_by("k")["n"].to_pylist() == [1, 2, 3, 1]


def test_keys_expire_to_the_nanosecond() -> None:
    """Keys a and b have two rows with 1,999 ns and 2,000 ns between them: with a ttl of 2 us, b starts anew."""
    for first in (1_999, -(2**63) + 2, 2**63 - 2_002):
        at = pa.array([first, first, first + 1_999, first + 2_000], pa.timestamp("ns"))
        table = pa.table({"k": list("abab"), "at": at})
        rows = flow.Pipeline().source(op.from_arrow(table, batch_rows=1)).with_watermark("at", delay="1s")
        counts = rows.key_by("k").agg(op.count().alias("n"), ttl="2us", emit="updates").collect()
        assert counts.to_pydict() == {"k": ["a", "b", "a", "b"], "n": [1, 1, 2, 1]}
        assert rows.unique("k", ttl="2us").collect()["k"].to_pylist() == ["a", "b", "b"]
        top = rows.key_by("k").top(1, by="at", descending=False, ttl="2us", emit="changes").select("k")
        assert top.collect()["k"].to_pylist() == ["a", "b", "b"]


def test_state_with_times_of_another_unit_is_refused() -> None:
    snapshot = stored(Aggregates(10).operator.snapshot())
    other = replace(snapshot, values={**snapshot.values, "time units": ["ns"]})
    with pytest.raises(CheckpointMismatch, match=r"time units: the checkpoint has \['ns'\], the pipeline has \['us'\]"):
        Aggregates(10, restored=other)


def test_rows_are_not_folded_before_an_aggregate_that_judges_each_by_its_time() -> None:
    times = np.arange(200_000) * 1_000_000
    table = pa.table({"k": times // 1_000_000 % 4, "at": pa.array(times, pa.timestamp("us"))})
    rows = flow.Pipeline().source(op.from_arrow(table)).with_watermark("at")
    found = rows.key_by("k").agg(op.count().alias("n"), ttl="4s").collect(parallelism=2)
    assert set(found["n"].to_pylist()) == {1}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"emit": "final", "ttl": "1h"}, GraphError, r"agg\(ttl=\) needs emit='updates'"),
        ({"ttl": "0s"}, ConfigurationError, r"agg\(ttl=\) must be above zero"),
        ({"ttl": timedelta(-1)}, ConfigurationError, r"agg\(ttl=\) cannot be negative"),
        ({"ttl": 10}, ConfigurationError, r"agg\(ttl=\) must be a timedelta"),
        ({"ttl": "1h", "ttl_from": "read"}, ConfigurationError, r"'write' or 'access', got 'read'"),
        ({"ttl_from": "access"}, ConfigurationError, r"agg\(ttl_from=\) needs a ttl"),
    ],
)
def test_a_ttl_that_makes_no_sense_is_refused(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pipeline(**options)


def test_the_shown_state_has_no_expired_values() -> None:
    held = Aggregates(10)
    held.feed([("a", 1, 0), ("b", 2, 5)])
    held.operator._passed.advance(12)  # what a watermark sets before it removes anything
    spec = Aggregate(("k",), tuple(AGGREGATIONS), Emit.UPDATES, None, ttl=Ttl(10), time=EventTime("t"))
    shown = AggregateOperator.show(spec, stored(held.operator.snapshot()), [SCHEMA], OUTPUT)
    assert shown.tables["rows"]["k"].to_pylist() == ["b"]


def test_a_shown_row_is_not_taken_back_if_its_key_begins_anew_before_the_next_emission() -> None:
    def new(snapshot: Snapshot | None = None) -> AggregateOperator:
        output = pa.schema([SCHEMA.field("k"), ("n", pa.int64()), ("change", pa.int8())])
        context, n = context_of(SCHEMA, output, restored=snapshot), op.count().alias("n")
        return made(AggregateOperator(context, ["k"], [n], Emit.CHANGES, 1000, Ttl(10), EventTime("t")), context)

    def feed(keys: str, time: int) -> None:
        columns = [list(keys), [1] * len(keys), pa.array([time] * len(keys), pa.timestamp("us"))]
        drained(operator.process(0, pa.table(columns, schema=SCHEMA).to_batches()[0], out))

    operator, out = new(), Emitted()
    feed("ab", 0)
    drained(operator.timer(0, out))
    assert out.take() == [("a", 1, 1), ("b", 1, 1)]
    feed("ab", 5)
    feed("a", 50)
    for again in (new(stored(operator.snapshot())), operator):
        drained(again.timer(0, out))
        assert sorted(out.take()) == [("a", 1, 1), ("b", 1, -1), ("b", 2, 1)]
