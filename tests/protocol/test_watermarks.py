from __future__ import annotations

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


def test_the_merged_watermark_stays_while_all_channels_are_idle() -> None:
    merger = WatermarkMerger(2)
    moves = [merger.advance(0, 3), merger.advance(1, 9), merger.idle(1), merger.idle(0)]
    assert (moves, merger.merged, merger.all_idle) == ([None, 3, None, None], 3, True)


def test_a_channel_back_from_idleness_does_not_turn_time_back() -> None:
    merger = WatermarkMerger(2)
    moves = [merger.advance(1, 2), merger.idle(1), merger.advance(0, 9), merger.advance(1, 4), merger.advance(1, 10)]
    assert (moves, merger.merged, merger.advance(0, 11)) == ([None, None, 9, None, None], 9, 10)


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
