"""Samples of a task: how long its step had lasted, also if a checkpoint was triggered meanwhile."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pyarrow as pa

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
