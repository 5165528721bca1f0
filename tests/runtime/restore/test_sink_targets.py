"""A restore compares the target of each two-phase sink with that of the checkpoint, before it changes anything."""

from __future__ import annotations

import itertools
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.sink import Handle, Sink, TakenBack
from dataflow.errors import (
    CheckpointMismatch,
    ConfigurationError,
    DirectoryInUse,
    OutputExists,
    RowsTakenBackWarning,
    StoreError,
    UnsupportedOnRunner,
)
from dataflow.runners.faults import Faults
from dataflow.runners.simulated import SimulatedRunner
from dataflow.runtime.task.crash_points import Point
from dataflow.store.folder import CheckpointFolder
from dataflow.store.manifest import EarlierTarget, Manifest, encode
from dataflow.testing import Ledger
from dataflow.testing.faulty_files import Crash, Fault, FaultyFileSystem
from dataflow.testing.ledger import LedgerSink
from operators.sinks.directory import OutputDirectory
from operators.sinks.files import FileSink, committed_files
from tests.operators.kinds import KINDS
from tests.seeds import in_extended

ROWS = 60


class Stops(Exception):
    """The job has an error in the middle of its input."""


def job(directory: Path, *sinks: Sink, stop: int = ROWS, runner: Any = None, **options: Any) -> flow.RunResult:
    """Run a job with its checkpoints in ``directory`` that writes the numbers below ROWS, and fails at ``stop``."""

    def check(batch: pa.RecordBatch) -> pa.RecordBatch:
        if stop in batch["x"].to_pylist():
            raise Stops
        return batch

    with flow.Pipeline("numbers") as p:
        rows = p.source(op.from_arrow(pa.table({"x": range(ROWS)}), batch_rows=2), name="in").map_batches(check)
        for number, sink in enumerate(sinks):
            rows.sink(sink, name=f"out{number or ''}")
    settings = flow.Checkpointing(directory, every="1ms", keep=99)
    return p.run(runner or SimulatedRunner(1), checkpoint=settings, **options)


def stopped(directory: Path, *sinks: Sink, stop: int = 50, **options: Any) -> list[Path]:
    """Run such a job until it fails; return the folders of its checkpoints. All but the newest are committed."""
    with pytest.raises(Stops):
        job(directory, *sinks, stop=stop, **options)
    return folders(directory)


def stopped_before_a_commit(directory: Path, *sinks: Sink, commits: int = 2) -> Path:
    """Run such a job until another one takes its output; return the newest checkpoint, which is only staged."""
    commit, calls = OutputDirectory.commit, itertools.count(1)

    def fail_late(self: OutputDirectory, checkpoint: int, handles: Sequence[Handle]) -> None:
        if next(calls) > commits:
            raise DirectoryInUse("taken over")
        commit(self, checkpoint, handles)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OutputDirectory, "commit", fail_late)
        with pytest.raises(DirectoryInUse):
            job(directory, *sinks)
    return folders(directory)[-1]


def folders(directory: Path) -> list[Path]:
    store = flow.DirectoryStore(directory)
    return [store.folder(checkpoint).path for checkpoint in store.checkpoints()]


def manifest(folder: Path) -> Manifest:
    return CheckpointFolder(folder).manifest()


def change_manifest(folder: Path, **fields: Any) -> None:
    (folder / "manifest.json").write_bytes(encode(msgspec.structs.replace(manifest(folder), **fields)))


def parquet(path: Path | str, **options: Any) -> FileSink:
    return FileSink(path, KINDS["parquet"].format, rows=4, **options)


def numbers(*outputs: Path) -> list[int]:
    """Return the numbers that any reader finds in the directories."""
    committed = [
        op.read_committed(output)["x"].to_pylist() for output in outputs if any((output / "_commits").iterdir())
    ]
    listed = [x for rows in committed for x in rows]
    files = [file for output in outputs for file in output.rglob("part-*")]
    assert len(files) == sum(len(committed_files(output)) for output in outputs)
    return sorted(listed)


def files_below(*directories: Path) -> dict[str, bytes]:
    """Return what the directories hold, without the locks."""
    below = [path for directory in directories for path in directory.rglob("*")]
    return {str(path): path.read_bytes() for path in below if path.is_file() and path.name not in ("LOCK", "FENCE")}


def last_row(folder: Path) -> int:
    """Return the last number that the source had read when a checkpoint was taken."""
    with flow.Checkpoint(folder) as checkpoint:
        return int(checkpoint.state("in")["offset"].to_pylist()[0]) - 1


