"""A host with the ends of its incoming channels: which steps it can take now, and taking them.

A step is what cannot be split: an action happens, or the first item of a channel is received. Of a process without
``receive``, which leaves messages where they are until an action accepts them, the first marker is. An item leaves its
channel when the step is over, so a step that fails leaves everything where it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self, assert_never

from dataflow.errors import GraphError
from dataflow.snapshots.processes import Channel, ProcessGraph
from dataflow.snapshots.runs.host import Host, Item, Note, Outcome

__all__ = ["Act", "Deliver", "DeliverReport", "Join", "Move", "Station", "Step"]


@dataclass(frozen=True, slots=True, order=True)
class Act:
    """The action ``action`` of ``process`` happens; it accepts the first message of each channel that it names."""

    process: str
    action: str

    def __str__(self) -> str:
        return f"{self.process} does {self.action}"


@dataclass(frozen=True, slots=True, order=True)
class Deliver:
    """The first item of ``channel`` is received: a message, or a marker."""

    channel: Channel

    def __str__(self) -> str:
        return f"deliver the head of {self.channel}"


@dataclass(frozen=True, slots=True, order=True)
class Join:
    """``process`` begins a snapshot that others began already, before word of it comes to it along channels."""

    snapshot: int
    process: str

    def __str__(self) -> str:
        return f"{self.process} joins snapshot {self.snapshot}"


@dataclass(frozen=True, slots=True, order=True)
class DeliverReport:
    """The first report of ``channel``, which leads to an observer, arrives there."""

    channel: Channel

    def __str__(self) -> str:
        return f"deliver the first report of {self.channel}"


Move = Act | Deliver
"""A step of the system itself."""

Step = Move | Join | DeliverReport


class Station:
    """The process called ``name`` of ``graph``, and what has been sent to it and not been received."""

    def __init__(self, graph: ProcessGraph, name: str) -> None:
        self.host = Host(graph, name)
        self.queues: dict[Channel, deque[Item]] = {channel: deque() for channel in self.host.incoming}

    def put(self, item: Item) -> None:
        """``item`` is behind what is in its channel."""
        self.queues[item.channel].append(item)

    def delivers(self, channel: Channel) -> bool:
        """Whether an item of an incoming channel can be received: a marker always can."""
        items = self.queues[channel]
        return bool(items) and (self.host.receives or any([item.is_marker for item in items]))

    def enabled(self) -> list[Move]:
        """The steps that can happen now: channels first, actions behind them."""
        return [*[Deliver(channel) for channel in self.queues if self.delivers(channel)], *self.acts()]

    def acts(self) -> list[Act]:
        """The actions that can happen now."""
        heads = {channel: items[0] for channel, items in self.queues.items() if items}
        host = self.host
        return [Act(host.name, made.name) for made in host.actions.values() if host.enabled(made, heads)]

    def takes(self, step: Move) -> list[Item]:
        """The items that ``step`` takes out of channels. Raises: GraphError where they are not there."""
        match step:
            case Deliver(channel):
                if not self.queues[channel]:
                    raise GraphError(f"channel {channel} is empty")
                return [self.queues[channel][self._position(channel)]]
            case Act(process, action):
                made = self.host.actions.get(action)
                return [self._message(Channel(sender, process), action) for sender in (made.accepts if made else ())]
            case never:
                assert_never(never)

    def begin(self, snapshot: int) -> Outcome:
        """Begin ``snapshot`` here."""
        return self.host.begin(snapshot)

    def hear(self, note: Note) -> Outcome:
        """Receive a note from another process; only snapshots with an observer have notes."""
        raise AssertionError(f"the marker rule has no notes, got {note}")

    def steps(self, step: Move, arguments: Sequence[object] = ()) -> Iterator[Outcome]:
        """Let ``step`` happen, and yield its outcomes, each to be carried out before the next.

        Raises: what the process raises; then nothing has left a channel.
        """
        items = self.takes(step)
        match step:
            case Deliver(channel):
                ahead = list(self.queues[channel])[: self._position(channel)]
                outcome = self.host.deliver(items[0], ahead)
            case Act(_, action):
                outcome = self.host.act(action, items, arguments)
            case never:
                assert_never(never)
        for item in items:
            queue = self.queues[item.channel]
            del queue[next(i for i, each in enumerate(queue) if each is item)]
        yield outcome

    def copy(self) -> Self:
        """The same at this point, to go on with otherwise; items are shared."""
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.host = self.host.copy()
        made.queues = {channel: deque(items) for channel, items in self.queues.items()}
        return made

    def _position(self, channel: Channel) -> int:
        """Which item of ``channel`` a ``Deliver`` takes."""
        if self.host.receives:
            return 0
        return next((i for i, item in enumerate(self.queues[channel]) if item.is_marker), 0)

    def _message(self, channel: Channel, action: str) -> Item:
        items = self.queues[channel]
        if not items or items[0].is_marker:
            found = f"a marker of snapshot {items[0].value}, to be delivered first" if items else "nothing"
            raise GraphError(f"{action!r} of {channel.target!r} accepts a message of {channel}, and there is {found}")
        return items[0]
