"""The aggregates that keep more than a word: against DuckDB, through restores and merges, at the edges of types."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.contracts.operator import Snapshot
from dataflow.errors import SchemaMismatch
from dataflow.expressions import Aggregation, col, count
from dataflow.planning.aggregate_specs import Emit
from operators.aggregation.aggregate import AggregateOperator
from operators.aggregation.records import Records, SumOverflow
from tests.operators.operating import Emitted, context_of, drained, made, records_table, restore_records, stored
from tests.seeds import part_of_the_examples

NAN = float("nan")
MONEY = pa.decimal128(9, 2)
SCHEMA = pa.schema(
    {"i": pa.int64(), "f": pa.float64(), "s": pa.string(), "d": MONEY, "b": pa.bool_(), "t": pa.timestamp("us")}
)
KEYS = 4
SOME = col("s") > "a"
WORDS = [
    *(col("f").variance(ddof).alias(f"var{ddof}") for ddof in (0, 1, 3)),
    col("i").stddev(),
    col("b").sum(),
    col("b").mean(),
    col("d").sum(),
    *(col(name).first(by="t").alias(f"first {name}") for name in "ifbt"),
    *(col(name).last(by="f").alias(f"last {name}") for name in "ifb"),
    *(col("i").arg_min(name).alias(f"at least {name}") for name in "ifbt"),
    *(col("i").arg_max(name).alias(f"at greatest {name}") for name in "ifbt"),
    col("t").first(),
    col("t").last(),
    col("i").first("t", ignore_nulls=True).alias("present first"),
    col("i").arg_max("f", ignore_nulls=True).alias("present most"),
    count(),
    count(where=SOME).alias("some rows"),
    *(getattr(col("i"), kind)(where=SOME).alias(f"some {kind}") for kind in ("count", "sum", "min", "max", "mean")),
    col("f").variance(where=SOME).alias("some variance"),
    col("d").sum(where=col("b")).alias("some money"),
    col("i").first("t", where=SOME).alias("some first"),
    col("f").last("f", where=SOME).alias("some last"),
    col("i").arg_max("f", where=SOME, ignore_nulls=True).alias("some most"),
]
BYTES = [
    *(extreme for name in "sd" for extreme in (col(name).min(), col(name).max())),
    *(chosen for name in "sd" for chosen in (col(name).first("t"), col(name).last("i"), col(name).arg_max("f"))),
    col("s").first().alias("arrived first"),
    col("s").last().alias("arrived last"),
    col("s").last(ignore_nulls=True).alias("present last"),
    *(col(name).count_distinct() for name in SCHEMA.names),
    *(col(name).quantile(q).alias(f"{name} at {q}") for name in "fid" for q in (0.0, 0.3, 0.5, 1.0)),
    col("f").quantile(0.5, where=SOME).alias("some median"),
    *(col(name).to_list().alias(f"all {name}") for name in "isdbt"),
    col("s").to_list("f").alias("s by f"),
    col("i").to_list("s", where=SOME).alias("some by s"),
    col("s").min(where=col("i") > 0).alias("some least"),
    col("s").last(where=col("i") > 0).alias("some latest"),
    col("t").count_distinct(where=col("i") > 0).alias("some distinct"),
]
ALL = WORDS + BYTES
Rows = Sequence[tuple[Any, ...]]

MOMENT = dt.datetime(1970, 1, 1)
ROWS = st.lists(
    st.tuples(
        st.integers(0, KEYS - 1),
        st.none() | st.integers(-3, 3) | st.sampled_from([-(2**53), 2**53]),
        st.none() | st.sampled_from([NAN, -NAN, 0.0, -0.0, 1.5]) | st.floats(-1e3, 1e3),
        st.none() | st.sampled_from(["", "a", "ab", "b", "ä", "a much longer text", "a much longer tale"]),
        st.none() | st.integers(-9_999_999_99, 9_999_999_99).map(lambda cents: Decimal(cents) / 100),
        st.none() | st.booleans(),
        st.none() | st.integers(-3, 3).map(lambda seconds: MOMENT + dt.timedelta(seconds=seconds)),
    ),
    max_size=30,
)


def batch_of(rows: Rows, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True))[1:] if rows else [()] * len(schema)
    arrays = [pa.array(column, type_) for column, type_ in zip(columns, schema.types, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def slots_of(rows: Rows) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.array([row[0] for row in rows], np.int32)


def fold(into: Records, rows: Rows, schema: pa.Schema = SCHEMA) -> Records:
    """Folds the rows as the middle of a longer batch, so that every array is a slice."""
    padded = [*rows[:1], *rows, *rows[:2]]
    start = min(1, len(rows))
    into.fold(batch_of(padded, schema).slice(start, len(rows)), slots_of(rows), KEYS)
    return into


def records(aggregations: Sequence[Aggregation] = ALL, schema: pa.Schema = SCHEMA) -> Records:
    return Records(aggregations, schema, "test")


def columns_of(found: Records) -> list[list[Any]]:
    arrays = found.read(np.arange(KEYS, dtype=np.int32))
    for array in arrays:
        array.validate(full=True)
    return [array.to_pylist() for array in arrays]


def same(found: list[list[Any]], expected: list[list[Any]], size: float = 1) -> None:
    """Floats differ by at most 1e-9 of themselves, or of ``size``."""
    assert found == [
        [pytest.approx(v, rel=1e-9, abs=1e-9 * size, nan_ok=True) if isinstance(v, float) else v for v in column]
        for column in expected
    ]


def one_key(aggregation: Aggregation, values: Sequence[Any], type_: pa.DataType, **by: Any) -> Any:
    columns = {"x": pa.array(values, type_), **{name: pa.array(column) for name, column in by.items()}}
    batch = pa.record_batch(columns)
    found = Records([aggregation], batch.schema, "test")
    found.fold(batch, np.zeros(len(values), np.int32), 1)
    return found.read(np.zeros(1, np.int32))[0].to_pylist()[0]


ORDER = "case when isnan({0}) then 1e300 else {0} + 0.0 end"
FILTER = "filter (s > 'a')"
IN_SQL = {
    "var0": "case when count_if(isnan(f)) > 0 then 'nan'::double else var_pop(f) filter (not isnan(f)) end",
    "i_stddev": "stddev_samp(i)",
    "b_sum": "sum(b::int)::bigint",
    "d_sum": "sum(d)",
    "s_min": "min(s)",
    "s_max": "max(s)",
    "d_min": "min(d)",
    "d_max": "max(d)",
    **{f"{name}_count_distinct": f"count(distinct {name})" for name in "isdbt"},
    "f_count_distinct": f"count(distinct {ORDER.format('f')})",
    "s_first": "first(s order by t nulls last, n)",
    "d_last": "last(d order by i nulls first, n)",
    "s_arg_max": f"first(s order by {ORDER.format('f')} desc, n) filter (f is not null)",
    "at least f": f"first(i order by {ORDER.format('f')}, n) filter (f is not null)",
    "last f": f"last(f order by {ORDER.format('f')} nulls first, n)",
    "arrived last": "last(s order by n)",
    "t_first": "first(t order by n)",
    "present last": "last(s order by n) filter (s is not null)",
    "present first": "first(i order by t nulls last, n) filter (i is not null)",
    "present most": f"first(i order by {ORDER.format('f')} desc, n) filter (i is not null and f is not null)",
    "some rows": f"count(*) {FILTER}",
    "some count": f"count(i) {FILTER}",
    "some sum": f"(sum(i) {FILTER})::bigint",
    "some mean": f"avg(i) {FILTER}",
    "some max": f"max(i) {FILTER}",
    "some money": "sum(d) filter (b)",
    "some first": f"first(i order by t nulls last, n) {FILTER}",
    "some last": f"last(f order by {ORDER.format('f')} nulls first, n) {FILTER}",
    "some most": f"first(i order by {ORDER.format('f')} desc, n) filter (s > 'a' and i is not null and f is not null)",
    **{f"{name} at {q}": f"quantile_cont({name}::double, {q})" for name in "id" for q in (0.0, 0.3, 0.5, 1.0)},
    **{f"f at {q}": f"quantile_cont(f, {q})" for q in (0.0, 1.0)},
    **{f"all {name}": f"list({name} order by n)" for name in "isdbt"},
    "s by f": f"list(s order by {ORDER.format('f')} nulls last, n)",
    "some by s": f"list(i order by s, n) {FILTER}",
    "some least": "min(s) filter (i > 0)",
    "some latest": "last(s order by n) filter (i > 0)",
    "some distinct": "count(distinct t) filter (i > 0)",
}


ZERO_IF_NONE = [name for name in IN_SQL if name.endswith("distinct")] + ["some rows", "some count"]
DUCKDB = duckdb.connect(config={"threads": 1})


@part_of_the_examples(2)
@given(ROWS.filter(len))
def test_they_agree_with_duckdb(rows: Rows) -> None:
    table = pa.Table.from_batches([batch_of(rows)]).append_column("n", pa.array(range(len(rows))))
    table = table.append_column("k", pa.array(slots_of(rows)))
    query = f"select k, {', '.join(IN_SQL.values())} from t group by k"
    expected = {row[0]: row[1:] for row in DUCKDB.register("t", table).sql(query).fetchall()}
    nothing = [0 if name in ZERO_IF_NONE else None for name in IN_SQL]
    found = dict(zip([a.name for a in ALL], columns_of(fold(records(), rows)), strict=True))
    for number, name in enumerate(IN_SQL):
        same([found[name]], [[expected.get(key, nothing)[number] for key in range(KEYS)]])


@part_of_the_examples(4)
@given(ROWS, ROWS, ROWS)
def test_a_restore_changes_nothing(before: Rows, after: Rows, later: Rows) -> None:
    plain = fold(records(), before)
    snapshot = records_table(plain, KEYS) if before else None
    expected = columns_of(plain)
    fold(fold(plain, after), later)
    restored = records()
    if snapshot is not None:
        restore_records(restored, snapshot)
    same(columns_of(restored), expected)
    fold(fold(restored, after), later)
    same(columns_of(restored), columns_of(plain))


@part_of_the_examples(4)
@given(st.lists(ROWS, max_size=3), ROWS)
def test_folding_in_parts_and_merging_equals_folding_all(parts: list[Rows], own: Rows) -> None:
    together = fold(records(WORDS), own)
    assert together.mergeable
    for part in parts:
        sender = fold(records(WORDS), part)
        touched = sender.touched.copy()
        together.merge(sender.partials(touched), touched, KEYS)
    everything = [*own, *(row for part in parts for row in part)]
    size = sum([abs(row[1]) for row in everything if row[1] is not None])  # rounding depends on the order
    same(columns_of(together), columns_of(fold(records(WORDS), everything)), max(1, size))


@pytest.mark.parametrize("aggregation", BYTES, ids=str)
def test_state_outside_of_the_record_does_not_merge(aggregation: Aggregation) -> None:
    assert not records([aggregation]).mergeable


def test_variance_is_stable_far_from_zero() -> None:
    assert one_key(col("x").variance(), [1e9 - 1, 1e9, 1e9 + 1] * 1000, pa.float64()) == pytest.approx(2000 / 2999)
    parts = [Records([col("x").variance(0)], pa.schema({"x": pa.float64()}), "test") for _ in range(2)]
    for part, value in zip(parts, (1e9 - 1, 1e9 + 1), strict=True):
        part.fold(pa.record_batch({"x": [value] * 50}), np.zeros(50, np.int32), 1)
    parts[0].merge(parts[1].partials(np.zeros(1, np.int32)), np.zeros(1, np.int32), 1)
    assert parts[0].read(np.zeros(1, np.int32))[0].to_pylist() == [1.0]


@pytest.mark.parametrize("values", [[NAN, 1.0], [float("inf"), 1.0], [float("-inf")] * 2])
def test_variance_of_what_is_not_finite_is_nan(values: list[float]) -> None:
    assert math.isnan(one_key(col("x").variance(), values, pa.float64()))


def test_variance_needs_more_values_than_ddof() -> None:
    assert one_key(col("x").variance(ddof=2), [1, None, 5], pa.int32()) is None
    assert one_key(col("x").stddev(ddof=1), [1, None, 5], pa.int32()) == pytest.approx(math.sqrt(8))
    assert one_key(col("x").stddev(ddof=0), [Decimal("1.5")], pa.decimal128(5, 1)) == 0.0


def test_ties_go_to_the_row_that_arrived_first_or_last() -> None:
    by = [2, 1, 1, 2]
    assert one_key(col("x").first(by="by"), [1, 2, 3, 4], pa.int8(), by=by) == 2
    assert one_key(col("x").last(by="by"), [1, 2, 3, 4], pa.int8(), by=by) == 4
    assert one_key(col("x").arg_min("by"), [1, None, 3, 4], pa.int8(), by=by) is None
    assert one_key(col("x").arg_min("by", ignore_nulls=True), [1, None, 3, 4], pa.int8(), by=by) == 3
    assert one_key(col("x").arg_max("by"), [1, 2, 3, 4], pa.int8(), by=by) == 1


def test_nan_is_greater_than_every_number_and_zeros_are_one() -> None:
    assert one_key(col("x").arg_max("by"), ["a", "b", "c"], pa.string(), by=[1.0, -NAN, float("inf")]) == "b"
    assert one_key(col("x").arg_min("by"), ["a", "b", "c"], pa.string(), by=[-NAN, 0.0, -0.0]) == "b"
    assert one_key(col("x").count_distinct(), [NAN, -NAN, 0.0, -0.0, None], pa.float64()) == 2


TYPES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [-128, 127]),
    (pa.uint64(), [1, 2**64 - 1]),
    (pa.float32(), [-1.5, 2.5]),
    (pa.bool_(), [False, True]),
    (pa.date32(), [dt.date(1969, 5, 17), dt.date(2000, 1, 1)]),
    (pa.time64("us"), [dt.time(1), dt.time(2)]),
    (pa.duration("ms"), [dt.timedelta(-1), dt.timedelta(1)]),
    (pa.timestamp("ns", "UTC"), [dt.datetime(1900, 1, 1, tzinfo=dt.UTC), dt.datetime(2200, 1, 1, tzinfo=dt.UTC)]),
    (pa.string(), ["", "ä"]),
    (pa.large_string(), ["a", "b" * 300]),
    (pa.binary(), [b"\x00", b"\xff"]),
    (pa.binary(3), [b"\x00ab", b"\xffab"]),
    (pa.decimal128(38, 0), [Decimal(-(10**37)), Decimal(10**37)]),
    (pa.decimal32(5, 1), [Decimal("-1.5"), Decimal("2.5")]),
    (pa.decimal256(60, 2), [Decimal(-(10**50)), Decimal(10**50)]),
]


@pytest.mark.parametrize(("type_", "values"), TYPES, ids=lambda value: str(value)[:20])
def test_every_type_keeps_its_values_and_its_type(type_: pa.DataType, values: list[Any]) -> None:
    least, greatest = values
    schema = pa.schema({"x": type_, "n": pa.uint64()})
    chosen = [col("x").min(), col("x").max(), col("x").first(), col("x").last("n")]
    chosen += [col("x").arg_min("n"), col("x").arg_min("n", ignore_nulls=True).alias("present")]
    chosen += [col("x").count_distinct(), col("x").to_list(), col("n").to_list("x").alias("by x")]
    found = fold(records(chosen, schema), [(1, greatest, 1), (1, None, 0), (1, least, 9)], schema)
    restored = records(chosen, schema)
    restore_records(restored, records_table(found, KEYS))
    values = [least, greatest, greatest, least, None, greatest, 2, [greatest, None, least], [9, 1, 0]]
    assert [column[1] for column in columns_of(restored)] == values
    assert restored.types == [*[type_] * 6, pa.int64(), pa.list_(type_), pa.list_(pa.uint64())]


def test_a_decimal_sum_has_38_digits_and_never_wraps() -> None:
    most = Decimal(10**36 - 1) / 100
    found = records([col("d").sum()], pa.schema({"d": pa.decimal128(38, 2)}))
    assert found.types == [pa.decimal128(38, 2)]
    fold(found, [(0, most)] * 99 + [(1, -most)] * 99, pa.schema({"d": pa.decimal128(38, 2)}))
    assert columns_of(found)[0][:2] == [99 * most, -99 * most]
    with pytest.raises(SumOverflow, match=r"'d_sum' does not fit into decimal128\(38, 2\)"):
        fold(found, [(0, most), (0, most), (1, most)], pa.schema({"d": pa.decimal128(38, 2)}))


@pytest.mark.parametrize("sign", [1, -1])
def test_merged_decimal_sums_are_checked(sign: int) -> None:
    schema = pa.schema({"d": pa.decimal128(38, 0)})
    one = fold(records([col("d").sum()], schema), [(0, Decimal(sign * (10**38 - 1)))], schema)
    other = fold(records([col("d").sum()], schema), [(0, Decimal(sign))], schema)
    with pytest.raises(SumOverflow, match="decimal128"):
        one.merge(other.partials(np.zeros(1, np.int32)), np.zeros(1, np.int32), 1)


@pytest.mark.parametrize("type_", [pa.decimal32(6, 0), pa.decimal128(20, 0), pa.decimal256(50, 0)], ids=str)
def test_decimals_are_compared_as_numbers_and_not_as_bytes(type_: pa.DataType) -> None:
    values = [Decimal(number) for number in (127, 128, 255, 256, 0, -1, -128, -129, -257)]
    assert one_key(col("x").max(), values, type_) == 256
    assert one_key(col("x").min(), values, type_) == -257
    assert one_key(col("x").max(), values[:2], type_) == 128
    assert one_key(col("x").min(), values[5:8], type_) == -129


def test_durations_are_summed_and_never_wrap() -> None:
    second = dt.timedelta(seconds=1)
    assert one_key(col("x").sum(), [second, None, second], pa.duration("us")) == 2 * second
    schema = pa.schema({"x": pa.duration("s")})
    batch = pa.record_batch([pa.array([2**62, 2**62], pa.duration("s"))], schema=schema)
    with pytest.raises(SumOverflow, match="x_sum"):
        records([col("x").sum()], schema).fold(batch, np.zeros(2, np.int32), 1)


def test_values_that_are_replaced_are_forgotten_but_for_a_snapshot() -> None:
    schema = pa.schema({"s": pa.string(), "n": pa.int64()})
    found = fold(records([col("s").last(), col("s").max()], schema), [(3, "stays", 0), (0, "was", 0)], schema)
    slots = np.arange(KEYS, dtype=np.int32)
    store, rows = found.freeze(), found._records.rows[slots]
    for turn in range(400):
        fold(found, [(key, f"z {turn:05} {'x' * 50}", turn) for key in (0, 1, 2)] * 20, schema)
    last = f"z 00399 {'x' * 50}"
    assert columns_of(found) == [[last, last, last, "stays"]] * 2
    assert store.columns(rows)[found.stored.get_field_index("s_last.value")].to_pylist() == ["was", None, None, "stays"]
    chosen, extreme = found._layout.steps
    assert max(chosen.columns[0].kept._state[0], extreme._kept._state[0]) < 400 * 3


REFUSED = [
    (col("x").sum(), pa.string(), "sum takes integers"),
    (col("x").sum(), pa.decimal256(50, 1), "sum takes"),
    (col("x").variance(), pa.timestamp("s"), "variance takes"),
    (col("x").max(), pa.list_(pa.int8()), "max takes all but nested types"),
    (col("x").arg_min(col("x")), pa.string(), "arg_min compares numbers"),
]


@pytest.mark.parametrize(("aggregation", "type_", "message"), REFUSED, ids=str)
def test_types_without_such_an_aggregate_are_refused(
    aggregation: Aggregation, type_: pa.DataType, message: str
) -> None:
    with pytest.raises(SchemaMismatch, match=message):
        aggregation.dtype(pa.schema({"x": type_}))


@pytest.mark.parametrize("aggregation", [*ALL, col("x").stddev(ddof=0), col("x").variance().alias("v")], ids=str)
def test_the_text_of_an_aggregate_makes_it_again(aggregation: Aggregation) -> None:
    assert eval(aggregation.fingerprint()).equals(aggregation)


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ValueError, match="ddof"):
        col("x").variance(ddof=-1)
    with pytest.raises(TypeError, match=r"first\(by=\) takes a column"):
        col("x").first(by=3)


def test_columns_are_those_of_the_argument_and_of_the_order() -> None:
    assert col("x").arg_max(col("y") + col("x")).columns() == ("x", "y")


@pytest.mark.parametrize("aggregation", [col("s").last(), col("s").max(), col("d").min()], ids=str)
def test_keys_without_a_value_survive_restores_and_gatherings(aggregation: Aggregation) -> None:
    """What is kept of the others is gathered anew many times; theirs is nothing, and stays nothing."""

    def aggregate(restored: Snapshot | None = None) -> AggregateOperator:
        output = pa.schema({"k": pa.int64(), "m": aggregation.dtype(schema)})
        context = context_of(schema, output, restored=restored)
        return made(AggregateOperator(context, ["k"], [aggregation], Emit.FINAL), context)

    def batch(keys: Sequence[int], values: Sequence[int | None]) -> pa.RecordBatch:
        text = [None if value is None else f"value {value}" for value in values]
        money = [None if value is None else Decimal(value) for value in values]
        return pa.record_batch([keys, text, pa.array(money, MONEY)], schema=schema)

    schema = pa.schema({"k": pa.int64(), "s": pa.string(), "d": MONEY})
    first, out = aggregate(), Emitted()
    first.process(0, batch(range(1_000), [1 if key < 10 else None for key in range(1_000)]), out)
    again = aggregate(stored(first.snapshot()))
    for value in range(400):
        again.process(0, batch(range(10), [value] * 10), out)
    once_more = aggregate(stored(again.snapshot()))
    drained(once_more.finish(out))
    found = dict(out.take())
    assert ([key for key, value in found.items() if value is not None], len(found)) == ([*range(10)], 1_000)
