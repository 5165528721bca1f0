"""Records of several subtasks become one: folding in parts and merging equals folding all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.expressions import Aggregation, col, count
from operators.aggregation.records import Records, SumOverflow, partial_type

NAN = float("nan")
SCHEMA = pa.schema({"i": pa.int64(), "u": pa.uint64(), "f": pa.float64(), "t": pa.timestamp("us")})
ALL = [
    count(),
    col("i").count().alias("values"),
    col("i").sum(),
    col("u").sum(),
    col("f").sum(),
    col("f").mean(),
    *(extreme for name in SCHEMA.names for extreme in (col(name).min(), col(name).max())),
]
KEYS = 5
Rows = list[tuple[Any, ...]]

ROWS = st.lists(
    st.tuples(
        st.integers(0, KEYS - 1),
        st.none() | st.integers(-(2**50), 2**50),
        st.none() | st.integers(0, 2**55),
        st.none() | st.sampled_from([NAN, -0.0, float("inf")]) | st.floats(-1e6, 1e6),
        st.none() | st.integers(-(2**40), 2**40),
    ),
    max_size=25,
)


def records(aggregations: list[Aggregation] = ALL, schema: pa.Schema = SCHEMA) -> Records:
    return Records(aggregations, schema, "test")


def slots_of(rows: Rows) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.array([row[0] for row in rows], np.int32)


def batch_of(rows: Rows) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True))[1:] if rows else [()] * len(SCHEMA)
    return pa.record_batch(
        [pa.array(column, type_) for column, type_ in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA
    )


def folded(rows: Rows) -> Records:
    made = records()
    made.fold(batch_of(rows), slots_of(rows), KEYS)
    return made


def columns_of(found: Records) -> list[list[Any]]:
    return [column.to_pylist() for column in found.read(np.arange(KEYS, dtype=np.int32))]


def agree(found: list[list[Any]], expected: list[list[Any]]) -> None:
    assert found == [
        [
            v if v is None or not isinstance(v, float) else pytest.approx(v, rel=1e-9, abs=1e-9, nan_ok=True)
            for v in column
        ]
        for column in expected
    ]


@given(st.lists(ROWS, min_size=1, max_size=4), ROWS)
def test_folding_in_parts_and_merging_equals_folding_all(parts: list[Rows], own: Rows) -> None:
    together = folded(own)
    for part in parts:
        sender = folded(part)
        touched = sender.touched.copy()
        together.merge(sender.partials(touched), touched, KEYS)
    agree(columns_of(together), columns_of(folded(own + [row for part in parts for row in part])))


@given(ROWS, ROWS)
def test_a_merge_touches_the_slots_that_a_fold_would(own: Rows, sent: Rows) -> None:
    together, sender = folded(own), folded(sent)
    touched = sender.touched.copy()
    together.merge(sender.partials(touched), touched, KEYS)
    assert together.touched.tolist() == list(dict.fromkeys(row[0] for row in own + sent))


def test_a_slice_of_partials_is_merged_as_it_stands() -> None:
    sender = folded([(0, 1, 1, 1.0, 1), (1, 20, 20, 20.0, 20), (2, 300, 300, 300.0, 300)])
    partials = sender.partials(np.array([0, 1, 2], np.int32)).slice(1, 1)
    together = records()
    together.merge(partials, np.array([4], np.int32), KEYS)
    assert together.read(np.array([4], np.int32))[2].to_pylist() == [20]
    assert together.touched.tolist() == [4]


def test_partials_at_any_byte_are_merged() -> None:
    partials = folded([(0, 7, 1, 1.0, 1)]).partials(np.array([0], np.int32))
    moved = pa.py_buffer(b"x" + partials.buffers()[1].to_pybytes()).slice(1)
    together = records()
    together.merge(pa.Array.from_buffers(partials.type, 1, [None, moved]), np.array([0], np.int32), KEYS)
    assert together.read(np.array([0], np.int32))[2].to_pylist() == [7]


def test_partials_do_not_see_later_rows_and_have_the_announced_type() -> None:
    sender = folded([(0, 1, 1, 1.0, 1)])
    partials = sender.partials(np.array([0], np.int32))
    before = partials.to_pylist()
    sender.fold(batch_of([(0, 5, 5, 5.0, 5)]), np.array([0], np.int32), KEYS)
    assert partials.to_pylist() == before
    assert partials.type == partial_type(ALL, SCHEMA)


@pytest.mark.parametrize(("type_", "held", "more"), [(pa.int64(), -(2**63), -1), (pa.uint64(), 2**64 - 1, 1)])
def test_merged_sums_of_integers_never_wrap(type_: pa.DataType, held: int, more: int) -> None:
    schema, zero = pa.schema({"v": type_}), np.zeros(1, np.int32)
    own, sender = records([count(), col("v").sum()], schema), records([count(), col("v").sum()], schema)
    own.fold(pa.record_batch({"v": pa.array([held], type_)}), zero, 1)
    sender.fold(pa.record_batch({"v": pa.array([more], type_)}), zero, 1)
    with pytest.raises(SumOverflow, match="'v_sum'") as caught:
        own.merge(
            pa.concat_arrays([records([count(), col("v").sum()], schema).partials(zero), sender.partials(zero)]),
            np.zeros(2, np.int32),
            1,
        )
    assert caught.value.row == 1


def test_cleared_records_are_those_of_keys_without_rows() -> None:
    used = folded([(3, 1, 1, 1.0, 1), (1, 2, None, NAN, 2)])
    used.clear()
    assert len(used.touched) == 0
    assert columns_of(used) == columns_of(records())
    rows = [(1, 4, 4, 4.0, 4)]
    used.fold(batch_of(rows), slots_of(rows), KEYS)
    assert columns_of(used) == columns_of(folded(rows))


def test_merging_makes_room_for_the_slots_it_gets() -> None:
    partials = folded([(0, 9, 1, 1.0, 1)]).partials(np.array([0], np.int32))
    together = records()
    together.merge(partials, np.array([5000], np.int32), 5001)
    assert together.read(np.array([5000], np.int32))[2].to_pylist() == [9]
