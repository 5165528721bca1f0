"""The directory store on a disk that fails, crashes or loses power at each of its operations in turn."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from dataflow.errors import CheckpointDamaged, StoreError
from dataflow.store.directory import DirectoryStore
from dataflow.store.folder import CheckpointFolder
from dataflow.store.manifest import Manifest
from dataflow.testing.faulty_files import Crash, Fault, FaultyFileSystem, crash_at, fail_at, fail_from, no_fault
from tests.seeds import seeds

Save = Callable[..., Manifest]


class Script:
    """Two checkpoints kept of three, and one given up; knows what was promised when it was cut short."""

    def __init__(self, path: Path, save: Save, fault: Fault) -> None:
        self.files = FaultyFileSystem(fault)
        self.store = DirectoryStore(path, files=self.files)
        self.promised: set[int] = set()
        self.retiring: set[int] = set()
        self.begun = 0
        self._save = save

    def run(self) -> None:
        self.store.open()
        for checkpoint in (1, 2):
            self._commit(checkpoint)
        self.begun = 3
        self.store.discard(3, [self.store.write(3, "task", b"given up")])
        self._commit(4)
        self.retiring.add(1)
        self.store.retire(1)
        self.store.close()

    def _commit(self, checkpoint: int) -> None:
        self.begun = checkpoint
        self._save(self.store, checkpoint)
        self.promised.add(checkpoint)


def restarted(path: Path, save: Save, script: Script) -> None:
    """What a new process must find, and be able to do."""
    with DirectoryStore(path, files=FaultyFileSystem()) as store:  # a healthy one, and quicker than the disk
        existing = store.checkpoints()
        assert script.promised - script.retiring <= set(existing) <= set(range(1, script.begun + 1)), existing
        for checkpoint in existing:
            store.verify(checkpoint)
        store.remove_orphans()
        assert store.checkpoints() == existing
        assert sorted(child.name for child in path.glob("chk-*")) == [f"chk-{id:08d}" for id in existing]
        following = store.highest_id() + 1
        assert following > max(script.promised, default=0)
        save(store, following)
        store.verify(following)


def positions(tmp_path: Path, save: Save) -> Iterator[tuple[int, Path]]:
    script = Script(tmp_path / "undisturbed", save, no_fault)
    script.run()
    assert len(script.files.log) > 60, len(script.files.log)
    for at in range(1, len(script.files.log) + 1):
        yield at, tmp_path / f"at-{at}"


def test_after_a_crash_at_any_operation_nothing_promised_is_lost(tmp_path: Path, save: Save) -> None:
    for at, path in positions(tmp_path, save):
        script = Script(path, save, crash_at(at))
        with pytest.raises(Crash):
            script.run()
        script.store.close()  # the kernel lets go of a dead process's lock
        restarted(path, save, script)


@pytest.mark.parametrize("seed", seeds(1, 4))
def test_after_a_power_failure_at_any_operation_nothing_promised_is_lost(tmp_path: Path, save: Save, seed: int) -> None:
    for at, path in positions(tmp_path, save):
        script = Script(path, save, crash_at(at))
        with pytest.raises(Crash):
            script.run()
        script.store.close()
        script.files.lose_power(tmp_path, seed + 100 * at if seed else 0)
        restarted(path, save, script)


@pytest.mark.parametrize(
    ("fault", "code"),
    [(fail_at, errno.ENOSPC), (fail_at, errno.EIO), (fail_at, errno.EDQUOT), (fail_from, errno.EACCES)],
)
def test_a_refused_operation_is_a_store_error_and_loses_nothing(
    tmp_path: Path, save: Save, code: int, fault: Callable[[int, int], Fault]
) -> None:
    for at, path in positions(tmp_path, save):
        script = Script(path, save, fault(at, code))
        with pytest.raises(StoreError, match=r"cannot \w+"):
            script.run()
        script.store.close()
        restarted(path, save, script)


def test_the_job_goes_on_in_the_same_store_after_any_refused_operation(tmp_path: Path, save: Save) -> None:
    for at, path in positions(tmp_path, save):
        script = Script(path, save, fail_at(at))
        with suppress(StoreError):
            script.run()
        script.files.fault = no_fault
        with held(script.store):
            for checkpoint in range(script.begun + 1, script.begun + 3):
                save(script.store, checkpoint)
                script.store.verify(checkpoint)


def test_a_commit_that_was_refused_does_not_leave_a_checkpoint(tmp_path: Path, save: Save) -> None:
    for at in count(1):
        files = FaultyFileSystem()
        path = tmp_path / str(at)
        with DirectoryStore(path, files=files) as store:
            files.fault = fail_at(len(files.log) + at)
            try:
                save(store, 1)
            except StoreError:
                assert store.checkpoints() == []
            else:
                return


def test_a_manifest_that_came_back_after_a_power_failure_is_valid_or_known_to_be_damaged(
    tmp_path: Path, save: Save
) -> None:
    for seed in range(1, 30):
        files = FaultyFileSystem()
        path = tmp_path / str(seed)
        with DirectoryStore(path, files=files) as store:
            handle = store.write(1, "task-0", b"x")
            files.fault = refuse_to_sync_a_rename(files)
            with pytest.raises(StoreError):
                save(store, 1)
            files.fault = no_fault
            store.discard(1, [handle])
        files.lose_power(path, seed)
        for checkpoint in DirectoryStore(path).checkpoints():
            with suppress(CheckpointDamaged):
                DirectoryStore(path).verify(checkpoint)


def test_a_retirement_cut_by_a_power_failure_leaves_a_whole_checkpoint_or_none(tmp_path: Path, save: Save) -> None:
    for at in range(1, 12):
        for seed in range(12):
            path = tmp_path / f"{at}-{seed}"
            files = FaultyFileSystem()
            with DirectoryStore(path, files=files) as store:
                save(store, 1)
                save(store, 2)
                files.fault = crash_at(len(files.log) + at)
                with suppress(Crash):
                    store.retire(1)
            files.lose_power(path, seed)
            for checkpoint in store.checkpoints():
                CheckpointFolder(store.folder(checkpoint).path).verify()
            assert 2 in store.checkpoints()


def test_a_folder_whose_making_was_not_synced_is_synced_before_the_commit(tmp_path: Path, save: Save) -> None:
    files = FaultyFileSystem()
    with DirectoryStore(tmp_path, files=files) as store:
        files.fault = fail_at(len(files.log) + 3)  # read FENCE, make the folder, sync its parent
        with pytest.raises(StoreError):
            store.write(1, "task-0", b"x")
        assert files.log[-1] == ("sync_directory", tmp_path)
        files.fault = no_fault
        save(store, 1)
    files.lose_power(tmp_path, 0)
    assert DirectoryStore(tmp_path).checkpoints() == [1]


def refuse_to_sync_a_rename(files: FaultyFileSystem) -> Fault:
    def fault(number: int, name: str, path: Path) -> None:
        if name == "sync_directory" and files.log[-2][0] == "rename":
            raise OSError(errno.EIO, "Input/output error")

    return fault


@contextmanager
def held(store: DirectoryStore) -> Iterator[None]:
    store.close()
    store.open()
    yield
    store.close()


def test_a_directory_whose_making_was_cut_short_is_durable_when_the_next_job_commits(
    tmp_path: Path, save: Save
) -> None:
    for fault in (crash_at, fail_at):
        for at in range(1, 12):
            files, path = FaultyFileSystem(fault(at)), tmp_path / f"{fault.__name__}-{at}"
            first = DirectoryStore(path, files=files)
            with suppress(Crash, StoreError):
                first.open()
            files.fault = no_fault
            first.close()
            with DirectoryStore(path, files=files) as store:
                save(store, 1)
            files.lose_power(tmp_path, 0)
            assert DirectoryStore(path).checkpoints() == [1], f"{fault.__name__} {at}: {files.log[:at]}"
