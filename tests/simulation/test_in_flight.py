"""Rows in flight, through whole simulated jobs: which edges they are on, and what a changed pipeline makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.operator import Out
from dataflow.errors import CheckpointMismatch
from dataflow.runners.attempts import Attempt
from dataflow.runners.faults import Faults
from dataflow.testing import Ledger, ledger_sink
from tests.seeds import in_soak
from tests.simulation.jobs import simulate, singles
from tests.simulation.workloads import Dawdler

ROWS = 120
CRASH = Faults(crashes=1, crash_at=["step"], crash_after=[1], skew=0.4)


def numbers(start: int = 0) -> flow.Source:
    return op.from_arrow(pa.table({"x": range(start, start + ROWS)}), batch_rows=2, splits=2)


def edges(world: Ledger) -> flow.Pipeline:
    """One operator behind a forward, a broadcast and a rebalance edge at once; keyed rows behind it."""
    with flow.Pipeline("edges") as p:
        near = p.source(numbers(), name="near")
        far = p.source(numbers(1_000), name="far").rebalance()
        few = p.source(numbers(5_000), name="few").broadcast()
        slow = near.union(far, few, name="both").apply(lambda context: Dawdler(context, 20), name="slow")
        slow.key_by("x").sink(ledger_sink(world), name="out")
    return p


def in_flight(attempts: Sequence[Attempt]) -> set[str]:
    """The channels that restores put rows back into, without their subtasks."""
    reports = [attempt.restored for attempt in attempts if attempt.restored is not None]
    return {_edge(state.channel) for report in reports for state in report.in_flight if state.rows}


def _edge(channel: str) -> str:
    return " -> ".join(end.partition("[")[0] for end in channel.split(" -> "))


@pytest.mark.parametrize("seeds", [5, *in_soak(12)])
def test_rows_are_in_flight_on_edges_that_deal_them_out_and_on_no_others(seeds: int) -> None:
    found: set[str] = set()
    for seed in range(seeds):
        world = Ledger()
        found |= in_flight(simulate(edges(world), flow.MemoryStore(), seed, CRASH, "unaligned-persisted"))
        once = [*range(ROWS), *range(1_000, 1_000 + ROWS), *range(5_000, 5_000 + ROWS), *range(5_000, 5_000 + ROWS)]
        assert singles(world) == sorted(once), f"seed {seed}"
    assert found == {"far -> both", "both -> out"}


class Breaks(Dawdler):
    """Breaks on a row, so that the job fails with checkpoints in its store."""

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None]:
        if 118 in batch["x"].to_pylist():
            raise RuntimeError("row 118 is too much")
        return super().process(port, batch, out)


def queued(world: Ledger, operator: type[Dawdler] = Dawdler, **columns: Any) -> flow.Pipeline:
    """A fast source and a slow operator with a queue in between that carries ``x`` and ``columns``."""
    with flow.Pipeline("queued") as p:
        rows = p.source(numbers(), name="in")
        rows = rows.with_columns(**columns) if columns else rows
        needed = rows.rebalance().filter(col(list(columns)[-1] if columns else "x") >= 0, name="needed").select("x")
        slow = needed.apply(lambda context: operator(context, 20), name="slow")
        slow.sink(ledger_sink(world), name="out")
    return p


def broken(world: Ledger) -> flow.MemoryStore:
    """The store of a job that failed; its newest checkpoint holds rows in flight."""
    store = flow.MemoryStore()
    with pytest.raises(RuntimeError, match="row 118"):
        simulate(queued(world, Breaks), store, 1, mode="unaligned-persisted", channel_credit=6)
    assert store.manifest(store.checkpoints()[-1]).summary["in_flight_rows"]
    return store


def test_rows_in_flight_go_on_in_the_same_pipeline() -> None:
    world = Ledger()
    (attempt,) = simulate(queued(world), broken(world), 2, mode="unaligned-persisted")
    assert attempt.restored is not None
    assert attempt.restored.in_flight_rows
    assert singles(world) == list(range(ROWS))


def test_rows_in_flight_do_not_fit_a_channel_that_carries_other_columns() -> None:
    world = Ledger()
    store = broken(world)
    with pytest.raises(
        CheckpointMismatch, match=r"rows that were in flight on 'in\[0\] -> needed\[0\]'.*the channel has .*'y'"
    ):
        simulate(queued(world, y=col("x") + 1), store, 2, mode="unaligned-persisted")


def test_a_checkpoint_whose_rows_have_no_channel_any_more_is_refused_and_stays() -> None:
    world = Ledger()
    store = broken(world)
    with flow.Pipeline("queued") as other:
        rows = other.source(numbers(), name="in").apply(lambda context: Dawdler(context, 20), name="slow")
        rows.sink(ledger_sink(world), name="out")
    kept = store.checkpoints()
    with pytest.raises(CheckpointMismatch):
        simulate(other, store, 2, mode="unaligned-persisted")
    assert store.checkpoints() == kept


def test_a_refused_restore_of_an_older_checkpoint_gives_no_newer_one_up() -> None:
    world = Ledger()
    store = broken(world)
    kept = store.checkpoints()
    older = next(n for n in kept[:-1] if store.manifest(n).summary["in_flight_rows"])
    with pytest.raises(CheckpointMismatch):
        simulate(queued(world, y=col("x") + 1), store, 2, mode="unaligned-persisted", restore=older)
    assert store.checkpoints() == kept
