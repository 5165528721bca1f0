"""Observers on threads: consistent cuts, stuck snapshots, and reports out of order."""

from __future__ import annotations

import queue
from typing import Any

import pytest

from dataflow.errors import ConfigurationError, GraphError, SnapshotStuck
from dataflow.snapshots.processes import ProcessGraph
from dataflow.snapshots.runs import ObservedSystem, ObservedThreads, check
from dataflow.snapshots.runs.observed_node import LateMessage, StateReport
from dataflow.snapshots.traces import MarkerSent
from tests.seeds import seeds
from tests.snapshots.systems import coins, random_graph
from tests.snapshots.test_simulation import Silent, to
from tests.snapshots.test_threads import SECONDS, Adding, game


@pytest.mark.parametrize("seed", seeds(2, 8))
def test_observers_on_threads_gather_consistent_cuts_several_at_once(seed: int) -> None:
    graph = random_graph(seed, strongly_connected=seed % 4 != 0)
    names = list(graph.processes)
    with ObservedThreads(graph) as running:
        begun = [running.begin(*names[i % len(names) :][: 1 + i % 2]) for i in range(6)]
        states = [running.wait(number, SECONDS) for number in begun]
        running.wait_until_quiet(SECONDS)
        last = running.snapshot(names[-1], timeout=SECONDS)
    again = ObservedSystem(graph)
    for event in running.trace.events:
        again.repeat(event)
    assert (again.state.processes, again.state.channels) == (last.processes, last.channels)
    for state in [*states, last]:
        check(running.trace, state)
        assert coins(state) == coins(last)
    assert not [each for each in running.trace.happenings if isinstance(each, MarkerSent)]


def test_an_observer_on_threads_records_a_system_that_never_rests() -> None:
    with ObservedThreads(game()) as running:
        states = [running.wait(number, SECONDS) for number in [running.begin("ab"[i % 2]) for i in range(20)]]
        assert not running.quiet
        recorded = [node.recorded for node in running._nodes.values()]
    assert all([len(each.others) == 0 for each in recorded])  # tokens do not pile up
    for state in states:
        assert sum(p["balls"] for p in state.processes.values()) + len(state.in_flight) == 2
        check(running.trace, state)


def test_an_observer_on_threads_that_waits_for_unaccepted_messages_says_so() -> None:
    with ObservedThreads(to(Silent())) as running:
        running.wait_until_quiet(SECONDS)
        with pytest.raises(
            SnapshotStuck, match=r"snapshot 0 is not complete, reports have not arrived at its observer 'a'; it waits"
        ):
            running.snapshot("a", timeout=SECONDS)
        with pytest.raises(GraphError, match="there is no process 'c'"):
            running.begin("c")
        with pytest.raises(GraphError, match="expected the name of the process that is the observer"):
            running.begin()


class Swapping(queue.SimpleQueue):  # type: ignore[type-arg]
    """Gives the second report of a process before the first."""

    held: Any = None

    def put(self, item: Any, *_: Any) -> None:
        if isinstance(item, StateReport | LateMessage) and item.number == 1:
            self.held = item
            return
        super().put(item)
        if isinstance(item, StateReport | LateMessage) and self.held is not None:
            super().put(self.held)


def test_reports_out_of_order_are_found_out_and_end_the_run() -> None:
    graph = ProcessGraph().add("a", Adding()).add("b", Adding())
    leaving = pytest.raises(ConfigurationError, match="not FIFO")
    with leaving, ObservedThreads(graph, inbox=Swapping) as running:
        first, second = running.begin("a"), running.begin("a")
        broken = "channel of reports b -> a is not FIFO: expected its report 1, got 2"
        with pytest.raises(ConfigurationError, match=broken):
            running.wait(second, SECONDS)
        with pytest.raises(ConfigurationError, match="not FIFO"):
            running.wait(first, SECONDS)
