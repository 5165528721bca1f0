"""What a job that goes on says of where it goes on."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.plan import task_id
from dataflow.runners.spark.home import Home
from dataflow.runners.spark.lanes import Assignment, beginnings
from dataflow.runners.spark.restoring import restored
from dataflow.runners.spark.staging import staged
from dataflow.runtime.inlet import SplitState
from dataflow.runtime.parts import TaskState
from dataflow.source import Split


@pytest.fixture
def assignment(tmp_path: Path) -> Assignment:
    """A job of two lanes, begun."""
    with flow.Pipeline("numbers") as p:
        p.source(op.from_arrow(pa.table({"x": range(10)}), splits=2), name="in").sink(op.collect(), name="out")
    stages = staged(p.graph, parallelism=2, key_groups=8)
    made = Assignment(stages, Home(tmp_path), "run", 10)
    made.home.begin({}, beginnings(stages))
    return made


def _come(assignment: Assignment, lane: int, round_: int, rows: int, *, done: bool = False) -> None:
    split = SplitState(Split(f"{lane}"), offset=rows, done=done, rows=rows)
    state = TaskState(task_id("in", lane), ended=done, inlet={"splits": [split.to_json()]})
    assignment.home.keep(state, round_)


def test_a_job_without_a_micro_batch_that_is_done_goes_back_to_nothing(assignment: Assignment) -> None:
    assert restored(assignment, 0) is None


def test_rows_that_lanes_had_read_beyond_are_read_again(assignment: Assignment) -> None:
    for lane, rows in enumerate((3, 4)):
        _come(assignment, lane, 1, rows)
    _come(assignment, 0, 2, 5)
    report = restored(assignment, 1)
    assert report is not None
    assert (report.checkpoint, report.offsets, report.replayed) == (1, {"in/0": 3, "in/1": 4}, {"in/0": 2, "in/1": 0})
    assert not report.finished
    assert "state" not in str(report)


def test_splits_that_were_through_are_not_gone_back_to(assignment: Assignment) -> None:
    for lane in range(2):
        _come(assignment, lane, 1, 5, done=True)
    report = restored(assignment, 1)
    assert report is not None
    assert (report.finished, report.offsets, report.rows_replayed) == (True, {}, 0)
