"""A join without windows whose rows have a time to live: rows meet if their times are less than ``ttl`` apart.

It does not matter which row comes first. With event time, a row is kept until the watermark is its time plus ``ttl``:
then no row that is not late can meet it any more. A late row, below the watermark, meets the rows that are still kept.
Without event time, the time of a row is when it came, by the clock.

With ``emit`` "changes" a row of an outer side that meets no row comes out at once, and is taken back when it first
meets one. Nothing is taken back when a time is over. So rows that were shown without a counterpart are kept apart, in
``_alone``, until they meet one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from dataflow.contracts.declared_state import Piece
from dataflow.contracts.operator import OperatorContext, Out
from dataflow.planning.join_specs import ExpiringJoin
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.state.arrays import Numbers
from operators.joins.base import TimedJoinOperator
from operators.joins.late import units_of
from operators.joins.timed_rows import TimedRows
from operators.stateful.expiry import Expiry
from operators.stateful.time_units import TimeUnit

__all__ = ["ExpiringJoinOperator"]


class ExpiringJoinOperator(TimedJoinOperator[ExpiringJoin]):
    """Joins without windows and with a time to live; see the module's text.

    Raises: ValueError for a null event time.
    """

    def __init__(self, context: OperatorContext, spec: ExpiringJoin) -> None:
        super().__init__(context, spec)
        self._reach = spec.reach
        self._expiry = Expiry(self._time, None if self._times else context.clock)
        self._met = tuple(TimedRows(self._result.keys, rows) for rows in self._result.rows)
        self._alone = tuple(TimedRows(self._result.keys, rows) for rows in self._result.rows)

    @property
    def kernels(self) -> Sequence[str]:
        return [module for side in self._met for module in side.kernels]

    def _take(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None]:
        rows = self._rows(port, batch, self._times_of(port, batch, out))
        rows = yield from self._without_null(port, rows, out)
        if not len(rows):
            return
        times = rows.numbers
        low, high = self._range(port, times)
        if self._spec.shows[1 - port]:
            yield from self._take_back(1 - port, rows.keys, low, high, out)
        other = self._met[1 - port]
        slots = other.find(rows.keys)
        met = other.state.count_between(slots, low, high)
        yield from self._emit_pairs(port, rows, other.pairs(slots, low, high, met), other.read, out)
        alone = (met == 0) & self._spec.shows[port]
        yield from self._emit_alone(port, rows, np.flatnonzero(alone), out)
        lives = times >= self._first_kept(port)
        self._alone[port].add(rows.where(lives & alone))
        self._met[port].add(rows.where(lives & ~alone))
        if not self._times:
            self._drop()

    def _times_of(self, port: int, batch: pa.RecordBatch, out: Out) -> Numbers:
        """Return the time of each row; emit and count those that are late, which still meet the rows that are kept."""
        if self._times:
            return self._times[port].of_all(batch, out)
        return np.full(batch.num_rows, self._expiry.note_arrival(), np.int64)

    def _range(self, port: int, times: Numbers) -> tuple[Numbers, Numbers]:
        """Return the first time of the other side that meets each row of side ``port``, and the time after the last."""
        own, other = self._units[port], self._units[1 - port]
        return other.first_at(times, own, -self._reach), other.first_at(times, own, self._reach + 1)

    def _take_back(self, port: int, keys: Sequence[pa.Array], low: Numbers, high: Numbers, out: Out) -> Iterator[None]:
        """Take back the rows of side ``port`` without a counterpart that meet rows with these keys.

        ``low`` and ``high`` are the first time that meets each of these rows, and the time after the last.
        """
        alone = self._alone[port]
        slots = alone.find(keys)
        pairs = alone.pairs(slots, low, high, alone.state.count_between(slots, low, high))
        numbers = np.unique(np.concatenate([np.empty(0, np.int32), *[np.unique(met) for _, met in pairs]]))
        if not len(numbers):
            return
        rows = alone.of(numbers)
        alone.state.drop_rows(numbers)
        self._met[port].add(rows)
        yield from self._emit_alone(port, rows, np.arange(len(rows)), out, weights=np.full(len(rows), -1))

    def advance(self, watermark: int, out: Out) -> None:
        """Drop the rows that meet nothing any more."""
        if self._times and watermark < MAX_WATERMARK:
            self._time.advance(watermark)
            self._drop()

    def _first_kept(self, port: int) -> int:
        """Return the time from which on rows of side ``port`` are kept, in their unit."""
        return self._units[port].first_one_at(self._expiry.reached, TimeUnit.MICROSECOND, -self._reach)

    def _drop(self) -> None:
        for sides in (self._met, self._alone):
            for port, side in enumerate(sides):
                side.state.drop_before(self._first_kept(port))

    # --- state

    def state(self) -> Mapping[str, Piece]:
        units = {"time units": units_of(self._times)} if self._times else {}
        met = self._logs([side.state for side in self._met])
        return {**units, **self._expiry.state(), **met, **self._logs([side.state for side in self._alone], " alone")}
