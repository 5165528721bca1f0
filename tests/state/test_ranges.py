"""Ranges of times against a sorted list, and how many entries are moved when many have one time."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dataflow.state import ranges
from dataflow.state.ranges import TimeRanges
from tests.forcing import Force
from tests.seeds import seeds

NOTHING = 2**62


class Run:
    """Random operations on ranges, and on a list of (time, sequence number) that do what they should."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.ranges = TimeRanges()
        self.records = np.zeros((4000, 2), np.int64)
        self.entries: list[tuple[int, int]] = []
        self.count = 0

    def enter(self) -> None:
        common = self.rng.randrange(20)
        times = [common if self.rng.random() < 0.8 else self.rng.randrange(20) for _ in range(self.rng.choice([1, 30]))]
        numbers = np.arange(self.count, self.count + len(times))
        self.count += len(times)
        self.records[numbers, 0], self.records[numbers, 1] = -1, numbers
        self.ranges.enter(np.stack([np.array(times), numbers, numbers], axis=1), self.records)
        self.entries = sorted([*self.entries, *zip(times, numbers.tolist(), strict=True)])

    def take(self) -> None:
        upto, limit = self.rng.randrange(20), self.rng.choice([1, 5, 100])
        expected = [entry for entry in self.entries if entry[0] <= upto][:limit]
        taken = self.ranges.take(upto, limit, self.records)
        assert [tuple(entry) for entry in taken[:, :2].tolist()] == expected
        self.entries = self.entries[len(expected) :]
        self.records[taken[:, 2], 0] = 0

    def bury(self) -> None:
        gone = self.rng.sample(self.entries, min(len(self.entries), self.rng.choice([1, 10])))
        if self.rng.random() < 0.3:
            gone = self.entries[: self.rng.randrange(40)]
        self.entries = [entry for entry in self.entries if entry not in gone]
        self.records[[number for _, number in gone], 0] = 0
        self.ranges.bury(np.array([time for time, _ in gone], np.int64), self.records)

    def check(self) -> None:
        assert sorted(self.ranges.validate(self.records)) == sorted([number for _, number in self.entries])
        first = self.ranges.first(self.records)
        assert (NOTHING if first is None else first) == min([time for time, _ in self.entries], default=NOTHING)


@pytest.mark.parametrize("most", [4, 16])
@pytest.mark.parametrize("seed", seeds(3, 10))
def test_random_operations_agree_with_a_sorted_list(force: Force, seed: int, most: int) -> None:
    force(ranges, "_MOST", most, calls=TimeRanges._split)
    force(ranges, "_BLOCK", 3, calls=ranges._is_alive, within=TimeRanges.first, times=2)
    run = Run(seed)
    for _ in range(150):
        run.rng.choice([run.enter, run.enter, run.take, run.bury])()
        run.check()


def test_a_time_with_many_entries_among_others_has_a_range_of_its_own() -> None:
    most = ranges._MOST
    for before, same, after in ((1, 3 * most, 1), (most // 2, most - 1, most // 2), (10, most, 10), (0, most, most)):
        column = np.repeat([1, 5, 6], [before, same, after])
        numbers = np.arange(len(column))
        records = np.stack([np.full(len(column), -1), numbers], axis=1)
        times = TimeRanges()
        times.enter(np.stack([column, numbers, numbers], axis=1), records)
        assert len(times.validate(records)) == len(column)
        large = [entries.single for entries in times._ranges.values() if len(entries) > 2 * most]
        assert large == ([5] if same > 2 * most else [])


def test_entries_of_one_time_are_not_moved_when_others_come_or_some_are_taken() -> None:
    count = 100_000
    entries = np.stack([np.full(count, 10), np.arange(count), np.arange(count)], axis=1)
    records = np.stack([np.full(2 * count, -1), np.arange(2 * count)], axis=1)
    times = TimeRanges()
    times.enter(entries, records)
    memory = times._ranges.peekitem(0)[1]._rows
    for i in range(20):
        taken = times.take(10, 1000, records)
        assert len(taken) == 1000
        records[taken[:, 2], 0] = 0
        late = np.arange(count + 10 * i, count + 10 * i + 10)
        times.enter(np.stack([np.arange(12, 22), late, late], axis=1), records)
        assert times._ranges.peekitem(0)[1]._rows is memory
    assert times.validate(records)


def test_entries_that_lost_their_effect_are_looked_at_once_from_the_front() -> None:
    numbers = np.arange(3000)
    records = np.stack([np.full(3000, -1), numbers], axis=1)
    times = TimeRanges()
    times.enter(np.stack([np.full(3000, 5), numbers, numbers], axis=1), records)
    records[:1400, 0] = 0
    times.bury(np.full(1400, 5), records)
    assert times.first(records) == 5
    assert len(times._ranges.peekitem(0)[1]) == 1600
