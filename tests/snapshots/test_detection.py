"""What snapshots say of a running system: stable predicates, and others."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from dataflow.errors import ConfigurationError, UnstablePredicateWarning
from dataflow.snapshots.predicates import Deadlock, Tokens, deadlocked, garbage, terminated
from dataflow.snapshots.processes import Channel, GlobalState, Process, ProcessGraph, Sends, action
from dataflow.snapshots.runs import Simulation, System, Threads, detect
from tests.seeds import seeds
from tests.snapshots.systems import random_graph
from tests.snapshots.test_threads import SECONDS, game


class Philosopher(Process):
    """Takes the fork on one side, then that on the other, and gives neither back before it has eaten."""

    def __init__(self, forks: list[str]) -> None:
        self.forks, self.has, self.waits_for = forks, 0, None

    @action(when=lambda self: self.waits_for is None and self.has < 2)
    def ask(self) -> Sends:
        self.waits_for = self.forks[self.has]
        return {self.waits_for: "take"}

    def receive(self, sender: str, message: str) -> Sends:
        self.has, self.waits_for = self.has + 1, None
        if self.has < 2:
            return None
        self.has = 0
        return dict.fromkeys(self.forks, "back")


class Fork(Process):
    """Given to one at a time; waits for the one who has it as long as somebody else asks for it."""

    def __init__(self) -> None:
        self.holder: str | None = None
        self.asking: list[str] = []

    @property
    def waits_for(self) -> str | None:
        return self.holder if self.asking else None

    def snapshot(self) -> dict[str, Any]:
        return {"waits_for": self.waits_for, "holder": self.holder}

    def receive(self, sender: str, message: str) -> Sends:
        if message == "take":
            self.asking.append(sender)
        else:
            self.holder = None
        if self.holder is None and self.asking:
            self.holder = self.asking.pop(0)
            return {self.holder: "yours"}
        return None


def table(*, orders: list[list[str]]) -> ProcessGraph:
    graph = ProcessGraph()
    for i, forks in enumerate(orders):
        graph.add(f"philosopher {i}", Philosopher(forks)).add(f"fork {i}", Fork())
    for i, forks in enumerate(orders):
        for fork in forks:
            graph.connect(f"philosopher {i}", fork)
    return graph


CLASH = [["fork 0", "fork 1"], ["fork 1", "fork 2"], ["fork 2", "fork 0"]]


@pytest.mark.parametrize("seed", seeds(2, 5))
def test_a_deadlock_is_detected_with_its_cycle(seed: int) -> None:
    run = Simulation(table(orders=CLASH), seed)
    found = detect(deadlocked, run)
    assert isinstance(found.answer, Deadlock)
    assert sorted(found.answer.cycle) == sorted(run.state.processes)
    assert deadlocked(run.state) == found.answer
    assert str(found.answer).count(" waits for ") == 6
    assert str(found) == f"detected: {found.answer}\n{found.state}"


def test_philosophers_who_take_forks_in_one_order_are_never_deadlocked() -> None:
    orders = [sorted(forks) for forks in CLASH]
    found = detect(deadlocked, Simulation(table(orders=orders), 1), limit=60)
    assert not found
    assert found.snapshots == 60
    assert str(found).startswith("not detected in 60 snapshots; the last one:\nsnapshot 59, begun by ")


def test_a_deadlock_of_threads_is_detected() -> None:
    with Threads(table(orders=CLASH)) as running:
        found = detect(deadlocked, running, limit=10**6, timeout=SECONDS)
    assert len(found.answer.cycle) == 6


@pytest.mark.parametrize("seed", seeds(2, 8))
def test_termination_is_detected_in_simulations_and_on_threads(seed: int) -> None:
    graph = random_graph(seed)
    run = Simulation(graph, seed)
    found = detect(terminated, run, limit=10_000)
    assert found
    assert run.quiet
    with Threads(graph) as running:
        last = detect(terminated, running, limit=10**6, timeout=SECONDS)
        assert last
        assert running.quiet
        assert found.state.in_flight == last.state.in_flight == []


class Losing(Process):
    """Passes a token on, and drops some."""

    def __init__(self, following: str, tokens: int) -> None:
        self.following, self.tokens, self.passed = following, tokens, 0

    def receive(self, sender: str, message: str) -> None:
        self.tokens += 1

    @action(when=lambda self: self.tokens > 0)
    def hand_on(self) -> Sends:
        self.tokens -= 1
        self.passed += 1
        return {self.following: "token"} if self.passed % 20 else None


TOKENS = Tokens(held=lambda state: state["tokens"])


def losing() -> ProcessGraph:
    return ProcessGraph().add("a", Losing("b", 3)).add("b", Losing("c", 0)).add("c", Losing("a", 2)).ring("a", "b", "c")


def test_lost_tokens_are_detected_and_those_on_their_way_are_not_taken_for_lost() -> None:
    run = Simulation(losing(), 3)
    found = detect(TOKENS.fewer_than(5), run)
    assert found
    assert TOKENS(run.state) <= TOKENS(found.state) < 5
    with Threads(game()) as running:
        balls = Tokens(held=lambda state: state["balls"])
        assert not detect(balls.not_exactly(2), running, limit=20, timeout=SECONDS)


class Heap(Process):
    """Sends names of objects about, and forgets them."""

    def __init__(self, other: str, objects: dict[str, list[str]], roots: list[str]) -> None:
        self.other, self.objects, self.roots = other, objects, roots

    def receive(self, sender: str, message: list[str]) -> None:
        if len(message[0]) > 1:
            self.roots += message

    @action(when=lambda self: len(self.roots) > 0)
    def hand_over(self) -> Sends:
        return {self.other: [self.roots.pop()]}


def heaps() -> ProcessGraph:
    graph = ProcessGraph().add("a", Heap("b", {"a": ["b"], "b": []}, ["a"])).add("b", Heap("a", {"xx": []}, ["xx"]))
    return graph.connect("a", "b")


def test_garbage_is_detected_and_names_on_their_way_keep_objects_alive() -> None:
    found = detect(garbage(at_least=2), Simulation(heaps(), 2))
    assert found.answer == ["a", "b"]


def test_a_name_by_itself_is_one_name_to_garbage() -> None:
    kept = {"p": {"roots": "root", "objects": {"root": "next", "next": None, "flying": [], "lost": []}}}
    assert garbage()(GlobalState(kept, {Channel("p", "p"): ("flying",)})) == ["lost"]


def test_an_object_that_two_processes_keep_refers_to_what_it_does_with_either() -> None:
    kept = {"p": {"roots": ["a"], "objects": {"a": ["b"], "b": []}}, "q": {"objects": {"a": []}}}
    assert garbage()(GlobalState(kept, {})) == []


def test_a_long_cycle_is_found() -> None:
    names = [str(n) for n in range(3000)]
    waiting = {name: {"waits_for": other} for name, other in zip(names, [*names[1:], names[0]], strict=True)}
    found = deadlocked(GlobalState({"before": {"waits_for": names[7]}, **waiting}, {}))
    assert found is not None
    assert sorted(found.cycle) == sorted(names)


STABLE: list[tuple[Callable[[int], ProcessGraph], Callable[[GlobalState], Any]]] = [
    (random_graph, terminated),
    (lambda seed: table(orders=CLASH), deadlocked),
    (lambda seed: losing(), TOKENS.fewer_than(5)),
    (lambda seed: losing(), TOKENS.fewer_than(3)),
    (lambda seed: heaps(), garbage()),
]


@pytest.mark.parametrize("seed", seeds(7, 25))
@pytest.mark.parametrize(("graph", "predicate"), STABLE)
def test_what_held_at_the_snapshot_holds_at_its_end_and_what_did_not_did_not_hold_at_its_beginning(
    seed: int, graph: Callable[[int], ProcessGraph], predicate: Callable[[GlobalState], Any]
) -> None:
    draw, system = random.Random(seed), System(graph(seed))
    begun: dict[int, bool] = {}
    for _ in range(300):
        if draw.random() < 0.03:
            begun[len(begun)] = bool(predicate(system.state))
            system.snapshot(draw.choice(list(system.graph.processes)))
        known = set(system.snapshots)
        if enabled := system.enabled():
            system.step(draw.choice(enabled))
        for number in set(system.snapshots) - known:
            held = bool(predicate(system.snapshots[number]))
            assert begun[number] <= held <= bool(predicate(system.state)), f"seed {seed}"
    assert begun


def test_a_predicate_that_is_not_stable_is_found_out_where_a_later_snapshot_shows_it() -> None:
    def at_rest(state: GlobalState) -> bool:
        return not state.in_flight

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for seed in range(10):
            assert detect(at_rest, Simulation(game(), seed))
    assert {each.category for each in caught} == {UnstablePredicateWarning}
    assert "predicate at_rest is not stable: it held in snapshot" in str(caught[0].message)
    assert caught[0].filename == __file__


def test_what_a_predicate_raises_says_which_snapshot_it_was_asked_of() -> None:
    with pytest.raises(KeyError) as caught:
        detect(TOKENS, Simulation(game()))  # type: ignore[arg-type]
    assert caught.value.__notes__[0].startswith("in predicate Tokens(")
    assert "evaluated on snapshot 0" in caught.value.__notes__[0]


def test_a_limit_below_one_snapshot_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="limit of 1 snapshot or more, got 0"):
        detect(terminated, Simulation(game()), limit=0)
