"""Snapshots with an observer: consistent cuts, reports that travel to the observer, and when they are complete."""

from __future__ import annotations

import random

import pytest

from dataflow.errors import GraphError
from dataflow.snapshots.diagrams import diagram
from dataflow.snapshots.predicates import terminated
from dataflow.snapshots.processes import Channel, ProcessGraph
from dataflow.snapshots.runs import ObservedSystem, ObservedThreads, Simulation, System, detect
from dataflow.snapshots.runs.observed_node import LateMessage, StateReport
from dataflow.snapshots.traces import Event, MarkerSent, Recorded, ReportReceived, ReportSent
from tests.seeds import seeds
from tests.snapshots.systems import random_graph
from tests.snapshots.test_exploration import ring
from tests.snapshots.test_simulation import Silent, check_snapshots, to
from tests.snapshots.test_threads import SECONDS, Adding, Many


def line(messages: int) -> ProcessGraph:
    """One process that sends some messages to another."""
    many = Many()
    many.left = messages
    return ProcessGraph().add("a", many).add("b", Adding()).channel("a", "b")


@pytest.mark.parametrize("seed", seeds(8, 30))
def test_what_an_observer_gathers_is_a_consistent_cut_with_its_channel_states(seed: int) -> None:
    graph = random_graph(seed, strongly_connected=seed % 4 != 0)
    run = Simulation(graph, seed, rule=ObservedSystem).run(steps=150, snapshots=6)
    assert len(run.snapshots) == 6
    check_snapshots(run)
    assert not [each for each in run.trace.happenings if isinstance(each, MarkerSent)]


def test_the_token_on_a_message_comes_before_the_request_and_late_messages_are_copied() -> None:
    system = ObservedSystem(ring("p", "q", tokens=2))
    system.act("p", "send")
    number = system.snapshot("p")
    system.act("p", "send")
    system.deliver("p", "q")
    assert system.under_way == {number: ["q"]}
    system.deliver("p", "q")
    assert str(system.deliver_report("q", "p")).startswith("report of q for snapshot 0: ")
    state = system.snapshots[number]
    assert {name: process["tokens"] for name, process in state.processes.items()} == {"p": 1, "q": 1}
    assert (state.cut, state.in_flight) == ({"p": 1, "q": 1}, [])


def test_a_message_without_the_token_behind_the_recording_is_in_its_channel() -> None:
    system = ObservedSystem(ring("p", "q", tokens=1))
    system.act("p", "send")
    number = system.snapshot("q")
    system.join(number, "p")
    system.deliver_report("p", "q")
    assert number not in system.snapshots
    system.deliver("p", "q")
    assert system.snapshots[number].channel("p", "q") == ("token",)
    system.join(number, "p")
    assert list(system.snapshots) == [number]


def test_an_observer_is_in_touch_with_processes_that_no_channel_reaches() -> None:
    system = ObservedSystem(to(Silent()))
    system.join(system.snapshot("b"), "a")
    system.deliver_report("a", "b")
    assert system.snapshots[0].channels == {Channel("a", "b"): ()}
    number = system.snapshot("a", "b")
    system.deliver_report("b", "a")
    assert system.snapshots[number].initiators == ("a", "b")


def test_an_observer_that_is_not_there_is_refused() -> None:
    system = ObservedSystem(to(Silent()))
    with pytest.raises(GraphError, match="there is no process 'c'"):
        system.snapshot("c")
    with pytest.raises(GraphError, match="expected the name of the process that is the observer"):
        system.snapshot()
    with pytest.raises(GraphError, match="no snapshot 4 to join"):
        system.join(4, "a")
    with pytest.raises(GraphError, match="no report is in transit along a -> b; channels with reports: none"):
        system.deliver_report("a", "b")
    with pytest.raises(GraphError, match="snapshots by markers have no observer"):
        System(to(Silent())).deliver_report("a", "b")


# --- reports travel


