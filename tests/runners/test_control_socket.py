"""Requests for savepoints through the socket of a job: who may ask, what is refused, and what is left behind."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.clock import SystemClock
from dataflow.errors import CheckpointError, JobUnreachable, StoreError
from dataflow.runners.control_socket import server as server_module
from dataflow.runners.control_socket.client import request_savepoint
from dataflow.runners.control_socket.messages import Accepted, Answer, Connection, SavepointFailed, SavepointTaken
from dataflow.runners.control_socket.private_socket import Peer, connect, peer_of
from dataflow.runners.control_socket.server import ControlServer
from dataflow.store.lock import LockHolder, read_holder
from tests.forcing import Force

CLOCK = SystemClock()


class Savepoints:
    """Takes no savepoints: ``outcome`` says what becomes of one, and ``calls`` has those that were requested."""

    def __init__(self, checkpoint: flow.Checkpoint) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.outcome: Callable[[], flow.Checkpoint] = lambda: checkpoint
        self.over = threading.Event()

    def take(self, path: str, timeout: int | None) -> flow.Checkpoint:
        self.calls.append((path, timeout))
        return self.outcome()

    def stop(self, path: str, timeout: int | None, *, drain: bool) -> flow.Checkpoint:
        self.calls.append((path, timeout, drain))
        return self.outcome()

    def wait_until_over(self) -> None:
        self.over.wait()


class Job:
    """A directory that a job has open, and that job's server."""

    def __init__(self, directory: Path, checkpoint: flow.Checkpoint, **options: Any) -> None:
        self.directory = directory
        self.store = flow.DirectoryStore(directory)
        self.store.open("nightly")
        self.server = ControlServer(self.store, CLOCK, **options)
        self.savepoints = Savepoints(checkpoint)
        self.server.start(self.savepoints)

    @property
    def holder(self) -> LockHolder:
        holder = read_holder(self.directory)
        assert holder is not None
        return holder

    @property
    def folder(self) -> Path:
        """The directory of the socket."""
        assert self.holder.socket is not None
        return Path(self.holder.socket)

    def ask(self, path: Path | str = "sp", **options: Any) -> SavepointTaken:
        return request_savepoint(self.directory, Path(path), CLOCK, **options)

    def forge(self, **changes: object) -> None:
        lock = self.directory / "LOCK"
        lock.write_text(json.dumps(json.loads(lock.read_text()) | changes))

    def send(self, data: bytes) -> Connection:
        """Connect as a client that sends ``data``."""
        connected = connect(str(self.folder))
        connected.sendall(data)
        return Connection(connected, CLOCK)

    def close(self) -> None:
        self.savepoints.over.set()
        self.server.close()
        self.store.close()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> flow.Checkpoint:
    path = tmp_path_factory.mktemp("taken")
    with flow.Pipeline("numbers") as p:
        p.source(op.from_arrow(pa.table({"x": [1, 2, 3]})), name="in").sink(op.collect(), name="out")
    p.run(checkpoint=flow.Checkpointing(path))
    return flow.Checkpoint(path, 1)


@pytest.fixture
def job(tmp_path: Path, checkpoint: flow.Checkpoint) -> Iterator[Job]:
    job = Job(tmp_path / "ckpt", checkpoint)
    yield job
    job.close()


def refused(job: Job, *words: str, error: type[Exception] = JobUnreachable, **options: Any) -> None:
    """Check that a request is refused with these words, and that no savepoint was begun."""
    with pytest.raises(error) as failure:
        job.ask(**options)
    assert [word for word in words if word not in str(failure.value)] == [], failure.value
    assert job.savepoints.calls == []


# --- requests


