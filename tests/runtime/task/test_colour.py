"""Rows keep the colour of what they come from: a report of duplicates in mode unaligned rests on it (EWD 864a).

A row-wise operator emits in the epoch of the batch at hand, also over several steps. What an operator with state emits
once it absorbed red rows is red, until a snapshot holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.clock import ManualClock
from dataflow.contracts.operator import Operator
from dataflow.contracts.source import SourceContext
from dataflow.planning.physical_plan import Plan, make_plan
from dataflow.protocol.events import Data, EndOfInput, Watermark
from dataflow.runtime.task.chain import Chain
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.outputs import ForwardOutput, Output
from dataflow.runtime.task.source_input import SourceInput
from dataflow.runtime.task.task_input import SplitState
from dataflow.runtime.task.wiring import SubtaskSetup, wire_chain
from operators.aggregation.aggregate import AggregateOperator
from operators.windows.aggregate import WindowAggregateOperator

RED = 3
Make = Callable[[flow.Stream], flow.Stream]


class Bench:
    """The chain of operator ``op`` behind a shuffle, fed by hand; ``epochs`` has the colour of each emitted batch."""

    def __init__(self, make: Make) -> None:
        p = flow.Pipeline()
        rows = p.source(op.from_arrow(batch(0)), name="in").with_watermark("ts")
        make(rows).as_rows().rebalance().sink(op.collect(), name="out", parallelism=2)
        self.plan = make_plan(p.graph)
        self.clock = ManualClock()
        self.epochs: list[int] = []
        self.chain = chain_of(self.plan, "op", self.clock, lambda: _Noting(self.epochs))
        for node in self.chain.nodes:
            node.open()

    def take(self, second: int, epoch: int) -> Bench:
        return self.push(Data(batch(second), epoch))

    def push(self, element: Any) -> Bench:
        self.chain.push(0, element)
        return self.carry()

    def carry(self) -> Bench:
        while self.chain.advance():
            pass
        return self

    def ring(self) -> Bench:
        self.clock.advance(2_000_000)
        while self.chain.due(self.clock.now()):
            self.carry()
        return self

    def emitted(self) -> list[int]:
        """The colours since the last call."""
        taken, self.epochs[:] = list(self.epochs), []
        return taken


class _Noting(ForwardOutput):
    def __init__(self, epochs: list[int]) -> None:
        super().__init__([Channel(1_000, "out")])
        self._epochs = epochs

    def emit(self, batch: pa.RecordBatch, epoch: int) -> None:
        self._epochs.append(epoch)


def chain_of(
    plan: Plan, vertex: str, clock: ManualClock, output: Callable[[], Output], splits: SourceInput | None = None
) -> Chain:
    place = SubtaskSetup(plan, plan.vertices[vertex], 0, clock, "run", splits=splits)
    return Chain(wire_chain(place, lambda number, link: output()))


def batch(second: int) -> pa.RecordBatch:
    """Two rows of one key and time."""
    times = pa.array([second * 1_000_000] * 2, pa.timestamp("us"))
    return pa.record_batch({"k": ["a", "b"], "ts": times, "x": [1, 2]})


def aggregated(**options: Any) -> Make:
    return lambda s: s.key_by("k").agg(col("x").sum().alias("x"), name="op", **options)


def windowed(lateness: str = "0s") -> Make:
    window = op.tumbling("10s")
    return lambda s: s.key_by("k").window(window, lateness=lateness).agg(col("x").sum().alias("x"), name="op")


UPDATES, EVERY, FINAL = (aggregated(emit="updates"), aggregated(emit="updates", every="1s"), aggregated(emit="final"))
STATEFUL: dict[str, tuple[Make, Callable[[Bench], Bench]]] = {
    "updates": (UPDATES, lambda bench: bench.take(2, 0)),
    "updates at a timer": (EVERY, lambda bench: bench.take(2, 0).ring()),
    "updates left at the end": (EVERY, lambda bench: bench.take(2, 0).push(EndOfInput())),
    "final": (FINAL, lambda bench: bench.take(2, 0).push(EndOfInput())),
    "windows": (windowed(), lambda bench: bench.take(2, 0).push(Watermark(10_000_000))),
    "windows that fired": (windowed("1h"), lambda bench: bench.push(Watermark(10_000_000)).take(2, 0)),
}


@pytest.mark.parametrize("case", STATEFUL)
def test_what_leaves_state_that_absorbed_red_rows_is_red(case: str) -> None:
    make, release = STATEFUL[case]
    bench = Bench(make).take(0, 0).take(1, RED)
    bench.emitted()
    colours = release(bench).emitted()
    assert colours
    assert set(colours) == {RED}


@pytest.mark.parametrize("case", STATEFUL)
def test_state_without_red_rows_emits_white_ones(case: str) -> None:
    make, release = STATEFUL[case]
    assert set(release(Bench(make).take(0, 0)).emitted()) == {0}


@pytest.mark.parametrize("case", STATEFUL)
def test_what_leaves_after_the_snapshot_is_red_for_no_later_one(case: str) -> None:
    make, release = STATEFUL[case]
    bench = Bench(make).take(0, 0).take(1, RED)
    bench.chain.snapshot(RED)
    assert max(release(bench).emitted()) < RED + 1


@pytest.mark.parametrize("case", STATEFUL)
def test_an_engine_that_forgets_the_colour_of_state_is_found_out(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutants: Sequence[type[Operator]] = (AggregateOperator, WindowAggregateOperator)
    for kind in mutants:
        monkeypatch.setattr(kind, "stateless", True)
    with pytest.raises(AssertionError):
        test_what_leaves_state_that_absorbed_red_rows_is_red(case)


def three(rows: pa.RecordBatch) -> list[pa.RecordBatch]:
    return [rows, rows.slice(0, 1), rows.slice(1)]


ROW_WISE: dict[str, Make] = {
    "filter": lambda s: s.rebalance().filter(col("x") > 1, name="op"),
    "select": lambda s: s.rebalance().select("x", name="op"),
    "map": lambda s: s.rebalance().map(lambda row: row, name="op"),
    "flat_map": lambda s: s.rebalance().flat_map(lambda row: [row] * 10_000, name="op"),
    "map_batches": lambda s: s.rebalance().map_batches(lambda rows: rows, name="op"),
    "map_batches of several": lambda s: s.rebalance().map_batches(three, name="op"),
    "map_batches that halves": lambda s: s.rebalance().map_batches(three, on_error="skip", name="op"),
    "union": lambda s: s.union(s.filter(col("x") > 1), name="op"),
    "several": lambda s: s.rebalance().map_batches(three, name="op").filter(col("x") > 0).map(lambda row: row),
}


@pytest.mark.parametrize("case", ROW_WISE)
def test_row_wise_operators_emit_in_the_colour_of_the_batch_at_hand(case: str) -> None:
    bench = Bench(ROW_WISE[case])
    colours = [set(bench.take(second, epoch).emitted()) for second, epoch in enumerate((0, RED, 0, RED + 1))]
    assert colours == [{0}, {RED}, {0}, {RED + 1}]


def test_rows_keep_their_colour_where_watermarks_are_made() -> None:
    p = flow.Pipeline()
    rows = p.source(op.from_arrow(batch(0), batch_rows=1), name="in")
    rows.with_watermark("ts").rebalance().sink(op.collect(), name="out", parallelism=2)
    plan, clock, epochs = make_plan(p.graph), ManualClock(), list[int]()
    source: Any = plan.graph.nodes[0].spec
    splits = [SplitState(split) for split in source.source.splits()]
    inlet = SourceInput(source.source, splits, SourceContext("in", 0, 1, clock))
    chain = chain_of(plan, "in", clock, lambda: _Noting(epochs), inlet)
    for epoch in (0, RED):
        inlet.epoch = epoch
        polled = inlet.poll(0)
        assert polled is not None
        assert polled.flow is not None
        chain.push(0, polled.flow)
        while chain.advance():
            pass
    assert epochs == [0, RED]


def test_slices_of_a_batch_have_its_colour() -> None:
    channel = Channel(1, "a")
    channel.put(Data(batch(0), RED))
    parts: list[Any] = [channel.take(1), channel.take(1)]
    assert [(part.epoch, len(part.rows)) for part in parts] == [(RED, 1), (RED, 1)]
