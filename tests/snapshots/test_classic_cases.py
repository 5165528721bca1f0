"""The worked examples of Kuper's lectures and of Chandy and Lamport's paper of 1985."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from dataflow.snapshots.cuts import channel_states, consistent_cuts, equivalent, is_consistent
from dataflow.snapshots.processes import Process, ProcessGraph, Sends, action
from dataflow.snapshots.runs.system import Marker, System
from dataflow.snapshots.traces import Event, MarkerSent, Recorded, Trace

CASES = {case["name"]: case for case in json.loads(Path(__file__).with_name("classic_cases.json").read_text())}
RUNS = [name for name, case in CASES.items() if "script" in case]
BAD_CUTS = [name for name, case in CASES.items() if "cut" in case]


class Diary(Process):
    """Knows which events it had."""

    def __init__(self) -> None:
        self.events: list[str] = []

    @action
    def internal(self, event: str) -> None:
        self.events.append(event)

    @action
    def send(self, event: str, to: str, message: str) -> Sends:
        self.events.append(event)
        return {to: message}

    def snapshot(self) -> list[str]:
        return list(self.events)


class Named(Diary):
    """Its next receipt is called ``next``: the example's names are given from outside."""

    next = ""

    def receive(self, sender: str, message: Any) -> None:
        self.events.append(self.next)


def replay(case: dict[str, Any], steps: list[dict[str, Any]]) -> System:
    graph = ProcessGraph()
    for name in case["procs"]:
        graph.add(name, Named())
    for channel in case["channels"]:
        graph.channel(channel["src"], channel["dst"])
    system, begun = System(graph), False
    for step in steps:
        match step["op"]:
            case "internal":
                system.act(step["proc"], "internal", step["event"])
            case "send":
                system.act(step["proc"], "send", step["event"], step["dst"], step["msg"])
            case "recv":
                Named.next = step["event"]
                assert system.deliver(step["src"], step["proc"]) == step["msg"]
            case "snapshot" if not begun:
                begun = system.snapshot(step["proc"]) == 0
            case "snapshot":
                system.join(0, step["proc"])
            case "deliver_marker":
                assert system.deliver(step["src"], step["dst"]) == Marker(0)
    return system


@pytest.mark.parametrize("name", RUNS)
def test_a_run_records_what_the_example_says(name: str) -> None:
    case = CASES[name]
    system, expected = replay(case, case["script"]), case["expect"]
    found = system.snapshots[0]
    assert found.processes == expected["proc_events"]
    assert {str(c).replace(" ", ""): list(messages) for c, messages in found.channels.items()} == expected["channels"]
    assert sum(isinstance(each, MarkerSent) for each in system.trace.happenings) == expected["marker_count"]
    order = [each.process for each in system.trace.happenings if isinstance(each, Recorded)]
    assert order == expected.get("record_order", order)
    assert bool(is_consistent(system.trace, found.cut)) == expected["consistent"]
    assert found.cut == case["derived"]["recorded_cut_frontier"]
    assert channel_states(system.trace, found.cut) == found.channels


@pytest.mark.parametrize("name", RUNS)
def test_the_consistent_cuts_are_as_many_as_there_are(name: str) -> None:
    trace = replay(CASES[name], CASES[name]["script"]).trace
    cuts = list(consistent_cuts(trace))
    every = [dict(zip(trace.processes, counts, strict=True)) for counts in all_prefixes(trace)]
    assert [cut for cut in every if is_consistent(trace, cut)] == sorted(cuts, key=lambda cut: every.index(cut))
    assert (len(cuts), len(every)) == (
        CASES[name]["derived"]["consistent_cuts"],
        CASES[name]["derived"]["all_prefix_cuts"],
    )


def all_prefixes(trace: Trace) -> list[tuple[int, ...]]:
    return list(product(*[range(len(trace.of(process)) + 1) for process in trace.processes]))


@pytest.mark.parametrize("name", BAD_CUTS)
def test_a_bad_cut_is_rejected_with_the_pair_of_events_that_shows_it(name: str) -> None:
    case = CASES[name]
    system = replay(case, case["events"])
    cut = {process: len(events) for process, events in case["cut"].items()}
    found = is_consistent(system.trace, cut)
    assert not found
    assert [[title(system, sent), title(system, accepted)] for sent, accepted in found.violations] == case["expect"][
        "violations"
    ]


def title(system: System, event: Event) -> str:
    events: list[str] = system.state.processes[event.process]
    return events[event.number - 1]


def test_the_run_of_example_2_2_is_rearranged_as_the_paper_does_and_passes_through_what_was_recorded() -> None:
    case = CASES["chandy_lamport_1985_example_2_2"]
    system = replay(case, case["script"])
    snapshot = system.snapshots[0]
    proof = equivalent(system.trace, snapshot.cut)
    proof.check()
    assert [title(system, event) for event in proof.after] == case["expect"]["permuted_run"]
    assert len(proof.swaps) == 1
    again = System(system.graph)
    for event in proof.after[: proof.whites]:
        again.repeat(event)
    assert (again.state.processes, again.state.channels) == (snapshot.processes, snapshot.channels)


def test_a_token_on_its_way_seems_to_vanish_without_channel_states() -> None:
    graph = ProcessGraph().add("p", Named()).add("q", Named()).connect("p", "q")
    system = System(graph)
    system.act("p", "send", "sends", "q", "token")
    system.snapshot("q")
    assert system.deliver("q", "p") == Marker(0)
    assert [system.deliver("p", "q") for _ in range(2)] == ["token", Marker(0)]
    found = system.snapshots[0]
    assert (found.processes, found.in_flight) == ({"p": ["sends"], "q": []}, ["token"])
