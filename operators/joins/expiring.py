"""A join without windows whose rows have a time to live: a row meets the rows that come less than ``ttl`` after it.

It is now, for a row, at the greater of its event time and the watermark; without event time, at the time of the clock.
A row meets those rows r of the other side with now < r's time + ``ttl``.

With ``emit`` "changes" a row of an outer side that meets no row comes out at once, and is taken back when it first
meets one. Nothing is taken back when a time is over. So rows that were shown without a counterpart are kept apart, in
``_alone``, until they meet one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from dataflow.contracts.operator import Operator, OperatorContext, Out, Snapshot
from dataflow.contracts.source import Json
from dataflow.planning.join_specs import ExpiringJoin
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.untrusted import parsed
from operators.aggregation.window_times import Numbers
from operators.joins.late import event_times
from operators.joins.restoring import SIDES, check_join, restore_rows
from operators.joins.result import ResultRows, emitted, expanded, has_null, moved, pieces, shifted, taken
from operators.joins.timed_rows import TimedRows

__all__ = ["ExpiringJoinOperator"]

_LEAST, _GREATEST = -(2**63), 2**63 - 1


class ExpiringJoinOperator(Operator):
    """Joins without windows and with a time to live; see the module's text.

    Raises: ValueError for a null event time; CheckpointMismatch for the state of another join.
    """

    def __init__(self, context: OperatorContext, spec: ExpiringJoin) -> None:
        assert spec.ttl is not None, "rows expire"
        self._context = context
        self._spec = spec
        self._ttl = spec.ttl.length
        self._result = ResultRows(spec.columns, context.input_schemas, context.output_schema)
        self._met = tuple(TimedRows(self._result.keys, rows) for rows in self._result.rows)
        self._alone = tuple(TimedRows(self._result.keys, rows) for rows in self._result.rows)
        self._now = _LEAST  # the watermark, or without event time the latest time of the clock
        if context.restored is not None and context.restored.logs:
            self._restore(context.restored)

    @property
    def kernels(self) -> Sequence[str]:
        return [module for side in self._met for module in side.kernels]

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None] | None:
        if not batch.num_rows:
            return None
        return self._join(port, batch, out)

    def _join(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None]:
        times = self._times(port, batch)
        now = np.maximum(times, self._now)
        keys, rows = self._result.keys_of(port, batch), self._result.rows_of(port, batch)
        null = has_null(keys)
        if null is not None:  # a null key meets nothing
            if self._spec.outer[port]:
                yield from self._emit_alone(port, keys, rows, np.flatnonzero(null), out)
            keys, rows = taken(keys, rows, np.flatnonzero(~null))
            times, now = times[~null], now[~null]
        if not len(times):
            return
        if self._spec.shows[1 - port]:
            yield from self._take_back(1 - port, keys, now, out)
        other = self._met[1 - port]
        slots, low = other.find(keys), shifted(now, 1 - self._ttl)
        met = other.state.count_between(slots, low, _GREATEST)
        found = np.flatnonzero(met)
        for start, stop in pieces(met[found]):
            some = found[start:stop]
            offsets, numbers = other.state.rows_between(slots[some], low[some], _GREATEST)
            at = some[expanded(offsets)]
            changes = np.ones(len(at), np.int64) if self._spec.is_signed else None
            yield from emitted(self._result.all_pairs(port, keys, rows, at, numbers, other.read, changes), out)
        if self._spec.shows[port]:
            alone = np.flatnonzero(met == 0)
            yield from self._emit_alone(port, keys, rows, alone, out)
            _add(self._alone[port], keys, rows, times, alone)
            _add(self._met[port], keys, rows, times, found)
        else:
            self._met[port].add(keys, rows, times)
        if self._spec.times[port] is None:
            self._drop()

    def _times(self, port: int, batch: pa.RecordBatch) -> Numbers:
        """Return the time of each row."""
        time = self._spec.times[port]
        if time is not None:
            return event_times(batch, time, self._context.name)
        self._now = self._context.clock.time()
        return np.full(batch.num_rows, self._now, np.int64)

    def _emit_alone(
        self, port: int, keys: list[pa.Array], rows: pa.RecordBatch, at: Numbers, out: Out, change: int = 1
    ) -> Iterator[None]:
        changes = np.full(len(at), change) if self._spec.is_signed else None
        return emitted(self._result.all_alone(port, keys, rows, at, changes), out)

    def _take_back(self, port: int, keys: list[pa.Array], now: Numbers, out: Out) -> Iterator[None]:
        """Take back the rows of side ``port`` without a counterpart that meet rows with these keys at ``now``."""
        alone = self._alone[port]
        slots = alone.find(keys)
        found = np.flatnonzero(slots >= 0)
        touched, inverse = np.unique(slots[found], return_inverse=True)
        earliest = np.full(len(touched), _GREATEST)
        np.minimum.at(earliest, inverse, now[found])
        low = shifted(earliest, 1 - self._ttl)
        meets = alone.state.count_between(touched, low, _GREATEST) > 0
        touched, low = touched[meets], low[meets]
        for start, stop in pieces(alone.most(touched)):
            some = touched[start:stop]
            offsets, numbers = alone.rows(some)
            own, times, rows = alone.keys(numbers), alone.times(numbers), alone.read(numbers)
            is_met = times >= low[start:stop][expanded(offsets)]
            yield from self._emit_alone(port, own, rows, np.flatnonzero(is_met), out, -1)
            alone.state.drop_before(_GREATEST, some)
            _add(alone, own, rows, times, np.flatnonzero(~is_met))
            _add(self._met[port], own, rows, times, np.flatnonzero(is_met))

    def advance(self, watermark: int, out: Out) -> None:
        """Drop the rows that meet nothing any more."""
        if self._spec.times[0] is not None and watermark < MAX_WATERMARK:
            self._now = watermark
            self._drop()

    def _drop(self) -> None:
        first = moved(self._now, 1 - self._ttl)
        if first > _LEAST:
            for side in (*self._met, *self._alone):
                side.state.drop_before(first)

    # --- state

    @property
    def _by_name(self) -> dict[str, TimedRows]:
        """All rows that are kept, by the name of their log."""
        alone = {f"{name} alone": side for name, side in zip(SIDES, self._alone, strict=True)}
        return dict(zip(SIDES, self._met, strict=True)) | alone

    def snapshot(self) -> Snapshot:
        values: dict[str, Json] = {"join": self._spec.described(), "now": self._now}
        return Snapshot(values, logs={name: side.state for name, side in self._by_name.items()})

    def _restore(self, restored: Snapshot) -> None:
        check_join(self._context, self._spec, restored)
        self._now = parsed(int, restored.values["now"], f"{self._context.name}: the time of its state")
        restore_rows(self._context, restored, self._by_name)


def _add(side: TimedRows, keys: Sequence[pa.Array], rows: pa.RecordBatch, times: Numbers, at: Numbers) -> None:
    """Add the rows ``at``."""
    if len(at) == len(times):
        side.add(keys, rows, times)
    elif len(at):
        side.add(*taken(keys, rows, at), times[at])