def rows_after(folder: Path, output: Path) -> int:
    """Return how many rows of the output were committed after a checkpoint."""
    files = {
        file["file"]: file["rows"]
        for commits in (output / "_commits").glob("*.json")
        for file in msgspec.json.decode(commits.read_bytes())["files"]
    }
    return sum(rows for file, rows in files.items() if int(file.split("-")[1]) > manifest(folder).checkpoint)


# --- the same target


@pytest.mark.parametrize("format_", ["parquet", "json", *in_extended("csv", "ipc")])
def test_rows_committed_after_a_checkpoint_elsewhere_are_deleted_only_on_request(tmp_path: Path, format_: str) -> None:
    sink = FileSink(tmp_path / "out", KINDS[format_].format)
    middle = stopped(tmp_path / "a", sink)[1]
    before, later = files_below(tmp_path), rows_after(middle, tmp_path / "out")
    assert later > 0
    with pytest.raises(OutputExists, match=rf"{later:,} rows in \d+ files? that sink 'out' .* pass take_back=True"):
        job(tmp_path / "b", sink, restore=middle)
    assert files_below(tmp_path / "a", tmp_path / "out") == {k: v for k, v in before.items() if "/b/" not in k}
    with pytest.warns(RowsTakenBackWarning, match=rf"{later:,} rows"):
        job(tmp_path / "b", sink, restore=middle, take_back=True)
    assert numbers(tmp_path / "out") == list(range(ROWS))


def test_a_checkpoint_elsewhere_after_which_nothing_was_committed_continues_its_output(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "a", parquet(tmp_path / "out"))[-1]
    assert rows_after(folder, tmp_path / "out") == 0
    result = job(tmp_path / "b", parquet(tmp_path / "out"), restore=folder)
    assert numbers(tmp_path / "out") == list(range(ROWS))
    assert result.restore_report is not None
    assert result.restore_report.earlier_targets == {}


def test_rows_that_are_only_staged_are_committed_first(tmp_path: Path) -> None:
    folder = stopped_before_a_commit(tmp_path / "a", parquet(tmp_path / "out"))
    assert manifest(folder).transactions["out"]
    job(tmp_path / "b", parquet(tmp_path / "out"), restore=folder)
    assert numbers(tmp_path / "out") == list(range(ROWS))


def test_staged_rows_that_are_gone_are_refused_and_no_sink_is_changed(tmp_path: Path) -> None:
    sinks = [parquet(tmp_path / "first"), parquet(tmp_path / "out")]
    folder = stopped_before_a_commit(tmp_path / "a", *sinks, commits=4)
    for staged in (tmp_path / "out" / "_staging").glob("*.staged"):
        staged.unlink()
    before = files_below(tmp_path / "first", tmp_path / "out")
    assert any(name.endswith(".staged") for name in before), "the first sink has something to commit"
    with pytest.raises(StoreError, match="rows of a completed checkpoint are gone"):
        job(tmp_path / "b", *sinks, restore=folder, take_back=True)
    assert files_below(tmp_path / "first", tmp_path / "out") == before


def test_a_directory_is_the_same_by_a_link_or_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    middle = stopped(tmp_path / "a", parquet(tmp_path / "out"))[1]
    (tmp_path / "link").symlink_to("out")
    monkeypatch.chdir(tmp_path)
    for path in ("link", "out"):
        with pytest.raises(OutputExists, match="take_back"):
            job(tmp_path / "b", parquet(path), restore=middle)


def test_a_restore_in_the_own_directory_deletes_later_rows_with_a_warning(tmp_path: Path) -> None:
    middle = stopped(tmp_path / "a", parquet(tmp_path / "out"))[1]
    with pytest.warns(RowsTakenBackWarning):
        job(tmp_path / "a", parquet(tmp_path / "out"), restore=middle)
    assert numbers(tmp_path / "out") == list(range(ROWS))


def test_the_target_of_an_older_manifest_counts_as_the_same(tmp_path: Path) -> None:
    middle = stopped(tmp_path / "a", parquet(tmp_path / "out"))[1]
    change_manifest(middle, targets={})
    with pytest.raises(OutputExists, match="take_back"):
        job(tmp_path / "b", parquet(tmp_path / "out"), restore=middle)


