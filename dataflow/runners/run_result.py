"""The result of a run, and the protocols of runners and running jobs."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from dataflow.clock import Duration
from dataflow.contracts.checkpointing import Checkpointing, Mode
from dataflow.contracts.operator_metrics import OperatorMetrics, RowError
from dataflow.contracts.sink import Collector, Guarantee
from dataflow.contracts.updates import Changes
from dataflow.errors import BarrierflowWarning, CheckpointError, StoreError, UnnamedStateWarning, user_frame
from dataflow.planning.graph import Graph, NamedGraph
from dataflow.planning.specs import Read, Write
from dataflow.runners import summary
from dataflow.runners.attempts import Attempt, Attempts
from dataflow.runners.checkpoint_writes import Persistence
from dataflow.runners.micro_batches import MicroBatches
from dataflow.runners.run_warnings import warnings_of
from dataflow.runners.tuning import Tuning, tuning_of
from dataflow.runtime.checkpoint_reader.checkpoint import Checkpoint
from dataflow.runtime.job.checkpoint_attempts import CheckpointRecord, CheckpointTotals
from dataflow.runtime.job.job import Job
from dataflow.runtime.job.predicates import Answers, Predicate
from dataflow.runtime.restore.find_checkpoint import RestoreReport
from dataflow.runtime.task.progress import JobState, TaskTimes
from dataflow.runtime.task.task import Task
from dataflow.runtime.task.task_input import ChannelMetrics
from dataflow.store.memory import MemoryStore
from dataflow.views.events import Events, events_of

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Group

    from dataflow.views.timeline import Timeline

__all__ = [
    "ChannelMetrics",
    "RunResult",
    "Runner",
    "RunningJob",
    "TaskMetrics",
    "changes_of",
    "combines",
    "metrics_of",
    "outputs_of",
    "presented",
    "result_of",
    "together",
    "warn_of_unnamed_state",
]


@dataclass(frozen=True, slots=True)
class TaskMetrics:
    """The times of one subtask (microseconds), its operators and its channels."""

    task: str
    meter: TaskTimes
    operators: Sequence[OperatorMetrics]
    channels: Sequence[ChannelMetrics]


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run. ``print`` it for a summary; ``rich`` and notebooks show it as tables.

    Attributes:
        pipeline: the name of the pipeline.
        state: finished, or stopped early (`Stream.head`, ``job.stop()``).
        mode: the checkpoint mode; None: the run took no checkpoints.
        guarantee: the end-to-end guarantee: the weakest of sources, checkpoint mode and sinks.
        rows_in: rows read by this run, by source; after a restore, rows since then.
        rows_out: rows written by this run, by sink; after a restore, rows since then.
        tables: the rows of each collecting sink; see `table`.
        changes: the meaning of each sink's rows: ``"rows"``, ``"updates"`` or ``"signed"`` (see `Stream.changes`).
        checkpoints: the last 1,000 checkpoints completed by this run.
        failures: the last 1,000 checkpoints that failed, with reasons.
        earlier: counts, sums and worst values of those that are not listed; ``totals`` has those of all.
        restore_report: the report of the restore, with the rows delivered twice; None for a fresh start.
        metrics: the metrics of each subtask; times in microseconds.
        duration: microseconds.
        micro_batches: on Spark, the time spent outside operators; None on other runners.
        outputs: the location of each sink's committed rows, such as ``out/*.parquet``, for sinks that have one.
        read_hints: how other programs read them, for sinks whose columns changed at a restore.
        warnings: the warnings that ``run()`` or ``wait()`` gave: damaged checkpoints, rows taken back, failed
            checkpoints, late rows, ...; see ``dataflow.errors.BarrierflowWarning``.
        tuning: what was chosen because of measurements, and why: batches, dictionaries, folding, ...; see `Tuning`.
        restarts: how often the job was started again in this run: after failures (see `Restarts`), on Spark also
            after transient ones, such as a lost executor, and in simulations after injected crashes.
        attempts: the starts of the job in this run, at least one: when each began and ended, the rows it read, the
            checkpoint it started from, and its error; the last 1,000. All counts and times above are of the last one.
        notes: what to know when reading the counts, such as what was not counted, or is still to come.
        job_id: the id of the job, which is the same in all runs of a checkpoint directory; new without checkpoints.
        events: what barriers, tasks and the job did, and when; see `timeline`.
        savepoint: the savepoint of ``job.stop(savepoint=)``, for reading; None: there is none, or it is not there any
            more.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> with flow.Pipeline() as p:
    ...     rows = p.source(op.from_arrow(pa.table({"x": [1, 2, 3]})), name="in")
    ...     rows.filter(flow.col("x") > 1, name="large").sink(op.collect(), name="out")
    >>> result = p.run()
    >>> result.rows_in, result.rows_out, result.operator("large").rows_in, result.table()["x"].to_pylist()
    ({'in': 3}, {'out': 2}, 3, [2, 3])
    """

    pipeline: str
    state: JobState
    mode: Mode | None
    guarantee: Guarantee
    rows_in: Mapping[str, int]
    rows_out: Mapping[str, int]
    tables: Mapping[str, pa.Table]
    checkpoints: Sequence[CheckpointRecord]
    failures: Sequence[str]
    restore_report: RestoreReport | None
    metrics: Sequence[TaskMetrics]
    duration: int
    micro_batches: MicroBatches | None = None
    warnings: Sequence[BarrierflowWarning] = ()
    outputs: Mapping[str, str] = field(default_factory=dict)
    read_hints: Mapping[str, Sequence[str]] = field(default_factory=dict)
    changes: Mapping[str, Changes] = field(default_factory=dict)
    tuning: Tuning = field(default_factory=Tuning)
    earlier: CheckpointTotals = field(default_factory=CheckpointTotals)
    restarts: int = 0
    attempts: Sequence[Attempt] = ()
    notes: Sequence[str] = ()
    job_id: str = field(kw_only=True)
    events: Events = field(kw_only=True)
    savepoint: Checkpoint | None = None

    def table(self, name: str | None = None) -> pa.Table:
        """Return the rows that ``op.collect()`` or ``op.head()`` gathered.

        Args:
            name: the name of the sink; None: the only one.

        Raises: KeyError if no sink of this name collects rows, or if ``name`` is None and there is not exactly one
            collecting sink; the message lists the collecting sinks.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline() as p:
        ...     p.source(op.from_arrow(pa.table({"x": [1, 2]}))).sink(op.collect(), name="out")
        >>> p.run().table("out")["x"].to_pylist()
        [1, 2]
        """
        if name is None and len(self.tables) == 1:
            return next(iter(self.tables.values()))
        if name is None or name not in self.tables:
            raise KeyError(f"no sink {name!r} collects rows; collecting sinks: {list(self.tables)}")
        return self.tables[name]

    def operator(self, name: str) -> OperatorMetrics:
        """Return the counts of one operator over all its subtasks.

        Args:
            name: the operator's name.

        Raises: KeyError if there is no such operator; the message lists the operators.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline() as p:
        ...     rows = p.source(op.from_arrow(pa.table({"x": [1, 2, 3]})))
        ...     rows.filter(flow.col("x") > 1, name="large").sink(op.collect())
        >>> large = p.run(parallelism=2).operator("large")
        >>> large.rows_in, large.rows_out
        (3, 2)
        """
        operators = {o.operator: o for o in self.operators}
        if name not in operators:
            raise KeyError(f"there is no operator {name!r}; operators: {list(operators)}")
        return operators[name]

    @property
    def operators(self) -> Sequence[OperatorMetrics]:
        """The counts of every operator over all its subtasks, in the order of the pipeline."""
        return together(self.metrics)

    @property
    def rows_pruned(self) -> Mapping[str, int]:
        """The rows among ``rows_in`` that were not decoded, by source: row-group statistics show that no row passes."""
        pruned = {o.operator: o.rows_pruned for o in self.operators}
        return {name: pruned[name] for name in self.rows_in}

    @property
    def late(self) -> int:
        """The number of rows too late for a window, over all operators; after a restore, since then.

        ``operator(name).late`` counts those of one operator.
        """
        return sum(o.late for o in self.operators)

    @property
    def partly_late(self) -> int:
        """The number of rows too late for some of their windows, which lack them; after a restore, since then."""
        return sum(o.partly_late for o in self.operators)

    @property
    def split_sessions(self) -> int:
        """The number of sessions that came out before one of their rows, which is then in a session of its own.

        After a restore it counts since then. So final sessions of a restored job equal the sessions of a batch job only
        if it is 0 for each of its runs, including the runs that failed.
        """
        return sum(o.split_sessions for o in self.operators)

    @property
    def skipped(self) -> int:
        """The number of rows that functions, parsers and sources rejected, and that were dropped or set aside."""
        return sum(o.skipped for o in self.operators)

    @property
    def samples(self) -> Sequence[RowError]:
        """Some of the skipped rows, with their errors: the first few of each subtask."""
        return [sample for parts in _by_operator(self.metrics).values() for o in parts for sample in o.samples]

    @property
    def blocked(self) -> Mapping[str, int]:
        """Microseconds that each channel was blocked by a barrier; channels that never were are absent."""
        return {c.name: c.blocked for task in self.metrics for c in task.channels if c.blocked}

    @property
    def persistence(self) -> Persistence:
        """Statistics of the background writer for the completed checkpoints."""
        return Persistence.of(self.checkpoints, self.totals)

    @property
    def totals(self) -> CheckpointTotals:
        """Counts, sums and worst values of all checkpoints of this run, listed or not."""
        return self.earlier.with_checkpoints(self.checkpoints).with_failures(len(self.failures))

    def timeline(self, checkpoint: int | str | None = None) -> Timeline:
        """Return a picture of what barriers did, with sentences that explain it; ``Events.timeline`` has the details.

        Args:
            checkpoint: its id; None: the slowest one in which every input still had a barrier; ``"all"``: the whole
                run.
        """
        return self.events.timeline(checkpoint)

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as JSON values: counts, checkpoints, times in microseconds. Tables are omitted.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline("copy") as p:
        ...     p.source(op.from_arrow(pa.table({"x": [1, 2]})), name="in").sink(op.collect(), name="out")
        >>> values = p.run().to_dict()
        >>> values["pipeline"], values["state"], values["rows_in"], values["skipped"]
        ('copy', 'finished', {'in': 2}, 0)
        """
        return summary.as_dict(self)

    def to_json(self) -> str:
        """Return ``to_dict()`` as JSON text.

        >>> import pyarrow as pa, dataflow as flow, operators as op, json
        >>> with flow.Pipeline() as p:
        ...     p.source(op.from_arrow(pa.table({"x": [1, 2]})), name="in").sink(op.collect(), name="out")
        >>> json.loads(p.run().to_json())["rows_in"]
        {'in': 2}
        """
        return json.dumps(self.to_dict())

    def __str__(self) -> str:
        return summary.as_text(self)

    def __rich__(self) -> Group:
        return summary.renderable(self)

    def _repr_html_(self) -> str:
        return summary.as_html(self)

    __repr__ = __str__


class RunningJob(Protocol):
    """A job that was started. As a context manager it cancels the job if the block ends before the job."""

    @property
    def id(self) -> str:
        """The id of the job: 32 hex digits, the same in all runs of a checkpoint directory."""
        ...

    def wait(self, timeout: Duration | None = None) -> RunResult:
        """Wait until the job has ended, and return its result.

        Args:
            timeout: the longest time to wait; None: no limit.

        Raises: the error that made the job fail; JobTimeout after ``timeout``.
        """
        ...

    def cancel(self) -> None:
        """Stop now; nothing more is committed."""
        ...

    def on_checkpoint(self, predicate: Predicate) -> Answers:
        """Evaluate ``predicate`` at every checkpoint. Raises: UnsupportedOnRunner if not supported."""
        ...

    def stop_when(self, predicate: Predicate) -> Answers:
        """Stop with a last checkpoint if ``predicate`` holds. Raises: UnsupportedOnRunner if not supported."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None: ...


