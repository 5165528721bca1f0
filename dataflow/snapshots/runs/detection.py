"""Detects a stable property of a running system: take snapshots until the predicate holds in one.

Source: Chandy and Lamport, *Distributed Snapshots* (1985), section 5. A predicate is stable if it holds in every state
that can be reached from one in which it holds: all processes have terminated, some are deadlocked, a token is lost. The
recorded state can be reached from the state in which the snapshot began, and the state in which it was complete can be
reached from the recorded state.

Guarantees, for a stable predicate: if it holds in the snapshot, it holds in the system when the snapshot is complete
and ever after; if it does not hold in the snapshot, it did not hold when the snapshot began.

A snapshot proves nothing about a predicate that is not stable, because the system may never have been in the recorded
state. Stability cannot be verified, but a run can refute it: ``detect`` takes one more snapshot, and warns.
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
    """A function of a global state; its result is used as a condition. See ``dataflow.snapshots.predicates``."""

    def __call__(self, state: GlobalState, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Detection:
    """The result of ``detect``: true in a condition if the predicate held.

    Attributes:
        answer: the predicate's result for ``state``, such as the cycle of a deadlock.
        state: the first snapshot in which the predicate held, or the last one if it held in none.
        snapshots: the number of snapshots up to and including ``state``.

    >>> print(Detection(answer=False, state=GlobalState({"p": 0}, {}), snapshots=3))
    not detected in 3 snapshots; the last one:
    global state
      p: 0
    """

    answer: Any
    state: GlobalState
    snapshots: int

    def __bool__(self) -> bool:
        return bool(self.answer)

    def __str__(self) -> str:
        result = f"detected: {self.answer}" if self else f"not detected in {self.snapshots} snapshots; the last one:"
        return f"{result}\n{self.state}"


def detect(
    predicate: Predicate,
    running: Simulation | Threads,
    *initiators: str,
    limit: int = 1000,
    timeout: float | None = None,
) -> Detection:
    """Take snapshots of ``running`` until ``predicate`` holds in one, the run is quiet, or ``limit`` is reached.

    Between snapshots, a simulation takes some steps; threads run all the time. If the predicate held, one more snapshot
    is taken, and a snapshot in which it held is compared with every later one.

    Args:
        predicate: called with each snapshot; a true result ends the search.
        running: the run: a ``Simulation``, or ``Threads`` that have been started.
        initiators: the processes that begin each snapshot. None: the run chooses them.
        limit: the maximum number of snapshots.
        timeout: seconds to wait for each snapshot of threads. None: no limit.

    Returns: a ``Detection``.

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
    >>> detection = detect(terminated, Simulation(graph, seed=1))
    >>> bool(detection), detection.state.processes
    (True, {'fuse': {'left': 0}, 'log': 9})

    Warns: UnstablePredicateWarning if the run shows that the predicate is not stable.

    Raises: ConfigurationError for another kind of run, or a limit below 1; any exception of the predicate, with the
        snapshot in its notes; any exception of the run's ``snapshot()``.
    """
    if not isinstance(running, (Simulation, Threads)):
        raise ConfigurationError(
            f"expected a Simulation or Threads, which run by themselves, got a {type(running).__name__}: call "
            "detect(predicate, Simulation(graph, seed=1)); for a System, call predicate(system.snapshots[number])"
        )
    if limit < 1:
        raise ConfigurationError(f"expected a limit of 1 snapshot or more, got {limit}")
    answers: list[tuple[GlobalState, Any]] = []
    while True:
        quiet = running.quiet
        state = _snapshot(running, initiators, timeout)
        answers.append((state, _evaluated(predicate, state)))
        if answers[-1][1]:
            break
        if quiet or len(answers) == limit:
            return Detection(answers[-1][1], state, len(answers))
        _advance(running)
    _advance(running)
    later = _snapshot(running, initiators, timeout)
    for before, after in refutations([*answers, (later, _evaluated(predicate, later))]):
        warnings.warn(
            f"{_name(predicate)} is not stable: it held in snapshot {before.snapshot} and not in the later snapshot "
            f"{after.snapshot}; so its result for a snapshot proves nothing about the running system",
            UnstablePredicateWarning,
            stacklevel=user_frame(),
        )
    return Detection(answers[-1][1], state, len(answers))


def refutations(answers: Iterable[tuple[GlobalState, Any]]) -> list[tuple[GlobalState, GlobalState]]:
    """Return the pairs of snapshots of one run that refute stability: it held in the first, not in the later second.

    A snapshot is later than another if its cut includes the other's: then a run leads from the one state to the other.
    Two snapshots of which neither includes the other prove nothing.

    Args:
        answers: snapshots, each with the predicate's result for it.

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


def _evaluated(predicate: Predicate, state: GlobalState) -> Any:
    try:
        return predicate(state)
    except Exception as error:
        error.add_note(f"in {_name(predicate)}, evaluated on {state}")
        raise


def _name(predicate: Callable[..., Any]) -> str:
    return f"predicate {getattr(predicate, '__name__', None) or repr(predicate)}"
