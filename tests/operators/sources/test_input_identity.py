"""Files that change after a job began are refused, by a restore and within a run; copied ones need not be."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs, ipc

import dataflow as flow
import operators as op
from dataflow.clock import ManualClock
from dataflow.contracts.source import Source, SourceContext
from dataflow.errors import InputChanged
from operators.sources import known_file

CONTEXT = SourceContext("source", 0, 1, ManualClock())
LARGE = 200_000
"""Rows of a file above 1 MiB in every format."""


def write(path: Path, start: int = 0, rows: int = LARGE) -> Path:
    """A file of the format that the suffix of ``path`` names, of a size that depends on ``rows`` alone."""
    table = pa.table({"x": np.arange(start, start + rows)})
    match path.suffix:
        case ".csv":
            path.write_text("x\n" + "".join(f"{x:08}\n" for x in range(start, start + rows)))
        case ".json":
            path.write_text("".join(f'{{"x": {10_000_000 + x}}}\n' for x in range(start, start + rows)))
        case ".arrow":
            with ipc.new_file(str(path), table.schema) as out:
                out.write_table(table)
        case ".parquet":
            plain: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_statistics": False}
            pq.write_table(table, path, row_group_size=rows // 2, **plain)
    return path


READERS = {"a.csv": op.read_csv, "a.json": op.read_json, "a.arrow": op.read_ipc, "a.parquet": op.read_parquet}


@pytest.fixture(params=READERS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def edit(path: Path) -> None:
    """Change a byte in the middle; the size and the ends stay, the time of modification is another one."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    place = data.index(b"1", len(data) // 3) if path.suffix in (".csv", ".json") else len(data) // 3
    data[place] = ord("2") if data[place] == ord("1") else data[place] ^ 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))


def touch(path: Path) -> None:
    os.utime(path, (1, 1))


def run(
    source: Source, folder: Path, runner: Any = None, identity: Any = "mtime", watch: Callable[..., Any] | None = None
) -> flow.RunResult:
    """Run a pipeline over ``source`` to its end, from the checkpoint in ``folder`` on where there is one."""
    with flow.Pipeline("files") as p:
        rows = p.source(source, name="rows")
        (rows if watch is None else rows.map_batches(watch, name="watch")).sink(op.collect(), name="out")
    checkpoint = flow.Checkpointing(folder / "ckpt", every="1ms", input_identity=identity)
    return p.run(runner or "local", checkpoint=checkpoint)


# --- restores


def test_a_restore_refuses_an_edit_that_keeps_the_size_and_the_ends(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name)
    run(READERS[name](path), tmp_path)
    edit(path)
    with pytest.raises(InputChanged, match=rf"{name}.* last modified at .* and now at .*; if it was only copied"):
        run(READERS[name](path), tmp_path)


@pytest.mark.parametrize("seconds", [-1, 1 << 33, (1 << 34) - 1])
def test_a_file_from_before_1970_or_after_2262_is_read_and_restored(tmp_path: Path, name: str, seconds: int) -> None:
    path = write(tmp_path / name, rows=10)
    os.utime(path, (seconds, seconds))
    for _ in range(2):
        assert run(READERS[name](path), tmp_path).table("out").num_rows == 10


def test_a_file_whose_path_is_written_another_way_is_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / name, rows=10)
    for split in READERS[name](name).splits():
        READERS[name](tmp_path / name).check(split)


@pytest.mark.parametrize("runner", ["local", "simulated"])
def test_a_copied_file_is_recognised_by_its_content(tmp_path: Path, runner: str) -> None:
    path = write(tmp_path / "a.arrow")
    run(op.paced(op.read_ipc(path), 1e12), tmp_path, runner)
    touch(path)
    with pytest.raises(InputChanged, match="last modified"):
        run(op.paced(op.read_ipc(path), 1e12), tmp_path, runner)
    run(op.paced(op.read_ipc(path), 1e12), tmp_path, runner, "content")


@pytest.mark.parametrize(
    ("change", "message"), [({"start": 1}, "ends had hash"), ({"rows": LARGE + 2}, r"it had \d+ bytes")]
)
def test_by_content_another_size_and_other_ends_are_refused(
    tmp_path: Path, change: dict[str, int], message: str
) -> None:
    path = write(tmp_path / "a.arrow")
    run(op.read_ipc(path), tmp_path)
    write(path, **change)
    with pytest.raises(InputChanged, match=message):
        run(op.read_ipc(path), tmp_path, identity="content")


def test_a_small_file_is_compared_whole_so_its_time_does_not_matter(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, rows=10)
    run(READERS[name](path), tmp_path)
    touch(path)
    run(READERS[name](path), tmp_path)
    write(path, start=1, rows=10)
    touch(path)
    with pytest.raises(InputChanged, match="content had hash"):
        run(READERS[name](path), tmp_path)


