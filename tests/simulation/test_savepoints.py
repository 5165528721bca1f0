"""Savepoints on seeded schedules, with crashes at each step of a copy, and jobs that are restored from one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.checkpointing import Mode
from dataflow.runners.faults import Faults
from dataflow.runners.simulated import SimulatedJob, SimulatedRunner
from dataflow.runtime.task.crash_points import Point
from dataflow.store.folder import CheckpointFolder
from dataflow.testing import Pause, ScriptedSource
from operators.sinks.parquet import read_committed
from tests.seeds import each_once_with_seeds
from tests.simulation.jobs import MODES

SCRIPTS = 3
BATCHES = 8


def scripts() -> list[list[Any]]:
    """Rows of several splits, in pairs, with pauses between."""

    def pair(split: int, number: int) -> pa.RecordBatch:
        at = pa.array([number * 2, number * 2 + 1], pa.timestamp("s"))
        return pa.record_batch({"k": [number % 3, split], "at": at, "x": [1, 10]})

    return [[entry for n in range(BATCHES) for entry in (pair(s, n), Pause(5))] for s in range(SCRIPTS)]


def pipeline(out: Path) -> flow.Pipeline:
    """Sums by key and window, and totals of all rows."""
    with flow.Pipeline("sums") as p:
        rows = p.source(ScriptedSource(*scripts()), name="in").with_watermark("at", name="timed")
        windows = rows.key_by("k").window(op.tumbling("4s"))
        windows.agg(flow.col("x").sum().alias("x"), name="sums").sink(op.write_parquet(out), name="out")
        totals = rows.key_by("k").agg(flow.col("x").sum().alias("x"), emit="updates", name="totals")
        totals.sink(op.collect(), name="totals of keys")
    return p


def written(out: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in read_committed(out).to_pylist())


def started(directory: Path, seed: int, mode: str, faults: Faults | None = None, **options: Any) -> SimulatedJob:
    settings = flow.Checkpointing(directory / "ckpt", every="6ms", mode=mode, keep=1, max_concurrent=1 + seed % 3)
    runner = SimulatedRunner(seed, faults, max_turns=100_000)
    return runner.start(pipeline(directory / "out"), checkpoint=settings, parallelism=2, **options)


def is_savepoint(path: Path) -> bool:
    """Whether there is a savepoint, which is then whole."""
    folder = CheckpointFolder(path)
    return folder.exists and folder.verify().kind == "savepoint"


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, ...]]:
    directory = tmp_path_factory.mktemp("expected")
    started(directory, 0, "aligned").wait()
    return written(directory / "out")


class Watched:
    """Looks at the directory of a savepoint whenever a process has ended."""

    def __init__(self, job: SimulatedJob, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[bool] = []
        end = job._discard_attempt

        def end_and_look() -> None:
            end()
            self.seen.append(is_savepoint(path))

        monkeypatch.setattr(job, "_discard_attempt", end_and_look)


@pytest.mark.filterwarnings("ignore::dataflow.errors.RowsTakenBackWarning")  # of rows committed after the savepoint
@pytest.mark.parametrize(("seed", "mode"), each_once_with_seeds(60, MODES))
def test_a_savepoint_survives_crashes_at_each_step_of_its_copy_and_restores_elsewhere(
    seed: int, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: list[tuple[Any, ...]]
) -> None:
    faults = Faults(crashes=3, crash_at=[Point.EXPORT], crash_after=[0], skew=0.3, slow=0.2)
    job = started(tmp_path, seed, mode, faults)
    watched = Watched(job, tmp_path / "saved", monkeypatch)
    asked = job.savepoint(tmp_path / "saved", after=seed % 3)
    job.wait()
    saved = asked.result(0)
    assert watched.seen == sorted(watched.seen), "a savepoint that was there is gone"
    assert watched.seen[-1]
    assert (saved.kind, saved.mode.value) == ("savepoint", mode)
    assert ("at least once" in repr(saved)) == (mode == Mode.UNALIGNED.value)
    assert mode == Mode.UNALIGNED.value or written(tmp_path / "out") == expected
    (tmp_path / "ckpt").rename(tmp_path / "old")
    again = started(tmp_path, seed + 1, mode, restore=tmp_path / "saved", take_back=True)
    again.wait()
    report = again.attempts[0].restored
    assert report is not None
    assert (report.checkpoint, report.in_flight_rows) == (saved.id, 0)
    assert mode == Mode.UNALIGNED.value or written(tmp_path / "out") == expected


@pytest.mark.parametrize(("seed", "mode"), each_once_with_seeds(60, MODES, default=1))
def test_a_job_stopped_or_drained_to_a_savepoint_ends_there(
    seed: int, mode: str, tmp_path: Path, expected: list[tuple[Any, ...]]
) -> None:
    stopped = started(tmp_path, seed, mode).stop(savepoint=tmp_path / "stopped", after=1)
    assert stopped.savepoint is not None
    store = flow.DirectoryStore(tmp_path / "ckpt")
    assert store.checkpoints()[-1] == stopped.savepoint.id
    drained = started(tmp_path, seed + 1, mode).stop(savepoint=tmp_path / "drained", drain=True)
    assert drained.savepoint is not None
    assert (drained.state.value, drained.savepoint.finished, drained.savepoint.kind) == ("finished", True, "savepoint")
    out = written(tmp_path / "out")
    (tmp_path / "ckpt").rename(tmp_path / "old")
    again = started(tmp_path, seed, mode, restore=tmp_path / "drained").wait()
    assert again.rows_in == {"in": 0}
    assert written(tmp_path / "out") == out
