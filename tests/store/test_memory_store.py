"""The memory store keeps the contract of the directory store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dataflow.errors import CheckpointDamaged, NoCheckpoint, StoreError
from dataflow.store.base import CheckpointStore
from dataflow.store.directory import DirectoryStore
from dataflow.store.manifest import Manifest
from dataflow.store.memory import MemoryStore

Save = Callable[..., Manifest]


@pytest.fixture(params=["memory", "directory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointStore:
    store: CheckpointStore = MemoryStore() if request.param == "memory" else DirectoryStore(tmp_path)
    store.open()
    return store


def test_both_stores_answer_alike(store: CheckpointStore, save: Save) -> None:
    manifests = {checkpoint: save(store, checkpoint) for checkpoint in (1, 2)}
    orphan = store.write(3, "task", b"x")
    given_up = store.write(5, "task", b"x")
    store.discard(5, [given_up])
    store.discard(2, manifests[2].parts)
    store.retire(1)
    assert store.checkpoints() == [2]
    assert store.verify(2) == manifests[2]
    assert store.remove_orphans()[0] == 3
    assert store.highest_id() == 5
    with pytest.raises(CheckpointDamaged):
        store.read(3, orphan)
    with pytest.raises(NoCheckpoint):
        store.manifest(1)
    with pytest.raises(StoreError, match="wrote too late"):
        store.write(2, "task-0", b"late")


def test_what_was_written_is_a_copy(store: CheckpointStore) -> None:
    data = bytearray(b"before")
    handle = store.write(1, "task", data)
    data[:] = b"after!"
    assert store.read(1, handle) == b"before"


def test_a_store_in_memory_outlives_the_job_that_crashed(save: Save) -> None:
    store = MemoryStore()
    store.open()
    manifest = save(store, 1)
    with store:
        assert store.verify(1) == manifest


def test_what_never_got_a_manifest_remains_until_it_is_removed(store: CheckpointStore, save: Save) -> None:
    save(store, 1)
    for checkpoint in (2, 4):
        store.write(checkpoint, "task-0", b"%d" % checkpoint)
    save(store, 3)
    assert [list(store.remains("task-0", above)) for above in (1, 2, 4)] == [[(2, b"2"), (4, b"4")], [(4, b"4")], []]
    assert list(store.remains("task-1", 1)) == []
    store.remove_orphans()
    assert list(store.remains("task-0", 0)) == []


def test_a_discarded_checkpoint_leaves_no_trace(tmp_path: Path) -> None:
    for store in (MemoryStore(), DirectoryStore(tmp_path)):
        store.open("r1")
        handles = [store.write(1, f"task-{i}", b"x") for i in range(2)]
        store.discard(1, handles[:1])
        store.discard(1, handles)
        store.discard(1, handles)
        assert (store.remove_orphans(), store.highest_id()) == ([], 1)
        store.close()
