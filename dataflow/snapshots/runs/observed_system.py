"""``System`` with snapshots by an observer: tokens on messages instead of markers, and reports to the observer.

``observed_node`` implements the rule. It needs no path along channels of the graph to every process. But the
observer needs a channel to and from each process, every message has an additional field, and a snapshot is not complete
until every message that was in a channel at the cut has been accepted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from typing import Self

from dataflow.errors import GraphError
from dataflow.snapshots.processes import Channel, ProcessGraph
from dataflow.snapshots.runs.hashable_content import content_of
from dataflow.snapshots.runs.host import Outcome
from dataflow.snapshots.runs.observed_node import LateMessage, ObservedNode, Report, Request, StateReport
from dataflow.snapshots.runs.process_node import DeliverReport, Join, ProcessNode, Step
from dataflow.snapshots.runs.system import System

__all__ = ["ObservedSystem"]


class ObservedSystem(System):
    """A ``System`` whose snapshots are collected by the process that begins them, from reports that may be delayed.

    The step ``Join`` delivers a request, ``DeliverReport`` the next report; ``reports`` are the reports in transit.

    >>> from dataflow.snapshots.processes import Automaton, ProcessGraph
    >>> graph = ProcessGraph()
    >>> for name, other in ("p", "q"), ("q", "p"):
    ...     _ = graph.add(name, Automaton(0, lambda state, sender, message: (state + message, {sender: 1})))
    >>> system = ObservedSystem(graph.connect("p", "q"))
    >>> number = system.snapshot("p")
    >>> while system.enabled():
    ...     print(system.enabled()[0])
    ...     system.step(system.enabled()[0])
    q joins snapshot 0
    deliver the first report of q -> p
    >>> system.snapshots[number].processes
    {'p': 0, 'q': 0}
    """

    _nodes: Mapping[str, ObservedNode]

    def __init__(self, graph: ProcessGraph) -> None:
        self._reports: dict[Channel, deque[Report]] = {}
        super().__init__(graph)

    @property
    def reports(self) -> Mapping[Channel, Sequence[Report]]:
        """The reports in transit, by process and observer, first sent first. They are in no channel of the graph."""
        return {channel: list(reports) for channel, reports in self._reports.items() if reports}

    def snapshot(self, *initiators: str) -> int:
        """Begin a snapshot. The first of ``initiators`` is the observer; the others receive its request immediately.

        Returns: the number of the snapshot.

        Raises: GraphError if a process does not exist, or none is named.
        """
        for name in initiators:
            self.graph.known(name)
        if not initiators:
            raise GraphError("expected the name of the process that is the observer: snapshot(name)")
        number = self._snapshot_parts.begin(initiators)
        observer, *others = self._snapshot_parts.initiators[number]
        self._happened(self._nodes[observer].begin(number))
        for name in others:
            self._happened(self._nodes[name].hear(Request(number)))
        return number

    def join(self, snapshot: int, process: str) -> None:
        """Let the observer's request arrive at ``process``; if it has the token already, nothing happens.

        Raises: GraphError if there is no such snapshot or process.
        """
        self._check_begun(snapshot)
        self._happened(self._nodes[self.graph.known(process)].hear(Request(snapshot)))

    def can_join(self, snapshot: int) -> list[str]:
        """Return the processes that do not have the token yet."""
        return [name for name, node in self._nodes.items() if snapshot not in node.recorded]

    def deliver_report(self, source: str, observer: str) -> Report:
        """Let the first report from ``source`` arrive at ``observer``, and return it.

        Raises: GraphError if no report is in transit between the two.
        """
        channel = Channel(self.graph.known(source), self.graph.known(observer))
        reports = self._reports.get(channel)
        if not reports:
            waiting = ", ".join([str(each) for each in self.reports])
            raise GraphError(f"no report is in transit along {channel}; channels with reports: {waiting or 'none'}")
        report = reports.popleft()
        self._happened(self._nodes[observer].hear(report))
        return report

    @property
    def under_way(self) -> Mapping[int, Sequence[str]]:
        """The incomplete snapshots, each with the processes of which a report has not arrived at the observer.

        Missing is the state of the process, or a copy of a message that was in one of its channels at the cut.
        """
        views = {number: view for node in self._nodes.values() for number, view in node.views.items()}
        return {number: views[number].missing(self.graph) for number in sorted(views)}

    def enabled(self) -> list[Step]:
        """Return the possible steps, with the arrivals of requests and of the first report of each channel."""
        joins = [Join(number, name) for number in self.under_way for name in self.can_join(number)]
        return [*super().enabled(), *joins, *[DeliverReport(channel) for channel in self.reports]]

    def copy(self) -> Self:
        """Return an independent copy, with the reports in transit; see ``System.copy``."""
        copied = super().copy()
        copied._reports = {channel: deque(reports) for channel, reports in self._reports.items()}
        for node in copied._nodes.values():
            node.initiators = copied._snapshot_parts.initiators
        return copied

    @property
    def content(self) -> Hashable:
        """The hashable content as in ``System.content``, with tokens and with reports in transit and arrived.

        Counts in reports are left out, because they follow from the rest and grow with the run: the missing copies are
        those of the messages without the token in channels, and the copies in transit.
        """
        open_ = list(self.under_way)
        tokens = [[[n for n in open_ if n in i.tokens] for i in self._queue(c)] for c in self.graph.channels]
        nodes = [
            (
                [n for n in open_ if n in node.recorded],
                {n: ({p: (s.state, s.active) for p, s in v.states.items()}, v.late) for n, v in node.views.items()},
            )
            for node in self._nodes.values()
        ]
        observers = [self._snapshot_parts.initiators[n][0] for n in open_]
        reports = {channel: [_report_content(report) for report in each] for channel, each in self.reports.items()}
        return super().content, content_of([tokens, nodes, observers, reports])

    def _node(self, name: str) -> ProcessNode:
        return ObservedNode(self.graph, name, self._snapshot_parts.initiators)

    def _happened(self, outcome: Outcome) -> None:
        super()._happened(outcome)
        for _, note in outcome.notes:
            match note:
                case StateReport() | LateMessage():
                    self._reports.setdefault(note.channel, deque()).append(note)
                case _:
                    pass  # a request is in transit until its process has the token: see ``enabled``


def _report_content(report: Report) -> object:
    if isinstance(report, StateReport):
        return report.snapshot, report.state, report.active
    return report.snapshot, report.message.channel, report.value
