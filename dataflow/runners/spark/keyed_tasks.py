"""Slots: subtasks whose state Spark keeps, as one value under the slot's number.

A micro-batch brings a slot everything that was sent to it, in one call; the number of calls is that of the slots, and
not that of rows. Envelopes for slots of other levels, and for the driver, pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from dataflow.runners.spark.envelopes import Envelope, by_channel
from dataflow.runners.spark.metrics import reported
from dataflow.runners.spark.placement import Hosting
from dataflow.runners.spark.session import pyspark
from dataflow.runners.spark.source_tasks import Assignment
from dataflow.runners.spark.task_host import Hosted, Recorder
from dataflow.runners.spark.worker_notes import at_work
from dataflow.runtime.task.parts import TaskState

__all__ = ["processor_of", "rows_of"]


def run(
    assignment: Assignment, slot: int, envelopes: list[Envelope], state: bytes | None
) -> tuple[list[Envelope], bytes]:
    """A slot through a micro-batch: what it sends, and its state behind it."""
    stages = assignment.stages
    vertex, subtask = stages.slots[slot]
    round_ = envelopes[0].round
    recorder = Recorder(stages, subtask, round_, dealt=False)
    before = None if state is None else TaskState.decode(state)
    with (
        at_work(assignment.home, vertex, subtask),
        Hosted(stages, vertex, subtask, before, assignment.run_id, recorder) as hosted,
    ):
        hosted.feed(by_channel(envelopes))
        after = hosted.state(round_ + 1).encode("sample").to_pybytes()
        hosted.close()  # before the report, which has its errors
        return [*recorder.envelopes(), reported(hosted.report(), round_)], after


def rows_of(packed: bytes, state: Any, slot: int, rows: Iterable[Any]) -> Iterator[Any]:
    """What a slot makes of the rows of Spark's that came under its number; ``state`` is Spark's ``ValueState``."""
    assignment, mine = _unpacked(packed)
    if slot not in mine:
        yield from rows
        return
    held = bytes(state.get()[0]) if state.exists() else None
    envelopes = [Envelope(row[0], row[1], row[2], row[3], bytes(row[4])) for row in rows]
    sent, after = run(assignment, slot, envelopes, held)
    state.update((after,))
    made = pyspark("pyspark.sql").Row
    for e in sent:
        yield made(slot=e.slot, link=e.link, source=e.source, round=e.round, payload=e.payload)


@lru_cache(maxsize=8)
def _unpacked(packed: bytes) -> tuple[Assignment, frozenset[int]]:
    found: tuple[Assignment, frozenset[int]] = pyspark("pyspark.cloudpickle").loads(packed)
    return found


def processor_of(assignment: Assignment, level: int) -> Any:
    """The ``StatefulProcessor`` of a level.

    Spark makes a process for every micro-batch that does nothing but call ``init``. So what travels names nothing of
    ours before the first row comes: importing it costs more than such a process does.
    """
    streaming: Any = pyspark("pyspark.sql.streaming")
    vertices = {vertex.name for vertex in assignment.stages.at(level, Hosting.SLOT)}
    mine = frozenset(n for n, (vertex, _) in enumerate(assignment.stages.slots) if vertex.name in vertices)
    packed: bytes = pyspark("pyspark.cloudpickle").dumps((assignment, mine))

    class Slots(streaming.StatefulProcessor):  # type: ignore[misc]
        def init(self, handle):  # type: ignore[no-untyped-def]
            self._state = handle.getValueState("state", "state binary")

        def handleInputRows(self, key, rows, timers):  # type: ignore[no-untyped-def]  # noqa: N802
            from dataflow.runners.spark.keyed_tasks import rows_of

            return rows_of(packed, self._state, key[0], rows)

        def close(self):  # type: ignore[no-untyped-def]
            pass

    return Slots()
