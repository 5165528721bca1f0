"""Paths, URIs and filesystems: one place finds and opens the files of every format."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from dataflow.clock import ManualClock
from dataflow.contracts.source import END, Source, SourceContext
from dataflow.errors import ConfigurationError, FilesLeftOutWarning, GraphError, InputChanged, SourceError
from operators import read_csv, read_ipc, read_json, read_parquet, watch
from operators.sources.files import Files
from operators.sources.paths import expand
from tests.operators.sources.watching import Watching

READERS = [(read_csv, ".csv"), (read_json, ".jsonl"), (read_ipc, ".arrow"), (read_parquet, ".parquet")]
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


@pytest.mark.filterwarnings("ignore::dataflow.errors.FilesLeftOutWarning")
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


@pytest.mark.parametrize(("read", "suffix"), READERS)
def test_a_name_that_is_not_utf8_is_named_by_every_reader(
    tmp_path: Path, read: Callable[..., Source], suffix: str
) -> None:
    odd = os.fsdecode(b"caf\xe9")
    Path(tmp_path, f"{odd}{suffix}").write_bytes(b'{"x": 1}\n')
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
        lambda: read(f"{odd}{suffix}", filesystem=part),
    )
    for source in sources:
        with pytest.raises(SourceError, match=r"not UTF-8.*rename it"):
            source()


def write_rows(path: Path, *xs: int) -> Path:
    """Write a file in the format that its name says, whatever its case."""
    name, table = path.name.lower(), pa.table({"x": xs})
    out = io.BytesIO()
    if ".parquet" in name:
        pq.write_table(table, out)
    elif ".arrow" in name or ".ipc" in name:
        with pa.ipc.new_file(out, table.schema) as file:
            file.write_table(table)
    else:
        line = '{"x": %d}\n' if "json" in name else "%d\n"
        out.write(b"" if "json" in name else b"x\n")
        out.write("".join(line % x for x in xs).encode())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(out.getvalue()) if name.endswith(".gz") else out.getvalue())
    return path


def watched_xs(source: Source) -> list[object]:
    return Watching(source).rows()


@pytest.mark.parametrize(
    ("read", "names"),
    [
        (read_csv, ["a.csv", "B.CSV", "c.Csv.GZ"]),
        (read_json, ["a.JSONL", "b.Json", "c.NDJSON.gz"]),
        (read_parquet, ["a.parquet", "B.PARQUET"]),
        (read_ipc, ["a.ARROW", "b.Ipc"]),
    ],
)
def test_suffixes_are_compared_without_case(tmp_path: Path, read: Callable[..., Source], names: list[str]) -> None:
    for number, name in enumerate(names):
        write_rows(tmp_path / name, number)
    (tmp_path / "_x.tsv").touch()  # names that are hidden, or unfinished when watched, are not mentioned
    part = fs.SubTreeFileSystem(str(tmp_path.parent), fs.LocalFileSystem())
    for source in (read(tmp_path), read(tmp_path.name, filesystem=part)):
        assert sorted(xs(source)) == list(range(len(names)))
    (tmp_path / "y.tmp").touch()
    for source in (watch(tmp_path, read), watch(tmp_path, partial(read)), watch(tmp_path.name, read, filesystem=part)):
        assert sorted(watched_xs(source)) == list(range(len(names)))


def left_out(make: Callable[[], Source]) -> tuple[Source, str]:
    """Return a source, and the text of the one warning with which it is made."""
    with pytest.warns(FilesLeftOutWarning) as caught:
        source = make()
    (warning,) = caught
    assert warning.filename == __file__
    return source, str(warning.message)


@pytest.mark.parametrize(("read", "suffix"), READERS)
def test_files_that_a_directory_leaves_out_are_named_with_the_pattern_that_reads_them(
    tmp_path: Path, read: Callable[..., Source], suffix: str
) -> None:
    folder = tmp_path / "in [1]"  # which a pattern must escape
    write_rows(folder / f"a{suffix}", 1)
    write_rows(folder / "deep" / f"b{suffix}.TXT", 2)
    write_rows(folder / f"part-0{suffix.replace('.', '-')}", 3) if suffix == ".csv" else None
    part = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    for path, options in ((f"{folder}", {}), (folder.as_uri(), {}), (folder.name, {"filesystem": part})):
        source, text = left_out(lambda path=path, options=options: read(path, **options))
        assert xs(source) == [1]
        assert "b.TXT" in text.replace(suffix, "")
        patterns = re.findall(r"'([^']*\*\*[^']*)'", text)
        assert len(patterns) == (2 if suffix == ".csv" else 1), text
        assert sorted(xs(read([path, *patterns], **options))) == ([1, 2, 3] if suffix == ".csv" else [1, 2])


def test_files_that_must_be_unpacked_are_named_as_such(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.csv", 1)
    for name in ("b.csv.xz", "c.zip"):
        (tmp_path / name).touch()
    source, text = left_out(lambda: read_csv(tmp_path))
    assert text.endswith("or .zst): 'b.csv.xz', 'c.zip'; unpack 'b.csv.xz', 'c.zip', which no reader reads")
    assert xs(source) == [1]


def test_a_directory_without_files_of_the_format_names_the_others(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.tsv", 1)
    with pytest.raises(
        SourceError, match=r"no file that ends in \.csv .*, only 'a\.tsv'; give '(.*)' in place of the directory"
    ) as caught:
        read_csv(tmp_path)
    assert xs(read_csv(re.findall("give '(.*)' in", str(caught.value)))) == [1]


@pytest.mark.parametrize(("read", "suffix"), READERS)
def test_what_is_no_regular_file_is_refused_by_name_without_opening_it(
    tmp_path: Path, read: Callable[..., Source], suffix: str
) -> None:
    write_rows(tmp_path / f"b{suffix}", 1)
    os.mkfifo(tmp_path / "lock")
    assert xs(read(tmp_path)) == [1]
    assert watched_xs(watch(tmp_path, read)) == [1]
    watching = Watching(watch(tmp_path, read))
    pipe = tmp_path / f"a{suffix}"
    os.mkfifo(pipe)
    said = rf"{pipe}': expected a regular file, found a pipe; write its data to a file first"
    for path in (pipe, tmp_path, f"{tmp_path}/*{suffix}", [tmp_path / f"b{suffix}", pipe], pipe.as_uri()):
        with pytest.raises(SourceError, match=said):
            read(path)
    with pytest.raises(SourceError, match=said):
        watch(tmp_path, read)
    with pytest.raises(SourceError, match=said):
        watching.rows()
    with pytest.raises(SourceError, match="'/dev/null': expected a regular file, found a device"):
        read("/dev/null")
    part = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    with pytest.raises(SourceError, match=rf"'a{suffix}': it is neither a regular file nor a directory"):
        read(pipe.name, filesystem=part)


def test_files_of_another_format_are_left_to_its_reader(tmp_path: Path) -> None:
    for number, (_, suffix) in enumerate(READERS):
        write_rows(tmp_path / f"a{suffix}", number)
    for number, (read, suffix) in enumerate(READERS):
        source, text = left_out(lambda read=read: read(tmp_path))
        watched, watch_text = left_out(lambda read=read: watch(tmp_path, read))
        assert (xs(source), watched_xs(watched)) == ([number], [number])
        for other, name in READERS:
            for said in (text, watch_text):
                assert (f"read 'a{name}' with {other.__name__}" in said) == (name != suffix)
                assert "*" not in said
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(SourceError, match=r"no file that ends in .*, only .*; read 'a\.csv' with read_csv; ") as caught:
        read_json(tmp_path)
    assert "*" not in str(caught.value)


@pytest.mark.parametrize(("read", "suffix"), READERS)
def test_a_name_that_is_not_utf_8_is_refused_once(tmp_path: Path, read: Callable[..., Source], suffix: str) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9" + suffix.encode())).touch()
    for path in (tmp_path, f"{tmp_path}/*", tmp_path / os.fsdecode(b"caf\xe9" + suffix.encode())):
        with pytest.raises(SourceError, match=rf"caf.udce9{suffix}': its name is not UTF-8; rename it$"):
            read(path)


def test_a_watched_directory_names_once_what_it_leaves_out(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.csv", 1)
    early = Watching(watch(tmp_path, read_csv))
    assert (early.rows(), early.notices) == ([1], [])
    write_rows(tmp_path / "b.tsv", 2)
    assert (early.later().rows(), early.later().rows()) == ([], [])
    assert len(early.notices) == 1
    assert "FilesLeftOutWarning" in early.notices[0]
    source, text = left_out(lambda: watch(tmp_path, read_csv))
    assert "'b.tsv'; pattern='*.tsv' reads these instead, pattern='*' all files" in text
    watching = Watching(source)
    assert (watching.rows(), watching.notices) == ([1], [])
    assert watched_xs(watch(tmp_path, read_csv, pattern="*.tsv")) == [2]
    assert sorted(watched_xs(watch(tmp_path, read_csv, pattern="*"))) == [1, 2]
    assert sorted(watched_xs(watch(tmp_path, lambda path: read_csv(path)))) == [1, 2]


@pytest.mark.parametrize("read", [read_csv, read_json, read_parquet])
def test_a_schema_of_another_form_is_refused(read: Callable[..., object], tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"s": ["x"]}), path)
    twice = pa.schema([("s", pa.string()), ("s", pa.int64())])
    for schema, reason in (([("s", "string")], "a pyarrow schema, or types by column"), (twice, r"\['s'\] occur")):
        with pytest.raises(GraphError, match=f"schema=: .*{reason}"):
            read(path, schema=schema)
