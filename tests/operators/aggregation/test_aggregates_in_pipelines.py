"""The aggregates in operators and in whole pipelines: emitted, restored, rescaled, and equal to DuckDB's."""

from __future__ import annotations

import math
from decimal import Decimal
from functools import cache
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.planning.aggregate_specs import Emit
from dataflow.runners.faults import Faults
from dataflow.state.hashing import key_group_range
from tests.operators.aggregation.test_aggregate import Harness, last_per_key
from tests.operators.operating import joined
from tests.seeds import each_once

TEXT = col("i").cast("string")


@pytest.mark.parametrize("emit", Emit)
def test_values_of_any_kind_come_out_in_both_ways_of_emission(emit: Emit) -> None:
    schema = pa.schema({"k": pa.string(), "v": pa.string(), "p": pa.float64()})
    aggregations = [col("v").arg_max("p").alias("top"), col("v").count_distinct(), col("p").variance(ddof=0)]
    harness = Harness(aggregations, schema=schema, emit=emit)
    first = harness.process(("a", "x", 1.0), ("b", "y", 5.0), ("a", "z", 3.0))
    harness = Harness(aggregations, schema=schema, emit=emit, restored=harness.stored())
    rows = first + harness.process(("a", "x", 2.0), ("c", None, None)) + harness.finish()
    expected = {"a": ["z", 2, pytest.approx(2 / 3)], "b": ["y", 1, 0.0], "c": [None, 0, None]}
    assert last_per_key(rows) == expected


def test_joined_snapshots_of_values_are_split_again_by_key_group() -> None:
    aggregations = [TEXT.last().alias("last"), TEXT.count_distinct().alias("texts"), TEXT.max().alias("max")]
    one, other = Harness(aggregations), Harness(aggregations)
    one.process(*((f"key {i}", i, 1.0) for i in [*range(50), *range(40)]))
    other.process(*((f"key {i}", i, 1.0) for i in range(50, 90)))
    parts = [one.stored(), other.stored()]
    both = joined(*parts)
    ranges = [key_group_range(subtask, 3, 128) for subtask in range(3)]
    subtasks = [Harness(aggregations, emit=Emit.FINAL, restored=both, groups=groups) for groups in ranges]
    found = [tuple(row.values()) for subtask in subtasks for row in subtask.finish()]
    assert sorted(found) == sorted((f"key {i}", str(i), 1, str(i)) for i in range(90))


@pytest.mark.parametrize("type_", [pa.int64(), pa.float64(), pa.decimal128(21, 2)], ids=str)
def test_an_emitted_row_keeps_its_values_when_its_key_changes(type_: pa.DataType) -> None:
    """One key changes in each batch, so each result is a column of one record."""
    rows = pa.table({"k": [1] * 4, "x": pa.array([1, 2, 3, 4]).cast(type_)})
    updates = flow.Pipeline().source(op.from_arrow(rows, batch_rows=1)).key_by("k")
    totals = updates.agg(total=col("x").sum(), emit="updates").collect(parallelism=1)["total"]
    assert totals.to_pylist() == [1, 3, 6, 10]


def test_the_net_of_a_sum_of_sums_is_the_last_row() -> None:
    rows = flow.Pipeline().source(op.from_arrow(pa.table({"k": [1, 2] * 3}), batch_rows=1))
    counts = rows.key_by("k").agg(n=op.count(), emit="changes")
    totals = counts.agg(total=col("n").sum(), emit="changes")
    assert totals.collect(net=True, parallelism=1).to_pylist() == [{"total": 6}]


def test_a_decimal_sum_that_does_not_fit_names_its_key() -> None:
    harness = Harness([col("v").sum()], schema=pa.schema({"k": pa.string(), "v": pa.decimal128(38, 0)}))
    with pytest.raises(OverflowError, match=r"'v_sum' of key \{'k': 'big'\} does not fit into decimal128\(38, 0\)"):
        harness.process(("big", 10**38 - 1), ("big", 1))


