"""In a batch, process functions get all rows of their keys once, also after each operator that drops the order of rows.

Without event time such rows have no order at all; they are sorted by nothing, in memory and in files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.execution import Spill
from dataflow.contracts.spec import Spec
from dataflow.planning import aggregate_specs, batch_specs, process_specs, specs
from dataflow.runners.faults import Faults
from tests.library_specs import library_specs
from tests.seeds import each_once

AT = pa.array([n * n % 17 for n in range(60)], pa.timestamp("s"))
LEFT = pa.table({"k": ["abc"[n % 3] for n in range(60)], "at": AT, "x": range(60)})
RIGHT = LEFT.slice(20, 30).rename_columns(["k", "time", "y"])
SEEN = pa.schema({"k": pa.string(), "rows": pa.int64()})


class ByKey(flow.KeyedProcess):
    """Emits how many rows each call has."""

    def process(self, key: str, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        ctx.emit({"k": key, "rows": rows.num_rows})


class ByBatch(flow.BatchProcess):
    """Emits each key with the number of its rows."""

    def process(self, slots: Any, rows: pa.RecordBatch, ctx: Any) -> None:
        for k, count in Counter(rows["k"].to_pylist()).items():
            ctx.emit({"k": k, "rows": count})


@dataclass(frozen=True)
class Visits(flow.Window):
    """Sessions of a kind of a user."""

    merges = True

    def assign(self, times: Any, batch: Any) -> flow.Assigned:
        return flow.Assigned(times, times + 1_000_000)


class Same(flow.Operator):
    """Passes rows on."""

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        out.emit(batch)


def streams(p: flow.Pipeline) -> Iterator[flow.Stream]:
    """Yield a stream of each operator that cannot pass the places of rows on, and one that has them."""
    plain = p.source(op.from_arrow(LEFT, batch_rows=7, splits=2), name="left")
    others = p.source(op.from_arrow(RIGHT, batch_rows=7), name="right")
    timed, other = plain.with_watermark("at", delay="1h"), others.with_watermark("time", delay="1h")
    keyed, by_time = plain.key_by("k"), timed.key_by("k")
    hours, count = op.tumbling("5s"), {"n": op.count()}
    yield plain
    yield plain.join(others, on="k")
    yield plain.join(others, on="k", how="full", emit="final")
    yield plain.join(others, on="k", ttl="1h")
    yield timed.join(other, on="k", within=("-2s", "2s"))
    yield timed.join(other, on="k", window=hours)
    yield timed.join_asof(other, by="k")
    yield timed.join_asof(other, by="k", strategy="forward", tolerance="1h")
    yield keyed.agg(count)
    yield keyed.agg(count, emit="changes").key_by("k").top(2, by="n", emit="final")
    yield keyed.top(4, by="x")
    yield plain.unique("k", "x", keep="last")
    yield by_time.window(hours).agg(count)
    yield by_time.window(hours, early=op.after_rows(2), panes="discarding").agg(count)
    yield by_time.window(op.session("1s")).agg(count)
    yield by_time.window(op.session("1s"), early=op.after_rows(2), panes="discarding").agg(count)
    yield by_time.window(Visits()).agg(count)
    yield by_time.window(op.sliding("3s")).agg(count)
    yield by_time.window(hours).top(2, by="x")
    yield keyed.window(op.global_window()).agg(count)
    yield keyed.window(op.count_window(4)).agg(count)
    yield keyed.process(ByKey, schema=SEEN)
    yield keyed.process(ByBatch, schema=SEEN)
    yield keyed.apply(Same)


def pipeline(function: type) -> flow.Pipeline:
    with flow.Pipeline("without order") as p:
        for number, stream in enumerate(streams(p)):
            stream.sink(op.collect(), name=f"in {number}")
            called = stream.key_by("k").process(function, schema=SEEN, name=f"called {number}")
            called.sink(op.collect(), name=f"out {number}")
    return p


def check(result: flow.RunResult) -> None:
    """Check that the functions got as many rows of each key as were emitted before them."""
    numbers = [name.removeprefix("in ") for name in result.tables if name.startswith("in ")]
    for number in numbers:
        seen = Counter[str]()
        for row in result.table(f"out {number}").to_pylist():
            seen[row["k"]] += row["rows"]
        assert seen == Counter(result.table(f"in {number}")["k"].to_pylist()), f"stream {number}"
        assert seen, f"stream {number} has no rows"


def in_files(memory: int) -> flow.LocalRunner:
    runner = flow.LocalRunner()
    runner._spill = Spill(memory=memory)
    return runner


RUNNERS = {
    "memory": flow.LocalRunner(),
    "files": in_files(1),
    "few files": in_files(300),
    "schedule": flow.SimulatedRunner(3, Faults(skew=0.3)),
}


@pytest.mark.parametrize(("function", "runner", "tasks"), each_once([ByBatch, ByKey], list(RUNNERS), [1, 2]))
def test_functions_get_all_rows_after_any_operator(function: type, runner: str, tasks: int) -> None:
    check(pipeline(function).run(RUNNERS[runner], execution="batch", parallelism=tasks))


@pytest.mark.soak
@pytest.mark.parametrize("function", [ByKey, ByBatch])
def test_functions_get_all_rows_after_any_operator_on_spark(spark: Any, function: type) -> None:
    check(pipeline(function).run(flow.SparkRunner(spark), execution="batch", parallelism=2))


ALONE = {specs.Read, specs.Write}  # at the ends of a pipeline
PLANNED = {aggregate_specs.Combine, batch_specs.NumberRows, batch_specs.Sorted}  # no method of a stream adds them
PLANNED |= {process_specs.ProcessKeysInOrder, process_specs.ProcessBatchesInOrder}
REFUSED = {specs.ProcessingTime}  # a batch has no time by the clock


def test_each_operator_that_drops_the_order_is_among_them() -> None:
    dropping = {spec for spec in library_specs() if spec.carrying is Spec.carrying}
    assert {type(node.spec) for node in pipeline(ByKey).graph} >= dropping - ALONE - PLANNED - REFUSED