def test_a_transaction_that_was_committed_with_a_later_checkpoint_is_not_taken_back(tmp_path: Path) -> None:
    folder = stopped_before_a_commit(tmp_path / "a", parquet(tmp_path / "out"))
    number, handles = manifest(folder).checkpoint, manifest(folder).transactions["out"]
    sink = parquet(tmp_path / "out")
    sink.commit(number + 1, handles)
    assert sink.would_take_back(number, handles) is None
    assert isinstance(sink.would_take_back(number - 1, []), TakenBack)
    job(tmp_path / "b", sink, restore=folder)
    assert numbers(tmp_path / "out") == list(range(ROWS))


def test_output_that_another_job_has_appended_to_is_refused(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "a", parquet(tmp_path / "out"))[1]
    job(tmp_path / "c", parquet(tmp_path / "out", if_exists="append"))
    with pytest.raises(OutputExists, match="another job has appended to this output since"):
        job(tmp_path / "b", parquet(tmp_path / "out"), restore=folder)


# --- another target


@pytest.mark.parametrize("directory", ["a", "b"])
def test_at_another_target_a_sink_begins_and_the_report_says_where_earlier_rows_are(
    tmp_path: Path, directory: str
) -> None:
    folder = stopped(tmp_path / "a", parquet(tmp_path / "out"))[-2]
    number, before = manifest(folder).checkpoint, files_below(tmp_path / "out")
    with pytest.raises(Stops):
        job(tmp_path / directory, parquet(tmp_path / "new"), restore=folder, stop=56)
    report = job(tmp_path / directory, parquet(tmp_path / "new")).restore_report
    assert report is not None
    assert files_below(tmp_path / "out") == before
    assert numbers(tmp_path / "out", tmp_path / "new") == list(range(ROWS))
    left = EarlierTarget(str(tmp_path / "out"), number)
    assert report.earlier_targets == {"out": (left,)}
    assert f"out  up to checkpoint {number} in {tmp_path / 'out'}" in str(report)
    assert report.to_json()["earlier_targets"] == [{"sink": "out", **msgspec.structs.asdict(left)}]


def test_rows_that_are_only_staged_keep_a_sink_from_another_target(tmp_path: Path) -> None:
    folder = stopped_before_a_commit(tmp_path / "a", parquet(tmp_path / "out"))
    with pytest.raises(OutputExists, match=r"has not committed 1 transaction of the checkpoint.*restore with that"):
        job(tmp_path / "b", parquet(tmp_path / "new"), restore=folder)
    assert files_below(tmp_path / "new") == {}
    with pytest.raises(OutputExists, match="has not committed"):
        job(tmp_path / "a", parquet(tmp_path / "new"))


def test_a_target_that_is_gone_is_believed_of_an_exported_savepoint_only(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "a", parquet(tmp_path / "out"))[-2]
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(OutputExists, match=r"nothing tells whether they are committed .*exported savepoint"):
        job(tmp_path / "b", parquet(tmp_path / "new"), restore=folder)
    change_manifest(folder, kind="savepoint")
    job(tmp_path / "b", parquet(tmp_path / "new"), restore=folder)
    assert numbers(tmp_path / "new")[-1] == ROWS - 1


def test_moved_output_is_not_overwritten(tmp_path: Path) -> None:
    stopped(tmp_path / "a", parquet(tmp_path / "out"))
    (tmp_path / "out").rename(tmp_path / "moved")
    before = files_below(tmp_path / "moved")
    with pytest.raises(OutputExists, match="if it was moved here, move it back"):
        job(tmp_path / "a", parquet(tmp_path / "moved", if_exists="overwrite"))
    assert files_below(tmp_path / "moved") == before


def test_another_target_that_refuses_keeps_the_other_sinks_unchanged(tmp_path: Path) -> None:
    folder = stopped_before_a_commit(tmp_path / "a", parquet(tmp_path / "first"), parquet(tmp_path / "out"), commits=3)
    parquet(tmp_path / "out").commit(manifest(folder).checkpoint, manifest(folder).transactions["out1"])
    job(tmp_path / "c", parquet(tmp_path / "used"))
    before = files_below(tmp_path / "first", tmp_path / "out", tmp_path / "used")
    with pytest.raises(OutputExists, match="already holds"):
        job(tmp_path / "b", parquet(tmp_path / "first"), parquet(tmp_path / "used"), restore=folder)
    assert files_below(tmp_path / "first", tmp_path / "out", tmp_path / "used") == before


