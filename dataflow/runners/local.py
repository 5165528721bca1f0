"""The local runner: threads of this process. A few workers share the tasks; a task that may block has its own.

`LocalJob` is the running job, to wait for, watch, stop or cancel; it also handles Ctrl-C.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from dataflow.background import Background
from dataflow.clock import Clock, Duration, SystemClock, microseconds
from dataflow.contracts.checkpointing import Checkpointing, input_identity
from dataflow.errors import BarrierflowWarning, ConfigurationError, JobTimeout, StillRunningWarning
from dataflow.planning.graph import NamedGraph, Node
from dataflow.planning.physical_plan import Plan, make_plan
from dataflow.runners.binding import LIBRARY
from dataflow.runners.explain_table import Explanation, explain_plan
from dataflow.runners.interrupts import CtrlC
from dataflow.runners.job_handle import WatchedJob
from dataflow.runners.job_progress import JobProgress, NoLine, ProgressLine, ProgressMeter
from dataflow.runners.kernel_wait import load_kernels, wait_for_import
from dataflow.runners.predicate_requests import make_answers
from dataflow.runners.run_result import (
    RunResult,
    TaskMetrics,
    combines,
    metrics_of,
    result_of,
    together,
    warn_of_unnamed_state,
)
from dataflow.runners.run_warnings import raise_warnings, warnings_of
from dataflow.runners.worker_pool import WorkerPool
from dataflow.runtime.job.build_job import Settings, build
from dataflow.runtime.job.checkpoint_attempts import CheckpointRecord
from dataflow.runtime.job.job import JOB_QUEUES, Job
from dataflow.runtime.job.predicates import Answers, Predicate
from dataflow.runtime.job.who_waits import who_waits_for_whom
from dataflow.runtime.restore.find_checkpoint import RestoreReport, refuse_without_store
from dataflow.runtime.task.channel import DEFAULT_CREDIT
from dataflow.runtime.task.joined_rows import JoinSmall
from dataflow.runtime.task.pace import LearnedPace, budgets
from dataflow.runtime.task.progress import JobState

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LocalJob", "LocalRunner"]

log = logging.getLogger("dataflow.local")

_LONG = 0.1
"""Seconds between two checks of signals, by a thread that waits for a last checkpoint."""
_GRACE = 5.0
"""Seconds that ``cancel`` waits for calls of users' functions to return."""


