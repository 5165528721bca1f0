"""The job: flights counted, and their delays averaged, per airport and airline, written as Parquet while it goes.

It is the same in the undisturbed run, in the process that is killed, and in the one that is restored. Run as a module
(``python -m dataflow.demo.job JSON``) it is that process.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.demo.flights import FlightFiles

__all__ = ["AGGREGATE", "FILTER", "PARALLELISM", "SOURCE", "DelaysJob"]

SOURCE, FILTER, AGGREGATE = "flights", "departed", "delays"
PARALLELISM = 2

_SECONDS = 1.0
"""How long the input takes to come, however many flights there are."""
_BATCHES = 1_200
_CREDIT = 32
"""Many small batches in long queues: a barrier of the fast input waits behind some, one of the slow input does not."""


@dataclass(frozen=True, slots=True)
class DelaysJob:
    """One run of the job in ``folder``: its checkpoints and its output go there."""

    files: FlightFiles
    folder: str
    mode: str
    every: str = "50ms"

    @property
    def checkpoints(self) -> Path:
        return Path(self.folder) / "checkpoints"

    @property
    def output(self) -> Path:
        return Path(self.folder) / "delays"

    def pipeline(self) -> flow.Pipeline:
        """The two inputs come at different speeds, so that their barriers do not arrive together."""
        files = self.files
        rates = (files.fast_rows / _SECONDS, files.slow_rows / _SECONDS)
        batch_rows = max(1, files.rows // _BATCHES)
        source = op.read_parquet([files.fast, files.slow], split_by="file", batch_rows=batch_rows)
        with flow.Pipeline("delays") as p:
            (
                p.source(op.paced(source, rates), name=SOURCE)
                .filter(col("departure").is_not_null(), name=FILTER)
                .select("origin", "carrier", "delay", name="needed")
                .key_by("origin", "carrier")
                .agg(
                    op.count().alias("flights"),
                    col("delay").mean().alias("mean_delay"),
                    emit="updates",
                    name=AGGREGATE,
                )
                .sink(op.write_parquet(self.output), name="output")
            )
        return p

    def run(self, restore: str) -> flow.RunResult:
        """Run to the end of the flights. Every checkpoint is kept, to be looked at afterwards."""
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        checkpointing = flow.Checkpointing(
            self.checkpoints, every=self.every, mode=self.mode, keep=1_000_000, duplicates="rows"
        )
        return self.pipeline().run(
            parallelism=PARALLELISM, checkpoint=checkpointing, restore=restore, channel_credit=_CREDIT
        )


if __name__ == "__main__":
    msgspec.json.decode(sys.argv[1], type=DelaysJob).run("never")
