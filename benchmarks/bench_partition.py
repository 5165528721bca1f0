"""Splitting a batch by key for four subtasks: counting and scatter, masks in pyarrow, and Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dataflow.state.hashing import hash_rows, key_groups, subtask_of
from dataflow.state.partition import hash_partition

TARGETS, GROUPS = 4, 128
Split = Callable[[pa.RecordBatch], list[pa.RecordBatch | None]]


def batch_of(rows: int) -> pa.RecordBatch:
    rng = np.random.default_rng(1)
    return pa.record_batch({"key": rng.integers(0, 100_000, rows), "price": rng.random(rows), "time": np.arange(rows)})


def by_counting(batch: pa.RecordBatch) -> list[pa.RecordBatch | None]:
    return hash_partition(batch, ["key"], TARGETS, GROUPS)


def by_masks(batch: pa.RecordBatch) -> list[pa.RecordBatch | None]:
    """The best form without a kernel of ours, given the targets."""
    targets = pa.array(key_groups(hash_rows([batch["key"]]), GROUPS) * TARGETS // GROUPS)
    return [batch.filter(pc.equal(targets, target)) for target in range(TARGETS)]


def by_python(batch: pa.RecordBatch) -> list[pa.RecordBatch | None]:
    groups = key_groups(hash_rows([batch["key"]]), GROUPS).tolist()
    parts: list[list[dict[str, Any]]] = [[] for _ in range(TARGETS)]
    for group, row in zip(groups, batch.to_pylist(), strict=True):
        parts[subtask_of(group, TARGETS, GROUPS)].append(row)
    return [pa.RecordBatch.from_pylist(part, schema=batch.schema) for part in parts]


@pytest.mark.benchmark(group="hash partition into 4")
@pytest.mark.parametrize(("split", "full"), [(by_counting, 65_536), (by_masks, 65_536), (by_python, 8_192)])
def test_split(benchmark: Any, split: Split, full: int) -> None:
    batch = batch_of(2_000 if benchmark.disabled else full)
    parts = benchmark(split, batch)
    assert parts == by_counting(batch)
    benchmark.extra_info["rows"] = batch.num_rows
    if benchmark.stats:
        benchmark.extra_info["rows_per_second"] = batch.num_rows / benchmark.stats.stats.min
