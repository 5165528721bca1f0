"""Jobs whose checkpoints are being read by others: they are kept, deleted later, or deleted for a restore."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import CheckpointPinned
from dataflow.store.folder import CheckpointFolder
from dataflow.store.manifest import PartHandle

ROWS = pa.table({"x": range(400)})


def pipeline() -> flow.Pipeline:
    with flow.Pipeline("pinned") as p:
        p.source(op.from_arrow(ROWS, batch_rows=4), name="in").sink(op.collect(), name="out")
    return p


def run_with_a_reader(path: Path, last: int) -> dict[int, list[int]]:
    """Run a job that keeps one checkpoint, while checkpoint 1 is read until checkpoint ``last``.

    Returns: the checkpoints that existed, by the checkpoint at which they were listed.
    """
    existing: dict[int, list[int]] = {}
    store, reader = flow.DirectoryStore(path), ExitStack()

    def watch(state: flow.CheckpointState) -> bool:
        if state.snapshot == 1:
            reader.enter_context(store.folder(1).pin())
        if state.snapshot == last:
            reader.close()
        existing[state.snapshot] = store.checkpoints()
        return True

    settings = flow.Checkpointing(path, every="1ms", keep=1)
    with reader, warnings.catch_warnings():
        warnings.simplefilter("error")
        job = pipeline().start(flow.SimulatedRunner(3), checkpoint=settings)
        job.on_checkpoint(watch)
        job.wait()
    return existing


def test_a_checkpoint_that_is_read_is_kept_and_deleted_with_a_later_one(tmp_path: Path) -> None:
    existing = run_with_a_reader(tmp_path / "ckpt", last=4)
    assert len(existing) > 6
    assert [1 in existing[n] for n in sorted(existing)[:4]] == [True] * 4
    assert not any(1 in existing[n] for n in sorted(existing)[-2:])
    assert len(flow.DirectoryStore(tmp_path / "ckpt").checkpoints()) == 1


def test_a_checkpoint_that_is_read_to_the_end_is_deleted_by_the_next_job(tmp_path: Path) -> None:
    existing = run_with_a_reader(tmp_path / "ckpt", last=10**9)
    store = flow.DirectoryStore(tmp_path / "ckpt")
    assert store.checkpoints() == [1, max(existing)]
    store.verify(1)
    pipeline().run(flow.SimulatedRunner(1), checkpoint=flow.Checkpointing(tmp_path / "ckpt", every="1ms", keep=1))
    assert 1 not in store.checkpoints()


def test_a_restore_deletes_newer_checkpoints_also_if_they_are_read(tmp_path: Path) -> None:
    settings = flow.Checkpointing(tmp_path / "ckpt", every="1ms", keep=50)
    pipeline().run(flow.SimulatedRunner(3), checkpoint=settings)
    store = flow.DirectoryStore(tmp_path / "ckpt")
    with store.folder(5).pin() as pin:
        pipeline().run(flow.SimulatedRunner(1), checkpoint=settings, restore=2)
        assert not pin.exists


def test_a_restore_from_another_directory_pins_what_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline().run(flow.SimulatedRunner(3), checkpoint=flow.Checkpointing(tmp_path / "old", every="1ms", keep=2))
    old = flow.DirectoryStore(tmp_path / "old")
    checkpoint = old.checkpoints()[0]
    pinned = []
    read = CheckpointFolder.read

    def read_while_another_job_cleans_up(folder: CheckpointFolder, handle: PartHandle) -> bytes:
        with old, pytest.raises(CheckpointPinned):
            old.retire(checkpoint)
        pinned.append(checkpoint)
        return read(folder, handle)

    monkeypatch.setattr(CheckpointFolder, "read", read_while_another_job_cleans_up)
    settings = flow.Checkpointing(tmp_path / "new")
    result = pipeline().run(flow.SimulatedRunner(1), checkpoint=settings, restore=old.folder(checkpoint).path)
    assert pinned
    assert result.table("out").sort_by("x").equals(ROWS)
