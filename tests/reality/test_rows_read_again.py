"""What a killed process had read is counted from the checkpoint that it did not live to see."""

from __future__ import annotations

import signal
from pathlib import Path

import dataflow as flow
from dataflow.store.manifest import STATE
from tests.reality import cut_short
from tests.reality.cut_short import SOURCE, pipeline, read_so_far
from tests.reality.harness import spawn


def killed(directory: Path) -> tuple[int, dict[str, int]]:
    """The newest checkpoint of a killed process, and the rows per split that only its orphaned part knows of."""
    with spawn(directory, script=Path(cut_short.__file__)) as process:
        errors = process.communicate(timeout=60)[1]
    assert process.returncode == -signal.SIGKILL, errors
    store = flow.DirectoryStore(directory)
    last = store.checkpoints()[-1]
    (part,) = [part for part in store.manifest(last).parts if part.task == SOURCE and part.part == STATE]
    ((_, orphan),) = store.remains(SOURCE, last)
    before, after = read_so_far(store.read(last, part)), read_so_far(orphan)
    return last, {split: after[split] - before[split] for split in before}


def test_a_restore_after_a_kill_knows_the_rows_of_the_checkpoint_that_was_cut_short(tmp_path: Path) -> None:
    last, expected = killed(tmp_path / "ckpt")
    result = pipeline().run(checkpoint=flow.Checkpointing(tmp_path / "ckpt", every="5ms"))
    assert result.restore_report is not None
    assert result.restore_report.checkpoint == last
    assert result.restore_report.rows_replayed == sum(expected.values()) > 0
    assert {split: rows for split, rows in expected.items() if rows} == {
        split: rows for split, rows in result.restore_report.replayed.items() if rows
    }
    assert sorted(result.table("out")["x"].to_pylist()) == list(range(40_000))
