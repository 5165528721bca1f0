"""The file sink, in each format, on a disk that fails, crashes or loses power at each of its operations in turn.

A small engine drives it: rows 0, 1, 2, ... with a checkpoint after each four; what is in ``Engine.completed`` is what a
manifest would hold. At any point all readers may see committed rows only; after the restart, every row once.
"""

from __future__ import annotations

import collections
import errno
import json
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from dataflow.clock import ManualClock
from dataflow.contracts.operator import OperatorContext
from dataflow.contracts.sink import Handle
from dataflow.errors import SinkBroken, StoreError
from dataflow.store.files import FileSystem
from dataflow.store.staging import StagedFile
from dataflow.testing.faulty_files import Crash, Fault, FaultyFileSystem, crash_at, fail_at, fail_from, no_fault
from operators.sinks import file_writer
from operators.sinks.file_writer import FileWriter
from operators.sinks.files import FileSink, IfExists, committed_files, read_committed
from operators.sinks.parquet import write_parquet
from tests.forcing import Force
from tests.operators.kinds import IN_FOLDERS, KINDS, Kind
from tests.seeds import in_soak, seeds

X = pa.schema({"x": pa.int64()})
ROWS, EVERY, SUBTASKS = 12, 4, 2


class NeverRecovers(Exception):
    """The disk stayed full for as long as the engine tried."""


class NoOut:
    def emit(self, batch: pa.RecordBatch, tag: str | None = None) -> None:
        raise AssertionError("a sink emits nothing")


class Engine:
    """Drives one sink from a checkpoint on."""

    def __init__(self, kind: Kind, path: Path, files: FileSystem) -> None:
        self.kind = kind
        self.path = path
        self.files = files
        self.completed: tuple[int, int, list[Handle]] = (0, 0, [])  # id, rows read, transactions to commit
        self.committed = 0  # rows below this must show
        self.highest = 0
        self.attempts = 0
        self.writers: list[FileWriter] = []

    def run(self) -> None:
        """Start or restart; returns when all rows are committed."""
        sink = self.kind.sink(self.path, files=self.files)
        checkpoint, position, pending = self.completed
        if checkpoint:
            sink.recover(checkpoint, pending)
            self.committed = position
            pending = []
        else:
            sink.begin()
        schema = self.kind.rows(0).schema
        self.writers = [sink.writer(context(subtask, schema)) for subtask in range(SUBTASKS)]
        while position < ROWS or self.committed < ROWS:
            for _ in range(EVERY if position < ROWS else 0):
                self.writers[position % SUBTASKS].process(0, self.kind.rows(position), NoOut())
                position += 1
            pending = self._checkpoint(sink, position, pending)
        self.close()

    def _checkpoint(self, sink: FileSink, position: int, pending: list[Handle]) -> list[Handle]:
        self.highest += 1
        self.attempts += 1
        if self.attempts > 20:
            raise NeverRecovers
        failed = False
        for writer in self.writers:
            try:
                pending = [*pending, *json.loads(json.dumps(writer.prepare(self.highest)))]
            except StoreError:
                failed = True
        if failed:
            return pending
        self.completed = (self.highest, position, pending)
        try:
            sink.commit(self.highest, pending)
        except StoreError:
            return pending
        self.committed = position
        return []

    def close(self) -> None:
        for writer in self.writers:
            writer.close()

    def check(self) -> None:
        """What readers see now; pyarrow stands for all where only their number would grow."""
        self._check(self.seen())

    def check_with_all_readers(self) -> None:
        """What all readers see now; they must agree, and be able to read every file."""
        seen = self.seen()
        for reader in self.kind.readers:
            assert self.seen(reader) == seen, reader
        self._check(seen)

    def seen(self, reader: str = "pyarrow") -> Counter[int]:
        return Counter(row["x"] for row in self.kind.read(reader, self.path))

    def _check(self, seen: Counter[int]) -> None:
        assert set(seen) >= set(range(self.committed)), "a committed row is gone"
        assert set(seen) <= set(range(self.completed[1])), "an uncommitted row shows"
        assert max(seen.values(), default=1) == 1, "a row shows twice"
        whole = Counter(read_committed(self.path)["x"].to_pylist()) if committed_files(self.path) else Counter()
        assert sorted(whole.elements()) == list(range(len(whole)))
        assert len(whole) % EVERY == 0, "a part of a checkpoint is listed as committed"

    def restart(self) -> None:
        """A new process on a healthy disk, to the end."""
        self.files, self.attempts = FaultyFileSystem(), 0
        self.run()
        assert sorted(self.seen().elements()) == list(range(ROWS))
        assert sorted(read_committed(self.path)["x"].to_pylist()) == list(range(ROWS))
        assert list((self.path / "_staging").iterdir()) == []


