"""A host with the ends of its incoming channels: which steps it can take now, and taking them.

A step is what cannot be split: an action happens, or the first item of a channel is received. An item leaves its
channel when the step is over, so a step that fails leaves everything where it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from dataflow.errors import GraphError
from dataflow.processes import Channel, ProcessGraph
from dataflow.runners.processes.host import Host, Item, Outcome

__all__ = ["Act", "Deliver", "Join", "Move", "Station", "Step"]


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


Move = Act | Deliver
"""A step of the system itself."""

Step = Move | Join


class Station:
    """The process called ``name`` of ``graph``, and what has been sent to it and not been received."""

    def __init__(self, graph: ProcessGraph, name: str) -> None:
        self.host = Host(graph, name)
        self.queues: dict[Channel, deque[Item]] = {channel: deque() for channel in self.host.incoming}

    def put(self, item: Item) -> None:
        """``item`` is behind what is in its channel."""
        self.queues[item.channel].append(item)

    def delivers(self, channel: Channel) -> bool:
        """Whether the first item of an incoming channel can be received: a marker always can."""
        items = self.queues[channel]
        return bool(items) and (items[0].is_marker or self.host.receives)

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
                return [self.queues[channel][0]]
            case Act(process, action):
                made = self.host.actions.get(action)
                return [self._message(Channel(sender, process), action) for sender in (made.accepts if made else ())]
            case never:
                assert_never(never)

    def step(self, step: Move, arguments: Sequence[object] = ()) -> Outcome:
        """Let ``step`` happen. Raises: what the process raises; then nothing has left a channel."""
        items = self.takes(step)
        match step:
            case Deliver():
                outcome = self.host.deliver(items[0])
            case Act(_, action):
                outcome = self.host.act(action, items, arguments)
            case never:
                assert_never(never)
        for item in items:
            self.queues[item.channel].popleft()
        return outcome

    def copy(self) -> Station:
        """The same at this point, to go on with otherwise; items are shared."""
        made = Station.__new__(Station)
        made.host = self.host.copy()
        made.queues = {channel: deque(items) for channel, items in self.queues.items()}
        return made

    def _message(self, channel: Channel, action: str) -> Item:
        items = self.queues[channel]
        if not items or items[0].is_marker:
            found = f"a marker of snapshot {items[0].value}, to be delivered first" if items else "nothing"
            raise GraphError(f"{action!r} of {channel.target!r} accepts a message of {channel}, and there is {found}")
        return items[0]
