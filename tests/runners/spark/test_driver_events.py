"""What the driver of a job on Spark records, and the plan beside it, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.clock import ManualClock
from dataflow.contracts.source import SourceContext
from dataflow.events.plan_shape import plan_from_json
from dataflow.events.recorded import RecordedJob
from dataflow.planning.specs import Read
from dataflow.protocol.events import BarrierKind
from dataflow.runners.spark.batch.start import batch_plan
from dataflow.runners.spark.driver_events import DriverEvents, Recording
from dataflow.runners.spark.event_plan import event_plan
from dataflow.runners.spark.metrics import merged_reports, read_report, report_envelope
from dataflow.runners.spark.native_readers import NativeReaders
from dataflow.runners.spark.placement import SparkPlan, plan_for_spark
from dataflow.runners.spark.task_host import MicroBatchClock, OutputRecorder, TaskHost
from dataflow.runners.spark.task_report import TaskReport, TaskTime, TaskWork
from dataflow.runners.spark.user_errors import Place, place_of, serialized_errors
from dataflow.runtime.task.job_clock import JobClock
from dataflow.runtime.task.notices import Notices
from dataflow.runtime.task.progress import JobState
from dataflow.runtime.task.source_input import SourceInput
from dataflow.runtime.task.task_input import SplitState

STARTED = 1_000_000
CHECKPOINT = BarrierKind.CHECKPOINT
IN_SUMS = "operator 'sums' of sums[2] raised ZeroDivisionError"


def plan_of(out: Path, key_groups: int = 4) -> SparkPlan:
    """The plan of a job with tasks of each kind, but of readers of Spark's."""
    with flow.Pipeline("sums") as p:
        rows = p.source(op.from_arrow(pa.table({"k": [1], "x": [2]})), name="rows")
        sums = rows.key_by("k").agg(x=flow.col("x").sum(), name="sums")
        sums.key_by("x").agg(n=op.count(), name="counts").sink(op.write_parquet(out), name="files")
        rows.sink(op.collect(), name="all")
    return plan_for_spark(p.graph, parallelism=2, key_groups=key_groups)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start=STARTED, wall=5_000_000)


@pytest.fixture
def events(clock: ManualClock, tmp_path: Path) -> DriverEvents:
    found = DriverEvents(JobClock(clock, lambda category, text: None))
    plan = plan_of(tmp_path)
    found.open(Recording.of("sums", flow.Checkpointing(tmp_path), plan), "1" * 32, plan, Notices())
    return found


def recorded(events: DriverEvents, *kinds: str) -> list[dict[str, Any]]:
    """The events of some kinds by attempt and task, in the order of the task, without what is null."""
    left_out = ("seq", "attempt", "kind")
    events.drain()
    rows = sorted(events.log.read()[0].to_pylist(), key=lambda row: (row["attempt"], row["task"], row["seq"]))
    return [
        {name: value for name, value in row.items() if value is not None and name not in left_out}
        for row in rows
        if row["kind"] in kinds
    ]


def test_a_micro_batch_is_a_checkpoint_of_unknown_size(events: DriverEvents, clock: ManualClock) -> None:
    events.begin(0)
    events.triggered(1, CHECKPOINT, STARTED + 10)
    events.durable(1, STARTED + 90)
    events.committed(1, STARTED + 90)
    clock.advance(100)
    events.end(JobState.FINISHED)
    kinds = ("started", "restored", "triggered", "durable", "committed", "state")
    assert recorded(events, *kinds) == [
        {"time": 0, "task": "job", "value": 5_000_000, "detail": "aligned"},
        {"time": 0, "task": "job", "detail": "running"},
        {"time": 10, "task": "job", "checkpoint": 1, "detail": "checkpoint"},
        {"time": 90, "task": "job", "checkpoint": 1, "duration": 80, "rows": 0},
        {"time": 90, "task": "job", "checkpoint": 1},
        {"time": 100, "task": "job", "detail": "finished"},
    ]
    metadata = events.log.read()[0].schema.metadata
    guarantee = (metadata[b"mode"], metadata[b"guarantee"], metadata[b"job"])
    assert guarantee == (b"aligned", b"exactly once", b"1" * 32)


