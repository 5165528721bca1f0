"""Operators with ``ended`` and ``held`` in jobs: each end comes once, nothing is late, broadcast rows hold no time."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.checkpointing import Mode
from dataflow.contracts.operator import Out
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.runners.faults import Faults
from dataflow.runners.spark.runner import SparkRunner
from dataflow.testing import Pause, ScriptedSource
from tests.seeds import seeds, some_by_default
from tests.simulation.jobs import MODES

SECOND = 1_000_000
US = pa.timestamp("us")
EXACT = [mode for mode in MODES if mode != Mode.UNALIGNED.value]
OUT = pa.schema({"k": pa.int64(), "at": US, "port": pa.int64(), "calls": pa.int64()})


class UntilEnded(flow.Operator):
    """Keeps all rows of a port until it ends, and holds the watermark at the first of them.

    Then it emits them, with the number of calls of ``ended`` for this port so far.
    """

    def __init__(self, context: flow.OperatorContext) -> None:
        restored = context.restored
        kept: Any = restored.tables if restored else {}
        self.kept = {port: kept[str(port)].to_batches() if kept else [] for port in (0, 1, 2)}
        calls: Any = restored.values["calls"] if restored else [0, 0, 0]
        self.calls = list(calls)
        self.reached: Any = restored.values["reached"] if restored else None

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        self.kept[port].append(batch)

    def advance(self, watermark: int, out: Out) -> None:
        assert self.reached is None or watermark > self.reached
        assert watermark < MAX_WATERMARK or self.calls[:2] == [1, 1], "the last watermark came before the ends"
        self.reached = watermark

    def held(self, watermark: int) -> int:
        times = [at for port in (0, 1) for batch in self.kept[port] for at in batch["at"].cast("int64").to_pylist()]
        return min([watermark, *times])

    def ended(self, port: int, out: Out) -> Any:
        self.calls[port] += 1
        for batch in self.kept[port]:
            ports, calls = [port] * len(batch), [self.calls[port]] * len(batch)
            out.emit(pa.RecordBatch.from_arrays([batch["k"], batch["at"], ports, calls], schema=OUT))
            yield
        self.kept[port] = []

    def snapshot(self) -> flow.Snapshot:
        schema = pa.schema({"k": pa.int64(), "at": US})
        tables = {str(port): pa.Table.from_batches(rows, schema) for port, rows in self.kept.items()}
        return flow.Snapshot({"calls": list(self.calls), "reached": self.reached}, tables)


class Rising(flow.Operator):
    """Passes rows on, and knows after a restore, too, which watermark it was given last."""

    def __init__(self, context: flow.OperatorContext) -> None:
        self.reached: Any = context.restored.values["reached"] if context.restored else None

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        out.emit(batch)

    def advance(self, watermark: int, out: Out) -> None:
        assert self.reached is None or watermark > self.reached, f"{watermark} came after {self.reached}"
        self.reached = watermark

    def snapshot(self) -> flow.Snapshot:
        return flow.Snapshot({"reached": self.reached})


def timed(rows: int, every: int) -> pa.Table:
    """Rows of five keys in order of time, ``every`` seconds apart."""
    at = pa.array([number * every * SECOND for number in range(rows)], US)
    return pa.table({"k": [number % 5 for number in range(rows)], "at": at})


TABLES = [timed(40, 3), timed(70, 5), timed(6, 1)]
EXPECTED = Counter(
    (number % 5, number * every // 20 * 20, port, 1)
    for port, rows, every in ((0, 40, 3), (1, 70, 5))
    for number in range(rows)
)


def ends(splits: int = 2) -> flow.Pipeline:
    """Two keyed inputs and a broadcast one without event time; windows over what comes out when they end."""
    with flow.Pipeline("ends") as p:
        sources = [op.from_arrow(table, batch_rows=4, splits=splits) for table in TABLES]
        left, right = (
            p.source(source, name=name).with_watermark("at").key_by("k")
            for source, name in zip(sources, ("left", "right"), strict=False)
        )
        rules = p.source(sources[2], name="rules").broadcast()
        joined = left.apply(UntilEnded, right, rules, schema=OUT, name="joined")
        rows = joined.apply(Rising, name="rising").filter(flow.col("port") < 2)
        windows = rows.key_by("k", "port", "calls").window(op.tumbling("20s")).agg(n=op.count(), name="counts")
        windows.sink(op.collect(), name="out")
    return p


def check(result: flow.RunResult) -> None:
    columns = result.table("out").select(["k", "window_start", "port", "calls", "n"]).to_pydict()
    starts = [int(start.timestamp()) for start in columns["window_start"]]
    keys = zip(columns["k"], starts, columns["port"], columns["calls"], strict=True)
    assert result.late == 0
    assert dict(zip(keys, columns["n"], strict=True)) == EXPECTED
    assert len(starts) == len(EXPECTED)


def test_on_threads_each_port_ends_once_and_nothing_is_late() -> None:
    check(ends().run(parallelism=2, timeout="60s"))


@pytest.mark.parametrize(("seed", "mode"), some_by_default([(2, "aligned-timeout")], range(60), EXACT))
def test_crashes_change_nothing(seed: int, mode: str) -> None:
    check_seed(seed, mode, Faults(crashes=3, crash_after=(0, 1, 2), skew=0.2, stall=0.05, slices=0.2))


def check_seed(seed: int, mode: str, faults: Faults) -> None:
    runner = flow.SimulatedRunner(seed, faults, max_turns=100_000)
    settings = flow.Checkpointing(flow.MemoryStore(), every="2ms", mode=mode)
    check(runner.start(ends(), parallelism=2, checkpoint=settings).wait())


@pytest.mark.filterwarnings("ignore::dataflow.errors.BarrierflowWarning")
@pytest.mark.parametrize("seed", seeds(1, 60))
def test_in_mode_unaligned_no_row_sees_a_second_call(seed: int) -> None:
    faults = Faults(crashes=3, crash_after=(0, 1, 2), skew=0.2, stall=0.05, slices=0.2)
    runner = flow.SimulatedRunner(seed, faults, max_turns=100_000)
    settings = flow.Checkpointing(flow.MemoryStore(), every="2ms", mode="unaligned")
    result = runner.start(ends(), parallelism=2, checkpoint=settings).wait()
    assert set(result.table("out")["calls"].to_pylist()) == {1}


class Watched(flow.Operator):
    """Emits the watermarks as rows, but for the last one."""

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None: ...

    def advance(self, watermark: int, out: Out) -> None:
        if watermark < MAX_WATERMARK:
            out.emit(pa.record_batch({"x": [watermark]}))


@pytest.mark.parametrize("how", ["beside", "alone", "union"])
def test_a_broadcast_stream_holds_time_back_only_if_all_inputs_are_broadcast_or_united(how: str) -> None:
    """The broadcast stream has no event time, and ends after the other one."""
    entries = TABLES[2].to_batches()
    watch = {"schema": pa.schema({"x": pa.int64()}), "name": "watched"}
    with flow.Pipeline("rules") as p:
        rows = p.source(op.from_arrow(TABLES[0], batch_rows=4), name="rows").with_watermark("at")
        rules = p.source(ScriptedSource([*entries, Pause(2_000), *entries]), name="rules").broadcast()
        if how == "union":
            watched = rows.union(rules).apply(Watched, **watch)
        else:
            watched = (rows.broadcast() if how == "alone" else rows).apply(Watched, rules, **watch)
        watched.sink(op.collect(), name="out")
    result = flow.SimulatedRunner(1).start(p).wait()
    assert (result.table("out").num_rows > 0) == (how == "beside")


@pytest.mark.soak
@pytest.mark.parametrize("lanes", [1, 2])
def test_on_spark_each_port_ends_once_and_nothing_is_late(spark: Any, lanes: int) -> None:
    runner = SparkRunner(spark, rows_per_trigger=30 * lanes)
    check(ends(splits=lanes).run(runner, parallelism=lanes, max_key_groups=3))
