from __future__ import annotations

from threading import Thread

import pyarrow as pa
import pytest

from dataflow.protocol.events import Barrier, Cancel, Data, Element, EndOfInput, Idle, Watermark
from dataflow.runtime.task.channel import Channel


def filled(*elements: Element, credit: int = 2) -> Channel:
    channel = Channel(credit, "a")
    for element in elements:
        channel.put(element)
    return channel


def drained(channel: Channel) -> list[Element]:
    return [channel.take() for _ in range(len(channel))]


def test_elements_come_out_in_the_order_they_went_in() -> None:
    elements = [Data("xy"), Barrier(1), Watermark(3), Idle(), Data("z"), EndOfInput()]
    assert drained(filled(*elements)) == elements


def test_only_rows_use_up_credit() -> None:
    channel = filled(Data("x"), Barrier(1), Watermark(1), Idle(), Barrier(2))
    assert channel.has_credit
    channel.put(Data("y"))
    assert not channel.has_credit


def test_taking_rows_gives_credit_back_and_taking_control_does_not() -> None:
    channel = filled(Barrier(1), Data("x"), credit=1)
    channel.take()
    assert not channel.has_credit
    channel.take()
    assert channel.has_credit


def test_rows_beyond_the_credit_give_it_back_only_when_there_is_room_again() -> None:
    channel = filled(Data("x"), Data("y"), Data("z"), credit=2)
    had = []
    while channel.head is not None:
        channel.take()
        had.append(channel.has_credit)
    assert had == [False, True, True]


def test_what_is_queued_is_what_was_queued_then() -> None:
    channel = filled(Data("x"), Watermark(1), Cancel(1))
    queued = channel.queued
    channel.take()
    assert queued == (Data("x"), Watermark(1))


def test_adjacent_watermarks_become_the_later_one() -> None:
    assert drained(filled(Watermark(1), Watermark(5), Watermark(4))) == [Watermark(5)]


def test_a_later_watermark_takes_the_place_of_the_one_before_it_behind_what_is_queued() -> None:
    assert drained(filled(Data("x"), Watermark(1), Watermark(5), Data("y"))) == [Data("x"), Watermark(5), Data("y")]


def test_watermarks_apart_stay_apart() -> None:
    elements = [Watermark(1), Data("x"), Watermark(2), Barrier(1), Watermark(3)]
    assert drained(filled(*elements)) == elements


def test_a_cancel_overtakes_what_stood_ahead_of_it_and_nothing_else() -> None:
    channel = filled(Data("gone"), Data("x"), Barrier(1), Cancel(2), Data("behind"))
    channel.take()
    assert channel.take_urgent() == (Cancel(2), (Data("x"), Barrier(1)))
    assert drained(channel) == [Data("x"), Barrier(1), Data("behind")]


def test_cancels_keep_their_order() -> None:
    channel = filled(Cancel(1), Data("x"), Cancel(2))
    assert [channel.take_urgent(), channel.take_urgent()] == [(Cancel(1), ()), (Cancel(2), (Data("x"),))]
    assert not channel.is_urgent


def test_a_watermark_behind_a_cancel_does_not_move_ahead_of_it() -> None:
    assert filled(Watermark(1), Cancel(1), Watermark(2)).take_urgent() == (Cancel(1), (Watermark(1),))


def test_rows_are_counted_when_put_and_while_queued() -> None:
    channel = filled(Data("xy"), Data("z"), Barrier(1))
    channel.take()
    assert (channel.rows, channel.batches, channel.queued_rows, len(channel)) == (3, 2, 1, 2)


def test_rows_taken_from_a_batch_are_not_queued_any_more() -> None:
    channel = filled(Data(pa.array([1, 2, 3])))
    channel.take(max_rows=2)
    assert channel.queued_rows == 1


def test_preloaded_elements_come_first_and_use_credit_up() -> None:
    channel = Channel(1, "a")
    channel.preload([Data("old"), Barrier(1)])
    assert not channel.has_credit
    channel.put(Data("new"))
    assert drained(channel) == [Data("old"), Barrier(1), Data("new")]


def test_preloading_behind_a_put_is_refused() -> None:
    with pytest.raises(AssertionError, match="preloaded after 1"):
        filled(Data("x")).preload([Data("y")])


def test_nothing_follows_the_end() -> None:
    with pytest.raises(AssertionError, match="after the end of input"):
        filled(EndOfInput(), Cancel(1))


def test_the_head_is_what_take_answers() -> None:
    channel = filled(Data("x"))
    assert channel.head is channel.take()
    assert channel.head is None


def test_puts_ring_and_rows_that_are_taken_ring_once_for_a_writer_that_waits() -> None:
    rung: list[str] = []
    channel = Channel(4, "a")
    channel.on_put = lambda: rung.append("put")
    channel.on_take = lambda: rung.append(f"take, {channel.queued_rows} left")
    for element in (Data("x"), Watermark(1), Data("yz"), Data("u"), Cancel(1)):
        channel.put(element)
    assert rung == ["put"] * 5
    rung.clear()
    channel.take()
    assert rung == []  # nobody waits
    channel.awaited = True
    channel.take_urgent()
    channel.take()
    assert rung == []  # a cancel and a watermark use no credit
    channel.take()
    channel.take()
    assert (rung, channel.awaited) == (["take, 1 left"], False)


