"""Explores every run of a small system: all orders of steps, and all times to begin or join a snapshot.

States are distinguished by content, so the exploration of a system with finitely many states ends, even if its runs do
not. Each snapshot of each run is checked against theorem 1 of Chandy and Lamport, *Distributed Snapshots* (1985): the
recorded state can be reached from the state in which the snapshot began, and the state in which it was complete can be
reached from the recorded state.
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
    """The result of ``explore``.

    Attributes:
        states: the number of states of the system itself.
        configurations: the number of states including the progress of snapshots.
        recorded: the different global states that snapshots can record.
        completions: the number of different snapshots checked, by the states at the beginning, recorded and at the end.
        stuck: the number of configurations that end a run with a snapshot that will never be complete, because an
            observer waits for a message that no process accepts. Always 0 for snapshots by markers.

    >>> from dataflow.snapshots.processes import Process, ProcessGraph
    >>> exploration = explore(ProcessGraph().add("p", Process()))
    >>> exploration.states, exploration.configurations, exploration.completions
    (1, 2, 1)
    """

    states: int
    configurations: int
    recorded: tuple[GlobalState, ...]
    completions: int
    stuck: int


def explore(
    graph: ProcessGraph, snapshots: int = 1, limit: int = 50_000, *, rule: Callable[[ProcessGraph], System] = System
) -> Exploration:
    """Take every run of ``graph`` with up to ``snapshots`` snapshots, in progress together or one after the other.

    Any process begins a snapshot at any time, together with the processes that are needed for markers to reach all, and
    any process joins a snapshot before its first marker arrives.

    Args:
        graph: the system. Processes must be deterministic.
        snapshots: the maximum number of snapshots in a run.
        limit: the maximum number of configurations.
        rule: the algorithm: ``System`` for markers, ``ObservedSystem`` for an observer.

    Returns: an ``Exploration``.

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
    >>> exploration = explore(ring)
    >>> exploration.states, len(exploration.recorded)
    (4, 4)

    Raises: InconsistentSnapshot with the steps that lead to it; ConfigurationError if there are more than ``limit``
        configurations.
    """
    return _Explorer(graph, snapshots, limit, rule).run()


class _Basic:
    """The states of the system itself, without snapshots, and the reachability between them."""

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
        """Return the number of the current state of ``system``."""
        return self._numbers[system.basic_content]

    def leads(self, begin: int, recorded: GlobalState, end: int) -> bool:
        """Return whether a run leads from ``begin`` through a state with the content of ``recorded`` to ``end``."""
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
            reached, new = {start}, [start]
            while new:
                following = self._next[new.pop()] - reached
                reached |= following
                new += following
            self._reached[start] = reached
        return self._reached[start]


class _Explorer:
    """A breadth-first search over configurations: states of the system with the progress of its snapshots."""

    def __init__(self, graph: ProcessGraph, snapshots: int, limit: int, rule: Callable[[ProcessGraph], System]) -> None:
        self._graph, self._snapshots, self._limit, self._rule = graph, snapshots, limit, rule
        self._basic = _Basic(graph, limit)
        self._visited: dict[Hashable, tuple[Hashable, str]] = {}
        """For each configuration, the one before it and the step between them."""
        self._recorded: dict[Hashable, GlobalState] = {}
        self._checked: set[tuple[int, Hashable, int]] = set()
        self._stuck = 0

    def run(self) -> Exploration:
        """Run the search and return its result."""
        start = self._rule(self._graph)
        key: Hashable = (start.content, ())
        self._visited[key] = key, ""
        todo: deque[tuple[System, Hashable, dict[int, int]]] = deque([(start, key, {})])
        while todo:
            system, key, begun_in = todo.popleft()
            if system.under_way and not system.enabled():
                self._stuck += 1
            for step, following, began in self._following(system, begun_in):
                for number in sorted(following.snapshots.keys() - system.snapshots.keys()):
                    self._check(following, number, began[number], [*self._path(key), step])
                open_ = {number: began[number] for number in following.under_way}
                next_key = following.content, tuple(sorted(open_.items()))
                if next_key not in self._visited:
                    self._visited[next_key] = key, step
                    _check_limit(len(self._visited), self._limit)
                    todo.append((following, next_key, open_))
        recorded = tuple(self._recorded.values())
        return Exploration(len(self._basic), len(self._visited), recorded, len(self._checked), self._stuck)

    def _following(self, system: System, begun_in: dict[int, int]) -> Iterator[tuple[str, System, dict[int, int]]]:
        """Yield every possible next step as text, the system after it, and the state in which each snapshot began."""
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

    def _check(self, system: System, number: int, begin: int, path: Sequence[str]) -> None:
        state, end = system.snapshots[number], self._basic.number(system)
        content = shown_content(state)
        early = [c for c, items in system.channels.items() if Marker(number) in items]
        if early:
            raise InconsistentSnapshot(
                f"snapshot {number} is complete, but its marker is still in {early[0]}; {_after(path)}"
            )
        if (begin, content, end) not in self._checked:
            if not self._basic.leads(begin, state, end):
                raise InconsistentSnapshot(
                    f"no run leads from the state in which snapshot {number} began through the state it recorded to "
                    f"the state in which it was complete:\n{state}\n{_after(path)}"
                )
            self._checked.add((begin, content, end))
            self._recorded.setdefault(content, state)

    def _path(self, key: Hashable) -> list[str]:
        path: list[str] = []
        while (before := self._visited[key])[1]:
            key = before[0]
            path.append(before[1])
        return path[::-1]


def shown_content(state: GlobalState) -> Hashable:
    """Return the hashable content of a global state, without its cut, number and initiators."""
    return content_of([list(state.processes.values()), list(state.channels.values())])


def _copy(system: System) -> System:
    copied = system.copy()
    copied.trace = replace(copied.trace, happenings=[])
    return copied


def _after(path: Sequence[str]) -> str:
    return f"after: {'; '.join(path)}"


def _check_limit(number: int, limit: int) -> None:
    if number > limit:
        raise ConfigurationError(
            f"this system has more than {limit} configurations; make it smaller (fewer processes, messages, snapshots; "
            "a bound in the `when` of its actions; no counters in its states), or raise limit="
        )
