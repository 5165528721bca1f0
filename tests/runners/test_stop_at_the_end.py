"""A job that is stopped, or asked for a checkpoint, when it has just come to its end."""

from __future__ import annotations

import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow.clock import ManualClock
from dataflow.planning.physical_plan import make_plan
from dataflow.runners.binding import LIBRARY
from dataflow.runtime.job.build_job import Settings, build
from dataflow.runtime.job.job import Job
from dataflow.runtime.restore.job_ids import random_id
from dataflow.runtime.task.progress import JobState


def released() -> Job:
    """A job whose last checkpoint is committed, and whose tasks were told to stop but have not yet."""
    with flow.Pipeline("short") as p:
        p.source(op.from_arrow(pa.table({"n": range(5)})), name="numbers").sink(op.collect(), name="out")
    store = flow.Checkpointing(flow.MemoryStore())
    settings = Settings(
        "short", "r", store, "auto", ManualClock(), lambda lane, job: job(), make_id=random_id, library=LIBRARY
    )
    job = build(make_plan(p.graph), settings)
    while not job.history.checkpoints:
        for task in job.tasks.values():
            task.step()
        job.step()
    assert not job.over
    return job


def test_stopping_a_job_that_has_just_ended_finishes_it() -> None:
    job = released()
    job.stop()
    while not job.over:
        job.step()
        for task in job.tasks.values():
            task.step()
    assert (job.state, job.error) == (JobState.FINISHED, None)


def test_a_checkpoint_of_a_job_that_has_just_ended_is_its_last_one() -> None:
    job = released()
    asked = job.checkpoint()
    job.step()
    assert asked.result(0) == job.history.checkpoints[-1].checkpoint
