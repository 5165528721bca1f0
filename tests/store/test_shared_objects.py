"""Objects that several checkpoints name: none that is needed is ever deleted, and none that is not stays for long."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from dataflow.errors import CheckpointDamaged, StoreError
from dataflow.store.base import CheckpointStore
from dataflow.store.directory import DirectoryStore
from dataflow.store.folder import CheckpointFolder
from dataflow.store.manifest import FORMAT, LOG, Manifest, PartHandle
from dataflow.store.memory import MemoryStore
from dataflow.testing.faulty_files import Crash, FaultyFileSystem, crash_at, no_fault
from tests.seeds import seeds

Logs = tuple[PartHandle, ...]


def commit(store: CheckpointStore, checkpoint: int, logs: Logs = (), *, delta: bool = True) -> Logs:
    """Write a checkpoint of one task that needs ``logs`` and, unless nothing changed, an object of its own."""
    part = store.write(checkpoint, "task", f"part of {checkpoint}".encode())
    if delta or not logs:
        written = store.write(checkpoint, "task", f"changes of {checkpoint}".encode(), LOG)
        logs = (*logs, msgspec.structs.replace(written, checkpoint=checkpoint))
    made = Manifest(
        format=FORMAT,
        checkpoint=checkpoint,
        kind="checkpoint",
        pipeline="p",
        mode="aligned",
        guarantee="exactly once",
        finished=False,
        created=0.0,
        run_id="r",
        parts=(part, *[msgspec.structs.replace(log, checkpoint=log.checkpoint % checkpoint) for log in logs]),
    )
    store.commit(made)
    return logs


def left(path: Path) -> set[str]:
    """The objects in a directory, with their folders."""
    return {f"{file.parent.name}/{file.name}" for file in path.glob("chk-*/*.part")}


def named(store: CheckpointStore) -> set[str]:
    """The objects that existing checkpoints name."""
    parts = [(part.checkpoint or n, part) for n in store.checkpoints() for part in store.manifest(n).parts]
    return {f"chk-{wrote:08d}/{part.file}" for wrote, part in parts}


@pytest.mark.parametrize("make", [lambda path: MemoryStore(), DirectoryStore], ids=["memory", "directory"])
def test_objects_stay_as_long_as_a_checkpoint_needs_them(
    tmp_path: Path, make: Callable[[Path], CheckpointStore]
) -> None:
    with make(tmp_path / "ckpt") as store:
        first = commit(store, 1)
        second = commit(store, 2, first)
        third = commit(store, 3, second, delta=False)
        assert third == second
        store.retire(1)
        store.retire(2)
        assert store.checkpoints() == [3]
        found = [bytes(store.read(3, part)) for part in store.verify(3).parts]
        assert found == [b"part of 3", b"changes of 1", b"changes of 2"]
        commit(store, 4)
        store.retire(3)
        with pytest.raises(CheckpointDamaged):
            store.read(3, third[0])
        store.verify(4)


def test_nothing_is_deleted_while_a_manifest_that_may_name_it_cannot_be_read(tmp_path: Path) -> None:
    with DirectoryStore(tmp_path / "ckpt") as store:
        logs = commit(store, 2, commit(store, 1))
        commit(store, 3, logs)
        manifest = store.folder(3).path / "manifest.json"
        whole = manifest.read_bytes()
        manifest.write_bytes(whole[:-20])
        again = DirectoryStore(tmp_path / "ckpt")
        store.close()
        with again:
            again.retire(1)
            again.retire(2)
            manifest.write_bytes(whole)
            again.verify(3)


def test_a_folder_without_the_older_objects_it_needs_is_refused_with_their_names(tmp_path: Path) -> None:
    with DirectoryStore(tmp_path / "ckpt") as store:
        commit(store, 2, commit(store, 1))
        shutil.copytree(store.folder(2).path, tmp_path / "alone" / "chk-00000002")
        shutil.copytree(tmp_path / "ckpt", tmp_path / "whole")
    with pytest.raises(CheckpointDamaged, match=r"missing are chk-00000001/task.1.1.part: copy or restore the whole"):
        CheckpointFolder(tmp_path / "alone" / "chk-00000002").verify()
    CheckpointFolder(tmp_path / "whole" / "chk-00000002").verify()


class History:
    """Random checkpoints, failures and clean-up as a job would do them, until a crash."""

    def __init__(self, path: Path, seed: int, at: int | None) -> None:
        self.path = path
        self.rng = random.Random(seed)
        self.files = FaultyFileSystem(no_fault if at is None else crash_at(at))
        self.store = DirectoryStore(path, files=self.files)
        self.promised: dict[int, Logs] = {}
        self.retiring: set[int] = set()

    def run(self) -> None:
        self.store.open()
        since: Logs = ()
        for n in range(1, 9):
            match self.rng.randrange(6):
                case 0:  # given up after its parts were written
                    parts = [self.store.write(n, "task", b"part"), self.store.write(n, "task", b"changes", LOG)]
                    self.store.discard(n, parts)
                    continue
                case 1:
                    self.promised[n] = since = commit(self.store, n)
                case kind:
                    self.promised[n] = since = commit(self.store, n, since, delta=kind < 5)
            older = sorted(self.promised.keys() - self.retiring - {n})
            for m in older[: max(0, len(older) - self.rng.randrange(2))]:
                self.retiring.add(m)
                self.store.retire(m)
        self.store.close()


def check(history: History) -> None:
    """Every checkpoint that was promised can be read whole, and after clean-up nothing is left that none needs."""
    with DirectoryStore(history.path, files=FaultyFileSystem()) as store:
        existing = store.checkpoints()
        assert history.promised.keys() - history.retiring <= set(existing)
        for n in existing:
            store.verify(n)
        store.remove_orphans()
        assert left(history.path) == named(store)
        following = store.highest_id() + 1
        assert following > max(history.promised, default=0)
        for n in existing:
            store.verify(n)
            store.retire(n)
        assert not left(history.path)


@pytest.mark.parametrize("seed", seeds(4, 40))
def test_after_a_crash_at_any_step_every_checkpoint_has_its_objects(tmp_path: Path, seed: int) -> None:
    whole = History(tmp_path / "whole", seed, None)
    whole.run()
    check(whole)
    for at in range(1, len(whole.files.log) + 1):
        history = History(tmp_path / f"at-{at}", seed, at)
        with pytest.raises(Crash):
            history.run()
        history.store.close()
        if at % 2:
            history.files.lose_power(tmp_path, seed + at)
        check(history)


def test_a_write_to_a_complete_checkpoint_is_refused(tmp_path: Path) -> None:
    with DirectoryStore(tmp_path / "ckpt") as store:
        commit(store, 1)
        with pytest.raises(StoreError, match="is complete"):
            store.write(1, "task", b"", LOG)
