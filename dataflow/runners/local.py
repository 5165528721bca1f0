"""The local runner: threads of this process. A few workers share the tasks; a task that may block has its own.

A run is planned and built here, and is then a `LocalJob`.
"""

from __future__ import annotations

import os
import sys
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from dataflow.background import Background
from dataflow.clock import Duration, SystemClock, microseconds
from dataflow.contracts.checkpointing import Checkpointing, input_identity
from dataflow.contracts.execution import Execution, Spill
from dataflow.contracts.folding import Folding, FoldWherePays
from dataflow.contracts.kept_rows import KeepMany
from dataflow.contracts.restarts import Restarts
from dataflow.errors import ConfigurationError, check_count, check_flag
from dataflow.events.event_log import EventLog
from dataflow.planning.batch_graph import refuse_in_batch
from dataflow.planning.graph import NamedGraph, Node
from dataflow.planning.physical_plan import Plan, make_plan
from dataflow.planning.plan_shape import shape_of
from dataflow.runners.attempts import Attempts, RestorePoint, checked_restarts
from dataflow.runners.binding import LIBRARY
from dataflow.runners.control_socket.server import ControlServer
from dataflow.runners.endless_input import warn_of_endless_input
from dataflow.runners.explain_table import Explanation, explain_plan
from dataflow.runners.job_progress import NoLine, ProgressLine
from dataflow.runners.kernel_wait import load_kernels
from dataflow.runners.local_job import LocalJob
from dataflow.runners.local_run import LocalRun, RunMeter
from dataflow.runners.recordings import RecordTo, checked_record, make_recorder
from dataflow.runners.run_result import combines, warn_of_unnamed_state
from dataflow.runners.worker_pool import WorkerPool
from dataflow.runtime.checkpoint_reader.checkpoint import Checkpoint
from dataflow.runtime.job.build_job import Settings, build, store_of
from dataflow.runtime.job.job import JOB_QUEUES, Job
from dataflow.runtime.job.run_locks import RunLocks
from dataflow.runtime.restore.find_checkpoint import refuse_without_store
from dataflow.runtime.restore.job_ids import one_id, random_id
from dataflow.runtime.restore.resolve_changes import checked_changes
from dataflow.runtime.task.channel import DEFAULT_CREDIT
from dataflow.runtime.task.joined_rows import JoinSmall
from dataflow.runtime.task.kernel_loading import KernelLoader
from dataflow.runtime.task.pace import LearnedPace, budgets, step_choice
from dataflow.runtime.task.poll_times import LearnedPolls
from dataflow.store.directory import DirectoryStore

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.events.plan_shape import PlanShape

__all__ = ["LocalRunner"]


