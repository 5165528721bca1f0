"""Parquet files in Hive-style folders: what the folders are called, who reads them, and who may delete them."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as flow
import operators as op
from dataflow import SimulatedRunner
from dataflow.errors import (
    CheckpointDamaged,
    ConfigurationError,
    OutputExists,
    SchemaMismatch,
    StoreError,
    UnknownColumn,
)
from dataflow.runners.faults import Faults
from operators.sinks import file_writer
from operators.sinks.file_writer import FileWriter
from operators.sinks.formats import is_folder
from operators.sinks.parquet import ParquetFormat, committed_files, read_committed, write_parquet
from operators.sinks.partitions import ByColumns, with_partitions
from tests.forcing import Force, counted_calls
from tests.operators.sinks.test_parquet_sink import NoOut, context, fill, run

ROWS = pa.table(
    {
        "country": pa.array(["DE", None, "", "DE", "a/b", "..", "50%=é ~", "__HIVE_DEFAULT_PARTITION__"]),
        "n": pa.array(range(8), pa.int64()),
        "day": pa.array([datetime.date(2024, 2, 29), None] * 4, pa.date32()),
    }
)
AB = pa.schema({"k": pa.string(), "x": pa.int64()})


def rows(*pairs: tuple[str | None, int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"k": k, "x": x} for k, x in pairs], AB)


def names(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*.parquet"))


def test_folders_are_named_by_the_values_and_files_do_not_hold_the_columns(tmp_path: Path) -> None:
    run(write_parquet(tmp_path, partition_by=["country", "day"]), ROWS.to_batches(), ROWS.schema)
    file = "part-00000001-00000-0000.parquet"
    nowhere, leap = "day=__HIVE_DEFAULT_PARTITION__", "day=2024-02-29"
    assert names(tmp_path) == sorted(
        [
            f"country=DE/{leap}/{file}",
            f"country=__HIVE_DEFAULT_PARTITION__/{nowhere}/{file}",
            f"country=/{leap}/{file}",
            f"country=DE/{nowhere}/{file}",
            f"country=a%2Fb/{leap}/{file}",
            f"country=../{nowhere}/{file}",
            f"country=50%25%3D%C3%A9%20~/{leap}/{file}",
            f"country=%5F_HIVE_DEFAULT_PARTITION__/{nowhere}/{file}",
        ]
    )
    (first, *_) = committed_files(tmp_path)
    assert pl.read_parquet_schema(first).keys() == {"n"}


@pytest.mark.parametrize("by", ["country", ["day"], ["country", "day"], ["day", "country"]])
def test_committed_rows_are_read_with_all_columns_in_their_places(tmp_path: Path, by: Any) -> None:
    run(write_parquet(tmp_path, partition_by=by), ROWS.to_batches(), ROWS.schema)
    back = read_committed(tmp_path)
    assert back.schema == ROWS.schema
    assert back.sort_by("n").equals(ROWS)


def test_other_readers_see_the_same_values(tmp_path: Path) -> None:
    usual = ROWS.filter(pa.compute.is_in(ROWS["n"], pa.array([0, 1, 3, 4, 5, 6])))  # they read "" as they like
    run(write_parquet(tmp_path, partition_by=["country", "day"]), usual.to_batches(), ROWS.schema)
    pattern = str(tmp_path / "*" / "*" / "*.parquet")
    hive = "hive_partitioning=true, hive_types_autocast=false"
    in_duckdb = duckdb.sql(f"select country, n, day::date as day from read_parquet('{pattern}', {hive}) order by n")
    schema = {"country": pl.String, "day": pl.Date}
    in_polars = pl.scan_parquet(pattern, hive_schema=schema).select("country", "n", "day").sort("n").collect()
    flavor = ds.partitioning(pa.schema([("country", pa.string()), ("day", pa.date32())]), flavor="hive")
    in_arrow = ds.dataset(
        [str(file) for file in committed_files(tmp_path)], partitioning=flavor, partition_base_dir=str(tmp_path)
    )
    expected = usual.to_pylist()
    assert in_duckdb.to_arrow_table().to_pylist() == expected
    assert in_polars.to_arrow().to_pylist() == expected
    assert in_arrow.to_table().select(["country", "n", "day"]).sort_by("n").to_pylist() == expected


TYPES = {
    "text": (pa.large_string(), st.text(max_size=9)),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), st.text(max_size=3)),
    "integer": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "unsigned": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "boolean": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates()),
}


@pytest.mark.parametrize("kind", TYPES)
@given(data=st.data())
def test_every_value_has_a_safe_folder_of_its_own_and_is_read_back(kind: str, data: st.DataObject) -> None:
    dtype, values = TYPES[kind]
    drawn = data.draw(st.lists(st.none() | values, min_size=1, max_size=9))
    table = pa.table({"x": pa.array(range(len(drawn))), "k": pa.array(drawn, dtype)})
    layout = ByColumns(["k"])
    form = layout.form(ParquetFormat(compression="none", row_group_rows=1), table.schema)
    pieces = dict(layout.split(table))
    assert len(pieces) == len(set(drawn))
    assert all(is_folder(folder) for folder in pieces)
    back = pa.concat_tables([with_partitions(piece, [folder], form) for folder, piece in pieces.items()])
    assert back.schema.field("k").type == table.schema.field("k").type
    assert sorted(back.to_pylist(), key=lambda row: row["x"]) == table.to_pylist()


def test_rows_of_a_partition_stay_in_order(tmp_path: Path) -> None:
    batches = [rows(*((str(x % 3), x) for x in range(start, start + 50))) for start in range(0, 500, 50)]
    run(write_parquet(tmp_path, partition_by="k", row_group_rows=70), batches, AB)
    for file in committed_files(tmp_path):
        found = pl.read_parquet(file, hive_partitioning=False)["x"].to_list()
        assert found == sorted(found)


def test_many_partitions_leave_few_files_open(tmp_path: Path, force: Force) -> None:
    force(file_writer, "_MOST_OPEN", 4, calls=FileWriter._settle_oldest, times=300 - 4)
    sink = write_parquet(tmp_path, partition_by="k", row_group_rows=1000)
    sink.begin()
    writer = sink.writer(context(AB))
    before = len(os.listdir("/dev/fd"))
    with counted_calls(FileWriter._begin, giving=lambda _: len(os.listdir("/dev/fd")) <= before + 5) as few_open:
        for start in range(0, 3000, 500):
            fill(writer, rows(*((str(x % 100), x) for x in range(start, start + 500))))
        handles = writer.prepare(1)
    sink.commit(1, handles)
    writer.close()
    assert few_open.total == len(handles) == 300
    assert sorted(read_committed(tmp_path)["x"].to_pylist()) == list(range(3000))


def test_the_later_files_of_a_partition_have_numbers(tmp_path: Path, force: Force) -> None:
    force(file_writer, "_MOST_OPEN", 1, calls=FileWriter._settle_oldest)
    run(write_parquet(tmp_path, partition_by="k", row_group_rows=1), [rows((k, 0)) for k in "aba"], AB, checkpoint=7)
    assert names(tmp_path) == [
        "k=a/part-00000007-00000-0000.parquet",
        "k=a/part-00000007-00000-0001.parquet",
        "k=b/part-00000007-00000-0000.parquet",
    ]


def test_an_older_checkpoint_takes_the_output_of_later_ones_back(tmp_path: Path) -> None:
    sink = write_parquet(tmp_path, partition_by="k")
    first = run(sink, [rows(("a", 1), ("b", 2))], AB, checkpoint=1)
    writer = sink.writer(context(AB))
    fill(writer, rows(("a", 3), ("c", 4)))
    sink.commit(2, writer.prepare(2))
    (tmp_path / "_commits" / "2.json").unlink()  # the commit was interrupted
    taken = sink.recover(1, first)
    assert taken is not None
    assert taken.files == 2
    assert names(tmp_path) == ["k=a/part-00000001-00000-0000.parquet", "k=b/part-00000001-00000-0000.parquet"]
    assert not (tmp_path / "k=c").exists()


def test_overwriting_removes_files_and_the_folders_that_are_empty_then(tmp_path: Path) -> None:
    run(write_parquet(tmp_path, partition_by="k"), [rows(("a", 1), ("b", 2))], AB)
    (tmp_path / "k=b" / "notes.txt").write_text("theirs")
    write_parquet(tmp_path, partition_by="k", if_exists="overwrite").begin()
    assert not (tmp_path / "k=a").exists()
    assert (tmp_path / "k=b" / "notes.txt").read_text() == "theirs"


def test_output_in_folders_is_found_by_a_fresh_start_and_kept_by_append(tmp_path: Path) -> None:
    run(write_parquet(tmp_path, partition_by="k"), [rows(("a", 1))], AB)
    with pytest.raises(OutputExists, match="already holds 1 Parquet files"):
        write_parquet(tmp_path, partition_by="k").begin()
    run(write_parquet(tmp_path, partition_by="k", if_exists="append"), [rows(("a", 2))], AB)
    assert sorted(read_committed(tmp_path)["x"].to_pylist()) == [1, 2]


@pytest.mark.parametrize(
    "folder", ["../home", "..", "k=a/..", "k=a/k=b", "k", "k=\0", "k=" + "a" * 300, "/tmp/k=a", ""]
)
def test_a_handle_whose_folders_lead_elsewhere_is_damage(tmp_path: Path, folder: str) -> None:
    sink = write_parquet(tmp_path / "out", partition_by="k")
    sink.begin()
    writer = sink.writer(context(AB))
    fill(writer, rows(("a", 1)))
    (handle,) = writer.prepare(1)
    file = str(handle["file"]).partition("/")[2]
    with pytest.raises(CheckpointDamaged, match="expected the name of a file"):
        sink.recover(1, [{**handle, "file": f"{folder}/{file}" if folder else file}])
    writer.close()


def test_a_link_in_the_place_of_a_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    sink = write_parquet(tmp_path / "out", partition_by="k")
    handles = run(sink, [rows(("a", 1))], AB)
    (tmp_path / "out" / "k=a").rename(tmp_path / "home" / "k=a")
    (tmp_path / "out" / "k=a").symlink_to(tmp_path / "home" / "k=a")
    writer = sink.writer(context(AB))
    fill(writer, rows(("a", 2)))
    later = writer.prepare(2)
    for action in (
        lambda: sink.commit(2, later),
        lambda: write_parquet(tmp_path / "out", if_exists="overwrite").begin(),
        lambda: sink.recover(0, []),
    ):
        with pytest.raises((StoreError, OutputExists)):
            action()
    assert len(handles) == len(names(tmp_path / "home")) == 1
    writer.close()


@pytest.mark.parametrize(
    ("by", "schema", "error", "said"),
    [
        ("q", AB, UnknownColumn, "no column 'q'"),
        (["k", "x"], AB, SchemaMismatch, "partition_by has all columns"),
        ("f", pa.schema({"f": pa.float64(), "x": pa.int8()}), SchemaMismatch, "'f' is double; add such a column"),
        ("t", pa.schema({"t": pa.timestamp("us"), "x": pa.int8()}), SchemaMismatch, r"\.dt\.date\(\)"),
    ],
)
def test_columns_that_cannot_be_folders_are_refused(
    by: Any, schema: pa.Schema, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        write_parquet("out", partition_by=by).check(schema)


@pytest.mark.parametrize(
    ("build", "error"),
    [
        (lambda: write_parquet("out", partition_by=["k", "k"]), ConfigurationError),
        (lambda: write_parquet("out", partition_by=[1]), TypeError),  # type: ignore[list-item]
    ],
)
def test_names_that_are_no_columns_are_refused(build: Callable[[], object], error: type[Exception]) -> None:
    with pytest.raises(error, match="partition_by"):
        build()


def test_a_value_that_is_too_long_for_a_folder_says_what_to_do(tmp_path: Path) -> None:
    sink = write_parquet(tmp_path, partition_by="k", row_group_rows=1)
    sink.begin()
    writer = sink.writer(context(AB))
    with pytest.raises(ValueError, match=r"column 'k' needs a folder name of 302 bytes.*\.str\.slice\(\)"):
        writer.process(0, rows(("é" * 50, 1)), NoOut())
    writer.close()


COPIED = pa.table({"k": [None if x % 7 == 0 else f"k{x % 5}" for x in range(1000)], "x": range(1000)})


def copying(folder: Path) -> flow.Pipeline:
    with flow.Pipeline("folders") as p:
        stream = p.source(op.from_arrow(COPIED, batch_rows=16), name="rows").rebalance()
        stream.sink(op.write_parquet(folder, partition_by="k"), name="out")
    return p


@pytest.mark.parametrize("mode", ["aligned", "unaligned-persisted"])
def test_a_job_that_crashes_and_restores_writes_every_row_once(tmp_path: Path, mode: str) -> None:
    faults = Faults(crashes=2, skew=0.3, stall=0.01, slices=0.3)
    checkpoint = flow.Checkpointing(flow.MemoryStore(), every="2ms", mode=mode)
    job = copying(tmp_path).start(SimulatedRunner(seed=3, faults=faults), parallelism=2, checkpoint=checkpoint)
    job.wait()
    assert any(attempt.restored is not None for attempt in job.attempts)
    assert read_committed(tmp_path).sort_by("x").to_pylist() == COPIED.to_pylist()
    assert len({path.name.split("-")[1] for path in committed_files(tmp_path)}) > 1


def test_on_threads_every_row_is_there_once(tmp_path: Path) -> None:
    copying(tmp_path / "out").run(parallelism=2, checkpoint=flow.Checkpointing(tmp_path / "job", every="1ms"))
    assert read_committed(tmp_path / "out").sort_by("x").to_pylist() == COPIED.to_pylist()
