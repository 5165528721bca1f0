"""A system of processes moved step by step, by hand or by whoever chooses: a whole run in one place, in one thread.

A step is what cannot be split: an action happens, or the first item of a channel is received. Which steps can happen
now is ``enabled``; nothing happens by itself.

>>> from dataflow.snapshots.processes import Automaton, ProcessGraph
>>> graph = ProcessGraph().add("P1", Automaton(0, lambda state, sender, message: (state + message, None)))
>>> graph.add("P2", Automaton(5, lambda state, sender, message: (state, {"P1": message}))).connect("P1", "P2")
ProcessGraph(P1, P2; P1 -> P2, P2 -> P1)
>>> system = System(graph)
>>> number = system.snapshot("P2")
>>> system.deliver("P2", "P1"), system.deliver("P1", "P2")
(Marker(snapshot=0), Marker(snapshot=0))
>>> print(system.snapshots[number])
snapshot 0, begun by P2
  P1: 0
  P2: 5
  P1 -> P2: []
  P2 -> P1: []
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, assert_never

from dataflow.errors import GraphError
from dataflow.snapshots.processes import Channel, GlobalState, ProcessGraph
from dataflow.snapshots.runs.hashable_content import content_of
from dataflow.snapshots.runs.host import RECEIVE, Item, Outcome
from dataflow.snapshots.runs.snapshot_parts import SnapshotParts
from dataflow.snapshots.runs.station import Act, Deliver, DeliverReport, Join, Move, Station, Step
from dataflow.snapshots.traces import Event, Trace

__all__ = ["Act", "Deliver", "DeliverReport", "Join", "Marker", "Step", "System"]


@dataclass(frozen=True, slots=True)
class Marker:
    """A marker of ``snapshot``, as one sees it in a channel."""

    snapshot: int


class System:
    """A run of ``graph``. Raises: GraphError for a graph without processes, or with an action that can never happen."""

    def __init__(self, graph: ProcessGraph) -> None:
        graph.check_not_empty()
        self.graph = graph = graph.copy()
        self._snapshot_parts = SnapshotParts(graph)
        self._stations: Mapping[str, Station] = {name: self._station(name) for name in graph.processes}
        initial = {name: station.host.state for name, station in self._stations.items()}
        self.trace = Trace(list(graph.processes), graph.channels, initial)

    def __repr__(self) -> str:
        held = "; ".join([f"{channel}: {list(items)}" for channel, items in self.channels.items() if items])
        known = f"{len(self.trace.events)} events, {len(self.snapshots)} snapshots, {len(self.under_way)} under way"
        return f"{type(self).__name__}({known}; in channels {held or 'nothing'})"

    @property
    def channels(self) -> Mapping[Channel, Sequence[Any]]:
        """What is in the channels now, first sent first: messages, and ``Marker``s."""
        return {channel: [_shown(item) for item in self._queue(channel)] for channel in self.graph.channels}

    @property
    def snapshots(self) -> Mapping[int, GlobalState]:
        """The snapshots that are complete, by number."""
        return self._snapshot_parts.complete

    @property
    def under_way(self) -> Mapping[int, Sequence[str]]:
        """The snapshots that are not complete, with the processes whose part is missing."""
        return self._snapshot_parts.under_way

    @property
    def state(self) -> GlobalState:
        """Everything as it is now, which nobody inside the system can see. Markers are not part of it."""
        hosts = {name: station.host for name, station in self._stations.items()}
        return GlobalState(
            {name: host.state for name, host in hosts.items()},
            {c: tuple(i.value for i in self._queue(c) if not i.is_marker) for c in self.graph.channels},
            {name: host.events for name, host in hosts.items()},
            active=tuple(name for name, host in hosts.items() if host.active),
        )

    def enabled(self) -> list[Step]:
        """The steps that can happen now, in the order of the graph."""
        found: list[Step] = [Deliver(c) for c in self.graph.channels if self._stations[c.target].delivers(c)]
        for station in self._stations.values():
            found += station.acts()
        return found

    def step(self, step: Step) -> None:
        """Let ``step`` happen. Raises: what ``deliver`` and ``act`` do."""
        match step:
            case Act(process, action):
                self.act(process, action)
            case Deliver(channel):
                self.deliver(channel.source, channel.target)
            case Join(snapshot, process):
                self.join(snapshot, process)
            case DeliverReport(channel):
                self.deliver_report(channel.source, channel.target)
            case never:
                assert_never(never)

    def deliver(self, source: str, target: str) -> Any:
        """The first item of a channel is received; answers it.

        Raises: GraphError where there is no such channel, or it is empty; what the process raises: then nothing has
        been received.
        """
        step = Deliver(self._with_items(source, target))
        (item,) = self._stations[target].takes(step)
        self._take(target, step)
        return _shown(item)

    def act(self, process: str, action: str, *arguments: Any) -> None:
        """An action of a process happens; ``arguments`` follow the messages that it accepts.

        Raises: GraphError where there is none of that name, or a message that it accepts is not there; what the process
        raises: then nothing has been received.
        """
        self._take(self.graph.known(process), Act(process, action), arguments)

    def deliver_report(self, source: str, observer: str) -> Any:
        """Let the first report from ``source`` arrive at ``observer``, and return it. By markers there are none.

        Raises: GraphError where no report is on its way between the two.
        """
        channel = Channel(self.graph.known(source), self.graph.known(observer))
        raise GraphError(f"no report is on its way along {channel}: snapshots by markers have no observer")

    def snapshot(self, *initiators: str) -> int:
        """One snapshot, begun by one process or by several at once; answers its number.

        Raises: GraphError where the markers would not reach every process: it would never be complete.
        """
        self.graph.check_reached(initiators)
        number = self._snapshot_parts.begin(initiators)
        for name in list(self._snapshot_parts.initiators[number]):
            self._happened(self._stations[name].begin(number))
        return number

    def join(self, snapshot: int, process: str) -> None:
        """``process`` begins a snapshot that others began already, before their markers come to it.

        Where one has come, nothing happens. Raises: GraphError for a snapshot that nobody began.
        """
        self._check_begun(snapshot)
        host = self._stations[self.graph.known(process)].host
        if not host.knows(snapshot):
            self._snapshot_parts.initiators[snapshot].append(process)
            self._happened(host.begin(snapshot))

    def can_join(self, snapshot: int) -> list[str]:
        """The processes that have not recorded their state for ``snapshot`` yet."""
        return [name for name, station in self._stations.items() if not station.host.knows(snapshot)]

    def repeat(self, event: Event) -> None:
        """What another run of the graph did happens here: the same action, with the same messages.

        Raises: GraphError where it cannot happen now, or comes out otherwise.
        """
        before = len(self.trace.happenings)
        if event.action == RECEIVE:
            ((identity, _),) = event.accepted
            self.deliver(identity.channel.source, identity.channel.target)
        else:
            self.act(event.process, event.action, *event.arguments)
        found = [each for each in self.trace.happenings[before:] if isinstance(each, Event)]
        if found != [event]:
            raise GraphError(
                f"expected {event}, and {', '.join(map(str, found))} happened: is the process deterministic?"
            )

    @property
    def content(self) -> Hashable:
        """What everybody is, what is in channels and what is known of snapshots under way; not how it came there."""
        items = [tuple([(i.is_marker, content_of(i.value)) for i in self._queue(c)]) for c in self.graph.channels]
        hosts = [station.host.content for station in self._stations.values()]
        return tuple(items), tuple(hosts), self._snapshot_parts.content, len(self._snapshot_parts.initiators)

    @property
    def basic_content(self) -> Hashable:
        """What everybody is and what is in channels, without a trace of snapshots."""
        items = [[i.value for i in self._queue(c) if not i.is_marker] for c in self.graph.channels]
        return content_of([items, [vars(station.host.process) for station in self._stations.values()]])

    def copy(self) -> Self:
        """The same run at the same point, to go on with otherwise."""
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        made._stations = {name: station.copy() for name, station in self._stations.items()}
        made._snapshot_parts = self._snapshot_parts.copy()
        made.trace = replace(self.trace, happenings=list(self.trace.happenings))
        return made

    def _check_begun(self, snapshot: int) -> None:
        begun = list(self._snapshot_parts.initiators)
        if snapshot not in begun:
            raise GraphError(f"there is no snapshot {snapshot} to join; begun were {begun}")

    def _queue(self, channel: Channel) -> Sequence[Item]:
        return self._stations[channel.target].queues[channel]

    def _with_items(self, source: str, target: str) -> Channel:
        channel = Channel(self.graph.known(source), self.graph.known(target))
        channels = self.graph.channels
        if channel not in channels:
            raise GraphError(f"there is no channel {channel}; there are {', '.join(map(str, channels)) or 'none'}")
        if not self._queue(channel):
            waiting = ", ".join([str(c) for c in channels if self._queue(c)])
            raise GraphError(f"channel {channel} is empty; something is in {waiting or 'none'}")
        return channel

    def _take(self, process: str, step: Move, arguments: Sequence[Any] = ()) -> None:
        for outcome in self._stations[process].steps(step, arguments):
            self._happened(outcome)

    def _station(self, name: str) -> Station:
        return Station(self.graph, name)

    def _happened(self, outcome: Outcome) -> None:
        for item in outcome.items:
            self._stations[item.channel.target].put(item)
        self.trace.happenings += outcome.happenings
        self._snapshot_parts.add(outcome.parts)


def _shown(item: Item) -> Any:
    return Marker(item.value) if item.is_marker else item.value
