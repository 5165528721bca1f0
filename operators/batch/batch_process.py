"""A `BatchProcess` in a batch: one call for all rows of one time, and timers between the calls.

The watermark of a call is the time of its rows, or of its timers. A timer that is set while timers fire after the last
row of its key does not fire, as at the end of a stream. Otherwise other keys of the subtask would decide if it does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from dataflow.contracts.operator import OperatorContext, Out
from dataflow.planning.process_specs import ProcessBatchesInOrder
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.state.arrays import Numbers
from dataflow.state.dictionaries import key_schema
from dataflow.state.index import Slots
from dataflow.state.keyed import KeyIndex
from dataflow.state.timers import TimeDomain
from operators.batch.in_order import ProcessInOrder
from operators.process.batched import BatchProcessOperator
from operators.process.timing import due_times
from operators.stateful.times import row_times, time_column

__all__ = ["BatchProcessInOrder"]


class BatchProcessInOrder(ProcessInOrder, BatchProcessOperator):
    """Calls the function time by time; see the module's text."""

    def __init__(self, context: OperatorContext, spec: ProcessBatchesInOrder) -> None:
        super().__init__(context, spec)
        self._index = KeyIndex(key_schema(context.input_schemas[0], spec.keys))
        self._left = np.zeros(0, np.int64)
        """By number of the key in the index: its rows that are still to come."""
        self._ended: np.ndarray | None = None
        """While timers fire, by slot: whether no row of the key is to come."""

    def _note(self, batch: pa.RecordBatch) -> None:
        numbers = self._index.slots(self._key_columns(batch))
        if len(self._index) > len(self._left):
            self._left = np.append(self._left, np.zeros(len(self._index), np.int64))
        np.add.at(self._left, numbers, 1)

    def _key_columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        return [batch.column(name) for name in self._spec.keys]

    def _first_keys(self, batch: pa.RecordBatch) -> list[Numbers]:
        return []

    def _run(self, out: Out) -> Iterator[None]:
        time = self._spec.time
        for batch, keys in self._rows.take() if time is None else self._rows.take_whole(1):
            rows = batch.select(self._columns)
            if time is None:
                yield from self._process_rows(rows, out)
                continue
            times = row_times(time_column(rows, time.column, self.where), time.back)
            exact = keys[0]  # in nanoseconds, if the column has them
            begins = np.flatnonzero(np.append(True, exact[1:] != exact[:-1])).tolist()
            for begin, end in zip(begins, [*begins[1:], len(times)], strict=True):
                yield from self._move(int(times[begin]), out)
                now = rows.slice(begin, end - begin)
                np.subtract.at(self._left, self._index.slots(self._key_columns(now)), 1)
                yield from self._process_rows(now, out)
        yield from self._fire_rest(out)

    def _move(self, time: int, out: Out) -> Iterator[None]:
        """Move the time to ``time``, and fire what is due until then, one moment after the other.

        A timer that is set for the past fires at the next chance; one that a timer sets for the past, when time moves.
        """
        while self._time.watermark is None or self._time.watermark < time:
            due = self._states.main.next_due(TimeDomain.EVENT)
            moment = time if due is None else min(time, due)
            if self._time.watermark is None or moment > self._time.watermark:
                self._changes.apply_deferred()
                self._time.watermark = self._before = moment
            yield from self._fire(self._time.watermark, TimeDomain.EVENT, out)

    def _call_timers(self, dues: Numbers, slots: Slots, domain: TimeDomain, upto: int, out: Out) -> Iterator[None]:
        main = self._states.main
        self._ended = np.zeros(len(main.records), np.bool_)
        self._ended[slots] = self._left[self._index.slots(main.keys(slots))] == 0
        yield from super()._call_timers(dues, slots, domain, upto, out)
        self._ended = None

    def change_timers(self, slots: Any, dues: Any, domain: TimeDomain, *, sets: bool) -> None:
        if self._ended is None or not sets:
            super().change_timers(slots, dues, domain, sets=sets)
            return
        numbers = self.slots(slots)
        times = due_times(dues, len(numbers), self.where)
        fires = ~self._ended[numbers]
        self._states.main.dropped_timers += int(len(fires) - fires.sum())
        super().change_timers(numbers[fires], times[fires], domain, sets=True)

    def _fire_rest(self, out: Out) -> Iterator[None]:
        """Fire the timers that are left, in order; those that are set meanwhile do not fire."""
        self._changes.apply_deferred()
        main = self._states.main
        while (due := main.next_due(TimeDomain.EVENT)) is not None:
            self._time.watermark = due if self._time.watermark is None else max(due, self._time.watermark)
            self._before = self._clock.now() if self._spec.time is None else self._time.watermark
            dues, slots = main.due(due, TimeDomain.EVENT, self.most_timers)
            yield from self._call_timers(dues, slots, TimeDomain.EVENT, MAX_WATERMARK, out)
            yield from self._send(out)
        main.dropped_timers += self._changes.drop_deferred()
