"""The input of a task that reads from other tasks, through an input gate."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from dataflow.clock import duration_text
from dataflow.contracts.source import Json
from dataflow.contracts.tuning import Choice
from dataflow.protocol.actions import AbortReason, Action
from dataflow.protocol.events import Barrier, Cancel, Data, Idle, LastWatermark, PortEnded, Watermark
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.runtime.task.blocked_channels import Alignment
from dataflow.runtime.task.byte_credit import TASK_BYTES, room
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.input_gate import InputGate, Taken
from dataflow.runtime.task.joined_rows import joining
from dataflow.runtime.task.progress import Progress
from dataflow.runtime.task.task_input import ChannelMetrics, PollResult, TaskInput

__all__ = ["ChannelInput"]

_LAST = Watermark(MAX_WATERMARK)


class ChannelInput(TaskInput):
    """The input from other tasks, as ``gate`` returns it."""

    def __init__(self, gate: InputGate, task_bytes: int = TASK_BYTES) -> None:
        super().__init__()
        self._task_bytes = task_bytes
        self.gate = gate

    @property
    def ended(self) -> bool:
        return self.gate.ended

    @property
    def floor(self) -> int:
        return self.gate.floor

    @property
    def _may_start(self) -> bool:
        return self.gate.ended

    def triggered(self, now: int) -> Sequence[Action]:
        if not self._held or self.finished or self.gate.ended:
            return super().triggered(now)
        actions = self.gate.start(self._held[0], now)
        if actions is None:
            return ()
        self._held.pop(0)
        return actions

    def triggered_ahead(self, now: int) -> Sequence[Action]:
        return self.triggered(now)  # the gate has not ended, so it starts only what overtakes

    @property
    def deadline(self) -> int | None:
        started = [self.gate.starts_at(barrier) for barrier in self._held[:1]]
        return min([at for at in (self.gate.deadline, *started) if at is not None], default=None)

    def poll(self, now: int, max_rows: int | None = None) -> PollResult | None:
        taken = self.gate.poll(now, max_rows)
        if taken is None:
            return None
        element, port = taken.element, self.gate.ports[taken.channel]
        if element == _LAST and self.gate.is_ending:
            return PollResult(port, LastWatermark(), taken.actions)
        flow = element if isinstance(element, Data | Watermark | Idle | PortEnded) else None
        is_control = isinstance(element, Barrier | Cancel)
        return PollResult(port, flow, taken.actions, is_control=is_control)

    def poll_control(self, now: int) -> PollResult | None:
        return self._control(self.gate.poll_control(now))

    def poll_urgent(self, now: int) -> PollResult | None:
        return self._control(self.gate.poll_urgent(now))

    def _control(self, taken: Taken | None) -> PollResult | None:
        if taken is None:
            return None
        return PollResult(self.gate.ports[taken.channel], None, taken.actions, is_control=True)

    def rests(self, now: int) -> bool:
        return not self._held and self.gate.rests(now)

    def abort(self, checkpoint: int, reason: AbortReason, now: int) -> Sequence[Action]:
        return self._forget(checkpoint, reason) or self.gate.abort(checkpoint, reason, now)

    def tick(self, now: int) -> Sequence[Action]:
        return self.gate.tick(now)

    def validate(self) -> None:
        self.gate.validate()

    def alignment(self, checkpoint: int) -> Alignment:
        last = self.gate.alignment
        return last if last.checkpoint == checkpoint else super().alignment(checkpoint)

    @property
    def input_channels(self) -> Sequence[Channel]:
        return self.gate.channels

    @property
    def blocked(self) -> Collection[int]:
        return self.gate.blocked

    @property
    def aligning(self) -> bool:
        return self.gate.aligning

    @property
    def hurried(self) -> bool:
        return self.gate.hurried

    @property
    def watermark(self) -> int | None:
        return self.gate.watermark

    @property
    def held_by(self) -> str | None:
        return self.gate.held_by

    def causes(self, state: Progress, now: int) -> list[str]:
        gate, times = self.gate, self.gate.blocked_time(now)
        causes = [
            f"blocked until the other barriers come: {gate.channels[i].name} "
            f"({gate.channels[i].queued_rows} rows queued, {duration_text(times[i])} in all)"
            for i in sorted(gate.blocked)
        ]
        if state in (Progress.WAITING, Progress.BLOCKED):
            empty = [c.name for i, c in enumerate(gate.channels) if i not in gate.blocked and len(c) == 0]
            causes += [f"empty: {name}" for name in empty]
        return causes

    def channels(self, now: int) -> Sequence[ChannelMetrics]:
        blocked = self.gate.blocked_time(now)
        return [
            ChannelMetrics(c.name, c.rows, b, c.back_pressured)
            for c, b in zip(self.gate.channels, blocked, strict=True)
        ]

    def choices(self) -> Sequence[Choice]:
        channels = self.gate.channels
        joined = [joining(channel.join, channel.batches, channel.joined) for channel in channels]
        return [*joined, *[room(self._task_bytes, channel.batches, channel.larger) for channel in channels]]

    def snapshot(self) -> Mapping[str, Json]:
        return self.gate.snapshot()