def test_a_savepoint_is_described_to_the_process_that_asked(job: Job, checkpoint: flow.Checkpoint) -> None:
    taken = job.ask("/new/sp", timeout=7)
    assert (taken.checkpoint, taken.job, taken.pipeline) == (1, checkpoint.job_id, "numbers")
    assert (taken.path, taken.mode, taken.guarantee) == ("/new/sp", "aligned", "exactly once")
    assert taken.bytes == sum(part.size for part in checkpoint.objects) > 0
    assert job.savepoints.calls == [("/new/sp", 7)]


def test_a_relative_path_is_relative_to_the_process_that_asks(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    strange = os.fsdecode(b"a b/\xff\n\xc3\xa9")
    assert job.ask(strange).path == f"{tmp_path}/{strange}"
    assert job.savepoints.calls == [(f"{tmp_path}/{strange}", None)]


def test_an_error_of_the_job_is_told_with_its_notes(job: Job) -> None:
    def full() -> flow.Checkpoint:
        error = StoreError("savepoint 3 failed: the disk is full")
        error.add_note("free some space")
        raise error

    job.savepoints.outcome = full
    with pytest.raises(CheckpointError, match="savepoint 3 failed: the disk is full") as failure:
        job.ask()
    assert failure.value.__notes__ == ["free some space"]


def test_two_requests_are_carried_out_at_the_same_time(job: Job, checkpoint: flow.Checkpoint) -> None:
    both = threading.Barrier(2)

    def wait_for_the_other() -> flow.Checkpoint:
        both.wait(30)
        return checkpoint

    job.savepoints.outcome = wait_for_the_other
    with ThreadPoolExecutor(2) as pool:
        assert {taken.path for taken in pool.map(job.ask, ["/a", "/b"])} == {"/a", "/b"}


def test_a_command_that_stops_the_job_returns_when_its_directory_is_unlocked(job: Job) -> None:
    with ThreadPoolExecutor(1) as pool:
        ticked = threading.Event()
        taken: Future[SavepointTaken] = pool.submit(job.ask, "/sp", stop=True, drain=True, tick=ticked.set)
        while not job.savepoints.calls:
            ticked.wait(0.01)
        assert not taken.done()
        job.close()
        assert taken.result(30).stopped
    assert job.savepoints.calls == [("/sp", None, True)]


def test_a_savepoint_is_taken_although_the_process_that_asked_has_gone(job: Job, checkpoint: flow.Checkpoint) -> None:
    gone, taken = threading.Event(), threading.Event()

    def take() -> flow.Checkpoint:
        assert gone.wait(30)
        taken.set()
        return checkpoint

    job.savepoints.outcome = take
    where = os.stat(job.directory)
    request = {"device": where.st_dev, "inode": where.st_ino, "path": "/sp"}
    connection = job.send(json.dumps(request).encode() + b"\n")
    assert connection.receive(Answer, within=30_000_000) == Accepted()
    connection.close()
    gone.set()
    assert taken.wait(30)
    assert job.ask().checkpoint == 1


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"hello\n", "expected a request for a savepoint: "),
        (b"[" * 5_000 + b"\n", "expected a request for a savepoint: "),
        (b'{"device": 1, "inode": 2, "path": 3}\n', "Expected `str`, got `int`"),
        (b'{"device": 1, "inode": 2, "path": "/sp", "more": 1}\n', "unknown field `more`"),
        (b"x" * 300_000, "expected a line of at most 262,144 bytes, found more"),
    ],
)
def test_what_is_no_request_is_refused_and_the_next_request_is_served(job: Job, data: bytes, words: str) -> None:
    connection = job.send(data)
    answer = connection.receive(Answer, within=30_000_000)
    connection.close()
    assert isinstance(answer, SavepointFailed)
    assert words in answer.message
    assert job.ask().checkpoint == 1
    assert len(job.savepoints.calls) == 1


def test_a_process_that_sends_nothing_holds_up_no_other_and_not_the_end(job: Job, force: Force) -> None:
    force(server_module, "_FAREWELL", 300.0, calls=ControlServer.close)
    connections = [job.send(b"") for _ in range(server_module._MOST - 1)]
    assert job.ask().checkpoint == 1
    job.close()
    for connection in connections:
        connection.close()


