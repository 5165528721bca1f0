"""Jobs with signed changes that crash: at each checkpoint, and at the end, the net is the answer over the rows read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.checkpointing import Mode
from dataflow.runners.faults import Faults
from dataflow.runners.simulated import SimulatedRunner
from dataflow.testing import delivered_again
from operators.sinks.net import net_rows
from tests.seeds import each_once_with_seeds, seeds
from tests.simulation.jobs import MODES

EXACT = [mode for mode in MODES if mode != "unaligned"]
ROWS = 120
NUMBERS = [(x * x * 7 + x) % 11 for x in range(ROWS)]
Groups = Counter[tuple[int, int, int]]


def answer(numbers: Iterable[int]) -> Groups:
    """For each count that a number has: how many numbers have it, the least and the sum of these numbers."""
    counts = Counter(numbers)
    by_count: dict[int, list[int]] = {}
    for number, count in counts.items():
        by_count.setdefault(count, []).append(number)
    return Counter((count, min(some), sum(some)) for count, some in by_count.items())


def pipeline(shown: dict[int, tuple[int, int]], **options: Any) -> flow.Pipeline:
    """The numbers, and the groups of ``answer`` as signed changes and in a mapping that a function keeps up to date."""

    def show(rows: pa.RecordBatch, gone: pa.RecordBatch) -> None:
        for row in rows.to_pylist():
            shown[row["n"]] = row["low"], row["total"]
        for n in gone["n"].to_pylist():
            shown.pop(n, None)

    with flow.Pipeline("groups") as p:
        rows = p.source(op.from_arrow(pa.table({"x": NUMBERS}), batch_rows=3, splits=3), name="in")
        rows.sink(op.collect(), name="raw")
        counts = rows.key_by("x").agg(n=op.count(), emit="changes", name="counts", **options)
        groups = counts.key_by("n").agg(low=col("x").min(), total=col("x").sum(), emit="changes", name="groups")
        groups.sink(op.collect(net=True), name="out")
        groups.rebalance().filter(col("n") > 0, name="spread").sink(op.collect(net=True), name="spread out")
        groups.sink(op.upsert_batches(show, keys="n"), name="shown")
    return p


def tuples(table: pa.Table) -> Groups:
    return Counter((row["n"], row["low"], row["total"]) for row in table.to_pylist())


def settings(mode: str, store: flow.MemoryStore) -> flow.Checkpointing:
    patience = "200us" if mode == "aligned-timeout" else None
    return flow.Checkpointing(store, every="300us", mode=mode, alignment_timeout=patience, duplicates="rows")


@pytest.mark.parametrize(("seed", "mode", "every"), each_once_with_seeds(60, EXACT, [None, "100us"]))
def test_the_net_after_crashes_is_the_answer_over_the_input(seed: int, every: str | None, mode: str) -> None:
    shown: dict[int, tuple[int, int]] = {}
    options: Mapping[str, Any] = {} if every is None else {"every": every}
    faults = Faults(crashes=2, skew=0.3)
    job = SimulatedRunner(seed, faults, max_turns=200_000).start(
        pipeline(shown, **options), parallelism=2, checkpoint=settings(mode, flow.MemoryStore())
    )
    result = job.wait()
    expected = answer(NUMBERS)
    assert tuples(result.table("out")) == expected
    assert tuples(result.table("spread out")) == expected
    assert Counter((n, *row) for n, row in shown.items()) == expected


@pytest.mark.parametrize("seed", seeds(2, 60))
def test_rows_with_lists_and_structs_are_upserted_after_crashes(seed: int) -> None:
    shown: dict[int, tuple[list[int], dict[str, int]]] = {}

    def show(rows: pa.RecordBatch, gone: pa.RecordBatch) -> None:
        shown.update({row["n"]: (row["xs"], row["s"]) for row in rows.to_pylist()})
        for n in gone["n"].to_pylist():
            shown.pop(n, None)

    def with_struct(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "s": {"least": min(row["xs"])}}

    columns = pa.schema({"n": pa.int64(), "xs": pa.list_(pa.int64()), "s": pa.struct({"least": pa.int64()})})
    with flow.Pipeline("lists") as p:
        rows = p.source(op.from_arrow(pa.table({"x": NUMBERS}), batch_rows=3, splits=3), name="in")
        counts = rows.key_by("x").agg(n=op.count(), emit="changes", name="counts")
        lists = counts.key_by("n").agg(xs=col("x").to_list("x"), emit="changes", name="lists")
        structs = lists.map(with_struct, schema=columns, name="structs")
        structs.sink(op.upsert_batches(show, keys="n"), name="shown")
    job = SimulatedRunner(seed, Faults(crashes=2, skew=0.3), max_turns=200_000).start(
        p, parallelism=2, checkpoint=settings("aligned", flow.MemoryStore())
    )
    job.wait()
    assert {(n, min(xs), sum(xs)) for n, (xs, _) in shown.items()} == set(answer(NUMBERS))
    assert all(struct == {"least": xs[0]} and xs == sorted(xs) for xs, struct in shown.values())


@pytest.mark.parametrize(("seed", "every"), each_once_with_seeds(60, [None, "100us"]))
def test_in_mode_unaligned_the_reported_duplicates_are_part_of_the_answer(seed: int, every: str | None) -> None:
    options: Mapping[str, Any] = {} if every is None else {"every": every}
    with flow.Pipeline("counts") as p:
        rows = p.source(op.from_arrow(pa.table({"x": NUMBERS}), batch_rows=3, splits=3), name="in")
        counts = rows.key_by("x").agg(n=op.count(), emit="changes", name="counts", **options)
        counts.sink(op.collect(net=True), name="out")
    job = SimulatedRunner(seed, Faults(crashes=2, skew=0.3), max_turns=200_000).start(
        p, parallelism=2, checkpoint=settings("unaligned", flow.MemoryStore())
    )
    result = job.wait()
    again = [x for (x,) in delivered_again(job.attempts, "counts").elements()]
    assert Counter(dict(zip(*result.table("out").to_pydict().values(), strict=True))) == Counter([*NUMBERS, *again])


@pytest.mark.parametrize("seed", seeds(2, 100))
def test_at_every_aligned_checkpoint_the_net_of_the_sink_is_the_answer_over_the_rows_before_it(seed: int) -> None:
    def agrees(state: flow.CheckpointState) -> bool:
        found = tuples(net_rows(state.table("out")))
        return found == answer(state.table("raw")["x"].to_pylist())

    store = flow.MemoryStore()
    job = SimulatedRunner(seed, Faults(skew=0.5, crashes=1), max_turns=200_000).start(
        pipeline({}), parallelism=2, checkpoint=settings(Mode.ALIGNED.value, store)
    )
    answers = job.on_checkpoint(agrees)
    job.wait()
    assert len(answers) > 3, f"{len(answers)} checkpoints"
    assert all(answers.values()), {n: held for n, held in answers.items() if not held}
