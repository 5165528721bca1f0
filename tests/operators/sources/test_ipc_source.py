"""Arrow IPC files as a source: both formats, from every position, with their dictionaries."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from pyarrow import feather, fs, ipc

import dataflow as flow
import operators as op
from dataflow.errors import ConfigurationError, InputChanged, SchemaMismatch, SourceError, UnknownColumn
from dataflow.runners.faults import Faults
from operators import read_ipc
from tests.operators.reading import CONTEXT, check_every_position, ends_of_batches, rows_of, table_of
from tests.seeds import seeds

FORMATS = {"file": ipc.new_file, "stream": ipc.new_stream}


def numbers(start: int = 0, rows: int = 17) -> pa.Table:
    values = range(start, start + rows)
    nested = [{"p": n, "q": [n]} for n in values]
    names = pa.array([f"k{n % 3}" for n in values]).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string()))
    return pa.table({"x": pa.array(values, pa.int64()), "c": names, "n": nested})


def write(path: Path, table: pa.Table, format: str = "file", *, rows: int = 5, codec: str | None = None) -> Path:
    options = ipc.IpcWriteOptions(compression=codec)
    with FORMATS[format](str(path), table.schema, options=options) as out:
        out.write_table(table, max_chunksize=rows)
    return path


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
def test_a_file_gives_what_was_written_with_wide_indices(tmp_path: Path, format: str, codec: str | None) -> None:
    source = read_ipc(write(tmp_path / "a.arrow", numbers(), format, codec=codec))
    assert source.schema.field("c").type == pa.dictionary(pa.int32(), pa.string())
    assert table_of(source).to_pylist() == numbers().to_pylist()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("batch_rows", [1, 2, 1000])
def test_a_reader_at_any_position_gives_exactly_the_rest(tmp_path: Path, format: str, batch_rows: int) -> None:
    check_every_position(read_ipc(write(tmp_path / "a.arrow", numbers(), format), batch_rows=batch_rows))


def test_a_dictionary_that_changes_within_a_stream_is_followed(tmp_path: Path) -> None:
    parts = [pa.record_batch({"c": pa.array(words).dictionary_encode()}) for words in (["a", "b"], ["z"], ["b", "y"])]
    with ipc.new_stream(str(tmp_path / "a.arrows"), parts[0].schema) as out:
        for part in parts:
            out.write_batch(part)
    source = read_ipc(tmp_path)
    assert [row["c"] for row in rows_of(source)] == ["a", "b", "z", "b", "y"]
    check_every_position(source)


def test_what_feather_and_polars_write_is_read(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": [1, 2], "s": ["a", None], "c": pl.Series(["u", "v"], dtype=pl.Categorical)})
    frame.write_ipc(tmp_path / "polars.arrow")
    feather.write_feather(numbers(), str(tmp_path / "a.feather"))
    assert rows_of(read_ipc(tmp_path / "polars.arrow")) == frame.to_dicts()
    assert rows_of(read_ipc(tmp_path / "a.feather")) == numbers().to_pylist()


def test_columns_are_selected_in_the_files_order(tmp_path: Path) -> None:
    for format in FORMATS:
        write(tmp_path / f"{format}.arrow", numbers(), format)
    source = read_ipc(tmp_path, columns=["n", "x"])
    assert source.schema.names == ["x", "n"]
    assert rows_of(source.select(["n"])) == numbers().select(["n"]).to_pylist() * 2
    with pytest.raises(UnknownColumn, match="did you mean 'x'"):
        read_ipc(tmp_path, columns=["xx"])


def test_files_may_order_their_columns_differently(tmp_path: Path) -> None:
    write(tmp_path / "a.arrow", numbers())
    write(tmp_path / "b.arrow", numbers().select(["n", "c", "x"]))
    assert rows_of(read_ipc(tmp_path)) == numbers().to_pylist() * 2


def test_files_that_differ_in_schema_are_both_named(tmp_path: Path) -> None:
    write(tmp_path / "a.arrow", numbers())
    write(tmp_path / "b.arrow", pa.table({"x": ["1"], "c": ["k"], "z": [1]}))
    with pytest.raises(SchemaMismatch, match=r"'x' is int64 in the first and string in the second.*'n'.*'z'"):
        read_ipc(tmp_path)


def test_files_without_rows_are_fine(tmp_path: Path) -> None:
    for format in FORMATS:
        write(tmp_path / f"{format}.arrow", numbers().slice(0, 0), format)
    assert rows_of(read_ipc(tmp_path)) == []


@pytest.mark.parametrize("content", [b"", b"ARROW1", b"a,b\n1,2\n" * 9])
def test_a_file_that_is_not_arrow_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.arrow").write_bytes(content)
    with pytest.raises(SourceError, match=r"a\.arrow' as Arrow IPC"):
        read_ipc(tmp_path)


def test_a_stream_that_was_cut_short_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.arrows", numbers(rows=2000), "stream", rows=1000)
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(SourceError, match=r"a\.arrows' is damaged at batch 1"):
        rows_of(read_ipc(path))


def test_a_changed_file_is_found(tmp_path: Path) -> None:
    path = write(tmp_path / "a.arrow", numbers())
    source = read_ipc(path)
    write(path, numbers(start=1))
    os.utime(path, (1, 1))
    with pytest.raises(InputChanged, match="content had hash"):
        source.reader(source.splits()[0], None, CONTEXT)


def test_a_batch_has_at_least_a_row(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="batch_rows"):
        read_ipc(write(tmp_path / "a.arrow", numbers()), batch_rows=0)


def test_a_source_pickles_and_reads_from_a_filesystem(tmp_path: Path) -> None:
    write(tmp_path / "a.arrow", numbers())
    store = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    assert rows_of(pickle.loads(pickle.dumps(read_ipc("*.arrow", filesystem=store)))) == numbers().to_pylist()


@pytest.mark.parametrize("seed", seeds(2, 4))
def test_each_row_comes_once_through_crashes(tmp_path: Path, seed: int) -> None:
    for index, format in enumerate(FORMATS):
        write(tmp_path / f"{format}.arrow", numbers(start=100 * index, rows=60), format)
    with flow.Pipeline("ipc") as p:
        p.source(read_ipc(tmp_path, batch_rows=2), name="rows").sink(op.collect(), name="out")
    crashing = flow.SimulatedRunner(seed=seed, faults=Faults(crashes=3))
    result = p.run(crashing, parallelism=2, checkpoint=flow.Checkpointing(flow.MemoryStore(), every="1ms"))
    assert sorted(result.table("out")["x"].to_pylist()) == [*range(60), *range(100, 160)]


@pytest.mark.parametrize("cut", [1, 3, 1000])
def test_batches_end_where_they_do_however_they_are_cut(tmp_path: Path, cut: int) -> None:
    source = read_ipc(write(tmp_path / "a.arrow", numbers(rows=20), rows=10), batch_rows=4)
    assert ends_of_batches(source, cut) == [4, 8, 10, 14, 18, 20]