# --- who is asked


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"host": "elsewhere"}, ["runs on host 'elsewhere'", "run the command there"]),
        ({"pid": 2**31 - 1}, ["process 2147483647", "has ended without unlocking it", "start the job again"]),
        ({"pid": os.getppid()}, [f"process {os.getpid()} listens in its place", "do not trust the LOCK"]),
        ({"socket": "s"}, ["expected the path of a directory with a socket, found 's'"]),
        ({"socket": "/nowhere/s"}, ["not in /nowhere/s", "PrivateTmp="]),
        ({"socket": "/etc/passwd"}, ["its socket in /etc/passwd cannot be used"]),
        ({"socket": "a\0b"}, ["expected the path of a directory"]),
        ({"socket": "/a\0b"}, ["cannot be used"]),
        ({"socket": None}, ["has no socket: it is still starting, or it is no job on threads"]),
        ({"socket": None, "no_socket": "no space left"}, ["has no socket: no space left"]),
    ],
)
def test_a_lock_that_leads_to_no_job_is_refused(job: Job, changes: dict[str, object], words: list[str]) -> None:
    job.forge(**changes)
    refused(job, *words)


@pytest.mark.parametrize("content", ["{", "[1]", '{"pid": 0, "host": "h"}', '{"pid": "1", "host": "h"}', "[" * 50_000])
def test_a_lock_that_no_job_wrote_is_refused(job: Job, content: str) -> None:
    (job.directory / "LOCK").write_text(content)
    refused(job, "expected the lock file of a job", error=StoreError)


def test_a_lock_that_is_no_file_is_refused(job: Job) -> None:
    lock = job.directory / "LOCK"
    lock.unlink()
    os.mkfifo(lock)
    refused(job, "expected a file", error=StoreError)
    lock.unlink()
    lock.symlink_to("/dev/zero")
    refused(job, "LOCK", error=StoreError)


