"""Which files of a watched directory are read, in which order, and with which columns."""

from __future__ import annotations

import pickle
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

import operators as op
from dataflow.contracts.source import SplitReader
from dataflow.errors import ConfigurationError, InputChanged, SchemaMismatch, SourceError
from operators import read_csv, read_ipc, watch
from operators.sources.text import TextReader
from operators.sources.watch import WatchSource
from tests.operators.sources.watching import Watching, put


def test_new_files_are_read_once_as_they_appear(tmp_path: Path) -> None:
    put(tmp_path, "b.csv", 1, 2, at=10)
    watching = Watching(watch(tmp_path, read_csv))
    assert watching.rows() == [1, 2]
    put(tmp_path, "a.csv", 3, at=20)
    assert watching.rows() == []
    assert watching.later().rows() == [3]
    assert watching.later().rows() == []


def test_files_come_by_time_of_modification_then_name(tmp_path: Path) -> None:
    for name, value, at in (("c.csv", 2, 10), ("a.csv", 4, 30), ("b.csv", 1, 5), ("d.csv", 3, 10)):
        put(tmp_path, name, value, at=at)
    assert Watching(watch(tmp_path, read_csv)).rows() == [1, 2, 3, 4]


def test_what_is_hidden_unfinished_or_does_not_fit_is_left_alone(tmp_path: Path) -> None:
    for name in ("_a.csv", ".b.csv", "c.csv.tmp", "d.csv.staged", "e.csv~", "f.txt", "g.csv.part"):
        (tmp_path / name).write_text("x\n9\n")
    (tmp_path / "folder.csv").mkdir()
    put(tmp_path, "h.csv", 1, at=1)
    assert Watching(watch(tmp_path, read_csv, pattern="*.csv*")).rows() == [1]


def test_a_reader_that_was_killed_anywhere_goes_on_exactly(tmp_path: Path) -> None:
    for index in range(4):
        put(tmp_path, f"{index}.csv", *range(3 * index, 3 * index + 3), at=index)
    source = watch(tmp_path, read_csv)
    for taken in range(13):
        first = Watching(source)
        before = first.rows(limit=taken, rows=1)
        assert before + first.restored().rows() == list(range(12))


def test_files_that_appear_between_a_kill_and_a_restore_are_read(tmp_path: Path) -> None:
    put(tmp_path, "b.csv", 1, 2, at=10)
    first = Watching(watch(tmp_path, read_csv))
    assert first.rows(limit=1, rows=1) == [1]
    put(tmp_path, "a.csv", 3, at=5)
    put(tmp_path, "c.csv", 4, at=5)
    assert first.restored().rows() == [2, 3, 4]


