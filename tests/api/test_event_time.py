"""Event time in whole pipelines: the user's words, agreement with DuckDB, crashes, and chained windows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import ConfigurationError, GraphError, SchemaMismatch
from dataflow.planning.physical_plan import make_plan
from dataflow.runners.binding import LIBRARY
from dataflow.runners.faults import Faults
from tests.seeds import seeds

ROWS = 6_000


def clicks(seed: int = 1, rows: int = ROWS, unit: str = "ms") -> pa.Table:
    """Rows around the epoch, out of order by up to 3 s, some without a user or a value."""
    rng = np.random.default_rng(seed)
    per_second = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[unit]
    seconds = np.arange(rows) / 100 - rng.random(rows) * 3 - rows / 200
    user = pa.array(rng.integers(0, 40, rows), mask=rng.random(rows) < 0.1)
    value = pa.array(rng.integers(-9, 9, rows), mask=rng.random(rows) < 0.1)
    times = pa.array(np.floor(seconds * per_second).astype(np.int64), pa.timestamp(unit))
    return pa.table({"user": user, "value": value, "ts": times})


def windowed(source: flow.Source, *, delay: str = "3s", **options: Any) -> tuple[flow.Pipeline, flow.Stream]:
    p = flow.Pipeline("clicks")
    width = 1 if len(source.splits()) == 1 else None
    timed = p.source(source, name="in", parallelism=width).with_watermark("ts", delay=delay)
    stream = timed.key_by("user").window(op.tumbling("5s"), **options)
    return p, stream.agg(op.count().alias("n"), col("value").sum().alias("total"), name="counts")


def expected(table: pa.Table) -> list[tuple[Any, ...]]:
    assert isinstance(table, pa.Table)
    query = """select "user", time_bucket(interval '5s', ts) ws, time_bucket(interval '5s', ts) + interval '5s' we,
               count(*) n, sum("value")::bigint total from table_ group by all"""
    with duckdb.connect() as connection:
        return _sorted(connection.register("table_", table).sql(query).to_arrow_table())


def _sorted(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


@pytest.mark.usefixtures("folded")
@pytest.mark.parametrize("parallelism", [1, 2, 4])
@pytest.mark.parametrize("batch_rows", [1, 97, 6_000])
def test_windows_equal_duckdb(parallelism: int, batch_rows: int) -> None:
    rows = clicks(rows=600 if batch_rows == 1 else ROWS)
    _, counts = windowed(op.from_arrow(rows, batch_rows=batch_rows, splits=4))
    assert _sorted(counts.collect(parallelism=parallelism)) == expected(rows)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_windows_over_every_unit_equal_duckdb(unit: str) -> None:
    rows = clicks(unit=unit)
    _, counts = windowed(op.from_arrow(rows, splits=2))
    assert _sorted(counts.collect(parallelism=2)) == _sorted_as(unit, expected(rows))


def _sorted_as(unit: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """pyarrow gives nanoseconds as pandas' timestamps."""
    if unit != "ns":
        return rows
    import pandas as pd

    as_read = [tuple(pd.Timestamp(v) if hasattr(v, "year") else v for v in row) for row in rows]
    return sorted(as_read, key=repr)


@pytest.mark.parametrize("first", seeds(1, 3))
@pytest.mark.parametrize("mode", ["aligned", "unaligned-persisted", "aligned-timeout"])
def test_windows_survive_crashes_with_every_exactly_once_mode(mode: str, first: int) -> None:
    rows = clicks(rows=800)
    restored = folded = 0
    for seed in range(2 * first, 2 * first + 2):
        p, counts = windowed(op.from_arrow(rows, batch_rows=20, splits=3))
        counts.sink(op.collect(), name="out")
        checkpoint = flow.Checkpointing(flow.MemoryStore(), every="1ms", mode=mode)
        faults = Faults(crashes=2, joins=1.0)
        result = p.run(flow.SimulatedRunner(seed, faults), parallelism=2, checkpoint=checkpoint)
        restored += result.restore_report is not None
        folded += batches_folded(result)
        assert _sorted(result.table("out")) == expected(rows), f"seed {seed}"
        assert result.operator("counts").late == 0
    assert restored > 0
    assert folded > 0


