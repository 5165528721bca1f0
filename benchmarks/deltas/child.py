"""One measurement in a process of its own: reads a ``Task`` as JSON, and prints its figures as JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.checkpoints.gate import Gate
from benchmarks.deltas.job import PARALLELISM, cancel, kept, keys_of, rows_of, source_of, start, wait_for
from benchmarks.deltas.one_task import OneTask
from dataflow.runtime.job.checkpoint_attempts import CheckpointTotals

__all__ = ["BASE", "DELTA", "PREPARE", "RESTORE", "RUN", "Ran", "Restored", "Task", "run"]

BASE, DELTA, PREPARE, RESTORE, RUN = "base", "delta", "prepare", "restore", "run"

WARM_UP = 2.0
"""Seconds that a job runs at least before it is measured."""


@dataclass(frozen=True)
class Task:
    """What a child does, in ``folder``.

    BASE: write ``repeats`` bases of one task. DELTA: write ``repeats`` deltas, each after ``percent`` of the keys have
    changed. PREPARE: write the checkpoint of a job. RESTORE: restore it. RUN: run a job for ``seconds``, with a
    checkpoint every ``interval`` milliseconds; 0: without. ``folded``: see `benchmarks.deltas.job.start`.
    """

    kind: str
    keys: int
    folder: str
    percent: float = 0.0
    repeats: int = 1
    interval: int = 0
    seconds: float = 0.0
    folded: bool = False


@dataclass(frozen=True)
class Restored:
    """A restore: seconds until the job had its state, and until it was started; bytes that it read."""

    state: float
    started: float
    size: int


@dataclass(frozen=True)
class Ran:
    """A run: rows a second and CPU nanoseconds a row; shares of the CPU time in snapshot steps and in writers."""

    rows_per_second: float
    cpu_ns_per_row: float
    checkpoints: int
    failed: int
    snapshots: float
    writers: float


def run(task: Task) -> dict[str, Any]:
    """Return the figures of ``task``, and the load of the machine before it."""
    load = os.getloadavg()[0]
    return {**_KINDS[task.kind](task), "load_before": load}


def _one_task(task: Task) -> Mapping[str, Any]:
    one = OneTask(task.keys, Path(task.folder, "one-task"))
    taken = one.bases(task.repeats) if task.kind == BASE else one.deltas(task.percent, task.repeats)
    found = [asdict(each) for each in taken]
    one.close()
    return {"taken": found}


def _prepare(task: Task) -> Mapping[str, Any]:
    """Take one checkpoint of a job that has all keys."""
    gate = Gate(PARALLELISM)
    with start(source_of(task.keys, gate), kept(task.folder)) as job:
        wait_for(job, lambda: sum(keys_of(job)) == task.keys)
        gate.halt()
        job.checkpoint()
        gate.lift()
        cancel(job)
    return {}


def _restore(task: Task) -> Mapping[str, Any]:
    """Restore the checkpoint of PREPARE. The source is small here: what it returns afterwards does not matter."""
    size = _read_all(Path(task.folder))
    source = source_of(1, Gate(PARALLELISM))
    started = time.perf_counter()
    with start(source, kept(task.folder), restore="latest") as job:
        whole, report = time.perf_counter() - started, job.restore_report
        assert report is not None, "the job started without a restore"
        assert report.duration is not None, report
        keys = keys_of(job)
        cancel(job)
    assert len(keys) == PARALLELISM, keys
    assert min(keys) > 0, keys
    assert sum(keys) == task.keys, f"restored {keys} keys, expected {task.keys} in all"
    return asdict(Restored(report.duration / 1e6, whole, size))


def _read_all(folder: Path) -> int:
    """Read every file, so that the restore finds it in the page cache; return the bytes."""
    return sum(len(path.read_bytes()) for path in sorted(folder.rglob("*")) if path.is_file())


def _run(task: Task) -> Mapping[str, Any]:
    gate = Gate(PARALLELISM)
    source = source_of(task.keys, gate)
    every = kept(task.folder, f"{task.interval}ms") if task.interval else None
    with start(source, every, folded=task.folded) as job:
        warm = time.monotonic() + min(task.seconds, WARM_UP)
        wait_for(job, lambda: rows_of(job) >= PARALLELISM * source.pool_rows and time.monotonic() > warm)
        rows, done, cpu, started = rows_of(job), _totals(job), time.process_time(), time.perf_counter()
        time.sleep(task.seconds)
        rows, after = rows_of(job) - rows, _totals(job)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - started
        gate.lift()
        cancel(job)
    shares = [(after.copy_cpu - done.copy_cpu) / 1e6 / cpu, (after.write_cpu - done.write_cpu) / 1e6 / cpu]
    taken, failed = after.completed - done.completed, after.failed - done.failed
    return asdict(Ran(rows / wall, cpu * 1e9 / max(rows, 1), taken, failed, *shares))


def _totals(job: Any) -> CheckpointTotals:
    totals: CheckpointTotals = job._job.history.totals
    return totals


_KINDS: Mapping[str, Callable[[Task], Mapping[str, Any]]] = {
    BASE: _one_task,
    DELTA: _one_task,
    PREPARE: _prepare,
    RESTORE: _restore,
    RUN: _run,
}


if __name__ == "__main__":
    print(json.dumps(run(Task(**json.load(sys.stdin)))))
