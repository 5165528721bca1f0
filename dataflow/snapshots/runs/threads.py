"""A thread for each process: real concurrency, snapshots while everybody goes on working.

Each process has an inbox, a queue into which the others put items and whoever looks on puts requests to begin a
snapshot. Its thread sorts what comes into the ends of its channels, and takes one step at a time: each channel and each
action in turn, so that nothing that stays possible waits for ever. It sleeps only while nothing is possible.

Guarantees: what a step puts into channels is put there before the next step of the same process, so channels are FIFO
as long as inboxes are. An event stands in the trace before anybody can accept what it sent.

This code assumes: who takes a snapshot does not need the system to stop, and gets no such promise.
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
from dataflow.snapshots.runs.snapshot_parts import SnapshotParts
from dataflow.snapshots.runs.station import Act, Deliver, Move, Station
from dataflow.snapshots.traces import Trace

__all__ = ["Begin", "Inbox", "Threads"]


@dataclass(frozen=True, slots=True)
class Begin:
    """Asks a process to begin a snapshot."""

    snapshot: int


@dataclass(frozen=True, slots=True)
class _Stop:
    pass


_Note = Item | Begin | _Stop | Note


class Inbox(Protocol):
    """What carries items to a process, such as ``queue.SimpleQueue``: first in, first out."""

    def put(self, item: _Note, /) -> None:
        """From any thread; never waits."""

    def get(self) -> _Note:
        """The next one; waits for it."""

    def get_nowait(self) -> _Note:
        """The next one. Raises: ``queue.Empty`` where there is none."""


class Threads:
    """Runs ``graph`` on threads between ``start`` and ``stop``, or in a ``with`` block.

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

    ``inbox`` makes the queue in front of each process. A transport that is not FIFO is found out, and ends the run.

    Raises: GraphError where ``System`` does. What a process raises ends the run: all threads stop, and ``snapshot``,
    ``wait``, ``wait_until_quiet`` and ``stop`` raise it, with process and action in its notes.
    """

    def __init__(self, graph: ProcessGraph, *, inbox: Callable[[], Inbox] = queue.SimpleQueue) -> None:
        graph.check_not_empty()
        self.graph = graph = graph.copy()
        self._snapshot_parts = SnapshotParts(graph)  # guarded by _changed, below
        self._stations = {name: self._station(name) for name in graph.processes}
        self._inboxes = {name: inbox() for name in graph.processes}
        initial = {name: station.host.state for name, station in self._stations.items()}
        self._changed = threading.Condition()  # guards all below
        self._trace = Trace(list(graph.processes), graph.channels, initial)
        self._pending = len(self._stations)  # what was sent or begun, or is a beginning, and is not worked off
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
        """Begin. Raises: ConfigurationError where the run has begun already."""
        if self._background is not None:
            raise ConfigurationError("this run has begun already; a new run is a new Threads(graph)")
        self._background = Background(len(self._stations))
        self._background.on_error = self._failed
        for name in self._stations:
            self._background.submit(name, lambda name=name: self._work(name))  # type: ignore[misc]

    def stop(self) -> None:
        """Let each process finish its step, and end. Raises: what ended the run before, see the class."""
        self._end()
        if self._error is not None:
            raise self._error

    @property
    def trace(self) -> Trace:
        """What happened so far."""
        with self._changed:
            return Trace(self._trace.processes, self._trace.channels, self._trace.initial, list(self._trace.happenings))

    @property
    def snapshots(self) -> Mapping[int, GlobalState]:
        """The snapshots that are complete, by number."""
        with self._changed:
            return dict(self._snapshot_parts.complete)

    @property
    def quiet(self) -> bool:
        """Whether nothing can happen any more, unless somebody begins a snapshot."""
        with self._changed:
            return self._pending == 0

    def begin(self, *initiators: str) -> int:
        """A snapshot begins at ``initiators``, each in its own time; answers its number. Waits for nothing.

        Raises: GraphError where the markers would not reach every process; ConfigurationError where nothing runs.
        """
        self.graph.check_reached(initiators)
        return self._begin(initiators, lambda number, named: [(name, Begin(number)) for name in named])

    def wait(self, snapshot: int, timeout: float | None = None) -> GlobalState:
        """Snapshot ``snapshot`` when it is complete. ``timeout`` in seconds.

        Raises: JobTimeout, with the processes whose part is missing; ConfigurationError where the run was stopped
        before; what ended the run.
        """
        with self._changed:
            begun = list(self._snapshot_parts.initiators)
        if snapshot not in begun:
            raise GraphError(f"there is no snapshot {snapshot}; begun were {begun}")
        self._wait_for(lambda: self._is_over(snapshot), timeout, lambda: self._missed(snapshot))
        return self.snapshots[snapshot]

    def snapshot(self, *initiators: str, timeout: float | None = None) -> GlobalState:
        """``begin``, and ``wait`` for it. Where nobody is named, by as few processes as it takes to reach everybody."""
        return self.wait(self.begin(*(initiators or self.graph.reaching())), timeout)

    def wait_until_quiet(self, timeout: float | None = None) -> None:
        """Until nothing can happen any more. Raises: JobTimeout; what ended the run."""
        self._wait_for(lambda: self._pending == 0, timeout, lambda: "the system is not quiet")

    def _station(self, name: str) -> Station:
        return Station(self.graph, name)

    def _begin(
        self, initiators: Sequence[str], notes: Callable[[int, Sequence[str]], Sequence[tuple[str, _Note]]]
    ) -> int:
        """Begin a snapshot and send ``notes(number, initiators)`` in order; return the number."""
        with self._changed:
            self._check_running()
            number = self._snapshot_parts.begin(initiators)
            made = notes(number, self._snapshot_parts.initiators[number])
            self._pending += len(made)
        for name, note in made:
            self._inboxes[name].put(note)
        return number

    def _is_over(self, snapshot: int) -> bool:
        """Return whether nothing more will come of ``snapshot``; called with the lock."""
        return snapshot in self._snapshot_parts.complete

    def _missed(self, snapshot: int) -> str:
        """Return the missing parts of an incomplete snapshot, as text; called with the lock."""
        waiting = ", ".join(self._snapshot_parts.under_way[snapshot])
        return f"snapshot {snapshot} is not complete, markers are still to come to {waiting}"

    def _wait_for(self, there: Callable[[], bool], timeout: float | None, missed: Callable[[], str]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: there() or self._error is not None or self._stopped, timeout)
            if self._error is not None:
                raise self._error
            if there():
                return
            if self._stopped:
                raise ConfigurationError(f"the run was stopped, and {missed()}")
            self._check_running()
            raise JobTimeout(f"after {timeout} s {missed()}: is an action still at work?")

    def _check_running(self) -> None:
        if self._error is not None:
            raise self._error
        if self._background is None or self._stopped:
            raise ConfigurationError("nothing runs here: expected to be inside of `with Threads(graph) as running:`")

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
        """The whole life of a process's thread. Notes count as pending until what they made possible has happened."""
        station, inbox = self._stations[name], self._inboxes[name]
        turns: list[Move] = [*map(Deliver, station.queues), *[Act(name, action) for action in station.host.actions]]
        worked = 1  # the beginning
        while not self._stopped:
            enabled = station.enabled()
            try:
                note = inbox.get_nowait()
            except queue.Empty:
                if not enabled:
                    self._worked_off(worked)
                    worked, note = 0, inbox.get()
                else:
                    note = None
            worked += note is not None
            match note:
                case Item():
                    station.put(note)
                case Begin(snapshot):
                    self._happened(station.begin(snapshot))
                case _Stop():
                    return
                case None:
                    pass
                case _:
                    self._happened(station.hear(note))
            if enabled:
                for outcome in station.steps(_first(turns, enabled)):
                    self._happened(outcome)

    def _worked_off(self, notes: int) -> None:
        with self._changed:
            self._pending -= notes
            assert self._pending >= 0, f"{notes} were worked off of {self._pending + notes}"
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
    """The possible step that was taken the longest time ago; it goes to the end of ``turns``."""
    for i, step in enumerate(turns):
        if step in enabled:
            turns.append(turns.pop(i))
            return step
    raise AssertionError(f"{enabled} are possible, and none of them is known in {turns}")