class LocalRunner:
    """Runs a pipeline on threads of this process.

    Args:
        threads: workers that share the tasks that never wait for anything outside; None: one per core, but no more than
            there are such tasks. Tasks with functions of yours (``map``, ``flat_map``, ``map_batches``), with sources
            or sinks that may wait, and with operators that say so (``Operator.blocking``) have a thread each.
        step_budget: the target for the longest step of a task. A barrier waits for the step in progress, so a slow
            function gets its batches in slices. None: 10 ms while rows are rare or a barrier waits, else up to 5 % of
            the checkpoint interval and 50 ms, because larger slices cost less.
        stall_after: if no row moves for this long, log a warning with the tasks that wait for each other, once per
            stall.
        slow: an artificial delay per row, by operator name, to demonstrate back-pressure.
        combine: fold rows per key, those of one batch or of many, before they are sent to the subtasks of an aggregate,
            so that fewer rows move. Has no effect in mode ``"unaligned"``, because its restores report rows unchanged,
            nor before an operator that is ``slow``.
        spill: an existing directory for the files of rows that a batch sorts, if they are too many for memory. None:
            the system's directory for temporary files. The files are gone when the process ends, however it ends.

    Raises: ConfigurationError for a value out of range.

    >>> LocalRunner(slow={"counts": "100us"})
    LocalRunner(slow={'counts': 100})
    """

    _folding: ClassVar[type[Folding]] = FoldWherePays

    def __init__(
        self,
        *,
        threads: int | None = None,
        step_budget: Duration | None = None,
        stall_after: Duration = "10s",
        slow: Mapping[str, Duration] | None = None,
        combine: bool = True,
        spill: str | os.PathLike[str] | None = None,
    ) -> None:
        if threads is not None:
            check_count("LocalRunner(threads=)", threads, advice="; leave it out for one per core")
        self._threads = threads
        self._step_budget = None if step_budget is None else microseconds(step_budget, "LocalRunner(step_budget=)")
        if self._step_budget == 0:
            raise ConfigurationError("LocalRunner(step_budget=) must be above zero, got 0; leave it out")
        self._stall_after = microseconds(stall_after, "LocalRunner(stall_after=)")
        check_flag("LocalRunner(combine=)", combine)
        self._combine = combine
        self._spill = Spill(_directory(spill))
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
        execution: Execution | str = "streaming",
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
        chosen = Execution.of(execution, "explain")
        plan = self._plan(pipeline, parallelism, checkpoint, max_key_groups, chosen, encode=False, method="explain")
        return explain_plan(pipeline.name, plan, checkpoint)

    def shape(self, pipeline: NamedGraph, *, parallelism: int = 1) -> PlanShape:
        """Return the plan of ``pipeline`` without checkpoints as plain data, for pictures. Nothing is read or started.

        Args:
            pipeline: the pipeline; its graph may be unfinished.
            parallelism: the number of subtasks of each operator that has none of its own.

        Raises: ConfigurationError for a parallelism below 1; GraphError for a forward edge between operators of
            different parallelism.
        """
        plan = self._plan(pipeline, parallelism, None, sys.maxsize, Execution.STREAMING, encode=False, method="draw")
        return shape_of(plan, "local")

    def _plan(
        self,
        pipeline: NamedGraph,
        parallelism: int,
        checkpoint: Checkpointing | None,
        max_key_groups: int,
        execution: Execution,
        *,
        encode: bool,
        method: str = "run",
    ) -> Plan:
        if execution is Execution.BATCH:
            refuse_in_batch(pipeline.graph, checkpoint, method)
        return make_plan(
            pipeline.graph,
            parallelism=parallelism,
            max_key_groups=max_key_groups,
            combine=self._combines if self._combine and combines(checkpoint) else None,
            encode=encode,
            input_identity=input_identity(checkpoint),
            execution=execution,
        )

    def start(
        self,
        pipeline: NamedGraph,
        *,
        parallelism: int = 1,
        checkpoint: Checkpointing | None = None,
        restore: object = "auto",
        take_back: bool = False,
        channel_credit: int = DEFAULT_CREDIT,
        max_key_groups: int = 128,
        progress: bool = False,
        execution: Execution | str = "streaming",
        record: RecordTo = None,
        restarts: Restarts | None = None,
        renamed: Mapping[str, str] | None = None,
        allow_dropped: Sequence[str] = (),
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
            take_back: whether rows may be deleted that sinks committed after the checkpoint at the path; see
                `Pipeline.run`.
            channel_credit: batches a channel holds before its writer must wait. It also waits for bytes: 32 MiB in all
                channels into a task.
            max_key_groups: the number of key groups, which bounds the parallelism of keyed operators.
            progress: while a thread waits for the job, show a progress line on standard error: rewritten in place on a
                terminal, else a new line every 5 s. See `LocalJob.progress` for the numbers.
            execution: ``"streaming"``, or ``"batch"``: all input is read, then the results come; see `Pipeline.run`.
            record: a file that gets the events of the run: a path, or `Record`; see `Pipeline.run`.
            restarts: whether, and after which delays, a job that failed restarts from its newest checkpoint, such as
                ``Restarts.fixed(3, "10s")``; None: it does not. It needs ``checkpoint``.
            renamed: new names of operators by their old ones, and of aggregates as "operator.aggregate", if the
                pipeline has changed since the checkpoint: see `Pipeline.run`.
            allow_dropped: operators, aggregates and declared states whose state may be dropped.

        Raises: ConfigurationError and GraphError for settings that cannot work; the errors of a restore, such as
            CheckpointMismatch and NoCheckpoint; DirectoryInUse if another job holds the checkpoint directory;
            EventsError if the run cannot be recorded there.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline("copy") as p:
        ...     p.source(op.from_arrow(pa.table({"x": [1, 2]})), name="in").sink(op.collect(), name="out")
        >>> with LocalRunner(threads=1).start(p, parallelism=2) as job:
        ...     job.wait().rows_out
        {'out': 2}
        """
        if checkpoint is not None and not isinstance(checkpoint, Checkpointing):
            raise ConfigurationError(f"checkpoint= must be Checkpointing(...) or None, got {type(checkpoint).__name__}")
        check_count("channel_credit=", channel_credit)
        refuse_without_store(restore, checkpoint)
        check_flag("take_back=", take_back)
        chosen = Execution.of(execution, "run")
        recording = checked_record(record, pipeline.graph, checkpoint)
        policy = checked_restarts(restarts, pipeline.graph, checkpoint)
        changes = checked_changes(renamed, allow_dropped, pipeline.graph, chosen)
        plan = self._plan(pipeline, parallelism, checkpoint, max_key_groups, chosen, encode=combines(checkpoint))
        warn_of_unnamed_state(pipeline.name, plan.logical, checkpoint)
        warn_of_endless_input(pipeline.name, pipeline.graph)
        clock = SystemClock()
        line = ProgressLine(pipeline.name, None, sys.stderr, clock) if progress else NoLine()
        locks, log = RunLocks(), EventLog()
        interval = None if checkpoint is None else checkpoint.every
        store = None if checkpoint is None else store_of(checkpoint)
        settings = Settings(
            pipeline=pipeline.name,
            run_id="",
            make_id=one_id(random_id),
            checkpointing=checkpoint,
            store=store,
            restore=restore,
            take_back=take_back,
            clock=clock,
            submit=_nowhere,
            credit=channel_credit,
            join=JoinSmall.over,
            polls=LearnedPolls,
            keep=KeepMany,
            folding=self._folding,
            pace=partial(LearnedPace, *budgets(self._step_budget, interval)),
            library=LIBRARY,
            spill=self._spill,
            changes=changes,
            engine="local",
            locks=locks,
        )

        def start_attempt(restore: object, previous: Job | None) -> WorkerPool:
            load = partial(load_kernels, line=line) if previous is None else KernelLoader.run
            notices, recorder = None if previous is None else previous.notices, make_recorder(recording, log)
            own = replace(settings, restore=restore, load=load, notices=notices, recorder=recorder)
            return self._start_attempt(plan, own, interval)

        point = RestorePoint(restore, settings.store)
        try:
            run = LocalRun(start_attempt, Attempts(policy, clock.now()), point, locks, clock)
        except BaseException:
            line.leave()
            locks.release()
            raise
        line.follow(RunMeter(run))
        server = ControlServer(store, clock) if isinstance(store, DirectoryStore) else None
        if server is not None:
            locks.before_release(server.close)
        run.start()
        if server is not None:
            server.start(_Savepoints(run))
        return LocalJob(run, clock, line)

    def _start_attempt(self, plan: Plan, settings: Settings, interval: int | None) -> WorkerPool:
        """Build a job with threads of its own. Raises: the errors of building it."""
        background, stop = Background(apart=JOB_QUEUES), threading.Event()
        delays = {name: _delay(cost, stop) for name, cost in self._slow.items()}
        own = replace(settings, run_id=uuid.uuid4().hex[:12], submit=background.submit, delays=delays)
        try:
            job = build(plan, own)
        except BaseException:
            background.close()
            raise
        job.choices = [step_choice(self._step_budget, interval)]
        threads = self._threads or os.cpu_count() or 1
        return WorkerPool(job, background, settings.clock, threads, self._stall_after, stop)


def _nowhere(queue: str, job: Callable[[], None]) -> None:
    raise AssertionError("each attempt has a background of its own")


class _Savepoints:
    """The savepoints that other processes request. They give no warnings of the run, which are for its callers."""

    def __init__(self, run: LocalRun) -> None:
        self._run = run

    def take(self, path: str, timeout: int | None) -> Checkpoint:
        saved = self._run.running_job("savepoint").savepoint(path, timeout)
        saved.future.result()
        return Checkpoint(saved.path)

    def stop(self, path: str, timeout: int | None, *, drain: bool) -> Checkpoint:
        job = self._run.running_job("savepoint")
        saved = (job.drain if drain else job.stop_with_savepoint)(path, timeout)
        saved.future.result()
        return Checkpoint(saved.path)

    def wait_until_over(self) -> None:
        self._run.wait()


def _directory(spill: str | os.PathLike[str] | None) -> str | None:
    """Return the directory for sorted rows. Raises: ConfigurationError if there is none."""
    if spill is None:
        return None
    if not isinstance(spill, str | os.PathLike) or not os.path.isdir(spill):
        raise ConfigurationError(
            f"LocalRunner(spill=) must be an existing directory, got {spill!r}; create it, or leave spill= out"
        )
    return os.fspath(spill)


def _delay(cost: int, stop: threading.Event) -> Callable[[int], None]:
    """Return a function that waits ``cost`` microseconds per row, or until ``stop`` is set."""

    def wait(rows: int) -> None:
        stop.wait(rows * cost / 1e6)

    return wait
