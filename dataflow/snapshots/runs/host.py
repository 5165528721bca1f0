"""One process at work, and its part in every snapshot: the only place where actions are executed and markers obeyed.

A host has no thread, no queue and no choice: whoever drives it says which action happens, hands it what comes out of
channels, and puts what it answers into channels, at once and in order. That is all the atomicity there is to the marker
rule, and every way to run a system of processes keeps it by construction.

Items of a channel are numbered by their sender, so a channel that loses, repeats or reorders is found out.
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

__all__ = ["RECEIVE", "Host", "Item", "Note", "Outcome", "Part"]

RECEIVE = "receive"
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Item:
    """What a channel carries: the ``number``-th thing that its sender put into it, from 1; a message or a marker."""

    channel: Channel
    number: int
    content: Data | Barrier
    message: int = 0
    clock: Mapping[str, int] | None = None
    tokens: NumberSet = NO_NUMBERS
    """Of the variant with an observer: the snapshots for which the sender had recorded its state."""

    @property
    def is_marker(self) -> bool:
        return isinstance(self.content, Barrier)

    @property
    def value(self) -> Any:
        """The message, or the number of the snapshot of a marker."""
        return self.content.checkpoint if isinstance(self.content, Barrier) else self.content.rows[0]  # type: ignore[index]


@dataclass(frozen=True, slots=True)
class Part:
    """A process's part of a snapshot: its state behind ``number`` events, and the states of its incoming channels."""

    process: str
    snapshot: int
    number: int
    state: Any
    active: bool
    channels: Mapping[Channel, tuple[Any, ...]]


