"""All runs of small systems, and every snapshot that any of them can take."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from dataflow.errors import ConfigurationError, InconsistentSnapshot
from dataflow.snapshots.processes import GlobalState, Process, ProcessGraph, Sends, action
from dataflow.snapshots.runs.exploration import explore
from dataflow.snapshots.runs.hashable_content import content_of
from dataflow.snapshots.runs.observed_system import ObservedSystem
from dataflow.snapshots.runs.system import System
from tests.snapshots.test_simulation import Silent, to

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


LARGER = [pytest.param(*each, marks=pytest.mark.soak) for each in [("pqr", 2, 1), ("pqrs", 1, 1)]]


@pytest.mark.parametrize(("names", "tokens", "snapshots"), [("pqr", 1, 1), ("pq", 2, 1), ("pq", 1, 2), *LARGER])
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


def test_markers_wait_for_nobody_and_observers_wait_for_messages() -> None:
    assert explore(to(Silent())).stuck == 0
    assert explore(to(Silent()), rule=ObservedSystem).stuck > 0


class Choosy(Process):
    """Accepts from one of two only, and then from both together."""

    def __init__(self) -> None:
        self.first: str | None = None

    @action(accepts="x", when=lambda self: self.first is None)
    def begin(self, message: str) -> None:
        self.first = message

    @action(accepts=("x", "y"), when=lambda self: self.first is not None)
    def go_on(self, one: str, other: str) -> None:
        self.first = None


class Twice(Process):
    def __init__(self) -> None:
        self.left = 2

    @action(when=lambda self: self.left > 0)
    def send(self) -> Sends:
        self.left -= 1
        return {"c": f"{self.left}"}


def test_what_a_process_leaves_ahead_of_a_marker_is_in_the_channel_in_every_run() -> None:
    graph = ProcessGraph().add("x", Twice()).add("y", Twice()).add("c", Choosy()).channel("x", "c").channel("y", "c")
    found = explore(graph)
    assert found.stuck == 0
    assert found.completions >= len(found.recorded) == found.states
    assert ("1", "0") in [state.channel("y", "c") for state in found.recorded]


class Relay(Process):
    """Has no state: what it did shows in channels and snapshots only."""

    @action
    def tell(self, to: str) -> Sends:
        return {to: "news"}

    def receive(self, sender: str, message: str) -> None:
        """Forgets it."""


def test_configurations_differ_where_only_what_was_recorded_of_a_channel_does() -> None:
    before, behind = [System(ProcessGraph().add("a", Relay()).add("b", Relay()).connect("a", "b")) for _ in range(2)]
    before.snapshot("b")
    for system in (before, behind):
        system.act("a", "tell", "b")
        system.deliver("a", "b")
    behind.snapshot("b")
    assert before.channels == behind.channels
    assert before.content != behind.content


def test_configurations_differ_where_only_the_token_on_a_message_does() -> None:
    before, behind = [
        ObservedSystem(ProcessGraph().add("a", Relay()).add("b", Relay()).connect("a", "b")) for _ in "ab"
    ]
    before.snapshot("a")
    for system in (before, behind):
        system.act("a", "tell", "b")
    behind.snapshot("a")
    assert before.channels == behind.channels
    assert before.content != behind.content


class Faulty(System):
    """Says of each snapshot what ``told`` makes of it."""

    @property
    def snapshots(self) -> Mapping[int, GlobalState]:
        return {number: self.told(state) for number, state in super().snapshots.items()}


class Forgets(Faulty):
    def told(self, state: GlobalState) -> GlobalState:
        return replace(state, channels=dict.fromkeys(state.channels, ()))


class Remembers(Faulty):
    def told(self, state: GlobalState) -> GlobalState:
        return System(self.graph).state


class Foresees(Faulty):
    def told(self, state: GlobalState) -> GlobalState:
        ahead = self.copy()
        for step in ahead.enabled():
            ahead.step(step)
        return ahead.state


class Hurries(System):
    @property
    def snapshots(self) -> Mapping[int, GlobalState]:
        all_recorded = [number for number in self.under_way if not self.can_join(number)]
        return {**super().snapshots, **dict.fromkeys(all_recorded, self.state)}


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (Forgets, "no run leads from the state in which snapshot 0 began through the state it recorded"),
        (Remembers, "no run leads from the state in which snapshot 0 began through the state it recorded"),
        (Foresees, "no run leads from the state in which snapshot 0 began through the state it recorded"),
        (Hurries, "snapshot 0 is complete, but its marker is still in a -> b"),
    ],
)
def test_a_rule_that_is_wrong_is_found_out_with_the_steps_that_show_it(rule: type[System], said: str) -> None:
    with pytest.raises(InconsistentSnapshot, match=said) as caught:
        explore(to(Silent()), rule=rule)
    assert "\nafter: " in str(caught.value) or "; after: " in str(caught.value)


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
    with pytest.raises(ConfigurationError, match="cannot compare a Slotted by content"):
        content_of([Slotted()])