def generated(rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    floats = rng.normal(0, 1e3, rows)
    floats[rng.random(rows) < 0.02] = float("nan")
    cents = rng.integers(-(10**8), 10**8, rows)
    columns = {
        "k": pa.array(rng.choice(["a", "b", "c", "d", ""], rows), mask=rng.random(rows) < 0.1),
        "n": pa.array(rng.permutation(rows)),
        "i": pa.array(rng.integers(-100, 100, rows), mask=rng.random(rows) < 0.2),
        "f": pa.array(floats, mask=rng.random(rows) < 0.2),
        "s": pa.array([f"text {number}" * (number % 3) for number in rng.integers(0, 50, rows)]),
        "d": pa.array([Decimal(int(cent)) / 100 for cent in cents], pa.decimal128(12, 2)),
        "t": pa.array(rng.integers(-(10**9), 10**9, rows), pa.timestamp("s")),
        "b": pa.array(rng.random(rows) < 0.5, mask=rng.random(rows) < 0.5),
    }
    return pa.table(columns)


def widen(state: Any, value: Any) -> None:
    state[0] = min(state[0], value)
    state[1] = max(state[1], value)


@cache
def spread() -> Any:
    """Compiled where it is asked for first: collecting tests should not take seconds."""
    return op.aggregate_kernel(
        "spread", init=(math.inf, -math.inf), step=widen, finish=lambda state: state[1] - state[0]
    )


@cache
def in_sql() -> dict[str, tuple[Any, str]]:
    return {
        "rows": (op.count(), "count(*)"),
        "variance": (col("i").variance(), "var_samp(i)"),
        "deviation": (col("i").stddev(ddof=0), "stddev_pop(i)"),
        "first": (col("s").first("n"), "first(s order by n)"),
        "last": (col("t").last("n"), "last(t order by n)"),
        "at least": (col("s").arg_min("n"), "arg_min(s, n)"),
        "at greatest": (col("d").arg_max("n"), "arg_max(d, n)"),
        "texts": (col("s").count_distinct(), "count(distinct s)"),
        "numbers": (col("f").count_distinct(), "count(distinct f)"),
        "min text": (col("s").min(), "min(s)"),
        "max money": (col("d").max(), "max(d)"),
        "money": (col("d").sum(), "sum(d)"),
        "true": (col("b").sum(), "sum(b::int)::bigint"),
        "some money": (col("d").sum(where=col("i") > 0), "sum(d) filter (i > 0)"),
        "some spread": (spread()("i", where=col("b")), "(max(i) filter (b) - min(i) filter (b))::double"),
        "some first": (col("s").first("n", where=col("b")), "first(s order by n) filter (b)"),
        "median": (col("i").quantile(0.5), "quantile_cont(i, 0.5)"),
        "p90": (col("d").quantile(0.9, where=col("b")), "quantile_cont(d::double, 0.9) filter (b)"),
        "list": (col("s").to_list("n"), "list(s order by n)"),
        "spread": (spread()("i"), "(max(i) - min(i))::double"),
    }


@pytest.mark.parametrize(("emit", "parallelism"), each_once(["final", "updates"], [1, 2, 4]))
def test_pipelines_that_crash_agree_with_duckdb(emit: str, parallelism: int) -> None:
    table = generated(1_500, seed=parallelism)
    with flow.Pipeline("many") as p:
        rows = p.source(op.from_arrow(table, splits=3, batch_rows=100), name="rows").key_by("k")
        rows.agg(emit=emit, name="all", **{name: aggregation for name, (aggregation, _) in in_sql().items()}).sink(
            op.collect(), name="out"
        )
    crashing = flow.SimulatedRunner(seed=parallelism, faults=Faults(crashes=2))
    result = p.run(crashing, parallelism=parallelism, checkpoint=flow.Checkpointing(flow.MemoryStore(), every="1ms"))
    query = f"select k, {', '.join(sql for _, sql in in_sql().values())} from t group by k"
    expected = {row[0]: list(row[1:]) for row in duckdb.connect().register("t", table).sql(query).fetchall()}
    found = last_per_key(result.table("out").to_pylist())
    assert found == {key: [near(value) for value in values] for key, values in expected.items()}


def near(value: Any) -> Any:
    return pytest.approx(value, rel=1e-9) if isinstance(value, float) else value


def test_a_checkpoint_of_another_kernel_is_refused() -> None:
    other = op.aggregate_kernel("spread", init=(0.0,), step=keep, finish=lambda state: state[0])
    harness = Harness([spread()("i").alias("x")])
    harness.process(("a", 1, 1.0))
    with pytest.raises(flow.errors.CheckpointMismatch, match="spread:"):
        Harness([other("i").alias("x")], restored=harness.stored())


def keep(state: Any, value: Any) -> None:
    state[0] = value
