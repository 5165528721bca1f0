"""Watermarks per split: the least of those that are live and not idle, behind each batch."""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from dataflow.clock import ManualClock
from dataflow.contracts.operator import Snapshot
from dataflow.contracts.row_errors import ERRORS, OnError
from dataflow.errors import ConfigurationError
from dataflow.protocol.watermarks import MAX_WATERMARK, WatermarkMerger
from operators.transforms.checked_times import CheckedTimes
from operators.transforms.watermarks import WatermarkOperator
from tests.operators.operating import Emitted, ManualSplits, context_of, stored
from tests.seeds import seeds

SCHEMA = pa.schema({"t": pa.timestamp("us"), "x": pa.int64()})


class Clocks:
    """A Watermarks operator over splits that a test controls."""

    def __init__(
        self,
        *splits: str,
        delay: int = 0,
        idle_after: int | None = None,
        on_error: OnError = OnError.FAIL,
        restored: Snapshot | None = None,
        begins: dict[str, int] | None = None,
        max_drift: int | None = None,
        close_after: int | None = None,
        ahead: int | None = None,
        clock: ManualClock | None = None,
        like: ManualSplits | None = None,
    ) -> None:
        self.splits, self.out, self.due = copy.deepcopy(like or ManualSplits(*splits)), Emitted(), list[int]()
        self.clock = clock or ManualClock()
        self.context = context_of(SCHEMA, SCHEMA, splits=self.splits, clock=self.clock, due=self.due, restored=restored)
        self.splits.begins = begins or self.splits.begins
        settings = (delay, idle_after, on_error, max_drift, close_after, ahead)
        self.operator = WatermarkOperator(self.context, "t", "t", *settings)
        self.operator.open()

    def feed(self, split: str, *times: int | None, cut: bool = False) -> list[int | str]:
        self.splits.poll(split, cut=cut)
        rows = pa.record_batch([pa.array(times, pa.timestamp("us")), range(len(times))], schema=SCHEMA)
        self.operator.process(0, rows, self.out)
        return self.said()

    def ring(self) -> list[int | str]:
        self.operator.timer(self.due.pop(), self.out)
        return self.said()

    def said(self) -> list[int | str]:
        said, self.out.times = self.out.times, []
        return said


def test_the_latest_time_less_the_delay_counts() -> None:
    c = Clocks("a", delay=3)
    assert [c.feed("a", 5, 9, 7), c.feed("a", 8), c.feed("a", 20)] == [[6], [], [17]]


def test_a_split_that_was_not_read_yet_holds_the_others_back() -> None:
    c = Clocks("a", "b")
    assert [c.feed("a", 5), c.feed("b", 3), c.feed("b", 9)] == [[], [3], [5]]


def test_a_split_that_was_not_read_yet_holds_time_back_to_where_it_begins() -> None:
    c = Clocks("a", "b", delay=2, begins={"a": 0, "b": 10})
    assert [c.feed("a", 5), c.feed("a", 50), c.feed("b", 11), c.feed("b", 40)] == [[3], [10], [], [38]]


def test_a_split_that_ended_holds_nothing_back() -> None:
    c = Clocks("a", "b")
    c.feed("a", 5)
    c.splits.ended.append("a")
    assert c.feed("b", 30) == [30]


def test_a_split_is_ended_once_however_many_batches_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    end = WatermarkMerger.end

    def counted(self: WatermarkMerger, channel: int) -> int | None:
        ended.append(channel)
        return end(self, channel)

    monkeypatch.setattr(WatermarkMerger, "end", counted)
    c = Clocks("a", "b")
    c.feed("a", 5)
    c.splits.ended.append("a")
    assert [c.feed("b", time) for time in (30, 31, 32)] == [[30], [31], [32]]
    assert ended == [0]


def test_a_split_that_ends_while_the_others_rest_is_noticed_in_time() -> None:
    c = Clocks("a", "b")
    c.feed("b", 30)
    c.splits.ended.append("a")
    assert c.ring() == [30]


def test_the_last_watermark_is_left_to_the_engine() -> None:
    c = Clocks("a", idle_after=1_000)
    c.splits.ended.append("a")
    assert [c.feed("a", 5), c.ring()] == [[], []]


@pytest.mark.parametrize("limits", [{"idle_after": 1_000}, {"close_after": 1_000, "idle_after": 5_000}])
def test_splits_are_looked_at_twice_in_the_shortest_time_that_counts(limits: dict[str, int]) -> None:
    assert Clocks("a", **limits).due == [500]  # type: ignore[arg-type]


