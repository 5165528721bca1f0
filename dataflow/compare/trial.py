"""One run of a pipeline in a folder of its own: without a kill, to be killed, or restored.

``python -m dataflow.compare.trial JSON never`` starts the process that is killed.
"""

from __future__ import annotations

import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Final

import msgspec

import dataflow as flow
from dataflow.compare.options import Scene
from dataflow.compare.subject import Subject, replace_sinks
from dataflow.contracts.checkpointing import Mode
from dataflow.errors import BarrierflowWarning, DataflowError, PipelineFailed, UnnamedStateWarning
from dataflow.planning.graph import Node
from dataflow.store.directory import DirectoryStore
from operators.sinks.net import net_rows
from operators.sinks.parquet import committed_files, read_committed

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RECORDING", "LocalTrial", "Trial"]

RECORDING: Final = "events.arrow"
"""The file with the events of a run, in its folder. A restored run appends to that of the killed one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial(ABC):
    """A run of ``subject`` in ``folder``, with ``parallelism`` subtasks. It is passed to its process as JSON."""

    subject: Subject
    folder: str
    parallelism: int

    @abstractmethod
    def run(self, restore: str) -> flow.RunResult:
        """Run to the end of the input, and return the result. Raises: PipelineFailed: a user's own code raised."""

    @abstractmethod
    def look(self) -> Scene:
        """Return the scene in the checkpoint directory. Raises: CheckpointError, OSError if files change meanwhile."""

    @abstractmethod
    def warm_up(self) -> None:
        """Do what is slow only the first time, before anything is timed."""

    def command(self, restore: str) -> list[str]:
        """Return the command that runs the trial in a process of its own."""
        return [sys.executable, "-m", type(self).__module__, msgspec.json.encode(self).decode(), restore]

    @property
    def checkpoints(self) -> Path:
        """The checkpoint directory of the run."""
        return Path(self.folder) / "checkpoints"

    @property
    def recording(self) -> Path:
        """The file with the events of the run."""
        return Path(self.folder) / RECORDING

    def output(self, sink: str) -> Path:
        """Return the directory with the Parquet files of ``sink``."""
        return Path(self.folder) / "output" / sink

    def rows(self, writer: Node, net: Callable[[pa.Table], pa.Table] = net_rows) -> pa.Table:
        """Return what the sink of ``writer`` committed; of signed changes, the ``net``."""
        output = self.output(writer.name)
        table = read_committed(output) if committed_files(output) else writer.schema.empty_table()
        return net(table) if writer.changes == "signed" else table

    def pipeline(self) -> flow.Pipeline:
        """Return the subject's pipeline, writing to this folder."""
        return replace_sinks(self.subject.pipeline(), Path(self.folder) / "output")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTrial(Trial):
    """A run on the local runner. Durations are texts such as "50ms"."""

    mode: str
    every: str
    credit: int
    slow: Mapping[str, str] = field(default_factory=dict)
    alignment_timeout: str | None = None

    def run(self, restore: str) -> flow.RunResult:
        """Run in this process. Warnings of the run are in the result, or become notes of the error."""
        try:
            with self.start(restore) as job:
                return _result(job)
        except (DataflowError, OSError, BarrierflowWarning):
            raise
        except Exception as error:
            failed = PipelineFailed(f"the pipeline failed by itself, {type(error).__name__}: {error}")
            for note in getattr(error, "__notes__", ()):
                failed.add_note(note)
            raise failed from error

    def look(self) -> Scene:
        """Return the newest complete checkpoint, and the later one that has parts but no manifest."""
        store = DirectoryStore(self.checkpoints)
        completed, newest = store.checkpoints(), store.highest_id()
        complete = completed[-1] if completed else 0
        underway = newest > complete and any(store.folder(newest).path.glob("*.part"))
        in_progress = newest if underway else 0
        if not complete:
            return Scene(in_progress=in_progress)
        summary = store.manifest(complete).summary
        return Scene(complete, in_progress, summary["duplicated"], summary["in_flight_rows"])

    def warm_up(self) -> None:
        """Compile or load every kernel, by running until two checkpoints are complete.

        Errors are ignored here, because the same error is raised again by the run that follows.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with suppress(Exception), self.start("never") as job:
                for _ in range(2):
                    job.checkpoint()
        rmtree(self.folder, ignore_errors=True)

    def start(self, restore: str) -> flow.LocalJob:
        """Start the job, with all repeated deliveries stored."""
        pipeline = self.pipeline()
        Path(self.folder, "output").mkdir(parents=True, exist_ok=True)
        has_timeout = Mode(self.mode) is Mode.ALIGNED_TIMEOUT
        checkpointing = flow.Checkpointing(
            self.checkpoints,
            every=self.every,
            mode=self.mode,
            alignment_timeout=self.alignment_timeout if has_timeout else None,
            duplicates="rows",
        )
        with warnings.catch_warnings():
            # the same code restores the checkpoints of a comparison, so automatic names are safe
            warnings.simplefilter("ignore", UnnamedStateWarning)
            return pipeline.start(
                flow.LocalRunner(slow=self.slow, combine=False),
                parallelism=self.parallelism,
                checkpoint=checkpointing,
                restore=restore,
                channel_credit=self.credit,
                record=self.recording,
            )


def _result(job: flow.LocalJob) -> flow.RunResult:
    """Wait for ``job`` and return its result. If it fails, its warnings become notes of the error."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", BarrierflowWarning)
            return job.wait()
    except BaseException as error:
        for warning in caught:
            if issubclass(warning.category, BarrierflowWarning):
                error.add_note(f"{warning.category.__name__}: {warning.message}")
        raise
    finally:
        for warning in caught:
            if not issubclass(warning.category, BarrierflowWarning):  # of the user's functions
                warnings.showwarning(warning.message, warning.category, warning.filename, warning.lineno)


if __name__ == "__main__":
    msgspec.json.decode(sys.argv[1], type=LocalTrial).run(sys.argv[2])