class LocalRunner:
    """Runs a pipeline on threads of this process.

    Args:
        threads: workers for tasks that never block; None: one per core, but no more than there are such tasks.
        step_budget: the target for the longest step of a task. A barrier waits for the step in progress, so a slow
            function gets its batches in slices. None: 10 ms while rows are rare or a barrier waits, else up to 5 % of
            the checkpoint interval and 50 ms, because larger slices cost less.
        stall_after: if no row moves for this long, log a warning with the tasks that wait for each other, once per
            stall.
        slow: an artificial delay per row, by operator name, to demonstrate back-pressure.
        combine: fold the rows of a batch per key before they are sent to the subtasks of an aggregate, so that fewer
            rows move. Has no effect in mode ``"unaligned"``, because its restores report rows unchanged, nor before an
            operator that is ``slow``.

    Raises: ConfigurationError for a value out of range.

    >>> LocalRunner(slow={"counts": "100us"})
    LocalRunner(slow={'counts': 100})
    """

    def __init__(
        self,
        *,
        threads: int | None = None,
        step_budget: Duration | None = None,
        stall_after: Duration = "10s",
        slow: Mapping[str, Duration] | None = None,
        combine: bool = True,
    ) -> None:
        if threads is not None and threads < 1:
            raise ConfigurationError(
                f"LocalRunner(threads=) must be at least 1, got {threads}; leave it out for one per core"
            )
        self._threads = threads
        self._step_budget = None if step_budget is None else microseconds(step_budget, "LocalRunner(step_budget=)")
        if self._step_budget == 0:
            raise ConfigurationError("LocalRunner(step_budget=) must be above zero, got 0; leave it out")
        self._stall_after = microseconds(stall_after, "LocalRunner(stall_after=)")
        self._combine = combine
        self._slow = {
            name: microseconds(cost, f"LocalRunner(slow=) of {name!r}") for name, cost in (slow or {}).items()
        }
        for name, cost in self._slow.items():
            if cost == 0:
                raise ConfigurationError(f"LocalRunner(slow=) of {name!r} must be at least 1us per row")

    def _combines(self, node: Node, schema: pa.Schema) -> bool:
        return node.name not in self._slow and LIBRARY.mergeable(node, schema)

    def __repr__(self) -> str:
        return f"LocalRunner(slow={self._slow})" if self._slow else "LocalRunner()"

    def explain(
        self,
        pipeline: NamedGraph,
        *,
        parallelism: int = 1,
        checkpoint: Checkpointing | None = None,
        max_key_groups: int = 128,
    ) -> Explanation:
        """Return the plan of ``pipeline``: its vertices, the operators chained in each, and how rows reach them.

        Args: as for `start`. Nothing is read and nothing is started.

        Raises: ConfigurationError and GraphError for settings that cannot work, as `start` does.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline("copy") as p:
        ...     p.source(op.from_arrow(pa.table({"x": [1, 2]})), name="in").sink(op.collect(), name="out")
        >>> print(LocalRunner().explain(p, parallelism=2))
        copy on threads of this process
          operator  kind   vertex  subtasks  rows come
          in        read   in      2         from the source
          out       write  in      2         chained
        * no checkpoints; end to end at most once
        * operators of a vertex are chained: each of its subtasks is one task, in which rows pass without a queue
        """
        plan = self._plan(pipeline, parallelism, checkpoint, max_key_groups, encode=False)
        return explain_plan(pipeline.name, plan, checkpoint)

    def _plan(
        self,
        pipeline: NamedGraph,
        parallelism: int,
        checkpoint: Checkpointing | None,
        max_key_groups: int,
        *,
        encode: bool,
    ) -> Plan:
        return make_plan(
            pipeline.graph,
            parallelism=parallelism,
            max_key_groups=max_key_groups,
            combine=self._combines if self._combine and combines(checkpoint) else None,
            encode=encode,
            input_identity=input_identity(checkpoint),
        )

    def start(
        self,
        pipeline: NamedGraph,
        *,
        parallelism: int = 1,
        checkpoint: Checkpointing | None = None,
        restore: object = "auto",
        channel_credit: int = DEFAULT_CREDIT,
        max_key_groups: int = 128,
        progress: bool = False,
    ) -> LocalJob:
        """Start ``pipeline``; the returned job is a context manager.

        A restore is complete when this returns. The job reads its first row after its kernels are loaded; until then
        the progress line names the kernels being compiled, and Ctrl-C leaves everything unchanged.

        Args:
            pipeline: the pipeline to run.
            parallelism: subtasks of each operator that has no parallelism of its own.
            checkpoint: settings; None: no checkpoints, so after a failure the job starts over.
            restore: ``"auto"`` (the newest valid checkpoint, else a fresh start), ``"never"`` (a fresh start, refused
                if there are checkpoints), ``"latest"`` (refused if there are none), an id, or a path. ``"latest"`` and
                an id need ``checkpoint``.
            channel_credit: batches a channel holds before its writer must wait.
            max_key_groups: the number of key groups, which bounds the parallelism of keyed operators.
            progress: while a thread waits for the job, show a progress line on standard error: rewritten in place on a
                terminal, else a new line every 5 s. See `LocalJob.progress` for the numbers.

        Raises: ConfigurationError and GraphError for settings that cannot work; the errors of a restore, such as
            CheckpointMismatch and NoCheckpoint; DirectoryInUse if another job holds the checkpoint directory.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline("copy") as p:
        ...     p.source(op.from_arrow(pa.table({"x": [1, 2]})), name="in").sink(op.collect(), name="out")
        >>> with LocalRunner(threads=1).start(p, parallelism=2) as job:
        ...     job.wait().rows_out
        {'out': 2}
        """
        if checkpoint is not None and not isinstance(checkpoint, Checkpointing):
            raise ConfigurationError(f"checkpoint= must be Checkpointing(...) or None, got {type(checkpoint).__name__}")
        if channel_credit < 1:
            raise ConfigurationError(f"channel_credit= must be at least 1, got {channel_credit}")
        refuse_without_store(restore, checkpoint)
        plan = self._plan(pipeline, parallelism, checkpoint, max_key_groups, encode=combines(checkpoint))
        warn_of_unnamed_state(pipeline.name, plan.logical, checkpoint)
        background = Background(apart=JOB_QUEUES)
        clock = SystemClock()
        stop = threading.Event()
        line = ProgressLine(pipeline.name, None, sys.stderr, clock) if progress else NoLine()
        settings = Settings(
            pipeline=pipeline.name,
            run_id=uuid.uuid4().hex[:12],
            checkpointing=checkpoint,
            restore=restore,
            clock=clock,
            submit=background.submit,
            credit=channel_credit,
            join=JoinSmall(),
            pace=partial(LearnedPace, *budgets(self._step_budget, None if checkpoint is None else checkpoint.every)),
            delays={name: _delay(cost, stop) for name, cost in self._slow.items()},
            load=partial(load_kernels, line=line),
            library=LIBRARY,
        )
        try:
            job = build(plan, settings)
        except BaseException:
            line.leave()
            background.close()
            raise
        line.follow(ProgressMeter(job))
        pool = WorkerPool(job, background, clock, self._threads or os.cpu_count() or 1, self._stall_after, stop)
        return LocalJob(job, pool, clock, line)