class Runner(Protocol):
    """An engine that runs pipelines."""

    def start(
        self,
        pipeline: NamedGraph,
        *,
        parallelism: int = 1,
        checkpoint: Checkpointing | None = None,
        restore: object = "auto",
        **options: Any,
    ) -> RunningJob:
        """Start ``pipeline`` and return the running job."""
        ...


def warn_of_unnamed_state(pipeline: str, graph: Graph, checkpoint: Checkpointing | None) -> None:
    """Warn, once per run, of operators whose state is stored under an automatic name.

    Checkpoints in memory are exempt: they end with the process, so no later version of the pipeline restores them.
    """
    if checkpoint is None or isinstance(checkpoint.location, MemoryStore):
        return
    unnamed = [node.name for node in graph if node.stateful and not node.named]
    if unnamed:
        warnings.warn(
            f"pipeline {pipeline!r}: {unnamed} keep state in checkpoints and have only automatic names, which change "
            "when an operator of the same kind is inserted before them; give each a name=",
            UnnamedStateWarning,
            stacklevel=user_frame(),
        )


def combines(checkpoint: Checkpointing | None) -> bool:
    """Return whether rows may be folded before a shuffle: not if a restore must report them unchanged."""
    return checkpoint is None or checkpoint.mode is not Mode.UNALIGNED


