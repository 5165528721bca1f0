"""Jobs whose checkpoints are chains of deltas: what they write, restore, share and refuse."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import CheckpointDamaged, CheckpointSkippedWarning, ConfigurationError
from dataflow.protocol.events import BarrierKind
from dataflow.runners.simulated import SimulatedRunner
from dataflow.runtime.job.job import Job
from dataflow.store.manifest import LOG, PartHandle
from tests.checkpoints import task_states

ROWS = pa.table({"x": range(400), "text": [f"row {i} " * 5 for i in range(400)]})


def pipeline() -> flow.Pipeline:
    with flow.Pipeline("chain") as p:
        p.source(op.from_arrow(ROWS, batch_rows=4), name="in").rebalance().sink(op.collect(), name="out", parallelism=1)
    return p


def settings(path: Path, **options: Any) -> flow.Checkpointing:
    return flow.Checkpointing(path / "ckpt", **{"every": "1ms", "keep": 2, **options})


def half(path: Path, seed: int = 3, **options: Any) -> flow.DirectoryStore:
    """Run a job that stops half-way, and return its store."""
    job = pipeline().start(SimulatedRunner(seed), checkpoint=settings(path, **options))
    job.stop_when(lambda state: state.table("out").num_rows >= 200)
    assert job.wait().state.value == "stopped"
    return flow.DirectoryStore(path / "ckpt")


def resumed(path: Path, restore: Any = "latest", **options: Any) -> flow.RunResult:
    return pipeline().run(SimulatedRunner(2), checkpoint=settings(path, **options), restore=restore)


def logs(store: flow.DirectoryStore, checkpoint: int) -> list[PartHandle]:
    return [part for part in store.manifest(checkpoint).parts if part.part == LOG]


def whole(result: flow.RunResult) -> bool:
    return result.table("out").sort_by("x").equals(ROWS)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("chain")
    half(path)
    return path


@pytest.fixture
def work(stopped: Path, tmp_path: Path) -> Path:
    """A directory whose newest checkpoint is a chain."""
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_a_checkpoint_writes_only_new_rows_and_a_restore_finds_all(work: Path) -> None:
    store = flow.DirectoryStore(work / "ckpt")
    newest = store.checkpoints()[-1]
    chain = logs(store, newest)
    assert len(chain) > 2
    parts = task_states(store, newest)["out[0]"].operators["out"].logs["rows"]
    assert len(parts) == len(chain)  # type: ignore[arg-type]
    assert whole(resumed(work))


def test_after_a_restore_in_its_own_directory_the_chain_continues(tmp_path: Path) -> None:
    store = half(tmp_path, keep=50)
    restored = max(
        n for n in store.checkpoints() if 2 * sum(p.size for p in logs(store, n)[1:]) < logs(store, n)[0].size
    )
    files = [part.file for part in logs(store, restored)]
    highest = store.highest_id()
    assert whole(resumed(tmp_path, restored, keep=50))
    first = min(n for n in store.checkpoints() if n > highest)
    assert [part.file for part in logs(store, first)][:-1] == files
    assert logs(store, first)[-2].checkpoint == restored


def test_the_first_checkpoint_after_a_restore_from_elsewhere_is_full(work: Path, tmp_path: Path) -> None:
    store = flow.DirectoryStore(work / "ckpt")
    other = tmp_path / "other"
    other.mkdir()
    assert whole(resumed(other, store.folder(store.checkpoints()[-1]).path, keep=100))
    new = flow.DirectoryStore(other / "ckpt")
    shutil.rmtree(work / "ckpt")  # nothing refers to it
    first, *_ = new.checkpoints()
    assert {part.checkpoint for part in new.manifest(first).parts} == {0}
    assert [new.verify(n).checkpoint for n in new.checkpoints()] == new.checkpoints()


@pytest.fixture
def savepoint(work: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """A savepoint among the checkpoints of a run that continues the chain."""
    step, futures = Job.step, list[Any]()

    def step_and_request(job: Job) -> bool:
        if len(job.history.checkpoints) == 3 and not futures:
            futures.append(job.checkpoint(BarrierKind.SAVEPOINT))
        return step(job)

    with monkeypatch.context() as patch:
        patch.setattr(Job, "step", step_and_request)
        resumed(work, keep=100)
    return int(futures[0].result())


def test_a_savepoint_is_full_and_later_deltas_build_on_it(savepoint: int, work: Path, tmp_path: Path) -> None:
    store = flow.DirectoryStore(work / "ckpt")
    manifest = store.manifest(savepoint)
    assert manifest.kind == "checkpoint"
    assert {part.checkpoint for part in manifest.parts} == {0}
    later = [part for n in store.checkpoints() if n > savepoint for part in store.manifest(n).parts]
    assert savepoint in {part.checkpoint for part in later}
    other = tmp_path / "other"
    other.mkdir()
    shutil.copytree(store.folder(savepoint).path, other / "alone")
    assert whole(resumed(other, other / "alone"))


def test_checkpoints_after_a_restored_savepoint_build_on_it(savepoint: int, work: Path) -> None:
    store = flow.DirectoryStore(work / "ckpt")
    highest = store.highest_id()
    assert whole(resumed(work, savepoint, keep=100))
    first = min(n for n in store.checkpoints() if n > highest)
    assert {part.checkpoint for part in store.manifest(first).parts} == {0, savepoint}


def test_a_folder_copied_without_the_objects_it_needs_is_refused(work: Path, tmp_path: Path) -> None:
    store = flow.DirectoryStore(work / "ckpt")
    newest = store.checkpoints()[-1]
    other = tmp_path / "other"
    other.mkdir()
    shutil.copytree(store.folder(newest).path, other / "alone")
    with pytest.raises(CheckpointDamaged, match="copy or restore the whole checkpoint directory") as caught:
        resumed(other, other / "alone")
    for part in logs(store, newest)[:5]:
        assert f"chk-{part.checkpoint:08d}/{part.file}" in str(caught.value)


def test_a_delta_whose_base_is_gone_is_passed_over_if_an_older_checkpoint_is_whole(tmp_path: Path) -> None:
    store = half(tmp_path, keep=50)
    bases = {n: logs(store, n)[0].checkpoint or n for n in store.checkpoints()}
    newest = max(bases)
    older = max(n for n in bases if bases[n] != bases[newest])
    next(store.folder(bases[newest]).path.glob("out*.1.part")).unlink()
    with pytest.warns(CheckpointSkippedWarning, match="is missing"):
        result = resumed(tmp_path, keep=50)
    assert result.restore_report is not None
    assert result.restore_report.checkpoint == older
    assert whole(result)


def test_a_chain_whose_base_is_gone_is_damaged(work: Path) -> None:
    store = flow.DirectoryStore(work / "ckpt")
    for n in store.checkpoints():
        base = logs(store, n)[0]
        (store.folder(base.checkpoint or n).path / base.file).unlink(missing_ok=True)
    with pytest.raises(CheckpointDamaged, match=r"no checkpoint in .* can be restored"):
        resumed(work)


def test_every_object_of_a_chain_counts_for_the_limit_of_a_restore(work: Path) -> None:
    store = flow.DirectoryStore(work / "ckpt")
    newest = store.checkpoints()[-1]
    size = store.manifest_size(newest) + sum(part.size for part in store.manifest(newest).parts)
    with pytest.raises(ConfigurationError, match="max_restore_bytes"):
        resumed(work, max_restore_bytes=size - 1)
    assert whole(resumed(work, max_restore_bytes=size))


def test_a_change_of_any_byte_region_of_any_object_is_noticed(work: Path) -> None:
    store = flow.DirectoryStore(work / "ckpt")
    newest = store.checkpoints()[-1]
    manifest = store.manifest(newest)
    paths = [store.folder(part.checkpoint or newest).path / part.file for part in manifest.parts]
    for path in [*paths, store.folder(newest).path / "manifest.json"]:
        original = path.read_bytes()
        for at in [*range(0, len(original), 61), len(original) - 1]:
            path.write_bytes(original[:at] + bytes([original[at] ^ 0x20]) + original[at + 1 :])
            with pytest.raises(CheckpointDamaged):
                store.verify(newest)
        for cut in (0, 1, len(original) // 2, len(original) - 2):
            path.write_bytes(original[:cut])
            with pytest.raises(CheckpointDamaged):
                store.verify(newest)
        path.write_bytes(original)
    assert store.verify(newest) == manifest


def test_objects_that_are_exchanged_within_a_chain_are_noticed(work: Path) -> None:
    store = flow.DirectoryStore(work / "ckpt")
    newest = store.checkpoints()[-1]
    chain = logs(store, newest)
    paths = [store.folder(part.checkpoint or newest).path / part.file for part in chain]
    contents = [path.read_bytes() for path in paths]
    for one in range(len(paths)):
        for other in range(one):
            paths[one].write_bytes(contents[other])
            paths[other].write_bytes(contents[one])
            with pytest.raises(CheckpointDamaged):
                task_states(store, newest)
            paths[one].write_bytes(contents[one])
            paths[other].write_bytes(contents[other])
