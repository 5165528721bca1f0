"""The life of a run on threads: build a job, run it, and after a failure decide, wait, and build the next one.

One thread, the *run thread*, does this and steps each job. An attempt has workers and background threads of its own,
and begins only when all threads of the attempt before have ended. So no late write of a dead attempt meets the new one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from dataflow.clock import Clock
from dataflow.contracts.restarts import GiveUp
from dataflow.errors import CheckpointError, JobCancelled, StillRunningWarning
from dataflow.runners.attempts import Attempts, RestorePoint, forget_frames, rows_read
from dataflow.runners.job_progress import JobProgress, ProgressMeter
from dataflow.runners.job_thread import JobThread
from dataflow.runtime.job.job import Job
from dataflow.runtime.job.predicates import AddPredicate, Answers
from dataflow.runtime.job.run_locks import RunLocks
from dataflow.runtime.job.who_waits import who_waits_for_whom
from dataflow.runtime.task.progress import JobState

if TYPE_CHECKING:
    from dataflow.runners.worker_pool import WorkerPool
    from dataflow.runtime.task.messages import FailedAt

__all__ = ["LocalRun", "RunMeter", "StartAttempt"]

log = logging.getLogger("dataflow.local")

_PATIENCE: Final = 30.0
"""Seconds for the threads of a failed attempt to end; then the job fails, because a call does not return."""

T = TypeVar("T")


class StartAttempt(Protocol):
    """Builds a job and the threads that will run it."""

    def __call__(self, restore: object, previous: Job | None) -> WorkerPool:
        """Return the threads, with their job. Raises: the errors of building a job.

        Args:
            restore: what the job restores, as the user names it.
            previous: the job of the attempt before; None: this is the first attempt of the run.
        """
        ...


class LocalRun:
    """The attempts of one run, one at a time.

    Args:
        start: builds an attempt.
        attempts: records the attempts and decides about restarts.
        point: says what an attempt restores.
        locks: the locks of the store and the sinks; released when the run has ended.
        clock: the clock of the jobs.

    Raises: the errors of building the first attempt.
    """

    def __init__(
        self, start: StartAttempt, attempts: Attempts, point: RestorePoint, locks: RunLocks, clock: Clock
    ) -> None:
        self.attempts = attempts
        self.is_stuck = False
        """Whether a call of a failed attempt has not returned in time: the job has failed, and its thread waits."""
        self._start_attempt = start
        self._point = point
        self._locks = locks
        self._clock = clock
        self._changed = threading.Condition()  # guards all below; notified if a delay is to end
        self._delay_until: int | None = None
        self._is_restarting = False  # from the decision to restart until the next attempt is built
        self._settled = not attempts.policy.restarts  # no other attempt will come
        self._stopping: JobState | None = None  # the state in which the user asked for a stop
        self._cancelled = False
        self._outcome: tuple[JobState, BaseException] | None = None  # replaces the outcome of the last job
        self._waiting: list[tuple[Future[Any], Callable[[Job], Future[Any]]]] = []  # for the next attempt
        self._undecided: list[tuple[Future[Any], BaseException]] = []  # refused by the job that failed
        self._predicates: list[AddPredicate] = []
        self._pool = self._begin_attempt(None)
        point.begun()
        self.job = self._pool.job
        self.done = JobThread(self._run, f"dataflow-job-{self.job.identity.pipeline}")

    def start(self) -> None:
        """Start the run thread, and with it the first attempt."""
        try:
            self.done.start()
        except BaseException:  # the system has no more threads
            self._pool.shut_down()
            self._locks.release()
            raise

    # --- called by the handle, on any thread

    @property
    def state(self) -> JobState:
        """The state of the run. A job that failed and is not settled yet counts as restarting."""
        outcome, settled, state = self._outcome, self._settled, self.job.state
        if outcome is not None:
            return outcome[0]
        return state if settled or state is not JobState.FAILED else JobState.RESTARTING

    @property
    def error(self) -> BaseException | None:
        """The error of a run that failed or was cancelled."""
        outcome, settled = self._outcome, self._settled
        if outcome is not None:
            return outcome[1]
        return self.job.error if settled or self.job.state is not JobState.FAILED else None

    @property
    def delay_left(self) -> int | None:
        """Microseconds until the next attempt begins; None: the job is not in a delay."""
        until = self._delay_until
        return None if until is None else max(0, until - self._clock.now())

    def wait(self, seconds: float | None = None) -> bool:
        """Wait up to ``seconds`` for the end of the run; return whether it has come."""
        return self.done.wait(seconds) or self.is_stuck

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self.done.is_set() or self.is_stuck

    def stop(self) -> None:
        """Stop with a last checkpoint. In a delay, restore the newest checkpoint at once, and stop there."""
        with self._changed:
            self._stopping = self._stopping or self.state
            self._changed.notify_all()
            self.job.stop()

    def cancel(self, reason: str = "cancelled") -> None:
        """Stop as soon as possible, also in a delay."""
        with self._changed:
            self._cancelled = True
            self._changed.notify_all()
            self.job.cancel(reason)

    def request(self, ask: Callable[[Job], Future[T]]) -> Future[T]:
        """Ask the job for something that a future returns, such as a checkpoint.

        If the job has failed and restarts, the request waits for the next attempt. If it fails later, the request fails
        with CheckpointError.
        """
        future: Future[T] = Future()
        with self._changed:
            if self.state is JobState.RESTARTING:
                self._waiting.append((future, ask))
                return future
            job = self.job
        self._pass_on(future, ask, job)
        return future

    def running_job(self, asked: str) -> Job:
        """Return the job of the current attempt. Raises: CheckpointError while the job restarts."""
        with self._changed:
            if self.state is JobState.RESTARTING:
                raise CheckpointError(
                    f"{asked} refused: the job is restarting after an error; request it again when job.state is running"
                )
            return self.job

    def add_predicate(self, answers: Answers, then: Callable[[Job], None] | None) -> None:
        """Evaluate a predicate at the newest checkpoint and all later ones, of this attempt and the next ones."""
        with self._changed:
            added = AddPredicate(answers, None if then is None else lambda: then(self.job))
            self._predicates.append(added)
            job = None if self._is_restarting else self.job
        if job is not None:
            job.on_checkpoint(added.answers, added.then)

    # --- requests

    def _pass_on(self, future: Future[T], ask: Callable[[Job], Future[T]], job: Job) -> None:
        ask(job).add_done_callback(partial(self._answer, job, future))

    def _answer(self, job: Job, future: Future[T], answered: Future[T]) -> None:
        error = answered.exception()
        if error is None:
            future.set_result(answered.result())
            return
        with self._changed:
            if error is job.error and job.state is JobState.FAILED and not self._settled:
                if self.job is job and not self._is_restarting:
                    self._undecided.append((future, error))
                    return
                error = _failed_by_restart(error)
        future.set_exception(error)

    def _settle_requests(self) -> None:
        """Answer the requests that wait for the decision, and those that wait for an attempt that will not come."""
        with self._changed:
            undecided, self._undecided = self._undecided, []
            waiting, self._waiting = (self._waiting, []) if self._settled else ([], self._waiting)
        for future, error in undecided:
            future.set_exception(error if self._settled else _failed_by_restart(error))
        for future, _ in waiting:
            future.set_exception(self.error or JobCancelled(f"the job is {self.state.value}"))

    # --- on the run thread

    def _begin_attempt(self, previous: Job | None) -> WorkerPool:
        attempt = self.attempts.begin(self._clock.now())
        pool = self._start_attempt(self._point.now, previous)
        report = pool.job.restore_report
        attempt.restored_checkpoint = None if report is None else report.checkpoint
        return pool

    def _run(self) -> None:
        try:
            self._run_attempt()
            while self._begin_next():
                self._run_attempt()
        except BaseException as error:
            log.exception("error while job %r was restarting", self.job.identity.pipeline)
            self._outcome = JobState.FAILED, error
        finally:
            self._settled = True
            self._settle_requests()
            self._locks.release()

    def _run_attempt(self) -> None:
        """Run the current attempt until its threads have ended."""
        overdue = threading.Timer(_PATIENCE, self._give_up_waiting)
        overdue.daemon = True
        self._pool.run()
        if self.job.state is JobState.FAILED and not self._settled:
            overdue.start()
        self._pool.shut_down()
        overdue.cancel()
        self.attempts.end(self._clock.now(), self.job.error, rows_read(self.job))

    def _give_up_waiting(self) -> None:
        """Fail the job, because a call of the failed attempt has not returned. Its thread keeps the locks."""
        job = self.job
        assert job.error is not None, "only a job that failed is restarted"
        waiting = who_waits_for_whom(job, self._clock.now())
        why = f"a call had not returned {_PATIENCE:.0f} s after the failure:\n{waiting}"
        job.error.add_note(f"the job was not restarted, because {why}")
        job.notices.add(StillRunningWarning, f"job {job.identity.pipeline!r} failed, and {why}")
        self._settled = True
        self._settle_requests()
        self.is_stuck = True  # last of all, because it ends the wait for the job

    def _begin_next(self) -> bool:
        """Begin another attempt if the current one failed and is to be restarted; return whether it did."""
        error, at = self.job.error, self.job.failed_at
        while error is not None and self.job.state is JobState.FAILED and not self._settled:
            if not self._restarts_after(error, at):
                return False
            try:
                self._replace_job()
            except BaseException as failure:
                self.attempts.end(self._clock.now(), failure)
                error, at = failure, None
            else:
                return True
        return False

    def _restarts_after(self, error: BaseException, at: FailedAt | None) -> bool:
        """Decide whether another attempt follows the failed one, and wait until it is due; return whether it does."""
        now, job = self._clock.now(), self.job
        decision = self.attempts.decide(error, at, now, self._point.known_newest)
        with self._changed:
            # a stop that was asked for in a delay needs one more attempt, and not another one after that
            is_stopping = self._stopping is JobState.RUNNING or (self._stopping and error is not job.error)
            if isinstance(decision, GiveUp) or is_stopping:
                why = decision.reason if isinstance(decision, GiveUp) else "it was about to stop"
                self.attempts.note_given_up(error, why)
                self._outcome = JobState.FAILED, error
                return False
            self._is_restarting, self._delay_until = True, now + decision.delay
        self._settle_requests()
        self.attempts.note_restart(job.notices, error, at, decision.delay)
        if error is job.error:  # else the job is freed already, and could not be replaced
            job.free()
        forget_frames(error)
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._cancelled, (self.delay_left or 0) / 1e6)
            self._delay_until = None
            if self._cancelled:
                self._outcome = JobState.CANCELLED, JobCancelled("cancelled before it restarted")
                return False
        return True

    def _replace_job(self) -> None:
        """Build the next attempt, and give it what waits for it. Raises: the errors of building a job."""
        pool = self._begin_attempt(self.job)
        job, ours = pool.job, self._point.newest
        report = job.restore_report
        restored = report.checkpoint if report is not None and ours is not None else None
        with self._changed:
            self._pool, self.job, self._is_restarting = pool, job, False
            waiting, self._waiting = self._waiting, []
            for added in self._predicates:
                added.answers.error = None  # it is asked again
                answered = restored in added.answers or restored in added.answers.skipped
                job.predicates.add(added, None if answered else restored)
            if self._stopping:
                job.stop_unbegun()
            elif self._cancelled:
                job.cancel()
        for future, ask in waiting:
            self._pass_on(future, ask, job)


class RunMeter:
    """Takes snapshots of a run, of the job of its current attempt. Each reader has its own."""

    def __init__(self, run: LocalRun) -> None:
        self._run = run
        self._job, self._meter = run.job, ProgressMeter(run.job)

    def read(self) -> JobProgress:
        """Return a snapshot of the current attempt, with the restarts so far."""
        run = self._run
        if (job := run.job) is not self._job:
            self._job, self._meter = job, ProgressMeter(job)
        progress = self._meter.read()
        return replace(progress, state=run.state, restarts=run.attempts.restarts, restarting_in=run.delay_left)


def _failed_by_restart(error: BaseException) -> CheckpointError:
    """Return the error for a request that was pending when the job failed with ``error``."""
    failed = CheckpointError(
        f"the requested checkpoint failed, because the job failed and restarts: {type(error).__name__}: {error}; "
        "request it again"
    )
    failed.__cause__ = error
    return failed
