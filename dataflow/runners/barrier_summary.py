"""The parts of a summary that come from events: which channels barriers blocked, and which checkpoints took longest.

On Spark only the driver records events, so blocked channels and the parts of a checkpoint are not known there: None in
JSON, and a line of the summary says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dataflow.clock import duration_text
from dataflow.contracts.checkpointing import Mode, mode_text
from dataflow.errors import EventsError
from dataflow.events.repeat_precision import Precision
from dataflow.views.attempt_mode import mode_of
from dataflow.views.blocked_channels import BlockedChannel, blocked_channels
from dataflow.views.checkpoint_table import SlowCheckpoint, slowest
from dataflow.views.choose_checkpoint import choose
from dataflow.views.repeats import Repeat

if TYPE_CHECKING:
    from dataflow.runners.run_result import RunResult

__all__ = ["BarrierSummary"]

_BLOCKED: Final = ("blocked channel", "longest", "in checkpoint", "waited for", "in all")
_SLOWEST: Final = ("slowest checkpoint", "took", "barriers travelled", "state was written", "manifest")
_LISTED: Final = 5
"""Channels that are listed."""
_UNKNOWN: Final = "-"


class _Repeats(NamedTuple):
    """The rows that a restore of a checkpoint would deliver twice, by operator."""

    attempt: int
    checkpoint: int
    operators: Sequence[Repeat]


class BarrierSummary:
    """The blocked channels and the slowest checkpoints of ``result``."""

    def __init__(self, result: RunResult) -> None:
        self._result = result
        self._events = result.events
        self._modes = {attempt: mode_of(self._events, attempt).mode for attempt in self._events.attempts}
        self._has_attempts = len(self._modes) > 1
        self.blocked: Sequence[BlockedChannel] = self._blocked()
        self.slowest: Sequence[SlowCheckpoint] = slowest(self._events) if result.mode is not None else ()
        self.repeats: _Repeats | None = self._repeats()

    def _repeats(self) -> _Repeats | None:
        """Return the repeated rows of the checkpoint that the timeline shows; None if its mode repeats none."""
        table = self._events.checkpoints
        if self._result.mode is None or not table.num_rows:
            return None
        chosen = choose(self._events)
        keys = zip(table["attempt"].to_pylist(), table["checkpoint"].to_pylist(), strict=True)
        (row,) = table.slice(list(keys).index(chosen), 1).to_pylist()
        if row["mode"] != Mode.UNALIGNED.value or row["repeats"] is None:
            return None
        return _Repeats(*chosen, [Repeat(r["operator"], r["rows"], Precision(r["precision"])) for r in row["repeats"]])

    def _blocked(self) -> list[BlockedChannel]:
        """Return the channels with the longest single waits, the longest first; then some of unknown waits.

        Of a long run events are dropped, so the sum of a channel is that of its counter. A simulated run has several
        attempts; the counter has the last one, and events have all.
        """
        counted = dict(self._result.blocked)
        known = blocked_channels(self._events, _LISTED)
        blocked = [replace(each, blocked=max(each.blocked, counted.pop(each.channel, 0))) for each in known]
        others = sorted(counted, key=lambda name: (-counted[name], name))[: _LISTED - len(blocked)]
        return [*blocked, *[BlockedChannel(name, 0, 0, 0, None, (), counted[name]) for name in others]]

    @property
    def lines(self) -> list[str]:
        """The lines of the summary about what is not known."""
        if self._result.mode is None:
            return []
        if not self._events.plan.is_measured:
            return ["  blocked channels, and the parts of a checkpoint: not measured on Spark"]
        shown, channels = len(self.blocked), len(self._result.blocked)
        lines = [f"  blocked channels: the {shown} longest of {channels:,}"] if channels > shown else []
        return [*self._repeat_lines(), *lines]

    def _repeat_lines(self) -> list[str]:
        """Return the line about rows that a restore would deliver twice; none in the modes that repeat no row."""
        if self.repeats is None:
            return []
        number = self._number(self.repeats)
        if not self.repeats.operators:
            return [f"  a restore of checkpoint {number} would deliver no row twice"]
        each = ", ".join([f"{repeat.amount_of_rows} at {repeat.operator}" for repeat in self.repeats.operators])
        return [f"  a restore of checkpoint {number} would deliver twice: {each}"]

    @property
    def tables(self) -> list[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
        """The headings and rows of each table that has rows."""
        tables = ((_SLOWEST, list(map(self._slow_row, self.slowest))), (_BLOCKED, list(map(self._row, self.blocked))))
        return [(heads, rows) for heads, rows in tables if rows]

    def _slow_row(self, each: SlowCheckpoint) -> tuple[str, ...]:
        number = self._number(each) + ("" if each.kind == "checkpoint" else f" ({each.kind})")
        return (number, duration_text(each.duration), *map(_time, (each.travel, each.write, each.manifest)))

    def _row(self, each: BlockedChannel) -> tuple[str, ...]:
        if not each.longest:
            return (each.channel, _UNKNOWN, _UNKNOWN, _UNKNOWN, duration_text(each.blocked))
        longest, awaited = duration_text(each.longest), each.waited_for or _UNKNOWN
        return (each.channel, longest, self._number(each), awaited, duration_text(each.blocked))

    def _number(self, each: BlockedChannel | SlowCheckpoint | _Repeats) -> str:
        """Return the id; of several attempts, with the attempt, and with its mode if they differ."""
        if not self._has_attempts:
            return f"{each.checkpoint}"
        mode = f", {mode_text(self._modes[each.attempt], None)}" if len(set(self._modes.values())) > 1 else ""
        return f"{each.checkpoint} of attempt {each.attempt}{mode}"

    def timeline_html(self) -> str:
        """Return the timeline of the checkpoint that tells most, folded; "" if no checkpoint has events."""
        if self._result.mode is None:
            return ""
        try:
            timeline = self._result.timeline()
        except EventsError:
            return ""
        title = escape(timeline.heading)
        return f"<details><summary>{title}: what barriers did</summary>{timeline._repr_html_()}</details>"

    def blocked_json(self) -> list[dict[str, Any]] | None:
        """Return the blocked channels as JSON values; times in microseconds; None: not measured."""
        if not self._events.plan.is_measured:
            return None
        return [
            {
                "channel": each.channel,
                "longest_us": each.longest or None,
                "attempt": each.attempt or None,
                "checkpoint": each.checkpoint or None,
                "until": None if each.until is None else each.until.value,
                "waited_for": list(each.awaited),
                "blocked_us": each.blocked,
            }
            for each in self.blocked
        ]

    def repeats_json(self) -> dict[str, Any] | None:
        """Return the rows that a restore would deliver twice; None in the modes that repeat no row, or not known."""
        if self.repeats is None:
            return None
        operators = [
            {"operator": repeat.operator, "rows": repeat.rows, "precision": repeat.precision.value}
            for repeat in self.repeats.operators
        ]
        return {"attempt": self.repeats.attempt, "checkpoint": self.repeats.checkpoint, "operators": operators}

    def slowest_json(self) -> list[dict[str, Any]]:
        """Return the slowest checkpoints as JSON values; times in microseconds; a part is None if it is not known."""
        return [
            {
                "attempt": each.attempt,
                "checkpoint": each.checkpoint,
                "kind": each.kind,
                "duration_us": each.duration,
                "travel_us": each.travel,
                "write_us": each.write,
                "manifest_us": each.manifest,
            }
            for each in self.slowest
        ]


def _time(length: int | None) -> str:
    return _UNKNOWN if length is None else duration_text(length)
