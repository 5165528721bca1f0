"""The columns that a checkpoint has of aggregates: their names, their owners, and null where there is no value."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import operators as op
from dataflow.contracts.operator import Snapshot
from dataflow.errors import CheckpointDamaged, CheckpointMismatch
from dataflow.expressions import Aggregation, col, count
from dataflow.expressions.aggregates import stored_name
from dataflow.planning.aggregate_specs import Emit
from operators.aggregation.records import Records
from tests.operators.aggregation.test_aggregate import Harness
from tests.operators.operating import records_table, restore_records, rows_of

SCHEMA = pa.schema(
    {
        "k": pa.string(),
        "i": pa.int16(),
        "u": pa.uint64(),
        "f": pa.float32(),
        "b": pa.bool_(),
        "t": pa.timestamp("ms"),
        "d": pa.decimal128(9, 2),
        "s": pa.string(),
        "n": pa.null(),
        "l": pa.duration("s"),
    }
)
NAN = float("nan")
ROWS: list[tuple[Any, ...]] = [
    ("a", 3, 2**63 + 5, -0.0, True, dt.datetime(2020, 1, 2), Decimal("1.50"), "x", None, dt.timedelta(seconds=5)),
    ("a", -7, 7, NAN, False, dt.datetime(1960, 1, 1), Decimal("-2.25"), "", None, dt.timedelta(days=-3)),
    ("a", None, None, 1.5, None, None, None, None, None, None),
    ("b", None, None, None, None, None, None, None, None, None),
    ("c", 2**15 - 1, 0, -NAN, None, dt.datetime(1970, 1, 1), Decimal(0), "zz", None, dt.timedelta(0)),
]
SOME = col("i") > 0
SUMMED = [col(name).sum() for name in "iufbdnl"] + [col(name).mean() for name in "ifbd"]
EXTREMES = [make for name in "iufbtdsnl" for make in (col(name).min(), col(name).max())]
CHOSEN = [col(name).arg_max("f") for name in "isn"] + [col("s").first(by="u"), col("s").last(), col("i").last()]
CHOSEN += [col("s").last(by="b", ignore_nulls=True), col("i").arg_min("t", where=SOME), col("u").arg_min("t")]
OTHERS = [count(), col("s").count(), count(where=SOME), col("i").variance(), col("i").stddev()]
OTHERS += [col("s").count_distinct(), col("s").to_list(by="i"), col("l").quantile(0.1)]
OTHERS += [col("f").quantile(0.5), col("f").quantile(0.9)]
OTHERS += [
    op.aggregate_python("s", zero="", add=lambda a, s: a + (s or ""), merge=lambda a, b: a + b, state=pa.string())
]
ALL = [*SUMMED, *EXTREMES, *CHOSEN, *OTHERS]


TREES = ("quantile", "to_list", "aggregate_python", "count_distinct")
"""Kinds whose words are numbers of values elsewhere, which a restore may number in another way."""


def named(aggregations: Sequence[Aggregation], names: str = "result {}") -> list[Aggregation]:
    return [a.alias(names.format(i)) for i, a in enumerate(aggregations)]


def folded(aggregations: Sequence[Aggregation]) -> Records:
    """Records of the keys a, b and c."""
    records = Records(aggregations, SCHEMA, "test")
    columns = [pa.array(column, type_) for column, type_ in zip(zip(*ROWS, strict=True), SCHEMA.types, strict=True)]
    records.fold(pa.record_batch(columns, schema=SCHEMA), np.array([0, 0, 0, 1, 2], np.int32), 3)
    return records


def restored(aggregations: Sequence[Aggregation], table: pa.Table) -> Records:
    records = Records(aggregations, SCHEMA, "test")
    restore_records(records, table)
    return records


def stored(aggregations: Sequence[Aggregation], **options: Any) -> Snapshot:
    harness = Harness(named(aggregations), SCHEMA, **options)
    harness.process(*ROWS)
    return harness.stored()


def columns_of(snapshot: Snapshot, aggregation: Aggregation) -> pa.Table:
    """The columns of an aggregate, by what is stored alone."""
    return rows_of(snapshot).select(snapshot.rules["state"].owners[aggregation.identity()])


def test_every_word_is_restored_as_it_was() -> None:
    given = [a for a in named(ALL) if a.kind.value not in TREES]
    before = folded(given)
    after = restored(given, records_table(before, 3))
    kept = [word for step in before._layout.steps for word in _kept_words(step)]
    words = [np.delete(each._records.rows[:3], kept, axis=1) for each in (before, after)]
    words[0][:, 0] &= ~1  # all are touched
    assert np.array_equal(*words)


def _kept_words(step: Any) -> list[int]:
    """The words of a step that number text, which a restore numbers anew."""
    columns = [step, *getattr(step, "columns", ())]
    kept = [getattr(column, "kept", None) or getattr(column, "_kept", None) for column in columns]
    return [each._word for each in kept if each is not None]


def test_results_are_restored_as_they_were() -> None:
    before = folded(named(ALL))
    after = restored(named(ALL), records_table(before, 3))
    slots = np.arange(3, dtype=np.int32)
    for aggregation, one, other in zip(ALL, after.read(slots), before.read(slots), strict=True):
        assert repr(one.to_pylist()) == repr(other.to_pylist()), aggregation


def test_a_checkpoint_says_which_columns_belong_to_an_aggregate_and_has_null_where_it_has_no_value() -> None:
    snapshot = stored(ALL)
    assert columns_of(snapshot, col("i").sum()).to_pydict() == {"col('i').sum()/sum": [-4, None, 32767]}
    assert columns_of(snapshot, col("i").min()).to_pydict() == {"col('i').min()/min": [-7, None, 32767]}
    assert columns_of(snapshot, col("d").sum()).column(0).to_pylist() == [Decimal("-0.75"), None, Decimal("0.00")]
    assert columns_of(snapshot, col("u").min()).column(0).to_pylist() == [7, None, 0]
    assert columns_of(snapshot, col("i").mean()).to_pydict() == {
        "col('i').mean()/sum": [-4.0, None, 32767.0],
        "col('i').mean()/count": [2, None, 1],
    }
    assert columns_of(snapshot, count()).to_pydict() == {"count()/count": [3, 1, 1]}
    assert columns_of(snapshot, col("s").count_distinct()).column(0).to_pylist() == [["x", ""], [], ["zz"]]
    owned = {name for names in snapshot.rules["state"].owners.values() for name in names}
    assert [name for name in rows_of(snapshot).column_names if name not in owned] == ["k", "/live"]


@pytest.mark.parametrize("weight", [None, "i"], ids=["added", "signed"])
def test_aggregates_that_share_a_row_or_values_share_columns_that_do_not_say_how_many_there_are(
    weight: str | None,
) -> None:
    one = [col("i").first(by="u"), col("f").quantile(0.5)]
    more = [col("f").quantile(0.1), col("s").first(by="u"), *one]
    alone, together = stored(one, weight=weight), stored(more, weight=weight)
    assert all(columns_of(together, a).column_names == columns_of(alone, a).column_names for a in one)
    owners = together.rules["state"].owners
    first, other = (set(owners[a.identity()]) for a in (col("i").first(by="u"), col("s").first(by="u")))
    assert "first(by=col('u'), ignore_nulls=False)/order" in first & other
    assert len(first - other) == len(other - first) == 1
    assert owners[col("f").quantile(0.5).identity()] == owners[col("f").quantile(0.1).identity()]


def test_equal_aggregates_under_two_names_are_stored_once() -> None:
    twice, once = stored([col("i").sum(), col("i").sum()]), stored([col("i").sum()])
    assert rows_of(twice).column_names == rows_of(once).column_names


def above(limit: int) -> Aggregation:
    """An aggregate whose functions differ from those of another limit by what they close over alone."""
    given = {"merge": lambda a, b: a + b, "state": pa.int64()}
    return op.aggregate_python("i", zero=0, add=lambda n, i: n + ((i or 0) > limit), **given)  # type: ignore[arg-type]


def test_aggregates_of_functions_with_equal_source_are_not_taken_for_one() -> None:
    some, few = above(0), above(100)
    given = [some.alias("some"), few.alias("few"), some.alias("again")]
    assert len({a.identity() for a in given}) == 1
    before = folded(given)
    after = restored(given, records_table(before, 3))
    slots = np.arange(3, dtype=np.int32)
    for records in (before, after):
        assert [column.to_pylist() for column in records.read(slots)] == [[1, 0, 1], [0, 0, 1], [1, 0, 1]]
    assert len(before.owners) == 2


@pytest.mark.parametrize("every", [None, 9])
@pytest.mark.parametrize("emit", [Emit.UPDATES, Emit.CHANGES])
def test_aggregates_in_another_order_and_under_other_names_are_restored(emit: Emit, every: int | None) -> None:
    harness = Harness(named(ALL), SCHEMA, emit=emit, every=every)
    harness.process(*ROWS)
    if every is not None:
        harness.fire()
        harness.process(*ROWS[3:])  # the rows that were shown are stored, too
    turned = [*reversed(named(ALL, "other {}")), col("i").sum().alias("again")]
    later, same = (
        Harness(given, SCHEMA, emit=emit, every=every, restored=harness.stored()) for given in (turned, named(ALL))
    )
    news, olds = ([*each.process(*ROWS[2:]), *each.finish()] for each in (later, same))
    assert olds
    assert _by_identity(news, turned) == _by_identity(olds, named(ALL))


def _by_identity(rows: list[dict[str, Any]], aggregations: Sequence[Aggregation]) -> list[dict[str, str]]:
    others = [name for name in rows[0] if name not in {a.name for a in aggregations}]
    return [
        {**{name: repr(row[name]) for name in others}, **{a.identity(): repr(row[a.name]) for a in aggregations}}
        for row in rows
    ]


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        ({}, []),
        ({"emit": Emit.FINAL}, []),
        ({"every": 9}, ["/touched"]),
        ({"emit": Emit.CHANGES}, ["/shown"]),
        ({"emit": Emit.CHANGES, "every": 9}, ["/touched", "/shown"]),
    ],
)
def test_flags_are_columns_of_the_aggregates_that_go_by_them(options: dict[str, Any], flags: list[str]) -> None:
    table = rows_of(stored([count()], **options))
    assert table.column_names == ["k", *flags, "count()/count", "/live"]
    values = {"/touched": [True] * 3, "/shown": [options.get("every") is None] * 3}
    assert [table[flag].to_pylist() for flag in flags] == [values[flag] for flag in flags]


def test_columns_of_other_aggregates_are_refused_by_name() -> None:
    with pytest.raises(
        CheckpointMismatch, match=r"totals: state: .* has \{\"col\('i'\).sum\(\)/sum\": 'int64'\} where"
    ):
        Harness([col("i").max()], SCHEMA, restored=stored([col("i").sum()]))
    with pytest.raises(CheckpointMismatch, match=r"has \{.*'int64'\} where this pipeline has \{.*'uint64'\}"):
        Harness([col("i").sum()], SCHEMA.set(1, pa.field("i", pa.uint64())), restored=stored([col("i").sum()]))


@pytest.mark.parametrize(
    ("aggregation", "column", "values", "message"),
    [
        (col("i").mean(), 1, [2, 3, 1], "not those of the same keys"),
        (col("i").variance(), 0, [2, None, 1], r"\[1, 0, 0\] of 3 stored values are null"),
        (col("i").arg_max("f"), 0, [False, False, True], "keys without a chosen row have values"),
        (col("i").arg_max("f"), 0, [None, True, True], "1 of 3 stored numbers are null"),
    ],
)
def test_columns_that_contradict_each_other_are_damage(
    aggregation: Aggregation, column: int, values: list[Any], message: str
) -> None:
    table = records_table(folded([aggregation]), 3)
    field = table.schema.field(column)
    damaged = table.set_column(column, field.name, pa.array(values, field.type))
    with pytest.raises(CheckpointDamaged, match=message):
        restored([aggregation], damaged)


def test_a_long_name_is_shortened_and_still_names_one_aggregate() -> None:
    long = [col("i").sum(where=col("i").is_in(range(start, 500))) for start in (0, 1)]
    names = [name for a in long for name in columns_of(stored(long), a).column_names]
    assert len(set(names)) == 2
    assert max(map(len, names)) < 150
    assert stored_name(long[0].identity()) == stored_name(replace(long[0], name="other").identity())
