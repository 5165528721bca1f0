"""A join of each left row with the latest right row of its key, at or before its time.

A left row comes out when the watermark is above its time, because then no such right row can come any more. Until then
it waits, and so does a right row until the watermark is above its time. Then the last right row of each key replaces
the one before it.

Of right rows of one time, the last one to arrive counts. Rows before the watermark are late, on both sides. A right row
that is more than ``reach`` before a left row is not joined with it. Each side has its own unit of time
(``operators.stateful.time_units``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.contracts.declared_state import Log, Piece
from dataflow.contracts.operator import OperatorContext, Out
from dataflow.planning.join_specs import AsofJoin
from dataflow.state.arrays import LEAST, Mask, Numbers
from dataflow.state.index import Slots
from dataflow.state.keyed_state import KeyedState, Ttl
from operators.joins.base import TimedJoinOperator
from operators.joins.result import JoinRows
from operators.stateful.chunks import CHUNK, emitted
from operators.stateful.columns import without_null
from operators.stateful.nested_columns import NestedColumns
from operators.stateful.row_log import KERNELS, NUMBER, Part, RowLog, in_order
from operators.stateful.time_units import TimeUnit

__all__ = ["AsofJoinOperator"]

_PASSED = "passed"
_TIME = "barrierflow:time"
_SWEPT = 4_096
"""Keys that are looked at for expired rows at a watermark."""


class AsofJoinOperator(TimedJoinOperator[AsofJoin]):
    """Joins left rows with the latest right row before them; see the module's text.

    Raises: ValueError for a null event time.
    """

    def __init__(self, context: OperatorContext, spec: AsofJoin) -> None:
        super().__init__(context, spec)
        self._sides = [RowLog(self._result.logged(port)) for port in (0, 1)]
        self._passed = PassedRows(self._result.keys, self._result.rows[1], spec.reach, self._units)

    @property
    def kernels(self) -> Sequence[str]:
        return *self._passed.kernels, *KERNELS

    def _take(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        self._on_time(port, batch, out).add_to(self._sides[port])

    def _bound(self, port: int) -> int:
        """Return the time, in their unit, from which on rows of side ``port`` wait."""
        return self._units[port].first(self._time.reached)

    def advance(self, watermark: int, out: Out) -> Iterator[None] | None:
        """Emit the left rows before the watermark, and let the right rows before it replace older ones."""
        self._time.advance(watermark)
        left, right = (log.take(self._bound(port)) for port, log in enumerate(self._sides))
        if not left and not right:
            self._passed.expire(watermark)
            return None
        return self._join(left, right, watermark, out)

    def _join(self, left: list[Part], right: list[Part], below: int, out: Out) -> Iterator[None]:
        if right:
            self._passed.begin(self._result.of_log(1, *in_order(right)))
        for batch, times in left:
            for begin in range(0, len(times), CHUNK):
                part = batch.slice(begin, CHUNK), times[begin : begin + CHUNK]
                yield from self._meet(self._result.of_log(0, *part), out)
        self._passed.finish()
        self._passed.expire(below)

    def _meet(self, rows: JoinRows, out: Out) -> Iterator[None]:
        """Emit left rows with the right rows that they meet."""
        alone = np.ones(len(rows), np.bool_)
        for at, theirs in self._passed.meet(rows.keys, rows.numbers):
            alone[at] = False
            yield from emitted(self._result.all_pairs(0, rows, at, theirs, lambda some: some), out)
        if self._spec.outer[0]:
            yield from self._emit_alone(0, rows, np.flatnonzero(alone), out)

    # --- state

    def state(self) -> Mapping[str, Piece]:
        known = self._time.watermark is not None
        lows = [(NUMBER, self._bound(port)) if known else None for port in (0, 1)]
        passed = {_PASSED: Log(self._passed.state, len(self._result.keys))}
        return {**self._time_state(), **self._logs(self._sides, lows=lows), **passed}


class PassedRows:
    """The right row of each key that the watermark passed last.

    A step is ``begin`` with right rows that have just been passed, ``meet`` for left rows, and ``finish``.

    Args:
        keys: the key columns.
        rows: the other columns of right rows.
        reach: the greatest distance of a left row after a right row that it meets, in nanoseconds; None: any.
        units: the units of the times of left and of right rows.

    >>> units = TimeUnit.MICROSECOND, TimeUnit.MICROSECOND
    >>> rows = PassedRows(pa.schema({"k": pa.int64()}), pa.schema({"x": pa.string()}), None, units)
    >>> for name in "ab":
    ...     time = np.array([10 if name == "a" else 20])
    ...     rows.begin(JoinRows([pa.array([7])], pa.record_batch({"x": [name]}), time))
    ...     [(at.tolist(), right["x"].to_pylist()) for at, right in rows.meet([pa.array([7, 7])], np.array([25, 12]))]
    ...     rows.finish()
    [([0, 1], ['a', 'a'])]
    [([0], ['b']), ([1], ['a'])]
    """

    def __init__(self, keys: pa.Schema, rows: pa.Schema, reach: int | None, units: Sequence[TimeUnit]) -> None:
        self._columns = NestedColumns(rows)
        self._reach = reach
        self._left, self._right = units
        self.state = KeyedState(
            keys,
            pa.schema([pa.field(_TIME, pa.int64()), *self._columns.kept]),
            ttl=None if reach is None else Ttl(reach // 1000 + 1),
        )
        self._places: Slots = np.empty(0, np.int32)  # the place of a slot's key among the new rows, or -1
        self._keys: Slots = np.empty(0, np.int32)  # of the new rows
        self._is_new: Mask = np.empty(0, np.bool_)  # which of these keys had no row before
        self._offsets = np.zeros(1, np.int64)  # where the new rows of each key begin
        self._rows, self._times = pa.RecordBatch.from_pylist([], rows), np.empty(0, np.int64)

    @property
    def kernels(self) -> Sequence[str]:
        """The modules with the kernels that are called."""
        return self.state.kernels

    def begin(self, new: JoinRows) -> None:
        """Add right rows, in ascending order of their times, which are at or after those of all rows before."""
        keys, rows, times = new.keys, new.rows, new.numbers
        until = TimeUnit.MICROSECOND.first_at(times, self._right)  # rounded up, because a row may not go too early
        slots, fresh = self.state.insert(keys, LEAST, until)
        self._keys, first, places = np.unique(slots, return_index=True, return_inverse=True)
        self._is_new = fresh[first]
        order = np.argsort(places, kind="stable")
        self._rows, self._times = rows.take(to_array(order)), times[order]
        self._offsets = np.concatenate([[0], np.cumsum(np.bincount(places, minlength=len(self._keys)))])
        short = int(slots.max(initial=-1)) + 1 - len(self._places)
        if short > 0:
            more = np.full(max(short, len(self._places)), -1, np.int32)
            self._places = np.concatenate([self._places, more])
        self._places[self._keys] = np.arange(len(self._keys))

    def meet(self, keys: Sequence[pa.Array], times: Numbers) -> Iterator[tuple[Numbers, pa.RecordBatch]]:
        """Yield which of some left rows meet a right row, with these right rows."""
        from operators.kernels.time_order import last_before

        slots = without_null(self.state.find(keys, LEAST), keys)
        places = np.full(len(slots), -1, np.int32)
        known = (slots >= 0) & (slots < len(self._places))
        places[known] = self._places[slots[known]]
        met = np.empty(len(slots), np.int64)
        last_before(places, self._right.first_at(times, self._left, 1), self._offsets, self._times, met)
        at = np.flatnonzero(met >= 0)
        at = at[self._is_near(self._times[met[at]], times[at])]
        if len(at):
            yield at, self._rows.take(to_array(met[at]))
        older = (met < 0) & (slots >= 0)
        older[places >= 0] &= ~self._is_new[places[places >= 0]]
        at = np.flatnonzero(older)
        if len(at):
            found = self.state.read(slots[at])
            near = self._is_near(to_numbers(found.column(0)), times[at])
            if not near.all():
                at, found = at[near], found.filter(to_array(near))
            if len(at):
                yield at, self._columns.decode(found.select(list(range(1, found.num_columns))))  # without the time

    def _is_near(self, theirs: Numbers, times: Numbers) -> Mask:
        """Return which right rows, at ``theirs``, are within reach of the left rows, at ``times``."""
        if self._reach is None:
            return np.ones(len(times), np.bool_)
        near: Mask = theirs >= self._right.first_at(times, self._left, -self._reach)
        return near

    def finish(self) -> None:
        """Let the last new row of each key replace the row before."""
        if not len(self._keys):
            return
        last = self._offsets[1:] - 1
        rows = self._columns.encode(self._rows.take(to_array(last)))
        schema = pa.schema([pa.field(_TIME, pa.int64()), *rows.schema])
        self.state.write(
            self._keys, pa.RecordBatch.from_arrays([to_array(self._times[last]), *rows.columns], schema=schema)
        )
        self._places[self._keys] = -1
        self._keys = self._keys[:0]

    def expire(self, below: int) -> None:
        """Drop some of the rows that no left row at or after ``below`` meets."""
        if self._reach is not None:
            self.state.expire(below, _SWEPT)
