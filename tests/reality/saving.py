"""A process that takes savepoints one after the other, each after a line on standard output, until it is killed."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import dataflow as flow
import operators as op


def main(directory: Path) -> None:
    with flow.Pipeline("saving") as p:
        rows = p.source(op.generate({"id": op.sequence()}, rate="200000/s"), name="in")
        rows.unique("id", name="all").sink(op.write_parquet(directory / "out"), name="out")
    with p.start(checkpoint=flow.Checkpointing(directory / "ckpt", every="50ms")) as job:
        while True:
            shutil.rmtree(directory / "saved", ignore_errors=True)
            print("saving", flush=True)
            job.savepoint(directory / "saved")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
