"""One measurement in a process of its own: the job is warmed up, then observed for some seconds, then cancelled.

Reads a ``Task`` as JSON and prints ``Figures`` as JSON. The warm-up lasts until every row of the source was read once,
so the state has its full size. Start, end and restore are not measured.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean

from benchmarks.checkpoints.gate import Gate
from benchmarks.checkpoints.halting import HaltingCheckpoints
from benchmarks.checkpoints.job import COUNTS, start
from benchmarks.checkpoints.settings import STOP_THE_WORLD, Setting
from benchmarks.memory import peak_rss
from dataflow.errors import JobCancelled
from dataflow.runners.local_job import LocalJob
from dataflow.runtime.job.checkpoint_attempts import CheckpointRecord
from dataflow.runtime.task.progress import JobState

__all__ = ["Figures", "Task", "run"]


@dataclass(frozen=True)
class Task:
    """What a child does; ``setting`` has the fields of a `Setting`, ``folder`` is an empty directory."""

    variant: str
    setting: dict[str, float]
    seconds: float
    folder: str
    warm_up: float = 0.5
    """The least seconds of a warm-up."""


@dataclass(frozen=True)
class Figures:
    """The figures of one measurement: rates per second of the window, times in milliseconds, sizes in bytes.

    ``hold`` is how long a checkpoint held rows up: with stop-the-world the time from the halt until all sources moved
    again, else the longest alignment and copy of a task. Means over the checkpoints of the window; None without any.
    """

    rows_per_second: float
    cpu_ns_per_row: float
    checkpoints_per_second: float
    failed: int
    duration: float | None
    hold: float | None
    size: float | None
    in_flight: float | None
    window: float
    peak_rss: int
    load_before: float
    load_after: float


def run(task: Task) -> Figures:
    """Measure ``task``."""
    setting = Setting(**task.setting)  # type: ignore[arg-type]
    load = os.getloadavg()[0]
    gate = Gate(setting.parallelism)
    job, source = start(task.variant, setting, gate, Path(task.folder, "checkpoints"))
    halting = HaltingCheckpoints(job, gate, setting.interval / 1e3) if task.variant == STOP_THE_WORLD else None
    with job:
        _warm_up(job, source.pool_rows * setting.parallelism, task.warm_up)
        if halting is not None:
            halting.start()
            time.sleep(task.warm_up)
        rows, cpu, started, done = _rows(job), time.process_time(), time.perf_counter(), len(job.checkpoints)
        halts = 0 if halting is None else len(halting.halts)
        time.sleep(task.seconds)
        rows, cpu, window = _rows(job) - rows, time.process_time() - cpu, time.perf_counter() - started
        records = job.checkpoints[done:]
        held = [record.alignment + record.copy for record in records] if halting is None else halting.halts[halts:]
        if halting is not None:
            halting.end()
        failed = job._job.history.failed  # of the whole run, because a failure is rare
        job.cancel()
        with suppress(JobCancelled):
            job.wait()
    hold = _mean(held, 1e-3 if halting is None else 1e3)
    return Figures(
        rows / window,
        cpu * 1e9 / max(rows, 1),
        len(records) / window,
        failed,
        _mean([record.duration for record in records], 1e-3),
        hold,
        *_sizes(records),
        window,
        peak_rss(),
        load,
        os.getloadavg()[0],
    )


def _warm_up(job: LocalJob, rows: int, seconds: float) -> None:
    """Wait until ``rows`` rows reached the large state, and ``seconds`` seconds passed.

    Raises: the error of the job, if it failed.
    """
    earliest = time.perf_counter() + seconds
    while _rows(job) < rows or time.perf_counter() < earliest:
        if job.state is not JobState.RUNNING:
            job.wait()
        time.sleep(0.02)


def _rows(job: LocalJob) -> int:
    return sum(o.rows_in for task in job.metrics() for o in task.operators if o.operator == COUNTS)


def _sizes(records: Sequence[CheckpointRecord]) -> tuple[float | None, float | None]:
    return _mean([record.size for record in records]), _mean([record.in_flight_bytes for record in records])


def _mean(values: Sequence[float], factor: float = 1.0) -> float | None:
    return mean(values) * factor if values else None


if __name__ == "__main__":
    print(json.dumps(asdict(run(Task(**json.load(sys.stdin))))))
