"""A subtask as a Spark worker hosts it, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.runners.spark.driver import Driver
from dataflow.runners.spark.envelopes import Content
from dataflow.runners.spark.job_directory import JobDirectory
from dataflow.runners.spark.source_tasks import Assignment
from dataflow.runners.spark.task_host import MicroBatchClock, OutputRecorder, TaskHost
from dataflow.runners.spark.user_errors import SerializedError, original_error
from dataflow.runtime.task.parts import TaskState
from dataflow.testing import Ledger, ledger_sink
from tests.runners.spark.test_placement import spark_plan


class Beating(flow.Operator):
    """Schedules another timer in each timer, for a past time."""

    def __init__(self, context: flow.OperatorContext) -> None:
        self.context = context
        self.rung = 0

    def open(self) -> None:
        self.context.schedule(0)

    def process(self, port: int, batch: Any, out: flow.Out) -> None:
        out.emit(batch)

    def timer(self, due: int, out: flow.Out) -> None:
        self.rung += 1
        assert self.rung < 100, "one call of ring() does not end"
        self.context.schedule(due)


class Once(Beating):
    def open(self) -> None:
        self.context.schedule(1)

    def timer(self, due: int, out: flow.Out) -> None:
        self.rung += 1


def test_a_timer_that_is_scheduled_in_a_timer_waits_for_the_next_micro_batch() -> None:
    p = flow.Pipeline()
    rows = p.source(op.from_arrow(pa.table({"x": [1]})), name="in")
    rows.key_by("x").apply(Beating, name="beating").apply(Once, name="once").sink(op.collect(), name="out")
    found = spark_plan(p)
    (vertex,) = (vertex for vertex in found.plan.vertices.values() if "once" in [node.name for node in vertex.nodes])
    with TaskHost(found, vertex, 0, None, "run", OutputRecorder(found, 0, 1, distributed=False)) as host:
        rung = []
        for _ in range(2):
            host.call_due_timers()
            rung.append([node.operator.rung for node in host.chain.nodes if isinstance(node.operator, Beating)])
    assert rung == [[1, 1], [2, 1]]


class ByTheClock(flow.Operator):
    """Emits the times at which its timers ring: at 100 and 200 by the clock, and 50 after each by its own."""

    def __init__(self, context: flow.OperatorContext) -> None:
        self.context = context

    def open(self) -> None:
        for due in (100, 200):
            self.context.schedule_at(due)

    def process(self, port: int, batch: Any, out: flow.Out) -> None: ...

    def timer(self, due: int, out: flow.Out) -> None:
        out.emit(pa.record_batch({"x": [due], "at": [self.context.clock.time()]}))
        if due in (100, 200):
            self.context.schedule(self.context.clock.now() + 50)


def test_operators_see_a_micro_batch_as_a_moment() -> None:
    """So an attempt that repeats a micro-batch calls the same timers, whether its operators were kept or restored."""
    p = flow.Pipeline()
    rows = p.source(op.from_arrow(pa.table({"x": [1], "at": [1]})), name="in").key_by("x")
    rows.apply(ByTheClock, name="timed").sink(op.collect(), name="out")
    plan = spark_plan(p)
    (vertex,) = (vertex for vertex in plan.plan.vertices.values() if "timed" in [node.name for node in vertex.nodes])

    def rung(time: int, state: TaskState | None) -> tuple[list[Any], TaskState]:
        recorder = OutputRecorder(plan, 0, 1, distributed=False)
        with TaskHost(plan, vertex, 0, state, "run", recorder, clock=MicroBatchClock(time)) as host:
            host.call_due_timers()
            recorder.step(0)
            contents = [Content.decode(envelope.payload) for envelope in recorder.envelopes()]
            return [row for c in contents for data in c.rows() for row in data.rows.to_pylist()], host.snapshot(2)

    first, state = rung(120, None)
    assert first == [{"x": 100, "at": 120}]
    assert [rung(169, state)[0] for _ in range(2)] == [[{"x": 100, "at": 169}]] * 2  # it set it again when it opened
    assert rung(170, state)[0] == [{"x": 100, "at": 170}, {"x": 170, "at": 170}]


class Numbering(flow.Stateful, flow.TwoPhaseWriter):
    rows = 0

    def state(self) -> dict[str, Any]:
        return {"rows": flow.Value(self, "rows", int, "greatest")}

    def process(self, port: int, batch: Any, out: flow.Out) -> None: ...

    def prepare(self, checkpoint: int) -> tuple[()]:
        return ()


class Numbered(type(ledger_sink(Ledger()))):  # type: ignore[misc]
    def writer(self, context: flow.OperatorContext) -> Numbering:
        return Numbering(context)


def test_state_of_a_writer_that_each_micro_batch_makes_anew_is_refused() -> None:
    p = flow.Pipeline()
    p.source(op.from_arrow(pa.table({"x": [1]})), name="in").rebalance().sink(Numbered(Ledger()), name="out")
    plan = spark_plan(p)
    recorder = OutputRecorder(plan, 0, 1, distributed=False)
    host = TaskHost(plan, plan.plan.vertices["out"], 0, None, "run", recorder)
    with pytest.raises(SerializedError) as raised:
        host.prepare_writers(1)
    assert "sink 'out': its writer has the state ['rows'], but on Spark" in str(original_error(raised.value))


class Closing(flow.Operator):
    """Notes that it was closed. If it is ``broken``, it can be neither opened nor closed."""

    def __init__(self, context: flow.OperatorContext, closed: list[str], *, broken: bool = False) -> None:
        self.name, self.closed, self.broken = context.name, closed, broken

    def open(self) -> None:
        if self.broken:
            raise ZeroDivisionError("not opened")

    def process(self, port: int, batch: Any, out: flow.Out) -> None: ...

    def close(self) -> None:
        self.closed.append(self.name)
        if self.broken:
            raise OSError("still open")


class Calls(flow.Sink):
    """A sink of the driver."""

    idempotent = True

    def __init__(self, closed: list[str], *, broken: bool = False) -> None:
        self.closed, self.broken = closed, broken

    def writer(self, context: flow.OperatorContext) -> flow.Operator:
        return Closing(context, self.closed, broken=self.broken)


def test_a_sink_of_the_driver_that_cannot_be_opened_leaves_none_open_and_loses_no_warning(tmp_path: Path) -> None:
    closed: list[str] = []
    p = flow.Pipeline()
    rows = p.source(op.from_arrow(pa.table({"x": [1]})), name="in")
    rows.sink(Calls(closed), name="whole")
    rows.sink(Calls(closed, broken=True), name="broken")
    driver = Driver(Assignment(spark_plan(p), JobDirectory(tmp_path), "run", 10), 0)
    with pytest.raises(SerializedError) as raised, driver:
        pass
    assert (set(closed), len(closed)) == ({"whole", "broken"}, 2)
    error = original_error(raised.value)
    assert isinstance(error, ZeroDivisionError)
    assert [note for note in error.__notes__ if "CleanupFailedWarning: closing broken[0] raised OSError" in note]


def test_files_of_killed_workers_that_cannot_be_deleted_are_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(directory: JobDirectory) -> None:
        raise PermissionError("read only")

    p = flow.Pipeline()
    p.source(op.from_arrow(pa.table({"x": [1]})), name="in").sink(op.write_parquet(tmp_path / "out"), name="out")
    driver = Driver(Assignment(spark_plan(p), JobDirectory(tmp_path / "job"), "run", 10), 0)
    monkeypatch.setattr(JobDirectory, "sweep", fail)
    driver.sweep()
    (warning,) = driver.notices.warnings()
    assert (
        "unfinished files of killed workers stay until the next start deletes them: PermissionError('read only')"
        in str(warning)
    )
