"""What a second run does: on the same directory, on the same pipeline object, with damage, with another pipeline."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import dataflow as flow
import dataflow.errors
import dataflow.testing
import operators as op
from dataflow import col
from dataflow.errors import (
    CheckpointMismatch,
    CheckpointsExist,
    CheckpointSkippedWarning,
    ConfigurationError,
    NoCheckpoint,
    OutputExists,
    RowsTakenBackWarning,
)
from dataflow.runners.faults import Faults
from dataflow.runners.simulated import SimulatedRunner
from dataflow.runtime.task.crash_points import Point
from dataflow.store.files import FileSystem
from operators.sinks.parquet import read_committed
from tests.seeds import seeds

ROWS = 120


class Breaks:
    """A function of batches that raises at row 90 until it is mended."""

    def __init__(self) -> None:
        self.broken = True

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.broken and 90 in batch["x"].to_pylist():
            raise RuntimeError("row 90 is too much")
        return batch


def pipeline(directory: Path, function: Any = lambda batch: batch, *, least: int = 0, extra: bool = False) -> Any:
    with flow.Pipeline("rows") as p:
        rows = p.source(op.from_arrow(pa.table({"x": range(ROWS)}), batch_rows=2), name="in").map_batches(function)
        rows = rows.filter(col("x") >= least) if extra else rows
        rows.rebalance().sink(op.write_parquet(directory / "out"), name="out")
    return p


def settings(directory: Path, **others: Any) -> flow.Checkpointing:
    return flow.Checkpointing(directory / "ckpt", **{"every": "1ms", "keep": 50, **others})


def simulate(p: flow.Pipeline, directory: Path, seed: int = 1, **options: Any) -> flow.RunResult:
    return p.run(SimulatedRunner(seed), checkpoint=settings(directory), parallelism=2, **options)


def died(directory: Path) -> list[int]:
    """A job that broke at row 90; answers the checkpoints it left."""
    with pytest.raises(RuntimeError, match="row 90"):
        simulate(pipeline(directory, Breaks()), directory)
    left = flow.DirectoryStore(directory / "ckpt").checkpoints()
    assert len(left) >= 3, f"only {left}"
    return left


def written(directory: Path) -> list[int]:
    rows: list[int] = read_committed(directory / "out")["x"].to_pylist()
    files = [pa.parquet.read_table(path)["x"].to_pylist() for path in (directory / "out").glob("*.parquet")]
    assert sorted(rows) == sorted(x for file in files for x in file)
    return sorted(rows)


def damage(directory: Path, checkpoint: int) -> None:
    """Flip a byte in a part."""
    part = sorted((directory / "ckpt" / f"chk-{checkpoint:08d}").glob("*.part"))[0]
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 0xFF
    part.write_bytes(data)


@pytest.mark.parametrize("runner", ["local", "simulated"])
def test_a_run_after_one_that_finished_reads_and_writes_nothing(tmp_path: Path, runner: str) -> None:
    p = pipeline(tmp_path)
    p.run(runner, checkpoint=settings(tmp_path))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.parquet")}
    again = p.run(runner, checkpoint=settings(tmp_path))
    assert again.rows_in == {"in": 0}
    assert again.restore_report is not None
    assert again.restore_report.finished
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.parquet")}
    assert written(tmp_path) == list(range(ROWS))


def test_the_state_of_windows_is_restored_after_the_end_of_the_input(tmp_path: Path) -> None:
    """After it all windows are complete, up to the last microsecond of 64 bits, the number of which is the last one."""
    table = pa.table({"x": range(ROWS), "at": pa.array(range(ROWS), pa.timestamp("us"))})
    with flow.Pipeline("ended") as p:
        rows = p.source(op.from_arrow(table, batch_rows=10), name="in").with_watermark("at")
        windows = rows.key_by("x").window(op.hopping("2us", every="1us")).agg(xs=col("x").to_list(), name="windows")
        first = windows.key_by("x").window(op.same_window()).top(1, by="x", name="first")
        first.sink(op.collect(), name="out")
    results = [simulate(p, tmp_path, restore=restore).table("out").num_rows for restore in ("auto", "latest")]
    assert results == [2 * ROWS] * 2


def test_a_directory_in_place_of_a_manifest_is_passed_over(tmp_path: Path) -> None:
    *_, last = died(tmp_path)
    manifest = tmp_path / "ckpt" / f"chk-{last:08d}" / "manifest.json"
    manifest.unlink()
    manifest.mkdir()
    with pytest.warns(CheckpointSkippedWarning), pytest.warns(RowsTakenBackWarning):
        report = simulate(pipeline(tmp_path), tmp_path).restore_report
    assert report is not None
    assert [skipped.checkpoint for skipped in report.passed_over] == [last]
    assert written(tmp_path) == list(range(ROWS))


def test_never_is_refused_where_there_are_checkpoints_and_touches_nothing(tmp_path: Path) -> None:
    left = died(tmp_path)
    with pytest.raises(CheckpointsExist, match="never"):
        simulate(pipeline(tmp_path), tmp_path, restore="never")
    assert flow.DirectoryStore(tmp_path / "ckpt").checkpoints() == left


def test_the_same_pipeline_object_runs_twice() -> None:
    with flow.Pipeline("twice") as p:
        p.source(op.from_arrow(pa.table({"x": [1, 2]}))).key_by("x").agg(op.count().alias("n")).sink(op.collect())
    assert p.run().table() == p.run().table()


def test_a_second_run_without_checkpoints_does_not_mix_its_output_with_the_first(tmp_path: Path) -> None:
    p = pipeline(tmp_path)
    p.run()
    with pytest.raises(OutputExists, match="append"):
        p.run()


def test_a_job_that_died_goes_on_with_auto(tmp_path: Path) -> None:
    left = died(tmp_path)
    result = simulate(pipeline(tmp_path), tmp_path)
    assert result.restore_report is not None
    assert result.restore_report.checkpoint == left[-1]
    assert written(tmp_path) == list(range(ROWS))


def test_a_checkpoint_of_another_pipeline_is_refused_with_what_differs(tmp_path: Path) -> None:
    died(tmp_path)
    with flow.Pipeline("other") as p:
        rows = p.source(op.from_arrow(pa.table({"x": range(ROWS)})), name="in")
        counts = rows.key_by("x").agg(op.count().alias("n"), name="counts")
        counts.select("n").sink(op.write_parquet(tmp_path / "out"), name="out")
    with pytest.raises(CheckpointMismatch, match="operator 'out': schema lost 'x'") as refused:
        simulate(p, tmp_path)
    assert "'rows'" in str(refused.value)


def test_a_stateless_filter_may_be_put_in(tmp_path: Path) -> None:
    died(tmp_path)
    result = simulate(pipeline(tmp_path, least=50, extra=True), tmp_path)
    assert result.restore_report is not None
    assert set(range(50, ROWS)) < set(written(tmp_path))


@pytest.mark.parametrize("form", [int, str, lambda n: Path(f"ckpt/chk-{n:08d}")], ids=["id", "digits", "path"])
def test_an_older_checkpoint_may_be_named_and_later_output_is_taken_back(tmp_path: Path, form: Any) -> None:
    older = died(tmp_path)[0]
    asked = form(older)
    with pytest.warns(RowsTakenBackWarning, match=rf"checkpoint {older} was restored, so \d+ rows in \d+ files?"):
        result = simulate(pipeline(tmp_path), tmp_path, restore=tmp_path / asked if isinstance(asked, Path) else asked)
    assert result.restore_report is not None
    assert result.restore_report.checkpoint == older
    assert written(tmp_path) == list(range(ROWS))


@pytest.mark.parametrize("runner", ["local", "simulated"])
def test_an_error_after_rows_were_taken_back_says_that_they_were(
    runner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(sink: Any, context: Any) -> Any:
        raise OSError("no room")

    older = died(tmp_path)[0]
    p = pipeline(tmp_path)
    monkeypatch.setattr(type(op.write_parquet(tmp_path / "out")), "writer", fail)
    with pytest.raises(OSError, match="no room") as raised:
        p.run(runner, checkpoint=settings(tmp_path), parallelism=2, restore=older)
    (note,) = [note for note in raised.value.__notes__ if note.startswith("RowsTakenBackWarning: ")]
    assert f"checkpoint {older} was restored, so " in note


def test_a_checkpoint_from_elsewhere_starts_a_directory_whose_ids_lie_above_it(tmp_path: Path) -> None:
    left = died(tmp_path)
    (tmp_path / "ckpt").rename(tmp_path / "old")
    result = simulate(pipeline(tmp_path), tmp_path, restore=tmp_path / "old" / f"chk-{left[-1]:08d}")
    assert result.checkpoints[0].checkpoint > left[-1]
    assert written(tmp_path) == list(range(ROWS))


@pytest.mark.parametrize("restore", ["latest", 3, "3"])
@pytest.mark.parametrize("runner", ["local", SimulatedRunner(1, Faults(crashes=1))])
def test_a_checkpoint_of_the_job_needs_checkpoint(runner: Any, restore: Any) -> None:
    rows = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1]})))
    name = restore if restore == "latest" else 3
    with pytest.raises(ConfigurationError, match=rf"restore={name!r} needs checkpoint=Checkpointing\(\.\.\.\)"):
        rows.collect(runner=runner, restore=restore)


def test_a_checkpoint_in_a_folder_needs_no_settings(tmp_path: Path) -> None:
    with flow.Pipeline() as p:
        p.source(op.from_arrow(pa.table({"x": [1, 2]})), name="in").sink(op.collect(), name="out")
    folder = tmp_path / f"chk-{p.run(checkpoint=flow.Checkpointing(tmp_path)).checkpoints[-1].checkpoint:08d}"
    assert p.run(restore=folder).restore_report is not None
    with pytest.raises(NoCheckpoint, match=r"there is no checkpoint in .*elsewhere; expected a folder"):
        p.run(restore="elsewhere")


@pytest.mark.parametrize("faults", [3, 0, "crash"])
def test_faults_of_another_type_are_refused_when_the_runner_is_made(faults: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"SimulatedRunner\(faults=\): expected Faults.*got {faults!r}"):
        SimulatedRunner(faults=faults)


@pytest.mark.parametrize("restore", ["latest", 3, "elsewhere/chk-00000001"])
def test_what_is_named_must_exist(tmp_path: Path, restore: Any) -> None:
    with pytest.raises(NoCheckpoint):
        simulate(pipeline(tmp_path), tmp_path, restore=restore)


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_a_damaged_newest_checkpoint_is_passed_over_loudly_and_no_row_comes_twice(tmp_path: Path, seed: int) -> None:
    left = died(tmp_path)
    before = written(tmp_path)
    damage(tmp_path, left[-1])
    damaged = rf"checkpoint {left[-1]} .* is damaged"
    with pytest.warns(CheckpointSkippedWarning, match=damaged), pytest.warns(RowsTakenBackWarning):
        result = simulate(pipeline(tmp_path), tmp_path, seed)
    assert result.restore_report is not None
    assert result.restore_report.checkpoint == left[-2]
    assert [skipped.checkpoint for skipped in result.restore_report.passed_over] == [left[-1]]
    assert before
    assert written(tmp_path) == list(range(ROWS))


def test_a_disk_that_does_not_answer_is_not_taken_for_damage(tmp_path: Path) -> None:
    class Unanswering(FileSystem):
        def read(self, path: Path) -> bytes:
            if path.suffix == ".part":
                raise OSError(errno.EIO, "the device failed", str(path))
            return super().read(path)

    died(tmp_path)
    store = flow.DirectoryStore(tmp_path / "ckpt", files=Unanswering())
    with pytest.raises(flow.errors.StoreError, match="cannot read"):
        pipeline(tmp_path).run(checkpoint=flow.Checkpointing(store), parallelism=2)


def test_a_savepoint_that_was_moved_into_the_directory_is_restored_only_if_it_is_named(tmp_path: Path) -> None:
    with flow.Pipeline("pausing") as p:
        script = [pa.record_batch({"x": [1]}), dataflow.testing.Pause(1_000_000)]
        p.source(dataflow.testing.ScriptedSource(script), name="in").sink(op.collect(), name="out")
    with flow.LocalRunner().start(p, checkpoint=settings(tmp_path, every=None)) as job:
        first = job.checkpoint(timeout="10s")
        saved = job.savepoint(tmp_path / "saved", timeout="10s")
    store = flow.DirectoryStore(tmp_path / "ckpt")
    shutil.rmtree(store.folder(saved.id).path)
    (tmp_path / "saved").rename(store.folder(saved.id).path)
    with flow.LocalRunner().start(p, checkpoint=settings(tmp_path, every=None)) as job:
        restored = job.stop().restore_report
    assert restored is not None
    assert restored.checkpoint == first
    assert saved.id in store.checkpoints()


@pytest.mark.parametrize("seed", seeds(2, 6))
def test_a_crash_while_going_back_does_not_bring_the_newer_checkpoint_back(tmp_path: Path, seed: int) -> None:
    older = died(tmp_path)[0]
    runner = SimulatedRunner(seed, Faults(crashes=1, crash_at=[Point.RECOVERY]))
    job = runner.start(pipeline(tmp_path), checkpoint=settings(tmp_path), parallelism=2, restore=older)
    job.wait()
    assert [attempt.crash for attempt in job.attempts] == ["recovery", None]
    assert written(tmp_path) == list(range(ROWS))
