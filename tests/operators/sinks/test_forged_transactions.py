"""Handles in checkpoints and commit lists are untrusted: they may name no files but the sink's own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from dataflow.clock import ManualClock
from dataflow.contracts.operator import OperatorContext
from dataflow.contracts.sink import Handle
from dataflow.errors import CheckpointDamaged, CheckpointError, SinkBroken, StoreError
from dataflow.store.files import DISK, FileSystem
from operators.sinks.commits import CommitLists
from operators.sinks.parquet import read_committed, write_parquet

X = pa.schema({"x": pa.int64()})
MANY = pa.record_batch({"x": pa.array([n * 0x9E3779B97F4A7C15 % 2**63 for n in range(400_000)], pa.int64())})
"""Enough rows that some of them are written to the staged file at once."""


def writer(sink: Any, run: str) -> Any:
    context = OperatorContext("out", 0, 1, (X,), X, range(1), 1, None, ManualClock(), lambda due: None, run_id=run)
    return sink.writer(context)


def staged(sink: Any, run: str = "ours", checkpoint: int = 1) -> Sequence[Handle]:
    made = writer(sink, run)
    made.process(0, pa.record_batch({"x": pa.array([1], pa.int64())}), None)
    return made.prepare(checkpoint)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory with a file that no job may touch."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".profile").write_text("theirs")
    return tmp_path / "home"


def untouched(home: Path) -> bool:
    return {path.name: path.read_text() for path in home.iterdir()} == {".profile": "theirs"}


def begun(tmp_path: Path, **options: Any) -> Any:
    sink = write_parquet(tmp_path / "out", **options)
    sink.begin()
    return sink


@pytest.mark.parametrize("field", ["file", "staged"])
@pytest.mark.parametrize(
    "name",
    ["../home/.profile", "{home}/.profile", "..", "", "a\0b", "x" * 300, "part-1.parquet/../../home/.profile", 7],
)
def test_a_handle_that_leads_out_of_the_output_is_damage(tmp_path: Path, home: Path, field: str, name: Any) -> None:
    sink = begun(tmp_path)
    (handle,) = staged(sink)
    forged = {**handle, field: name.replace("{home}", str(home)) if isinstance(name, str) else name}
    with pytest.raises(CheckpointDamaged, match="a transaction of"):
        sink.recover(1, [forged])
    assert untouched(home)


@pytest.mark.parametrize("field", ["file", "staged", "rows", "size", "xxh3", "run"])
def test_a_handle_that_lacks_a_field_is_damage(tmp_path: Path, field: str) -> None:
    sink = begun(tmp_path)
    (handle,) = staged(sink)
    with pytest.raises(CheckpointDamaged, match=field):
        sink.recover(1, [{key: value for key, value in handle.items() if key != field}])


def test_a_handle_cannot_give_output_the_name_of_another_format(tmp_path: Path) -> None:
    sink = begun(tmp_path)
    (handle,) = staged(sink)
    with pytest.raises(CheckpointDamaged, match="expected the name of a file of format 'parquet'"):
        sink.recover(1, [{**handle, "file": "part-00000001-00000-0000.csv"}])


def test_a_staged_file_that_is_a_link_is_not_committed(tmp_path: Path, home: Path) -> None:
    sink = begun(tmp_path)
    (handle,) = staged(sink)
    path = tmp_path / "out" / "_staging" / str(handle["staged"])
    path.rename(home / "rows")
    path.symlink_to(home / "rows")
    with pytest.raises(StoreError, match="are gone"):
        sink.recover(1, [handle])
    assert not list((tmp_path / "out").glob("part-*"))


@pytest.mark.parametrize("if_exists", ["append", "overwrite", "error"])
@pytest.mark.parametrize("name", ["../home/.profile", "{home}/.profile", "a\0b"])
def test_a_commit_list_that_leads_out_of_the_output_deletes_nothing(
    tmp_path: Path, home: Path, if_exists: str, name: str
) -> None:
    sink = begun(tmp_path)
    sink.commit(1, staged(sink))
    path = tmp_path / "out" / "_commits" / "1.json"
    listed = msgspec.json.decode(path.read_bytes())
    listed["files"].append({**listed["files"][0], "file": name.replace("{home}", str(home))})
    path.write_bytes(msgspec.json.encode(listed))
    with pytest.raises(CheckpointError, match=r"1\.json: expected the files of checkpoint 1"):
        begun(tmp_path, if_exists=if_exists)
    with pytest.raises(StoreError):
        read_committed(tmp_path / "out")
    assert untouched(home)


@pytest.mark.parametrize("name", ["_staging", "_commits"])
@pytest.mark.parametrize("if_exists", ["append", "overwrite", "error"])
def test_a_link_in_the_place_of_a_directory_of_ours_is_not_followed(
    tmp_path: Path, home: Path, name: str, if_exists: str
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to(home)
    (home / "x.staged").touch()
    sink = write_parquet(tmp_path / "out", if_exists=if_exists)
    with pytest.raises(StoreError), sink.hold("run"):
        sink.begin()
    (home / "x.staged").unlink()
    assert untouched(home)


@pytest.mark.parametrize("name", ["LOCK", "FENCE"])
@pytest.mark.parametrize("plant", [os.symlink, os.link])
def test_a_lock_that_is_a_link_writes_nothing_elsewhere(tmp_path: Path, home: Path, name: str, plant: Any) -> None:
    (tmp_path / "out" / "_staging").mkdir(parents=True)
    plant(home / ".profile", tmp_path / "out" / "_staging" / name)
    with pytest.raises(StoreError), write_parquet(tmp_path / "out").hold("run"):
        pass
    assert untouched(home)


# --- a run that lost the directory and does not know it


def test_a_late_run_deletes_nothing_of_its_successor(tmp_path: Path) -> None:
    sink = begun(tmp_path)
    old, new = writer(sink, "run"), writer(sink, "run 2")
    for made in (old, new):
        made.process(0, MANY, None)
    sink.begin()  # the successor takes over: all that is staged is deleted
    handles = staged(sink, "new")
    old.close()
    new.close()
    sink.recover(1, handles)
    assert read_committed(tmp_path / "out")["x"].to_pylist() == [1]


def test_a_late_run_whose_rows_were_deleted_says_that_they_are_lost(tmp_path: Path) -> None:
    sink = begun(tmp_path)
    old = writer(sink, "old")
    old.process(0, MANY, None)
    sink.begin()
    with pytest.raises(SinkBroken, match="no longer there"):
        old.prepare(1)
    old.close()


def test_two_runs_stage_under_names_of_their_own(tmp_path: Path) -> None:
    sink = begun(tmp_path)
    assert staged(sink, "old")[0]["staged"] != staged(sink, "new")[0]["staged"]


def test_a_staged_file_is_deleted_only_where_its_name_is_still_its_own(tmp_path: Path) -> None:
    from dataflow.store.staging import StagedFile

    path = tmp_path / "a.staged"
    late = StagedFile(path)
    late.write(b"old")
    late.sync()
    DISK.remove(path)
    path.write_bytes(b"new")
    late.discard()
    assert path.read_bytes() == b"new"


class Noting(FileSystem):
    """Notes what is removed and which directories are synced, in order."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def remove(self, path: Path) -> None:
        super().remove(path)
        self.done.append(path.name)

    def sync_directory(self, path: Path) -> None:
        super().sync_directory(path)
        self.done.append(f"sync {path.name}")


def test_commit_lists_that_are_removed_stay_away_after_a_power_failure(tmp_path: Path) -> None:
    files = Noting()
    lists = CommitLists(tmp_path, files)
    lists.path.mkdir()
    lists.write(3, [])
    files.done.clear()
    lists.remove([3])
    assert files.done == ["3.json", "sync _commits"]
