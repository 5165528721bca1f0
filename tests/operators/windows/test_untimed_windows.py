"""Windows without times: of so many rows by arrival, and one for all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.operator import Snapshot
from dataflow.contracts.untimed import CountWindow
from dataflow.errors import CheckpointDamaged
from dataflow.expressions import count
from dataflow.planning.aggregate_specs import Emit
from operators.windows import count_windows
from operators.windows.count_windows import CountWindowOperator
from tests.forcing import Force
from tests.operators.operating import Emitted, context_of, drained, made, stored
from tests.seeds import each_once

SCHEMA = pa.schema({"k": pa.string(), "x": pa.int64()})
AGGREGATES = (count().alias("n"), col("x").sum().alias("sum"), col("x").to_list().alias("list"))


class Counted:
    """A CountAggregate with what an engine gives it; rows are (key, x)."""

    def __init__(self, n: int, every: int, restored: Snapshot | None = None, emit: Emit = Emit.FINAL) -> None:
        values = [pa.field(a.name, a.dtype(SCHEMA)) for a in AGGREGATES]
        change = [pa.field("change", pa.int8())] if emit is Emit.CHANGES else []
        output = pa.schema([SCHEMA.field("k"), pa.field("window_index", pa.int64()), *values, *change])
        self.out = Emitted()
        context = context_of(SCHEMA, output, restored=restored)
        self.operator = made(CountWindowOperator(context, ("k",), CountWindow(n, every), AGGREGATES, emit), context)

    def feed(self, *rows: tuple[str, int]) -> list[Any]:
        columns = [pa.array(c, t) for c, t in zip(zip(*rows, strict=True), SCHEMA.types, strict=True)]
        drained(self.operator.process(0, pa.record_batch(columns, schema=SCHEMA), self.out))
        return self.out.take()

    def finish(self) -> list[Any]:
        drained(self.operator.finish(self.out))
        return self.out.take()


def windows_of(values: Sequence[int], n: int, every: int, *, ended: bool) -> list[tuple[int, list[int]]]:
    """The windows of one key's rows, by number."""
    whole = [(i, values[max(0, (i + 1) * every - n) : (i + 1) * every]) for i in range(len(values) // every)]
    if ended and len(values) % every:
        last = len(values) // every
        whole.append((last, values[max(0, (last + 1) * every - n) :]))
    return [(i, list(rows)) for i, rows in whole]


LENGTHS = [(1, 1), (3, 3), (5, 2), (6, 2), (4, 1), (7, 6)]


@pytest.mark.parametrize(("lengths", "entries"), each_once(LENGTHS, [4, 1 << 18]))
def test_windows_of_rows_are_those_of_the_model(lengths: tuple[int, int], entries: int, force: Force) -> None:
    """Batches of many sizes, with keys many times in one, and restores."""
    if entries < count_windows._ENTRIES:
        process, fold = CountWindowOperator._process, CountWindowOperator._fold
        force(count_windows, "_ENTRIES", entries, calls=fold, within=process, times=2)
    draw, w = Random(f"{lengths}"), Counted(*lengths)
    rows: dict[str, list[int]] = {key: [] for key in "abc"}
    results: list[Any] = []
    for _ in range(30):
        batch = [(draw.choice("aabc"), draw.randrange(99)) for _ in range(1 + draw.randrange(9))]
        for key, x in batch:
            rows[key].append(x)
        results += w.feed(*batch)
        expected = [(key, *each) for key in rows for each in windows_of(rows[key], *lengths, ended=False)]
        assert sorted((key, index, values) for key, index, _, _, values in results) == expected
        if draw.random() < 0.3:
            w = Counted(*lengths, restored=stored(w.operator.snapshot()))
    results += w.finish()
    expected = [(key, *each) for key in rows for each in windows_of(rows[key], *lengths, ended=True)]
    assert sorted((key, index, values) for key, index, _, _, values in results) == expected
    assert all(n == len(values) and total == sum(values) for _, _, n, total, values in results)


def test_nothing_comes_twice_after_the_end() -> None:
    w = Counted(3, 3)
    w.feed(("a", 1))
    assert len(w.finish()) == 1
    assert Counted(3, 3, stored(w.operator.snapshot())).finish() == []


def test_signed_windows_of_rows_are_added() -> None:
    assert Counted(1, 1, emit=Emit.CHANGES).feed(("a", 7)) == [("a", 0, 1, 7, [7], 1)]


@pytest.mark.parametrize("table", ["state", "counts"])
def test_a_checkpoint_that_contradicts_itself_is_refused(table: str) -> None:
    w = Counted(3, 2)
    w.feed(("a", 1), ("b", 1))
    good = stored(w.operator.snapshot())
    logs: dict[str, Any] = dict(good.logs)
    logs[table] = [{"keys": logs[table][0]["keys"].slice(0, 1)}]
    with pytest.raises(CheckpointDamaged, match="op: the windows"):
        Counted(3, 2, replace(good, logs=logs))


def rows(batch_rows: int = 2) -> flow.Stream:
    table = pa.table({"k": ["a", "b", "a", "a", "b", "a"], "x": [1, 2, 3, 4, 5, 6]})
    return flow.Pipeline().source(op.from_arrow(table, batch_rows=batch_rows))


def test_windows_of_rows_over_all_keys() -> None:
    windows = rows().window(op.count_window(4)).agg(s=col("x").sum())
    assert windows.collect().to_pylist() == [{"window_index": 0, "s": 10}, {"window_index": 1, "s": 11}]


def test_the_global_window_comes_at_the_end() -> None:
    windows = rows().key_by("k").window(op.global_window()).agg(s=col("x").sum())
    assert (windows.changes, windows.time) == ("rows", None)
    expected = [{"k": "a", "window_index": 0, "s": 14}, {"k": "b", "window_index": 0, "s": 7}]
    assert windows.collect().sort_by("k").to_pylist() == expected


def test_the_global_window_has_panes_before_the_end() -> None:
    windows = rows().key_by("k").window(op.global_window(), early=op.after_rows(2)).agg(s=col("x").sum())
    assert windows.changes == "updates"
    panes = windows.as_rows().filter(col("k") == "a").select("window_index", "pane", "pane_index", "s").collect()
    assert [tuple(row.values()) for row in panes.to_pylist()] == [(0, "early", 0, 8), (0, "on_time", 1, 14)]


def test_discarding_panes_of_the_global_window_add_up() -> None:
    keyed = rows().key_by("k").window(op.global_window(), early=op.after_rows(1), panes="discarding")
    windows = keyed.agg(n=op.count(), s=col("x").sum())
    assert windows.changes == "rows"
    sums = windows.key_by("k").agg(n=col("n").sum(), s=col("s").sum(), emit="final").collect()
    assert sums.sort_by("k").to_pylist() == [{"k": "a", "n": 4, "s": 14}, {"k": "b", "n": 2, "s": 7}]


def test_signed_changes_of_the_global_window_leave_the_last_pane() -> None:
    windows = rows().key_by("k").window(op.global_window(), early=op.after_rows(1)).agg(op.count(), emit="changes")
    assert windows.schema.names == ["k", "window_index", "count", "change"]
    table = windows.collect()
    assert sum(table["change"].to_pylist()) == 2
