"""Intervals on the clock of a zone, against the changes of the clocks of all zones."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from dataflow.expressions.local_intervals import LocalIntervals
from dataflow.expressions.truncation import truncate
from tests.expressions.zone_changes import Change, changes, distinct_zones, kinds_of_changes

HOUR, DAY = 3_600, 86_400


def local_date(at: int, zone: str) -> date:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=at)).astimezone(ZoneInfo(zone)).date()


def midnights(change: Change) -> range:
    """The readings 00:00 that the clock shows twice, or not at all."""
    low, high = sorted((change.at + change.before, change.at + change.after))
    return range(-(-low // DAY) * DAY, high, DAY)


def test_a_day_with_two_midnights_or_none_is_one_day_in_every_zone() -> None:
    tested = {"two": 0, "none": 0}
    for zone in distinct_zones():
        days = LocalIntervals(DAY, 0, "s", zone)
        for change in kinds_of_changes(zone):
            at, before, after = change
            if not midnights(change) or before - after == DAY:
                continue
            twice = before > after
            tested["two" if twice else "none"] += 1
            start = midnights(change)[0] - before if twice else at
            end = (max(midnights(change)[-1], at + after) // DAY + 1) * DAY - after
            within = np.array([start, at, midnights(change)[0] - after, end - 1] if twice else [start, end - 1])
            assert set(days.starts(within).tolist()) == {start}, (zone, change)
            assert set(days.ends(within).tolist()) == {end}, (zone, change)
            assert days.ends(np.array([start - 1])).tolist() == [start], (zone, change)
            dates = [local_date(moment, zone) for moment in (start - 1, start, end - 1, end)]
            assert dates[0] < dates[1] == dates[2] < dates[3], (zone, change)
    assert min(tested.values()) > 50, tested


ZONES = {
    "America/Havana": "two midnights",
    "Atlantic/Azores": "two midnights",
    "America/New_York": "set forward and back in the night; noon of 1883 came twice",
    "Australia/Lord_Howe": "summer time of half an hour",
    "America/Sao_Paulo": "days that begin at one o'clock",
    "Asia/Beirut": "days that begin at one o'clock",
    "Pacific/Apia": "no 30th of December in 2011",
    "Pacific/Kwajalein": "set back by 23 hours in 1969",
    "America/Juneau": "set back by a day in 1867",
    "Africa/Monrovia": "set forward by 44 minutes and 30 seconds in 1972",
    "Africa/Casablanca": "changes a month apart",
}
LENGTHS = [
    *((DAY, 0), (DAY, 6 * HOUR), (DAY, DAY - 1), (DAY // 2, 0), (7 * DAY, 3 * DAY), (28 * DAY, DAY), (400 * DAY, 5)),
    *((HOUR, 0), (HOUR, HOUR // 2), (HOUR // 2, 600), (900, 300), (2_400, 0), (5_400, 0), (2 * HOUR, HOUR), (7, 3)),
    *((25 * HOUR, 0), (7 * HOUR, 1)),
]


@pytest.mark.parametrize("zone", ZONES)
def test_intervals_are_between_the_edges_that_the_clock_shows(zone: str) -> None:
    for number, (every, offset) in enumerate(LENGTHS):
        unit, per_second = [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)][number % 4]
        intervals = LocalIntervals(every * per_second, offset * per_second, unit, zone)
        for change in kinds_of_changes(zone):
            at, span = change.at, every + abs(change.after - change.before)
            edges = shown_edges(zone, every, offset, at - 3 * span, at + 3 * span)
            times = np.concatenate([np.linspace(at - span, at + span, 41).astype(np.int64), [at - 1, at]])
            after = np.searchsorted(edges, times, side="right")
            ticks = times * per_second + per_second // 3
            assert intervals.starts(ticks).tolist() == (edges[after - 1] * per_second).tolist(), (every, change)
            assert intervals.ends(ticks).tolist() == (edges[after] * per_second).tolist(), (every, change)


def shown_edges(zone: str, every: int, offset: int, low: int, high: int) -> np.ndarray:
    """The edges from ``low`` to ``high`` by the definition: those between two changes of the clock, and of gaps."""
    inside = [change for change in changes(zone) if low < change.at < high]
    first = next((change.before for change in changes(zone) if change.at > low), changes(zone)[-1].after)
    bounds = [low, *(change.at for change in inside), high]
    edges = []
    for before, start, end in zip([None, *inside], bounds[:-1], bounds[1:], strict=True):
        ahead = before.after if before else first
        times = np.arange(next_reading(start + ahead, every, offset) - ahead, end, every)
        if before is not None:
            back = before.before - before.after
            if every > back > 0:
                times = times[times - start >= back]  # the clock showed the others before
            if next_reading(start + before.before, every, offset) < start + ahead:
                edges.append([start])
        edges.append(times)
    return np.unique(np.concatenate(edges).astype(np.int64))


def next_reading(reading: int, every: int, offset: int) -> int:
    return -(-(reading - offset) // every) * every + offset


def test_intervals_beyond_the_times_of_the_type_are_refused() -> None:
    least, most = -(2**63), 2**63 - 1
    days = LocalIntervals(DAY * 10**9, 0, "ns", "America/New_York")
    for method, moment in ((days.starts, least), (days.ends, least), (days.ends, most)):
        with pytest.raises(OverflowError, match="beyond the times of the column's type"):
            method(np.array([moment]))
    with pytest.raises(OverflowError, match="beyond the times"):
        LocalIntervals(DAY * 10**9, 0, "ns", "Asia/Tokyo").starts(np.array([most]))
    with pytest.raises(OverflowError, match="beyond the times"):
        LocalIntervals(100_000 * DAY * 10**9, 0, "ns", "Asia/Tokyo").starts(np.array([-9 * 10**18]))


def test_nulls_and_fixed_offsets_are_no_special_cases() -> None:
    times = pa.array([None, 0, 10**15, None], pa.timestamp("us", "+05:30"))
    assert truncate(times, DAY * 10**6, 0).cast(pa.int64()).to_pylist() == [
        None,
        -19_800 * 10**6,
        (10**9 + 19_800) // DAY * DAY * 10**6 - 19_800 * 10**6,
        None,
    ]
