"""One directory with Parquet files of several writers, and columns whose types a user declares."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import CheckpointMismatch, MissingColumnWarning, SchemaMismatch, SourceError, UnknownColumn
from operators.parquet_types import is_one_type
from operators.sources.parquet import ParquetSource
from tests.operators.sources.watching import Watching

TIME = dt.datetime(2024, 2, 29, 12)


def write(folder: Path, *columns: pa.Array | pa.ChunkedArray | None, **how: Any) -> Path:
    """Write a file for each column ``v``; None: a file without it."""
    folder.mkdir(exist_ok=True, parents=True)
    for number, column in enumerate(columns):
        rows = {"id": pa.array([number] * (1 if column is None else len(column)), pa.int64())}
        pq.write_table(pa.table(rows if column is None else {**rows, "v": column}), folder / f"{number}.parquet", **how)
    return folder


def values(source: ParquetSource, **how: Any) -> list[Any]:
    return flow.Pipeline().source(source, name="in").collect(**how).sort_by("id")["v"].to_pylist()


def read(folder: Path, schema: Mapping[str, Any] | None = None) -> list[Any]:
    return values(op.read_parquet(folder, schema=schema))


def orders(columns: Sequence[Any]) -> list[list[Any]]:
    """Return some orders of ``columns``."""
    return [list(columns), list(reversed(columns)), [*columns[1:-1], columns[-1], columns[0]]]


ALIKE: list[tuple[list[pa.Array], pa.DataType]] = [
    ([pa.array(["a"], type_) for type_ in (pa.string(), pa.large_string(), pa.string_view())], pa.large_string()),
    ([pa.array(["a"]), pa.array(["b"]).dictionary_encode(), pa.nulls(1)], pa.string()),
    ([pa.array(["a"], pa.large_string()).dictionary_encode(), pa.nulls(1)], pa.dictionary(pa.int32(), pa.string())),
    ([pa.array([b"a"], pa.binary()), pa.array([b"b"], pa.large_binary())], pa.large_binary()),
    ([pa.array([TIME], pa.timestamp("us", zone)) for zone in ("UTC", "+00:00", "Etc/UTC", "Europe/Berlin")],
     pa.timestamp("us", "UTC")),
    ([pa.array([1], pa.int64()), pa.nulls(1), pa.nulls(2)], pa.int64()),
    ([pa.array([Decimal("1.5")], type_) for type_ in (pa.decimal32(5, 1), pa.decimal128(5, 1), pa.decimal256(5, 1))],
     pa.decimal128(5, 1)),
    ([pa.array([["a"], None, ["b", None]], pa.list_(pa.string())), pa.array([["a"]], pa.large_list(pa.large_string())),
      pa.array([[None], []], pa.list_(pa.null())), pa.array([["c", "d"], None], pa.list_(pa.string(), 2))],
     pa.large_list(pa.large_string())),
    ([pa.array([{"a": 1, "b": None}, None], pa.struct({"a": pa.int64(), "b": pa.null()})),
      pa.array([{"a": None, "b": ["x"]}], pa.struct({"a": pa.null(), "b": pa.list_(pa.string())}))],
     pa.struct({"a": pa.int64(), "b": pa.list_(pa.string())})),
    ([pa.array([[("a", 1)], None], pa.map_(pa.large_string(), pa.int64())),
      pa.array([[("b", None), ("c", None)]], pa.map_(pa.string(), pa.null()))], pa.map_(pa.large_string(), pa.int64())),
    ([pa.array([None], pa.int32()), pa.array(["a"]), pa.array([], pa.float64()), pa.array([None], pa.float64())],
     pa.string()),
]  # fmt: skip


EACH_ALIKE = pytest.mark.parametrize(
    ("columns", "type_"), ALIKE, ids=lambda value: str(value) if isinstance(value, pa.DataType) else ""
)


@EACH_ALIKE
def test_files_of_several_writers_are_read_in_any_order(
    tmp_path: Path, columns: list[pa.Array], type_: pa.DataType
) -> None:
    for number, order in enumerate(orders(columns)):
        source = op.read_parquet(write(tmp_path / str(number), *order))
        assert source.schema.field("v").type == type_
        expected = [value for column in order for value in column.to_pylist()]
        if pa.types.is_timestamp(type_):
            expected = [value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value for value in expected]
        assert values(source) == expected
        assert values(op.read_parquet(tmp_path / str(number), batch_rows=1)) == expected


def test_text_of_several_writers_may_be_a_key(tmp_path: Path) -> None:
    columns = [pa.array(["a"] * 8 + [None], pa.string()), pa.nulls(3), pa.array(["a"] * 9, pa.large_string()),
               pa.array(["a", "b"] * 4).dictionary_encode()]  # fmt: skip
    for order in orders(columns):
        stream = flow.Pipeline().source(op.read_parquet(write(tmp_path, *order)), name="in")
        found = stream.key_by("v").agg(n=op.count()).collect().to_pylist()
        assert sorted((str(row["v"]), row["n"]) for row in found) == [("None", 4), ("a", 21), ("b", 4)]


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        ([pa.array([1]), pa.array(["a"])], ("int64", "string")),
        ([pa.array([1], pa.int32()), pa.array([1])], ("int32", "int64")),
        ([pa.array([TIME], pa.timestamp("us")), pa.array([TIME], pa.timestamp("us", "UTC"))], ("us]", "tz=UTC")),
        ([pa.array([TIME], pa.timestamp("us")), pa.array([TIME], pa.timestamp("ms"))], ("[us]", "[ms]")),
        ([pa.array([{"a": 1}]), pa.array([{"b": 1}])], ("struct<a", "struct<b")),
        ([pa.nulls(1), pa.array([1]), pa.array(["a"])], ("int64", "string")),
        ([pa.array([1]), None], ("int64", "missing")),
        ([None, pa.array([1])], ("missing in the first",)),
    ],
)
def test_files_of_other_parquet_types_are_refused_by_name(
    tmp_path: Path, columns: list[pa.Array | None], shown: Sequence[str]
) -> None:
    for number, order in enumerate(orders(columns)):
        folder = write(tmp_path / str(number), *order)
        with pytest.raises(SchemaMismatch) as caught:
            op.read_parquet(folder)
        for part in ("'v'", *(shown if number == 0 else ())):
            assert part in str(caught.value)


UTC = pa.array([TIME], pa.timestamp("ms", "UTC"))
DIFFERING: list[tuple[list[pa.Array | None], pa.DataType | str | None]] = [
    ([pa.array([1], pa.int32()), pa.array([2**40]), None], "int64"),
    ([pa.array([1], pa.uint8()), pa.array([-1], pa.int8())], "int16"),
    ([pa.array([2**64 - 1], pa.uint64()), pa.array([-1])], "decimal128(20, 0)"),
    ([pa.array([1.5], pa.float32()), pa.array([1], pa.uint64()), pa.array([-1])], "float64"),
    ([pa.array([1.5], pa.float16()), pa.array([1.5], pa.float32())], "float32"),
    ([pa.array([Decimal("1.5")], pa.decimal128(38, 1)), pa.array([1])], "decimal128(38, 1)"),
    ([pa.array([Decimal("1.5")], pa.decimal128(5, 3)), pa.array([1])], "decimal128(22, 3)"),
    ([pa.array([10**37], pa.decimal128(38, 0)), pa.array([Decimal("0.1")], pa.decimal128(5, 5))],
     "decimal256(43, 5)"),
    ([UTC, pa.array([TIME], pa.timestamp("us", "Europe/Berlin")), pa.nulls(1)], "timestamp[us, tz=Europe/Berlin]"),
    ([pa.array([dt.time(1)], pa.time32("ms")), pa.array([dt.time(1)], pa.time64("us"))], "time64[us]"),
    ([pa.array([1]), None], "int64"),
    ([pa.array([None], pa.bool_()), pa.array([1]), pa.array([1], pa.int8())], "int64"),
    ([pa.array([[1]], pa.list_(pa.int8())), pa.array([[1]], pa.list_(pa.int64(), 1))], pa.list_(pa.int64())),
    ([pa.array([{"a": 1, "b": [TIME]}], pa.struct({"a": pa.int8(), "b": pa.list_(pa.timestamp("us"))})),
      pa.array([{"a": 1, "b": [TIME]}], pa.struct({"a": pa.float64(), "b": pa.list_(pa.timestamp("ms"))}))],
     pa.struct({"a": pa.float64(), "b": pa.list_(pa.timestamp("us"))})),
    ([pa.array([[("a", 1)]], pa.map_(pa.string(), pa.uint8())),
      pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8()))],
     pa.map_(pa.string(), pa.int16())),
    ([pa.array([TIME], pa.timestamp("us")), UTC], None),
    ([pa.array(["a"]), pa.array([b"a"])], None),
    ([pa.array(["a"]), pa.array([1]), pa.nulls(1)], None),
    ([pa.array([1], pa.int32()), pa.array([1]), pa.array(["a"])], None),
    ([pa.array([True]), pa.array([1])], None),
    ([pa.array([TIME.date()]), pa.array([TIME])], None),
    ([pa.array([1.5]), pa.array([Decimal("1.5")])], None),
    ([pa.array([{"a": 1}]), pa.array([{"b": 1}])], None),
    ([pa.array([{"a": 1}]), pa.array([{"a": 1, "b": 1}])], None),
    ([pa.array([[1]]), pa.array([["a"]])], None),
    ([pa.array([[1]]), pa.array([1])], None),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "type_"), DIFFERING, ids=range(len(DIFFERING)))
def test_advice_for_files_of_differing_types_works(
    tmp_path: Path, columns: list[pa.Array | None], type_: pa.DataType | str | None
) -> None:
    for number, order in enumerate((columns, columns[::-1])):
        folder = write(tmp_path / str(number), *order)
        errors = []
        for wrong in (None, {"v": pa.struct({"other": pa.int64()})}):
            with pytest.raises(SchemaMismatch) as caught:
                op.read_parquet(folder, schema=wrong)
            errors.append(str(caught.value))
        if type_ is None:
            for text in errors:
                assert "no type holds all values of 'v': read the files as two sources" in text
                assert "declare 'v'" not in text
        else:
            names = [str(type_), str(type_).replace("Europe/Berlin", "UTC")]
            for text in errors:
                assert any(f"declare 'v' as {name} with schema=" in text.replace("element", "item") for name in names)
            assert len(read(folder, {"v": type_})) == len(columns)


def test_advice_for_int96_times_and_times_in_utc_works(tmp_path: Path) -> None:
    write(tmp_path, pa.array([TIME], pa.timestamp("us")), use_deprecated_int96_timestamps=True)
    pq.write_table(pa.table({"id": [1], "v": UTC}), tmp_path / "1.parquet")
    with pytest.raises(SchemaMismatch, match=r"declare 'v' as timestamp\[us, tz=UTC\] with schema="):
        op.read_parquet(tmp_path)
    assert read(tmp_path, {"v": "timestamp[us, tz=UTC]"}) == [TIME.replace(tzinfo=dt.UTC)] * 2


WIDER: list[tuple[pa.Array, pa.DataType]] = [
    (pa.array([-128, None, 127], pa.int8()), pa.int16()),
    (pa.array([-(2**31), None, 2**31 - 1], pa.int32()), pa.int64()),
    (pa.array([0, 2**32 - 1], pa.uint32()), pa.int64()),
    (pa.array([0, 2**32 - 1], pa.uint32()), pa.uint64()),
    (pa.array([-(2**63), 2**63 - 1]), pa.decimal128(19, 0)),
    (pa.array([2**64 - 1], pa.uint64()), pa.decimal128(38, 18)),
    (pa.array([-(2**53), None, 2**53, 2**60, -(2**63)]), pa.float64()),
    (pa.array([2**63, 0], pa.uint64()), pa.float64()),
    (pa.array([1.5, None, float("inf")], pa.float32()), pa.float64()),
    (pa.array([Decimal("-99.9"), None], pa.decimal128(3, 1)), pa.decimal128(38, 5)),
    (pa.array([Decimal("99.9")], pa.decimal128(3, 1)), pa.decimal256(70, 9)),
    (pa.array([TIME, None], pa.timestamp("ms")), pa.timestamp("us")),
    (pa.array([TIME.replace(tzinfo=dt.UTC)], pa.timestamp("ms", "UTC")), pa.timestamp("us", "Europe/Berlin")),
    (pa.array([dt.time(23, 59)], pa.time32("ms")), pa.time64("us")),
    (pa.array([dt.timedelta(days=-1)], pa.duration("ms")), pa.duration("us")),
    (pa.array(["a", None]), pa.large_string()),
    (pa.array(["a", None, "a"]), pa.dictionary(pa.int32(), pa.large_string())),
    (pa.array(["a", None, "a"]).dictionary_encode(), pa.string()),
    (pa.array([[1, None], None, [2]], pa.list_(pa.int32())), pa.large_list(pa.float64())),
    (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), pa.list_(pa.int64(), 2)),
    (pa.array([[[None], []], None, [[], [None, None]]], pa.list_(pa.list_(pa.null()), 2)),
     pa.list_(pa.list_(pa.string()))),
    (pa.array([[1, 2], None], pa.large_list(pa.int8())), pa.list_(pa.int64(), 2)),
    (pa.array([{"a": 1, "b": [TIME]}, None], pa.struct({"a": pa.int8(), "b": pa.list_(pa.timestamp("ms"))})),
     pa.struct({"a": pa.int64(), "b": pa.list_(pa.timestamp("us"))})),
    (pa.array([[("a", 1)], None, [("b", None)]], pa.map_(pa.string(), pa.int8())), pa.map_(pa.string(), pa.float64())),
    (pa.nulls(2), pa.struct({"a": pa.list_(pa.string())})),
    (pa.array([None, None], pa.int32()), pa.string()),
]  # fmt: skip


@pytest.mark.parametrize(("column", "type_"), WIDER, ids=str)
def test_declared_types_widen_those_of_the_files(tmp_path: Path, column: pa.Array, type_: pa.DataType) -> None:
    write(tmp_path, column, None, row_group_size=2)
    for rows in (None, 1):
        source = op.read_parquet(tmp_path, schema={"v": type_}, batch_rows=rows)
        assert source.schema.names == ["v", "id"]
        assert source.schema.field("v").type == type_
        table = flow.Pipeline().source(source, name="in").collect().sort_by("id")
        assert table.schema.field("v").type == type_
        assert table["v"].to_pylist() == [*column.to_pylist(), None]


@pytest.mark.parametrize(
    ("column", "type_"),
    [
        (pa.array([1]), "int32"),
        (pa.array([1], pa.int32()), "uint64"),
        (pa.array([1], pa.uint64()), "int64"),
        (pa.array([1]), "float32"),
        (pa.array([1]), pa.decimal128(18, 0)),
        (pa.array([1.5]), "float32"),
        (pa.array([1.5]), "int64"),
        (pa.array(["1"]), "int64"),
        (pa.array([1]), "string"),
        (pa.array([1]), "timestamp[us]"),
        (pa.array([Decimal("1.55")]), pa.decimal128(38, 1)),
        (pa.array([Decimal("1.55")]), pa.decimal128(2, 2)),
        (pa.array([TIME], pa.timestamp("us")), "timestamp[ms]"),
        (pa.array([TIME], pa.timestamp("us")), pa.timestamp("us", "UTC")),
        (pa.array([TIME], pa.timestamp("us", "UTC")), pa.timestamp("us")),
        (pa.array([{"a": 1}]), pa.struct({"b": pa.int64()})),
        (pa.array([[1]]), pa.list_(pa.int32())),
        (pa.array([[1]], pa.list_(pa.int64(), 1)), pa.list_(pa.int64(), 2)),
        (pa.array([{"a": 1}]), pa.list_(pa.int64())),
        (pa.array([1]), pa.null()),
    ],
    ids=str,
)
def test_what_cannot_be_read_as_declared_is_refused_before_any_row(
    tmp_path: Path, column: pa.Array, type_: pa.DataType | str
) -> None:
    write(tmp_path, None, pa.nulls(1), column)
    with pytest.raises(SchemaMismatch) as caught:
        op.read_parquet(tmp_path, schema={"v": type_})
    assert f"'v' is {column.type}".replace("item", "element") in str(caught.value)
    assert "2.parquet" in str(caught.value)
    assert op.read_parquet(tmp_path, schema={"v": type_}, columns=["id"]).schema.names == ["id"]


@pytest.mark.parametrize(
    ("bad", "type_", "reason"),
    [
        (pa.array([2**53 + 1]), pa.float64(), "float64"),
        (pa.array([2**63 - 1]), pa.float64(), "float64"),
        (pa.array([2**64 - 1], pa.uint64()), pa.float64(), "float64"),
        (pa.array([dt.datetime(2262, 4, 12)], pa.timestamp("us")), pa.timestamp("ns"), "range"),
        (pa.array([dt.datetime(1, 1, 1)], pa.timestamp("ms")), pa.timestamp("ns"), "range"),
        (pa.array([2**62], pa.timestamp("ms")), pa.timestamp("us"), "range"),
        (pa.array([dt.timedelta(days=300_000)], pa.duration("us")), pa.duration("ns"), "duration"),
        (pa.array([[1, 2]]), pa.list_(pa.int64(), 1), "length"),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_is_an_error_with_its_place(
    tmp_path: Path, bad: pa.Array, type_: pa.DataType, reason: str
) -> None:
    good = pa.array([[1], None, [1], None, [1]] if pa.types.is_list(bad.type) else [0, None, 1, None, 2], bad.type)
    column = pa.concat_arrays([good, bad, good])
    nested = pa.ListArray.from_arrays(pa.array(range(len(column) + 1), pa.int32()), column)
    for number, (stored, declared) in enumerate([(column, type_), (nested, pa.list_(type_))]):
        write(tmp_path / str(number), pa.nulls(1), stored, row_group_size=4)
        with pytest.raises(SourceError) as caught:
            read(tmp_path / str(number), {"v": declared})
        for part in ("1.parquet', row group 1, row 1 of it: column 'v' has", reason):
            assert part in str(caught.value)


def test_a_declared_column_that_no_file_has_is_null_with_a_warning(tmp_path: Path) -> None:
    write(tmp_path, None, None)
    with pytest.warns(MissingColumnWarning, match=r"no file has 'v', so such a column is null .* correct the name"):
        assert read(tmp_path, {"v": pa.struct({"a": pa.int64()})}) == [None, None]
    with pytest.warns(MissingColumnWarning, match=r"'ID' \(did you mean 'id'\?\) and 'v', so") as caught:
        op.read_parquet(tmp_path, schema={"ID": "int64", "v": "string"})
    assert [warning.filename for warning in caught] == [__file__]
    assert op.read_parquet(tmp_path, schema={"v": "string"}, columns=["id"]).schema.names == ["id"]
    with pytest.warns(MissingColumnWarning):
        source = op.read_parquet(tmp_path, schema={"v": "string"}, columns=["v"])
    assert flow.Pipeline().source(source, name="in").collect()["v"].to_pylist() == [None, None]
    with pytest.raises(UnknownColumn, match="did you mean 'v'"):
        op.read_parquet(tmp_path, schema={"v": "string"}, columns=["vv"])


def test_columns_that_are_not_declared_must_be_in_all_files(tmp_path: Path) -> None:
    write(tmp_path, pa.array([1]), None)
    with pytest.raises(SchemaMismatch, match="'v' is int64 in the first and missing in the second"):
        op.read_parquet(tmp_path, schema={"id": "int64"})


def test_other_engines_do_not_read_columns_whose_values_they_read_otherwise(tmp_path: Path) -> None:
    write(tmp_path / "uuids", pa.nulls(2, pa.uuid()), store_schema=False)
    write(tmp_path / "mixed", pa.array(["a"]), pa.array(["b"], pa.large_string()), pa.array(["c"]).dictionary_encode())
    write(tmp_path / "nulls", pa.array(["a"]), pa.nulls(1))
    for name, reason in (("uuids", "extension type"), ("mixed", None), ("nulls", "'v' as null")):
        source = op.read_parquet(tmp_path / name)
        assert isinstance(source.select(["id"]).parquet_files(), flow.ParquetFiles)
        files = source.parquet_files()
        assert reason in files if isinstance(files, str) and reason else isinstance(files, flow.ParquetFiles)
    with pytest.warns(MissingColumnWarning, match="'w'"):
        declared = op.read_parquet(tmp_path / "mixed", schema={"w": "int64"})
    assert "'w' as no column" in str(declared.parquet_files())


BOUNDS: list[tuple[pa.Array, pa.DataType, list[Any]]] = [
    (pa.array([-128, 0, 127], pa.int8()), pa.int64(), [-129, -128, 0, 127, 128, 2**40]),
    (pa.array([0, 2**31, 2**32 - 1], pa.uint32()), pa.int64(), [-1, 0, 2**31, 2**32 - 1, 2**32]),
    (pa.array([-(2**63), 0, 2**60]), pa.float64(), [-1e30, -(2.0**63), 0.0, 0.5, 2.0**60]),
    (pa.array([1.5, -0.0, 3.0], pa.float32()), pa.float64(), [1.5, 1.5000001, 0.0, -0.0]),
    (pa.array([Decimal("-1.5"), Decimal("0.0"), Decimal("9.9")]), pa.decimal128(20, 5),
     [Decimal("9.90001"), Decimal(0)]),
    (pa.array([dt.datetime(1960, 1, 1), TIME, dt.datetime(9999, 1, 1)], pa.timestamp("ms")), pa.timestamp("us"),
     [dt.datetime(1960, 1, 1), TIME, TIME + dt.timedelta(microseconds=1), dt.datetime(9999, 1, 1)]),
    (pa.array([TIME, dt.datetime(2262, 4, 11)], pa.timestamp("us")), pa.timestamp("ns"),
     [TIME, dt.datetime(2262, 4, 11)]),
    (pa.array(["a", "b"]), pa.large_string(), ["a", "aa", "b"]),
    (pa.array([None, None], pa.int32()), pa.string(), ["a"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("column", "type_", "literals"), BOUNDS, ids=lambda value: str(value) if isinstance(value, pa.DataType) else ""
)
def test_filters_find_the_same_rows_by_statistics_in_the_declared_type(
    tmp_path: Path, column: pa.Array, type_: pa.DataType, literals: list[Any]
) -> None:
    write(tmp_path / "many", column, None, pa.nulls(1), row_group_size=1)
    source = op.read_parquet(tmp_path / "many", schema={"v": type_})
    table = flow.Pipeline().source(source, name="in").collect()
    predicates = [test for x in literals for v in [col("v")] for test in (v == x, v != x, v < x, v <= x, v > x, v >= x)]
    tests = {f"t{number}": predicate for number, predicate in enumerate(predicates)}
    expected = flow.Pipeline().source(op.from_arrow(table), name="in").select(**tests).collect()
    for name, predicate in tests.items():
        kept = flow.Pipeline().source(source, name="in").filter(predicate).collect()
        assert kept.num_rows == expected[name].to_pylist().count(True), predicate


def test_event_times_of_several_units_may_be_declared(tmp_path: Path) -> None:
    times = [TIME + dt.timedelta(days=day) for day in range(3)]
    columns = [pa.array([time], pa.timestamp(unit)) for time, unit in zip(times, ("ms", "us", "ns"), strict=True)]
    source = op.read_parquet(write(tmp_path, *columns), schema={"v": "timestamp[ns]"})
    earliest = [source.earliest(split, "v") for split in source.splits()]
    assert earliest == [(time - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1) for time in times]
    stream = flow.Pipeline().source(source, name="in").with_watermark("v").window(op.tumbling("1d")).agg(n=op.count())
    starts = stream.collect()["window_start"].cast(pa.timestamp("us")).to_pylist()
    assert sorted(starts) == [time.replace(hour=0) for time in times]
    with pytest.warns(MissingColumnWarning, match="'w'"):
        missing = op.read_parquet(tmp_path, schema={"w": "timestamp[us]", "v": "timestamp[ns]"})
    assert missing.earliest(source.splits()[0], "w") is None


def test_a_restore_with_other_declared_types_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "in", pa.array([1, 2], pa.int32()))
    settings = flow.Checkpointing(tmp_path / "ckpt")

    def run(type_: str) -> pa.Table:
        rows = flow.Pipeline().source(op.read_parquet(tmp_path / "in", schema={"v": type_}), name="rows")
        return rows.collect(checkpoint=settings)

    assert run("int64").num_rows == 2
    with pytest.raises(CheckpointMismatch, match=r"'rows'.*int64.*double"):
        run("float64")


def appear(folder: Path, name: str, column: pa.Array, **how: Any) -> None:
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table({"v": column}), folder / f".{name}", **how)
    (folder / f".{name}").rename(folder / f"{name}.parquet")


def test_a_watched_directory_takes_files_of_several_writers(tmp_path: Path) -> None:
    appear(tmp_path, "a", pa.array(["a"]))
    watching = Watching(op.watch(tmp_path, op.read_parquet, pattern="*.parquet"))
    assert watching.rows() == ["a"]
    for name, column in (
        ("b", pa.array(["b"], pa.large_string())),
        ("c", pa.nulls(2)),
        ("d", pa.array(["d"]).dictionary_encode()),
        ("e", pa.array([None], pa.int32())),
    ):
        appear(tmp_path, name, column)
        watching = watching.restored().later()
        assert watching.rows() == column.to_pylist()
    appear(tmp_path, "f", pa.array([1]))
    with pytest.raises(SchemaMismatch, match=r"f\.parquet.*expected.*if the files before it have no values of 'v'"):
        watching.later().rows()


def test_a_watched_directory_may_be_empty_if_the_types_are_declared(tmp_path: Path) -> None:
    source = op.watch(tmp_path, op.read_parquet, schema={"v": "int64"}, pattern="*.parquet")
    watching = Watching(source)
    assert watching.rows() == []
    appear(tmp_path, "a", pa.array([1, None], pa.int8()))
    appear(tmp_path, "b", pa.nulls(1))
    assert watching.later().rows() == [1, None, None]
    again = op.watch(tmp_path, op.read_parquet, schema={"v": "int64"}, pattern="*.parquet")
    assert again.schema == source.schema
    appear(tmp_path, "c", pa.array([1.5]))
    with pytest.raises(SchemaMismatch, match=r"c\.parquet' has columns that cannot be read as declared: 'v' is double"):
        watching.later().rows()


@EACH_ALIKE
def test_files_that_a_watched_directory_has_at_the_start_have_one_schema(
    tmp_path: Path, columns: list[pa.Array], type_: pa.DataType
) -> None:
    for number, order in enumerate(orders(columns)):
        folder = tmp_path / str(number)
        for name, column in enumerate(order):
            appear(folder, str(name), column)
            os.utime(folder / f"{name}.parquet", (name, name))
        source = op.watch(folder, op.read_parquet)
        assert is_one_type(source.schema.field("v").type, type_)
        expected = [value for column in order for value in column.to_pylist()]
        first = Watching(source).rows()
        assert [value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value for value in first] == [
            value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value for value in expected
        ]


def test_later_files_of_another_layout_do_not_change_the_schema_of_a_watched_directory(tmp_path: Path) -> None:
    schemas = []
    for name, column in enumerate(
        [pa.nulls(1), pa.array(["a"]).dictionary_encode(), pa.array(["b"], pa.large_string()), pa.array(["c"])]
    ):
        appear(tmp_path, str(name), column)
        os.utime(tmp_path / f"{name}.parquet", (name, name))
        schemas.append(op.watch(tmp_path, op.read_parquet).schema)
    assert schemas[1:] == [pa.schema({"v": pa.dictionary(pa.int32(), pa.string())})] * 3
    encoded = op.watch(tmp_path, op.read_parquet, dictionary=["v"], columns=["v"])
    assert encoded.schema == schemas[1]
    declared = op.watch(tmp_path, op.read_parquet, schema={"v": "string"})
    assert Watching(declared).rows() == [None, "a", "b", "c"]


def test_files_of_a_watched_directory_may_lack_declared_columns_without_a_warning(tmp_path: Path) -> None:
    appear(tmp_path, "a", pa.array([1]))
    for read in (op.read_parquet, partial(op.read_parquet, columns=["w", "v"])):
        watching = Watching(op.watch(tmp_path, read, schema={"w": "int64"}))
        assert watching.source.schema.names == ["w", "v"]
        assert watching.rows() == [None]
    appear(tmp_path, "b", pa.array([2]))
    assert watching.later().rows() == [None]


def test_int96_times_of_a_watched_directory_lose_no_digit_unless_that_is_declared(tmp_path: Path) -> None:
    times = pa.array([TIME.replace(year=9996)], pa.timestamp("us"))
    finer = pa.array([1], pa.timestamp("ns"))
    appear(tmp_path / "a", "a", times)
    watching = Watching(op.watch(tmp_path / "a", op.read_parquet, pattern="*.parquet"))
    assert watching.rows() == times.to_pylist()
    appear(tmp_path / "a", "b", times, use_deprecated_int96_timestamps=True)
    assert watching.later().rows() == times.to_pylist()
    appear(tmp_path / "a", "c", finer, use_deprecated_int96_timestamps=True)
    with pytest.raises(SourceError, match="finer than microseconds"):
        watching.later().rows()
    declared = op.watch(tmp_path / "a", op.read_parquet, pattern="*.parquet", schema={"v": "timestamp[us]"})
    assert Watching(declared).rows() == [*times.to_pylist(), *times.to_pylist(), dt.datetime(1970, 1, 1)]


def test_advice_for_watched_files_of_other_types_works(tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": pa.nulls(1)}), tmp_path / "a.parquet")
    watching = Watching(op.watch(tmp_path, op.read_parquet))
    pq.write_table(pa.table({"v": ["x"], "w": [1]}), tmp_path / "b.parquet")
    advice = r"has columns \{'v': string, 'w': int64\}, .* declare .* with schema= and start in a new checkpoint dir"
    with pytest.raises(SchemaMismatch, match=advice):
        watching.rows()
    declared = op.watch(tmp_path, op.read_parquet, schema={"v": "string", "w": "int64"})
    assert Watching(declared).rows() == [None, "x"]
