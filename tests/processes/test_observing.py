"""The variant with an observer, held against runs and against the marker rule."""

from __future__ import annotations

import pytest

from dataflow.errors import GraphError
from dataflow.processes import Channel
from dataflow.runners.processes import ObservedSystem, Simulation, System, explore
from dataflow.runners.processes.exhaustive import shown_content
from dataflow.traces import MarkerSent
from tests.processes.systems import coins, random_graph
from tests.processes.test_exhaustive import ring
from tests.processes.test_simulated import Silent, check_snapshots, to


@pytest.mark.parametrize("seed", range(30))
def test_what_an_observer_gathers_is_a_consistent_cut_with_its_channel_states(seed: int) -> None:
    graph = random_graph(seed, strongly_connected=seed % 4 != 0)
    run = Simulation(graph, seed, rule=ObservedSystem).run(steps=150, snapshots=6)
    assert len(run.snapshots) == 6
    check_snapshots(run)
    assert not [each for each in run.trace.happenings if isinstance(each, MarkerSent)]


@pytest.mark.parametrize("seed", range(10))
def test_of_a_quiet_system_both_rules_record_the_same(seed: int) -> None:
    graph = random_graph(seed)
    states = [Simulation(graph, seed, rule=rule).run() for rule in (System, ObservedSystem)]
    marked, observed = [run.snapshot("P1") for run in states]
    assert (observed.processes, observed.channels, observed.active) == (
        states[1].state.processes,
        states[1].state.channels,
        (),
    )
    assert coins(marked) == coins(observed)


@pytest.mark.parametrize(
    ("names", "tokens"),
    [("pq", 1), ("pq", 2), ("pqr", 1)],
)
def test_of_all_runs_both_rules_can_record_the_same_states(names: str, tokens: int) -> None:
    graph = ring(*names, tokens=tokens)
    marked, observed = explore(graph), explore(graph, rule=ObservedSystem)
    assert set(map(shown_content, marked.recorded)) == set(map(shown_content, observed.recorded))
    assert observed.stuck == 0


def test_the_token_on_a_message_comes_before_the_request_and_late_messages_are_copied() -> None:
    system = ObservedSystem(ring("p", "q", tokens=2))
    system.act("p", "send")
    number = system.snapshot("p")
    system.act("p", "send")
    system.deliver("p", "q")
    assert system.under_way == {number: ["q"]}
    system.deliver("p", "q")
    state = system.snapshots[number]
    assert {name: process["tokens"] for name, process in state.processes.items()} == {"p": 1, "q": 1}
    assert (state.cut, state.in_flight) == ({"p": 1, "q": 1}, [])


def test_a_message_without_the_token_behind_the_recording_is_in_its_channel() -> None:
    system = ObservedSystem(ring("p", "q", tokens=1))
    system.act("p", "send")
    number = system.snapshot("q")
    system.join(number, "p")
    assert number not in system.snapshots
    system.deliver("p", "q")
    assert system.snapshots[number].channel("p", "q") == ("token",)
    system.join(number, "p")
    assert list(system.snapshots) == [number]


def test_an_observer_is_in_touch_with_processes_that_no_channel_reaches() -> None:
    system = ObservedSystem(to(Silent()))
    system.join(system.snapshot("b"), "a")
    assert system.snapshots[0].channels == {Channel("a", "b"): ()}
    assert system.snapshots[system.snapshot("a", "b")].initiators == ("a", "b")


def test_an_observer_that_is_not_there_is_refused() -> None:
    system = ObservedSystem(to(Silent()))
    with pytest.raises(GraphError, match="there is no process 'c'"):
        system.snapshot("c")
    with pytest.raises(GraphError, match="expected the name of the process that observes"):
        system.snapshot()
    with pytest.raises(GraphError, match="no snapshot 4 to join"):
        system.join(4, "a")