def _delay(cost: int, stop: threading.Event) -> Callable[[int], None]:
    """Return a function that waits ``cost`` microseconds per row, or until ``stop`` is set."""

    def wait(rows: int) -> None:
        stop.wait(rows * cost / 1e6)

    return wait


class LocalJob(WatchedJob):
    """A job running on threads of this process.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> with flow.Pipeline("x") as p:
    ...     p.source(op.from_arrow(pa.table({"a": [1, 2]}))).sink(op.collect(), name="out")
    >>> with p.start() as job:
    ...     job.wait().table("out").num_rows
    2
    """

    def __init__(self, job: Job, pool: WorkerPool, clock: Clock, line: ProgressLine | NoLine) -> None:
        super().__init__(job.identity.pipeline, job.notices, clock, line)
        self._job = job
        self._meter = ProgressMeter(job)
        self._done = pool.done
        self._abandoned = False
        self._left_running = False  # set when the user is warned that the job still runs after cancel()

    @property
    def state(self) -> JobState:
        """The state of the job: running, finished, failed, cancelled, ..."""
        return self._job.state

    @property
    def checkpoints(self) -> Sequence[CheckpointRecord]:
        """The checkpoints completed so far."""
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

    def checkpoint(self, *, timeout: Duration | None = None) -> int:
        """Take a checkpoint now, and return its id once it is durable and its output is committed.

        Args:
            timeout: the longest time to wait; None: no limit.

        Raises:
            CheckpointError: the checkpoint failed.
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
        limit = None if timeout is None else microseconds(timeout, "checkpoint(timeout=)") / 1e6
        return self._job.checkpoint().result(limit)

    def _ask(self, predicate: Predicate, where: str, then: Callable[[Job], None] | None) -> Answers:
        answers = make_answers(predicate, where, checkpointed=self._job.identity.checkpointed)
        self._job.on_checkpoint(answers, None if then is None else partial(then, self._job))
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
        self._job.cancel()
        if self._done.wait(_GRACE) or self._left_running:
            return None
        self._left_running = True
        name = self._job.identity.pipeline
        return StillRunningWarning(
            f"job {name!r} was cancelled and still waits for a call to return:\n{self.who_waits()}"
        )

    def _warnings(self, result: RunResult | None) -> Sequence[BarrierflowWarning]:
        return warnings_of(self._job, together(metrics_of(self._job))) if result is None else result.warnings

    def stop(self) -> RunResult:
        """Take a last checkpoint, then stop; a later run with ``restore="auto"`` resumes from it.

        No unfinished checkpoint, no checkpoint beyond ``keep`` and no staged row is left. A checkpoint requested after
        this call fails with JobCancelled.

        While kernels are still being compiled, before the first row, there is nothing to checkpoint: the job stops.

        Returns: the result of the run so far.

        Raises: the errors of `wait`; JobCancelled also if the job was started without ``checkpoint=``, because then
            stopping cancels it.

        >>> import dataflow as flow, operators as op
        >>> with flow.Pipeline("endless") as p:
        ...     p.source(op.generate({"id": op.sequence()}, rate="10/s"), name="in").sink(op.collect(), name="out")
        >>> settings = flow.Checkpointing(flow.MemoryStore(), every="1h")
        >>> with p.start(checkpoint=settings) as job:
        ...     job.stop().state.value
        'stopped'
        """
        self._not_in_a_predicate("stop")
        self._job.stop()
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
        return result_of(self._job, checkpointed=self._job.identity.checkpointed)

    def _over_within(self, seconds: float) -> bool:
        return self._done.wait(seconds)

    def _timed_out(self, limit: int) -> JobTimeout | None:
        waiting = self.who_waits()
        still = self._cancel()
        if self._done.is_set() and self._job.state is not JobState.CANCELLED:
            return None  # the job finished or failed before it was cancelled
        late = JobTimeout(f"the job was not done in time and was cancelled; at that moment:\n{waiting}")
        raise_warnings([still] if still else [], error=late)
        return late

    @property
    def _is_over(self) -> bool:
        return self._done.is_set() or self._abandoned

    @property
    def _failed_with(self) -> BaseException | None:
        return self._job.error if self._job.state is JobState.FAILED else None

    def _leave(self) -> None:
        if not self._done.is_set() and (still := self._cancel()):
            self._job.notices.add(StillRunningWarning, str(still))

    def _interrupted(self, pressed: CtrlC) -> KeyboardInterrupt:
        """Stop, with a last checkpoint unless Ctrl-C is pressed again; return the exception to raise, with notes."""
        self._line.close()
        interrupt = KeyboardInterrupt()
        before = len(self._job.history.checkpoints)
        # printed, not logged, because the user who pressed Ctrl-C must see it
        if self._job.identity.checkpointed:
            # while kernels are compiled there is nothing to checkpoint
            doing = "taking a last checkpoint" if self._job.begun else "stopping, because no row has been read yet"
            print(f"interrupted: {doing}; interrupt again to leave at once", file=sys.stderr, flush=True)
            self._job.stop()
        else:
            self._job.cancel("interrupted")
        while not self._done.wait(_LONG):
            if pressed.count > 1:
                self._abandoned = True
                self._job.cancel("interrupted twice")
                interrupt.add_note("interrupted twice: left without a last checkpoint" + self._how_to_resume())
                return interrupt
        wait_for_import(self._job.loading, pressed)
        if not self._job.identity.checkpointed:
            interrupt.add_note("the job had no checkpoints: run it again from the beginning")
        elif self._job.state is JobState.FINISHED:
            interrupt.add_note("the job had finished: its output is complete")
        elif not self._job.begun:
            interrupt.add_note("no row had been read, so no checkpoint was taken" + self._how_to_resume())
        elif len(self._job.history.checkpoints) > before and self._job.error is None:
            interrupt.add_note(
                f"checkpoint {self._job.history.checkpoints[-1].checkpoint} was taken" + self._how_to_resume()
            )
        else:
            interrupt.add_note(f"no last checkpoint was taken: {self._job.error}" + self._how_to_resume())
        return interrupt

    def _how_to_resume(self) -> str:
        """Return how to continue after an interrupt, as the end of a note."""
        if not self._job.identity.checkpointed:
            return ""
        if not self._job.history.checkpoints and self._job.restore_report is None:
            return "; there is no checkpoint, so the next run starts from the beginning"
        return "; run again with restore='auto' to resume from the newest checkpoint"

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if not self._abandoned:
            super().__exit__(kind, error, tb)

    def __repr__(self) -> str:
        return (
            f"LocalJob({self._job.identity.pipeline!r}, {self._job.state.value}, {len(self.checkpoints)} checkpoints)"
        )
