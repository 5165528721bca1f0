"""The event times of the rows of a join's input, and its late rows: those before a time."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.declared_state import Fixed
from dataflow.contracts.operator import OperatorContext, Out
from dataflow.contracts.row_errors import LATE, LATE_RIGHT
from dataflow.contracts.windows import EventTime
from dataflow.state.arrays import Mask, Numbers
from operators.stateful.time_units import TimeUnit

__all__ = ["SIDES", "TAGS", "InputTimes", "units_of"]

SIDES = "left", "right"
"""The names of the logs of the two sides."""

TAGS = LATE, LATE_RIGHT
"""The side outputs of late rows, by input."""


class InputTimes:
    """The event times of input ``port`` of a join, in the ``unit`` of their column."""

    def __init__(self, port: int, time: EventTime, context: OperatorContext) -> None:
        self._port = port
        self._time = time
        self._context = context
        self.unit = TimeUnit.of_time(context.input_schemas[port], time)

    def of(self, batch: pa.RecordBatch) -> Numbers:
        """Return the event time of each row, and count the rows, of which some may be late.

        Raises: ValueError for a null event time; OverflowError for one that is out of range.
        """
        self._context.tally.lateness.checked += batch.num_rows
        return self.unit.times_of(batch, self._time, self._context.name)

    def without_late(
        self, batch: pa.RecordBatch, times: Numbers, closed: int, out: Out
    ) -> tuple[pa.RecordBatch, Numbers]:
        """Remove rows before ``closed`` (microseconds); count them and emit them as late rows."""
        late = self.note_late(batch, times, closed, out)
        return (batch, times) if late is None else (batch.filter(to_array(~late)), times[~late])

    def note_late(self, batch: pa.RecordBatch, times: Numbers, closed: int, out: Out) -> Mask | None:
        """Return which rows are before ``closed`` (microseconds); count them and emit them as late rows. None: none."""
        late: Mask = times < self.unit.first(closed)
        if not late.any():
            return None
        tally, rows = self._context.tally, int(late.sum())
        tally.late += rows
        tally.late_right += rows if self._port == 1 else 0
        tally.lateness.add(closed - self.unit.microseconds(times[late]))
        out.emit(batch.filter(to_array(late)), TAGS[self._port])
        return late


def units_of(times: Iterable[InputTimes]) -> Fixed:
    """Return the units of the event times of a join's inputs, on which its state depends."""
    return Fixed([each.unit.value for each in times])