def batches_folded(result: flow.RunResult) -> int:
    return sum(choice.values["folded"] for choice in result.tuning.of("folding"))


def test_on_time_and_late_rows_are_all_rows() -> None:
    rows = clicks()
    p, counts = windowed(op.from_arrow(rows, batch_rows=100, splits=1), delay="0s")
    counts.sink(op.collect(), name="out")
    counts.side("late").sink(op.collect(), name="late")
    result = p.run(parallelism=2)
    late = result.table("late")
    assert 0 < late.num_rows == result.operator("counts").late
    assert late.schema.equals(rows.schema)
    assert sum(result.table("out")["n"].to_pylist()) + late.num_rows == rows.num_rows


def test_late_rows_have_columns_that_no_window_reads() -> None:
    rows = clicks().append_column("row", pa.array(range(ROWS)))
    _, counts = windowed(op.from_arrow(rows, batch_rows=100, splits=1), delay="0s")
    late = counts.side("late").collect()
    assert late.num_rows > 0
    assert late.equals(rows.take(late["row"]))


@pytest.mark.usefixtures("folded")
@pytest.mark.filterwarnings("ignore::dataflow.errors.LateRowsWarning")
def test_late_rows_are_counted_alike_where_they_are_folded_first() -> None:
    rows = clicks()
    late = []
    for folded in (True, False):
        p, counts = windowed(op.from_arrow(rows, batch_rows=100, splits=1), delay="0s")
        counts.sink(op.collect(), name="out")
        result = p.run(flow.SimulatedRunner(3) if folded else flow.LocalRunner(combine=False), parallelism=2)
        assert batches_folded(result) == (60 if folded else 0)
        counted = result.operator("counts")
        late.append((counted.late, counted.lateness))
        assert sum(result.table("out")["n"].to_pylist()) + counted.late == rows.num_rows == counted.lateness.checked
    assert late[0] == late[1]
    assert late[0][0] == late[0][1].rows > 0


def test_windows_of_windows_add_up() -> None:
    rows = clicks()
    _, counts = windowed(op.from_arrow(rows, splits=2))
    minutes = counts.key_by("user").window(op.tumbling("1min")).agg(col("n").sum().alias("n"), name="minutes")
    assert (minutes.time, str(minutes.schema.field("window_start").type)) == ("window_end", "timestamp[ms]")
    found = minutes.collect(parallelism=2)
    assert sum(found["n"].to_pylist()) == rows.num_rows
    assert len(set(zip(found["user"].to_pylist(), found["window_start"].to_pylist(), strict=True))) == found.num_rows


def test_event_time_follows_its_column_through_transforms() -> None:
    source = flow.Pipeline().source(op.from_arrow(clicks())).with_watermark("ts")
    assert source.filter(col("value") > 0).time == "ts"
    assert source.select("user", col("ts").alias("when")).time == "when"
    assert source.with_columns(ts=col("value")).time is None
    assert source.select("user").time is None
    assert source.map_batches(lambda batch: batch).time == "ts"
    assert source.union(source.filter(col("value") > 0)).time == "ts"


def test_columns_that_only_time_needs_are_read() -> None:
    _, counts = windowed(op.from_arrow(clicks().append_column("wide", pa.array(["x"] * ROWS)), splits=1))
    assert sum(counts.collect(parallelism=2)["n"].to_pylist()) == ROWS


def _behind(name: str) -> Callable[[flow.Stream], object]:
    return {
        "key_by": lambda s: s.key_by("user").with_watermark("ts"),
        "rebalance": lambda s: s.rebalance().with_watermark("ts"),
        "union": lambda s: s.union(s.filter("flag")).with_watermark("ts"),
    }[name]


@pytest.mark.parametrize("mixed", ["key_by", "rebalance", "union"])
def test_watermarks_are_refused_where_splits_are_mixed_already(mixed: str) -> None:
    table = clicks().append_column("flag", pa.array([True] * ROWS))
    with pytest.raises(GraphError, match="call it earlier"):
        _behind(mixed)(flow.Pipeline().source(op.from_arrow(table)))


