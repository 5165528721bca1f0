"""Aggregates that choose a row return whole rows that exist: against a plain loop over feeds with nulls and ties."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import CheckpointMismatch, GraphError, SchemaMismatch
from dataflow.expressions import AggregateKind, Aggregation
from dataflow.planning.graph import Graph
from dataflow.runners.faults import Faults
from operators.aggregation.records import Records
from tests.operators.aggregation.test_more_aggregates import KEYS, ROWS, SCHEMA, Rows, batch_of, columns_of, slots_of
from tests.operators.operating import records_table, restore_records
from tests.seeds import each_once, part_of_the_examples

BY = [None, "i", "f", "b", "t"]
CHOICES = [(kind, by) for kind in (AggregateKind.FIRST, AggregateKind.LAST) for by in BY]
CHOICES += [(kind, by) for kind in (AggregateKind.ARG_MIN, AggregateKind.ARG_MAX) for by in BY if by is not None]
COLUMNS = ("i", "f", "s", "d", "b", "t")


def chosen(rows: Sequence[tuple[Any, ...]], kind: AggregateKind, by: int | None) -> tuple[Any, ...] | None:
    """The row that ``kind`` chooses, as the documentation says it; ``by`` is the number of a column."""
    least = kind in (AggregateKind.FIRST, AggregateKind.ARG_MIN)
    best: tuple[Any, ...] | None = None
    for row in rows:
        if by is not None and row[by] is None and "arg" in kind.value:
            continue
        if best is None:
            best = row
            continue
        new, old = (row[by], best[by]) if by is not None else (None, None)
        if new is None or old is None:
            better = new is not None or (old is None and kind is AggregateKind.LAST)
        elif rank(new) == rank(old):
            better = kind is AggregateKind.LAST
        else:
            better = (rank(new) < rank(old)) == least
        best = row if better else best
    return best


def rank(value: Any) -> tuple[bool, Any]:
    """NaN is greater than every number."""
    nan = isinstance(value, float) and math.isnan(value)
    return (nan, 0 if nan else value)


def plain(value: Any) -> Any:
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def all_choices(*, ignore_nulls: bool) -> list[Aggregation]:
    return [
        Aggregation(kind, col(name), f"{kind.value} {name} {by}", by and col(by), ignore_nulls=ignore_nulls)
        for kind, by in CHOICES
        for name in COLUMNS
    ]


def folded(aggregations: Sequence[Aggregation], *parts: Rows) -> Records:
    found = Records(aggregations, SCHEMA, "test")
    for rows in parts:
        found.fold(batch_of(rows), slots_of(rows), KEYS)
    return found


def expected(rows: Rows, *, ignore_nulls: bool) -> list[list[Any]]:
    columns = []
    for kind, by in CHOICES:
        for name in COLUMNS:
            value, order = COLUMNS.index(name) + 1, None if by is None else COLUMNS.index(by) + 1
            of_key = [[r for r in rows if r[0] == k and not (ignore_nulls and r[value] is None)] for k in range(KEYS)]
            found = [chosen(rows_of_key, kind, order) for rows_of_key in of_key]
            columns.append([None if row is None else plain(row[value]) for row in found])
    return columns


@pytest.mark.parametrize("nulls", ["kept", "skipped"])
@part_of_the_examples(10)
@given(ROWS, ROWS)
def test_a_row_is_chosen_as_a_plain_loop_does(nulls: str, rows: Rows, more: Rows) -> None:
    ignore_nulls = nulls == "skipped"
    aggregations = all_choices(ignore_nulls=ignore_nulls)
    halves = aggregations[::2], aggregations[1::2]  # of those that skip nulls, a record holds 62
    even, odd = (columns_of(folded(half, rows, more)) for half in halves)
    found = [column for pair in zip(even, odd, strict=True) for column in pair]
    assert [[plain(v) for v in column] for column in found] == expected([*rows, *more], ignore_nulls=ignore_nulls)


# --- whole rows in pipelines

FEED = pa.schema(
    {
        "id": pa.int64(),
        "n": pa.int64(),
        "status": pa.string(),
        "price": pa.decimal128(21, 2),
        "weight": pa.float32(),
        "flag": pa.bool_(),
        "raw": pa.binary(),
        "kind": pa.dictionary(pa.int32(), pa.string()),
        "nothing": pa.null(),
        "version": pa.float64(),
        "at": pa.timestamp("ms"),
    }
)


def feed(seed: int, rows: int = 1_500, keys: int = 40) -> pa.Table:
    """Changes of a few records: every column has nulls, versions tie, some are NaN, and the times repeat."""
    draw = np.random.default_rng(seed)
    version = draw.integers(0, 9, rows).astype(float)
    version[draw.random(rows) < 0.05] = math.nan

    def some(values: Any, type_: pa.DataType | None = None) -> pa.Array:
        return pa.array(values, type_, mask=draw.random(rows) < 0.4)

    columns = {
        "id": pa.array(draw.integers(0, keys, rows)),
        "n": pa.array(range(rows)),
        "status": some([f"status {n}" for n in draw.integers(0, 5, rows)]),
        "price": some(draw.integers(0, 10**4, rows)).cast(pa.decimal128(21, 2)),
        "weight": some(draw.random(rows), pa.float32()),
        "flag": some(draw.random(rows) < 0.5),
        "raw": some([bytes([n]) * (n % 5) for n in draw.integers(0, 255, rows)], pa.binary()),
        "kind": some([f"kind {n}" for n in draw.integers(0, 5, rows)]).dictionary_encode(),
        "nothing": pa.nulls(rows),
        "version": some(version),
        "at": pa.array(np.sort(draw.integers(0, 30_000, rows)), pa.timestamp("ms")),
    }
    return pa.table(columns, schema=FEED)


Change = Mapping[str, Any]


def last_ones(rows: Sequence[Change], by: str | None) -> list[Change]:
    """The rows of which any may be the last, if arrival is not settled."""
    if by is None:
        return list(rows)
    ranked = [((row[by] is not None), *rank(row[by] if row[by] is not None else 0)) for row in rows]
    return [row for row, place in zip(rows, ranked, strict=True) if place == max(ranked)]


def by_id(table: pa.Table) -> dict[int, list[Change]]:
    rows: dict[int, list[Change]] = {}
    for row in table.to_pylist():
        rows.setdefault(row["id"], []).append(row)
    return rows


NUMBERS = ["n", "weight", "flag", "nothing", "version", "at"]
"""Columns whose state merges, so that rows are folded before the shuffle."""

RUNS: dict[str, Any] = {
    "one thread a task": (flow.LocalRunner(), 1),
    "two tasks": (flow.LocalRunner(), 2),
    "seed 3": (flow.SimulatedRunner(seed=3), 2),
    "seed 4 with faults": (flow.SimulatedRunner(seed=4, faults=Faults(crashes=2)), 2),
}


@pytest.mark.parametrize(("run", "by", "columns"), each_once(list(RUNS), [None, "version", "at"], [[], NUMBERS]))
def test_latest_returns_rows_that_exist_and_are_the_last(
    run: str, by: str | None, columns: list[str], request: pytest.FixtureRequest
) -> None:
    runner, parallelism = RUNS[run]
    if columns and parallelism > 1:
        request.getfixturevalue("folded")
    table = feed(seed=len(run))
    with flow.Pipeline("feed") as p:
        rows = p.source(op.from_arrow(table, splits=3, batch_rows=70), name="feed").key_by("id")
        rows.agg(op.latest(*columns, by=by), emit="final", name="state").sink(op.collect(), name="out")
    options = {"checkpoint": flow.Checkpointing(flow.MemoryStore(), every="1ms")} if "faults" in run else {}
    found = p.run(runner, parallelism=parallelism, **options).table("out")
    names = columns or [name for name in table.schema.names if name != "id"]
    assert found.schema.names == ["id", *names]
    may_be = {key: last_ones(rows, by) for key, rows in by_id(table).items()}
    for key, (row,) in by_id(found).items():
        assert {name: plain(value) for name, value in row.items()} in [
            {name: plain(one[name]) for name in ["id", *names]} for one in may_be.pop(key)
        ]
    assert not may_be


@pytest.mark.parametrize("columns", [[], NUMBERS], ids=["all", "numbers"])
@pytest.mark.parametrize("by", [None, "version"])
def test_ties_go_to_the_row_that_arrives_last_where_one_split_is_read(
    by: str | None, columns: list[str], request: pytest.FixtureRequest
) -> None:
    if columns:
        request.getfixturevalue("folded")
    table = feed(seed=9)
    rows = flow.Pipeline().source(op.from_arrow(table, batch_rows=70)).key_by("id")
    found = rows.agg(op.latest(*columns, by=by), emit="final").collect(parallelism=2)
    assert {row["id"]: row["n"] for row in found.to_pylist()} == {
        key: last_ones(changes, by)[-1]["n"] for key, changes in by_id(table).items()
    }


@pytest.mark.parametrize("columns", [[], NUMBERS], ids=["all", "numbers"])
def test_the_latest_rows_of_windows_go_by_event_time(columns: list[str], request: pytest.FixtureRequest) -> None:
    if columns:
        request.getfixturevalue("folded")
    table = feed(seed=12)
    timed = flow.Pipeline().source(op.from_arrow(table, batch_rows=70)).with_watermark("at", delay="30s")
    windows = timed.key_by("id").window(op.tumbling("7s")).agg(op.latest(*columns)).collect(parallelism=2)
    last: dict[Any, Any] = {}
    for row in table.to_pylist():  # in order of time already: of rows with one time the one that arrives last
        last[row["id"], row["at"].second // 7] = row["n"]
    assert {(row["id"], row["at"].second // 7): row["n"] for row in windows.to_pylist()} == last


def test_each_update_of_a_change_feed_is_a_row_of_it() -> None:
    table = feed(seed=7, rows=400)
    rows = flow.Pipeline().source(op.from_arrow(table, batch_rows=1)).key_by("id")
    columns = [col(name).last().alias(name) for name in table.schema.names if name != "id"]
    found = rows.agg(*columns, emit="updates").collect()
    assert [repr(row) for row in found.to_pylist()] == [repr(row) for row in table.to_pylist()]


def test_latest_combines_with_other_aggregates_and_takes_expressions() -> None:
    table = pa.table({"k": [1, 1], "x": [5, None], "y": ["a", "b"], "t": [2, 1]})
    rows = flow.Pipeline().source(op.from_arrow(table)).key_by("k")
    latest = op.latest((col("x") * 2).alias("double"), "y", by=-col("t"))
    assert rows.agg(latest, op.count(), n=col("x").count()).collect().to_pylist() == [
        {"k": 1, "double": None, "y": "b", "count": 2, "n": 1}
    ]


def test_unsigned_numbers_above_int64_are_later_than_those_below() -> None:
    by = pa.array([1, 2**63, 2**64 - 1, 2**63 - 1], pa.uint64())
    table = pa.table({"k": [1] * 4, "by": by, "x": ["a", "b", "c", "d"]})
    rows = flow.Pipeline().source(op.from_arrow(table, batch_rows=1)).key_by("k")
    found = rows.agg(op.latest("x", by="by"), first=col("x").first("by"), emit="final").collect()
    assert found.to_pylist() == [{"k": 1, "x": "c", "first": "a"}]


@pytest.mark.parametrize("way", [lambda k, x: k.agg(newest=x), lambda k, x: k.agg({"newest": x})])
def test_latest_under_one_name_says_how_to_rename_a_column(way: Any) -> None:
    keyed = flow.Pipeline().source(op.from_arrow(pa.table({"k": [1], "x": [5]}))).key_by("k")
    with pytest.raises(GraphError, match=r"cannot share the name 'newest'; rename one column by an expression"):
        way(keyed, op.latest("x"))


# --- the state


@part_of_the_examples(12)
@given(ROWS, ROWS, ROWS)
def test_a_restore_and_a_merge_change_nothing(before: Rows, after: Rows, sent: Rows) -> None:
    aggregations = all_choices(ignore_nulls=False)
    restored = Records(aggregations, SCHEMA, "test")
    if before:
        restore_records(restored, records_table(folded(aggregations, before), KEYS))
    restored.fold(batch_of(after), slots_of(after), KEYS)
    assert repr(columns_of(restored)) == repr(columns_of(folded(aggregations, before, after)))
    words = [a for a in aggregations if a.argument is not None and a.argument.name in "ifbt"]
    together, sender = folded(words, before), folded(words, sent)
    touched = sender.touched.copy()
    together.merge(sender.partials(touched), touched, KEYS)
    assert repr(columns_of(together)) == repr(columns_of(folded(words, before, sent)))


def test_columns_that_choose_alike_share_one_position() -> None:
    together = Records([col(name).last("t").alias(name) for name in "ifb"], SCHEMA, "test")
    assert len(together._layout.steps) == 1
    assert together._layout.width == 1 + 2 + 3  # flags, order and state, values
    apart = Records([col(name).last("t", ignore_nulls=True).alias(name) for name in "ifb"], SCHEMA, "test")
    assert len(apart._layout.steps) == 3


@pytest.mark.parametrize("batch_rows", [1, 3])
def test_a_row_of_two_hundred_columns_is_kept_whole(batch_rows: int) -> None:
    names = [f"c{n}" for n in range(200)]
    values = {name: [1, n, None if n % 3 else n] for n, name in enumerate(names)}
    rows = flow.Pipeline().source(op.from_arrow(pa.table({"k": [1, 1, 1], **values}), batch_rows=batch_rows))
    (found,) = rows.key_by("k").agg(op.latest(), emit="final").collect().to_pylist()
    assert found == {"k": 1, **{name: values[name][2] for name in names}}


def run_with_checkpoints(folder: Path, *, ignore_nulls: bool) -> None:
    with flow.Pipeline("feed") as p:
        rows = p.source(op.from_arrow(feed(seed=1, rows=10)), name="feed").key_by("id")
        rows.agg(col("n").last(ignore_nulls=ignore_nulls), name="state").sink(op.collect(), name="out")
    p.run(checkpoint=flow.Checkpointing(folder / "ckpt"))


def test_a_checkpoint_with_the_other_setting_is_refused_as_another_aggregate(tmp_path: Path) -> None:
    run_with_checkpoints(tmp_path, ignore_nulls=False)
    with pytest.raises(CheckpointMismatch, match=r"ignore_nulls=False.*now .*ignore_nulls=True") as refused:
        run_with_checkpoints(tmp_path, ignore_nulls=True)
    assert "always skipped" not in str(refused.value)


# --- words that mean nothing


def test_what_latest_cannot_do_is_refused_while_the_graph_is_built() -> None:
    lists = pa.table({"k": [1], "x": [2], "l": [[1]]})
    keyed = flow.Pipeline().source(op.from_arrow(lists)).key_by("k")
    with pytest.raises(SchemaMismatch, match=r"latest: 'l' of k: int64, .* cannot be kept.*name the columns"):
        keyed.agg(op.latest())
    with pytest.raises(SchemaMismatch, match=r"agg 'l': last takes all but nested types.*col\('l'\) is list"):
        keyed.agg(op.latest("l"))
    assert keyed.agg(op.latest("x")).schema.names == ["k", "x"]
    with pytest.raises(GraphError, match="cannot share the name 'all'; rename one column by an expression"):
        keyed.agg(all=op.latest("x"))
    with pytest.raises(GraphError, match="duplicate column 'x'"):
        keyed.agg(op.latest("x"), x=col("x").sum())
    with pytest.raises(GraphError, match="latest: expected a column name or an expression, got 3"):
        keyed.agg(op.latest(3))  # type: ignore[arg-type]
    with pytest.raises(GraphError, match=r"latest\(by=\): expected a column"):
        keyed.agg(op.latest("x", by=3))  # type: ignore[arg-type]
    alone = flow.Pipeline().source(op.from_arrow(lists.select(["k"]))).key_by("k")
    with pytest.raises(GraphError, match="no columns but its keys, k"):
        alone.agg(op.latest())
    with pytest.raises(ValueError, match="must be True or False"):
        col("x").last(ignore_nulls=1)  # type: ignore[arg-type]


def test_only_columns_that_are_named_are_read() -> None:
    def columns(*names: str) -> list[str]:
        p = flow.Pipeline()
        p.source(op.from_arrow(feed(seed=1, rows=5)), name="feed").key_by("id").agg(op.latest(*names)).sink(
            op.collect(), name="out"
        )
        return sources(p.graph)

    assert columns("n") == ["id", "n"]
    assert columns() == FEED.names


def sources(graph: Graph) -> list[str]:
    from dataflow.planning.prune_columns import prune_columns

    return list(prune_columns(graph).nodes[0].schema.names)
