"""What scripts cannot say: aborts by the coordinator, colours from upstream, memory, the handlers' invariants."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.protocol.actions import Abort, AbortReason, Action, Complete, Ignore, PassOver, TakeSnapshot
from dataflow.protocol.alignment import Aligner, EndOfInputPolicy
from dataflow.protocol.events import Barrier, BarrierKind, Cancel, Data, Idle, Watermark
from dataflow.protocol.overtaking import Overtaker
from dataflow.protocol.red_log import RedLog
from dataflow.protocol.settled import Settled
from dataflow.protocol.tracking import Tracker


def aligner(channels: int) -> Aligner:
    return Aligner(channels, end_of_input=EndOfInputPolicy.ALIGN)


@pytest.mark.parametrize("make", [aligner, Tracker])
def test_the_coordinators_abort_gives_a_pending_checkpoint_up_once(make: type[Tracker]) -> None:
    handler = make(2)
    handler.barrier(0, Barrier(1), 0)
    assert handler.abort(1, AbortReason.EXPIRED, 0) == [Abort(1, AbortReason.EXPIRED)]
    assert handler.abort(1, AbortReason.EXPIRED, 0) == []
    assert handler.cancel(1, 1, 0) == []
    assert not handler.blocked


@pytest.mark.parametrize("make", [aligner, Tracker])
def test_barriers_of_a_checkpoint_aborted_before_they_came_open_nothing(make: type[Tracker]) -> None:
    handler = make(2)
    assert handler.abort(2, AbortReason.EXPIRED, 0) == []
    for channel in (0, 1):
        assert all(isinstance(action, Ignore) for action in handler.barrier(channel, Barrier(2), 0))
        assert not handler.blocked
    assert handler.barrier(0, Barrier(3), 0) == []
    assert handler.barrier(1, Barrier(3), 0)[0] == TakeSnapshot(Barrier(3))


@pytest.mark.parametrize("make", [aligner, Tracker])
def test_an_abort_ahead_of_its_barriers_leaves_lower_checkpoints_alone(make: type[Tracker]) -> None:
    handler = make(2)
    handler.abort(2, AbortReason.EXPIRED, 0)
    handler.barrier(0, Barrier(1), 0)
    assert handler.barrier(1, Barrier(1), 0)[0] == TakeSnapshot(Barrier(1))


@pytest.mark.parametrize("make", [aligner, Tracker])
def test_a_cancel_of_what_the_coordinator_aborted_is_no_news(make: type[Tracker]) -> None:
    handler = make(2)
    handler.abort(2, AbortReason.EXPIRED, 0)
    assert handler.cancel(0, 2, 0) == []
    assert all(isinstance(action, Ignore) for action in handler.barrier(1, Barrier(2), 0))
    assert not handler.blocked


@pytest.mark.parametrize("make", [aligner, Tracker])
def test_no_clock_changes_a_checkpoint_that_nothing_overtakes(make: type[Tracker]) -> None:
    handler = make(2)
    handler.barrier(0, Barrier(1), 0)
    assert (handler.deadline, handler.overtakes_from(Barrier(1)), handler.overtakes_from(Barrier(2))) == (None,) * 3
    assert handler.tick(10**12) == []


@pytest.mark.parametrize("make", [aligner, Tracker])
def test_a_snapshot_may_be_taken_of_what_is_pending_or_still_to_come(make: type[Tracker]) -> None:
    handler, floors = make(2), []
    for channel, n in [(0, 3), (1, 3), (0, 5), (1, 7)]:
        floors.append(handler.floor)
        handler.barrier(channel, Barrier(n), 0)
    assert floors == [1, 3, 4, 5]


@pytest.mark.parametrize("make", [aligner, Tracker])
def test_the_snapshot_carries_the_barrier_that_opened_it(make: type[Tracker]) -> None:
    handler = make(2)
    first = Barrier(1, BarrierKind.SAVEPOINT, triggered_at=7)
    handler.barrier(0, first, 0)
    assert handler.barrier(1, Barrier(1), 0)[0] == TakeSnapshot(first)


def test_a_higher_barrier_of_an_aborted_checkpoint_still_subsumes_the_pending_one() -> None:
    handler = aligner(2)
    handler.barrier(0, Barrier(1), 0)
    handler.abort(2, AbortReason.EXPIRED, 0)
    assert handler.barrier(1, Barrier(2), 0) == [Abort(1, AbortReason.SUBSUMED), Ignore(2)]
    assert not handler.blocked


def test_a_cancel_of_an_aborted_checkpoint_still_supersedes_the_pending_one() -> None:
    handler = aligner(2)
    handler.barrier(0, Barrier(1), 0)
    handler.abort(2, AbortReason.EXPIRED, 0)
    assert handler.cancel(1, 2, 0) == [Abort(1, AbortReason.SUPERSEDED)]
    assert not handler.blocked


@pytest.mark.parametrize("make", [aligner, Tracker])
def test_a_second_barrier_of_a_channel_is_ignored(make: type[Tracker]) -> None:
    handler = make(2)
    assert [handler.barrier(0, Barrier(1), 0) for _ in range(2)] == [[], [Ignore(1)]]
    assert handler.barrier(1, Barrier(1), 0)[0] == TakeSnapshot(Barrier(1))


@pytest.mark.parametrize("make", [aligner, Tracker])
def test_what_has_no_colour_or_the_right_one_passes_as_it_is(make: type[Tracker]) -> None:
    handler = make(2)
    handler.barrier(0, Barrier(1), 0)
    for element in (Watermark(3), Idle(), Data("x", epoch=1), Data("y", epoch=2)):
        assert handler.element(0, element) is element


def test_rows_that_come_red_from_upstream_are_duplicates_too() -> None:
    tracker = Tracker(2)
    red = Data("x", epoch=1)
    assert tracker.element(0, red) is red
    tracker.barrier(0, Barrier(1), 0)
    assert tracker.barrier(1, Barrier(1), 0)[1] == Complete(1, duplicated={0: (red,)})


def test_rows_of_a_later_colour_are_duplicates_of_each_checkpoint_up_to_it() -> None:
    tracker = Tracker(1)
    red = tracker.element(0, Data("x", epoch=2))
    taken = [tracker.barrier(0, Barrier(n), 0)[1] for n in (1, 2, 3)]
    assert taken == [Complete(1, duplicated={0: (red,)}), Complete(2, duplicated={0: (red,)}), Complete(3)]


def test_rows_that_no_checkpoint_can_report_are_let_go() -> None:
    tracker = Tracker(2)
    tracker.barrier(0, Barrier(1), 0)
    tracker.element(0, Data("x"))
    tracker.cancel(1, 1, 0)
    tracker.element(0, Data("y"))
    assert tracker._red.floor == 2
    assert tracker._red._rows == {}


def test_rows_that_only_an_aborted_checkpoint_could_report_are_let_go() -> None:
    tracker = Tracker(2)
    tracker.barrier(0, Barrier(1), 0)
    tracker.element(0, Data("x"))
    tracker.abort(1, AbortReason.EXPIRED, 0)
    assert (tracker.floor, tracker._red._rows) == (2, {})


def test_a_channel_without_duplicates_is_absent_from_the_report() -> None:
    tracker = Tracker(2)
    tracker.barrier(1, Barrier(1), 0)
    tracker.barrier(0, Barrier(2), 0)
    tracker.element(0, Data("x"))
    assert tracker.barrier(0, Barrier(1), 0) == [TakeSnapshot(Barrier(1)), Complete(1)]


def test_the_red_log_keeps_what_a_later_snapshot_may_report() -> None:
    log: RedLog[str] = RedLog()
    one, two = Data("x", epoch=1), Data("y", epoch=2)
    log.record("a", one)
    log.record("a", two)
    assert log.take(1) == {"a": (one, two)}
    assert log.take(2) == {"a": (two,)}


def test_the_red_log_lets_go_of_what_it_reported_for_the_last_time() -> None:
    log: RedLog[str] = RedLog()
    log.record("a", Data("x", epoch=1))
    log.take(1)
    log.validate()
    assert (log.floor, log.red("a", 1)) == (2, 0)


def test_the_memory_of_settled_checkpoints_keeps_the_fifty_highest() -> None:
    settled = Settled()
    for checkpoint in range(60):
        settled.add(checkpoint)
    assert [n for n in range(60) if n in settled] == list(range(10, 60))


@pytest.mark.parametrize("make", [aligner, Tracker, Overtaker])
def test_a_barrier_that_comes_after_a_higher_one_is_passed_over_once(make: type[Tracker]) -> None:
    handler = make(2)
    handler.barrier(0, Barrier(2), 0)
    late = [handler.barrier(1, Barrier(n), 0) for n in (1, 1)]
    assert late == [[PassOver(1), Ignore(1)], [Ignore(1)]]


@pytest.mark.parametrize("make", [aligner, Tracker, Overtaker])
def test_a_barrier_that_a_higher_cancel_overtook_is_passed_over_once(make: type[Tracker]) -> None:
    handler = make(2)
    handler.cancel(0, 2, 0, overtaken=[Barrier(1)])
    late = [handler.barrier(channel, Barrier(1), 0) for channel in (0, 1)]
    assert late == [[PassOver(1), Ignore(1)], [Ignore(1)]]


@pytest.mark.parametrize("make", [aligner, Tracker, Overtaker])
def test_a_late_barrier_of_a_withdrawn_checkpoint_is_ignored_without_an_answer(make: type[Tracker]) -> None:
    handler = make(2)
    handler.barrier(0, Barrier(5), 0)
    handler.abort(1, AbortReason.EXPIRED, 0)
    handler.cancel(1, 2, 0)
    assert [handler.barrier(1, Barrier(n), 0) for n in (1, 2)] == [[Ignore(1)], [Ignore(2)]]


def test_an_open_checkpoint_that_a_higher_one_completes_ahead_of_is_passed_over() -> None:
    tracker = Tracker(2)
    for channel, n in [(0, 1), (0, 2)]:
        tracker.barrier(channel, Barrier(n), 0)
    assert tracker.barrier(1, Barrier(2), 0) == [PassOver(1), TakeSnapshot(Barrier(2)), Complete(2)]


def test_the_lowest_of_too_many_open_checkpoints_is_passed_over() -> None:
    tracker = Tracker(2)
    assert [tracker.barrier(0, Barrier(n), 0) for n in range(1, 52)] == [*([[]] * 50), [PassOver(1)]]


@given(st.integers(min_value=0), st.booleans())
def test_the_handlers_keep_their_invariants_under_any_order_of_calls(seed: int, aligned: bool) -> None:  # noqa: FBT001
    rng = random.Random(seed)
    channels = rng.randint(1, 4)
    handler = aligner(channels) if aligned else Tracker(channels)
    live = set(range(channels))
    outcomes: list[Action] = []
    for _ in range(60):
        ready = sorted(live - handler.blocked)
        if not ready:
            break
        channel, checkpoint = rng.choice(ready), rng.randint(0, 9)
        match rng.choice(("element", "barrier", "barrier", "barrier", "cancel", "abort", "end")):
            case "element":
                data = handler.element(channel, Data("x", epoch=rng.choice((0, 0, checkpoint))))
                assert data.rows == "x"
            case "barrier":
                outcomes += handler.barrier(channel, Barrier(checkpoint), 0)
            case "cancel":
                outcomes += handler.cancel(
                    channel, checkpoint, 0, [Barrier(1), Cancel(2)] if rng.random() < 0.5 else ()
                )
            case "abort":
                outcomes += handler.abort(checkpoint, AbortReason.EXPIRED, 0)
            case _:
                if rng.random() < 0.2:
                    outcomes += handler.end(channel, 0)
                    live.discard(channel)
        handler.validate()
    snapshots = [one.barrier.checkpoint for one in outcomes if isinstance(one, TakeSnapshot)]
    aborts = [one.checkpoint for one in outcomes if isinstance(one, Abort)]
    assert snapshots == sorted(set(snapshots))
    assert len(aborts) == len(set(aborts))
    assert not set(snapshots) & set(aborts)
