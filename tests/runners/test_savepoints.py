"""Savepoints on threads: what the job does while it takes one, and what other jobs do with it."""

from __future__ import annotations

import errno
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import dataflow as flow
import operators as op
from dataflow.cli import main
from dataflow.errors import CheckpointsExist, ConfigurationError, DirectoryInUse, StoreError
from dataflow.store.export import Export
from dataflow.store.files import FileSystem
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


def test_a_savepoint_is_refused_where_it_would_harm_something_and_nothing_changes(tmp_path: Path) -> None:
    out, taken, file = tmp_path / "out", tmp_path / "taken", tmp_path / "file"
    file.write_text("mine")
    with windows(out).start(checkpoint=settings(tmp_path / "ckpt")) as job:
        job.savepoint(taken, timeout="10s")
        before = files(tmp_path)
        refused = [(taken, CheckpointsExist), (file, ConfigurationError), (tmp_path, ConfigurationError)]
        refused += [(tmp_path / inside, ConfigurationError) for inside in ("ckpt", "ckpt/new", "out", "out/new")]
        for path, error in refused:
            with pytest.raises(error, match=re.escape(str(path))):
                job.savepoint(path, timeout="10s")
        held = Export(tmp_path / "held")
        held.reserve()
        with pytest.raises(DirectoryInUse, match="another savepoint"):
            job.savepoint(tmp_path / "held")
        held.release()
        assert files(tmp_path) == before
    with windows(tmp_path / "plain").start() as job, pytest.raises(ConfigurationError, match="checkpoint="):
        job.savepoint(tmp_path / "none")
    with windows(tmp_path / "plain2").start(checkpoint=settings(flow.MemoryStore())) as job:
        with pytest.raises(ConfigurationError, match="needs savepoint="):
            job.stop(drain=True)
        with pytest.raises(TimeoutError, match="no savepoint in"):
            job.savepoint(tmp_path / "late", timeout="0s")
        assert not (tmp_path / "late").exists()
        assert job.savepoint(tmp_path / "late", timeout="10s").kind == "savepoint"


def test_a_stop_whose_savepoint_fails_leaves_the_job_running(tmp_path: Path) -> None:
    class Full(FileSystem):
        def write(self, file: Any, data: Any, offset: int) -> int:
            if "saved" in str(file.name):
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(file, data, offset)

    store = flow.DirectoryStore(tmp_path / "ckpt", files=Full())
    with windows(tmp_path / "out").start(checkpoint=settings(store)) as job:
        with pytest.raises(StoreError, match=r"checkpoint 1 of .*the disk is full"):
            job.stop(savepoint=tmp_path / "saved")
        assert not (tmp_path / "saved").exists()
        assert job.state.value == "running"
        result = job.stop(savepoint=tmp_path / "other")
    assert result.savepoint is not None
    assert (result.state.value, result.savepoint.id) == ("stopped", 2)
    assert f"savepoint: checkpoint 2 in {tmp_path / 'other'}" in str(result)
    assert result.to_dict()["savepoint"] == str(tmp_path / "other")
    assert not list((tmp_path / "out").glob("*.parquet"))  # no window fired


def test_a_drain_fires_windows_and_ends_the_job_with_a_savepoint_of_a_finished_job(tmp_path: Path) -> None:
    with windows(tmp_path / "out").start(checkpoint=settings(flow.MemoryStore())) as job:
        job.savepoint(tmp_path / "first", timeout="10s")
        result = job.stop(savepoint=tmp_path / "drained", drain=True)
    assert result.savepoint is not None
    assert (result.state.value, result.savepoint.finished) == ("finished", True)
    assert written(tmp_path / "out") == [("a", 4), ("b", 2)]


def test_the_commands_that_read_checkpoints_read_a_savepoint_and_none_changes_it(tmp_path: Path) -> None:
    with windows(tmp_path / "out").start(checkpoint=settings(flow.MemoryStore())) as job:
        job.savepoint(tmp_path / "saved", timeout="10s")
    before = files(tmp_path / "saved")
    for words in (["show"], ["show", "1"], ["ls"], ["verify"]):
        command, *ids = words
        result = CliRunner().invoke(main, ["checkpoints", command, str(tmp_path / "saved"), *ids])
        assert (result.exit_code, "whole" in result.output, result.exception) == (0, True, None), result.output
    refused = CliRunner().invoke(main, ["checkpoints", "rm", str(tmp_path / "saved"), "1", "--yes"])
    assert refused.exit_code
    assert files(tmp_path / "saved") == before
