from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from dataflow.protocol.actions import Abort, AbortReason, Complete, TakeSnapshot
from dataflow.protocol.alignment import Aligner, EndOfInputPolicy
from dataflow.protocol.events import Barrier, Cancel, Data, Element, EndOfInput, Idle, PortEnded, Watermark
from dataflow.protocol.handler import BarrierHandler
from dataflow.protocol.tracking import Tracker
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.input_gate import InputGate, RoundRobin


class Rig:
    """A gate over real channels that is fed by channel number."""

    def __init__(self, channels: int, handler: BarrierHandler | None = None) -> None:
        self.channels = [Channel(8, f"input {index}") for index in range(channels)]
        self.gate = InputGate(self.channels, handler or aligner(channels), RoundRobin())

    def feed(self, *arrivals: tuple[int, Element]) -> Rig:
        for channel, element in arrivals:
            self.channels[channel].put(element)
        return self

    def polled(self, now: int = 0) -> list[tuple[int, Element | None]]:
        """Everything that can be polled now, without the actions."""
        return [(taken.channel, taken.element) for taken in iter(lambda: self.gate.poll(now), None)]

    def elements(self, now: int = 0) -> list[Element | None]:
        return [element for _, element in self.polled(now)]


def aligner(channels: int) -> Aligner:
    return Aligner(channels, end_of_input=EndOfInputPolicy.ALIGN)


def test_channels_take_turns() -> None:
    rig = Rig(3).feed(*[(channel, Data((turn,))) for turn in range(2) for channel in (0, 2, 1)])
    assert [channel for channel, _ in rig.polled()] == [0, 1, 2, 0, 1, 2]


def test_a_channel_with_nothing_is_passed_over() -> None:
    rig = Rig(3).feed((0, Data("a")), (2, Data("c")), (0, Data("d")))
    assert [channel for channel, _ in rig.polled()] == [0, 2, 0]


def test_the_choice_is_given_the_ready_channels_in_ascending_order() -> None:
    offered: list[Sequence[int]] = []

    def last(channels: Sequence[int]) -> int:
        offered.append(tuple(channels))
        return channels[-1]

    rig = Rig(3)
    rig.gate = InputGate(rig.channels, aligner(3), last)
    rig.feed((2, Data("c")), (0, Data("a")))
    assert [channel for channel, _ in rig.polled()] == [2, 0]
    assert offered == [(0, 2), (0,)]


def test_a_blocked_channel_is_not_polled_but_its_cancel_is() -> None:
    rig = Rig(2).feed((0, Barrier(1)), (0, Data("x")))
    assert rig.elements() == [Barrier(1)]
    assert set(rig.gate.blocked) == {0}
    rig.feed((0, Cancel(1)))
    assert rig.elements() == [Cancel(1), Data("x")]


def test_an_urgent_element_comes_before_everything_queued_anywhere() -> None:
    rig = Rig(2).feed((0, Data("x")), (1, Data("y")), (1, Cancel(4)))
    assert rig.elements() == [Cancel(4), Data("x"), Data("y")]


def test_rows_come_out_in_the_colour_they_have_here() -> None:
    rig = Rig(2, Tracker(2)).feed((0, Barrier(3)), (0, Data("x")))
    assert rig.elements() == [Barrier(3), Data("x", epoch=3)]


def test_a_poll_for_control_takes_barriers_and_cancels_only() -> None:
    rig = Rig(5).feed(
        (0, Data("x")), (0, Barrier(1)), (1, Watermark(1)), (2, EndOfInput()), (3, Barrier(1)), (4, Idle())
    )
    rig.feed((0, Cancel(7)))
    taken = [(one.channel, one.element) for one in iter(lambda: rig.gate.poll_control(0), None)]
    assert taken == [(0, Cancel(7)), (3, Barrier(1))]


def test_a_poll_for_control_leaves_blocked_channels_alone() -> None:
    rig = Rig(2).feed((0, Barrier(1)), (0, Barrier(2)))
    assert rig.gate.poll_control(0) is not None
    assert rig.gate.poll_control(0) is None


def test_actions_come_with_the_element_that_caused_them() -> None:
    rig = Rig(2).feed((0, Barrier(1)), (1, Barrier(1)))
    polled = [rig.gate.poll(0), rig.gate.poll(0)]
    assert [list(one.actions) for one in polled if one] == [[], [TakeSnapshot(Barrier(1)), Complete(1)]]