def test_a_silent_split_is_left_out_until_its_next_row() -> None:
    c = Clocks("a", "b", idle_after=1_000)
    c.feed("a", 50)
    c.splits.silence["b"] = 999
    assert c.ring() == []
    c.splits.silence["b"] = 1_000
    assert c.ring() == [50]
    assert [c.feed("b", 10), c.feed("a", 90), c.feed("b", 70)] == [[], [], [70]]


def test_a_split_that_comes_back_counts_from_its_first_row_on() -> None:
    c = Clocks("a", "b", idle_after=1_000)
    c.feed("a", 50)
    c.splits.silence["b"] = 1_000
    c.ring()
    assert [c.feed("b", 60, cut=True), c.feed("a", 900), c.feed("b", 70)] == [[], [], [70]]


def test_a_split_that_nobody_asked_is_not_idle() -> None:
    c = Clocks("a", "b", idle_after=1_000)
    c.feed("a", 50)
    c.clock.advance(1_000_000)
    assert c.ring() == []


def test_all_splits_silent_is_said_once() -> None:
    c = Clocks("a", idle_after=10)
    c.feed("a", 5)
    c.splits.silence["a"] = 10
    assert [c.ring(), c.ring(), c.feed("a", 6), c.ring()] == [["idle"], [], [6], []]


def test_time_moves_behind_a_whole_batch_however_it_is_cut() -> None:
    c = Clocks("a")
    assert [c.feed("a", 9, cut=True), c.feed("a", 5, cut=True), c.feed("a", 7)] == [[], [], [9]]


def test_a_batch_whose_end_was_filtered_away_ends_before_the_next_one() -> None:
    c = Clocks("a")
    c.feed("a", 9, cut=True)
    c.splits.poll("a", cut=False)
    assert [c.feed("a", 20, cut=True), c.feed("a", 21)] == [[9], [21]]


@pytest.mark.parametrize("ended", [False, True])
def test_a_batch_that_was_cut_by_a_restore_ends_where_it_would_have(ended: bool) -> None:  # noqa: FBT001
    c = Clocks("a")
    c.feed("a", 9, cut=True)
    if ended:
        c.splits.poll("a", cut=False)
    again = Clocks("a", restored=stored(c.operator.snapshot()))
    assert again.feed("a", 12, cut=True) == ([9] if ended else [])
    assert again.feed("a", 3) == [12]


def test_state_of_a_split_that_another_task_reads_is_not_kept() -> None:
    c = Clocks("a", "b", close_after=100)
    for split, time in (("a", 3), ("b", 4)):
        c.feed(split, time)
    c.feed("a", 9, cut=True)
    c.feed("b", 5, cut=True)
    values = Clocks("a", close_after=100, restored=stored(c.operator.snapshot())).operator.snapshot().values
    assert values == {"merged": 3, "watermarks": {"a": 3}, "begun": {"a": [True, 9]}, "latest": {"a": 9}}


def test_splits_that_wait_or_have_ended_take_no_room_in_the_state() -> None:
    begins = {f"split {number}": 100 * number for number in range(1_000)}
    c = Clocks(*begins, begins=begins, close_after=1_000)
    c.feed("split 0", 5)
    assert c.operator.snapshot().values["watermarks"] == {"split 0": 5}
    c.splits.ended.append("split 0")
    assert c.ring() == [100]
    assert c.operator.snapshot().values == {"merged": 100, "watermarks": {}, "begun": {}, "latest": {}}


@pytest.mark.parametrize("seed", seeds(8, 40, extended=40))
def test_restored_clocks_say_what_clocks_with_the_watermarks_of_all_splits_say(seed: int) -> None:
    """Earlier releases stored the watermarks of all splits that had not ended."""
    rng = random.Random(seed)
    names = [f"split {number}" for number in range(rng.randint(1, 4))]
    settings: Any = {
        "delay": rng.choice([0, 7]),
        "idle_after": rng.choice([None, 10]),
        "begins": {name: rng.randint(0, 99) for name in names if rng.random() < 0.5},
    }
    for _ in range(40):
        c = Clocks(*names, **settings)
        for _ in range(rng.randint(0, 12)):
            step(c, rng)
        c.splits.ended += [name for name in c.splits.live() if rng.random() < 0.2]  # the operator does not know yet
        state = stored(c.operator.snapshot())
        known = zip(names, c.operator._merger.snapshot(), strict=True)
        whole = {name: time for name, time in known if time not in (None, MAX_WATERMARK)}
        earlier = replace(state, values={**state.values, "watermarks": whole})
        c.splits.silence = {}
        both = [Clocks(restored=values, like=c.splits, **settings) for values in (state, earlier)]
        script = rng.random()
        said = []
        for again in both:
            steps = random.Random(script)
            said.append([step(again, steps) for _ in range(20)])
        assert said[0] == said[1]