def context(subtask: int, schema: pa.Schema = X) -> OperatorContext:
    return OperatorContext(
        "out", subtask, SUBTASKS, (schema,), schema, range(128), 128, None, ManualClock(), lambda due: None
    )


SAMPLED = {
    **KINDS,
    "in folders": IN_FOLDERS,
    "some of parquet": replace(KINDS["parquet"], every=3),
    "some in folders": replace(IN_FOLDERS, every=13),
}


@pytest.fixture(
    params=["some in folders", *in_soak("some of parquet", "parquet", "in folders", "csv.gz", "json", "ipc")]
)
def kind(request: pytest.FixtureRequest, force: Force) -> Kind:
    """A kind of sink; the rules are the same for all."""
    if "in folders" in request.param:
        force(file_writer, "_MOST_OPEN", 1, calls=FileWriter._settle_oldest)
    return SAMPLED[request.param]


def positions(kind: Kind, tmp_path: Path) -> Iterator[tuple[int, Path]]:
    files = FaultyFileSystem()
    engine = Engine(kind, tmp_path / "undisturbed", files)
    engine.run()
    engine.check()
    assert len(files.log) > 50, len(files.log)
    for at in range(1, len(files.log) + 1, kind.every):
        yield at, tmp_path / f"at-{at}"


def crash(engine: Engine) -> None:
    with pytest.raises(Crash):
        engine.run()
    for writer in engine.writers:  # a dead process closes its files and removes none
        for staged in writer._staged():
            staged.abandon()


def test_after_a_crash_at_any_operation_every_row_is_there_once(kind: Kind, tmp_path: Path) -> None:
    for at, path in positions(kind, tmp_path):
        engine = Engine(kind, path, FaultyFileSystem(crash_at(at)))
        crash(engine)
        engine.check_with_all_readers()
        engine.restart()


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_after_a_power_failure_at_any_operation_every_row_is_there_once(kind: Kind, tmp_path: Path, seed: int) -> None:
    for at, path in positions(kind, tmp_path):
        files = FaultyFileSystem(crash_at(at))
        engine = Engine(kind, path, files)
        crash(engine)
        files.lose_power(tmp_path, seed + 100 * at if seed else 0)
        engine.check_with_all_readers()
        engine.restart()


def test_a_crash_in_the_restart_is_followed_by_another_restart(kind: Kind, tmp_path: Path) -> None:
    for at, path in positions(kind, tmp_path):
        engine = Engine(kind, path, FaultyFileSystem(crash_at(at)))
        crash(engine)
        for again in range(1, 8):
            engine.files = FaultyFileSystem(crash_at(again))
            crash(engine)
        engine.check()
        engine.restart()


@pytest.mark.parametrize("code", [errno.ENOSPC, *in_soak(errno.EIO)])
def test_one_refused_operation_loses_nothing(kind: Kind, tmp_path: Path, code: int) -> None:
    for at, path in positions(kind, tmp_path):
        engine = Engine(kind, path, FaultyFileSystem(fail_at(at, code)))
        try:
            engine.run()
        except (StoreError, SinkBroken):
            engine.close()
        engine.check()
        engine.restart()


def test_the_job_goes_on_through_a_full_disk_without_a_restart(kind: Kind, tmp_path: Path) -> None:
    starting = 12  # the directories are made by then
    for at, path in positions(kind, tmp_path):
        files = FaultyFileSystem(full_for(at + starting, 6))
        engine = Engine(kind, path, files)
        engine.run()
        engine.check()
        assert engine.committed == ROWS


