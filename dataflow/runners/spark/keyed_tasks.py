"""Keyed tasks: subtasks whose state Spark stores under the task's number.

Spark calls a keyed task once in a micro-batch, with everything that was sent to it. So the number of calls is the
number of keyed tasks, not of rows. Envelopes for keyed tasks of other levels, and for the driver, pass unchanged. The
last call in a partition sends on what its keyed tasks have sent: see `routing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

from dataflow.events.plan_shape import task_id
from dataflow.planning.physical_plan import Vertex
from dataflow.runners.spark.envelopes import TO_DRIVER, Envelope, by_channel
from dataflow.runners.spark.live_operators import LIVE, LiveTask
from dataflow.runners.spark.metrics import report_envelope
from dataflow.runners.spark.placement import Placement
from dataflow.runners.spark.session import pyspark
from dataflow.runners.spark.source_tasks import Assignment
from dataflow.runners.spark.stored_state import StoredState
from dataflow.runners.spark.task_host import MicroBatchClock, OutputRecorder, TaskHost
from dataflow.runners.spark.user_errors import serialized_errors
from dataflow.runners.spark.worker_notes import working_on

__all__ = ["KeyedPartition", "keyed_task_processor"]


_LIVE: Final = 4
"""Bytes in memory for each stored byte of keyed state; measured 2 to 4.5 for whole numbers."""
_EMPTY: Final = 64 << 10
"""Bytes in memory of the operators of a task without state."""


class KeyedPartition:
    """The keyed tasks of a level in a partition of Spark's, in one micro-batch. ``packed``: what ``_unpack`` reads."""

    def __init__(self, packed: bytes) -> None:
        self._assignment, level, self._tasks = _unpack(packed)
        self._closing = frozenset(self._assignment.spark_plan.closing)
        self._output = self._assignment.output(level)

    def rows_of(self, value: Any, pieces: Any, number: int, rows: Iterable[Any]) -> Iterator[Any]:
        """Yield the rows that the partition sends, given Spark's rows under a number, and its state in Spark."""
        row_type = pyspark("pyspark.sql").Row
        for e in self._sent(value, pieces, number, rows):
            yield row_type(slot=e.task, link=e.link, source=e.source, round=e.round, payload=e.payload)

    def _sent(self, value: Any, pieces: Any, number: int, rows: Iterable[Any]) -> Iterator[Envelope]:
        envelopes = [Envelope(row[0], row[1], row[2], row[3], bytes(row[4])) for row in rows]
        if number == TO_DRIVER:
            yield from envelopes
        elif number in self._closing:
            yield from self._output.end(envelopes[0].source)
        elif number not in self._tasks:
            yield from self._output.take(envelopes)
        else:
            vertex, subtask = self._assignment.spark_plan.keyed_task(number)
            task = task_id(vertex.name, subtask)
            with serialized_errors(task):
                sent = run(self._assignment, vertex, subtask, envelopes, StoredState(value, pieces, task))
            yield from self._output.take(sent)

    def check_closed(self) -> None:
        """Raise RuntimeError if the call that sends on what the tasks sent was not the last one."""
        if not self._output.is_empty:
            raise RuntimeError(
                "Spark did not call the last number of a partition last: has spark.sql.shuffle.partitions changed "
                "since the job was started?"
            )


def run(
    assignment: Assignment, vertex: Vertex, subtask: int, envelopes: list[Envelope], stored: StoredState
) -> list[Envelope]:
    """Run a keyed task through a micro-batch, and write its state after that. Return the envelopes it sends."""
    spark_plan, round_ = assignment.spark_plan, envelopes[0].round
    recorder = OutputRecorder(spark_plan, subtask, round_, distributed=False)
    task = (assignment.directory.path, assignment.run_id, stored.task)
    live = LIVE.take(task, stored.token)
    before = stored.read(logs=live is None)
    logs = stored.log_chain(before) if live is None else live.logs
    time = assignment.directory.time(round_)
    kept, clock = (None, MicroBatchClock(time)) if live is None else (live.nodes, live.clock)
    clock.begin(time)
    with (
        working_on(assignment.directory, vertex, subtask),
        TaskHost(
            spark_plan, vertex, subtask, before, assignment.run_id, recorder, clock=clock, kept=kept, logs=logs
        ) as host,
    ):
        host.feed(by_channel(envelopes))
        stored.write(host.changes(round_ + 1, stored.checkpoint), round_ + 1, logs)
        size = _LIVE * stored.size + _EMPTY
        if size <= assignment.state_memory and (nodes := host.keep()) is not None:
            LIVE.keep(task, LiveTask(nodes, logs, stored.token, size, clock), assignment.state_memory)
        else:
            host.free()  # before the report, which includes errors of closing
        return [*recorder.envelopes(), report_envelope(host.report(stored.size), round_)]


@lru_cache(maxsize=8)
def _unpack(packed: bytes) -> tuple[Assignment, int, frozenset[int]]:
    unpacked: tuple[Assignment, int, frozenset[int]] = pyspark("pyspark.cloudpickle").loads(packed)
    return unpacked


def keyed_task_processor(assignment: Assignment, level: int) -> Any:
    """Return the ``StatefulProcessor`` of a level.

    For every micro-batch Spark starts a process that only calls ``init``. Importing our modules would cost more than
    the rest of this process. So the pickled class refers to none of them until the first row arrives.
    """
    streaming: Any = pyspark("pyspark.sql.streaming")
    vertices = {vertex.name for vertex in assignment.spark_plan.at(level, Placement.KEYED_TASK)}
    spark_plan = assignment.spark_plan
    tasks = frozenset(
        spark_plan.keyed_task_number(vertex.name, subtask)
        for vertex, subtask in spark_plan.keyed_tasks
        if vertex.name in vertices
    )
    packed: bytes = pyspark("pyspark.cloudpickle").dumps((assignment, level, tasks))

    class KeyedTaskProcessor(streaming.StatefulProcessor):  # type: ignore[misc]
        def init(self, handle):  # type: ignore[no-untyped-def]
            self._state = handle.getValueState("state", "state binary")
            self._pieces = handle.getMapState("pieces", "piece bigint", "content binary")
            self._partition = None

        def handleInputRows(self, key, rows, timers):  # type: ignore[no-untyped-def]  # noqa: N802
            if self._partition is None:
                from dataflow.runners.spark.keyed_tasks import KeyedPartition

                self._partition = KeyedPartition(packed)
            return self._partition.rows_of(self._state, self._pieces, key[0], rows)

        def close(self):  # type: ignore[no-untyped-def]
            if self._partition is not None:
                self._partition.check_closed()

    return KeyedTaskProcessor()
