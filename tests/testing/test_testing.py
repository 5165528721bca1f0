"""The public helper itself: malformed scripts and senseless arguments are refused with the place and the reason."""

from __future__ import annotations

from typing import Any

import pytest

from dataflow.protocol.tracking import Tracker
from dataflow.testing import Replay, replay


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("a:1 z:1", r"token 2, 'z:1' \(character 4\): expected .* one of 'ab', found 'z'"),
        ("a:", "token 1, 'a:' .*: expected the row's value"),
        ("a", "token 1, 'a' .*: expected ':row'"),
        ("a?1", "token 1, 'a\\?1' .*: expected ':row'"),
        ("a|x", "token 1, 'a|x' .*: expected a checkpoint id as digits, found 'x'"),
        ("a|-1", "found '-1'"),
        ("a|", "found ''"),
        ("a!1.5", "found '1.5'"),
        ("a|\u0661", "expected a checkpoint id as digits"),
        ("+x", "token 1, '\\+x' .*: expected milliseconds as digits"),
        ("+", "expected milliseconds"),
        ("a$1", "expected ':row'"),
        ("a$ b:1 a:1", "token 3, 'a:1' .*: channel 'a' has ended"),
        ("a$ a$", "token 2, .* has ended"),
        ("a:1 [ b:1", r"token 2, '\[' .*: expected a '\]'"),
        ("a:1 ]", r"token 2, '\]' .*: there is no '\['"),
        ("[ [ ] ]", r"token 2, '\[' .*: the operator is busy already, since token 1"),
        ("[ a:1]", r"token 2, 'a:1\]' \(character 2\): expected a value of letters.* is a blank missing"),
        ("b:0 a:1:2", r"token 2, 'a:1:2' \(character 4\): expected a value of letters"),
        ("a:1,2", "token 1, 'a:1,2' .*: expected a value of letters"),
        ("b:0 a|" + "7" * 5_000, rf"token 2, 'a\|{'7' * 38}\.\.\.' \(character 4\): .* at most 18 digits, found 5000"),
        ("+" + "1" * 19, "token 1, .*: expected milliseconds of at most 18 digits, found 19"),
        ("a^1", "token 1, 'a\\^1' .*: barriers arrive unaligned"),
    ],
)
@pytest.mark.parametrize("mode", ["aligned", "unaligned"])
def test_a_malformed_script_is_refused_with_its_token_and_position(mode: str, script: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replay(mode, "ab", script)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "exactly-once"}, "mode: expected one of .*, found 'exactly-once'"),
        ({"channels": ""}, "channels: expected distinct letters"),
        ({"channels": "aa"}, "channels: expected distinct letters"),
        ({"channels": "a["}, "channels: expected distinct letters"),
        ({"end_of_input": "later"}, "end_of_input: expected 'aligned' or 'abort', found 'later'"),
        ({"mode": "unaligned", "end_of_input": "abort"}, "mode 'unaligned' always counts ends as barriers"),
        ({"trigger_times": {"x": 1}}, "trigger_times: expected checkpoint ids .*, found 'x': 1"),
        ({"trigger_times": {0: 1}}, "trigger_times: .*, found 0: 1"),
        ({"trigger_times": {1: 0, 2: -5}}, "trigger_times: .* whole milliseconds .*, found 2: -5"),
        ({"trigger_times": {2: 1.5}}, "trigger_times: .*, found 2: 1.5"),
        ({"trigger_times": {2: True}}, "trigger_times: .*, found 2: True"),
        ({"timeout": 100}, "timeout=100: mode 'aligned' has no timeout"),
        ({"mode": "aligned-timeout", "timeout": 1.5}, "timeout: expected whole milliseconds .*, found 1.5"),
        ({"mode": "aligned-timeout", "timeout": -1}, "timeout: expected whole milliseconds .*, found -1"),
        ({"aligned_edges": "a"}, "in mode 'aligned' no barrier overtakes"),
        ({"mode": "unaligned-persisted", "aligned_edges": "ac"}, "aligned_edges: .*'ab', found .'c'"),
    ],
)
def test_senseless_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replay(**{"mode": "aligned", "channels": "ab", "script": "", **arguments})


def test_what_does_not_exist_yet_says_so() -> None:
    with pytest.raises(NotImplementedError, match="not exist yet"):
        replay("aligned", "ab", "", back_edges="b")


def test_an_empty_script_shows_nothing() -> None:
    assert replay("aligned", "a", "") == Replay()


def test_a_value_may_be_a_word_or_a_number() -> None:
    assert replay("aligned", "a", "a:x_1 a:-2.5 a:\u00fc").log == ["x_1", "-2.5", "\u00fc"]


def test_numbers_of_eighteen_digits_are_read() -> None:
    assert replay("aligned", "a", f"a|{'9' * 18}").log == [f"S({'9' * 18})"]


def test_channels_may_have_any_letters_and_are_shown_in_their_given_order() -> None:
    assert replay("aligned", "zy3", "y|1 3|1").blocked == [("y|1", "y"), ("3|1", "y3")]


def test_nothing_is_polled_while_the_operator_is_busy() -> None:
    assert replay("aligned", "ab", "[ a:1 a|1 b:2 b!1 +5 ] a:3").log == ["A(1,cancel)", "1", "i(1)", "2", "3"]


def test_trigger_times_change_nothing_in_modes_without_a_timeout() -> None:
    assert replay("aligned", "a", "+5 a|1", trigger_times={1: 3}).log == ["S(1)"]


def test_a_broken_handler_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "a|1 a:1 b|1"
    whole = replay("unaligned", "ab", script)
    monkeypatch.setattr(Tracker, "barrier", lambda *_: [])
    assert replay("unaligned", "ab", script) != whole
