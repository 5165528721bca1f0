"""The directory of a job on Spark: what Spark keeps there, and what we keep beside it.

    spark/                  Spark's checkpointLocation: the log of micro-batches, and the state of slots
    lanes/bids[0]/7         the lane before micro-batch 7, in the form of a checkpoint's part
    rows/answer/6.arrow     what a collecting sink got in micro-batch 6
    job.json                the pipeline that began here

Micro-batch n takes the lanes from state n to state n + 1. The state behind it is there before Spark counts the batch as
done, so a batch that is repeated begins at the same place; how far it goes then is in the state, too.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from dataflow.runtime.parts import TaskState
from dataflow.store.files import DISK, storing

__all__ = ["Home"]

_KEPT: Final = 2
"""States of lanes that are kept before the one that is needed: what Spark could go back to, and one more."""


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

    def begin(self, job: Mapping[str, Any], lanes: Sequence[TaskState]) -> None:
        """A new job, whose lanes stand at the beginning."""
        for lane in lanes:
            self.keep(lane, 0)
        self._write(self.path / "job.json", json.dumps(job, indent=1).encode())

    def job(self) -> dict[str, Any]:
        """The job that began here."""
        with storing("read", self.path):
            found: dict[str, Any] = json.loads(DISK.read(self.path / "job.json"))
        return found

    @property
    def done(self) -> int:
        """How many micro-batches Spark counts as done."""
        log = self.path / "spark" / "commits"
        return (
            1 + max([int(file.name) for file in log.iterdir() if file.name.isdigit()], default=-1)
            if log.is_dir()
            else 0
        )

    def has_read(self, round_: int) -> bool:
        """Whether every lane has been through micro-batch ``round_``."""
        lanes = self.path / "lanes"
        return lanes.is_dir() and all((lane / str(round_ + 1)).exists() for lane in lanes.iterdir())

    def lane(self, task: str, round_: int) -> TaskState | None:
        """A lane before micro-batch ``round_``; None: it has not come so far."""
        path = self._lane(task, round_)
        if not path.exists():
            return None
        with storing("read", path):
            return TaskState.decode(DISK.read(path))

    def keep(self, lane: TaskState, round_: int) -> None:
        """A lane as it stands before micro-batch ``round_``, in the place of an earlier attempt's."""
        self._write(self._lane(lane.task, round_), lane.encode("sample").to_pybytes())

    def forget(self, before: int) -> None:
        """Micro-batches up to ``before`` will not be repeated."""
        for lane in (self.path / "lanes").iterdir():
            for file in lane.iterdir():
                if file.name.isdigit() and int(file.name) < before - _KEPT:
                    file.unlink(missing_ok=True)

    def _lane(self, task: str, round_: int) -> Path:
        return self.path / "lanes" / task / str(round_)

    def collected(self, sink: str, schema: pa.Schema, up_to: int) -> pa.Table:
        """What a collecting sink got before micro-batch ``up_to``; what came later is removed, for it comes again."""
        folder = self.path / "rows" / sink
        tables = []
        for file in sorted(folder.glob("*.arrow"), key=lambda file: int(file.stem)):
            if int(file.stem) >= up_to:
                file.unlink()
                continue
            with storing("read", file), pa.ipc.open_stream(DISK.read(file)) as stream:
                tables.append(stream.read_all())
        return pa.concat_tables([schema.empty_table(), *tables])

    def collect(self, sink: str, round_: int, rows: pa.Table) -> None:
        """What a collecting sink got in micro-batch ``round_``."""
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, rows.schema) as stream:
            stream.write_table(rows)
        self._write(self.path / "rows" / sink / f"{round_}.arrow", out.getvalue().to_pybytes())

    def remove(self) -> None:
        """All of it."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _write(self, path: Path, content: bytes) -> None:
        """Whole or not at all, also where another attempt at the same micro-batch is still alive."""
        own = path.with_name(f"{os.getpid()}-{path.name}")
        with storing("write", path):
            DISK.make_directories(path.parent)
            DISK.write_new(own, content)
            DISK.rename(own, path)
            DISK.sync_directory(path.parent)
