"""Sliding windows against DuckDB's window functions, and through crashes on seeded schedules."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.checkpointing import Mode
from dataflow.runners.faults import Faults
from dataflow.testing import delivered_again
from tests.seeds import each_once, seeds, some_by_default

EXACT = [mode.value for mode in Mode if mode is not Mode.UNALIGNED]
AGGREGATES = {
    "n": (op.count(), "count(*) over w"),
    "total": (col("x").sum(), "(sum(x) over w)::bigint"),
    "mean": (col("f").mean(), "avg(f) over w"),
    "spread": (col("f").variance(), "var_samp(f) over w"),
    "least": (col("x").min(), "min(x) over w"),
    "most": (col("f").max(), "max(f) over w"),
    "large": (col("x").count(where=col("x") > 0), "count(*) filter (x > 0) over w"),
    "first": (col("s").first("i"), "arg_min_null(s, i) over w"),
    "last": (col("x").last("i"), "arg_max_null(x, i) over w"),
    "values": (col("x").count_distinct(), "count(distinct x) over w"),
    "texts": (col("s").count_distinct(), "count(distinct s) over w"),
    "least text": (col("s").min(), "min(s) over w"),
    "greatest": (col("d").max(), "max(d) over w"),
}


def events(rows: int = 1500, seed: int = 5) -> pa.Table:
    """Rows of seven keys, ties among them, out of order by up to 2 s, before and after 1970, with a gap of an hour."""
    draw = np.random.default_rng(seed)
    at = np.arange(rows) * 60_000 // 100_000 * 100_000 - 30_000_000 - draw.integers(0, 20, rows) * 100_000
    at[2 * rows // 3 :] += 3_600_000_000
    x = pa.array(draw.integers(-20, 20, rows), mask=draw.random(rows) < 0.1)
    texts = pa.array([f"t{number}" for number in draw.integers(0, 50, rows)], mask=draw.random(rows) < 0.1)
    floats = draw.normal(size=rows)
    decimals = pa.array(floats.round(2)).cast(pa.decimal128(9, 3))
    columns = {"k": draw.integers(0, 7, rows), "i": np.arange(rows), "x": x, "f": floats, "d": decimals, "s": texts}
    return pa.table({**columns, "at": pa.array(at, pa.timestamp("us"))})


EVENTS = events()
FEW = EVENTS.slice(0, 240)


def slid(period: str, keys: tuple[str, ...], *, batch_rows: int = 50) -> flow.Pipeline:
    with flow.Pipeline("sliding") as p:
        source = op.from_arrow(EVENTS, batch_rows=batch_rows, splits=3)
        rows = p.source(source, name="rows").with_watermark("at", delay="2h")
        windows = rows.key_by(*keys).window(op.sliding(period)) if keys else rows.window(op.sliding(period))
        aggregates = {name: ours for name, (ours, _) in AGGREGATES.items()}
        windows.agg(aggregates, name="windows").sink(op.collect(), name="out")
    return p


def expected(period: int, keys: tuple[str, ...], table: pa.Table = EVENTS) -> pa.Table:
    """DuckDB's rows for windows of ``period`` microseconds."""
    columns = ", ".join(f'{sql} as "{name}"' for name, (_, sql) in AGGREGATES.items())
    by = f"partition by {', '.join(keys)}" if keys else ""
    over = f"""{by} order by "at" range between interval {period - 1} microseconds preceding and current row"""
    database = duckdb.connect().register("events", table)
    return database.sql(f"select *, {columns} from events window w as ({over})").to_arrow_table()


def in_order(table: pa.Table) -> list[Any]:
    """The rows by number, with floats to nine digits."""
    rows = table.sort_by("i").to_pylist()
    return [{name: round(v, 9) if isinstance(v, float) else v for name, v in row.items()} for row in rows]


def counted(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*table.select(["i", "n", "values"]).to_pydict().values(), strict=True))


@pytest.mark.parametrize(("period", "keys"), each_once([1, 3_000_000, 700_000_000], [("k",), (), ("k", "x")]))
def test_sliding_windows_agree_with_duckdb(period: int, keys: tuple[str, ...]) -> None:
    result = slid(f"{period}us", keys).run(parallelism=2, timeout="60s").table("out")
    assert in_order(result) == in_order(expected(period, keys))


def test_results_are_in_the_order_of_time() -> None:
    result = slid("3s", ("k",)).run(parallelism=1, timeout="60s").table("out")
    times = result["at"].to_pylist()
    assert times == sorted(times)


