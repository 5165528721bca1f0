"""A process to be killed: writes the rows of the first files of a watched directory to CSV, with checkpoints.

    python watcher.py work/ 6

It reads ``work/inbox`` until it has had six files, and prints ``running`` with its first rows.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

import dataflow as flow
import operators as op
from tests.operators.sources.watched import first_names


def main() -> None:
    work, names = Path(sys.argv[1]), int(sys.argv[2])

    def tell(batch: pa.RecordBatch) -> pa.RecordBatch:
        print("running", flush=True)
        return batch

    with flow.Pipeline("watcher") as p:
        rows = p.source(first_names(work / "inbox", names), name="files").map_batches(tell, name="tell")
        rows.sink(op.write_csv(work / "out", if_exists="append"), name="out")
    p.run(checkpoint=flow.Checkpointing(work / "ckpt", every="10ms"))


if __name__ == "__main__":
    main()
