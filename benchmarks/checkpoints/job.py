"""The job: six operators and three full shuffles, as in the ABS paper, with two aggregates as state."""

from __future__ import annotations

from pathlib import Path

import dataflow as flow
import operators as op
from benchmarks.checkpoints.gate import EndlessRows, Gate
from benchmarks.checkpoints.settings import MODES, NONE, STOP_THE_WORLD, Setting
from dataflow import col
from dataflow.runners.local_job import LocalJob

__all__ = ["COUNTS", "BATCH_ROWS", "pipeline", "start"]

BATCH_ROWS = 16_384
COUNTS = "counts"
"""The operator with the large state: behind two of the three shuffles."""
LAST = "regions"
"""The operator that may be slow."""


def pipeline(source: EndlessRows) -> flow.Pipeline:
    """Return the job over ``source``. Its last operator emits nothing before the end, which never comes."""
    with flow.Pipeline("cost of checkpoints") as p:
        rows = p.source(source, name="rows").rebalance()
        scaled = rows.with_columns((col("value") * 3 + 1).alias("value"), name="scaled")
        counts = scaled.key_by("key").agg(
            op.count().alias("n"), col("value").sum().alias("total"), emit="updates", name=COUNTS
        )
        by_region = counts.as_rows().with_columns((col("key") % 1_000).alias("region"), name="by region")
        regions = by_region.key_by("region").agg(
            op.count().alias("n"), col("total").max().alias("top"), emit="final", name=LAST
        )
        regions.sink(op.collect(), name="out")
    return p


def start(variant: str, setting: Setting, gate: Gate, folder: Path) -> tuple[LocalJob, EndlessRows]:
    """Start the job with the checkpoints of ``variant``; those of stop-the-world are left to `HaltingCheckpoints`.

    Rows are not folded before shuffles: mode ``unaligned`` never does, and the variants are to do the same work.
    """
    source = EndlessRows(
        keys=setting.keys, skew=setting.skew, splits=setting.parallelism, batch_rows=BATCH_ROWS, gate=gate
    )
    slow = {LAST: f"{setting.slow}us"} if setting.slow else None
    runner = flow.LocalRunner(combine=False, slow=slow)
    job = pipeline(source).start(
        runner, parallelism=setting.parallelism, checkpoint=_checkpointing(variant, setting, folder)
    )
    assert isinstance(job, LocalJob), job
    return job, source


def _checkpointing(variant: str, setting: Setting, folder: Path) -> flow.Checkpointing | None:
    if variant == NONE:
        return None
    if variant == STOP_THE_WORLD:
        return flow.Checkpointing(folder, mode="aligned", tolerable_failures=None)
    assert variant in MODES, variant
    return flow.Checkpointing(folder, every=f"{setting.interval}ms", mode=variant, tolerable_failures=None)