def test_a_restored_split_without_any_row_has_no_time_to_move_on_from() -> None:
    c = Clocks("a", "b", close_after=20, begins={"b": 38})
    c.feed("a", 50)
    again = Clocks("a", "b", close_after=20, begins={"b": 38}, restored=stored(c.operator.snapshot()))
    again.splits.silence["b"] = 30
    assert [again.ring(), again.feed("a", 60), again.feed("b", 39)] == [[], [], [39]]


def step(c: Clocks, rng: random.Random) -> list[int | str]:
    """Let something happen to one of the splits; return what was said."""
    split, event = rng.choice(c.splits.names), rng.random()
    time, cut = rng.randint(0, 150), rng.random() < 0.3
    if event < 0.1 and split not in c.splits.ended:
        c.splits.ended.append(split)
    elif event < 0.5 and split not in c.splits.ended:
        return c.feed(split, max(time, c.splits.begins.get(split, 0)), cut=cut)
    elif event < 0.75:
        c.splits.silence[split] = c.splits.silence.get(split, 0) + 10
    return c.ring()


def test_rows_go_on_before_the_watermark_they_cause() -> None:
    c = Clocks("a")
    order: list[str] = []
    c.out.emit = lambda batch, tag=None: order.append("rows")  # type: ignore[method-assign,misc]
    c.out.watermark = lambda time: order.append("watermark")  # type: ignore[method-assign,misc]
    c.feed("a", 5)
    assert order == ["rows", "watermark"]


def test_a_restored_split_goes_on_where_it_was() -> None:
    c = Clocks("a", "b")
    c.feed("a", 50)
    c.feed("b", 40)
    again = Clocks("a", "b", "new", restored=stored(c.operator.snapshot()))
    assert again.feed("b", 45) == []  # the new one has said nothing yet
    assert again.feed("new", 60) == [45]


def test_a_null_time_fails_unless_it_may_be_skipped_or_set_aside() -> None:
    with pytest.raises(ValueError, match="the event time 't' is null") as caught:
        Clocks("a").feed("a", 1, None)
    assert "on_error='skip'" in caught.value.__notes__[0]
    skipping = Clocks("a", on_error=OnError.SKIP)
    assert (skipping.feed("a", None, 7, None), skipping.context.tally.skipped) == ([7], 2)
    aside = Clocks("a", on_error=OnError.SIDE)
    aside.feed("a", 1, None)
    assert [row[0] for row in aside.out.take(ERRORS)] == ["op"]


def test_a_batch_of_null_times_only_moves_nothing() -> None:
    c = Clocks("a", on_error=OnError.SKIP)
    assert (c.feed("a", None), c.out.take()) == ([], [])


def test_a_time_that_is_too_far_ahead_of_the_clock_goes_by_on_error_and_moves_no_time() -> None:
    noon = ManualClock(wall=1_769_860_800_000_000)  # 2026-01-31 12:00:00
    now = noon.time()
    c = Clocks("a", ahead=1_000_000, on_error=OnError.SIDE, clock=noon)
    assert c.feed("a", now + 1_000_001) == [], "no row is left"
    assert c.feed("a", now - 5, now + 1_000_001, None, now + 7) == [now + 7]
    noon.advance(1)
    assert c.feed("a", now + 1_000_001) == [now + 1_000_001]
    rejected = [error for _, _, error in c.out.take(ERRORS)]
    assert (len(rejected), c.context.tally.skipped) == (3, 3)
    assert rejected[0].startswith(
        "ValueError: the event time 't' is more than 1s ahead of the clock, which shows 2026-01-31 12:00:00 UTC; "
    )
    with pytest.raises(ValueError, match="begins in 1970 unless SimulatedRunner"):
        Clocks("a", ahead=3).feed("a", 4)


