"""A watched directory: each file is read once, in a stable order, whatever appears, goes, changes or crashes."""

from __future__ import annotations

import base64
import json
import os
import pickle
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from pyarrow import fs, ipc

import dataflow as flow
import operators as op
from dataflow.clock import ManualClock
from dataflow.errors import (
    BarrierflowWarning,
    CheckpointDamaged,
    ConfigurationError,
    InputChanged,
    SchemaMismatch,
    SourceError,
)
from dataflow.runners.faults import Faults
from dataflow.source import END, EndOfSplit, Json, Source, SourceContext, Split, SplitReader
from operators import read_csv, read_ipc, read_json, read_parquet, watch
from operators.sources.files import Files
from operators.sources.watch import WatchSource
from tests.operators.watched import FirstNames, bring


def put(folder: Path, name: str, *values: object, at: int) -> Path:
    """A file that appears whole, last modified at second ``at``."""
    hidden = folder / f".{name}"
    hidden.write_text("x\n" + "".join(f"{value}\n" for value in values))
    os.utime(hidden, (at, at))
    return hidden.rename(folder / name)


class Watching:
    """A reader of a watched directory, its clock, and a way to kill and restore it."""

    def __init__(self, source: Source, split: int = 0, offset: Json = None) -> None:
        self.clock = ManualClock()
        self.source = source
        self.split = split
        self.notices: list[str] = []
        context = SourceContext("watch", 0, 1, self.clock, notify=self._noted)
        self.reader = source.reader(source.splits()[split], offset, context)

    def _noted(self, category: type[BarrierflowWarning], text: str) -> None:
        self.notices.append(f"{category.__name__}: {text}")

    def rows(self, limit: int | None = None, rows: int = 1000) -> list[object]:
        """What comes until nothing does, or ``limit`` rows."""
        found: list[object] = []
        while limit is None or len(found) < limit:
            batch = self.reader.poll(rows)
            if batch is None:
                break
            assert isinstance(batch, pa.RecordBatch)
            found += batch.column(0).to_pylist()
        return found

    def later(self) -> Watching:
        self.clock.advance(1_000_000)
        return self

    def restored(self) -> Watching:
        return Watching(self.source, self.split, json.loads(json.dumps(self.reader.offset)))


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


@pytest.mark.parametrize("values", [(1,), (1, 2, 3), (1, 3)])
def test_a_file_that_changed_after_it_was_read_is_named(tmp_path: Path, values: tuple[int, ...]) -> None:
    put(tmp_path, "a.csv", 1, 2, at=1)
    watching = Watching(watch(tmp_path, read_csv))
    watching.rows()
    put(tmp_path, "a.csv", *values, at=2)
    for one in (watching.later(), watching.restored()):
        with pytest.raises(InputChanged, match=r"a\.csv' changed after it was read.*by renaming"):
            one.rows()


