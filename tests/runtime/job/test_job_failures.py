"""One real job whose tasks do not step: checkpoints that come to nothing, and commits that fail."""

from __future__ import annotations

import pytest

from dataflow.errors import CheckpointError, StoreError
from dataflow.protocol.actions import AbortReason
from dataflow.protocol.coordinator_actions import FailureReason
from dataflow.protocol.events import Barrier
from dataflow.runtime.job.committer import SinkCommitted
from dataflow.runtime.task.messages import AbortCheckpoint, Acknowledged, Committed, Declined, Trigger
from dataflow.runtime.task.progress import JobState
from tests.runtime.job.test_job import SINK, SOURCE, Rig, ending


def test_a_declined_checkpoint_is_taken_back_everywhere_and_the_asker_hears_why() -> None:
    rig = Rig()
    future = rig.asked()
    rig.said(SOURCE)
    rig.hear(Declined(SINK, 1, FailureReason.IO, "disk full"))
    assert [rig.said(task) for task in (SOURCE, SINK)] == [[AbortCheckpoint(1, AbortReason.CANCEL)]] * 2
    assert rig.job.history.failures == ["checkpoint 1: io: sums[0]: disk full"]
    with pytest.raises(
        CheckpointError, match=r"requested checkpoint failed: io; checkpoint 1: io: sums\[0\]: disk full"
    ):
        future.result(0)


def test_the_trouble_that_came_first_is_the_one_that_is_told() -> None:
    rig = Rig(max_concurrent=2, tolerable_failures=0)
    rig.asked()
    rig.acknowledge(1)
    for task, detail in ((SOURCE, "first"), (SINK, "second")):
        rig.hear(Declined(task, 1, FailureReason.IO, detail))
    rig.store.full = StoreError("third")
    rig.background()
    assert rig.job.history.failures == ["checkpoint 1: persist: rows[0]: first"]


def test_parts_of_a_checkpoint_given_up_are_deleted_also_those_that_come_late() -> None:
    rig = Rig()
    rig.asked()
    parts = {task: rig.store.write(1, task, task.encode()) for task in (SOURCE, SINK)}
    rig.hear(Acknowledged(SOURCE, 1, (parts[SOURCE],)))
    rig.hear(Declined(SINK, 1, FailureReason.IO))
    rig.hear(Acknowledged(SINK, 1, (parts[SINK],)))
    assert rig.background() == ["store", "store"]
    assert 1 not in rig.store._parts


def test_an_expired_checkpoint_names_the_tasks_it_waited_for() -> None:
    rig = Rig(timeout="1s")
    rig.asked()
    rig.hear(Acknowledged(SOURCE, 1, (rig.store.write(1, SOURCE, b""),)))
    rig.clock.advance(1_000_000)
    rig.job.step()
    assert rig.job.history.failures == ["checkpoint 1: expired: no acknowledgement from sums[0] after 1.00 s"]
    assert rig.said() == [AbortCheckpoint(1, AbortReason.EXPIRED)]


def test_a_manifest_that_the_store_refuses_is_a_failed_checkpoint_and_nothing_is_committed() -> None:
    rig = Rig()
    future = rig.asked()
    rig.store.full = StoreError("no room")
    rig.acknowledge(1, out=[rig.staged()]).background()
    assert (rig.background(), rig.store.checkpoints(), rig.commits, rig.job.history.checkpoints) == (
        ["store"],
        [],
        [],
        [],
    )
    assert rig.job.history.failures == ["checkpoint 1: persist: no room"]
    with pytest.raises(CheckpointError, match="no room"):
        future.result(0)


def test_a_store_that_breaks_fails_the_job() -> None:
    rig = Rig()
    rig.asked()
    rig.store.full = broken = ValueError("a defect")
    rig.acknowledge(1).background()
    assert (rig.job.state, rig.job.error) == (JobState.FAILED, broken)


def test_too_many_failures_in_a_row_fail_the_job_with_their_reasons() -> None:
    rig = Rig(tolerable_failures=3)
    for n in range(1, 5):
        rig.asked()
        rig.hear(Declined(SINK, n, FailureReason.IO, f"trouble {n}"))
    assert rig.job.state is JobState.FAILED
    with pytest.raises(CheckpointError, match=r"in a row \(io\):\n  .* 2: .*trouble 2\n.*trouble 3\n.*trouble 4\nfix "):
        raise rig.job.error or AssertionError


