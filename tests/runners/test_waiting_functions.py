"""Functions that wait hold up no other task, however few workers there are."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op

LIMIT = 60.0


@pytest.mark.parametrize("call", ["map_batches", "map", "flat_map"])
def test_functions_that_wait_for_each_other_all_run(call: str) -> None:
    subtasks = (os.cpu_count() or 1) + 1
    together = threading.Barrier(subtasks)

    def meet(rows: object) -> object:
        together.wait(LIMIT)
        return [rows] if call == "flat_map" else rows

    table = pa.table({"x": range(subtasks)})
    with flow.Pipeline() as p:
        rows = p.source(op.from_arrow(table, batch_rows=1, splits=subtasks), name="rows")
        getattr(rows, call)(meet).sink(op.collect(), name="out")
    result = p.run(flow.LocalRunner(threads=1), parallelism=subtasks, timeout="120s")
    assert sorted(result.tables["out"]["x"].to_pylist()) == list(range(subtasks))


def test_a_function_that_waits_for_another_branch_does_not_keep_it_from_running() -> None:
    passed = threading.Event()

    def then(action: Callable[[], object]) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        def function(batch: pa.RecordBatch) -> pa.RecordBatch:
            assert action() is not False, "the other branch did not run"
            return batch

        return function

    table = pa.table({"x": [1]})
    with flow.Pipeline() as p:
        p.source(op.from_arrow(table), name="a").map_batches(then(lambda: passed.wait(LIMIT))).sink(
            op.collect(), name="waits"
        )
        p.source(op.from_arrow(table), name="b").map_batches(then(passed.set)).sink(op.collect(), name="frees")
    result = p.run(flow.LocalRunner(threads=1), timeout="120s")
    assert [result.tables[name].num_rows for name in ("waits", "frees")] == [1, 1]
