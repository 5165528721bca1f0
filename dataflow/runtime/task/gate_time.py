"""The event time of a gate: the merged watermark of its channels, idleness, and the ends of its ports.

A port that does not count for time is left out of the merged watermark and of idleness.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dataflow.contracts.source import Json
from dataflow.protocol.events import Idle, PortEnded, Watermark
from dataflow.protocol.watermarks import MAX_WATERMARK, WatermarkMerger

__all__ = ["GateTime"]

TimeChange = Watermark | Idle | None
"""The change of time of the whole gate: a new watermark, idleness, or None."""


class GateTime:
    """Merges the times of the channels 0 .. len(``ports``) - 1; channel i feeds input port ``ports[i]``.

    ``untimed`` are the ports that do not count for time; at least one port does.

    >>> time = GateTime([0, 1], untimed=[1])
    >>> time.advance(0, 7), time.advance(1, 3), time.port_end(0)
    (Watermark(time=7), None, PortEnded(port=0))
    """

    __slots__ = (
        "_ended",
        "_ended_before",
        "_ended_ports",
        "_merger",
        "_numbers",
        "_repeats_idle",
        "_said_idle",
        "ports",
    )

    def __init__(self, ports: Sequence[int], untimed: Collection[int] = ()) -> None:
        #: Never changes: the input port that each channel feeds.
        self.ports = tuple(ports)
        #: Never changes. By channel: its number in the merger; None: it does not count for time.
        self._numbers = _numbered([port not in untimed for port in self.ports])
        #: Has the channels that count for time. A channel that ended has the largest watermark.
        self._merger = WatermarkMerger(len(self._numbers) - self._numbers.count(None))
        #: True only if there are live channels that count, and all are idle. (False does not mean the contrary.)
        self._said_idle = False
        #: True only if ``_said_idle``, and rows came from a channel that does not count. What the operator emits for
        #: them ends the idleness downstream, so ``Idle`` is returned again.
        self._repeats_idle = False
        #: Channels that ended, before a restore, too: then their ends come once more.
        self._ended: set[int] = set()
        #: Ports of which ``PortEnded`` was returned, before a restore, too.
        self._ended_ports: set[int] = set()
        #: Changes only with a restore: the ports and channels above of the snapshot.
        self._ended_before: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())

    def leave_out(self, channels: Collection[int]) -> None:
        """Let channels be idle from the start, because they will have no rows. Call this before any event.

        Without effect if these are all channels that count for time: then there is no time to wait for.
        """
        numbers = {number for channel in channels if (number := self._numbers[channel]) is not None}
        if len(numbers) < len(self._numbers) - self._numbers.count(None):
            for number in numbers:
                self._merger.idle(number)

    @property
    def merged(self) -> int | None:
        """The merged watermark; None: none yet."""
        return self._merger.merged

    @property
    def held_by(self) -> int | None:
        """The first channel that holds the merged watermark back: idle and ended ones do not. None: there is none."""
        merged = self._merger.merged
        for number, time in enumerate(self._merger.snapshot()):
            if time == merged and time != MAX_WATERMARK and not self._merger.is_idle(number):
                return self._numbers.index(number)
        return None

    def advance(self, channel: int, time: int) -> TimeChange:
        """Set a channel's watermark."""
        number = self._numbers[channel]
        return None if number is None else self._change(self._merger.advance(number, time))

    def idle(self, channel: int) -> TimeChange:
        """Leave a channel out until its next row or watermark."""
        number = self._numbers[channel]
        return None if number is None else self._change(self._merger.idle(number))

    def end(self, channel: int) -> TimeChange:
        """End a channel, after ``port_end``. A second call changes nothing."""
        self._ended.add(channel)
        return self.advance(channel, MAX_WATERMARK)

    def resume(self, channel: int) -> None:
        """Note that rows came from a channel, so it is not idle. This never moves the merged watermark."""
        number = self._numbers[channel]
        if number is None:
            self._repeats_idle = self._said_idle
        else:
            self._merger.resume(number)
            self._said_idle = self._repeats_idle = False

    @property
    def is_settled(self) -> bool:
        """Whether ``settle`` would return None."""
        return not self._repeats_idle

    def settle(self) -> TimeChange:
        """Return the change of time that the rows of an earlier poll made necessary."""
        repeats, self._repeats_idle = self._repeats_idle, False
        return Idle() if repeats else None

    def has_ended(self, channel: int) -> bool:
        """Return whether a channel has ended, also before a restore."""
        return channel in self._ended

    def port_end(self, channel: int) -> PortEnded | None:
        """Return the end of a port, once, if ``channel`` is its last one to end."""
        port = self.ports[channel]
        if port in self._ended_ports:
            return None
        for other, its_port in enumerate(self.ports):
            if its_port == port and other != channel and other not in self._ended:
                return None
        self._ended_ports.add(port)
        return PortEnded(port)

    @property
    def watermarks(self) -> tuple[int | None, ...]:
        """The watermark of each channel, for the task's snapshot; None if it does not count for time."""
        times = self._merger.snapshot()
        return tuple([None if number is None else times[number] for number in self._numbers])

    def snapshot(self) -> Mapping[str, Json]:
        """Return the state as JSON; idleness is not kept."""
        ends: dict[str, Json] = {"ended": sorted(self._ended), "ended_ports": sorted(self._ended_ports)}
        return {"watermarks": list(self.watermarks), **ends}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what ``snapshot`` returned, with no channel idle. Call this before any event."""
        watermarks: Sequence[int | None] = state["watermarks"]
        assert len(watermarks) == len(self.ports), f"{len(watermarks)} watermarks for {len(self.ports)} channels"
        pairs = zip(self._numbers, watermarks, strict=True)
        self._merger.restore([time for number, time in pairs if number is not None])
        self._ended = set(state["ended"])
        self._ended_ports = set(state["ended_ports"])
        self._ended_before = frozenset(self._ended_ports), frozenset(self._ended)

    def _change(self, moved: int | None) -> TimeChange:
        was_idle, self._said_idle = self._said_idle, self._merger.all_idle
        self._repeats_idle = self._repeats_idle and self._said_idle
        if moved is not None:
            return Watermark(moved)
        return Idle() if self._said_idle and not was_idle else None

    def validate(self, put: Sequence[bool], polled: Sequence[bool]) -> None:
        """Assert the invariants, given the channels whose end was put, and those whose end was polled."""
        assert not self._said_idle or self._merger.all_idle, "said to be idle, but not every channel is"
        assert self._said_idle or not self._repeats_idle, "is to repeat that it is idle, but it is not"
        times = self._merger.snapshot()
        for channel, number in enumerate(self._numbers):
            time = MAX_WATERMARK if number is None else times[number]
            assert not polled[channel] or time == MAX_WATERMARK, f"channel {channel} ended with the watermark {time}"
        assert not all(polled) or self.merged == MAX_WATERMARK, f"ended with the watermark {self.merged}"
        for port in set(self.ports):
            channels = [channel for channel, of in enumerate(self.ports) if of == port]
            ports_before, before = self._ended_before
            if port in self._ended_ports - ports_before:
                still_open = [channel for channel in channels if not put[channel] and channel not in before]
                assert not still_open, f"reported the end of port {port}, but channels {still_open} are open"
            if all([polled[channel] for channel in channels]):
                assert port in self._ended_ports, f"did not report the end of port {port}"


def _numbered(chosen: Sequence[bool]) -> tuple[int | None, ...]:
    """Return for each entry its number among those that are True, or None.

    >>> _numbered([True, False, True])
    (0, None, 1)
    """
    numbers = iter(range(len(chosen)))
    return tuple([next(numbers) if one else None for one in chosen])
