"""What every runner gives back: a running job to talk to, and its result."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from dataflow.checkpointing import Checkpointing, Mode
from dataflow.clock import Duration, duration_text
from dataflow.errors import UnnamedStateWarning, user_frame
from dataflow.graph import Graph, Read, Write
from dataflow.operator import Collector, Guarantee
from dataflow.row_errors import RowError
from dataflow.runners.persistence import Persistence
from dataflow.runtime.attempts import CheckpointRecord
from dataflow.runtime.inlet import ChannelMetrics
from dataflow.runtime.job import Job, JobState
from dataflow.runtime.progress import Meter
from dataflow.runtime.restore import RestoreReport
from dataflow.runtime.task import Task
from dataflow.store.memory import MemoryStore

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.pipeline import Pipeline

__all__ = [
    "ChannelMetrics",
    "OperatorMetrics",
    "RunResult",
    "Runner",
    "RunningJob",
    "TaskMetrics",
    "combines",
    "metrics_of",
    "result_of",
    "warn_of_unnamed_state",
]


@dataclass(frozen=True, slots=True)
class OperatorMetrics:
    """One operator in one subtask, or in all: rows it took and emitted (main output), rows that were too late for it,
    rows it could not take (``samples`` shows some), and the microseconds it worked.
    """

    operator: str
    rows_in: int
    rows_out: int
    late: int = 0
    skipped: int = 0
    busy: int = 0
    samples: Sequence[RowError] = ()


@dataclass(frozen=True, slots=True)
class TaskMetrics:
    """One subtask: where its time went, its operators, its channels."""

    task: str
    meter: Meter
    operators: Sequence[OperatorMetrics]
    channels: Sequence[ChannelMetrics]


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run did. ``print`` it for a summary.

    Attributes:
        state: how it ended: finished, or stopped early (`Stream.head`, ``job.stop()``).
        guarantee: end to end, the weakest of sources, checkpoint mode and sinks.
        rows_in, rows_out: rows read by this run per source, and written per sink; after a restore only what came since.
        checkpoints: those completed by this run.
        failures: checkpoints that failed, and why.
        restore_report: what was restored and which rows were delivered twice; None for a fresh start.
        metrics: per subtask; times in microseconds.
        duration: microseconds.
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

    def table(self, name: str | None = None) -> pa.Table:
        """What ``op.collect()`` gathered: the sink called ``name``, or the only one.

        Raises: KeyError naming the collecting sinks there are.
        """
        if name is None and len(self.tables) == 1:
            return next(iter(self.tables.values()))
        if name is None or name not in self.tables:
            raise KeyError(f"there is no collecting sink {name!r}; there are {list(self.tables)}")
        return self.tables[name]

    def operator(self, name: str) -> OperatorMetrics:
        """The rows in and out of an operator, over all its subtasks. Raises: KeyError naming those there are."""
        found = [o for task in self.metrics for o in task.operators if o.operator == name]
        if not found:
            names = list(dict.fromkeys(o.operator for task in self.metrics for o in task.operators))
            raise KeyError(f"there is no operator {name!r}; there are {names}")
        return OperatorMetrics(
            name,
            sum(o.rows_in for o in found),
            sum(o.rows_out for o in found),
            sum(o.late for o in found),
            sum(o.skipped for o in found),
            sum(o.busy for o in found),
            tuple(sample for o in found for sample in o.samples),
        )

    @property
    def blocked(self) -> Mapping[str, int]:
        """Microseconds each channel was blocked by a barrier, where it was."""
        return {c.name: c.blocked for task in self.metrics for c in task.channels if c.blocked}

    @property
    def persistence(self) -> Persistence:
        """What the background writer did for the completed checkpoints."""
        return Persistence.of(self.checkpoints)

    def __str__(self) -> str:
        mode = "no checkpoints" if self.mode is None else f"mode {self.mode}"
        lines = [
            f"{self.pipeline}: {self.state.value} in {duration_text(self.duration)}; {mode}; "
            f"end to end {self.guarantee.value}"
        ]
        lines += [f"  in   {name}: {rows:,} rows" for name, rows in self.rows_in.items()]
        lines += [f"  out  {name}: {rows:,} rows" for name, rows in self.rows_out.items()]
        if self.mode is not None:
            done = len(self.checkpoints)
            worst = max((c.duration for c in self.checkpoints), default=0)
            lines.append(
                f"  checkpoints: {done} completed, {len(self.failures)} failed, slowest {duration_text(worst)}"
            )
            lines += [f"  writer: {self.persistence}"] if done else []
        lines += [f"  failed {failure}" for failure in self.failures[-3:]]
        if self.restore_report is not None:
            lines += ["  " + line for line in str(self.restore_report).splitlines()]
        for task in self.metrics:
            m = task.meter
            lines.append(
                f"  time {task.task}: busy {duration_text(m.busy)}, waiting {duration_text(m.waiting)}, blocked "
                f"{duration_text(m.blocked)}, back-pressured {duration_text(m.back_pressured)}"
            )
        return "\n".join(lines)

    __repr__ = __str__


class RunningJob(Protocol):
    """A job that was started. As a context manager it cancels the job if the block is left before it is over."""

    def wait(self, timeout: Duration | None = None) -> RunResult:
        """Until the job is over, or JobTimeout after ``timeout``. Raises what made it fail."""
        ...

    def cancel(self) -> None:
        """Stop now; nothing more is committed."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None: ...


