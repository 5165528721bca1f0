"""Keyed tasks: subtasks whose state Spark stores, as one value under the task's number.

Spark calls a keyed task once in a micro-batch, with everything that was sent to it. So the number of calls is the
number of keyed tasks, not of rows. Envelopes for keyed tasks of other levels, and for the driver, pass unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from dataflow.runners.spark.envelopes import Envelope, by_channel
from dataflow.runners.spark.metrics import report_envelope
from dataflow.runners.spark.placement import Placement
from dataflow.runners.spark.session import pyspark
from dataflow.runners.spark.source_tasks import Assignment
from dataflow.runners.spark.task_host import OutputRecorder, TaskHost
from dataflow.runners.spark.worker_notes import working_on
from dataflow.runtime.task.parts import TaskState

__all__ = ["keyed_task_processor", "rows_of"]


def run(
    assignment: Assignment, task: int, envelopes: list[Envelope], state: bytes | None
) -> tuple[list[Envelope], bytes]:
    """Run a keyed task through a micro-batch. Return the envelopes it sends, and its state after the micro-batch."""
    spark_plan = assignment.spark_plan
    vertex, subtask = spark_plan.keyed_task(task)
    round_ = envelopes[0].round
    recorder = OutputRecorder(spark_plan, subtask, round_, distributed=False)
    before = None if state is None else TaskState.decode(state)
    with (
        working_on(assignment.directory, vertex, subtask),
        TaskHost(spark_plan, vertex, subtask, before, assignment.run_id, recorder) as host,
    ):
        host.feed(by_channel(envelopes))
        after = host.snapshot(round_ + 1).encode("sample").to_pybytes()
        host.close()  # before the report, which includes errors of closing
        return [*recorder.envelopes(), report_envelope(host.report(), round_)], after


def rows_of(packed: bytes, state: Any, task: int, rows: Iterable[Any]) -> Iterator[Any]:
    """Yield the rows that a keyed task sends, given Spark's rows under its number; ``state`` is a ``ValueState``."""
    assignment, tasks = _unpack(packed)
    if task not in tasks:
        yield from rows
        return
    before = bytes(state.get()[0]) if state.exists() else None
    envelopes = [Envelope(row[0], row[1], row[2], row[3], bytes(row[4])) for row in rows]
    sent, after = run(assignment, task, envelopes, before)
    state.update((after,))
    row_type = pyspark("pyspark.sql").Row
    for e in sent:
        yield row_type(slot=e.task, link=e.link, source=e.source, round=e.round, payload=e.payload)


@lru_cache(maxsize=8)
def _unpack(packed: bytes) -> tuple[Assignment, frozenset[int]]:
    unpacked: tuple[Assignment, frozenset[int]] = pyspark("pyspark.cloudpickle").loads(packed)
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
    packed: bytes = pyspark("pyspark.cloudpickle").dumps((assignment, tasks))

    class KeyedTaskProcessor(streaming.StatefulProcessor):  # type: ignore[misc]
        def init(self, handle):  # type: ignore[no-untyped-def]
            self._state = handle.getValueState("state", "state binary")

        def handleInputRows(self, key, rows, timers):  # type: ignore[no-untyped-def]  # noqa: N802
            from dataflow.runners.spark.keyed_tasks import rows_of

            return rows_of(packed, self._state, key[0], rows)

        def close(self):  # type: ignore[no-untyped-def]
            pass

    return KeyedTaskProcessor()
