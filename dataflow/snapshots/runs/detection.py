"""Detect that a running system has come to hold a stable property: take snapshots until one of them says so.

A predicate is stable when it holds in every state that can be reached from one in which it holds: all have terminated,
some are deadlocked, a token is lost. By the theorem of Chandy and Lamport a snapshot can be reached from the state in
which it was begun, and the state in which it is complete can be reached from the snapshot. So if a stable predicate
holds in the snapshot, it holds in the system from the snapshot's end on; and if it does not hold in the snapshot, it
did not hold when the snapshot was begun.

Of a predicate that is not stable, a snapshot says nothing: the system may never have been in the recorded state. Nobody
can see that a predicate is stable, but a run can show that it is not: ``detect`` takes one more snapshot, and warns.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from dataflow.errors import ConfigurationError, UnstablePredicateWarning, user_frame
from dataflow.snapshots.processes import GlobalState
from dataflow.snapshots.runs.simulation import Simulation
from dataflow.snapshots.runs.threads import Threads

__all__ = ["Detection", "Predicate", "detect", "refutations"]


class Predicate(Protocol):
    """A function of a global state; its result is read as a condition. See ``dataflow.snapshots.predicates``."""

    def __call__(self, state: GlobalState, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Detection:
    """What came of ``detect``: true in a condition where the predicate held.

    Attributes:
        answer: what the predicate answered of ``state``, such as the cycle of a deadlock.
        state: the last snapshot that counts: the first in which the predicate held.
        snapshots: how many were taken before and with it.
    """

    answer: Any
    state: GlobalState
    snapshots: int

    def __bool__(self) -> bool:
        return bool(self.answer)

    def __str__(self) -> str:
        said = (
            f"detected: {self.answer}" if self else f"not detected in {self.snapshots} snapshots, the last of which is"
        )
        return f"{said}\n{self.state}"


def detect(
    predicate: Predicate,
    running: Simulation | Threads,
    *initiators: str,
    limit: int = 1000,
    timeout: float | None = None,
) -> Detection:
    """Take snapshots of ``running`` until ``predicate`` holds in one, it is quiet, or there were ``limit``.

    Each is begun by ``initiators``; where there are none, by whoever the run chooses. Between snapshots, a simulation
    takes some steps, and threads are at work all the time. ``timeout``, in seconds, is for each snapshot of threads.
    Where the predicate held, one snapshot more is taken, and all that began behind others are held against these.

    >>> from dataflow.snapshots.predicates import terminated
    >>> from dataflow.snapshots.processes import Automaton, ProcessGraph, Process, action
    >>> class Fuse(Process):
    ...     def __init__(self) -> None:
    ...         self.left = 9
    ...     @action(when=lambda self: self.left > 0)
    ...     def burn(self):
    ...         self.left -= 1
    ...         return {"log": self.left}
    >>> graph = ProcessGraph().add("fuse", Fuse())
    >>> graph = graph.add("log", Automaton(0, lambda state, sender, message: (state + 1, None))).connect("fuse", "log")
    >>> found = detect(terminated, Simulation(graph, seed=1))
    >>> bool(found), found.state.processes
    (True, {'fuse': {'left': 0}, 'log': 9})

    Warns: UnstablePredicateWarning, where the run shows that the predicate is not stable.
    Raises: what the predicate raises, with the snapshot in its notes; what ``snapshot`` of the run raises.
    """
    if not isinstance(running, (Simulation, Threads)):
        raise ConfigurationError(
            f"expected a Simulation or Threads, which go on by themselves, got a {type(running).__name__}: "
            "detect(predicate, Simulation(graph, seed=1)); of a System, ask predicate(system.snapshots[number])"
        )
    if limit < 1:
        raise ConfigurationError(f"expected a limit of 1 snapshot or more, got {limit}")
    answers: list[tuple[GlobalState, Any]] = []
    while True:
        quiet = running.quiet
        state = _snapshot(running, initiators, timeout)
        answers.append((state, _asked(predicate, state)))
        if answers[-1][1]:
            break
        if quiet or len(answers) == limit:
            return Detection(answers[-1][1], state, len(answers))
        _advance(running)
    _advance(running)
    later = _snapshot(running, initiators, timeout)
    for before, behind in refutations([*answers, (later, _asked(predicate, later))]):
        warnings.warn(
            f"{_name(predicate)} is not stable: it held in snapshot {before.snapshot} and did not in snapshot "
            f"{behind.snapshot}, which comes later; what it says of a snapshot says nothing of the system",
            UnstablePredicateWarning,
            stacklevel=user_frame(),
        )
    return Detection(answers[-1][1], state, len(answers))


def refutations(answers: Iterable[tuple[GlobalState, Any]]) -> list[tuple[GlobalState, GlobalState]]:
    """What shows that a predicate is not stable: snapshots of one run, of which it held in the earlier one alone.

    One is later than another when its cut includes the other's: then a run leads from the one state to the other. Of
    snapshots of which neither includes the other, nothing follows.

    >>> state = lambda *cut: GlobalState({}, {}, dict(zip("pq", cut)))
    >>> refutations([(state(0, 1), True), (state(1, 0), False)])
    []
    >>> len(refutations([(state(0, 1), True), (state(1, 1), False)]))
    1
    """
    known = list(answers)
    return [(a, b) for a, held in known if held for b, holds in known if not holds and _includes(b.cut, a.cut)]


def _includes(later: Mapping[str, int], earlier: Mapping[str, int]) -> bool:
    return all([later[process] >= number for process, number in earlier.items()])


def _snapshot(running: Simulation | Threads, initiators: Iterable[str], timeout: float | None) -> GlobalState:
    if isinstance(running, Threads):
        return running.snapshot(*initiators, timeout=timeout)
    return running.snapshot(*initiators)


def _advance(running: Simulation | Threads) -> None:
    if isinstance(running, Simulation):
        running.advance()


def _asked(predicate: Predicate, state: GlobalState) -> Any:
    try:
        return predicate(state)
    except Exception as error:
        error.add_note(f"in {_name(predicate)}, asked of {state}")
        raise


def _name(predicate: Callable[..., Any]) -> str:
    return f"predicate {getattr(predicate, '__name__', None) or repr(predicate)}"