def result_of(job: Job, *, checkpointed: bool, attempts: Attempts) -> RunResult:
    """Return the result of a run whose last attempt was ``job``. Raises: the job's error, if it failed."""
    if job.error is not None:
        raise job.error
    metrics = metrics_of(job)
    operators = together(metrics)
    rows = {o.operator: o.rows_in for o in operators}
    graph = job.plan.graph
    return RunResult(
        pipeline=job.identity.pipeline,
        state=job.state,
        mode=job.identity.mode if checkpointed else None,
        guarantee=job.identity.guarantee,
        rows_in={node.name: rows[node.name] for node in graph if isinstance(node.spec, Read)},
        rows_out={node.name: rows[node.name] for node in graph if isinstance(node.spec, Write)},
        tables=_tables(job),
        checkpoints=tuple(job.history.checkpoints),
        failures=tuple(job.history.failures),
        earlier=job.history.earlier,
        restore_report=job.restore_report,
        metrics=metrics,
        duration=(job.clock.now() if job.ended_at is None else job.ended_at) - job.started_at,
        warnings=tuple(warnings_of(job, operators)),
        outputs=outputs_of(graph),
        read_hints=read_hints_of(graph),
        changes=changes_of(graph),
        tuning=tuning_of(job),
        restarts=attempts.restarts,
        attempts=attempts.listed,
        job_id=job.identity.job,
        events=events_of(job.recorder.log),
        savepoint=_savepoint_of(job),
    )


