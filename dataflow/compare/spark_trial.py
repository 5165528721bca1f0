"""One run of a pipeline on Spark, always in a process of its own, which starts and ends with its JVM and workers.

A micro-batch is a checkpoint: number n is complete when Spark counts n micro-batches as done.
``python -m dataflow.compare.spark_trial JSON never`` starts the driver.
"""

from __future__ import annotations

import os
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Final

import msgspec

import dataflow as flow
from dataflow.compare.options import Scene
from dataflow.compare.trees import ProcessTree
from dataflow.compare.trial import Trial
from dataflow.errors import PipelineFailed
from dataflow.runners.spark.job_directory import JobDirectory

__all__ = ["SparkTrial"]

_POLL_INTERVAL: Final = 0.1
"""Seconds between two looks at a process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkTrial(Trial):
    """A run on Spark's local master, with one core for each of ``parallelism`` subtasks."""

    rows_per_trigger: int

    def run(self, restore: str) -> flow.RunResult:
        """Run in a process of its own, and return the result that it leaves in a file."""
        folder = Path(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._outcome.unlink(missing_ok=True)
        log = folder / "process.log"
        with ProcessTree(self.command(restore), log) as process:
            while not (self._outcome.exists() or process.ended_within(_POLL_INTERVAL)):
                pass  # do not wait for the process once the file is there: Spark takes seconds to clean up
        rmtree(folder / "spark", ignore_errors=True)
        if not self._outcome.exists():
            raise PipelineFailed(
                f"the process on Spark died with exit code {process.returncode}; its output is in {log}"
            )
        outcome: flow.RunResult | str = pickle.loads(self._outcome.read_bytes())
        if isinstance(outcome, str):
            raise PipelineFailed(f"the pipeline failed by itself, {outcome}")
        return outcome

    def look(self) -> Scene:
        """Return the last complete micro-batch, and the next one if every source task has read its rows."""
        directory = JobDirectory(self.checkpoints)
        done = directory.done
        return Scene(complete=done, in_progress=done + 1 if directory.has_reached(done + 1) else 0)

    def warm_up(self) -> None:
        """Do nothing: every process starts cold, and the first one stores compiled kernels on disk."""

    @property
    def _outcome(self) -> Path:
        return Path(self.folder, "outcome.pickle")

    def run_here(self, restore: str) -> None:
        """Run in this process, and write the result, or the error, to the file that ``run`` reads."""
        outcome: flow.RunResult | str
        try:
            outcome = self._run(restore)
        except Exception as error:
            outcome = "\n  ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
        whole = self._outcome.with_suffix(".new")
        whole.write_bytes(pickle.dumps(outcome))
        whole.rename(self._outcome)
        if isinstance(outcome, str):
            sys.exit(outcome)

    def _run(self, restore: str) -> flow.RunResult:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # do not look up the name of this machine
        Path(self.folder, "output").mkdir(parents=True, exist_ok=True)
        conf = {
            "spark.master": f"local[{self.parallelism}]",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # short runs
            "spark.sql.shuffle.partitions": str(self.parallelism),
            "spark.sql.warehouse.dir": str(Path(self.folder, "spark", "warehouse")),
            "spark.local.dir": str(Path(self.folder, "spark", "local")),
        }
        return self.pipeline().run(
            flow.SparkRunner(rows_per_trigger=self.rows_per_trigger, conf=conf),
            parallelism=self.parallelism,
            checkpoint=flow.Checkpointing(self.checkpoints),
            restore=restore,
            record=self.recording,
        )


if __name__ == "__main__":
    msgspec.json.decode(sys.argv[1], type=SparkTrial).run_here(sys.argv[2])
