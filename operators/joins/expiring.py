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

from dataflow.contracts.declared_state import Log, Passed, Piece, Stateful
from dataflow.contracts.operator import OperatorContext, Out
from dataflow.planning.join_specs import ExpiringJoin
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.state.arrays import Numbers
from operators.joins.late import SIDES, input_times, units_of
from operators.joins.result import ResultRows, expanded, has_null, taken
from operators.joins.timed_rows import TimedRows
from operators.stateful.chunks import emitted, pieces
from operators.stateful.expiry import Expiry
from operators.stateful.time_units import TimeUnit

__all__ = ["ExpiringJoinOperator"]


class ExpiringJoinOperator(Stateful):
    """Joins without windows and with a time to live; see the module's text.

    Raises: ValueError for a null event time.
    """

    def __init__(self, context: OperatorContext, spec: ExpiringJoin) -> None:
        self._context = context
        self._spec = spec
        self._reach = spec.reach
        self._result = ResultRows(spec.columns, context.input_schemas, context.output_schema)
        self._passed = Passed()
        self._times = input_times(spec, context, self._passed)
        self._expiry = Expiry(self._passed, None if self._times else context.clock)
        self._units = tuple(times.unit for times in self._times) or (TimeUnit.MICROSECOND, TimeUnit.MICROSECOND)
        self._met = tuple(TimedRows(self._result.keys, rows) for rows in self._result.rows)
        self._alone = tuple(TimedRows(self._result.keys, rows) for rows in self._result.rows)

    @property
    def kernels(self) -> Sequence[str]:
        return [module for side in self._met for module in side.kernels]

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None] | None:
        if not batch.num_rows:
            return None
        return self._join(port, batch, out)

    def _join(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None]:
        times = self._times_of(port, batch, out)
        keys, rows = self._result.keys_of(port, batch), self._result.rows_of(port, batch)
        null = has_null(keys)
        if null is not None:  # a null key meets nothing
            if self._spec.outer[port]:
                yield from self._emit_alone(port, keys, rows, np.flatnonzero(null), out)
            (keys, rows), times = taken(keys, rows, np.flatnonzero(~null)), times[~null]
        if not len(times):
            return
        low, high = self._range(port, times)
        if self._spec.shows[1 - port]:
            yield from self._take_back(1 - port, keys, low, high, out)
        other = self._met[1 - port]
        slots = other.find(keys)
        met = other.state.count_between(slots, low, high)
        found = np.flatnonzero(met)
        for start, stop in pieces(met[found]):
            some = found[start:stop]
            offsets, numbers = other.state.rows_between(slots[some], low[some], high[some])
            at = some[expanded(offsets)]
            changes = np.ones(len(at), np.int64) if self._spec.is_signed else None
            yield from emitted(self._result.all_pairs(port, keys, rows, at, numbers, other.read, changes), out)
        if self._spec.shows[port]:
            yield from self._emit_alone(port, keys, rows, np.flatnonzero(met == 0), out)
        lives = times >= self._first_kept(port)
        alone = (met == 0) & self._spec.shows[port]
        _add(self._alone[port], keys, rows, times, np.flatnonzero(lives & alone))
        _add(self._met[port], keys, rows, times, np.flatnonzero(lives & ~alone))
        if not self._times:
            self._drop()

    def _times_of(self, port: int, batch: pa.RecordBatch, out: Out) -> Numbers:
        """Return the time of each row; emit and count those that are late, which still meet the rows that are kept."""
        if self._times:
            return self._times[port].of_all(batch, out)
        return np.full(batch.num_rows, self._expiry.come(), np.int64)

    def _range(self, port: int, times: Numbers) -> tuple[Numbers, Numbers]:
        """Return the first time of the other side that meets each row of side ``port``, and the time after the last."""
        own, other = self._units[port], self._units[1 - port]
        return other.first_at(times, own, -self._reach), other.first_at(times, own, self._reach + 1)

    def _emit_alone(
        self, port: int, keys: list[pa.Array], rows: pa.RecordBatch, at: Numbers, out: Out, change: int = 1
    ) -> Iterator[None]:
        changes = np.full(len(at), change) if self._spec.is_signed else None
        return emitted(self._result.all_alone(port, keys, rows, at, changes), out)

    def _take_back(self, port: int, keys: list[pa.Array], low: Numbers, high: Numbers, out: Out) -> Iterator[None]:
        """Take back the rows of side ``port`` without a counterpart that meet rows with these keys.

        ``low`` and ``high`` are the first time that meets each of these rows, and the time after the last.
        """
        alone = self._alone[port]
        slots = alone.find(keys)
        found = np.flatnonzero(slots >= 0)
        slots, low, high = slots[found], low[found], high[found]
        met = [
            np.unique(alone.state.rows_between(slots[start:stop], low[start:stop], high[start:stop])[1])
            for start, stop in pieces(alone.state.count_between(slots, low, high))
        ]
        numbers = np.unique(np.concatenate(met)) if met else np.empty(0, np.int32)
        if not len(numbers):
            return
        own, times, rows = alone.keys(numbers), alone.times(numbers), alone.read(numbers)
        alone.state.drop_rows(numbers)
        self._met[port].add(own, rows, times)
        yield from self._emit_alone(port, own, rows, np.arange(len(numbers)), out, -1)

    def advance(self, watermark: int, out: Out) -> None:
        """Drop the rows that meet nothing any more."""
        if self._times and watermark < MAX_WATERMARK:
            self._passed.advance(watermark)
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
        keys = len(self._result.keys)
        met = {name: Log(side.state, keys) for name, side in zip(SIDES, self._met, strict=True)}
        alone = {f"{name} alone": Log(side.state, keys) for name, side in zip(SIDES, self._alone, strict=True)}
        units = {"time units": units_of(self._times)} if self._times else {}
        return {**units, **self._expiry.state(), **met, **alone}

    def restored(self) -> None:
        for side in (*self._met, *self._alone):
            side.restored()


def _add(side: TimedRows, keys: Sequence[pa.Array], rows: pa.RecordBatch, times: Numbers, at: Numbers) -> None:
    """Add the rows ``at``."""
    if len(at) == len(times):
        side.add(keys, rows, times)
    elif len(at):
        side.add(*taken(keys, rows, at), times[at])
