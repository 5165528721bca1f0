"""The result of one mode: the cost of its checkpoints, its restore, and whether it kept its guarantee."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataflow.clock import duration_text
from dataflow.contracts.checkpointing import Mode

if TYPE_CHECKING:
    from dataflow.runtime.restore.find_checkpoint import RestoreReport

__all__ = ["Cost", "ModeReport", "Promise", "Restoration"]


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of checkpoints in a run that was not killed. None: the runner does not measure it.

    Attributes:
        completed: number of checkpoints that completed, with the last one at the end of the input.
        failed: number of checkpoints that failed.
        median: microseconds from trigger to completion, median of the periodic checkpoints.
        worst: microseconds from trigger to completion, longest of the periodic checkpoints.
        blocked: microseconds that barriers blocked each channel.
        in_flight: the most rows that one checkpoint stored as channel state.
        state_bytes: the size of the largest checkpoint.
        duration: microseconds of the run.
        rows: rows into and out of each operator, by name.
    """

    completed: int
    failed: int
    median: int | None
    worst: int | None
    blocked: Mapping[str, int] | None
    in_flight: int | None
    state_bytes: int | None
    duration: int
    rows: Mapping[str, tuple[int, int]]

    @property
    def blocked_total(self) -> int | None:
        """Microseconds that barriers blocked channels, added up over all channels."""
        return None if self.blocked is None else sum(self.blocked.values())


@dataclass(frozen=True, slots=True)
class Restoration:
    """The restore of a killed process.

    Attributes:
        in_progress: number of the checkpoint that was being written at the kill; 0: none.
        report: the report of the restore; None: no checkpoint was complete, and the job started from the beginning.
        after: number of checkpoints that the restored run completed.
    """

    in_progress: int
    report: RestoreReport | None
    after: int

    @property
    def checkpoint(self) -> int | None:
        """The number of the checkpoint that was restored."""
        return None if self.report is None else self.report.checkpoint

    @property
    def duration(self) -> int | None:
        """Microseconds that the restore took."""
        return None if self.report is None else self.report.duration

    @property
    def in_flight(self) -> int:
        """Rows that were put back into channels."""
        return self.report.in_flight_rows if self.report else 0

    @property
    def duplicates(self) -> Mapping[str, int]:
        """Repeated deliveries by operator."""
        return self.report.duplicated_by_operator if self.report else {}

    @property
    def most_duplicates(self) -> str:
        """The repeated deliveries of the operator with the most, with its name, as a table cell."""
        operator, most = max(self.duplicates.items(), key=lambda entry: entry[1], default=("", 0))
        cell = f"{most:,} at {operator!r}" if most else "0"
        return f"{cell} (may be too low)" if self.report and self.report.too_low else cell

    def to_json(self) -> dict[str, Any]:
        """Return all values, with times in microseconds."""
        return {
            "killed_in_checkpoint": self.in_progress or None,
            "restored_checkpoint": self.checkpoint,
            "restore_us": self.duration,
            "rows_replayed_at_least": self.report.rows_replayed if self.report else 0,
            "in_flight_rows": self.in_flight,
            "in_flight_bytes": self.report.in_flight_bytes if self.report else 0,
            "duplicates": dict(self.duplicates),
            "rewound_to": dict(self.report.offsets) if self.report else {},
            "checkpoints_after": self.after,
        }


class Promise(Enum):
    """Whether a mode kept its guarantee."""

    HELD = "held"
    FAILED = "FAILED"
    NOT_TESTED = "not tested"


@dataclass(frozen=True, slots=True)
class ModeReport:
    """The result of one mode.

    Attributes:
        mode: the checkpoint mode.
        undisturbed: folder of the run without a kill, with ``checkpoints`` and ``output/<sink>``.
        cost: the cost of checkpoints in that run.
        attempts: number of processes that were started until one was killed at the right moment.
        killed: folder of the run that was killed and restored; None: none was started.
        restoration: the restore; None: nothing was restored.
        result: the comparison of outputs, in words; it holds if there are no ``failures``.
        failures: one sentence for each check that failed.
        checked: the outputs could be compared, so a wrong one would have been noticed.
    """

    mode: Mode
    undisturbed: Path
    cost: Cost
    attempts: int = 0
    killed: Path | None = None
    restoration: Restoration | None = None
    result: str = ""
    failures: Sequence[str] = ()
    checked: bool = True

    @property
    def promise(self) -> Promise:
        """Whether the mode kept its guarantee; not tested if nothing was restored or the output is not comparable."""
        if self.restoration is None:
            return Promise.NOT_TESTED
        if self.failures:
            return Promise.FAILED
        return Promise.HELD if self.checked else Promise.NOT_TESTED

    def to_json(self) -> dict[str, Any]:
        """Return all values, with times in microseconds; null: not done, or not measured by the runner."""
        cost = self.cost
        return {
            "mode": self.mode.value,
            "guarantee": self.mode.guarantee.value,
            "promise": self.promise.value.lower(),
            "checkpoints_completed": cost.completed,
            "checkpoints_failed": cost.failed,
            "checkpoint_us_median": cost.median,
            "checkpoint_us_worst": cost.worst,
            "blocked_us": None if cost.blocked is None else dict(cost.blocked),
            "state_bytes": cost.state_bytes,
            "in_flight_rows_stored": cost.in_flight,
            "rows_in_and_out": {name: list(rows) for name, rows in cost.rows.items()},
            "undisturbed_us": cost.duration,
            "processes_started": self.attempts,
            "restoration": self.restoration and self.restoration.to_json(),
            "result": self.result,
            "failures": list(self.failures),
            "undisturbed_folder": str(self.undisturbed),
            "killed_folder": self.killed and str(self.killed),
        }

    def cost_cells(self) -> dict[str, str]:
        """Return the row of this mode in the table of costs, by heading."""
        cost = self.cost
        return {
            "mode": str(self.mode),
            "checkpoints": f"{cost.completed:,}" + (f", {cost.failed:,} failed" if cost.failed else ""),
            "median time": _time(cost.median),
            "worst time": _time(cost.worst),
            "blocked": _time(cost.blocked_total),
            "bytes": _number(cost.state_bytes),
            "in-flight rows stored": _number(cost.in_flight),
        }

    def recovery_cells(self) -> dict[str, str]:
        """Return the row of this mode in the table of recoveries, by heading."""
        r = self.restoration
        return {
            "mode": str(self.mode),
            "killed in": str(r.in_progress or "-") if r else "-",
            "restored": str(r.checkpoint or "none") if r else "-",
            "restore time": _time(r.duration) if r else "-",
            "in-flight rows put back": f"{r.in_flight:,}" if r else "-",
            "repeated deliveries": r.most_duplicates if r else "-",
            "output": "FAILED" if self.failures else self.result,
        }


def _number(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


def _time(length: int | None) -> str:
    return "-" if length is None else duration_text(length)
