"""What barriers that overtake must do, by definition: a reference without an automaton.

As in ``test_against_a_reference``, the one thing kept is the list of events so far (here also the ticks of the clock),
and every question (what is pending, who is blocked, what is channel state) is answered by reading it from the start.
Only the queue remembers something more: an element that became urgent stays urgent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from dataflow.testing import Replay

BARRIER, CANCEL, END, ROW, TICK = "|^", "!", "$", ":", "+"


@dataclass
class Arrival:
    """Something queued."""

    token: str
    urgent: bool = False

    @property
    def channel(self) -> str:
        return self.token[0]

    @property
    def kind(self) -> str:
        return self.token[1]

    @property
    def number(self) -> int:
        return int(self.token[2:]) if self.kind in BARRIER + CANCEL else -1


@dataclass
class Event:
    """Something taken (or a tick), when, what was queued ahead of it on its channel, and what came of it."""

    token: str
    channel: str
    kind: str
    number: int
    now: int
    ahead: list[Arrival] = field(default_factory=list)
    outcome: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Setting:
    """How a script is replayed: the arguments of ``replay``."""

    mode: str
    channels: str
    timeout: float | None = None
    trigger_times: Mapping[int, int] = field(default_factory=dict)
    end_of_input: str = "aligned"
    aligned_edges: str = ""

    def is_late(self, n: int, now: int) -> bool:
        limit = math.inf if self.timeout is None else self.timeout
        return now > self.trigger_times.get(n, 0) + limit


def is_news(before: list[Event], n: int) -> bool:
    """Whether ``n`` is above every id that a barrier or cancel named."""
    return n > max((e.number for e in before if e.kind in BARRIER + CANCEL), default=0)


def pending(history: list[Event]) -> int | None:
    """The id a barrier opened that was neither given up, nor taken aligned, nor completed since: one at most."""
    found = [
        e.number for i, e in enumerate(history) if e.kind in BARRIER and e.number > 0 and is_news(history[:i], e.number)
    ]
    ends = {one for e in history for one in e.outcome}
    left = [
        n for n in found if not {f"D({n})", f"S({n}a)"} & ends and not any(one.startswith(f"A({n},") for one in ends)
    ]
    assert len(left) <= 1, f"two checkpoints are pending: {left}"
    return left[0] if left else None


def brought(history: list[Event], n: int) -> dict[str, int]:
    """Per channel, the place in ``history`` of its first barrier ``n``."""
    places: dict[str, int] = {}
    for i, e in enumerate(history):
        if e.kind in BARRIER and e.number == n:
            places.setdefault(e.channel, i)
    return places


def place_of(history: list[Event], outcome: str) -> int | None:
    return next((i for i, e in enumerate(history) if outcome in e.outcome), None)


def live(history: list[Event], setting: Setting) -> set[str]:
    return set(setting.channels) - {e.channel for e in history if e.kind == END}


def is_unaligned(history: list[Event], n: int, setting: Setting) -> bool:
    """Whether pending checkpoint ``n`` overtakes: by mode, by time, or because it did upstream."""
    places = brought(history, n).values()
    since = history[min(places) :]
    return (
        setting.mode == "unaligned-persisted"
        or any(setting.is_late(n, e.now) for e in since)
        or any(history[i].kind == "^" for i in places)
    )


def blocked(history: list[Event], setting: Setting) -> set[str]:
    n = pending(history)
    return set() if n is None or place_of(history, f"S({n}u)") is not None else set(brought(history, n))


def becomes_urgent(history: list[Event], arrival: Arrival, now: int, setting: Setting) -> bool:
    """Whether ``arrival`` may overtake, as things stand."""
    if arrival.kind == CANCEL:
        return True
    if arrival.kind not in BARRIER or arrival.channel in setting.aligned_edges:
        return False
    if setting.mode == "unaligned-persisted" or arrival.kind == "^":
        return True
    n = arrival.number
    if n == pending(history):
        return is_unaligned(history, n, setting)
    return is_news(history, n) and setting.is_late(n, now)


def decide(before: list[Event], event: Event, setting: Setting) -> list[str]:
    """What must come of ``event``."""
    n, current = event.number, pending(before)
    outcome: list[str] = []
    if event.kind in BARRIER:
        if n == current:
            if event.channel in brought(before, n):
                return [f"i({n})"]
        elif not is_news(before, n):
            return [f"i({n})"]
        elif current is not None:
            outcome.append(f"A({current},subsumed)")
        current = n
    elif event.kind == CANCEL:
        if n == current:
            return [f"A({n},cancel)"]
        if not is_news(before, n):
            return []
        still_to_come = any(one.kind in BARRIER and one.number == current for one in event.ahead)
        older = [] if current is None or still_to_come else [f"A({current},superseded)"]
        return [*older, f"A({n},cancel)"]
    elif event.kind == END and current is not None and setting.end_of_input == "abort":
        return [f"A({current},end-of-input)"]
    if current is None:
        return outcome
    after = [*before, event]
    here, there = set(brought(after, current)), live(after, setting)
    is_taken = place_of(before, f"S({current}u)") is not None
    if not is_taken and not is_unaligned(after, current, setting):
        return [*outcome, f"S({current}a)"] if there <= here else outcome
    if not is_taken and there & set(setting.aligned_edges) <= here:
        outcome.append(f"S({current}u)")
        is_taken = True
    if is_taken and there <= here:
        outcome.append(f"D({current})")
    return outcome


def captured(history: list[Event], n: int, setting: Setting) -> dict[str, list[str]]:
    """The rows taken between snapshot and barrier, and those the barrier overtook, of a checkpoint that completed."""
    taken, done, places = place_of(history, f"S({n}u)"), place_of(history, f"D({n})"), brought(history, n)
    assert taken is not None
    assert done is not None
    found: dict[str, list[str]] = {}
    for channel in setting.channels:
        place = places.get(channel, done)
        passed = [e.token for e in history[taken + 1 : place] if e.channel == channel and e.kind == ROW]
        overtaken = [one.token for one in history[place].ahead if one.kind == ROW] if channel in places else []
        if rows := [token[2:] for token in passed + overtaken]:
            found[channel] = rows
    return found


def play(script: str, setting: Setting) -> tuple[Replay, list[Event]]:
    """Play ``script`` by the definitions."""
    history: list[Event] = []
    queue: list[Arrival] = []
    seen = Replay()
    now, busy = 0, False
    for token in script.split():
        if token in "[]":
            busy = token == "["
        elif token[0] == "+":
            now += int(token[1:])
        else:
            queue.append(Arrival(token))
        if not busy:
            drain(history, queue, seen, now, setting)
    for n in [int(one[2:-1]) for e in history for one in e.outcome if one.startswith("D(")]:
        if rows := captured(history, n, setting):
            seen.captured[n] = rows
    return seen, history


def drain(history: list[Event], queue: list[Arrival], seen: Replay, now: int, setting: Setting) -> None:
    """A tick, then everything that can be taken."""
    tick = Event("tick", "", TICK, -1, now)
    tick.outcome = decide(history, tick, setting)
    history.append(tick)
    note(seen, tick)
    while True:
        for arrival in queue:
            arrival.urgent = arrival.urgent or becomes_urgent(history, arrival, now, setting)
        waiting = blocked(history, setting)
        ready = [one for one in queue if one.urgent] or [one for one in queue if one.channel not in waiting]
        if not ready:
            return
        first = ready[0]
        ahead = [one for one in queue[: queue.index(first)] if one.channel == first.channel]
        queue.remove(first)
        event = Event(first.token, first.channel, first.kind, first.number, now, ahead)
        event.outcome = [] if first.kind == ROW else decide(history, event, setting)
        history.append(event)
        note(seen, event)
        if held := blocked(history, setting):
            seen.blocked.append((event.token, "".join(name for name in setting.channels if name in held)))


def note(seen: Replay, event: Event) -> None:
    """Write ``event`` into the log, and into what was sent."""
    if event.kind == ROW:
        seen.log.append(event.token[2:])
        seen.sent.append(event.token[2:])
    if event.kind == END:
        seen.log.append(event.token)
    for one in event.outcome:
        seen.log.append(one)
        if one[0] == "S":
            seen.sent.append(f"B({one[2:-2]})")
        if one[0] == "A":
            seen.sent.append(f"X({one[2:].split(',')[0]})")
