"""Which rows of one split are late does not depend on the schedule, or on the number of subtasks."""

from __future__ import annotations

import random
from datetime import timedelta

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.runners.faults import Faults
from dataflow.runners.simulated import SimulatedRunner
from tests.seeds import seeds

ROWS = 60
RANDOM = random.Random(7)
TABLE = pa.table(
    {
        "k": [RANDOM.choice("abcd") for _ in range(ROWS)],
        "x": list(range(ROWS)),
        "ts": pa.array([max(0, i - RANDOM.randrange(30)) for i in range(ROWS)], pa.timestamp("us")),
    }
)


class OwnTime(flow.Operator):
    """The watermark is the latest time so far, as ``with_watermark`` makes it."""

    makes_time = True

    def __init__(self, context: flow.OperatorContext) -> None:
        self._latest = 0

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        self._latest = max(self._latest, *batch["ts"].cast("int64").to_pylist())
        out.emit(batch)
        out.watermark(self._latest)


def late_by_own_time(seed: int) -> list[int]:
    """Return the late times of one split, of which the second row is late, after an operator that makes time."""
    times = pa.array([25, 6, 40, 18, 48, 60, 32], pa.timestamp("us"))
    with flow.Pipeline("late") as p:
        rows = p.source(op.from_arrow(pa.table({"k": ["a"] * 7, "ts": times}), batch_rows=1), name="in")
        timed = rows.with_watermark("ts", delay="1d").apply(OwnTime, name="own")
        windows = timed.key_by("k").window(op.tumbling(timedelta(microseconds=10)))
        windows.agg(n=op.count(), name="counts").side("late").sink(op.collect(), name="late")
    late = p.run(SimulatedRunner(seed), parallelism=2).table("late")
    return sorted(late["ts"].cast("int64").to_pylist())


def late_rows(seed: int, parallelism: int) -> list[int]:
    """Return the late rows of windows over one split, which comes through steps that fuse with the source."""
    with flow.Pipeline("late") as p:
        rows = p.source(op.from_arrow(TABLE, batch_rows=2), name="in").filter(col("x") >= 0)
        windows = rows.with_watermark("ts").key_by("k").window(op.tumbling(timedelta(microseconds=5)))
        counts = windows.agg(n=op.count(), name="counts")
        counts.sink(op.collect(), name="out")
        counts.side("late").sink(op.collect(), name="late")
    return sorted(
        p.run(SimulatedRunner(seed, Faults(skew=0.5)), parallelism=parallelism).table("late")["x"].to_pylist()
    )


@pytest.mark.parametrize("parallelism", [2, 4])
@pytest.mark.parametrize("seed", [8, 20, *seeds(1, 100)])  # in 8 and 20, tasks without a split are slow
def test_which_rows_of_one_split_are_late_is_the_same_in_every_run(seed: int, parallelism: int) -> None:
    late = late_rows(seed, parallelism)
    assert late == late_rows(0, 1)
    assert len(late) > 10


@pytest.mark.parametrize("seed", [1, 3, *seeds(1, 60)])  # in 1 and 3, the task without a split is slow
def test_an_operator_that_makes_time_does_not_hold_it_back_without_a_split(seed: int) -> None:
    assert late_by_own_time(seed) == [6, 18, 32]
