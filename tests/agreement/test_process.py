"""Process functions against what the library computes itself, with crashes and restores, and on Spark."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.runners.faults import Faults
from dataflow.runners.spark.runner import SparkRunner
from tests.agreement.process_functions import (
    COUNTERS,
    COUNTS,
    SEEN,
    SUMS,
    US,
    WINDOWS,
    OnTheClock,
    Rules,
    WithColumns,
    WithList,
    WithMap,
    end_of,
)
from tests.seeds import each_once_with_seeds, seeds

EXACT = ["aligned", "aligned-timeout", "unaligned-persisted"]


def random_table(draw: random.Random, *, in_order: bool) -> pa.Table:
    count = draw.randrange(60)
    noise = 0 if in_order else 15
    times = [max(0, 3 * n + draw.randint(-noise, noise)) for n in range(count)]
    keys = [draw.choice([None, 0, 1, 2, 3, 4]) for _ in range(count)]
    numbers = [1 << n for n in range(count)]
    columns = [pa.array(keys, pa.int64()), pa.array(times, US), pa.array(numbers, pa.int64())]
    return pa.table(columns, ["k", "at", "x"])


def rows_of(result: flow.RunResult, sink: str) -> Counter[Any]:
    return Counter(tuple(row.values()) for row in result.table(sink).to_pylist())


def simulated(p: flow.Pipeline, draw: random.Random, seed: int) -> flow.RunResult:
    """Run in the simulator, with crashes and without, on one to three tasks."""
    faults = Faults(crashes=draw.randrange(3), crash_after=(0, 1, 2), skew=0.2, stall=0.05, slices=0.2)
    settings = flow.Checkpointing(flow.MemoryStore(), every="2ms", mode=draw.choice(EXACT))
    runner = flow.SimulatedRunner(seed, faults, max_turns=200_000)
    return runner.start(p, parallelism=draw.choice([1, 2, 3]), checkpoint=settings).wait()


def windows(function: Any, table: pa.Table, cut: int, delay: str) -> flow.Pipeline:
    """A pipeline that computes the sums of windows twice: with a function, and with the library."""
    with flow.Pipeline() as p:
        rows = p.source(op.from_arrow(table, batch_rows=cut), name="rows").with_watermark("at", delay=delay)
        rows.key_by("k").process(function, schema=SUMS, name="process").sink(op.collect(), name="found")
        sums = rows.key_by("k").window(op.tumbling("10us")).agg(col("x").sum().alias("total"), name="sums")
        sums.select("k", "window_end", "total").sink(op.collect(), name="expected")
    return p


@pytest.mark.parametrize(("seed", "function"), each_once_with_seeds(400, WINDOWS))
def test_sums_of_windows_agree(seed: int, function: Any) -> None:
    draw = random.Random(seed)
    table = random_table(draw, in_order=False)
    result = simulated(windows(function, table, draw.choice([1, 3, 100]), "40us"), draw, seed)
    assert rows_of(result, "found") == rows_of(result, "expected")
    assert sum(total for _, _, total in rows_of(result, "found").elements()) == (1 << table.num_rows) - 1


def totals_of(result: flow.RunResult, sink: str) -> Counter[Any]:
    """The sum of the totals of each key and window; a window may come out more than once."""
    totals: Counter[Any] = Counter()
    for row in result.table(sink).to_pylist():
        totals[row["k"], row["window_end"]] += row["total"]
    return totals


@pytest.mark.parametrize(("seed", "function"), each_once_with_seeds(400, WINDOWS))
def test_an_unaligned_restore_computes_with_the_rows_that_it_reports_again(seed: int, function: Any) -> None:
    draw = random.Random(seed)
    table = random_table(draw, in_order=False)
    with flow.Pipeline() as p:
        streams = [
            p.source(op.from_arrow(part, batch_rows=draw.choice([1, 3])), name=name).with_watermark("at", delay="40us")
            for name, part in (("even", table[::2]), ("odd", table[1::2]))
        ]
        rows = streams[0].union(streams[1]).key_by("k")
        rows.process(function, schema=SUMS, name="process").sink(op.collect(), name="found")
    faults = Faults(crashes=1, crash_after=(0, 1, 2), skew=0.5, stall=0.1, slices=0.2)
    settings = flow.Checkpointing(flow.MemoryStore(), every="1ms", mode="unaligned", duplicates="rows")
    runner = flow.SimulatedRunner(seed, faults, max_turns=200_000)
    result = runner.start(p, parallelism=draw.choice([1, 2, 3]), checkpoint=settings).wait()
    report = result.restore_report
    again = [part.table for part in (() if report is None else report.duplicates) if part.operator == "process"]
    expected: Counter[Any] = Counter()
    for row in (row for part in (table, *again) for row in part.to_pylist()):
        expected[row["k"], end_of(row["at"])] += row["x"]
    assert totals_of(result, "found") == expected


@pytest.mark.parametrize(("seed", "function"), each_once_with_seeds(400, COUNTERS))
def test_counts_with_a_time_to_live_agree(seed: int, function: Any) -> None:
    draw = random.Random(seed)
    with flow.Pipeline() as p:
        table = random_table(draw, in_order=True)
        rows = p.source(op.from_arrow(table, batch_rows=1), name="rows", parallelism=1).with_watermark("at")
        rows.key_by("k").process(function, schema=COUNTS, name="process").sink(op.collect(), name="found")
        counts = rows.key_by("k").agg(op.count().alias("n"), emit="updates", ttl="10us", name="counts")
        counts.as_rows().sink(op.collect(), name="expected")
    result = simulated(p, draw, seed)
    assert rows_of(result, "found") == rows_of(result, "expected")


def test_threads_agree_with_the_library() -> None:
    table = random_table(random.Random(1), in_order=False)
    for function in (WithMap, WithColumns):
        result = windows(function, table, 7, "40us").run(parallelism=2)
        assert rows_of(result, "found") == rows_of(result, "expected")


def with_rules(table: pa.Table, draw: random.Random) -> flow.Pipeline:
    with flow.Pipeline() as p:
        count = draw.randint(1, 20)
        names = [draw.choice("abc") for _ in range(count)]
        rules = pa.table({"name": names, "limit": range(count)})
        broadcast = p.source(op.from_arrow(rules, batch_rows=draw.choice([1, 4])), name="rules")
        keyed = p.source(op.from_arrow(table, batch_rows=draw.choice([1, 9])), name="rows").key_by("k")
        made = keyed.process(Rules, schema=SEEN, sides={"counts": None}, broadcast=broadcast, name="process")
        made.sink(op.collect(), name="seen")
        made.side("counts").sink(op.collect(), name="counts")
    return p


def copies_are_equal(result: flow.RunResult, table: pa.Table) -> bool:
    """Whether each state of the shared mapping was seen as often as there are subtasks, and each row counted once."""
    seen = rows_of(result, "seen")
    numbers = sorted(n for n, _ in seen)
    counts = Counter(map(repr, table["k"].to_pylist()))
    last = Counter({key: max(n for n, own in rows_of(result, "counts") if own == key) for key in counts})
    once = set(rows_of(result, "counts").values()) <= {1}
    return numbers == list(range(1, len(seen) + 1)) and len(set(seen.values())) == 1 and last == counts and once


@pytest.mark.parametrize("seed", seeds(4, 400))
def test_all_subtasks_have_equal_copies_of_a_shared_mapping(seed: int) -> None:
    draw = random.Random(seed)
    table = random_table(draw, in_order=False)
    assert copies_are_equal(simulated(with_rules(table, draw), draw, seed), table)


def test_spark_agrees(spark: Any) -> None:
    draw = random.Random(4)
    table = random_table(draw, in_order=False)
    p = with_rules(table, draw)
    with p:
        rows = p.source(op.from_arrow(table, batch_rows=9), name="timed").with_watermark("at", delay="40us")
        for function in (WithList, WithColumns):
            name = function.__name__
            rows.key_by("k").process(function, schema=SUMS, name=f"by {name}").sink(op.collect(), name=name)
        sums = rows.key_by("k").window(op.tumbling("10us")).agg(col("x").sum().alias("total"), name="sums")
        sums.select("k", "window_end", "total").sink(op.collect(), name="expected")
        rows.key_by("k").process(OnTheClock, schema=SEEN, name="by the clock").sink(op.collect(), name="clocked")
    result = p.run(SparkRunner(spark), parallelism=2, max_key_groups=2)
    assert rows_of(result, "WithList") == rows_of(result, "WithColumns") == rows_of(result, "expected")
    assert sum(rows_of(result, "expected").values()) > 10
    assert copies_are_equal(result, table)
    assert sum(n for n, _ in rows_of(result, "clocked").elements()) == table.num_rows
