"""What triggers leave settled, through crashes on seeded schedules in every mode, and against DuckDB."""

from __future__ import annotations

from collections import Counter
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
from dataflow.testing import delivered_again
from tests.agreement.test_kinds_of_windows import EVENTS, in_order
from tests.seeds import seeds, some_by_default

EXACT = [mode.value for mode in Mode if mode is not Mode.UNALIGNED]
SIGNED = ("signed", "hops", "late", "all")
FEW = EVENTS.slice(0, 60)


def panes() -> flow.Pipeline:
    """Windows by triggers, in every way to show them, and windows without times."""
    with flow.Pipeline("panes") as p:
        rows = p.source(op.from_arrow(FEW, batch_rows=5, splits=2), name="rows").with_watermark("at")
        options: dict[str, Any] = {"early": op.after_rows(2), "late": op.after_time("1ms"), "lateness": "60s"}
        values = {"n": op.count(), "total": col("x").sum(), "kinds": col("x").count_distinct()}
        keyed = rows.key_by("k")
        shown = {
            "updates": keyed.window(op.tumbling("10s"), **options).agg(values, name="updates"),
            "new": keyed.window(op.tumbling("10s"), **options, panes="discarding").agg(values, name="new"),
            "signed": keyed.window(op.tumbling("10s"), **options).agg(values, emit="changes", name="signed"),
            "hops": keyed.window(op.hopping("12s", every="5s"), **options).agg(values, emit="changes", name="hops"),
            "late": keyed.window(op.hopping("12s", every="5s"), lateness="60s").agg(
                values, emit="changes", name="late"
            ),
            "all": keyed.window(op.global_window(), early=op.after_time("1ms")).agg(values, emit="changes", name="all"),
            "fives": keyed.window(op.count_window(5, every=2)).agg(n=op.count(), name="fives"),
        }
        for name, stream in shown.items():
            stream.sink(op.collect(net=stream.changes == "signed"), name=f"{name} out")
    return p


def settled(result: flow.RunResult) -> dict[str, Any]:
    """What does not depend on the schedule: the net, the last panes, the sums of new ones."""
    tables = {name: in_order(result.table(f"{name} out")) for name in SIGNED}
    last = {tuple(row[:3]): row[:3] + row[5:] for row in rows_of(result.table("updates out"))}
    sums: Counter[Any] = Counter()
    for *group, _, _, n, _, _ in rows_of(result.table("new out")):
        sums[tuple(group)] += n
    counts = Counter(map(tuple, rows_of(result.table("fives out"))))
    return {**tables, "updates": sorted(last.values(), key=repr), "new": sums, "fives": counts}


def rows_of(table: pa.Table) -> list[list[Any]]:
    return [list(row) for row in zip(*[column.to_pylist() for column in table.columns], strict=True)]


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, Any]:
    return settled(panes().run(parallelism=1, timeout="60s"))


def test_all_ways_to_show_windows_agree(undisturbed: dict[str, Any]) -> None:
    assert undisturbed["updates"] == undisturbed["signed"]
    assert undisturbed["hops"] == undisturbed["late"]
    assert undisturbed["new"] == {tuple(row[:3]): row[3] for row in undisturbed["signed"]}


def test_the_net_is_the_answer_of_duckdb(undisturbed: dict[str, Any]) -> None:
    bucket = 'time_bucket(interval 10 seconds, "at")'
    database = duckdb.connect().register("events", FEW)
    answer = database.sql(
        f"select k, {bucket} as a, {bucket} + interval 10 seconds as b, count(*), sum(x)::bigint, count(distinct x) "
        "from events group by all"
    )
    assert undisturbed["signed"] == in_order(answer.to_arrow_table())


@pytest.mark.parametrize(("seed", "mode"), some_by_default([(0, "aligned")], range(30), EXACT))
def test_crashes_change_nothing_that_is_settled(seed: int, mode: str, undisturbed: dict[str, Any]) -> None:
    assert settled(crashing(seed, mode).wait()) == undisturbed


@pytest.mark.parametrize("seed", seeds(1, 30))
def test_unaligned_checkpoints_add_the_duplicates_that_they_report(seed: int) -> None:
    job = crashing(seed, "unaligned")
    result = job.wait()
    for name in ("signed", "all"):
        again = delivered_again(job.attempts, name).total()
        assert sum(result.table(f"{name} out")["n"].to_pylist()) == FEW.num_rows + again


def crashing(seed: int, mode: str) -> Any:
    """Start the job on a schedule with crashes."""
    faults = Faults(crashes=3, crash_after=(0, 1, 2), skew=0.2, stall=0.05, slices=0.2)
    settings = flow.Checkpointing(flow.MemoryStore(), every="2ms", mode=mode, duplicates="rows")
    return flow.SimulatedRunner(seed, faults, max_turns=400_000).start(panes(), parallelism=2, checkpoint=settings)


def test_explain_says_that_clock_triggers_go_by_micro_batch() -> None:
    assert "op.after_time goes by micro-batch" in str(panes().explain(runner="spark"))


@pytest.mark.soak
@pytest.mark.parametrize("lanes", [1, 2])
def test_spark_settles_the_same(spark: Any, lanes: int, undisturbed: dict[str, Any]) -> None:
    runner = SparkRunner(spark, rows_per_trigger=20 * lanes)
    assert settled(panes().run(runner, parallelism=lanes, max_key_groups=2)) == undisturbed
