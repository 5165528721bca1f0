"""The result of a comparison: as tables and sentences for people, and as plain values for programs."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dataflow.compare.closing import conclude
from dataflow.compare.mode_report import ModeReport
from dataflow.compare.tables import ReportTable

__all__ = ["CompareReport"]

_COST_LEGEND = {
    "checkpoints": "completed during the run, with the last one at the end of the input",
    "median time": "from the trigger of a checkpoint until it is complete; the median of the periodic checkpoints",
    "worst time": "the longest such time",
    "blocked": "time that inputs were blocked to wait for barriers, added up over all channels",
    "bytes": "size of the largest checkpoint",
    "in-flight rows stored": "rows waiting in queues that a checkpoint stored; of the checkpoint with the most",
}
_RECOVERY_LEGEND = {
    "killed in": "number of the checkpoint that was being written when the process was killed",
    "restored": "number of the newest complete checkpoint, from which the job resumed",
    "restore time": "from the search for a checkpoint until the job was ready to run",
    "in-flight rows put back": "rows that the restored checkpoint had stored out of queues; each is delivered once",
    "repeated deliveries": "rows that the restore reported as delivered a second time, at the operator with the most; "
    "a row may repeat at several operators",
    "output": "the output of the restored run, compared with the run without a kill",
}


@dataclass(frozen=True, slots=True)
class CompareReport:
    """The result of a comparison.

    Attributes:
        pipeline: the name of the pipeline.
        folder: the directory with the files of all runs.
        modes: the results, in the order in which the modes were tried.
        duration: microseconds of the whole comparison.
        failures: failed checks that concern no single mode, one sentence each.
        sinks: the names of the pipeline's sinks.
    """

    pipeline: str
    folder: str
    modes: Sequence[ModeReport]
    duration: int
    failures: Sequence[str] = ()
    sinks: Sequence[str] = ()

    @property
    def headline(self) -> str:
        """The pipeline that was compared, in one sentence."""
        count = len(self.modes)
        return f"pipeline {self.pipeline!r}, {count} checkpoint mode{'s' * (count != 1)} tried one after the other"

    @property
    def problems(self) -> list[str]:
        """The failed checks, one sentence each."""
        return [*self.failures, *(f"{m.mode}: {failure}" for m in self.modes for failure in m.failures)]

    @property
    def tables(self) -> list[ReportTable]:
        """The table of costs, and the table of recoveries if a mode was to be killed."""
        is_killed = any(mode.attempts or mode.failures for mode in self.modes)
        return [self.cost_table, self.recovery_table] if is_killed else [self.cost_table]

    @property
    def cost_table(self) -> ReportTable:
        """The cost of checkpoints in the runs without a kill."""
        rows = [mode.cost_cells() for mode in self.modes]
        return ReportTable("Cost of checkpoints, in the run without a kill:", rows, _COST_LEGEND)

    @property
    def recovery_table(self) -> ReportTable:
        """The kills and restores."""
        rows = [mode.recovery_cells() for mode in self.modes]
        return ReportTable("Recovery, in the run that was killed and restored:", rows, _RECOVERY_LEGEND)

    @property
    def closing(self) -> list[str]:
        """The conclusions in words, one paragraph each."""
        return conclude(self.modes)

    def where_to_look(self) -> list[str]:
        """Return lines that name the files of the runs, and a command that opens one of them."""
        lines = [f"Output, checkpoints and logs of every run: {self.folder}"]
        folder = next((mode.killed or mode.undisturbed for mode in self.modes), None)
        if folder is not None and self.sinks:
            path = str(folder / "output" / self.sinks[0])
            code = f"from operators.sinks.parquet import read_committed; print(read_committed({json.dumps(path)}))"
            lines.append(f"To print the output of one: {shlex.join([sys.executable, '-c', code])}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return all values, with times in microseconds."""
        return {
            "pipeline": self.pipeline,
            "modes": [mode.to_json() for mode in self.modes],
            "duration_us": self.duration,
            "folder": self.folder,
            "problems": self.problems,
        }
