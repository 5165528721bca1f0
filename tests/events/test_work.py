"""Samples of a task: how long its step had lasted, also if a checkpoint was triggered meanwhile."""

from __future__ import annotations

import pickle
import time
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op


def samples(task: str, rows: int, seconds: float) -> tuple[flow.RunResult, list[dict[str, Any]]]:
    """Run a map that takes so long for each batch; return the result, and the samples of the task."""

    def slowly(batch: pa.RecordBatch) -> pa.RecordBatch:
        time.sleep(seconds)
        return batch

    with flow.Pipeline("slow") as p:
        source = p.source(op.from_arrow(pa.table({"x": range(rows)}), batch_rows=1), name="in")
        source.map_batches(slowly, schema=pa.schema({"x": pa.int64()}), name="slowly").sink(op.collect(), name="out")
    result = p.run(checkpoint=flow.Checkpointing(flow.MemoryStore(), every="20ms"))
    return result, [row for row in result.events.table.to_pylist() if row["kind"] == "work" and row["task"] == task]


def test_a_step_during_which_a_checkpoint_was_triggered_is_in_the_samples() -> None:
    result, work = samples("in[0]", rows=6, seconds=0.05)
    triggered = [row["time"] for row in result.events.table.to_pylist() if row["kind"] == "triggered"]
    steps = [(row["time"] - row["duration"], row["time"]) for row in work if row["duration"]]
    meanwhile = [at for at in triggered if any(begin <= at <= end and end - begin >= 50_000 for begin, end in steps)]
    assert meanwhile
    totals = [row["totals"] for row in work]
    assert all(earlier <= later for before, after in pairwise(totals)
               for earlier, later in zip(before[:6], after[:6], strict=True))  # fmt: skip


def test_an_attempt_has_the_mode_of_its_checkpoints() -> None:
    result, _ = samples("in[0]", rows=1, seconds=0)
    (started,) = [row for row in result.events.table.to_pylist() if row["kind"] == "started"]
    assert started["detail"] == "aligned"


def test_time_that_changes_nothing_is_not_sampled() -> None:
    table = pa.table({"t": pa.array(range(0, 4_000_000, 1_000), pa.timestamp("us")), "k": [0, 1] * 2_000})
    with flow.Pipeline("windows") as p:
        rows = p.source(op.from_arrow(table, splits=4, batch_rows=10), name="in").with_watermark("t", name="time")
        rows.key_by("k").window(op.tumbling("1s")).agg(op.count().alias("n"), name="win").sink(op.collect(), name="out")
    result = p.run(flow.SimulatedRunner(3), parallelism=4)
    kinds = [(row["kind"], row["task"]) for row in result.events.table.to_pylist()]
    arrived = sum(kind == "arrived" for kind, _ in kinds)
    assert sum(kind == "work" and task.startswith("win") for kind, task in kinds) <= 4 * arrived + 40


class Exit(BaseException):
    """Leaves a step as an exit does."""


@pytest.mark.parametrize("kind", [ValueError, Exit])
def test_an_error_is_the_last_event_of_its_task_and_has_the_operator(kind: type[BaseException]) -> None:
    def fail(batch: pa.RecordBatch) -> pa.RecordBatch:
        time.sleep(0.002)
        raise kind("a value of a row")

    with flow.Pipeline("failing") as p:
        source = p.source(op.from_arrow(pa.table({"x": range(3)})), name="in")
        source.map_batches(fail, schema=pa.schema({"x": pa.int64()}), name="bad").sink(op.collect(), name="out")
    job = p.start()
    with job, pytest.raises(kind):
        job.wait()
    rows = [row for row in job.events().table.to_pylist() if row["task"] == "in[0]"]
    (error,) = [row for row in rows if row["kind"] == "error"]
    assert (error["operator"], error["detail"]) == ("bad", kind.__name__)
    later = [row for row in rows if row["seq"] > error["seq"]]
    assert all(row["time"] >= error["time"] for row in later)


def test_an_error_that_no_task_raised_is_an_event_of_the_job() -> None:
    with flow.Pipeline("watched") as p:
        p.source(op.from_arrow(pa.table({"x": range(3)})), name="in").sink(op.collect(), name="out")
    job = p.start(checkpoint=flow.Checkpointing(flow.MemoryStore(), every="1h"))
    job.on_checkpoint(lambda state: 1 // 0 == 1)
    with job, pytest.raises(ZeroDivisionError):
        job.wait()
    errors = [(row["task"], row["detail"]) for row in job.events().table.to_pylist() if row["kind"] == "error"]
    assert errors == [("job", "ZeroDivisionError")]


def test_results_with_equal_events_are_equal() -> None:
    results = []
    for seed in (3, 3, 4):
        with flow.Pipeline("same") as p:
            p.source(op.from_arrow(pa.table({"x": range(9)}), batch_rows=1), name="in").sink(op.collect(), name="out")
        results.append(p.run(flow.SimulatedRunner(seed)))
    assert results[0] == results[1]
    assert results[0].events != results[2].events
    assert pickle.loads(pickle.dumps(results[0])) == results[0]
