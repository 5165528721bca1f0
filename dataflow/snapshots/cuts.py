"""Cuts through a run: consistency, channel states, and the equivalent run that passes through the state of a cut.

A cut gives for each process the number of its events before the cut: these are *white*, the others *red*, as in
Dijkstra's EWD 864a. It is consistent if no white event accepted a message that a red one sent (Chandy and Lamport,
*Distributed Snapshots*, 1985, section 2). Then the run can be rearranged, by swaps of neighbours that do not affect
each other, into a run with all white events first. That run ends in the same state, and between white and red it is in
the global state of the cut, although the original run may never have been (EWD 864a; theorem 1 of the 1985 paper).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dataflow.errors import GraphError
from dataflow.snapshots.processes import Channel
from dataflow.snapshots.traces import Event, MessageId, Trace

__all__ = ["Consistency", "Reordering", "Swap", "channel_states", "consistent_cuts", "equivalent", "is_consistent"]

Cut = Mapping[str, int]
"""The number of events of each process before the cut."""


@dataclass(frozen=True, slots=True)
class Consistency:
    """The result of ``is_consistent``: true in a condition if the cut is consistent.

    Attributes:
        violations: pairs of a red event that sent a message, and the white event that accepted it.

    >>> print(Consistency())
    consistent
    """

    violations: tuple[tuple[Event, Event], ...] = ()

    def __bool__(self) -> bool:
        return not self.violations

    def __str__(self) -> str:
        if self:
            return "consistent"
        reasons = [
            f"{accepted} is before the cut, and {sent}, which sent it, is not" for sent, accepted in self.violations
        ]
        return "inconsistent: " + "; ".join(reasons)


def is_consistent(trace: Trace, cut: Cut) -> Consistency:
    """Return whether every message that was accepted before ``cut`` was also sent before it.

    Args:
        trace: the run.
        cut: for each process of the run, the number of its events before the cut.

    Returns: a ``Consistency``, with the messages that violate it.

    Raises: GraphError if ``cut`` does not give a possible number for each process.

    >>> from dataflow.snapshots.processes import Process, ProcessGraph, action
    >>> from dataflow.snapshots.runs.system import System
    >>> class Peer(Process):
    ...     @action
    ...     def send(self):
    ...         return {"q": "m"}
    ...     def receive(self, sender, message): ...
    >>> run = System(ProcessGraph().add("p", Peer()).add("q", Peer()).channel("p", "q"))
    >>> run.act("p", "send"), run.deliver("p", "q")
    (None, 'm')
    >>> print(is_consistent(run.trace, {"p": 1, "q": 0}), is_consistent(run.trace, {"p": 0, "q": 1}), sep="; ")
    consistent; inconsistent: q.1 receive < p: 'm' is before the cut, and p.1 send > q: 'm', which sent it, is not
    """
    _check(trace, cut)
    violations: list[tuple[Event, Event]] = []
    for channel in trace.channels:
        sent, accepted = _crossed(trace, cut, channel)
        for red, white in zip(trace.sent(channel)[sent:accepted], trace.accepted(channel)[sent:accepted], strict=True):
            violations.append((red[0], white))
    return Consistency(tuple(violations))


def channel_states(trace: Trace, cut: Cut) -> dict[Channel, tuple[object, ...]]:
    """Return the messages in each channel at ``cut``: sent before it, and not accepted before it.

    Args:
        trace: the run.
        cut: for each process of the run, the number of its events before the cut.

    Raises: GraphError if the cut is not consistent, with the events that violate it, or not one of this run.

    >>> from dataflow.snapshots.traces import MessageId
    >>> channel = Channel("p", "q")
    >>> trace = Trace(["p", "q"], [channel], {}, [Event("p", 1, "send", sent=((MessageId(channel, 1), "m"),))])
    >>> channel_states(trace, {"p": 0, "q": 0}), channel_states(trace, {"p": 1, "q": 0})
    ({p -> q: ()}, {p -> q: ('m',)})
    """
    _check_consistent(trace, cut)
    states: dict[Channel, tuple[object, ...]] = {}
    for channel in trace.channels:
        sent, accepted = _crossed(trace, cut, channel)
        states[channel] = tuple(value for _, value in trace.sent(channel)[accepted:sent])
    return states


def consistent_cuts(trace: Trace) -> Iterator[dict[str, int]]:
    """Yield every consistent cut of a run once, those with fewer events first. There may be exponentially many.

    It traverses the lattice of consistent cuts level by level (Cooper and Marzullo, *Consistent Detection of Global
    Predicates*, 1991); vector clocks decide whether an event can be added to a cut.

    Args:
        trace: the run.

    >>> send, receive = Event("p", 1, "send", clock={"p": 1}), Event("q", 1, "receive", clock={"p": 1, "q": 1})
    >>> list(consistent_cuts(Trace(["p", "q"], [], {}, [send, receive])))
    [{'p': 0, 'q': 0}, {'p': 1, 'q': 0}, {'p': 1, 'q': 1}]
    """
    events = {process: trace.of(process) for process in trace.processes}
    level: dict[tuple[int, ...], None] = {(0,) * len(trace.processes): None}
    while level:
        following: dict[tuple[int, ...], None] = {}
        for counts in level:
            cut = dict(zip(trace.processes, counts, strict=True))
            yield cut
            for i, process in enumerate(trace.processes):
                if counts[i] < len(events[process]):
                    clock = events[process][counts[i]].clock
                    if all([clock.get(other, 0) <= cut[other] for other in trace.processes if other != process]):
                        following[*counts[:i], counts[i] + 1, *counts[i + 1 :]] = None
        level = following


@dataclass(frozen=True, slots=True)
class Swap:
    """A swap of two neighbouring events of a run: ``red`` is at ``position``, ``white`` directly after it.

    Invariant: they are of different processes, and ``white`` accepts no message that ``red`` sends.

    >>> print(Swap(0, Event("p", 1, "work"), Event("q", 1, "rest")))
    p.1 work | q.1 rest
    """

    position: int
    red: Event
    white: Event

    def __str__(self) -> str:
        return f"{self.red} | {self.white}"

    def check(self) -> None:
        """Check that the swap is allowed. Raises: GraphError if it is not."""
        if self.red.process == self.white.process:
            raise GraphError(f"{self.red} and {self.white} are events of one process, so they cannot be swapped")
        sent: set[MessageId] = {identity for identity, _ in self.red.sent}
        if any([identity in sent for identity, _ in self.white.accepted]):
            raise GraphError(f"{self.white} accepts a message that {self.red} sends, so they cannot be swapped")


@dataclass(frozen=True, slots=True)
class Reordering:
    """A proof that a run could have passed through ``cut``: the ``swaps`` that turn ``before`` into ``after``.

    >>> work, rest = Event("p", 1, "work"), Event("q", 1, "rest")
    >>> proof = Reordering((work, rest), (Swap(0, work, rest),), (rest, work), {"p": 0, "q": 1})
    >>> proof.check()
    >>> proof.whites
    1
    """

    before: tuple[Event, ...]
    swaps: tuple[Swap, ...]
    after: tuple[Event, ...]
    cut: Cut

    @property
    def whites(self) -> int:
        """The number of events before the cut, which are the first events of ``after``."""
        return sum(self.cut.values())

    def check(self) -> None:
        """Repeat and check every swap.

        Raises: GraphError if one is not allowed, if they do not lead to ``after``, or if a red event precedes a white
            one in it.
        """
        events = list(self.before)
        for swap in self.swaps:
            pair = events[swap.position : swap.position + 2]
            if pair != [swap.red, swap.white]:
                raise GraphError(f"expected {swap.red} and {swap.white} at {swap.position}, found {_listed(pair)}")
            swap.check()
            events[swap.position : swap.position + 2] = swap.white, swap.red
        if tuple(events) != self.after:
            raise GraphError(f"the swaps lead to {_listed(events)}, not to {_listed(self.after)}")
        late = [event for event in events[self.whites :] if _is_white(event, self.cut)]
        if late:
            raise GraphError(
                f"expected the {self.whites} events before the cut first, found {_listed(late)} after them"
            )


def equivalent(trace: Trace, cut: Cut) -> Reordering:
    """Return the equivalent computation of EWD 864a: the events of ``trace``, white ones first, and the swaps.

    Each white event, the first one first, is swapped with the red ones directly before it.

    Args:
        trace: the run.
        cut: for each process of the run, the number of its events before the cut.

    Raises: GraphError if the cut is not consistent, with the events that violate it, or not one of this run.

    >>> trace = Trace(["p", "q"], [], {}, [Event("p", 1, "work"), Event("q", 1, "rest")])
    >>> print(*equivalent(trace, {"p": 0, "q": 1}).after, sep=", ")
    q.1 rest, p.1 work
    """
    _check_consistent(trace, cut)
    events = list(trace.events)
    swaps = []
    for start in range(len(events)):
        position = start
        while position and _is_white(events[position], cut) and not _is_white(events[position - 1], cut):
            swap = Swap(position - 1, events[position - 1], events[position])
            swap.check()
            swaps.append(swap)
            events[position - 1 : position + 1] = swap.white, swap.red
            position -= 1
    return Reordering(tuple(trace.events), tuple(swaps), tuple(events), dict(cut))


def _is_white(event: Event, cut: Cut) -> bool:
    return event.number <= cut[event.process]


def _listed(events: Sequence[Event]) -> str:
    return "; ".join(map(str, events)) or "nothing"


def _crossed(trace: Trace, cut: Cut, channel: Channel) -> tuple[int, int]:
    """Return how many messages of ``channel`` were sent before ``cut``, and how many were accepted before it."""
    return (
        bisect_right(trace.sent(channel), cut[channel.source], key=lambda entry: entry[0].number),
        bisect_right(trace.accepted(channel), cut[channel.target], key=lambda event: event.number),
    )


def _check(trace: Trace, cut: Cut) -> None:
    lengths = {process: len(trace.of(process)) for process in trace.processes}
    named = isinstance(cut, Mapping) and cut.keys() == lengths.keys()
    if not named or not all([isinstance(number, int) and 0 <= number <= lengths[p] for p, number in cut.items()]):
        raise GraphError(
            f"expected a cut that gives for each process the number of its events before it, from 0 to {lengths}, got "
            f"{cut!r}"
        )


def _check_consistent(trace: Trace, cut: Cut) -> None:
    consistency = is_consistent(trace, cut)
    if not consistency:
        raise GraphError(f"the cut {dict(cut)} is {consistency}")
