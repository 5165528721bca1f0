"""Windows by period / every: the cost of an input row must not grow with it, and that of a result must be constant.

Each figure is of one operator in one thread: 1,000 keys, and on average at least 100 rows for each key and ``every``.
``extra_info`` has nanoseconds for each input row and each result, where the two are measured apart: the time in
``process``, and that in ``advance``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dataflow.clock import ManualClock
from dataflow.contracts.operator import OperatorContext
from dataflow.contracts.window_kinds import Cumulate, Hopping, Tumbling
from dataflow.contracts.windows import EventTime, Window
from dataflow.expressions import col, count
from operators.windows.aggregate import WindowAggregateOperator

SCHEMA = pa.schema({"key": pa.int64(), "price": pa.int64(), "at": pa.timestamp("us")})
AGGREGATIONS = [count().alias("n"), col("price").sum().alias("sum"), col("price").max().alias("max")]
OUTPUT = pa.schema(
    {
        "key": pa.int64(),
        "window_start": pa.timestamp("us"),
        "window_end": pa.timestamp("us"),
        **dict.fromkeys(("n", "sum", "max"), pa.int64()),
    }
)
KEYS, SECOND = 1_000, 1_000_000
RATE = 100 * KEYS
"""Rows a second; ``every`` is one second."""
END = 2**63 - 1


class Counted:
    """An Out that counts rows."""

    rows = 0

    def emit(self, batch: pa.RecordBatch, tag: str | None = None) -> None:
        self.rows += batch.num_rows


@dataclass(frozen=True)
class Cost:
    """Nanoseconds for each row in ``process``, and for each result in ``advance``."""

    row: float
    result: float
    rows: int
    results: int


def batches_of(seconds: int) -> list[pa.RecordBatch]:
    """Rows in order of time."""
    rng, rows = np.random.default_rng(1), RATE * seconds
    at = pa.array(np.arange(rows) * (SECOND // RATE)).cast(pa.timestamp("us"))
    columns = [pa.array(rng.integers(0, KEYS, rows) * 7919), pa.array(rng.integers(0, 1_000, rows)), at]
    return pa.table(columns, schema=SCHEMA).to_batches(max_chunksize=65_536)


def measure(window: Window, batches: list[pa.RecordBatch]) -> Cost:
    context = OperatorContext("bench", 0, 1, (SCHEMA,), OUTPUT, range(128), 128, None, ManualClock(), lambda due: None)
    operator = WindowAggregateOperator(context, ["key"], EventTime("at"), window, 0, AGGREGATIONS)
    out, in_process, in_advance = Counted(), 0, 0
    for batch in [*batches, None]:
        before = time.perf_counter_ns()
        if batch is not None:
            operator.process(0, batch, out)  # without lateness it emits nothing
        between = time.perf_counter_ns()
        for _ in operator.advance(END if batch is None else batch["at"][-1].value, out) or ():
            pass
        in_process += between - before
        in_advance += time.perf_counter_ns() - between
    rows = sum(batch.num_rows for batch in batches)
    return Cost(in_process / rows, in_advance / out.rows, rows, out.rows)


KINDS = {
    "tumbling": Tumbling(SECOND),
    **{f"hopping, period / every = {times}": Hopping(times * SECOND, SECOND) for times in (2, 10, 50)},
    "hopping, period / every = 10.5": Hopping(21 * SECOND // 2, SECOND),
    "cumulate, period / every = 50": Cumulate(50 * SECOND, SECOND),
}


@pytest.mark.benchmark(group="windows by period / every")
@pytest.mark.parametrize("kind", KINDS)
def test_windows(benchmark: Any, kind: str) -> None:
    batches = batches_of(2 if benchmark.disabled else 100)
    measure(KINDS[kind], batches[:2])  # kernels are loaded
    cost: Cost = benchmark.pedantic(measure, (KINDS[kind], batches), rounds=1 if benchmark.disabled else 5)
    assert cost.results >= KEYS
    benchmark.extra_info.update(
        ns_a_row=round(cost.row, 1), ns_a_result=round(cost.result, 1), rows=cost.rows, results=cost.results
    )
