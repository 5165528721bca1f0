"""Which Arrow types are one Parquet type, compared with what Parquet files store."""

from __future__ import annotations

from functools import reduce
from itertools import permutations, product

import pyarrow as pa
import pyarrow.parquet as pq

from operators.parquet_types import common_type, is_one_type

TYPES = [
    pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()), pa.binary(),
    pa.large_binary(), pa.dictionary(pa.int32(), pa.large_binary()), pa.binary(16), pa.uuid(), pa.binary(3), pa.bool_(),
    pa.int8(), pa.int32(), pa.int64(), pa.dictionary(pa.int32(), pa.int64()), pa.uint32(), pa.uint64(), pa.float16(),
    pa.float32(), pa.float64(), pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"),
    pa.time64("ns"), pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("us", "UTC"),
    pa.timestamp("us", "+00:00"), pa.timestamp("us", "Europe/Berlin"), pa.timestamp("ns"), pa.decimal32(9, 2),
    pa.decimal64(9, 2), pa.decimal128(9, 2), pa.decimal256(9, 2), pa.decimal128(9, 3), pa.decimal256(50, 2),
]  # fmt: skip


def nested(type_: pa.DataType) -> list[pa.DataType]:
    lists = [pa.list_(type_), pa.large_list(pa.field("element", type_, nullable=False)), pa.list_(type_, 2)]
    return [*lists, pa.struct({"a": type_}), pa.struct({"b": type_}), pa.map_(pa.string(), type_)]


def stored(type_: pa.DataType) -> pa.DataType:
    """Return the type that a reader sees which does not know the Arrow type."""
    file = pa.BufferOutputStream()
    nullable = pa.field("element", type_.value_field.type) if pa.types.is_large_list(type_) else None
    pq.write_table(
        pa.table({"x": pa.nulls(0, pa.large_list(nullable) if nullable else type_)}), file, store_schema=False
    )
    return pq.ParquetFile(pa.BufferReader(file.getvalue())).schema_arrow.field("x").type


def test_types_are_one_if_files_store_them_alike() -> None:
    texts_and_numbers = [*nested(pa.large_string()), *nested(pa.int64()), *nested(pa.dictionary(pa.int8(), pa.int64()))]
    every = [(type_, plain_uuid(stored(type_))) for type_ in [*TYPES, *texts_and_numbers]]
    for (one, stored_one), (other, stored_other) in product(every, every):
        assert is_one_type(one, other) == (stored_one == stored_other), (one, other)


def plain_uuid(type_: pa.DataType) -> pa.DataType:
    return pa.binary(16) if type_ == pa.uuid() else type_


def test_durations_are_not_the_numbers_that_files_store_for_them() -> None:
    assert not is_one_type(pa.duration("us"), pa.int64())
    assert not is_one_type(pa.duration("us"), pa.duration("ms"))


def test_a_column_without_values_has_the_type_of_the_others() -> None:
    for type_ in [*TYPES, pa.duration("us")]:
        assert common_type(pa.null(), type_) == common_type(type_, pa.null()) == type_
    assert common_type(pa.list_(pa.null()), pa.list_(pa.int8())) == pa.list_(pa.int8())


def test_the_common_type_does_not_depend_on_the_order() -> None:
    groups = [
        [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()), pa.null()],
        [pa.timestamp("us", zone) for zone in ("UTC", "+00:00", "Europe/Berlin", "America/New_York")],
        [pa.list_(pa.string()), pa.list_(pa.null(), 2), pa.large_list(pa.large_string())],
        [
            pa.struct([pa.field("a", type_, nullable)])
            for type_, nullable in ((pa.uuid(), False), (pa.binary(16), True))
        ],
        [pa.dictionary(pa.int8(), pa.string(), ordered=True), pa.dictionary(pa.int32(), pa.large_string()), pa.null()],
    ]
    for group in groups:
        results = [
            reduce(lambda one, other: None if one is None else common_type(one, other), order)
            for order in permutations(group)
        ]
        assert results[0] is not None
        assert set(results) == {results[0]}
