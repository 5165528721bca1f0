"""The id of a job: the same in all checkpoints of a directory; a job that begins elsewhere has another and a parent."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.runners.simulated import SimulatedRunner
from dataflow.store.base import CheckpointStore
from dataflow.store.manifest import Manifest, Parent


def run(
    location: Path | CheckpointStore | None, seed: int | None = 1, *, rows: int = 40, **options: Any
) -> flow.RunResult:
    """Run a job, or continue it, on a seeded scheduler, or on threads without a seed. Check that its ids agree."""
    with flow.Pipeline("numbers") as p:
        p.source(op.from_arrow(pa.table({"x": range(rows)}), batch_rows=4), name="in").sink(op.collect(), name="out")
    runner = "local" if seed is None else SimulatedRunner(seed)
    settings = None if location is None else flow.Checkpointing(location, every="1ms", keep=99)
    with p.start(runner, checkpoint=settings, **options) as job:
        result = job.wait()
    assert job.id == result.job_id == result.to_dict()["job_id"] == result.events.recorded.job
    return result


def manifests(location: Path | CheckpointStore) -> list[Manifest]:
    store = flow.DirectoryStore(location) if isinstance(location, Path) else location
    return [store.manifest(checkpoint) for checkpoint in store.checkpoints()]


def job_of(found: Iterable[Manifest]) -> str:
    """Return the id that all checkpoints have."""
    (job,) = {manifest.job for manifest in found}
    return job


@pytest.mark.parametrize("seed", [None, 1])
def test_all_checkpoints_of_a_directory_have_the_id_of_the_first(seed: int | None, tmp_path: Path) -> None:
    results = [run(tmp_path / "ckpt", seed)]
    first = manifests(tmp_path / "ckpt")
    results.append(run(tmp_path / "ckpt", None if seed is None else seed + 1))
    both = manifests(tmp_path / "ckpt")
    assert len(both) > len(first)
    assert [result.job_id for result in results] == [job_of(first), job_of(both)] == [job_of(first)] * 2
    assert {manifest.parent for manifest in both} == {None}


@pytest.mark.parametrize("change", [shutil.move, shutil.copytree])
def test_a_directory_that_is_moved_or_copied_keeps_its_id(change: Any, tmp_path: Path) -> None:
    run(tmp_path / "one")
    job = job_of(manifests(tmp_path / "one"))
    change(tmp_path / "one", tmp_path / "two")
    run(tmp_path / "two", 2)
    assert job_of(manifests(tmp_path / "two")) == job


def test_a_job_that_begins_elsewhere_has_a_new_id_and_names_its_parent(tmp_path: Path) -> None:
    run(tmp_path / "one")
    began = manifests(tmp_path / "one")[0]
    parent = Parent(began.job, began.checkpoint)
    run(tmp_path / "two", restore=flow.DirectoryStore(tmp_path / "one").folder(began.checkpoint).path)
    run(tmp_path / "two", 2)
    found = manifests(tmp_path / "two")
    assert {manifest.parent for manifest in found} == {parent}
    assert job_of(found) != began.job, "also with the same seed"
    checkpoints = [flow.Checkpoint(tmp_path / "two", manifest.checkpoint) for manifest in found]
    assert {(one.job_id, one.parent) for one in checkpoints} == {(job_of(found), parent)}


def test_a_checkpoint_of_the_same_directory_that_is_named_by_path_is_no_parent(tmp_path: Path) -> None:
    run(tmp_path / "one")
    began = manifests(tmp_path / "one")[0]
    run(tmp_path / "one", 2, restore=flow.DirectoryStore(tmp_path / "one").folder(began.checkpoint).path)
    found = manifests(tmp_path / "one")
    assert (job_of(found), {manifest.parent for manifest in found}) == (began.job, {None})


def test_new_directories_have_new_ids_that_a_seed_reproduces(tmp_path: Path) -> None:
    for name, seed in {"a": None, "b": None, "c": 1, "d": 1, "e": 2}.items():
        run(tmp_path / name, seed, restore="never")
    a, b, c, d, e = [job_of(manifests(tmp_path / name)) for name in "abcde"]
    assert c == d
    assert len({a, b, c, e}) == 4


def test_without_checkpoints_the_id_is_new_each_time_unless_a_seed_reproduces_the_run() -> None:
    one, two, seeded, again = [run(None, seed).job_id for seed in (None, None, 1, 1)]
    assert len({one, two, seeded}) == 3
    assert seeded == again


def test_a_simulated_job_has_its_id_when_it_begins() -> None:
    with flow.Pipeline("numbers") as p:
        p.source(op.from_arrow(pa.table({"x": [1]})), name="in").sink(op.collect(), name="out")
    job = SimulatedRunner(1).start(p)
    with pytest.raises(flow.errors.ConfigurationError, match="has no id; call wait"):
        _ = job.id
    assert job.wait().job_id == job.id


def test_a_store_in_memory_has_an_id_too() -> None:
    store = flow.MemoryStore()
    for seed in (1, 2):
        run(store, seed)
    assert len(job_of(manifests(store))) == 32


def test_checkpoints_that_are_not_restored_keep_the_id_of_their_directory(tmp_path: Path) -> None:
    """A savepoint is passed over by ``restore="auto"``, so the job starts again beside it."""
    from msgspec.structs import replace

    from dataflow.store.manifest import encode

    run(tmp_path / "one")
    store = flow.DirectoryStore(tmp_path / "one")
    first, *others = store.checkpoints()
    for checkpoint in others:
        shutil.rmtree(store.folder(checkpoint).path)
    savepoint = replace(store.manifest(first), kind="savepoint")
    (store.folder(first).path / "manifest.json").write_bytes(encode(savepoint))
    run(tmp_path / "one", 2)
    assert len(manifests(tmp_path / "one")) > 1
    assert job_of(manifests(tmp_path / "one")) == savepoint.job
