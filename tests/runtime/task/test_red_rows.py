"""Rows that a restore would deliver twice are kept for as long as a checkpoint may count them, and no longer."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.clock import ManualClock
from dataflow.contracts.checkpointing import Mode
from dataflow.planning.physical_plan import make_plan
from dataflow.protocol.coordinator_actions import FailureReason
from dataflow.protocol.events import Data
from dataflow.protocol.red_log import Omitted, RedLog
from dataflow.runners.binding import LIBRARY
from dataflow.runners.faults import Faults
from dataflow.runners.simulated import SimulatedRunner
from dataflow.runtime.job.build_job import Settings, build
from dataflow.runtime.job.job import Job
from dataflow.runtime.restore.job_ids import random_id
from dataflow.runtime.task.messages import Declined
from tests.seeds import in_soak


def test_a_sample_keeps_few_rows_and_counts_them_all() -> None:
    log: RedLog[str] = RedLog(sample=3)
    for _ in range(4):
        log.record("a", Data(["x", "y"], epoch=1))
    log.record("a", Data(["z"], epoch=2))
    taken = log.take(1)["a"]
    assert [len(data.rows) for data in taken] == [2, 2, 2, 2, 1]
    assert [isinstance(data.rows, Omitted) for data in taken] == [False, False, True, True, False]


@pytest.mark.parametrize("mode", list(Mode))
def test_only_the_mode_that_delivers_rows_again_has_logs_of_them(mode: Mode) -> None:
    logged = [n.name for t in stepping(mode.value).tasks.values() for n in t.chain.nodes if n.red is not None]
    assert logged == (["same", "out"] if mode is Mode.UNALIGNED else [])


def test_a_checkpoint_that_came_to_nothing_holds_no_rows() -> None:
    job = stepping("unaligned")
    while rows_in(job) < 20:
        step(job)
    wanted = job.checkpoint()
    while not job.history.under_way:
        job.step()
    (refused,) = job.history.under_way
    job.mailbox.put(Declined("left[0]", refused, FailureReason.IO, "no"))
    while not job.over:
        step(job)
        nodes = [n for t in job.tasks.values() for n in t.chain.nodes if rows_in(job) > 300]
        held = {n.name: len(n.red.take(0)) for n in nodes if n.red is not None}
        assert not any(held.values()), held
    assert wanted.exception() is not None


def stepping(mode: str) -> Job:
    """Two sources, a union with an operator and a sink chained behind it."""
    with flow.Pipeline("red") as p:
        left, right = (p.source(op.from_arrow(NUMBERS, batch_rows=2), name=name) for name in ("left", "right"))
        both = left.union(right, name="both").map_batches(lambda batch: batch, name="same")
        both.sink(op.collect(), name="out")
    settings = Settings(
        make_id=random_id,
        library=LIBRARY,
        pipeline="red",
        run_id="r",
        checkpointing=flow.Checkpointing(flow.MemoryStore(), mode=mode),
        restore="auto",
        clock=ManualClock(),
        submit=lambda lane, job: job(),
    )
    return build(make_plan(p.graph), settings)


NUMBERS = pa.table({"n": range(200)})


def step(job: Job) -> None:
    for task in job.tasks.values():
        task.step()
    job.step()


def rows_in(job: Job) -> int:
    return job.tasks["both[0]"].chain.head.tally.rows_in


class Either(flow.Operator):
    """Takes two inputs of different columns."""

    def __init__(self, context: flow.OperatorContext) -> None: ...

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        out.emit(pa.record_batch({"port": [port] * batch.num_rows}))


@pytest.mark.parametrize("seeds", [12, *in_soak(60)])
def test_the_report_shows_rows_of_inputs_with_different_columns(seeds: int) -> None:
    with flow.Pipeline("either") as p:
        a = p.source(op.from_arrow(pa.table({"a": range(60)}), batch_rows=3), name="a")
        b = p.source(op.from_arrow(pa.table({"b": range(60)}), batch_rows=3), name="b")
        a.apply(Either, b, schema=pa.schema({"port": pa.int64()}), name="either").sink(op.collect(), name="out")

    def report(seed: int) -> Any:
        settings = flow.Checkpointing(flow.MemoryStore(), every="1ms", mode="unaligned", duplicates="rows")
        return p.run(SimulatedRunner(seed, Faults(crashes=1)), checkpoint=settings).restore_report

    found = [r for r in map(report, range(seeds)) if r and len({d.channel for d in r.duplicates}) > 1]
    assert found, "no seed had duplicates on both inputs"
    assert all(r.rows("either").num_rows == r.duplicated("either") for r in found)
