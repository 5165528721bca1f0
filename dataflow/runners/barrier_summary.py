"""The parts of a summary that come from events: which channels barriers blocked, and which checkpoints took longest.

On Spark only the driver records events, so blocked channels and the parts of a checkpoint are not known there: None in
JSON, and a line of the summary says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any, Final

from dataflow.clock import duration_text
from dataflow.errors import EventsError
from dataflow.views.checkpoint_table import BlockedChannel, SlowCheckpoint, blocked_inputs, slowest

if TYPE_CHECKING:
    from dataflow.runners.run_result import RunResult

__all__ = ["BarrierSummary"]

_BLOCKED: Final = ("channel", "blocked", "longest", "in checkpoint", "waited for the barrier of")
_SLOWEST: Final = ("slowest checkpoint", "took", "barriers travelled", "state was written", "manifest")
_LISTED: Final = 5
"""Channels that are listed."""
_UNKNOWN: Final = "-"


class BarrierSummary:
    """The blocked channels and the slowest checkpoints of ``result``."""

    def __init__(self, result: RunResult) -> None:
        self._result = result
        self._events = result.events
        self._has_attempts = len(self._events.attempts) > 1
        self.blocked: Sequence[BlockedChannel] = self._blocked()
        self.slowest: Sequence[SlowCheckpoint] = slowest(self._events) if result.mode is not None else ()

    def _blocked(self) -> list[BlockedChannel]:
        """Return the channels that were blocked longest, the longest first.

        Of a long run events are dropped, so the sum of a channel is that of its counter. A simulated run has several
        attempts; the counter has the last one, and events have all.
        """
        counted = dict(self._result.blocked)
        listed = {each.channel: each for each in blocked_inputs(self._events, _LISTED)}
        names = sorted({*counted, *listed}, key=lambda name: (-self._sum(name, counted, listed), name))[:_LISTED]
        return [self._channel(name, self._sum(name, counted, listed), listed.get(name)) for name in names]

    @staticmethod
    def _channel(name: str, blocked: int, known: BlockedChannel | None) -> BlockedChannel:
        """Return what is known of a channel; 0: the events of its longest wait were dropped."""
        if known is None:
            return BlockedChannel(name, blocked, 0, 0, 0, None)
        return replace(known, blocked=blocked)

    @staticmethod
    def _sum(name: str, counted: dict[str, int], listed: dict[str, BlockedChannel]) -> int:
        return max(counted.get(name, 0), listed[name].blocked if name in listed else 0)

    @property
    def lines(self) -> list[str]:
        """The lines of the summary about what is not known."""
        if self._result.mode is None:
            return []
        if not self._events.plan.is_measured:
            return ["  blocked channels, and the parts of a checkpoint: not measured on Spark"]
        shown, channels = len(self.blocked), len(self._result.blocked)
        return [f"  blocked channels: the {shown} longest of {channels:,}"] if channels > shown else []

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
            return (each.channel, duration_text(each.blocked), _UNKNOWN, _UNKNOWN, _UNKNOWN)
        longest, awaited = duration_text(each.longest), each.awaited or _UNKNOWN
        return (each.channel, duration_text(each.blocked), longest, self._number(each), awaited)

    def _number(self, each: BlockedChannel | SlowCheckpoint) -> str:
        return f"{each.checkpoint} of attempt {each.attempt}" if self._has_attempts else f"{each.checkpoint}"

    def timeline_html(self) -> str:
        """Return the timeline of the checkpoint that tells most, folded; "" if no checkpoint has events."""
        if self._result.mode is None:
            return ""
        try:
            timeline = self._result.timeline()
        except EventsError:
            return ""
        title = escape(timeline.title)
        return f"<details><summary>{title}: what barriers did</summary>{timeline._repr_html_()}</details>"

    def blocked_json(self) -> list[dict[str, Any]] | None:
        """Return the blocked channels as JSON values; times in microseconds; None: not measured."""
        if not self._events.plan.is_measured:
            return None
        return [
            {
                "channel": each.channel,
                "blocked_us": each.blocked,
                "longest_us": each.longest or None,
                "attempt": each.attempt or None,
                "checkpoint": each.checkpoint or None,
                "waited_for": each.awaited,
            }
            for each in self.blocked
        ]

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
