"""Records that a local aggregate keeps back over several batches: nothing may depend on how many these are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.kept_rows import MOST_RECORDS, Keep, KeepMany, KeepNone
from dataflow.expressions import Aggregation
from dataflow.planning.aggregate_specs import Aggregate, Emit
from dataflow.runners.faults import Faults
from dataflow.testing import Ledger, ledger_sink
from operators.aggregation.aggregate import AggregateOperator
from operators.aggregation.combine import CombineOperator
from operators.aggregation.records import is_mergeable
from operators.stateful.columns import is_partial
from tests.operators.operating import Emitted, context_of
from tests.seeds import each_once_with_seeds
from tests.simulation.jobs import simulate

SCHEMA = pa.schema({"k": pa.int64(), "x": pa.int64()})
AGGREGATES = [
    op.count().alias("n"),
    col("x").sum().alias("sum"),
    col("x").min().alias("min"),
    col("x").max().alias("max"),
]


class Sometimes:
    """Keeps rows back, or not, as it was drawn."""

    keeps = True

    def __init__(self, draw: np.random.Generator) -> None:
        self._draw = draw

    def goes_on(self, records: int) -> bool:
        return bool(self._draw.random() < 0.7)


def combine(
    keep: Keep, aggregates: list[Aggregation] | None = None, emit: Emit = Emit.FINAL, schema: pa.Schema = SCHEMA
) -> CombineOperator:
    made = CombineOperator(context_of(schema, schema), Aggregate(("k",), tuple(aggregates or AGGREGATES), emit, None))
    made.keep = keep
    return made


def rows(keys: Any, values: Any) -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array(keys, pa.int64()), "x": pa.array(values, pa.int64())})


def partial(out: Emitted) -> list[bool]:
    """Whether each batch that was emitted since the last call has records."""
    return [is_partial(batch.schema) for batch in out.batches.pop(None, [])]


def test_records_take_the_rows_of_many_batches_until_they_are_asked_for() -> None:
    operator, out = combine(KeepMany()), Emitted()
    for value in range(50):
        operator.process(0, rows([1, 2] * 100, [value] * 200), out)
    assert not out.batches
    operator.emit_kept(out)
    (batch,) = out.batches[None]
    assert batch.num_rows == 2
    assert is_partial(batch.schema)
    operator.emit_kept(out)
    assert len(out.batches[None]) == 1, "nothing is left"


@pytest.mark.parametrize(("keep", "emit"), [(KeepNone(), Emit.FINAL), (KeepMany(), Emit.UPDATES)])
def test_records_leave_with_their_batch_if_updates_would_wait_or_the_runner_keeps_none(keep: Keep, emit: Emit) -> None:
    operator, out = combine(keep, emit=emit), Emitted()
    operator.process(0, rows([1] * 5_000, range(5_000)), out)
    operator.process(0, rows([1] * 10, range(10)), out)
    assert partial(out) == [True, False], "a small batch passes unchanged"


def test_records_leave_when_there_are_many() -> None:
    operator, out = combine(KeepMany()), Emitted()
    for start in range(0, 2 * MOST_RECORDS, 25_000):
        operator.process(0, rows([*range(start, start + 25_000)] * 2, range(50_000)), out)
        if out.batches:
            break
    assert [batch.num_rows for batch in out.batches[None]] == [275_000]
    operator.process(0, rows([1], [1]), out)
    assert partial(out) == [True, False], "they had two rows each, so the next rows pass unchanged"
    assert operator._choice().chosen == "paused"


def test_nothing_is_kept_if_the_first_keys_hardly_repeat() -> None:
    operator, out = combine(KeepMany()), Emitted()
    operator.process(0, rows(range(100_000), range(100_000)), out)
    assert partial(out) == [False]


def test_kept_rows_leave_once_the_keys_of_small_batches_hardly_repeat() -> None:
    operator, out = combine(KeepMany()), Emitted()
    for start in range(0, 100_000, 10_000):
        operator.process(0, rows(range(start, start + 10_000), range(10_000)), out)
    assert partial(out) == [True, False, False, False], "of 60,000 rows, those of the first half were needed to see it"


def test_a_large_batch_is_tried_although_a_few_rows_are_kept() -> None:
    operator, out = combine(KeepMany()), Emitted()
    operator.process(0, rows([1] * 100, range(100)), out)
    operator.process(0, rows(range(100_000), range(100_000)), out)
    assert partial(out) == [True, False]


def test_a_snapshot_while_rows_are_kept_is_a_fault_of_the_engine() -> None:
    operator, out = combine(KeepMany()), Emitted()
    operator.process(0, rows([1], [1]), out)
    with pytest.raises(AssertionError, match="1 rows are kept back"):
        operator.snapshot()
    operator.emit_kept(out)
    assert not operator.snapshot().tables


LISTS: dict[str, Callable[[], list[Aggregation]]] = {
    "numbers": lambda: AGGREGATES,
    "order": lambda: [col("x").first().alias("first"), col("x").last().alias("last"), op.count().alias("n")],
    "means": lambda: [col("x").mean().alias("mean"), col("x").variance().alias("var"), col("x").count().alias("n")],
}


@pytest.mark.parametrize(("seed", "kind"), each_once_with_seeds(300, list(LISTS)))
def test_any_choice_gives_the_results_of_an_aggregate_without_folding(kind: str, seed: int) -> None:
    """Also of aggregates that depend on the order of a key's rows."""
    draw = np.random.default_rng(seed)
    aggregates = LISTS[kind]()
    assert is_mergeable(aggregates, SCHEMA)
    output = pa.schema([SCHEMA.field("k"), *[pa.field(a.name, a.dtype(SCHEMA)) for a in aggregates]])
    fold = combine(Sometimes(draw), aggregates)
    plain, after = (AggregateOperator(context_of(SCHEMA, output), ["k"], aggregates, Emit.FINAL) for _ in range(2))
    for _ in range(40):
        size = int(draw.choice([0, 1, 7, 300, 5_000]))
        many = int(draw.choice([1, 5, 100_000]))
        values = draw.integers(0, 1_000, size)
        batch = pa.record_batch(
            {"k": pa.array(draw.integers(0, many, size)), "x": pa.array(values, mask=draw.random(size) < 0.1)}
        )
        plain.process(0, batch, Emitted())
        out = Emitted()
        fold.process(0, batch, out)
        if draw.random() < 0.1:
            fold.emit_kept(out)
        for sent in out.batches.get(None, []):
            after.process(0, sent, Emitted())
    last, expected, found = Emitted(), Emitted(), Emitted()
    fold.emit_kept(last)
    for sent in last.batches.get(None, []):
        after.process(0, sent, Emitted())
    for operator, to in ((plain, expected), (after, found)):
        for _ in operator.finish(to) or ():
            pass
    approximate = [
        tuple(pytest.approx(v, rel=1e-9) if isinstance(v, float) else v for v in row)
        for row in sorted(expected.take(), key=repr_of_key)
    ]
    assert sorted(found.take(), key=repr_of_key) == approximate


