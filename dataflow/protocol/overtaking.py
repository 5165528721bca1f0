"""Barriers that overtake: the elements they pass become channel state. Exactly once, however long the queues are.

An unaligned barrier n does not wait for the rows queued before it. When the first one arrives, the task takes its
snapshot at once, and then records every other channel until its barrier n arrives: Chandy and Lamport's algorithm
(1985), with markers that overtake queued elements and carry them along. The rules:

1. The first *unaligned* barrier of a new checkpoint requests the snapshot. It is taken as soon as the barriers of all
   live channels that cannot be overtaken (*aligned edges*: forward, broadcast) have arrived. Until then every channel
   whose barrier has arrived is blocked, so that no row after a barrier gets into the snapshot.
2. After the snapshot nothing is blocked, and every channel whose barrier has not arrived is recorded. Its barrier
   closes it, and adds what it overtook; so does its end, which is channel state itself. When all are closed: complete.
3. A barrier that is not unaligned aligns: as in ``alignment``, its channel waits, and when the barriers of all live
   channels have arrived the snapshot is taken, with no channel state.
4. A checkpoint that aligns is *converted* when it is older than the timeout (strictly, from its trigger), or when an
   unaligned barrier of it arrives: from then on rule 1 holds. Its barriers that are still queued overtake from then on,
   as does any barrier of a later checkpoint that waits in a queue past its timeout; all that are due do so together.
5. At most one checkpoint is pending, the newest: see ``newest``. That holds while channels are recorded, too.
6. An ended channel counts as if all its barriers arrived (or, by policy, its end aborts the pending checkpoint).

So both modes are one automaton: in ``unaligned-persisted`` barriers start unaligned, in ``aligned-timeout`` they
become so.

Invariant: channels are blocked if and only if a checkpoint waits for its snapshot; they are live, and never all of the
live ones. Rows before snapshot n and the channel state of n are disjoint, and together the rows before barrier n.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace

from dataflow.protocol.actions import AbortReason, Action, Complete, Ignore, TakeSnapshot
from dataflow.protocol.alignment import EndOfInputPolicy
from dataflow.protocol.events import Barrier, BarrierKind, Element, EndOfInput
from dataflow.protocol.handler import Received
from dataflow.protocol.newest import NewestOnly
from dataflow.protocol.recording import Recorder

__all__ = ["Overtaker"]

NOTHING: frozenset[int] = frozenset()


@dataclass(slots=True)
class _Pending:
    """The checkpoint under way. ``recorder`` is set after the snapshot; ``overtaken`` is used before it."""

    barrier: Barrier
    arrived: set[int] = field(default_factory=set)
    overtaken: dict[int, Sequence[Element]] = field(default_factory=dict)
    unaligned: bool = False
    recorder: Recorder | None = None

    @property
    def checkpoint(self) -> int:
        return self.barrier.checkpoint


class Overtaker(NewestOnly[_Pending]):
    """The handler of checkpoints with channel state over the channels 0 .. ``channels`` - 1. See the module's rules.

    ``aligned_edges`` are the channels that cannot be overtaken. ``timeout`` (microseconds; None: never) is how long
    after its trigger a checkpoint stays aligned. Savepoints stay aligned however long it takes.

    >>> from dataflow.protocol.events import Data
    >>> overtaker = Overtaker(2)
    >>> overtaker.barrier(0, Barrier(1, unaligned=True), now=0, overtaken=[Data(["x"])])
    [TakeSnapshot(barrier=Barrier(checkpoint=1, kind=<BarrierKind.CHECKPOINT: 'checkpoint'>, \
triggered_at=0, unaligned=True, since=0))]
    >>> _ = overtaker.element(1, Data(["y"]))
    >>> overtaker.barrier(1, Barrier(1, unaligned=True), now=0)[-1].in_flight
    {0: (Data(rows=['x'], epoch=0),), 1: (Data(rows=['y'], epoch=0),)}
    """

    __slots__ = ("_aligned_edges", "_end_of_input", "_live", "_timeout")

    def __init__(
        self,
        channels: int,
        *,
        aligned_edges: Set[int] = NOTHING,
        timeout: int | None = None,
        end_of_input: EndOfInputPolicy = EndOfInputPolicy.ALIGN,
    ) -> None:
        assert channels > 0, f"a gate has at least one channel, got {channels}"
        assert all(0 <= edge < channels for edge in aligned_edges), f"{set(aligned_edges)} of {channels} channels"
        assert timeout is None or timeout >= 0, f"a timeout is not negative, got {timeout}"
        super().__init__()
        self._aligned_edges = frozenset(aligned_edges)
        self._timeout = timeout
        self._end_of_input = end_of_input
        self._live = set(range(channels))

    @property
    def blocked(self) -> Set[int]:
        """The channels whose barrier has arrived, until the snapshot is taken."""
        pending = self._pending
        return NOTHING if pending is None or pending.recorder is not None else pending.arrived

    @property
    def deadline(self) -> int | None:
        """The time at which the checkpoint that aligns now is converted; None: never, or none aligns."""
        pending = self._pending
        return None if pending is None or pending.unaligned else self._converts_at(pending.barrier)

    @property
    def floor(self) -> int:
        """The lowest checkpoint id of which a snapshot may still be taken."""
        pending = self._pending
        return self._latest + 1 if pending is None or pending.recorder is not None else pending.checkpoint

    def overtakes_from(self, barrier: Barrier) -> int | None:
        """Return the time from which ``barrier``, still queued, overtakes; None: it does not, as of now."""
        pending = self._pending
        if pending is not None and pending.checkpoint == barrier.checkpoint:
            return 0 if pending.unaligned else self._converts_at(barrier)
        return self._converts_at(barrier) if barrier.checkpoint > self._latest else None

    def element(self, channel: int, element: Received) -> Received:
        """Record ``element`` as channel state if its channel is recorded. No red row arrives before a snapshot."""
        if self._pending is not None and self._pending.recorder is not None:
            self._pending.recorder.record(channel, element)
        return element

    def barrier(self, channel: int, barrier: Barrier, now: int, overtaken: Sequence[Element] = ()) -> list[Action]:
        """Align, take the snapshot, or close the channel; see the rules."""
        checkpoint, pending = barrier.checkpoint, self._pending
        actions: list[Action] = []
        if pending is not None and pending.checkpoint == checkpoint:
            if pending.recorder is not None:
                return self._close_channel(pending, pending.recorder, channel, overtaken)
            if channel in pending.arrived:
                return [Ignore(checkpoint)]
        else:
            if not self._succeeds(checkpoint, actions):
                return actions
            pending = self._pending = _Pending(barrier)
        pending.arrived.add(channel)
        pending.overtaken[channel] = overtaken
        pending.unaligned = pending.unaligned or barrier.unaligned or self._is_late(barrier, now)
        return [*actions, *self._try_snapshot(pending)]

    def end(self, channel: int, now: int) -> list[Action]:
        """Stop waiting for barriers of ``channel``, which ended; if it is recorded, its end is channel state."""
        self._live.discard(channel)
        pending = self._pending
        if pending is None:
            return []
        match self._end_of_input:
            case EndOfInputPolicy.ABORT:
                return self._abort_pending(AbortReason.END_OF_INPUT)
            case EndOfInputPolicy.ALIGN:
                if pending.recorder is None:
                    return self._try_snapshot(pending)
                if channel not in pending.recorder.open:
                    return []
                return self._close_channel(pending, pending.recorder, channel, (EndOfInput(),))

    def tick(self, now: int) -> list[Action]:
        """Convert the pending checkpoint if its timeout has passed."""
        pending = self._pending
        if pending is None or pending.unaligned or not self._is_late(pending.barrier, now):
            return []
        pending.unaligned = True
        return self._try_snapshot(pending)

    def validate(self) -> None:
        """Assert the invariants."""
        pending = self._pending
        if pending is None:
            return
        assert pending.checkpoint <= self._latest, f"{pending.barrier} is above the highest id {self._latest}"
        if pending.recorder is not None:
            assert pending.unaligned, f"{pending.barrier} is recorded, but aligned"
            assert pending.recorder.open, f"{pending.barrier} is recorded completely, but pending"
            assert pending.recorder.open <= self._live, f"{pending.recorder.open} recorded of {self._live}"
            return
        assert pending.arrived < self._live, f"{pending.barrier} waits: {pending.arrived} of {self._live} arrived"
        missing = self._live - pending.arrived
        assert not pending.unaligned or missing & self._aligned_edges, f"{pending.barrier} waits for {missing} in vain"

    def _try_snapshot(self, pending: _Pending) -> list[Action]:
        """Return the snapshot's actions if all barriers it waits for have arrived."""
        missing = self._live - pending.arrived
        if missing and (not pending.unaligned or missing & self._aligned_edges):
            return []
        if not pending.unaligned:
            self._close()
            return [TakeSnapshot(pending.barrier), Complete(pending.checkpoint)]
        recorder = pending.recorder = Recorder(missing)
        for channel, overtaken in pending.overtaken.items():
            recorder.overtake(channel, overtaken)
        snapshot = TakeSnapshot(replace(pending.barrier, unaligned=True))
        return [snapshot, *self._try_complete(pending, recorder)]

    def _close_channel(
        self, pending: _Pending, recorder: Recorder, channel: int, overtaken: Sequence[Element]
    ) -> list[Action]:
        if channel not in recorder.open:
            return [Ignore(pending.checkpoint)]
        recorder.close(channel, overtaken)
        return self._try_complete(pending, recorder)

    def _try_complete(self, pending: _Pending, recorder: Recorder) -> list[Action]:
        if recorder.open:
            return []
        self._close()
        return [Complete(pending.checkpoint, in_flight=recorder.in_flight)]

    def _converts_at(self, barrier: Barrier) -> int | None:
        """Return the time at which a checkpoint that still aligns is converted; None: never."""
        if self._timeout is None or barrier.kind is BarrierKind.SAVEPOINT:
            return None
        return barrier.triggered_at + self._timeout + 1

    def _is_late(self, barrier: Barrier, now: int) -> bool:
        at = self._converts_at(barrier)
        return at is not None and now >= at