@pytest.mark.parametrize(
    ("type_", "times", "usable"),
    [
        (pa.timestamp("s"), [-(2**63), 12, 13, 2**63 - 1], 2),
        (pa.timestamp("ns", "Asia/Tokyo"), [-(2**63), 12_999_999_000, 12_999_999_001, 2**63 - 1], 2),
        (pa.timestamp("ms"), [12_999, 13_000], 1),
    ],
)
def test_the_limit_ahead_is_exact_in_every_unit(type_: pa.DataType, times: list[int], usable: int) -> None:
    schema = pa.schema({"t": type_})
    context = context_of(schema, schema, clock=ManualClock(wall=2_999_999))
    checked = CheckedTimes(context, "t", OnError.SKIP, ahead=10_000_000)
    assert (
        checked.usable(pa.record_batch([pa.array(times, pa.int64()).cast(type_)], schema=schema), Emitted()).num_rows
        == usable
    )


def test_it_refuses_to_run_away_from_its_source() -> None:
    with pytest.raises(ConfigurationError, match="same parallelism"):
        WatermarkOperator(context_of(SCHEMA, SCHEMA), "t", "t", 0, None, OnError.FAIL)


def test_the_other_tasks_are_told_how_far_this_one_is() -> None:
    c = Clocks("a", "b", max_drift=10)
    c.feed("a", 5)
    c.feed("b", 3)
    assert c.splits.told == [None, None, 3]


def test_nobody_waits_for_a_task_that_is_idle_or_at_its_end() -> None:
    c = Clocks("a", idle_after=100, max_drift=10)
    c.feed("a", 5)
    c.splits.silence["a"] = 100
    c.ring()
    c.feed("a", 6)
    c.splits.ended.append("a")
    c.operator.advance(MAX_WATERMARK, c.out)
    assert c.splits.told == [None, 5, None, 6, None]


def test_without_a_limit_nothing_is_told() -> None:
    c = Clocks("a")
    c.feed("a", 5)
    assert c.splits.told == []


# --- splits that are closed


def silent(c: Clocks, **silence: int) -> list[int | str]:
    """What a timer says once the splits were polled in vain for so long."""
    c.splits.silence.update(silence)
    return c.ring()


def test_the_watermark_of_a_silent_split_moves_on_with_the_time_it_was_asked_in_vain() -> None:
    c = Clocks("a", "b", delay=3, close_after=100)
    c.feed("a", 9_000)
    c.feed("b", 50)
    assert [silent(c, b=99), silent(c, b=100), silent(c, b=130)] == [[], [147], [177]]
    assert silent(c, a=8, b=0) == [], "rows of b came, and were filtered away"


def test_a_closed_split_moves_from_its_latest_time_and_never_back() -> None:
    c = Clocks("a", close_after=100)
    c.feed("a", 50)
    assert silent(c, a=200) == [250]
    assert c.feed("a", 20) == []
    assert [silent(c, a=150), silent(c, a=201)] == [[], [251]]


def test_a_closed_split_that_is_idle_holds_no_other_back_but_moves_itself() -> None:
    c = Clocks("a", "b", idle_after=10, close_after=100)
    c.feed("a", 900)
    assert c.feed("b", 50) == [50]
    assert silent(c, b=100) == [900]
    assert c.feed("b", 60) == []
    assert c.feed("a", 1_000) == []
    assert c.feed("b", 950) == [950]


def test_time_moves_while_all_splits_are_idle_by_the_one_that_is_furthest() -> None:
    c = Clocks("a", "b", idle_after=10, close_after=100)
    c.feed("a", 900)
    c.feed("b", 50)
    assert silent(c, a=20, b=20) == ["idle"]
    assert silent(c, a=90, b=99) == []
    assert [silent(c, a=100, b=109), silent(c, a=130, b=139)] == [[1_000, "idle"], [1_030, "idle"]]


def test_a_split_without_any_row_has_no_time_to_move_on_from() -> None:
    c = Clocks("a", "b", close_after=100)
    c.feed("a", 900)
    assert silent(c, b=500) == []


def test_a_restored_split_is_closed_from_where_it_was() -> None:
    c = Clocks("a", close_after=100)
    c.feed("a", 50)
    silent(c, a=120)
    restored = Clocks("a", close_after=100, restored=stored(c.operator.snapshot()))
    assert [silent(restored, a=110), silent(restored, a=130)] == [[], [180]]


def test_of_several_idle_splits_that_move_the_furthest_counts() -> None:
    c = Clocks("a", "b", idle_after=10, close_after=100)
    c.feed("a", 850)
    c.feed("b", 900)
    assert silent(c, a=100, b=100) == [900, "idle", 1_000, "idle"]
