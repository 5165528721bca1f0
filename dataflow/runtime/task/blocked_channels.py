"""The clocks of blocked channels: how long each was blocked so far, and how long by the barrier of each checkpoint.

A wait belongs to the checkpoint whose barrier was last taken from its channel. A checkpoint may be aborted while its
channels are blocked, and the next one may block them at once: so a wait ends, too, if another barrier goes on with it.

Invariant: a clock runs if and only if its channel is blocked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from typing import NamedTuple

from dataflow.events.kinds import Kind, Unblocked
from dataflow.events.recorder import EventWriter

__all__ = ["Alignment", "BlockedChannels"]

_NONE: Mapping[str, int] = {}


class Alignment(NamedTuple):
    """How long a task waited for the barriers of ``checkpoint``, in microseconds.

    ``duration`` is the time from the first barrier to the snapshot. ``blocked`` is the time that each channel was
    blocked; channels that never were are absent.
    """

    checkpoint: int
    duration: int = 0
    blocked: Mapping[str, int] = _NONE


class BlockedChannels:
    """The clocks of the channels with these ``names``. ``events`` records when a channel is blocked, and until when.

    >>> from dataflow.events.recorder import UNRECORDED
    >>> clocks = BlockedChannels(["a", "b"], UNRECORDED)
    >>> clocks.take_barrier(0, 7)
    >>> clocks.update({0}, 100, None, Unblocked.COMPLETE)
    >>> clocks.take_barrier(1, 7)
    >>> clocks.update(set(), 130, 7, Unblocked.COMPLETE)
    >>> clocks.totals(200), clocks.waits(7)
    ((30, 0), {'a': 30})
    """

    def __init__(self, names: Sequence[str], events: EventWriter) -> None:
        #: Never changes.
        self._names = tuple(names)
        #: Never changes. One thread records: the one that polls.
        self._events = events
        #: By channel. A time if and only if it is blocked.
        self._since: list[int | None] = [None] * len(self._names)
        #: By channel: the checkpoint of the barrier taken last; 0: none. A blocked channel is blocked by it.
        self._barriers = [0] * len(self._names)
        #: By channel: the value of ``_barriers`` when it was blocked.
        self._by = [0] * len(self._names)
        #: By channel, without the time since ``_since``. Never negative, never reduced.
        self._totals = [0] * len(self._names)
        #: By checkpoint and channel, of waits that are over. Has checkpoints whose snapshot may still be taken.
        self._waits: dict[int, dict[int, int]] = {}

    @property
    def running(self) -> Set[int]:
        """The channels whose clocks run."""
        return {channel for channel, since in enumerate(self._since) if since is not None}

    def totals(self, now: int) -> tuple[int, ...]:
        """Return the microseconds that each channel was blocked so far."""
        return tuple(
            total if since is None else total + now - since
            for total, since in zip(self._totals, self._since, strict=True)
        )

    def waits(self, checkpoint: int) -> Mapping[str, int]:
        """Return the microseconds that each channel was blocked by the barrier of ``checkpoint``, in waits that are
        over, before `forget` dropped it.
        """
        waits = self._waits.get(checkpoint, {})
        return {self._names[channel]: time for channel, time in waits.items() if time}

    def forget(self, floor: int) -> None:
        """Drop the waits of checkpoints below ``floor``, whose snapshots were taken or aborted."""
        if self._waits:
            self._waits = {n: waits for n, waits in self._waits.items() if n >= floor}

    def take_barrier(self, channel: int, checkpoint: int) -> None:
        """Note that a barrier of ``checkpoint`` was taken from ``channel``, before it blocks anything."""
        self._barriers[channel] = checkpoint

    def update(self, blocked: Collection[int], now: int, snapshot: int | None, cause: Unblocked) -> None:
        """Start and stop clocks, after ``blocked`` changed; ``snapshot`` was taken now because of ``cause``."""
        started = []
        for channel, since in enumerate(self._since):
            if since is None:
                if channel in blocked:
                    started.append(channel)
            elif channel not in blocked or self._by[channel] != self._barriers[channel]:
                # an urgent barrier of a higher checkpoint may come on a channel that an older one blocks
                self._stop(channel, since, now, cause if snapshot == self._by[channel] else Unblocked.ABORTED)
                if channel in blocked:
                    started.append(channel)
        for channel in started:
            self._since[channel], self._by[channel] = now, self._barriers[channel]
            self._events.record(Kind.BLOCKED, now, self._by[channel], channel=self._names[channel])

    def _stop(self, channel: int, since: int, now: int, why: Unblocked) -> None:
        checkpoint, duration = self._by[channel], now - since
        self._since[channel] = None
        self._totals[channel] += duration
        waits = self._waits.setdefault(checkpoint, {})
        waits[channel] = waits.get(channel, 0) + duration
        name = self._names[channel]
        self._events.record(Kind.UNBLOCKED, now, checkpoint, channel=name, duration=duration, detail=why.value)

    def validate(self, blocked: Set[int]) -> None:
        """Assert the invariants that hold between two calls; ``blocked`` are the channels that the handler blocks."""
        assert self.running == blocked, f"the clock runs for channels {self.running}, but {set(blocked)} are blocked"
        assert min(self._totals) >= 0, f"channels were blocked for {self._totals} us"
