"""One measurement in a process of its own: a warm-up, then the baseline, then the job, with the clock running.

Reads a ``Task`` as JSON and prints ``Figures`` as JSON. The warm-up runs the baseline once, so that kernels are loaded.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.growth.families import FAMILIES, OURS, Shape
from benchmarks.growth.inputs import files
from benchmarks.growth.queries import by_duckdb, by_ours, expected
from benchmarks.memory import peak_rss

__all__ = ["Figures", "Task", "run"]


@dataclass(frozen=True)
class Task:
    """What a child does; ``inputs`` is where rows are stored, ``folder`` an empty directory of its own."""

    engine: str
    family: str
    size: int
    inputs: str
    folder: str


@dataclass(frozen=True)
class Figures:
    """Wall and CPU seconds of the job and of its baseline; resident memory in bytes, before the job and at most."""

    wall: float
    cpu: float
    baseline_wall: float
    baseline_cpu: float
    rss_before: int
    peak_rss: int
    load_before: float
    load_after: float


def run(task: Task) -> Figures:
    """Measure ``task``. Raises: AssertionError if the answer is wrong."""
    family = FAMILIES[task.family]
    baseline = family.baseline(task.size)
    load = os.getloadavg()[0]
    _timed(task, baseline, "warm-up")
    baseline_wall, baseline_cpu = _timed(task, baseline, "baseline")
    before = peak_rss()
    wall, cpu = _timed(task, family.shape(task.size), "job")
    return Figures(wall, cpu, baseline_wall, baseline_cpu, before, peak_rss(), load, os.getloadavg()[0])


def _timed(task: Task, shape: Shape, name: str) -> tuple[float, float]:
    paths = files(shape, Path(task.inputs))
    spent, started = time.process_time(), time.perf_counter()
    answer = by_ours(shape, paths, Path(task.folder, name)) if task.engine == OURS else by_duckdb(shape, paths)
    wall, cpu = time.perf_counter() - started, time.process_time() - spent
    assert answer == expected(shape, paths), (task, shape, answer, expected(shape, paths))
    return wall, cpu


if __name__ == "__main__":
    print(json.dumps(asdict(run(Task(**json.load(sys.stdin))))))
