"""What a checkpoint's summary says about its cost: blocked time by channel, duplicates by operator."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

import dataflow as flow
from dataflow import col
from dataflow.planning.physical_plan import make_plan
from dataflow.runtime.restore.find_checkpoint import find
from operators.sinks.collect import collect
from operators.sources.arrow import from_arrow
from tests.seeds import seeds

_SEEDS = seeds(1, 5)


def _skewed(mode: str, seed: int) -> tuple[flow.Pipeline, flow.MemoryStore, flow.RunResult]:
    """Running counts over two inputs, checkpointed at every turn of the schedule that ``seed`` makes."""
    store = flow.MemoryStore()
    numbers = pa.table({"k": [i % 7 for i in range(2_000)]})
    with flow.Pipeline("skewed") as p:
        source = p.source(from_arrow(numbers, batch_rows=5, splits=2), name="numbers")
        counts = source.key_by("k").agg(col("k").count().alias("n"), emit="updates", name="counts")
        counts.sink(collect(), name="out")
    checkpointing = flow.Checkpointing(store, every="1ms", mode=mode, keep=1_000, duplicates="rows")
    return p, store, p.run(flow.SimulatedRunner(seed=seed), parallelism=2, checkpoint=checkpointing)


@pytest.mark.parametrize("seed", _SEEDS)
def test_the_blocked_times_of_all_checkpoints_add_up_to_those_of_the_run(seed: int) -> None:
    _, store, result = _skewed("aligned", seed)
    assert result.failures == ()
    assert len(result.checkpoints) > 1
    blocked = sum([Counter(record.blocked) for record in result.checkpoints], Counter[str]())
    assert blocked == result.blocked
    assert blocked
    stored = [store.manifest(n).summary["blocked_in_checkpoint_us"] for n in store.checkpoints()]
    assert stored == [record.blocked for record in result.checkpoints]


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_checkpoint_counts_duplicates_by_operator_as_its_restore_does(seed: int) -> None:
    p, store, result = _skewed("unaligned", seed)
    restored = [find(n, store, make_plan(p.graph, parallelism=2)) for n in store.checkpoints()]
    reports = [found.report for found in restored if found is not None]
    assert any(report.duplicated("counts") for report in reports)
    assert [store.manifest(n).summary["duplicated"] for n in store.checkpoints()] == [
        report.duplicated_by_operator for report in reports
    ]
    assert [record.duplicated for record in result.checkpoints] == [report.duplicated() for report in reports]
