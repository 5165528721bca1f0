"""Time by the clock: random scripts of both clocks, and the rules one by one."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from dataflow.protocol.clock_time import LASTS, NEAR, ClockTime

SECOND = 1_000_000
DAY = 86_400 * SECOND
PASSED = st.one_of(st.integers(0, 30), st.integers(0, 3 * SECOND), st.integers(0, DAY))
STEPS = st.one_of(st.just(0), st.integers(-3 * NEAR, 3 * NEAR), st.integers(-DAY, DAY))
SCRIPTS = st.lists(st.tuples(PASSED, STEPS), max_size=40)


@dataclass
class Clocks:
    """A monotonic clock, a wall clock that steps, and time by the clock, which checks its invariants."""

    now: int = 7
    wall: int = 1_000 * DAY
    time: ClockTime = field(init=False)

    def __post_init__(self) -> None:
        self.time = ClockTime(self.now, self.wall)

    def read(self, passed: int, step: int = 0) -> int:
        """Let time pass, then step the wall clock; return the time."""
        self.now += passed
        self.wall += passed + step
        reading = self.time.read(self.now, self.wall)
        self.time.validate()
        return reading

    def lead(self, passed: int, step: int = 0) -> int:
        """Read as ``read`` does; return how far the wall clock is ahead of the time then."""
        time = self.read(passed, step)
        return self.wall - time

    def leads(self, step: int, seconds: int) -> list[int]:
        """Return the lead after each second; the wall clock steps before the first."""
        self.read(0, step)
        return [self.lead(SECOND) for _ in range(seconds)]


@given(SCRIPTS)
def test_time_never_goes_back_nor_stands_still_nor_runs_faster_than_a_tenth_more(script: list[tuple[int, int]]) -> None:
    clocks = Clocks()
    last = clocks.read(0)
    for passed, step in script:
        time = clocks.read(passed, step)
        lead = clocks.wall - (last + passed)
        assert time - last >= passed // 2
        assert 10 * (time - last) <= 11 * passed + 10 or last + passed < time <= last + passed + lead
        last = time


@given(SCRIPTS, st.sampled_from([1, 7, 900, SECOND]))
def test_time_meets_a_wall_clock_that_runs_on(script: list[tuple[int, int]], every: int) -> None:
    clocks = Clocks()
    for passed, step in script:
        clocks.read(passed, step)
    clocks.read(2 * abs(clocks.lead(every)) + LASTS + 10 * NEAR)  # more than it takes
    clocks.read(LASTS)  # a lead that the long reading was the first to see
    clocks.read(10 * NEAR)
    assert [clocks.lead(every) for _ in range(20)] == [0] * 20


@given(st.lists(st.integers(1, 3), min_size=1, max_size=50), st.integers(-NEAR, NEAR))
def test_time_does_not_depend_on_how_often_it_is_read_while_it_is_corrected(passed: list[int], step: int) -> None:
    often, once = Clocks(), Clocks()
    often.read(0, step)
    once.read(0, step)
    assert [often.read(each) for each in passed][-1] == once.read(sum(passed))


def test_a_lead_of_up_to_a_second_is_made_up_for_by_running_a_tenth_faster_or_slower() -> None:
    assert Clocks().leads(NEAR, 11) == [900_000 - 100_000 * n for n in range(10)] + [0]
    assert Clocks().leads(-NEAR, 11) == [100_000 * n - 900_000 for n in range(10)] + [0]


def test_a_greater_lead_is_taken_over_once_it_has_lasted_ten_seconds() -> None:
    assert Clocks().leads(DAY, 12) == [DAY] * 9 + [0] * 3


def test_a_lead_that_is_taken_back_in_time_leaves_no_trace() -> None:
    clocks = Clocks()
    assert clocks.leads(DAY, 9) == [DAY] * 9
    assert clocks.leads(-DAY, 20) == [0] * 20


def test_only_the_part_of_a_lead_that_has_lasted_is_taken_over() -> None:
    clocks = Clocks()
    assert clocks.leads(2 * SECOND, 9) == [2 * SECOND] * 9
    assert clocks.leads(DAY, 12) == [DAY] * 11 + [0]


def test_time_runs_at_half_speed_until_a_wall_clock_behind_is_met() -> None:
    assert Clocks().leads(-3 * SECOND, 8) == [-2_500_000 + 500_000 * n for n in range(5)] + [0] * 3


def test_time_begins_at_the_greater_of_stored_time_and_wall_clock() -> None:
    later, earlier = Clocks(), Clocks()
    later.time.raise_to(later.wall + 5)
    earlier.time.raise_to(earlier.wall - 5)
    assert (later.lead(0), earlier.lead(0)) == (-5, 0)


def test_the_first_step_above_a_second_is_noted() -> None:
    clocks = Clocks()
    clocks.read(0, NEAR)
    assert clocks.time.first_step == 0
    clocks.read(0, DAY)
    clocks.read(0, -3 * DAY)
    assert clocks.time.first_step == DAY + NEAR
