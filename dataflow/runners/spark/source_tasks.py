"""Source tasks: the subtasks of all sources, as the partitions of one streaming source of Spark's.

The offset that Spark stores is the number of the next micro-batch, for all source tasks together. Before each
micro-batch a source task stores its own state (``JobDirectory``), as in a checkpoint: positions in files, counts of
generators, the clocks of its splits. So every source that the local runner can restore can be restored on Spark. The
first attempt to finish fixes what a source task reads in a micro-batch; later attempts read the same batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from dataflow.clock import SystemClock
from dataflow.contracts.source import Source, SourceContext, Split
from dataflow.errors import CheckpointDamaged
from dataflow.events.plan_shape import task_id
from dataflow.planning.physical_plan import Vertex
from dataflow.planning.specs import Read
from dataflow.runners.spark.envelopes import DDL, batches_of
from dataflow.runners.spark.job_directory import UNSEEN, JobDirectory
from dataflow.runners.spark.metrics import read_report, report_envelope
from dataflow.runners.spark.placement import SparkPlan
from dataflow.runners.spark.replayable_reads import ReadAttempt
from dataflow.runners.spark.routing import PartitionOutput
from dataflow.runners.spark.session import pyspark
from dataflow.runners.spark.split_positions import SplitPositions, listed_splits
from dataflow.runners.spark.task_host import MicroBatchClock, OutputRecorder, TaskHost
from dataflow.runners.spark.user_errors import serialized_errors
from dataflow.runners.spark.worker_notes import working_on
from dataflow.runtime.task.contract_checks import check_splits
from dataflow.runtime.task.notices import Notices
from dataflow.runtime.task.parts import TaskState
from dataflow.runtime.task.source_peers import Peers
from dataflow.runtime.task.task_input import SplitState

__all__ = [
    "Assignment",
    "check_input",
    "data_source_class",
    "initial_states",
    "positions_of",
    "read_partition",
    "stored_tasks",
]


_SPLITS: Final = ("splits", "turn")
"""What ``SplitPositions`` stores instead."""


@dataclass(frozen=True)
class Assignment:
    """The job as workers need it.

    Attributes:
        spark_plan: its plan.
        directory: its directory.
        run_id: the run.
        rows: how many rows all source tasks together should read in a micro-batch.
        state_memory: the bytes of state that a worker may keep in memory between micro-batches.
    """

    spark_plan: SparkPlan
    directory: JobDirectory
    run_id: str
    rows: int
    state_memory: int = 0

    def output(self, level: int) -> PartitionOutput:
        """Return what takes what the tasks of a partition send, after ``level`` shuffles."""
        return PartitionOutput(self.spark_plan, self.directory, self.run_id, level)

    @property
    def source_task_ids(self) -> list[str]:
        """The ids of the source tasks, in the order of their numbers."""
        return [task_id(vertex.name, subtask) for vertex, subtask in self.spark_plan.source_tasks]


def initial_states(spark_plan: SparkPlan) -> list[TaskState]:
    """Return the state of every source task before its first batch. Splits are assigned as in a local run."""
    states = []
    splits: dict[str, Sequence[Split]] = {}
    for vertex, subtask in spark_plan.source_tasks:
        if vertex.name not in splits:
            splits[vertex.name] = check_splits(_source(vertex), vertex.name)
        own_splits = [SplitState(split).to_json() for split in splits[vertex.name][subtask :: vertex.parallelism]]
        states.append(TaskState(task_id(vertex.name, subtask), inlet={"splits": own_splits, "quiet": {}}))
    return states


def _source(vertex: Vertex) -> Source:
    assert isinstance(vertex.head.spec, Read), f"{vertex.name} reads no source"
    return vertex.head.spec.source


def read_partition(directory: bytes, digest: str, task: str, number: int, round_: int) -> Iterator[pa.RecordBatch]:
    """Run source task ``number`` through micro-batch ``round_``; yield the envelopes it sends.

    Args:
        directory: the job's directory, pickled.
        digest: what the assignment is stored under there.
        task: the id of the source task.
    """
    with serialized_errors(task):
        assignment = _assignment(directory, digest)
    yield from read(assignment, number, round_)


def read(assignment: Assignment, number: int, round_: int) -> Iterator[pa.RecordBatch]:
    """Run a source task through a micro-batch: see `read_partition`."""
    spark_plan, directory = assignment.spark_plan, assignment.directory
    vertex, subtask = spark_plan.source_tasks[number]
    task = task_id(vertex.name, subtask)
    recorder = OutputRecorder(spark_plan, subtask, round_, distributed=True)
    with serialized_errors(task):
        state, after = directory.read_task(task, round_), directory.read_task(task, round_ + 1)
        if state is None:
            raise CheckpointDamaged(f"{directory.path} has no state of {task} before micro-batch {round_}: {UNSEEN}")
        waits = bool(state.inlet.get("clocks")) and _waits(assignment, vertex, subtask, round_)
        positions = positions_of(assignment, state)
        then = None if after is None else positions_of(assignment, after)
        repeated = {} if then is None else {split.split.id: split.offset for split in then.read_of(positions.live)}
        notices = Notices()
        context = SourceContext(
            vertex.head.name,
            subtask,
            vertex.parallelism,
            SystemClock(),
            repeated=repeated,
            notify=notices.add,
        )
        stored: Any = {} if after is None else after.inlet
        clock = MicroBatchClock(directory.time(round_))
        settled = None if then is None else {**stored, "turn": positions.place_of(then.turn)}
        attempt = ReadAttempt(_source(vertex), context, positions.states(), settled)
        task_input = attempt.task_input
        task_input.restore_position({**state.inlet, "turn": positions.place_of(positions.turn)})
    with (
        working_on(directory, vertex, subtask),
        TaskHost(spark_plan, vertex, subtask, state, assignment.run_id, recorder, task_input, notices, clock) as host,
    ):
        batches = 0
        for batches in attempt.steps(host, 0 if waits else max(1, assignment.rows // len(spark_plan.source_tasks))):
            recorder.step((batches - 1) * len(spark_plan.source_tasks) + number)
        attempt.call_timers(host)
        if task_input.ended:
            host.finish()
        recorder.step(batches * len(spark_plan.source_tasks) + number)
        snapshot = host.snapshot(round_ + 1)
        host.close()  # before the report, which includes errors of closing
        report = host.report()
        if after is not None:  # Spark gives up a micro-batch if a second attempt sends other bytes than the first
            report = replace(read_report(stored["report"].encode()), handles=report.handles)
        yield from batches_of(
            assignment.output(0).all_of([*recorder.envelopes(), report_envelope(report, round_)], number)
        )
        with serialized_errors(task):
            position: Any = task_input.position(SystemClock().now())
            read_splits = positions.after(task_input.splits, position["turn"])
            kept = {name: value for name, value in {**snapshot.inlet, **position}.items() if name not in _SPLITS}
            read_state = {
                **kept,
                **read_splits.stored(),
                "takes": attempt.polls,
                "report": report_envelope(replace(report, handles={}), round_).payload.decode(),
            }
            directory.check_owner(assignment.run_id)
            directory.write_task_once(replace(snapshot, inlet=read_state), round_ + 1)


def _waits(assignment: Assignment, vertex: Vertex, subtask: int, round_: int) -> bool:
    """Return whether a source task skips micro-batch ``round_``: it is more than ``max_drift`` ahead of another one.

    Only the states before the micro-batch count, so every attempt decides the same. The source task that is furthest
    behind never waits, and reads its full share. So waiting costs no additional micro-batches.
    """
    peers = Peers(vertex.parallelism)
    tasks = [task_id(vertex.name, other) for other in range(vertex.parallelism)]
    clocks = assignment.directory.clocks(tasks, round_)
    for other, task in enumerate(tasks):
        for clock, (at, drift) in (clocks.get(task) or {}).items():
            peers.reached(clock, other, at, drift)
    return peers.ahead(subtask)


def positions_of(assignment: Assignment, state: TaskState) -> SplitPositions:
    """Return how far the splits of a source task were read in ``state``."""
    return SplitPositions.of(listed_splits(assignment.directory, state.task, assignment.run_id), state)


def stored_tasks(assignment: Assignment, done: int) -> list[str]:
    """Return the tasks whose states the job's directory must have after ``done`` micro-batches."""
    in_driver = [task_id(name, 0) for name in assignment.spark_plan.driver_sinks if done]
    return assignment.source_task_ids + in_driver


