"""One run of a pipeline on Spark, always in a process of its own: driver, JVM and workers come and go with it.

A micro-batch is the checkpoint: number n is complete when Spark counts n micro-batches as done. Run as a module
(``python -m dataflow.compare.spark_trial JSON never``) it is the driver.
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

_A_WHILE: Final = 0.1
"""Seconds between two looks at a process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkTrial(Trial):
    """On Spark's local master, with a core for each of ``parallelism``."""

    rows_per_trigger: int

    def run(self, restore: str) -> flow.RunResult:
        """Run in a process, and wait for what it answers."""
        folder = Path(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._answer.unlink(missing_ok=True)
        log = folder / "process.log"
        with ProcessTree(self.command(restore), log) as process:
            while not (self._answer.exists() or process.ended_within(_A_WHILE)):
                pass  # once there is an answer nothing is waited for: Spark takes seconds to tidy up
        rmtree(folder / "spark", ignore_errors=True)
        if not self._answer.exists():
            raise PipelineFailed(
                f"the process on Spark died with exit code {process.returncode}; its output is in {log}"
            )
        answer: flow.RunResult | str = pickle.loads(self._answer.read_bytes())
        if isinstance(answer, str):
            raise PipelineFailed(f"the pipeline failed by itself, {answer}")
        return answer

    def look(self) -> Scene:
        """The last micro-batch that is done, and the one that every lane has been through."""
        directory = JobDirectory(self.checkpoints)
        done = directory.done
        return Scene(complete=done, in_progress=done + 1 if directory.has_reached(done + 1) else 0)

    def warm_up(self) -> None:
        """Nothing: every process starts cold, and compiled kernels are on disk from the first one on."""

    @property
    def _answer(self) -> Path:
        return Path(self.folder, "answer.pickle")

    def answer(self, restore: str) -> None:
        """Run in this process, and leave the result, or what was raised, where ``run`` looks for it."""
        answer: flow.RunResult | str
        try:
            answer = self._run(restore)
        except Exception as error:
            answer = "\n  ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
        whole = self._answer.with_suffix(".new")
        whole.write_bytes(pickle.dumps(answer))
        whole.rename(self._answer)
        if isinstance(answer, str):
            sys.exit(answer)

    def _run(self, restore: str) -> flow.RunResult:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # no look-up of this machine's name
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
        )


if __name__ == "__main__":
    msgspec.json.decode(sys.argv[1], type=SparkTrial).answer(sys.argv[2])
