"""The marker rule of one process: snapshots of any graph of processes, any number of them under way at a time.

Chandy and Lamport, *Distributed Snapshots* (1985), section 3.2. Channels are FIFO and nothing is ever blocked:

1. A process begins a snapshot by itself, or when it receives a marker of a snapshot that is new to it: it sends a
   marker along every outgoing channel and records its state, with no message in between.
2. From then on it records the messages it receives on every incoming channel, until the marker arrives there. The
   channel of the first marker is empty: messages sent on it before the marker were received before it.
   If a process receives a marker and leaves the messages before it in the channel, they are not received yet: they are
   channel state. So a marker never waits.
3. When the markers of all incoming channels have arrived, the process's part of the snapshot is complete.

``overtaking`` does the same when nothing is overtaken, with one difference of policy: there a new checkpoint aborts an
older one, here each snapshot has a ``Recorder`` of its own and completes by itself.

Invariant: a snapshot that was begun is either complete or waits for a marker on at least one channel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from dataflow.protocol.actions import Action, Complete, Ignore, TakeSnapshot
from dataflow.protocol.events import Barrier, Element
from dataflow.protocol.handler import Received
from dataflow.protocol.recording import Recorder

__all__ = ["Markers"]


class Markers:
    """The marker rule of a process with the incoming channels 0 .. ``channels`` - 1. See the module's rules.

    >>> from dataflow.protocol.events import Data
    >>> markers = Markers(2)
    >>> [type(action).__name__ for action in markers.barrier(0, Barrier(7))]
    ['TakeSnapshot']
    >>> _ = markers.element(0, Data(["after the marker"])), markers.element(1, Data(["in flight"]))
    >>> markers.barrier(1, Barrier(7))
    [Complete(checkpoint=7, in_flight={1: (Data(rows=['in flight'], epoch=0),)}, duplicated={})]
    """

    __slots__ = ("_channels", "_complete", "_recorders")

    def __init__(self, channels: int) -> None:
        assert channels >= 0, f"a process has no channels or some, got {channels}"
        self._channels = channels
        self._recorders: dict[int, Recorder] = {}
        self._complete: set[int] = set()

    @property
    def waiting(self) -> Mapping[int, Set[int]]:
        """The snapshots under way, each with the channels whose marker has not arrived."""
        return {snapshot: recorder.open for snapshot, recorder in self._recorders.items()}

    def knows(self, snapshot: int) -> bool:
        """Return whether the state of this process has been recorded for ``snapshot``."""
        return snapshot in self._recorders or snapshot in self._complete

    def begin(self, snapshot: int) -> list[Action]:
        """Begin a snapshot; do nothing if this process has already recorded its state for it."""
        if self.knows(snapshot):
            return [Ignore(snapshot)]
        return self._record(Barrier(snapshot), set(range(self._channels)), {})

    def barrier(self, channel: int, marker: Barrier, unreceived: Sequence[Element] = ()) -> list[Action]:
        """Process a marker received on ``channel``; ``unreceived`` are the elements before it, still in the channel."""
        recorder = self._recorders.get(marker.checkpoint)
        if recorder is None:
            if marker.checkpoint in self._complete:
                return [Ignore(marker.checkpoint)]
            return self._record(marker, set(range(self._channels)) - {channel}, {channel: unreceived})
        if channel not in recorder.open:
            return [Ignore(marker.checkpoint)]
        recorder.close(channel, unreceived)
        return self._try_complete(marker.checkpoint, recorder)

    def element(self, channel: int, element: Received) -> Received:
        """Record a message received on ``channel`` for every snapshot that waits for a marker there."""
        for recorder in self._recorders.values():
            recorder.record(channel, element)
        return element

    def recorded(self, snapshot: int) -> Mapping[int, tuple[Element, ...]]:
        """Return the channel states recorded so far for a snapshot under way."""
        return self._recorders[snapshot].in_flight

    def copy(self) -> Markers:
        """Return an independent copy."""
        copy = Markers(self._channels)
        copy._recorders = {snapshot: recorder.copy() for snapshot, recorder in self._recorders.items()}
        copy._complete = set(self._complete)
        return copy

    def validate(self) -> None:
        """Assert the invariants."""
        for snapshot, recorder in self._recorders.items():
            assert snapshot not in self._complete, f"snapshot {snapshot} is complete, but recorded"
            assert recorder.open, f"snapshot {snapshot} waits for nothing, but is not complete"
            assert recorder.open <= set(range(self._channels)), f"{recorder.open} of {self._channels} channels"

    def _record(self, marker: Barrier, channels: Set[int], unreceived: Mapping[int, Sequence[Element]]) -> list[Action]:
        recorder = self._recorders[marker.checkpoint] = Recorder(channels)
        for channel, elements in unreceived.items():
            recorder.overtake(channel, elements)
        return [TakeSnapshot(marker), *self._try_complete(marker.checkpoint, recorder)]

    def _try_complete(self, snapshot: int, recorder: Recorder) -> list[Action]:
        if recorder.open:
            return []
        del self._recorders[snapshot]
        self._complete.add(snapshot)
        return [Complete(snapshot, in_flight=recorder.in_flight)]
