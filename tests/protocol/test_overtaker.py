"""What scripts cannot say of barriers that overtake: aborts by the coordinator, time, the invariants."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.protocol.actions import Abort, AbortReason, Action, Complete, Ignore, TakeSnapshot
from dataflow.protocol.alignment import EndOfInputPolicy
from dataflow.protocol.events import Barrier, BarrierKind, Data
from dataflow.protocol.overtaking import Overtaker

EXPIRED = AbortReason.EXPIRED
X = Data(("x",))


def unaligned(n: int) -> Barrier:
    return Barrier(n, unaligned=True)


# Each is a handler of two channels with checkpoint 1 pending, whose barrier came on channel 0.


def aligning() -> Overtaker:
    handler = Overtaker(2, timeout=100)
    assert handler.barrier(0, Barrier(1), 0) == []
    return handler


def waiting() -> Overtaker:
    handler = Overtaker(2, aligned_edges={1})
    assert handler.barrier(0, unaligned(1), 0) == []
    return handler


def recording() -> Overtaker:
    handler = Overtaker(2)
    assert handler.barrier(0, unaligned(1), 0) == [TakeSnapshot(unaligned(1))]
    return handler


in_every_state = pytest.mark.parametrize("pending", [aligning, waiting, recording])
Pending = Callable[[], Overtaker]

# --- the coordinator gives up ----------------------------------------------------------------------------------------


@in_every_state
def test_the_coordinators_abort_gives_a_pending_checkpoint_up_once(pending: Pending) -> None:
    handler = pending()
    assert handler.abort(1, EXPIRED, 0) == [Abort(1, EXPIRED)]
    assert handler.abort(1, EXPIRED, 0) == handler.cancel(1, 1, 0) == handler.tick(1_000) == []
    assert not handler.blocked
    assert handler.barrier(1, Barrier(1), 0) == [Ignore(1)]


@in_every_state
def test_an_abort_of_another_checkpoint_leaves_the_pending_one_alone(pending: Pending) -> None:
    handler = pending()
    assert handler.abort(0, EXPIRED, 0) == handler.abort(2, EXPIRED, 0) == []
    assert handler.barrier(1, unaligned(1), 0)[-1] == Complete(1)


@in_every_state
def test_a_higher_barrier_of_an_aborted_checkpoint_still_subsumes_the_pending_one(pending: Pending) -> None:
    handler = pending()
    handler.abort(2, EXPIRED, 0)
    assert handler.barrier(1, unaligned(2), 0) == [Abort(1, AbortReason.SUBSUMED), Ignore(2)]
    assert not handler.blocked


@in_every_state
def test_a_cancel_of_what_the_coordinator_aborted_supersedes_and_is_no_news(pending: Pending) -> None:
    handler = pending()
    handler.abort(2, EXPIRED, 0)
    assert handler.cancel(1, 2, 0) == [Abort(1, AbortReason.SUPERSEDED)]
    assert handler.barrier(1, unaligned(2), 0) == [Ignore(2)]


@in_every_state
def test_the_next_checkpoint_after_an_abort_is_taken(pending: Pending) -> None:
    handler = pending()
    handler.abort(1, EXPIRED, 0)
    handler.barrier(1, unaligned(2), 0)
    assert handler.barrier(0, unaligned(2), 0)[-1] == Complete(2)


def test_an_abort_after_completion_changes_nothing() -> None:
    handler = recording()
    handler.barrier(1, unaligned(1), 0)
    assert handler.abort(1, EXPIRED, 0) == []


@pytest.mark.parametrize("barrier", [Barrier(2), unaligned(2)])
def test_barriers_of_a_checkpoint_aborted_before_they_came_open_nothing(barrier: Barrier) -> None:
    handler = Overtaker(2)
    handler.abort(2, EXPIRED, 0)
    assert handler.barrier(0, barrier, 0) == handler.barrier(1, barrier, 0) == [Ignore(2)]
    assert not handler.blocked
    assert handler.barrier(0, unaligned(3), 0) == [TakeSnapshot(unaligned(3))]


def test_an_abort_ahead_of_its_barriers_leaves_lower_checkpoints_alone() -> None:
    handler = Overtaker(2)
    handler.abort(2, EXPIRED, 0)
    assert handler.barrier(0, unaligned(1), 0) == [TakeSnapshot(unaligned(1))]
    assert handler.barrier(1, unaligned(1), 0) == [Complete(1)]


# --- the snapshot says how it was taken ------------------------------------------------------------------------------


def test_a_snapshot_taken_in_time_sends_an_aligned_barrier_and_has_no_channel_state() -> None:
    handler = Overtaker(2, timeout=100)
    first = Barrier(1, BarrierKind.FINAL, triggered_at=7)
    handler.barrier(0, first, 7)
    assert handler.barrier(1, Barrier(1, triggered_at=9), 8) == [TakeSnapshot(first), Complete(1)]


def test_a_snapshot_taken_late_sends_an_unaligned_barrier_of_the_same_kind_and_trigger() -> None:
    handler = Overtaker(2, timeout=100)
    handler.barrier(0, Barrier(1, BarrierKind.FINAL, triggered_at=7), 7)
    assert handler.tick(108) == [TakeSnapshot(Barrier(1, BarrierKind.FINAL, triggered_at=7, unaligned=True))]


def test_a_snapshot_converted_upstream_sends_an_unaligned_barrier() -> None:
    handler = aligning()
    assert handler.barrier(1, unaligned(1), 0) == [TakeSnapshot(unaligned(1)), Complete(1)]


# --- time ------------------------------------------------------------------------------------------------------------


def test_the_deadline_is_the_first_moment_that_is_late() -> None:
    handler = aligning()
    assert handler.deadline == 101
    assert handler.tick(100) == []
    assert handler.tick(101) == [TakeSnapshot(unaligned(1))]
    assert handler.deadline is None


def test_a_barrier_itself_can_be_what_is_late() -> None:
    handler = aligning()
    assert handler.barrier(1, Barrier(1), 101) == [TakeSnapshot(unaligned(1)), Complete(1)]


def test_nothing_is_due_before_a_checkpoint_and_after_it() -> None:
    handler = aligning()
    assert handler.barrier(1, Barrier(1), 0)[0] == TakeSnapshot(Barrier(1))
    assert handler.deadline is Overtaker(1, timeout=0).deadline is Overtaker(2).deadline is None


@pytest.mark.parametrize("pending", [waiting, recording])
def test_nothing_is_due_once_a_checkpoint_is_unaligned(pending: Pending) -> None:
    handler = pending()
    assert handler.deadline is None
    assert handler.tick(10**12) == []


def test_a_savepoint_aligns_however_long_it_takes() -> None:
    handler = Overtaker(2, timeout=100)
    savepoint = Barrier(1, BarrierKind.SAVEPOINT)
    assert handler.barrier(0, savepoint, 500) == handler.tick(501) == []
    assert (handler.deadline, handler.overtakes_from(savepoint)) == (None, None)
    assert handler.barrier(1, savepoint, 502) == [TakeSnapshot(savepoint), Complete(1)]


def test_a_queued_barrier_overtakes_from_when_it_is_late() -> None:
    handler = aligning()
    queued = [Barrier(1), Barrier(2, triggered_at=50), Barrier(0)]
    assert [handler.overtakes_from(barrier) for barrier in queued] == [101, 151, None]
    assert Overtaker(2).overtakes_from(Barrier(1)) is None


@pytest.mark.parametrize("pending", [waiting, recording])
def test_a_queued_barrier_overtakes_at_once_when_its_checkpoint_is_unaligned(pending: Pending) -> None:
    since = pending().overtakes_from(Barrier(1, triggered_at=50))
    assert since is not None
    assert since <= 0


def test_a_handler_answers_what_came_as_it_is() -> None:
    handler = recording()
    assert [handler.element(channel, X) is X for channel in (0, 1)] == [True, True]


def test_a_snapshot_may_be_taken_of_the_pending_checkpoint_until_it_is_recorded() -> None:
    assert [handler.floor for handler in (Overtaker(2), aligning(), waiting(), recording())] == [1, 1, 1, 2]


# --- any order of calls ----------------------------------------------------------------------------------------------


@given(st.integers(min_value=0))
def test_the_handler_keeps_its_invariants_under_any_order_of_calls(seed: int) -> None:
    rng = random.Random(seed)
    channels = rng.randint(1, 4)
    edges = {channel for channel in range(channels) if rng.random() < 0.3}
    policy = rng.choice(list(EndOfInputPolicy))
    handler = Overtaker(channels, aligned_edges=edges, timeout=rng.choice((None, 0, 20)), end_of_input=policy)
    live = set(range(channels))
    outcomes: list[Action] = []
    for now in range(60):
        ready = sorted(live - handler.blocked)
        overtakable = sorted(live - edges)
        checkpoint = rng.randint(0, 9)
        match rng.choice(("element", "barrier", "barrier", "urgent", "urgent", "cancel", "abort", "tick", "end")):
            case "element" if ready:
                handler.element(rng.choice(ready), X)
            case "barrier" if ready:
                outcomes += handler.barrier(rng.choice(ready), Barrier(checkpoint, unaligned=rng.random() < 0.2), now)
            case "urgent" if overtakable:
                outcomes += handler.barrier(rng.choice(overtakable), unaligned(checkpoint), now, [X, Barrier(1)])
            case "cancel" if live:
                ahead = [Barrier(rng.randint(0, 9))] if rng.random() < 0.5 else []
                outcomes += handler.cancel(rng.choice(sorted(live)), checkpoint, now, ahead)
            case "abort":
                outcomes += handler.abort(checkpoint, EXPIRED, now)
            case "tick":
                outcomes += handler.tick(now)
            case "end" if ready and rng.random() < 0.2:
                channel = rng.choice(ready)
                live.discard(channel)
                outcomes += handler.end(channel, now)
            case _:
                pass
        handler.validate()
    check_outcomes(outcomes)


def check_outcomes(outcomes: list[Action]) -> None:
    snapshots = [one.barrier.checkpoint for one in outcomes if isinstance(one, TakeSnapshot)]
    aborts = [one.checkpoint for one in outcomes if isinstance(one, Abort)]
    completed = [one.checkpoint for one in outcomes if isinstance(one, Complete)]
    assert snapshots == sorted(set(snapshots))
    assert len(aborts) == len(set(aborts))
    assert len(completed) == len(set(completed))
    assert not set(completed) & set(aborts)
    assert set(completed) <= set(snapshots)
