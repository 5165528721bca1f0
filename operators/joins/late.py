"""The event times and the late rows of a join's input."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from dataflow.contracts.declared_state import Fixed, Passed
from dataflow.contracts.operator import OperatorContext, Out
from dataflow.contracts.row_errors import LATE, LATE_RIGHT
from dataflow.contracts.windows import EventTime
from dataflow.planning.join_specs import ExpiringJoin, Join, TimedJoin
from dataflow.state.arrays import Numbers
from operators.stateful.late_rows import LateRows
from operators.stateful.time_units import TimeUnit

__all__ = ["SIDES", "InputTimes", "input_times", "late_rows_of", "units_of"]

SIDES = "left", "right"
"""The names of the logs of the two sides."""


def late_rows_of(port: int, spec: Join, context: OperatorContext, passed: Passed, lateness: int) -> LateRows:
    """Return the `LateRows` of input ``port`` of a join; the last arguments are those of `LateRows`."""
    keys, tag = ((spec.columns.keys.left, LATE), (spec.columns.keys.right, LATE_RIGHT))[port]
    return LateRows(context, passed, lateness, keys, tag)


class InputTimes:
    """The event times of an input of a join, in the ``unit`` of their column, and its late rows."""

    def __init__(self, port: int, time: EventTime, context: OperatorContext, late: LateRows) -> None:
        self._time = time
        self._where = context.name
        self._late = late
        self.unit = TimeUnit.of_time(context.input_schemas[port], time)

    def on_time(self, batch: pa.RecordBatch, out: Out) -> tuple[pa.RecordBatch, Numbers]:
        """Return the rows of a batch that are not late, and their event times; count and emit the others.

        Raises: ValueError for a null event time; OverflowError for one that is out of range.
        """
        return self._late.split_times(batch, self._of(batch), self.unit, out)

    def of_all(self, batch: pa.RecordBatch, out: Out) -> Numbers:
        """Return the event times of all rows of a batch; count and emit those that are late.

        Raises: what ``on_time`` raises.
        """
        times = self._of(batch)
        self._late.note_times(batch, times, self.unit, out)
        return times

    def _of(self, batch: pa.RecordBatch) -> Numbers:
        return self.unit.times_of(batch, self._time, self._where)


def input_times(
    spec: TimedJoin | ExpiringJoin, context: OperatorContext, passed: Passed, lateness: int = 0
) -> tuple[InputTimes, ...]:
    """Return the event times of both inputs of a join; none if it goes by the clock. Arguments as in `LateRows`."""
    return tuple(
        InputTimes(port, time, context, late_rows_of(port, spec, context, passed, lateness))
        for port, time in enumerate(spec.times)
        if time is not None
    )


def units_of(times: Iterable[InputTimes]) -> Fixed:
    """Return the units of the event times of a join's inputs, on which its state depends."""
    return Fixed([each.unit.value for each in times])
