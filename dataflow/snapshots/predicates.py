"""Stable predicates of global states: termination, deadlock, lost tokens, garbage. What holds, holds for ever.

Each answers something that is true in a condition where it holds, and says what it found. To run snapshots until one
holds: ``dataflow.snapshots.runs.detect``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dataflow.snapshots.processes import Channel, GlobalState

__all__ = ["Deadlock", "Tokens", "deadlocked", "garbage", "terminated"]


def terminated(state: GlobalState) -> bool:
    """Whether all processes are passive, and all channels empty.

    A process is passive when none of its ``action``s that accept no message could happen: ``when`` says it. Stable,
    since what is passive acts only on a message, and there is none. Actions that need arguments do not count: they
    come from outside.

    >>> terminated(GlobalState({"p": 0}, {Channel("p", "p"): ()})), terminated(GlobalState({}, {}, active=("p",)))
    (True, False)
    """
    return not state.active and not state.in_flight


@dataclass(frozen=True, slots=True)
class Deadlock:
    """A cycle of processes, each of which waits for the next, and the last for the first."""

    cycle: tuple[str, ...]

    def __str__(self) -> str:
        return " waits for ".join([*self.cycle, self.cycle[0]])


def deadlocked(
    state: GlobalState, waits_for: Callable[[Any], str | Iterable[str] | None] | None = None
) -> Deadlock | None:
    """A cycle of processes that wait for each other, or None.

    A process says in its state whom it waits for: attribute ``waits_for`` is a name, several, or None. It goes on when
    *each* of them has sent it a message, and sends these nothing before. ``waits_for=`` says it of other states.
    Nobody waits for one whose message is in the channel already, so the cycle is a deadlock, and stable.

    >>> recorded = {"p": {"waits_for": "q"}, "q": {"waits_for": ["p"]}, "r": {"waits_for": "p"}}
    >>> print(deadlocked(GlobalState(recorded, {Channel("p", "q"): (), Channel("q", "p"): ()})))
    p waits for q waits for p
    >>> deadlocked(GlobalState(recorded, {Channel("p", "q"): (), Channel("q", "p"): ("reply",)}))
    """
    waiting: dict[str, list[str]] = {}
    for name, recorded in state.processes.items():
        names = _names((waits_for or _waits_for)(recorded))
        waiting[name] = [other for other in names if not state.channels.get(Channel(other, name))]
    done: set[str] = set()
    for name in waiting:
        if cycle := _cycle(waiting, name, done):
            return Deadlock(tuple(cycle))
    return None


@dataclass(frozen=True, slots=True)
class Tokens:
    """How many tokens there are: ``held`` of the state of a process, and ``carried`` by a message.

    >>> tokens = Tokens(held=lambda state: state["tokens"], carried=lambda message: 1)
    >>> state = GlobalState({"p": {"tokens": 2}, "q": {"tokens": 0}}, {Channel("p", "q"): ("token",)})
    >>> tokens(state), tokens.fewer_than(3)(state), tokens.fewer_than(4)(state), tokens.not_exactly(4)(state)
    (3, False, True, True)
    """

    held: Callable[[Any], int]
    carried: Callable[[Any], int] = lambda message: 1

    def __call__(self, state: GlobalState) -> int:
        """All tokens of ``state``, in processes and in channels."""
        return sum(map(self.held, state.processes.values())) + sum(map(self.carried, state.in_flight))

    def fewer_than(self, number: int) -> Callable[[GlobalState], bool]:
        """The predicate that tokens are lost. Stable where nobody makes new ones."""
        return lambda state: self(state) < number

    def not_exactly(self, number: int) -> Callable[[GlobalState], bool]:
        """The predicate that tokens are lost or made. Stable where only one of the two can happen."""
        return lambda state: self(state) != number


def garbage(
    at_least: int = 1,
    *,
    objects: Callable[[Any], Mapping[str, str | Iterable[str] | None]] = lambda state: (
        _attribute(state, "objects") or {}
    ),
    roots: Callable[[Any], str | Iterable[str] | None] = lambda state: _attribute(state, "roots"),
    carried: Callable[[Any], str | Iterable[str] | None] = lambda message: message,
) -> Callable[[GlobalState], list[str]]:
    """The predicate that there are ``at_least`` so many objects that nobody can ever reach; it answers all of them.

    ``objects`` says of the state of a process which objects it keeps, each with the names of those it refers to;
    ``roots`` which names the process knows itself; ``carried`` which names are in a message: one, several, or None.
    Stable where garbage is not collected, for nobody can find a name that nobody has.

    >>> state = GlobalState({"p": {"roots": ["a"], "objects": {"a": ["b"], "b": [], "c": ["b"], "d": []}}},
    ...                     {Channel("p", "p"): (["d"],)})
    >>> garbage()(state), garbage(at_least=2)(state)
    (['c'], [])
    """

    def found(state: GlobalState) -> list[str]:
        references: dict[str, list[str]] = {}
        reached: set[str] = set()
        new: list[str] = [name for message in state.in_flight for name in _names(carried(message))]
        for recorded in state.processes.values():
            for name, others in objects(recorded).items():
                references.setdefault(name, []).extend(_names(others))
            new += _names(roots(recorded))
        while new:
            name = new.pop()
            if name not in reached:
                reached.add(name)
                new += references.get(name, [])
        unreached = [name for name in references if name not in reached]
        return unreached if len(unreached) >= at_least else []

    found.__name__ = f"garbage(at_least={at_least})"
    return found


def _attribute(state: Any, name: str) -> Any:
    return state.get(name) if isinstance(state, Mapping) else getattr(state, name, None)


def _waits_for(state: Any) -> Any:
    return _attribute(state, "waits_for")


def _names(value: str | Iterable[str] | None) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def _cycle(waiting: Mapping[str, Iterable[str]], start: str, done: set[str]) -> list[str]:
    """The first cycle on the ways from ``start``; ``done`` are those from which no way leads to one."""
    way = {start: iter(waiting[start])} if start not in done else {}
    while way:
        name, others = next(reversed(way.items()))
        other = next(others, None)
        if other is None:
            del way[name]
            done.add(name)
        elif other in way:
            names = list(way)
            return names[names.index(other) :]
        elif other not in done:
            way[other] = iter(waiting.get(other, ()))
    return []