def check_input(assignment: Assignment, round_: int) -> None:
    """Raise InputChanged if a split has changed since a source task stored it before micro-batch ``round_``."""
    for vertex, subtask in assignment.spark_plan.source_tasks:
        state = assignment.directory.read_task(task_id(vertex.name, subtask), round_)
        for split in positions_of(assignment, state).listed if state is not None else ():
            _source(vertex).check(split)


def data_source_class(assignment: Assignment, name: str) -> type:
    """Return a class for ``session.dataSource.register``: the source tasks as a streaming source called ``name``.

    Writes the assignment to the job's directory, because Spark sends the class with each source task, and sources may
    hold tables, or the footers of many files.

    Spark starts a process for each step of planning a query, and one for every micro-batch. Importing our modules would
    cost more than the rest of such a process. So the pickled class imports them inside of methods only.
    """
    sources: Any = pyspark("pyspark.sql.datasource")
    streaming: Any = pyspark("pyspark.sql.streaming.datasource")
    pack: Any = pyspark("pyspark.cloudpickle").dumps
    digest = assignment.directory.write_for_workers(pack(assignment))
    directory: bytes = pack(assignment.directory)
    tasks, columns = assignment.source_task_ids, DDL

    class SourcePartition(sources.InputPartition):  # type: ignore[misc]
        def __init__(self, number: int, round_: int) -> None:
            super().__init__((number, round_))

    class SourceTaskReader(sources.DataSourceStreamReader, streaming.SupportsTriggerAvailableNow):  # type: ignore[misc]
        def initialOffset(self):  # type: ignore[no-untyped-def]  # noqa: N802
            return {"round": 0}

        def prepareForTriggerAvailableNow(self):  # type: ignore[no-untyped-def]  # noqa: N802
            """Do nothing, because the end of the input is only known when it has been read."""

        def latestOffset(self, start, limit=None):  # type: ignore[no-untyped-def]  # noqa: N802
            from pickle import loads

            return {"round": start["round"] + loads(directory).begin(tasks, start["round"])}

        def partitions(self, start, end):  # type: ignore[no-untyped-def]
            return [
                SourcePartition(number, round_)
                for round_ in range(start["round"], end["round"])
                for number in range(len(tasks))
            ]

        def read(self, partition):  # type: ignore[no-untyped-def]
            from dataflow.runners.spark.source_tasks import read_partition

            return read_partition(directory, digest, tasks[partition.value[0]], *partition.value)

        def commit(self, end):  # type: ignore[no-untyped-def]
            from pickle import loads

            loads(directory).drop_before(end["round"])

    class SourceTasks(sources.DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls):  # type: ignore[no-untyped-def]
            return name

        def schema(self):  # type: ignore[no-untyped-def]
            return columns

        def streamReader(self, schema):  # type: ignore[no-untyped-def]  # noqa: N802
            return SourceTaskReader()

    return SourceTasks


@lru_cache(maxsize=8)
def _assignment(directory: bytes, digest: str) -> Assignment:
    """Return the assignment that ``data_source_class`` wrote. It is read once in each process and run."""
    pickle: Any = pyspark("pyspark.cloudpickle")
    assignment: Assignment = pickle.loads(pickle.loads(directory).read_for_workers(digest))
    return assignment
