"""Splitting a batch by key for four subtasks: counting and scatter, masks in pyarrow, and Python.

The second benchmark is a filter and a projection with the split behind them, in one loop; ``extra_info`` has how many
times as long they take one after the other, as the median of runs in turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dataflow.clock import ManualClock
from dataflow.contracts.operator import Operator, OperatorContext
from dataflow.expressions import col
from dataflow.planning.operator_table import make_operator
from dataflow.planning.specs import Filter, Project
from dataflow.state.hashing import hash_rows, key_groups, subtask_of
from dataflow.state.partition import hash_partition
from operators.fusion import cache
from operators.fusion.operator import Fused, Spread
from operators.fusion.runs import Run

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


STEPS = (Filter(col("price") > 0.5), Project((col("key"), (col("price") * 0.9).alias("reduced"))))
PAIRS = 31


class Collected(list[pa.RecordBatch | None]):
    """What leaves, whole or in parts."""

    def emit(self, batch: pa.RecordBatch, tag: str | None = None) -> None:
        self.append(batch)

    def emit_parts(self, parts: Sequence[pa.RecordBatch | None]) -> None:
        self.extend(parts)

    def passed(self, rows: Sequence[int]) -> None: ...


def operators_of(schema: pa.Schema) -> list[Operator]:
    made = []
    for step in STEPS:
        after = Run(schema, (step,)).output
        made.append(make_operator(step, context(schema, after)))
        schema = after
    return made


def context(given: pa.Schema, made: pa.Schema) -> OperatorContext:
    groups = range(GROUPS)
    return OperatorContext("bench", 0, 1, (given,), made, groups, GROUPS, None, ManualClock(), lambda due: None)


def one_after_the_other(schema: pa.Schema) -> Split:
    operators = operators_of(schema)

    def split(batch: pa.RecordBatch) -> list[pa.RecordBatch | None]:
        for operator in operators:
            out = Collected()
            operator.process(0, batch, out)
            (passed,) = out
            assert passed is not None
            batch = passed
        return hash_partition(batch, ["key"], TARGETS, GROUPS)

    return split


def in_one_loop(schema: pa.Schema) -> Split:
    run, out = Run(schema, STEPS, ("key",)), Collected()
    first = operators_of(schema)[0]
    fused = Fused(run, first, out, lambda lane, load: load(), output=run.output, spread=Spread(TARGETS, GROUPS))
    for loop in fused.loops.values():
        cache.load(loop.generated.text)
        loop.kernel.load()

    def split(batch: pa.RecordBatch) -> list[pa.RecordBatch | None]:
        out.clear()
        fused.process(0, batch, out)
        return list(out)

    return split


@pytest.mark.benchmark(group="filter, project and hash partition into 4")
def test_split_in_the_loop_that_made_the_rows(benchmark: Any) -> None:
    batch = batch_of(2_000 if benchmark.disabled else 65_536)
    loop, apart = in_one_loop(batch.schema), one_after_the_other(batch.schema)
    parts = benchmark(loop, batch)
    assert parts == apart(batch)
    if benchmark.stats:
        pairs = [(took(loop, batch), took(apart, batch)) for _ in range(PAIRS)]
        benchmark.extra_info["one after the other / loop"] = round(median(b / a for a, b in pairs), 2)
        benchmark.extra_info["rows_per_second"] = round(batch.num_rows / benchmark.stats.stats.median)


def took(split: Split, batch: pa.RecordBatch) -> float:
    started = time.perf_counter()
    split(batch)
    return time.perf_counter() - started
