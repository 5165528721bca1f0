from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.protocol.watermarks import MAX_WATERMARK, WatermarkMerger

EVENTS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["advance", "resume", "idle", "end"]), st.integers(0, 20))
)


def play(merger: WatermarkMerger, channel: int, event: str, time: int) -> int | None:
    match event:
        case "advance":
            return merger.advance(channel, time)
        case "resume":
            merger.resume(channel)
            return None
        case "idle":
            return merger.idle(channel)
        case _:
            return merger.end(channel)


def test_a_channel_that_said_nothing_holds_everything_back() -> None:
    merger = WatermarkMerger(2)
    assert (merger.advance(0, 7), merger.merged) == (None, None)


def test_a_step_back_is_no_news() -> None:
    merger = WatermarkMerger(1)
    assert (merger.advance(0, 7), merger.advance(0, 5), merger.advance(0, 7), merger.merged) == (7, None, None, 7)


def test_negative_times_are_times() -> None:
    merger = WatermarkMerger(2)
    assert (merger.advance(0, -7), merger.advance(1, -9), merger.advance(1, -8)) == (None, -9, -8)


def test_a_step_back_of_one_channel_holds_nothing_back() -> None:
    merger = WatermarkMerger(2)
    assert (merger.advance(0, 7), merger.advance(0, 5), merger.advance(1, 9)) == (None, None, 7)


def test_a_row_of_an_idle_channel_holds_time_back_again() -> None:
    merger = WatermarkMerger(2)
    assert (merger.advance(0, 3), merger.advance(1, 3), merger.idle(1)) == (None, 3, None)
    merger.resume(1)
    assert (merger.advance(0, 9), merger.merged) == (None, 3)


def test_a_channel_that_is_idle_no_more_holds_time_back_at_its_own_watermark() -> None:
    merger = WatermarkMerger(2)
    merger.advance(0, 5)
    merger.advance(1, 3)
    assert merger.idle(1) == 5
    merger.resume(1)
    assert (merger.advance(0, 9), merger.merged) == (None, 5)


def test_all_are_idle_only_when_each_live_one_is() -> None:
    merger, said = WatermarkMerger(2), []
    for change in (lambda: merger.idle(0), lambda: merger.idle(1), lambda: merger.resume(0), lambda: merger.end(0)):
        said.append(merger.all_idle)
        change()
    assert (said, merger.all_idle) == ([False, False, True, False], True)


def test_a_snapshot_before_the_first_merged_watermark_has_what_the_channels_said() -> None:
    merger = WatermarkMerger(3)
    merger.advance(0, 5)
    merger.advance(1, 7)
    merger.idle(0)
    assert merger.snapshot() == (None, 7, None)


def test_a_snapshot_gives_each_channel_what_makes_the_merged_watermark_again() -> None:
    merger = WatermarkMerger(5)
    for channel, time in [(0, 2), (2, 12), (3, 9)]:
        merger.advance(channel, time)
    for channel in (0, 1, 4):
        merger.idle(channel)
    merger.advance(0, 4)
    merger.resume(1)
    assert (merger.merged, merger.snapshot()) == (9, (9, 9, 12, 9, 9))


def test_an_idle_channel_that_was_ahead_is_given_the_merged_watermark() -> None:
    merger = WatermarkMerger(2)
    moves = [merger.advance(0, 3), merger.advance(1, 8), merger.idle(1)]
    assert (moves, merger.snapshot()) == ([None, 3, None], (3, 3))


@pytest.mark.parametrize("first", [None, 3])
def test_a_row_that_ends_the_idleness_of_the_last_channel_moves_no_time_in_a_restore(first: int | None) -> None:
    merger, restored = WatermarkMerger(2), WatermarkMerger(2)
    if first is not None:
        merger.advance(0, first)
    moves = [merger.advance(1, 9), merger.idle(1), merger.end(0)]
    merger.resume(1)
    restored.restore(merger.snapshot())
    assert (moves, merger.merged, restored.merged) == ([first, None, None], first, first)
    assert [each.advance(1, 9) for each in (merger, restored)] == [9, 9]


def test_an_end_stays_an_end_in_the_snapshot() -> None:
    merger = WatermarkMerger(2)
    moves = [merger.advance(1, 3), merger.end(0), merger.idle(0)]
    assert (moves, merger.snapshot()) == ([None, 3, None], (MAX_WATERMARK, 3))


def test_a_restored_merger_goes_on() -> None:
    merger = WatermarkMerger(2)
    merger.restore((5, 8))
    assert (merger.merged, merger.advance(0, 6), merger.advance(0, 9)) == (5, 6, 8)


def test_the_merged_watermark_stays_while_all_channels_are_idle() -> None:
    merger = WatermarkMerger(2)
    moves = [merger.advance(0, 3), merger.advance(1, 9), merger.idle(1), merger.idle(0)]
    assert (moves, merger.merged, merger.all_idle) == ([None, 3, None, None], 3, True)


