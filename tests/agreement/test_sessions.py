"""Sessions against DuckDB, through crashes in all modes and restores at each checkpoint of a small run, on Spark."""

from __future__ import annotations

import random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.checkpointing import Mode
from dataflow.runners.faults import Faults
from dataflow.runners.spark.runner import SparkRunner
from tests.seeds import each_once, in_soak, some_by_default

EXACT = [mode.value for mode in Mode if mode is not Mode.UNALIGNED]
EMITS = ["final", "changes", "panes"]
DISORDER = 6
"""Seconds by which rows are out of order, several times the gap."""


def clicks(rows: int = 150) -> pa.Table:
    draw = random.Random(8)
    seconds = [number // 3 - draw.randrange(DISORDER) - 20 for number in range(rows)]
    users = [f"u{draw.randrange(5)}" for _ in range(rows)]
    at = pa.array(seconds, pa.timestamp("s"))
    return pa.table({"user": users, "x": [draw.randrange(9) for _ in range(rows)], "at": at})


CLICKS = clicks()
QUERY = """
with steps as (
    select *, coalesce("at" - lag("at") over (partition by "user" order by "at") > interval 2 seconds, true)::int jumps
    from clicks),
numbered as (select *, sum(jumps) over (partition by "user" order by "at" range unbounded preceding) num from steps)
select "user", min("at"), max("at") + interval 2 seconds, count(*), sum(x)::bigint s, count(distinct x) d
from numbered group by "user", num
"""


def visits(emit: str, splits: int = 2) -> flow.Pipeline:
    """Sessions of clicks: with records, and with rows. With ``emit`` "panes" they come in panes that add up."""
    lateness = "0s" if emit == "once" else f"{DISORDER}s"
    with flow.Pipeline("visits") as p:
        rows = p.source(op.from_arrow(CLICKS, batch_rows=4, splits=splits), name="clicks")
        timed = rows.with_watermark("at", delay=f"{DISORDER}s" if emit == "once" else "0s")
        cut = timed.key_by("user").window(op.session("2s"), lateness=lateness)
        if emit == "panes":
            paned(timed.key_by("user"), lateness)
            return p
        words: dict[str, Any] = {"emit": "changes" if emit == "changes" else "final"}
        merged = cut.agg(n=op.count(), s=col("x").sum(), **words, name="merged")
        kept = cut.agg(n=op.count(), d=col("x").count_distinct(), **words, name="kept")
        merged.sink(op.collect(net=emit == "changes"), name="sums")
        kept.sink(op.collect(net=emit == "changes"), name="values")
    return p


def paned(rows: flow.KeyedStream, lateness: str) -> None:
    """Sessions by several triggers, in panes that add up."""
    triggers = [
        {"early": op.after_rows(2), "late": op.after_time("1ms")},
        {"early": op.after_time("1ms"), "late": op.at_times("2s")},
    ]
    cut = [rows.window(op.session("2s"), lateness=lateness, panes="discarding", **each) for each in triggers]
    cut[0].agg(n=op.count(), s=col("x").sum(), name="merged").sink(op.collect(), name="sums")
    cut[1].agg(n=op.count(), d=col("x").to_list(), name="kept").sink(op.collect(), name="values")


def expected(place: int) -> list[Any]:
    """Return user, start, end, count, and one column more."""
    clicks = CLICKS  # noqa: F841  # DuckDB reads it
    return sorted((*row[:4], row[place]) for row in duckdb.sql(QUERY).fetchall())


EXPECTED = {"sums": expected(4), "values": expected(5)}


def check(result: flow.RunResult) -> None:
    assert (result.late, result.split_sessions) == (0, 0)
    for sink, rows in EXPECTED.items():
        table = result.table(sink)
        shown = added_up(table, rows) if "pane" in table.column_names else table.to_pylist()
        assert sorted(tuple(row.values()) for row in shown) == rows


def added_up(panes: pa.Table, sessions: list[Any]) -> list[dict[str, Any]]:
    """Return the sums of the panes that lie within each session of a batch job."""
    sums: list[dict[str, Any]] = []
    for user, start, end, *_ in sessions:
        own = [
            list(row.values())
            for row in panes.to_pylist()
            if row["user"] == user and start <= row["window_start"] and row["window_end"] <= end
        ]
        assert max(row[4] for row in own) == len(own) - 1, "sessions that merge add up their panes"
        values = [row[6] for row in own if row[6] is not None]
        whole = len(set().union(*values)) if isinstance(values[0], list) else sum(values)
        sums.append({"user": user, "start": start, "end": end, "n": sum(row[5] for row in own), "value": whole})
    assert sum(row["n"] for row in sums) == sum(panes["n"].to_pylist())
    return sums


@pytest.mark.parametrize(("parallelism", "emit"), each_once([3, 1], ["once", "final", "changes", "panes"]))
def test_sessions_agree_with_duckdb(parallelism: int, emit: str) -> None:
    check(visits(emit).run(parallelism=parallelism, timeout="60s"))


@pytest.mark.parametrize(
    ("mode", "emit", "seed"),
    some_by_default([("aligned-timeout", "changes", 0), ("unaligned-persisted", "panes", 0)], EXACT, EMITS, range(30)),
)
def test_crashes_change_nothing(mode: str, emit: str, seed: int) -> None:
    faults = Faults(crashes=3, crash_after=(0, 1, 2), skew=0.2, stall=0.05, slices=0.2)
    settings = flow.Checkpointing(flow.MemoryStore(), every="2ms", mode=mode)
    runner = flow.SimulatedRunner(seed, faults, max_turns=200_000)
    check(runner.start(visits(emit), parallelism=2, checkpoint=settings).wait())


@pytest.mark.parametrize(("emit", "seed"), some_by_default([("changes", 0)], EMITS, range(15)))
def test_in_mode_unaligned_nothing_is_late_in_any_schedule(emit: str, seed: int) -> None:
    settings = flow.Checkpointing(flow.MemoryStore(), every="2ms", mode="unaligned")
    runner = flow.SimulatedRunner(seed, Faults(skew=0.2, stall=0.05, slices=0.2), max_turns=200_000)
    check(runner.start(visits(emit), parallelism=2, checkpoint=settings).wait())


@pytest.mark.parametrize("emit", ["changes", *in_soak("final", "panes")])
def test_sessions_are_restored_from_every_checkpoint(emit: str) -> None:
    store = flow.MemoryStore()
    settings = flow.Checkpointing(store, every="8ms", keep=100)
    whole = visits(emit).run(flow.SimulatedRunner(5), parallelism=2, checkpoint=settings)
    assert len(whole.checkpoints) > 3
    for record in reversed(whole.checkpoints):  # a restore deletes the newer ones
        keep = flow.Checkpointing(store, keep=100)
        check(visits(emit).run(flow.SimulatedRunner(6), parallelism=2, checkpoint=keep, restore=record.checkpoint))


@pytest.mark.soak
@pytest.mark.parametrize("emit", ["once", "final", "changes", "panes"])
@pytest.mark.parametrize("lanes", [1, 2])
def test_sessions_on_spark_agree_with_duckdb(spark: Any, lanes: int, emit: str) -> None:
    runner = SparkRunner(spark, rows_per_trigger=80 * lanes)
    check(visits(emit, splits=lanes).run(runner, parallelism=lanes, max_key_groups=2))
