"""A run of a process graph that the caller controls step by step, in one thread.

A step is atomic: an action happens, or the first item of a channel is received. ``enabled`` returns the steps that are
possible now; nothing happens by itself. Snapshots are taken by the marker rule, see ``host``.

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
from dataflow.snapshots.runs.process_node import Act, Deliver, DeliverReport, Join, Move, ProcessNode, Step
from dataflow.snapshots.runs.snapshot_parts import SnapshotParts
from dataflow.snapshots.traces import Event, Trace

__all__ = ["Act", "Deliver", "DeliverReport", "Join", "Marker", "Step", "System"]


@dataclass(frozen=True, slots=True)
class Marker:
    """A marker of ``snapshot`` in a channel.

    >>> from dataflow.snapshots.processes import Process, ProcessGraph
    >>> system = System(ProcessGraph().add("p", Process()).add("q", Process()).connect("p", "q"))
    >>> number = system.snapshot("p")
    >>> system.deliver("p", "q")
    Marker(snapshot=0)
    """

    snapshot: int


class System:
    """A run of ``graph`` under the control of the caller. The run copies the graph and its processes.

    Raises: GraphError if the graph has no process, or an action accepts messages along a channel that does not exist.

    Attributes:
        graph: the graph.
        trace: everything that happened so far.

    >>> from dataflow.snapshots.processes import Process, action
    >>> class Caller(Process):
    ...     @action
    ...     def call(self, to: str):
    ...         return {to: "hello"}
    ...     def receive(self, sender, message): ...
    >>> run = System(ProcessGraph().add("p", Caller()).add("q", Caller()).connect("p", "q"))
    >>> run.act("p", "call", "q")
    >>> run.enabled(), run.deliver("p", "q")
    ([Deliver(channel=p -> q)], 'hello')
    """

    def __init__(self, graph: ProcessGraph) -> None:
        graph.check_not_empty()
        self.graph = graph = graph.copy()
        self._snapshot_parts = SnapshotParts(graph)
        self._nodes: Mapping[str, ProcessNode] = {name: self._node(name) for name in graph.processes}
        initial = {name: node.host.state for name, node in self._nodes.items()}
        self.trace = Trace(list(graph.processes), graph.channels, initial)

    def __repr__(self) -> str:
        held = "; ".join([f"{channel}: {list(items)}" for channel, items in self.channels.items() if items])
        known = f"{len(self.trace.events)} events, {len(self.snapshots)} snapshots, {len(self.under_way)} under way"
        return f"{type(self).__name__}({known}; in channels {held or 'nothing'})"

    @property
    def channels(self) -> Mapping[Channel, Sequence[Any]]:
        """The content of each channel now, first sent first: messages, and ``Marker``s."""
        return {channel: [_shown(item) for item in self._queue(channel)] for channel in self.graph.channels}

    @property
    def snapshots(self) -> Mapping[int, GlobalState]:
        """The complete snapshots by number. The KeyError of another number says why it is missing."""
        return self._snapshot_parts.complete

    @property
    def under_way(self) -> Mapping[int, Sequence[str]]:
        """The incomplete snapshots, each with the processes whose part is missing."""
        return self._snapshot_parts.under_way

    @property
    def state(self) -> GlobalState:
        """The global state at this moment, without markers. No process inside the system can observe it."""
        hosts = {name: node.host for name, node in self._nodes.items()}
        return GlobalState(
            {name: host.state for name, host in hosts.items()},
            {c: tuple(i.value for i in self._queue(c) if not i.is_marker) for c in self.graph.channels},
            {name: host.events for name, host in hosts.items()},
            active=tuple(name for name, host in hosts.items() if host.active),
        )

    def enabled(self) -> list[Step]:
        """Return the steps that are possible now: deliveries, then actions, each in the order of the graph."""
        steps: list[Step] = [Deliver(c) for c in self.graph.channels if self._nodes[c.target].delivers(c)]
        for node in self._nodes.values():
            steps += node.acts()
        return steps

    def step(self, step: Step) -> None:
        """Execute ``step``. Raises: the exceptions of ``act``, ``deliver``, ``join`` or ``deliver_report``."""
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
        """Let process ``target`` receive the first item of the channel from ``source``, and return the item.

        If ``target`` has no ``receive``, the first marker is received, and messages stay in the channel.

        Returns: the message, or a ``Marker``.

        Raises: GraphError if there is no such channel, or it is empty; any exception of the process. Then nothing has
            been received.
        """
        step = Deliver(self._with_items(source, target))
        (item,) = self._nodes[target].takes(step)
        self._take(target, step)
        return _shown(item)

    def act(self, process: str, action: str, *arguments: Any) -> None:
        """Let an action of a process happen.

        Args:
            process: the name of the process.
            action: the name of the action. The run by hand does not check its condition ``when``.
            arguments: arguments that follow the messages that the action accepts.

        Raises: GraphError if there is no such process or action, or a message that it accepts is missing; TypeError for
            wrong arguments; any exception of the process. Then nothing has been received.
        """
        self._take(self.graph.known(process), Act(process, action), arguments)

    def deliver_report(self, source: str, observer: str) -> Any:
        """Let the first report from ``source`` arrive at ``observer``, and return it; see ``ObservedSystem``.

        Raises: GraphError, because snapshots by markers have no reports.
        """
        channel = Channel(self.graph.known(source), self.graph.known(observer))
        raise GraphError(
            f"no report is in transit along {channel}: snapshots by markers have no observer; use ObservedSystem"
        )

    def snapshot(self, *initiators: str) -> int:
        """Begin a snapshot at one process, or at several processes at once.

        Returns: the number of the snapshot, from 0. It is in ``snapshots`` when all its markers have been delivered.

        Raises: GraphError if the markers would not reach every process, so the snapshot would never be complete.
        """
        self.graph.check_reached(initiators)
        number = self._snapshot_parts.begin(initiators)
        for name in list(self._snapshot_parts.initiators[number]):
            self._happened(self._nodes[name].begin(number))
        return number

    def join(self, snapshot: int, process: str) -> None:
        """Let ``process`` begin a snapshot that others began, before a marker of it arrives there.

        If one has arrived, nothing happens. Raises: GraphError if there is no such snapshot or process.
        """
        self._check_begun(snapshot)
        host = self._nodes[self.graph.known(process)].host
        if not host.knows(snapshot):
            self._snapshot_parts.initiators[snapshot].append(process)
            self._happened(host.begin(snapshot))

    def can_join(self, snapshot: int) -> list[str]:
        """Return the processes that have not recorded their state for ``snapshot`` yet."""
        return [name for name, node in self._nodes.items() if not node.host.knows(snapshot)]

    def repeat(self, event: Event) -> None:
        """Repeat an event of another run of the graph: the same action, with the same messages.

        Raises: GraphError if it cannot happen now, or has another result here.
        """
        before = len(self.trace.happenings)
        if event.action == RECEIVE:
            ((identity, _),) = event.accepted
            self.deliver(identity.channel.source, identity.channel.target)
        else:
            self.act(event.process, event.action, *event.arguments)
        happened = [each for each in self.trace.happenings[before:] if isinstance(each, Event)]
        if happened != [event]:
            raise GraphError(
                f"expected {event}, but {', '.join(map(str, happened))} happened: is the process deterministic?"
            )

    @property
    def content(self) -> Hashable:
        """The hashable content of processes, channels and snapshots in progress, independent of the history."""
        items = [tuple([(i.is_marker, content_of(i.value)) for i in self._queue(c)]) for c in self.graph.channels]
        hosts = [node.host.content for node in self._nodes.values()]
        return tuple(items), tuple(hosts), self._snapshot_parts.content, len(self._snapshot_parts.initiators)

    @property
    def basic_content(self) -> Hashable:
        """The hashable content of processes and channels, without markers and snapshots."""
        items = [[i.value for i in self._queue(c) if not i.is_marker] for c in self.graph.channels]
        return content_of([items, [vars(node.host.process) for node in self._nodes.values()]])

    def copy(self) -> Self:
        """Return an independent copy of the run at this point, to continue it in another way."""
        copied = type(self).__new__(type(self))
        copied.__dict__.update(self.__dict__)
        copied._nodes = {name: node.copy() for name, node in self._nodes.items()}
        copied._snapshot_parts = self._snapshot_parts.copy()
        copied.trace = replace(self.trace, happenings=list(self.trace.happenings))
        return copied

    def _check_begun(self, snapshot: int) -> None:
        begun = list(self._snapshot_parts.initiators)
        if snapshot not in begun:
            raise GraphError(f"there is no snapshot {snapshot} to join; snapshots begun: {begun}")

    def _queue(self, channel: Channel) -> Sequence[Item]:
        return self._nodes[channel.target].queues[channel]

    def _with_items(self, source: str, target: str) -> Channel:
        channel = Channel(self.graph.known(source), self.graph.known(target))
        channels = self.graph.channels
        if channel not in channels:
            raise GraphError(f"there is no channel {channel}; there are {', '.join(map(str, channels)) or 'none'}")
        if not self._queue(channel):
            waiting = ", ".join([str(c) for c in channels if self._queue(c)])
            raise GraphError(f"channel {channel} is empty; channels with something in them: {waiting or 'none'}")
        return channel

    def _take(self, process: str, step: Move, arguments: Sequence[Any] = ()) -> None:
        for outcome in self._nodes[process].steps(step, arguments):
            self._happened(outcome)

    def _node(self, name: str) -> ProcessNode:
        return ProcessNode(self.graph, name)

    def _happened(self, outcome: Outcome) -> None:
        for item in outcome.items:
            self._nodes[item.channel.target].put(item)
        self.trace.happenings += outcome.happenings
        self._snapshot_parts.add(outcome.parts)


def _shown(item: Item) -> Any:
    return Marker(item.value) if item.is_marker else item.value
