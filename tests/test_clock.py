"""Durations and clocks."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dataflow.clock import (
    LONGEST,
    Clock,
    Duration,
    ManualClock,
    SystemClock,
    duration_text,
    microseconds,
    signed_microseconds,
)
from dataflow.errors import ConfigurationError


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        ("1us", 1),
        ("250ms", 250_000),
        ("10s", 10_000_000),
        ("1.5s", 1_500_000),
        ("5min", 300_000_000),
        ("5m", 300_000_000),
        ("1h", 3_600_000_000),
        (" 2 s ", 2_000_000),
        ("0s", 0),
        (timedelta(milliseconds=3), 3_000),
        (timedelta(days=1), 86_400_000_000),
    ],
)
def test_a_duration_is_whole_microseconds(duration: Duration, expected: int) -> None:
    assert microseconds(duration) == expected


@pytest.mark.parametrize("wrong", [5, 1.5, True, None, "5", "s", "", "--1s", "1 day", "1e3s", "1s 2s", b"1s"])
def test_anything_else_is_refused_by_name(wrong: Duration) -> None:
    with pytest.raises(ConfigurationError, match=r"^every must be a timedelta or text such as '250ms'"):
        microseconds(wrong, "every")


@pytest.mark.parametrize("long", [timedelta(days=100_001), "100001d", "100000.5d", "9" * 400 + ".0d", "9" * 40 + "us"])
def test_a_duration_that_times_could_not_be_moved_by_is_refused(long: Duration) -> None:
    assert microseconds("100000d", "delay") == LONGEST
    with pytest.raises(ConfigurationError, match=r"^delay must be at most 100,000 days, got"):
        microseconds(long, "delay")


def test_a_unit_that_does_not_exist_is_refused_with_one_that_does() -> None:
    with pytest.raises(ConfigurationError, match=r"'1h', '7d'; got '1w' \(str\)"):
        microseconds("1w", "every")


@pytest.mark.parametrize("duration", [timedelta(seconds=-1), "-1s", " -1.5 ms"])
def test_a_negative_duration_is_refused(duration: Duration) -> None:
    with pytest.raises(ConfigurationError, match="every cannot be negative"):
        microseconds(duration, "every")


@pytest.mark.parametrize("length", [0, 1, 999, 1_000, 999_999, 1_000_000, 59_999_999, 60_000_000])
def test_the_text_of_a_duration_reads_back_to_about_the_same(length: int) -> None:
    assert microseconds(duration_text(length)) == pytest.approx(length, rel=0.06)


def test_a_manual_clock_moves_only_when_told_to() -> None:
    clock = ManualClock(5)
    assert (clock.now(), clock.now()) == (5, 5)
    clock.advance(1_000_000)
    assert (clock.now(), clock.wall()) == (1_000_005, 1.000005)


def test_no_clock_goes_back() -> None:
    clock = ManualClock()
    with pytest.raises(ValueError, match="cannot go back, got -1 us"):
        clock.advance(-1)
    system: Clock = SystemClock()
    readings = [system.now() for _ in range(1_000)]
    assert readings == sorted(readings)
    assert all(isinstance(reading, int) for reading in readings)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("1.5us", r"^gap must be a whole number of microseconds, got '1\.5us'"),
        ("0.0000001s", "^gap must be a whole number of microseconds, got '0.0000001s'"),
        ("-1ns", "^gap must be a timedelta or text such as .*got '-1ns'"),
        ("--1h", "^gap must be a timedelta or text such as .*got '--1h'"),
    ],
)
def test_a_length_that_is_not_what_was_written_is_refused(text: str, error: str) -> None:
    for parse in (microseconds, signed_microseconds):
        with pytest.raises(ConfigurationError, match=error):
            parse(text, "gap")
    assert microseconds("0.1s") == 100_000