class Note(Protocol):
    """A request or a report of a snapshot, from one process to another, outside the channels of the graph."""

    @property
    def snapshot(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a step: items to send, happenings, parts of snapshots, and notes with their receivers."""

    items: Sequence[Item]
    happenings: Sequence[Happening]
    parts: Sequence[Part]
    notes: Sequence[tuple[str, Note]] = ()


class Host:
    """The process called ``name`` of ``graph``, a copy of it."""

    def __init__(self, graph: ProcessGraph, name: str) -> None:
        self.name = name
        try:
            self.process: Process = deepcopy(graph.processes[name])
        except Exception as error:
            error.add_note(f"a run has a copy of each process; process {name!r} could not be copied")
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
        for made in self.actions.values():
            for sender in made.accepts:
                if Channel(sender, name) not in self._taken:
                    there = ", ".join(map(str, self.incoming)) or "none"
                    raise GraphError(
                        f"process {name!r}, action {made.name!r}: it accepts messages from {sender!r}, and there is no "
                        f"channel {Channel(sender, name)}; the incoming channels are {there}"
                    )

    @property
    def events(self) -> int:
        """How many there were."""
        return self._events

    @property
    def waiting(self) -> Mapping[int, Sequence[Channel]]:
        """The snapshots under way here, with the channels whose marker is still to come."""
        return {n: [self.incoming[i] for i in sorted(open_)] for n, open_ in self._markers.waiting.items()}

    def knows(self, snapshot: int) -> bool:
        """Whether the state has been recorded for ``snapshot``."""
        return self._markers.knows(snapshot)

    @property
    def active(self) -> bool:
        """Whether the process can act by itself: an action that accepts nothing can happen."""
        return any([self.enabled(each, {}) for each in self.actions.values()])

    def enabled(self, action: Action, heads: Mapping[Channel, Item]) -> bool:
        """Whether ``action`` can happen by itself, with these first items in the incoming channels."""
        there = [heads.get(Channel(sender, self.name)) for sender in action.accepts]
        if not action.spontaneous or not all([item is not None and not item.is_marker for item in there]):
            return False
        try:
            return bool(action.when(self.process))
        except Exception as error:
            error.add_note(f"in the condition of {action.name!r} of process {self.name!r}")
            raise

    def act(self, name: str, items: Sequence[Item] = (), arguments: Sequence[Any] = ()) -> Outcome:
        """The action ``name`` happens and accepts ``items``, one from each process that it names."""
        self._check_alive()
        made = self.actions.get(name)
        if made is None:
            known = list(self.actions)
            raise GraphError(f"process {self.name!r} has no action {name!r}{did_you_mean(name, known)}; it has {known}")
        values = [self._taken_from(item) for item in items]
        method = getattr(self.process, made.name)
        if arguments or not made.spontaneous:
            self._check_arguments(name, inspect.signature(method), [*values, *arguments])
        sends = self._sends_of(made.name, lambda: method(*values, *arguments))
        return self._done(made.name, items, sends, tuple(arguments))

    def deliver(self, item: Item, unreceived: Sequence[Item] = ()) -> Outcome:
        """The first item of a channel is received: a message by ``receive``, a marker by the rule.

        ``unreceived`` are the messages ahead of a marker, which the process leaves where they are.
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
            taking = [each.name for each in self.actions.values() if item.channel.source in each.accepts]
            raise GraphError(
                f"process {self.name!r} has no receive(sender, message), so a message of {item.channel} is accepted by "
                + (f"one of its actions: act({self.name!r}, {taking[0]!r}); there are {taking}" if taking else
                   f"nobody, and stays in the channel: define receive, or @action(accepts={item.channel.source!r})")
            )  # fmt: skip
        value = self._taken_from(item)
        sends = self._sends_of(RECEIVE, lambda: self.process.receive(item.channel.source, value))
        return self._done(RECEIVE, [item], sends, ())

    def begin(self, snapshot: int) -> Outcome:
        """The process begins a snapshot by itself."""
        self._check_alive()
        return self._carried_out(self._markers.begin(snapshot), [], spontaneous=True)

    @property
    def content(self) -> Hashable:
        """What the process is, and its parts of snapshots under way; not how it came there."""
        parts = [
            (snapshot, content_of(state), active, frozenset(waiting), content_of(self._markers.recorded(snapshot)))
            for snapshot, waiting in self._markers.waiting.items()
            for _, state, active in [self._recorded[snapshot]]
        ]
        return content_of(vars(self.process)), frozenset(parts)

    def copy(self) -> Host:
        """The same at this point, to go on with otherwise."""
        made = copy(self)
        made.process = deepcopy(self.process)
        made._markers = self._markers.copy()
        made._ahead = set(self._ahead)
        for name in ("_recorded", "_clock", "_put", "_sent", "_taken"):
            setattr(made, name, dict(getattr(self, name)))
        return made

    @property
    def counts(self) -> tuple[dict[Channel, int], dict[Channel, int]]:
        """How many messages were sent along each outgoing channel, and items received from each incoming one."""
        return dict(self._sent), dict(self._taken)

    @property
    def state(self) -> Any:
        """The state as of now, for who looks on. Raises: what the process raises."""
        try:
            return self.process.snapshot()
        except Exception as error:
            error.add_note(f"in snapshot() of process {self.name!r}")
            raise

    def record(self) -> tuple[Any, bool]:
        """The state as of now, and whether the process is active, for a snapshot. Raises: what the process raises."""
        return self._called("snapshot", lambda: (self.state, self.active))

    def _taken_from(self, item: Item) -> Any:
        self._check_order(item)
        return deepcopy(item.value)  # what the receiver does with it shows in no trace, and in no channel state

    def _check_order(self, *items: Item) -> None:
        expected = self._taken[items[0].channel]
        for item in items:
            expected += 1
            while (item.channel, expected) in self._ahead:
                expected += 1
            if item.number != expected:
                raise ConfigurationError(
                    f"channel {item.channel} is not FIFO: expected its item {expected}, got {item.number}; the marker "
                    "rule is right on channels that lose, repeat and reorder nothing"
                )

    def _takes(self, item: Item) -> None:
        """``item`` is received; a marker perhaps ahead of messages."""
        channel, ahead = item.channel, self._ahead
        ahead.add((channel, item.number))
        while (channel, self._taken[channel] + 1) in ahead:
            self._taken[channel] += 1
            ahead.remove((channel, self._taken[channel]))

    def _check_alive(self) -> None:
        if self._failed is not None:
            raise ProcessFailed(
                f"process {self.name!r} takes no more part in this run: {self._failed}, and its state may be half "
                "changed; nothing it sent or received in there counts"
            )

    def _sends_of(self, action: str, call: Callable[[], Sends]) -> Sends:
        def checked() -> Sends:
            sends = call()
            self._check(action, sends)
            return None if sends is None else {target: deepcopy(message) for target, message in sends.items()}

        return self._called(action, checked)

    def _called(self, what: str, call: Callable[[], _Answer]) -> _Answer:
        """Call the process. Where it raises, it has failed for good: it may have changed some of its state."""
        try:
            return call()
        except Exception as error:
            self._failed = f"{what!r} raised {type(error).__name__}, in its event {self._events + 1}"
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
                f"{action!r} answers what it sends, a mapping from the receiver's name to a message, or None; "
                f"got a {type(sends).__name__}"
            )
        for target in sends:
            if target not in self._outgoing:
                raise GraphError(
                    f"process {self.name!r} sent a message to {target!r}, and there is no channel "
                    f"{Channel(self.name, str(target))}; it sends to {list(self._outgoing)}"
                )

    def _done(self, action: str, accepted: Sequence[Item], sends: Sends, arguments: tuple[Any, ...]) -> Outcome:
        """The event is over: what it took counts as received, and what it sent is on its way."""
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
        parts: list[Part] = []
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
                    parts.append(Part(self.name, snapshot, number, state, active, channels))
                case protocol.Ignore() | protocol.PassOver():
                    pass
                case protocol.Abort():
                    raise AssertionError(f"a snapshot of processes is never given up, got {decided}")
                case never:
                    assert_never(never)
        return Outcome(items, happened, parts)
