"""The directory of a job on Spark: Spark's own files, and our files beside them.

    spark/                  Spark's checkpointLocation: the log of micro-batches, and the state of keyed tasks
    tasks/bids[0]/7         state of a source task, or of a sink in the driver, before micro-batch 7: a checkpoint part
    tasks/bids[0]/listed    all splits of a source task, as a checkpoint part
    workers/5e8848...       the plan and its sources, pickled for workers; the name is the SHA-256 of the content
    times/7                 time by the clock of micro-batch 7, which the driver fixes before its first attempt
    clocks/7                the event times of all source tasks before micro-batch 7, if they wait for each other
    working/host-4711       the subtask that a worker is running (see ``working_on``); a restart does not need it
    job.json                the pipeline that was started here
    LOCK FENCE              the process that runs it

Invariant: micro-batch n takes tasks from state n to state n + 1. State n + 1 is written before Spark counts micro-batch
n as done. So a repeated micro-batch starts from the same state, and state n + 1 says what it has to read.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dataflow.clock import SystemClock
from dataflow.contracts.source import Json
from dataflow.errors import CheckpointDamaged, CheckpointMismatch, DirectoryInUse
from dataflow.runtime.task.parts import TaskState
from dataflow.store.directory import STREAM_ON_SPARK
from dataflow.store.files import DISK, NotAFile, storing
from dataflow.store.lock import FENCE, DirectoryLock
from dataflow.store.manifest import JobId
from dataflow.untrusted import Time, check_depth, parsed

__all__ = ["UNSEEN", "JobDirectory"]

_KEPT: Final = 2
"""States of a source task to keep before the current one: the one that Spark could go back to, and one more."""
_LISTED: Final = "listed"
_WORKERS: Final = "workers"
_TIMES: Final = "times"
UNSEEN: Final = "does this worker see the directory of the job? checkpoint= must name one that all workers see"
"""What to ask if a worker misses a file of the directory."""
_START_OVER: Final = "start over in a new directory, with empty outputs"


@dataclass(frozen=True)
class JobDirectory:
    """The job directory at ``path``, which every worker sees under the same name. All methods raise StoreError.

    ``temporary``: it is deleted after the run.
    """

    path: Path
    temporary: bool = False

    @property
    def spark(self) -> str:
        """The path of Spark's own files."""
        return str(self.path / "spark")

    @property
    def has_job(self) -> bool:
        """Whether a job was started here."""
        return (self.path / STREAM_ON_SPARK).exists()

    def create(self, job: Mapping[str, Any], states: Sequence[TaskState]) -> None:
        """Write a new job with the initial states of its tasks."""
        for state in states:
            self.write_listed(state)
            self.write_task(state, 0)
        with storing("write", self.path):
            DISK.make_directories(self.path / "tasks")
            DISK.write_new(self.path / STREAM_ON_SPARK, json.dumps(job, indent=1).encode())

    def read_job(self) -> dict[str, Any]:
        """Return the description of the job that was started here."""
        path = self.path / STREAM_ON_SPARK
        with storing("read", path), _reading(path):
            job: dict[str, Any] = parsed(dict[str, Any], json.loads(DISK.read(path)), "the description of the job")
            check_depth(job, "the description of the job")
        return job

    def lock(self, run_id: str) -> AbstractContextManager[None]:
        """Return a context manager that locks out other processes. Raises: DirectoryInUse naming the holder."""
        return _locked(self.path, run_id)

    def check_owner(self, run_id: str) -> None:
        """Raise DirectoryInUse if another run has locked the directory since: this one must not write any more."""
        with storing("read", self.path / FENCE):
            holder = json.loads(DISK.read(self.path / FENCE))
        if holder.get("run") != run_id:
            raise DirectoryInUse(
                f"{self.path} was taken over by process {holder.get('pid')} on {holder.get('host')} (run "
                f"{holder.get('run')!r}): run {run_id!r} must not write there any more; stop it"
            )

    @property
    def restored_bytes(self) -> int:
        """The bytes that a restart reads here before its first micro-batch, without Spark's own files."""
        states = [file for file, round_ in self._states() if round_ == self.done]
        with storing("look at", self.path):
            return sum(DISK.size(file) or 0 for file in [self.path / STREAM_ON_SPARK, *states])

    @property
    def parallelism(self) -> int | None:
        """The source tasks of each source that the job was started with; None: no job was started here."""
        return self.read_job()["source_tasks"] if self.has_job else None

    @property
    def key_groups(self) -> int | None:
        """The key groups that the job was started with; None: no job was started here."""
        return self.read_job()["key_groups"] if self.has_job else None

    def check_job_id(self) -> None:
        """Raise CheckpointDamaged if the description of the job has no id."""
        with _reading(self.path / STREAM_ON_SPARK):
            parsed(JobId, self.read_job().get("job"), "the id of the job")

    @property
    def slots(self) -> list[int]:
        """The numbers of keyed tasks that the job was started with.

        Raises: CheckpointDamaged if they are no list of numbers.
        """
        path = self.path / STREAM_ON_SPARK
        with _reading(path):
            return parsed(list[int], self.read_job().get("slots"), "the numbers of keyed tasks")

    @property
    def done(self) -> int:
        """The number of micro-batches that Spark counts as done."""
        return self._newest("commits") + 1

    def _newest(self, log: str) -> int:
        """Return the number of the last entry of a log of Spark's; -1: there is none."""
        path = self.path / "spark" / log
        return (
            max([int(file.name) for file in path.iterdir() if file.name.isdigit()], default=-1) if path.is_dir() else -1
        )

    @property
    def partitions(self) -> int | None:
        """The partitions of each shuffle, which Spark fixes in the first micro-batch; None: there was none."""
        newest = self._newest("offsets")
        if newest < 0:
            return None
        path = self.path / "spark" / "offsets" / str(newest)
        with storing("read", path), _reading(path):
            found = re.search(r'"spark.sql.shuffle.partitions":"(\d+)"', DISK.read(path).decode())
            if found is None:
                raise ValueError("expected the setting spark.sql.shuffle.partitions, found none")
            return int(found[1])

    def spark_offsets(self, round_: int) -> list[Json]:
        """Return the positions of Spark's own readers before micro-batch ``round_``, in Spark's format and order."""
        path = self.path / "spark" / "offsets" / str(round_ - 1)
        with storing("read", path):
            lines = DISK.read(path).decode().splitlines()
        return [None if line == "-" else json.loads(line) for line in lines[2:]]

    def check_new(self) -> None:
        """Raise an error if a new job would continue from Spark's files of an older one, or beside checkpoints.

        Raises: CheckpointDamaged, CheckpointMismatch.
        """
        if any(self.path.glob("chk-*")):
            raise CheckpointMismatch(
                f"{self.path} holds checkpoints of a batch, or of another runner, which a stream on Spark cannot "
                "continue; use another directory"
            )
        if (self.path / "spark").exists():
            raise CheckpointDamaged(
                f"{self.path} is not complete: expected job.json beside {self.spark}, which is an older job's; restore "
                f"job.json, or {_START_OVER}"
            )

    def check_complete(self, tasks: Sequence[str]) -> None:
        """Raise CheckpointDamaged if a file that a restart needs is missing, or one of Spark's log is damaged."""
        done, started = self.done, self._newest("offsets")
        missing = [str(self._task_file(task, done)) for task in tasks if not self._task_file(task, done).exists()]
        if started not in (done - 1, done):
            missing.append(str(self.path / "spark" / ("commits" if started > done else "offsets")))
        missing += [str(path) for path in self._vanished() if str(path.parent) not in missing]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise CheckpointDamaged(
                f"{self.path} is not complete: Spark counts {done} micro-batches as done, {started + 1} as started, "
                f"but {missing[0]}{more} is missing or older: restore what was deleted, or {_START_OVER}"
            )
        self._check_log()

    def _vanished(self) -> Iterator[Path]:
        """Yield files of Spark's log whose checksums are there: Spark would not write them again."""
        for log in ("offsets", "commits"):
            newest = self._newest(log)
            for checksum in (self.path / "spark" / log).glob(".*.crc"):
                number = checksum.name[1:-4]
                if number.isdigit() and int(number) > newest:
                    yield checksum.with_name(number)

    def _check_log(self) -> None:
        """Raise CheckpointDamaged, naming the file, if Spark could not read the newest entries of its log."""
        spark = self.path / "spark"
        for log in ("offsets", "commits"):
            newest = self._newest(log)
            for number in range(max(0, newest - 1), newest + 1):
                path = spark / log / str(number)
                if path.exists():
                    with storing("read", path), _reading(path):
                        _check_entry(DISK.read(path).decode().splitlines())
        if (spark / "metadata").exists():
            with storing("read", spark / "metadata"), _reading(spark / "metadata"):
                _check_object(DISK.read(spark / "metadata").decode())

    def write_listed(self, state: TaskState) -> None:
        """Write all splits of a source task, as ``state`` has them, for the whole job."""
        listed = TaskState(state.task, inlet={"splits": state.inlet["splits"]})
        _write_state(listed, self._listed_file(state.task))

    def read_listed(self, task: str) -> Any:
        """Return the entries that ``write_listed`` wrote. Raises: CheckpointDamaged."""
        path = self._listed_file(task)
        listed = _read_state(path)
        if listed is None:
            raise CheckpointDamaged(f"{path} is missing: restore it, or {_START_OVER}")
        return listed.inlet["splits"]

    def write_for_workers(self, content: bytes) -> str:
        """Write what workers need of the job, in place of what an earlier run wrote. Return the SHA-256 of it."""
        digest = hashlib.sha256(content).hexdigest()
        folder = self.path / _WORKERS
        with storing("write", folder):
            DISK.make_directories(folder)
            DISK.write_new(folder / digest, content)
            for file in folder.iterdir():
                if file.name != digest:
                    DISK.remove(file)
        return digest

    def read_for_workers(self, digest: str) -> bytes:
        """Return what ``write_for_workers`` wrote. Raises: CheckpointDamaged if it is not there, or something else."""
        path = self.path / _WORKERS / digest
        if not path.exists():
            raise CheckpointDamaged(f"{path} is missing: {UNSEEN}")
        with storing("read", path), _reading(path):
            content = DISK.read(path)
            if hashlib.sha256(content).hexdigest() != digest:
                raise ValueError("its content has another SHA-256 than its name says")
        return bytes(content)

    def has_reached(self, round_: int) -> bool:
        """Return whether every task has written its state before micro-batch ``round_``."""
        tasks = self.path / "tasks"
        return tasks.is_dir() and all((task / str(round_)).exists() for task in tasks.iterdir())

    def ended(self, tasks: Sequence[str], round_: int) -> bool:
        """Return whether all of ``tasks`` had ended before micro-batch ``round_``."""
        return _all_ended([self.read_task(task, round_) for task in tasks])

    def begin(self, tasks: Sequence[str], round_: int) -> bool:
        """Return whether there is a micro-batch ``round_``; write the clocks of its source tasks, for ``clocks``."""
        states = [self.read_task(task, round_) for task in tasks]
        clocks = _clocks_of(states)
        if any(clocks.values()):
            path = self.path / "clocks" / str(round_)
            with storing("write", path):
                DISK.make_directories(path.parent)
                DISK.write_new(path, json.dumps(clocks).encode())
        return not _all_ended(states)

    def clocks(self, tasks: Sequence[str], round_: int) -> Mapping[str, Any]:
        """Return the clocks of ``tasks`` before micro-batch ``round_``, from one file if there is one.

        Spark does not ask for the start of a micro-batch again that it repeats. Then each state is read.
        """
        path = self.path / "clocks" / str(round_)
        if path.exists():
            with storing("read", path), _reading(path):
                written: dict[str, Any] = parsed(dict[str, Any], json.loads(DISK.read(path)), "the clocks of tasks")
            if written.keys() >= set(tasks):
                return written
        return _clocks_of([self.read_task(task, round_) for task in tasks])

    def write_time(self, round_: int, time: int) -> None:
        """Fix time by the clock of micro-batch ``round_``, unless an earlier attempt has done so."""
        path = self._time_file(round_)
        if not path.exists():
            with storing("write", path):
                DISK.make_directories(path.parent)
                DISK.write_new(path, json.dumps(time).encode())

    def time(self, round_: int) -> int:
        """Return time by the clock of micro-batch ``round_``. Raises: CheckpointDamaged if there is none."""
        path = self._time_file(round_)
        if not path.exists():
            raise CheckpointDamaged(f"{path} is missing: {UNSEEN}")
        with storing("read", path), _reading(path):
            return parsed(Time, json.loads(DISK.read(path)), "time by the clock")

    @property
    def newest_time(self) -> int:
        """Time by the clock of the newest micro-batch; 0: there is none."""
        rounds = [round_ for _, round_ in _numbered(self.path / _TIMES, "*")]
        return self.time(max(rounds)) if rounds else 0

    def read_task(self, task: str, round_: int) -> TaskState | None:
        """Return the state of a task before micro-batch ``round_``; None: it has not reached that."""
        return _read_state(self._task_file(task, round_))

    def write_task(self, state: TaskState, round_: int) -> None:
        """Write the state of a task before micro-batch ``round_``, replacing an existing one."""
        _write_state(state, self._task_file(state.task, round_))

    def write_task_once(self, state: TaskState, round_: int) -> None:
        """Write the state of a source task before micro-batch ``round_``, unless an earlier attempt has written it.

        Raises: CheckpointDamaged if the earlier attempt read other rows; Spark then tries again and reads those.
        """
        path = self._task_file(state.task, round_)
        own = path.with_name(f"{uuid.uuid4().hex}.settling")  # hosts may have the same process ids
        with storing("write", path):
            DISK.make_directories(path.parent)
            DISK.write_new(own, state.encode("sample").to_pybytes())
            try:
                os.link(own, path)
            except FileExistsError:
                first = TaskState.decode(DISK.read(path))
                if (first.ended, first.inlet["takes"]) != (state.ended, state.inlet["takes"]):
                    raise CheckpointDamaged(
                        f"{state.task}: two attempts at micro-batch {round_ - 1} read different rows; the first one "
                        "counts, and Spark tries again"
                    ) from None
            finally:
                DISK.remove(own)

    def drop_before(self, before: int) -> None:
        """Delete states that are not needed any more: no micro-batch before ``before`` will be repeated."""
        for file, round_ in self._of_micro_batches():
            if round_ < before - _KEPT:
                file.unlink(missing_ok=True)

    def drop_after(self, done: int) -> None:
        """Delete what attempts at micro-batches after the first ``done`` have written: these will be repeated."""
        for file, round_ in self._of_micro_batches():
            if round_ > done:
                file.unlink(missing_ok=True)
        self.sweep()

    def sweep(self) -> None:
        """Delete the unfinished files of killed workers. A worker that still runs fails when it misses its own."""
        for file in (self.path / "tasks").glob("*/*.settling"):
            file.unlink(missing_ok=True)

    def _states(self) -> list[tuple[Path, int]]:
        return _numbered(self.path / "tasks", "*/*")

    def _of_micro_batches(self) -> list[tuple[Path, int]]:
        return [*self._states(), *_numbered(self.path / "clocks", "*"), *_numbered(self.path / _TIMES, "*")]

    def _listed_file(self, task: str) -> Path:
        return self.path / "tasks" / task / _LISTED

    def _time_file(self, round_: int) -> Path:
        return self.path / _TIMES / str(round_)

    def _task_file(self, task: str, round_: int) -> Path:
        return self.path / "tasks" / task / str(round_)

    def remove(self) -> None:
        """Delete the directory."""
        shutil.rmtree(self.path, ignore_errors=True)


