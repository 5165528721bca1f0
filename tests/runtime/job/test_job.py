"""One real job whose tasks do not step: what it says to tasks, store and sinks, when it hears this or that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.clock import ManualClock
from dataflow.contracts.checkpointing import Mode
from dataflow.errors import JobCancelled, StoreError
from dataflow.planning.physical_plan import make_plan
from dataflow.protocol.coordinator_actions import FailureReason
from dataflow.protocol.events import Barrier, BarrierKind
from dataflow.runners.binding import LIBRARY
from dataflow.runtime.job.build_job import Settings, build
from dataflow.runtime.job.job import Job
from dataflow.runtime.restore.job_ids import random_id
from dataflow.runtime.task.kernel_loading import KernelLoader
from dataflow.runtime.task.messages import (
    Acknowledged,
    Committed,
    Crashed,
    Declined,
    Ended,
    Enough,
    Stop,
    TaskStats,
    Trigger,
)
from dataflow.runtime.task.progress import JobState
from dataflow.store.manifest import Manifest
from dataflow.testing import Ledger, ledger_sink

SOURCE, SINK = "rows[0]", "sums[0]"
TABLE = pa.table({"k": [0, 1], "x": [1, 2]})


class Store(flow.MemoryStore):
    """Refuses manifests while it is ``full``."""

    def __init__(self) -> None:
        super().__init__()
        self.full: Exception | None = None

    def commit(self, manifest: Manifest) -> None:
        if self.full is not None:
            raise self.full
        super().commit(manifest)


class Rig:
    """The job, what it put into the mailboxes of its tasks, and the background work it submitted."""

    def __init__(self, *, sink: bool = True, checkpointed: bool = True, mode: str = "aligned", **settings: Any) -> None:
        self.store, self.clock, self.ledger = Store(), ManualClock(), Ledger(fault=self._fault)
        self.lanes: list[tuple[str, Callable[[], None]]] = []
        self.closed = False
        self.commits: list[str] = []
        with flow.Pipeline("totals") as p:
            sums = (
                p.source(op.from_arrow(TABLE), name="rows")
                .key_by("k")
                .agg(col("x").sum().alias("total"), emit="final", name="sums")
            )
            sums.sink(ledger_sink(self.ledger) if sink else op.collect(), name="out")
        checkpointing = flow.Checkpointing(self.store, every="1h", mode=mode, **settings) if checkpointed else None
        self.job: Job = build(
            make_plan(p.graph, parallelism=1, max_key_groups=128),
            Settings(
                "totals",
                "run",
                checkpointing,
                "never",
                self.clock,
                lambda lane, job: self.lanes.append((lane, job)),
                make_id=random_id,
                library=LIBRARY,
            ),
        )

    def _fault(self, what: str) -> None:
        if what == "commit":
            self.commits.append(what)
            if self.closed:
                raise StoreError("not now")

    def hear(self, *messages: Any) -> bool:
        """One step of the job, after it was told this."""
        for message in messages:
            self.job.mailbox.put(message)
        return self.job.step()

    def said(self, task: str = SINK) -> list[Any]:
        """What the task was told since the last look."""
        mailbox = self.job.tasks[task].mailbox
        return list(iter(mailbox.take, None))

    def background(self) -> list[str]:
        """Run what was submitted, and let the job hear of it; answers the lanes."""
        jobs, self.lanes[:] = list(self.lanes), []
        for _, job in jobs:
            job()
        self.job.step()
        return [lane for lane, _ in jobs]

    def acknowledge(self, n: int, **handles: Sequence[Any]) -> Rig:
        for task in (SOURCE, SINK):
            part = self.store.write(n, task, b"part of " + task.encode())
            self.hear(Acknowledged(task, n, (part,), handles if task == SINK else {}, TaskStats(size=10)))
        return self

    def staged(self) -> Any:
        """The handle of a transaction that a sink has prepared."""
        return self.ledger.prepare(1, 0, [])

    def asked(self, kind: BarrierKind = BarrierKind.CHECKPOINT) -> Any:
        """A future of a checkpoint, which has been triggered."""
        future = self.job.checkpoint(kind)
        self.job.step()
        return future


def test_a_trigger_goes_to_the_sources_alone() -> None:
    rig = Rig()
    rig.clock.advance(7)
    rig.asked()
    assert rig.said(SOURCE) == [Trigger(Barrier(1, triggered_at=7), finished=False)]
    assert rig.said(SINK) == []


@pytest.mark.parametrize("mode", [mode.value for mode in Mode])
def test_only_unaligned_persisted_barriers_are_born_to_overtake_and_savepoints_never(mode: str) -> None:
    rig = Rig(mode=mode, max_concurrent=2)
    rig.asked()
    rig.asked(BarrierKind.SAVEPOINT)
    born = [message.barrier.unaligned for message in rig.said(SOURCE)]
    assert born == [mode == "unaligned-persisted", False]


def test_a_task_that_finished_is_told_so_with_the_trigger() -> None:
    rig = Rig()
    rig.hear(Ended(SOURCE))
    rig.asked()
    assert rig.said(SOURCE) == [Trigger(Barrier(1), finished=True)]
    assert rig.said(SINK) == [Trigger(Barrier(1), finished=False)]


# --- the order of success


def test_the_manifest_is_durable_before_a_sink_commits_and_the_asker_hears_of_it_last() -> None:
    rig = Rig()
    future = rig.asked()
    rig.acknowledge(1, out=[rig.staged()])
    assert (rig.store.checkpoints(), [lane for lane, _ in rig.lanes]) == ([], ["store"])
    assert rig.background() == ["store"]
    assert (rig.store.checkpoints(), rig.commits, future.done()) == ([1], [], False)
    assert rig.background() == ["commit"]
    assert (rig.commits, future.result(0), rig.said()) == (["commit"], 1, [Committed(1)])


def test_without_a_sink_that_commits_the_manifest_is_all() -> None:
    rig = Rig(sink=False)
    future = rig.asked()
    rig.acknowledge(1).background()
    assert (future.result(0), rig.said(), rig.lanes) == (1, [Committed(1)], [])


def test_the_manifest_names_the_parts_in_the_order_of_the_plan_and_what_the_sinks_must_commit() -> None:
    rig = Rig()
    staged = rig.staged()
    rig.asked()
    rig.clock.advance(3)
    rig.acknowledge(1, out=[staged]).background()
    manifest = rig.store.manifest(1)
    assert [part.task for part in manifest.parts] == [SOURCE, SINK]
    assert (manifest.kind, manifest.finished, manifest.transactions) == ("checkpoint", False, {"out": [staged]})
    assert (manifest.mode, manifest.guarantee) == ("aligned", "exactly once")
    assert (manifest.pipeline, manifest.run_id) == ("totals", "run")
    assert (manifest.summary["bytes"], manifest.summary["triggered_to_acknowledged_us"]) == (20, 3)
    assert {node["name"] for node in manifest.nodes} >= {"rows", "sums", "out"}


def test_the_record_of_a_checkpoint_knows_how_long_it_took_and_its_size() -> None:
    rig = Rig()
    rig.asked()
    rig.clock.advance(5)
    rig.acknowledge(1)
    rig.clock.advance(4)
    rig.background()
    (record,) = rig.job.history.checkpoints
    assert (record.checkpoint, record.kind, record.duration, record.size) == (1, BarrierKind.CHECKPOINT, 9, 20)


def test_what_is_pending_names_the_tasks_it_waits_for_until_it_is_durable() -> None:
    rig = Rig()
    rig.asked()
    assert rig.job.history.under_way == {1: [SOURCE, SINK]}
    rig.hear(Acknowledged(SINK, 1, (rig.store.write(1, SINK, b""),)))
    assert rig.job.history.under_way == {1: [SOURCE]}
    rig.hear(Acknowledged(SOURCE, 1, (rig.store.write(1, SOURCE, b""),)))
    rig.background()
    assert rig.job.history.under_way == {}


def test_older_checkpoints_than_the_ones_to_keep_are_deleted() -> None:
    rig = Rig(sink=False, keep=1)
    for n in (1, 2):
        rig.asked()
        rig.acknowledge(n).background()
    rig.background()
    assert rig.store.checkpoints() == [2]


def test_a_job_that_stops_before_an_older_checkpoint_is_deleted_deletes_it_at_the_end() -> None:
    rig = Rig(sink=False, keep=1)
    rig.asked()
    rig.acknowledge(1).background()
    rig.job.stop()
    rig.job.step()
    rig.acknowledge(2).background()
    assert (rig.job.state, rig.store.checkpoints()) == (JobState.STOPPED, [1, 2])
    rig.job.close()
    assert rig.store.checkpoints() == [2]


def test_a_savepoint_is_a_checkpoint_of_the_store_that_waits_for_its_commit() -> None:
    rig = Rig()
    future = rig.asked(BarrierKind.SAVEPOINT)
    rig.acknowledge(1).background()
    assert (future.done(), rig.store.manifest(1).kind) == (False, "checkpoint")
    rig.background()
    assert future.result(0) == 1


# --- the end


def ending(*, closed: bool = False) -> Rig:
    """A job whose tasks have ended, with its last checkpoint durable and its commit submitted."""
    rig = Rig()
    rig.closed = closed
    rig.hear(Ended(SOURCE), Ended(SINK))
    rig.said()
    rig.acknowledge(1, out=[rig.staged()]).background()
    return rig


def test_the_last_checkpoint_is_everybodys_and_its_commit_lets_the_tasks_stop() -> None:
    rig = Rig()
    rig.hear(Ended(SOURCE), Ended(SINK))
    assert rig.said() == [Trigger(Barrier(1, BarrierKind.FINAL), finished=True)]
    rig.acknowledge(1, out=[rig.staged()]).background()
    assert (rig.store.manifest(1).kind, rig.store.manifest(1).finished, rig.said()) == ("final", True, [])
    rig.background()
    assert rig.said() == [Committed(1), Stop()]


def test_the_job_is_finished_when_the_tasks_are_done() -> None:
    rig = ending()
    rig.background()
    rig.job.step()
    assert not rig.job.over
    for task in (SOURCE, SINK):
        assert not rig.job.over
        for _ in range(5):
            rig.job.tasks[task].step()
        rig.job.step()
    assert rig.job.state is JobState.FINISHED


def test_the_last_checkpoint_serves_a_request_that_met_tasks_just_ending() -> None:
    rig = Rig()
    requested = rig.asked()
    rig.hear(Declined(SOURCE, 1, FailureReason.NOT_READY), Ended(SOURCE), Ended(SINK))
    rig.acknowledge(2, out=[rig.staged()]).background()
    rig.background()
    for task in (SOURCE, SINK):
        for _ in range(5):
            rig.job.tasks[task].step()
    rig.job.step()
    assert (rig.job.state, requested.result(0)) == (JobState.FINISHED, 2)


# --- endings


def test_a_task_that_crashed_fails_the_job_with_its_error_and_the_first_one_counts() -> None:
    rig, first = Rig(), ValueError("first")
    future = rig.asked()
    rig.hear(Crashed(SINK, first), Crashed(SOURCE, ValueError("second")))
    assert (rig.job.state, rig.job.error, future.exception(0)) == (JobState.FAILED, first, first)


def test_a_job_fails_once() -> None:
    rig, first = Rig(), ValueError("first")
    rig.job.fail(first)
    rig.job.fail(ValueError("second"), JobState.CANCELLED)
    assert (rig.job.state, rig.job.error) == (JobState.FAILED, first)


def test_who_waits_for_a_checkpoint_of_a_job_that_stopped_hears_so() -> None:
    rig = Rig()
    future = rig.asked()
    rig.hear(Enough(SINK))
    with pytest.raises(JobCancelled, match="the job is stopped"):
        future.result(0)


def test_a_job_that_is_over_does_nothing_more() -> None:
    rig = Rig()
    rig.clock.advance(3_600_000_000)
    assert rig.hear(Enough(SINK), Ended(SOURCE), Ended(SINK)) is True
    assert rig.job.state is JobState.STOPPED
    assert rig.hear(Ended(SOURCE), Ended(SINK)) is False
    assert (rig.said(), rig.said(SOURCE)) == ([], [])


def test_an_idle_job_says_so() -> None:
    assert [Rig().job.step(), Rig().hear(Ended(SOURCE))] == [False, True]


def test_a_periodic_checkpoint_is_work() -> None:
    rig = Rig()
    rig.clock.advance(3_600_000_000)
    assert rig.job.step() is True
    assert [message.barrier.checkpoint for message in rig.said(SOURCE)] == [1]


class Elsewhere(KernelLoader):
    """Modules that another thread imports."""

    def run(self) -> None: ...


def test_the_time_to_the_first_periodic_checkpoint_begins_when_the_kernels_are_loaded() -> None:
    rig = Rig()
    rig.job.loading = Elsewhere(["kernels_of_a_test"])
    rig.job.step()
    rig.clock.advance(3_600_000_000)
    rig.job.loading.done = True
    rig.job.step()
    assert rig.said(SOURCE) == []
    rig.clock.advance(3_600_000_000)
    rig.job.step()
    assert [message.barrier.checkpoint for message in rig.said(SOURCE)] == [1]


def test_a_cancelled_job_refuses_who_waits() -> None:
    rig = Rig()
    future = rig.asked()
    rig.job.cancel("enough of it")
    rig.job.step()
    assert rig.job.state is JobState.CANCELLED
    with pytest.raises(JobCancelled, match="enough of it"):
        future.result(0)


def test_a_stop_takes_a_checkpoint_first_and_only_one() -> None:
    rig = Rig()
    rig.job.stop()
    rig.job.stop()
    rig.job.step()
    assert rig.said(SOURCE) == [Trigger(Barrier(1), finished=False)]
    rig.acknowledge(1, out=[rig.staged()]).background()
    assert not rig.job.over
    rig.background()
    assert (rig.job.state, rig.job.error, rig.lanes) == (JobState.STOPPED, None, [])


def test_the_checkpoint_of_a_stop_serves_earlier_requests_whose_own_it_overtook() -> None:
    rig = Rig(max_concurrent=2)
    requested = rig.asked()
    rig.job.stop()
    rig.job.step()
    rig.hear(Declined(SINK, 1, FailureReason.SUBSUMED, "a higher checkpoint came first"))
    rig.clock.advance(1_000_000)
    rig.job.step()
    assert [m.barrier.checkpoint for m in rig.said(SOURCE) if isinstance(m, Trigger)] == [1, 2]
    rig.acknowledge(2, out=[rig.staged()]).background()
    rig.background()
    assert (rig.job.state, requested.result(0)) == (JobState.STOPPED, 2)


def test_the_checkpoint_of_a_stop_serves_requests_that_were_about_to_be_made_again() -> None:
    rig = Rig(max_concurrent=2)
    requested, saved = rig.asked(), rig.asked(BarrierKind.SAVEPOINT)
    rig.job.stop()
    rig.job.step()
    for n in (1, 2):
        rig.hear(Declined(SINK, n, FailureReason.SUBSUMED, "a higher checkpoint came first"))
    rig.acknowledge(3, out=[rig.staged()]).background()
    rig.background()
    assert (rig.job.state, requested.result(0)) == (JobState.STOPPED, 3)
    assert isinstance(saved.exception(0), JobCancelled)


def test_a_stop_whose_checkpoint_comes_to_nothing_fails() -> None:
    rig = Rig()
    rig.job.stop()
    rig.job.step()
    rig.hear(Declined(SINK, 1, FailureReason.IO, "disk full"))
    assert rig.job.state is JobState.FAILED
    assert "disk full" in str(rig.job.error)


def test_a_stop_without_checkpoints_is_a_cancel() -> None:
    rig = Rig(checkpointed=False)
    rig.job.stop()
    rig.job.step()
    assert rig.job.state is JobState.CANCELLED
    assert "without checkpoints" in str(rig.job.error)