def test_what_was_overtaken_by_events_is_no_failure() -> None:
    rig = Rig(tolerable_failures=0)
    rig.asked()
    rig.hear(Declined(SINK, 1, FailureReason.CANCEL, "elsewhere"))
    assert (rig.job.history.failures, rig.job.over) == ([], False)


def test_a_request_that_nothing_broke_is_not_told_of_older_failures() -> None:
    rig = Rig()
    rig.asked()
    rig.hear(Declined(SINK, 1, FailureReason.IO, "disk full"))
    future = rig.asked()
    rig.hear(Declined(SINK, 2, FailureReason.END_OF_INPUT))
    assert str(future.exception(0)).endswith("the requested checkpoint failed: end-of-input")


@pytest.mark.parametrize(
    "reason", [FailureReason.NOT_READY, FailureReason.SUBSUMED, FailureReason.SUPERSEDED, FailureReason.CANCEL]
)
def test_a_request_is_made_again_after_a_pause_where_nothing_broke(reason: FailureReason) -> None:
    rig = Rig()
    future = rig.asked()
    rig.hear(Declined(SOURCE, 1, reason))
    rig.said(SOURCE)
    rig.job.step()
    assert (rig.said(SOURCE), future.done()) == ([], False)
    rig.clock.advance(10_000)
    rig.job.step()
    assert rig.said(SOURCE) == [Trigger(Barrier(2, triggered_at=10_000), finished=False)]


def test_all_requests_that_met_a_task_just_ending_are_made_again() -> None:
    rig = Rig()
    rig.asked()
    futures = [rig.asked(), rig.asked()]
    rig.hear(Declined(SOURCE, 1, FailureReason.CANCEL), Declined(SOURCE, 2, FailureReason.NOT_READY))
    rig.clock.advance(10_000)
    rig.job.step()
    for n in (3, 4):
        rig.acknowledge(n, out=[rig.staged()]).background()
        rig.background()
    assert all(future.done() for future in futures)


def test_house_keeping_that_fails_leaves_the_job_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(sink=False, keep=1)

    def refuse(checkpoint: int) -> None:
        raise StoreError("busy")

    monkeypatch.setattr(rig.store, "retire", refuse)
    for n in (1, 2):
        rig.asked()
        rig.acknowledge(n).background()
    rig.background()
    assert (rig.job.over, rig.store.checkpoints()) == (False, [1, 2])


# --- commits that fail


def test_a_commit_that_fails_is_tried_again_for_as_long_as_the_job_runs() -> None:
    rig = Rig()
    future = rig.asked()
    rig.acknowledge(1, out=[rig.staged()]).background()
    rig.closed = True
    for attempt in range(1, 21):
        assert (rig.background(), len(rig.commits)) == (["commit"], attempt)
        rig.clock.advance(5_000_000)
        assert rig.job.step()
    assert (rig.job.over, future.done()) == (False, False)
    rig.closed = False
    rig.background()
    assert future.result(0) == 1


def test_a_commit_that_was_known_already_is_not_told_again() -> None:
    rig = Rig()
    rig.asked()
    rig.acknowledge(1, out=[rig.staged()]).background()
    rig.background()
    assert rig.said() == [Committed(1)]
    rig.hear(SinkCommitted(1, "out"))
    assert rig.said() == []


def test_the_last_commit_is_tried_eight_times_and_then_the_error_says_what_to_do() -> None:
    rig = ending(closed=True)
    for attempt in range(1, 9):
        assert not rig.job.over
        assert (rig.background(), len(rig.commits)) == (["commit"], attempt)
        rig.clock.advance(5_000_000)
        rig.job.step()
    assert (rig.job.state, str(rig.job.error)) == (JobState.FAILED, "not now")
    (note,) = rig.job.error.__notes__  # type: ignore[union-attr]
    assert "sink 'out' could not commit the last checkpoint 1 in 8 attempts" in note
