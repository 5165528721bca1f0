"""Who asked for checkpoints, and who is answered when. And what a checkpoint cost, over its tasks."""

from __future__ import annotations

from dataflow.errors import CheckpointError
from dataflow.protocol.events import BarrierKind
from dataflow.runtime.job.checkpoint_attempts import CheckpointAttempt
from dataflow.runtime.job.checkpoint_requests import CheckpointRequest, CheckpointRequests
from dataflow.runtime.task.messages import Acknowledged, TaskStats
from dataflow.store.manifest import PartHandle


class Rig:
    """Requests, and the askers by the number they were given."""

    def __init__(self, *kinds: BarrierKind) -> None:
        self.requests = CheckpointRequests()
        self.asked = {self.requests.add(wanted): wanted for wanted in map(CheckpointRequest, kinds)}

    def answers(self) -> dict[int, int]:
        """The checkpoints that askers have got."""
        done = {n: wanted.future for n, wanted in self.asked.items() if wanted.future.done()}
        return {n: future.result() for n, future in done.items() if future.exception() is None}


PLAIN, SAVEPOINT = BarrierKind.CHECKPOINT, BarrierKind.SAVEPOINT


def test_each_request_has_a_number_of_its_own() -> None:
    assert len(Rig(PLAIN, PLAIN, SAVEPOINT).asked) == 3


def test_a_plain_checkpoint_is_answered_when_all_sinks_have_committed_it() -> None:
    rig = Rig(PLAIN, PLAIN)
    rig.requests.serve([1], 4)
    rig.requests.serve([2], 6)
    rig.requests.complete(horizon=3)
    assert rig.answers() == {}
    rig.requests.complete(horizon=4)
    assert rig.answers() == {1: 4}
    rig.requests.complete(horizon=9)
    assert rig.answers() == {1: 4, 2: 6}


def test_a_request_is_withdrawn_wherever_it_is() -> None:
    rig = Rig(*[SAVEPOINT] * 4)
    rig.requests.serve([1, 2], 4)
    rig.requests.retry_later([3], now=5)
    assert [rig.requests.withdraw(rig.asked[n]) for n in (1, 3, 4)] == [None, None, 4]
    assert rig.requests.open_requests == [rig.asked[2]]


def test_requests_served_at_different_times_by_one_checkpoint_are_all_answered() -> None:
    rig = Rig(PLAIN, PLAIN)
    rig.requests.serve([1], 4)
    rig.requests.serve([2], 4)
    rig.requests.complete(horizon=4)
    assert rig.answers() == {1: 4, 2: 4}


def test_a_request_is_made_again_after_the_pause_and_once() -> None:
    rig = Rig(PLAIN, PLAIN)
    rig.requests.retry_later([1], now=5)
    rig.requests.retry_later([2], now=6)
    assert rig.requests.due(10_004) == []
    assert rig.requests.due(10_005) == [rig.asked[1]]
    assert rig.requests.due(10_006) == [rig.asked[2]]
    assert rig.requests.due(99_999) == []


def test_those_that_failed_are_told_why_and_no_others() -> None:
    rig, why = Rig(PLAIN, PLAIN, PLAIN), CheckpointError("no")
    rig.requests.fail([1, 3], why)
    assert [wanted.future.exception(0) for n, wanted in rig.asked.items() if n != 2] == [why, why]
    assert not rig.asked[2].future.done()


def test_a_refusal_reaches_everybody_who_still_waits_wherever() -> None:
    rig, why = Rig(PLAIN, PLAIN, PLAIN, PLAIN), CheckpointError("over")
    rig.requests.retry_later([1], now=0)
    rig.requests.serve([2], 4)
    rig.requests.serve([3], 3)
    rig.requests.complete(horizon=3)
    rig.requests.refuse_all(why)
    assert [wanted.future.exception() for wanted in rig.asked.values()] == [why, why, None, why]


# --- what a checkpoint cost


def attempt(**stats: TaskStats) -> CheckpointAttempt:
    found = CheckpointAttempt(4, PLAIN, triggered_at=100)
    for task, cost in stats.items():
        found.add(Acknowledged(task, 4, (PartHandle(task, "f", 1, "0"),), {"out": [{"of": task}]}, cost))
    return found


COSTS = {
    "s": TaskStats(
        alignment=8,
        copy=1,
        queued=9,
        write=2,
        size=10,
        in_flight_rows=2,
        in_flight_bytes=16,
        duplicated={"a": 3, "b": 1},
        blocked={"x": 5},
    ),
    "t": TaskStats(
        alignment=6,
        copy=3,
        queued=4,
        write=5,
        size=20,
        in_flight_rows=5,
        in_flight_bytes=40,
        duplicated={"a": 4, "c": 6},
        blocked={"y": 7},
    ),
}


def test_the_costs_of_a_checkpoint_are_those_of_its_tasks_together() -> None:
    assert attempt(**COSTS).summary(now=160) == {
        "duplicated": {"a": 7, "b": 1, "c": 6},
        "bytes": 30,
        "in_flight_rows": 7,
        "in_flight_bytes": 56,
        "triggered_to_acknowledged_us": 60,
        "blocked_in_checkpoint_us": {"x": 5, "y": 7},
    }


def test_the_record_of_a_checkpoint_has_the_same_and_the_operator_with_most_duplicates() -> None:
    record = attempt(**COSTS).record(now=170)
    assert (record.checkpoint, record.kind, record.duration, record.size) == (4, PLAIN, 70, 30)
    assert (record.duplicated, record.in_flight_rows, record.in_flight_bytes) == (7, 7, 56)
    assert (record.alignment, record.copy, record.queued, record.write) == (8, 3, 9, 5)
    assert record.blocked == {"x": 5, "y": 7}
    empty = attempt().record(now=170)
    assert (empty.duplicated, empty.alignment, empty.copy, empty.queued, empty.write) == (0, 0, 0, 0, 0)


def test_the_transactions_of_a_sink_are_those_of_all_its_tasks_in_the_order_they_came() -> None:
    assert attempt(**COSTS).transactions == {"out": [{"of": "s"}, {"of": "t"}]}


def test_the_transactions_of_several_sinks_of_a_task_keep_apart() -> None:
    found = CheckpointAttempt(4, PLAIN, triggered_at=100)
    found.add(Acknowledged("t", 4, (PartHandle("t", "f", 1, "0"),), {"out": [{"n": 1}], "log": [{"n": 2}]}))
    assert found.transactions == {"out": [{"n": 1}], "log": [{"n": 2}]}


def test_a_checkpoint_waits_for_the_tasks_that_brought_nothing_yet() -> None:
    assert attempt(**COSTS).waiting_for(["s", "k", "t", "z"]) == ["k", "z"]
