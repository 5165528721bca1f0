"""How long a checkpoint takes behind a consumer of 100 us a row whose queue is full: aligned, and overtaking.

Two jobs of the same pipeline run side by side, one a mode; their consumers sleep, so neither takes the processor from
the other. A round takes an aligned checkpoint, then an unaligned one, and both are durable (a directory, fsync) and
committed when they are over. The queue holds ``queue`` batches of ``BATCH`` rows, all of which stand ahead of the
barrier; how many bytes that is, and how long the consumer needs for it, is in ``extra_info``, beside the ratio of the
medians.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.operator import Operator, OperatorContext, Out
from dataflow.runners.local_job import LocalJob

BATCH = 500
COST = 100e-6
"""Seconds a row."""
ROUNDS = 7


class Slow(Operator):
    """Passes its rows on, ``COST`` seconds a row."""

    stateless = True
    blocking = True

    def __init__(self, context: OperatorContext) -> None:
        pass

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        time.sleep(batch.num_rows * COST)
        out.emit(batch)


@contextmanager
def running(mode: str, queue: int, checkpoints: Path) -> Iterator[LocalJob]:
    """A job whose queue of ``queue`` batches is full."""
    rows = pa.table({"id": pa.array(range(2_000_000), pa.int64()), "price": pa.array(range(2_000_000), pa.int64())})
    with flow.Pipeline("slow consumer") as p:
        slow = p.source(op.from_arrow(rows, batch_rows=BATCH), name="in").rebalance().apply(Slow, name="slow")
        slow.filter(col("id") < 0).sink(op.collect(), name="out")  # no row is left that would be state
    settings = flow.Checkpointing(checkpoints, mode=mode, keep=1)
    with p.start(checkpoint=settings, channel_credit=queue) as job:
        refill(job)
        yield job


def refill(job: LocalJob) -> None:
    """Wait until the source had to wait again: the queue is full."""
    waited = job.metrics()[0].meter.back_pressured
    while job.metrics()[0].meter.back_pressured == waited:
        time.sleep(0.01)


@pytest.mark.benchmark(group="checkpoint behind a full queue")
@pytest.mark.parametrize("queue", [15, 30, 60])
def bench_unaligned_beside_aligned(
    benchmark: Any, queue: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds, queue = (1, 2) if benchmark.disabled else (ROUNDS, queue)
    with (
        running("aligned", queue, tmp_path / "aligned") as aligned,
        running("unaligned-persisted", queue, tmp_path / "overtaking") as overtaking,
    ):

        def setup() -> None:
            aligned.checkpoint()
            refill(overtaking)

        benchmark.pedantic(overtaking.checkpoint, setup=setup, rounds=rounds, iterations=1)
        theirs = [record.duration / 1e3 for record in aligned.checkpoints]
        ours = [record.duration / 1e3 for record in overtaking.checkpoints]
        newest = overtaking.checkpoints[-1]
    assert newest.in_flight_rows > 0, "nothing was in flight, so nothing was compared"
    benchmark.extra_info |= {
        "batch, rows": BATCH,
        "queue, batches": queue,
        "in flight, rows": newest.in_flight_rows,
        "in flight, bytes": newest.in_flight_bytes,
        "queued work, ms": round(newest.in_flight_rows * COST * 1e3),
        "aligned, ms, median": round(statistics.median(theirs), 1),
        "unaligned, ms, median": round(statistics.median(ours), 1),
        "unaligned, ms, worst": round(max(ours), 1),
        "aligned / unaligned": round(statistics.median(theirs) / statistics.median(ours), 1),
    }
    if not benchmark.disabled:
        with capsys.disabled():
            print("\n" + "; ".join(f"{name}: {value}" for name, value in benchmark.extra_info.items()))