LARGE = [0, 1, -1, 2**40, 2**62, -(2**62), 2**63 - 1, -(2**63)]


@pytest.mark.parametrize(("seed", "keeping"), each_once_with_seeds(300, [KeepNone, KeepMany]))
def test_folding_raises_no_overflow_that_adding_row_by_row_would_not(seed: int, keeping: type[Keep]) -> None:
    draw = np.random.default_rng(seed)
    aggregates = [col("x").sum().alias("sum"), (col("x") // 2).sum().alias("half")]
    output = pa.schema([SCHEMA.field("k"), ("sum", pa.int64()), ("half", pa.int64())])
    fold = combine(keeping(), aggregates)
    after = AggregateOperator(context_of(SCHEMA, output), ["k"], aggregates, Emit.FINAL)
    totals, halves, folded = dict.fromkeys(range(3), 0), dict.fromkeys(range(3), 0), 0
    for number in range(12):
        values, keys = [], draw.integers(0, 3, 5_000).tolist()
        most = 3 if number % 4 else len(LARGE)  # some batches have small values only
        for key, drawn in zip(keys, draw.integers(0, most, 5_000), strict=True):
            fits = -(2**63) <= totals[key] + LARGE[drawn] < 2**63
            values.append(LARGE[drawn] if fits else 0)
            totals[key] += values[-1]
            halves[key] += values[-1] // 2
        out = Emitted()
        fold.process(0, rows(keys, values), out)
        for sent in out.batches.get(None, []):
            folded += is_partial(sent.schema)
            after.process(0, sent, Emitted())
    last, found = Emitted(), Emitted()
    fold.emit_kept(last)
    for sent in last.batches.get(None, []):
        after.process(0, sent, Emitted())
    for _ in after.finish(found) or ():
        pass
    assert sorted(found.take()) == [(key, totals[key], halves[key]) for key in range(3)]
    assert folded


def test_kept_rows_leave_before_a_batch_whose_values_could_overflow_with_them() -> None:
    operator, out = combine(KeepMany()), Emitted()
    operator.process(0, rows([1] * 100, [2**50] * 100), out)
    operator.process(0, rows([1] * 30, [2**58] * 30), out)
    assert partial(out) == [True]
    operator.process(0, rows([1, 1], [2**62, 2**62]), out)
    assert partial(out) == [True, False], "these do not even fit alone"
    assert (operator._choice().chosen, operator._choice().why[:28]) == ("paused", "sums or keys were too large ")


def test_kept_rows_leave_though_the_values_that_could_overflow_with_them_are_small() -> None:
    operator, out = combine(KeepMany()), Emitted()
    operator.process(0, rows([1] * 100, [2**56] * 100), out)
    operator.process(0, rows([1] * 28, [1] * 28), out)
    assert partial(out) == [True], "128 times the largest value is 2**63"


def test_rows_that_passing_unchanged_begins_with_do_not_overtake_kept_ones() -> None:
    operator, out = combine(KeepMany()), Emitted()
    operator.process(0, rows([1] * 8, [2**59] * 8), out)
    operator.process(0, rows([1], [2**63 - 1]), out)
    operator.process(0, rows([1], [1]), out)
    assert partial(out) == [True, False, False], "8 rows a record do not pay"


def test_narrow_values_are_kept_until_their_number_could_overflow() -> None:
    schema = pa.schema({"k": pa.int64(), "x": pa.int32()})
    operator, out = combine(KeepMany(), [col("x").sum().alias("sum")], schema=schema), Emitted()
    batch = pa.record_batch({"k": [1] * 10, "x": pa.array([2**31 - 1] * 10, pa.int32())}, schema=schema)
    operator.process(0, batch, out)
    operator._kept = 2**32  # as after so many rows
    operator.process(0, batch, out)
    assert partial(out) == [True]


def test_records_leave_when_their_keys_are_long() -> None:
    schema = pa.schema({"k": pa.string(), "x": pa.int64()})
    operator, out = combine(KeepMany(), schema=schema), Emitted()
    for start in range(0, 6_000, 1_000):
        keys = [f"{number:09000d}" for number in range(start, start + 1_000)]
        operator.process(0, pa.record_batch({"k": keys, "x": range(1_000)}, schema=schema), out)
    assert [batch.num_rows for batch in out.batches[None]][:1] == [4_000], "36 MB of text"


def repr_of_key(row: tuple[object, ...]) -> str:
    return repr(row[0])


@pytest.mark.parametrize(
    ("seed", "mode"), each_once_with_seeds(300, ["aligned", "unaligned-persisted", "aligned-timeout"])
)
def test_no_row_is_lost_or_counted_twice_however_long_rows_are_kept(mode: str, seed: int) -> None:
    """With crashes at every place, behind a shuffle, so that rows of two colours meet where rows are kept."""
    world = Ledger()
    with flow.Pipeline("kept") as p:
        table = pa.table({"k": [n % 5 for n in range(120)], "x": range(120)})
        source = p.source(op.from_arrow(table, batch_rows=4, splits=3), name="rows", parallelism=3)
        counted = source.rebalance().filter(col("x") >= 0).key_by("k")
        counted.agg(n=op.count(), s=col("x").sum(), emit="final").sink(ledger_sink(world), name="out")
    faults = Faults(crashes=2, crash_after=[0, 1], skew=0.4, joins=1.0)
    simulate(p, flow.MemoryStore(), seed, faults, mode)
    expected = {(key, 24, sum(range(key, 120, 5))) for key in range(5)}
    assert sorted(world.rows().elements()) == sorted(expected)
