"""The variant with an observer: no markers, tokens ride on messages, and the process that begins gathers everything.

Wikipedia, *Chandy-Lamport algorithm*, tells it like this:

1. The observer records its own state, and sends a request with the snapshot's token to all other processes.
2. A process that gets the token for the first time, by the request or on a message, sends the observer its state, as it
   was before that message. From then on all its messages carry the token.
3. A process that has the token and gets a message without it passes a copy of it on to the observer: the message was
   sent before the cut and is received behind it, so it is in its channel.

When that is complete, Wikipedia does not say. Here each process reports with its state how many messages it had sent
and received on each channel, so the observer knows how many copies are still to come. Nothing of this needs a way along
channels to everybody. In return the observer is in touch with all, every message carries something, and a snapshot
waits for messages that nobody accepts.

Invariant: a snapshot is under way as long as a report or a copy is missing, and complete with the last one.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dataflow.errors import GraphError
from dataflow.processes import Channel, ProcessGraph
from dataflow.runners.processes.content import content_of
from dataflow.runners.processes.host import Part
from dataflow.runners.processes.station import Join, Move, Step
from dataflow.runners.processes.system import System
from dataflow.traces import Recorded

__all__ = ["ObservedSystem"]


@dataclass(frozen=True, slots=True)
class _Report:
    number: int
    state: Any
    active: bool
    sent: dict[Channel, int]
    received: dict[Channel, int]


@dataclass(slots=True)
class _View:
    """What the observer has of one snapshot."""

    reports: dict[str, _Report] = field(default_factory=dict)
    late: dict[Channel, list[Any]] = field(default_factory=dict)

    def copy(self) -> _View:
        return _View(dict(self.reports), {channel: list(values) for channel, values in self.late.items()})

    def missing(self, graph: ProcessGraph) -> list[str]:
        """Who has not reported, or has yet to receive, and pass on, messages that were in a channel."""
        reports = self.reports
        owing = {
            channel.target
            for channel in graph.channels
            if channel.source in reports and channel.target in reports
            if len(self.late.get(channel, ()))
            < reports[channel.source].sent[channel] - reports[channel.target].received[channel]
        }
        return [name for name in graph.processes if name not in reports or name in owing]


class ObservedSystem(System):
    """A ``System`` whose snapshots are gathered by the process that begins them. Reports reach it at once.

    >>> from dataflow.processes import Automaton, ProcessGraph
    >>> graph = ProcessGraph()
    >>> for name, other in ("p", "q"), ("q", "p"):
    ...     _ = graph.add(name, Automaton(0, lambda state, sender, message: (state + message, {sender: 1})))
    >>> system = ObservedSystem(graph.connect("p", "q"))
    >>> number = system.snapshot("p")
    >>> [str(step) for step in system.enabled()]
    ['q joins snapshot 0']
    >>> system.step(system.enabled()[0])
    >>> system.snapshots[number].processes
    {'p': 0, 'q': 0}
    """

    def __init__(self, graph: ProcessGraph) -> None:
        super().__init__(graph)
        self._views: dict[int, _View] = {}

    def snapshot(self, *initiators: str) -> int:
        """A snapshot begun by the observer, the first of ``initiators``; the others get its request at once.

        Raises: GraphError for processes that are not there.
        """
        for name in initiators:
            self.graph.known(name)
        if not initiators:
            raise GraphError("expected the name of the process that observes: snapshot(name)")
        number = self._gathering.begin(initiators)
        self._views[number] = _View()
        for name in self._gathering.initiators[number]:
            self._record(name, number, spontaneous=name == initiators[0])
        return number

    def join(self, snapshot: int, process: str) -> None:
        """The observer's request comes to ``process``; where it has the token already, nothing happens.

        Raises: GraphError for a snapshot that nobody began.
        """
        self._check_begun(snapshot)
        if self.graph.known(process) in self.can_join(snapshot):
            self._record(process, snapshot, spontaneous=False)

    def can_join(self, snapshot: int) -> list[str]:
        """The processes that have not got the token yet."""
        view = self._views.get(snapshot)
        return [] if view is None else [name for name in self.graph.processes if name not in view.reports]

    @property
    def under_way(self) -> Mapping[int, Sequence[str]]:
        """The snapshots that are not complete, with who has not reported or has yet to receive what was in channels."""
        return {number: view.missing(self.graph) for number, view in self._views.items()}

    def enabled(self) -> list[Step]:
        """The steps that can happen now; a request on its way is a ``Join``."""
        return [*super().enabled(), *[Join(number, name) for number in self._views for name in self.can_join(number)]]

    def copy(self) -> ObservedSystem:
        """See ``System.copy``."""
        made = super().copy()
        assert isinstance(made, ObservedSystem)
        made._views = {number: view.copy() for number, view in self._views.items()}
        return made

    @property
    def content(self) -> Hashable:
        """See ``System.content``; with the tokens on messages and what the observers have."""
        tokens = [[i.tokens & self._views.keys() for i in self._queue(c)] for c in self.graph.channels]
        views = [
            (number, {name: (report.state, report.active) for name, report in view.reports.items()}, view.late)
            for number, view in self._views.items()
        ]
        return super().content, content_of([tokens, views])

    def _take(self, process: str, step: Move, arguments: Sequence[Any] = ()) -> None:
        station = self._stations[process]
        items = station.takes(step)
        for number in list(self._views):
            if process not in self._views[number].reports and any([number in item.tokens for item in items]):
                self._record(process, number, spontaneous=False)
        outcome = station.step(step, arguments)
        having = frozenset([number for number, view in self._views.items() if process in view.reports])
        self._happened(replace(outcome, items=[replace(item, tokens=having) for item in outcome.items]))
        for item in items:
            for number in sorted(having - item.tokens):
                self._views[number].late.setdefault(item.channel, []).append(item.value)
        self._complete(having)

    def _record(self, process: str, number: int, *, spontaneous: bool) -> None:
        host = self._stations[process].host
        state, active = host.record()
        recorded = Recorded(process, number, host.events, state, spontaneous)
        self.trace.happenings.append(recorded)
        self._views[number].reports[process] = _Report(host.events, state, active, *host.counts)
        self._complete([number])

    def _complete(self, numbers: Sequence[int] | frozenset[int]) -> None:
        for number in sorted(numbers):
            view = self._views[number]
            if not view.missing(self.graph):
                del self._views[number]
                self._gathering.add([self._part(name, number, view) for name in view.reports])

    def _part(self, process: str, number: int, view: _View) -> Part:
        report = view.reports[process]
        channels = {channel: tuple(view.late.get(channel, ())) for channel in self.graph.into(process)}
        return Part(process, number, report.number, report.state, report.active, channels)
