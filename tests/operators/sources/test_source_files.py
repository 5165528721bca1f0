"""Paths, URIs and filesystems: one place finds and opens the files of every format."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from dataflow.clock import ManualClock
from dataflow.contracts.source import END, Source, SourceContext
from dataflow.errors import ConfigurationError, InputChanged, SourceError
from operators import read_csv, read_ipc, read_json, read_parquet, watch
from operators.sources.files import Files
from operators.sources.paths import expand

CONTEXT = SourceContext("source", 0, 1, ManualClock())
NAMES = [
    "a.parquet",
    "b.parquet",
    "deep/c.parquet",
    "deep/er/d.parquet",
    "_staged/e.parquet",
    ".f.parquet",
    "notes.txt",
]


def stored(tmp_path: Path) -> list[tuple[fs.FileSystem, str]]:
    """The same files on a part of the disk and in memory."""
    memory = fs._MockFileSystem()
    for name in NAMES:
        place = tmp_path / "data" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"x")
        memory.create_dir(os.path.dirname(f"data/{name}"))
        with memory.open_output_stream(f"data/{name}") as out:
            out.write(b"x")
    return [(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "data"), (memory, "data")]


def xs(source: Source) -> list[int]:
    rows: list[int] = []
    for split in source.splits():
        reader = source.reader(split, None, CONTEXT)
        while (batch := reader.poll(1000)) is not END:
            assert batch is not None
            rows += batch["x"].to_pylist()
        reader.close()
    return rows


@pytest.mark.parametrize(
    "pattern",
    [
        "data",
        "data/a.parquet",
        "data/*.parquet",
        "data/**/*.parquet",
        "data/[ab]*",
        "data/*/c.parquet",
        "data/?.parquet",
    ],
)
def test_a_filesystem_finds_what_the_disk_finds(tmp_path: Path, pattern: str) -> None:
    for store, _ in stored(tmp_path):
        _, here = expand(str(tmp_path / pattern), ".parquet")
        _, there = expand(pattern, ".parquet", store)
        assert [os.path.relpath(path, tmp_path) for path in here] == list(there)


@pytest.mark.parametrize("missing", ["nothing", "data/*.csv", "data/deep/er/nothing/**"])
def test_a_path_without_files_in_a_filesystem_is_named(tmp_path: Path, missing: str) -> None:
    for store, _ in stored(tmp_path):
        with pytest.raises(SourceError, match="check the path") as caught:
            expand(missing, ".parquet", store)
        assert repr(missing) in str(caught.value)


def test_a_file_uri_is_a_path_of_this_machine(tmp_path: Path) -> None:
    stored(tmp_path)
    where, found = expand(f"file://{tmp_path}/data/*.parquet", ".parquet")
    assert where == Files()
    assert found == expand(str(tmp_path / "data" / "*.parquet"), ".parquet")[1]


def test_an_unknown_uri_is_refused_with_the_way_out() -> None:
    with pytest.raises(SourceError, match=r"xyz://bucket/\*\.csv.*pass filesystem="):
        expand("xyz://bucket/*.csv", ".csv")


def test_a_uri_that_went_through_pathlib_is_refused() -> None:
    with pytest.raises(SourceError, match="give the URI as a str"):
        expand(Path("s3://bucket/bids"), ".csv")


def test_what_is_no_filesystem_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="got a str"):
        expand(tmp_path, ".csv", "s3")


def test_paths_on_two_filesystems_are_two_sources(tmp_path: Path) -> None:
    stored(tmp_path)
    with pytest.raises(SourceError, match="different filesystems"):
        expand([str(tmp_path / "data"), "mock:///data"], ".parquet")


def test_parquet_is_read_from_a_filesystem(tmp_path: Path) -> None:
    for store, name in (
        (fs._MockFileSystem(), "a.parquet"),
        (fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "a.parquet"),
    ):
        pq.write_table(pa.table({"x": range(10)}), name, filesystem=store, row_group_size=4)
        source = read_parquet(name, filesystem=store)
        assert source.blocking
        assert xs(source) == list(range(10))
        store.delete_file(name)
        with pytest.raises(InputChanged, match=r"a\.parquet"):
            source.check(source.splits()[0])


def test_a_source_of_a_part_of_the_disk_pickles(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "a.parquet")
    store = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    assert xs(pickle.loads(pickle.dumps(read_parquet("a.parquet", filesystem=store)))) == [1, 2]


def test_this_machine_given_as_a_filesystem_is_this_machine(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "a.parquet")
    source = read_parquet(str(tmp_path), filesystem=fs.LocalFileSystem())
    assert (xs(source), source.blocking) == ([1, 2], False)


@pytest.mark.parametrize("read", [read_csv, read_json, read_ipc, read_parquet])
def test_a_name_that_is_not_utf8_is_named_by_every_reader(tmp_path: Path, read: Callable[..., Source]) -> None:
    odd = os.fsdecode(b"caf\xe9")
    for suffix in ("csv", "jsonl", "arrow", "parquet"):
        Path(tmp_path, f"{odd}.{suffix}").write_bytes(b'{"x": 1}\n')
    Path(tmp_path, odd).mkdir()
    part = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    sources = (
        lambda: read(tmp_path),
        lambda: read(f"{tmp_path}/c*"),
        lambda: read(tmp_path / odd),
        lambda: watch(tmp_path, read),
        lambda: watch(tmp_path / odd, read, schema={"x": "int64"}),
        lambda: read("", filesystem=part),
        lambda: read("*", filesystem=part),
        lambda: watch("", read, filesystem=part),
        lambda: read(f"{odd}.csv", filesystem=part),
    )
    for source in sources:
        with pytest.raises(SourceError, match=r"not UTF-8.*rename it"):
            source()