def test_two_threads_lose_and_reorder_nothing() -> None:
    channel = Channel(4, "a")
    sent = 20_000

    def produce() -> None:
        for number in range(sent):
            channel.put(Cancel(number) if number % 97 == 0 else Data((number,)) if number % 3 else Watermark(number))
        channel.put(EndOfInput())

    producer = Thread(target=produce)
    producer.start()
    rows: list[int] = []
    times: list[int] = []
    cancels: list[int] = []
    while True:
        if channel.is_urgent:
            urgent, overtaken = channel.take_urgent()
            assert isinstance(urgent, Cancel)
            assert all(one.rows[0] < urgent.checkpoint for one in overtaken if isinstance(one, Data))
            cancels.append(urgent.checkpoint)
        elif channel.head is not None:
            element = channel.take()
            if isinstance(element, Data):
                rows.append(element.rows[0])
            elif isinstance(element, Watermark):
                times.append(element.time)
            else:
                break
    producer.join()
    assert rows == [number for number in range(sent) if number % 97 and number % 3]
    assert cancels == list(range(0, sent, 97))
    assert times == sorted(set(times))
    assert times[-1] == max(number for number in range(sent) if number % 97 and not number % 3)
    assert (len(channel), channel.queued_rows, channel.rows) == (0, 0, len(rows))


# --- barriers that overtake


def barrier(n: int) -> Barrier:
    return Barrier(n, unaligned=True)


def test_an_unaligned_barrier_overtakes_only_where_that_is_allowed() -> None:
    assert [make(barrier(1)).is_urgent for make in (overtakable, filled)] == [True, False]


def test_an_aligned_barrier_keeps_its_place_where_it_could_overtake() -> None:
    channel = overtakable(rows(1), Barrier(1))
    assert (channel.is_urgent, list(channel.barriers)) == (False, [Barrier(1)])


def test_a_promoted_barrier_overtakes_what_stood_ahead_of_it_and_nothing_else() -> None:
    channel = overtakable(rows(1), Watermark(3), queued := Barrier(1), rows(2))
    channel.promote(queued)
    assert channel.take_urgent() == (queued, (rows(1), Watermark(3)))
    assert [channel.take() for _ in range(3)] == [rows(1), Watermark(3), rows(2)]


def test_of_equal_barriers_the_one_meant_is_promoted() -> None:
    channel = overtakable(Barrier(1), rows(1), second := Barrier(1))
    channel.promote(second)
    assert channel.take_urgent() == (second, (Barrier(1), rows(1)))


def test_a_promoted_barrier_keeps_its_place_among_the_urgent() -> None:
    channel = overtakable(rows(1), Cancel(1), queued := Barrier(2), rows(2), Cancel(3), rows(3))
    channel.promote(queued)
    assert [channel.take_urgent() for _ in range(3)] == [
        (Cancel(1), (rows(1),)),
        (queued, (rows(1),)),
        (Cancel(3), (rows(1), rows(2))),
    ]


def test_what_is_put_behind_a_promoted_barrier_overtakes_what_stood_ahead_of_it_and_nothing_else() -> None:
    channel = overtakable(rows(1), queued := Barrier(1))
    channel.promote(queued)
    for element in (Cancel(2), rows(2), barrier(3), rows(3)):
        channel.put(element)
    assert [channel.take_urgent() for _ in range(3)] == [
        (queued, (rows(1),)),
        (Cancel(2), (rows(1),)),
        (barrier(3), (rows(1), rows(2))),
    ]


def test_a_barrier_that_was_taken_cannot_be_promoted_any_more() -> None:
    channel = overtakable(Barrier(1), rows(1))
    channel.take()
    assert not channel.barriers


def test_a_watermark_behind_a_promoted_barrier_does_not_move_ahead_of_it() -> None:
    channel = overtakable(Watermark(1), queued := Barrier(1))
    channel.promote(queued)
    channel.put(Watermark(2))
    assert channel.take_urgent() == (queued, (Watermark(1),))


def rows(value: int) -> Data:
    return Data([value])


def overtakable(*elements: Element) -> Channel:
    channel = Channel(8, "a", overtakable=True)
    for element in elements:
        channel.put(element)
    return channel


def test_both_parts_of_a_batch_that_is_cut_keep_its_epoch() -> None:
    channel = filled(Data(pa.record_batch({"x": [1, 2, 3]}), epoch=7))
    first, rest = channel.take(max_rows=2), channel.take()
    assert [element.epoch for element in (first, rest) if isinstance(element, Data)] == [7, 7]


def test_a_change_is_not_cut_between_the_row_taken_back_and_the_new_one() -> None:
    changes = pa.record_batch({"n": [1, 1, 2, 2, 3, 7], "change": pa.array([1, -1, 1, -1, 1, 1], pa.int8())})
    channel = Channel(8, "a", is_signed=True)
    channel.put(Data(changes))
    taken = [channel.take(max_rows=limit) for limit in (2, 1)]
    assert [element.rows["n"].to_pylist() for element in taken if isinstance(element, Data)] == [[1, 1, 2], [2, 3, 7]]
    assert (channel.queued_rows, len(channel), channel.has_credit) == (0, 0, True)
