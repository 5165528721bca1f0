"""Filter and project: our operators beside pyarrow compute written by hand, and pure Python on a slice.

``pytest benchmarks/bench_filter_project.py --benchmark-enable`` measures a million rows in batches of 65,536; with
benchmarks disabled each candidate runs once over a few thousand rows, and its result is still compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dataflow.clock import ManualClock
from dataflow.expressions import col, output_schema
from dataflow.operator import OperatorContext
from operators.transforms.filter import Filter
from operators.transforms.project import Project

BATCH: Final = 65_536
PREDICATE: Final = (col("price") * 0.9 > 300) & (col("quantity") != 0)
COLUMNS: Final = (col("auction"), (col("price") * col("quantity")).alias("total"))
Batches = list[pa.RecordBatch]


def data(rows: int) -> Batches:
    rng = np.random.default_rng(7)
    columns = {
        "auction": rng.integers(0, 1000, rows),
        "price": rng.integers(1, 1000, rows),
        "quantity": rng.integers(0, 5, rows),
    }
    return pa.table(columns).combine_chunks().to_batches(max_chunksize=BATCH)


class Collected(list[pa.RecordBatch]):
    def emit(self, batch: pa.RecordBatch, tag: str | None = None) -> None:
        self.append(batch)


class IntoProject:
    """The output of the filter in a chain: the next operator's input."""

    def __init__(self, project: Project, out: Collected) -> None:
        self._project = project
        self._out = out

    def emit(self, batch: pa.RecordBatch, tag: str | None = None) -> None:
        self._project.process(0, batch, self._out)


def context(given: pa.Schema, made: pa.Schema) -> OperatorContext:
    return OperatorContext("bench", 0, 1, (given,), made, range(128), 128, None, ManualClock(), lambda due: None)


def by_operators(batches: Batches) -> Batches:
    schema = batches[0].schema
    keep = Filter(context(schema, schema), PREDICATE)
    out = Collected()
    chained = IntoProject(Project(context(schema, output_schema(COLUMNS, schema, "bench")), COLUMNS), out)
    for batch in batches:
        keep.process(0, batch, chained)
    return out


def by_pyarrow(batches: Batches) -> Batches:
    made = []
    for batch in batches:
        dear = pc.greater(pc.multiply(pc.cast(batch["price"], pa.float64()), 0.9), 300)
        kept = batch.filter(pc.and_(dear, pc.not_equal(batch["quantity"], 0)))
        total = pc.multiply(kept["price"], kept["quantity"])
        made.append(pa.record_batch({"auction": kept["auction"], "total": total}))
    return made


def by_python(batches: Batches) -> Batches:
    kept = [
        {"auction": row["auction"], "total": row["price"] * row["quantity"]}
        for batch in batches
        for row in batch.to_pylist()
        if row["price"] * 0.9 > 300 and row["quantity"] != 0
    ]
    return [pa.RecordBatch.from_pylist(kept)]


@pytest.mark.parametrize("candidate", [by_operators, by_pyarrow, by_python])
def test_filter_and_project(benchmark: Any, candidate: Callable[[Batches], Batches]) -> None:
    rows = 1_000_000 if benchmark.enabled else 5_000
    rows = rows // 50 if candidate is by_python else rows
    batches = data(rows)
    made = benchmark(candidate, batches)
    assert pa.Table.from_batches(made).equals(pa.Table.from_batches(by_pyarrow(batches)))
    if benchmark.enabled:
        benchmark.extra_info["rows_per_second"] = round(rows / benchmark.stats.stats.min)
