"""One pipeline on all engines, and what must be equal: rows, late rows, and the counters of every operator."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from dataflow.runners.run_result import RunResult
from tests.agreement.data import cells
from tests.agreement.shapes.scene import Rows, Scene

__all__ = ["agree", "agree_in_all"]

Row = tuple[Any, ...]


def agree(found: RunResult, expected: RunResult, scene: Scene) -> None:
    """Raise AssertionError where the two differ in what is settled whatever the order of batches."""
    _agree(found, expected, {sink: rows for sink, rows in scene.sinks.items() if not rows.late})


def agree_in_all(found: RunResult, expected: RunResult, scene: Scene) -> None:
    """Raise AssertionError where the two differ, which both took the same batches in the same order.

    So late rows are settled too, and so is how many of them each operator counted.
    """
    _agree(found, expected, scene.sinks)
    assert _counters(found) == _counters(expected)
    assert (found.late, found.skipped) == (expected.late, expected.skipped)


def _agree(found: RunResult, expected: RunResult, sinks: Mapping[str, Rows]) -> None:
    assert found.tables.keys() == expected.tables.keys()
    assert (found.rows_in, found.skipped) == (expected.rows_in, expected.skipped)
    wrong = []
    for sink, rows in sinks.items():
        assert found.table(sink).schema.equals(expected.table(sink).schema), sink
        difference = _difference(_settled(found.table(sink), rows), _settled(expected.table(sink), rows), rows)
        if difference:
            wrong.append(f"{sink}: {difference}")
    assert not wrong, "\n".join(wrong)


def _counters(result: RunResult) -> Mapping[str, tuple[int, ...]]:
    """Rows late, partly late and left out, and sessions split, at every operator of the pipeline that has any.

    Spark's own operators, in a batch, have no counters.
    """
    counts = {o.operator: (o.late, o.partly_late, o.skipped, o.split_sessions) for o in result.operators}
    return {name: each for name, each in counts.items() if any(each) and not name.endswith("/combine")}


def _settled(table: pa.Table, rows: Rows) -> list[Row]:
    """In an order that is the same for the same rows."""
    every = list(zip(*(cells(column) for column in table.columns), strict=True))
    if rows.last is not None:
        columns = [cells(table[name]) for name in rows.last]
        keys = [tuple(column[i] for column in columns) for i in range(table.num_rows)]
        every = list(dict(zip(keys, every, strict=True)).values())
    return sorted(every, key=_exact if rows.near else repr)


def _exact(row: Row) -> str:
    """The part of a row that sums in another order do not change."""
    return repr([f"{cell:.3g}" if isinstance(cell, float) else cell for cell in row])


def _difference(found: Sequence[Row], expected: Sequence[Row], rows: Rows) -> str:
    if len(found) == len(expected) and all(_same(a, b, rows) for a, b in zip(found, expected, strict=True)):
        return ""
    more, fewer = (
        [row for row in some if row not in others] for some, others in ((found, expected), (expected, found))
    )
    return f"{len(found)} rows instead of {len(expected)}: {more[:3]} instead of {fewer[:3]}"


def _same(found: Row, expected: Row, rows: Rows) -> bool:
    return found == expected or (rows.near and all(map(_near, found, expected)))


def _near(a: Any, b: Any) -> bool:
    return a == b or (isinstance(a, float) and isinstance(b, float) and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9))
