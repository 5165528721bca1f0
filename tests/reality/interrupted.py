"""A process that is interrupted from outside.

    python interrupted.py work/ checkpointed|plain|stuck

``stuck``: a function that sleeps for a minute. It prints ``running`` when the job runs and is waited for, and ``done``
when it finished.
"""

from __future__ import annotations

import logging
import signal
import sys
import time
from pathlib import Path

import pyarrow as pa

import dataflow as flow
import operators as op

ROWS = 60_000


def main() -> None:
    work, how = Path(sys.argv[1]), sys.argv[2]
    logging.basicConfig(level=logging.WARNING)

    def told(batch: pa.RecordBatch) -> pa.RecordBatch:
        if not heard:
            heard.append(True)
            while signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                time.sleep(0.001)  # rows flow already, and nobody waits for the job yet
            print("running", flush=True)
        if how == "stuck":
            time.sleep(60)
        return batch

    heard: list[bool] = []
    with flow.Pipeline("interrupted") as p:
        numbers = p.source(op.paced(op.from_arrow(pa.table({"n": range(ROWS)})), 30_000), name="numbers")
        numbers.map_batches(told).sink(op.write_parquet(work / "out", if_exists="append"), name="out")
    p.run(checkpoint=None if how == "plain" else flow.Checkpointing(work / "ckpt"))
    print("done", flush=True)


if __name__ == "__main__":
    main()
