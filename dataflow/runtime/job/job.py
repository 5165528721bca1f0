"""The job: it carries out the decisions of the coordinator and handles messages; ``step()`` advances it.

The order of success: every task's part durable -> manifest durable -> the checkpoint exists -> sinks commit every
transaction up to it. A crash between any two of these neither loses nor repeats a row: before the manifest the
checkpoint never existed; after it the restore commits the transactions that it names.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never, cast

from dataflow.contracts.checkpointing import Mode
from dataflow.contracts.execution import Execution
from dataflow.contracts.tuning import Choice
from dataflow.errors import CheckpointError, CommitsDelayedWarning, ConfigurationError, JobCancelled
from dataflow.events.kinds import Kind
from dataflow.planning.specs import Write
from dataflow.protocol.coordination import Coordinator
from dataflow.protocol.coordinator_actions import (
    AbortTasks,
    CoordinatorAction,
    Discard,
    Failed,
    Inject,
    Notify,
    Persist,
    Release,
    RequestCompleted,
    RequestFailed,
    Retire,
)
from dataflow.protocol.events import Barrier, BarrierKind
from dataflow.runtime.job.checkpoint_attempts import CheckpointRecord
from dataflow.runtime.job.checkpoint_history import CheckpointHistory, DroppedCheckpoint
from dataflow.runtime.job.checkpoint_requests import CheckpointRequest, CheckpointRequests
from dataflow.runtime.job.checkpoint_state import state_at
from dataflow.runtime.job.committer import LAST_ATTEMPTS, Committer, SinkCommitted, SinkFailed
from dataflow.runtime.job.job_messages import CancelJob, DrainJob, JobMessage, StopJob, StopWithSavepoint
from dataflow.runtime.job.manifest_writer import ManifestWriter, Persisted, PersistFailed, manifest_of
from dataflow.runtime.job.predicates import QUEUE as PREDICATES
from dataflow.runtime.job.predicates import AddPredicate, Answers, Predicates, PredicatesEvaluated
from dataflow.runtime.job.savepoints import QUEUE as SAVEPOINTS
from dataflow.runtime.job.savepoints import Copied, Savepoint, SavepointRequest, Savepoints, WithdrawSavepoint
from dataflow.runtime.task.kernel_loading import KernelLoader
from dataflow.runtime.task.messages import (
    AbortCheckpoint,
    Acknowledged,
    Committed,
    Crashed,
    Declined,
    Drain,
    Ended,
    Enough,
    FailedAt,
    Stop,
    TaskMessage,
    Trigger,
)
from dataflow.runtime.task.progress import JobState, Progress
from dataflow.runtime.task.services import Identity, Services
from dataflow.runtime.task.task import Task
from dataflow.store.export import Export

if TYPE_CHECKING:
    from dataflow.planning.physical_plan import Plan
    from dataflow.runtime.restore.find_checkpoint import RestoreReport

__all__ = ["JOB_QUEUES", "Job"]

JOB_QUEUES = ("store", "commit", PREDICATES, SAVEPOINTS)
"""The background queues of the job itself; the parts of each task have a queue of their own."""

log = logging.getLogger("dataflow.job")


class Job:
    """A running pipeline.

    One thread calls ``step``; tasks, background writers and users talk to it through its mailbox.

    Invariant: a sink is told to commit n only after the manifest of n is durable.
    """

    def __init__(
        self,
        plan: Plan,
        tasks: Mapping[str, Task],
        coordinator: Coordinator,
        committer: Committer,
        services: Services,
        identity: Identity,
        *,
        loading: KernelLoader | None = None,
        restore_report: RestoreReport | None = None,
    ) -> None:
        #: Never changes; ``tasks`` are those of its vertices.
        self.plan = plan
        #: Never changes. The keys are the names of the tasks, and all tasks share the ledger of ``history``.
        self.tasks = tasks
        #: Keeps its own invariants. Its checkpoints under way are those of ``history``.
        self.coordinator = coordinator
        #: If it has sinks, its horizon is ``_horizon``: the job has passed on what all of them committed.
        self.committer = committer
        #: Never changes.
        self.identity = identity
        #: Never changes; None if and only if nothing was restored.
        self.restore_report = restore_report
        #: Never changes: the clock of the services.
        self.clock = services.clock
        #: Never changes. Any thread puts; only ``step`` takes, after ``_closed`` any thread, to refuse requests.
        self.mailbox = services.mailbox
        #: Leaves RUNNING once, for good.
        self.state = JobState.RUNNING
        #: Not None if and only if the state is FAILED or CANCELLED; the first error, never replaced.
        self.error: BaseException | None = None
        #: None unless an operator raised ``error``.
        self.failed_at: FailedAt | None = None
        #: Has the checkpoints under way of ``coordinator``, and no others, as attempts.
        self.history = CheckpointHistory(list(tasks), services.clock)
        for task in tasks.values():
            task.ledger = self.history.ledger
        #: What the runner chose for the whole job; it sets them before the first step.
        self.choices: Sequence[Choice] = ()
        #: The recording and, unless the run keeps them, the locks of store and sinks, from the builder. Released once.
        self.held = ExitStack()
        #: Never changes.
        self.started_at = services.clock.now()
        #: None if and only if the state is RUNNING; never before ``began_at``.
        self.ended_at: int | None = None
        #: Never changes: the notices of the services.
        self.notices = services.notices
        self._record = services.recorder.job.record
        #: Began its attempt when this job started.
        self.recorder = services.recorder
        self._begin_recording()
        #: Gets a manifest only if all parts that it names are durable.
        self._manifests = ManifestWriter(services)
        channels = [channel.name for task in tasks.values() for channel in task.channels]
        self.predicates = Predicates(
            lambda checkpoint: state_at(services.store, checkpoint, plan, channels, services.library),
            self._manifests.retire,
            services.submit,
            services.mailbox.put,
            services.notices,
        )
        #: Keeps its own invariants. Its requests are all answered if the job is over, and none before.
        self._requests = CheckpointRequests()
        #: Keeps its own invariants. No checkpoint that it holds is retired.
        self.savepoints = Savepoints(
            services.store, self.predicates.retire, services.submit, services.mailbox.put, services.probe
        )
        #: Never changes. Is not written to by the job, only by savepoints, through ``savepoint``.
        self._store = services.store
        #: Done before ``begun`` is set.
        self.loading = loading or KernelLoader()
        #: Never unset. If False, no task was stepped and no checkpoint triggered, because kernels are still loaded.
        self.begun = False
        #: Never before ``started_at``; changes once at most, when ``begun`` is set.
        self.began_at = self.started_at
        #: The messages from the time of loading; None if and only if nothing had to be loaded.
        self._early: list[JobMessage] | None = None
        #: Not None only if the job is checkpointed: the future of its last checkpoint, or of the savepoint at which it
        #: stops. Unset only if that savepoint failed.
        self._stopping: Future[int] | None = None
        #: The savepoint of ``_stopping``, if it is one.
        self._stops_at: Savepoint | None = None
        #: Whether the job is to stop with an ordinary checkpoint if the savepoint ``_stops_at`` fails.
        self._stops_anyway = False
        #: Never unset. Not None only if sources are told to end: the savepoint that the last checkpoint is to be.
        self._drains_to: Savepoint | None = None
        #: 0, or the durable checkpoint at the end of the input. Then it is the newest, and every task has ended.
        self._final = 0
        #: Never reduced, and at most the newest durable checkpoint: no sink commits one that is not durable.
        self._horizon = 0
        #: Never unset. If True, all sinks have committed ``_final``. A job is FINISHED only if it is True.
        self._released = False
        #: Never unset. Set before the last look at ``mailbox``, so that no request is left without an answer.
        self._closed = False

    def _begin_recording(self) -> None:
        self.recorder.begin(self.started_at)
        report, wall = self.restore_report, round(self.clock.wall() * 1e6)
        restored = None if report is None else report.checkpoint
        mode = self.identity.mode.value if self.identity.checkpointed else ""
        self._record(Kind.STARTED, self.started_at, restored, value=wall, detail=mode)
        if report is not None:
            self._record(Kind.RESTORED, self.started_at, restored, rows=report.in_flight_rows)

    # --- called from other threads

    def checkpoint(self, kind: BarrierKind = BarrierKind.CHECKPOINT) -> Future[int]:
        """Request a checkpoint; the future returns its id when it is durable and committed."""
        request = CheckpointRequest(kind)
        self.mailbox.put(request)
        if self._closed:
            self._refuse_late()
        return request.future

    def savepoint(self, path: object, timeout: int | None = None) -> Savepoint:
        """Reserve the directory ``path`` and request a savepoint there, within ``timeout`` microseconds.

        Raises: ConfigurationError, CheckpointsExist, DirectoryInUse, StoreError: see ``Export``; ConfigurationError for
        a job that takes no checkpoints on request.
        """
        savepoint = self._reserved(path, timeout)
        self._send(SavepointRequest(savepoint))
        return savepoint

    def stop_with_savepoint(self, path: object, timeout: int | None = None) -> Savepoint:
        """Request to stop at a savepoint in ``path``. If it fails, the job continues. Raises: as ``savepoint``."""
        savepoint = self._reserved(path, timeout)
        self._send(StopWithSavepoint(savepoint))
        return savepoint

    def drain(self, path: object, timeout: int | None = None) -> Savepoint:
        """Request to end all sources where they are; the last checkpoint is a savepoint in ``path``.

        The job ends, also if that fails. Raises: as ``savepoint``.
        """
        savepoint = self._reserved(path, timeout)
        self._send(DrainJob(savepoint))
        return savepoint

    def withdraw(self, savepoint: Savepoint, error: BaseException) -> None:
        """Request to end a savepoint with ``error``, because its caller waits no longer."""
        self._send(WithdrawSavepoint(savepoint, error))

    def _reserved(self, path: object, timeout: int | None) -> Savepoint:
        if not self.identity.checkpointed:
            raise ConfigurationError(
                "a savepoint is a checkpoint, and this job takes none: start it with checkpoint=Checkpointing(...)"
            )
        if self.identity.execution is Execution.BATCH:
            raise ConfigurationError("a batch has no savepoints: its only checkpoint is the one at its end")
        targets = [spec.sink.target for node in self.plan.graph if isinstance(spec := node.spec, Write)]
        outputs = [target for target in targets if target is not None and os.path.isabs(target)]
        export = Export(path, outputs, self._store.file_system)
        export.reserve()
        return Savepoint(export, self.clock.now(), timeout)

    def _send(self, message: JobMessage) -> None:
        self.mailbox.put(message)
        if self._closed:
            self._refuse_late()

    def on_checkpoint(self, answers: Answers, then: Callable[[], None] | None = None) -> None:
        """Evaluate a predicate at the newest checkpoint and all later ones, and call ``then`` whenever it holds."""
        self.mailbox.put(AddPredicate(answers, then))
        if self._closed:
            self._refuse_late()

    def cancel(self, reason: str = "cancelled") -> None:
        """Stop as soon as possible; nothing more is committed."""
        self.mailbox.put(CancelJob(reason))

    def stop(self) -> None:
        """Take a last checkpoint, then stop. A batch, or a job without ``checkpoint=``, is cancelled."""
        self.mailbox.put(StopJob())

    # --- stepping

    @property
    def over(self) -> bool:
        """Whether the job has ended."""
        return self.state is not JobState.RUNNING

    @property
    def deadline(self) -> int | None:
        """The time when ``step`` has work without a message, in microseconds; None: never, or not known."""
        times = (
            self.coordinator.deadline, self.committer.deadline, self._requests.deadline, self.savepoints.deadline
        )  # fmt: skip
        return min([at for at in times if at is not None], default=None)

    @property
    def ended_with(self) -> Savepoint | None:
        """The savepoint at which the job stopped, or to which it was drained; None: there is none, or it failed."""
        savepoint = self._stops_at or self._drains_to
        if savepoint is None or not savepoint.future.done() or savepoint.future.exception() is not None:
            return None
        return savepoint

    @property
    def ending(self) -> bool:
        """Whether the job waits for its tasks to be done, which they do not report."""
        return self._released

    def step(self) -> bool:
        """Handle messages and due work; return whether there was any."""
        if self.over:
            return False
        now = self.clock.now()
        self.recorder.tick(now)
        self.clock.time()  # while no operator reads it, too, so that a step of the wall clock is noticed in time
        if not self.begun and not self._begin(now):
            return False
        worked = False
        while not self.over and (message := self.mailbox.take()) is not None:
            worked = True
            self._receive(message, now)
        if self.over:
            return True
        worked = self.committer.tick(now) or worked
        for waiting in self.committer.overdue(now):
            self.notices.add_now(waiting.sink, CommitsDelayedWarning, waiting.advice)
        worked = self._end_overdue(now) or worked
        for request in self._requests.due(now):
            self._ask_again(request, now)
            worked = True
        actions = self.coordinator.tick(now)
        self._act(actions, now)
        if self._released:
            self._complete_with_last(self._final)
            done = self.predicates.done() and self.savepoints.idle
            if done and all(task.state is Progress.DONE for task in self.tasks.values()):
                self._over(JobState.FINISHED)
        elif self._stopping is not None and self._stopping.done() and self._answered(self._stopping):
            self._stopped(self._stopping)
        return worked or bool(actions)

    def validate(self) -> None:
        """Assert the invariants that hold between two steps. Tasks and gates assert their own."""
        self.coordinator.validate()
        self._requests.validate()
        self.savepoints.validate()
        under_way, attempts = self.coordinator.under_way, tuple(self.history.under_way)
        assert attempts == under_way, f"under way are {under_way}, but the history has attempts at {attempts}"
        newest = max(self.coordinator.completed, default=0)
        assert self._horizon <= newest, f"committed is {self._horizon}, but the newest durable one is {newest}"
        horizon = self.committer.horizon
        assert not self.committer.sinks or self._horizon == horizon, f"{self._horizon} passed on, {horizon} committed"
        assert self._stopping is None or self.identity.checkpointed, "a job without checkpoints waits for its last one"
        if self._stops_at is not None:
            assert self._stopping is self._stops_at.future, "the job stops at a savepoint, and waits for something else"
        failed = self.state in (JobState.FAILED, JobState.CANCELLED)
        assert failed == (self.error is not None), f"the job is {self.state.value} with the error {self.error!r}"
        assert self.over == (self.ended_at is not None), f"the job is {self.state.value}, its end is {self.ended_at}"
        assert self.started_at <= self.began_at, f"the job began at {self.began_at}, before its start"
        assert self.ended_at is None or self.began_at <= self.ended_at, f"the job ended at {self.ended_at}"
        if not self.begun:
            assert not under_way, f"{under_way} are under way in a job that has not begun"
        if self._final:
            assert self._final == newest, f"the last checkpoint is {self._final}, but the newest is {newest}"
        if self._released:
            assert 0 < self._final <= self._horizon, f"released, but {self._horizon} of {self._final} is committed"
        for request in self._requests.open_requests:
            assert request.future.done() == self.over, f"the job is {self.state.value}, but {request} disagrees"
        if self.state is JobState.FINISHED:
            self._validate_finish()

    def _validate_finish(self) -> None:
        assert self._released, "the job is finished, but its tasks were not released"
        running = [name for name, task in self.tasks.items() if task.state is not Progress.DONE]
        assert not running, f"the job is finished, but {running} are not done"

    def _begin(self, now: int) -> bool:
        """Wait for the kernels; False: they are still being loaded, or the job ended first.

        Nothing has been read until then, so a stop needs no checkpoint: the newest one is still up to date. Other
        messages are handled when the kernels are loaded.
        """
        self.loading.run()  # unless the runner loads them on a thread
        if self.loading.done:
            self.begun = True
            self._record(Kind.STATE, now, detail=self.state.value)
            if self._early is not None:
                self.began_at = now
                self.coordinator.begin(now)
                for early in self._early:
                    self.mailbox.put(early) if self.over else self._receive(early, now)
            return not self.over
        self._early = self._early or []
        while not self.over and (message := self.mailbox.take()) is not None:
            match message:
                case StopJob() if self.identity.resumes:
                    self._over(JobState.STOPPED)
                case StopJob() | CancelJob() | Crashed() | WithdrawSavepoint():
                    self._receive(message, now)
                case SavepointRequest(savepoint) | StopWithSavepoint(savepoint) | DrainJob(savepoint):
                    self.savepoints.add(savepoint)  # it may be overdue before the job begins
                    self._early.append(message)
                case _:
                    self._early.append(message)
        self._end_overdue(now)
        if self.over:
            self.loading.stop()
            for early in self._early:
                self.mailbox.put(early)  # to be refused
        return False

    def _receive(self, message: JobMessage, now: int) -> None:
        coordinator = self.coordinator
        match message:
            case Acknowledged(task, checkpoint, parts):
                self.history.acknowledged(message)
                self._act(coordinator.acknowledge(task, checkpoint, parts, now), now)
            case Declined(task, checkpoint, reason, detail):
                log.info("%s declined checkpoint %d: %s %s", task, checkpoint, reason.value, detail)
                self.history.declined(message)
                self._act(coordinator.decline(task, checkpoint, reason, now), now)
            case Ended(task):
                self._act(coordinator.finish(task, now), now)
            case Persisted(checkpoint):
                self._record_durable(self.history.mark_durable(checkpoint))
                self.predicates.completed(checkpoint)
                self._act(coordinator.persisted(checkpoint, now), now)
                self.history.forget(checkpoint)
            case PersistFailed(checkpoint, why):
                self.history.note_failure(checkpoint, why)
                self._act(coordinator.persist_failed(checkpoint, why, now), now)
            case AddPredicate():
                self.predicates.add(message, self.history.newest)
            case PredicatesEvaluated(checkpoint):
                self.predicates.evaluated(checkpoint)
            case SinkCommitted():
                self._committed(self.committer.committed(message), now)
            case SinkFailed():
                self._commit_failed(message, now)
            case CheckpointRequest(future=future) if self.identity.execution is Execution.BATCH:
                future.set_exception(CheckpointError("checkpoint refused: a batch has one checkpoint, at its end"))
            case CheckpointRequest(future=future) if self._stopping is not None:
                future.set_exception(JobCancelled("checkpoint refused: the job is about to stop"))
            case CheckpointRequest():
                self._request(message, now)
            case SavepointRequest(savepoint):
                if self._accepts(savepoint):
                    self._request(savepoint.request, now)
            case StopWithSavepoint(savepoint):
                if self._accepts(savepoint):
                    self._stop_at(savepoint, now)
            case DrainJob(savepoint):
                if self._accepts(savepoint):
                    self._drain(savepoint, now)
            case WithdrawSavepoint(savepoint, error):
                self._end_savepoint(savepoint, error, now)
            case Copied():
                self._record_copied(message)
                self.savepoints.copied(message)
            case StopJob():
                self._stop(now)
            case CancelJob(reason):
                self.fail(JobCancelled(reason), JobState.CANCELLED)
            case Enough():
                self._over(JobState.STOPPED)
            case Crashed(task, error, at):
                if task not in self.tasks or self.tasks[task].state is not Progress.DONE:  # it recorded no error itself
                    self._record(Kind.ERROR, self.clock.now(), detail=type(error).__name__)
                self.failed_at = at
                self.fail(error)
            case _:
                assert_never(message)

    def _act(self, actions: Sequence[CoordinatorAction], now: int) -> None:
        for action in actions:
            match action:
                case Inject():
                    self._inject(action)
                case AbortTasks(checkpoint, reason):
                    self._record_failed(checkpoint, self.history.drop(checkpoint, reason))
                    self._tell(AbortCheckpoint(checkpoint, reason.at_tasks))
                case Persist():
                    attempt = self.history.attempt(action.checkpoint)
                    manifest = manifest_of(action, attempt, self.identity, self.plan, self.clock)
                    self._manifests.persist(manifest)
                case Notify(checkpoint):
                    self._notify(checkpoint, now)
                case Discard(checkpoint, parts):
                    self._manifests.discard(checkpoint, [part for task in parts for part in cast(Any, task)])
                case Retire(checkpoint):
                    self.savepoints.retire(checkpoint)
                case RequestCompleted(requests, checkpoint):
                    for request in self._requests.serve(requests, checkpoint):
                        self.savepoints.durable(request, checkpoint)
                    self._requests.complete(self._horizon)
                case RequestFailed(requests, reason) if reason.is_passing:
                    self._requests.retry_later(requests, now)
                case RequestFailed(requests, reason):
                    last = f"; {self.history.failures[-1]}" if reason.is_failure else ""
                    why = CheckpointError(f"the requested checkpoint failed: {reason.value}{last}")
                    self._requests.fail(requests, why)
                case Failed(reason):
                    self.fail(self.history.too_many_failures(reason))
                case Release():
                    self._released = True
                    self._tell(Stop())
                case _:
                    assert_never(action)

    def _tell(self, message: TaskMessage) -> None:
        for task in self.tasks.values():
            task.mailbox.put(message)

    # --- checkpoints

    def _inject(self, action: Inject) -> None:
        self.history.start(action)
        self._record(Kind.TRIGGERED, action.triggered_at, action.checkpoint, detail=action.kind.value)
        self.recorder.triggers += 1
        unaligned = self.identity.mode is Mode.UNALIGNED_PERSISTED and action.kind is not BarrierKind.SAVEPOINT
        barrier = Barrier(action.checkpoint, action.kind, action.triggered_at, unaligned, action.since)
        for task in action.running:
            self.tasks[task].mailbox.put(Trigger(barrier, finished=False))
        for task in action.finished:
            self.tasks[task].mailbox.put(Trigger(barrier, finished=True))

    def _notify(self, checkpoint: int, now: int) -> None:
        attempt = self.history.attempt(checkpoint)
        if attempt.kind is BarrierKind.FINAL:
            self._final = checkpoint
        if self.committer.sinks:
            self.committer.commit(checkpoint, attempt.transactions, attempt.staged, now)
        else:
            self._committed(checkpoint, now)

    def _committed(self, horizon: int, now: int) -> None:
        if horizon > self._horizon:
            self._horizon = horizon
            self._record(Kind.COMMITTED, self.clock.now(), horizon)
            self._tell(Committed(horizon))
            self._requests.complete(horizon)
            self._act(self.coordinator.committed(horizon, now), now)

    def _commit_failed(self, failure: SinkFailed, now: int) -> None:
        why = type(failure.error).__name__  # its text may have values of rows
        self._record(Kind.COMMIT_FAILED, self.clock.now(), failure.checkpoint, operator=failure.sink, detail=why)
        attempts = self.committer.failed(failure, now)
        if failure.checkpoint == self._last and attempts >= LAST_ATTEMPTS:
            if self._stops_at is None or self._final:
                self.fail(failure.of_last_checkpoint(attempts))
            else:
                self._end_savepoint(self._stops_at, failure.error, now)

    @property
    def _last(self) -> int:
        """The checkpoint after which no other one comes, because the input ended or the job stops; 0: there is none."""
        if self._stopping is None or self.coordinator.under_way:
            return self._final
        return self._final or self.history.newest or 0

    # --- endings

    def _request(self, request: CheckpointRequest, now: int) -> None:
        self._act(self.coordinator.trigger(request.kind, now, self._requests.add(request)), now)

    def _ask_again(self, request: CheckpointRequest, now: int) -> None:
        """Request a checkpoint again. In a job that is about to stop, its last checkpoint serves all requests, but for
        a savepoint, which need not be the last.
        """
        is_last = request.future is self._stopping or request.kind is BarrierKind.SAVEPOINT
        if self._stopping is None or is_last:
            self._request(request, now)
        else:
            self._stopping.add_done_callback(partial(_same_outcome, request.future))

    def _stop(self, now: int) -> None:
        if not self.identity.resumes:
            why = "without checkpoints" if not self.identity.checkpointed else "before the end of a batch"
            self.fail(JobCancelled(f"stopped; {why} there is nothing to resume from"), JobState.CANCELLED)
        elif self._stops_at is not None:
            self._stops_anyway = True
        elif self._stopping is None and self._drains_to is None:
            request = CheckpointRequest(BarrierKind.CHECKPOINT)
            self._stopping = request.future
            self.coordinator.only_on_request(now)  # checkpoints that began after the last one would never be finished
            self._request(request, now)

    def _accepts(self, savepoint: Savepoint) -> bool:
        """Add a savepoint that was requested, unless the job is about to end; return whether it is still wanted."""
        if savepoint.future.done():  # it was overdue while kernels were loaded
            return False
        if not self.savepoints.is_open(savepoint):
            self.savepoints.add(savepoint)
        if self._stopping is not None or self._drains_to is not None:
            self.savepoints.give_up(savepoint, JobCancelled("savepoint refused: the job is about to stop"))
            return False
        return True

    def _stop_at(self, savepoint: Savepoint, now: int) -> None:
        """Stop when ``savepoint`` is copied; until then, tasks continue, and no other checkpoint begins."""
        self._stopping, self._stops_at = savepoint.future, savepoint
        self.coordinator.only_on_request(now)
        self._request(savepoint.request, now)

    def _drain(self, savepoint: Savepoint, now: int) -> None:
        """End the sources where they are; the last checkpoint serves ``savepoint``."""
        self._drains_to = savepoint
        self._tell(Drain())
        self._act(self.coordinator.trigger_last(now, self._requests.add(savepoint.request)), now)

    def _end_overdue(self, now: int) -> bool:
        """End the savepoints whose time is up; return whether there were any."""
        overdue = self.savepoints.overdue(now)
        for savepoint, error in overdue:
            self._end_savepoint(savepoint, error, now)
        return bool(overdue)

    def _end_savepoint(self, savepoint: Savepoint, error: BaseException, now: int) -> None:
        """End a savepoint that is not done with ``error``, and abort its checkpoint, if that serves no other one."""
        if self.savepoints.end(savepoint, error):
            number = self._requests.withdraw(savepoint.request)
            self.savepoints.give_up(savepoint, error)
            if number is not None:
                self._act(self.coordinator.withdraw(number, now), now)

    def _complete_with_last(self, last: int) -> None:
        """Complete the requests that wait to be retried with ``last``, the last checkpoint.

        That of a stop is no savepoint, so it completes no request for one.
        """
        for request in self._requests.take_retries():
            if request.kind is BarrierKind.SAVEPOINT and last != self._final:
                request.future.set_exception(JobCancelled("savepoint refused: the job is about to stop"))
                continue
            self.savepoints.durable(request, last)
            request.future.set_result(last)

    def _answered(self, last: Future[int]) -> bool:
        """Return whether the predicates were evaluated at the last checkpoint and all before it, and all savepoints are
        done.
        """
        return last.exception() is not None or (self.predicates.done(last.result()) and self.savepoints.idle)

    def _stopped(self, last: Future[int]) -> None:
        error = last.exception()
        if error is None:
            self._complete_with_last(last.result())
            self._over(JobState.STOPPED)
        elif self._stops_at is not None:
            self._stopping = self._stops_at = None
            now = self.clock.now()
            self._act(self.coordinator.resume(now), now)
            if self._stops_anyway:
                self._stop(now)
        else:
            assert isinstance(error, Exception)
            self.fail(error)

    def fail(self, error: BaseException, state: JobState = JobState.FAILED) -> None:
        """End the job with ``error``; later errors are ignored."""
        if not self.over:
            self.error = error
            self._over(state)

    def stop_unbegun(self) -> None:
        """End a job that was built and not stepped: nothing was read, so its checkpoint is up to date."""
        assert not self.begun, "a job that has begun takes a last checkpoint"
        self._over(JobState.STOPPED)

    def _over(self, state: JobState) -> None:
        self.state = state
        self.ended_at = self.clock.now()
        self._record(Kind.STATE, self.ended_at, detail=state.value)
        self.savepoints.stop_all(self._ended_first())
        self._requests.refuse_all(self._ended_first())

    def _ended_first(self) -> BaseException:
        """Return the error for a checkpoint requested after the job ended: the job's own error, if it failed."""
        return self.error or JobCancelled(f"checkpoint refused: the job is {self.state.value}")

    def _refuse_late(self) -> None:
        """Answer requests that came after the job ended. Any thread may call it: each message is taken once."""
        while (message := self.mailbox.take()) is not None:
            match message:
                case CheckpointRequest(future=future):
                    future.set_exception(self._ended_first())
                case AddPredicate():
                    self.predicates.evaluate_late(message, self.history.newest)
                case SavepointRequest(savepoint) | StopWithSavepoint(savepoint) | DrainJob(savepoint):
                    if not self.savepoints.is_open(savepoint):
                        self.savepoints.add(savepoint)
                    self.savepoints.give_up(savepoint, self._ended_first())
                case Copied():
                    self.savepoints.copied(message)

    def close(self) -> None:
        """Close tasks, release the locks, refuse late requests. Called when no other thread steps a task any more.

        A job that stopped or finished leaves nothing unfinished: checkpoints beyond ``keep`` and parts of checkpoints
        that will not be completed are deleted. After a failure or a cancel they stay until the next start, which reads
        from them how much had been read.
        """
        self._closed = True
        self._refuse_late()
        self.savepoints.close(self._ended_first())
        try:
            self.notices.cleanup([(name, error) for name, task in self.tasks.items() for error in task.close()])
            self._sweep()
        finally:
            self.recorder.close()
            self.release()

    def _sweep(self) -> None:
        if self.state in (JobState.STOPPED, JobState.FINISHED) and self.begun:
            self._manifests.sweep()

    def _record_durable(self, record: CheckpointRecord) -> None:
        self._record(
            Kind.DURABLE,
            self.history.attempt(record.checkpoint).triggered_at + record.duration,
            record.checkpoint,
            duration=record.duration,
            bytes=record.size,
            rows=record.in_flight_rows,
        )

    def _record_copied(self, copied: Copied) -> None:
        checkpoint, error = copied.savepoint.checkpoint, copied.error
        self._record(Kind.EXPORTED, self.clock.now(), checkpoint, detail="" if error is None else type(error).__name__)

    def _record_failed(self, checkpoint: int, dropped: DroppedCheckpoint) -> None:
        self._record(Kind.FAILED, dropped.at, checkpoint, duration=dropped.duration, detail=dropped.why)

    def release(self) -> None:
        """Release the locks that are the job's own, and nothing else, as the kernel does for a dead process."""
        self.savepoints.release()
        self.held.close()

    def free(self) -> None:
        """Free the memory of tasks and operators, because another attempt takes its place. The job is closed."""
        for task in self.tasks.values():
            task.free()


def _same_outcome(request: Future[int], served: Future[int]) -> None:
    error = served.exception()
    if error is None:
        request.set_result(served.result())
    else:
        request.set_exception(error)
