"""The gate of one task: it chooses the channel to poll next, and returns each element with the task's actions.

Urgent elements come first (a queued barrier becomes urgent when the handler decides so), then a fair choice among the
channels that have elements and are not blocked. Barriers, cancels and ends go to the barrier handler, watermarks,
idleness and ends to ``GateTime``; rows pass through. What barriers do is recorded as events.

Invariant: only the handler decides which channels are blocked; the gate keeps only since when, and by which barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import Any, NamedTuple

from dataflow.contracts.source import Json
from dataflow.events.kinds import Arrival, Kind, Unblocked
from dataflow.events.recorder import UNRECORDED, EventWriter
from dataflow.protocol.actions import Abort, AbortReason, Action, Complete, Ignore, TakeSnapshot
from dataflow.protocol.events import Barrier, Cancel, Data, Element, EndOfInput, Idle, PortEnded, Watermark
from dataflow.protocol.handler import BarrierHandler
from dataflow.runtime.task.blocked_channels import Alignment, BlockedChannels
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.gate_time import GateTime

__all__ = ["Choose", "InputGate", "RoundRobin", "Taken"]

Choose = Callable[[Sequence[int]], int]
"""Picks one of the channels that could be polled now, given in ascending order and never empty."""


class RoundRobin:
    """The fair choice: the next channel after the one chosen last.

    >>> choose = RoundRobin()
    >>> [choose([0, 2]), choose([0, 2]), choose([0, 2])]
    [0, 2, 0]
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = -1

    def __call__(self, channels: Sequence[int]) -> int:
        for channel in channels:
            if channel > self._last:
                self._last = channel
                return channel
        self._last = channels[0]
        return self._last


class Taken(NamedTuple):
    """The result of a poll: process the ``element``, then carry out the ``actions`` in order.

    ``element`` is rows in the colour they have here; a ``Watermark`` or ``Idle`` of the whole gate; the ``Barrier`` or
    ``Cancel`` that caused the actions; a ``PortEnded``; an ``EndOfInput`` of that channel; None if merged time did not
    move.
    """

    channel: int
    element: Element | PortEnded | None
    actions: Sequence[Action]


NO_ACTIONS: tuple[Action, ...] = ()
_NEVER = 2**62
"""A checkpoint id that no job reaches."""


