"""One measurement, in a process of its own: ``python -m benchmarks.latency.child`` with a task as JSON on its input."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

import dataflow as flow
import operators as op
from benchmarks.latency.sources import KEYS, Arriving, Lone, batch_of
from dataflow import Operator, Sink, col
from dataflow.arrow_values import to_array, to_numbers
from dataflow.contracts.operator import OperatorContext, Out
from dataflow.errors import EndlessInputWarning

__all__ = ["BARE", "FILTER", "IDLE", "KEYED", "LONE", "QUEUED", "TIMED", "Figures", "Task", "run"]

FILTER, KEYED = "filter", "keyed"
QUEUED, TIMED, LONE, BARE, IDLE = "queued", "timed", "lone", "bare", "idle"
ROWS = 1_000
"""Rows of a small batch."""
PAUSE = 0.01
"""Seconds between two batches that arrive one by one."""


@dataclass(frozen=True)
class Task:
    """What to measure.

    ``filter`` and ``keyed``: the latency at ``rate`` rows a second. ``queued``, ``timed``, ``lone`` and ``bare``: the
    CPU time of a batch. ``idle``: the share of a core.
    """

    kind: str
    parallelism: int
    rate: float = 0.0
    seconds: float = 0.0
    batches: int = 0


@dataclass(frozen=True)
class Figures:
    """Latencies in milliseconds; CPU seconds a second; CPU microseconds a batch; what was not measured is None."""

    load: float
    rows: int | None = None
    p50: float | None = None
    p99: float | None = None
    p999: float | None = None
    most: float | None = None
    cores: float | None = None
    per_batch: float | None = None


class _Timed(Operator):
    """Records how late each row is, without ``np.asarray``, by which pyarrow would import pandas at the first row."""

    def __init__(self, context: OperatorContext, seen: list[np.ndarray]) -> None:
        super().__init__(context)
        self._seen = seen

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        self._seen.append(time.monotonic_ns() - to_numbers(batch.column("due")))


class _TimedSink(Sink):
    """Takes rows and keeps nothing but their latency."""

    def __init__(self) -> None:
        self.seen: list[np.ndarray] = []

    def writer(self, context: OperatorContext) -> Operator:
        return _Timed(context, self.seen)


def run(task: Task) -> Figures:
    """Measure ``task``."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="barrierflow-latency-") as folder:
        if task.kind in (FILTER, KEYED):
            return _latency(task, Path(folder), load)
        if task.kind == IDLE:
            return Figures(load, cores=_idle(task, Path(folder)))
        if task.kind == BARE:
            return Figures(load, per_batch=_bare(task.batches))
        _batches(task, min(task.batches, 100))  # kernels are loaded now
        return Figures(load, per_batch=_batches(task, task.batches))


def _checkpointing(folder: Path) -> flow.Checkpointing:
    return flow.Checkpointing(folder / "checkpoints", every="1s")


def _latency(task: Task, folder: Path, load: float) -> Figures:
    sink = _TimedSink()
    with flow.Pipeline("latency") as p:
        rows = p.source(Arriving(task.rate, task.seconds, task.parallelism), name="arriving")
        if task.kind == FILTER:
            rows = rows.filter(col("key") % 10 != 0).with_columns(twice=col("key") * 2)
        else:
            counted = rows.key_by("key").agg(
                op.count().alias("n"), col("due").max().alias("due"), emit="updates", name="counts"
            )
            rows = counted.as_rows()
        rows.sink(sink, name="timed")
    spent, started = time.process_time(), time.monotonic()
    p.run(parallelism=task.parallelism, checkpoint=_checkpointing(folder))
    cores = (time.process_time() - spent) / (time.monotonic() - started)
    late = np.concatenate(sink.seen) / 1e6
    p50, p99, p999, most = (float(figure) for figure in np.percentile(late, [50, 99, 99.9, 100]))
    return Figures(load, len(late), p50, p99, p999, most, cores)


def _idle(task: Task, folder: Path) -> float:
    inbox = folder / "inbox"
    inbox.mkdir()
    (inbox / "first.csv").write_text("key\n1\n")
    with flow.Pipeline("idle") as p:
        counted = (
            p.source(op.watch(inbox, op.read_csv), name="inbox")
            .key_by("key")
            .agg(op.count().alias("n"), emit="updates", name="counts")
        )
        counted.as_rows().sink(op.write_parquet(folder / "out"), name="out")
    job = p.start(parallelism=task.parallelism, checkpoint=_checkpointing(folder))
    quiet = threading.Event()
    try:
        quiet.wait(min(3.0, task.seconds))  # the file is read, kernels are loaded
        spent = time.process_time()
        quiet.wait(task.seconds)
        return (time.process_time() - spent) / task.seconds
    finally:
        job.stop()
        job.wait()


def _batches(task: Task, batches: int) -> float:
    """Return the microseconds of CPU time that the job takes for each batch."""
    if task.kind == LONE:
        source: flow.Source = Lone(batches, ROWS, PAUSE)
    else:
        table = pa.Table.from_batches([batch_of(batches * ROWS, 1)])
        if task.kind == TIMED:
            table = table.append_column("at", to_array(np.arange(batches * ROWS), pa.timestamp("us")))
        source = op.from_arrow(table, batch_rows=ROWS, splits=task.parallelism)
    with flow.Pipeline("batches") as p:
        rows = p.source(source, name="batches")
        if task.kind == TIMED:
            rows = rows.with_watermark("at", delay="1ms")
        rows.key_by("key").agg(
            op.count().alias("n"), col("value").sum().alias("total"), emit="final", name="counts"
        ).sink(op.collect(), name="answer")
    spent = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EndlessInputWarning)  # Lone says so of itself, to be polled as it comes
        result = p.run(parallelism=task.parallelism)
    cpu = time.process_time() - spent
    counted = sum(result.tables["answer"]["n"].to_pylist())
    assert counted == batches * ROWS, f"{counted} rows were counted, not {batches * ROWS}"
    return cpu / batches * 1e6


def _bare(batches: int) -> float:
    """Return the microseconds of CPU time that NumPy takes for each lone batch, in a thread that sleeps in between.

    It is the limit of what an engine in Python can reach: a processor that wakes up for a batch has lost its caches.
    """
    made = [batch_of(ROWS, seed) for seed in range(16)]
    counts, totals = np.zeros(KEYS, np.int64), np.zeros(KEYS)
    spent = time.process_time()
    for number in range(batches):
        time.sleep(PAUSE)
        batch = made[number % len(made)]
        keys, values = to_numbers(batch.column("key")), to_numbers(batch.column("value"))
        counts += np.bincount(keys, minlength=KEYS)
        totals += np.bincount(keys, weights=values, minlength=KEYS)
    cpu = time.process_time() - spent
    assert counts.sum() == batches * ROWS, f"{counts.sum()} rows were counted, not {batches * ROWS}"
    return cpu / batches * 1e6


if __name__ == "__main__":
    print(json.dumps(asdict(run(Task(**json.load(sys.stdin))))))