def test_only_a_private_directory_of_the_same_user_is_used(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = job.folder
    folder.chmod(0o750)
    refused(job, "which other users may enter (mode 0750, expected 0700)")
    folder.chmod(0o700)
    (tmp_path / "link").symlink_to(folder)
    job.forge(socket=str(tmp_path / "link"))
    refused(job, "cannot be used")
    other = tmp_path / "other"
    other.mkdir(0o700)
    (other / "job").symlink_to(folder / "job")
    job.forge(socket=str(other))
    refused(job, "expected a socket of this user")
    job.forge(socket=str(folder))
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    refused(job, f"which is of user {own}, and this is user {own + 1}")


def test_a_process_of_another_user_is_refused_by_both_sides(tmp_path: Path, checkpoint: flow.Checkpoint) -> None:
    def stranger(connected: socket.socket) -> Peer:
        return Peer(peer_of(connected).pid, os.geteuid() + 1)

    job = Job(tmp_path / "ckpt", checkpoint, peer=stranger)
    refused(job, f"expected a process of user {os.geteuid()}, found one of", error=CheckpointError)
    refused(job, "run the command as the user of the job", peer=stranger)
    job.close()


def test_the_lock_of_a_copied_directory_does_not_lead_to_the_original(job: Job, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(job.directory, copy)
    with pytest.raises(CheckpointError, match=f"is a copy: the job .* runs in {job.directory}; name this directory"):
        request_savepoint(copy, Path("sp"), CLOCK)
    assert job.savepoints.calls == []


def test_a_directory_without_a_job_is_refused(job: Job, tmp_path: Path) -> None:
    job.close()
    refused(job, f"no job runs in {job.directory}: start it")
    (job.directory / "LOCK").unlink()
    refused(job, "no job runs in")
    (job.directory / "job.json").touch()
    refused(job, "a stream on Spark, which takes no savepoints")
    for missing, found in ((tmp_path / "none", "nothing"), (job.directory / "job.json", "a file")):
        with pytest.raises(flow.errors.NoCheckpoint, match=f"found {found}"):
            request_savepoint(missing, Path("sp"), CLOCK)


# --- what is left behind


def test_the_socket_is_private_and_is_removed_with_the_job(job: Job) -> None:
    folder = job.folder
    assert [oct(path.stat().st_mode & 0o7777) for path in (folder, folder / "job")] == ["0o700", "0o600"]
    job.close()
    assert not folder.exists()
    assert (job.directory / "LOCK").read_bytes() == b""


def test_a_socket_that_a_crash_left_confuses_no_later_job(job: Job, checkpoint: flow.Checkpoint) -> None:
    folder, left = job.folder, (job.directory / "LOCK").read_bytes()
    other = job.directory.parent / "other"
    shutil.copytree(folder, other, ignore=lambda *_: ["job"])
    other.chmod(0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(other / "job"))
    job.close()
    (job.directory / "LOCK").write_bytes(left.replace(str(folder).encode(), str(other).encode()))
    refused(job, "nobody listens to its socket in", "any more")
    again = Job(job.directory, checkpoint)
    assert again.ask().checkpoint == 1
    again.close()


def test_a_forked_child_leaves_the_socket_to_its_parent(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: 1)
        job.server._remove()
    assert job.ask().checkpoint == 1


def test_a_temporary_directory_with_a_long_path_is_no_problem(
    tmp_path: Path, checkpoint: flow.Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("t" * 200) / "a b"
    long.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    job = Job(tmp_path / ("d" * 200) / "ckpt", checkpoint)
    assert job.ask().checkpoint == 1
    job.close()
    assert list(long.iterdir()) == []


def test_a_job_that_can_have_no_socket_runs_without_one(
    tmp_path: Path, checkpoint: flow.Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    job = Job(tmp_path / "ckpt", checkpoint)
    refused(job, "has no socket: ", "No such file or directory")
    job.close()


# --- the job


def endless(**options: Any) -> flow.LocalJob:
    with flow.Pipeline("endless") as p:
        p.source(op.generate({"id": op.sequence()}, rate="1000/s"), name="in").sink(op.collect(), name="out")
    job = p.start(**options)
    assert isinstance(job, flow.LocalJob)
    return job


def test_a_job_takes_savepoints_for_other_processes_and_stops_with_one(tmp_path: Path) -> None:
    settings = flow.Checkpointing(tmp_path / "ckpt", every="1h", mode="unaligned")
    with endless(checkpoint=settings) as job:
        taken = request_savepoint(tmp_path / "ckpt", tmp_path / "one", CLOCK)
        saved = flow.Checkpoint(taken.path)
        assert (saved.id, saved.kind, saved.job_id) == (taken.checkpoint, "savepoint", job.id)
        assert (taken.mode, taken.guarantee) == ("unaligned", "at least once")
        assert job.state.value == "running"
        with pytest.raises(CheckpointError, match="savepoint"):
            request_savepoint(tmp_path / "ckpt", tmp_path / "one", CLOCK)
        last = request_savepoint(tmp_path / "ckpt", tmp_path / "two", CLOCK, stop=True)
        assert read_holder(tmp_path / "ckpt") is None, "the directory is unlocked"
        result = job.wait()
    assert (result.state.value, last.stopped, last.path) == ("stopped", True, str(tmp_path / "two"))
    assert result.savepoint is not None
    assert result.savepoint.id == last.checkpoint


def test_jobs_without_a_directory_of_checkpoints_take_no_requests() -> None:
    for settings in (None, flow.Checkpointing(flow.MemoryStore(), every="1h")):
        with endless(checkpoint=settings):
            assert [thread.name for thread in threading.enumerate() if "requests" in thread.name] == []
