"""The events of a job on Spark, all recorded by the driver: a micro-batch is a checkpoint.

What tasks did comes with their rows, in reports, so it is known at the end of a micro-batch only. A restart after a
transient failure begins another attempt.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from dataflow.contracts.checkpointing import Checkpointing, Mode
from dataflow.contracts.sink import Guarantee
from dataflow.errors import RecordingEndedWarning
from dataflow.events.event_log import EventLog
from dataflow.events.kinds import TOTALS, Kind
from dataflow.events.plan_shape import task_id
from dataflow.events.recorded import RecordedJob
from dataflow.events.recorder import EventTarget, EventWriter, OpenFile, Recorder
from dataflow.planning.physical_plan import vertex_of
from dataflow.protocol.events import BarrierKind
from dataflow.runners.spark.event_plan import event_plan, without_busy_time
from dataflow.runners.spark.placement import SparkPlan
from dataflow.runners.spark.task_report import TaskTime, TaskWork
from dataflow.runners.spark.user_errors import Place
from dataflow.runtime.task.job_clock import JobClock
from dataflow.runtime.task.notices import Notices
from dataflow.runtime.task.progress import JobState

__all__ = ["DriverEvents", "Recording"]


@dataclass(frozen=True)
class Recording:
    """What the events of a job are of, as far as it is known before the job has an id.

    Attributes:
        pipeline: the name of the pipeline.
        mode: the mode of its checkpoints; None: it has none.
        guarantee: its guarantee from end to end.
        open_file: opens the file; None: there is none.
    """

    pipeline: str
    mode: Mode | None
    guarantee: Guarantee
    open_file: OpenFile | None = None

    @staticmethod
    def of(
        pipeline: str,
        checkpoint: Checkpointing | None,
        spark_plan: SparkPlan,
        open_file: OpenFile | None = None,
    ) -> Recording:
        """Return how a job that runs ``spark_plan`` is recorded; without ``checkpoint`` it has no mode."""
        mode = None if checkpoint is None else Mode.ALIGNED
        return Recording(pipeline, mode, spark_plan.guarantee(checkpoint), open_file)


class _Totals(NamedTuple):
    """What a task did since the attempt began; ``busy`` is None if it is not measured."""

    rows_in: int = 0
    rows_out: int = 0
    busy: int | None = 0

    def plus(self, work: TaskWork) -> _Totals:
        busy = None if self.busy is None else self.busy + work.busy
        return _Totals(self.rows_in + work.rows_in, self.rows_out + work.rows_out, busy)

    @property
    def entries(self) -> tuple[int | None, ...]:
        return (*self, *_NOT_MEASURED)


_NOT_MEASURED: Final = (None,) * (len(TOTALS) - len(_Totals._fields))


class DriverEvents:
    """Records the events of one job, from ``begin`` to ``end``. Any thread may call it."""

    def __init__(self, clock: JobClock) -> None:
        self.log = EventLog()
        self._clock = clock
        # guards all below: a job is ended by another thread than the one that runs its micro-batches
        self._lock = threading.RLock()
        self._recorded: RecordedJob | None = None
        self._file: EventTarget | None = None
        self._recorder = Recorder(self.log)  # before begin() and after end(): of no attempt, so it loses all
        self._without_busy_time: frozenset[str] = frozenset()
        self._operators: frozenset[str] = frozenset()
        self._writers: dict[str, EventWriter] = {}
        self._totals: dict[str, _Totals] = {}  # by task that has worked
        self._times: dict[tuple[str, str | None], int] = {}  # by task and operator, the last watermark recorded
        self._trigger: tuple[int, int] | None = None  # of the checkpoint under way: its number and time

    @property
    def job_id(self) -> str:
        """The id of the job, which ``open`` was given."""
        with self._lock:
            assert self._recorded is not None, "job_id before open()"
            return self._recorded.job

    def open(self, recording: Recording, job: str, spark_plan: SparkPlan, notices: Notices) -> None:
        """Open the file, if there is to be one; ``notices`` get a warning if it ends early.

        Raises: EventsError if the file cannot be written, or is of another job.
        """
        mode = "" if recording.mode is None else recording.mode.value
        shape = event_plan(spark_plan)
        recorded = RecordedJob(recording.pipeline, job, mode, recording.guarantee.value, shape)
        with self._lock:
            self._recorded = recorded
            self._without_busy_time = frozenset(without_busy_time(spark_plan))
            self._operators = frozenset([operator.name for operator in shape.operators])
            self._operators |= {name for vertex in shape.vertices for name in vertex.operators}
            if recording.open_file is not None:
                self._file = recording.open_file(recorded, partial(notices.add, RecordingEndedWarning))

    def begin(self, done: int) -> None:
        """Begin an attempt after ``done`` micro-batches."""
        with self._lock:
            recorded, file = self._recorded, self._file
            assert recorded is not None, "begin() before open()"
            self._recorder.drain()
            self._recorder = Recorder(self.log, open_file=None if file is None else lambda *_: file)
            self._writers = {task: self._recorder.writer(task) for task in recorded.plan.tasks}
            self._recorder.open(recorded)
            now = self._clock.now()
            self._recorder.begin(now)
            self._totals, self._times, self._trigger = {}, {}, None
            restored = done or None
            record = self._recorder.job.record
            wall = round(self._clock.wall() * 1_000_000)
            record(Kind.STARTED, now, restored, value=wall, detail=recorded.mode)
            if restored is not None:
                record(Kind.RESTORED, now, restored, rows=0)  # none is in flight between two micro-batches
            record(Kind.STATE, now, detail=JobState.RUNNING.value)
            self._recorder.drain()

    def triggered(self, checkpoint: int, kind: BarrierKind, at: int) -> None:
        """Record that the micro-batch that is ``checkpoint`` began."""
        with self._lock:
            self._trigger = checkpoint, at
            self._recorder.job.record(Kind.TRIGGERED, at, checkpoint, detail=kind.value)
            self._recorder.drain()

    def durable(self, checkpoint: int, at: int, size: int | None = None) -> None:
        """Record that the checkpoint under way is durable; ``size``: bytes written, None: that is not known."""
        with self._lock:
            assert self._trigger is not None, f"checkpoint {checkpoint} is durable and was never triggered"
            duration = at - self._trigger[1]
            self._recorder.job.record(Kind.DURABLE, at, checkpoint, duration=duration, bytes=size, rows=0)
            self._trigger = None
            self._recorder.drain()

    def committed(self, checkpoint: int, at: int) -> None:
        """Record that all sinks have committed everything up to ``checkpoint``."""
        with self._lock:
            self._recorder.job.record(Kind.COMMITTED, at, checkpoint)
            self._recorder.drain()

    def commit_failed(self, checkpoint: int, sink: str, error: BaseException) -> None:
        """Record that a sink could not commit."""
        with self._lock:
            now, why = self._clock.now(), type(error).__name__  # its text may have values of rows
            self._recorder.job.record(Kind.COMMIT_FAILED, now, checkpoint, operator=sink, detail=why)

    def failed(self, error: str, place: Place | None, why: str | None) -> None:
        """Record an error, and that it made the checkpoint under way fail, if there is one.

        Args:
            error: the name of its class.
            place: where it was raised; None: that is not known.
            why: why the work failed; None: the error says it.
        """
        with self._lock:
            now, job = self._clock.now(), self._recorder.job
            task = None if place is None else self._task(place.task)
            operator = None if place is None or place.operator not in self._operators else place.operator
            writer = job if task is None else self._writers[task]
            writer.record(Kind.ERROR, now, operator=operator, detail=error)
            if self._trigger is not None:
                (checkpoint, at), self._trigger = self._trigger, None
                where = "the driver" if task is None else task
                why = why or f"{where if operator is None else f'operator {operator!r} of {where}'} raised {error}"
                job.record(Kind.FAILED, now, checkpoint, duration=now - at, detail=why)
            self._recorder.drain()

    def end(self, state: JobState) -> None:
        """Record that the job is over. Nothing is recorded after it, such as by a function that has not returned."""
        with self._lock:
            self._recorder.job.record(Kind.STATE, self._clock.now(), detail=state.value)
            self._recorder.drain()
            self._recorder, self._writers, self._totals = Recorder(self.log), {}, {}

    def drain(self) -> None:
        """Move all events recorded so far to the log, and to the file."""
        with self._lock:
            self._recorder.drain()

    def close(self) -> None:
        """Close the file. Later calls do nothing."""
        with self._lock:
            if self._file is not None:
                self._file.close()

    def worked(self, works: Iterable[tuple[str, TaskWork]], now: int, since: int | None = None) -> None:
        """Record samples of the tasks that have worked.

        Args:
            works: what subtasks did, each with its vertex; of a task that stands for several, the sum counts.
            now: the time of the samples.
            since: when the micro-batch began. Another sample then says that a task did nothing before it. None: there
                is one micro-batch.
        """
        with self._lock:
            before: dict[str, _Totals] = {}
            times: list[tuple[str, TaskTime]] = []
            for vertex, work in works:
                if (task := self._task(task_id(vertex, work.subtask))) is None:
                    continue
                measured = vertex not in self._without_busy_time
                totals = self._totals.get(task, _Totals(busy=0 if measured else None))
                before.setdefault(task, totals)
                self._totals[task] = totals.plus(work)
                times += [(task, time) for time in work.times if measured]
            for task, totals in before.items():
                sample = self._writers[task].sample
                if since is not None:
                    sample(Kind.WORK, since, totals=totals.entries)
                sample(Kind.WORK, now, totals=self._totals[task].entries)
            for task, time in times:
                self._sample_time(task, time, now)

    def rested(self, now: int) -> None:
        """Record samples of all tasks, which have done nothing since their last ones."""
        with self._lock:
            for task, totals in self._totals.items():
                self._writers[task].sample(Kind.WORK, now, totals=totals.entries)

    def _sample_time(self, task: str, reached: TaskTime, now: int) -> None:
        """Record a watermark if it moved."""
        operator, time, split = reached
        if self._times.get((task, operator)) != time:
            self._times[task, operator] = time
            self._writers[task].sample(Kind.WATERMARK, now, value=time, operator=operator, detail=split)

    def _task(self, name: str) -> str | None:
        """Return the task of the plan that a subtask counts for; None: there is none."""
        first = task_id(vertex_of(name), 0)
        return name if name in self._writers else first if first in self._writers else None
