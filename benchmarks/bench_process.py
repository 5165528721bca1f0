"""Process functions at 100,000 keys: the operator alone, with whole ``process`` calls.

``BatchProcess`` keeps the last value of each key. ``KeyedProcess`` counts the rows of each key, and emits a row for
each call or none; there is about one row for each call, so it is Python that takes the time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
from dataflow.clock import ManualClock
from dataflow.contracts.operator import OperatorContext
from dataflow.contracts.process import declared_states
from dataflow.contracts.row_errors import OnError
from dataflow.planning.operator_table import make_operator
from dataflow.planning.process_specs import ProcessBatches, ProcessKeys

SCHEMA = pa.schema({"key": pa.int64(), "value": pa.int64()})
KEYS = 100_000


class Last(flow.BatchProcess):
    last = flow.value_state(pa.int64())

    def process(self, slots: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        self.last.set(slots, rows["value"])


class Count(flow.KeyedProcess):
    seen = flow.value_state(pa.int64())

    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        self.seen.set(self.seen.get(0) + rows.num_rows)


class EmittedCount(Count):
    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        seen = self.seen.get(0) + rows.num_rows
        self.seen.set(seen)
        ctx.emit({"key": key, "value": seen})


class Nowhere:
    """An Out that counts rows."""

    rows = 0

    def emit(self, batch: pa.RecordBatch, tag: str | None = None) -> None:
        self.rows += batch.num_rows


def operator_of(function: Any) -> Any:
    states = tuple(declared_states(function).items())
    spec = ProcessKeys if function.calls == "key" else ProcessBatches
    context = OperatorContext("bench", 0, 1, (SCHEMA,), SCHEMA, range(128), 128, None, ManualClock(), lambda due: None)
    operator = make_operator(spec(function, "bench", ("key",), None, states, (), OnError.FAIL), context)
    operator.open()
    return operator


def batches_of(rows: int, batch_rows: int) -> list[pa.RecordBatch]:
    rng = np.random.default_rng(1)
    table = pa.table({"key": rng.integers(0, KEYS, rows) * 7919, "value": rng.integers(0, 1000, rows)})
    return table.to_batches(max_chunksize=batch_rows)


def processed(operator: Any, batches: list[pa.RecordBatch]) -> Nowhere:
    out = Nowhere()
    for batch in batches:
        for _ in operator.process(0, batch, out):
            pass
    return out


@pytest.mark.benchmark(group="process functions")
@pytest.mark.parametrize(
    ("function", "batch_rows"), [(Last, 65_536), (Last, 8_192), (Count, 8_192), (EmittedCount, 8_192)]
)
def test_process(benchmark: Any, function: Any, batch_rows: int) -> None:
    quick = benchmark.disabled
    rows = 3_000 if quick else 8_388_608 if function is Last else 524_288
    batches = batches_of(rows, 1_000 if quick else batch_rows)
    operator = operator_of(function)
    processed(operator, batches)  # all keys have state
    out = benchmark.pedantic(processed, (operator, batches), rounds=1 if quick else 3)
    benchmark.extra_info["rows"] = rows
    if benchmark.stats:
        benchmark.extra_info["rows_per_second"] = rows / benchmark.stats.stats.min
    assert (out.rows > 0) == (function is EmittedCount)
