"""Snapshots of random runs: what they record, when they are complete, and what follows from them."""

from __future__ import annotations

import random

import pytest

from dataflow.errors import ConfigurationError, GraphError, SnapshotStuck
from dataflow.snapshots.cuts import channel_states, equivalent, is_consistent
from dataflow.snapshots.processes import Channel, Process, ProcessGraph, Sends, action
from dataflow.snapshots.runs.observed_system import ObservedSystem
from dataflow.snapshots.runs.simulation import Simulation
from dataflow.snapshots.runs.system import System
from dataflow.snapshots.traces import Event, MarkerReceived, MarkerSent, Recorded, Trace
from tests.seeds import seeds
from tests.snapshots.systems import coins, random_graph

SEEDS = seeds(8, 30, extended=30)


def simulated(seed: int) -> Simulation:
    graph = random_graph(seed, strongly_connected=seed % 4 != 0, shy=seed % 3 != 0)
    return Simulation(graph, seed).run(steps=150, snapshots=6)


def check_snapshots(run: Simulation) -> None:
    """Raise AssertionError where a snapshot is no consistent cut, misses what channels held, or loses a coin."""
    for state in run.snapshots.values():
        assert is_consistent(run.trace, state.cut)
        assert state.channels == channel_states(run.trace, state.cut)
        assert coins(state) == coins(run.state)
    run.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_snapshot_of_a_random_run_is_a_consistent_cut_with_its_channel_states(seed: int) -> None:
    run = simulated(seed)
    assert len(run.snapshots) == 6
    check_snapshots(run)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_rearranged_run_passes_through_the_snapshot_and_ends_where_the_run_did(seed: int) -> None:
    run = simulated(seed)
    for state in run.snapshots.values():
        proof = equivalent(run.trace, state.cut)
        proof.check()
        again = System(run.system.graph)
        for number, event in enumerate(proof.after):
            if number == proof.whites:
                assert_same(again, state)
            again.repeat(event)
        assert_same(again, run.state)


def assert_same(system: System, state: object) -> None:
    now = system.state
    assert (now.processes, now.channels, now.cut) == (state.processes, state.channels, state.cut)  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_marker_of_every_snapshot_runs_once_over_every_channel_and_right_behind_the_recording(seed: int) -> None:
    trace = simulated(seed).trace
    for snapshot in range(6):
        for kind in (MarkerSent, MarkerReceived):
            found = [each.channel for each in trace.happenings if isinstance(each, kind) and each.snapshot == snapshot]
            assert sorted(found) == sorted(trace.channels)
        recorded = [
            each.process for each in trace.happenings if isinstance(each, Recorded) and each.snapshot == snapshot
        ]
        assert sorted(recorded) == sorted(trace.processes)
    assert all([after_recording(trace, i) for i, each in enumerate(trace.happenings) if isinstance(each, MarkerSent)])


def after_recording(trace: Trace, position: int) -> bool:
    while isinstance(trace.happenings[position], MarkerSent):
        position -= 1
    return isinstance(trace.happenings[position], Recorded)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_snapshot_is_complete_when_all_recorded_and_all_its_markers_came_and_neither_earlier_nor_later(
    seed: int,
) -> None:
    draw, system = random.Random(seed), System(random_graph(seed))
    names = list(system.graph.processes)
    for number in range(4):
        system.snapshot(*draw.sample(names, draw.randrange(1, len(names) + 1)))
        for _ in range(draw.randrange(30)):
            if enabled := system.enabled():
                system.step(draw.choice(enabled))
            assert set(system.snapshots) == through(system.trace, number + 1)
            assert set(system.snapshots).isdisjoint(system.under_way)


def through(trace: Trace, begun: int) -> set[int]:
    """The snapshots that everybody recorded, with all markers received."""
    due = len(trace.processes) + len(trace.channels)
    counts = dict.fromkeys(range(begun), 0)
    for each in trace.happenings:
        if isinstance(each, Recorded | MarkerReceived):
            counts[each.snapshot] += 1
    return {snapshot for snapshot, count in counts.items() if count == due}


@pytest.mark.parametrize("seed", SEEDS)
def test_the_basic_computation_is_the_same_with_and_without_snapshots(seed: int) -> None:
    run = simulated(seed)
    alone = System(run.system.graph)
    for event in run.trace.events:
        alone.repeat(event)
    assert_same(alone, run.state)


def test_a_seed_is_a_reproduction() -> None:
    first, second = simulated(7), simulated(7)
    assert first.trace == second.trace
    assert first.snapshots == second.snapshots
    assert first.trace != Simulation(random_graph(7), 8).run(steps=150, snapshots=6).trace


def test_several_snapshots_are_under_way_at_once_and_several_processes_begin_one() -> None:
    runs = [simulated(seed) for seed in range(8)]
    assert max(overlapping(run.trace) for run in runs) >= 3
    assert max(len(state.initiators) for run in runs for state in run.snapshots.values()) >= 3


