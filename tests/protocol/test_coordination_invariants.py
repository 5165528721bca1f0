"""Whatever happens in whatever order, the coordinator keeps its promises. A model job plays tasks, store and sinks."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dataflow.protocol.checkpoint_policy import CheckpointPolicy
from dataflow.protocol.coordination import Coordinator
from dataflow.protocol.coordinator_actions import (
    AbortTasks,
    CoordinatorAction,
    Discard,
    Failed,
    FailureReason,
    Inject,
    Notify,
    Persist,
    Release,
    RequestCompleted,
    RequestFailed,
    Retire,
)
from dataflow.protocol.events import BarrierKind

TASKS = {"s1": (), "s2": (), "j": ("s1", "s2"), "m": ("s1",), "k": ("j", "m")}


class CoordinatedJob(RuleBasedStateMachine):
    """Random events; each action is checked against what happened before."""

    @initialize(
        max_concurrent=st.integers(1, 3),
        tolerable=st.none() | st.integers(0, 2),
        interval=st.none() | st.integers(1, 50),
        keep=st.integers(1, 2),
        attempts=st.integers(1, 3),
    )
    def begin(self, max_concurrent: int, tolerable: int | None, interval: int | None, keep: int, attempts: int) -> None:
        self.policy = CheckpointPolicy(interval, 5, 40, max_concurrent, tolerable, keep, attempts)
        self.coordinator = Coordinator(TASKS, self.policy, next_id=1, now=0)
        self.now = 0
        self.kinds: dict[int, BarrierKind] = {}
        self.since: dict[int, int] = {}
        self.acknowledged: dict[int, dict[str, object]] = {}
        self.persisting: set[int] = set()
        self.durable: set[int] = set()
        self.aborted: set[int] = set()
        self.notified: list[int] = []
        self.retired: set[int] = set()
        self.parts = 0
        self.owned: set[object] = set()
        self.finished: set[str] = set()
        self.asked: set[int] = set()
        self.saving: set[int] = set()  # the requests for a savepoint
        self.last: set[int] = set()  # those that only the last checkpoint may serve
        self.failed = False
        self.released = False

    @property
    def needed(self) -> set[int]:
        """The checkpoints on which others under way build."""
        return {self.since[n] for n in self.kinds if n not in self.durable | self.aborted}

    def carry_out(self, actions: Sequence[CoordinatorAction]) -> None:
        for action in actions:
            assert not self.released, f"{action} after the release"
            match action:
                case Inject(checkpoint, kind, _, running, finished, requests, since):
                    is_full = kind is BarrierKind.SAVEPOINT or self.saving.intersection(requests)
                    assert since == (0 if is_full else max(self.durable, default=0))
                    self.since[checkpoint] = since
                    assert checkpoint == max(self.kinds, default=0) + 1, "ids ascend without gaps"
                    assert not self.failed, "a checkpoint after the job failed"
                    assert set(finished) == self.finished
                    assert all(self.finished.issuperset(TASKS[task]) for task in running)
                    assert bool(running) == (len(self.finished) < len(TASKS))
                    assert (kind is BarrierKind.FINAL) == (not running)
                    self.kinds[checkpoint] = kind
                    self.acknowledged[checkpoint] = {}
                case AbortTasks(checkpoint, _):
                    assert checkpoint not in self.durable | self.aborted
                    self.persisting.discard(checkpoint)
                    self.aborted.add(checkpoint)
                case Persist(checkpoint, kind, parts):
                    assert parts == self.acknowledged[checkpoint]
                    assert set(parts) == set(TASKS), "only with every acknowledgement"
                    assert checkpoint not in self.aborted
                    assert kind is self.kinds[checkpoint]
                    self.persisting.add(checkpoint)
                case Notify(checkpoint):
                    assert checkpoint in self.durable, "sinks hear of a checkpoint that is not durable"
                    assert checkpoint > max(self.notified, default=0)
                    self.notified.append(checkpoint)
                case Discard(checkpoint, parts):
                    assert checkpoint not in self.durable or not set(parts) & set(
                        self.acknowledged[checkpoint].values()
                    )
                    assert self.owned.issuperset(parts), "deleted twice"
                    self.owned.difference_update(parts)
                case Retire(checkpoint):
                    assert checkpoint in self.durable - self.retired
                    assert checkpoint not in self.needed, f"{checkpoint} is deleted, but others build on it"
                    self.retired.add(checkpoint)
                case RequestCompleted(requests, checkpoint):
                    assert checkpoint in self.durable - self.retired
                    assert self.kinds[checkpoint] is not BarrierKind.CHECKPOINT or not self.saving.intersection(
                        requests
                    )
                    assert self.asked.issuperset(requests), "answered twice"
                    self.asked.difference_update(requests)
                case RequestFailed(requests, _):
                    assert self.asked.issuperset(requests), "answered twice"
                    self.asked.difference_update(requests)
                case Failed():
                    assert not self.failed, "failed twice"
                    self.failed = True
                case Release():
                    assert self.kinds[self.notified[-1]] is BarrierKind.FINAL
                    self.released = True

    @rule(kind=st.sampled_from([BarrierKind.CHECKPOINT, BarrierKind.SAVEPOINT, BarrierKind.FINAL]))
    def request(self, kind: BarrierKind) -> None:
        number = self.parts = self.parts + 1
        self.asked.add(number)
        if kind is not BarrierKind.CHECKPOINT:
            self.saving.add(number)
        if kind is BarrierKind.FINAL:
            self.last.add(number)
            actions = self.coordinator.trigger_last(self.now, number)
        else:
            actions = self.coordinator.trigger(kind, self.now, number)
        if self.released:
            assert actions == [RequestCompleted((number,), self.notified[-1])]
            self.asked.remove(number)
        else:
            self.carry_out(actions)

    @precondition(lambda self: self.asked & self.saving and not self.released)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.asked & self.saving)))
        self.asked.remove(number)
        self.carry_out(self.coordinator.withdraw(number, self.now))

    @precondition(lambda self: not self.released)
    @rule()
    def stop_and_resume(self) -> None:
        self.coordinator.only_on_request(self.now)
        self.carry_out(self.coordinator.tick(self.now))
        self.carry_out(self.coordinator.resume(self.now))

    @rule(microseconds=st.integers(0, 30))
    def wait(self, microseconds: int) -> None:
        self.now += microseconds
        self.carry_out(self.coordinator.tick(self.now))

    @precondition(lambda self: self.kinds and not self.released)
    @rule(task=st.sampled_from([*TASKS, "stranger"]), back=st.integers(0, 3))
    def acknowledge(self, task: str, back: int) -> None:
        self.acknowledge_one(task, max(self.kinds) - back)

    @precondition(lambda self: self.kinds and not self.released)
    @rule(back=st.integers(0, 2))
    def acknowledge_all(self, back: int) -> None:
        for task in TASKS:
            self.acknowledge_one(task, max(self.kinds) - back)

    def acknowledge_one(self, task: str, checkpoint: int) -> None:
        self.parts += 1
        self.owned.add(self.parts)
        if task in TASKS and checkpoint in self.kinds and checkpoint not in self.aborted | self.durable:
            self.acknowledged[checkpoint].setdefault(task, self.parts)
        self.carry_out(self.coordinator.acknowledge(task, checkpoint, self.parts, self.now))

    @precondition(lambda self: self.kinds)
    @rule(task=st.sampled_from([*TASKS, "stranger"]), back=st.integers(0, 3), why=st.sampled_from(FailureReason))
    def decline(self, task: str, back: int, why: FailureReason) -> None:
        self.carry_out(self.coordinator.decline(task, max(self.kinds) - back, why, self.now))

    @rule(task=st.sampled_from([*TASKS]))
    def finish(self, task: str) -> None:
        if self.finished.issuperset(TASKS[task]):
            self.finished.add(task)
            self.carry_out(self.coordinator.finish(task, self.now))

    @precondition(lambda self: self.persisting)
    @rule(data=st.data())
    def persist(self, data: st.DataObject) -> None:
        checkpoint = data.draw(st.sampled_from(sorted(self.persisting)))
        self.persisting.remove(checkpoint)
        self.durable.add(checkpoint)
        self.carry_out(self.coordinator.persisted(checkpoint, self.now))

    @precondition(lambda self: self.persisting)
    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        checkpoint = data.draw(st.sampled_from(sorted(self.persisting)))
        self.carry_out(self.coordinator.persist_failed(checkpoint, "disk full", self.now))

    @precondition(lambda self: self.notified)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.carry_out(self.coordinator.committed(data.draw(st.sampled_from(self.notified)), self.now))

    @invariant()
    def the_coordinator_and_the_job_agree(self) -> None:
        if not hasattr(self, "kinds"):
            return
        self.coordinator.validate()
        under_way = set(self.kinds) - self.durable - self.aborted
        assert set(self.coordinator.under_way) == under_way
        assert len(under_way) <= self.policy.max_concurrent
        assert self.persisting <= under_way
        stored = sorted(self.durable - self.retired)
        kept = stored[-self.policy.keep :]
        assert list(self.coordinator.completed) == kept
        assert self.needed.issuperset(set(stored) - set(kept)), "a checkpoint that is not needed was not deleted"
        finals = [n for n, kind in self.kinds.items() if kind is BarrierKind.FINAL]
        assert len(finals) <= self.policy.final_attempts
        assert len(self.durable.intersection(finals)) <= 1, "the last checkpoint exists twice"
        if len(self.finished) == len(TASKS) and not under_way and not self.failed:
            assert self.durable.intersection(finals), "every task has finished and nothing is done about it"
        if not self.failed and not self.released and not under_way:
            assert self.asked <= self.last, f"nobody works on the requests {self.asked - self.last}"


CoordinatedJob.TestCase.settings = settings(stateful_step_count=60)
TestCoordinatedJob = CoordinatedJob.TestCase
