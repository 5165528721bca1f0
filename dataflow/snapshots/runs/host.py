"""Executes the actions of one process and applies the marker rule to it; every kind of run uses this module.

Source: the marker rule of Chandy and Lamport, *Distributed Snapshots* (1985), section 3, in
``dataflow.protocol.markers``. Its barriers are the markers, its data elements the messages.

A host has no thread, no queue and no choice. The caller decides which action happens, passes the received items, and
puts the returned items into channels.

This code assumes: the caller puts the items of an ``Outcome`` into their channels in order, before the next step of the
same process. This is the atomicity that the marker rule needs.

Guarantees: items of a channel are numbered by their sender, so a channel that loses, repeats or reorders is detected.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, assert_never

from dataflow.errors import ConfigurationError, GraphError, ProcessFailed, did_you_mean
from dataflow.protocol import actions as protocol
from dataflow.protocol.events import Barrier, Data
from dataflow.protocol.markers import Markers
from dataflow.snapshots.processes import Action, Channel, Process, ProcessGraph, Sends, actions_of
from dataflow.snapshots.runs.hashable_content import content_of
from dataflow.snapshots.runs.number_set import NO_NUMBERS, NumberSet
from dataflow.snapshots.traces import Event, Happening, MarkerReceived, MarkerSent, MessageId, Recorded

__all__ = ["RECEIVE", "Host", "Item", "Note", "Outcome", "RecordedPart"]

RECEIVE = "receive"
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Item:
    """The ``number``-th item of a channel, from 1: a message or a marker.

    Attributes:
        channel: the channel.
        number: the position among all items of the channel, from 1.
        content: the message, or the marker.
        message: the position among the messages of the channel, from 1; 0 for a marker.
        clock: the vector clock of the sending event; None for a marker.
        tokens: for snapshots with an observer, the snapshots for which the sender had recorded its state.
    """

    channel: Channel
    number: int
    content: Data | Barrier
    message: int = 0
    clock: Mapping[str, int] | None = None
    tokens: NumberSet = NO_NUMBERS

    @property
    def is_marker(self) -> bool:
        """True for a marker, False for a message."""
        return isinstance(self.content, Barrier)

    @property
    def value(self) -> Any:
        """The value of a message, or the snapshot number of a marker."""
        return self.content.checkpoint if isinstance(self.content, Barrier) else self.content.rows[0]  # type: ignore[index]


@dataclass(frozen=True, slots=True)
class RecordedPart:
    """A process's part of a snapshot: its state after ``number`` events, and the states of its incoming channels."""

    process: str
    snapshot: int
    number: int
    state: Any
    active: bool
    channels: Mapping[Channel, tuple[Any, ...]]


class Note(Protocol):
    """A request or a report of a snapshot, from one process to another, outside the channels of the graph."""

    @property
    def snapshot(self) -> int:
        """The number of the snapshot."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a step: items to send, happenings, parts of snapshots, and notes with their receivers."""

    items: Sequence[Item]
    happenings: Sequence[Happening]
    parts: Sequence[RecordedPart]
    notes: Sequence[tuple[str, Note]] = ()