def test_watermarks_are_refused_away_from_the_source_by_parallelism() -> None:
    p = flow.Pipeline()
    p.source(op.from_arrow(clicks())).filter(col("value") > 0, parallelism=2).with_watermark("ts").sink(op.collect())
    with pytest.raises(ConfigurationError, match="same parallelism"):
        p.run(parallelism=1)


def test_event_time_is_a_timestamp() -> None:
    stream = flow.Pipeline().source(op.from_arrow(clicks()))
    with pytest.raises(SchemaMismatch, match="event time must be a timestamp, but 'value' is int64; compute one first"):
        stream.with_watermark("value")
    with pytest.raises(SchemaMismatch, match=r"with_columns\(ts=flow\.from_epoch\('value', \"s\"\)\)"):
        stream.with_watermark("value")
    timed = stream.with_columns(at=flow.from_epoch("value", "ms")).with_watermark("at")
    assert timed.time == "at"
    with pytest.raises(GraphError, match="the stream has no event time"):
        stream.key_by("user").window(op.tumbling("5s"))
    with pytest.raises(GraphError, match="has no side output 'early'; it has \\['late'\\]"):
        windowed(op.from_arrow(clicks()))[1].side("early")
    with pytest.raises(ConfigurationError, match="above 0 and at most 100,000 days"):
        op.tumbling("0s")


def test_rows_are_folded_before_the_shuffle_unless_that_would_hide_them() -> None:
    p, counts = windowed(op.from_arrow(clicks(), splits=2))
    counts.sink(op.collect())
    names = [node.name for node in make_plan(p.graph, parallelism=2, combine=LIBRARY.mergeable).graph]
    assert names == ["in", "with_watermark", "counts/combine", "counts", "sink"]
    assert [node.name for node in make_plan(p.graph, parallelism=2).graph] == ["in", "with_watermark", "counts", "sink"]
    counts.side("late").sink(op.collect())
    assert "counts/combine" not in [n.name for n in make_plan(p.graph, parallelism=2, combine=LIBRARY.mergeable).graph]


def test_a_checkpoint_of_folded_rows_is_restored_where_rows_are_not_folded(tmp_path: Path) -> None:
    rows = clicks()

    def run(mode: str, **options: Any) -> flow.RunResult:
        _, counts = windowed(op.paced(op.from_arrow(rows, batch_rows=50, splits=2), 1e9))
        p = counts._pipeline
        counts.sink(op.write_parquet(tmp_path / "out"), name="out")
        return p.run(parallelism=2, checkpoint=flow.Checkpointing(tmp_path / "ckpt", every="5ms", mode=mode), **options)

    run("unaligned-persisted")
    assert run("unaligned").restore_report is not None
    found = op.read_committed(tmp_path / "out")
    assert _sorted(found) == expected(rows)


def test_first_and_last_go_by_event_time_unless_told_otherwise() -> None:
    rows = pa.table({"k": [1, 1, 1], "v": [10, 20, 30], "o": [2, 1, 3], "ts": pa.array([5, 9, 1], pa.timestamp("s"))})
    timed = flow.Pipeline().source(op.from_arrow(rows)).with_watermark("ts").key_by("k")
    found = timed.agg(col("v").first().alias("f"), col("v").last().alias("l"), col("v").first("o").alias("o"))
    assert found.collect().to_pylist() == [{"k": 1, "f": 30, "l": 20, "o": 20}]


def test_one_subtask_has_no_use_for_folding_but_to_tell_windows_apart() -> None:
    p = flow.Pipeline()
    totals = p.source(op.from_arrow(clicks()), name="in").key_by("user").agg(op.count().alias("n"), name="totals")
    totals.sink(op.collect(), name="out")
    folded = {w: [n.name for n in make_plan(p.graph, parallelism=w, combine=LIBRARY.mergeable).graph] for w in (1, 2)}
    assert folded == {1: ["in", "totals", "out"], 2: ["in", "totals/combine", "totals", "out"]}
    windows = windowed(op.from_arrow(clicks()))[0]
    assert "counts/combine" in [
        n.name for n in make_plan(windows.graph, parallelism=1, combine=LIBRARY.mergeable).graph
    ]


