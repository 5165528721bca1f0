"""Barriers that overtake: short scripts and random long ones, against a reference and against the invariants.

All scripts of three tokens are tried, and a fixed sample of those of four. ``HYPOTHESIS_PROFILE=thorough`` and
``-m soak`` look longer: the latter at all scripts of five tokens, so at all shorter ones too.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.testing import Replay, replay
from tests.protocol.overtaking_reference import Setting, play
from tests.protocol.test_against_a_reference import script_of

MODES = ("unaligned-persisted", "aligned-timeout")


def overtaking_script_of(rng: random.Random) -> tuple[str, str]:
    """A wild script or an orderly one, with barriers unaligned upstream, and time that passes in longer steps."""
    channels, script = rng.choice((script_of, orderly_script_of))(rng)
    conversions, haste = rng.choice((0, 0, 0.1, 0.4)), rng.choice((0, 0.05, 0.2))
    tokens: list[str] = []
    for token in script.split():
        if rng.random() < haste:
            tokens.append(f"+{rng.choice((1, 10, 20, 21, 50, 101))}")
        tokens.append(token.replace("|", "^") if rng.random() < conversions else token)
    return channels, " ".join(tokens)


def orderly_script_of(rng: random.Random) -> tuple[str, str]:
    """Mostly rows, and checkpoints of which most complete: a barrier comes from a channel that lags."""
    channels = "abcd"[: rng.randint(1, 4)]
    newest = dict.fromkeys(channels, 0)
    tokens: list[str] = []
    busy = False
    for number in range(rng.randint(10, 40)):
        highest = max(newest.values(), default=0)
        name = rng.choice(sorted(newest) or [""])
        what = rng.choices(("row", "barrier", "busy", "cancel", "end"), (50, 30, 14, 3, 3))[0]
        if what == "busy":
            tokens.append("]" if busy else "[")
            busy = not busy
        elif not newest:
            break
        elif what == "row":
            tokens.append(f"{name}:{number}")
        elif what == "barrier":
            name = rng.choice([one for one in sorted(newest) if newest[one] < highest] or sorted(newest))
            newest[name] = max(highest, newest[name] + 1)
            tokens.append(f"{name}|{newest[name]}")
        elif what == "cancel":
            tokens.append(f"{name}!{highest}")
        else:
            tokens.append(f"{name}$")
            del newest[name]
    return channels, " ".join([*tokens, "]"] if busy else tokens)


def setting_of(rng: random.Random, mode: str, channels: str, end_of_input: str) -> Setting:
    edges = "".join(name for name in channels if rng.random() < 0.4) if rng.random() < 0.5 else ""
    if mode == "unaligned-persisted":
        return Setting(mode, channels, end_of_input=end_of_input, aligned_edges=edges)
    times = {n: rng.choice((0, 10, 50, 100)) for n in range(1, 20)} if rng.random() < 0.5 else {}
    return Setting(mode, channels, rng.choice((0, 9, 20, 20, 100, math.inf, None)), times, end_of_input, edges)


def run(script: str, setting: Setting) -> Replay:
    return replay(
        setting.mode,
        setting.channels,
        script,
        timeout=setting.timeout,
        trigger_times=setting.trigger_times,
        end_of_input=setting.end_of_input,
        aligned_edges=setting.aligned_edges,
    )


def compare(script: str, setting: Setting) -> None:
    seen = run(script, setting)
    expected, _ = play(script, setting)
    assert seen == expected, f"{setting}: {script}"


# --- the invariants of every run -----------------------------------------------------------------------------------


def check(script: str, setting: Setting) -> None:
    """The invariants as the protocol states them, from the script and the replay alone."""
    seen = run(script, setting)
    why = f"{setting}: {script}: {seen.log}"
    arrived = [token for token in script.split() if token[0] in setting.channels]
    rows = {name: [token[2:] for token in arrived if token[:2] == f"{name}:"] for name in setting.channels}
    check_order(seen, why)
    check_delivery(seen, rows, why)
    for n, place in places(seen.log, "S(").items():
        if f"S({n}a)" not in seen.log and f"D({n})" not in seen.log:
            continue
        before = set(seen.log[:place])
        for name in setting.channels:
            delivered = [row for row in rows[name] if row in before]
            state = seen.captured.get(n, {}).get(name, [])
            assert delivered + state in ahead_of_barrier(arrived, name, n), f"checkpoint {n}, channel {name}: {why}"


def ahead_of_barrier(arrived: list[str], name: str, n: int) -> list[list[str]]:
    """The rows before the channel's barrier ``n`` (before one of them, where it has several), or before its end."""
    own = [token for token in arrived if token[0] == name]
    marks = [i for i, token in enumerate(own) if token in {f"{name}|{n}", f"{name}^{n}"}] or [len(own)]
    return [[token[2:] for token in own[:mark] if token[1] == ":"] for mark in marks]


def places(log: list[str], start: str) -> dict[int, int]:
    """Per checkpoint, where in ``log`` its entry is; there must be no second one."""
    found = [(int(one[2:].split(",")[0].rstrip("ua)")), i) for i, one in enumerate(log) if one.startswith(start)]
    assert len(found) == len(dict(found)), f"{start} twice for one checkpoint: {log}"
    return dict(found)


