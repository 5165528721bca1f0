"""A long run in a process of its own, whose memory is watched: first while rows flow, then while checkpoints are taken.

Reads a ``Task`` as JSON and prints ``Figures`` as JSON. Both parts run the job of `benchmarks.checkpoints` with a fixed
number of keys. In the second part the sources are halted, so the figures are those of checkpoints alone.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from benchmarks.checkpoints.gate import Gate
from benchmarks.checkpoints.job import COUNTS, start
from benchmarks.checkpoints.settings import STOP_THE_WORLD, Setting
from benchmarks.memory import resident
from dataflow.errors import JobCancelled
from dataflow.runners.local_job import LocalJob

__all__ = ["Figures", "Mark", "Task", "deep_size", "run"]

KEYS = 100_000
INTERVAL = 200
"""Milliseconds between two checkpoints while rows flow."""
SAMPLES = 40
"""Samples of the memory while rows flow. The first quarter is warm-up."""


@dataclass(frozen=True)
class Task:
    """What a child does: ``seconds`` with rows, then as many checkpoints as the last of ``marks`` says."""

    seconds: float
    marks: list[int]
    folder: str
    keys: int = KEYS


@dataclass(frozen=True)
class Mark:
    """The state of the run after ``count`` rows or checkpoints: resident memory, bytes kept per checkpoint, CPU."""

    count: int
    rss: int
    kept: int
    cpu: float


@dataclass(frozen=True)
class Figures:
    """The samples of both parts."""

    flowing: list[Mark]
    halted: list[Mark]


def run(task: Task) -> Figures:
    """Watch the job of ``task``."""
    gate = Gate(2)
    setting = Setting(interval=INTERVAL, keys=task.keys)
    job, source = start("aligned", setting, gate, Path(task.folder, "flowing"))
    with job:
        while _rows(job) < 2 * source.pool_rows:
            time.sleep(0.01)
        flowing = []
        for _ in range(SAMPLES):
            time.sleep(task.seconds / SAMPLES)
            flowing.append(_mark(job, _rows(job)))
        gate.lift()
        _cancel(job)
    return Figures(flowing, _halted(task, setting))


def _halted(task: Task, setting: Setting) -> list[Mark]:
    """Return the marks of a job that only takes checkpoints."""
    gate = Gate(2)
    job, source = start(STOP_THE_WORLD, setting, gate, Path(task.folder, "halted"))
    marks = []
    with job:
        while _rows(job) < 2 * source.pool_rows:
            time.sleep(0.01)
        gate.halt()
        job.checkpoint()
        spent = time.process_time()
        for count in range(1, max(task.marks) + 1):
            job.checkpoint()
            if count in task.marks:
                mark = _mark(job, count)
                marks.append(Mark(count, mark.rss, mark.kept, mark.cpu - spent))
        gate.lift()
        _cancel(job)
    return marks


def _cancel(job: LocalJob) -> None:
    job.cancel()
    with suppress(JobCancelled):
        job.wait()


def _rows(job: LocalJob) -> int:
    return sum(o.rows_in for task in job.metrics() for o in task.operators if o.operator == COUNTS)


def _mark(job: LocalJob, count: int) -> Mark:
    cpu = time.process_time()  # before the walk through the records
    return Mark(count, resident(), deep_size(job.checkpoints), cpu)


def deep_size(values: Sequence[object]) -> int:
    """Return the bytes of ``values`` and of all that they refer to, each object once.

    >>> deep_size([]) == sys.getsizeof([])
    True
    """
    seen: set[int] = set()
    todo: list[Any] = [values]
    total = 0
    while todo:
        value = todo.pop()
        if id(value) in seen or isinstance(value, type | ModuleType | FunctionType):
            continue
        seen.add(id(value))
        total += sys.getsizeof(value)
        todo += gc.get_referents(value)
    return total


if __name__ == "__main__":
    print(json.dumps(asdict(run(Task(**json.load(sys.stdin))))))
