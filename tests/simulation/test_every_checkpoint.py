"""Jobs of no more than six rows, restored from every checkpoint they completed, compared with an undisturbed run."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.checkpointing import Mode
from dataflow.runners.attempts import Attempt
from dataflow.runners.faults import Faults
from dataflow.runners.simulated import SimulatedRunner
from dataflow.testing import Ledger, delivered_again, ledger_sink
from tests.seeds import seeds

Rows = Counter[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Shape:
    """A pipeline from a stream of (x, k, t) to a sink; ``result`` computes what it gives out of the rows (x, k, t).

    Rows that are delivered twice are counted twice at ``repeats``: the rows at the sink, or the input of an aggregate,
    which reads the first ``columns``.
    """

    build: Callable[[flow.Stream, Ledger], object]
    result: Callable[[Rows], Rows]
    repeats: str = "out"
    columns: int = 2


def filtered(rows: flow.Stream, world: Ledger) -> None:
    rows.rebalance().filter(col("x") % 3 != 0, name="some").select("x", "k", name="two").sink(
        ledger_sink(world), name="out"
    )


def counted(rows: flow.Stream, world: Ledger) -> None:
    rows.key_by("k").agg(n=op.count(), s=col("x").sum(), emit="final", name="sums").sink(ledger_sink(world), name="out")


def counted_twice(rows: flow.Stream, world: Ledger) -> None:
    sums = rows.key_by("k").agg(n=op.count(), s=col("x").sum(), emit="final", name="sums")
    sums.key_by("k").agg(n=col("n").sum(), s=col("s").sum(), emit="final", name="again").sink(
        ledger_sink(world), name="out", parallelism=1
    )


def windowed(rows: flow.Stream, world: Ledger) -> None:
    windows = rows.with_watermark("t").key_by("k").window(op.tumbling("2s"))
    windows.agg(n=op.count(), s=col("x").sum(), name="sums").select("k", "n", "s", name="three").sink(
        ledger_sink(world), name="out"
    )


def kept(rows: Rows) -> Rows:
    return Counter({(x, k): n for (x, k, _), n in rows.items() if x % 3})


def sums(group: Callable[..., Any]) -> Callable[[Rows], Rows]:
    def result(rows: Rows) -> Rows:
        totals: dict[Any, tuple[int, int]] = {}
        for (x, k, *t), times in rows.items():
            n, s = totals.get((k, group(*t)), (0, 0))
            totals[k, group(*t)] = n + times, s + x * times
        return Counter((k, n, s) for (k, _), (n, s) in totals.items())

    return result


SHAPES = {
    "filter": Shape(filtered, kept),
    "final": Shape(counted, sums(lambda *t: None), "sums"),
    "two aggregates": Shape(counted_twice, sums(lambda *t: None), "sums"),
    "windows": Shape(windowed, sums(lambda t: t.second // 2), "sums", 3),
}


@dataclass(frozen=True, slots=True)
class Tiny:
    """A job that a seed draws; every run of it is on a schedule of its own."""

    seed: int
    shape: Shape
    mode: Mode
    table: pa.Table
    splits: int
    parallelism: int
    store: flow.MemoryStore
    world: Ledger

    @staticmethod
    def drawn(seed: int) -> Tiny:
        draw = random.Random(f"tiny {seed}")
        shape = list(SHAPES.values())[seed % len(SHAPES)]
        mode = list(Mode)[seed // len(SHAPES) % len(Mode)]
        x = range(draw.randrange(7))
        times = pa.array([i * 1_000_000 for i in x], pa.timestamp("us"))
        table = pa.table({"x": pa.array(x, pa.int64()), "k": pa.array([i % 2 for i in x], pa.int64()), "t": times})
        return Tiny(seed, shape, mode, table, draw.randrange(1, 3), draw.randrange(1, 4), flow.MemoryStore(), Ledger())

    def run(self, restore: object, seed: int) -> Attempt:
        draw = random.Random(seed)
        with flow.Pipeline("tiny") as p:
            source = op.from_arrow(
                self.table, batch_rows=draw.choice((1, 2)) if restore is None else 1, splits=self.splits
            )
            self.shape.build(p.source(source, name="in"), self.world)
        checkpoint = flow.Checkpointing(
            self.store,
            every=f"{draw.choice((20, 60, 150))}us",
            mode=self.mode,
            max_concurrent=draw.randrange(1, 4),
            alignment_timeout="100us" if self.mode is Mode.ALIGNED_TIMEOUT else None,
            keep=1_000,
            duplicates="rows",
        )
        faults = Faults(skew=draw.choice((0.0, 0.5)), slow=draw.choice((0.0, 0.2)))
        runner = SimulatedRunner(seed, faults, max_turns=100_000)
        job = runner.start(p, parallelism=self.parallelism, checkpoint=checkpoint, restore=restore)
        job.wait()
        (attempt,) = job.attempts
        return attempt

    def check(self, attempts: Sequence[Attempt]) -> None:
        """The sink shows the undisturbed result, of the input and of the rows that restores reported."""
        rows: Rows = Counter(zip(*(column.to_pylist() for column in self.table.columns), strict=True))
        again = {operator: delivered_again(attempts, operator) for operator in ("out", "again", self.shape.repeats)}
        assert self.mode is Mode.UNALIGNED or not any(again.values()), f"{self.mode} reports duplicates: {again}"
        found = self.world.rows()
        is_late = self.shape.columns == 3 and again[self.shape.repeats]  # rows that come again may be dropped as late
        if again["again"] or is_late:  # behind the first stateful operator the report is an upper bound
            assert {k for k, _, _ in found} == {k for _, k, _ in rows}, f"{self}: other keys: {found}"
            return
        if self.shape.repeats != "out":
            rows = Counter({row[: self.shape.columns]: n for row, n in rows.items()}) + again[self.shape.repeats]
        expected = self.shape.result(rows) + again["out"]
        assert found == expected, f"{self}: lost {expected - found}, too many {found - expected}, restored {attempts}"
        assert self.world.staged == 0


def run(seed: int) -> int:
    """Run a tiny job, then restore it from each of its checkpoints, the newest first; return their number."""
    tiny = Tiny.drawn(seed)
    first = tiny.run("never", seed)
    tiny.check([first])
    for checkpoint in reversed(first.checkpoints):
        tiny.check([first, tiny.run(checkpoint, seed + checkpoint)])
    return len(first.checkpoints)


@pytest.mark.filterwarnings("ignore::dataflow.errors.LateRowsWarning")  # in mode unaligned; the check knows of it
@pytest.mark.parametrize("seed", seeds(16, soak=2_000))
def test_a_restore_from_any_checkpoint_of_a_tiny_job_gives_the_result_of_an_undisturbed_run(seed: int) -> None:
    assert run(seed) > 0
