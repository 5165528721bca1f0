"""A function that is slow by the row gets its batches in slices that fit into a step's budget, on real threads."""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import ConfigurationError
from dataflow.runners.local import LocalRunner
from dataflow.runtime.task.pace import FIRST_ROWS

COST = 400e-6
"""Seconds a row: a sleep never takes less, so the budget bounds the rows of a slice from above, on any machine."""


class Slow:
    """Remembers how many rows it was given at a time."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.sizes.append(batch.num_rows)
        time.sleep(batch.num_rows * COST)
        return batch


def sizes(between: Callable[[flow.Stream], flow.Stream], budget: str) -> list[int]:
    """The sizes of the slices that a slow function is given of one batch of 600 rows."""
    slow, rows = Slow(), pa.table({"x": range(600)})
    with flow.Pipeline("slow") as p:
        read = p.source(op.from_arrow(rows, batch_rows=600), name="in")
        between(read).map_batches(slow, name="slow").sink(op.collect(), name="out")
    result = p.run(LocalRunner(step_budget=budget))
    assert result.table("out")["x"].to_pylist() == list(range(600))
    return slow.sizes


@pytest.mark.parametrize("between", [flow.Stream.rebalance, lambda stream: stream], ids=["queued", "at the source"])
def test_a_slow_function_gets_slices_that_fit_into_the_budget(between: Callable[[flow.Stream], flow.Stream]) -> None:
    first, *others = sizes(between, "10ms")
    assert first == FIRST_ROWS
    assert max(others) <= 2 * 25, "what fits, and where the machine is late, a trial of twice that"


def test_a_larger_budget_gives_larger_slices() -> None:
    assert max(sizes(flow.Stream.rebalance, "1min")) == 600 - FIRST_ROWS


def test_a_step_needs_a_budget() -> None:
    with pytest.raises(ConfigurationError, match="must be above zero"):
        LocalRunner(step_budget="0s")
