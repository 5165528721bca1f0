"""All runs of small systems, and every snapshot that any of them can take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dataflow.errors import ConfigurationError
from dataflow.processes import Process, ProcessGraph, Sends, action
from dataflow.runners.processes.content import content_of
from dataflow.runners.processes.exhaustive import explore
from tests.processes.test_simulated import Silent, to

CASES = {case["name"]: case for case in json.loads(Path(__file__).with_name("classic_cases.json").read_text())}


class Holder(Process):
    def __init__(self, following: str, tokens: int = 0) -> None:
        self.following, self.tokens = following, tokens

    def receive(self, sender: str, message: str) -> None:
        self.tokens += 1

    @action(when=lambda self: self.tokens > 0)
    def send(self) -> Sends:
        self.tokens -= 1
        return {self.following: "token"}


def ring(*names: str, tokens: int = 1) -> ProcessGraph:
    graph = ProcessGraph()
    for name, following in zip(names, [*names[1:], names[0]], strict=True):
        graph.add(name, Holder(following, tokens if name == names[0] else 0))
    return graph.ring(*names)


def test_the_single_token_is_recorded_in_each_of_its_places_and_nowhere_else() -> None:
    case = CASES["chandy_lamport_1985_example_2_1_single_token"]
    found = explore(ring("p", "q"))
    recorded = [
        {
            "p": state.processes["p"]["tokens"],
            "q": state.processes["q"]["tokens"],
            "c": len(state.channel("p", "q")),
            "c2": len(state.channel("q", "p")),
        }
        for state in found.recorded
    ]
    assert sorted(map(str, recorded)) == sorted(map(str, case["derived"]["possible_recorded_states"]))
    assert (found.states, found.stuck) == (4, 0)


@pytest.mark.parametrize(
    ("names", "tokens", "snapshots"), [("pqr", 1, 1), ("pq", 2, 1), pytest.param("pq", 1, 2, marks=pytest.mark.soak)]
)
def test_every_snapshot_of_every_run_lies_between_its_beginning_and_its_end(
    names: str, tokens: int, snapshots: int
) -> None:
    found = explore(ring(*names, tokens=tokens), snapshots)
    assert found.stuck == 0
    assert found.completions >= len(found.recorded) == found.states
    for state in found.recorded:
        assert sum(p["tokens"] for p in state.processes.values()) + len(state.in_flight) == tokens


class Pq(Process):
    """The processes of example 2.2: p sends M when it is in A, q sends M' when it is in C."""

    def __init__(self, at: str, there: str, other: str) -> None:
        self.at, self.home, self.there, self.other = at, at, there, other

    def receive(self, sender: str, message: str) -> None:
        self.at = self.home

    @action(when=lambda self: self.at == self.home)
    def send(self) -> Sends:
        self.at = self.there
        return {self.other: self.home}


def test_of_the_nondeterministic_system_states_are_recorded_through_which_a_run_need_not_pass() -> None:
    graph = ProcessGraph().add("p", Pq("A", "B", "q")).add("q", Pq("C", "D", "p")).connect("p", "q")
    found = explore(graph)
    assert any((s.processes["p"]["at"], s.processes["q"]["at"]) == ("A", "D") and s.in_flight for s in found.recorded)
    assert found.stuck == 0


def test_two_messages_on_a_channel_keep_their_order_in_every_snapshot() -> None:
    class Counting(Process):
        def __init__(self) -> None:
            self.sent = 0

        @action(when=lambda self: self.sent < 3)
        def send(self) -> Sends:
            self.sent += 1
            return {"b": self.sent}

    class Listing(Process):
        def __init__(self) -> None:
            self.got: list[int] = []

        def receive(self, sender: str, message: int) -> None:
            self.got = [*self.got, message]

    graph = ProcessGraph().add("a", Counting()).add("b", Listing()).channel("a", "b")
    for state in explore(graph, snapshots=2).recorded:
        sent = [*state.processes["b"]["got"], *state.channel("a", "b")]
        assert sent == list(range(1, state.processes["a"]["sent"] + 1))


def test_snapshots_that_are_never_complete_are_counted() -> None:
    found = explore(to(Silent()))
    assert found.stuck > 0
    assert explore(ring("a", "b")).stuck == 0


def test_a_system_without_end_is_refused_past_the_limit() -> None:
    class Counter(Process):
        count = 0

        @action
        def tick(self) -> None:
            self.count += 1

    with pytest.raises(ConfigurationError, match="more than 100 configurations"):
        explore(ProcessGraph().add("a", Counter()), limit=100)


def test_a_state_whose_content_cannot_be_seen_is_refused() -> None:
    class Slotted:
        __slots__ = ()

    assert content_of(Holder("p")) == content_of(Holder("p")) != content_of(Holder("q"))
    with pytest.raises(ConfigurationError, match="content of a Slotted cannot be seen"):
        content_of([Slotted()])
