"""A directory that was written before, whose checkpoints need objects of deleted ones, restored."""

from __future__ import annotations

from pathlib import Path

import pytest

import dataflow as flow
from dataflow.runners.simulated import SimulatedRunner
from tests.golden.archives import unpack
from tests.golden.chain import CHAIN, ROWS, pipeline


@pytest.mark.parametrize("back", [1, 2])
def test_a_kept_chain_is_restored(back: int, tmp_path: Path) -> None:
    store = flow.DirectoryStore(unpack(CHAIN, tmp_path) / "ckpt")
    checkpoint = store.checkpoints()[-back]
    older = {part.checkpoint for part in store.verify(checkpoint).parts if part.checkpoint}
    assert len(older - set(store.checkpoints())) > 2, "it needs objects of deleted checkpoints"
    result = pipeline().run(SimulatedRunner(1), checkpoint=flow.Checkpointing(tmp_path / "ckpt"), restore=checkpoint)
    assert result.table("out").sort_by("x").to_pylist() == ROWS.to_pylist()
    assert [store.verify(n).checkpoint for n in store.checkpoints()] == store.checkpoints()