def test_a_snapshot_is_complete_when_its_last_report_has_arrived_and_not_when_it_is_sent() -> None:
    system = ObservedSystem(ring("p", "q", tokens=2))
    system.act("p", "send")
    number = system.snapshot("p")
    system.join(number, "q")
    system.deliver("p", "q")
    (reports,) = system.reports.values()
    assert [type(report) for report in reports] == [StateReport, LateMessage]
    assert (system.under_way, system.can_join(number)) == ({number: ["q"]}, [])
    system.deliver_report("q", "p")
    assert system.under_way == {number: ["q"]}  # by the counts, a copy is still to come
    system.deliver_report("q", "p")
    assert system.snapshots[number].channel("p", "q") == ("token",)
    assert system.reports == {}
    assert system.state.in_flight == []


def test_reports_of_one_process_arrive_in_order_between_other_steps() -> None:
    run = Simulation(random_graph(3), 3, rule=ObservedSystem).run(steps=300, snapshots=8)
    kinds = [type(each) for each in run.trace.happenings]
    first, last = kinds.index(ReportSent), len(kinds) - kinds[::-1].index(ReportReceived)
    assert kinds[first:last].count(Event) > 10
    for kind in (ReportSent, ReportReceived):
        numbers: dict[Channel, list[int]] = {}
        for each in run.trace.happenings:
            if isinstance(each, kind):
                numbers.setdefault(each.channel, []).append(each.number)
        assert all([found == list(range(1, len(found) + 1)) for found in numbers.values()])


@pytest.mark.parametrize("seed", seeds(5, 20))
def test_a_snapshot_is_complete_neither_before_nor_after_its_last_report_and_late_message(seed: int) -> None:
    draw, system = random.Random(seed), ObservedSystem(random_graph(seed))
    names = list(system.graph.processes)
    for number in range(4):
        system.snapshot(*draw.sample(names, draw.randrange(1, len(names) + 1)))
        for _ in range(draw.randrange(60)):
            if enabled := system.enabled():
                system.step(draw.choice(enabled))
            assert set(system.snapshots) == {n for n in range(number + 1) if is_over(system, n)}
            assert set(system.snapshots).isdisjoint(system.under_way)


def is_over(system: ObservedSystem, snapshot: int) -> bool:
    """Whether all recorded, no report is on its way, and no message that was sent before the cut is in a channel."""
    cut = {e.process: e.number for e in system.trace.happenings if isinstance(e, Recorded) and e.snapshot == snapshot}
    if len(cut) < len(system.graph.processes):
        return False
    if any([report.snapshot == snapshot for reports in system.reports.values() for report in reports]):
        return False
    return not any(
        event.number <= cut[channel.source]
        for channel in system.graph.channels
        for event, _ in system.trace.sent(channel)[len(system.trace.accepted(channel)) :]
    )


# --- what else looks at runs


@pytest.mark.parametrize("observed", ["seed", "threads"])
def test_detect_asks_snapshots_of_observers(observed: str) -> None:
    graph = line(5)
    if observed == "seed":
        found = detect(terminated, Simulation(graph, 1, rule=ObservedSystem))
    else:
        with ObservedThreads(graph) as running:
            found = detect(terminated, running, "b", timeout=SECONDS)
    assert found
    assert found.state.processes["b"] == {"total": 10}


def test_a_picture_shows_reports_as_dotted_arrows_and_a_snapshot_that_awaits_some_as_under_way() -> None:
    system = ObservedSystem(ring("p", "q", tokens=2))
    system.act("p", "send")
    system.join(system.snapshot("p"), "q")
    system.deliver_report("q", "p")
    assert "begun by p, under way" in str(diagram(system.trace))
    system.deliver("p", "q")
    assert "begun by p, under way" in str(diagram(system.trace))
    assert "▽" in str(diagram(system.trace))
    system.deliver_report("q", "p")
    picture = diagram(system.trace)
    assert "┊ report" in str(picture)
    assert "state for snapshot 0 from q" in str(picture)
    assert "copy of token for snapshot 0 from q" in str(picture)
    assert "under way" not in str(picture)
    assert "p -> q: token" in str(picture)
    assert "copy of token for snapshot 0, q -&gt; p" in picture.svg()
    assert "dotted: a report" in picture.svg()
