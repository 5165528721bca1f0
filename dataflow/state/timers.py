"""Timers of keys: one for each key, due time and domain, fired in the order of their due times.

A timer is a row of a table like that of the keys (``dataflow.state.copy_on_write``): that makes it part of snapshots.
Due times are kept in ranges (``dataflow.state.ranges``). The timers of a slot are a linked list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.state.arrays import LEAST, Numbers
from dataflow.state.changes import Changes
from dataflow.state.copy_on_write import Readers, Reading, RecordRows, Rows
from dataflow.state.index import Slots, WideSlotIndex
from dataflow.state.keyed import KeyIndex, KnownKeys
from dataflow.state.parts import LIVE_FIELD, check_columns, in_order, marked, number_field, stored_numbers
from dataflow.state.ranges import SEQUENCE, SLOT, TimeRanges

__all__ = ["TimeDomain", "Timers"]


_FEW = 512

DUE, DOMAIN = 3, 4
"""The words of a timer's record, after its sequence number and its key's slot."""


class TimeDomain(Enum):
    """What a timer waits for: the watermark of event time, or the clock.

    >>> TimeDomain.EVENT.value
    'event'
    """

    EVENT = "event"
    CLOCK = "clock"


_NUMBERS = {TimeDomain.EVENT: 0, TimeDomain.CLOCK: 1}


class Timers:
    """The timers of one operator's keys. Slots are those of the keys."""

    def __init__(self, keys: pa.Schema, readers: Readers) -> None:
        self._keys = len(keys)
        self.stored = self.stored_of(keys)
        self._index = WideSlotIndex(3)
        self.records = RecordRows(np.zeros(5, np.int64))
        index = self._index
        self.changes = Changes(lambda timers: readers.defer(lambda: index.release(timers)))
        self._ranges = {domain: TimeRanges() for domain in TimeDomain}
        self._sequence = 0
        self._heads: Slots = np.full(_FEW, -1, np.int32)  # of each slot its last timer, -1: none
        self._links: Slots = np.empty((_FEW, 2), np.int32)  # of each timer the one before and after it in its slot
        self.live = 0

    @staticmethod
    def stored_of(keys: pa.Schema) -> pa.Schema:
        """Return the columns of a checkpoint."""
        return pa.schema([*keys, *map(number_field, ("due", "domain", "sequence")), LIVE_FIELD])

    @property
    def count(self) -> int:
        """The number of timers' numbers that were ever used and still exist."""
        return len(self._index)

    def pending(self, slots: Slots) -> npt.NDArray[np.bool_]:
        """Return whether each slot has timers."""
        known = slots < len(self._heads)
        return known & (self._heads[np.where(known, slots, 0)] >= 0)

    def set(self, slots: Slots, dues: Numbers, domain: TimeDomain) -> None:
        """Register a timer for each slot and due time, unless it is registered."""
        from dataflow.state.kernels.timers import link_timers

        timers = self._index.lookup(_keys(slots, dues, domain))
        rows = self._index.fresh
        if not len(rows):
            return
        new = timers[rows].copy()
        self._make_room(int(np.max(slots)))
        self.changes.note_new(new, len(self.records.rows))
        self._change(new)
        sequences = np.arange(self._sequence, self._sequence + len(new))
        self._sequence += len(new)
        records = self.records.rows
        records[new, SEQUENCE], records[new, SLOT] = sequences, slots[rows]
        records[new, DUE], records[new, DOMAIN] = dues[rows], _NUMBERS[domain]
        records[new, 0] = LEAST
        link_timers(new, slots[rows], self._heads, self._links)
        self.live += len(new)
        self._ranges[domain].enter(np.stack([dues[rows], sequences, new.astype(np.int64)], axis=1), records)

    def cancel(self, slots: Slots, dues: Numbers, domain: TimeDomain) -> Slots:
        """Remove the timers with these slots and due times that are registered; return their slots, each once."""
        found = self._index.find(_keys(slots, dues, domain))
        self._cancel(np.unique(found[found >= 0]))
        return np.unique(slots[found >= 0])

    def cancel_all(self, slots: Slots) -> None:
        """Remove all timers of ``slots``, each once."""
        from dataflow.state.kernels.timers import count_linked, list_linked

        slots = slots[self.pending(slots)]
        if len(slots):
            timers = np.empty(count_linked(slots, self._heads, self._links), np.int32)
            list_linked(slots, self._heads, self._links, timers)
            self._cancel(timers)

    def due(self, upto: int, domain: TimeDomain, limit: int) -> tuple[Numbers, Slots]:
        """Remove and return the due times and slots of at most ``limit`` timers due at or before ``upto``, in order."""
        chosen = self._ranges[domain].take(upto, limit, self.records.rows)
        timers = chosen[:, 2].astype(np.int32)
        slots = self.records.rows[timers, SLOT].astype(np.int32)
        self._remove(timers)
        return chosen[:, 0].copy(), slots

    def next_due(self, domain: TimeDomain) -> int | None:
        """Return the earliest due time of a domain, or None if it has no timer."""
        return self._ranges[domain].first(self.records.rows)

    def shrink(self, slots: int | None) -> None:
        """Give memory back, if few of many timers exist, or if keys have only ``slots`` slots now; None: as before.

        Slots that do not exist any more have no timers.
        """
        if slots is not None:
            self._heads = self._heads[: max(_FEW, slots)].copy()
        if self._index.shrink(self.live):
            self.records.shrink(self.count)
            self.changes.shrink(self.count)
            self._links = self._links[: max(_FEW, self.count)].copy()

    def freeze(self, checkpoint: int, since: int | None, known: KnownKeys, reading: Reading) -> pa.RecordBatchReader:
        """Return the timers of this moment, or those that were registered or removed since checkpoint ``since``."""
        delta = self.changes.close(checkpoint, since, len(self.records.rows))
        frozen = self.records.freeze(self.count, None if delta is None else delta.chosen)
        schema = marked(self.stored, base=delta is None, keys=self._keys + 2)

        def rows(records: Rows, *, live: bool) -> pa.RecordBatch:
            numbers = [to_array(records[:, word].copy()) for word in (DUE, DOMAIN, SEQUENCE)]
            keys = known.columns(records[:, SLOT].astype(np.int32))
            return pa.RecordBatch.from_arrays([*keys, *numbers, to_array(np.full(len(records), live))], schema=schema)

        return pa.RecordBatchReader.from_batches(schema, stored_numbers(frozen, delta, known, rows, reading))

    def restore(self, table: pa.Table, index: KeyIndex, enter: Callable[[Sequence[pa.Array]], Slots]) -> Slots:
        """Remove and register the timers of a part, in the order of registration; return the slots that had some.

        ``enter`` returns the slot of each key; new keys get one.
        """
        check_columns(table, self.stored)
        count, entered = self._keys, [np.empty(0, np.int32)]
        for batch in in_order(table, count + 2, count):
            dues, domains, _, live = [to_numbers(column) for column in batch.columns[count:]]
            gone = index.find(batch.columns[:count])
            for domain, number in _NUMBERS.items():
                mine = (domains == number) & ~live & (gone >= 0)
                self.cancel(gone[mine], dues[mine], domain)
            slots = enter(batch.filter(to_array(live)).columns[:count]).copy()
            entered.append(slots)
            for domain, number in _NUMBERS.items():
                mine = domains[live] == number
                self.set(slots[mine], dues[live][mine], domain)
        return np.unique(np.concatenate(entered)).astype(np.int32)

    def _cancel(self, timers: Slots) -> None:
        """Remove timers whose entries are still in their ranges."""
        records = self.records.rows[timers]
        self._remove(timers)
        for domain, number in _NUMBERS.items():
            self._ranges[domain].bury(records[records[:, DOMAIN] == number, DUE], self.records.rows)

    def _remove(self, timers: Slots) -> None:
        from dataflow.state.kernels.timers import unlink_timers

        if not len(timers):
            return
        self._change(timers)
        records = self.records.rows
        unlink_timers(timers, records[timers, SLOT].astype(np.int32), self._heads, self._links)
        records[timers, 0] = 0
        self.live -= len(timers)
        self._index.remove(timers)
        self.changes.remove(timers)
        self.changes.bound(self.live)

    def _change(self, timers: Slots) -> None:
        self.records.save(timers)
        self.changes.note(timers, len(self.records.rows))

    def _make_room(self, slot: int) -> None:
        self.records.grow(len(self._index))
        if slot >= len(self._heads):
            heads = np.full(2 * (slot + 1), -1, np.int32)
            heads[: len(self._heads)] = self._heads
            self._heads = heads
        if len(self._index) > len(self._links):
            links = np.empty((2 * len(self._index), 2), np.int32)
            links[: len(self._links)] = self._links
            self._links = links

    def validate(self) -> None:
        """Check that ranges, table and lists agree."""
        alive = np.flatnonzero(self.records.rows[: self.count, 0] < 0)
        assert len(alive) == self.live, f"{len(alive)} timers are registered, counted {self.live}"
        listed: list[int] = []
        for domain, ranges in self._ranges.items():
            timers = ranges.validate(self.records.rows)
            assert (self.records.rows[timers, DOMAIN] == _NUMBERS[domain]).all(), f"a timer is not of {domain}"
            listed += timers
        assert sorted(listed) == alive.tolist(), "the ranges do not list every timer once"
        linked = 0
        for head in self._heads[self._heads >= 0].tolist():
            while head >= 0:
                linked += 1
                head = int(self._links[head, 0])
        assert linked == self.live, f"the slots have {linked} timers, counted {self.live}"


def _keys(slots: Slots, dues: Numbers, domain: TimeDomain) -> Numbers:
    return np.stack([slots.astype(np.int64), dues, np.full(len(slots), _NUMBERS[domain], np.int64)])
