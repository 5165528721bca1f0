"""A forged checkpoint directory, and writers that lost their directory without noticing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import xxhash

from dataflow.errors import CheckpointDamaged, DirectoryInUse, StoreError
from dataflow.store.directory import DirectoryStore
from dataflow.store.files import FileSystem
from dataflow.store.manifest import FORMAT, Manifest, decode, encode

GOOD = Manifest(
    format=FORMAT, checkpoint=1, kind="checkpoint", pipeline="p", mode="aligned", guarantee="exactly once",
    finished=False, created=0.0, run_id="r", job="0" * 32,
)  # fmt: skip


def saved(store: DirectoryStore, checkpoint: int, *data: bytes) -> Manifest:
    parts = tuple(store.write(checkpoint, f"task-{i}", part) for i, part in enumerate(data or (b"state",)))
    manifest = msgspec.structs.replace(GOOD, checkpoint=checkpoint, parts=parts)
    store.commit(manifest)
    return manifest


def forged(change: Callable[[dict[str, Any]], object]) -> bytes:
    """A manifest that was changed, with the checksum that it then has."""
    found = msgspec.json.decode(encode(GOOD))["manifest"]
    change(found)
    return sealed(msgspec.json.encode(found))


def sealed(body: bytes) -> bytes:
    return b'{"xxh3": "%s",\n"manifest": %s}\n' % (xxhash.xxh3_64_hexdigest(body).encode(), body)


PART = {"task": "a", "file": "a.part", "size": 1, "xxh3": "0"}
LOGGED = {**PART, "file": "b.part", "part": 1}


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(checkpoint=0),
        lambda m: m.update(checkpoint=2**70),
        lambda m: m.update(format=0),
        lambda m: m.update(parts=[PART, PART]),
        lambda m: m.update(parts=[{**PART, "file": "../a.part"}]),
        lambda m: m.update(parts=[{**PART, "file": "a\0.part"}]),
        lambda m: m.update(parts=[{**PART, "size": -1}]),
        lambda m: m.update(parts=[{**PART, "part": 2}]),
        lambda m: m.update(parts=[{**PART, "checkpoint": -1}]),
        lambda m: m.update(checkpoint=3, parts=[{**PART, "checkpoint": 2}]),
        lambda m: m.update(checkpoint=3, parts=[PART, {**LOGGED, "checkpoint": 3}]),
        lambda m: m.update(checkpoint=3, parts=[PART, {**LOGGED, "checkpoint": 4}]),
        lambda m: m.update(checkpoint=3, parts=[PART, {**LOGGED, "checkpoint": 2}, {**LOGGED, "checkpoint": 2}]),
        lambda m: m.update(checkpoint=3, parts=[PART, {**LOGGED, "checkpoint": 2}, {**LOGGED, "checkpoint": 1}]),
        lambda m: m.update(checkpoint=3, parts=[PART, LOGGED, {**LOGGED, "checkpoint": 1}]),
        lambda m: m.update(parts=[LOGGED]),
        lambda m: m.update(parts=[PART, {**LOGGED, "task": "b"}]),
        lambda m: m.update(nodes=[{"kind": "aggregate"}]),
        lambda m: m.update(nodes=[{"name": ["a"]}]),
        lambda m: m.update(finished="no"),
        lambda m: m.update(summary=nested(300)),
        lambda m: m.pop("run_id"),
        lambda m: m.update(job="0" * 31),
        lambda m: m.update(job="0" * 32 + "\n"),
        lambda m: m.update(job="../" + "0" * 29),
        lambda m: m.update(parent={"job": "0" * 32}),
        lambda m: m.update(parent={"job": "g" * 32, "checkpoint": 1}),
        lambda m: m.update(parent={"job": "0" * 32, "checkpoint": 0}),
    ],
)
def test_a_forged_manifest_is_damage(change: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(CheckpointDamaged):
        decode(forged(change), "here")


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"a": found}
    return found


@pytest.mark.parametrize("depth", [900, 200_000])
def test_a_manifest_that_is_nested_too_deep_is_damage(depth: int) -> None:
    body = b'{"format": 1, "summary": ' + b'{"a":' * depth + b"1" + b"}" * depth + b"}"
    with pytest.raises(CheckpointDamaged):
        decode(sealed(body), "here")


def test_a_part_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    with DirectoryStore(tmp_path / "ckpt") as store:
        manifest = saved(store, 1, b"secret")
        path = store.folder(1).path / manifest.parts[0].file
        path.rename(tmp_path / "secret")
        path.symlink_to(tmp_path / "secret")
        with pytest.raises(CheckpointDamaged, match="symbolic link"):
            store.read(1, manifest.parts[0])


def test_a_pipe_in_the_place_of_a_part_does_not_hang(tmp_path: Path) -> None:
    with DirectoryStore(tmp_path / "ckpt") as store:
        manifest = saved(store, 1)
        path = store.folder(1).path / manifest.parts[0].file
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(CheckpointDamaged, match="not a regular file"):
            store.read(1, manifest.parts[0])


def test_a_folder_that_is_a_link_is_damage_and_retiring_it_deletes_the_link_alone(tmp_path: Path) -> None:
    with DirectoryStore(tmp_path / "ckpt") as store:
        saved(store, 1)
        store.folder(1).path.rename(tmp_path / "elsewhere")
        (tmp_path / "ckpt" / "chk-00000001").symlink_to(tmp_path / "elsewhere")
        before = sorted((tmp_path / "elsewhere").iterdir())
        with pytest.raises(CheckpointDamaged, match="symbolic link"):
            store.manifest(1)
        with pytest.raises(StoreError):
            store.write(1, "late", b"x")
        store.remove_orphans()
        store.retire(1)
        assert sorted((tmp_path / "elsewhere").iterdir()) == before
        assert store.checkpoints() == []


def test_a_link_to_the_checkpoint_directory_itself_is_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "ckpt").symlink_to(tmp_path / "disk")
    with DirectoryStore(tmp_path / "ckpt") as store:
        manifest = saved(store, 1)
        assert store.read(1, manifest.parts[0]) == b"state"


@pytest.mark.parametrize("text", [b"9" * 5000, b"-1", b"\xff", "٣".encode()])
def test_an_invalid_highest_id_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt" / "HIGHEST.1").write_bytes(text)
    with DirectoryStore(tmp_path / "ckpt") as store, pytest.raises(StoreError, match="expected a checkpoint id"):
        store.highest_id()


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"token": true}' * 2, b'{"token": ' + b"9" * 4000 + b"}"])
def test_an_invalid_fence_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt" / "FENCE").write_bytes(text)
    with pytest.raises(StoreError, match="expected"):
        DirectoryStore(tmp_path / "ckpt").open()


# --- a job that lost the directory and does not know it


class Stalled(FileSystem):
    """Calls ``meanwhile`` once, before an entry is made whose name has ``prefix``: the process is suspended there."""

    def __init__(self, prefix: str, meanwhile: Callable[[], object]) -> None:
        self._prefix = prefix
        self._meanwhile: Callable[[], object] | None = meanwhile

    def make_directory(self, path: Path) -> None:
        self._stall(path)
        super().make_directory(path)

    def create(self, path: Path) -> Any:
        self._stall(path)
        return super().create(path)

    def _stall(self, path: Path) -> None:
        if path.name.startswith(self._prefix) and self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            meanwhile()


def test_a_late_writer_replaces_no_part_of_its_successor(tmp_path: Path) -> None:
    successor = DirectoryStore(tmp_path / "ckpt")
    manifests = []

    def take_over() -> None:
        (tmp_path / "ckpt" / "LOCK").unlink()  # as a network file system may forget it
        successor.open("successor")
        manifests.append(saved(successor, successor.highest_id() + 1, b"the successor's state"))

    late = DirectoryStore(tmp_path / "ckpt", files=Stalled("chk-", take_over))
    late.open("late")
    late.write(1, "task-0", b"the state of a life that is over")
    with pytest.raises(DirectoryInUse):
        late.commit(msgspec.structs.replace(GOOD, parts=()))
    assert [m.checkpoint for m in manifests] == [1]
    assert successor.read(1, manifests[0].parts[0]) == b"the successor's state"
    assert successor.verify(1) == manifests[0]


def test_a_late_writer_does_not_lower_the_largest_id(tmp_path: Path) -> None:
    successor = DirectoryStore(tmp_path / "ckpt")

    def take_over() -> None:
        (tmp_path / "ckpt" / "LOCK").unlink()  # as a network file system may forget it
        successor.open("successor")
        saved(successor, 9, b"the newest")
        successor.retire(9)

    late = DirectoryStore(tmp_path / "ckpt", files=Stalled("HIGHEST", take_over))
    late.open("late")
    saved(late, 3, b"an old one")
    late.retire(3)
    assert successor.highest_id() == 9