class InputGate:
    """Polls ``channels`` as ``handler`` allows. One thread calls it. ``ports[i]`` is the input port of channel i, and
    ``untimed`` are the ports that do not count for time, at most all but one. ``events`` records when
    barriers arrive, and channels are blocked.

    An end of input is returned in up to three polls: first ``PortEnded``, if it is the last one of its port; then, if
    it moves the merged watermark, or leaves only idle channels, that ``Watermark`` or ``Idle``; then ``EndOfInput``.

    >>> from dataflow.protocol.tracking import Tracker
    >>> a = Channel(credit=2, name="a")
    >>> gate = InputGate([a], Tracker(1), RoundRobin())
    >>> a.put(Watermark(7))
    >>> gate.poll(now=0)
    Taken(channel=0, element=Watermark(time=7), actions=())
    >>> gate.poll(now=0) is None
    True
    """

    def __init__(
        self,
        channels: Sequence[Channel],
        handler: BarrierHandler,
        choose: Choose,
        ports: Sequence[int] | None = None,
        untimed: Collection[int] = (),
        events: EventWriter = UNRECORDED,
    ) -> None:
        assert channels, "a gate has at least one channel"
        #: Never empty, never changes. The place of a channel is its number here, in the handler and in ``_time``.
        self._channels = tuple(channels)
        #: Keeps its own invariants. It alone knows which channels are blocked; the gate has no copy.
        self._handler = handler
        #: Never changes; returns one of the numbers that it is given.
        self._choose = choose
        #: Keeps its own invariants.
        self._time = GateTime((0,) * len(channels) if ports is None else ports, untimed)
        assert len(self.ports) == len(channels), f"{len(channels)} channels, but ports {self.ports}"
        #: By channel. Never unset. If True, the channel is empty, nothing can be put into it, and it is not blocked.
        self._ended = [False] * len(self._channels)
        #: Keeps its own invariants. Its clocks run for the channels that the handler blocks.
        self._clocks = BlockedChannels([channel.name for channel in self._channels], events)
        #: By checkpoint, each at or above the handler's floor and at most ``_newest``: its snapshot may still be taken.
        self._first_barrier: dict[int, int] = {}
        #: Never reduced; at or above every checkpoint in ``_first_barrier``.
        self._newest = 0
        #: Changes only with a snapshot. Its duration is never negative.
        self._alignment = Alignment(0)
        #: Never changes: the overtakable ones of ``_channels``. Only in these are barriers promoted.
        self._overtakable = tuple(channel for channel in self._channels if channel.overtakable)
        #: Never changes. One thread records: the one that polls.
        self._events = events
        #: Never changes: whether a checkpoint that aligns for too long is converted.
        self._may_time_out = handler.overtakes_from(Barrier(_NEVER)) is not None

    def leave_out(self, channels: Collection[int]) -> None:
        """Do not wait for the time of channels that will have no rows. Call this before any poll, and not restored."""
        self._time.leave_out(channels)

    @property
    def ports(self) -> tuple[int, ...]:
        """The input port that each channel feeds."""
        return self._time.ports

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The channels, by number."""
        return self._channels

    @property
    def blocked(self) -> Set[int]:
        """The channels that are not polled now, except for urgent elements."""
        return self._handler.blocked

    @property
    def deadline(self) -> int | None:
        """The time when time alone will cause actions (microseconds); None: as far as is known now, never."""
        queued = [self._handler.overtakes_from(b) for channel in self._overtakable for b in channel.barriers]
        times = [at for at in (self._handler.deadline, *queued) if at is not None]
        return min(times, default=None)

    @property
    def floor(self) -> int:
        """The lowest checkpoint of which a snapshot may still be taken here."""
        return self._handler.floor

    @property
    def ended(self) -> bool:
        """Whether the end of every channel was polled."""
        return all(self._ended)

    @property
    def watermark(self) -> int | None:
        """The merged watermark; None: none yet."""
        return self._time.merged

    @property
    def held_by(self) -> str | None:
        """The channel that holds the merged watermark back; None: there is none."""
        channel = self._time.held_by
        return None if channel is None else self._channels[channel].name

    @property
    def watermarks(self) -> tuple[int | None, ...]:
        """The watermark of each channel, for the task's snapshot; None if it does not count for time."""
        return self._time.watermarks

    @property
    def is_ending(self) -> bool:
        """Whether every channel has ended, also before a restore, or its end is next."""
        ends = [isinstance(channel.head, EndOfInput) for channel in self._channels]
        return all([is_next or self._time.has_ended(index) for index, is_next in enumerate(ends)])

    def snapshot(self) -> Mapping[str, Json]:
        """Return the state of time and ends as JSON, for the task's snapshot."""
        return self._time.snapshot()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Start from the state that ``snapshot`` returned. Called before the first poll."""
        self._time.restore(state)

    @property
    def alignment(self) -> Alignment:
        """How long the last checkpoint taken here waited for its barriers."""
        return self._alignment

    @property
    def aligning(self) -> bool:
        """Whether a checkpoint's first barrier was polled, but its snapshot was neither taken nor aborted."""
        return bool(self._first_barrier)

    @property
    def hurried(self) -> bool:
        """Whether a channel that is not at its end is empty, or a barrier waits or was taken on one of several."""
        live = [channel for channel, ended in zip(self._channels, self._ended, strict=True) if not ended]
        return bool(self._first_barrier) or any([not len(channel) or channel.barriers for channel in live])

    def blocked_time(self, now: int) -> tuple[int, ...]:
        """Return the microseconds that each channel was blocked so far."""
        return self._clocks.totals(now)

    def poll(self, now: int, max_rows: int | None = None) -> Taken | None:
        """Take one element, of a batch at most ``max_rows`` rows; None: nothing can be taken now."""
        urgent = self.poll_urgent(now)
        if urgent is not None:
            return urgent
        settled = self._time.settle()
        if settled is not None:
            return Taken(0, settled, NO_ACTIONS)
        blocked = self._handler.blocked
        ready = [i for i, channel in enumerate(self._channels) if channel.head is not None and i not in blocked]
        if not ready:
            return None
        return self._take(self._choose(ready), now, max_rows)

    def poll_urgent(self, now: int) -> Taken | None:
        """Take a cancel or a barrier that overtakes, which precede all other elements; None: there is none."""
        self._promote(now)
        urgent = [index for index, channel in enumerate(self._channels) if channel.is_urgent]
        return self._take_urgent(self._choose(urgent), now) if urgent else None

    def poll_control(self, now: int) -> Taken | None:
        """Take one barrier or cancel, which a task may do while its outputs have no credit; None: there is none."""
        urgent = self.poll_urgent(now)
        if urgent is not None:
            return urgent
        blocked = self._handler.blocked
        ready = [i for i, channel in enumerate(self._channels) if type(channel.head) is Barrier and i not in blocked]
        if not ready:
            return None
        return self._take(self._choose(ready), now)

    def rests(self, now: int) -> bool:
        """Return whether nothing is queued, some channel has not ended, and time alone causes no action at ``now``."""
        if not self._time.is_settled:
            return False
        for channel in self._channels:
            if len(channel):
                return False
        deadline = self._handler.deadline
        return (deadline is None or now < deadline) and not self.ended

    def validate(self) -> None:
        """Assert the invariants that hold between two calls. Not while another thread polls."""
        self._handler.validate()
        blocked = self._handler.blocked
        self._clocks.validate(blocked)
        if self._first_barrier:
            first, last, floor = min(self._first_barrier), max(self._first_barrier), self._handler.floor
            assert first >= floor, f"{self}: waits for the barriers of {first}, but takes none below {floor}"
            assert last <= self._newest, f"{self}: waits for the barriers of {last}, above the newest, {self._newest}"
        assert self._alignment.duration >= 0, f"{self}: the last checkpoint aligned in {self._alignment.duration} us"
        self._time.validate([channel.ended for channel in self._channels], self._ended)
        for index, channel in enumerate(self._channels):
            if self._ended[index]:
                assert channel.ended, f"{channel.name}: the end was polled and not put"
                assert len(channel) == 0, f"{channel.name}: {len(channel)} elements after the end"
                assert index not in blocked, f"{channel.name}: blocked after its end"

    def __repr__(self) -> str:
        return f"InputGate({', '.join(channel.name for channel in self._channels)})"

    def abort(self, checkpoint: int, reason: AbortReason, now: int) -> list[Action]:
        """Return the actions for ``checkpoint``, which the coordinator aborted."""
        return self._meter(self._handler.abort(checkpoint, reason, now), now, Unblocked.ABORTED)

    def tick(self, now: int) -> list[Action]:
        """Return the actions that time alone makes necessary."""
        return self._meter(self._handler.tick(now), now, Unblocked.TIMEOUT)

    def start(self, barrier: Barrier, now: int) -> list[Action] | None:
        """Start the checkpoint of ``barrier`` if no barrier can come in, because the channels have no writers any more.

        It overtakes everything that is queued. None: it must wait for channels where no barrier overtakes, for its
        time, or for earlier barriers that overtake.
        """
        at = self.starts_at(barrier)
        if at is None or now < at:
            return None
        self._promote(now)
        if any(channel.is_urgent for channel in self._channels):
            return None
        actions: list[Action] = []
        for index in self._open_channels:
            actions += self._barrier(index, barrier, now, Arrival.STARTED_HERE, self._channels[index].queued)
        return actions

    def starts_at(self, barrier: Barrier) -> int | None:
        """Return the time when ``start`` may start ``barrier``; None: not by time alone."""
        if not all(self._channels[index].overtakable for index in self._open_channels):
            return None
        return 0 if barrier.unaligned else self._handler.overtakes_from(barrier)

    @property
    def _open_channels(self) -> list[int]:
        return [index for index, ended in enumerate(self._ended) if not ended]

    def _promote(self, now: int) -> None:
        """Make every queued barrier urgent that is now due to overtake."""
        for channel in self._overtakable:
            for barrier in channel.barriers:
                at = self._handler.overtakes_from(barrier)
                if at is not None and now >= at:
                    channel.promote(barrier)

    def _take(self, index: int, now: int, max_rows: int | None = None) -> Taken:
        channel = self._channels[index]
        if isinstance(channel.head, EndOfInput):
            port_end = self._time.port_end(index)
            if port_end is not None:
                return Taken(index, port_end, NO_ACTIONS)
            time_change = self._time.end(index)
            if time_change is not None:
                return Taken(index, time_change, NO_ACTIONS)
        element = channel.take(max_rows)
        match element:
            case Data():
                self._time.resume(index)
                return Taken(index, self._handler.element(index, element), NO_ACTIONS)
            case Watermark(time=time):
                self._handler.element(index, element)
                return Taken(index, self._time.advance(index, time), NO_ACTIONS)
            case Idle():
                self._handler.element(index, element)
                return Taken(index, self._time.idle(index), NO_ACTIONS)
            case EndOfInput():
                self._ended[index] = True
                return Taken(index, element, self._meter(self._handler.end(index, now), now, Unblocked.ENDED))
            case Barrier():
                return Taken(index, element, self._barrier(index, element, now, Arrival.IN_ORDER))
            case Cancel(checkpoint=checkpoint):
                raise AssertionError(f"{channel.name}: the cancel of {checkpoint} was not urgent")

    def _take_urgent(self, index: int, now: int) -> Taken:
        element, overtaken = self._channels[index].take_urgent()
        match element:
            case Cancel(checkpoint=checkpoint):
                cancelled = self._handler.cancel(index, checkpoint, now, overtaken)
                actions = self._meter(cancelled, now, Unblocked.ABORTED)
            case Barrier():
                how = Arrival.OVERTAKING if overtaken else Arrival.IN_ORDER
                actions = self._barrier(index, element, now, how, overtaken)
            case _:
                raise AssertionError(f"{self._channels[index].name}: {element} cannot be urgent")
        return Taken(index, element, actions)

    def _barrier(
        self, index: int, barrier: Barrier, now: int, how: Arrival, overtaken: Sequence[Element] = ()
    ) -> list[Action]:
        self._arrived(index, barrier.checkpoint, now, how, overtaken)
        actions = self._handler.barrier(index, barrier, now, overtaken)
        if barrier.checkpoint > self._newest and not (actions and isinstance(actions[-1], Ignore)):
            self._newest = barrier.checkpoint
            self._first_barrier[barrier.checkpoint] = now
        return self._meter(actions, now, Unblocked.COMPLETE)

    def _arrived(self, index: int, checkpoint: int, now: int, how: Arrival, overtaken: Sequence[Element]) -> None:
        self._clocks.take_barrier(index, checkpoint)
        rows: list[Any] = [element.rows for element in overtaken if isinstance(element, Data)]
        self._events.record(
            Kind.ARRIVED,
            now,
            checkpoint,
            channel=self._channels[index].name,
            rows=sum(map(len, rows)),
            bytes=sum([batch.nbytes for batch in rows if hasattr(batch, "nbytes")]),
            detail=how.value,
        )

    def _meter(self, actions: list[Action], now: int, cause: Unblocked) -> list[Action]:
        """Update the clocks of blocking and alignment after the handler's actions, which have a cause; return these.

        A barrier that ends the wait because it is late, while other barriers are still to come, counts as the timeout.
        """
        snapshot: int | None = None
        first = now
        is_unaligned = is_complete = False
        for action in actions:
            match action:
                case TakeSnapshot(barrier=Barrier(checkpoint=taken, unaligned=unaligned)):
                    first = self._first_barrier.pop(taken, now)
                    snapshot, is_unaligned = taken, unaligned
                case Complete():
                    is_complete = True
                case Abort(checkpoint=checkpoint):
                    self._first_barrier.pop(checkpoint, None)
                    self._newest = max(self._newest, checkpoint)
                case _:
                    pass
        if self._first_barrier:  # entries may be of a checkpoint that was aborted before its barrier came
            floor = self._handler.floor
            self._first_barrier = {n: since for n, since in self._first_barrier.items() if n >= floor}
        if cause is Unblocked.COMPLETE and is_unaligned and not is_complete and self._may_time_out:
            cause = Unblocked.TIMEOUT
        self._clocks.update(self._handler.blocked, now, snapshot, cause)
        if snapshot is not None:  # after it, no channel is blocked by its checkpoint
            self._alignment = Alignment(snapshot, now - first, self._clocks.waits(snapshot))
        self._clocks.forget(self._handler.floor)
        return actions
