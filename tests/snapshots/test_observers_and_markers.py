"""An observer gathers for a cut what the marker rule records, and rules that are wrong are noticed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from dataflow.errors import InconsistentSnapshot
from dataflow.snapshots.processes import ProcessGraph
from dataflow.snapshots.runs import ObservedSystem, Simulation, System, check, explore
from dataflow.snapshots.runs.exploration import shown_content
from dataflow.snapshots.runs.host import Item
from dataflow.snapshots.runs.observed_node import LateMessage, ObservedNode, View
from dataflow.snapshots.runs.process_node import DeliverReport
from dataflow.snapshots.traces import Event, Recorded
from tests.seeds import seeds
from tests.snapshots.systems import coins, random_graph
from tests.snapshots.test_classic_cases import CASES, RUNS
from tests.snapshots.test_classic_cases import replay as replay_classic
from tests.snapshots.test_exploration import ring
from tests.snapshots.test_observed_system import line
from tests.snapshots.test_published_cases import CASES as PUBLISHED
from tests.snapshots.test_published_cases import replay, system_of


@pytest.mark.parametrize("seed", seeds(3, 10))
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
    [("pq", 1), pytest.param("pq", 2, marks=pytest.mark.soak), pytest.param("pqr", 1, marks=pytest.mark.soak)],
)
def test_of_all_runs_both_rules_can_record_the_same_states(names: str, tokens: int) -> None:
    graph = ring(*names, tokens=tokens)
    marked, observed = explore(graph), explore(graph, rule=ObservedSystem)
    assert set(map(shown_content, marked.recorded)) == set(map(shown_content, observed.recorded))
    assert observed.stuck == 0


# --- against the marker rule


def observed_like(marked: System, seed: int) -> ObservedSystem:
    """A run with the same events, and the same processes recording between the same events, with an observer."""
    system, draw = ObservedSystem(marked.graph), random.Random(seed)
    for happening in marked.trace.happenings:
        match happening:
            case Event():
                system.repeat(happening)
            case Recorded(process, snapshot) if snapshot == len(system.snapshots) + len(system.under_way):
                assert system.snapshot(process) == snapshot
            case Recorded(process, snapshot):
                system.join(snapshot, process)
        while draw.random() < 0.3 and (some := [s for s in system.enabled() if isinstance(s, DeliverReport)]):
            system.step(draw.choice(some))
    while some := [step for step in system.enabled() if isinstance(step, DeliverReport)]:
        system.step(draw.choice(some))
    return system


def same(marked: System, observed: System, *, states: bool = True) -> None:
    assert observed.snapshots.keys() == marked.snapshots.keys()
    for number, state in marked.snapshots.items():
        found = observed.snapshots[number]
        assert (found.channels, found.cut) == (state.channels, state.cut)
        assert not states or (found.processes, found.active) == (state.processes, state.active)


@pytest.mark.parametrize("seed", seeds(5, 20))
def test_with_the_same_cut_an_observer_gathers_what_markers_do(seed: int) -> None:
    graph = random_graph(seed, strongly_connected=seed % 4 != 0)
    run = Simulation(graph, seed).run(steps=150, snapshots=5).run()
    assert run.quiet
    assert len(run.snapshots) == 5
    same(run.system, observed_like(run.system, seed))


@pytest.mark.parametrize("case", PUBLISHED, ids=[case["name"] for case in PUBLISHED])
def test_published_runs_are_recorded_alike_by_an_observer(case: dict[str, Any]) -> None:
    marked = system_of(case)
    replay(marked, case["script"])
    observed = observed_like(marked, 1)
    drained(observed)
    same(marked, observed)


def drained(system: ObservedSystem) -> None:
    """Receive all messages, and all reports."""
    while some := [c for c, items in system.channels.items() if items]:
        system.deliver(some[0].source, some[0].target)
    while system.reports:
        channel = next(iter(system.reports))
        system.deliver_report(channel.source, channel.target)


@pytest.mark.parametrize("name", RUNS)
def test_classic_runs_are_recorded_alike_by_an_observer(name: str) -> None:
    marked = replay_classic(CASES[name], CASES[name]["script"])
    observed = observed_like(marked, 1)
    drained(observed)
    same(marked, observed, states=False)  # the names of a diary's receipts come from outside


@pytest.mark.parametrize(
    ("graph", "snapshots"),
    [
        (line(2), 1),
        (line(1), 2),
        pytest.param(line(2), 2, marks=pytest.mark.soak),
        pytest.param(ring("p", "q"), 2, marks=pytest.mark.soak),
    ],
)
def test_every_snapshot_of_every_run_is_consistent_whenever_its_reports_arrive(
    graph: ProcessGraph, snapshots: int
) -> None:
    found = explore(graph, snapshots, rule=ObservedSystem)
    assert found.stuck == 0
    assert set(map(shown_content, found.recorded)) == set(map(shown_content, explore(graph, snapshots).recorded))


# --- rules that are wrong are found out


class Secretive(ObservedNode):
    """Does not report late messages."""

    def _copies(self, item: Item) -> Iterator[LateMessage]:
        return iter(())


class Forgetful(ObservedNode):
    """Reports none but the first of its late messages."""

    def _copies(self, item: Item) -> Iterator[LateMessage]:
        return iter([copy for copy in super()._copies(item) if item.message == 1])


def system_with(kind: type[ObservedNode]) -> type[ObservedSystem]:
    class Made(ObservedSystem):
        def _node(self, name: str) -> ObservedNode:
            return kind(self.graph, name, self._snapshot_parts.initiators)

    return Made


@pytest.mark.parametrize("kind", [Secretive, Forgetful])
def test_late_messages_that_are_not_reported_are_noticed(kind: type[ObservedNode]) -> None:
    assert explore(line(2), rule=ObservedSystem).stuck == 0
    assert explore(line(2), rule=system_with(kind)).stuck > 0


def test_an_observer_that_thinks_too_early_that_all_is_there_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def states_alone(self: View, graph: ProcessGraph) -> list[str]:
        return [name for name in graph.processes if name not in self.states]

    monkeypatch.setattr(View, "missing", states_alone)
    with pytest.raises(InconsistentSnapshot, match="no run leads"):
        explore(ring("p", "q"), rule=ObservedSystem)
    system = ObservedSystem(ring("p", "q"))
    system.act("p", "send")
    system.join(system.snapshot("q"), "p")
    system.deliver_report("p", "q")
    with pytest.raises(InconsistentSnapshot, match="was recorded"):
        check(system.trace, system.snapshots[0])
