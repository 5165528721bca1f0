"""A running job on threads of this process, to wait for, watch, stop or cancel; it also handles Ctrl-C."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from types import TracebackType

from dataflow.clock import Clock, Duration, duration_text, microseconds
from dataflow.errors import BarrierflowWarning, ConfigurationError, JobCancelled, JobTimeout, StillRunningWarning
from dataflow.runners.attempts import Attempt
from dataflow.runners.interrupts import CtrlC
from dataflow.runners.job_handle import WatchedJob
from dataflow.runners.job_progress import JobProgress, NoLine, ProgressLine
from dataflow.runners.kernel_wait import wait_for_import
from dataflow.runners.local_run import LocalRun, RunMeter
from dataflow.runners.predicate_requests import make_answers
from dataflow.runners.run_result import RunResult, TaskMetrics, metrics_of, result_of, together
from dataflow.runners.run_warnings import raise_warnings, warnings_of
from dataflow.runtime.checkpoint_reader.checkpoint import Checkpoint
from dataflow.runtime.job.checkpoint_attempts import CheckpointRecord
from dataflow.runtime.job.job import Job
from dataflow.runtime.job.predicates import Answers, Predicate
from dataflow.runtime.job.savepoints import Savepoint
from dataflow.runtime.job.who_waits import who_waits_for_whom
from dataflow.runtime.restore.find_checkpoint import RestoreReport
from dataflow.runtime.task.progress import JobState
from dataflow.views.events import Events, events_since

__all__ = ["LocalJob"]

_LONG = 0.1
"""Seconds between two checks of signals, by a thread that waits for a last checkpoint."""
_GRACE = 5.0
"""Seconds that ``cancel`` waits for calls of users' functions to return."""