def test_a_disk_that_stays_full_loses_nothing(kind: Kind, tmp_path: Path) -> None:
    for at, path in positions(kind, tmp_path):
        engine = Engine(kind, path, FaultyFileSystem(fail_from(at)))
        with pytest.raises((StoreError, SinkBroken, NeverRecovers)):
            engine.run()
        engine.close()
        engine.check()
        engine.restart()


def full_for(at: int, length: int) -> Fault:
    def fault(number: int, name: str, path: Path) -> None:
        if at <= number < at + length:
            raise OSError(errno.ENOSPC, "No space left on device")

    return fault


def test_a_sync_that_failed_is_not_believed_when_it_succeeds_later(tmp_path: Path) -> None:
    files = FaultyFileSystem(refuse_once("sync"))
    staged = StagedFile(tmp_path / "a.staged", files=files)
    staged.write(b"rows" * 1000)
    with pytest.raises(StoreError):
        staged.sync()
    suspect = staged.path
    staged.sync()
    staged.abandon()
    assert staged.path != suspect
    assert not suspect.exists()
    files.lose_power(tmp_path, 0)
    assert staged.path.read_bytes() == b"rows" * 1000


def test_bytes_that_changed_behind_a_failed_sync_break_the_sink(tmp_path: Path) -> None:
    files = FaultyFileSystem(refuse_once("sync"))
    staged = StagedFile(tmp_path / "a.staged", files=files)
    staged.write(b"rows" * 1000)
    with pytest.raises(StoreError):
        staged.sync()
    staged.path.write_bytes(b"\0" * 4000)  # the kernel dropped the pages
    with pytest.raises(SinkBroken, match="could not be synced, and read back differently"):
        staged.sync()
    staged.discard()


def test_a_file_that_took_the_place_of_one_that_could_not_be_synced_is_left_alone(tmp_path: Path) -> None:
    staged = StagedFile(tmp_path / "a.staged", files=FaultyFileSystem(refuse_once("sync")))
    staged.write(b"rows" * 1000)
    with pytest.raises(StoreError):
        staged.sync()
    suspect = staged.path
    suspect.unlink()
    suspect.write_bytes(b"rows" * 1000)  # a run that took the directory over stages the same rows
    staged.sync()
    staged.abandon()
    assert suspect.read_bytes() == staged.path.read_bytes() == b"rows" * 1000
    assert staged.path != suspect


def test_more_waiting_bytes_than_the_limit_break_the_sink(tmp_path: Path) -> None:
    staged = StagedFile(tmp_path / "a.staged", files=FaultyFileSystem(fail_from(1)), limit=2 << 20)
    for _ in range(2):
        staged.write(bytes(1 << 20))
    with pytest.raises(SinkBroken, match=r"3145728 bytes wait .* at most 2097152 may"):
        staged.write(bytes(1 << 20))
    staged.discard()


def test_a_broken_sink_stays_broken_and_leaves_nothing_staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = FaultyFileSystem()
    sink = write_parquet(tmp_path, row_group_rows=1, compression="none", files=files)
    sink.begin()
    writer = sink.writer(context(0))
    files.fault = fail_from(1)
    big = pa.record_batch({"x": pa.array(range(1 << 17))})
    wide = write_parquet(tmp_path, row_group_rows=1 << 17, compression="none", files=files).writer(context(1))
    with pytest.raises(SinkBroken, match=r"sink 'out', subtask 1: \d+ staged rows are lost"):
        collections.deque((wide.process(0, big, NoOut()) for _ in range(200)), maxlen=0)
    files.fault = no_fault
    for forbidden in (lambda: wide.process(0, big, NoOut()), lambda: wide.prepare(1)):
        with pytest.raises(SinkBroken, match="must restart from its last checkpoint"):
            forbidden()
    wide.close()
    writer.close()
    assert list((tmp_path / "_staging").iterdir()) == []