@pytest.mark.parametrize("if_exists", ["overwrite", *in_extended("error", "append")])
def test_sinks_cannot_swap_their_targets(tmp_path: Path, if_exists: Any) -> None:
    one, other = (parquet(tmp_path / name, if_exists=if_exists) for name in ("one", "other"))
    folder = stopped(tmp_path / "a", one, other)[-2]
    before = files_below(tmp_path / "one", tmp_path / "other")
    with pytest.raises(CheckpointMismatch, match=r"sink 'out' would begin in .*/other, .* rows of sink 'out1' up to"):
        job(tmp_path / "b", other, one, restore=folder)
    assert files_below(tmp_path / "one", tmp_path / "other") == before


def test_a_sink_does_not_return_to_a_target_that_it_has_left(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "a", parquet(tmp_path / "out"), stop=30)[-2]
    stopped(tmp_path / "a", parquet(tmp_path / "new"), restore=folder)
    with pytest.raises(CheckpointMismatch, match=r"holds the rows of sink 'out' up to checkpoint \d+"):
        job(tmp_path / "a", parquet(tmp_path / "out", if_exists="overwrite"))


def test_a_restore_from_before_a_change_of_target_takes_back_the_rows_at_the_new_one(tmp_path: Path) -> None:
    old = stopped(tmp_path / "a", parquet(tmp_path / "out"), stop=30)[-2]
    append = parquet(tmp_path / "new", if_exists="append")
    job(tmp_path / "c", append)  # rows of another job
    stopped(tmp_path / "a", append, restore=old)
    with pytest.warns(RowsTakenBackWarning):
        job(tmp_path / "a", append, restore=manifest(old).checkpoint)
    assert Counter(numbers(tmp_path / "out", tmp_path / "new")) == Counter([*range(ROWS)] * 2)


def test_a_sink_that_is_inside_of_the_restored_checkpoint_is_refused(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "a", parquet(tmp_path / "out"))[-1]
    before = files_below(folder)
    with pytest.raises(ConfigurationError, match=r"sink 'out' writes to .*inside of the checkpoint that restore="):
        job(tmp_path / "b", parquet(folder / "out"), restore=folder)
    assert files_below(folder) == before
    assert not (folder / "out").exists()


# --- sinks of users


class Table(LedgerSink):
    """A user's sink with a target. If it ``tells``, it says which rows it would take back."""

    def __init__(self, world: Ledger, target: str | None = "db/table", *, tells: bool = False) -> None:
        super().__init__(world)
        self._target, self._tells = target, tells

    @property
    def target(self) -> str | None:
        return self._target

    def would_take_back(self, checkpoint: int, handles: Sequence[Handle]) -> TakenBack | None:
        if not self._tells:
            return super().would_take_back(checkpoint, handles)
        rows = [t.rows for t in self._world._visible.values() if t.prepared > checkpoint]
        return TakenBack(sum(map(len, rows)), 0) if rows else None


def test_a_sink_that_cannot_tell_of_later_rows_needs_the_request_to_delete_them(tmp_path: Path) -> None:
    world = Ledger()
    middle = stopped(tmp_path / "a", Table(world))[1]
    with pytest.raises(OutputExists, match=r"Table cannot tell .*define its would_take_back\(\).*take_back=True"):
        job(tmp_path / "b", Table(world), restore=middle)
    with pytest.raises(OutputExists, match=r"\d+ rows in 0 files that sink 'out' committed to db/table"):
        job(tmp_path / "b", Table(world, tells=True), restore=middle)
    assert world.rolled_back == 0
    job(tmp_path / "b", Table(world), restore=middle, take_back=True)
    assert sorted(world.rows().elements()) == [(x,) for x in range(ROWS)]


def test_a_sink_without_a_target_recovers_as_ever(tmp_path: Path) -> None:
    world = Ledger()
    middle = stopped(tmp_path / "a", Table(world, None))[1]
    job(tmp_path / "b", Table(world, None), restore=middle)
    assert world.rolled_back > 0
    assert sorted(world.rows().elements()) == [(x,) for x in range(ROWS)]


