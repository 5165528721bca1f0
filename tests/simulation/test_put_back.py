"""Jobs that fail and are restored at another parallelism again and again, before they took the rows put back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.operator import OperatorContext, Out
from dataflow.planning.physical_plan import make_plan
from dataflow.runners.attempts import Attempt
from dataflow.runners.binding import LIBRARY
from dataflow.runners.faults import Faults
from dataflow.runners.simulated import SimulatedRunner
from dataflow.runtime.job.checkpoint_state import state_at
from dataflow.runtime.restore.find_checkpoint import report_on, states_of
from dataflow.store.base import CheckpointStore
from dataflow.testing import Ledger, ledger_sink
from tests.simulation.workloads import Dawdler

ROWS, SPLITS = 120, 3
FEW = 20
KEYS = [x * SPLITS // ROWS * 10 + x % 4 for x in range(ROWS)]


class Tired(Exception):
    """Raised by an operator after some batches."""


class Stops(Dawdler):
    """Takes its time, and raises when the batches of all its subtasks are used up."""

    def __init__(self, context: OperatorContext, budget: list[int]) -> None:
        super().__init__(context, 120 if budget[0] == FEW else 5)
        self._budget = budget

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None]:
        if not self._budget[0]:
            raise Tired
        self._budget[0] -= 1
        return super().process(port, batch, out)


def pipeline(world: Ledger, batches: int) -> flow.Pipeline:
    """Lists the rows of each key in their order."""
    source = op.from_arrow(pa.table({"k": KEYS, "x": range(ROWS)}), batch_rows=2, splits=SPLITS)
    budget = [batches]
    with flow.Pipeline("lists") as p:
        rows = p.source(source, name="in")
        known = rows.filter(col("x") >= 0, name="known")
        slow = known.key_by("k").apply(lambda context: Stops(context, budget), name="slow")
        lists = slow.key_by("k").agg(xs=col("x").to_list(), name="lists")
        as_text = lists.map_batches(joined, schema=pa.schema({"k": pa.int64(), "xs": pa.string()}), name="text")
        as_text.sink(ledger_sink(world), name="out")
    return p


def joined(batch: pa.RecordBatch) -> pa.RecordBatch:
    texts = [" ".join(map(str, xs)) for xs in batch["xs"].to_pylist()]
    return pa.record_batch({"k": batch["k"], "xs": texts})


def restored_again(
    seed: int, mode: str, widths: Sequence[int], store: CheckpointStore | None = None
) -> Sequence[Attempt]:
    """Run the pipeline with each of ``widths`` for some batches, with the last one to the end; check the lists."""
    world, store = Ledger(), store or flow.MemoryStore()
    attempts: list[Attempt] = []
    for number, width in enumerate(widths):
        is_last = number == len(widths) - 1
        timeout = "1ms" if mode == "aligned-timeout" else None
        checkpointing = flow.Checkpointing(store, every="1ms", mode=mode, alignment_timeout=timeout, keep=50)
        faults = Faults(crashes=1, skew=0.4) if is_last else Faults(skew=0.4)
        runner = SimulatedRunner(seed + width, faults, max_turns=100_000)
        p = pipeline(world, 10_000 if is_last else FEW)
        job = runner.start(p, parallelism=width, checkpoint=checkpointing, channel_credit=12)
        with suppress(Tired):
            job.wait()
        attempts += job.attempts
    lists = sorted((k, " ".join([str(x) for x in range(ROWS) if KEYS[x] == k])) for k in set(KEYS))
    assert sorted(world.rows().elements()) == lists, f"seed {seed}, {mode}, {widths}"
    return attempts


def generations(attempts: Sequence[Attempt]) -> set[tuple[str, int]]:
    """The operators and generations of the put-back rows that checkpoints had stored."""
    reports = [attempt.restored for attempt in attempts if attempt.restored is not None]
    return {(state.operator, state.generation) for report in reports for state in report.in_flight if state.generation}


def test_put_back_rows_keep_the_order_of_each_key_through_many_restores() -> None:
    assert ("slow", 2) in generations(restored_again(4, "unaligned-persisted", (2, 3, 1, 4, 2)))


def test_rows_that_are_still_put_back_are_read_and_shown_with_port_and_generation(tmp_path: Path) -> None:
    store = flow.DirectoryStore(tmp_path)
    restored_again(4, "unaligned-persisted", (2, 3), store)
    found = 0
    for n in store.checkpoints():
        checkpoint = flow.Checkpoint(tmp_path, n)
        states = states_of(store.manifest(n), partial(store.read, n))
        if not any([flown.generation for state in states.values() for flown in state.in_flight]):
            continue
        report = report_on(store, store.manifest(n), states)
        table = report.in_flight_table()
        put_back = table.filter(pc.greater(table["generation"], 0)).to_pylist()
        found += sum([row["rows"] for row in put_back])
        assert {(row["operator"], row["port"], row["generation"]) for row in put_back} <= {
            ("slow", 0, 1),
            ("lists", 0, 1),
        }
        assert all([row["channel"] == f"(put back 1) -> {row['task']}" in str(report) for row in put_back])
        rows = checkpoint.channel("known", "slow").num_rows + checkpoint.channel("slow", "lists").num_rows
        assert rows == report.in_flight_rows
        plan = make_plan(pipeline(Ledger(), 0).graph, parallelism=3)
        channels = [ends.name for link in plan.links for ends in plan.channel_ids(link).values()]
        shown = state_at(store, n, plan, channels, LIBRARY)
        assert shown.rows_to("slow").num_rows == checkpoint.channel("known", "slow").num_rows
        assert any([channel.source == "(put back 1)" for channel in shown.channels])
    assert found


@pytest.mark.extended
def test_the_same_in_both_modes_that_store_rows_in_flight() -> None:
    modes = ("unaligned-persisted", "aligned-timeout")
    found = set[tuple[str, int]]().union(
        *[generations(restored_again(seed, mode, (2, 3, 1, 4, 2))) for seed in range(4, 8) for mode in modes]
    )
    assert {("slow", 1), ("slow", 2), ("slow", 3)} <= found


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100))
def test_the_same_for_more_seeds_and_widths(seed: int) -> None:
    widths = [Random(seed).randint(1, 5) for _ in range(6)]
    for mode in ("unaligned-persisted", "aligned-timeout"):
        restored_again(seed, mode, widths)
