"""What durability costs: a checkpoint of one 10 MB part, beside the same bytes written and not synced.

Run with ``python -m pytest benchmarks/bench_store.py --benchmark-enable``. ``unsynced`` is the reference: it only fills
the page cache. A checkpoint hashes, writes, syncs, renames and syncs the directory, for the part and for its manifest.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from dataflow.store.directory import DirectoryStore
from dataflow.store.manifest import FORMAT, Manifest
from dataflow.store.memory import MemoryStore

PART = np.random.default_rng(7).bytes(10_000_000)


def save(store: DirectoryStore | MemoryStore, checkpoint: int) -> None:
    handle = store.write(checkpoint, "counts-0", PART)
    store.commit(
        Manifest(
            format=FORMAT,
            checkpoint=checkpoint,
            kind="checkpoint",
            pipeline="bench",
            mode="aligned",
            guarantee="exactly once",
            finished=False,
            created=0.0,
            run_id="bench",
            job="0" * 32,
            parts=(handle,),
        )
    )
    store.retire(checkpoint - 1) if checkpoint > 1 else None


def test_unsynced_file(benchmark: Any, tmp_path: Path) -> None:
    benchmark(lambda: (tmp_path / "part").write_bytes(PART))


def test_checkpoint_in_memory(benchmark: Any) -> None:
    store, ids = MemoryStore(), count(1)
    benchmark(lambda: save(store, next(ids)))
    assert len(store.checkpoints()) == 1


def test_checkpoint_in_a_directory(benchmark: Any, tmp_path: Path) -> None:
    ids = count(1)
    with DirectoryStore(tmp_path) as store:
        benchmark(lambda: save(store, next(ids)))
        assert len(store.checkpoints()) == 1


def test_reading_it_back(benchmark: Any, tmp_path: Path) -> None:
    with DirectoryStore(tmp_path) as store:
        save(store, 1)
        manifest = benchmark(lambda: store.verify(1))
        assert manifest.parts[0].size == len(PART)
