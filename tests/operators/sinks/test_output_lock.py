"""Who may write into an output directory: one sink of one job, and only its own files count as its own."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.clock import ManualClock
from dataflow.contracts.operator import OperatorContext
from dataflow.contracts.sink import Handle
from dataflow.errors import DirectoryInUse, GraphError, OutputExists, StoreError
from dataflow.runners.simulated import Faults, SimulatedRunner
from dataflow.store.files import DISK
from dataflow.store.lock import DirectoryLock
from operators.sinks.file_writer import RowBuffer
from operators.sinks.parquet import read_committed, write_parquet
from tests.seeds import seeds

X = pa.schema({"x": pa.int64()})

HOLD = """
import subprocess, sys
import dataflow as flow, operators as op, pyarrow as pa

def wait(batch):
    subprocess.Popen([sys.executable, "-c", "input()"], close_fds=False)  # a child that outlives us
    print("held", flush=True)
    sys.stdin.read()

with flow.Pipeline("x") as p:
    rows = p.source(op.from_arrow(pa.table({"x": [1]})), name="in")
    rows.map_batches(wait).sink(op.write_parquet(sys.argv[1]), name="out")
p.run(checkpoint=flow.Checkpointing(sys.argv[2]))
"""


def pipeline(out: Path, function: Callable[[Any], Any] = lambda batch: batch, **options: Any) -> flow.Pipeline:
    with flow.Pipeline("rows") as p:
        rows = p.source(op.from_arrow(pa.table({"x": range(40)}), batch_rows=2), name="in").map_batches(function)
        rows.sink(op.write_parquet(out, **options), name="out")
    return p


def settings(path: Path) -> flow.Checkpointing:
    return flow.Checkpointing(path, every="1ms")


class Gate:
    """A function of batches that waits until it is let through."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.reached.set()
        assert self.opened.wait(60), "nobody opened the gate"
        return batch


@contextmanager
def running(p: flow.Pipeline, gate: Gate, **options: Any) -> Iterator[Any]:
    """A job that stands at ``gate``, and goes on to its end when the block is left."""
    with p.start(**options) as job:
        assert gate.reached.wait(60), "no row came"
        yield job
        gate.opened.set()
        job.wait(timeout="60s")


def free(out: Path) -> bool:
    """Whether a job could take the directory now."""
    with suppress(DirectoryInUse), write_parquet(out).hold("probe"):
        return True
    return False


# --- two sinks of one graph


