"""The recorder of one checkpoint: the channel states between a task's snapshot and the barriers still missing.

This is the second half of the marker rule of Chandy and Lamport, *Distributed Snapshots* (1985): the state of a channel
is the sequence of elements received on it after the receiver recorded its own state and before the channel's marker.
A marker that overtook queued elements carries the rest of the sequence, which is not received yet.

A recorder covers one checkpoint; its owner decides what a new checkpoint means to one that is still recorded.

Invariant: nothing is recorded for a closed channel, and a channel is closed once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

from dataflow.protocol.events import Barrier, Cancel, Element

__all__ = ["Recorder"]


class Recorder:
    """The channel states of one checkpoint. ``channels`` are those whose barrier has not arrived.

    >>> from dataflow.protocol.events import Data
    >>> recorder = Recorder([0, 1])
    >>> recorder.record(0, Data(["x"]))
    >>> recorder.close(0, [Data(["y"])])
    >>> recorder.close(1)
    >>> recorder.open, [data.rows for data in recorder.in_flight[0]]
    (set(), [['x'], ['y']])
    """

    __slots__ = ("_elements", "_open")

    def __init__(self, channels: Iterable[int]) -> None:
        self._open = set(channels)
        self._elements: dict[int, list[Element]] = {}

    @property
    def open(self) -> Set[int]:
        """The channels whose barrier has not arrived; a live view."""
        return self._open

    @property
    def in_flight(self) -> Mapping[int, tuple[Element, ...]]:
        """The channel states so far, in order; empty channels are absent."""
        return {channel: tuple(self._elements[channel]) for channel in sorted(self._elements)}

    def record(self, channel: int, element: Element) -> None:
        """Record ``element``, received on ``channel``, if the channel is still open."""
        if channel in self._open:
            self._elements.setdefault(channel, []).append(element)

    def close(self, channel: int, overtaken: Sequence[Element] = ()) -> None:
        """Close ``channel``, whose barrier arrived, and record the elements it overtook; see ``overtake``."""
        assert channel in self._open, f"channel {channel} is closed already; open are {self._open}"
        self._open.remove(channel)
        self.overtake(channel, overtaken)

    def overtake(self, channel: int, overtaken: Sequence[Element]) -> None:
        """Record the elements that a barrier overtook on ``channel``, except barriers and cancels."""
        elements = [element for element in overtaken if not isinstance(element, Barrier | Cancel)]
        if elements:
            self._elements.setdefault(channel, []).extend(elements)

    def copy(self) -> Recorder:
        """Return an independent copy that shares the elements."""
        copy = Recorder(self._open)
        copy._elements = {channel: list(elements) for channel, elements in self._elements.items()}
        return copy
