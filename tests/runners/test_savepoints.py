"""Savepoints on threads: what the job does while it takes one, and what other jobs do with it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow.testing import Pause, ScriptedSource
from operators.sinks.parquet import read_committed


def batch(*rows: tuple[str, int, int]) -> pa.RecordBatch:
    """Rows of key, second and value."""
    keys, seconds, values = zip(*rows, strict=True)
    return pa.record_batch({"k": keys, "t": pa.array(seconds, pa.timestamp("s")), "x": values})


ROWS = batch(("a", 0, 1), ("b", 1, 2), ("a", 2, 3))
LAST = batch(("a", 9, 10))


def windows(out: Path, source: Any = None) -> flow.Pipeline:
    """Sums of windows of five seconds, written to files."""
    with flow.Pipeline("sums") as p:
        rows = p.source(ScriptedSource([ROWS, Pause(10**7), LAST]) if source is None else source, name="in")
        timed = rows.with_watermark("t", name="timed")
        sums = timed.key_by("k").window(op.tumbling("5s")).agg(flow.col("x").sum().alias("x"), name="sums")
        sums.sink(op.write_parquet(out), name="out")
    return p


def settings(path: Any, **options: Any) -> flow.Checkpointing:
    return flow.Checkpointing(path, **{"every": None, **options})


def written(out: Path) -> list[tuple[str, int]]:
    table = read_committed(out)
    return sorted(zip(table["k"].to_pylist(), table["x"].to_pylist(), strict=True))


def files(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


# --- a savepoint of a running job


def test_a_savepoint_is_a_committed_checkpoint_of_the_job_and_a_copy_that_restores_elsewhere(tmp_path: Path) -> None:
    ckpt, saved_at, out = tmp_path / "ckpt", tmp_path / "saves" / "first", tmp_path / "out"
    with windows(out).start(checkpoint=settings(ckpt, keep=1)) as job:
        first = job.checkpoint(timeout="10s")
        saved = job.savepoint(saved_at, timeout="10s")
        assert (saved.id, saved.kind, str(saved.status)) == (first + 1, "savepoint", "whole")
        store = flow.DirectoryStore(ckpt)
        assert (store.checkpoints(), store.manifest(saved.id).kind) == ([saved.id], "checkpoint")
        before = files(saved_at)
        job.stop()
    with windows(out).start(checkpoint=settings(ckpt)) as job:
        assert job.restore_report is not None
        assert job.restore_report.checkpoint == saved.id + 1
    source = ScriptedSource([ROWS, LAST])
    shutil.rmtree(ckpt)
    result = windows(tmp_path / "moved", source).run(checkpoint=settings(ckpt), restore=saved_at)
    assert result.restore_report is not None
    assert result.restore_report.checkpoint == saved.id
    assert flow.DirectoryStore(ckpt).checkpoints()[0] > saved.id
    assert written(tmp_path / "moved") == [("a", 4), ("a", 10), ("b", 2)]
    assert files(saved_at) == before
