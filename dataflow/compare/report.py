"""What a comparison found, as a table for people and as plain values for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataflow.clock import duration_text
from dataflow.contracts.checkpointing import Mode

if TYPE_CHECKING:
    from rich.table import Table

    from dataflow.runtime.restore.find_checkpoint import RestoreReport

__all__ = ["CompareReport", "Cost", "ModeReport", "Restoration"]


@dataclass(frozen=True, slots=True)
class Cost:
    """The checkpoints of a run that nobody disturbed. None: the runner's have no such thing.

    Attributes:
        completed, failed: how many, the last one at end of input included.
        median, worst: microseconds from trigger to completion, of the periodic ones.
        blocked: microseconds that barriers blocked each channel.
        in_flight: the most rows that one checkpoint stored as channel state.
        state_bytes: the size of the largest checkpoint.
        duration: microseconds of the run.
        rows: in and out of each operator.
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


@dataclass(frozen=True, slots=True)
class Restoration:
    """A process that was killed, and what the restore made of it.

    Attributes:
        in_progress: the checkpoint that the kill cut short; 0: none.
        report: of the restore; None: no checkpoint was complete, and the job began again.
        after: checkpoints that the restored run completed.
    """

    in_progress: int
    report: RestoreReport | None
    after: int

    @property
    def checkpoint(self) -> int | None:
        """The one that was restored."""
        return None if self.report is None else self.report.checkpoint

    @property
    def duration(self) -> int | None:
        """Microseconds the restore took."""
        return None if self.report is None else self.report.duration

    @property
    def in_flight(self) -> int:
        """Rows re-injected into channels."""
        return self.report.in_flight_rows if self.report else 0

    @property
    def duplicates(self) -> Mapping[str, int]:
        """Rows delivered twice, by operator."""
        return self.report.duplicated_by_operator if self.report else {}

    @property
    def most_duplicates(self) -> str:
        """Rows delivered twice to the operator with the most, for the table."""
        most = f"{max(self.duplicates.values(), default=0):,}"
        return f"{most} (may be too low)" if self.report and self.report.too_low else most

    def to_json(self) -> dict[str, Any]:
        """All of it, with times in microseconds."""
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


@dataclass(frozen=True, slots=True)
class ModeReport:
    """One mode. ``attempts`` is how many processes were started until one was killed at the right moment.

    ``undisturbed`` and ``killed`` are the folders of the two runs: each has ``checkpoints`` and ``output/<sink>``.
    ``failures`` says what is not as it must be; without any, ``result`` holds.
    """

    mode: Mode
    undisturbed: Path
    cost: Cost
    attempts: int = 0
    killed: Path | None = None
    restoration: Restoration | None = None
    result: str = ""
    failures: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """All of it, with times in microseconds; what was not done is null."""
        cost = self.cost
        return {
            "mode": self.mode.value,
            "guarantee": self.mode.guarantee.value,
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

    def cells(self) -> dict[str, str]:
        """The row of this mode, by heading."""
        cost, r = self.cost, self.restoration
        return {
            "mode": str(self.mode),
            "checkpoints": f"{cost.completed:,}" + (f", {cost.failed:,} failed" if cost.failed else ""),
            "median duration": _time(cost.median),
            "worst duration": _time(cost.worst),
            "blocked": _time(None if cost.blocked is None else sum(cost.blocked.values())),
            "bytes": _number(cost.state_bytes),
            "in flight": _number(cost.in_flight),
            "killed in": str(r.in_progress or "-") if r else "-",
            "restored": str(r.checkpoint or "none") if r else "-",
            "restore": _time(r.duration) if r else "-",
            "re-injected": f"{r.in_flight:,}" if r else "-",
            "duplicates": r.most_duplicates if r else "-",
            "result": "FAILED" if self.failures else self.result,
        }


def _number(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


def _time(length: int | None) -> str:
    return "-" if length is None else duration_text(length)


@dataclass(frozen=True, slots=True)
class CompareReport:
    """All modes. ``failures`` concern no single mode."""

    pipeline: str
    folder: str
    modes: Sequence[ModeReport]
    duration: int
    failures: Sequence[str] = ()

    @property
    def headline(self) -> str:
        """What was compared, in one sentence."""
        return f"pipeline {self.pipeline!r}, with checkpoint modes tried one after the other"

    @property
    def problems(self) -> list[str]:
        """Everything that is not as it must be, one sentence each."""
        return [*self.failures, *(f"{m.mode}: {failure}" for m in self.modes for failure in m.failures)]

    def to_json(self) -> dict[str, Any]:
        """All of it, with times in microseconds."""
        return {
            "pipeline": self.pipeline,
            "modes": [mode.to_json() for mode in self.modes],
            "duration_us": self.duration,
            "folder": self.folder,
            "problems": self.problems,
        }

    def table(self) -> Table:
        """One row a mode: needs some 190 columns."""
        rows = [mode.cells() for mode in self.modes]
        table = _table()
        for heading in rows[0]:
            words = heading in ("mode", "result")
            table.add_column(heading, justify="left" if words else "right", overflow="fold")
        for row in rows:
            table.add_row(*row.values())
        return table

    def sheet(self) -> Table:
        """The same for narrow terminals: one column a mode."""
        rows = [mode.cells() for mode in self.modes]
        table = _table()
        table.add_column("mode", no_wrap=True)
        for row in rows:
            table.add_column(row["mode"], overflow="fold")
        for heading in list(rows[0])[1:]:
            table.add_row(heading, *(row[heading] for row in rows))
        return table


def _table() -> Table:
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD, pad_edge=False)
