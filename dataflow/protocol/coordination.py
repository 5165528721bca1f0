"""The coordinator of checkpoints: one place decides which are triggered, complete, aborted, kept and deleted.

Life of a checkpoint::

    trigger -> COLLECTING -- every task acknowledged -> PERSISTING -- persisted -> durable: Notify, Retire
                   |                                        |
                   +-- declined, expired, subsumed          +-- persist_failed: aborted

Rules:

1. A checkpoint exists when its manifest is durable. Nothing aborts it after that, and while it is being made durable
   only the store decides its outcome: all acknowledgements, ``Persist``, ``persisted``, ``Notify``.
2. A durable checkpoint subsumes the lower ones still collecting, and serves their requests. Those for a savepoint wait
   for another one, because the higher checkpoint need be neither full nor aligned.
3. Errors and timeouts count as failures. Other aborts do not (subsumed, a task that had just finished, a cancel that
   reports an abort elsewhere), nor do savepoints, which have no timeout here: the caller withdraws a request. A success
   sets the count to 0.
4. Parts that no manifest will name are discarded: late, repeated and unknown acknowledgements, and those of an aborted
   checkpoint. So every acknowledgement must name files of its own.
5. A request waits while too many checkpoints are under way (by policy, one savepoint is too many). It does not wait for
   the pause. One checkpoint serves all waiting requests, and is a savepoint if one of them is for a savepoint. If it
   fails, requests for a plain checkpoint wait for another one. A savepoint is a checkpoint that is full and aligned:
   it commits, is restored and retired, and others build on it.
6. A finished task stays, and acknowledges with its last snapshot. When all have finished and no checkpoint is under
   way, a last checkpoint is taken, so that sinks commit everything. It is retried, then fails the job. Once it is
   committed, the tasks may stop. It serves all requests, also for a savepoint.
7. A checkpoint may build on the files of the newest durable one, which is named in ``Inject``. That one is not deleted
   while the checkpoint is under way. So every file that a manifest will name is named by an existing one, or new.

Invariant: at most ``max_concurrent`` checkpoints are under way, ids ascend, and each acknowledged part is owned by one
checkpoint under way, by a ``Persist`` or by a ``Discard``.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dataflow.protocol.checkpoint_policy import CheckpointPolicy, Timetable
from dataflow.protocol.coordinator_actions import (
    AbortTasks,
    CoordinatorAction,
    Discard,
    Failed,
    FailureReason,
    Inject,
    Notify,
    Part,
    Persist,
    Release,
    RequestCompleted,
    RequestFailed,
    Retire,
)
from dataflow.protocol.events import BarrierKind
from dataflow.protocol.requests import Requests, Served
from dataflow.protocol.roster import Roster

__all__ = ["Coordinator"]


@dataclass(slots=True)
class _UnderWay:
    """A checkpoint that was triggered and is neither durable nor aborted."""

    kind: BarrierKind
    triggered_at: int
    requests: Served
    since: int
    parts: dict[str, Part] = field(default_factory=dict)
    persisting: bool = False


class Coordinator:
    """The coordinator of the tasks of ``topology``, each with its predecessors. See the module's rules.

    ``next_id`` is above every id the store has seen. ``completed`` are the checkpoints in the store that count,
    ``finished`` the tasks recorded as finished in the restored checkpoint. Times are microseconds of the job's clock.
    After each event call ``tick`` at the ``deadline``, which may lie in the past.

    >>> coordinator = Coordinator({"source": (), "sink": ("source",)}, CheckpointPolicy(), next_id=1, now=0)
    >>> coordinator.trigger(BarrierKind.CHECKPOINT, now=5, request=None)[0].running
    ('source',)
    >>> coordinator.acknowledge("source", 1, "s", now=6)
    []
    >>> coordinator.acknowledge("sink", 1, "k", now=7)[0].parts
    {'source': 's', 'sink': 'k'}
    >>> coordinator.persisted(1, now=8)
    [Notify(checkpoint=1)]
    """

    def __init__(
        self,
        topology: Mapping[str, Sequence[str]],
        policy: CheckpointPolicy,
        *,
        next_id: int,
        now: int,
        completed: Iterable[int] = (),
        finished: Iterable[str] = (),
    ) -> None:
        self._roster = Roster(topology, finished)
        self._policy = policy
        self._timetable = Timetable(policy, now)
        self._next_id = next_id
        self._completed = sorted(completed)
        assert all(n < next_id for n in self._completed), f"{self._completed} are not all below the next id {next_id}"
        self._replaced: list[int] = []  # beyond those to keep; checkpoints under way may build on them
        self._under_way: dict[int, _UnderWay] = {}
        self._requests = Requests()
        self._failures = 0
        self._final_attempts = 0
        self._final_due = 0
        self._final: int | None = None
        self._stopping = False
        self._done = False

    def begin(self, now: int) -> None:
        """Count the time to the first periodic checkpoint from ``now``. Optional; call it before any event."""
        self._timetable = Timetable(self._policy, now)

    def only_on_request(self, now: int) -> None:
        """From now on, trigger only requested checkpoints: the job stops after the next one.

        The last checkpoint, at the end of the input, is not triggered either: the job would stop while it is under way.
        """
        self._stopping = True
        self._timetable = Timetable(replace(self._policy, interval=None), now)

    def resume(self, now: int) -> list[CoordinatorAction]:
        """Trigger periodic checkpoints again: the job does not stop after all."""
        self._stopping = False
        self._timetable = Timetable(self._policy, now)
        return self._start(now)

    @property
    def deadline(self) -> int | None:
        """The time at which to call ``tick``; None if only an event can change anything."""
        if self._done:
            return None
        if self._roster.all_finished and not self._under_way and self._final is None:
            return self._final_due if self._final_wanted else None
        times = [attempt.triggered_at + self._policy.timeout for _, attempt in self._timed()]
        due = self._timetable.due
        if due is not None and self._has_room and not self._roster.all_finished:
            times.append(due)
        return min(times, default=None)

    @property
    def timeout(self) -> int:
        """Microseconds from its trigger after which a checkpoint is aborted."""
        return self._policy.timeout

    @property
    def under_way(self) -> tuple[int, ...]:
        """The checkpoints that are neither durable nor aborted, ascending."""
        return tuple(self._under_way)

    @property
    def completed(self) -> tuple[int, ...]:
        """The durable checkpoints that are kept, ascending; the last is the one to restore."""
        return tuple(self._completed)

    def trigger(self, kind: BarrierKind, now: int, request: int | None) -> list[CoordinatorAction]:
        """Request a checkpoint or savepoint; unless ``request`` is None, its outcome is reported."""
        assert kind is not BarrierKind.FINAL, "the last checkpoint is the coordinator's own"
        if self._done:
            requests = () if request is None else (request,)
            if self._final is None:
                return _failed(requests, FailureReason.JOB_FAILED)
            return _completed(requests, self._final)
        self._requests.add(kind, request)
        return self._start(now)

    def trigger_last(self, now: int, request: int) -> list[CoordinatorAction]:
        """Request that the last checkpoint, at the end of the input, is a savepoint; its outcome is reported."""
        if self._done:
            return self.trigger(BarrierKind.SAVEPOINT, now, request)
        self._requests.add_last(request)
        return self._start(now)

    def withdraw(self, request: int, now: int) -> list[CoordinatorAction]:
        """Drop a request for a savepoint, whose outcome is not reported any more.

        A savepoint that still collects and serves no other request for one is aborted. It has not failed.
        """
        if self._requests.withdraw(request):
            return self._start(now)
        for checkpoint, attempt in list(self._under_way.items()):
            if request in attempt.requests.all_savepoints:
                attempt.requests -= request
                unwanted = attempt.kind is BarrierKind.SAVEPOINT and not attempt.requests.savepoints
                if unwanted and not attempt.persisting:
                    return self._give_up(checkpoint, FailureReason.CANCEL, now) + self._start(now)
        return []

    def tick(self, now: int) -> list[CoordinatorAction]:
        """Abort checkpoints past their timeout, and start those that are due."""
        actions: list[CoordinatorAction] = []
        for checkpoint, attempt in self._timed():
            if checkpoint in self._under_way and now >= attempt.triggered_at + self._policy.timeout:
                actions += self._give_up(checkpoint, FailureReason.EXPIRED, now)
        return actions + self._start(now)

    def acknowledge(self, task: str, checkpoint: int, part: Part, now: int) -> list[CoordinatorAction]:
        """Record that ``task`` wrote its ``part`` of ``checkpoint``."""
        attempt = self._under_way.get(checkpoint)
        if attempt is None or task not in self._roster or task in attempt.parts:
            return [Discard(checkpoint, (part,))]
        attempt.parts[task] = part
        if len(attempt.parts) < len(self._roster):
            return []
        attempt.persisting = True
        return [Persist(checkpoint, attempt.kind, {name: attempt.parts[name] for name in self._roster.tasks})]

    def decline(self, task: str, checkpoint: int, reason: FailureReason, now: int) -> list[CoordinatorAction]:
        """Abort ``checkpoint``, because ``task`` will not take its part."""
        attempt = self._under_way.get(checkpoint)
        if attempt is None or attempt.persisting or task not in self._roster:
            return []
        return self._give_up(checkpoint, reason, now) + self._start(now)

    def finish(self, task: str, now: int) -> list[CoordinatorAction]:
        """Record that ``task`` finished: its inputs ended, and its ``finish`` output was sent. It stays alive."""
        self._roster.finish(task)
        return self._start(now)

    def persisted(self, checkpoint: int, now: int) -> list[CoordinatorAction]:
        """Complete ``checkpoint``: its manifest is durable."""
        attempt = self._persisting(checkpoint)
        del self._under_way[checkpoint]
        self._timetable.completed(now)
        self._failures = 0
        if attempt.kind is BarrierKind.FINAL:
            self._final = checkpoint
        insort(self._completed, checkpoint)
        newest = self._completed[-1]
        # Sinks already heard of a higher one if it was faster; after a failure, the restore notifies them.
        notice: list[CoordinatorAction] = [Notify(checkpoint)] if checkpoint == newest and not self._done else []
        # a newer checkpoint may not be a savepoint
        replies = _completed(attempt.requests.all_savepoints, checkpoint)
        replies += _completed(attempt.requests.checkpoints, newest)
        return [*notice, *replies, *self._subsume(checkpoint), *self._retire(), *self._start(now)]

    def persist_failed(self, checkpoint: int, why: str, now: int) -> list[CoordinatorAction]:
        """Abort ``checkpoint``: the store failed to commit it, and never will. ``why`` is text for people."""
        self._persisting(checkpoint)
        return self._give_up(checkpoint, FailureReason.PERSIST, now) + self._start(now)

    def committed(self, checkpoint: int, now: int) -> list[CoordinatorAction]:
        """Record that all sinks committed their transactions up to ``checkpoint``."""
        if self._done or checkpoint != self._final:
            return []
        self._done = True
        return [Release()]

    def validate(self) -> None:
        """Assert the invariants."""
        assert list(self._under_way) == sorted(self._under_way), f"out of order: {list(self._under_way)}"
        assert len(self._under_way) <= self._policy.max_concurrent, f"{len(self._under_way)} checkpoints are under way"
        assert max(self._under_way, default=0) < self._next_id, f"{list(self._under_way)} reach {self._next_id}"
        assert self._completed == sorted(self._completed), f"out of order: {self._completed}"
        assert not set(self._replaced) & set(self._completed), (
            f"{self._replaced} are replaced, and {self._completed} kept"
        )
        building = {attempt.since for attempt in self._under_way.values()} - {0}
        existing = {*self._replaced, *self._completed}
        assert building <= existing, f"checkpoints under way build on {building}, but there are only {existing}"
        for checkpoint, attempt in self._under_way.items():
            complete = len(attempt.parts) == len(self._roster)
            assert attempt.persisting == complete, f"checkpoint {checkpoint}: {list(attempt.parts)} acknowledged"

    def _start(self, now: int) -> list[CoordinatorAction]:
        """Trigger the checkpoints that may start now."""
        if self._done:
            return []
        if self._roster.all_finished:
            return self._start_final(now)
        actions: list[CoordinatorAction] = []
        while self._has_room:
            due = self._timetable.due
            if (request := self._requests.next()) is not None:
                kind, requests = request
            elif due is not None and due <= now:
                kind, requests = BarrierKind.CHECKPOINT, Served()
            else:
                break
            actions.append(self._inject(kind, requests, now))
        return actions

    @property
    def _has_room(self) -> bool:
        """Whether one more checkpoint may be under way."""
        if len(self._under_way) >= self._policy.max_concurrent:
            return False
        alone = self._policy.savepoint_blocks_others
        return not alone or all(attempt.kind is not BarrierKind.SAVEPOINT for _, attempt in self._collecting())

    @property
    def _final_wanted(self) -> bool:
        """Whether the last checkpoint may start: a stopping job takes it only to serve a request."""
        return not self._stopping or self._requests.wanted

    def _start_final(self, now: int) -> list[CoordinatorAction]:
        """Start the last checkpoint if it may start now; it serves all requests."""
        if self._under_way or now < self._final_due:
            return []
        if self._final is not None:
            return _completed(self._requests.take_all().all, self._final)
        if not self._final_wanted:
            return []
        self._final_attempts += 1
        return [self._inject(BarrierKind.FINAL, self._requests.take_all(), now)]

    def _inject(self, kind: BarrierKind, requests: Served, now: int) -> Inject:
        checkpoint, self._next_id = self._next_id, self._next_id + 1
        is_full = kind is BarrierKind.SAVEPOINT or bool(requests.all_savepoints)
        since = self._completed[-1] if self._completed and not is_full else 0
        self._under_way[checkpoint] = _UnderWay(kind, now, requests, since)
        self._timetable.triggered(now)
        return Inject(checkpoint, kind, now, self._roster.starters, self._roster.finished, requests.all, since)

    def _give_up(self, checkpoint: int, reason: FailureReason, now: int) -> list[CoordinatorAction]:
        """Abort ``checkpoint``: fail its requests, and retry it or fail the job if the policy requires that."""
        attempt = self._under_way.pop(checkpoint)
        actions = [*_abort(checkpoint, attempt, reason), *self._release()]
        if attempt.kind is BarrierKind.FINAL:
            if self._final_attempts < self._policy.final_attempts:
                self._final_due = now + (self._policy.final_pause << self._final_attempts - 1)
                self._requests.put_back(attempt.requests)
                return actions
            return [*actions, *_failed(attempt.requests.all, reason), *self._fail(reason)]
        if attempt.kind is BarrierKind.SAVEPOINT:
            actions += _failed(attempt.requests.savepoints, reason)
            self._requests.put_back(Served(checkpoints=attempt.requests.checkpoints))
        else:
            actions += _failed(attempt.requests.checkpoints, reason)
        if self._done or not reason.is_failure or attempt.kind is BarrierKind.SAVEPOINT:
            return actions
        self._failures += 1
        tolerable = self._policy.tolerable_failures
        if tolerable is not None and self._failures > tolerable:
            actions += self._fail(reason)
        return actions

    def _fail(self, reason: FailureReason) -> list[CoordinatorAction]:
        """Fail the job: abort all checkpoints but those being made durable, whose outcome only the store knows."""
        self._done = True
        actions: list[CoordinatorAction] = []
        for checkpoint, attempt in self._collecting():
            del self._under_way[checkpoint]
            actions += _abort(checkpoint, attempt, FailureReason.JOB_FAILED)
            actions += _failed(attempt.requests.all, FailureReason.JOB_FAILED)
        actions += _failed(self._requests.take_all().all, FailureReason.JOB_FAILED)
        return [*actions, Failed(reason)]

    def _subsume(self, completed: int) -> list[CoordinatorAction]:
        """Abort the checkpoints below ``completed``, which serves their requests for a plain checkpoint."""
        actions: list[CoordinatorAction] = []
        for checkpoint, attempt in self._collecting():
            if checkpoint < completed:
                del self._under_way[checkpoint]
                actions += _abort(checkpoint, attempt, FailureReason.SUBSUMED)
                actions += _completed(attempt.requests.checkpoints, completed)
                self._requests.put_back(Served(savepoints=attempt.requests.savepoints))
        return actions

    def _retire(self) -> list[CoordinatorAction]:
        keep = self._policy.keep
        self._replaced += self._completed[:-keep]
        self._completed = self._completed[-keep:]
        return self._release()

    def _release(self) -> list[CoordinatorAction]:
        """Delete the replaced checkpoints on which none under way may build."""
        needed = {attempt.since for attempt in self._under_way.values()}
        retired = [checkpoint for checkpoint in self._replaced if checkpoint not in needed]
        self._replaced = [checkpoint for checkpoint in self._replaced if checkpoint in needed]
        return [Retire(checkpoint) for checkpoint in retired]

    def _collecting(self) -> list[tuple[int, _UnderWay]]:
        return [(checkpoint, attempt) for checkpoint, attempt in self._under_way.items() if not attempt.persisting]

    def _timed(self) -> list[tuple[int, _UnderWay]]:
        """Return the checkpoints that expire by the policy: the callers of savepoints have timeouts of their own."""
        return [each for each in self._collecting() if each[1].kind is not BarrierKind.SAVEPOINT]

    def _persisting(self, checkpoint: int) -> _UnderWay:
        attempt = self._under_way.get(checkpoint)
        assert attempt is not None, f"the store reported on {checkpoint}, but under way are {self.under_way}"
        assert attempt.persisting, f"the store reported on {checkpoint}, but only {list(attempt.parts)} acknowledged"
        return attempt


def _abort(checkpoint: int, attempt: _UnderWay, reason: FailureReason) -> list[CoordinatorAction]:
    aborted = AbortTasks(checkpoint, reason)
    return [aborted, Discard(checkpoint, tuple(attempt.parts.values()))] if attempt.parts else [aborted]


def _completed(requests: tuple[int, ...], checkpoint: int) -> list[CoordinatorAction]:
    return [RequestCompleted(requests, checkpoint)] if requests else []


def _failed(requests: tuple[int, ...], reason: FailureReason) -> list[CoordinatorAction]:
    return [RequestFailed(requests, reason)] if requests else []
