"""The copy of a checkpoint: whatever ends it at whatever step, no half of it is taken for a savepoint."""

from __future__ import annotations

from pathlib import Path

import pytest

import dataflow as flow
from dataflow.errors import StoreError
from dataflow.store.export import Export
from dataflow.store.folder import CheckpointFolder
from dataflow.store.manifest import FORMAT, LOG, Manifest, PartHandle
from dataflow.testing.faulty_files import Crash, FaultyFileSystem, crash_at, fail_at


def stored() -> flow.MemoryStore:
    """Checkpoint 3 with a log, and checkpoint 7, which also names the log of 3."""
    store = flow.MemoryStore()
    older = store.write(3, "counts-0", b"base", LOG)
    commit(store, 3, (store.write(3, "counts-0", b"three"), older))
    log = PartHandle(older.task, older.file, older.size, older.xxh3, LOG, 3)
    commit(store, 7, (store.write(7, "counts-0", b"seven"), log, store.write(7, "counts-0", b"delta", LOG)))
    return store


def commit(store: flow.MemoryStore, checkpoint: int, parts: tuple[PartHandle, ...]) -> None:
    names = {"kind": "checkpoint", "pipeline": "p", "mode": "aligned", "guarantee": "exactly once", "run_id": "a"}
    store.commit(
        Manifest(format=FORMAT, checkpoint=checkpoint, finished=False, created=0.0, job="0" * 32, parts=parts, **names)
    )


def export(path: Path, files: FaultyFileSystem) -> Export:
    """Copy checkpoint 7; what crashes keeps no lock, as a dead process."""
    copy = Export(path, files=files)
    try:
        copy.reserve()
        copy.copy(stored(), 7)
    finally:
        copy.release()
    return copy


def test_objects_of_older_checkpoints_are_copied_so_that_the_copy_needs_nothing_else(tmp_path: Path) -> None:
    export(tmp_path / "saved", FaultyFileSystem())
    (tmp_path / "saved").rename(tmp_path / "moved")
    folder = CheckpointFolder(tmp_path / "moved")
    manifest = folder.verify()
    assert [folder.read(part) for part in manifest.parts] == [b"seven", b"base", b"delta"]
    assert [part.checkpoint for part in manifest.parts] == [0, 3, 0]


@pytest.mark.parametrize("seed", [None, 1])  # of a power failure
def test_a_copy_that_crashes_at_any_step_is_no_savepoint_or_a_whole_one_and_can_be_repeated(
    seed: int | None, tmp_path: Path
) -> None:
    step, crashed = 0, True
    while crashed:
        step, path, crashed = step + 1, tmp_path / f"saved-{step}", False
        files = FaultyFileSystem(crash_at(step))
        try:
            export(path, files)
        except Crash:
            crashed = True
        if seed is not None and crashed:
            files.lose_power(tmp_path, seed)
        if CheckpointFolder(path).exists:
            assert CheckpointFolder(path).verify().checkpoint == 7
        else:
            export(path, FaultyFileSystem())
        assert CheckpointFolder(path).verify().kind == "savepoint"
    assert step > 10


def test_a_copy_that_fails_at_any_step_leaves_nothing(tmp_path: Path) -> None:
    failed = 0
    for step in range(1, 40):
        path = tmp_path / f"saved-{step}"
        try:
            export(path, FaultyFileSystem(fail_at(step)))
        except StoreError:
            failed += 1
            assert not path.exists(), step
    assert failed > 10
