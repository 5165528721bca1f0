"""Windows that overlap, grow and are behind each other: against DuckDB, and through crashes on seeded schedules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.checkpointing import Mode
from dataflow.runners.faults import Faults
from tests.seeds import each_once, some_by_default

SECOND = 1_000_000
EXACT = [mode.value for mode in Mode if mode is not Mode.UNALIGNED]
AGGREGATES = {
    "n": (op.count(), "count(*)"),
    "total": (col("x").sum(), "sum(x)::bigint"),
    "least": (col("x").min(), "min(x)"),
    "most": (col("x").max(), "max(x)"),
    "mean": (col("x").mean(), "avg(x)"),
    "spread": (col("x").variance(), "var_samp(x)"),
    "first": (col("x").first("i"), "first(x order by i)"),
    "last": (col("x").last("i"), "last(x order by i)"),
}
TEXTS = {"values": (col("x").count_distinct(), "count(distinct x)"), "text": (col("s").max(), "max(s)")}
"""Aggregates whose records cannot be merged."""


def events(rows: int = 900, seed: int = 5) -> pa.Table:
    """Rows of seven keys, out of order by up to 20 s, before and after 1970, with a gap of an hour."""
    draw = np.random.default_rng(seed)
    at = np.arange(rows) * SECOND // 8 - 30 * SECOND - draw.integers(0, 20 * SECOND, rows)
    at[2 * rows // 3 :] += 3_600 * SECOND
    x = pa.array(draw.integers(-99, 99, rows), mask=draw.random(rows) < 0.1)
    keys = draw.integers(0, 7, rows)
    texts = [f"t{number}" for number in draw.integers(0, 50, rows)]
    return pa.table({"k": keys, "i": np.arange(rows), "x": x, "s": texts, "at": pa.array(at, pa.timestamp("us"))})


EVENTS = events()


def windowed(window: Any, aggregates: Mapping[str, Any], *, keys: tuple[str, ...] = ("k",)) -> flow.Pipeline:
    with flow.Pipeline("kinds") as p:
        rows = p.source(op.from_arrow(EVENTS, batch_rows=50, splits=3), name="rows").with_watermark("at", delay="2h")
        cut = rows.key_by(*keys).window(window) if keys else rows.window(window)
        cut.agg({name: ours for name, (ours, _) in aggregates.items()}, name="windows").sink(op.collect(), name="out")
    return p


def expected(windows: tuple[str, str, str], aggregates: Mapping[str, Any], keys: tuple[str, ...] = ("k",)) -> list[Any]:
    """DuckDB's rows; ``windows`` has the numbers of the windows of a row, their starts and ends, in SQL over t."""
    numbers, start, stop = windows
    names, columns = (", ".join(each) for each in (keys, [f"{sql} as {n}" for n, (_, sql) in aggregates.items()]))
    edges = f"make_timestamp({start}) as window_start, make_timestamp({stop}) as window_end"
    every = f'select *, unnest({numbers}) as i_ from (select *, epoch_us("at") as t from events)'
    database = duckdb.connect().register("events", EVENTS)
    return in_order(
        database.sql(
            f"select {names}{', ' * bool(keys)}{edges}, {columns} from ({every}) group by all"
        ).to_arrow_table()
    )


def hops(period: int, every: int, offset: int) -> tuple[str, str, str]:
    """Hopping windows; lengths in microseconds."""
    first, last = (f"floor((t - {back}) / {every})::bigint" for back in (offset + period, offset))
    start = f"({offset} + i_ * {every})"
    return f"range({first} + 1, {last} + 1)", start, f"{start} + {period}"


def steps(period: int, every: int, offset: int) -> tuple[str, str, str]:
    """Cumulating windows; lengths in microseconds."""
    start = f"({offset} + floor((t - {offset}) / {period})::bigint * {period})"
    return f"range((t - {start}) // {every}, {period // every})", start, f"{start} + (i_ + 1) * {every}"


def in_order(table: pa.Table) -> list[Any]:
    """The rows, with floats to nine digits."""
    rows = zip(*[table[name].to_pylist() for name in table.schema.names], strict=True)
    return sorted(([f"{v:.9g}" if isinstance(v, float) else v for v in row] for row in rows), key=repr)


HOPS = [(10, 2, 0), (10, 3, 1), (7, 7, 2), (60, 1, 0), (11, 4, 3)]


@pytest.mark.parametrize(("lengths", "parallelism"), each_once(HOPS, [1, 2]))
def test_hopping_windows_agree_with_duckdb(lengths: tuple[int, int, int], parallelism: int) -> None:
    period, every, offset = lengths
    window = op.hopping(f"{period}s", every=f"{every}s", offset=f"{offset}s")
    rows = expected(hops(*(n * SECOND for n in lengths)), AGGREGATES)
    result = windowed(window, AGGREGATES).run(parallelism=parallelism, timeout="60s")
    assert in_order(result.table("out")) == rows