def test_a_file_that_was_read_may_go_and_its_name_come_again(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", 1, at=1)
    watching = Watching(watch(tmp_path, read_csv))
    assert watching.rows() == [1]
    path.unlink()
    assert watching.later().rows() == []
    offset: Any = watching.reader.offset
    assert (offset["names"], offset["done"], offset["file"]) == ("", {}, None)
    put(tmp_path, "a.csv", 2, at=1)
    assert watching.later().rows() == [2]


def test_a_file_that_is_renamed_after_it_was_listed_is_read_once(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", 0, at=1)
    put(tmp_path, "b.csv", 1, at=2)
    watching = Watching(watch(tmp_path, read_csv, schema={"x": pa.int64()}))
    assert watching.rows(1) == [0]
    (tmp_path / "b.csv").rename(tmp_path / "c.csv")
    assert (watching.rows(), watching.later().rows()) == ([], [1])
    (notice,) = watching.notices
    assert "/b.csv' was removed or renamed after it was listed, and is not read" in notice


def test_a_file_of_any_age_is_read_whatever_is_remembered(tmp_path: Path) -> None:
    for index in range(9):
        put(tmp_path, f"{index}.csv", index, at=index)
    watching = Watching(watch(tmp_path, read_csv, remember=3))
    assert watching.rows() == list(range(9))
    offset: Any = watching.reader.offset
    assert list(offset["done"]) == ["6.csv", "7.csv", "8.csv"]
    put(tmp_path, "late.csv", 99, at=7)
    put(tmp_path, "oldest.csv", 100, at=0)
    assert watching.restored().rows() == [100, 99]
    assert watching.later().rows() == [100, 99]


@pytest.mark.parametrize(
    "bring",
    [
        lambda file, to: shutil.move(file, to),
        lambda file, to: shutil.copy2(file, to),
        lambda file, to: subprocess.run(["cp", "-p", file, to], check=True),
    ],
)
def test_a_file_that_is_moved_in_with_its_old_time_is_read(tmp_path: Path, bring: Callable[..., object]) -> None:
    inbox, elsewhere = tmp_path / "inbox", tmp_path / "elsewhere"
    for folder in (inbox, elsewhere):
        folder.mkdir()
    for index in range(3):
        put(inbox, f"{index}.csv", index, at=10 + index)
    old = put(elsewhere, "old.csv", 9, at=1)
    watching = Watching(watch(inbox, read_csv, remember=1))
    watching.rows()
    bring(old, inbox / "old.csv")
    assert watching.later().rows() == [9]
    assert watching.restored().rows() == []


def test_a_name_is_read_once_however_many_came_after_it(tmp_path: Path) -> None:
    watching = Watching(watch(tmp_path, read_csv, remember=1, schema={"x": pa.int64()}))
    for at in (5, 3, 9, 1, 7):
        put(tmp_path, f"{at}.csv", at, at=at)
        assert watching.later().rows() == [at]
        watching = watching.restored()
        assert watching.rows() == []


def test_splits_deal_the_files_out(tmp_path: Path) -> None:
    for index in range(12):
        put(tmp_path, f"{index}.csv", index, at=index)
    source = watch(tmp_path, read_csv, splits=3)
    parts = [Watching(source, split).rows() for split in range(3)]
    assert all(parts)
    assert sorted(row for part in parts for row in part) == list(range(12))  # type: ignore[type-var]


def test_a_restore_with_other_splits_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", 1, at=1)
    split = watch(tmp_path, read_csv, splits=2).splits()[0]
    with pytest.raises(InputChanged, match="give the same directory and splits="):
        watch(tmp_path, read_csv).check(split)


def test_an_empty_directory_needs_a_schema(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="give schema="):
        watch(tmp_path, read_csv)
    with pytest.raises(SourceError, match="put a first file there"):
        watch(tmp_path, read_ipc)
    watching = Watching(watch(tmp_path, read_csv, schema={"x": pa.int64()}, on_error="side"))
    assert watching.rows() == []
    put(tmp_path, "a.csv", 1, "two", at=1)
    assert watching.later().rows() == [1]
    assert watching.source.sides.keys() == {"errors"}


def test_empty_files_are_done_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    put(tmp_path, "b.csv", at=1)
    put(tmp_path, "c.csv", 1, at=2)
    assert Watching(watch(tmp_path, read_csv, schema={"x": pa.int64()})).rows() == [1]


def test_types_are_those_of_the_first_file(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", 1, at=1)
    put(tmp_path, "b.csv", "b", at=2)
    watching = Watching(watch(tmp_path, read_csv))
    assert watching.rows(limit=1) == [1]
    with pytest.raises(SourceError, match=r"b\.csv:2: column 'x': invalid value 'b' for int64"):
        watching.rows()


def test_a_file_with_other_columns_is_named(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", 1, at=1)
    watching = Watching(watch(tmp_path, read_csv))
    (tmp_path / "b.csv").write_text("x,y\n1,2\n")
    with pytest.raises(SchemaMismatch, match=r"b\.csv' has columns .*'y'"):
        watching.rows()


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"nowhere'.*cannot be listed"):
        watch(tmp_path / "nowhere", read_csv)


@pytest.mark.parametrize("wrong", [{"splits": 0}, {"remember": 0}, {"every": 1}])
def test_settings_out_of_range_are_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        watch(tmp_path, read_csv, **wrong)  # type: ignore[arg-type]


def test_a_directory_of_a_filesystem_is_watched(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", 1, at=1)
    store = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    source = watch("", read_csv, filesystem=store)
    watching = Watching(pickle.loads(pickle.dumps(source)))
    assert (watching.rows(), source.blocking) == ([1], True)
    put(tmp_path, "b.csv", 2, at=2)
    assert watching.restored().rows() == [2]


def test_columns_that_are_not_used_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,a\n")
    source = watch(tmp_path, read_csv, schema={"x": pa.int64(), "y": pa.int64()})
    assert isinstance(source, WatchSource)
    assert Watching(source.select(["x"])).rows() == [1]


def test_a_pace_passes_on_what_was_set_aside(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", 1, "two", at=1)
    source = op.paced(read_csv(tmp_path, schema={"x": pa.int64()}, on_error="side"), 1_000_000)
    watching = Watching(source)
    assert watching.reader.poll(10) is None
    watching.later()
    assert isinstance(batch := watching.reader.poll(10), pa.RecordBatch)
    assert batch["x"].to_pylist() == [1]
    assert watching.reader.rejected() is not None
    assert source.sides.keys() == {"errors"}


def test_a_batch_of_a_file_that_was_cut_is_said_to_go_on(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", 1, 2, 3, at=1)
    watching = Watching(watch(tmp_path, read_csv, batch_rows=2))
    told = [(len(watching.rows(limit=1, rows=1)), watching.reader.mid_batch) for _ in range(4)]
    assert told == [(1, True), (1, False), (1, False), (0, False)]


def test_a_file_whose_reader_cannot_be_closed_is_noted_and_the_next_one_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(reader: SplitReader) -> None:
        raise ConnectionError("still open")

    for name, value in (("a.csv", 1), ("b.csv", 2)):
        put(tmp_path, name, value, at=value)
    watching = Watching(watch(tmp_path, read_csv))
    monkeypatch.setattr(TextReader, "close", close)
    assert watching.rows() == [1, 2]
    assert watching.notices == [
        f"CleanupFailedWarning: watch: closing the reader of '{tmp_path / name}' raised ConnectionError('still open')"
        for name in ("a.csv", "b.csv")
    ]
