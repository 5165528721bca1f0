"""Checkpoints that are being read: a store does not delete them, a job tries again, and readers notice a deletion."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dataflow.errors import CheckpointPinned
from dataflow.store.directory import DirectoryStore
from dataflow.store.manifest import Manifest

Save = Callable[..., Manifest]


@pytest.fixture
def store(tmp_path: Path, save: Save) -> DirectoryStore:
    """A store with checkpoints 1 and 2, which is open."""
    store = DirectoryStore(tmp_path / "ckpt")
    store.open()
    for checkpoint in (1, 2):
        save(store, checkpoint)
    return store


def test_a_pinned_checkpoint_is_not_retired(store: DirectoryStore) -> None:
    before = store.files()
    with store.folder(1).pin() as pin:
        with pytest.raises(CheckpointPinned, match=r"checkpoint 1 in .* is not deleted, because a restore or"):
            store.retire(1)
        assert pin.exists
        assert store.files() == before
        store.retire(2)
    store.retire(1)
    assert store.files() == {}


def test_two_readers_pin_the_same_checkpoint(store: DirectoryStore) -> None:
    with store.folder(1).pin():
        with store.folder(1).pin():
            pass
        with pytest.raises(CheckpointPinned):
            store.retire(1)


def test_an_abandoned_checkpoint_is_deleted_and_its_reader_notices(store: DirectoryStore) -> None:
    with store.folder(2).pin() as pin:
        store.abandon(2)
        assert not pin.exists
    assert store.checkpoints() == [1]


HOLD = """
import sys
from dataflow.store.directory import DirectoryStore
with DirectoryStore(sys.argv[1]).folder(1).pin():
    print("pinned", flush=True)
    sys.stdin.read()
"""


def test_the_pin_of_a_process_ends_with_it(store: DirectoryStore) -> None:
    command = [sys.executable, "-c", HOLD, store.location]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "pinned\n"
        with pytest.raises(CheckpointPinned):
            store.retire(1)
        reader.kill()
    store.retire(1)
    assert store.checkpoints() == [2]


def test_a_checkpoint_that_is_written_again_is_another_one(store: DirectoryStore) -> None:
    manifest = store.manifest(2)
    with store.folder(2).pin() as pin:
        store.abandon(2)
        store.commit(manifest)
        assert not pin.exists


def test_a_reader_needs_no_right_to_write(store: DirectoryStore) -> None:
    manifest = store.folder(1).path / "manifest.json"
    manifest.chmod(0o444)
    with store.folder(1).pin(), pytest.raises(CheckpointPinned):
        store.retire(1)


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP, errno.EBADF])
def test_without_locks_reading_and_deleting_still_work(
    code: int, store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with store.folder(1).pin() as pin:
        assert pin.exists
        store.retire(1)
        assert not pin.exists


def test_a_checkpoint_without_a_manifest_needs_no_pin(store: DirectoryStore, tmp_path: Path) -> None:
    store.write(3, "task", b"no manifest")
    with store.folder(3).pin() as pin, store.folder(9).pin():
        assert pin.exists
        assert store.remove_orphans() == [3]
