"""The variant with an observer, held against runs and against the marker rule."""

from __future__ import annotations

import queue
import random
from collections.abc import Iterator
from typing import Any

import pytest

from dataflow.errors import ConfigurationError, GraphError, InconsistentSnapshot, SnapshotStuck
from dataflow.observe.spacetime import diagram
from dataflow.predicates import terminated
from dataflow.processes import Channel, ProcessGraph
from dataflow.runners.processes import ObservedSystem, ObservedThreads, Simulation, System, check, detect, explore
from dataflow.runners.processes.exhaustive import shown_content
from dataflow.runners.processes.host import Item
from dataflow.runners.processes.observed_station import LateMessage, ObservedStation, StateReport, View
from dataflow.runners.processes.station import DeliverReport
from dataflow.traces import Event, MarkerSent, Recorded, ReportReceived, ReportSent
from tests.processes.systems import coins, random_graph
from tests.processes.test_classic_cases import CASES, RUNS
from tests.processes.test_classic_cases import replay as replay_classic
from tests.processes.test_exhaustive import ring
from tests.processes.test_published_cases import CASES as PUBLISHED
from tests.processes.test_published_cases import replay, system_of
from tests.processes.test_simulated import Silent, check_snapshots, to
from tests.processes.test_threaded import SECONDS, Adding, Many, game


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
    [("pq", 1), ("pq", 2), pytest.param("pqr", 1, marks=pytest.mark.soak)],
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
    with pytest.raises(GraphError, match="expected the name of the process that observes"):
        system.snapshot()
    with pytest.raises(GraphError, match="no snapshot 4 to join"):
        system.join(4, "a")
    with pytest.raises(GraphError, match="no report is on its way along a -> b; there are some along none"):
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


@pytest.mark.parametrize("seed", range(20))
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


@pytest.mark.parametrize("seed", range(20))
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


def line(messages: int) -> ProcessGraph:
    """One process that sends some messages to another."""
    many = Many()
    many.left = messages
    return ProcessGraph().add("a", many).add("b", Adding()).channel("a", "b")


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


class Secretive(ObservedStation):
    """Does not report late messages."""

    def _copies(self, item: Item) -> Iterator[LateMessage]:
        return iter(())


class Forgetful(ObservedStation):
    """Reports none but the first of its late messages."""

    def _copies(self, item: Item) -> Iterator[LateMessage]:
        return iter([copy for copy in super()._copies(item) if item.message == 1])


def stationed(kind: type[ObservedStation]) -> type[ObservedSystem]:
    class Made(ObservedSystem):
        def _station(self, name: str) -> ObservedStation:
            return kind(self.graph, name, self._gathering.initiators)

    return Made


@pytest.mark.parametrize("kind", [Secretive, Forgetful])
def test_late_messages_that_are_not_reported_are_noticed(kind: type[ObservedStation]) -> None:
    assert explore(line(2), rule=ObservedSystem).stuck == 0
    assert explore(line(2), rule=stationed(kind)).stuck > 0


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


# --- threads


@pytest.mark.parametrize("seed", range(8))
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
        recorded = [station.recorded for station in running._stations.values()]
    assert all([len(each.others) == 0 for each in recorded])  # tokens do not pile up
    for state in states:
        assert sum(p["balls"] for p in state.processes.values()) + len(state.in_flight) == 2
        check(running.trace, state)


def test_an_observer_on_threads_that_waits_for_what_nobody_accepts_says_so() -> None:
    with ObservedThreads(to(Silent())) as running:
        running.wait_until_quiet(SECONDS)
        with pytest.raises(
            SnapshotStuck, match=r"snapshot 0 is not complete, reports are .* its observer 'a'; it waits"
        ):
            running.snapshot("a", timeout=SECONDS)
        with pytest.raises(GraphError, match="there is no process 'c'"):
            running.begin("c")
        with pytest.raises(GraphError, match="expected the name of the process that observes"):
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
