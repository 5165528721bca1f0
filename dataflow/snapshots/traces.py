"""The trace of a run of processes: its events in order, with the recordings, markers and reports of snapshots.

An event is one atomic action of one process. Messages and events have names that do not depend on the order of the run:
the k-th message of a channel, the k-th event of a process. So two runs in which processes do the same in another order
can be compared by their events.

Source: the happened-before relation is that of Lamport, *Time, Clocks, and the Ordering of Events in a Distributed
System* (1978); vector clocks (Fidge 1988, Mattern 1989) decide it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from dataflow.errors import GraphError
from dataflow.snapshots.processes import Channel

__all__ = ["Event", "Happening", "MarkerReceived", "MarkerSent", "MessageId", "Recorded"]
__all__ += ["ReportReceived", "ReportSent", "Trace"]


@dataclass(frozen=True, slots=True, order=True)
class MessageId:
    """The ``number``-th message of a channel, from 1.

    >>> print(MessageId(Channel("p", "q"), 2))
    message 2 of p -> q
    """

    channel: Channel
    number: int

    def __str__(self) -> str:
        return f"message {self.number} of {self.channel}"


@dataclass(frozen=True, slots=True)
class Event:
    """The ``number``-th event of ``process``, from 1: an atomic action.

    Attributes:
        process: the name of the process.
        number: the position among the events of the process, from 1.
        action: the name of the method: ``"receive"``, or an action.
        accepted: the messages it accepted, by name, with their values.
        sent: the messages it sent, by name, with their values.
        clock: the vector clock: for each process, the number of its events that happened before this one, and this one.
        arguments: the arguments that a run by hand passed.

    >>> first, second = Event("p", 1, "send", clock={"p": 1}), Event("q", 1, "receive", clock={"p": 1, "q": 1})
    >>> first.precedes(second), second.precedes(first)
    (True, False)
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
        """The process and the number, which identify the event in every order of the run."""
        return self.process, self.number

    def precedes(self, other: Event) -> bool:
        """Return whether this event happened before ``other`` in Lamport's sense: it may have affected it."""
        return self.name != other.name and other.clock.get(self.process, 0) >= self.number

    def __str__(self) -> str:
        took = "".join(f" < {identity.channel.source}: {value!r}" for identity, value in self.accepted)
        gave = "".join(f" > {identity.channel.target}: {value!r}" for identity, value in self.sent)
        return f"{self.process}.{self.number} {self.action}{took}{gave}"


@dataclass(frozen=True, slots=True)
class Recorded:
    """``process`` recorded its state for ``snapshot``, after its first ``number`` events.

    ``spontaneous`` is True if it began the snapshot by itself, False if a marker, a request or a token was the cause.

    >>> print(Recorded("p", snapshot=1, number=3, state={"x": 2}, spontaneous=True))
    p begins snapshot 1, after its event 3: {'x': 2}
    """

    process: str
    snapshot: int
    number: int
    state: Any = field(compare=False)
    spontaneous: bool

    def __str__(self) -> str:
        does = "begins" if self.spontaneous else "records for"
        return f"{self.process} {does} snapshot {self.snapshot}, after its event {self.number}: {self.state}"


@dataclass(frozen=True, slots=True)
class MarkerSent:
    """A marker of ``snapshot`` was sent along ``channel``.

    >>> print(MarkerSent(Channel("p", "q"), 1))
    p sends the marker of snapshot 1 to q
    """

    channel: Channel
    snapshot: int

    def __str__(self) -> str:
        return f"{self.channel.source} sends the marker of snapshot {self.snapshot} to {self.channel.target}"


@dataclass(frozen=True, slots=True)
class MarkerReceived:
    """A marker of ``snapshot`` was received from ``channel``.

    >>> print(MarkerReceived(Channel("p", "q"), 1))
    q receives the marker of snapshot 1 from p
    """

    channel: Channel
    snapshot: int

    def __str__(self) -> str:
        return f"{self.channel.target} receives the marker of snapshot {self.snapshot} from {self.channel.source}"


