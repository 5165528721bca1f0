"""Checkpoints that share objects: random histories, cut short at every file operation.

Every existing checkpoint always reads whole, and after a clean-up no object is left that no manifest names.
"""

from __future__ import annotations

import errno
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from dataflow.errors import CheckpointDamaged, StoreError
from dataflow.store.base import CheckpointStore
from dataflow.store.directory import DirectoryStore
from dataflow.store.folder import CheckpointFolder
from dataflow.store.manifest import FORMAT, LOG, Manifest, PartHandle
from dataflow.store.memory import MemoryStore
from dataflow.store.references import objects_of
from dataflow.testing.faulty_files import Crash, FaultyFileSystem, crash_at, fail_at, no_fault
from tests.seeds import seeds

TASKS = ("a[0]", "b[0]")


def contents(checkpoint: int, task: str, part: int) -> bytes:
    return f"part {part} of {task} in {checkpoint} ".encode() * 10


class History:
    """Checkpoints, savepoints, aborts, retirements and restarts at random; knows what must exist."""

    def __init__(self, store: Callable[[], CheckpointStore], seed: int) -> None:
        self._open = store
        self.store = store()
        self._random = random.Random(seed)
        self.logs: dict[int, dict[str, tuple[PartHandle, ...]]] = {}  # of each checkpoint that others may build on
        self.promised: set[int] = set()
        self.doomed: set[int] = set()
        self.next = 1

    def run(self, steps: int) -> None:
        self.store.open()
        self.checkpoint()
        for _ in range(steps):
            step = self._random.choice([*[self.checkpoint] * 6, self.savepoint, self.abort, self.retire, self.restart])
            step()
        self.retire()

    def checkpoint(self) -> None:
        """Take a checkpoint that builds on the newest one, then retire all but one or two."""
        since = max(self.logs.keys() & self.promised, default=0)
        self._commit("checkpoint", self.logs.get(since, {}))
        plain = sorted(self.logs.keys() & self.promised)
        for old in plain[: -self._random.choice([1, 2])]:
            self._retire(old)

    def savepoint(self) -> None:
        self._commit("savepoint", {})

    def abort(self) -> None:
        number = self._id()
        since = max(self.logs.keys() & self.promised, default=0)
        for task in TASKS:
            self.store.discard(number, self._write(number, task, self.logs.get(since, {})))

    def retire(self) -> None:
        """Retire a checkpoint that is not the newest one."""
        if older := sorted(self.promised)[:-1]:
            self._retire(self._random.choice(older))

    def restart(self) -> None:
        self._write(self._id(), TASKS[0], {})  # and no manifest
        self.store.close()
        self.store = self._open()
        self.store.open()
        self.store.remove_orphans()

    def _id(self) -> int:
        self.next += 1
        return self.next - 1

    def _commit(self, kind: str, before: dict[str, tuple[PartHandle, ...]]) -> None:
        number = self._id()
        written = {task: self._write(number, task, before) for task in TASKS}
        self.store.commit(manifest(number, kind, tuple(part for parts in written.values() for part in parts)))
        self.promised.add(number)
        if kind == "checkpoint":
            self.logs[number] = {
                task: tuple(msgspec.structs.replace(p, checkpoint=p.checkpoint or number) for p in parts[1:])
                for task, parts in written.items()
            }

    def _write(self, number: int, task: str, before: dict[str, tuple[PartHandle, ...]]) -> tuple[PartHandle, ...]:
        logs = before.get(task, ())
        kind = self._random.choice(["delta", "delta", "none", "base"]) if logs else "base"
        if kind == "base":
            logs = ()
        if kind != "none":
            logs = (*logs, self.store.write(number, task, iter([contents(number, task, LOG)]), LOG))
        return (self.store.write(number, task, contents(number, task, 0)), *logs)

    def _retire(self, checkpoint: int) -> None:
        self.doomed.add(checkpoint)
        self.promised.discard(checkpoint)
        self.store.retire(checkpoint)


def manifest(number: int, kind: str, parts: tuple[PartHandle, ...]) -> Manifest:
    return Manifest(
        format=FORMAT, checkpoint=number, kind=kind, pipeline="p", mode="aligned", guarantee="exactly once",
        finished=False, created=0.0, run_id="r", job="0" * 32, parts=parts,
    )  # fmt: skip