@pytest.mark.parametrize("second", ["L", "./L/", "deep/../L", "link"])
def test_two_sinks_of_one_directory_are_refused(tmp_path: Path, monkeypatch: Any, second: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("L")
    p = flow.Pipeline("x")
    rows = p.source(op.from_arrow(pa.table({"x": [1]})))
    rows.sink(op.write_parquet("L"), name="first")
    rows.sink(op.write_parquet(second), name="second")
    with pytest.raises(GraphError, match=rf"'first' and 'second' both write to {tmp_path}/L and"):
        p.run()


def test_two_sinks_of_two_directories_are_not(tmp_path: Path) -> None:
    with flow.Pipeline("x") as p:
        rows = p.source(op.from_arrow(pa.table({"x": [1]})), name="in")
        for name in ("a", "b"):
            rows.sink(op.write_parquet(tmp_path / name), name=name)
    p.run()
    assert [read_committed(tmp_path / name)["x"].to_pylist() for name in ("a", "b")] == [[1], [1]]


# --- two jobs


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-c", HOLD, str(out), str(tmp_path / "a")]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(DirectoryInUse, match=rf"{out} is in use by process {holder.pid} on .* \(run '"):
            pipeline(out).run(checkpoint=settings(tmp_path / "b"))
        holder.kill()
        holder.wait()
        pipeline(out).run(checkpoint=settings(tmp_path / "b"))
    assert read_committed(out)["x"].to_pylist() == list(range(40))


@pytest.mark.parametrize("if_exists", ["error", "append", "overwrite"])
def test_one_pipeline_running_twice_at_once_is_refused_and_the_first_run_goes_on(
    tmp_path: Path, if_exists: str
) -> None:
    gate = Gate()
    p = pipeline(tmp_path / "out", gate, if_exists=if_exists)
    with running(p, gate, checkpoint=settings(tmp_path / "a")):
        for _ in range(2):
            with pytest.raises(DirectoryInUse, match="is in use by process"):
                p.start(checkpoint=settings(tmp_path / "b"))
        assert not free(tmp_path / "out")
    assert read_committed(tmp_path / "out")["x"].to_pylist() == list(range(40))
    assert free(tmp_path / "out")


def test_a_refused_job_leaves_its_other_directories_free(tmp_path: Path) -> None:
    with flow.Pipeline("x") as p:
        rows = p.source(op.from_arrow(pa.table({"x": [1]})), name="in")
        for name in ("a", "b"):
            rows.sink(op.write_parquet(tmp_path / name), name=name)
    with write_parquet(tmp_path / "b").hold("other"), pytest.raises(DirectoryInUse, match=r"/b is in use .*'other'"):
        p.run(checkpoint=settings(tmp_path / "ckpt"))
    assert free(tmp_path / "a")
    p.run(checkpoint=settings(tmp_path / "ckpt"))


def test_a_job_that_may_not_begin_lets_go(tmp_path: Path) -> None:
    pipeline(tmp_path / "out").run()
    with pytest.raises(OutputExists):
        pipeline(tmp_path / "out").run()
    assert free(tmp_path / "out")


def test_a_job_that_fails_lets_go(tmp_path: Path) -> None:
    def breaks(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        pipeline(tmp_path / "out", breaks).run()
    assert free(tmp_path / "out")


@pytest.mark.parametrize("seed", seeds(2, 6))
def test_a_simulated_crash_lets_go_as_a_real_one_does(tmp_path: Path, seed: int) -> None:
    job = pipeline(tmp_path / "out").start(
        SimulatedRunner(seed, Faults(crashes=3)), checkpoint=settings(tmp_path / "c")
    )
    job.wait()
    assert sorted(read_committed(tmp_path / "out")["x"].to_pylist()) == list(range(40)), f"seed {seed}"
    assert free(tmp_path / "out")


def test_a_lock_file_that_is_deleted_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (DirectoryLock(tmp_path, files=DISK, clock=ManualClock()) for _ in range(2))
    deleted: list[Path] = []
    take = fcntl.flock

    def flock(descriptor: int, operation: int) -> None:
        if not deleted:
            deleted.append(tmp_path / "LOCK")
            deleted[0].unlink()
        take(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    first.acquire("first")
    with pytest.raises(DirectoryInUse, match="'first'"):
        second.acquire("second")
    first.release()


def test_the_files_of_the_lock_are_no_output(tmp_path: Path) -> None:
    pipeline(tmp_path / "out").run()
    assert sorted(path.name for path in (tmp_path / "out" / "_staging").iterdir()) == ["FENCE", "LOCK"]
    assert len(list((tmp_path / "out").glob("**/*.parquet"))) == 1


def test_a_job_whose_lock_was_taken_away_commits_nothing(tmp_path: Path) -> None:
    sink = write_parquet(tmp_path)
    with sink.hold("first"):
        sink.begin()
        handles = staged(sink, "first", 1)
        (tmp_path / "_staging" / "LOCK").unlink()  # as a network file system may forget it
        with write_parquet(tmp_path).hold("second"), pytest.raises(DirectoryInUse, match=r"taken over by .*'second'"):
            sink.commit(1, handles)
    assert not list(tmp_path.glob("*.parquet"))


def test_a_job_whose_lock_was_taken_away_sweeps_nothing(tmp_path: Path) -> None:
    sink, successor = write_parquet(tmp_path), write_parquet(tmp_path)
    with sink.hold("first"):
        sink.begin()
        (tmp_path / "_staging" / "LOCK").unlink()
        with successor.hold("second"):
            handles = staged(successor, "second", 1)
            with pytest.raises(DirectoryInUse, match=r"taken over by .*'second'"):
                sink.sweep()
            successor.commit(1, handles)
    assert read_committed(tmp_path)["x"].to_pylist() == [1]


def test_a_commit_leaves_in_the_list_what_an_earlier_one_of_the_checkpoint_put_there(tmp_path: Path) -> None:
    sink = write_parquet(tmp_path)
    with sink.hold("run"):
        sink.begin()
        for value in (1, 2):
            sink.commit(1, staged(sink, "run", value))
    assert sorted(read_committed(tmp_path)["x"].to_pylist()) == [1, 2]


def test_a_commit_list_that_a_crash_left_half_written_is_removed(tmp_path: Path) -> None:
    (tmp_path / "_commits").mkdir()
    (tmp_path / "_commits" / "3.json.tmp").write_text("{")
    sink = write_parquet(tmp_path)
    with sink.hold("run"):
        sink.begin()
    assert list((tmp_path / "_commits").iterdir()) == []


def test_a_buffer_that_was_taken_is_not_full() -> None:
    buffer = RowBuffer(pa.schema({"x": pa.int64()}), rows=1_000, size=10)
    buffer.add(pa.record_batch({"x": [1, 2]}))
    assert buffer.is_full
    buffer.take()
    assert not buffer.is_full


# --- whose file is it


def staged(sink: Any, run: str, *values: int) -> Sequence[Handle]:
    """The handles of one transaction of checkpoint 1 by run ``run``."""
    writer = sink.writer(
        OperatorContext("out", 0, 1, (X,), X, range(1), 1, None, ManualClock(), lambda due: None, run_id=run)
    )
    writer.process(0, pa.record_batch({"x": pa.array(values, pa.int64())}), None)
    handles: Sequence[Handle] = writer.prepare(1)
    return handles


def two_jobs(tmp_path: Path, *values: int) -> tuple[Any, Sequence[Handle], Sequence[Handle]]:
    """A sink, and what two jobs staged for the same file of it: same name in the end, same rows and size."""
    sink = write_parquet(tmp_path / "out")
    sink.begin()
    ours = staged(sink, "ours", 1)
    other = write_parquet(tmp_path / "other")
    other.begin()
    theirs = staged(other, "theirs", *values)
    assert [(h["file"], h["size"]) for h in ours] == [(h["file"], h["size"]) for h in theirs]
    (tmp_path / "out" / "_staging" / str(ours[0]["staged"])).unlink()
    return sink, ours, theirs


def test_what_two_runs_stage_has_different_names_so_neither_deletes_the_rows_of_the_other(tmp_path: Path) -> None:
    _, ours, theirs = two_jobs(tmp_path, 2)
    assert ours[0]["staged"] != theirs[0]["staged"]


def test_a_final_file_of_another_job_is_not_counted_as_ours(tmp_path: Path) -> None:
    sink, ours, theirs = two_jobs(tmp_path, 2)
    (tmp_path / "other" / "_staging" / str(theirs[0]["staged"])).rename(tmp_path / "out" / str(theirs[0]["file"]))
    with pytest.raises(StoreError, match=r"1 rows of run 'ours': .* already exists and holds other rows"):
        sink.recover(1, ours)


def test_a_staged_file_of_another_job_is_not_counted_as_ours(tmp_path: Path) -> None:
    sink, ours, theirs = two_jobs(tmp_path, 2)
    theirs_staged = tmp_path / "other" / "_staging" / str(theirs[0]["staged"])
    theirs_staged.rename(tmp_path / "out" / "_staging" / str(ours[0]["staged"]))
    with pytest.raises(StoreError, match=r"expected the 1 rows that run 'ours' staged .* found other content"):
        sink.recover(1, ours)


def test_a_staged_name_that_was_used_again_after_its_commit_is_no_damage(tmp_path: Path) -> None:
    sink = write_parquet(tmp_path / "out")
    sink.begin()
    handles = staged(sink, "seed-7", 1)
    sink.recover(1, handles)  # a life of the same run commits them, stages rows under the same name, and is killed
    assert staged(sink, "seed-7", 2)[0]["staged"] == handles[0]["staged"]
    sink.recover(1, handles)
    assert read_committed(tmp_path / "out")["x"].to_pylist() == [1]
    assert not list((tmp_path / "out" / "_staging").glob("*.staged"))


def test_a_list_of_another_job_is_not_counted_as_ours_though_its_rows_are_equal(tmp_path: Path) -> None:
    sink, ours, theirs = two_jobs(tmp_path, 1)
    (tmp_path / "other" / "_staging" / str(theirs[0]["staged"])).rename(
        tmp_path / "out" / "_staging" / str(theirs[0]["staged"])
    )
    sink.commit(1, theirs)
    (tmp_path / "out" / str(theirs[0]["file"])).unlink()
    with pytest.raises(StoreError, match="1 rows of a completed checkpoint are gone"):
        sink.commit(1, ours)


# --- reading


def test_a_committed_file_that_is_gone_or_damaged_is_named_with_its_checkpoint(tmp_path: Path) -> None:
    sink = write_parquet(tmp_path)
    sink.begin()
    sink.commit(1, staged(sink, "run", 1))
    (file,) = tmp_path.glob("*.parquet")
    file.write_bytes(b"half")
    with pytest.raises(StoreError, match=rf"{file}: a file of checkpoint 1, named in _commits/1.json, is not whole"):
        read_committed(tmp_path)
    file.unlink()
    with pytest.raises(StoreError, match=rf"{file}: a file of checkpoint 1, .* is gone; put it back"):
        read_committed(tmp_path)
