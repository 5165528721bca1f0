"""What happened in a run of processes, in the order in which it did: events, and the markers of snapshots among them.

An event is one atomic action of one process. Messages and events have names that do not depend on the order of the run:
the k-th message of a channel, the k-th event of a process. So two runs in which processes did the same in another order
are compared by their events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dataflow.processes import Channel

__all__ = ["Event", "Happening", "MarkerReceived", "MarkerSent", "MessageId", "Recorded", "Trace"]


@dataclass(frozen=True, slots=True, order=True)
class MessageId:
    """The ``number``-th message of a channel, from 1."""

    channel: Channel
    number: int

    def __str__(self) -> str:
        return f"message {self.number} of {self.channel}"


@dataclass(frozen=True, slots=True)
class Event:
    """The ``number``-th event of ``process``, from 1: an atomic action.

    ``accepted`` and ``sent`` are messages with what was in them. ``arguments`` came from outside. ``clock`` is the
    vector clock: how many events of each process happened before this one or are it.
    """

    process: str
    number: int
    action: str
    accepted: tuple[tuple[MessageId, Any], ...] = ()
    sent: tuple[tuple[MessageId, Any], ...] = ()
    clock: Mapping[str, int] = field(default_factory=dict, compare=False)
    arguments: tuple[Any, ...] = ()

    @property
    def name(self) -> tuple[str, int]:
        """Process and number: what it is called in every order of the run."""
        return self.process, self.number

    def precedes(self, other: Event) -> bool:
        """Whether this event happened before ``other``, in Lamport's sense: it may have had an effect on it."""
        return self.name != other.name and other.clock.get(self.process, 0) >= self.number

    def __str__(self) -> str:
        took = "".join(f" < {identity.channel.source}: {value!r}" for identity, value in self.accepted)
        gave = "".join(f" > {identity.channel.target}: {value!r}" for identity, value in self.sent)
        return f"{self.process}.{self.number} {self.action}{took}{gave}"


@dataclass(frozen=True, slots=True)
class Recorded:
    """``process`` recorded its state for ``snapshot``, behind ``number`` events of its own.

    ``spontaneous``: it began the snapshot by itself; else because of a marker.
    """

    process: str
    snapshot: int
    number: int
    state: Any = field(compare=False)
    spontaneous: bool


@dataclass(frozen=True, slots=True)
class MarkerSent:
    """A marker of ``snapshot`` went into ``channel``."""

    channel: Channel
    snapshot: int


@dataclass(frozen=True, slots=True)
class MarkerReceived:
    """A marker of ``snapshot`` came out of ``channel``."""

    channel: Channel
    snapshot: int


Happening = Event | Recorded | MarkerSent | MarkerReceived


@dataclass
class Trace:
    """Everything that happened, in order, from the ``initial`` states of the processes on."""

    processes: Sequence[str]
    channels: Sequence[Channel]
    initial: Mapping[str, Any]
    happenings: list[Happening] = field(default_factory=list)

    @property
    def events(self) -> list[Event]:
        """The events, without markers and recordings."""
        return [each for each in self.happenings if isinstance(each, Event)]

    def of(self, process: str) -> list[Event]:
        """The events of one process."""
        return [event for event in self.events if event.process == process]

    @property
    def messages(self) -> Iterator[tuple[MessageId, Event, Event | None]]:
        """Every message with the event that sent it, and the one that accepted it; None: it is in its channel still."""
        accepted = {identity: event for event in self.events for identity, _ in event.accepted}
        for event in self.events:
            for identity, _ in event.sent:
                yield identity, event, accepted.get(identity)

    def __str__(self) -> str:
        return "\n".join(map(str, self.happenings))