def check_whole(store: CheckpointStore, checkpoint: int) -> None:
    """Check that each object of a checkpoint has the bytes that were written."""
    for part in store.manifest(checkpoint).parts:
        written = contents(part.checkpoint or checkpoint, part.task, part.part)
        assert bytes(store.read(checkpoint, part)) == written, (checkpoint, part)


def check_tidy(store: CheckpointStore, path: Path) -> None:
    """Check that the directory has the manifests, the objects that they name, and no others."""
    named = {(n, file) for c in store.checkpoints() for n, file in objects_of(store.manifest(c))}
    expected = {f"chk-{n:08d}/{file}" for n, file in named}
    expected |= {f"chk-{n:08d}/manifest.json" for n in store.checkpoints()}
    found = {str(file.relative_to(path)) for file in path.glob("chk-*/*")}
    assert found == expected
    assert {folder.name for folder in path.glob("chk-*")} == {file.partition("/")[0] for file in expected}


def restarted(path: Path, history: History) -> None:
    """Check what a new process finds, and that it can continue."""
    with DirectoryStore(path, files=FaultyFileSystem()) as store:
        existing = store.checkpoints()
        assert history.promised <= set(existing), (history.promised, existing)
        for checkpoint in existing:
            check_whole(store, checkpoint)
        store.remove_orphans()
        assert store.checkpoints() == existing
        assert store.highest_id() >= max(history.promised, default=0)
        check_tidy(store, path)
        for checkpoint in existing:
            check_whole(store, checkpoint)


def positions(tmp_path: Path, seed: int, steps: int) -> Iterator[tuple[int, Path, FaultyFileSystem, History]]:
    """Yield the same history for each of its file operations."""
    files = FaultyFileSystem()
    undisturbed = tmp_path / "undisturbed"
    history = History(lambda: DirectoryStore(undisturbed, files=files), seed)
    history.run(steps)
    history.store.close()
    restarted(undisturbed, history)
    for at in range(1, len(files.log) + 1):
        path, counted = tmp_path / f"at-{at}", FaultyFileSystem()
        yield at, path, counted, History(lambda path=path, counted=counted: DirectoryStore(path, files=counted), seed)  # type: ignore[misc]
        shutil.rmtree(path, ignore_errors=True)


@pytest.mark.parametrize("seed", seeds(1, 60))
def test_after_a_crash_at_any_operation_every_checkpoint_is_whole(tmp_path: Path, seed: int) -> None:
    for at, path, files, history in positions(tmp_path, seed, steps=6):
        files.fault = crash_at(at)
        with pytest.raises(Crash):
            history.run(6)
        history.store.close()
        restarted(path, history)


@pytest.mark.parametrize("seed", seeds(1, 40))
def test_after_a_power_failure_at_any_operation_every_checkpoint_is_whole(tmp_path: Path, seed: int) -> None:
    for at, path, files, history in positions(tmp_path, seed, steps=5):
        files.fault = crash_at(at)
        with pytest.raises(Crash):
            history.run(5)
        history.store.close()
        files.lose_power(tmp_path, seed + 100 * at if seed else 0)
        restarted(path, history)


@pytest.mark.parametrize("seed", seeds(1, 40))
def test_after_a_refused_operation_every_checkpoint_is_whole(tmp_path: Path, seed: int) -> None:
    for at, path, files, history in positions(tmp_path, seed, steps=5):
        files.fault = fail_at(at, errno.EIO)
        with suppress(StoreError):
            history.run(5)
        files.fault = no_fault
        history.store.close()
        restarted(path, history)