@dataclass(frozen=True, slots=True)
class ReportSent:
    """The ``number``-th report of ``channel``, which leads to the observer of ``snapshot``, was sent.

    ``message`` is the copied message, sent before the cut and received after it. None: the report is of the state.

    >>> channel = Channel("p", "observer")
    >>> print(ReportSent(channel, number=1, snapshot=1, message=MessageId(Channel("q", "p"), 2)))
    p sends observer a copy of message 2 of q -> p for snapshot 1
    """

    channel: Channel
    number: int
    snapshot: int
    message: MessageId | None = None

    def __str__(self) -> str:
        return f"{self.channel.source} sends {self.channel.target} {_report(self)}"


@dataclass(frozen=True, slots=True)
class ReportReceived:
    """A report of ``channel`` arrived at its observer; the fields are those of ``ReportSent``.

    >>> print(ReportReceived(Channel("p", "observer"), number=1, snapshot=1))
    observer receives from p its state for snapshot 1
    """

    channel: Channel
    number: int
    snapshot: int
    message: MessageId | None = None

    def __str__(self) -> str:
        return f"{self.channel.target} receives from {self.channel.source} {_report(self)}"


def _report(report: ReportSent | ReportReceived) -> str:
    what = "its state" if report.message is None else f"a copy of {report.message}"
    return f"{what} for snapshot {report.snapshot}"


Happening = Event | Recorded | MarkerSent | MarkerReceived | ReportSent | ReportReceived


@dataclass(slots=True)
class _Index:
    """The first ``length`` happenings of a run, grouped by process and by channel."""

    length: int = 0
    events: list[Event] = field(default_factory=list)
    of: dict[str, list[Event]] = field(default_factory=dict)
    sent: dict[Channel, list[tuple[Event, Any]]] = field(default_factory=dict)
    accepted: dict[Channel, list[Event]] = field(default_factory=dict)

    def add(self, happening: Happening) -> None:
        """Add the next happening. Raises: GraphError if a message of a channel is out of order."""
        self.length += 1
        if not isinstance(happening, Event):
            return
        self.events.append(happening)
        self.of.setdefault(happening.process, []).append(happening)
        for identity, _ in happening.accepted:
            _append(self.accepted.setdefault(identity.channel, []), happening, identity)
        for identity, value in happening.sent:
            _append(self.sent.setdefault(identity.channel, []), (happening, value), identity)


@dataclass
class Trace:
    """Everything that happened in a run, in order. Happenings are only ever appended.

    Lookups raise GraphError if messages of a channel were not sent and accepted in order, one by one.

    Attributes:
        processes: the names of the processes.
        channels: the channels between them.
        initial: the state of each process at the start.
        happenings: events, recordings, and markers and reports sent and received.

    >>> trace = Trace(["p", "q"], [], {"p": 0, "q": 0}, [Event("p", 1, "work"), Recorded("q", 0, 0, 0, True)])
    >>> print(trace)
    p.1 work
    q begins snapshot 0, after its event 0: 0
    >>> len(trace.events), len(trace.of("q"))
    (1, 0)
    """

    processes: Sequence[str]
    channels: Sequence[Channel]
    initial: Mapping[str, Any]
    happenings: list[Happening] = field(default_factory=list)
    _indexed: _Index = field(default_factory=_Index, init=False, repr=False, compare=False)

    @property
    def events(self) -> Sequence[Event]:
        """The events, without markers, recordings and reports."""
        return self._index().events

    def of(self, process: str) -> Sequence[Event]:
        """Return the events of one process."""
        return self._index().of.get(process, ())

    def sent(self, channel: Channel) -> Sequence[tuple[Event, Any]]:
        """Return the messages of a channel, first sent first, each as a pair of its event and its value."""
        return self._index().sent.get(channel, ())

    def accepted(self, channel: Channel) -> Sequence[Event]:
        """Return the events that accepted the first messages of a channel; the other messages are still in it."""
        return self._index().accepted.get(channel, ())

    def __str__(self) -> str:
        return "\n".join(map(str, self.happenings))

    def _index(self) -> _Index:
        for happening in islice(self.happenings, self._indexed.length, None):
            self._indexed.add(happening)
        return self._indexed


_Entry = TypeVar("_Entry")


def _append(entries: list[_Entry], entry: _Entry, identity: MessageId) -> None:
    entries.append(entry)
    if identity.number != len(entries):
        raise GraphError(f"expected message {len(entries)} of {identity.channel} next, found {identity}: {entry}")
