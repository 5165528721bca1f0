"""The directory store on a healthy disk, and on one where bytes rot."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from dataflow.errors import CheckpointDamaged, CheckpointError, DirectoryInUse, NoCheckpoint, StoreError
from dataflow.protocol.recovery import Found, Policy, Restore, choose
from dataflow.store.directory import DirectoryStore
from dataflow.store.folder import CheckpointFolder
from dataflow.store.manifest import FORMAT, Manifest

Save = Callable[..., Manifest]
NOBODY = 65534


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    store = DirectoryStore(tmp_path / "ckpt")
    store.open("run-1")
    return store


def test_a_checkpoint_exists_once_its_manifest_does(store: DirectoryStore, save: Save) -> None:
    store.write(1, "task-0", b"never committed")
    manifest = save(store, 2)
    assert store.checkpoints() == [2]
    assert store.verify(2) == manifest
    assert store.read(2, manifest.parts[1]) == b"state 1 of 2 " * 50


def test_a_part_of_no_bytes_is_a_part(store: DirectoryStore) -> None:
    assert store.read(1, store.write(1, "empty", b"")) == b""


def test_task_names_may_hold_anything_and_differ_in_case_only(store: DirectoryStore) -> None:
    names = ["a/b", "A/B", "../../etc", "ü" * 300, "..", "", "counts[0]", "counts[1]", "a\nb", "manifest.json", "a-b"]
    handles = {name: store.write(1, name, name.encode()) for name in names}
    assert len({handle.file.lower() for handle in handles.values()}) == len(names)
    assert all(store.read(1, handles[name]) == name.encode() for name in names)
    assert all(handle.file == os.path.basename(handle.file) for handle in handles.values())


def test_parts_of_one_checkpoint_are_written_by_many_threads(store: DirectoryStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        handles = list(pool.map(lambda i: store.write(1, f"task-{i}", b"%d" % i * 1000), range(40)))
    assert [store.read(1, handle) for handle in handles] == [b"%d" % i * 1000 for i in range(40)]


def test_writing_the_same_part_again_replaces_it(store: DirectoryStore) -> None:
    store.write(1, "task", b"first")
    handle = store.write(1, "task", bytearray(b"second"))
    assert store.read(1, handle) == b"second"


def test_a_part_that_comes_after_the_manifest_is_refused(store: DirectoryStore, save: Save) -> None:
    manifest = save(store, 1)
    with pytest.raises(StoreError, match=r"checkpoint 1 in .* is complete: task 'task-0' wrote too late"):
        store.write(1, "task-0", b"from a zombie")
    assert store.verify(1) == manifest


def test_committing_again_changes_nothing(store: DirectoryStore, save: Save) -> None:
    manifest = save(store, 1)
    store.commit(manifest)
    assert store.verify(1) == manifest


def test_discard_never_touches_a_checkpoint_with_a_manifest(store: DirectoryStore, save: Save) -> None:
    manifest = save(store, 1)
    store.discard(1, manifest.parts)
    assert store.verify(1) == manifest


def test_discard_takes_the_parts_and_then_the_folder(store: DirectoryStore) -> None:
    handles = [store.write(3, f"task-{i}", b"x") for i in range(2)]
    store.discard(3, handles[:1])
    assert store.folder(3).path.exists()
    store.discard(3, handles)
    assert not store.folder(3).path.exists()


def test_retire_leaves_nothing_but_other_peoples_files(store: DirectoryStore, save: Save) -> None:
    save(store, 1)
    save(store, 2)
    (store.folder(1).path / "notes.txt").write_text("mine")
    store.retire(1)
    store.retire(2)
    store.retire(2)
    assert store.checkpoints() == []
    assert [path.name for path in store.folder(1).path.iterdir()] == ["notes.txt"]
    assert not store.folder(2).path.exists()


@pytest.mark.parametrize("go", ["discard", "retire", "remove_orphans"])
def test_an_id_is_never_used_again(store: DirectoryStore, save: Save, go: str) -> None:
    save(store, 1)
    match go:
        case "discard":
            store.discard(9, [store.write(9, "task", b"x")])
        case "retire":
            save(store, 9)
            store.retire(9)
        case "remove_orphans":
            store.write(8, "task", b"x")
            store.write(9, "task", b"x")
            store.remove_orphans()
    store.close()
    assert DirectoryStore(store.location).highest_id() == 9


def test_the_highest_id_of_an_empty_or_missing_directory_is_0(store: DirectoryStore, tmp_path: Path) -> None:
    assert store.highest_id() == 0
    assert DirectoryStore(tmp_path / "nowhere").highest_id() == 0
    assert DirectoryStore(tmp_path / "nowhere").checkpoints() == []


def test_the_highest_id_counts_what_has_no_manifest(store: DirectoryStore, save: Save) -> None:
    save(store, 1)
    store.write(7, "task", b"x")
    assert store.highest_id() == 7


def test_orphans_are_removed_and_checkpoints_are_not(store: DirectoryStore, save: Save) -> None:
    save(store, 1)
    store.write(2, "task", b"x")
    (store.folder(2).path / "task.1.part.tmp").write_bytes(b"half")
    (store.folder(1).path / "manifest.json.tmp").write_bytes(b"half")
    assert store.remove_orphans() == [2]
    assert not store.folder(2).path.exists()
    store.verify(1)


def test_what_does_not_exist_is_said_together_with_what_does(store: DirectoryStore, save: Save) -> None:
    save(store, 1)
    with pytest.raises(NoCheckpoint, match=r"there is no checkpoint 5 in .*; there are \[1\]"):
        store.manifest(5)


def test_a_savepoint_is_found_by_path_after_it_was_moved(store: DirectoryStore, save: Save, tmp_path: Path) -> None:
    manifest = save(store, 4, kind="savepoint")
    moved = store.folder(4).path.rename(tmp_path / "before the upgrade")
    for path in (moved, str(moved), moved / "manifest.json"):
        folder = CheckpointFolder(path)
        assert folder.verify() == manifest
        assert folder.read(manifest.parts[0]) == b"state 0 of 4 " * 50


def test_a_path_that_is_no_checkpoint_says_what_is_there(store: DirectoryStore, save: Save, tmp_path: Path) -> None:
    save(store, 1)
    with pytest.raises(
        NoCheckpoint, match=r"expected a manifest.json in it, found \['FENCE', 'LOCK', 'chk-00000001'\]"
    ):
        CheckpointFolder(store.location).manifest()
    with pytest.raises(NoCheckpoint, match="no such directory"):
        CheckpointFolder(tmp_path / "typo").manifest()


@pytest.mark.parametrize("name", ["task-0.1.0.part", "task-1.1.0.part"])
@pytest.mark.parametrize("where", [0, 300, -1])
def test_a_flipped_bit_in_a_part_is_found(store: DirectoryStore, save: Save, name: str, where: int) -> None:
    save(store, 1)
    flip(store.folder(1).path / name, where)
    with pytest.raises(CheckpointDamaged, match=rf"{name}: the part of task 'task-.' was written with xxh3 \w+, found"):
        store.verify(1)


def test_every_flipped_bit_of_a_manifest_is_found_or_harmless(store: DirectoryStore, save: Save) -> None:
    manifest = save(store, 1)
    path = store.folder(1).path / "manifest.json"
    whole = path.read_bytes()
    for where in range(len(whole)):
        flip(path, where)
        with suppress(CheckpointDamaged):
            assert store.manifest(1) == manifest, where  # white space around the two keys
        path.write_bytes(whole)


def test_every_truncation_of_a_manifest_is_found(store: DirectoryStore, save: Save) -> None:
    save(store, 1)
    save(store, 2)
    path = store.folder(2).path / "manifest.json"
    whole = path.read_bytes().rstrip()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointDamaged, match="the manifest is incomplete or damaged"):
            store.manifest(2)
    assert store.checkpoints() == [1, 2]
    store.verify(1)


@pytest.mark.parametrize(("content", "said"), [(None, "is missing"), (b"", "had 650 bytes .* found 0")])
def test_a_lost_or_emptied_part_is_found(store: DirectoryStore, save: Save, content: bytes | None, said: str) -> None:
    save(store, 1)
    path = store.folder(1).path / "task-1.1.0.part"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(CheckpointDamaged, match=f"task-1.1.0.part: the part of task 'task-1' {said}"):
        store.verify(1)


def test_a_damaged_checkpoint_can_be_retired(store: DirectoryStore, save: Save) -> None:
    save(store, 1)
    (store.folder(1).path / "manifest.json").write_bytes(b"{")
    store.retire(1)
    assert not store.folder(1).path.exists()


@pytest.mark.parametrize("inside", [False, True])
def test_a_directory_in_place_of_a_manifest_is_damage_and_never_in_the_way(
    store: DirectoryStore, save: Save, *, inside: bool
) -> None:
    save(store, 1)
    strange = store.folder(1).path / "manifest.json"
    strange.unlink()
    strange.mkdir()
    if inside:
        (strange / "notes").write_text("somebody's")
    with pytest.raises(CheckpointDamaged, match="expected a file, but it is a directory"):
        store.manifest(1)
    assert store.remove_orphans() == []
    store.retire(1)
    assert (strange / "notes").exists() is inside
    assert store.folder(1).path.exists() is inside


def test_a_handle_does_not_lead_out_of_its_folder(store: DirectoryStore, save: Save) -> None:
    handle = save(store, 1).parts[0]
    with pytest.raises(CheckpointDamaged, match="expected the plain name of a file"):
        store.read(1, type(handle)(handle.task, "../FENCE", handle.size, handle.xxh3))


def test_missing_folders_above_are_made(tmp_path: Path) -> None:
    with DirectoryStore(tmp_path / "a" / "b" / "ckpt") as store:
        assert store.checkpoints() == []
    assert (tmp_path / "a" / "b" / "ckpt").is_dir()


def test_a_file_in_the_way_and_a_strange_fence_are_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"expected a checkpoint directory at .*file, found a file"):
        DirectoryStore(tmp_path / "file").open()
    with pytest.raises(StoreError, match=r"expected a directory at .*/file, found a file"):
        DirectoryStore(tmp_path / "file" / "above" / "ckpt").open()
    (tmp_path / "FENCE").write_text("garbage")
    with pytest.raises(StoreError, match=r'FENCE: expected \{"token": n'):
        DirectoryStore(tmp_path).open()


@pytest.mark.parametrize("name", [".", "new"])
@pytest.mark.parametrize("mode", [0o500, 0])
def test_a_directory_that_cannot_be_written_is_said_at_open(ordinary_directory: Path, name: str, mode: int) -> None:
    ordinary_directory.chmod(mode)
    with pytest.raises(StoreError, match="permission denied: check who owns"):
        DirectoryStore(ordinary_directory / name).open()


def test_a_checkpoint_that_may_not_be_looked_at_is_not_called_missing(ordinary_directory: Path, save: Save) -> None:
    with DirectoryStore(ordinary_directory) as store:
        save(store, 1)
        store.folder(1).path.chmod(0)
        with pytest.raises(StoreError, match=r"cannot look at .*manifest.json: .* check who owns"):
            store.checkpoints()
        store.folder(1).path.chmod(0o700)


def test_a_renamed_folder_is_damage(store: DirectoryStore, save: Save) -> None:
    save(store, 1)
    store.folder(1).path.rename(store.folder(2).path)
    with pytest.raises(CheckpointDamaged, match="found the manifest of checkpoint 1: rename the folder back"):
        store.manifest(2)


def test_recovery_falls_back_to_the_newest_valid_checkpoint(store: DirectoryStore, save: Save) -> None:
    for checkpoint in (1, 2, 3):
        save(store, checkpoint)
    save(store, 4, kind="savepoint")
    flip(store.folder(3).path / "task-0.1.0.part", 0)

    def inspect(checkpoint: int) -> Found:
        try:
            return Found(savepoint=store.verify(checkpoint).kind == "savepoint")
        except CheckpointDamaged as damage:
            return Found(damage=str(damage))

    chosen = choose(Policy.AUTO, store.checkpoints(), inspect, store.location)
    assert isinstance(chosen, Restore)
    assert chosen.checkpoint == 2
    assert [skipped.checkpoint for skipped in chosen.skipped] == [4, 3]
    assert "task-0.1.0.part" in chosen.skipped[1].reason


def test_an_arrow_buffer_is_a_part(store: DirectoryStore) -> None:
    buffer = pa.array([1, 2, 3], pa.int64()).buffers()[1]
    assert store.read(1, store.write(1, "task", memoryview(buffer))) == buffer.to_pybytes()


def test_writing_needs_open(tmp_path: Path, save: Save) -> None:
    with pytest.raises(StoreError, match=r"not open for writing: call open\(\) first"):
        save(DirectoryStore(tmp_path), 1)


def test_a_second_store_on_the_directory_is_told_who_holds_it(store: DirectoryStore) -> None:
    second = DirectoryStore(store.location)
    with pytest.raises(DirectoryInUse, match=rf"in use by process {os.getpid()} on .* \(run 'run-1', since "):
        second.open()
    store.close()
    second.open()
    second.close()


def test_a_job_that_lost_its_lock_changes_nothing(store: DirectoryStore, save: Save) -> None:
    manifest = save(store, 1)
    (Path(store.location) / "LOCK").unlink()  # what a careless person, or NFS, does
    with DirectoryStore(store.location) as successor:
        save(successor, 2)
        for forbidden in (
            lambda: store.write(3, "task", b"state"),
            lambda: store.commit(manifest),
            lambda: store.retire(2),
            store.remove_orphans,
            lambda: store.discard(3, []),
        ):
            with pytest.raises(DirectoryInUse, match=r"taken over by process .* \(token 2, ours is 1\).* stop it"):
                forbidden()
    assert store.checkpoints() == [1, 2]


def test_a_newer_format_is_refused_and_is_not_called_damaged(store: DirectoryStore, save: Save) -> None:
    import xxhash

    save(store, 1)
    body = json.dumps({"format": FORMAT + 1, "novelty": True}).encode()
    data = b'{"xxh3": "%s", "manifest": %s}' % (xxhash.xxh3_64_hexdigest(body).encode(), body)
    (store.folder(1).path / "manifest.json").write_bytes(data)
    expected = f"has format {FORMAT + 1} and this version reads {FORMAT}"
    with pytest.raises(CheckpointError, match=expected) as caught:
        store.manifest(1)
    assert not isinstance(caught.value, CheckpointDamaged)


@pytest.fixture
def ordinary_directory() -> Iterator[Path]:
    """A directory, while this process may do no more than its owner, even if it was started by root."""
    root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as path:
        if root:
            os.chown(path, NOBODY, NOBODY)
            os.seteuid(NOBODY)
        try:
            yield Path(path)
        finally:
            if root:
                os.seteuid(0)
            os.chmod(path, 0o700)


def flip(path: Path, where: int) -> None:
    data = bytearray(path.read_bytes())
    data[where] ^= 1
    path.write_bytes(data)