def test_totals_are_sums_of_the_attempt_and_null_where_nothing_is_measured(events: DriverEvents) -> None:
    events.begin(0)
    for n in (1, 2):
        works = [("sums", TaskWork(3, 5, 2, 40)), ("files", TaskWork(7, 1, 0, 9)), ("files", TaskWork(0, 1, 0, 9))]
        events.worked([*works, ("rows/read by spark", TaskWork(0, 1, 1, 1))], STARTED + 100 * n, STARTED + 100 * n - 50)
    events.begin(2)
    events.worked([("sums", TaskWork(3, 5, 2, 40))], STARTED + 7)
    samples = [(row["task"], row["time"], row["totals"][:3]) for row in recorded(events, "work")]
    assert samples == [
        ("files[0]", 50, [0, 0, None]),  # several partitions write at the same time
        ("files[0]", 100, [2, 0, None]),
        ("files[0]", 150, [2, 0, None]),
        ("files[0]", 200, [4, 0, None]),
        ("sums[3]", 50, [0, 0, 0]),
        ("sums[3]", 100, [5, 2, 40]),
        ("sums[3]", 150, [5, 2, 40]),
        ("sums[3]", 200, [10, 4, 80]),
        ("sums[3]", 7, [5, 2, 40]),
    ]
    assert all(row["totals"][3:] == [None, None, None] for row in recorded(events, "work"))
    assert [row["checkpoint"] for row in recorded(events, "restored")] == [2]


def test_a_watermark_is_recorded_when_it_moves(events: DriverEvents) -> None:
    events.begin(0)
    for at, time in enumerate([7, 7, 9]):
        work = TaskWork(1, 0, 0, 0, [TaskTime(None, time), TaskTime("rows", time, "a.csv")])
        events.worked([("rows", work)], STARTED + at)
    rows = recorded(events, "watermark")
    assert rows == [
        {"time": at, "task": "rows[1]", "value": value, **more}
        for at, value in [(0, 7), (2, 9)]
        for more in ({}, {"operator": "rows", "detail": "a.csv"})
    ]


def test_an_error_names_its_task_and_makes_the_checkpoint_under_way_fail(events: DriverEvents) -> None:
    events.begin(0)
    events.triggered(1, CHECKPOINT, STARTED)
    events.failed("ZeroDivisionError", Place("sums[2]", "sums"), None)
    events.failed("SparkFailed", None, None)  # nothing is under way
    events.begin(0)
    events.triggered(1, CHECKPOINT, STARTED)
    events.commit_failed(1, "files", OSError("/secret"))
    events.failed("OSError", Place("the driver", None), "the disk is full")
    assert recorded(events, "error", "failed", "commit_failed") == [
        {"time": 0, "task": "job", "checkpoint": 1, "duration": 0, "detail": IN_SUMS},
        {"time": 0, "task": "job", "detail": "SparkFailed"},
        {"time": 0, "task": "sums[2]", "operator": "sums", "detail": "ZeroDivisionError"},
        {"time": 0, "task": "job", "checkpoint": 1, "operator": "files", "detail": "OSError"},
        {"time": 0, "task": "job", "detail": "OSError"},
        {"time": 0, "task": "job", "checkpoint": 1, "duration": 0, "detail": "the disk is full"},
    ]


def test_nothing_is_recorded_after_the_end(events: DriverEvents) -> None:
    events.begin(0)
    events.end(JobState.CANCELLED)
    before = events.log.read()[0]
    events.triggered(1, CHECKPOINT, STARTED)
    events.worked([("sums", TaskWork(0, 1, 1, 1))], STARTED)
    events.failed("OSError", Place("sums[0]", None), None)
    events.drain()
    assert events.log.read()[0] == before


class File:
    """A recording in memory of a job that had been started twice before."""

    attempt = 3

    def __init__(self) -> None:
        self.attempts: list[int] = []
        self.closed = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self.attempts += batch["attempt"].unique().to_pylist()

    def close(self) -> None:
        self.closed += 1


def test_all_attempts_of_a_job_are_written_to_one_file(clock: ManualClock, tmp_path: Path) -> None:
    opened: list[RecordedJob] = []
    file, plan = File(), plan_of(tmp_path)

    def open_file(recorded: RecordedJob, ended: Callable[[str], None]) -> File:
        opened.append(recorded)
        ended("the disk is full")
        return file

    events = DriverEvents(JobClock(clock, lambda category, text: None))
    notices = Notices()
    events.open(Recording.of("sums", None, plan, open_file), "1" * 32, plan, notices)
    for done in (0, 4):
        events.begin(done)
    events.end(JobState.FINISHED)
    events.close()
    assert [(each.mode, each.guarantee) for each in opened] == [("", "at most once")]
    assert (file.attempts, file.closed) == ([3, 4, 4], 1)
    assert [type(warning) for warning in notices.warnings()] == [flow.errors.RecordingEndedWarning]