def overlapping(trace: Trace) -> int:
    last = {each.snapshot: i for i, each in enumerate(trace.happenings) if not isinstance(each, Event)}
    first = {each.snapshot: i for i, each in reversed(list(enumerate(trace.happenings))) if not isinstance(each, Event)}
    return max(sum(first[n] <= i <= last[n] for n in first) for i in first.values())


class Sender(Process):
    @action(when=lambda self: not hasattr(self, "done"))
    def send(self) -> Sends:
        self.done = True
        return {"b": 1}


class Failing(Process):
    def receive(self, sender: str, message: int) -> Sends:
        raise ValueError("no more")


def to(receiver: Process) -> ProcessGraph:
    return ProcessGraph().add("a", Sender()).add("b", receiver).channel("a", "b")


def test_what_a_process_raises_says_process_event_seed_and_step() -> None:
    with pytest.raises(ValueError, match="no more") as caught:
        Simulation(to(Failing()), seed=5).run()
    assert caught.value.__notes__ == [
        "in 'receive' of process 'b', its event 1",
        "seed 5, step 2: deliver the head of a -> b",
    ]


class Silent(Process):
    """Accepts nothing."""


def test_a_message_that_nobody_accepts_is_in_its_channel_and_holds_up_no_marker() -> None:
    run = Simulation(to(Silent()), seed=3).run()
    for _ in range(2):
        assert run.snapshot("a").channel("a", "b") == (1,)
    run.check()


def test_an_observer_that_waits_for_a_message_that_nobody_accepts_is_reported_with_the_seed() -> None:
    run = Simulation(to(Silent()), seed=3, rule=ObservedSystem).run()
    with pytest.raises(
        SnapshotStuck,
        match=r"snapshot 0 misses reports of b: .* in a -> b; .* \[seed 3, step",
    ):
        run.snapshot("a")


def test_a_snapshot_that_cannot_reach_everybody_is_refused_and_the_run_goes_on() -> None:
    run = Simulation(to(Silent()))
    with pytest.raises(GraphError, match="never reaches a"):
        run.snapshot("b")
    assert run.snapshot("a").channels == {Channel("a", "b"): ()}
    assert set(run.snapshot("b", "a").initiators) == {"a", "b"}


def test_a_number_of_steps_below_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="got -1"):
        Simulation(to(Silent())).run(steps=-1)


class Lender(Process):
    """Sends its own list, goes on writing in it, and writes in whatever it is sent."""

    def __init__(self) -> None:
        self.pages = ["first"]

    @action
    def lend(self) -> Sends:
        return {"b": self.pages}

    @action
    def write(self) -> None:
        self.pages.append("mine")

    def receive(self, sender: str, message: list[str]) -> None:
        self.pages = message
        self.pages.append("read")


def test_what_sender_and_receiver_do_to_a_message_later_shows_in_no_channel_and_no_trace() -> None:
    system = System(ProcessGraph().add("a", Lender()).add("b", Lender()).channel("a", "b"))
    system.act("a", "lend")
    system.act("a", "write")
    system.snapshot("a", "b")
    system.deliver("a", "b")
    system.deliver("a", "b")
    assert system.snapshots[0].channel("a", "b") == (["first"],)
    assert [[value for _, value in (*e.sent, *e.accepted)] for e in system.trace.events] == [
        [["first"]],
        [],
        [["first"]],
    ]
    assert system.state.processes["a"] == {"pages": ["first", "mine"]}
    assert system.state.processes["b"] == {"pages": ["first", "read"]}


def test_what_a_process_does_to_its_state_later_shows_in_no_snapshot() -> None:
    system = System(ProcessGraph().add("a", Lender()).add("b", Lender()).channel("a", "b"))
    system.snapshot("a", "b")
    system.act("a", "write")
    system.deliver("a", "b")
    assert system.snapshots[0].processes == {"a": {"pages": ["first"]}, "b": {"pages": ["first"]}}


def test_a_trace_reads_as_sentences() -> None:
    system = System(to(Silent()))
    system.snapshot("a")
    assert str(system.trace).splitlines() == [
        "a begins snapshot 0, after its event 0: {}",
        "a sends the marker of snapshot 0 to b",
    ]
    system.act("a", "send")
    system.deliver("a", "b")
    assert str(system.trace).splitlines()[2:] == [
        "a.1 send > b: 1",
        "b receives the marker of snapshot 0 from a",
        "b records for snapshot 0, after its event 0: {}",
    ]


def test_a_run_says_how_far_it_is() -> None:
    system = System(to(Silent()))
    system.snapshot("a")
    system.act("a", "send")
    assert repr(system) == "System(1 events, 0 snapshots, 1 under way; in channels a -> b: [Marker(snapshot=0), 1])"
    system.deliver("a", "b")
    assert repr(system) == "System(1 events, 1 snapshots, 0 under way; in channels a -> b: [1])"