def test_the_lowest_watermark_comes_out_and_only_when_it_moves() -> None:
    rig = Rig(2).feed((0, Watermark(5)), (1, Watermark(3)))
    assert rig.elements() == [None, Watermark(3)]
    assert rig.feed((0, Watermark(9))).elements() == [None]
    assert rig.feed((1, Watermark(7))).elements() == [Watermark(7)]
    assert rig.gate.watermark == 7


def test_an_idle_channel_holds_nothing_back_until_its_next_row() -> None:
    rig = Rig(2).feed((0, Watermark(5)), (1, Idle()))
    assert rig.elements() == [None, Watermark(5)]
    assert rig.feed((1, Data("x"))).elements() == [Data("x")]
    assert rig.feed((0, Watermark(9))).elements() == [None]


def test_a_channel_that_is_left_out_holds_nothing_back_from_the_start() -> None:
    rig = Rig(2)
    rig.gate.leave_out([1])
    assert rig.feed((0, Watermark(5))).elements() == [Watermark(5)]


def test_channels_are_not_left_out_if_there_are_no_others() -> None:
    rig = Rig(2)
    rig.gate.leave_out([0, 1])
    assert rig.feed((0, EndOfInput())).elements() == [EndOfInput()]
    assert rig.feed((1, EndOfInput())).elements() == [PortEnded(0), Watermark(MAX_WATERMARK), EndOfInput()]


def test_the_gate_falls_idle_once_when_all_its_channels_are() -> None:
    rig = Rig(2).feed((0, Idle()), (1, Idle()))
    assert rig.elements() == [None, Idle()]
    rig.feed((0, Idle()))
    assert rig.elements() == [None]
    rig.feed((0, Data("x")))
    rig.feed((0, Idle()))
    assert rig.elements() == [Data("x"), Idle()]


def test_an_end_that_leaves_only_idle_channels_says_so_first() -> None:
    rig = Rig(2).feed((0, Idle()))
    rig.elements()
    assert rig.feed((1, EndOfInput())).elements() == [Idle(), EndOfInput()]


def test_an_end_moves_time_before_it_is_taken() -> None:
    rig = Rig(2).feed((0, Watermark(9)), (1, Watermark(3)), (1, EndOfInput()))
    assert rig.elements() == [None, Watermark(3), Watermark(9), EndOfInput()]
    assert rig.feed((0, EndOfInput())).elements() == [PortEnded(0), Watermark(MAX_WATERMARK), EndOfInput()]
    assert rig.gate.ended


def test_the_gate_has_not_ended_while_a_channel_is_open() -> None:
    rig = Rig(2).feed((0, EndOfInput()))
    rig.elements()
    assert not rig.gate.ended


def test_restored_watermarks_are_not_said_again_and_do_not_go_back() -> None:
    before = Rig(2).feed((0, Watermark(9)), (1, Watermark(3)))
    before.elements()
    after = Rig(2)
    after.gate.restore(before.gate.snapshot())
    assert after.feed((0, Watermark(4))).elements() == [None]
    assert after.feed((1, Watermark(4))).elements() == [Watermark(4)]


def test_blocked_time_is_metered_for_each_channel() -> None:
    rig = Rig(2).feed((0, Barrier(1)))
    rig.elements(now=10)
    assert rig.gate.blocked_time(now=25) == (15, 0)
    rig.feed((1, Barrier(1))).elements(now=40)
    rig.feed((1, Barrier(2))).elements(now=100)
    assert rig.gate.blocked_time(now=103) == (30, 3)


def test_blocked_time_adds_up_over_checkpoints() -> None:
    rig = Rig(2)
    for n, (blocked, freed) in enumerate([(10, 15), (20, 22), (30, 37)], start=1):
        rig.feed((0, Barrier(n))).elements(now=blocked)
        rig.feed((1, Barrier(n))).elements(now=freed)
    assert rig.gate.blocked_time(now=99) == (14, 0)


def test_an_abort_by_the_coordinator_stops_the_meter() -> None:
    rig = Rig(2).feed((0, Barrier(1)))
    rig.elements(now=10)
    assert rig.gate.abort(1, AbortReason.EXPIRED, now=15) == [Abort(1, AbortReason.EXPIRED)]
    assert rig.gate.blocked_time(now=99) == (5, 0)


def test_the_alignment_clock_starts_when_the_first_barrier_is_consumed() -> None:
    rig = Rig(2).feed((0, Barrier(1)), (0, Barrier(2)))
    rig.elements(now=10)
    rig.feed((1, Cancel(1))).elements(now=20)
    rig.feed((1, Barrier(2))).elements(now=33)
    assert rig.gate.alignment.duration == 13


