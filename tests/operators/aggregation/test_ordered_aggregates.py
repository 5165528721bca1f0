"""Quantiles, lists and predicates at their edges: numpy's interpolation, shared memory, forged lists, mistakes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import CheckpointDamaged, GraphError, SchemaMismatch
from dataflow.expressions import Aggregation, col, count
from dataflow.planning.aggregate_specs import Emit
from dataflow.state.hashing import hash_rows, key_group_range, key_groups
from dataflow.state.keyed_state import KeyedState
from operators.aggregation.layout import RecordLayout
from operators.aggregation.records import Records
from operators.steps.lists import ToList
from operators.steps.quantile import Quantiles
from tests.operators.aggregation.test_aggregate import Harness
from tests.operators.operating import joined, records_table, restore_records

NAN, INF = float("nan"), float("inf")
SCHEMA = pa.schema({"x": pa.int64(), "f": pa.float64(), "d": pa.duration("us"), "s": pa.string()})


def folded(aggregation: Aggregation, values: Sequence[Any], type_: pa.DataType) -> Records:
    batch = pa.record_batch({"x": pa.array(values, type_)})
    records = Records([aggregation], batch.schema, "test")
    records.fold(batch, np.zeros(len(values), np.int32), 1)
    return records


def one_key(aggregation: Aggregation, values: Sequence[Any], type_: pa.DataType) -> Any:
    return folded(aggregation, values, type_).read(np.zeros(1, np.int32))[0].to_pylist()[0]


@pytest.mark.parametrize("q", [0, 0.001, 0.25, 1 / 3, 0.5, 0.99, 1])
def test_quantiles_are_those_of_numpy(q: float) -> None:
    rng = np.random.default_rng(7)
    for values in (rng.normal(0, 1e6, 999), rng.integers(-(2**60), 2**60, 1000), rng.integers(0, 3, 50)):
        found = one_key(col("x").quantile(q), values.tolist(), pa.from_numpy_dtype(values.dtype))
        assert found == pytest.approx(np.quantile(values.astype(np.float64), q), rel=1e-12)


@pytest.mark.parametrize(
    ("values", "q", "expected"),
    [
        ([NAN, 1.0, 2.0], 0.5, 2.0),
        ([NAN, 1.0], 0.0, 1.0),
        ([INF, INF, 1.0], 1.0, INF),
        ([INF, INF, INF], 0.3, INF),
        ([1e308, -1e308], 0.5, 0.0),
        ([None, 3.0], 0.9, 3.0),
        ([None, None], 0.5, None),
    ],
)
def test_quantiles_of_odd_numbers(values: list[float | None], q: float, expected: float | None) -> None:
    assert one_key(col("x").quantile(q), values, pa.float64()) == expected


def test_a_quantile_between_a_number_and_nan_is_nan() -> None:
    assert np.isnan(one_key(col("x").quantile(0.75), [1.0, 2.0, NAN], pa.float64()))


def test_quantiles_of_decimals_are_floats_and_those_of_durations_durations() -> None:
    assert one_key(col("x").quantile(0.5), [Decimal("1.5"), Decimal("2.5")], pa.decimal128(38, 1)) == 2.0
    waits = [dt.timedelta(seconds=second) for second in (1, 2, 9)]
    assert one_key(col("x").quantile(0.75), waits, pa.duration("ms")) == dt.timedelta(seconds=5.5)
    longest = [-(2**63), 2**63 - 1]
    found = folded(col("x").quantile(0.5), longest, pa.duration("s")).read(np.zeros(1, np.int32))[0]
    assert abs(found.cast(pa.int64())[0].as_py()) <= 1


def test_quantiles_of_the_same_values_share_them() -> None:
    shared = [col("x").quantile(q).alias(str(q)) for q in (0.5, 0.9)]
    apart = [col("x").quantile(0.5, where=col("f") > 0).alias("some"), col("f").quantile(0.5)]
    layout = RecordLayout([*shared, *apart], SCHEMA, "test")
    assert [len(step.columns) for step in layout.steps if isinstance(step, Quantiles)] == [2, 1, 1]


def test_equal_predicates_and_arguments_are_evaluated_once() -> None:
    asked = [kind(where=col("f") > 0).alias(kind.__name__) for kind in (col("x").sum, col("x").max, col("s").min)]
    layout = RecordLayout([*asked, count(where=col("f") > 0)], SCHEMA, "test")
    assert (len(layout.arguments._predicates), len(layout.arguments._inputs)) == (1, 3)


def test_an_aggregate_without_a_predicate_has_the_fingerprint_it_always_had() -> None:
    assert count().fingerprint() == "count()"
    assert col("x").sum().fingerprint() == "col('x').sum()"
    assert col("s").last("x").fingerprint() == "col('s').last(by=col('x'), ignore_nulls=False)"
    assert col("x").variance(0).alias("v").fingerprint() == "col('x').variance(ddof=0).alias('v')"
    assert col("x").sum(where=col("f") > 0).fingerprint() == "col('x').sum(where=col('f') > 0)"


def test_only_columns_that_are_used_are_read() -> None:
    assert col("x").quantile(0.5, where=col("f") > 0).columns() == ("x", "f")
    assert col("x").to_list("d", where=col("f") > 0).columns() == ("x", "d", "f")


def test_lists_of_nothing_are_null_and_nulls_are_listed() -> None:
    assert one_key(col("x").to_list(), [None, 2, None], pa.int8()) == [None, 2, None]
    assert one_key(col("x").to_list(where=col("x") > 5), [None, 2], pa.int8()) is None


def test_lists_are_in_order_of_event_time_where_the_stream_has_it() -> None:
    at = pa.array([30, 10, 20, 10], pa.timestamp("s"))
    table = pa.table({"k": ["a"] * 4, "x": [3, 1, 2, 0], "at": at})
    rows = flow.Pipeline().source(op.from_arrow(table)).with_watermark("at", delay="1h").key_by("k")
    assert rows.agg(l=col("x").to_list()).collect()["l"].to_pylist() == [[1, 0, 2, 3]]
    windows = rows.window(op.tumbling("20s")).agg(l=col("x").to_list(), m=col("x").quantile(0.5))
    assert windows.collect().select(["l", "m"]).to_pydict() == {"l": [[1, 0], [2, 3]], "m": [0.5, 2.5]}


def test_lists_continue_at_another_parallelism() -> None:
    asked = [col("i").to_list(), col("i").quantile(0.5), count(where=col("i") > 50).alias("some")]
    one, other = Harness(asked), Harness(asked)
    one.process(*((f"key {i % 9}", i, 1.0) for i in range(50)))
    other.process(*((f"more {i % 9}", i, 1.0) for i in range(90)))
    both = joined(one.stored(), other.stored())
    ranges = [key_group_range(subtask, 3, 128) for subtask in range(3)]
    subtasks = [Harness(asked, emit=Emit.FINAL, restored=both, groups=groups) for groups in ranges]
    for subtask, groups in zip(subtasks, ranges, strict=True):
        for key in [f"more {i}" for i in range(9) if group_of(f"more {i}") in groups]:
            subtask.process((key, 7, 1.0))
    found = {row["k"]: list(row.values())[1:] for subtask in subtasks for row in subtask.finish()}
    lists = {f"key {i}": list(range(i, 50, 9)) for i in range(9)}
    lists |= {f"more {i}": [*range(i, 90, 9), 7] for i in range(9)}
    expected = {key: [xs, float(np.median(xs)), sum(x > 50 for x in xs)] for key, xs in lists.items()}
    assert found == expected


def group_of(key: str) -> int:
    return int(key_groups(hash_rows([pa.array([key])]), 128)[0])


@pytest.mark.parametrize(
    ("aggregation", "column", "values", "message"),
    [
        (col("x").to_list(), 1, [[5, 5]], "only 1 distinct"),
        (col("x").to_list(), 0, [[5, -1]], "not numbered"),
        (col("x").to_list(), 0, [[5, None]], "not numbered"),
        (col("x").to_list(), 2, [[1, 2]], "not numbered"),
        (col("x").quantile(0.5), 0, [[5.0, None]], "1 values in the checkpoint are null"),
    ],
)
def test_forged_values_are_refused(aggregation: Aggregation, column: int, values: list[Any], message: str) -> None:
    table = records_table(folded(aggregation, [7, 8], pa.int64()), 1)
    if column == 1:
        table = table.set_column(0, table.schema.field(0), pa.array([[3, 3]], table.schema.field(0).type))
        values = [[5, 5]]
    field = table.schema.field(column)
    table = table.set_column(column, field, pa.array(values, field.type))
    restored = Records([aggregation], pa.schema({"x": pa.int64()}), "test")
    with pytest.raises(CheckpointDamaged, match=message):
        restore_records(restored, table)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: col("x").quantile(1.5), "from 0 to 1, got 1.5"),
        (lambda: col("x").quantile(q=True), "from 0 to 1, got True"),
        (lambda: col("s").quantile(0.5).dtype(SCHEMA), "quantile takes integers, floats, decimals or durations"),
        (lambda: count(where=True), r"count\(where=\) takes an expression"),
        (lambda: count(where=col("x")).dtype(SCHEMA), r"count\(where=\) takes a predicate, but .* is int64"),
    ],
)
def test_mistakes_say_what_is_expected(make: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError, SchemaMismatch), match=message):
        make()


def test_two_aggregates_that_differ_by_their_predicate_need_two_names() -> None:
    rows = flow.Pipeline().source(op.from_arrow(pa.table({"k": [1], "x": [1]}))).key_by("k")
    with pytest.raises(GraphError, match="'count'"):
        rows.agg(op.count(), op.count(where=col("x") > 0))


@pytest.mark.parametrize("aggregation", [col("x").to_list(), col("x").quantile(0.5)], ids=str)
def test_the_values_of_a_deleted_key_are_freed(aggregation: Aggregation) -> None:
    records = Records([aggregation], SCHEMA, "test")
    state = KeyedState(pa.schema({"k": pa.int64()}), records)
    (step,) = records._layout.steps
    values = step._values if isinstance(step, ToList) else step.values  # type: ignore[attr-defined]
    for turn in range(50):
        slots, _ = state.insert([pa.array([turn] * 100)])
        records.fold(pa.RecordBatch.from_pylist([{"x": n} for n in range(100)], SCHEMA), slots)
        readers = state.freeze(turn + 1)
        state.delete(slots)
        del readers
    records.fold(pa.RecordBatch.from_pylist([], SCHEMA), slots[:0])
    assert len(values) == 0
    assert len(values._table.nodes) < 1_000
