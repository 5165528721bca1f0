"""Stable predicates of global states: termination, deadlock, lost tokens, garbage.

A stable predicate that holds in a state holds in every state that can be reached from it (Chandy and Lamport,
*Distributed Snapshots*, 1985, section 5). Each function returns a value that is true in a condition if the predicate
holds, such as the cycle of a deadlock. ``dataflow.snapshots.runs.detect`` takes snapshots until one holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dataflow.snapshots.processes import Channel, GlobalState

__all__ = ["Deadlock", "Tokens", "deadlocked", "garbage", "terminated"]


def terminated(state: GlobalState) -> bool:
    """Return whether all processes are passive and all channels are empty.

    A process is passive if ``when`` is false for each of its actions that accept no message. This is stable, because a
    passive process acts only on a message, and there is none. Actions that require arguments do not count, because
    the arguments come from outside.

    >>> terminated(GlobalState({"p": 0}, {Channel("p", "p"): ()})), terminated(GlobalState({}, {}, active=("p",)))
    (True, False)
    """
    return not state.active and not state.in_flight


@dataclass(frozen=True, slots=True)
class Deadlock:
    """A cycle of processes: each waits for the next, and the last one for the first.

    >>> print(Deadlock(("p", "q")))
    p waits for q waits for p
    """

    cycle: tuple[str, ...]

    def __str__(self) -> str:
        return " waits for ".join([*self.cycle, self.cycle[0]])


def deadlocked(
    state: GlobalState, waits_for: Callable[[Any], str | Iterable[str] | None] | None = None
) -> Deadlock | None:
    """Return a cycle of processes that wait for each other, or None.

    A waiting process continues when *each* process that it waits for has sent it a message; until then, it sends
    these processes nothing. A process whose message is already in the channel is not waited for any more. So the cycle
    is a deadlock, and the predicate is stable.

    Args:
        state: a global state.
        waits_for: maps the state of a process to a name, several names, or None. By default it is the attribute or key
            ``waits_for`` of the state.

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
    """A count of the tokens in processes and channels, and predicates of that count.

    Args:
        held: maps the state of a process to its number of tokens.
        carried: maps a message to its number of tokens. By default each message is one.

    >>> tokens = Tokens(held=lambda state: state["tokens"], carried=lambda message: 1)
    >>> state = GlobalState({"p": {"tokens": 2}, "q": {"tokens": 0}}, {Channel("p", "q"): ("token",)})
    >>> tokens(state), tokens.fewer_than(3)(state), tokens.fewer_than(4)(state), tokens.not_exactly(4)(state)
    (3, False, True, True)
    """

    held: Callable[[Any], int]
    carried: Callable[[Any], int] = lambda message: 1

    def __call__(self, state: GlobalState) -> int:
        """Return the number of tokens of ``state``, in processes and in channels."""
        return sum(map(self.held, state.processes.values())) + sum(map(self.carried, state.in_flight))

    def fewer_than(self, number: int) -> Callable[[GlobalState], bool]:
        """Return the predicate that tokens are lost. It is stable if no process creates tokens."""
        return lambda state: self(state) < number

    def not_exactly(self, number: int) -> Callable[[GlobalState], bool]:
        """Return the predicate that tokens are lost or created. It is stable if only one of the two can happen."""
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
    """Return the predicate that at least ``at_least`` objects are unreachable; its value is the list of their names.

    It is stable if garbage is not collected, because no process can obtain a name that no process or message has.

    Args:
        at_least: the number of unreachable objects from which on the predicate holds.
        objects: maps the state of a process to the objects it keeps, each with the names it refers to. By default it is
            the attribute or key ``objects``.
        roots: maps the state of a process to the names that the process itself knows: one, several, or None. By
            default it is the attribute or key ``roots``.
        carried: maps a message to the names in it: one, several, or None. By default it is the message.

    >>> state = GlobalState({"p": {"roots": ["a"], "objects": {"a": ["b"], "b": [], "c": ["b"], "d": []}}},
    ...                     {Channel("p", "p"): (["d"],)})
    >>> garbage()(state), garbage(at_least=2)(state)
    (['c'], [])
    """

    def unreachable_objects(state: GlobalState) -> list[str]:
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

    unreachable_objects.__name__ = f"garbage(at_least={at_least})"
    return unreachable_objects


def _attribute(state: Any, name: str) -> Any:
    return state.get(name) if isinstance(state, Mapping) else getattr(state, name, None)


def _waits_for(state: Any) -> Any:
    return _attribute(state, "waits_for")


def _names(value: str | Iterable[str] | None) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def _cycle(waiting: Mapping[str, Iterable[str]], start: str, done: set[str]) -> list[str]:
    """Return the first cycle on a path from ``start``; ``done`` are the processes from which no path leads to one."""
    path = {start: iter(waiting[start])} if start not in done else {}
    while path:
        name, others = next(reversed(path.items()))
        other = next(others, None)
        if other is None:
            del path[name]
            done.add(name)
        elif other in path:
            names = list(path)
            return names[names.index(other) :]
        elif other not in done:
            path[other] = iter(waiting.get(other, ()))
    return []
