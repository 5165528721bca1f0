"""A run with a thread for each process, and snapshots while the processes continue.

Each process has an inbox, a queue for items from other processes and for requests to begin a snapshot. Its thread
moves items from the inbox into the queues of its channels, and takes one step at a time. Channels and actions take
turns, so a step that stays possible is taken eventually. The thread sleeps only while no step is possible.

Guarantees: the items that a step sends are in the inboxes before the next step of the same process, so channels are
FIFO if inboxes are. An event is in the trace before any process can accept its messages. Taking a snapshot never stops
the processes.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from dataflow.background import Background
from dataflow.errors import ConfigurationError, GraphError, JobTimeout
from dataflow.snapshots.processes import GlobalState, ProcessGraph
from dataflow.snapshots.runs.host import Item, Note, Outcome
from dataflow.snapshots.runs.process_node import Act, Deliver, Move, ProcessNode
from dataflow.snapshots.runs.snapshot_parts import SnapshotParts
from dataflow.snapshots.traces import Trace

__all__ = ["Begin", "Inbox", "Threads"]


@dataclass(frozen=True, slots=True)
class Begin:
    """A request to a process to begin a snapshot."""

    snapshot: int


@dataclass(frozen=True, slots=True)
class _Stop:
    pass


_Note = Item | Begin | _Stop | Note


class Inbox(Protocol):
    """A FIFO queue that carries items to a process, such as ``queue.SimpleQueue``."""

    def put(self, item: _Note, /) -> None:
        """Append an item. Called from any thread; must not block."""

    def get(self) -> _Note:
        """Remove and return the next item; wait for it if there is none."""

    def get_nowait(self) -> _Note:
        """Remove and return the next item. Raises: ``queue.Empty`` if there is none."""


class Threads:
    """A run of ``graph`` on threads, between ``start`` and ``stop`` or in a ``with`` block.

    If a process raises, the run ends: all threads stop, and ``snapshot``, ``wait``, ``wait_until_quiet`` and ``stop``
    raise the exception, with process and action in its notes.

    Args:
        graph: the processes and channels; the run copies them.
        inbox: creates the queue of each process. A queue that is not FIFO is detected, and ends the run.

    Raises: GraphError as ``System`` does.

    >>> from dataflow.snapshots.processes import Automaton, ProcessGraph, Process, action
    >>> class Source(Process):
    ...     def __init__(self) -> None:
    ...         self.left = 3
    ...     @action(when=lambda self: self.left > 0)
    ...     def send(self):
    ...         self.left -= 1
    ...         return {"sum": 10}
    >>> graph = ProcessGraph().add("source", Source())
    >>> graph.add("sum", Automaton(0, lambda state, sender, message: (state + message, None))).channel("source", "sum")
    ProcessGraph(source, sum; source -> sum)
    >>> with Threads(graph) as running:
    ...     early = running.snapshot("source", timeout=60)
    ...     running.wait_until_quiet(timeout=60)
    ...     late = running.snapshot("source", timeout=60)
    >>> late.processes, early.processes["source"]["left"] * 10 + early.processes["sum"] + sum(early.in_flight)
    ({'source': {'left': 0}, 'sum': 30}, 30)
    """

    def __init__(self, graph: ProcessGraph, *, inbox: Callable[[], Inbox] = queue.SimpleQueue) -> None:
        graph.check_not_empty()
        self.graph = graph = graph.copy()
        self._snapshot_parts = SnapshotParts(graph)  # guarded by _changed, below
        self._nodes = {name: self._node(name) for name in graph.processes}
        self._inboxes = {name: inbox() for name in graph.processes}
        initial = {name: node.host.state for name, node in self._nodes.items()}
        self._changed = threading.Condition()  # guards all below
        self._trace = Trace(list(graph.processes), graph.channels, initial)
        self._pending = len(self._nodes)  # notes that are not processed, and threads that have not gone idle yet
        self._error: BaseException | None = None
        self._background: Background | None = None
        self._stopped = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()
        if error is None and self._error is not None:
            raise self._error

    def start(self) -> None:
        """Start the threads. Raises: ConfigurationError if the run has started already."""
        if self._background is not None:
            raise ConfigurationError("this run has started already; create a new Threads(graph) for another run")
        self._background = Background(len(self._nodes))
        self._background.on_error = self._failed
        for name in self._nodes:
            self._background.submit(name, lambda name=name: self._work(name))  # type: ignore[misc]

    def stop(self) -> None:
        """Let each process finish its step, and end the threads. Raises: the exception that ended the run, if any."""
        self._end()
        if self._error is not None:
            raise self._error

    @property
    def trace(self) -> Trace:
        """A copy of the trace so far."""
        with self._changed:
            return Trace(self._trace.processes, self._trace.channels, self._trace.initial, list(self._trace.happenings))

    @property
    def snapshots(self) -> Mapping[int, GlobalState]:
        """The complete snapshots by number."""
        with self._changed:
            return dict(self._snapshot_parts.complete)

    @property
    def quiet(self) -> bool:
        """True if no step is possible, so nothing happens until a snapshot begins."""
        with self._changed:
            return self._pending == 0

    def begin(self, *initiators: str) -> int:
        """Request a snapshot from ``initiators`` without waiting; each begins it after its current step.

        Returns: the number of the snapshot, for ``wait``.

        Raises: GraphError if the markers would not reach every process; ConfigurationError if the run is not active;
            the exception that ended the run.
        """
        self.graph.check_reached(initiators)
        return self._begin(initiators, lambda number, named: [(name, Begin(number)) for name in named])

    def wait(self, snapshot: int, timeout: float | None = None) -> GlobalState:
        """Wait until a snapshot is complete, and return it.

        Args:
            snapshot: the number that ``begin`` returned.
            timeout: seconds to wait. None: no limit.

        Raises: GraphError if there is no such snapshot; JobTimeout with the processes whose part is missing;
            ConfigurationError if the run was stopped before; the exception that ended the run.
        """
        with self._changed:
            begun = list(self._snapshot_parts.initiators)
        if snapshot not in begun:
            raise GraphError(f"there is no snapshot {snapshot}; snapshots begun: {begun}")
        self._wait_for(lambda: self._is_over(snapshot), timeout, lambda: self._missed(snapshot))
        return self.snapshots[snapshot]

    def snapshot(self, *initiators: str, timeout: float | None = None) -> GlobalState:
        """Begin a snapshot, wait for it and return it; see ``begin`` and ``wait``.

        Without ``initiators``, the run chooses processes whose markers reach every process.
        """
        return self.wait(self.begin(*(initiators or self.graph.reaching())), timeout)

    def wait_until_quiet(self, timeout: float | None = None) -> None:
        """Wait until no step is possible.

        Args:
            timeout: seconds to wait. None: no limit.

        Raises: JobTimeout; ConfigurationError if the run is not active; the exception that ended the run.
        """
        self._wait_for(lambda: self._pending == 0, timeout, lambda: "the system is not quiet")

    def _node(self, name: str) -> ProcessNode:
        return ProcessNode(self.graph, name)

    def _begin(
        self, initiators: Sequence[str], notes: Callable[[int, Sequence[str]], Sequence[tuple[str, _Note]]]
    ) -> int:
        """Begin a snapshot and send ``notes(number, initiators)`` in order; return the number."""
        with self._changed:
            self._check_running()
            number = self._snapshot_parts.begin(initiators)
            addressed = notes(number, self._snapshot_parts.initiators[number])
            self._pending += len(addressed)
        for name, note in addressed:
            self._inboxes[name].put(note)
        return number

    def _is_over(self, snapshot: int) -> bool:
        """Return whether ``snapshot`` is complete; called with the lock."""
        return snapshot in self._snapshot_parts.complete

    def _missed(self, snapshot: int) -> str:
        """Return the missing parts of an incomplete snapshot, as text; called with the lock."""
        waiting = ", ".join(self._snapshot_parts.under_way[snapshot])
        return f"snapshot {snapshot} is not complete, markers have not arrived at {waiting}"

    def _wait_for(self, is_over: Callable[[], bool], timeout: float | None, missed: Callable[[], str]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: is_over() or self._error is not None or self._stopped, timeout)
            if self._error is not None:
                raise self._error
            if is_over():
                return
            if self._stopped:
                raise ConfigurationError(f"the run was stopped, and {missed()}; wait before the run is stopped")
            self._check_running()
            raise JobTimeout(f"after {timeout} s {missed()}: is an action still running? Raise timeout= if it is")

    def _check_running(self) -> None:
        if self._error is not None:
            raise self._error
        if self._background is None or self._stopped:
            raise ConfigurationError("the run is not active: call this inside `with Threads(graph) as running:`")

    def _end(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for inbox in self._inboxes.values():
            inbox.put(_Stop())
        if self._background is not None:
            self._background.close()

    def _failed(self, error: BaseException) -> None:
        with self._changed:
            if self._error is None:
                self._error = error
            self._stopped = True
            self._changed.notify_all()
        for inbox in self._inboxes.values():
            inbox.put(_Stop())

    def _work(self, name: str) -> None:
        """Run one process until the end. A note is pending until all steps that it made possible have happened."""
        node, inbox = self._nodes[name], self._inboxes[name]
        turns: list[Move] = [*map(Deliver, node.queues), *[Act(name, action) for action in node.host.actions]]
        processed = 1  # the start of this thread counts as a note
        while not self._stopped:
            enabled = node.enabled()
            try:
                note = inbox.get_nowait()
            except queue.Empty:
                if not enabled:
                    self._count_processed(processed)
                    processed, note = 0, inbox.get()
                else:
                    note = None
            processed += note is not None
            match note:
                case Item():
                    node.put(note)
                case Begin(snapshot):
                    self._happened(node.begin(snapshot))
                case _Stop():
                    return
                case None:
                    pass
                case _:
                    self._happened(node.hear(note))
            if enabled:
                for outcome in node.steps(_first(turns, enabled)):
                    self._happened(outcome)

    def _count_processed(self, notes: int) -> None:
        with self._changed:
            self._pending -= notes
            assert self._pending >= 0, f"processed {notes} notes of {self._pending + notes} pending"
            if self._pending == 0:
                self._changed.notify_all()

    def _happened(self, outcome: Outcome) -> None:
        with self._changed:
            self._trace.happenings += outcome.happenings
            self._pending += len(outcome.items) + len(outcome.notes)
            if self._snapshot_parts.add(outcome.parts):
                self._changed.notify_all()
        for item in outcome.items:
            self._inboxes[item.channel.target].put(item)
        for name, note in outcome.notes:
            self._inboxes[name].put(note)


def _first(turns: list[Move], enabled: Sequence[Move]) -> Move:
    """Return the possible step that was taken least recently, and move it to the end of ``turns``."""
    for i, step in enumerate(turns):
        if step in enabled:
            turns.append(turns.pop(i))
            return step
    raise AssertionError(f"expected one of the steps {enabled} in {turns}")
