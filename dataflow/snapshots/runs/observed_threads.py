"""``Threads`` with snapshots by an observer: requests and reports go through inboxes like messages."""

from __future__ import annotations

from dataflow.errors import GraphError, SnapshotStuck
from dataflow.snapshots.processes import GlobalState
from dataflow.snapshots.runs.observed_node import ObservedNode, Request
from dataflow.snapshots.runs.process_node import ProcessNode
from dataflow.snapshots.runs.threads import Begin, Threads

__all__ = ["ObservedThreads"]


class ObservedThreads(Threads):
    """``Threads`` whose snapshots are collected by the process that begins them; see ``observed_node`` for the rule.

    An observer needs no path along channels to every process, unlike markers. But a snapshot waits for messages that
    are in channels at the cut, and is never complete if no process accepts them.

    >>> from dataflow.snapshots.processes import Automaton, ProcessGraph
    >>> graph = ProcessGraph().add("p", Automaton(1, lambda state, sender, message: (state, None)))
    >>> with ObservedThreads(graph.add("q", Automaton(2, lambda state, sender, message: (state, None)))) as running:
    ...     print(running.snapshot("q", timeout=60).processes)
    {'p': 1, 'q': 2}
    """

    def begin(self, *initiators: str) -> int:
        """Begin a snapshot without waiting. The first of ``initiators`` is the observer; the others get its request.

        Returns: the number of the snapshot.

        Raises: GraphError if a process does not exist, or none is named; ConfigurationError if the run is not active.
        """
        for name in initiators:
            self.graph.known(name)
        if not initiators:
            raise GraphError("expected the name of the process that is the observer: begin(name)")
        return self._begin(
            initiators,
            lambda number, named: [(named[0], Begin(number)), *[(name, Request(number)) for name in named[1:]]],
        )

    def wait(self, snapshot: int, timeout: float | None = None) -> GlobalState:
        """Wait for a snapshot; see ``Threads.wait``.

        Raises: SnapshotStuck if the run is quiet and the snapshot is not complete.
        """
        return super().wait(snapshot, timeout)

    def _node(self, name: str) -> ProcessNode:
        return ObservedNode(self.graph, name, self._snapshot_parts.initiators)

    def _is_over(self, snapshot: int) -> bool:
        if super()._is_over(snapshot):
            return True
        if self._pending == 0 and self._error is None and not self._stopped:
            raise SnapshotStuck(f"{self._missed(snapshot)}; it waits for copies of messages that no process accepts")
        return False

    def _missed(self, snapshot: int) -> str:
        observer = self._snapshot_parts.initiators[snapshot][0]
        return f"snapshot {snapshot} is not complete, reports have not arrived at its observer {observer!r}"
