"""The status of checkpoints: what is missing, damaged or unfinished in a chain."""

from __future__ import annotations

import shutil
from itertools import permutations
from pathlib import Path

import msgspec
import pytest

from dataflow.observe.removal import delete, planned
from dataflow.store import status
from dataflow.store.directory import DirectoryStore
from dataflow.store.folder import CheckpointFolder
from dataflow.store.manifest import LOG, PartHandle
from dataflow.store.status import CheckpointStatus, ObjectStatus, contents, contents_of, verified
from dataflow.testing.faulty_files import Crash, FaultyFileSystem, crash_at
from tests.store.test_shared_objects import check_tidy, check_whole, manifest
from tests.store.test_shared_objects import contents as written

LENGTH = 4


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """A directory with checkpoints 1 to 4, each of which needs objects of all before it."""
    with DirectoryStore(tmp_path / "ckpt", files=FaultyFileSystem()) as store:
        logs: tuple[PartHandle, ...] = ()
        for n in range(1, LENGTH + 1):
            new = (store.write(n, "a", written(n, "a", 0)), *logs, store.write(n, "a", written(n, "a", LOG), LOG))
            store.commit(manifest(n, "checkpoint", new))
            logs = tuple(msgspec.structs.replace(part, checkpoint=part.checkpoint or n) for part in new[1:])
    return tmp_path / "ckpt"


def statuses(path: Path) -> dict[int, str]:
    return {found.id: str(found.status) for found in contents(DirectoryStore(path))}


def test_a_missing_base_makes_all_that_need_it_incomplete(chain: Path) -> None:
    (chain / "chk-00000002" / "a.1.1.part").unlink()
    assert statuses(chain) == {1: "whole", 2: "incomplete", 3: "incomplete", 4: "incomplete"}
    found = contents_of(DirectoryStore(chain), 4)
    assert [(one.checkpoint, one.file) for one in found.objects if one.status is ObjectStatus.MISSING] == [
        (2, "a.1.1.part")
    ]
    assert "chk-00000002/a.1.1.part" in str(found.reason)
    assert "copy or restore the whole checkpoint directory" in str(found.reason)


def test_a_copy_of_one_folder_names_all_that_it_needs(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain / "chk-00000004", tmp_path / "alone" / "chk-00000004")
    (found,) = contents(DirectoryStore(tmp_path / "alone"))
    assert (found.id, found.status) == (4, CheckpointStatus.INCOMPLETE)
    assert found.reason is not None
    assert "3 of 5 objects are missing: chk-00000001/a.1.1.part, chk-00000002/a.1.1.part, chk-00000003" in found.reason
    assert "copy or restore the whole checkpoint directory" in found.reason


@pytest.mark.parametrize("change", ["bit", "shorter", "link", "folder"])
def test_verification_names_each_damaged_object_of_each_checkpoint(change: str, chain: Path) -> None:
    store = DirectoryStore(chain)
    for path in sorted(chain.glob("chk-*/*.part")):
        data, folder = path.read_bytes(), int(path.parent.name[4:])
        path.unlink()
        if change == "bit":
            path.write_bytes(bytes([data[0] ^ 128]) + data[1:])
        elif change == "shorter":
            path.write_bytes(data[:-1])
        elif change == "link":
            path.symlink_to(chain / "LOCK")
        else:
            path.mkdir()
        needing = [folder] if path.name == "a.1.0.part" else list(range(folder, LENGTH + 1))
        assert [n for n in range(1, LENGTH + 1) if verified(store, n).status is CheckpointStatus.DAMAGED] == needing
        for n in needing:
            bad = [one for one in verified(store, n).objects if one.status is ObjectStatus.DAMAGED]
            assert [(one.checkpoint, one.file) for one in bad] == [(folder, path.name)]
            assert str(path) in str(bad[0].reason)
        assert (statuses(chain)[folder] == "whole") == (change == "bit"), "only reading finds a flipped bit"
        path.rmdir() if change == "folder" else path.unlink()
        path.write_bytes(data)
    assert set(statuses(chain).values()) == {"whole"}