class Host:
    """Executes a copy of the process called ``name`` of ``graph``.

    Raises: GraphError if an action accepts messages along a channel that does not exist; any exception of copying the
        process.
    """

    def __init__(self, graph: ProcessGraph, name: str) -> None:
        self.name = name
        try:
            self.process: Process = deepcopy(graph.processes[name])
        except Exception as error:
            error.add_note(f"a run copies each process by copy.deepcopy; process {name!r} could not be copied")
            raise
        self.actions = actions_of(self.process)
        self.receives = type(self.process).receive is not Process.receive
        self.incoming = graph.into(name)
        self._outgoing = {channel.target: channel for channel in graph.out_of(name)}
        self._markers = Markers(len(self.incoming))
        self._recorded: dict[int, tuple[int, Any, bool]] = {}
        self._failed: str | None = None
        self._events = 0
        self._clock: dict[str, int] = {}
        self._put = dict.fromkeys(self._outgoing.values(), 0)
        self._sent = dict.fromkeys(self._outgoing.values(), 0)
        self._taken = dict.fromkeys(self.incoming, 0)
        self._ahead: set[tuple[Channel, int]] = set()  # markers received while messages ahead of them are not
        for declared in self.actions.values():
            for sender in declared.accepts:
                if Channel(sender, name) not in self._taken:
                    incoming = ", ".join(map(str, self.incoming)) or "none"
                    raise GraphError(
                        f"process {name!r}, action {declared.name!r}: it accepts messages from {sender!r}, and there "
                        f"is no channel {Channel(sender, name)}; the incoming channels are {incoming}"
                    )

    @property
    def events(self) -> int:
        """The number of events of the process so far."""
        return self._events

    @property
    def waiting(self) -> Mapping[int, Sequence[Channel]]:
        """The snapshots in progress here, each with the channels whose marker has not arrived."""
        return {n: [self.incoming[i] for i in sorted(open_)] for n, open_ in self._markers.waiting.items()}

    def knows(self, snapshot: int) -> bool:
        """Return whether the state has been recorded for ``snapshot``."""
        return self._markers.knows(snapshot)

    @property
    def active(self) -> bool:
        """True if the process can act by itself: an action that accepts no message can happen."""
        return any([self.enabled(each, {}) for each in self.actions.values()])

    def enabled(self, action: Action, heads: Mapping[Channel, Item]) -> bool:
        """Return whether ``action`` can happen by itself, with these first items in the incoming channels."""
        items = [heads.get(Channel(sender, self.name)) for sender in action.accepts]
        if not action.spontaneous or not all([item is not None and not item.is_marker for item in items]):
            return False
        try:
            return bool(action.when(self.process))
        except Exception as error:
            error.add_note(f"in the condition of {action.name!r} of process {self.name!r}")
            raise

    def act(self, name: str, items: Sequence[Item] = (), arguments: Sequence[Any] = ()) -> Outcome:
        """Execute the action ``name``, which accepts ``items``, one from each process that it names."""
        self._check_alive()
        action = self.actions.get(name)
        if action is None:
            known = list(self.actions)
            raise GraphError(f"process {self.name!r} has no action {name!r}{did_you_mean(name, known)}; it has {known}")
        values = [self._taken_from(item) for item in items]
        method = getattr(self.process, action.name)
        if arguments or not action.spontaneous:
            self._check_arguments(name, inspect.signature(method), [*values, *arguments])
        sends = self._sends_of(action.name, lambda: method(*values, *arguments))
        return self._done(action.name, items, sends, tuple(arguments))

    def deliver(self, item: Item, unreceived: Sequence[Item] = ()) -> Outcome:
        """Receive an item: a message by ``receive``, a marker by the marker rule.

        ``unreceived`` are the messages before a marker, which stay in the channel.
        """
        self._check_alive()
        if item.is_marker:
            assert isinstance(item.content, Barrier), item
            self._check_order(*unreceived, item)
            contents = [each.content for each in unreceived]
            actions = self._markers.barrier(self.incoming.index(item.channel), item.content, contents)
            self._takes(item)
            return self._carried_out(actions, [MarkerReceived(item.channel, item.content.checkpoint)])
        if not self.receives:
            accepting = [each.name for each in self.actions.values() if item.channel.source in each.accepts]
            raise GraphError(
                f"process {self.name!r} has no receive(sender, message), so a message of {item.channel} is accepted by "
                + (f"one of its actions: act({self.name!r}, {accepting[0]!r}); there are {accepting}" if accepting else
                   f"no action, and stays in the channel: define receive, or @action(accepts={item.channel.source!r})")
            )  # fmt: skip
        value = self._taken_from(item)
        sends = self._sends_of(RECEIVE, lambda: self.process.receive(item.channel.source, value))
        return self._done(RECEIVE, [item], sends, ())

    def begin(self, snapshot: int) -> Outcome:
        """Begin a snapshot: record the state and send markers."""
        self._check_alive()
        return self._carried_out(self._markers.begin(snapshot), [], spontaneous=True)

    @property
    def content(self) -> Hashable:
        """The hashable content of the process and of its parts of snapshots in progress, independent of its history."""
        parts = [
            (snapshot, content_of(state), active, frozenset(waiting), content_of(self._markers.recorded(snapshot)))
            for snapshot, waiting in self._markers.waiting.items()
            for _, state, active in [self._recorded[snapshot]]
        ]
        return content_of(vars(self.process)), frozenset(parts)

    def copy(self) -> Host:
        """Return an independent copy."""
        copied = copy(self)
        copied.process = deepcopy(self.process)
        copied._markers = self._markers.copy()
        copied._ahead = set(self._ahead)
        for name in ("_recorded", "_clock", "_put", "_sent", "_taken"):
            setattr(copied, name, dict(getattr(self, name)))
        return copied

    @property
    def counts(self) -> tuple[dict[Channel, int], dict[Channel, int]]:
        """The numbers of messages sent along each outgoing channel, and of items received from each incoming one."""
        return dict(self._sent), dict(self._taken)

    @property
    def state(self) -> Any:
        """The current state, for observation from outside. Raises: any exception of ``snapshot()``."""
        try:
            return self.process.snapshot()
        except Exception as error:
            error.add_note(f"in snapshot() of process {self.name!r}")
            raise

    def record(self) -> tuple[Any, bool]:
        """Return the current state and whether the process is active. If the process raises, it has failed."""
        return self._called("snapshot", lambda: (self.state, self.active))

    def _taken_from(self, item: Item) -> Any:
        self._check_order(item)
        return deepcopy(item.value)  # so changes by the receiver do not show in traces and channel states

    def _check_order(self, *items: Item) -> None:
        expected = self._taken[items[0].channel]
        for item in items:
            expected += 1
            while (item.channel, expected) in self._ahead:
                expected += 1
            if item.number != expected:
                raise ConfigurationError(
                    f"channel {item.channel} is not FIFO: expected its item {expected}, got {item.number}; the marker "
                    "rule requires channels that lose, repeat and reorder nothing"
                )

    def _takes(self, item: Item) -> None:
        """Count ``item`` as received; a marker may be received before messages in front of it."""
        channel, ahead = item.channel, self._ahead
        ahead.add((channel, item.number))
        while (channel, self._taken[channel] + 1) in ahead:
            self._taken[channel] += 1
            ahead.remove((channel, self._taken[channel]))

    def _check_alive(self) -> None:
        if self._failed is not None:
            raise ProcessFailed(
                f"process {self.name!r} takes no more part in this run: {self._failed}. Its state may be partly "
                "changed, and that event sent and received nothing; fix the process and start a new run"
            )

    def _sends_of(self, action: str, call: Callable[[], Sends]) -> Sends:
        def checked() -> Sends:
            sends = call()
            self._check(action, sends)
            return None if sends is None else {target: deepcopy(message) for target, message in sends.items()}

        return self._called(action, checked)

    def _called(self, what: str, call: Callable[[], _Answer]) -> _Answer:
        """Call the process. If it raises, it has failed for good, because its state may be partly changed."""
        try:
            return call()
        except Exception as error:
            self._failed = f"{what!r} raised {type(error).__name__} in its event {self._events + 1}"
            error.add_note(f"in {what!r} of process {self.name!r}, its event {self._events + 1}")
            raise

    def _check_arguments(self, action: str, signature: inspect.Signature, arguments: Sequence[Any]) -> None:
        try:
            signature.bind(*arguments)
        except TypeError as error:
            error.add_note(f"action {action!r} of process {self.name!r} is {action}{signature}; got {arguments}")
            raise

    def _check(self, action: str, sends: Sends) -> None:
        if sends is None:
            return
        if not isinstance(sends, Mapping):
            raise TypeError(
                f"expected {action!r} of process {self.name!r} to return the messages to send, a mapping from the "
                f"receiver's name to a message, or None; got a {type(sends).__name__}"
            )
        for target in sends:
            if target not in self._outgoing:
                raise GraphError(
                    f"process {self.name!r} sent a message to {target!r}, and there is no channel "
                    f"{Channel(self.name, str(target))}; its channels lead to {list(self._outgoing)}"
                )

    def _done(self, action: str, accepted: Sequence[Item], sends: Sends, arguments: tuple[Any, ...]) -> Outcome:
        """Return the outcome of an event that succeeded: count its messages as received, and number those it sends."""
        self._events += 1
        for item in accepted:
            self._takes(item)
            assert isinstance(item.content, Data), item
            self._markers.element(self.incoming.index(item.channel), item.content)
            for process, number in (item.clock or {}).items():
                self._clock[process] = max(self._clock.get(process, 0), number)
        self._clock[self.name] = self._events
        clock = dict(self._clock)
        items = []
        for target, value in (sends or {}).items():
            channel = self._outgoing[target]
            self._sent[channel] += 1
            items.append(self._item(channel, Data((value,)), self._sent[channel], clock))
        event = Event(
            self.name,
            self._events,
            action,
            tuple((MessageId(item.channel, item.message), item.value) for item in accepted),
            tuple((MessageId(item.channel, item.message), item.value) for item in items),
            clock,
            arguments,
        )
        return Outcome(items, [event], [])

    def _item(
        self, channel: Channel, content: Data | Barrier, message: int = 0, clock: Mapping[str, int] | None = None
    ) -> Item:
        self._put[channel] += 1
        return Item(channel, self._put[channel], content, message, clock)

    def _carried_out(
        self, actions: Sequence[protocol.Action], happened: list[Happening], *, spontaneous: bool = False
    ) -> Outcome:
        items: list[Item] = []
        parts: list[RecordedPart] = []
        for decided in actions:
            match decided:
                case protocol.TakeSnapshot(marker):
                    snapshot = marker.checkpoint
                    items += [self._item(channel, marker) for channel in self._outgoing.values()]
                    state, active = self.record()
                    self._recorded[snapshot] = self._events, state, active
                    happened.append(Recorded(self.name, snapshot, self._events, state, spontaneous))
                    happened += [MarkerSent(channel, snapshot) for channel in self._outgoing.values()]
                case protocol.Complete(snapshot, in_flight):
                    number, state, active = self._recorded.pop(snapshot)
                    channels = {
                        channel: tuple(element.rows[0] for element in in_flight.get(i, ()))  # type: ignore[union-attr,index]
                        for i, channel in enumerate(self.incoming)
                    }
                    parts.append(RecordedPart(self.name, snapshot, number, state, active, channels))
                case protocol.Ignore() | protocol.PassOver():
                    pass
                case protocol.Abort():
                    raise AssertionError(f"the marker rule never aborts a snapshot, got {decided}")
                case never:
                    assert_never(never)
        return Outcome(items, happened, parts)
