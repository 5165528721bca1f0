"""How many rows a step takes: the budget over the speed of the last steps, in slices of what is queued."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dataflow.protocol.events import Barrier, Data, EndOfInput
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.pace import FIRST_ROWS, LearnedPace, Unpaced, budgets
from tests.runtime.task.test_task import Bench, batch


def after(*steps: tuple[int, int]) -> int:
    """The limit of a pace of 10 ms after steps of (rows, microseconds)."""
    pace = LearnedPace(10_000)
    for rows, elapsed in steps:
        pace.took(rows, elapsed)
    return pace.max_rows


def test_nothing_is_known_before_the_first_step() -> None:
    assert after() == FIRST_ROWS


def test_a_slow_function_gets_what_fits_into_the_budget() -> None:
    assert after((1_000, 100_000)) == 100


def test_a_fast_function_keeps_whole_batches() -> None:
    assert after((1_000, 200), (10_000, 1_000)) == 100_000


def test_even_the_slowest_function_gets_a_row() -> None:
    assert after((1, 5_000_000)) == 1


def test_a_step_too_fast_for_the_clock_is_as_fast_as_the_clock_can_say() -> None:
    assert after((64_000, 0)) == 640_000


def test_cheap_rows_say_little_about_the_next_ones() -> None:
    assert after((100, 0), (3, 0)) == 10_000


def test_one_slow_step_says_nothing_and_three_say_it_all() -> None:
    fast, slow = (10_000, 1_000), (10_000, 1_000_000)
    assert [after(fast, slow), after(fast, slow, slow), after(fast, slow, slow, slow)] == [100_000, 100_000, 100]


def test_after_a_slow_start_the_limit_is_back_within_a_few_steps() -> None:
    compiled = after((1_000, 2_000_000))
    assert (compiled, after((1_000, 2_000_000), (5, 50), (50, 60), (500, 70))) == (5, 5_000)


def test_steps_are_short_while_someone_waits_and_for_a_while_after() -> None:
    pace, limits = LearnedPace(10_000, 50_000), []
    for now, hurried in [(0, False), (10, True), (20, False), (99_999, False), (100_010, False), (100_020, True)]:
        pace.notice(now, hurried=hurried)
        pace.took(1_000, 1_000)
        limits.append(pace.max_rows)
    assert limits == [10_000, 10_000, 10_000, 10_000, 50_000, 10_000]


def test_the_budget_of_the_user_is_used_as_it_is() -> None:
    assert budgets(70_000, 1_000_000) == (70_000, 70_000)
    assert [budgets(None, interval)[1] for interval in (10_000, 400_000, 1_000_000, 60_000_000)] == [
        10_000,
        20_000,
        50_000,
        50_000,
    ]


def steps(cost: Callable[[int], int], count: int) -> list[int]:
    """The rows of ``count`` steps that take ``cost(rows)`` microseconds, where there are rows enough."""
    pace, taken = LearnedPace(10_000), []
    for _ in range(count):
        taken.append(pace.max_rows)
        pace.took(taken[-1], cost(taken[-1]))
    return taken


def test_what_a_step_costs_whatever_its_rows_does_not_make_slices_shrink_to_nothing() -> None:
    found = steps(lambda rows: 12_000 + rows // 10, 60)
    assert 50_000 <= min(found[-20:]) <= max(found[-20:]) <= 300_000


def test_a_slow_function_is_tried_with_half_its_rows_ever_less_often() -> None:
    found = steps(lambda rows: 100 * rows, 2_000)
    assert (sorted(set(found)), found.count(50), found.index(50)) == ([50, 100], 7, 8)


@pytest.mark.parametrize("late", [9, 10])
def test_a_machine_that_is_busy_during_one_trial_makes_no_slice_longer_than_the_budget(late: int) -> None:
    steps_so_far = iter(range(1, 1_000))
    found = steps(lambda rows: 100 * rows + (7_000 if next(steps_so_far) == late else 0), 100)
    assert max(found) <= 100


def test_without_a_pace_batches_stay_whole() -> None:
    assert Unpaced().max_rows is None


def test_the_rest_of_a_batch_stays_at_the_head_and_takes_up_its_room() -> None:
    channel = Channel(1, "a")
    channel.put(Data(batch(1, 2, 3), epoch=4))
    first = channel.take(2)
    assert (values(first), first.epoch, channel.has_credit, channel.queued_rows) == ([1, 2], 4, False, 1)  # type: ignore[union-attr]
    last = channel.take(2)
    assert (values(last), last.epoch, channel.has_credit) == ([3], 4, True)  # type: ignore[union-attr]


def test_a_batch_of_as_many_rows_as_may_be_taken_is_taken_as_it_is() -> None:
    channel, whole = Channel(1, "a"), Data(batch(1, 2))
    channel.put(whole)
    assert channel.take(2) is whole


def test_control_behind_a_sliced_batch_waits_for_all_of_it() -> None:
    channel = Channel(1, "a")
    for element in (Data(batch(1, 2, 3)), EndOfInput()):
        channel.put(element)
    taken = [channel.take(1) for _ in range(4)]
    assert taken[3] == EndOfInput()


class Paced:
    """Lets a step take two rows, and remembers what it is told."""

    max_rows = 2

    def __init__(self) -> None:
        self.told: list[int] = []

    def notice(self, now: int, *, hurried: bool) -> None:
        """Ignore it."""

    def took(self, rows: int, elapsed: int) -> None:
        self.told.append(rows)


def test_a_task_takes_slices_and_the_barrier_keeps_its_place() -> None:
    bench = Bench().put(0, Data(batch(1, 2, 3, 4, 5)), Barrier(1)).put(1, Barrier(1))
    pace = bench.task._pace = Paced()
    log = [entry for entry in bench.run() if entry[0] == "y"]
    assert (log, pace.told) == (["y:1,2", "y:3,4", "y:5", "y:B(1)"], [2, 2, 1])


def test_a_barrier_that_overtakes_waits_for_one_slice_only() -> None:
    channel = Channel(1, "a", overtakable=True)
    channel.put(Data(batch(1, 2, 3)))
    channel.take(1)
    channel.put(Barrier(1, unaligned=True))
    _, overtaken = channel.take_urgent()
    assert [values(element) for element in overtaken] == [[2, 3]]


def values(element: object) -> list[int]:
    assert isinstance(element, Data), f"rows were expected, got {element}"
    return element.rows["x"].to_pylist()  # type: ignore[index]
