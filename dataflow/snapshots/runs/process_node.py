"""A process with the queues of its incoming channels: lists the steps that are possible now, and executes them.

A step is atomic: an action happens, or the first item of a channel is received. A process without ``receive`` leaves
messages in the channel until an action accepts them; for such a process, the first marker is received instead.

Guarantees: items leave their channel when the step has succeeded, so a step that raises changes no channel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self, assert_never

from dataflow.errors import GraphError
from dataflow.snapshots.processes import Channel, ProcessGraph
from dataflow.snapshots.runs.host import Host, Item, Note, Outcome

__all__ = ["Act", "Deliver", "DeliverReport", "Join", "Move", "ProcessNode", "Step"]


@dataclass(frozen=True, slots=True, order=True)
class Act:
    """The step in which ``action`` of ``process`` happens, and accepts the first message of each channel it names."""

    process: str
    action: str

    def __str__(self) -> str:
        return f"{self.process} does {self.action}"


@dataclass(frozen=True, slots=True, order=True)
class Deliver:
    """The step in which the first item of ``channel`` is received: a message, or a marker."""

    channel: Channel

    def __str__(self) -> str:
        return f"deliver the head of {self.channel}"


@dataclass(frozen=True, slots=True, order=True)
class Join:
    """The step in which ``process`` begins a snapshot that others began, before it learns of it along channels."""

    snapshot: int
    process: str

    def __str__(self) -> str:
        return f"{self.process} joins snapshot {self.snapshot}"


@dataclass(frozen=True, slots=True, order=True)
class DeliverReport:
    """The step in which the first report of ``channel`` arrives at its observer."""

    channel: Channel

    def __str__(self) -> str:
        return f"deliver the first report of {self.channel}"


Move = Act | Deliver
"""A step of the system itself."""

Step = Move | Join | DeliverReport
"""A step of the system, or of a snapshot of it."""


class ProcessNode:
    """The process called ``name`` of ``graph``, with the items that were sent to it and not received yet."""

    def __init__(self, graph: ProcessGraph, name: str) -> None:
        self.host = Host(graph, name)
        self.queues: dict[Channel, deque[Item]] = {channel: deque() for channel in self.host.incoming}

    def put(self, item: Item) -> None:
        """Append ``item`` to its channel."""
        self.queues[item.channel].append(item)

    def delivers(self, channel: Channel) -> bool:
        """Return whether an item of an incoming channel can be received; a marker always can."""
        items = self.queues[channel]
        return bool(items) and (self.host.receives or any([item.is_marker for item in items]))

    def enabled(self) -> list[Move]:
        """Return the steps that are possible now: deliveries first, then actions."""
        return [*[Deliver(channel) for channel in self.queues if self.delivers(channel)], *self.acts()]

    def acts(self) -> list[Act]:
        """Return the actions that are possible now."""
        heads = {channel: items[0] for channel, items in self.queues.items() if items}
        host = self.host
        return [Act(host.name, action.name) for action in host.actions.values() if host.enabled(action, heads)]

    def takes(self, step: Move) -> list[Item]:
        """Return the items that ``step`` takes out of channels. Raises: GraphError if one is missing."""
        match step:
            case Deliver(channel):
                if not self.queues[channel]:
                    raise GraphError(f"channel {channel} is empty")
                return [self.queues[channel][self._position(channel)]]
            case Act(process, action):
                declared = self.host.actions.get(action)
                senders = declared.accepts if declared else ()
                return [self._message(Channel(sender, process), action) for sender in senders]
            case never:
                assert_never(never)

    def begin(self, snapshot: int) -> Outcome:
        """Begin ``snapshot`` at this process."""
        return self.host.begin(snapshot)

    def hear(self, note: Note) -> Outcome:
        """Receive a note from another process; only snapshots with an observer have notes."""
        raise AssertionError(f"the marker rule has no notes, got {note}")

    def steps(self, step: Move, arguments: Sequence[object] = ()) -> Iterator[Outcome]:
        """Execute ``step``, and yield its outcomes; the caller must apply each before it asks for the next.

        Raises: any exception of the process; then no item has left a channel.
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
        """Return an independent copy; items are shared."""
        copied = type(self).__new__(type(self))
        copied.__dict__.update(self.__dict__)
        copied.host = self.host.copy()
        copied.queues = {channel: deque(items) for channel, items in self.queues.items()}
        return copied

    def _position(self, channel: Channel) -> int:
        """Return the position of the item of ``channel`` that a ``Deliver`` takes."""
        if self.host.receives:
            return 0
        return next((i for i, item in enumerate(self.queues[channel]) if item.is_marker), 0)

    def _message(self, channel: Channel, action: str) -> Item:
        items = self.queues[channel]
        if not items or items[0].is_marker:
            reason = "the channel is empty"
            if items:
                reason = f"a marker of snapshot {items[0].value} is before it: deliver the marker first"
            raise GraphError(f"{action!r} of {channel.target!r} accepts a message of {channel}, but {reason}")
        return items[0]
