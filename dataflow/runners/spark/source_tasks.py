"""Lanes: the subtasks of sources, as the partitions of one streaming source of Spark's.

The offset Spark keeps is the number of the next micro-batch, for all lanes together. Where a lane stands before each of
them it keeps itself (``Home``): positions in files, counts of generators, the clocks of its splits, as in a checkpoint.
So every source that can be restored here can be restored there. What a lane takes in a micro-batch is settled by the
first attempt that comes to its end; later attempts take the same batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

import pyarrow as pa

from dataflow.clock import SystemClock
from dataflow.contracts.source import Source, SourceContext, Split
from dataflow.errors import CheckpointDamaged
from dataflow.planning.physical_plan import Vertex, task_id
from dataflow.planning.specs import Read
from dataflow.runners.spark.envelopes import DDL, batches_of
from dataflow.runners.spark.job_directory import Home
from dataflow.runners.spark.placement import Hosting, Stages
from dataflow.runners.spark.replayable_reads import Attempt
from dataflow.runners.spark.session import pyspark
from dataflow.runners.spark.task_host import Hosted, Recorder
from dataflow.runners.spark.task_reports import reported
from dataflow.runners.spark.user_errors import carried
from dataflow.runners.spark.worker_notes import at_work
from dataflow.runtime.task.contract_checks import check_splits
from dataflow.runtime.task.notices import Notices
from dataflow.runtime.task.parts import TaskState
from dataflow.runtime.task.source_peers import Peers
from dataflow.runtime.task.task_input import SplitState

__all__ = ["Assignment", "beginnings", "check_input", "kept_tasks", "source_of", "splits_of", "unpacked"]


@dataclass(frozen=True)
class Assignment:
    """What workers have to know: the plan, where the job lives, and how many rows all lanes together should take."""

    stages: Stages
    home: Home
    run_id: str
    rows: int

    @property
    def lanes(self) -> list[str]:
        """The tasks that are lanes, in the order of their numbers."""
        return [task_id(vertex.name, subtask) for vertex, subtask in self.stages.lanes]


def beginnings(stages: Stages) -> list[TaskState]:
    """Every lane before its first batch, the splits dealt out as to tasks of this process."""
    found = []
    splits: dict[str, Sequence[Split]] = {}
    for vertex, subtask in stages.lanes:
        if vertex.name not in splits:
            splits[vertex.name] = check_splits(_source(vertex), vertex.name)
        mine = [SplitState(split).to_json() for split in splits[vertex.name][subtask :: vertex.parallelism]]
        found.append(TaskState(task_id(vertex.name, subtask), inlet={"splits": mine}))
    return found


def _source(vertex: Vertex) -> Source:
    assert isinstance(vertex.head.spec, Read), f"{vertex.name} reads no source"
    return vertex.head.spec.source


def read(assignment: Assignment, number: int, round_: int) -> Iterator[pa.RecordBatch]:
    """Lane ``number`` through micro-batch ``round_``, as envelopes."""
    stages, home = assignment.stages, assignment.home
    vertex, subtask = stages.lanes[number]
    task = task_id(vertex.name, subtask)
    recorder = Recorder(stages, subtask, round_, dealt=True)
    with carried(task):
        state, after = home.task(task, round_), home.task(task, round_ + 1)
        if state is None:
            raise CheckpointDamaged(
                f"nothing in {home.path} says where {task} stands before micro-batch {round_}: does this worker see "
                "the directory of the job? checkpoint= must name one that all workers see"
            )
        waits = bool(state.inlet.get("clocks")) and _waits(assignment, vertex, subtask, round_)
        repeated = {} if after is None else {split.split.id: split.offset for split in splits_of(after)}
        notices = Notices()
        context = SourceContext(
            vertex.head.name,
            subtask,
            vertex.parallelism,
            SystemClock(),
            repeated=repeated,
            notify=notices.add,
        )
        attempt = Attempt(_source(vertex), context, splits_of(state), None if after is None else after.inlet)
        inlet = attempt.inlet
        inlet.restore_position(state.inlet, SystemClock().now())
    with (
        at_work(home, vertex, subtask),
        Hosted(stages, vertex, subtask, state, assignment.run_id, recorder, inlet, notices) as hosted,
    ):
        taken = 0
        for taken in attempt.steps(hosted, 0 if waits else max(1, assignment.rows // len(stages.lanes))):
            recorder.step((taken - 1) * len(stages.lanes) + number)
        rang = attempt.ring(hosted)
        if inlet.ended:
            hosted.finish()
        recorder.step(taken * len(stages.lanes) + number)
        found = hosted.state(round_ + 1)
        hosted.close()  # before the report, which has its errors
        report = hosted.report(inlet.reading)
        if after is not None:  # Spark gives a micro-batch up when a second attempt sends other bytes than the first
            report = replace(report, **cast(Any, after.inlet["counted"]))
        yield from batches_of([*recorder.envelopes(), reported(report, round_)])
        with carried(task):
            turns = inlet.position(SystemClock().now())
            counted: Any = {"operators": report.operators, "busy": report.busy, "notices": report.notices}
            told = {**found.inlet, **turns, "rang": rang, "takes": attempt.takes, "counted": counted}
            home.check(assignment.run_id)
            home.settle(replace(found, inlet=told), round_ + 1)


def _waits(assignment: Assignment, vertex: Vertex, subtask: int, round_: int) -> bool:
    """Whether a lane sits micro-batch ``round_`` out, too far ahead of another one of its source (``max_drift``).

    Where lanes stood before it is all that counts, so every attempt decides the same. The one that is furthest behind
    never waits, and takes its full share: waiting costs no more micro-batches than it needs anyway.
    """
    peers = Peers(vertex.parallelism)
    for other in range(vertex.parallelism):
        lane = assignment.home.task(task_id(vertex.name, other), round_)
        clocks: Any = {} if lane is None else lane.inlet.get("clocks", {})
        for clock, (at, drift) in clocks.items():
            peers.reached(clock, other, at, drift)
    return peers.ahead(subtask)


def splits_of(lane: TaskState) -> list[SplitState]:
    """The splits of a lane, and how far each has been read."""
    entries: Any = lane.inlet["splits"]
    return [SplitState(Split(e["id"], e["info"]), e["offset"], e["done"], e.get("rows")) for e in entries]


def kept_tasks(assignment: Assignment, done: int) -> list[str]:
    """The tasks of which the job's directory says where they stand behind ``done`` micro-batches."""
    stages = assignment.stages
    own = [task_id(name, 0) for name, hosting in stages.hosting.items() if hosting is Hosting.DRIVER and done]
    return assignment.lanes + own


