"""A process that is killed with SIGKILL when all parts of a checkpoint are durable and its manifest is not.

    python cut_short.py ckpt/

That is the first checkpoint from the second on that has read more than the one before it.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow.runtime.task.parts import TaskState
from dataflow.store.files import Buffer
from dataflow.store.manifest import STATE, Manifest

__all__ = ["SOURCE", "pipeline", "read_so_far"]

SOURCE = "numbers[0]"


def pipeline() -> flow.Pipeline:
    """Two splits, read one after the other; an offset is the number of rows before it."""
    numbers = op.from_arrow(pa.table({"x": range(40_000)}), splits=2, batch_rows=100)
    with flow.Pipeline("numbers") as p:
        source = p.source(op.paced(numbers, rows_per_second=100_000), name="numbers")
        source.rebalance().sink(op.collect(), name="out")
    return p


def read_so_far(part: Buffer) -> dict[str, int]:
    """Rows before the offset of each split, by the source's own account."""
    splits: Any = TaskState.decode(part).inlet["splits"]
    return {f"numbers/{split['id']}": split["offset"] or 0 for split in splits}


class CutShort(flow.DirectoryStore):
    """Ends its process instead of the commit."""

    before = 0

    def commit(self, manifest: Manifest) -> None:
        (part,) = [part for part in manifest.parts if part.task == SOURCE and part.part == STATE]
        rows = sum(read_so_far(self.read(manifest.checkpoint, part)).values())
        if manifest.checkpoint >= 2 and rows > self.before:
            os.kill(os.getpid(), signal.SIGKILL)
        self.before = rows
        super().commit(manifest)


if __name__ == "__main__":
    pipeline().run(checkpoint=flow.Checkpointing(CutShort(Path(sys.argv[1])), every="5ms"))