def _numbered(folder: Path, pattern: str) -> list[tuple[Path, int]]:
    """Return the files whose names are numbers of micro-batches, with these."""
    return [(file, int(file.name)) for file in folder.glob(pattern) if file.name.isdigit()]


def _write_state(state: TaskState, path: Path) -> None:
    with storing("write", path):
        DISK.make_directories(path.parent)
        DISK.write_new(path, state.encode("sample").to_pybytes())


def _read_state(path: Path) -> TaskState | None:
    """Return the state in a file; None: there is no such file."""
    if not path.exists():
        return None
    with storing("read", path), _reading(path):
        return TaskState.decode(DISK.read(path))


def _all_ended(states: Iterable[TaskState | None]) -> bool:
    return all([state is not None and state.ended for state in states])


def _clocks_of(states: Iterable[TaskState | None]) -> Mapping[str, Json]:
    return {state.task: state.inlet.get("clocks") for state in states if state is not None}


def _check_entry(lines: Sequence[str]) -> None:
    """Raise ValueError if lines are no entry of Spark's log: a version, a JSON object, and JSON values or "-"."""
    if len(lines) < 2 or not re.fullmatch(r"v\d+", lines[0]):
        raise ValueError("expected a version and a JSON object of Spark's")
    _check_object(lines[1])
    for line in lines[2:]:
        if line != "-":
            json.loads(line)


def _check_object(text: str) -> None:
    """Raise ValueError if a text is no JSON object."""
    if not isinstance(json.loads(text), dict):
        raise ValueError("expected a JSON object of Spark's, found another value")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Raise CheckpointDamaged, naming the file, if its content cannot be decoded."""
    try:
        yield
    except (CheckpointDamaged, ValueError, RecursionError, NotAFile) as error:
        raise CheckpointDamaged(f"{path} is damaged: {error}; restore an intact copy, or {_START_OVER}") from error


@contextmanager
def _locked(path: Path, run_id: str) -> Iterator[None]:
    with storing("make", path):
        DISK.make_directories(path)
    lock = DirectoryLock(path, files=DISK, clock=SystemClock())
    lock.acquire(run_id)
    try:
        yield
    finally:
        lock.release()
