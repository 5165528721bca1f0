"""Filter and project: our loop and our operators beside pyarrow compute written by hand, and pure Python on a slice.

``pytest benchmarks/bench_filter_project.py --benchmark-enable`` measures a million rows in batches of 65,536; with
benchmarks disabled each candidate runs once over a few thousand rows, and its result is still compared.

The second benchmark is the loop alone: one row in 123, half of them, nearly all of them. It runs in turns with the
operators, DuckDB and Polars (both on one thread, over the same memory), and ``extra_info`` has how many times as long
they took, as medians of paired runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Final

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from benchmarks.paired import times_as_long
from dataflow.clock import ManualClock
from dataflow.contracts.operator import OperatorContext
from dataflow.expressions import Expr, col, output_schema
from dataflow.planning.specs import Filter as FilterStep
from dataflow.planning.specs import Project as ProjectStep
from operators.fusion import cache as cache_of_loops
from operators.fusion.operator import Fused
from operators.fusion.runs import Run
from operators.transforms.filter import FilterOperator
from operators.transforms.project import ProjectOperator

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

    def passed(self, rows: Sequence[int]) -> None: ...

    def emit_parts(self, parts: Sequence[pa.RecordBatch | None]) -> None: ...


class IntoProject:
    """The output of the filter in a chain: the next operator's input."""

    def __init__(self, project: ProjectOperator, out: Collected) -> None:
        self._project = project
        self._out = out

    def emit(self, batch: pa.RecordBatch, tag: str | None = None) -> None:
        self._project.process(0, batch, self._out)


def context(given: pa.Schema, made: pa.Schema) -> OperatorContext:
    return OperatorContext("bench", 0, 1, (given,), made, range(128), 128, None, ManualClock(), lambda due: None)


def by_operators(batches: Batches, predicate: Expr = PREDICATE, columns: Sequence[Expr] = COLUMNS) -> Batches:
    schema = batches[0].schema
    keep = FilterOperator(context(schema, schema), predicate)
    out = Collected()
    chained = IntoProject(
        ProjectOperator(context(schema, output_schema(tuple(columns), schema, "bench")), columns), out
    )
    for batch in batches:
        keep.process(0, batch, chained)
    return out


class Loop:
    """A filter and a projection whose loop is loaded."""

    def __init__(self, schema: pa.Schema, predicate: Expr, columns: Sequence[Expr]) -> None:
        run = Run(schema, (FilterStep(predicate), ProjectStep(tuple(columns))))
        first = FilterOperator(context(schema, schema), predicate)
        self._out = Collected()
        self._fused = Fused(run, first, self._out, lambda lane, load: None, output=run.output)
        for loop in self._fused.loops.values():
            cache_of_loops.load(loop.generated.text)
            loop.kernel.load()

    def __call__(self, batches: Batches) -> Batches:
        self._out.clear()
        for batch in batches:
            self._fused.process(0, batch, self._out)
        return self._out


@cache
def prepared(schema: pa.Schema) -> Loop:
    return Loop(schema, PREDICATE, COLUMNS)


def by_loop(batches: Batches) -> Batches:
    return prepared(batches[0].schema)(batches)


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


@pytest.mark.parametrize("candidate", [by_loop, by_operators, by_pyarrow, by_python])
def test_filter_and_project(benchmark: Any, candidate: Callable[[Batches], Batches]) -> None:
    rows = 1_000_000 if benchmark.enabled else 5_000
    rows = rows // 50 if candidate is by_python else rows
    batches = data(rows)
    if candidate is by_loop:
        by_loop(batches)  # compiles
    made = benchmark(candidate, batches)
    assert pa.Table.from_batches(made).equals(pa.Table.from_batches(by_pyarrow(batches)))
    if benchmark.enabled:
        benchmark.extra_info["rows_per_second"] = round(rows / benchmark.stats.stats.min)


PAIRS: Final = 15
STRICTNESS: Final = {
    "1 in 123": (col("auction") % 123 == 0, "auction % 123 = 0", polars.col("auction") % 123 == 0),
    "1 in 2": (col("price") > 500, "price > 500", polars.col("price") > 500),
    "19 in 20": (col("price") > 50, "price > 50", polars.col("price") > 50),
}
REDUCED: Final = (col("auction"), (col("price") * 0.908).alias("price"))


@pytest.mark.benchmark(group="one loop")
@pytest.mark.parametrize("strictness", STRICTNESS)
def test_a_loop_in_turns_with_others(benchmark: Any, strictness: str) -> None:
    batches = data(1_000_000 if benchmark.enabled else 5_000)
    table = pa.Table.from_batches(batches)
    ours, sql, theirs = STRICTNESS[strictness]
    frame = polars.from_arrow(table)
    assert isinstance(frame, polars.DataFrame)
    database = duckdb.connect(config={"threads": 1})
    loop = Loop(table.schema, ours, REDUCED)
    query = f"SELECT auction, price * 0.908::DOUBLE AS price FROM bids WHERE {sql}"
    database.register("bids", table)

    candidates: dict[str, Callable[[], Any]] = {
        "operators": lambda: by_operators(batches, ours, REDUCED),
        "duckdb": lambda: database.sql(query).to_arrow_table(),
        "polars": lambda: frame.lazy().filter(theirs).select("auction", polars.col("price") * 0.908).collect(),
    }
    made = benchmark(loop, batches)
    expected = candidates["duckdb"]()
    assert pa.Table.from_batches(made).equals(expected.cast(pa.Table.from_batches(made).schema))
    assert pa.Table.from_batches(candidates["operators"]()).equals(pa.Table.from_batches(made))
    assert candidates["polars"]().height == expected.num_rows
    if not benchmark.enabled:
        return
    benchmark.extra_info["rows_per_second"] = round(table.num_rows / benchmark.stats.stats.median)
    for name, other in candidates.items():
        benchmark.extra_info[f"{name} / loop"] = times_as_long(other, partial(loop, batches), PAIRS)