def test_an_edit_that_sets_the_old_time_again_is_not_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.arrow")
    before = path.stat()
    run(op.read_ipc(path), tmp_path)
    edit(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    run(op.read_ipc(path), tmp_path)


def test_a_file_that_grew_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", rows=10)
    run(op.read_csv(path), tmp_path)
    with path.open("a") as more:
        more.write("00000010\n")
    with pytest.raises(InputChanged, match="it had 92 bytes and has 101"):
        run(op.read_csv(path), tmp_path)


def test_a_filesystem_has_the_same_rule(tmp_path: Path, name: str) -> None:
    path, store = write(tmp_path / name), fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    run(READERS[name](name, filesystem=store), tmp_path)
    edit(path)
    with pytest.raises(InputChanged, match="last modified"):
        run(READERS[name](name, filesystem=store), tmp_path)
    run(READERS[name](name, filesystem=store), tmp_path, identity="content")


class Timeless(fs.FileSystemHandler):  # type: ignore[misc]
    """The files below a directory, on a file system that keeps no times."""

    def __init__(self, folder: Path) -> None:
        self.files = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())

    def get_type_name(self) -> str:
        return "timeless"

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        return [fs.FileInfo(info.path, info.type, size=info.size) for info in self.files.get_file_info(paths)]

    def normalize_path(self, path: str) -> str:
        return path

    def open_input_file(self, path: str) -> pa.NativeFile:
        return self.files.open_input_file(path)

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__


for missing in fs.FileSystemHandler.__abstractmethods__ - Timeless.__dict__.keys():
    setattr(Timeless, missing, lambda *_: pytest.fail("not asked for by sources"))
Timeless.__abstractmethods__ = frozenset()


@pytest.mark.parametrize("name", ["a.csv", "a.arrow", "a.parquet"])
def test_without_times_size_and_hash_decide(tmp_path: Path, name: str) -> None:
    path, store = write(tmp_path / name), fs.PyFileSystem(Timeless(tmp_path))
    run(READERS[name](name, filesystem=store), tmp_path)
    touch(path)
    source = READERS[name](name, filesystem=store)
    run(source, tmp_path)
    write(path, start=1)
    for used in (source, READERS[name](name, filesystem=store)):  # one that was made before, and one of now
        with pytest.raises(InputChanged, match="ends had hash"):
            run(used, tmp_path)


# --- within a run


def test_a_file_that_changes_between_listing_and_opening_is_refused(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name)
    source = READERS[name](path)
    edit(path)
    with pytest.raises(InputChanged, match="last modified"):
        run(source, tmp_path)


def test_a_file_that_gets_another_size_before_it_is_opened_is_refused_whatever_its_time(
    tmp_path: Path, name: str
) -> None:
    path = write(tmp_path / name)
    source, before = READERS[name](path), path.stat()
    write(path, rows=LARGE + 2)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(InputChanged, match=rf"it had {before.st_size} bytes and has {path.stat().st_size}"):
        run(source, tmp_path)


def test_a_file_that_changes_between_two_of_its_splits_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet")

    def change(batch: pa.RecordBatch) -> pa.RecordBatch:
        touch(path)
        return batch

    with pytest.raises(InputChanged, match=r"a\.parquet#1'.* last modified"):
        run(op.read_parquet(path, split_by="row_group"), tmp_path, watch=change)


def test_a_file_is_hashed_once_however_many_splits_and_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[object] = []
    take = known_file.ends_hash
    monkeypatch.setattr(known_file, "ends_hash", lambda raw, whole: hashed.append(raw) or take(raw, whole=whole))
    pq.write_table(pa.table({"x": range(100)}), tmp_path / "a.parquet", row_group_size=2)
    for times in (1, 2):
        run(op.read_parquet(tmp_path / "a.parquet"), tmp_path)
        assert len(hashed) == times


@pytest.mark.parametrize("name", ["a.csv", "a.json"])
@pytest.mark.parametrize("lines", [-50_000, 1])
def test_text_that_grows_or_shrinks_while_it_is_read_is_refused(tmp_path: Path, name: str, lines: int) -> None:
    path = write(tmp_path / name)
    data = path.read_bytes()
    last = data.splitlines(keepends=True)[-1]

    def change(batch: pa.RecordBatch) -> pa.RecordBatch:
        os.truncate(path, len(data) + lines * len(last)) if lines < 0 else path.write_bytes(data + last)
        return batch

    with pytest.raises(InputChanged, match=r"it had \d+ bytes and \d+ were read"):
        run(READERS[name](path), tmp_path, watch=change)