def test_the_plan_of_events_has_the_tasks_that_report_and_no_channels(tmp_path: Path) -> None:
    shape = event_plan(plan_of(tmp_path, key_groups=1_500))
    width = {vertex.name: vertex.parallelism for vertex in shape.vertices}
    assert width == {"rows": 2, "sums": 1_500, "counts": 1_500, "files": 1, "all": 1}
    assert {link.target: link.partitioning for link in shape.links} == {
        "sums": "hash",
        "counts": "hash",
        "files": "rebalance",
        "all": "rebalance",
    }
    assert shape.channels == ()
    assert plan_from_json(shape.to_json()) == shape


def test_helpers_that_pass_rows_to_spark_are_neither_tasks_nor_weaken_the_guarantee(tmp_path: Path) -> None:
    with flow.Pipeline("turns") as p:
        rows = p.source(op.from_arrow(pa.table({"k": [1], "x": [2]})), name="rows").map(dict, name="mapped")
        rows.key_by("k").agg(x=flow.col("x").sum(), name="sums").sink(op.write_parquet(tmp_path), name="out")
    plan = batch_plan(p, 1, 1, None, "run", NativeReaders({}))
    assert plan.cut is not None
    assert list(plan.cut.handed.values()) == ["mapped/handed"]
    assert [vertex.name for vertex in event_plan(plan).vertices] == ["rows", "sums"]
    assert plan.guarantee(flow.Checkpointing(tmp_path)).value == "exactly once"
    assert plan.plan.graph.guarantee(flow.Guarantee.EXACTLY_ONCE).value == "at least once"


def test_reports_of_several_tasks_keep_what_each_did() -> None:
    reports = [TaskReport(f"sums[{n}]", [], work=[TaskWork(n, 5, 6, 7, [TaskTime("sums", 8)])]) for n in (2, 0)]
    (report,) = merged_reports(reports)
    (sent,) = [read_report(report_envelope(each, 1).payload) for each in [report]]
    assert list(sent.work) == [TaskWork(n, 5, 6, 7, [TaskTime("sums", 8)]) for n in (2, 0)]


def test_a_task_reports_its_rows_and_the_split_that_holds_back_time() -> None:
    times = pa.array([4_000_000, 3_000_000], pa.timestamp("us"))
    with flow.Pipeline("timed") as p:
        rows = p.source(op.from_arrow(pa.table({"at": times})), name="rows").with_watermark("at", name="clock")
        rows.sink(op.collect(), name="all")
        rows.filter(flow.col("at").is_null(), name="none").key_by("at").agg(n=op.count()).sink(op.collect(), name="out")
    plan = plan_for_spark(p.graph, parallelism=1, key_groups=2).numbered([0, 1], 1)
    vertex = plan.plan.vertices["rows"]
    recorder, clock = OutputRecorder(plan, 0, 0, distributed=True), MicroBatchClock(0)
    assert isinstance(vertex.head.spec, Read)
    (split,) = vertex.head.spec.source.splits()
    task_input = SourceInput(vertex.head.spec.source, [SplitState(split)], SourceContext("rows", 0, 1, clock))
    with TaskHost(plan, vertex, 0, None, "run", recorder, task_input, clock=clock) as host:
        while (polled := task_input.poll(0)) is not None and polled.flow is not None:
            host.push(0, polled.flow)
        host.snapshot(1)
        host.free()
    (work,) = host.report().work
    assert (work.subtask, work.rows_in, work.rows_out) == (0, 2, 2)  # no row is null, so only the sink gets some
    assert work.times == [TaskTime("clock", 4_000_000, split.id)]


def test_the_place_of_an_error_comes_with_it() -> None:
    with pytest.raises(Exception, match="barrierflow-error") as caught, serialized_errors("sums[1]"):
        raise ValueError("x")
    assert place_of(RuntimeError(f"Spark says: {caught.value}")) == Place("sums[1]", None)
    assert place_of(RuntimeError("Spark failed")) is None
