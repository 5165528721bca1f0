"""One measurement in a process of its own: a warm-up over few rows, then the job once, with the clock running.

Reads a ``Task`` as JSON and prints a ``Figures`` as JSON. What is measured: wall and CPU seconds of the second run, and
the highest resident memory of the whole process. The answer is left as Parquet files for the parent to compare.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.memory import peak_rss

__all__ = ["OURS", "TUNED", "Figures", "Task"]

OURS, TUNED = "ours", "ours, tuned"
"""This engine with the settings that nobody changes, and with those of an expert."""

STEP = "200ms"
"""If tuned: room for a whole batch of 1 Mi rows, also on a busy machine: the more rows are folded by key at a time, the
fewer are left to be sent. A barrier waits for one step, on two quiet cores some 20 ms."""


@dataclass(frozen=True)
class Task:
    """What a child is to do; ``folder`` is an empty directory of its own."""

    engine: str
    job: str
    files: list[str]
    warm_up: list[str]
    folder: str


@dataclass(frozen=True)
class Figures:
    """What a child found. Times in seconds, sizes in bytes; ``load`` is the machine's over the last minute.

    ``checkpoints`` has the duration of each completed checkpoint; rivals have none.
    """

    engine: str
    job: str
    wall: float
    cpu: float
    peak_rss: int
    load_before: float
    load_after: float
    checkpoints: list[float] = field(default_factory=list)
    failed_checkpoints: int = 0
    summary: str = ""


def run(task: Task) -> Figures:
    """Warm up, measure, and leave the answer in ``folder/answer``."""
    folder = Path(task.folder)
    _once(task, [Path(file) for file in task.warm_up], folder / "warm-up")
    load = os.getloadavg()[0]
    spent, started = time.process_time(), time.perf_counter()
    table, ran = _once(task, [Path(file) for file in task.files], folder / "answer")
    wall, cpu, peak = time.perf_counter() - started, time.process_time() - spent, peak_rss()
    if table is not None:
        pq.write_table(table, folder / "answer" / "table.parquet")
    return Figures(task.engine, task.job, wall, cpu, peak, load, os.getloadavg()[0], **ran)


def _once(task: Task, files: Sequence[Path], target: Path) -> tuple[pa.Table | None, dict[str, object]]:
    from benchmarks.jobs.ours import JOBS, Answer
    from benchmarks.jobs.rivals import RIVALS

    target.mkdir()
    in_files = JOBS[task.job].answer is Answer.IN_FILES
    if task.engine in RIVALS:
        return RIVALS[task.engine](task.job, files, target / "table.parquet" if in_files else None), {}
    return _ours(task, files, target, target if in_files else None)


def _ours(
    task: Task, files: Sequence[Path], place: Path, target: Path | None
) -> tuple[pa.Table | None, dict[str, object]]:
    import dataflow as flow
    import operators as op
    from benchmarks.jobs.ours import JOBS

    kept = place.parent / f"{place.name}-checkpoints"
    with flow.Pipeline(task.job) as p:
        job = JOBS[task.job]
        build = job.variants.get(task.engine, job.stream)
        stream = build(p, files, tuned=task.engine == TUNED)
        in_memory = op.collect(net=stream.changes == "signed")
        stream.sink(in_memory if target is None else op.write_parquet(target / "files"), name="answer")
    runner = flow.LocalRunner(step_budget=STEP) if task.engine == TUNED else flow.LocalRunner()
    result = p.run(runner, parallelism=2, checkpoint=flow.Checkpointing(kept, every="1s", mode="aligned"))
    return (
        result.table("answer") if target is None else None,
        {
            "checkpoints": [record.duration / 1e6 for record in result.checkpoints],
            "failed_checkpoints": len(result.failures),
            "summary": str(result),
        },
    )


if __name__ == "__main__":
    print(json.dumps(asdict(run(Task(**json.load(sys.stdin))))))
