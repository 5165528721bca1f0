"""Random scripts: ``replay`` against a reference that has no automaton, and against the invariants.

The reference keeps one thing, the list of events taken so far, and answers every question (who is blocked, what is
pending, what is a duplicate) by reading that list from the start. It is slow and shares no idea with the handlers.
``HYPOTHESIS_PROFILE=thorough`` and ``-m soak`` look longer.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.testing import Replay, replay

# --- random scripts ------------------------------------------------------------------------------------------------


def script_of(rng: random.Random) -> tuple[str, str]:
    """Channels and a script: ids with gaps, repeats and steps back, cancels, ends, and a busy operator."""
    channels = "abcde"[: rng.randint(1, 5)]
    sanity = rng.random()
    tokens: list[str] = []
    ended: set[str] = set()
    highest = dict.fromkeys(channels, 0)
    busy = False
    for number in range(rng.randint(0, 40)):
        open_channels = [name for name in channels if name not in ended]
        if rng.random() < 0.12:
            tokens.append("]" if busy else "[")
            busy = not busy
        if not open_channels:
            break
        name = rng.choice(open_channels)
        what = rng.random()
        if what < 0.45:
            tokens.append(f"{name}:{number}")
        elif what < 0.80:
            checkpoint = highest[name] + rng.choice((1, 1, 1, 1, 2)) if rng.random() < sanity else rng.randint(0, 7)
            highest[name] = max(highest[name], checkpoint)
            tokens.append(f"{name}|{checkpoint}")
        elif what < 0.92:
            newest = max(highest.values())
            tokens.append(f"{name}!{max(0, newest + rng.choice((-1, 0, 0, 1)))}")
        elif what < 0.97:
            tokens.append(f"+{rng.randint(0, 9)}")
        else:
            tokens.append(f"{name}$")
            ended.add(name)
    if busy:
        tokens.append("]")
    return channels, " ".join(tokens)


# --- the reference ---------------------------------------------------------------------------------------------------


@dataclass
class Event:
    """Something taken, and what came of it. ``ahead`` is the ids of barriers it overtook."""

    token: str
    channel: str
    kind: str
    number: int
    ahead: list[int]
    outcome: list[str] = field(default_factory=list)


def events(history: list[Event], outcome: str) -> list[Event]:
    return [event for event in history if any(one.startswith(outcome) for one in event.outcome)]


def is_settled(history: list[Event], n: int) -> bool:
    return bool(events(history, f"S({n})") or events(history, f"A({n},"))


def is_news(before: list[Event], n: int) -> bool:
    return n > max((event.number for event in before if event.kind in "|!"), default=0)


def opened(history: list[Event]) -> list[int]:
    """Ids that some barrier opened, in order."""
    return [e.number for i, e in enumerate(history) if e.kind == "|" and is_news(history[:i], e.number)]


def live(history: list[Event], channels: str) -> list[str]:
    return [name for name in channels if not any(e.kind == "$" and e.channel == name for e in history)]


def reporters(history: list[Event], n: int, kinds: str) -> set[str]:
    """Who reported for ``n`` since it was first mentioned at all."""
    first = next(
        (i for i, e in enumerate(history) if e.kind in "|!" and e.number == n and is_news(history[:i], n)), None
    )
    return set() if first is None else {e.channel for e in history[first:] if e.kind in kinds and e.number == n}


class Aligned:
    def __init__(self, channels: str, end_of_input: str) -> None:
        self.channels, self.end_of_input = channels, end_of_input

    def pending(self, history: list[Event]) -> int | None:
        candidates = [n for n in opened(history) if not is_settled(history, n)]
        return candidates[-1] if candidates else None

    def blocked(self, history: list[Event]) -> set[str]:
        pending = self.pending(history)
        return set() if pending is None else reporters(history, pending, "|")

    def decide(self, before: list[Event], event: Event) -> list[str]:
        pending = self.pending(before)
        after = [*before, event]
        n = event.number
        outcome: list[str] = []
        if event.kind == "|":
            if n != pending and not is_news(before, n):
                return [f"i({n})"]
            if pending is not None and n != pending:
                outcome.append(f"A({pending},subsumed)")
            pending = n
        elif event.kind == "!":
            if n == pending:
                return [f"A({n},cancel)"]
            if not is_news(before, n):
                return []
            older = [f"A({pending},superseded)"] if pending is not None and pending not in event.ahead else []
            return [*older, f"A({n},cancel)"]
        elif pending is not None and self.end_of_input == "abort":
            return [f"A({pending},end-of-input)"]
        if pending is not None and set(live(after, self.channels)) <= reporters(after, pending, "|"):
            outcome.append(f"S({pending})")
        return outcome


class Unaligned:
    def __init__(self, channels: str, end_of_input: str) -> None:
        self.channels = channels

    def blocked(self, history: list[Event]) -> set[str]:
        return set()

    def known(self, history: list[Event]) -> list[int]:
        """Ids first mentioned as news, still waited for, and above every snapshot and cancel since; at most 50."""
        kept: list[int] = []
        for i, e in enumerate(history):
            if e.kind in "|!" and is_news(history[:i], e.number):
                kept = [*kept, e.number][-50:]
            if f"A({e.number},cancel)" in e.outcome:
                kept = [n for n in kept if n >= e.number or n in e.ahead]
            now = set(live(history[: i + 1], self.channels))
            highest = max((n for n in kept if f"S({n})" in e.outcome), default=-1)
            kept = [n for n in kept if n > highest and not now <= reporters(history[: i + 1], n, "|!")]
        return kept

    def decide(self, before: list[Event], event: Event) -> list[str]:
        known = self.known(before)
        pending = [n for n in known if not is_settled(before, n)]
        after = [*before, event]
        n = event.number
        if event.kind == "!":
            if not is_news(before, n) and n not in pending:
                return []
            older = [f"A({m},superseded)" for m in pending if m < n and m not in event.ahead]
            return [*older, f"A({n},cancel)"]
        if event.kind == "|":
            if n in known:
                if n in pending and event.channel in reporters(before, n, "|"):
                    return [f"i({n})"]
            elif is_news(before, n):
                pending.append(n)
            else:
                return [f"i({n})"]
        now = set(live(after, self.channels))
        return [f"S({m})" for m in sorted(pending) if now <= reporters(after, m, "|")]


def reference(mode: str, channels: str, script: str, end_of_input: str) -> tuple[Replay, list[Event]]:
    """Play ``script`` by the definitions."""
    rules = Aligned(channels, end_of_input) if mode == "aligned" else Unaligned(channels, end_of_input)
    history: list[Event] = []
    queue: list[tuple[str, str, str, str]] = []
    seen = Replay()
    busy = False
    for token in script.split():
        if token in "[]":
            busy = token == "["
        elif not token.startswith("+"):
            queue.append((token, token[0], token[1], token[2:]))
        while queue and not busy:
            blocked = rules.blocked(history)
            ready = [item for item in queue if item[2] == "!"] or [item for item in queue if item[1] not in blocked]
            if not ready:
                break
            token, channel, kind, text = item = ready[0]
            ahead = [int(q[3]) for q in queue[: queue.index(item)] if q[1] == channel and q[2] == "|"]
            queue.remove(item)
            event = Event(token, channel, kind, int(text) if kind in "|!" else -1, ahead)
            event.outcome = [text] if kind == ":" else ["$"] if kind == "$" else []
            if kind != ":":
                event.outcome += rules.decide(history, event)
            history.append(event)
            seen.log.extend(token if one == "$" else one for one in event.outcome)
            if held := rules.blocked(history):
                seen.blocked.append((token, "".join(name for name in channels if name in held)))
    left = [one for event in history for one in event.outcome if one[0] not in "i$"]
    seen.sent.extend(
        one.replace("S", "B") if one[0] == "S" else f"X({one[2:].split(',')[0]})" if one[0] == "A" else one
        for one in left
    )
    for n in (int(one[2:-1]) for one in left if one[0] == "S"):
        if rows := duplicates(history, channels, n):
            seen.duplicated[n] = rows
    return seen, history


def white(history: list[Event], channel: str, n: int) -> set[str]:
    """Rows of ``channel`` that stand before its barrier ``n`` (or before its end, where it sent none)."""
    own = [event for event in history if event.channel == channel and event.kind != "!"]
    place = next((i for i, e in enumerate(own) if e.kind == "|" and e.number == n), len(own))
    return {e.token for e in own[:place] if e.kind == ":"}


def applied(history: list[Event], channel: str, n: int) -> list[Event]:
    """Rows of ``channel`` delivered before snapshot ``n``."""
    snapshot = next(i for i, e in enumerate(history) if f"S({n})" in e.outcome)
    return [e for e in history[:snapshot] if e.kind == ":" and e.channel == channel]


def duplicates(history: list[Event], channels: str, n: int) -> dict[str, list[str]]:
    found = {c: [e.token[2:] for e in applied(history, c, n) if e.token not in white(history, c, n)] for c in channels}
    return {channel: rows for channel, rows in found.items() if rows}


# --- the comparisons -------------------------------------------------------------------------------------------------


def compare(seed: int) -> None:
    rng = random.Random(seed)
    channels, script = script_of(rng)
    for mode, end_of_input in (("aligned", "aligned"), ("aligned", "abort"), ("unaligned", "aligned")):
        seen = replay(mode, channels, script, end_of_input=end_of_input)
        expected, history = reference(mode, channels, script, end_of_input)
        assert seen == expected, f"seed {seed}: {mode} ({end_of_input}) over {channels}: {script}"
        check(mode, channels, script, seen, history)


def check(mode: str, channels: str, script: str, seen: Replay, history: list[Event]) -> None:
    """The invariants of every run, as the protocol states them."""
    snapshots = [int(one[2:-1]) for one in seen.log if one.startswith("S(")]
    aborts = [int(one[2:].split(",")[0]) for one in seen.log if one.startswith("A(")]
    assert snapshots == sorted(set(snapshots)), f"snapshots do not ascend: {snapshots}"
    assert len(aborts) == len(set(aborts)), f"given up twice: {aborts}"
    assert not set(snapshots) & set(aborts), f"taken and given up: {snapshots}, {aborts}"
    for n in snapshots:
        for channel in channels:
            before = {event.token for event in applied(history, channel, n)}
            again = {f"{channel}:{row}" for row in seen.duplicated.get(n, {}).get(channel, ())}
            if any(event.kind == "|" and event.number == n for event in history if event.channel == channel):
                assert before == white(history, channel, n) | again, f"snapshot {n}, channel {channel}: {script}"
            assert mode == "unaligned" or not again, f"duplicates in aligned mode: {again}"
    for channel in channels:
        arrived = [token for token in script.split() if token.startswith(f"{channel}:")]
        delivered = [e.token for e in history if e.kind == ":" and e.channel == channel]
        assert delivered == arrived[: len(delivered)], f"channel {channel} is not first in, first out"
        if not seen.blocked or seen.blocked[-1][0] != history[-1].token:
            assert delivered == arrived, f"channel {channel} lost rows"


@given(st.integers(min_value=0))
def test_any_script_gives_what_the_definitions_say(seed: int) -> None:
    compare(seed)


def test_a_fixed_campaign_of_scripts_gives_what_the_definitions_say() -> None:
    for seed in range(150):
        compare(seed)


@pytest.mark.soak
def test_a_long_campaign_of_scripts_gives_what_the_definitions_say() -> None:
    for seed in range(150, 20_000):
        compare(seed)
