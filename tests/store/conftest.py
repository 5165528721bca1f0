"""Helpers of the store's tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dataflow.store.base import CheckpointStore
from dataflow.store.manifest import FORMAT, Manifest, PartHandle

Save = Callable[..., Manifest]


@pytest.fixture
def save() -> Save:
    """``save(store, n)`` writes two parts that say n, and commits them."""

    def save(store: CheckpointStore, checkpoint: int, *, kind: str = "checkpoint") -> Manifest:
        parts = tuple(store.write(checkpoint, f"task-{i}", content(checkpoint, i)) for i in range(2))
        made = manifest(checkpoint, parts, kind=kind)
        store.commit(made)
        return made

    def content(checkpoint: int, i: int) -> bytes:
        return f"state {i} of {checkpoint} ".encode() * 50

    def manifest(checkpoint: int, parts: tuple[PartHandle, ...], *, kind: str) -> Manifest:
        return Manifest(
            format=FORMAT,
            checkpoint=checkpoint,
            kind=kind,
            pipeline="bids",
            nodes=({"name": "counts", "kind": "count", "parallelism": 2, "detail": {"keys": ["origin"]}},),
            mode="aligned",
            guarantee="exactly once",
            finished=False,
            created=12.5,
            run_id="r1",
            job="0" * 32,
            parts=parts,
            transactions={"out": [{"file": f"part-{checkpoint}"}]},
            summary={"duplicates": 0},
        )

    return save
