"""The merged watermark: the minimum over the channels that are live and not idle.

Rules: a channel without a watermark yet holds the merged one back. An idle channel is left out until its next row or
watermark; then it counts with its last watermark, but the merged watermark never goes back. While every live channel
is idle the merged watermark stays, unless ``move_idle`` moves an idle channel. An ended channel is at
``MAX_WATERMARK``. A channel at ``MAX_WATERMARK`` is left out, and when all are, the merged watermark is
``MAX_WATERMARK``.

Invariant: the merged watermark never goes back, and never passes the watermark of a channel that counts, unless that
channel was idle before.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

__all__ = ["MAX_WATERMARK", "WatermarkMerger"]

MAX_WATERMARK = 2**63 - 1
"""Later than every time: no row is expected any more."""
_SLACK = 16
"""Outdated entries that the heap may have, in addition to two entries for each channel."""


class WatermarkMerger:
    """The merged watermark (microseconds) of the channels 0 .. ``channels`` - 1.

    >>> merger = WatermarkMerger(2)
    >>> merger.advance(0, 5), merger.advance(1, 3), merger.idle(1), merger.end(0), merger.end(1)
    (None, 3, 5, None, 9223372036854775807)
    """

    __slots__ = ("_idle", "_live", "_lowest", "_merged", "_times", "_unset")

    def __init__(self, channels: int) -> None:
        assert channels > 0, f"a gate has at least one channel, got {channels}"
        self._idle: set[int] = set()
        self._merged: int | None = None
        self._set([None] * channels)

    def _set(self, times: list[int | None]) -> None:
        """Set the watermark of every channel; none is idle."""
        self._times = times
        self._live = len(times) - times.count(MAX_WATERMARK)
        self._unset = times.count(None)  # live channels without a watermark, idle ones left out
        # a heap of (watermark, channel) with the other live channels; ``_merge`` skips outdated entries
        self._lowest = [(time, n) for n, time in enumerate(times) if time is not None and time != MAX_WATERMARK]
        heapify(self._lowest)

    @property
    def merged(self) -> int | None:
        """The merged watermark, or None before the first."""
        return self._merged

    @property
    def all_idle(self) -> bool:
        """Whether there are live channels and all of them are idle."""
        return 0 < self._live == len(self._idle)

    def advance(self, channel: int, time: int) -> int | None:
        """Set the channel's watermark to ``time``; return the merged one if it moved. A step back is ignored."""
        self.resume(channel)
        before = self._times[channel]
        if before is None or time > before:
            self._times[channel] = time
            self._unset -= before is None
            if time == MAX_WATERMARK:
                self._live -= 1
            else:
                self._push(channel, time)
        return self._merge()

    def resume(self, channel: int) -> None:
        """Mark the channel as not idle, because a row arrived. This never moves the merged watermark."""
        if channel in self._idle:
            self._idle.discard(channel)
            time = self._times[channel]
            if time is None:
                self._unset += 1
            else:
                self._push(channel, time)

    def idle(self, channel: int) -> int | None:
        """Leave the channel out until its next row or watermark; return the merged watermark if it moved."""
        time = self._times[channel]
        if time != MAX_WATERMARK and channel not in self._idle:
            self._idle.add(channel)
            self._unset -= time is None
        return self._merge()

    def is_idle(self, channel: int) -> bool:
        """Return whether the channel is left out until its next row or watermark."""
        return channel in self._idle

    def move_idle(self, channel: int, time: int) -> int | None:
        """Set the watermark of an idle channel, which stays idle; return the merged one if it moved.

        It moves only if every live channel is idle: then none holds another back. A step back is ignored.
        """
        assert channel in self._idle, f"channel {channel} is not idle"
        before = self._times[channel]
        self._times[channel] = time = time if before is None else max(before, time)
        if not self.all_idle or (self._merged is not None and time <= self._merged):
            return None
        self._merged = time
        return time

    def end(self, channel: int) -> int | None:
        """End the channel; return the merged watermark if it moved. A second call changes nothing."""
        return self.advance(channel, MAX_WATERMARK)

    def snapshot(self) -> tuple[int | None, ...]:
        """Return one watermark a channel, which together restore the merged watermark; idleness is not kept.

        An idle channel gets the merged watermark: it will report idleness again if it is still idle. So do all live
        channels if a row has just ended the idleness of the last one: the merged watermark moves with the next event.
        """
        merged = self._merged
        times = [
            merged if channel in self._idle or time is None else time if merged is None else max(time, merged)
            for channel, time in enumerate(self._times)
        ]
        if merged not in times:
            times = [time if time == MAX_WATERMARK else merged for time in times]
        return tuple(times)

    def restore(self, times: Sequence[int | None]) -> None:
        """Restore the watermarks returned by ``snapshot``, with no channel idle. Call this before any event."""
        assert len(times) == len(self._times), f"{len(times)} watermarks for {len(self._times)} channels"
        self._set(list(times))
        self._merge()

    def _push(self, channel: int, time: int) -> None:
        if len(self._lowest) > 2 * len(self._times) + _SLACK:  # mostly outdated entries
            self._lowest = sorted({entry for entry in self._lowest if self._is_current(*entry)})
        heappush(self._lowest, (time, channel))

    def _is_current(self, time: int, channel: int) -> bool:
        return self._times[channel] == time and channel not in self._idle

    def _merge(self) -> int | None:
        if self._unset or self.all_idle:
            return None
        lowest = self._lowest
        while lowest and not self._is_current(*lowest[0]):
            heappop(lowest)
        low = lowest[0][0] if lowest else MAX_WATERMARK
        if self._merged is not None and low <= self._merged:
            return None
        self._merged = low
        return low
