"""Late rows on Spark: each row of a join or of ranked windows is in the result or in a side output, never in both."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.runners.spark.runner import SparkRunner
from tests.seeds import in_soak, seeds

US = pa.timestamp("us")
ROWS = 100


def table(draw: random.Random, name: str) -> pa.Table:
    """Rows of which a few are far out of order."""
    times = [max(0, 5 * n - draw.choice([0, 0, 0, 3, 400])) for n in range(ROWS)]
    keys = pa.array([draw.choice([None, 1, 2, 3]) for _ in range(ROWS)], pa.int64())
    return pa.table({"k": keys, f"at_{name}": pa.array(times, US), name: range(ROWS)})


def numbers(result: flow.RunResult, sink: str, column: str) -> list[int]:
    return [number for number in result.table(sink)[column].to_pylist() if number is not None]


@pytest.mark.parametrize("seed", in_soak(*range(8)))
def test_rows_on_time_and_late_rows_partition_the_input(spark: Any, seed: int) -> None:
    draw = random.Random(seed)
    with flow.Pipeline("late") as p:
        left, right = (
            p.source(op.from_arrow(table(draw, name), batch_rows=20), name=name).with_watermark(f"at_{name}")
            for name in ("left", "right")
        )
        joins = {
            "window": left.join(right, on="k", window=op.tumbling("50us"), how="full", name="in windows"),
            "within": left.join(right, on="k", within=("-30us", "20us"), how="full", name="near"),
        }
        for name, joined in joins.items():
            joined.sink(op.collect(), name=name)
            joined.side("late").sink(op.collect(), name=f"{name} late left")
            joined.side("late_right").sink(op.collect(), name=f"{name} late right")
        nearest = left.join_asof(right, by="k", name="as of")
        nearest.sink(op.collect(), name="nearest")
        nearest.side("late").sink(op.collect(), name="nearest late left")
        nearest.side("late_right").sink(op.collect(), name="nearest late right")
        ranks = left.key_by("k").window(op.tumbling("50us")).top(ROWS, by="left", name="first rows")
        ranks.sink(op.collect(), name="ranks")
        ranks.side("late").sink(op.collect(), name="ranks late left")
    result = p.run(SparkRunner(spark, rows_per_trigger=50), parallelism=2, max_key_groups=2)
    for sink, sides in (("window", "left right"), ("within", "left right"), ("nearest", "left"), ("ranks", "left")):
        for side in sides.split():
            late = numbers(result, f"{sink} late {side}", side)
            on_time = set(numbers(result, sink, side))
            assert late, f"no row of {sink} is late"
            assert len(late) == len(set(late))
            assert on_time.isdisjoint(late), (sink, side)
            assert sorted(on_time | set(late)) == list(range(ROWS)), (sink, side)
    assert len(numbers(result, "ranks", "left")) == len(set(numbers(result, "ranks", "left")))


@pytest.mark.parametrize("seed", seeds(1, 8))
def test_no_row_is_late_behind_a_forward_join_whose_subtasks_hold_different_watermarks(spark: Any, seed: int) -> None:
    draw = random.Random(seed)
    with flow.Pipeline("watermarks") as p:
        left, right = (
            p.source(op.from_arrow(table(draw, name), batch_rows=20), name=name).with_watermark(
                f"at_{name}", delay="400us"
            )
            for name in ("left", "right")
        )
        nearest = left.join_asof(right, by="k", strategy="forward", tolerance="150us", name="nearest")
        windows = nearest.key_by("left").window(op.tumbling("10us"))
        windows.agg(op.count().alias("rows"), name="windows").sink(op.collect(), name="out")
    result = p.run(SparkRunner(spark, rows_per_trigger=50), parallelism=2, max_key_groups=2)
    assert result.late == 0
    assert sorted(numbers(result, "out", "left")) == list(range(ROWS))
