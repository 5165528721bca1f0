"""Jobs on threads are checked for liveness in all tests; here the check is held against faults that it must find."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.operator import Operator, Out, Snapshot
from dataflow.errors import CheckpointsFailedWarning, StoreError
from dataflow.runners import liveness_check
from dataflow.runners.liveness_check import LivenessBroken
from dataflow.runtime.task.messages import AbortCheckpoint, Mailbox, TaskMessage
from dataflow.runtime.task.task import Task
from tests import liveness
from tests.forcing import Force


class FailsOnce(Operator):
    """Passes rows on, and fails to take its first snapshot."""

    failed = False

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        out.emit(batch)

    def snapshot(self) -> Snapshot:
        if not self.failed:
            self.failed = True
            raise StoreError("not now")
        return Snapshot()


def failing(runner: flow.Runner) -> flow.Job:
    """A job whose first checkpoint one task declines, of three."""
    with flow.Pipeline("failing") as p:
        rows = p.source(op.from_arrow(pa.table({"x": range(10)})), name="in").rebalance()
        rows.apply(FailsOnce, name="fails").rebalance().sink(op.collect(), name="out")
    return p.start(runner, checkpoint=flow.Checkpointing(flow.MemoryStore(), every="1h"))


RUNNERS = {"threads": flow.LocalRunner, "simulated": flow.SimulatedRunner}


@pytest.mark.parametrize("runner", RUNNERS.values(), ids=RUNNERS)
def test_a_checkpoint_that_fails_is_settled_by_all_tasks(runner: Callable[[], flow.Runner]) -> None:
    with pytest.warns(CheckpointsFailedWarning), failing(runner()) as job:
        assert job.wait().table("out").num_rows == 10


@pytest.mark.parametrize("runner", RUNNERS.values(), ids=RUNNERS)
def test_a_task_that_declines_without_a_word_is_found(
    runner: Callable[[], flow.Runner], monkeypatch: pytest.MonkeyPatch, force: Force
) -> None:
    monkeypatch.setattr(Task, "_decline", lambda task, checkpoint, reason, detail: None)
    if runner is flow.LocalRunner:  # a simulated one sees that nothing moves
        force(liveness, "LONGEST", 200_000, calls=liveness_check._waiting)
    with pytest.raises(LivenessBroken, match=r"fails\[0\] has not settled checkpoint 1"), failing(runner()) as job:
        job.wait()


def expiring() -> flow.Job:
    """A job with a step of half a second, behind which a checkpoint expires."""
    with flow.Pipeline("expiring") as p:
        rows = p.source(op.from_arrow(pa.table({"x": range(10)})), name="in").rebalance()
        rows.filter(col("x") >= 0, name="slow").rebalance().sink(op.collect(), name="out")
    checkpoint = flow.Checkpointing(flow.MemoryStore(), every="20ms", timeout="100ms")
    return p.start(flow.LocalRunner(slow={"slow": "50ms"}), checkpoint=checkpoint)


def test_a_checkpoint_that_expires_is_settled_by_all_tasks() -> None:
    with pytest.warns(CheckpointsFailedWarning), expiring() as job:
        assert job.wait().table("out").num_rows == 10


def _without_cancels(mailbox: Mailbox[TaskMessage]) -> TaskMessage | None:
    while isinstance(message := Mailbox.take(mailbox), AbortCheckpoint):
        pass
    return message


def test_a_cancel_that_does_not_reach_a_task_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    receive = Task._receive

    def lose_cancels(task: Task, now: int) -> bool:
        if task.name == "out[0]":
            task.mailbox.take = lambda: _without_cancels(task.mailbox)  # type: ignore[method-assign]
        return receive(task, now)

    monkeypatch.setattr(Task, "_receive", lose_cancels)
    monkeypatch.setattr(Task, "_cancel", lambda task, checkpoint: None)  # the one that follows the rows
    with pytest.raises(LivenessBroken, match=r"out\[0\] has not settled checkpoint"), expiring() as job:
        job.wait()
