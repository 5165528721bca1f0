"""The directory of a job on Spark: what Spark keeps there, and what we keep beside it.

    spark/                  Spark's checkpointLocation: the log of micro-batches, and the state of slots
    tasks/bids[0]/7         a lane, or a sink of the driver, before micro-batch 7, in the form of a checkpoint's part
    working/host-4711       what a worker is at (see ``at_work``); nothing that a restart needs
    job.json                the pipeline that began here
    LOCK FENCE              which process runs it

Micro-batch n takes tasks from state n to state n + 1. The state behind it is there before Spark counts the batch as
done, so a batch that is repeated begins at the same place; how far a repeated task goes is in the state, too.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dataflow.clock import SystemClock
from dataflow.contracts.source import Json
from dataflow.errors import CheckpointDamaged, DirectoryInUse
from dataflow.runtime.task.parts import TaskState
from dataflow.store.files import DISK, NotAFile, storing
from dataflow.store.lock import FENCE, DirectoryLock
from dataflow.untrusted import check_depth, parsed

__all__ = ["Home"]

_KEPT: Final = 2
"""States of lanes that are kept before the one that is needed: what Spark could go back to, and one more."""
_AGAIN: Final = "begin again in another directory, with an output that is empty"


@dataclass(frozen=True)
class Home:
    """The directory at ``path``, which every worker sees under the same name. All methods raise StoreError."""

    path: Path

    @property
    def spark(self) -> str:
        return str(self.path / "spark")

    @property
    def used(self) -> bool:
        """Whether a job began here."""
        return (self.path / "job.json").exists()

    def begin(self, job: Mapping[str, Any], states: Sequence[TaskState]) -> None:
        """A new job, whose tasks stand at the beginning."""
        for state in states:
            self.keep(state, 0)
        with storing("write", self.path):
            DISK.make_directories(self.path / "tasks")
            DISK.write_new(self.path / "job.json", json.dumps(job, indent=1).encode())

    def job(self) -> dict[str, Any]:
        """The job that began here."""
        path = self.path / "job.json"
        with storing("read", path), _read(path):
            found: dict[str, Any] = parsed(dict[str, Any], json.loads(DISK.read(path)), "the job that began here")
            check_depth(found, "the job that began here")
        return found

    def hold(self, run_id: str) -> AbstractContextManager[None]:
        """Keep all other processes out while inside. Raises: DirectoryInUse naming the holder."""
        return _held(self.path, run_id)

    def check(self, run_id: str) -> None:
        """Raises: DirectoryInUse where another run has taken over since ``hold``: what this one does counts no more."""
        with storing("read", self.path / FENCE):
            holder = json.loads(DISK.read(self.path / FENCE))
        if holder.get("run") != run_id:
            raise DirectoryInUse(
                f"{self.path} was taken over by process {holder.get('pid')} on {holder.get('host')} (run "
                f"{holder.get('run')!r}): run {run_id!r} may not write there any more; stop it"
            )

    @property
    def restored_bytes(self) -> int:
        """Bytes that a restart reads here before its first micro-batch, without Spark's own files."""
        states = [file for file, round_ in self._states() if round_ == self.done]
        with storing("look at", self.path):
            return sum(DISK.size(file) or 0 for file in [self.path / "job.json", *states])

    @property
    def lanes(self) -> int | None:
        """The lanes of a source that the job began with; None: no job began here."""
        return self.job()["lanes"] if self.used else None

    @property
    def key_groups(self) -> int | None:
        """The key groups that the job began with; None: no job began here."""
        return self.job()["key_groups"] if self.used else None

    @property
    def done(self) -> int:
        """How many micro-batches Spark counts as done."""
        return self._newest("commits") + 1

    def _newest(self, log: str) -> int:
        """The number of the last entry of a log of Spark's; -1: there is none."""
        path = self.path / "spark" / log
        return (
            max([int(file.name) for file in path.iterdir() if file.name.isdigit()], default=-1) if path.is_dir() else -1
        )

    def offsets(self, round_: int) -> list[Json]:
        """Where Spark's own readers stand before micro-batch ``round_``, in its words and the order of the query."""
        path = self.path / "spark" / "offsets" / str(round_ - 1)
        with storing("read", path):
            lines = DISK.read(path).decode().splitlines()
        return [None if line == "-" else json.loads(line) for line in lines[2:]]

    def check_new(self) -> None:
        """Raises: CheckpointDamaged where a job begins that would go on with what Spark kept for another one."""
        if (self.path / "spark").exists():
            raise CheckpointDamaged(
                f"{self.path} is not complete: expected job.json beside {self.spark}, which is an older job's; put it "
                f"back, or {_AGAIN}"
            )

    def check_complete(self, tasks: Sequence[str]) -> None:
        """Raises: CheckpointDamaged where a part of the directory that a restart needs is gone."""
        done, begun = self.done, self._newest("offsets")
        gone = [str(self._task(task, done)) for task in tasks if not self._task(task, done).exists()]
        if begun not in (done - 1, done):
            gone.append(str(self.path / "spark" / ("commits" if begun > done else "offsets")))
        if gone:
            more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
            raise CheckpointDamaged(
                f"{self.path} is not complete: Spark counts {done} micro-batches as done, {begun + 1} as begun, but "
                f"{gone[0]}{more} is missing or older: put back what was deleted, or {_AGAIN}"
            )

    def has_come_to(self, round_: int) -> bool:
        """Whether every task stands before micro-batch ``round_``, or has been there."""
        tasks = self.path / "tasks"
        return tasks.is_dir() and all((task / str(round_)).exists() for task in tasks.iterdir())

    def ended(self, tasks: Sequence[str], round_: int) -> bool:
        """Whether all of ``tasks`` had come to their ends before micro-batch ``round_``."""
        states = [self.task(task, round_) for task in tasks]
        return all([state is not None and state.ended for state in states])

    def task(self, task: str, round_: int) -> TaskState | None:
        """A task before micro-batch ``round_``; None: it has not come so far."""
        path = self._task(task, round_)
        if not path.exists():
            return None
        with storing("read", path), _read(path):
            return TaskState.decode(DISK.read(path))

    def keep(self, state: TaskState, round_: int) -> None:
        """A task as it stands before micro-batch ``round_``, in the place of what stood there."""
        path = self._task(state.task, round_)
        with storing("write", path):
            DISK.make_directories(path.parent)
            DISK.write_new(path, state.encode("sample").to_pybytes())

    def settle(self, state: TaskState, round_: int) -> None:
        """A lane as it stands before micro-batch ``round_``: the first attempt to come so far settles that.

        Raises: CheckpointDamaged where another attempt took other rows; Spark then tries again, and takes those.
        """
        path = self._task(state.task, round_)
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
                        f"{state.task}: two attempts at micro-batch {round_ - 1} took different rows, of which the "
                        "first counts"
                    ) from None
            finally:
                DISK.remove(own)

    def forget(self, before: int) -> None:
        """Micro-batches up to ``before`` will not be repeated."""
        for file, round_ in self._states():
            if round_ < before - _KEPT:
                file.unlink(missing_ok=True)

    def forget_beyond(self, done: int) -> None:
        """What attempts at micro-batches that never counted as done left: they will be made again."""
        for file, round_ in self._states():
            if round_ > done:
                file.unlink(missing_ok=True)
        self.sweep()

    def sweep(self) -> None:
        """Delete the unfinished files of killed workers. A worker that still runs fails when it misses its own."""
        for file in (self.path / "tasks").glob("*/*.settling"):
            file.unlink(missing_ok=True)

    def _states(self) -> Iterator[tuple[Path, int]]:
        yield from ((file, int(file.name)) for file in (self.path / "tasks").glob("*/*") if file.name.isdigit())

    def _task(self, task: str, round_: int) -> Path:
        return self.path / "tasks" / task / str(round_)

    def remove(self) -> None:
        """All of it."""
        shutil.rmtree(self.path, ignore_errors=True)


@contextmanager
def _read(path: Path) -> Iterator[None]:
    """Say of what cannot be understood where it was found."""
    try:
        yield
    except (CheckpointDamaged, ValueError, RecursionError, NotAFile) as error:
        raise CheckpointDamaged(f"{path} is damaged: {error}; put a whole copy back, or {_AGAIN}") from error


@contextmanager
def _held(path: Path, run_id: str) -> Iterator[None]:
    with storing("make", path):
        DISK.make_directories(path)
    lock = DirectoryLock(path, files=DISK, clock=SystemClock())
    lock.acquire(run_id)
    try:
        yield
    finally:
        lock.release()
