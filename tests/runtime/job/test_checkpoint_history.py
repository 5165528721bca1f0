"""Records of checkpoints do not grow with the age of a job, and the totals still cover all of them."""

from __future__ import annotations

import random

import dataflow as flow
import operators as op
from dataflow.clock import ManualClock
from dataflow.protocol.coordinator_actions import FailureReason, Inject
from dataflow.protocol.events import BarrierKind
from dataflow.runtime.job import checkpoint_history
from dataflow.runtime.job.checkpoint_attempts import CheckpointTotals
from dataflow.runtime.job.checkpoint_history import CheckpointHistory
from dataflow.runtime.task.messages import Acknowledged, TaskStats
from dataflow.store.manifest import PartHandle
from tests.forcing import Force


def test_totals_cover_records_that_are_not_kept(force: Force) -> None:
    force(checkpoint_history, "KEPT", 10, calls=CheckpointTotals.with_checkpoints)
    force(checkpoint_history, "KEPT", 10, calls=CheckpointTotals.with_failures)
    clock, rng = ManualClock(), random.Random(1)
    history, expected = (
        CheckpointHistory(["t"], clock),
        {"sizes": [0], "waits": [0], "writes": [0], "rows": [0], "cpu": [0]},
    )
    durations, failed = [0], 0
    for n in range(1, 200):
        history.start(Inject(n, BarrierKind.CHECKPOINT, clock.now(), ("t",), (), ()))
        clock.advance(took := rng.randrange(1_000))
        if rng.random() < 0.2:
            history.drop(n, FailureReason.IO)
            failed += 1
            continue
        size, wait, write, rows, cpu = (rng.randrange(100) for _ in range(5))
        stats = TaskStats(size=size, queued=wait, write=write, in_flight_rows=rows, copy_cpu=cpu, write_cpu=2 * cpu)
        history.acknowledged(Acknowledged("t", n, (PartHandle("t", "f", 1, ""),), {}, stats))
        history.mark_durable(n)
        history.forget(n)
        durations.append(took)
        for name, value in zip(expected, (size, wait, write, rows, cpu), strict=True):
            expected[name].append(value)
    rows = expected["rows"]
    assert (len(history.checkpoints), len(history.failures)) == (10, 10)
    assert history.totals == CheckpointTotals(
        completed=len(durations) - 1,
        failed=failed,
        bytes=sum(expected["sizes"]),
        slowest=max(durations),
        longest_wait=max(expected["waits"]),
        longest_write=max(expected["writes"]),
        copy_cpu=sum(expected["cpu"]),
        write_cpu=2 * sum(expected["cpu"]),
        stored_rows=sum(n > 0 for n in rows),
        in_flight_rows=sum(rows),
        most_in_flight=max(rows),
        duplicated=0,
    )
    assert (history.completed, history.failed) == (history.totals.completed, history.totals.failed)


def test_a_summary_says_how_many_records_are_not_kept(force: Force) -> None:
    import pyarrow as pa

    force(checkpoint_history, "KEPT", 3, calls=CheckpointTotals.with_checkpoints)
    with flow.Pipeline("long") as p:
        p.source(op.from_arrow(pa.table({"x": range(400)}), batch_rows=2), name="in").sink(op.collect(), name="out")
    result = p.run(flow.SimulatedRunner(1), checkpoint=flow.Checkpointing(flow.MemoryStore(), every="100us"))
    done = result.totals.completed
    assert len(result.checkpoints) == 3 < done
    assert f"checkpoints: {done} completed, 0 failed, slowest " in str(result)
    assert f"(the records of {done - 3:,} are not kept)" in str(result)
    assert result.to_dict()["checkpoints"]["not_listed"] == done - 3
