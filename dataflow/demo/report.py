"""What the demo found, as a table for people and as plain values for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dataflow.checkpointing import Mode
from dataflow.clock import duration_text

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["DemoReport", "ModeReport"]


@dataclass(frozen=True, slots=True)
class ModeReport:
    """One mode: a kill in the middle of a checkpoint, and what the restore made of it.

    Attributes:
        attempts: processes that were started until one was killed at a right moment.
        completed: checkpoints of the killed process; ``restored`` is the one that was restored, ``in_progress`` the one
            that the kill cut short.
        after: checkpoints that the restored run completed.
        blocked_before: microseconds each channel was blocked in the killed process, up to checkpoint ``restored``.
        blocked_after: the same of the restored run.
        duplicates: rows that the restore reported as delivered to the aggregate twice.
        rewound: for each input file the row that was read next, and how many it has.
        failures: what is not as it must be; empty: ``result`` holds.
    """

    mode: Mode
    folder: str
    attempts: int
    completed: int = 0
    in_progress: int = 0
    restored: int = 0
    after: int = 0
    blocked_before: Mapping[str, int] = field(default_factory=dict)
    blocked_after: Mapping[str, int] = field(default_factory=dict)
    duplicates: int = 0
    rewound: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    result: str = ""
    failures: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """All of it, with the times in microseconds."""
        return {
            "mode": self.mode.value,
            "guarantee": self.mode.guarantee.value,
            "attempts": self.attempts,
            "checkpoints_before_kill": self.completed,
            "checkpoint_in_progress": self.in_progress,
            "checkpoint_restored": self.restored,
            "checkpoints_after_restore": self.after,
            "blocked_us_before_kill": dict(self.blocked_before),
            "blocked_us_after_restore": dict(self.blocked_after),
            "duplicates": self.duplicates,
            "rewound_to": {name: row for name, (row, _) in self.rewound.items()},
            "result": self.result,
            "failures": list(self.failures),
            "folder": self.folder,
        }


@dataclass(frozen=True, slots=True)
class DemoReport:
    """The whole demo: its input, as the job's counters saw it, and one report a mode."""

    folder: str
    read: int
    cancelled: int
    modes: Sequence[ModeReport]
    duration: int
    failures: Sequence[str] = ()

    @property
    def problems(self) -> list[str]:
        """Everything that is not as it must be, one sentence each."""
        return [*self.failures, *(f"{m.mode}: {failure}" for m in self.modes for failure in m.failures)]

    def to_json(self) -> dict[str, Any]:
        """All of it, with the times in microseconds."""
        return {
            "flights_read": self.read,
            "cancelled_dropped": self.cancelled,
            "modes": [mode.to_json() for mode in self.modes],
            "duration_us": self.duration,
            "folder": self.folder,
            "problems": self.problems,
        }

    def table(self) -> Table:
        """One column a mode."""
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("mode", no_wrap=True)
        for m in self.modes:
            table.add_column(str(m.mode), overflow="fold")
        for label, cells in self._rows():
            table.add_row(label, *cells)
        return table

    def _rows(self) -> list[tuple[str, list[str]]]:
        modes = self.modes
        channels = dict.fromkeys(c for m in modes for c in (*m.blocked_before, *m.blocked_after))
        files = dict.fromkeys(name for m in modes for name in m.rewound)
        return [
            ("processes started", [str(m.attempts) for m in modes]),
            ("checkpoints before the kill", [str(m.completed) for m in modes]),
            ("killed in checkpoint", [_count(m.in_progress) for m in modes]),
            ("restored checkpoint", [_count(m.restored) for m in modes]),
            ("checkpoints after it", [str(m.after) for m in modes]),
            ("blocked before + after", ["" for _ in modes]),
            *((f"  {channel}", [_blocked(m, channel) for m in modes]) for channel in channels),
            ("duplicates reported", [f"{m.duplicates:,} rows" for m in modes]),
            ("rewound to", ["" for _ in modes]),
            *((f"  {name}", [_rewound(m, name) for m in modes]) for name in files),
            ("result", [m.result if not m.failures else "FAILED" for m in modes]),
        ]

    @property
    def headline(self) -> str:
        """The input in one sentence."""
        kept = self.read - self.cancelled
        return f"{self.read:,} flights read, {self.cancelled:,} cancelled ones dropped, {kept:,} counted"


def _count(number: int) -> str:
    return str(number) if number else "-"


def _blocked(report: ModeReport, channel: str) -> str:
    before, after = report.blocked_before.get(channel, 0), report.blocked_after.get(channel, 0)
    return f"{duration_text(before)} + {duration_text(after)}"


def _rewound(report: ModeReport, name: str) -> str:
    if name not in report.rewound:
        return "-"
    row, rows = report.rewound[name]
    return f"row {row:,} of {rows:,}"