def test_a_file_that_changed_while_it_was_read_is_named(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", 1, 2, at=1)
    watching = Watching(watch(tmp_path, read_csv))
    watching.rows(limit=1, rows=1)
    with path.open("a") as more:
        more.write("3\n")
    with pytest.raises(InputChanged, match=r"a\.csv"):
        watching.restored()
    with pytest.raises(InputChanged, match=r"a\.csv' changed"):
        watching.rows()


def test_a_file_that_is_renamed_after_it_was_listed_is_read_once(tmp_path: Path) -> None:
    put(tmp_path, "a", 0, at=1)
    put(tmp_path, "b", 1, at=2)
    watching = Watching(watch(tmp_path, read_csv, schema={"x": pa.int64()}))
    assert watching.rows(1) == [0]
    (tmp_path / "b").rename(tmp_path / "c")
    assert (watching.rows(), watching.later().rows()) == ([], [1])
    (notice,) = watching.notices
    assert "/b' was removed or renamed after it was listed, and is not read" in notice


def test_a_file_that_went_while_it_was_read_cannot_be_restored(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", 1, 2, at=1)
    watching = Watching(watch(tmp_path, read_csv))
    watching.rows(limit=1, rows=1)
    path.unlink()
    with pytest.raises(InputChanged, match=r"taken within .*a\.csv"):
        watching.restored()


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


def test_the_names_are_encoded_anew_only_if_one_comes_or_goes(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", 1, at=1)
    watching = Watching(watch(tmp_path, read_csv))
    watching.rows()
    first: Any = watching.reader.offset
    watching.later().rows()
    second: Any = watching.reader.offset
    assert second["names"] is first["names"]
    put(tmp_path, "b.csv", 2, at=2)
    watching.later().rows()
    third: Any = watching.reader.offset
    assert len(base64.b64decode(third["names"])) == 2 * len(base64.b64decode(first["names"])) == 16


# --- directories that are away


def test_a_directory_that_cannot_be_listed_for_a_while_is_an_error_and_nothing_is_read_again(tmp_path: Path) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    put(inbox, "a.csv", 1, at=1)
    watching = Watching(watch(inbox, read_csv))
    watching.rows()
    inbox.rename(tmp_path / "away")
    with pytest.raises(SourceError, match="cannot be listed"):
        watching.later().rows()
    (tmp_path / "away").rename(inbox)
    for one in (watching.later(), watching.restored()):
        assert one.rows() == []


@pytest.mark.parametrize("after", [Watching.later, Watching.restored])
def test_an_empty_directory_in_its_place_for_a_while_makes_nothing_new(
    tmp_path: Path, after: Callable[[Watching], Watching]
) -> None:
    inbox, mount = tmp_path / "inbox", tmp_path / "mount"
    for folder in (inbox, mount):
        folder.mkdir()
    for index in range(3):
        put(inbox, f"{index}.csv", index, at=index)
    watching = Watching(watch(inbox, read_csv, remember=1))
    watching.rows()
    inbox.rename(tmp_path / "away")
    mount.rename(inbox)
    watching = after(watching)
    assert watching.rows() == watching.later().rows() == []
    (notice,) = watching.notices
    assert notice.startswith("InputMissingWarning: ")
    assert "another directory is there now, without any of the 3 files" in notice
    put(inbox, "new.csv", 9, at=0)
    assert watching.later().rows() == [9]
    (inbox / "new.csv").rename(tmp_path / "away" / "new.csv")
    inbox.rename(mount)
    (tmp_path / "away").rename(inbox)
    assert watching.later().rows() == watching.restored().rows() == []


def test_a_directory_that_was_copied_is_known_by_its_names(tmp_path: Path) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    for index in range(3):
        put(inbox, f"{index}.csv", index, at=index)
    watching = Watching(watch(inbox, read_csv))
    watching.rows()
    inbox.rename(tmp_path / "old")
    shutil.copytree(tmp_path / "old", inbox)
    (inbox / "0.csv").unlink()
    watching = watching.restored()
    assert watching.rows() == []
    put(inbox, "0.csv", 7, at=1)
    assert watching.later().rows() == [7]


# --- names and identities


@pytest.mark.parametrize("name", ["ä ö.csv", "line\nbreak.csv", "'\"\\.csv", "%23#.csv", "\N{GRINNING FACE}.csv"])
def test_odd_names_are_read_once(tmp_path: Path, name: str) -> None:
    put(tmp_path, name, 1, at=1)
    watching = Watching(watch(tmp_path, read_csv, remember=1))
    assert watching.rows() == [1]
    put(tmp_path, "b.csv", 2, at=0)
    assert watching.restored().rows() == [2]


def test_a_name_that_is_no_text_is_refused_by_name(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", 1, at=1)
    watching = Watching(watch(tmp_path, read_csv))
    watching.rows()
    put(tmp_path, os.fsdecode(b"\xff.csv"), 2, at=2)
    with pytest.raises(SourceError, match=r"xff\.csv|udcff\.csv.*its name is not UTF-8; rename it"):
        watching.later().rows()
    (tmp_path / os.fsdecode(b"\xff.csv")).rename(tmp_path / "b.csv")
    assert watching.restored().rows() == [2]


def test_a_file_that_was_read_and_touched_is_compared_by_its_content(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", 1, at=1)
    watching = Watching(watch(tmp_path, read_csv))
    watching.rows()
    put(tmp_path, "a.csv", 1, at=5)
    for one in (watching.later(), watching.restored()):
        assert one.rows() == []


def test_a_change_is_noticed_of_the_files_read_last_and_of_no_other(tmp_path: Path) -> None:
    for index in range(3):
        put(tmp_path, f"{index}.csv", index, at=9 - index)
    watching = Watching(watch(tmp_path, read_csv, remember=1))
    assert watching.rows() == [2, 1, 0]
    put(tmp_path, "2.csv", 7, at=20)
    assert watching.later().rows() == []
    put(tmp_path, "0.csv", 7, at=20)
    with pytest.raises(InputChanged, match=r"0\.csv' changed after it was read"):
        watching.later().rows()


def test_a_directory_of_large_files_may_be_copied_if_content_decides(tmp_path: Path) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    for name in ("a.csv", "b.csv"):
        put(inbox, name, *range(10**6, 10**6 + 150_000), at=1)
    source = watch(inbox, read_csv)
    watching = Watching(source)
    before = len(watching.rows(limit=160_000, rows=40_000))
    offset = json.loads(json.dumps(watching.reader.offset))
    for name in ("a.csv", "b.csv"):
        os.utime(inbox / name, (5, 5))
    with pytest.raises(InputChanged, match="last modified"):
        Watching(source, offset=offset)
    goes_on = Watching(source.identified_by("content"), offset=offset)
    assert before + len(goes_on.rows(rows=40_000)) == 300_000


# --- checkpoints of the older version


OLDER = {"mark": [3 * 10**9, "3.csv"], "done": {"4.csv": [4, 4 * 10**9], "5.csv": [4, 5 * 10**9]}, "file": None}


def test_an_older_checkpoint_keeps_its_rule_for_what_was_there(tmp_path: Path) -> None:
    for at in (1, 3, 4, 5, 6):
        put(tmp_path, f"{at}.csv", at, at=at)
    first = Watching(watch(tmp_path, read_csv), offset=OLDER)
    watching = first.restored()
    assert watching.rows() == [6]
    (notice,) = watching.notices
    assert notice.startswith("NewInputWarning: ")
    assert "2 files that were last modified at or before '3.csv' count as read" in notice
    put(tmp_path, "2.csv", 2, at=2)
    for one in (watching.later(), watching.restored()):
        assert one.rows() == [2]


def test_an_older_checkpoint_within_a_file_goes_on_there(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", 1, 2, 3, at=1)
    content = {"path": str(path), "bytes": 8, "content": ends_of(path)}
    split = {"id": str(path), "info": content}
    place = {"byte": 2, "line": 2, "rows": 1, "end": 8}
    file = {"name": "a.csv", "bytes": 8, "modified": 10**9, "split": split, "offset": place}
    older: Json = {"mark": None, "done": {}, "file": file}
    assert Watching(watch(tmp_path, read_csv), offset=older).rows() == [2, 3]
    touched = put(tmp_path, "a.csv", 1, 2, 3, at=2)
    with pytest.raises(InputChanged, match=f"{touched.name}' changed"):
        Watching(watch(tmp_path, read_csv), offset=older)


def ends_of(path: Path) -> str:
    """The hash that older checkpoints have of a file below 64 KiB."""
    return xxhash.xxh3_64_hexdigest(2 * path.read_bytes())


def test_names_that_are_damaged_are_refused(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", 1, at=1)
    for names in ("?", "AAAA", base64.b64encode(bytes(16)).decode()):
        offset: Json = {"names": names, "directory": None, "done": {}, "file": None}
        with pytest.raises(CheckpointDamaged, match="the names that were read are not the base64"):
            Watching(watch(tmp_path, read_csv), offset=offset)


def test_a_position_that_was_given_out_does_not_change(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", 1, at=1)
    put(tmp_path, "b.csv", 2, at=2)
    watching = Watching(watch(tmp_path, read_csv))
    given = [watching.reader.offset]
    texts = [json.dumps(given[0])]
    while watching.reader.poll(1) is not None:
        given.append(watching.reader.offset)
        texts.append(json.dumps(given[-1]))
    assert [json.dumps(offset) for offset in given] == texts


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
    with pytest.raises(SourceError, match="put a first one there"):
        watch(tmp_path, read_parquet)
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


def write_csv(path: Path, table: pa.Table) -> None:
    path.write_text("x\n" + "".join(f"{x}\n" for x in table["x"].to_pylist()))


def write_json(path: Path, table: pa.Table) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


def write_ipc(path: Path, table: pa.Table) -> None:
    with ipc.new_file(str(path), table.schema) as out:
        out.write_table(table, max_chunksize=4)


def write_parquet(path: Path, table: pa.Table) -> None:
    pq.write_table(table, path, row_group_size=4)


class UntilQuiet(Source):
    """A watched directory whose splits end once nothing is new, so that a job over it does."""

    def __init__(self, source: Source) -> None:
        self.source = source

    @property
    def schema(self) -> pa.Schema:
        return self.source.schema

    def splits(self) -> tuple[Split, ...]:
        return tuple(self.source.splits())

    def check(self, split: Split) -> None:
        self.source.check(split)

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        return _UntilQuiet(self.source.reader(split, offset, context))


class _UntilQuiet(SplitReader):
    def __init__(self, reader: SplitReader) -> None:
        self.reader = reader

    def poll(self, max_rows: int) -> pa.RecordBatch | EndOfSplit:  # type: ignore[override]
        batch = self.reader.poll(min(max_rows, 3))
        return END if batch is None else batch

    @property
    def offset(self) -> Json:
        return self.reader.offset

    def close(self) -> None:
        self.reader.close()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("write", "read"),
    [(write_csv, read_csv), (write_json, read_json), (write_ipc, read_ipc), (write_parquet, read_parquet)],
)
def test_each_row_of_each_format_comes_once_through_crashes(
    tmp_path: Path, write: Callable[[Path, pa.Table], None], read: Callable[..., Source], seed: int
) -> None:
    for index in range(5):
        write(tmp_path / f"{index}.data", pa.table({"x": range(10 * index, 10 * index + 10)}))
    source = watch(tmp_path, read, splits=2)
    with flow.Pipeline("watched") as p:
        p.source(UntilQuiet(source), name="rows").sink(op.collect(), name="out")
    crashing = flow.SimulatedRunner(seed=seed, faults=Faults(crashes=3))
    result = p.run(crashing, parallelism=2, checkpoint=flow.Checkpointing(flow.MemoryStore(), every="1ms"))
    assert sorted(result.table("out")["x"].to_pylist()) == list(range(50))


def test_columns_that_are_not_used_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,a\n")
    source = watch(tmp_path, read_csv, schema={"x": pa.int64(), "y": pa.int64()})
    assert isinstance(source, WatchSource)
    assert Watching(source.select(["x"])).rows() == [1]


def test_a_running_job_reads_what_appears_and_goes_on_after_a_stop(tmp_path: Path) -> None:
    inbox, seen = tmp_path / "inbox", {1: threading.Event(), 2: threading.Event()}
    inbox.mkdir()

    def tell(batch: pa.RecordBatch) -> pa.RecordBatch:
        for x in batch["x"].to_pylist():
            seen[x].set()
        return batch

    with flow.Pipeline("inbox") as p:
        source = watch(inbox, read_csv, schema={"x": pa.int64()}, every="5ms")
        p.source(source, name="files").map_batches(tell, name="tell").sink(op.collect(), name="out")
    checkpoints = flow.Checkpointing(tmp_path / "checkpoints", every="10ms")
    for x in (1, 2):
        with p.start(checkpoint=checkpoints, restore="auto") as job:
            put(inbox, f"{x}.csv", x, at=x)
            assert seen[x].wait(30)
            result = job.stop()
    assert result.table("out")["x"].to_pylist() == [1, 2]
    assert result.operator("files").rows_out == 1


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


def test_a_disk_that_cannot_be_asked_is_not_a_file_that_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "a.csv", 1, 2, at=10)
    watching = Watching(watch(tmp_path, read_csv))
    assert watching.rows(limit=2) == [1, 2]

    def refused(where: Files, path: str) -> None:
        raise OSError(5, "Input/output error", path)

    monkeypatch.setattr(Files, "status", refused)
    with pytest.raises(SourceError, match="was read, but whether it changed"):
        watching.rows()


@pytest.mark.parametrize("seed", range(4))
def test_files_of_any_age_that_come_at_any_moment_are_read_once_through_crashes(tmp_path: Path, seed: int) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    for index in range(8):
        (tmp_path / f"{index}").mkdir()
        put(
            inbox if index < 2 else tmp_path / f"{index}",
            f"{index}.csv",
            *range(5 * index, 5 * index + 5),
            at=9 - index,
        )

    def bring_older(batch: pa.RecordBatch) -> pa.RecordBatch:
        bring(tmp_path / f"{batch['x'][0].as_py() // 3 % 6 + 2}", inbox)
        return batch

    with flow.Pipeline("watched") as p:
        files = p.source(FirstNames(inbox, 8), name="files").map_batches(bring_older, name="bring")
        files.sink(op.collect(), name="out")
    crashing = flow.SimulatedRunner(seed=seed, faults=Faults(crashes=4))
    result = p.run(crashing, checkpoint=flow.Checkpointing(flow.MemoryStore(), every="1ms"))
    assert sorted(result.table("out")["x"].to_pylist()) == list(range(40))