@pytest.mark.parametrize("handler", [aligner, Tracker])
def test_a_gate_aligns_from_the_first_barrier_until_the_snapshot(handler: Callable[[int], BarrierHandler]) -> None:
    rig = Rig(2, handler(2)).feed((0, Barrier(1)))
    seen = [rig.gate.aligning]
    rig.elements(now=10)
    seen.append(rig.gate.aligning)
    rig.feed((1, Barrier(1))).elements(now=20)
    assert [*seen, rig.gate.aligning] == [False, True, False]


@pytest.mark.parametrize("handler", [aligner, Tracker])
def test_an_aborted_checkpoint_is_not_aligned_for_any_more(handler: Callable[[int], BarrierHandler]) -> None:
    rig = Rig(2, handler(2)).feed((0, Barrier(1)))
    rig.elements(now=10)
    rig.gate.abort(1, AbortReason.EXPIRED, now=15)
    assert not rig.gate.aligning
    rig.feed((0, Barrier(2))).elements(now=40)
    rig.feed((1, Barrier(2))).elements(now=43)
    assert (rig.gate.alignment.duration, rig.gate.aligning) == (3, False)


@pytest.mark.parametrize("handler", [aligner, Tracker])
def test_a_cancel_ends_the_alignment_of_its_checkpoint(handler: Callable[[int], BarrierHandler]) -> None:
    rig = Rig(2, handler(2)).feed((0, Barrier(1)))
    rig.elements(now=10)
    rig.feed((1, Cancel(1))).elements(now=20)
    assert not rig.gate.aligning


def test_alignment_takes_no_time_on_a_single_channel() -> None:
    rig = Rig(1).feed((0, Barrier(1)))
    rig.elements(now=10)
    assert rig.gate.alignment.duration == 0


def test_a_repeated_barrier_does_not_restart_the_alignment_clock() -> None:
    rig = Rig(2, Tracker(2)).feed((0, Barrier(1)))
    rig.elements(now=10)
    rig.feed((0, Barrier(1))).elements(now=20)
    rig.feed((1, Barrier(1))).elements(now=30)
    assert rig.gate.alignment.duration == 20


@pytest.mark.parametrize("handler", [aligner, Tracker])
def test_a_barrier_of_a_checkpoint_given_up_starts_no_alignment(handler: Callable[[int], BarrierHandler]) -> None:
    rig = Rig(2, handler(2))
    rig.gate.abort(2, AbortReason.EXPIRED, now=5)
    rig.feed((0, Barrier(2))).elements(now=10)
    assert not rig.gate.aligning


def test_nor_does_it_where_it_ends_the_wait_for_a_lower_one() -> None:
    rig = Rig(2).feed((0, Barrier(1)))
    rig.elements(now=10)
    rig.gate.abort(2, AbortReason.EXPIRED, now=15)
    rig.feed((1, Barrier(2))).elements(now=20)
    assert not rig.gate.aligning


def test_the_alignment_of_a_checkpoint_that_subsumed_another_is_its_own() -> None:
    rig = Rig(2).feed((0, Barrier(1)))
    rig.elements(now=10)
    rig.feed((1, Barrier(2))).elements(now=20)
    rig.feed((0, Barrier(2))).elements(now=50)
    assert (rig.gate.alignment.duration, rig.gate.aligning) == (30, False)


def test_a_snapshot_ends_the_wait_for_lower_checkpoints_and_not_for_higher_ones() -> None:
    rig = Rig(2, Tracker(2)).feed((0, Barrier(1)), (0, Barrier(2)), (0, Barrier(3)))
    rig.elements(now=10)
    rig.feed((1, Barrier(2))).elements(now=20)
    assert (rig.gate.alignment.duration, rig.gate.aligning) == (10, True)
    rig.feed((1, Barrier(3))).elements(now=50)
    assert (rig.gate.alignment.duration, rig.gate.aligning) == (40, False)


def test_a_barrier_that_is_absorbed_behind_its_cancel_starts_no_alignment() -> None:
    rig = Rig(3, Tracker(3)).feed((0, Cancel(2)))
    rig.elements(now=10)
    rig.feed((1, Barrier(2))).elements(now=20)
    assert not rig.gate.aligning


def test_a_channel_that_stays_blocked_is_metered_without_a_gap() -> None:
    rig = Rig(3).feed((0, Barrier(1)))
    rig.elements(now=10)
    rig.feed((1, Barrier(1))).elements(now=20)
    assert rig.gate.blocked_time(now=30) == (20, 10, 0)


def test_time_and_deadline_are_the_handlers() -> None:
    rig = Rig(1)
    assert rig.gate.deadline is None
    assert rig.gate.tick(now=5) == []
