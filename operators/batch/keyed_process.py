"""A `KeyedProcess` in a batch: the rows of one key after the other, in their order, with its timers between them.

Rows are sorted by the hash of their key, then by time and place. So the state of a key is needed only while its rows
come, and there may be any number of keys. The watermark of a call is the time of its rows, or of its timer.

A key is *open* if its rows may continue in the next batch. Only the state of open keys is stored between batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.operator import OperatorContext, Out
from dataflow.planning.process_specs import ProcessKeysInOrder
from dataflow.state.arrays import Numbers, words
from dataflow.state.hashing import hash_rows
from dataflow.state.index import Slots
from operators.batch.in_order import ProcessInOrder
from operators.batch.key_timers import KeyTimers, TimerCalls
from operators.process.emissions import MOST
from operators.process.keyed import KeyedProcessOperator, grouped
from operators.stateful.times import row_times, time_column

__all__ = ["KeyedProcessInOrder"]


class KeyedProcessInOrder(ProcessInOrder, KeyedProcessOperator):
    """Calls the function key by key; see the module's text."""

    def __init__(self, context: OperatorContext, spec: ProcessKeysInOrder) -> None:
        super().__init__(context, spec)
        self._changes: Any = TimerCalls()
        self._open: dict[int, KeyTimers] = {}  # by slot
        self._goes_by_time = spec.time is not None

    def _first_keys(self, batch: pa.RecordBatch) -> list[Numbers]:
        return [hash_rows([batch.column(name) for name in self._spec.keys]).view(np.int64)]

    def _run(self, out: Out) -> Iterator[None]:
        last: int | None = None
        for batch, (hashes, *_) in self._rows.take_whole(2) if self._goes_by_time else self._rows.take():
            if last != int(hashes[0]):
                yield from self._end_open_keys(out)
            last = int(hashes[-1])
            yield from self._call_batch(batch.select(self._columns), hashes == last, out)
            yield from self._send(out)
        yield from self._end_open_keys(out)
        yield from self._send(out)

    def _call_batch(self, batch: pa.RecordBatch, may_continue: np.ndarray, out: Out) -> Iterator[None]:
        """Call the function with sorted rows, and the timers between them; some keys ``may_continue`` afterwards."""
        columns = [batch.column(name) for name in self._spec.keys]
        slots = self._states.main.enter(columns)
        order, starts, first = grouped(slots)
        rows = batch if order is None else batch.take(to_array(order))
        own = slots[first].tolist()
        was_open = [slot for slot in own if slot in self._open]
        self._begin(slots[first], [column.take(to_array(first)) for column in columns])
        if not self._goes_by_time and self._states.expires:
            self._before = self._clock.now()
        opens = may_continue[first].tolist()
        current, timers = -1, KeyTimers()
        for at, start, stop, moment in self._calls(rows, starts):
            if at != current:
                if current >= 0:
                    yield from self._end_key(own[current], timers, out, opens=opens[current])
                current, timers = at, self._open.pop(own[at]) if own[at] in self._open else KeyTimers()
                self._call.at, self._time.watermark = at, timers.watermark
            if moment is not None:
                if timers:
                    yield from self._move(timers, moment, out)
                self._set_time(moment)
            self._call_once(self._function.process, rows.slice(start, stop - start))
            if self._changes.waiting:
                timers.change(self._changes.take())
            if self._emissions.rows >= MOST:
                yield from self._send(out)
        yield from self._end_key(own[current], timers, out, opens=opens[current])
        self._store_open(own, was_open)

    def _calls(self, rows: pa.RecordBatch, starts: Numbers) -> Iterator[tuple[int, int, int, int | None]]:
        """Return the calls for grouped rows: the number of the key, the first row, the row after the last, the time."""
        time = self._spec.time
        if time is None:
            places = starts.tolist()
            return zip(range(len(places) - 1), places, places[1:], [None] * (len(places) - 1), strict=False)
        column = time_column(rows, time.column, self.where)
        times, exact = row_times(column, time.back), words(column)
        begins = np.union1d(starts[:-1], np.flatnonzero(exact[1:] != exact[:-1]) + 1)
        keys = np.searchsorted(starts, begins, side="right") - 1
        return zip(
            keys.tolist(), begins.tolist(), [*begins[1:].tolist(), len(times)], times[begins].tolist(), strict=True
        )

    def _set_time(self, time: int) -> None:
        self._time.watermark = time
        if self._goes_by_time:
            self._call.now = time

    def _call_once(self, function: Any, argument: Any) -> None:
        """Call the function with rows, or with the due time of a timer in microseconds."""
        key = self._keys[self._call.at]
        if not self._goes_by_time:
            self._call.now = self._before
        rows = argument if isinstance(argument, pa.RecordBatch) else None
        due = None if rows is not None else self._moments.moment(argument)
        if self._undoes:
            self._try(function, key, rows, due)
            return
        try:
            if function(key, rows if due is None else due, self._ctx) is not None:
                raise self.returned("process" if due is None else "on_timer")
        except Exception as error:
            self._blame(error, key, rows, due)

    # --- timers

    def _move(self, timers: KeyTimers, time: int, out: Out) -> Iterator[None]:
        """Fire what is due until ``time``, one moment after the other.

        A timer that is set for the past fires at the next chance; one that a timer sets for the past, when time moves.
        """
        reached = self._time.watermark
        while reached is None or reached < time:
            due = timers.next_due
            moment = time if due is None else min(time, due)
            if reached is None or moment > reached:
                timers.release()
                reached = moment
                self._set_time(moment)
            while (due := timers.next_due) is not None and due <= reached:
                yield from self._fire_one(timers, out)
                timers.change(self._changes.take(), deferred_upto=reached)

    def _fire_one(self, timers: KeyTimers, out: Out) -> Iterator[None]:
        self._call_once(self._function.on_timer, timers.pop())
        if self._emissions.rows >= MOST:
            yield from self._send(out)

    def _end_key(self, slot: int, timers: KeyTimers, out: Out, *, opens: bool) -> Iterator[None]:
        """End a key, or leave it open. At its end all timers fire; those that are set meanwhile do not."""
        if opens:
            timers.watermark = self._time.watermark
            self._open[slot] = timers
            return
        timers.release()
        while (due := timers.next_due) is not None:
            self._set_time(due if self._time.watermark is None else max(due, self._time.watermark))
            yield from self._fire_one(timers, out)
            calls = self._changes.take()
            timers.change([call for call in calls if not call[0]])
            self._states.main.dropped_timers += sum([sets for sets, _ in calls])

    def _end_open_keys(self, out: Out) -> Iterator[None]:
        """End all keys that are open, because their rows have all come."""
        if not self._open:
            return
        slots = list(self._open)
        numbers = np.array(slots, np.int32)
        self._begin(numbers, self._states.main.keys(numbers))
        for at, slot in enumerate(slots):
            timers = self._open.pop(slot)
            self._call.at, self._time.watermark = at, timers.watermark
            yield from self._end_key(slot, timers, out, opens=False)
        self._store_open(slots, slots)

    def _store_open(self, slots: list[int], was_open: list[int]) -> None:
        """Write the state of the keys that are open now, and remove that of those which were."""
        places = {at for at, slot in enumerate(slots) if slot in self._open}
        for handle in self._handles.values():
            handle.keep_changes(places)
            handle.flush()
        main = self._states.main
        now_open: Slots = np.array([slots[at] for at in sorted(places)], np.int32)
        main.touch(now_open)
        ended: Slots = np.array([slot for slot in was_open if slot not in self._open], np.int32)
        if len(ended):
            for store in self._states.stores.values():
                store.clear(ended)
            main.clear(ended)
