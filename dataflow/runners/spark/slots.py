"""Slots: subtasks whose state Spark keeps, as one value under the slot's number.

A micro-batch brings a slot everything that was sent to it, in one call; the number of calls is that of the slots, and
not that of rows. Envelopes for slots of other levels, and for the driver, pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from dataflow.runners.spark.envelopes import Envelope, by_channel
from dataflow.runners.spark.hosting import Hosted, Recorder
from dataflow.runners.spark.lanes import Assignment
from dataflow.runners.spark.reports import reported
from dataflow.runners.spark.session import pyspark
from dataflow.runners.spark.staging import Hosting
from dataflow.runtime.parts import TaskState

__all__ = ["processor_of"]

_STATE = "state binary"


def run(
    assignment: Assignment, slot: int, envelopes: list[Envelope], state: bytes | None
) -> tuple[list[Envelope], bytes]:
    """A slot through a micro-batch: what it sends, and its state behind it."""
    stages = assignment.stages
    vertex, subtask = stages.slots[slot]
    round_ = envelopes[0].round
    recorder = Recorder(stages, subtask, round_, dealt=False)
    before = None if state is None else TaskState.decode(state)
    with Hosted(stages, vertex, subtask, before, assignment.run_id, recorder) as hosted:
        hosted.feed(by_channel(envelopes))
        after = hosted.state(round_ + 1).encode("sample").to_pybytes()
        return [*recorder.envelopes(), reported(hosted.report(), round_)], after


def processor_of(assignment: Assignment, level: int) -> Any:
    """The ``StatefulProcessor`` of a level."""
    Row = pyspark("pyspark.sql").Row  # noqa: N806
    streaming: Any = pyspark("pyspark.sql.streaming")

    vertices = {vertex.name for vertex in assignment.stages.at(level, Hosting.SLOT)}
    mine = {n for n, (vertex, _) in enumerate(assignment.stages.slots) if vertex.name in vertices}

    class Slots(streaming.StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            self._state = handle.getValueState("state", _STATE)

        def handleInputRows(self, key: Any, rows: Iterable[Any], timers: Any) -> Iterator[Any]:  # noqa: N802
            slot = key[0]
            if slot not in mine:
                yield from rows
                return
            held = bytes(self._state.get()[0]) if self._state.exists() else None
            envelopes = [Envelope(row[0], row[1], row[2], row[3], bytes(row[4])) for row in rows]
            sent, state = run(assignment, slot, envelopes, held)
            self._state.update((state,))
            for e in sent:
                yield Row(slot=e.slot, link=e.link, source=e.source, round=e.round, payload=e.payload)

        def close(self) -> None:
            pass

    return Slots()
