"""A join of each left row with the earliest right row of its key, at or after its time, at most ``reach`` after it.

A left row comes out when the watermark is above that right row's time, or above the end of its reach. The watermark
passed on is held back by the left rows that wait.

Of right rows of one time, the last one to arrive counts. Rows before the watermark are late, on both sides. Each side
has its own unit of time (``operators.stateful.time_units``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.declared_state import Piece
from dataflow.contracts.operator import OperatorContext, Out
from dataflow.planning.join_specs import AsofJoin
from dataflow.state.arrays import LEAST, Numbers
from dataflow.state.index import Slots
from operators.joins.base import TimedJoinOperator
from operators.joins.timed_rows import TimedRows
from operators.stateful.chunks import CHUNK
from operators.stateful.time_units import TimeUnit

__all__ = ["ForwardAsofJoinOperator"]


class ForwardAsofJoinOperator(TimedJoinOperator[AsofJoin]):
    """Joins left rows with the earliest right row after them; see the module's text.

    Raises: ValueError for a null event time.
    """

    def __init__(self, context: OperatorContext, spec: AsofJoin) -> None:
        super().__init__(context, spec)
        assert spec.reach is not None, "a forward join has a limit"
        self._reach = spec.reach
        self._left, self._right = (TimedRows(self._result.keys, rows) for rows in self._result.rows)

    @property
    def kernels(self) -> Sequence[str]:
        return *self._left.kernels, *self._right.kernels

    def _take(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        (self._left, self._right)[port].add(self._on_time(port, batch, out))

    def advance(self, watermark: int, out: Out) -> Iterator[None] | None:
        """Emit the left rows whose right row is known now, and drop the right rows that are of no more use."""
        before = self._time.reached
        self._time.advance(watermark)
        if not self._left.state.live and not self._right.state.live:
            return None
        return self._forward(before, watermark, out)

    def held(self, watermark: int) -> int:
        """Return the watermark below which no left row waits."""
        first = self._left.state.first_time()
        if first is None:
            return watermark
        return min(watermark, self._units[0].in_microseconds(first))

    def _forward(self, before: int, below: int, out: Out) -> Iterator[None]:
        left, right = self._left.state, self._right.state
        left_unit, right_unit = self._units
        expired = left_unit.first_one_at(below, TimeUnit.MICROSECOND, -self._reach)
        yield from self._emit_forward(left.rows_of_times(LEAST, expired), out)
        left.drop_before(expired)
        closed = right_unit.first(below)
        passed = right.slots_of_rows(right.rows_of_times(right_unit.first(before), closed))
        last = right.last_rows(passed, np.full(len(passed), closed))
        there = self._left.find(right.keys(passed))
        upto = left_unit.first_at(self._right.times(last), right_unit, 1)
        yield from self._emit_forward(left.rows_between(there, LEAST, upto)[1], out)
        left.drop_first(there, left.count_between(there, LEAST, upto))
        first = left.first_time()
        right.drop_before(closed if first is None else min(closed, right_unit.first_one_at(first, left_unit)))

    def _emit_forward(self, waiting: Slots, out: Out) -> Iterator[None]:
        """Emit left rows with the first right row at or after them, the last one of its time to arrive."""
        right, (left_unit, right_unit) = self._right.state, self._units
        for begin in range(0, len(waiting), CHUNK):
            numbers = waiting[begin : begin + CHUNK]
            keys, times = self._left.keys(numbers), self._left.times(numbers)
            slots = self._right.find(keys)
            found = right.first_rows(slots, right_unit.first_at(times, left_unit))
            there = found >= 0
            same = right_unit.first_at(self._right.times(found[there]), right_unit, 1)
            found[there] = right.last_rows(slots[there], same)
            yield from self._emit(keys, times, numbers, found, out)

    # --- rows

    def _emit(self, keys: list[pa.Array], times: Numbers, numbers: Slots, found: Slots, out: Out) -> Iterator[None]:
        """Emit left rows with the right rows ``found``, -1 for none, unless these are beyond the reach."""
        meets = found >= 0
        left_unit, right_unit = self._units
        ends = right_unit.first_at(times[meets], left_unit, self._reach + 1)
        meets[meets] = self._right.times(found[meets]) < ends
        if self._spec.how == "inner":
            chosen = to_array(np.flatnonzero(meets))
            keys, numbers, found = [column.take(chosen) for column in keys], numbers[meets], found[meets]
            meets = meets[meets]
        if not len(numbers):
            return
        index = to_array(np.cumsum(meets) - 1, mask=~meets)
        rows = self._right.read(found[meets]).take(index)
        out.emit(self._result.pairs(keys, (self._left.read(numbers), rows)))
        yield

    # --- state

    def state(self) -> Mapping[str, Piece]:
        return {**self._time_state(), **self._logs([self._left.state, self._right.state])}
