"""count, sum and max per key over a stream of batches: the operator, pyarrow's group-by per batch, and Python.

All three end with the same totals. pyarrow has no running aggregate: its best form groups every batch, and the partial
results of all batches once more. The operator's figures are whole ``process`` calls, in both ways of emission.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dataflow.clock import ManualClock
from dataflow.contracts.operator import OperatorContext
from dataflow.expressions import col, count
from dataflow.planning.aggregate_specs import Emit
from operators.aggregation.aggregate import AggregateOperator

SCHEMA = pa.schema({"key": pa.int64(), "price": pa.int64()})
OUTPUT = pa.schema({"key": pa.int64(), "count": pa.int64(), "price_sum": pa.int64(), "price_max": pa.int64()})
AGGREGATIONS = [count(), col("price").sum(), col("price").max()]

Totals = dict[int, tuple[int, int, int]]


class Rows:
    """An Out that keeps the last row of each key when asked, and nothing else."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    def emit(self, batch: pa.RecordBatch, tag: str | None = None) -> None:
        self.batches.append(batch)

    def totals(self) -> Totals:
        rows = (row for batch in self.batches for row in zip(*(column.to_pylist() for column in batch), strict=True))
        return {key: (number, total, top) for key, number, total, top in rows}


def batches_of(keys: int, rows: int, batch_rows: int) -> list[pa.RecordBatch]:
    """Skewed keys: an eighth of the keys gets half of the rows."""
    rng = np.random.default_rng(1)
    table = pa.table(
        {"key": (keys * rng.random(rows) ** 3).astype(np.int64) * 7919, "price": rng.integers(0, 1000, rows)}
    )
    return table.to_batches(max_chunksize=batch_rows)


def by_operator(emit: Emit, batches: list[pa.RecordBatch]) -> Rows:
    context = OperatorContext("bench", 0, 1, (SCHEMA,), OUTPUT, range(128), 128, None, ManualClock(), lambda due: None)
    operator, out = AggregateOperator(context, ["key"], AGGREGATIONS, emit), Rows()
    for batch in batches:
        operator.process(0, batch, out)
    for _ in operator.finish(out) or ():
        pass
    return out


def by_pyarrow(batches: list[pa.RecordBatch]) -> Rows:
    columns = [([], "count_all"), ("price", "sum"), ("price", "max")]
    parts = [pa.table(batch).group_by("key", use_threads=False).aggregate(columns) for batch in batches]
    joined = pa.concat_tables(parts).group_by("key", use_threads=False)
    merged = joined.aggregate([("count_all", "sum"), ("price_sum", "sum"), ("price_max", "max")])
    out = Rows()
    out.batches = merged.to_batches()
    return out


class Dict:
    """What ``by_python`` answers: its totals."""

    def __init__(self, totals: Totals) -> None:
        self._totals = totals

    def totals(self) -> Totals:
        return self._totals


def by_python(batches: list[pa.RecordBatch]) -> Dict:
    totals: Totals = {}
    for batch in batches:
        for key, price in zip(batch["key"].to_pylist(), batch["price"].to_pylist(), strict=True):
            number, total, top = totals.get(key, (0, 0, price))
            totals[key] = (number + 1, total + price, max(top, price))
    return Dict(totals)


FORMS: dict[str, tuple[Callable[[list[pa.RecordBatch]], Rows | Dict], int]] = {
    "operator, final": (partial(by_operator, Emit.FINAL), 1),
    "operator, updates": (partial(by_operator, Emit.UPDATES), 1),
    "pyarrow": (by_pyarrow, 1),
    "python": (by_python, 16),
}


@pytest.mark.benchmark(group="count, sum, max by key")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("batch_rows", [65_536, 1_048_576])
@pytest.mark.parametrize("keys", [100, 100_000, 4_000_000])
def test_aggregate(benchmark: Any, keys: int, batch_rows: int, form: str) -> None:
    quick = benchmark.disabled
    run, share = FORMS[form]
    batches = batches_of(keys, 3_000 if quick else 4_194_304 // share, 1_000 if quick else batch_rows)
    found = benchmark.pedantic(run, (batches,), rounds=1 if quick else 3, warmup_rounds=0 if quick else 1)
    rows = sum(batch.num_rows for batch in batches)
    benchmark.extra_info["rows"] = rows
    if benchmark.stats:
        benchmark.extra_info["rows_per_second"] = rows / benchmark.stats.stats.min
    assert found.totals() == by_pyarrow(batches).totals()