def refused_sync(path: Path) -> FileWriter:
    """A writer whose first checkpoint failed, with the file of one row waiting for the next."""
    files = FaultyFileSystem()
    sink = write_parquet(path, files=files)
    sink.begin()
    writer = sink.writer(context(0))
    writer.process(0, pa.record_batch({"x": [1]}), NoOut())
    files.fault = refuse_once("sync")
    with pytest.raises(StoreError):
        writer.prepare(1)
    return writer


def test_two_files_of_one_transaction_have_names_of_their_own(tmp_path: Path) -> None:
    writer = refused_sync(tmp_path)
    writer.process(0, pa.record_batch({"x": [2]}), NoOut())
    files = [str(handle["file"]) for handle in writer.prepare(2)]
    writer.close()
    assert files == ["part-00000002-00000-0000.parquet", "part-00000002-00000-0001.parquet"]


def test_a_sink_that_a_sync_broke_takes_no_more_rows(tmp_path: Path) -> None:
    writer = refused_sync(tmp_path)
    for staged in (tmp_path / "_staging").glob("*.staged"):
        staged.write_bytes(bytes(staged.stat().st_size))  # the kernel dropped the pages
    with pytest.raises(SinkBroken, match="read back differently"):
        writer.prepare(2)
    with pytest.raises(SinkBroken, match="must restart from its last checkpoint"):
        writer.process(0, pa.record_batch({"x": [2]}), NoOut())
    writer.close()


def refuse_once(operation: str) -> Fault:
    left = [operation]

    def fault(number: int, name: str, path: Path) -> None:
        if left and name == left[0]:
            left.clear()
            raise OSError(errno.EIO, "Input/output error")

    return fault


LIMITED = """
import json, resource, signal, sys
import pyarrow as pa
from dataflow.clock import ManualClock
from dataflow.errors import StoreError
from dataflow.contracts.operator import OperatorContext
import operators as op
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
schema = pa.schema({"x": pa.int64()})
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
for name in sys.argv[2:]:
    print(f"--- {name}")
    path = f"{sys.argv[1]}/{name}"
    sink = getattr(op, name)(path, compression="none")
    sink.begin()
    writer = sink.writer(OperatorContext("out", 0, 1, (schema,), schema, range(1), 1, None, ManualClock(), print))
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    writer.process(0, pa.record_batch({"x": pa.array(range(200_000))}), None)
    for checkpoint in (1, 2):
        try:
            writer.prepare(checkpoint)
        except StoreError as error:
            print(error)
    writer.process(0, pa.record_batch({"x": pa.array(range(200_000, 200_010))}), None)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    sink.commit(3, writer.prepare(3))
    assert sorted(op.read_committed(path)["x"].to_pylist()) == list(range(200_010)), name
    print("all there")
"""


def test_a_real_file_size_limit_fails_checkpoints_and_loses_no_row(tmp_path: Path) -> None:
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    writers = ["write_parquet", "write_csv", "write_json", "write_ipc"]
    run = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path), *writers],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    told = run.stdout.split("--- ")[1:]
    assert [text.partition("\n")[0] for text in told] == writers
    for text in told:
        assert text.count("the file size limit is reached: raise it") == 2
        assert text.endswith("all there\n")


@pytest.mark.parametrize("if_exists", ["append", "overwrite"])
@pytest.mark.parametrize("power", [None, *seeds(1, 3)])
def test_a_crash_while_old_output_is_taken_over_is_repaired_by_beginning_again(
    kind: Kind, tmp_path: Path, if_exists: IfExists, power: int | None
) -> None:
    for at in range(1, 100):
        path = tmp_path / str(at)
        Engine(kind, path, FaultyFileSystem()).run()
        files = FaultyFileSystem(crash_at(at))
        try:
            kind.sink(path, files=files, if_exists=if_exists).begin()
        except Crash:
            if power is not None:
                files.lose_power(path, power)
            kind.sink(path, files=FaultyFileSystem(), if_exists=if_exists).begin()  # healthy, and quicker than the disk
            seen = sorted(row["x"] for row in kind.read("pyarrow", path))
            assert seen == (list(range(ROWS)) if if_exists == "append" else [])
            assert len(committed_files(path)) == len(kind.files(path))
        else:
            assert at > 5
            return
