"""INT96 times, which Spark, Hive and Impala write: every year, no digit lost in silence."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import SourceError
from operators.sources.parquet import ParquetSource
from tests.operators.reading import CONTEXT

DAYS = [
    dt.datetime(1, 1, 1),
    dt.datetime(1582, 10, 4, 23),
    dt.datetime(1899, 12, 31, 23, 59, 59, 999_999),
    dt.datetime(1969, 12, 31, 23, 59, 59, 1),
    dt.datetime(2024, 2, 29, 12),
    dt.datetime(9999, 12, 31, 23, 59, 59),
]


def write(path: Path, times: Sequence[dt.datetime | None], **how: Any) -> Path:
    """Write rows of INT96 times, plain and inside lists, structs and maps."""
    plain = pa.array(times, pa.timestamp("us"))
    columns = {
        "id": pa.array(range(len(times))),
        "at": plain,
        "list": pa.array([None if time is None else [time, None] for time in times], pa.list_(plain.type)),
        "struct": pa.array([None if time is None else {"at": [time]} for time in times],
                           pa.struct({"at": pa.list_(plain.type)})),
        "map": pa.array([[("k", time)] for time in times], pa.map_(pa.string(), plain.type)),
    }  # fmt: skip
    pq.write_table(pa.table(columns), path, use_deprecated_int96_timestamps=True, store_schema=False, **how)
    return path


def with_nanosecond(path: Path, time: dt.datetime) -> Path:
    """Add a nanosecond to every ``time`` of a file, which pyarrow cannot write in all years."""
    day = (time.date() - dt.date(1970, 1, 1)).days + 2_440_588
    nanoseconds = (time - dt.datetime.combine(time.date(), dt.time())) // dt.timedelta(microseconds=1) * 1_000
    word, finer = [(n.to_bytes(8, "little") + day.to_bytes(4, "little")) for n in (nanoseconds, nanoseconds + 1)]
    content = path.read_bytes()
    assert word in content
    path.write_bytes(content.replace(word, finer))
    return path


def plain(path: Path, times: Sequence[dt.datetime | None], **how: Any) -> Path:
    return write(path, times, compression="none", use_dictionary=False, write_statistics=False, **how)


def rows(source: ParquetSource) -> list[dict[str, Any]]:
    return flow.Pipeline().source(source, name="in").collect().sort_by("id").to_pylist()


def test_times_of_all_years_are_read_in_structs_lists_and_maps(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [*DAYS, None], row_group_size=2)
    for rows_of_batch in (None, 1, 3):
        source = op.read_parquet(tmp_path, batch_rows=rows_of_batch)
        assert source.schema.field("at").type == pa.timestamp("us")
        assert source.schema.field("list").type.value_type == pa.timestamp("us")
        *found, last = rows(source)
        assert [row["at"] for row in found] == DAYS
        assert [row["list"] for row in found] == [[day, None] for day in DAYS]
        assert [row["struct"] for row in found] == [{"at": [day]} for day in DAYS]
        assert [row["map"] for row in found] == [[("k", day)] for day in DAYS]
        assert last == {"id": len(DAYS), "at": None, "list": None, "struct": None, "map": [("k", None)]}


@pytest.mark.parametrize("time", [DAYS[0], DAYS[3], DAYS[4], DAYS[-1]])
@pytest.mark.parametrize("column", ["at", "list", "struct", "map"])
def test_digits_finer_than_microseconds_are_an_error_with_their_place(
    tmp_path: Path, time: dt.datetime, column: str
) -> None:
    times = [dt.datetime(2000, 1, 1), None, dt.datetime(2001, 1, 1), dt.datetime(2002, 1, 1), time]
    with_nanosecond(plain(tmp_path / "a.parquet", times, row_group_size=3), time)
    with pytest.raises(SourceError) as caught:
        rows(op.read_parquet(tmp_path, columns=["id", column]))
    for part in ("a.parquet', row group 1, row 1 of it", f"column {column!r}", "finer than microseconds", "timestamp["):
        assert part in str(caught.value)


def test_the_reason_belongs_to_the_value_that_is_named(tmp_path: Path) -> None:
    type_ = pa.struct({"a": pa.timestamp("ns"), "b": pa.timestamp("ns")})
    times = pa.array([{"a": 1_000, "b": 1_007}, {"a": 1_009, "b": 1_000}], type_)
    pq.write_table(pa.table({"both": times}), tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    with pytest.raises(SourceError, match=r"row 0 of it.*finer than microseconds \(and 7 ns\)"):
        flow.Pipeline().source(op.read_parquet(tmp_path), name="in").collect()


def test_declared_microseconds_are_rounded_down(tmp_path: Path) -> None:
    for time in (DAYS[0], DAYS[3], DAYS[-1]):
        path = with_nanosecond(plain(tmp_path / "a.parquet", [time]), time)
        (row,) = rows(op.read_parquet(path, columns=["id", "at"], schema={"at": "timestamp[us]"}))
        assert row == {"at": time, "id": 0}
        nested = {"list": pa.list_(pa.timestamp("us")), "struct": pa.struct({"at": pa.list_(pa.timestamp("us"))})}
        (row,) = rows(op.read_parquet(path, columns=["id", *nested], schema=nested))
        assert row == {"id": 0, "list": [time, None], "struct": {"at": [time]}}


def test_declared_nanoseconds_keep_all_digits(tmp_path: Path) -> None:
    times = [dt.datetime(1677, 9, 22), DAYS[3], DAYS[4], dt.datetime(2262, 4, 11, 23)]
    path = plain(tmp_path / "a.parquet", times)
    for time in times:
        with_nanosecond(path, time)
    ns = pa.timestamp("ns")
    nested = {
        "at": ns,
        "list": pa.list_(ns),
        "struct": pa.struct({"at": pa.list_(ns)}),
        "map": pa.map_(pa.string(), ns),
    }
    table = flow.Pipeline().source(op.read_parquet(path, schema=nested), name="in").collect().sort_by("id")
    expected = [(time - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1) * 1_000 + 1 for time in times]
    at, lists, struct, maps = [table[name].combine_chunks() for name in nested]
    (inside,) = struct.flatten()
    for column in (at, lists.flatten().drop_null(), inside.flatten(), maps.items):
        assert column.cast(pa.int64()).to_pylist() == expected


@pytest.mark.parametrize("time", [dt.datetime(1677, 9, 21), dt.datetime(2262, 4, 12), dt.datetime(2600, 1, 1)])
def test_a_time_outside_of_declared_nanoseconds_is_an_error_with_its_place(tmp_path: Path, time: dt.datetime) -> None:
    write(tmp_path / "a.parquet", [DAYS[4], time])
    for column, type_ in (("at", pa.timestamp("ns")), ("list", pa.list_(pa.timestamp("ns")))):
        with pytest.raises(SourceError) as caught:
            rows(op.read_parquet(tmp_path, columns=["id", column], schema={column: type_}))
        for part in ("a.parquet', row group 0, row 1 of it", f"column {column!r}", "1677 to 2262", "timestamp[us]"):
            assert part in str(caught.value)


def test_a_struct_may_round_one_time_and_keep_another(tmp_path: Path) -> None:
    times = pa.array([{"a": dt.datetime(2000, 1, 1), "b": dt.datetime(2001, 1, 1)}],
                     pa.struct({"a": pa.timestamp("us"), "b": pa.timestamp("us")}))  # fmt: skip
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"t": times}), path, use_deprecated_int96_timestamps=True, store_schema=False,
                   compression="none", use_dictionary=False)  # fmt: skip
    for day in times[0].as_py().values():
        with_nanosecond(path, day)
    declared = {"t": pa.struct({"a": pa.timestamp("us"), "b": pa.timestamp("ns")})}
    table = flow.Pipeline().source(op.read_parquet(path, schema=declared), name="in").collect()
    a, b = table["t"].combine_chunks().flatten()
    assert a.to_pylist() == [dt.datetime(2000, 1, 1)]
    assert b.cast(pa.int64()).to_pylist() == [978_307_200_000_000_001]


def test_instants_may_be_declared_with_a_zone(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", DAYS)
    source = op.read_parquet(tmp_path, columns=["id", "at"], schema={"at": pa.timestamp("us", "UTC")})
    assert [row["at"] for row in rows(source)] == [day.replace(tzinfo=dt.UTC) for day in DAYS]


def test_a_read_continues_within_a_file_of_such_times(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", DAYS, row_group_size=4)
    assert [row["id"] for row in rows_after(op.read_parquet(path, batch_rows=3), 2)] == [2, 3, 4, 5]


def rows_after(source: ParquetSource, offset: int) -> list[dict[str, Any]]:
    reader = source.reader(source.splits()[0], offset, CONTEXT)
    found: list[dict[str, Any]] = []
    while isinstance(batch := reader.poll(2), pa.RecordBatch):
        found += batch.to_pylist()
    reader.close()
    return found


def test_event_time_and_filters_do_not_trust_statistics_of_such_times(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", DAYS, row_group_size=1)
    source = op.read_parquet(tmp_path)
    assert source.earliest(source.splits()[0], "at") is None
    stream = flow.Pipeline().source(source, name="in").filter(col("at") >= dt.datetime(2000, 1, 1))
    assert sorted(stream.select("id").collect()["id"].to_pylist()) == [4, 5]
    assert "INT96" in str(source.parquet_files())
    assert not isinstance(source.select(["id"]).parquet_files(), str)
