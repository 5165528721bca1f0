"""One run of a pipeline in a folder of its own: undisturbed, to be killed, or restored.

Run as a module (``python -m dataflow.compare.trial JSON``) it is the process that is killed.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import dataflow as flow
from dataflow.checkpointing import Mode
from dataflow.compare.subject import Subject, redirected
from dataflow.errors import DataflowError, PipelineFailed, UnnamedStateWarning
from operators.sinks.parquet import committed_files, read_committed

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Trial"]


@dataclass(frozen=True, slots=True)
class Trial:
    """Where and how ``subject`` is run. Durations are texts such as "50ms", for a trial travels as JSON."""

    subject: Subject
    folder: str
    mode: str
    every: str
    parallelism: int
    credit: int
    slow: Mapping[str, str] = field(default_factory=dict)
    alignment_timeout: str | None = None

    @property
    def checkpoints(self) -> Path:
        return Path(self.folder) / "checkpoints"

    def output(self, sink: str) -> Path:
        return Path(self.folder) / "output" / sink

    def rows(self, sink: str, schema: pa.Schema) -> pa.Table:
        """What is visible in the output of ``sink``; without a row, a table of ``schema``."""
        output = self.output(sink)
        return read_committed(output) if committed_files(output) else schema.empty_table()

    def pipeline(self) -> flow.Pipeline:
        """The subject's pipeline, writing into this folder."""
        return redirected(self.subject.pipeline(), Path(self.folder) / "output")

    def run(self, restore: str) -> flow.RunResult:
        """Run to the end of the input. Raises: PipelineFailed for what a user's own code raised."""
        try:
            with self.start(restore) as job:
                return job.wait()
        except (DataflowError, OSError):
            raise
        except Exception as error:
            failed = PipelineFailed(f"the pipeline failed by itself, {type(error).__name__}: {error}")
            for note in getattr(error, "__notes__", ()):
                failed.add_note(note)
            raise failed from error

    def start(self, restore: str) -> flow.LocalJob:
        """Begin to run, with all duplicates stored."""
        pipeline = self.pipeline()
        Path(self.folder, "output").mkdir(parents=True, exist_ok=True)
        timed = Mode(self.mode) is Mode.ALIGNED_TIMEOUT
        checkpointing = flow.Checkpointing(
            self.checkpoints,
            every=self.every,
            mode=self.mode,
            alignment_timeout=self.alignment_timeout if timed else None,
            duplicates="rows",
        )
        with warnings.catch_warnings():
            # checkpoints of a comparison are restored by the same code, so automatic names do no harm
            warnings.simplefilter("ignore", UnnamedStateWarning)
            return pipeline.start(
                flow.LocalRunner(slow=self.slow, combine=False),
                parallelism=self.parallelism,
                checkpoint=checkpointing,
                restore=restore,
                channel_credit=self.credit,
            )


if __name__ == "__main__":
    msgspec.json.decode(sys.argv[1], type=Trial).run("never")