class LocalJob(WatchedJob):
    """A job running on threads of this process.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> with flow.Pipeline("x") as p:
    ...     p.source(op.from_arrow(pa.table({"a": [1, 2]}))).sink(op.collect(), name="out")
    >>> with p.start() as job:
    ...     job.wait().table("out").num_rows
    2
    """

    def __init__(self, run: LocalRun, clock: Clock, line: ProgressLine | NoLine) -> None:
        super().__init__(run.job.identity.pipeline, run.job.notices, clock, line)
        self._run = run
        self._meter = RunMeter(run)
        self._abandoned = False
        self._left_running = False  # set when the user is warned that the job still runs after cancel()

    @property
    def _job(self) -> Job:
        """The job of the current attempt."""
        return self._run.job

    @property
    def id(self) -> str:
        """The id of the job: 32 hex digits, the same in all runs of a checkpoint directory; new without checkpoints.

        Its checkpoints store it, so a directory that is moved or copied keeps it (`Checkpoint.job_id`). A job that
        begins from a checkpoint elsewhere has a new id (`Checkpoint.parent`).

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline("copy") as p:
        ...     p.source(op.from_arrow(pa.table({"x": [1, 2]})), name="in").sink(op.collect(), name="out")
        >>> store = flow.Checkpointing(flow.MemoryStore())
        >>> with p.start(checkpoint=store) as first:
        ...     result = first.wait()
        >>> with p.start(checkpoint=store) as second, p.start() as other:
        ...     result.job_id == first.id == second.id, other.id == first.id
        (True, False)
        """
        return self._job.identity.job

    @property
    def state(self) -> JobState:
        """The state of the job: running, restarting, finished, failed, cancelled, ..."""
        return self._run.state

    @property
    def attempts(self) -> Sequence[Attempt]:
        """The starts of the job in this run, the current one included: the last 1,000."""
        return self._run.attempts.listed

    @property
    def checkpoints(self) -> Sequence[CheckpointRecord]:
        """The checkpoints completed so far, since the last restart: the last 1,000."""
        return tuple(self._job.history.checkpoints)

    @property
    def restore_report(self) -> RestoreReport | None:
        """The report of the restore, with the rows that are delivered twice; None for a fresh start."""
        return self._job.restore_report

    def metrics(self) -> Sequence[TaskMetrics]:
        """Return the times (microseconds) and row counts so far, per subtask, operator and channel.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline("copy") as p:
        ...     p.source(op.from_arrow(pa.table({"x": [1, 2]})), name="in").sink(op.collect(), name="out")
        >>> with p.start() as job:
        ...     result = job.wait()
        >>> [(task.task, [(o.operator, o.rows_in) for o in task.operators]) for task in job.metrics()]
        [('in[0]', [('in', 2), ('out', 2)])]
        """
        return metrics_of(self._job)

    def progress(self) -> JobProgress:
        """Return the progress so far: rows, rows per second since the last call, backlog, checkpoints, time left.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline("copy") as p:
        ...     p.source(op.from_arrow(pa.table({"x": [1, 2]})), name="in").sink(op.collect(), name="out")
        >>> with p.start() as job:
        ...     result = job.wait()
        >>> progress = job.progress()
        >>> progress.rows_in, progress.done, progress.backlog
        (2, 1.0, 0)
        """
        return self._meter.read()

    def events(self, since: Events | None = None) -> Events:
        """Return what barriers, tasks and the job did so far.

        Args:
            since: return only what was recorded after these events, which this method returned earlier; None: all.

        Raises: ConfigurationError if ``since`` are events of another job.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline("copy") as p:
        ...     p.source(op.from_arrow(pa.table({"x": [1, 2]})), name="in").sink(op.collect(), name="out")
        >>> with p.start() as job:
        ...     result = job.wait()
        >>> events = job.events()
        >>> len(events) > 0, len(job.events(since=events))
        (True, 0)
        """
        self._job.recorder.drain()
        return events_since(self._job.recorder.log, since)

    def checkpoint(self, *, timeout: Duration | None = None) -> int:
        """Take a checkpoint now, and return its id once it is durable and its output is committed.

        If the job is about to restart, the checkpoint is taken after the restart.

        Args:
            timeout: the longest time to wait; None: no limit.

        Raises:
            CheckpointError: the checkpoint failed, or the job failed meanwhile and restarts.
            JobCancelled: the job ended first. If the job failed, its error is raised instead.
            TimeoutError: the checkpoint was not committed within ``timeout``; the job continues.
            ConfigurationError: ``timeout`` is no duration.

        >>> import dataflow as flow, operators as op
        >>> with flow.Pipeline("endless") as p:
        ...     p.source(op.generate({"id": op.sequence()}, rate="10/s"), name="in").sink(op.collect(), name="out")
        >>> settings = flow.Checkpointing(flow.MemoryStore(), every="1h")
        >>> with p.start(checkpoint=settings) as job:
        ...     job.checkpoint(), [record.checkpoint for record in job.checkpoints]
        (1, [1])
        """
        limit = None if timeout is None else microseconds(timeout, "checkpoint(timeout=)")
        taken = self._run.request(lambda job: job.checkpoint())
        try:
            return taken.result(None if limit is None else limit / 1e6)
        except TimeoutError:
            if limit is None or taken.done():
                raise
            raise TimeoutError(
                f"the checkpoint was not committed within {duration_text(limit)}; the job continues, and may commit it "
                "later: job.checkpoints lists those that were, job.who_waits() says what every task does"
            ) from None

    def savepoint(self, path: str | os.PathLike[str], *, timeout: Duration | None = None) -> Checkpoint:
        """Take a savepoint: a checkpoint that is full and aligned, and copied to a directory that no job changes.

        The checkpoint is one of the job's own: sinks commit it, ``restore="auto"`` finds it, and it counts for
        ``keep``. When all sinks have committed it, its files are copied, the manifest last. Then ``path`` needs nothing
        else: move it, and start other jobs with ``restore=path``. In mode "unaligned" no checkpoint is aligned, so
        rows may be delivered twice after a restore: the guarantee of the savepoint is at least once.

        If the input ends meanwhile, the savepoint is the last checkpoint: restored, the job has finished.

        Args:
            path: a new or empty directory, or one where an earlier savepoint was not completed.
            timeout: the longest time until the savepoint is complete; None: no limit. ``Checkpointing(timeout=)`` does
                not apply. A call of the file system that is in progress is waited for.

        Returns: the savepoint, for reading.

        Raises:
            ConfigurationError: the job takes no checkpoints, or ``path`` is a file, is not empty, or is in a directory
                where a job keeps checkpoints or writes output.
            CheckpointsExist: ``path`` is a savepoint already.
            DirectoryInUse: another savepoint is being copied to ``path``.
            CheckpointError: the checkpoint failed, or could not be copied; often StoreError. The job continues.
            JobCancelled: the job ended first. If the job failed, its error is raised instead.
            TimeoutError: it was not complete within ``timeout``. Nothing more is written to ``path``, and the job
                continues.

        >>> import tempfile, dataflow as flow, operators as op
        >>> with flow.Pipeline("endless") as p:
        ...     p.source(op.generate({"id": op.sequence()}, rate="10/s"), name="in").sink(op.collect(), name="out")
        >>> settings = flow.Checkpointing(flow.MemoryStore(), every="1h")
        >>> with tempfile.TemporaryDirectory() as path, p.start(checkpoint=settings) as job:
        ...     saved = job.savepoint(path + "/before-the-move")
        ...     saved.id, saved.kind, str(saved.status)
        (1, 'savepoint', 'whole')
        """
        self._not_in_a_predicate("savepoint")
        limit = None if timeout is None else microseconds(timeout, "savepoint(timeout=)")
        savepoint = self._run.running_job("savepoint").savepoint(path, limit)
        self._await(savepoint)
        return Checkpoint(savepoint.path)

    def _await(self, savepoint: Savepoint) -> None:
        """Wait for a savepoint. If the wait is interrupted, the savepoint is withdrawn. Raises: its error."""
        try:
            savepoint.future.result()
        finally:
            if not savepoint.future.done():
                self._job.withdraw(savepoint, JobCancelled("the savepoint was interrupted"))

    def _ask(self, predicate: Predicate, where: str, then: Callable[[Job], None] | None) -> Answers:
        identity = self._job.identity
        answers = make_answers(predicate, where, checkpointed=identity.checkpointed, execution=identity.execution)
        self._run.add_predicate(answers, then)
        return answers

    def _not_in_a_predicate(self, call: str) -> None:
        if self._job.predicates.evaluating_here:
            raise RuntimeError(
                f"job.{call}() in a predicate would wait for the predicate; use job.stop_when(predicate)"
            )

    def who_waits(self) -> str:
        """Return a text with the current action of every task, and the tasks that it waits for.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline("copy") as p:
        ...     p.source(op.from_arrow(pa.table({"x": [1, 2]})), name="in").sink(op.collect(), name="out")
        >>> with p.start() as job:
        ...     result = job.wait()
        >>> job.who_waits()
        'in[0]: done, ... steps'
        """
        return who_waits_for_whom(self._job, self._clock.now())

    def cancel(self) -> None:
        """Stop as soon as possible. Commits of the last checkpoint stay; nothing more is committed.

        Parts of unfinished checkpoints and staged rows remain until the next start deletes them.

        If a call of a user's function does not return within 5 s, its thread continues, and a `StillRunningWarning` is
        given. When the function returns, the thread ends and the checkpoint directory is released.

        >>> import dataflow as flow, operators as op
        >>> with flow.Pipeline("endless") as p:
        ...     p.source(op.generate({"id": op.sequence()}, rate="10/s"), name="in").sink(op.collect(), name="out")
        >>> with p.start() as job:
        ...     job.cancel()
        >>> job.state.value
        'cancelled'
        """
        if still := self._cancel():
            raise_warnings([still])  # the other warnings are given when the job is over

    def _cancel(self) -> StillRunningWarning | None:
        """Cancel the job. Return a warning if it has not ended after `_GRACE` seconds; later calls return None."""
        self._run.cancel()
        if self._run.wait(_GRACE) or self._left_running:
            return None
        self._left_running = True
        name = self._job.identity.pipeline
        return StillRunningWarning(
            f"job {name!r} was cancelled and still waits for a call to return:\n{self.who_waits()}"
        )

    def _warnings(self, result: RunResult | None) -> Sequence[BarrierflowWarning]:
        return warnings_of(self._job, together(metrics_of(self._job))) if result is None else result.warnings

    def stop(
        self,
        *,
        savepoint: str | os.PathLike[str] | None = None,
        drain: bool = False,
        timeout: Duration | None = None,
    ) -> RunResult:
        """Take a last checkpoint, then stop; a later run with ``restore="auto"`` resumes from it.

        No unfinished checkpoint, no checkpoint beyond ``keep`` and no staged row is left. A checkpoint requested after
        this call fails with JobCancelled.

        While kernels are still being compiled, before the first row, there is nothing to checkpoint: the job stops. If
        a sink cannot commit its last rows in eight attempts, its error is raised; they are durable, and the next run
        commits them.

        With ``savepoint``, the last checkpoint is a savepoint there, as of `savepoint`. Tasks continue until it is
        copied; what they did after it is dropped. If the savepoint fails, its error is raised, and the job continues.

        With ``drain``, sources end where they are, windows and timers fire, and the savepoint is what the job has when
        all rows have passed: restored, the job has finished. The job ends in any case. If the savepoint cannot be
        copied, the error names the checkpoint, which is the last one in the directory of the job.

        Args:
            savepoint: a directory for a savepoint, as for `savepoint`; None: take an ordinary checkpoint.
            drain: end the input of the job before the savepoint. It needs ``savepoint``.
            timeout: the longest time until the savepoint is complete; None: no limit. It needs ``savepoint``.

        Returns: the result of the run so far; its ``savepoint`` is the savepoint, for reading.

        Raises: the errors of `wait`; JobCancelled also if the job was started without ``checkpoint=``, because then
            stopping cancels it; with ``savepoint`` the errors of `savepoint`.

        >>> import dataflow as flow, operators as op
        >>> with flow.Pipeline("endless") as p:
        ...     p.source(op.generate({"id": op.sequence()}, rate="10/s"), name="in").sink(op.collect(), name="out")
        >>> settings = flow.Checkpointing(flow.MemoryStore(), every="1h")
        >>> with p.start(checkpoint=settings) as job:
        ...     job.stop().state.value
        'stopped'
        """
        self._not_in_a_predicate("stop")
        if savepoint is None:
            for given, name in ((drain, "drain=True"), (timeout is not None, "timeout=")):
                if given:
                    raise ConfigurationError(f"stop({name}) needs savepoint=, the directory of the savepoint")
            self._run.stop()
            return self.wait()
        limit = None if timeout is None else microseconds(timeout, "stop(timeout=)")
        job = self._run.running_job("savepoint")
        saved = (job.drain if drain else job.stop_with_savepoint)(savepoint, limit)
        try:
            self._await(saved)
        except Exception as error:
            if drain or error is self._job.error:
                self.wait()  # the job ends in any case
            raise
        return self.wait()

    def wait(self, timeout: Duration | None = None) -> RunResult:
        """Wait until the job is over, and return its result.

        Problems that did not end the job are given as warnings, once, after the last commit: see
        ``RunResult.warnings`` and ``dataflow.errors.BarrierflowWarning``. If a filter turns these warnings into errors,
        the first is raised, with the result as its ``result``; a second ``wait()`` returns the result.

        Ctrl-C takes a last checkpoint, stops the job, and then raises KeyboardInterrupt. A second Ctrl-C ends the wait
        at once, without a last checkpoint.

        Args:
            timeout: cancel the job after this duration, for example "10s"; None: wait as long as it runs.

        Returns: the result of the run.

        Raises: the error that made the job fail; JobTimeout after ``timeout``; JobCancelled if it was cancelled;
            RuntimeError if a predicate calls this method, because the job waits for the predicate;
            ConfigurationError if ``timeout`` is no duration.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline("copy") as p:
        ...     p.source(op.from_arrow(pa.table({"x": [1, 2]})), name="in").sink(op.collect(), name="out")
        >>> with p.start() as job:
        ...     job.wait(timeout="1min").rows_out
        {'out': 2}
        """
        self._not_in_a_predicate("wait")
        return super().wait(timeout)

    def _wait(self, limit: int | None) -> RunResult:
        self._watch(limit)
        if (error := self._run.error) is not None:
            raise error
        return result_of(self._job, checkpointed=self._job.identity.checkpointed, attempts=self._run.attempts)

    def _over_within(self, seconds: float) -> bool:
        return self._run.wait(seconds)

    def _timed_out(self, limit: int) -> JobTimeout | None:
        waiting = self.who_waits()
        still = self._cancel()
        if self._run.is_over and self._run.state is not JobState.CANCELLED:
            return None  # the job finished or failed before it was cancelled
        late = JobTimeout(f"the job was not done in time and was cancelled; at that moment:\n{waiting}")
        raise_warnings([still] if still else [], error=late)
        return late

    @property
    def _is_over(self) -> bool:
        return self._run.is_over or self._abandoned

    @property
    def _failed_with(self) -> BaseException | None:
        return self._run.error if self._run.state is JobState.FAILED else None

    def _leave(self) -> None:
        if not self._run.is_over and (still := self._cancel()):
            self._job.notices.add(StillRunningWarning, str(still))

    def _interrupted(self, pressed: CtrlC) -> KeyboardInterrupt:
        """Stop, with a last checkpoint unless Ctrl-C is pressed again; return the exception to raise, with notes."""
        self._line.close()
        interrupt = KeyboardInterrupt()
        before = self._job.history.completed
        # printed, not logged, because the user who pressed Ctrl-C must see it
        if self._job.identity.resumes:
            # while kernels are compiled there is nothing to checkpoint
            doing = "taking a last checkpoint" if self._job.begun else "stopping, because no row has been read yet"
            if self._run.state is JobState.RESTARTING:
                doing = "stopping at the newest checkpoint, because the job was about to restart"
            print(f"interrupted: {doing}; interrupt again to leave at once", file=sys.stderr, flush=True)
            self._run.stop()
        else:
            self._run.cancel("interrupted")
        while not self._run.wait(_LONG):
            if pressed.count > 1:
                self._abandoned = True
                self._run.cancel("interrupted twice")
                interrupt.add_note("interrupted twice: left without a last checkpoint" + self._how_to_resume())
                return interrupt
        wait_for_import(self._job.loading, pressed)
        if not self._job.identity.checkpointed:
            interrupt.add_note("the job had no checkpoints: run it again from the beginning")
        elif self._run.state is JobState.FINISHED:
            interrupt.add_note("the job had finished: its output is complete")
        elif not self._job.identity.resumes:
            interrupt.add_note("a batch has no checkpoint before its end: run it again from the beginning")
        elif not self._job.begun:
            interrupt.add_note("no row had been read, so no checkpoint was taken" + self._how_to_resume())
        elif self._job.history.completed > before and self._run.error is None:
            interrupt.add_note(
                f"checkpoint {self._job.history.checkpoints[-1].checkpoint} was taken" + self._how_to_resume()
            )
        else:
            interrupt.add_note(f"no last checkpoint was taken: {self._run.error}" + self._how_to_resume())
        return interrupt

    def _how_to_resume(self) -> str:
        """Return how to continue after an interrupt, as the end of a note."""
        if not self._job.identity.resumes:
            return ""
        if not self._job.history.checkpoints and self._job.restore_report is None:
            return "; there is no checkpoint, so the next run starts from the beginning"
        return "; run again with restore='auto' to resume from the newest checkpoint"

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if not self._abandoned:
            super().__exit__(kind, error, tb)

    def __repr__(self) -> str:
        job = self._job
        return f"LocalJob({job.identity.pipeline!r}, {self.state.value}, {job.history.completed} checkpoints)"
