"""The values of keys: a slot for each key, a record for each slot, and what changed since the last checkpoint.

Keys have slots (``dataflow.state.keyed``); a slot has a record of 64-bit words (``dataflow.state.columns``). Nothing is
a Python object per key. A record is copied when it is first written after a snapshot
(``dataflow.state.copy_on_write``), and listed for the next one (``dataflow.state.changes``).

Bit 0 of word 0 is set while an aggregate still has to emit the key, whose value may not expire then; the sign bit means
that the key has a value. A key without a value has timers, or is about to be removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.errors import CheckpointDamaged
from dataflow.state.arguments import Times, row_times
from dataflow.state.arrays import LEAST, words
from dataflow.state.changes import Changes, Delta
from dataflow.state.columns import RecordColumns
from dataflow.state.copy_on_write import Readers, Reading, RecordRows
from dataflow.state.index import Slots
from dataflow.state.keyed import KeyIndex
from dataflow.state.parts import LIVE_FIELD, STAMP, check_columns, check_present, marked, number_field, stored_keys
from dataflow.state.ttl import Ttl

__all__ = ["KeyedValues"]

_HELD = 1


class KeyedValues:
    """The keys of one operator in one subtask, with their records. See ``KeyedState`` for the arguments.

    Attributes:
        index: the keys.
        records: a record for each slot.
        changes: what changed since the last checkpoint.
        stored: the columns of a checkpoint.
        most: the most slots that there were before some of them ceased to exist; 0: none did.
    """

    def __init__(
        self, keys: pa.Schema, columns: RecordColumns, readers: Readers, *, ttl: Ttl | None, expected: int
    ) -> None:
        self.index = KeyIndex(keys, expected)
        self.columns = columns
        self.length = -1 if ttl is None else ttl.length
        template = columns.template
        self._width = len(template)  # without the stamp
        self.stamp = 0 if ttl is None else self._width  # its word
        if ttl is not None:
            template = np.append(template, 0)
        self._readers = readers
        self.records = RecordRows(template, expected)
        columns.attach(self.records, readers)
        self.changes = Changes(partial(_release, readers, self.index))
        self._sweep = 0
        self.most = 0
        stamp = [] if ttl is None else [number_field(STAMP)]
        self._present = pa.schema([*self.index.schema, *columns.stored, *stamp])
        nullable = [field.with_nullable(nullable=True) for field in self._present]  # keys without a value have nulls
        self.stored = pa.schema([*nullable, LIVE_FIELD])

    def visible(self, slots: Slots, now: Times) -> npt.NDArray[np.bool_]:
        """Return whether each slot has a value that is visible at ``now``; -1 has none."""
        from dataflow.state.kernels.keyed import visible_rows

        visible = np.empty(len(slots), np.bool_)
        now = row_times(now, len(slots), "now")
        visible_rows(self.records.rows, slots, now, self.stamp, self.length, visible)
        return visible

    def enter(self, keys: Sequence[pa.Array]) -> tuple[Slots, Slots]:
        """Return the slot of each row's key, and the rows whose key is new; its record is empty."""
        slots = self.index.slots(keys)
        self.records.grow(len(self.index))
        rows = self.index.fresh
        if len(rows) and self.changes.recording:
            self.changes.note_new(slots[rows], len(self.records.rows))
        return slots, rows

    def set_live(self, slots: Slots, rows: Slots) -> npt.NDArray[np.bool_]:
        """Give the slots of the new ``rows`` a value; return for each row whether it is one of them."""
        from dataflow.state.kernels.keyed import set_live

        fresh = np.zeros(len(slots), np.bool_)
        set_live(self.records.rows, slots, rows, fresh)
        return fresh

    def touch(self, slots: Slots, now: Times, stamps: Times) -> tuple[npt.NDArray[np.bool_], Slots]:
        """Give each slot a value and a stamp; return whether each row found none, and slots whose value had expired."""
        from dataflow.state.kernels.keyed import stamp_rows

        now, stamps = row_times(now, len(slots), "now"), row_times(stamps, len(slots), "stamps")
        self.change(slots)
        fresh = np.empty(len(slots), np.bool_)
        expired = np.empty(len(slots), np.int32)
        records = self.records.rows
        count = stamp_rows(records, slots, now, stamps, self.stamp, self.length, fresh, expired)
        slots = np.unique(expired[:count]) if count else expired[:0]
        self._reset(slots, kept=LEAST | _HELD)
        return fresh, slots

    def change(self, slots: Slots) -> None:
        """Prepare records of ``slots`` for a change."""
        self.records.save(slots)
        self.changes.note(slots, len(self.records.rows))

    def clear(self, slots: Slots) -> None:
        """Remove the values of ``slots``, each once; their keys stay."""
        self.change(slots)
        self._reset(slots, kept=0)

    def expired(self, now: int, limit: int) -> Slots:
        """Return slots whose values have expired, of the next ``limit`` slots of a sweep that never ends."""
        from dataflow.state.kernels.keyed import find_expired

        count = len(self.index)
        start = self._sweep if self._sweep < count else 0
        looked_at = min(limit, count)
        stop = min(start + looked_at, count)
        found, listed = np.empty(looked_at, np.int32), 0
        for first, last in ((start, stop), (0, looked_at - (stop - start))):
            left = found[listed:]
            listed += find_expired(self.records.rows, first, last, self.stamp, self.length, now, left)
            if last > first:
                self._sweep = last
        return found[:listed]

    def bare(self, slots: Slots) -> Slots:
        """Return those of ``slots`` that have no value."""
        return slots[self.records.rows[slots, 0] >= 0]

    def stay_empty(self, slots: Slots) -> None:
        """Record that the keys of ``slots`` stay, because they have timers; their values are cleared."""
        self.changes.note_emptied(slots, len(self.records.rows))

    def remove(self, slots: Slots) -> None:
        """Remove the keys of ``slots``, each once; their records are empty, and listed as changed."""
        self.index.remove(slots)
        self.changes.remove(slots)

    def shrink(self) -> bool:
        """Give memory back if few of many slots are in use; return whether the highest ones do not exist any more."""
        slots = len(self.index)
        if not self.index.shrink():
            return False
        self.most = max(self.most, slots)
        self.records.shrink(len(self.index))
        self.changes.shrink(len(self.index))
        self.columns.shrink()
        return True

    def freeze(self, checkpoint: int, since: int | None, reading: Reading) -> tuple[pa.RecordBatchReader, Delta | None]:
        """Return the rows of a checkpoint, and what they are of: all keys (None), or those that changed."""
        delta = self.changes.close(checkpoint, since, len(self.records.rows))
        frozen = self.records.freeze(len(self.index), None if delta is None else delta.chosen)
        schema = marked(self.stored, base=delta is None, keys=len(self.index.schema))
        rows = stored_keys(frozen, delta, self.index.known(), self.columns.freeze(), schema, self.stamp, reading)
        return pa.RecordBatchReader.from_batches(schema, rows), delta

    def dead_keys(self, table: pa.Table) -> Slots:
        """Return the slots, each once, of the keys that a part of a checkpoint says have no value any more."""
        check_columns(table, self.stored)
        count = len(self.index.schema)
        found = [np.empty(0, np.int32)]
        for batch in table.to_batches():
            live = to_numbers(batch.columns[-1])
            if not live.all():
                found.append(self.index.find(batch.filter(to_array(~live)).columns[:count]))
        slots = np.unique(np.concatenate(found))
        return slots[slots >= 0]

    def restore(self, table: pa.Table) -> None:
        """Write the keys of a part of a checkpoint; those that it says have no value are empty or removed already."""
        from dataflow.state.kernels.copy_on_write import mark_rows

        empty, count = not len(self.index), len(self.index.schema)
        written, found, marks = 0, 0, np.zeros(0, np.uint8)
        if empty:
            self.index.reserve(table.num_rows)
            self.records.grow(table.num_rows)
        for batch in table.to_batches():
            live = to_numbers(batch.columns[-1])
            if not live.all():
                batch = batch.filter(to_array(live))
            if not batch.num_rows:
                continue
            check_present(batch, self._present)
            slots = self.index.slots(batch.columns[:count])
            written += batch.num_rows
            self.records.grow(len(self.index))
            if not empty:
                marks = np.append(marks, np.zeros(len(self.records.rows) // 8 + 1 - len(marks), np.uint8))
                found += mark_rows(slots, marks)
                if found != written:
                    break
            self._restore_records(slots, batch.columns[count:-1], empty=empty)
        found = len(self.index) if empty else found
        if found != written:
            raise CheckpointDamaged(f"a part has {written} keys, but only {found} distinct ones: expected each once")

    def _restore_records(self, slots: Slots, columns: list[pa.Array], *, empty: bool) -> None:
        """Write the columns of a batch into the records of ``slots``; the state was ``empty`` before its part."""
        stamps = [words(columns.pop())] if self.stamp else []
        first, last = int(slots[0]), int(slots[-1])
        in_order = empty and last - first == len(slots) - 1
        if in_order:
            records = self.records.rows[first : last + 1]
        else:
            self._reset(slots, kept=0)  # each once, or the part is damaged
            records = np.empty((len(slots), len(self.records.template)), np.int64)
            records[:] = self.records.template
        self.columns.restore(records, slots, columns)
        records[:, 0] |= LEAST
        if stamps:
            records[:, self.stamp] = stamps[0]
        if not in_order:
            self.records.rows[slots] = records

    def _reset(self, slots: Slots, kept: int) -> None:
        from dataflow.state.kernels.keyed import reset_records

        if len(slots):
            self.columns.forget(slots)
            reset_records(self.records.rows, slots, self.records.template, self._width, kept)


def _release(readers: Readers, index: KeyIndex, slots: Slots) -> None:
    """Let new keys have ``slots`` once no snapshot is read. No method, so that state is freed without a collection."""
    readers.defer(partial(index.release, slots))
