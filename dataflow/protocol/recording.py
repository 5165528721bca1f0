"""The recorder of one checkpoint: the state of the channels, while a task that took its snapshot waits for barriers.

This is the second half of the marker rule of Chandy and Lamport, *Distributed Snapshots* (1985): the state of a channel
is the sequence of elements received on it after the receiver recorded its own state and before the channel's marker.
A marker that overtook what was queued brings the rest of the sequence with it, before it is received.

One recorder knows one checkpoint and nothing of others: what a new checkpoint means to one that is still recorded is
its owner's policy.

Invariant: nothing is recorded of a channel that is closed, and a channel is closed once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

from dataflow.events import Barrier, Cancel, Element

__all__ = ["Recorder"]


class Recorder:
    """Channel states in the making. ``channels`` are those whose barrier is still to come.

    >>> from dataflow.events import Data
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
        """The channels whose barrier is still to come; a live view."""
        return self._open

    @property
    def in_flight(self) -> Mapping[int, tuple[Element, ...]]:
        """The channel states so far, in order; channels with nothing are absent."""
        return {channel: tuple(self._elements[channel]) for channel in sorted(self._elements)}

    def record(self, channel: int, element: Element) -> None:
        """``element`` was received on ``channel``; it counts where the channel is still open."""
        if channel in self._open:
            self._elements.setdefault(channel, []).append(element)

    def close(self, channel: int, overtaken: Sequence[Element] = ()) -> None:
        """The channel's barrier came, ahead of ``overtaken``; barriers and cancels among these are no channel state."""
        assert channel in self._open, f"channel {channel} is closed already; open are {self._open}"
        self._open.remove(channel)
        self.overtake(channel, overtaken)

    def overtake(self, channel: int, overtaken: Sequence[Element]) -> None:
        """``overtaken`` stood on a channel ahead of its barrier when the snapshot was taken."""
        kept = [element for element in overtaken if not isinstance(element, Barrier | Cancel)]
        if kept:
            self._elements.setdefault(channel, []).extend(kept)

    def copy(self) -> Recorder:
        """The same at this point, to go on with otherwise; elements are shared."""
        made = Recorder(self._open)
        made._elements = {channel: list(elements) for channel, elements in self._elements.items()}
        return made
