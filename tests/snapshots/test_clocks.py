"""Vector clocks of random runs, against what happened before what: the order of processes, and messages."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest

from dataflow.snapshots.cuts import consistent_cuts, is_consistent
from dataflow.snapshots.processes import Process, ProcessGraph, Sends, action
from dataflow.snapshots.runs.simulation import Simulation
from dataflow.snapshots.runs.system import System
from dataflow.snapshots.traces import Event, MessageId
from tests.seeds import seeds
from tests.snapshots.systems import random_graph


def pasts(events: list[Event]) -> dict[tuple[str, int], frozenset[tuple[str, int]]]:
    """The events that each could be an effect of, by name, itself included: found by following every cause."""
    found: dict[tuple[str, int], frozenset[tuple[str, int]]] = {}
    sender: dict[MessageId, tuple[str, int]] = {}
    for event in events:
        causes = [(event.process, event.number - 1)] * (event.number > 1)
        causes += [sender[identity] for identity, _ in event.accepted]
        found[event.name] = frozenset([event.name]).union(*[found[cause] for cause in causes])
        sender |= {identity: event.name for identity, _ in event.sent}
    return found


@pytest.mark.parametrize("seed", seeds(5, 20))
def test_a_clock_counts_of_each_process_the_events_that_happened_before(seed: int) -> None:
    events = list(Simulation(random_graph(seed), seed).run(steps=150).trace.events)
    for name, past in pasts(events).items():
        (event,) = [each for each in events if each.name == name]
        assert event.clock == Counter([process for process, _ in past])


@pytest.mark.parametrize("seed", seeds(2, 5))
def test_one_event_precedes_another_where_a_way_of_causes_leads_there(seed: int) -> None:
    events = list(Simulation(random_graph(seed), seed).run(steps=80).trace.events)
    past = pasts(events)
    for first, second in combinations(events, 2):
        assert first.precedes(second) == (first.name in past[second.name])
        assert not second.precedes(first)
        assert not first.precedes(first)


class Player(Process):
    @action
    def throw(self, to: str) -> Sends:
        return {to: "ball"}

    def receive(self, sender: str, message: str) -> None:
        """Keeps it."""


def test_a_message_that_comes_late_sets_no_clock_back() -> None:
    system = System(ProcessGraph().add("a", Player()).add("b", Player()).add("c", Player()).connect("a", "b", "c"))
    system.act("a", "throw", "c")
    system.act("a", "throw", "b")
    system.deliver("a", "b")
    system.act("b", "throw", "c")
    system.deliver("b", "c")
    system.deliver("a", "c")
    assert [event.clock for event in system.trace.of("c")] == [{"a": 2, "b": 2, "c": 1}, {"a": 2, "b": 2, "c": 2}]


def test_the_cuts_that_clocks_say_are_consistent_are_those_that_messages_say() -> None:
    system = System(ProcessGraph().add("a", Player()).add("b", Player()).add("c", Player()).connect("a", "b", "c"))
    for source, target in [("a", "b"), ("b", "c"), ("c", "a"), ("a", "c")]:
        system.act(source, "throw", target)
        system.deliver(source, target)
    lengths = {name: len(system.trace.of(name)) for name in "abc"}
    every = [
        {"a": a, "b": b, "c": c}
        for a in range(lengths["a"] + 1)
        for b in range(lengths["b"] + 1)
        for c in range(lengths["c"] + 1)
    ]
    assert sorted(map(str, consistent_cuts(system.trace))) == sorted(
        [str(cut) for cut in every if is_consistent(system.trace, cut)]
    )
