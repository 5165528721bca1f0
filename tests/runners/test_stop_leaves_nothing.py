"""After ``stop()`` nothing of unfinished work is left: no folder beyond ``keep``, no part, no staged file."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.runners.faults import Faults
from dataflow.runtime.task.progress import JobState
from tests.seeds import seeds

ROWS = 400_000


def pipeline(out: Path, count: int = ROWS) -> flow.Pipeline:
    with flow.Pipeline("numbers") as p:
        rows = op.paced(op.from_arrow(pa.table({"n": range(count)}), batch_rows=200), 100_000)
        kept = p.source(rows, name="numbers").rebalance().filter(flow.col("n") >= 0, name="all")
        kept.sink(op.write_parquet(out, row_group_rows=500), name="out")
    return p


def leftovers(path: Path, keep: int) -> list[str]:
    """Return the remains that should not be there: parts without a manifest, folders beyond ``keep``, staged rows."""
    folders = sorted((path / "ckpt").glob("chk-*"))
    unfinished = [folder.name for folder in folders if not (folder / "manifest.json").exists()]
    beyond = [folder.name for folder in folders[:-keep]]
    return [*unfinished, *beyond, *(file.name for file in (path / "out" / "_staging").glob("*.staged"))]


@pytest.mark.parametrize("seed", seeds(1, 20))
def test_a_job_that_is_stopped_at_any_moment_leaves_nothing_unfinished(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(3):
        settings = flow.Checkpointing(
            tmp_path / "ckpt", every="1ms", keep=draw.choice([1, 2]), max_concurrent=draw.choice([1, 3])
        )
        with pipeline(tmp_path / "out").start(parallelism=2, checkpoint=settings) as job:
            stop_at = draw.randrange(200, 8_000)
            while job.progress().rows_in < stop_at:
                pass
            assert job.stop().state is JobState.STOPPED
        assert leftovers(tmp_path, settings.keep) == []


@pytest.mark.parametrize("seed", seeds(2, 100))
def test_a_simulated_job_that_is_stopped_leaves_nothing_unfinished(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    concurrent, last = draw.choice([1, 3]), draw.randrange(1, 8)
    settings = flow.Checkpointing(tmp_path / "ckpt", every="1ms", keep=1, max_concurrent=concurrent)
    runner = flow.SimulatedRunner(seed, Faults(slow=0.3, skew=0.3, stall=0.01))
    job = pipeline(tmp_path / "out").start(runner, parallelism=2, checkpoint=settings)
    job.stop_when(lambda state: state.snapshot >= last)
    assert job.wait().state is JobState.STOPPED
    assert leftovers(tmp_path, 1) == []


@pytest.mark.parametrize("seed", [16, 42, 50, *seeds(0, 200)])
def test_a_job_that_is_stopped_as_its_input_ends_leaves_nothing_unfinished(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    rows, concurrent = draw.choice([200, 400, 600, 1000]), random.Random(seed).choice([1, 3])
    settings = flow.Checkpointing(tmp_path / "ckpt", every="1ms", keep=1, max_concurrent=concurrent)
    runner = flow.SimulatedRunner(seed, Faults(slow=0.3, skew=0.3, stall=0.01))
    job = pipeline(tmp_path / "out", count=rows).start(runner, parallelism=2, checkpoint=settings)
    job.stop_when(lambda state: True)
    assert job.wait().state in (JobState.STOPPED, JobState.FINISHED)
    assert leftovers(tmp_path, 1) == []