def _savepoint_of(job: Job) -> Checkpoint | None:
    """Return the savepoint at which the job ended; None: there is none, or it is not there any more."""
    if job.ended_with is None:
        return None
    try:
        return Checkpoint(job.ended_with.path)
    except CheckpointError:
        return None


def outputs_of(graph: Graph) -> Mapping[str, str]:
    """Return the location of each sink's rows, for sinks that have one."""
    writing = {node.name: node.spec.sink.readable for node in graph if isinstance(node.spec, Write)}
    return {name: where for name, where in writing.items() if where is not None}


def read_hints_of(graph: Graph) -> Mapping[str, Sequence[str]]:
    """Return how other programs read each sink's rows, for sinks that say so. A hint is not worth an error."""
    hints: dict[str, Sequence[str]] = {}
    for node in graph:
        if isinstance(node.spec, Write):
            with suppress(StoreError):
                hints[node.name] = node.spec.sink.read_hint
    return {name: lines for name, lines in hints.items() if lines}


def together(metrics: Iterable[TaskMetrics]) -> list[OperatorMetrics]:
    """Return the counts of every operator over all its subtasks, in the order of the pipeline."""
    return [sum(parts, OperatorMetrics(name)) for name, parts in _by_operator(metrics).items()]


def _by_operator(metrics: Iterable[TaskMetrics]) -> Mapping[str, Sequence[OperatorMetrics]]:
    """Return the metrics of every operator in each of its subtasks, by name, in the order of the pipeline."""
    subtasks: dict[str, list[OperatorMetrics]] = {}
    for task in metrics:
        for o in task.operators:
            subtasks.setdefault(o.operator, []).append(o)
    return subtasks


def changes_of(graph: Graph) -> Mapping[str, Changes]:
    """Return the meaning of each sink's rows, by name."""
    return {node.name: node.changes for node in graph if isinstance(node.spec, Write)}


def metrics_of(job: Job) -> list[TaskMetrics]:
    """Return the metrics of every subtask. Numbers of a running job are read without locks."""
    return [_metrics(name, task, job.clock.now()) for name, task in job.tasks.items()]


def _metrics(name: str, task: Task, now: int) -> TaskMetrics:
    operators = [node.metrics for node in task.chain.nodes]
    return TaskMetrics(name, replace(task.meter), operators, task.task_input.channels(now))


def _tables(job: Job) -> Mapping[str, pa.Table]:
    import pyarrow as pa

    parts: dict[str, list[pa.Table]] = {}
    for task in job.tasks.values():
        for node in task.chain.nodes:
            if isinstance(node.operator, Collector):
                parts.setdefault(node.name, []).append(node.operator.result())
    collected = {name: pa.concat_tables(tables) for name, tables in parts.items()}
    return presented(job.plan.graph, collected, repeated=job.identity.repeated)


def presented(graph: Graph, tables: Mapping[str, pa.Table], *, repeated: bool = False) -> Mapping[str, pa.Table]:
    """Return the tables of collecting sinks as these present them, by name; ``repeated``: rows may have come twice."""
    sinks = {node.name: (node.spec.sink, node.changes) for node in graph if isinstance(node.spec, Write)}
    presented = dict(tables)
    for name in sinks.keys() & tables.keys():
        sink, changes = sinks[name]
        present = sink.present_repeated if repeated else sink.present
        presented[name] = present(tables[name], changes)
    return presented