@pytest.mark.parametrize("batch_rows", [7, 1_000])
@pytest.mark.parametrize(("size", "offset"), [("20s", "0s"), ("15s", "0s"), ("10s", "5s"), ("5s", "0s"), ("3s", "1s")])
def test_windows_behind_windows_of_any_size_lose_nothing(size: str, offset: str, batch_rows: int) -> None:
    times = pa.array([second * 1_000 for second in range(600)], pa.timestamp("ms"))
    rows = pa.table({"k": [second % 3 for second in range(600)], "ts": times})
    p = flow.Pipeline()
    first = p.source(op.from_arrow(rows, batch_rows=batch_rows), name="in").with_watermark("ts").key_by("k")
    tens = first.window(op.tumbling("10s")).agg(op.count().alias("n"), name="tens")
    again = tens.key_by("k").window(op.tumbling(size, offset=offset)).agg(col("n").sum().alias("n"), name="again")
    again.sink(op.collect(), name="out")
    result = p.run(parallelism=2)
    assert (sum(result.table("out")["n"].to_pylist()), result.late) == (600, 0)


FAR = [("s", 9_223_372_036_854), ("s", 2**63 - 1), ("ms", 10**16), ("us", 2**63 - 1), ("us", -(2**63))]


@pytest.mark.parametrize(("unit", "time"), FAR)
def test_a_time_without_a_window_is_an_error_and_not_a_lost_row(unit: str, time: int) -> None:
    rows = pa.table({"k": [1, 1], "ts": pa.array([0, time], pa.timestamp(unit))})
    timed = flow.Pipeline().source(op.from_arrow(rows), name="in").with_watermark("ts").key_by("k")
    with pytest.raises(OverflowError, match="are out of range for window edges"):
        timed.window(op.tumbling("1h")).agg(op.count().alias("n"), name="n").collect()


def test_times_far_apart_do_not_share_a_window() -> None:
    times = [-152_000_000 * 10**9, 9_180_000_000 * 10**9, -152_000_000 * 10**9 + 300 * 10**9]
    rows = pa.table({"k": [1, 1, 1], "ts": pa.array(times, pa.timestamp("ns"))})
    timed = flow.Pipeline().source(op.from_arrow(rows), name="in").with_watermark("ts").key_by("k")
    found = timed.window(op.tumbling("1min")).agg(op.count().alias("n"), name="n").collect()
    assert found["n"].to_pylist() == [1, 1, 1]


def _lead(seed: int, **options: Any) -> int:
    """By how many seconds one of two tasks was ahead of the other at most, while both were read."""
    seconds: dict[int, int] = {}
    leads: list[int] = []

    def watched(batch: pa.RecordBatch) -> pa.RecordBatch:
        last = batch["ts"][-1].value
        seconds[last % 2] = last
        if len(seconds) == 2 and max(seconds.values()) < 190:
            leads.append(max(seconds.values()) - min(seconds.values()))
        return batch

    seconds_of = [*range(0, 200, 2), *range(1, 200, 2)]
    p = flow.Pipeline("lead")
    source = op.from_arrow(pa.table({"ts": pa.array(seconds_of, pa.timestamp("s"))}), splits=2, batch_rows=5)
    timed = p.source(source, name="in", parallelism=2).with_watermark("ts", **options)
    timed.map_batches(watched, schema=timed.schema).key_by("ts").window(op.tumbling("5s")).agg(n=op.count()).sink(
        op.collect(), name="out"
    )
    result = p.run(flow.SimulatedRunner(seed=seed), parallelism=2)
    assert result.table("out").num_rows == 200
    return max(leads)


@pytest.mark.parametrize("schedules", [4, pytest.param(12, marks=pytest.mark.soak)])
def test_no_task_of_a_source_runs_further_ahead_of_another_than_it_may(schedules: int) -> None:
    free = max(_lead(seed) for seed in range(schedules))
    bound = max(_lead(seed, max_drift="20s") for seed in range(schedules))
    assert bound <= 20 + 2 * 10 < free, "a batch holds 10 s: one may be under way on each side"
