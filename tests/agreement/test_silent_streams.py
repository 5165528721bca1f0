"""Time that moves without rows: splits that are closed, and the clock as event time."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.checkpointing import Mode
from dataflow.errors import GraphError, UnsupportedOnRunner
from dataflow.runners.faults import Faults
from dataflow.runners.spark.placement import plan_for_spark
from dataflow.runners.spark.runner import SparkRunner
from dataflow.testing import Pause, ScriptedSource
from tests.seeds import each_once_with_seeds
from tests.simulation.jobs import MODES

EXACT = [mode for mode in MODES if mode != Mode.UNALIGNED.value]
FAULTS = Faults(crashes=3, crash_after=(0, 1, 2), skew=0.2, stall=0.05, slices=0.2, wall_steps=0.01)


def row(*milliseconds: int) -> pa.RecordBatch:
    return pa.record_batch({"at": pa.array(milliseconds, pa.timestamp("ms")), "k": ["a"] * len(milliseconds)})


def simulated(p: flow.Pipeline, seed: int, mode: str, faults: Faults) -> flow.RunResult:
    settings = flow.Checkpointing(flow.MemoryStore(), every="2ms", mode=mode)
    return flow.SimulatedRunner(seed, faults).start(p, parallelism=2, checkpoint=settings).wait()


def silent(close_after: str | None, idle_after: str | None = None, pause: int = 400, pauses: int = 1) -> flow.Pipeline:
    """A split that falls silent after 5 ms of event time, and then has a row that may be late."""
    with flow.Pipeline("silent") as p:
        rows = p.source(ScriptedSource([row(1, 5), *[Pause(pause)] * pauses, row(2)]), name="rows")
        timed = rows.with_watermark("at", close_after=close_after, idle_after=idle_after)
        counts = timed.key_by("k").window(op.tumbling("10ms")).agg(n=op.count(), name="counts")
        counts.sink(op.collect(), name="on time")
        counts.side("late").sink(op.collect(), name="late")
    return p


def found(result: flow.RunResult) -> tuple[list[int], int]:
    return result.table("on time")["n"].to_pylist(), result.table("late").num_rows


@pytest.mark.parametrize(("seed", "mode", "idle_after"), each_once_with_seeds(40, EXACT, [None, "2ms"]))
def test_windows_of_a_silent_split_come_out_and_later_rows_are_late(
    seed: int, mode: str, idle_after: str | None
) -> None:
    assert found(simulated(silent("20ms", idle_after), seed, mode, FAULTS)) == ([2], 1)


def test_the_time_polled_in_vain_before_a_crash_counts_after_it() -> None:
    """The script begins its pause anew after each crash. One pause takes less than 140 ms of the simulated clock."""
    crashes = Faults(crashes=4, crash_at=["step"], crash_after=(2,))
    assert found(simulated(silent("140ms", pause=300), 1, "aligned", Faults())) == ([3], 0)
    assert found(simulated(silent("140ms", pause=300), 1, "aligned", crashes)) == ([2], 1)


def test_a_silent_split_that_is_not_closed_waits_for_its_rows() -> None:
    assert found(simulated(silent(None), 1, "aligned", Faults())) == ([3], 0)


def test_on_threads_a_silent_split_is_closed() -> None:
    assert found(silent("1ms", pause=300).run(timeout="60s")) == ([2], 1)


# --- the clock as event time


def clocked(pause: int = 60) -> flow.Pipeline:
    """Rows whose windows end while the source pauses, and those windows, with the largest row number so far."""
    entries = [pa.record_batch({"k": ["a"], "n": [number]}) for number in range(6)]
    script = [entry for batch in entries for entry in (Pause(pause), batch)]
    with flow.Pipeline("clocked") as p:
        rows = p.source(ScriptedSource(script), name="rows").with_processing_time("at", name="clock")
        rows.sink(op.collect(), name="rows out")
        windows = rows.key_by("k").window(op.tumbling("1ms")).agg(rows=op.count(), last=flow.col("n").max())
        windows.sink(op.collect(), name="windows")
    return p


@pytest.mark.parametrize(("seed", "mode"), each_once_with_seeds(40, EXACT))
def test_each_row_is_in_a_window_of_the_clock_whatever_crashes(seed: int, mode: str) -> None:
    result = simulated(clocked(), seed, mode, FAULTS)
    assert sorted(result.table("rows out")["n"].to_pylist()) == list(range(6))
    assert (sum(result.table("windows")["rows"].to_pylist()), result.late) == (6, 0)


def test_a_row_has_the_time_of_the_clock_in_utc() -> None:
    before = time.time()
    table = clocked(pause=30).run(timeout="60s").table("rows out")
    times = [at.timestamp() for at in table["at"].to_pylist()]
    assert table.schema.field("at").type == pa.timestamp("us", "UTC")
    assert before - 0.001 <= times[0] <= times[-1] <= time.time()
    assert times == sorted(times)


def test_windows_of_the_clock_come_out_without_rows() -> None:
    with flow.Pipeline("waiting") as p:
        script = [pa.record_batch({"k": ["a"]}), Pause(4_000), pa.record_batch({"k": ["b"]})]
        rows = p.source(ScriptedSource(script), name="rows").with_processing_time("at")
        counts = rows.key_by("k").window(op.tumbling("20ms")).agg(n=op.count())
        counts.with_processing_time("out_at").sink(op.collect(), name="out")
    table = flow.SimulatedRunner(1).start(p).wait().table("out")
    starts, out_at = table["window_start"].to_pylist(), table["out_at"].to_pylist()
    assert table["k"].to_pylist() == ["a", "b"]
    assert out_at[0] < starts[1], "the first window came out with the second row or after it"


def test_the_clock_needs_a_new_column() -> None:
    rows = flow.Pipeline().source(op.from_arrow(pa.table({"at": [1]})), name="rows")
    with pytest.raises(GraphError, match="has a column 'at'"):
        rows.with_processing_time("at")


def test_on_spark_the_clock_comes_before_a_shuffle() -> None:
    with flow.Pipeline("late clock") as p:
        rows = p.source(op.from_arrow(pa.table({"k": [1]})), name="rows").rebalance()
        rows.with_processing_time("at", name="clock").sink(op.collect(), name="out")
    with pytest.raises(UnsupportedOnRunner, match=r"operator 'clock'.*before key_by"):
        plan_for_spark(p.graph, parallelism=2, key_groups=4)


@pytest.mark.soak
def test_on_spark_each_row_is_in_a_window_of_the_clock(spark: Any) -> None:
    result = clocked(pause=2).run(SparkRunner(spark, rows_per_trigger=2), parallelism=1, max_key_groups=2)
    times = result.table("rows out")["at"].to_pylist()
    assert len(set(times)) > 1
    assert (sum(result.table("windows")["rows"].to_pylist()), result.late) == (6, 0)


@pytest.mark.soak
def test_on_spark_a_silent_split_is_closed(spark: Any) -> None:
    """A micro-batch polls some 100 times before it gives up; the next one begins an unfinished pause anew."""
    runner = SparkRunner(spark, rows_per_trigger=2)
    assert found(silent("1ms", pause=10, pauses=30).run(runner, parallelism=1, max_key_groups=2)) == ([2], 1)
    assert found(silent(None, pause=10, pauses=30).run(runner, parallelism=1, max_key_groups=2)) == ([3], 0)
