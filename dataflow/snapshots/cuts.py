"""Cuts through a run: which are consistent, and the run that passes through what a snapshot recorded.

A cut says of each process how many of its events lie before it: those are *white*, the others *red*, as in Dijkstra's
EWD 864a. It is consistent when no white event accepted a message that a red one sent. Then the run can be rearranged,
by swaps of neighbours that have no effect on each other, into one in which all white events come first. It ends where
the run ended, and between white and red it passes through the global state of the cut, though the run itself may never
have been in it.
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


@dataclass(frozen=True, slots=True)
class Consistency:
    """Whether a cut is consistent: true in a condition, and what is wrong where it is not.

    ``violations`` are pairs of a red event, which sent a message, and the white one that accepted it.
    """

    violations: tuple[tuple[Event, Event], ...] = ()

    def __bool__(self) -> bool:
        return not self.violations

    def __str__(self) -> str:
        if self:
            return "consistent"
        said = [
            f"{accepted} is before the cut, and {sent}, which sent it, is not" for sent, accepted in self.violations
        ]
        return "inconsistent: " + "; ".join(said)


def is_consistent(trace: Trace, cut: Cut) -> Consistency:
    """Whether ``cut`` leaves no message that was accepted before it and sent behind it.

    Raises: GraphError for a cut that does not say of each process how many of its events lie before it.
    """
    _check(trace, cut)
    violations: list[tuple[Event, Event]] = []
    for channel in trace.channels:
        sent, accepted = _crossed(trace, cut, channel)
        for red, white in zip(trace.sent(channel)[sent:accepted], trace.accepted(channel)[sent:accepted], strict=True):
            violations.append((red[0], white))
    return Consistency(tuple(violations))


def channel_states(trace: Trace, cut: Cut) -> dict[Channel, tuple[object, ...]]:
    """What is in each channel at ``cut``: sent before it, and not accepted before it.

    Raises: GraphError for a cut that is not consistent, with the events that show it.
    """
    _check_consistent(trace, cut)
    found: dict[Channel, tuple[object, ...]] = {}
    for channel in trace.channels:
        sent, accepted = _crossed(trace, cut, channel)
        found[channel] = tuple(value for _, value in trace.sent(channel)[accepted:sent])
    return found


def consistent_cuts(trace: Trace) -> Iterator[dict[str, int]]:
    """Every consistent cut of a run, each once, those with fewer events first. There may be exponentially many."""
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
    """Two neighbours of a run that change places: ``red`` was at ``position``, ``white`` right behind it.

    They are of different processes, and ``red`` sent nothing that ``white`` accepts.
    """

    position: int
    red: Event
    white: Event

    def __str__(self) -> str:
        return f"{self.red} | {self.white}"

    def check(self) -> None:
        """Raises: GraphError where the swap is not allowed."""
        if self.red.process == self.white.process:
            raise GraphError(f"{self.red} and {self.white} are of one process: their order stands")
        sent: set[MessageId] = {identity for identity, _ in self.red.sent}
        if any([identity in sent for identity, _ in self.white.accepted]):
            raise GraphError(f"{self.white} accepts what {self.red} sends: their order stands")


@dataclass(frozen=True, slots=True)
class Reordering:
    """The proof that a run could have passed through ``cut``: ``swaps`` that make ``after`` of ``before``."""

    before: tuple[Event, ...]
    swaps: tuple[Swap, ...]
    after: tuple[Event, ...]
    cut: Cut

    @property
    def whites(self) -> int:
        """How many events lie before the cut: the first of ``after``."""
        return sum(self.cut.values())

    def check(self) -> None:
        """Make every swap once more.

        Raises: GraphError where one is not allowed, they do not lead to ``after``, or not all white events come first.
        """
        events = list(self.before)
        for swap in self.swaps:
            found = events[swap.position : swap.position + 2]
            if found != [swap.red, swap.white]:
                raise GraphError(f"expected {swap.red} and {swap.white} at {swap.position}, found {_listed(found)}")
            swap.check()
            events[swap.position : swap.position + 2] = swap.white, swap.red
        if tuple(events) != self.after:
            raise GraphError(f"the swaps lead to {_listed(events)}, not to {_listed(self.after)}")
        late = [event for event in events[self.whites :] if _is_white(event, self.cut)]
        if late:
            raise GraphError(f"{_listed(late)} of the cut {dict(self.cut)} come behind the first {self.whites} events")


def equivalent(trace: Trace, cut: Cut) -> Reordering:
    """The equivalent computation of EWD 864a: the events of ``trace``, white ones first, and the swaps that lead there.

    Each white event moves forward past the red ones ahead of it, the first one first. Raises: GraphError for a cut that
    is not consistent, with the events that show it.
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
    """How many messages of ``channel`` were sent before ``cut``, and how many accepted."""
    return (
        bisect_right(trace.sent(channel), cut[channel.source], key=lambda entry: entry[0].number),
        bisect_right(trace.accepted(channel), cut[channel.target], key=lambda event: event.number),
    )


def _check(trace: Trace, cut: Cut) -> None:
    lengths = {process: len(trace.of(process)) for process in trace.processes}
    named = isinstance(cut, Mapping) and cut.keys() == lengths.keys()
    if not named or not all([isinstance(number, int) and 0 <= number <= lengths[p] for p, number in cut.items()]):
        raise GraphError(
            f"expected a cut that says of each process how many of its events lie before it, at most {lengths}, got "
            f"{cut!r}"
        )


def _check_consistent(trace: Trace, cut: Cut) -> None:
    found = is_consistent(trace, cut)
    if not found:
        raise GraphError(f"the cut {dict(cut)} is {found}")