def test_a_sink_that_cannot_tell_what_is_committed_leaves_its_target_after_a_savepoint_only(tmp_path: Path) -> None:
    world, other = Ledger(), Ledger()
    folder = stopped(tmp_path / "a", Table(world))[-2]
    assert manifest(folder).transactions["out"]
    with pytest.raises(OutputExists, match="nothing tells whether they are committed there"):
        job(tmp_path / "b", Table(other, "db/other"), restore=folder)
    change_manifest(folder, kind="savepoint")
    job(tmp_path / "b", Table(other, "db/other"), restore=folder)
    assert sorted((world.rows() + other.rows()).elements()) == [(x,) for x in range(ROWS)]


# --- crashes


class Restored(Exception):
    """The restore is over: a writer stages its first row."""


def crash_in_restore(at: int) -> Fault:
    """Crash right before operation ``at``, if the restore has so many."""

    def fault(number: int, name: str, path: Path) -> None:
        if number == at:
            raise Crash
        if name == "create" and path.suffix == ".staged":
            raise Restored

    return fault


@pytest.mark.parametrize("target", ["out", "new"])
@pytest.mark.parametrize("start", ["staged", "later rows"])
@pytest.mark.parametrize("every", [7, *in_extended(1)])
@pytest.mark.filterwarnings("ignore::dataflow.errors.RowsTakenBackWarning")
def test_after_a_crash_at_any_operation_of_a_restore_the_next_start_loses_and_repeats_no_row(
    tmp_path: Path, target: str, start: str, every: int
) -> None:
    out = parquet(tmp_path / "out")
    folder = stopped_before_a_commit(tmp_path / "a", out) if start == "staged" else stopped(tmp_path / "a", out)[1]
    if start == "staged" and target == "new":
        out.commit(manifest(folder).checkpoint, manifest(folder).transactions["out"])
    (tmp_path / "out").rename(tmp_path / "before")
    options = {"restore": folder, "take_back": True}
    for at in range(1, 1_000, every):
        for name in ("b", "out", "new"):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
        shutil.copytree(tmp_path / "before", tmp_path / "out")
        sink = parquet(tmp_path / target, files=FaultyFileSystem(crash_in_restore(at)))
        try:
            with pytest.raises(Crash):
                job(tmp_path / "b", sink, **options)
        except Restored:
            break
        job(tmp_path / "b", parquet(tmp_path / target), **options)
        kept = [x for x in numbers(tmp_path / "out") if target == "out" or x <= last_row(folder)]
        assert kept + (numbers(tmp_path / "new") if target == "new" else []) == list(range(ROWS)), f"a crash at {at}"
    assert at > 12, f"a restore has more than {at} operations"


@pytest.mark.parametrize("target", ["out", "new"])
def test_a_simulated_crash_in_the_restore_is_followed_by_the_same_restore(tmp_path: Path, target: str) -> None:
    folder = stopped(tmp_path / "a", parquet(tmp_path / "out"))[-2]
    (tmp_path / "out").rename(tmp_path / "before")
    for seed in (1, 2):
        shutil.copytree(tmp_path / "before", tmp_path / "out")
        crashing = SimulatedRunner(seed, Faults(crashes=1, crash_at=(Point.RECOVERY,)))
        result = job(tmp_path / "b", parquet(tmp_path / target), runner=crashing, restore=folder)
        assert result.restarts == 1
        assert numbers(*{tmp_path / "out", tmp_path / target}) == list(range(ROWS))
        for name in {"b", "out", target}:
            shutil.rmtree(tmp_path / name)


# --- the option


def test_the_option_take_back_is_true_or_false_and_not_on_spark(tmp_path: Path) -> None:
    for runner in ("local", SimulatedRunner(1)):
        with pytest.raises(ConfigurationError, match="take_back= must be True or False, got 'yes'"):
            job(tmp_path / "a", parquet(tmp_path / "out"), runner=runner, take_back="yes")
    with pytest.raises(UnsupportedOnRunner, match="take_back=True: not on the spark runner"):
        job(tmp_path / "a", parquet(tmp_path / "out"), runner="spark", take_back=True)
    assert not os.path.exists(tmp_path / "out")


def test_rows_are_taken_back_on_threads_too(tmp_path: Path) -> None:
    middle = stopped(tmp_path / "a", parquet(tmp_path / "out"))[1]
    with pytest.raises(OutputExists, match="take_back=True"):
        job(tmp_path / "b", parquet(tmp_path / "out"), runner="local", restore=middle)
    with pytest.warns(RowsTakenBackWarning):
        job(tmp_path / "b", parquet(tmp_path / "out"), runner="local", restore=middle, take_back=True)
    assert numbers(tmp_path / "out") == list(range(ROWS))