class Runner(Protocol):
    """Runs pipelines."""

    def start(
        self,
        pipeline: Pipeline,
        *,
        parallelism: int = 1,
        checkpoint: Checkpointing | None = None,
        restore: object = "auto",
        **options: Any,
    ) -> RunningJob:
        """Begin to run ``pipeline``."""
        ...


def warn_of_unnamed_state(pipeline: str, graph: Graph, checkpoint: Checkpointing | None) -> None:
    """Warn, once a run, of operators whose state will be looked for under a name that nobody chose.

    Checkpoints in memory die with the process, so no later version of the pipeline can miss its state in them.
    """
    if checkpoint is None or isinstance(checkpoint.location, MemoryStore):
        return
    unnamed = [node.name for node in graph if node.stateful and not node.named]
    if unnamed:
        warnings.warn(
            f"pipeline {pipeline!r}: {unnamed} keep state in checkpoints and have only automatic names, which change "
            "when an operator of the same kind is put in before them; give each a name=",
            UnnamedStateWarning,
            stacklevel=user_frame(),
        )


def combines(checkpoint: Checkpointing | None) -> bool:
    """Whether rows may be folded before a shuffle: not where a restore has to report them as they were."""
    return checkpoint is None or checkpoint.mode is not Mode.UNALIGNED


def result_of(job: Job, *, checkpointed: bool) -> RunResult:
    """The result of a job that is over. Raises the job's error, where it has one."""
    if job.error is not None:
        raise job.error
    metrics = metrics_of(job)
    rows = {o.operator: 0 for task in metrics for o in task.operators}
    for task in metrics:
        for o in task.operators:
            rows[o.operator] += o.rows_in
    graph = job.plan.graph
    return RunResult(
        pipeline=job.pipeline,
        state=job.state,
        mode=job.mode if checkpointed else None,
        guarantee=job.guarantee,
        rows_in={node.name: rows[node.name] for node in graph if isinstance(node.spec, Read)},
        rows_out={node.name: rows[node.name] for node in graph if isinstance(node.spec, Write)},
        tables=_tables(job),
        checkpoints=tuple(job.checkpoints),
        failures=tuple(job.failures),
        restore_report=job.restore_report,
        metrics=metrics,
        duration=job.clock.now() - job.started_at,
    )


def metrics_of(job: Job) -> list[TaskMetrics]:
    """Every subtask of a job, running or over. Numbers of a running one are read without locks."""
    return [_metrics(name, task, job.clock.now()) for name, task in job.tasks.items()]


def _metrics(name: str, task: Task, now: int) -> TaskMetrics:
    operators = [
        OperatorMetrics(
            n.name, n.rows_in, n.rows_out, n.tally.late, n.tally.skipped, n.busy_for, tuple(n.tally.samples)
        )
        for n in task.chain.nodes
    ]
    return TaskMetrics(name, replace(task.meter), operators, task.inlet.channels(now))


def _tables(job: Job) -> Mapping[str, pa.Table]:
    import pyarrow as pa

    found: dict[str, list[pa.Table]] = {}
    for task in job.tasks.values():
        for node in task.chain.nodes:
            if isinstance(node.operator, Collector):
                found.setdefault(node.name, []).append(node.operator.result())
    return {name: pa.concat_tables(tables) for name, tables in found.items()}
