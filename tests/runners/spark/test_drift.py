"""``with_watermark(max_drift=)`` on Spark: source tasks that are ahead skip micro-batches. No Spark is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.events.plan_shape import task_id
from dataflow.runners.spark.job_directory import JobDirectory
from dataflow.runners.spark.placement import plan_for_spark
from dataflow.runners.spark.source_tasks import Assignment, initial_states, positions_of, read
from dataflow.testing import ScriptedSource
from tests.seeds import seeds

Batches = tuple[int, int]
"""So many rows, a batch each, so many seconds apart."""


def batches(count: int, apart: int) -> list[pa.RecordBatch]:
    return [pa.record_batch({"k": [n], "ts": pa.array([n * apart], pa.timestamp("s"))}) for n in range(count)]


def begun(directory: Path, tasks: Sequence[Batches], rows: int, max_drift: str) -> Assignment:
    """A job with source tasks that each read so many rows in a micro-batch."""
    with flow.Pipeline("drift") as p:
        source = p.source(ScriptedSource(*[batches(*task) for task in tasks]), name="in")
        timed = source.with_watermark("ts", max_drift=max_drift, name="time")
        timed.key_by("k").window(op.tumbling("5s")).agg(op.count().alias("n"), name="n").sink(op.collect(), name="out")
    spark_plan = plan_for_spark(p.graph, parallelism=len(tasks), key_groups=4)
    spark_plan = spark_plan.numbered(range(len(spark_plan.keyed_tasks)), 2)
    made = Assignment(spark_plan, JobDirectory(directory), "run", rows * len(tasks))
    with made.directory.lock("run"):
        made.directory.create({}, initial_states(spark_plan))
    return made


def micro_batches(assignment: Assignment) -> Iterator[int]:
    """Run the job, each source task twice in each micro-batch. Spark does not ask for the start of every one."""
    round_ = 0
    tasks = range(len(assignment.spark_plan.source_tasks))
    while not assignment.directory.ended(assignment.source_task_ids, round_):
        if round_ % 3:
            assert assignment.directory.begin(assignment.source_task_ids, round_)
        assignment.directory.write_time(round_, 1_000_000 * round_)
        for task in [*tasks, *reversed(tasks)]:
            assert list(read(assignment, task, round_))
        round_ += 1
        yield round_


def before(assignment: Assignment, round_: int) -> list[Any]:
    """Return the stored states of the source tasks."""
    found = [
        assignment.directory.read_task(task_id("in", task), round_)
        for task in range(len(assignment.spark_plan.source_tasks))
    ]
    assert None not in found
    return found


def rows(assignment: Assignment, round_: int) -> list[int]:
    """Return the rows that each source task had read."""
    return [positions_of(assignment, state).rows or 0 for state in before(assignment, round_)]


def lead(assignment: Assignment, round_: int) -> int:
    """Return by how many seconds source tasks that continue differ."""
    told = [clock for state in before(assignment, round_) for clock in state.inlet["clocks"].values()]
    times = [at // 1_000_000 for at, _ in told if at is not None]
    return max(times) - min(times) if times else 0


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_source_tasks_keep_together_and_come_to_their_end(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    tasks = [(40, 1), *[(random.choice([0, 1, 20, 60]), random.randrange(1, 5)) for _ in range(2)]]
    assignment = begun(tmp_path, tasks, 4, "5s")
    leads = [lead(assignment, round_) for round_ in micro_batches(assignment)]
    assert max(leads) <= 5 + 4 * 4  # what four rows span
    assert rows(assignment, len(leads)) == [count for count, _ in tasks]


def test_a_source_task_that_is_ahead_skips_micro_batches_until_the_others_have_caught_up(tmp_path: Path) -> None:
    assignment = begun(tmp_path, [(14, 1), (9, 4)], 2, "2s")
    taken = [rows(assignment, round_) for round_ in micro_batches(assignment)]
    assert taken == [[2, 2], [4, 2], [6, 4], [8, 4], [10, 4], [12, 4], [14, 6], [14, 6], [14, 8], [14, 9]]
