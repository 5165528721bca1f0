"""A thread for each process, and snapshots with an observer: requests and reports go through inboxes like messages."""

from __future__ import annotations

from dataflow.errors import GraphError, SnapshotStuck
from dataflow.snapshots.processes import GlobalState
from dataflow.snapshots.runs.observed_station import ObservedStation, Request
from dataflow.snapshots.runs.station import Station
from dataflow.snapshots.runs.threads import Begin, Threads

__all__ = ["ObservedThreads"]


class ObservedThreads(Threads):
    """``Threads`` whose snapshots are gathered by the process that begins them, see ``observed_station``.

    Markers need a way along channels to every process; an observer needs none. But a snapshot waits for messages that
    no process accepts.

    >>> from dataflow.snapshots.processes import Automaton, ProcessGraph
    >>> graph = ProcessGraph().add("p", Automaton(1, lambda state, sender, message: (state, None)))
    >>> with ObservedThreads(graph.add("q", Automaton(2, lambda state, sender, message: (state, None)))) as running:
    ...     print(running.snapshot("q", timeout=60).processes)
    {'p': 1, 'q': 2}
    """

    def begin(self, *initiators: str) -> int:
        """Begin a snapshot, observed by the first of ``initiators``, whose request is at the others at once.

        Waits for nothing. Returns: the number of the snapshot.

        Raises: GraphError for processes that are not there; ConfigurationError where nothing runs.
        """
        for name in initiators:
            self.graph.known(name)
        if not initiators:
            raise GraphError("expected the name of the process that observes: begin(name)")
        return self._begin(
            initiators,
            lambda number, named: [(named[0], Begin(number)), *[(name, Request(number)) for name in named[1:]]],
        )

    def wait(self, snapshot: int, timeout: float | None = None) -> GlobalState:
        """See ``Threads.wait``. Raises: SnapshotStuck if the run is quiet, and the snapshot waits for messages."""
        return super().wait(snapshot, timeout)

    def _station(self, name: str) -> Station:
        return ObservedStation(self.graph, name, self._snapshot_parts.initiators)

    def _is_over(self, snapshot: int) -> bool:
        if super()._is_over(snapshot):
            return True
        if self._pending == 0 and self._error is None and not self._stopped:
            raise SnapshotStuck(f"{self._missed(snapshot)}; it waits for copies of messages that no process accepts")
        return False

    def _missed(self, snapshot: int) -> str:
        observer = self._snapshot_parts.initiators[snapshot][0]
        return f"snapshot {snapshot} is not complete, reports are still to come to its observer {observer!r}"