def test_objects_of_a_checkpoint_without_a_manifest_are_unfinished(chain: Path) -> None:
    with DirectoryStore(chain) as store:
        store.write(5, "a", b"no manifest")
        store.retire(1)  # leaves the object that others need
    assert statuses(chain) == {2: "whole", 3: "whole", 4: "whole", 5: "unfinished"}


def test_a_lost_manifest_leaves_nothing_unfinished_that_others_need(chain: Path) -> None:
    (chain / "chk-00000004" / "manifest.json").unlink()
    (chain / "chk-00000002" / "manifest.json").unlink()
    assert statuses(chain) == {1: "whole", 2: "unfinished", 3: "whole", 4: "unfinished"}
    assert [one.file for one in contents_of(DirectoryStore(chain), 2).objects] == ["a.1.0.part"]


@pytest.mark.parametrize("order", list(permutations(range(1, LENGTH + 1))))
def test_checkpoints_of_a_chain_are_deleted_in_any_order(order: tuple[int, ...], chain: Path) -> None:
    left = set(range(1, LENGTH + 1))
    with DirectoryStore(chain, files=FaultyFileSystem()) as store:
        for n in order:
            removal = planned(store, [n])
            assert removal.loses_last == (left == {n})
            before = sum(store.files().values())
            (deleted,) = delete(store, removal)
            left.discard(n)
            assert before - deleted.bytes == sum(store.files().values())
            assert store.checkpoints() == sorted(left)
            check_tidy(store, chain)
            for other in left:
                check_whole(store, other)
    assert list(chain.glob("chk-*")) == []


@pytest.mark.parametrize("end", ["crash", "power failure"])
@pytest.mark.parametrize("removed", [(1,), (4,), (2, 3), (3, 4)])
def test_a_crash_at_any_operation_of_a_deletion_leaves_the_others_whole(
    removed: tuple[int, ...], end: str, chain: Path, tmp_path: Path
) -> None:
    left = set(range(1, LENGTH + 1)) - set(removed)
    for at in range(1, 1_000):
        path, files = tmp_path / f"at-{at}", FaultyFileSystem()
        shutil.copytree(chain, path)
        store = DirectoryStore(path, files=files)
        store.open()
        files.fault = crash_at(len(files.log) + at)
        try:
            delete(store, planned(store, removed))
        except Crash:
            store.close()
            if end == "power failure":
                files.lose_power(path, at)
        else:
            store.close()
            break
        with DirectoryStore(path, files=FaultyFileSystem()) as restarted:
            for n in restarted.checkpoints():
                check_whole(restarted, n)
            assert left <= set(restarted.checkpoints())
            restarted.remove_orphans()
            check_tidy(restarted, path)
    assert at > 5 * len(removed)
    assert set(DirectoryStore(path).checkpoints()) == left


def test_a_checkpoint_that_is_deleted_while_it_is_looked_at_is_left_out(
    chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_size = CheckpointFolder.check_size

    def check_beside_a_restore(folder: CheckpointFolder, handle: PartHandle) -> Path:
        if folder.path.name == "chk-00000003":
            store.abandon(3)
        return check_size(folder, handle)

    monkeypatch.setattr(CheckpointFolder, "check_size", check_beside_a_restore)
    with DirectoryStore(chain) as store:
        store.retire(4)
        assert [found.id for found in contents(store)] == [1, 2]


def test_a_checkpoint_that_is_completed_while_it_is_looked_at_is_whole(
    chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orphans = status._orphans

    def orphans_before_a_commit(store: DirectoryStore) -> dict[int, dict[str, int]]:
        found = orphans(store)
        writer.commit(manifest(5, "checkpoint", (own,)))
        return found

    monkeypatch.setattr(status, "_orphans", orphans_before_a_commit)
    with DirectoryStore(chain) as writer:
        own = writer.write(5, "a", b"whole")
        assert statuses(chain) == dict.fromkeys(range(1, 6), "whole")
