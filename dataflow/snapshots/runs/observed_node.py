"""The rule of one process for snapshots with an observer: tokens on messages, and reports to the observer.

Source: Wikipedia, *Chandy-Lamport algorithm*:

1. The observer records its own state, and sends a request with the snapshot's token to all other processes.
2. A process that gets the token for the first time, by the request or on a message, sends the observer its state, as it
   was before that message. From then on all its messages carry the token.
3. A process that has the token and gets a message without it sends a copy of it to the observer: the message was sent
   before the cut and is received after it, so it is in its channel at the cut.

In the terms of Dijkstra's EWD 864a, a process turns red when it gets the token, a message has the colour of its sender,
and a copied message is a white message that a red process accepts.

Reports, of states and of late messages, are sent over a FIFO channel from each process to each observer. Like messages,
they may be delayed. But they are not messages of the system, so its global states do not contain them. Wikipedia does
not define when a snapshot is complete. Here a process reports with its state the numbers of messages sent and received
on each channel. So the observer can compute, from the reports that have arrived, how many copies are missing.

This code assumes: the number of a snapshot is its token, and a process that knows the number knows the observer.

Invariant: a snapshot is complete when the observer has the state of every process, and of each channel as many copies
as its sender had sent and its receiver had not received when they recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, assert_never

from dataflow.errors import ConfigurationError
from dataflow.snapshots.processes import Channel, ProcessGraph
from dataflow.snapshots.runs.host import Item, Note, Outcome, RecordedPart
from dataflow.snapshots.runs.number_set import NO_NUMBERS
from dataflow.snapshots.runs.process_node import Move, ProcessNode
from dataflow.snapshots.traces import MessageId, Recorded, ReportReceived, ReportSent

__all__ = ["LateMessage", "ObservedNode", "Report", "Request", "StateReport"]


@dataclass(frozen=True, slots=True)
class StateReport:
    """The state of a process for ``snapshot``, as the ``number``-th report of ``channel``, which leads to the observer.

    ``events`` is the number of events of the process until then; ``sent`` and ``received`` count the messages of its
    channels until then.
    """

    channel: Channel
    number: int
    snapshot: int
    state: Any
    active: bool
    events: int
    sent: Mapping[Channel, int]
    received: Mapping[Channel, int]

    def __str__(self) -> str:
        return f"report of {self.channel.source} for snapshot {self.snapshot}: {self.state}"


@dataclass(frozen=True, slots=True)
class LateMessage:
    """A copy of a message that was sent before the cut of ``snapshot`` and received after it, as a report."""

    channel: Channel
    number: int
    snapshot: int
    message: MessageId
    value: Any

    def __str__(self) -> str:
        return f"copy of {self.message} for snapshot {self.snapshot}: {self.value}"


Report = StateReport | LateMessage


@dataclass(frozen=True, slots=True)
class Request:
    """The observer's request to a process to record its state for ``snapshot``."""

    snapshot: int


@dataclass(slots=True)
class View:
    """The reports of one snapshot that have arrived at its observer."""

    states: dict[str, StateReport] = field(default_factory=dict)
    late: dict[Channel, list[Any]] = field(default_factory=dict)

    def missing(self, graph: ProcessGraph) -> list[str]:
        """Return the processes of which the state, or a copy of a message that was in a channel, has not arrived."""
        states = self.states
        owing = {
            channel.target
            for channel in graph.channels
            if channel.source in states and channel.target in states
            if len(self.late.get(channel, ()))
            < states[channel.source].sent[channel] - states[channel.target].received[channel]
        }
        return [name for name in graph.processes if name not in states or name in owing]

    def add(self, report: Report) -> None:
        """Add a report that has arrived."""
        match report:
            case StateReport(channel):
                self.states[channel.source] = report
            case LateMessage(message=message):
                self.late.setdefault(message.channel, []).append(report.value)
            case never:
                assert_never(never)

    def copy(self) -> View:
        """Return an independent copy."""
        return View(dict(self.states), {channel: list(values) for channel, values in self.late.items()})