def check_input(assignment: Assignment, round_: int) -> None:
    """Raise InputChanged where a split is no longer what the lanes before micro-batch ``round_`` know it as."""
    for vertex, subtask in assignment.stages.lanes:
        lane = assignment.home.task(task_id(vertex.name, subtask), round_)
        for state in splits_of(lane) if lane is not None else ():
            _source(vertex).check(state.split)


def source_of(assignment: Assignment, name: str) -> type:
    """A class for ``session.dataSource.register``: the lanes as a streaming source called ``name``.

    Spark makes a process for each step of planning a query, one of them for every micro-batch. So what travels names
    nothing of ours before it is asked something: importing it costs more than such a process does.
    """
    sources: Any = pyspark("pyspark.sql.datasource")
    streaming: Any = pyspark("pyspark.sql.streaming.datasource")
    pack: Any = pyspark("pyspark.cloudpickle").dumps
    packed: bytes = pack(assignment)
    home: bytes = pack(assignment.home)
    tasks, forms = assignment.lanes, DDL

    class Lane(sources.InputPartition):  # type: ignore[misc]
        def __init__(self, number: int, round_: int) -> None:
            super().__init__((number, round_))

    class Reader(sources.DataSourceStreamReader, streaming.SupportsTriggerAvailableNow):  # type: ignore[misc]
        def initialOffset(self):  # type: ignore[no-untyped-def]  # noqa: N802
            return {"round": 0}

        def prepareForTriggerAvailableNow(self):  # type: ignore[no-untyped-def]  # noqa: N802
            """What there is to read is known when it has been read."""

        def latestOffset(self, start, limit=None):  # type: ignore[no-untyped-def]  # noqa: N802
            from pickle import loads

            return {"round": start["round"] + (not loads(home).ended(tasks, start["round"]))}

        def partitions(self, start, end):  # type: ignore[no-untyped-def]
            return [
                Lane(number, round_) for round_ in range(start["round"], end["round"]) for number in range(len(tasks))
            ]

        def read(self, partition):  # type: ignore[no-untyped-def]
            from dataflow.runners.spark.source_tasks import read, unpacked

            return read(unpacked(packed), *partition.value)

        def commit(self, end):  # type: ignore[no-untyped-def]
            from pickle import loads

            loads(home).forget(end["round"])

    class Lanes(sources.DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls):  # type: ignore[no-untyped-def]
            return name

        def schema(self):  # type: ignore[no-untyped-def]
            return forms

        def streamReader(self, schema):  # type: ignore[no-untyped-def]  # noqa: N802
            return Reader()

    return Lanes


@lru_cache(maxsize=8)
def unpacked(packed: bytes) -> Assignment:
    """What ``source_of`` packed."""
    found: Assignment = pyspark("pyspark.cloudpickle").loads(packed)
    return found
