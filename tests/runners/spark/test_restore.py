"""What a job that goes on says of where it goes on."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import ipc

import dataflow as flow
import operators as op
from dataflow.contracts.source import InputIdentity, Split
from dataflow.events.plan_shape import task_id
from dataflow.runners.spark.job_directory import JobDirectory
from dataflow.runners.spark.placement import plan_for_spark
from dataflow.runners.spark.restore import restore_report
from dataflow.runners.spark.source_tasks import (
    Assignment,
    check_input,
    initial_states,
)
from dataflow.runners.spark.split_positions import listed_splits
from dataflow.runtime.task.parts import TaskState
from dataflow.runtime.task.task_input import SplitState

SPLITS = ["rows-0-5", "rows-5-10"]
A, B = (f"in/{split}" for split in SPLITS)


@pytest.fixture
def assignment(tmp_path: Path) -> Assignment:
    """A job with two source tasks, at its start."""
    with flow.Pipeline("numbers") as p:
        p.source(op.from_arrow(pa.table({"x": range(10)}), splits=2), name="in").sink(op.collect(), name="out")
    spark_plan = plan_for_spark(p.graph, parallelism=2, key_groups=8)
    made = Assignment(spark_plan, JobDirectory(tmp_path), "run", 10)
    made.directory.create({}, initial_states(spark_plan))
    return made


def _come(assignment: Assignment, subtask: int, round_: int, rows: int, *, done: bool = False) -> None:
    split = SplitState(Split(SPLITS[subtask]), offset=rows, done=done, rows=rows)
    state = TaskState(task_id("in", subtask), ended=done, inlet={"splits": [split.to_json()]})
    assignment.directory.write_task(state, round_)


def test_a_job_without_a_micro_batch_that_is_done_goes_back_to_nothing(assignment: Assignment) -> None:
    assert restore_report(assignment, 0) is None


def test_rows_that_source_tasks_had_read_beyond_are_read_again(assignment: Assignment) -> None:
    for subtask, rows in enumerate((3, 4)):
        _come(assignment, subtask, 1, rows)
    _come(assignment, 0, 2, 5)
    report = restore_report(assignment, 1)
    assert report is not None
    assert (report.checkpoint, report.offsets, report.replayed) == (1, {A: 3, B: 4}, {A: 2, B: 0})
    assert not report.finished
    assert "state" not in str(report)


def test_splits_that_were_through_are_not_gone_back_to(assignment: Assignment) -> None:
    for subtask in range(2):
        _come(assignment, subtask, 1, 5, done=True)
    report = restore_report(assignment, 1)
    assert report is not None
    assert (report.finished, report.offsets, report.rows_replayed) == (True, {}, 0)


def test_input_that_came_after_the_job_began_is_warned_of_and_named(assignment: Assignment) -> None:
    for subtask in range(2):
        _come(assignment, subtask, 1, 5)
    with flow.Pipeline("numbers") as p:
        p.source(op.from_arrow(pa.table({"x": range(15)}), splits=3), name="in").sink(op.collect(), name="out")
    grown = replace(assignment, spark_plan=plan_for_spark(p.graph, parallelism=2, key_groups=8))
    with pytest.warns(
        flow.errors.NewInputWarning, match=r"1 new splits of source 'in' \(first: 'rows-10-15'\).*another"
    ):
        report = restore_report(grown, 1)
    assert report is not None
    assert report.not_read == ("in/rows-10-15",)


def test_input_is_settled_when_a_job_begins_and_not_with_its_first_micro_batch(assignment: Assignment) -> None:
    with flow.Pipeline("numbers") as p:
        p.source(op.from_arrow(pa.table({"x": range(15)}), splits=3), name="in").sink(op.collect(), name="out")
    with pytest.warns(flow.errors.NewInputWarning, match="1 new splits of source 'in'"):
        restore_report(replace(assignment, spark_plan=plan_for_spark(p.graph, parallelism=2, key_groups=8)), 0)


def test_behind_sparks_own_readers_input_is_never_new(assignment: Assignment, tmp_path: Path) -> None:
    offsets = tmp_path / "spark" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text('v1\n{}\n{"logOffset":0}')
    read = plan_for_spark(assignment.spark_plan.plan.logical, parallelism=1, key_groups=8, readers=["in"])
    report = restore_report(replace(assignment, spark_plan=read), 1)
    assert report is not None
    assert (report.offsets, report.not_read) == ({"in/0": {"logOffset": 0}}, ())


def test_files_are_recognised_as_the_job_asks_for_it(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    with ipc.new_file(str(path), pa.schema({"x": pa.int64()})) as out:
        out.write_table(pa.table({"x": range(200_000)}))

    def job(identity: InputIdentity) -> Assignment:
        with flow.Pipeline("numbers") as p:
            p.source(op.read_ipc(path), name="in").sink(op.collect(), name="out")
        spark_plan = plan_for_spark(p.graph, parallelism=1, key_groups=2, input_identity=identity)
        return Assignment(spark_plan, JobDirectory(tmp_path / "job"), "run", 10)

    first = job("mtime")
    first.directory.create({}, initial_states(first.spark_plan))
    check_input(first, 0)
    os.utime(path, (1, 1))
    with pytest.raises(flow.errors.InputChanged, match="last modified"):
        check_input(job("mtime"), 0)
    check_input(job("content"), 0)


def test_a_list_of_splits_that_was_lost_is_named(assignment: Assignment) -> None:
    (assignment.directory.path / "tasks" / assignment.source_task_ids[0] / "listed").unlink()
    listed_splits.cache_clear()
    with pytest.raises(flow.errors.CheckpointDamaged, match=r"in\[0\]/listed is missing: restore it"):
        check_input(assignment, 0)
