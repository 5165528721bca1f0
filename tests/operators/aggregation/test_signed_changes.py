"""Aggregates that emit signed changes, and aggregates over them, beside Python: after every batch the net is the answer
over the rows so far.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.contracts.operator import Snapshot
from dataflow.contracts.updates import CHANGE
from dataflow.errors import CheckpointDamaged, CheckpointMismatch
from dataflow.expressions import Aggregation, col, count
from dataflow.planning.aggregate_specs import Emit
from dataflow.state.hashing import key_group_range
from operators.stateful.changes import differ
from tests.operators.aggregation.test_aggregate import ALL, ROWS, Harness, agree, brute_force, last_per_key
from tests.operators.operating import joined, rows_of
from tests.seeds import part_of_the_examples

Row = dict[str, Any]
NAN, INF = float("nan"), float("inf")


def net(changes: Iterable[Row]) -> list[Row]:
    """The rows that are left; NaN is one value."""
    counts: Counter[tuple[Any, ...]] = Counter()
    for row in changes:
        values = tuple((name, "nan" if value != value else value) for name, value in row.items() if name != CHANGE)
        counts[values] += row[CHANGE]
    assert min(counts.values(), default=0) >= 0, f"taken back too often: {counts}"
    return [{name: NAN if value == "nan" else value for name, value in row} for row in counts.elements()]


# --- rows in, changes out


@part_of_the_examples(2)
@given(st.lists(st.lists(ROWS, min_size=1, max_size=8), max_size=6), st.integers(0, 6), st.sampled_from([None, 1000]))
def test_after_every_batch_the_net_is_the_answer_over_the_rows_so_far(
    batches: list[list[Any]], restored_at: int, every: int | None
) -> None:
    harness, changes, rows = Harness(ALL, emit=Emit.CHANGES, every=every), list[Row](), list[Any]()
    for number, batch in enumerate(batches):
        if number == restored_at:
            harness = Harness(ALL, emit=Emit.CHANGES, every=every, restored=harness.stored())
        rows += batch
        changes += harness.process(*batch)
        if every and number % 2:
            changes += harness.fire()
        elif every:
            continue
        agree(last_per_key([{**row, CHANGE: 1} for row in net(changes)]), brute_force(rows))
    changes += harness.finish()
    agree(last_per_key([{**row, CHANGE: 1} for row in net(changes)]), brute_force(rows))


def test_the_old_row_comes_directly_before_the_new_one_and_equal_rows_do_not_come() -> None:
    harness = Harness([col("i").max().alias("top")], emit=Emit.CHANGES)
    assert harness.process(("a", 1, 0), ("b", 5, 0), ("a", 3, 0)) == [
        {"k": "a", "top": 3, "change": 1},
        {"k": "b", "top": 5, "change": 1},
    ]
    assert harness.process(("b", 2, 0), ("c", None, 0), ("a", 4, 0)) == [
        {"k": "c", "top": None, "change": 1},
        {"k": "a", "top": 3, "change": -1},
        {"k": "a", "top": 4, "change": 1},
    ]
    assert harness.process(("c", None, 0)) == []


def test_a_sign_of_zero_is_a_change_of_a_bit_and_nan_is_none() -> None:
    harness = Harness([col("f").last().alias("f")], emit=Emit.CHANGES)
    harness.process(("a", 0, 0.0), ("b", 0, NAN))
    assert [row["change"] for row in harness.process(("a", 0, -0.0), ("b", 0, NAN))] == [-1, 1]


def test_shown_rows_that_wait_for_a_timer_are_taken_back_after_a_restore() -> None:
    harness = Harness([count().alias("n")], emit=Emit.CHANGES, every=1000)
    harness.process(("a", 0, 0), ("b", 0, 0))
    shown = harness.fire()
    harness.process(("c", 0, 0), ("a", 0, 0))
    restored = Harness([count().alias("n")], emit=Emit.CHANGES, every=1000, restored=harness.stored())
    assert restored.process(("a", 0, 0)) == []
    assert sorted((row["k"], row["n"]) for row in net(shown + restored.fire())) == [("a", 3), ("b", 1), ("c", 1)]


def test_shown_rows_of_other_keys_are_a_damaged_checkpoint() -> None:
    harness = Harness([count().alias("n")], emit=Emit.CHANGES, every=1000)
    harness.process(("a", 0, 0), ("b", 0, 0))
    harness.fire()
    harness.process(("a", 0, 0))
    good = harness.stored()
    (table,) = good.tables.values()
    for bad in (pa.concat_tables([table, table]), table.set_column(0, "key 0", [["b"]]), table.select([0])):
        damaged = type(good)(good.values, {"shown": bad}, good.logs, good.rules)
        with pytest.raises((CheckpointDamaged, CheckpointMismatch), match="totals: shown: "):
            Harness([count().alias("n")], emit=Emit.CHANGES, every=1000, restored=damaged)


def test_changes_of_many_keys_come_in_batches_that_keep_both_rows_of_a_key_together() -> None:
    harness, keys = Harness([count().alias("n")], schema=pa.schema({"k": pa.int64()}), emit=Emit.CHANGES), 80_000
    batch = pa.record_batch({"k": np.arange(keys)})
    harness.feed(batch)
    for _ in harness.operator.process(0, batch, harness.out) or ():
        (changes,) = harness.out.batches
        harness.out.batches.clear()
        assert changes["change"].to_pylist() == [-1, 1] * (changes.num_rows // 2)
        keys_of_changes = np.array(changes["k"])
        assert (keys_of_changes[0::2] == keys_of_changes[1::2]).all()


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, None, 3]),
        pa.array(["a", None, "b"]),
        pa.array([b"a", None, b"b"], pa.binary(1)),
        pa.array([Decimal("1.5"), None, Decimal("2.5")]),
        pa.array([[1, None], None, [2]]),
        pa.array([{"x": 1}, None, {"x": 2}]),
        pa.array([True, None, False]),
        pa.nulls(3),
    ],
)
def test_values_of_every_type_are_compared(values: pa.Array) -> None:
    assert differ([values], [values]).tolist() == [False] * 3
    turned = values.take(pa.array([1, 2, 0]))
    expected = [False] * 3 if pa.types.is_null(values.type) else [True] * 3
    assert differ([values], [turned]).tolist() == expected


# --- changes in


SIGNED = pa.schema({"k": pa.string(), "i": pa.int64(), "f": pa.float64(), CHANGE: pa.int8()})
OVER = [
    count().alias("n"),
    col("i").count().alias("some"),
    col("i").sum().alias("sum"),
    col("i").mean().alias("mean"),
    col("f").sum().alias("total"),
    col("f").mean().alias("middle"),
    col("f").variance(ddof=0).alias("spread"),
]


def expected(rows: Counter[tuple[Any, ...]]) -> dict[Any, list[Any]]:
    """The aggregates of ``OVER`` for each key that has rows."""
    found = {}
    for key in {row[0] for row in rows}:
        mine = [row for row in rows.elements() if row[0] == key]
        if not mine:
            continue
        ints = [row[1] for row in mine if row[1] is not None]
        floats = [NAN if row[2] == "nan" else row[2] for row in mine if row[2] is not None]
        finite = all(math.isfinite(f) for f in floats)
        exact = [Fraction(f) for f in floats] if finite else []
        middle = sum(exact) / len(exact) if exact else 0
        found[key] = [
            len(mine),
            len(ints),
            sum(ints) if ints else None,
            sum(ints) / len(ints) if ints else None,
            (float(sum(exact)) if finite else sum(floats)) if floats else None,
            (float(middle) if finite else sum(floats) / len(floats)) if floats else None,
            (float(sum((f - middle) ** 2 for f in exact) / len(exact)) if finite else NAN) if floats else None,
        ]
    return found


CHANGED = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.none() | st.integers(-3, 3),
    st.none() | st.sampled_from([0.0, -0.0, 1e16, -1e16, 0.1, 3e-9, INF, -INF, "nan"]),
)


def signed(emit: Emit = Emit.CHANGES, aggregations: Sequence[Aggregation] = OVER, **options: Any) -> Harness:
    return Harness(aggregations, schema=options.pop("schema", SIGNED), emit=emit, weight=CHANGE, **options)


def feed(harness: Harness, changes: Sequence[tuple[Any, ...]]) -> list[Row]:
    return harness.process(*[(k, i, NAN if f == "nan" else f, weight) for k, i, f, weight in changes])


def close(found: dict[Any, list[Any]], wanted: dict[Any, list[Any]]) -> None:
    """Compare sums and means to 1e-9 of the sum of absolute values, and variances to that of their squares."""
    assert found.keys() == wanted.keys()
    for key, values in wanted.items():
        bounds = [0, 0, 0, 1e-9, 1e9, 1e8, 1e24]
        assert found[key] == [
            None if v is None else pytest.approx(v, nan_ok=True, rel=1e-9, abs=b)
            for v, b in zip(values, bounds, strict=True)
        ]


@part_of_the_examples(2)
@given(st.data())
def test_rows_are_taken_back_in_any_order_also_before_they_are_added(data: st.DataObject) -> None:
    rows = data.draw(st.lists(CHANGED, max_size=12))
    gone = data.draw(st.lists(CHANGED, max_size=6))
    changes = data.draw(st.permutations([*[(*r, 1) for r in rows + gone], *[(*r, -1) for r in gone]]))
    harness, shown, seen = signed(), list[Row](), Counter[tuple[Any, ...]]()
    while changes:
        size = data.draw(st.integers(1, len(changes)))
        batch, changes = changes[:size], changes[size:]
        shown += feed(harness, batch)
        for *row, weight in batch:
            seen[tuple(row)] += weight
        if data.draw(st.booleans()):
            harness = signed(restored=harness.stored())
        net(shown)
    close(last_per_key([{**row, CHANGE: 1} for row in net(shown)]), expected(Counter(rows)))
    assert rows_of(harness.stored()).num_rows <= len({row[0] for row in rows}), "keys without rows are kept"
    final = signed(Emit.FINAL, restored=of_final(harness.stored()))
    close(last_per_key([{**row, CHANGE: 1} for row in final.finish()]), expected(Counter(rows)))


def of_final(stored: Snapshot) -> Snapshot:
    """The state of an aggregate that showed changes as that of one that emits final rows, which shows none."""
    rules = {name: rule for name, rule in stored.rules.items() if name != "shown"}
    return Snapshot(stored.values, {}, {"state": [{"keys": rows_of(stored).drop_columns("/shown")}]}, rules)


KEPT = [
    col("i").min().alias("low"),
    col("i").max().alias("high"),
    col("f").max().alias("top"),
    col("i").count_distinct().alias("kinds"),
    col("f").first(by="i").alias("first"),
    col("i").arg_max("f").alias("at"),
    col("k").max().alias("name"),
    col("i").quantile(0.5).alias("median"),
    col("i").to_list(by="i").alias("all"),
    count(where=col("i") > 0).alias("above"),
    col("i").sum(where=col("i") > 0).alias("sum above"),
    col("i").last(by="i", where=col("f") > 0).alias("last"),
]


def kept(rows: Counter[tuple[Any, ...]]) -> dict[Any, list[Any]]:
    """The aggregates of ``KEPT`` for each key that has rows; ties go by the value."""
    found = {}
    for key in {row[0] for row in rows}:
        mine = [(i, NAN if f == "nan" else f) for k, i, f in rows.elements() if k == key]
        ints = sorted(i for i, _ in mine if i is not None)
        floats = [f for _, f in mine if f is not None]
        dated = [(i, f) for i, f in mine if i is not None] or mine
        positive = [i for i, f in mine if f is not None and f > 0 and i is not None]
        by_float = max(mine, key=lambda row: (row[1] is not None, rank(row[1]), rank(row[0])))
        found[key] = [
            min(ints, default=None),
            max(ints, default=None),
            max(floats, key=rank, default=None),
            len(set(ints)),
            min(dated, key=lambda row: (rank(row[0]), rank(row[1])))[1],
            by_float[0] if floats else None,
            key,
            float(np.quantile(ints, 0.5)) if ints else None,
            [*ints, *[None for i, _ in mine if i is None]],
            sum(i > 0 for i in ints),
            sum(i for i in ints if i > 0) or None,
            max(positive, default=None),
        ]
    return found


def rank(value: Any) -> tuple[int, float]:
    """The order of numbers: NaN is the greatest, null after it."""
    if value is None:
        return 2, 0
    return (1, 0) if value != value else (0, value)


@part_of_the_examples(2)
@given(st.data())
def test_aggregates_that_show_a_value_show_the_next_one_when_it_is_taken_back(data: st.DataObject) -> None:
    rows = data.draw(st.lists(CHANGED, max_size=10))
    gone = data.draw(st.lists(CHANGED, max_size=6))
    changes = data.draw(st.permutations([*[(*r, 1) for r in rows + gone], *[(*r, -1) for r in gone]]))
    harness, shown = signed(aggregations=KEPT), list[Row]()
    while changes:
        size = data.draw(st.integers(1, len(changes)))
        batch, changes = changes[:size], changes[size:]
        shown += feed(harness, batch)
        if data.draw(st.booleans()):
            harness = signed(aggregations=KEPT, restored=harness.stored())
    assert rows_of(harness.stored()).num_rows <= len({row[0] for row in rows}), "keys without rows are kept"
    left = [{**row, "all": eval(row["all"])} for row in net([{**row, "all": repr(row["all"])} for row in shown])]
    final = signed(Emit.FINAL, KEPT, restored=of_final(harness.stored())).finish()
    for found in (left, final):
        values, wanted = last_per_key([{**row, CHANGE: 1} for row in found]), kept(Counter(rows))
        assert values.keys() == wanted.keys()
        for key in wanted:
            assert same(values[key], wanted[key]), (values[key], wanted[key])


def same(left: list[Any], right: list[Any]) -> bool:
    """Whether values are equal; NaN is one value, and zero has no sign."""
    return all(a == b or (a != a and b != b) for a, b in zip(left, right, strict=True))


def test_a_group_without_rows_vanishes_and_one_that_comes_back_starts_anew() -> None:
    harness = signed()
    feed(harness, [("a", 1, 0.1, 1), ("a", 2, 0.2, 1)])
    gone = feed(harness, [("a", 1, 0.1, -1), ("a", 2, 0.2, -1)])
    assert [(row["n"], row["change"]) for row in gone] == [(2, -1)]
    assert rows_of(harness.stored()).num_rows == 0
    (back,) = feed(harness, [("a", 7, 0.5, 1)])
    assert (back["n"], back["sum"], back["total"], back["change"]) == (1, 7, 0.5, 1)


def test_a_group_whose_rows_are_still_to_come_is_kept_and_not_shown() -> None:
    harness = signed()
    assert feed(harness, [("a", 1, None, 1), ("a", 5, None, -1)]) == []
    (shown,) = feed(harness, [("a", 5, None, 1)])
    assert (shown["n"], shown["sum"]) == (1, 1)


def test_a_sum_may_exceed_its_type_for_a_while_and_then_names_its_key() -> None:
    most = 2**63 - 1
    harness = signed(aggregations=[col("i").sum().alias("s")])
    assert feed(harness, [("a", most, None, 1), ("a", 1, None, 1), ("a", 1, None, -1)])[0]["s"] == most
    with pytest.raises(OverflowError, match=r"totals: the sum 's' of key \{'k': 'a'\} does not fit into 64 bits"):
        feed(harness, [("a", 1, None, 1)])


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.uint64(), [2**64 - 6, 0, 5]),
        (pa.int32(), [-(2**31), 2**31 - 1, 5]),
        (pa.bool_(), [True, False, True]),
        (pa.duration("us"), [-5, 7, 9]),
        (pa.decimal128(20, 2), [Decimal("-123456789012345678.91"), Decimal("0.01"), Decimal("7.00")]),
        (pa.float32(), [0.5, -1.25, 3.0]),
    ],
)
def test_sums_of_every_type_take_rows_back(type_: pa.DataType, values: list[Any]) -> None:
    schema = pa.schema({"k": pa.string(), "x": type_, CHANGE: pa.int8()})
    plain = pa.schema({"k": pa.string(), "x": type_})
    harness = signed(aggregations=[col("x").sum().alias("s")], schema=schema)
    harness.process(*[("a", value, 1) for value in [*values, None]])
    shown = harness.process(("a", values[0], -1), ("a", None, -1))
    wanted = Harness([col("x").sum().alias("s")], schema=plain, emit=Emit.FINAL)
    wanted.process(*[("a", value) for value in values[1:]])
    assert [row["s"] for row in shown if row["change"] == 1] == [row["s"] for row in wanted.finish()]


def test_large_numbers_that_are_taken_back_leave_small_ones_exact() -> None:
    harness = signed()
    numbers = [1e9, 0.1, -3e8, 1 / 3]
    feed(harness, [("a", 0, number, 1) for number in [*numbers, 2.0, 2.5]])
    new = feed(harness, [("a", 0, number, -1) for number in numbers])[-1]
    assert (new["total"], new["middle"]) == (4.5, 2.25)
    assert new["spread"] == pytest.approx(0.0625, rel=1e-9)


def test_keys_go_with_their_groups_when_the_state_is_split() -> None:
    one, other = signed(), signed()
    for harness, first in ((one, 0), (other, 40)):
        feed(harness, [(f"key {i}", i, None, 1) for i in range(first, first + 40)])
    both = joined(one.stored(), other.stored())
    ranges = [key_group_range(subtask, 3, 128) for subtask in range(3)]
    parts = [signed(Emit.FINAL, restored=of_final(both), groups=groups) for groups in ranges]
    rows = [row for part in parts for row in part.finish()]
    assert sorted(row["sum"] for row in rows) == list(range(80))