@pytest.mark.parametrize("seed", seeds(8, 500))
def test_a_memory_store_keeps_what_manifests_name_and_nothing_else(seed: int) -> None:
    store = MemoryStore()
    history = History(lambda: store, seed)
    history.run(40)
    store.remove_orphans()
    assert set(store.checkpoints()) == history.promised
    for checkpoint in store.checkpoints():
        check_whole(store, checkpoint)
    named = {named for c in store.checkpoints() for named in objects_of(store.manifest(c))}
    assert {(n, file) for n, files in store._parts.items() for file in files} == named


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """A directory with checkpoint 3, which needs objects of 1 and 2; these are retired."""
    with DirectoryStore(tmp_path / "ckpt") as store:
        logs: tuple[PartHandle, ...] = ()
        for n in (1, 2, 3):
            new = (store.write(n, "a", contents(n, "a", 0)), *logs, store.write(n, "a", contents(n, "a", LOG), LOG))
            store.commit(manifest(n, "checkpoint", new))
            logs = tuple(msgspec.structs.replace(part, checkpoint=part.checkpoint or n) for part in new[1:])
        store.retire(1)
        store.retire(2)
    return tmp_path / "ckpt"


def test_a_retired_checkpoint_leaves_the_objects_that_others_need(chain: Path) -> None:
    with DirectoryStore(chain) as store:
        assert store.checkpoints() == [3]
        assert store.remove_orphans() == []
        store.verify(3)
        assert sorted(str(file.relative_to(chain)) for file in chain.glob("chk-*/*")) == [
            "chk-00000001/a.1.1.part",
            "chk-00000002/a.1.1.part",
            "chk-00000003/a.1.0.part",
            "chk-00000003/a.1.1.part",
            "chk-00000003/manifest.json",
        ]
        assert list(store.remains("a", 0)) == []
        store.retire(3)
        assert (list(chain.glob("chk-*")), store.highest_id()) == ([], 3)


def test_objects_that_an_unreadable_manifest_may_name_are_kept(chain: Path) -> None:
    broken = chain / "chk-00000003" / "manifest.json"
    whole = broken.read_bytes()
    broken.write_bytes(whole[:-9])
    before = sorted(chain.glob("chk-*/*"))
    with DirectoryStore(chain) as store:
        assert store.remove_orphans() == []
        later = store.write(4, "a", b"whole")
        store.commit(manifest(4, "checkpoint", (later,)))
        store.write(5, "a", b"no manifest")
        assert store.remove_orphans() == [5]
        store.retire(4)
    assert sorted(chain.glob("chk-*/*")) == before
    broken.write_bytes(whole)
    check_whole(DirectoryStore(chain), 3)


def test_a_copy_of_one_folder_is_refused_and_names_the_missing_objects(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain / "chk-00000003", tmp_path / "alone" / "chk-00000003")
    with pytest.raises(CheckpointDamaged, match="copy or restore the whole checkpoint directory") as caught:
        CheckpointFolder(tmp_path / "alone" / "chk-00000003").verify()
    assert "missing are chk-00000001/a.1.1.part, chk-00000002/a.1.1.part" in str(caught.value)
    with pytest.raises(CheckpointDamaged, match="copy or restore the whole checkpoint directory"):
        DirectoryStore(tmp_path / "alone").verify(3)
    shutil.copytree(chain, tmp_path / "all")
    CheckpointFolder(tmp_path / "all" / "chk-00000003").verify()


def test_an_older_folder_that_is_a_link_is_not_followed(chain: Path, tmp_path: Path) -> None:
    (chain / "chk-00000001").rename(tmp_path / "elsewhere")
    (chain / "chk-00000001").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointDamaged, match="symbolic link"):
        DirectoryStore(chain).verify(3)


def test_the_objects_of_an_older_checkpoint_are_not_discarded(chain: Path) -> None:
    with DirectoryStore(chain) as store:
        own = store.write(4, "a", b"aborted")
        store.discard(4, [own, *store.manifest(3).parts[1:-1]])
        store.verify(3)
    assert not (chain / "chk-00000004").exists()


def test_manifests_are_read_once(chain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with DirectoryStore(chain) as store:
        read: list[int] = []
        manifest_of = store.manifest
        monkeypatch.setattr(store._references, "_read", lambda n: (read.append(n), manifest_of(n))[1])
        for n in range(4, 8):
            store.commit(manifest(n, "checkpoint", (store.write(n, "a", b"whole"),)))
            store.retire(n - 1)
        assert read == [3, 4, 5, 6, 7]
