"""A join of each left row with the earliest right row of its key, at or after its time, at most ``limit`` after it.

A left row comes out when the watermark is above that right row's time, or above the end of the limit. The watermark
passed on is held back by the left rows that wait.

Of right rows of one time, the last one to arrive counts. Rows before the watermark are late, on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.operator import Operator, OperatorContext, Out, Snapshot
from dataflow.contracts.source import Json
from dataflow.planning.join_specs import AsofJoin
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.state.index import Slots
from operators.aggregation.window_times import Numbers
from operators.joins.late import times_of, without_late
from operators.joins.restoring import SIDES, check_join, restore_rows, watermark_of
from operators.joins.result import CHUNK, ResultRows, has_null, shifted, taken
from operators.joins.timed_rows import TimedRows

__all__ = ["ForwardAsofJoinOperator"]

_LEAST, _GREATEST = -(2**63), 2**63 - 1


class ForwardAsofJoinOperator(Operator):
    """Joins left rows with the earliest right row after them; see the module's text.

    Raises: ValueError for a null event time; CheckpointMismatch for the state of another join.
    """

    def __init__(self, context: OperatorContext, spec: AsofJoin) -> None:
        self._context = context
        self._spec = spec
        self._result = ResultRows(spec.columns, context.input_schemas, context.output_schema)
        self._left, self._right = (TimedRows(self._result.keys, rows) for rows in self._result.rows)
        self._watermark: int | None = None
        if context.restored is not None and context.restored.logs:
            self._restore(context.restored)

    @property
    def _by_name(self) -> dict[str, TimedRows]:
        return dict(zip(SIDES, (self._left, self._right), strict=True))

    @property
    def kernels(self) -> Sequence[str]:
        return *self._left.kernels, *self._right.kernels

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        if not batch.num_rows:
            return
        times = times_of(batch, self._spec.times[port], self._context)
        closed = _LEAST if self._watermark is None else self._watermark
        batch, times = without_late(port, batch, times, closed, self._context, out)
        keys, rows = self._result.keys_of(port, batch), self._result.rows_of(port, batch)
        if port == 1 and (null := has_null(keys)) is not None:  # null equals nothing
            (keys, rows), times = taken(keys, rows, np.flatnonzero(~null)), times[~null]
        if len(times):
            (self._left, self._right)[port].add(keys, rows, times)

    def advance(self, watermark: int, out: Out) -> Iterator[None] | None:
        """Emit the left rows whose right row is known now, and drop the right rows that are of no more use."""
        before, self._watermark = self._watermark, watermark
        if not self._left.state.live and not self._right.state.live:
            return None
        below = _GREATEST if watermark == MAX_WATERMARK else watermark
        before = _LEAST if before is None else before
        return self._forward(before, below, out)

    def held(self, watermark: int) -> int:
        """Return the watermark below which no left row waits."""
        first = self._left.state.first_time()
        return watermark if first is None else min(watermark, first)

    def _forward(self, before: int, below: int, out: Out) -> Iterator[None]:
        limit = self._spec.limit
        assert limit is not None, "a forward join has a limit"
        left, right = self._left.state, self._right.state
        expired = _GREATEST if below == _GREATEST else max(_LEAST, below - limit)
        yield from self._emit_forward(left.rows_of_times(_LEAST, expired), out)
        left.drop_before(expired)
        passed = right.slots_of_rows(right.rows_of_times(before, below))
        last = right.last_rows(passed, np.full(len(passed), below))
        there = self._left.find(right.keys(passed))
        upto = shifted(self._right.times(last), 1)
        yield from self._emit_forward(left.rows_between(there, _LEAST, upto)[1], out)
        left.drop_first(there, left.count_between(there, _LEAST, upto))
        first = left.first_time()
        right.drop_before(below if first is None else min(below, first))

    def _emit_forward(self, waiting: Slots, out: Out) -> Iterator[None]:
        """Emit left rows with the first right row at or after them, the last one of its time to arrive."""
        right = self._right.state
        for begin in range(0, len(waiting), CHUNK):
            numbers = waiting[begin : begin + CHUNK]
            keys, times = self._left.keys(numbers), self._left.times(numbers)
            slots = self._right.find(keys)
            found = right.first_rows(slots, times)
            there = found >= 0
            same = shifted(self._right.times(found[there]), 1)
            found[there] = right.last_rows(slots[there], same)
            yield from self._emit(keys, times, numbers, found, out)

    # --- rows

    def _emit(self, keys: list[pa.Array], times: Numbers, numbers: Slots, found: Slots, out: Out) -> Iterator[None]:
        """Emit left rows with the right rows ``found``, -1 for none, unless these are beyond the limit."""
        meets = found >= 0
        if self._spec.limit is not None:
            theirs = self._right.times(found[meets])
            meets[meets] = np.abs(theirs - times[meets]) <= self._spec.limit
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

    def snapshot(self) -> Snapshot:
        values: dict[str, Json] = {"join": self._spec.described(), "watermark": self._watermark}
        return Snapshot(values, logs={name: side.state for name, side in self._by_name.items()})

    def _restore(self, restored: Snapshot) -> None:
        check_join(self._context, self._spec, restored)
        self._watermark = watermark_of(self._context, restored)
        restore_rows(self._context, restored, self._by_name)
