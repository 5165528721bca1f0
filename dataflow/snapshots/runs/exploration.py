"""Every run of a small system: all orders of steps, and all times at which anybody begins a snapshot or joins it.

States are told apart by content, so a system whose runs never end is explored to the end when it has finitely many.
Each snapshot that any run takes is held against the theorem of Chandy and Lamport: the state that it recorded can be
reached from the one in which it was begun, and from there the one in which it was complete can be reached.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

from dataflow.errors import ConfigurationError, InconsistentSnapshot
from dataflow.snapshots.processes import GlobalState, ProcessGraph
from dataflow.snapshots.runs.hashable_content import content_of
from dataflow.snapshots.runs.system import Join, Marker, System

__all__ = ["Exploration", "explore"]


@dataclass(frozen=True, slots=True)
class Exploration:
    """What all runs of a system have come to.

    Attributes:
        states: how many states the system itself can be in.
        configurations: how many there are with snapshots under way told apart.
        recorded: the different global states that snapshots can record.
        completions: how many different completions were checked: begun in one state, recorded one, complete in one.
        stuck: configurations at the end of a run in which a snapshot is not complete, and never will be: an observer
            waits for a message that nobody accepts. Markers wait for nobody.
    """

    states: int
    configurations: int
    recorded: tuple[GlobalState, ...]
    completions: int
    stuck: int


def explore(
    graph: ProcessGraph, snapshots: int = 1, limit: int = 50_000, *, rule: Callable[[ProcessGraph], System] = System
) -> Exploration:
    """Take every run of ``graph`` with up to ``snapshots`` snapshots, under way together or one after the other.

    Any process begins one at any time, with others that it takes for the markers to reach everybody, and any joins one
    before its markers come. Processes must be deterministic. ``limit`` is on the number of configurations.
    ``rule`` is as in ``Simulation``.

    >>> from dataflow.snapshots.processes import Automaton, ProcessGraph
    >>> from dataflow.snapshots.processes import Process, action
    >>> class Holder(Process):
    ...     def __init__(self, other: str, token: bool) -> None:
    ...         self.other, self.token = other, token
    ...     def receive(self, sender: str, message: str) -> None:
    ...         self.token = True
    ...     @action(when=lambda self: self.token)
    ...     def send(self):
    ...         self.token = False
    ...         return {self.other: "token"}
    >>> ring = ProcessGraph().add("p", Holder("q", True)).add("q", Holder("p", False)).connect("p", "q")
    >>> found = explore(ring)
    >>> found.states, len(found.recorded)
    (4, 4)

    Raises: InconsistentSnapshot, with the steps that lead to it; ConfigurationError past ``limit``.
    """
    return _Explorer(graph, snapshots, limit, rule).run()


class _Basic:
    """The states of the system itself, and which can be reached from which."""

    def __init__(self, graph: ProcessGraph, limit: int) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._shown: dict[Hashable, list[int]] = {}
        self._next: list[set[int]] = []
        self._reached: dict[int, set[int]] = {}
        start = System(graph)
        todo = deque([(start, self._add(start))])
        while todo:
            system, number = todo.popleft()
            for step in system.enabled():
                following = _copy(system)
                following.step(step)
                known = len(self._numbers)
                to = self._add(following)
                self._next[number].add(to)
                if to == known:
                    _check_limit(known, limit)
                    todo.append((following, to))

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, system: System) -> int:
        """The number of the state in which ``system`` is."""
        return self._numbers[system.basic_content]

    def leads(self, begin: int, recorded: GlobalState, end: int) -> bool:
        """Whether a state that looks like ``recorded`` can be reached from ``begin``, and ``end`` from it."""
        from_begin = self._from(begin)
        return any(
            state in from_begin and end in self._from(state) for state in self._shown.get(shown_content(recorded), ())
        )

    def _add(self, system: System) -> int:
        content = system.basic_content
        if content not in self._numbers:
            self._shown.setdefault(shown_content(system.state), []).append(len(self._numbers))
            self._numbers[content] = len(self._numbers)
            self._next.append(set())
        return self._numbers[content]

    def _from(self, start: int) -> set[int]:
        if start not in self._reached:
            found, new = {start}, [start]
            while new:
                following = self._next[new.pop()] - found
                found |= following
                new += following
            self._reached[start] = found
        return self._reached[start]


class _Explorer:
    def __init__(self, graph: ProcessGraph, snapshots: int, limit: int, rule: Callable[[ProcessGraph], System]) -> None:
        self._graph, self._snapshots, self._limit, self._rule = graph, snapshots, limit, rule
        self._basic = _Basic(graph, limit)
        self._found: dict[Hashable, tuple[Hashable, str]] = {}
        self._recorded: dict[Hashable, GlobalState] = {}
        self._checked: set[tuple[int, Hashable, int]] = set()
        self._stuck = 0

    def run(self) -> Exploration:
        start = self._rule(self._graph)
        key: Hashable = (start.content, ())
        self._found[key] = key, ""
        todo: deque[tuple[System, Hashable, dict[int, int]]] = deque([(start, key, {})])
        while todo:
            system, key, begun_in = todo.popleft()
            if system.under_way and not system.enabled():
                self._stuck += 1
            for said, following, began in self._following(system, begun_in):
                for number in sorted(following.snapshots.keys() - system.snapshots.keys()):
                    self._check(following, number, began[number], [*self._way(key), said])
                open_ = {number: began[number] for number in following.under_way}
                next_key = following.content, tuple(sorted(open_.items()))
                if next_key not in self._found:
                    self._found[next_key] = key, said
                    _check_limit(len(self._found), self._limit)
                    todo.append((following, next_key, open_))
        recorded = tuple(self._recorded.values())
        return Exploration(len(self._basic), len(self._found), recorded, len(self._checked), self._stuck)

    def _following(self, system: System, begun_in: dict[int, int]) -> Iterator[tuple[str, System, dict[int, int]]]:
        """Everything that can happen next: what it is, what comes of it, and in which state each snapshot was begun."""
        joins = [Join(number, name) for number in system.under_way for name in system.can_join(number)]
        for step in dict.fromkeys([*system.enabled(), *joins]):
            following = _copy(system)
            following.step(step)
            yield str(step), following, begun_in
        if len(system.under_way) + len(system.snapshots) < self._snapshots:
            for name in self._graph.processes:
                following = _copy(system)
                initiators = self._graph.reaching(name)
                number = following.snapshot(*initiators)
                yield f"{', '.join(initiators)} begins", following, {**begun_in, number: self._basic.number(system)}

    def _check(self, system: System, number: int, begin: int, way: Sequence[str]) -> None:
        state, end = system.snapshots[number], self._basic.number(system)
        content = shown_content(state)
        early = [c for c, items in system.channels.items() if Marker(number) in items]
        if early:
            raise InconsistentSnapshot(f"snapshot {number} is complete with its marker in {early[0]}; {_said(way)}")
        if (begin, content, end) not in self._checked:
            if not self._basic.leads(begin, state, end):
                raise InconsistentSnapshot(
                    f"no run leads from the state in which snapshot {number} was begun through what it recorded to "
                    f"the state in which it was complete:\n{state}\n{_said(way)}"
                )
            self._checked.add((begin, content, end))
            self._recorded.setdefault(content, state)

    def _way(self, key: Hashable) -> list[str]:
        way: list[str] = []
        while (before := self._found[key])[1]:
            key = before[0]
            way.append(before[1])
        return way[::-1]


def shown_content(state: GlobalState) -> Hashable:
    """What is in a global state, whoever recorded it."""
    return content_of([list(state.processes.values()), list(state.channels.values())])


def _copy(system: System) -> System:
    made = system.copy()
    made.trace = replace(made.trace, happenings=[])
    return made


def _said(way: Sequence[str]) -> str:
    return f"after: {'; '.join(way)}"


def _check_limit(number: int, limit: int) -> None:
    if number > limit:
        raise ConfigurationError(
            f"this system has more than {limit} configurations; make it smaller (fewer processes, messages, snapshots; "
            "a bound in the `when` of its actions; no counters in its states), or raise limit="
        )