class ObservedNode(ProcessNode):
    """A node that records and reports by tokens, and collects the reports that it receives.

    ``initiators`` maps each snapshot to its initiators, the first of which is its observer. Its owner is the run, which
    adds the snapshots that it begins.
    """

    def __init__(self, graph: ProcessGraph, name: str, initiators: Mapping[int, Sequence[str]]) -> None:
        super().__init__(graph, name)
        self.initiators = initiators
        self.recorded = NO_NUMBERS
        """The snapshots for which the process has recorded its state: its messages carry these tokens."""
        self.views: dict[int, View] = {}
        """The reports of the snapshots in progress of which the process is the observer."""
        self._graph = graph
        self._reported: dict[str, int] = {}
        self._heard: dict[str, int] = {}

    def begin(self, snapshot: int) -> Outcome:
        """Record the state as the observer of ``snapshot``, and request the same from all other processes."""
        outcome = self._record(snapshot, spontaneous=True)
        requests: list[tuple[str, Note]] = [(name, Request(snapshot)) for name in self._graph.processes]
        return replace(outcome, notes=[*outcome.notes, *[each for each in requests if each[0] != self.host.name]])

    def steps(self, step: Move, arguments: Sequence[object] = ()) -> Iterator[Outcome]:
        """Record for the tokens of the messages that ``step`` receives, then execute it; see ``ProcessNode.steps``."""
        items = self.takes(step)
        for item in items:
            for number in item.tokens.without(self.recorded):
                yield self._record(number, spontaneous=False)
        for outcome in super().steps(step, arguments):
            yield self._reporting(
                replace(outcome, items=[replace(item, tokens=self.recorded) for item in outcome.items]),
                [report for item in items for report in self._copies(item)],
            )

    def hear(self, note: Note) -> Outcome:
        """Receive a request, or a report to this observer. Raises: ConfigurationError if a report is out of order."""
        match note:
            case Request(snapshot):
                known = snapshot in self.recorded
                return Outcome([], [], []) if known else self._record(snapshot, spontaneous=False)
            case StateReport() | LateMessage():
                source = note.channel.source
                expected = self._heard.get(source, 0) + 1
                if note.number != expected:
                    raise ConfigurationError(
                        f"the channel of reports {note.channel} is not FIFO: expected its report {expected}, got "
                        f"{note.number}; an observer requires channels that lose, repeat and reorder nothing"
                    )
                self._heard[source] = expected
                message = note.message if isinstance(note, LateMessage) else None
                received = ReportReceived(note.channel, note.number, note.snapshot, message)
                return Outcome([], [received], self._parts(note))
            case _:
                raise AssertionError(f"expected a request or a report, got {note}")

    def copy(self) -> Self:
        """Return an independent copy, which shares ``initiators``; see ``ProcessNode.copy``."""
        copied = super().copy()
        copied.views = {number: view.copy() for number, view in self.views.items()}
        copied._reported, copied._heard = dict(self._reported), dict(self._heard)
        return copied

    def _record(self, snapshot: int, *, spontaneous: bool) -> Outcome:
        host = self.host
        state, active = host.record()
        self.recorded = self.recorded.with_number(snapshot)
        recorded = Recorded(host.name, snapshot, host.events, state, spontaneous)
        channel, number = self._next_report(snapshot)
        report = StateReport(channel, number, snapshot, state, active, host.events, *host.counts)
        return self._reporting(Outcome([], [recorded], []), [report])

    def _copies(self, item: Item) -> Iterator[LateMessage]:
        """Yield a copy of a received message for each snapshot before whose cut it was sent."""
        for snapshot in self.recorded.without(item.tokens):
            channel, number = self._next_report(snapshot)
            yield LateMessage(channel, number, snapshot, MessageId(item.channel, item.message), item.value)

    def _next_report(self, snapshot: int) -> tuple[Channel, int]:
        """Return the channel to the observer of ``snapshot`` and the next report's number; 0 if it is this process."""
        observer = self.initiators[snapshot][0]
        if observer == self.host.name:
            return Channel(observer, observer), 0
        self._reported[observer] = self._reported.get(observer, 0) + 1
        return Channel(self.host.name, observer), self._reported[observer]

    def _reporting(self, outcome: Outcome, reports: Sequence[Report]) -> Outcome:
        """Return ``outcome`` with ``reports`` added; reports to this process itself arrive immediately."""
        happenings, parts = list(outcome.happenings), list(outcome.parts)
        notes: list[tuple[str, Note]] = list(outcome.notes)
        for report in reports:
            if report.channel.target == self.host.name:
                parts += self._parts(report)
                continue
            message = report.message if isinstance(report, LateMessage) else None
            happenings.append(ReportSent(report.channel, report.number, report.snapshot, message))
            notes.append((report.channel.target, report))
        return Outcome(outcome.items, happenings, parts, notes)

    def _parts(self, report: Report) -> list[RecordedPart]:
        """Receive a report; return the parts of its snapshot if the snapshot is complete now."""
        snapshot = report.snapshot
        view = self.views.setdefault(snapshot, View())
        view.add(report)
        if view.missing(self._graph):
            return []
        del self.views[snapshot]
        return [
            RecordedPart(name, snapshot, state.events, state.state, state.active,
                 {channel: tuple(view.late.get(channel, ())) for channel in self._graph.into(name)})
            for name, state in view.states.items()
        ]  # fmt: skip