@pytest.mark.parametrize("aggregates", [AGGREGATES, TEXTS], ids=["merged", "not merged"])
def test_cumulating_windows_agree_with_duckdb(aggregates: Mapping[str, Any]) -> None:
    result = windowed(op.cumulate("12s", every="3s", offset="5s"), aggregates).run(parallelism=2, timeout="60s")
    assert in_order(result.table("out")) == expected(steps(12 * SECOND, 3 * SECOND, 5 * SECOND), aggregates)


def test_aggregates_that_cannot_be_merged_agree_with_duckdb() -> None:
    result = windowed(op.hopping("10s", every="3s"), TEXTS).run(parallelism=2, timeout="60s")
    assert in_order(result.table("out")) == expected(hops(10 * SECOND, 3 * SECOND, 0), TEXTS)


def test_windows_over_all_rows_agree_with_duckdb() -> None:
    result = windowed(op.hopping("10s", every="4s"), AGGREGATES, keys=()).run(parallelism=3, timeout="60s")
    assert in_order(result.table("out")) == expected(hops(10 * SECOND, 4 * SECOND, 0), AGGREGATES, ())


def busiest(lateness: str = "30s") -> flow.Pipeline:
    """The largest count of each window, behind the counts by key, and the sum of all counts."""
    with flow.Pipeline("busiest") as p:
        rows = p.source(op.from_arrow(EVENTS.slice(0, 240), batch_rows=4, splits=2), name="rows").with_watermark("at")
        hopping = rows.key_by("k").window(op.hopping("10s", every="4s"), lateness=lateness)
        counts = hopping.agg(n=op.count(), first=col("i").first("i"), emit="final", name="counts")
        counts.window(op.same_window()).agg(most=col("n").max(), name="most").sink(op.collect(), name="most out")
        counts.agg(total=col("n").sum(), rows=op.count(), name="total").sink(op.collect(), name="total out")
        counts.sink(op.collect(), name="counts out")
    return p


def tables(result: flow.RunResult) -> list[Any]:
    assert (result.late, result.partly_late) == (0, 0)
    return [in_order(result.table(name)) for name in ("most out", "total out", "counts out")]


@pytest.fixture(scope="module")
def undisturbed() -> list[Any]:
    return tables(busiest().run(parallelism=1, timeout="60s"))


def test_the_largest_count_of_each_window_is_that_of_its_counts(undisturbed: list[Any]) -> None:
    most, total, counts = undisturbed
    by_window: dict[Any, int] = {}
    for _, start, stop, n, _ in counts:
        by_window[start, stop] = max(n, by_window.get((start, stop), 0))
    assert sorted(map(tuple, most)) == sorted((*w, n) for w, n in by_window.items())
    assert total == [[sum(row[3] for row in counts), len(counts)]]


@pytest.mark.parametrize(("seed", "mode"), some_by_default([(2, "aligned-timeout")], range(40), EXACT))
def test_crashes_change_nothing(seed: int, mode: str, undisturbed: list[Any]) -> None:
    faults = Faults(crashes=3, crash_after=(0, 1, 2), skew=0.2, stall=0.05, slices=0.2)
    runner = flow.SimulatedRunner(seed, faults, max_turns=200_000)
    settings = flow.Checkpointing(flow.MemoryStore(), every="2ms", mode=mode)
    result = runner.start(busiest(), parallelism=2, checkpoint=settings).wait()
    assert tables(result) == undisturbed


@pytest.mark.filterwarnings("ignore::dataflow.errors.LateRowsWarning")
def test_on_time_and_late_rows_partition_the_input() -> None:
    """Each row is in its last window, or late."""
    with flow.Pipeline("late") as p:
        rows = p.source(op.from_arrow(EVENTS, batch_rows=20), name="rows").with_watermark("at", delay="5s")
        counts = rows.key_by("k").window(op.hopping("10s", every="10s")).agg(n=op.count(), name="counts")
        hopping = rows.key_by("k").window(op.hopping("10s", every="2s")).agg(n=op.count(), name="hopping")
        counts.sink(op.collect(), name="tumbling out")
        hopping.sink(op.collect(), name="hopping out")
        hopping.side("late").sink(op.collect(), name="late")
    result = p.run(timeout="60s")
    late, partly = result.operator("hopping").late, result.operator("hopping").partly_late
    n = sum(result.table("tumbling out")["n"].to_pylist())
    assert n + result.operator("counts").late == EVENTS.num_rows
    assert result.table("late").num_rows == late > 0
    assert partly > 0
    whole = 5 * (EVENTS.num_rows - late - partly)
    assert whole + partly <= sum(result.table("hopping out")["n"].to_pylist()) <= whole + 4 * partly
