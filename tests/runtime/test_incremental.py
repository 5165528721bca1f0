"""Checkpoints of jobs hold what changed: fewer bytes, the same answers, whatever is restored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import CheckpointDamaged
from dataflow.runners.faults import Faults
from dataflow.store.directory import DirectoryStore
from dataflow.store.manifest import LOG, PartHandle
from tests.seeds import in_soak, seeds

ROWS, KEYS = 60_000, 5_000


def pipeline() -> flow.Pipeline:
    """First every key, then a few of them again and again; each batch changes some rows of the state."""
    rng = np.random.default_rng(3)
    keys = np.concatenate([np.arange(KEYS), rng.integers(0, 40, ROWS - KEYS)])
    table = pa.table({"k": keys.astype(str), "x": np.arange(ROWS)})
    with flow.Pipeline("sums") as p:
        rows = p.source(op.from_arrow(table, batch_rows=500), name="in")
        different = (col("x") % 7).cast("string").count_distinct().alias("d")
        sums = rows.key_by("k").agg(col("x").sum(), different, name="sums")
        sums.sink(op.collect(), name="out")
        rows.filter(col("x") % 10 == 0).sink(op.collect(), name="tenth")
    return p


RESTARTS = flow.Restarts.fixed(50, "0s")


def run(path: Path, seed: int = 1, faults: Faults | None = None, **options: Any) -> flow.RunResult:
    path.mkdir(exist_ok=True)
    checkpoint = flow.Checkpointing(path / "ckpt", every="2ms", **{"keep": 100, **options})
    return pipeline().run(flow.SimulatedRunner(seed, faults), parallelism=2, checkpoint=checkpoint, restarts=RESTARTS)


def answer(result: flow.RunResult) -> tuple[Any, ...]:
    return tuple(sorted(map(repr, result.table(name).to_pylist())) for name in ("out", "tenth"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole")
    run(path)
    return path


def logs(store: DirectoryStore, checkpoint: int) -> list[tuple[int, PartHandle]]:
    """The objects that a checkpoint needs, each with the checkpoint that wrote it."""
    handles = [part for part in store.manifest(checkpoint).parts if part.part == LOG]
    return [(handle.checkpoint or checkpoint, handle) for handle in handles]


def written(store: DirectoryStore, checkpoint: int) -> int:
    """The bytes of the objects that a checkpoint wrote itself."""
    return sum(log.size for wrote, log in logs(store, checkpoint) if wrote == checkpoint)


def test_a_checkpoint_writes_what_changed_and_refers_to_the_rest(whole: Path) -> None:
    store = DirectoryStore(whole / "ckpt")
    checkpoints = store.checkpoints()
    assert len(checkpoints) > 10
    sizes = [written(store, n) for n in checkpoints]
    held = [sum(log.size for _, log in logs(store, n)) for n in checkpoints]
    assert min(sizes[5:]) < max(held) / 10
    assert any([wrote < n for n in checkpoints for wrote, _ in logs(store, n)])
    for n in checkpoints:
        store.verify(n)


@pytest.mark.parametrize("every", [48, *in_soak(16, 8, 1)])
def test_every_checkpoint_of_a_chain_leads_to_the_same_answer(every: int, whole: Path, tmp_path: Path) -> None:
    import shutil

    expected = answer(run(tmp_path / "undisturbed"))
    for n in DirectoryStore(whole / "ckpt").checkpoints()[::every]:
        copy, path = tmp_path / f"from-{n}", tmp_path / f"other-{n}" / "old" / f"chk-{n:08d}"
        shutil.copytree(whole, copy)
        shutil.copytree(whole / "ckpt", path.parent)
        checkpoint = flow.Checkpointing(copy / "ckpt", every="3ms")
        result = pipeline().run(flow.SimulatedRunner(n), parallelism=2, checkpoint=checkpoint, restore=n)
        assert answer(result) == expected
        elsewhere = flow.Checkpointing(tmp_path / f"other-{n}" / "new", every="3ms", keep=100)
        result = pipeline().run(flow.SimulatedRunner(n), parallelism=2, checkpoint=elsewhere, restore=str(path))
        assert answer(result) == expected
        mine = DirectoryStore(tmp_path / f"other-{n}" / "new")
        first = mine.checkpoints()[0]
        assert {wrote for wrote, _ in logs(mine, first)} == {first}, "it owns nothing there"


@pytest.mark.parametrize("seed", seeds(1, 60))
def test_crashes_and_failed_checkpoints_lose_and_repeat_nothing(tmp_path: Path, seed: int) -> None:
    faults = Faults(crashes=5, crash_after=(1, 3, 6), fail=0.02, stall=0.01, slow=0.3)
    result = run(tmp_path, seed, faults, keep=1 + seed % 3, max_concurrent=1 + seed % 3)
    assert answer(result) == answer(run(tmp_path / "undisturbed"))
    store = DirectoryStore(tmp_path / "ckpt")
    parts = [(part.checkpoint or n, part.file) for n in store.checkpoints() for part in store.manifest(n).parts]
    named = set(parts)
    found = {(int(file.parent.name[4:]), file.name) for file in (tmp_path / "ckpt").glob("chk-*/*.part")}
    assert found == named


def test_a_chain_whose_base_is_gone_is_passed_over(whole: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(whole, tmp_path / "copy")
    store = DirectoryStore(tmp_path / "copy" / "ckpt")
    newest = store.checkpoints()[-1]
    wrote, base = next((wrote, log) for wrote, log in logs(store, newest) if wrote < newest)
    (store.folder(wrote).path / base.file).unlink()
    with pytest.raises(CheckpointDamaged, match="is missing"):
        store.verify(newest)
    with pytest.warns(flow.errors.CheckpointSkippedWarning, match=f"checkpoint {newest} "):
        run(tmp_path / "copy")