def test_a_channel_back_from_idleness_does_not_turn_time_back() -> None:
    merger = WatermarkMerger(2)
    moves = [merger.advance(1, 2), merger.idle(1), merger.advance(0, 9), merger.advance(1, 4), merger.advance(1, 10)]
    assert (moves, merger.merged, merger.advance(0, 11)) == ([None, None, 9, None, None], 9, 10)


def test_an_idle_channel_that_moves_does_not_pass_a_channel_that_counts() -> None:
    merger = WatermarkMerger(2)
    moves = [merger.advance(0, 3), merger.advance(1, 9), merger.idle(1), merger.move_idle(1, 20), merger.idle(0)]
    assert (moves, merger.move_idle(1, 21)) == ([None, 3, None, None, None], 21)


def test_an_idle_channel_does_not_move_back() -> None:
    merger = WatermarkMerger(2)
    moves = [merger.advance(0, 5), merger.advance(1, 9), merger.idle(1), merger.move_idle(1, 7)]
    merger.resume(1)
    assert (moves, merger.advance(0, 12)) == ([None, 5, None, None], 9)


def test_an_ended_channel_beside_idle_ones_does_not_move_time() -> None:
    merger = WatermarkMerger(2)
    moves = [merger.advance(0, 3), merger.advance(1, 9), merger.idle(1), merger.end(0)]
    assert (moves, merger.all_idle) == ([None, 3, None, None], True)


def test_the_end_of_all_is_the_end_of_time() -> None:
    merger = WatermarkMerger(2)
    assert (merger.end(0), merger.idle(1), merger.end(1), merger.all_idle) == (None, None, MAX_WATERMARK, False)


@given(EVENTS)
def test_the_merged_watermark_never_goes_back_and_each_move_is_answered_once(
    events: list[tuple[int, str, int]],
) -> None:
    merger = WatermarkMerger(3)
    moves = [moved for event in events if (moved := play(merger, *event)) is not None]
    assert moves == sorted(set(moves))
    assert merger.merged == (moves[-1] if moves else None)


@given(EVENTS)
def test_a_restored_merger_is_where_the_old_one_was(events: list[tuple[int, str, int]]) -> None:
    merger, restored = WatermarkMerger(3), WatermarkMerger(3)
    for event in events:
        play(merger, *event)
    restored.restore(merger.snapshot())
    assert restored.merged == merger.merged
    assert restored.snapshot() == merger.snapshot()


class Plain:
    """The same rules over all channels at each event."""

    def __init__(self, channels: int) -> None:
        self.times: list[int | None] = [None] * channels
        self.idle: set[int] = set()
        self.merged: int | None = None

    def live(self) -> list[int]:
        return [channel for channel, time in enumerate(self.times) if time != MAX_WATERMARK]

    def take(self, channel: int, event: str, time: int) -> int | None:
        if event in ("advance", "resume", "end"):
            self.idle.discard(channel)
        if event in ("advance", "end"):
            times = [known for known in (self.times[channel], MAX_WATERMARK if event == "end" else time) if known]
            self.times[channel] = max(times)
        if event == "idle" and channel in self.live():
            self.idle.add(channel)
        return None if event == "resume" else self.merge()

    def move_idle(self, channel: int, time: int) -> int | None:
        self.times[channel] = time = max(time, self.times[channel] or time)
        if set(self.live()) != self.idle or (self.merged is not None and time <= self.merged):
            return None
        self.merged = time
        return time

    def merge(self) -> int | None:
        counting = [self.times[channel] for channel in self.live() if channel not in self.idle]
        if None in counting or (self.live() and not counting):
            return None
        low = min([time for time in counting if time is not None], default=MAX_WATERMARK)
        if self.merged is not None and low <= self.merged:
            return None
        self.merged = low
        return low


KINDS = ["advance", "advance", "resume", "idle", "end", "move", "restore"]


@given(
    channels=st.integers(1, 4),
    events=st.lists(st.tuples(st.integers(0, 3), st.sampled_from(KINDS), st.integers(1, 9)), max_size=120),
)
def test_a_merger_says_what_one_that_looks_at_every_channel_says(
    channels: int, events: list[tuple[int, str, int]]
) -> None:
    merger, plain = WatermarkMerger(channels), Plain(channels)
    for number, event, time in events:
        channel = number % channels
        if event == "restore":
            times = merger.snapshot()
            merger, plain = WatermarkMerger(channels), Plain(channels)
            merger.restore(times)
            plain.times = list(times)
            plain.merge()
        elif event == "move":
            if channel in plain.idle:
                assert merger.move_idle(channel, time) == plain.move_idle(channel, time)
        else:
            assert play(merger, channel, event, time) == plain.take(channel, event, time)
        live = plain.live()
        assert merger.merged == plain.merged
        assert merger.all_idle == (bool(live) and plain.idle.issuperset(live))
        assert [merger.is_idle(each) for each in range(channels)] == [each in plain.idle for each in range(channels)]


def test_a_channel_that_moves_while_another_stays_takes_no_more_memory() -> None:
    merger = WatermarkMerger(2)
    merger.advance(0, 1)
    for time in range(1, 1_000):
        assert merger.advance(1, time) == (1 if time == 1 else None)
    assert len(merger._lowest) < 50
