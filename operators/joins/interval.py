"""A join of rows that are near each other in time: low <= right time - left time <= high.

A pair comes out when the later one of its rows comes. ``closed`` is the watermark less the lateness: rows before it are
late. A left row l is *complete*, because no right row that meets it can come any more, if l + high < closed; a right
row r if r - low < closed. Rows of outer sides without a counterpart come out when they are complete. Each side has its
own unit of time (``operators.stateful.time_units``).

Whether a row has a counterpart is not stored: it is looked up when the row is complete. Therefore an outer side makes
the other one keep its rows for longer, until all rows that they may meet were looked up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from dataflow.contracts.declared_state import Piece
from dataflow.contracts.operator import OperatorContext, Out
from dataflow.planning.join_specs import IntervalJoin
from dataflow.state.arrays import LEAST, Mask, Numbers
from dataflow.state.index import Slots
from operators.joins.base import TimedJoinOperator
from operators.joins.timed_rows import TimedRows
from operators.stateful.chunks import CHUNK
from operators.stateful.time_units import TimeUnit

__all__ = ["IntervalJoinOperator"]


class IntervalJoinOperator(TimedJoinOperator[IntervalJoin]):
    """Joins rows by time; see the module's text.

    Raises: ValueError for a null event time.
    """

    def __init__(self, context: OperatorContext, spec: IntervalJoin) -> None:
        super().__init__(context, spec, spec.lateness)
        self._sides = tuple(TimedRows(self._result.keys, rows) for rows in self._result.rows)

    @property
    def kernels(self) -> Sequence[str]:
        return [module for side in self._sides for module in side.kernels]

    # --- time

    def _complete(self, port: int) -> int:
        """Return the time before which rows of side ``port`` are complete, in their unit."""
        return self._first_meeting(port, self._time.less(self._spec.lateness), TimeUnit.MICROSECOND)

    def _kept(self, port: int) -> int:
        """Return the time from which on rows of side ``port`` are kept, in their unit."""
        own, other = self._complete(port), self._complete(1 - port)
        if not self._spec.outer[1 - port]:
            return own
        return min(own, self._first_meeting(port, other, self._units[1 - port]))

    def _first_meeting(self, port: int, time: int, unit: TimeUnit) -> int:
        """Return the first time of a row of side ``port`` that meets a row of the other side at ``time`` or later."""
        distance = -self._spec.high if port == 0 else self._spec.low
        return self._units[port].first_one_at(time, unit, distance)

    def _range(self, port: int, times: Numbers) -> tuple[Numbers, Numbers]:
        """Return the first time of the other side that meets each row of side ``port``, and the time after the last."""
        low, high = (self._spec.low, self._spec.high) if port == 0 else (-self._spec.high, -self._spec.low)
        own, other = self._units[port], self._units[1 - port]
        return other.first_at(times, own, low), other.first_at(times, own, high + 1)

    # --- rows

    def _take(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None]:
        rows = self._on_time(port, batch, out)
        if not len(rows):
            return
        other, times = self._sides[1 - port], rows.numbers
        slots = other.find(rows.keys)
        pairs = other.pairs(slots, *self._range(port, times), other.most(slots))
        yield from self._emit_pairs(port, rows, pairs, other.read, out)
        if self._spec.outer[port]:
            complete = np.flatnonzero(times < self._complete(port))
            if len(complete):
                lonely = complete[self._is_lonely(port, slots[complete], times[complete])]
                yield from self._emit_alone(port, rows, lonely, out)
        self._sides[port].add(rows.where(times >= self._kept(port)))

    def _is_lonely(self, port: int, slots: Slots, times: Numbers) -> Mask:
        """Return which rows of side ``port`` have no counterpart; ``slots``: their keys' slots on the other side."""
        low, high = self._range(port, times)
        lonely: Mask = self._sides[1 - port].state.count_between(slots, low, high) == 0
        return lonely

    # --- watermarks

    def advance(self, watermark: int, out: Out) -> Iterator[None] | None:
        """Emit the rows of outer sides that are complete now and have no counterpart, and drop what meets nothing."""
        before = [self._complete(port) for port in (0, 1)]
        self._time.advance(watermark)
        return self._complete_rows(before, out) if any(side.state.live for side in self._sides) else None

    def _complete_rows(self, before: Sequence[int], out: Out) -> Iterator[None]:
        for port in (0, 1):
            if self._spec.outer[port]:
                yield from self._emit_complete(port, before[port], self._complete(port), out)
        for port, side in enumerate(self._sides):
            kept = self._kept(port)
            if kept > LEAST:
                side.state.drop_before(kept)

    def _emit_complete(self, port: int, low: int, high: int, out: Out) -> Iterator[None]:
        side = self._sides[port]
        numbers = side.state.rows_of_times(low, high)
        for begin in range(0, len(numbers), CHUNK):
            some = numbers[begin : begin + CHUNK]
            lonely = self._is_lonely(port, self._sides[1 - port].find(side.keys(some)), side.times(some))
            rows = side.of(some[lonely])
            yield from self._emit_alone(port, rows, np.arange(len(rows)), out)
            yield  # also if all rows have counterparts

    def held(self, watermark: int) -> int:
        """Return the watermark below which no result comes any more: the event time of a result is the left one."""
        return watermark - max(-(-self._spec.high // 1000), 0) - self._spec.lateness

    # --- state

    def state(self) -> Mapping[str, Piece]:
        return {**self._time_state(), **self._logs(side.state for side in self._sides)}
