"""Which of Spark's types may stand for a declared one, and how rows come from there. No Spark is needed."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dataflow.runners.spark.accepted_types import cast_batch, differences, fits
from dataflow.runners.spark.native_readers import gather_batches


@pytest.mark.parametrize(
    ("found", "declared"),
    [
        (pa.int64(), pa.uint32()),
        (pa.decimal128(20, 0), pa.uint64()),
        (pa.float32(), pa.float64()),
        (pa.decimal128(10, 2), pa.decimal128(12, 3)),
        (pa.string(), pa.dictionary(pa.int8(), pa.large_string())),
        (pa.binary(), pa.binary(4)),
        (pa.date32(), pa.date64()),
        (pa.duration("us"), pa.duration("ms")),
        (pa.timestamp("us", "UTC"), pa.timestamp("s", "Asia/Tokyo")),
        (pa.list_(pa.struct({"a": pa.int64()})), pa.large_list(pa.struct({"a": pa.int32()}))),
        (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int32())),
    ],
)
def test_a_type_that_has_room_for_every_value_may_stand_for_the_declared_one(
    found: pa.DataType, declared: pa.DataType
) -> None:
    assert fits(found, declared)
    nothing = pa.record_batch({"x": pa.nulls(2, found)})
    assert cast_batch(nothing, pa.schema({"x": declared}), "s").schema == pa.schema({"x": declared})


@pytest.mark.parametrize(
    ("found", "declared"),
    [
        (pa.float64(), pa.int64()),
        (pa.float64(), pa.float32()),
        (pa.string(), pa.int64()),
        (pa.int64(), pa.bool_()),
        (pa.decimal128(12, 3), pa.decimal128(12, 2)),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.struct({"a": pa.int64()}), pa.struct({"b": pa.int64()})),
        (pa.int64(), pa.list_(pa.int64())),
    ],
)
def test_a_type_that_would_change_a_value_may_not(found: pa.DataType, declared: pa.DataType) -> None:
    assert not fits(found, declared)


def test_a_column_that_is_there_twice_is_no_column() -> None:
    twice = pa.schema([("x", pa.int64()), ("x", pa.int64())])
    assert differences(twice, pa.schema({"x": pa.int64()})) == ["column 'x' is there more than once"]


def test_small_batches_are_put_together_in_order_and_empty_ones_left_out() -> None:
    batches = [pa.record_batch({"x": pa.array(range(n * 10_000, (n + 1) * 10_000))}) for n in range(30)]
    found = list(gather_batches([*batches[:5], batches[0].slice(0, 0), *batches[5:]]))
    assert [batch.num_rows for batch in found] == [140_000, 140_000, 20_000]
    assert pa.Table.from_batches(found)["x"].to_pylist() == list(range(300_000))