def test_nanoseconds_are_told_apart() -> None:
    table = pa.table({"at": pa.array([1_000, 1_001, 1_999, 2_000, 2_001], pa.timestamp("ns"))})
    rows = flow.Pipeline().source(op.from_arrow(table), name="rows").with_watermark("at")
    assert rows.window(op.sliding("1us")).agg(n=op.count()).collect()["n"].to_pylist() == [1, 2, 3, 3, 3]


def jobs(period: str = "3s") -> flow.Pipeline:
    """Windows without late rows, and windows that late rows change, with what the changes come to downstream."""
    with flow.Pipeline("jobs") as p:
        rows = p.source(op.from_arrow(FEW, batch_rows=5, splits=2), name="rows")
        kept = {"n": op.count(), "total": col("f").sum(), "text": col("s").max(), "values": col("x").count_distinct()}
        patient = rows.with_watermark("at", delay="1h", name="patient").key_by("k").window(op.sliding(period))
        patient.agg(kept, name="once").sink(op.collect(), name="once out")
        hasty = rows.with_watermark("at", name="hasty").key_by("k").window(op.sliding(period), lateness="1h")
        changes = hasty.agg(kept, emit="changes", name="changes")
        changes.sink(op.collect(net=True), name="changes out")
        changes.key_by("n").agg(rows=op.count(), name="counts").sink(op.collect(net=True), name="counts out")
    return p


def tables(result: flow.RunResult) -> list[Any]:
    assert result.late == 0
    once, changes = (in_order(result.table(name)) for name in ("once out", "changes out"))
    assert once == changes
    return [once, sorted(result.table("counts out").to_pylist(), key=repr)]


@pytest.fixture(scope="module")
def undisturbed() -> list[Any]:
    return tables(jobs().run(parallelism=1, timeout="60s"))


@pytest.mark.parametrize(("seed", "mode"), some_by_default([(1, "unaligned-persisted")], range(40), EXACT))
def test_crashes_change_nothing(seed: int, mode: str, undisturbed: list[Any]) -> None:
    faults = Faults(crashes=3, crash_after=(0, 1, 2), skew=0.2, stall=0.05, slices=0.2)
    runner = flow.SimulatedRunner(seed, faults, max_turns=200_000)
    settings = flow.Checkpointing(flow.MemoryStore(), every="2ms", mode=mode)
    result = runner.start(jobs(), parallelism=2, checkpoint=settings).wait()
    assert tables(result) == undisturbed


@pytest.mark.parametrize("seed", seeds(1, 40))
def test_in_mode_unaligned_the_reported_duplicates_are_part_of_the_answer(seed: int) -> None:
    runner = flow.SimulatedRunner(seed, Faults(crashes=2, skew=0.3), max_turns=200_000)
    settings = flow.Checkpointing(flow.MemoryStore(), every="300us", mode="unaligned", duplicates="rows")
    job = runner.start(jobs(), parallelism=2, checkpoint=settings)
    found = counted(job.wait().table("changes out"))
    again = delivered_again(job.attempts, "changes")
    table = pa.concat_tables([FEW, *[FEW.filter(pc.equal(FEW["i"], row[1])) for row in again.elements()]])
    assert found == counted(expected(3_000_000, ("k",), table))


@pytest.mark.filterwarnings("ignore::dataflow.errors.LateRowsWarning")
def test_on_time_and_late_rows_partition_the_input() -> None:
    with flow.Pipeline("late") as p:
        rows = p.source(op.from_arrow(EVENTS, batch_rows=20), name="rows").with_watermark("at")
        windows = rows.key_by("k").window(op.sliding("3s")).agg(n=op.count(), name="windows")
        windows.sink(op.collect(), name="out")
        windows.side("late").sink(op.collect(), name="late")
    result = p.run(timeout="60s")
    late = result.table("late")
    assert late.num_rows == result.operator("windows").late > 0
    assert late.schema.names == EVENTS.schema.names
    assert sorted([*result.table("out")["i"].to_pylist(), *late["i"].to_pylist()]) == list(range(EVENTS.num_rows))


@pytest.mark.filterwarnings("ignore::dataflow.errors.LateRowsWarning")
def test_results_are_never_late_in_a_window_behind() -> None:
    with flow.Pipeline("behind") as p:
        rows = p.source(op.from_arrow(EVENTS, batch_rows=12), name="rows").with_watermark("at")
        slid = rows.key_by("k").window(op.sliding("3s"), lateness="1s").agg(n=op.count(), emit="changes", name="slid")
        behind = slid.as_rows().key_by("k").window(op.tumbling("1s"))
        behind.agg(net=col("change").sum(), name="behind").sink(op.collect(), name="out")
    result = p.run(timeout="60s")
    assert result.operator("slid").late > 0
    assert result.operator("behind").late == 0
    assert sum(result.table("out")["net"].to_pylist()) == EVENTS.num_rows - result.operator("slid").late