def check_order(seen: Replay, why: str) -> None:
    taken, given_up, done = (places(seen.log, start) for start in ("S(", "A(", "D("))
    assert list(taken) == sorted(taken), f"snapshots do not ascend: {why}"
    assert all(place < given_up.get(n, len(seen.log)) for n, place in taken.items()), f"taken, but given up: {why}"
    assert all(f"S({n}u)" in seen.log[:place] for n, place in done.items()), f"complete without a snapshot: {why}"
    assert not set(done) & set(given_up), f"complete, and given up: {why}"
    assert set(seen.captured) <= set(done), f"channel state of what did not complete: {why}"
    assert seen.duplicated == {}, why


def check_delivery(seen: Replay, rows: dict[str, list[str]], why: str) -> None:
    waiting = seen.blocked[-1][1] if seen.blocked else ""
    everything = {row for channel in rows.values() for row in channel}
    for name, expected in rows.items():
        delivered = [one for one in seen.log if one in expected]
        assert delivered == expected[: len(delivered)], f"channel {name} is not first in, first out: {why}"
        assert delivered == expected or name in waiting, f"channel {name} lost rows: {why}"
    assert [one for one in seen.sent if one[0] not in "BX"] == [one for one in seen.log if one in everything], why
    marks = [one for one in seen.log if one[0] in "SA"]
    assert [one for one in seen.sent if one[0] in "BX"] == [
        f"B({one[2:-2]})" if one[0] == "S" else f"X({one[2:].split(',')[0]})" for one in marks
    ], why


# --- random scripts --------------------------------------------------------------------------------------------------


def look_at(seed: int) -> None:
    rng = random.Random(seed)
    channels, script = overtaking_script_of(rng)
    for mode in MODES:
        for end_of_input in ("aligned", "abort"):
            setting = setting_of(rng, mode, channels, end_of_input)
            check(script, setting)
            compare(script, setting)


@given(st.integers(min_value=0))
def test_any_script_gives_what_the_definitions_say(seed: int) -> None:
    look_at(seed)


def test_a_fixed_campaign_of_scripts_gives_what_the_definitions_say() -> None:
    for seed in range(120):
        look_at(seed)


@pytest.mark.soak
def test_a_long_campaign_of_scripts_gives_what_the_definitions_say() -> None:
    for seed in range(120, 20_000):
        look_at(seed)


# --- all short scripts -----------------------------------------------------------------------------------------------


def short_scripts(
    setting: Setting, alphabet: list[str], length: int, start: tuple[str, ...] = (), stride: int = 1
) -> Iterator[str]:
    """Every well-formed script of ``start`` and ``length`` more tokens; a busy operator is ready again at the end.

    Where the channels are alike, only those in which the first channel comes first. Of all choices only each
    ``stride``-th is taken: with no divisor in common with the alphabet's length, every token comes in every place.
    """
    choices = itertools.islice(itertools.product(alphabet, repeat=length), 0, None, stride)
    for choice in (start + rest for rest in choices):
        first = next((token[0] for token in choice if token[0] in setting.channels), "a")
        script = well_formed(choice) if setting.aligned_edges or first == "a" else ""
        if script:
            yield script


def well_formed(choice: tuple[str, ...]) -> str:
    """``choice`` as a script, its rows numbered; nothing where it is malformed."""
    tokens: list[str] = []
    busy, ended = False, ""
    for number, token in enumerate(choice):
        if token[0] in ended or (token in "[]" and busy == (token == "[")):
            return ""
        if token[-1] == "$":
            ended += token[0]
        busy = token == "[" if token in "[]" else busy
        tokens.append(f"{token}{number}" if token[-1] == ":" else token)
    return " ".join([*tokens, "]"] if busy else tokens)


def of_both(*events: str) -> list[str]:
    return [f"{name}{event}" for name in "ab" for event in events]


SAMPLED = 11
"""Of the scripts of four tokens one in so many is tried; ``-m soak`` tries all of five."""
# A script as long as these shows every shorter one too, as its beginning.
UNALIGNED = [*of_both(":", "|1", "|2", "!1", "$"), "[", "]"]
TIMED = [*of_both(":", "|1", "|2", "^1", "!1", "$"), "[", "]", "+101"]
SHORT = [
    pytest.param(Setting("unaligned-persisted", "ab"), UNALIGNED, id="unaligned-persisted"),
    pytest.param(
        Setting("unaligned-persisted", "ab", aligned_edges="b"), UNALIGNED, id="unaligned-persisted, b not overtaken"
    ),
    pytest.param(Setting("aligned-timeout", "ab", 100), TIMED, id="aligned-timeout"),
    pytest.param(
        Setting("aligned-timeout", "ab", 100, aligned_edges="b"), TIMED, id="aligned-timeout, b not overtaken"
    ),
]


@pytest.mark.parametrize(("setting", "alphabet"), SHORT)
def test_every_short_script_gives_what_the_definitions_say(setting: Setting, alphabet: list[str]) -> None:
    assert math.gcd(SAMPLED, len(alphabet)) == 1
    for script in itertools.chain(
        short_scripts(setting, alphabet, 3), short_scripts(setting, alphabet, 4, stride=SAMPLED)
    ):
        compare(script, setting)


LONGER = [
    pytest.param(
        setting, alphabet, token, id=f"{setting.mode}, {setting.aligned_edges or 'none'} in order, {token} first"
    )
    for setting, alphabet in (case.values for case in SHORT)
    for token in alphabet
]


@pytest.mark.soak
@pytest.mark.parametrize(("setting", "alphabet", "first"), LONGER)
def test_every_script_that_is_a_little_longer_gives_what_the_definitions_say(
    setting: Setting, alphabet: list[str], first: str
) -> None:
    for script in short_scripts(setting, alphabet, 4, (first,)):
        compare(script, setting)
