"""The job: rows of a source, dealt out by key, and an aggregate with count, sum and max."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import dataflow as flow
import operators as op
from benchmarks.checkpoints.gate import EndlessRows, Gate
from dataflow import col
from dataflow.errors import JobCancelled
from dataflow.runners.local_job import LocalJob
from dataflow.runtime.task.progress import JobState

__all__ = ["PARALLELISM", "cancel", "keys_of", "kept", "rows_of", "source_of", "start", "wait_for"]

PARALLELISM = 2
BATCH_ROWS = 65_536
TOTALS = "totals"


def source_of(keys: int, gate: Gate) -> EndlessRows:
    """Return rows without end, with ``keys`` keys in random order."""
    return EndlessRows(keys=keys, skew=0.0, splits=PARALLELISM, batch_rows=BATCH_ROWS, gate=gate)


def start(
    source: EndlessRows,
    checkpoint: flow.Checkpointing | None,
    *,
    restore: Literal["never", "latest"] = "never",
    folded: bool = False,
) -> LocalJob:
    """Start the job over ``source``. ``folded``: rows are folded before they are dealt out, as by default.

    Folded records are held back until a barrier, so a job without checkpoints then does other work.
    """
    with flow.Pipeline("totals by key") as p:
        rows = p.source(source, name="rows").key_by("key")
        totals = rows.agg(
            op.count().alias("n"),
            col("value").sum().alias("total"),
            col("value").max().alias("top"),
            emit="final",
            name=TOTALS,
        )
        totals.sink(op.collect(), name="out")
    job = p.start(flow.LocalRunner(combine=folded), parallelism=PARALLELISM, checkpoint=checkpoint, restore=restore)
    assert isinstance(job, LocalJob), job
    return job


def rows_of(job: LocalJob) -> int:
    """Return how many rows the source has read."""
    return sum(o.rows_in for task in job.metrics() for o in task.operators if o.operator == "rows")


def keys_of(job: LocalJob) -> list[int]:
    """Return how many keys each subtask of the aggregate has."""
    nodes = [node for task in job._job.tasks.values() for node in task.chain.nodes if node.name == TOTALS]
    return [node.operator._state.live for node in nodes]


def wait_for(job: LocalJob, done: Callable[[], bool]) -> None:
    """Wait until ``done``. Raises: the error of the job, if it failed."""
    while not done():
        if job.state is not JobState.RUNNING:
            job.wait()
        time.sleep(0.02)


def cancel(job: LocalJob) -> None:
    """Cancel the job, and wait for its end."""
    job.cancel()
    with suppress(JobCancelled):
        job.wait()


def kept(folder: str, every: str | None = None) -> flow.Checkpointing:
    """Return the settings of aligned checkpoints in ``folder``; without ``every`` on request only."""
    return flow.Checkpointing(Path(folder, "checkpoints"), every=every, mode="aligned", tolerable_failures=None)
