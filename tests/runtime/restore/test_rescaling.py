"""Jobs that continue at another parallelism: every kind of operator, sources, users' state, and what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import CheckpointMismatch, ConfigurationError, NewInputWarning
from dataflow.runners.faults import Faults
from dataflow.runtime.task.ranged_operator import RangedOperator
from dataflow.testing import Pause, ScriptedSource
from tests.keeping_state import STREAMS, sample
from tests.seeds import in_extended

RUNS = [("unaligned-persisted", 4), *in_extended(("aligned", 3), ("aligned-timeout", 5), ("unaligned-persisted", 6))]
SETTLED = [
    name
    for name in STREAMS
    if name not in ("every aggregate", "aggregate that expires", "triggered windows", "sessions in panes")
    and name not in ("all rows in panes", "windows of rows", "first rows", "best rows", "best rows of windows")
    and name != "process function"
]
"""The kinds whose rows do not depend on the order of batches."""


def script(seed: int, first: int, steps: int) -> list[Any]:
    """Batches of rows whose times go on, with pauses between."""
    rng = np.random.default_rng(seed)
    return [entry for step in range(steps) for entry in (Pause(4), sample(rng, first + 100 * step, 12))]


SPLITS = script(1, 0, 12), script(2, 40, 9), script(3, 700, 5)
OTHERS = script(4, 0, 10), script(5, 90, 7)


def pipeline() -> flow.Pipeline:
    """Operators of all settled kinds side by side, over splits whose times are far apart; no row is late."""
    with flow.Pipeline("kinds") as p:
        rows, others = [
            p.source(ScriptedSource(*scripts), name=name).with_watermark("at", delay="170us").key_by("k")
            for name, scripts in (("in", SPLITS), ("others", OTHERS))
        ]
        for name in SETTLED:
            stream = STREAMS[name](rows, others, name)
            stream.sink(op.collect(net=stream.changes == "signed"), name=f"{name} out")
    return p


def contents(result: flow.RunResult) -> dict[str, Counter[str]]:
    return {name: Counter(map(repr, table.to_pylist())) for name, table in result.tables.items()}


@cache
def undisturbed() -> dict[str, Counter[str]]:
    return contents(pipeline().run(flow.SimulatedRunner(1), parallelism=1))


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_every_kind_of_operator_continues_with_3_1_and_2_subtasks(
    run: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    mode, seed = run
    ranged: set[str] = set()
    make = RangedOperator.__init__

    def noted(self: RangedOperator, *arguments: Any) -> None:
        make(self, *arguments)
        ranged.add(self.context.name)

    monkeypatch.setattr(RangedOperator, "__init__", noted)
    faults = Faults(crashes=3, crash_at=("step",), crash_after=(1, 2), skew=0.4, rescale_to=(3, 1, 2))
    settings = flow.Checkpointing(flow.MemoryStore(), every="2ms", mode=mode)
    job = pipeline().start(flow.SimulatedRunner(seed, faults), parallelism=2, checkpoint=settings)
    result = job.wait()
    moved = [a.restored for a in job.attempts if a.restored is not None and a.restored.rescaled]
    assert len(moved) >= 2
    # Where barriers do not overtake, all subtasks have taken the same watermarks before a barrier.
    assert ranged or mode != "unaligned-persisted", "no subtask got key groups with different watermarks"
    assert contents(result) == undisturbed()


# --- sources


ROWS = 60
"""Rows of a partition."""


class Partitions(flow.Source):
    """A source that has got a partition since the job began, if ``count`` is larger."""

    def __init__(self, count: int, *, bounded: bool) -> None:
        self.count, self.bounded = count, bounded

    schema = pa.schema({"x": pa.int64()})

    def splits(self) -> list[flow.Split]:
        return [flow.Split(f"p{i}", {"first": 100 * i}) for i in range(self.count)]

    def reader(self, split: flow.Split, offset: Any, context: Any) -> flow.SplitReader:
        return Partition(int(str(split.info["first"])), offset or 0)


class Partition(flow.SplitReader):
    offset: Any = 0

    def __init__(self, first: int, read: int) -> None:
        self.first, self.offset = first, read

    def poll(self, max_rows: int) -> Any:
        if self.offset == ROWS:
            return flow.END
        self.offset += 1
        return pa.record_batch({"x": [self.first + self.offset]})


def partitions(count: int, *, bounded: bool) -> flow.Pipeline:
    with flow.Pipeline("partitions") as p:
        p.source(Partitions(count, bounded=bounded), name="in").sink(op.collect(), name="out")
    return p


def stopped_early(p: flow.Pipeline, store: flow.MemoryStore, parallelism: int, **options: Any) -> None:
    """Take a checkpoint of a job whose input has not ended, and leave it."""
    runner = flow.SimulatedRunner(1, Faults(crashes=0))
    job = p.start(runner, parallelism=parallelism, checkpoint=flow.Checkpointing(store, every="100us"), **options)
    job.stop_when(lambda state: True)
    job.wait()


def continued(*, bounded: bool) -> list[int]:
    """Return the rows of a job that began with two partitions and continues with three."""
    store = flow.MemoryStore()
    stopped_early(partitions(2, bounded=bounded), store, 2)
    result = partitions(3, bounded=bounded).run("simulated", parallelism=3, checkpoint=flow.Checkpointing(store))
    return sorted(result.table("out")["x"].to_pylist())


def test_an_unbounded_source_reads_new_splits() -> None:
    assert continued(bounded=False) == [first + n for first in (0, 100, 200) for n in range(1, ROWS + 1)]


def test_a_bounded_source_reads_no_new_splits() -> None:
    with pytest.warns(NewInputWarning, match="1 new splits of source 'in'"):
        assert continued(bounded=True) == [first + n for first in (0, 100) for n in range(1, ROWS + 1)]


# --- operators of users


class ByHand(flow.Operator):
    """Sums by key, saved by hand."""

    def __init__(self, context: flow.OperatorContext) -> None:
        self.sums: dict[int, int] = {}
        if context.restored is not None:
            rows = context.restored.tables["sums"].to_pylist()
            self.sums = {row["k"]: row["sum"] for row in rows}

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        for row in batch.to_pylist():
            self.sums[row["k"]] = self.sums.get(row["k"], 0) + row["x"]

    def finish(self, out: flow.Out) -> None:
        out.emit(pa.record_batch({"k": list(self.sums), "sum": list(self.sums.values())}))

    def snapshot(self) -> flow.Snapshot:
        schema = pa.schema({"k": pa.int64(), "sum": pa.int64()})
        return flow.Snapshot(tables={"sums": pa.table([list(self.sums), list(self.sums.values())], schema=schema)})


class Divided(ByHand):
    @classmethod
    def rescale(cls, parts: Sequence[flow.StatePart], context: flow.RescaleContext) -> flow.Snapshot:
        assert context.keys == ("k",)
        assert context.old_parallelism == len(parts) == 2
        rows = pa.concat_tables([part.snapshot.tables["sums"] for part in parts])
        return flow.Snapshot(tables={"sums": context.owned(rows)})


def sums(operator: type[flow.Operator]) -> flow.Pipeline:
    batches = [pa.record_batch({"k": [n % 7, n % 5], "x": [n, 1]}) for n in range(60)]
    scripts: Iterator[list[Any]] = ([e for b in batches[i::2] for e in (b, Pause(2))] for i in range(2))
    with flow.Pipeline("sums") as p:
        keyed = p.source(ScriptedSource(*scripts), name="in").key_by("k")
        out = keyed.apply(operator, schema=pa.schema({"k": pa.int64(), "sum": pa.int64()}), name="sums")
        out.sink(op.collect(), name="out")
    return p


def test_state_saved_by_hand_is_divided_by_rescale() -> None:
    expected = sorted(map(repr, sums(Divided).run("simulated").table("out").to_pylist()))
    store = flow.MemoryStore()
    stopped_early(sums(Divided), store, 2)
    result = sums(Divided).run("simulated", parallelism=3, checkpoint=flow.Checkpointing(store))
    assert result.restore_report is not None
    assert result.restore_report.rescaled["sums"] == (2, 3)
    assert sorted(map(repr, result.table("out").to_pylist())) == expected


def test_state_saved_by_hand_without_rescale_is_refused() -> None:
    store = flow.MemoryStore()
    stopped_early(sums(ByHand), store, 2)
    with pytest.raises(CheckpointMismatch, match=r"'sums' saves its state by hand in 2 subtasks(.|\n)*flow.Stateful"):
        sums(ByHand).run("simulated", parallelism=3, checkpoint=flow.Checkpointing(store))
    sums(ByHand).run("simulated", parallelism=2, checkpoint=flow.Checkpointing(store))


def test_parallelism_above_the_key_groups_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="parallelism 5 is above max_key_groups=4"):
        sums(Divided).run("simulated", parallelism=5, max_key_groups=4)
