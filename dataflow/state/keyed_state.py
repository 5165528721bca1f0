"""Keyed state: one record for each key of a subtask, which can expire, have timers, and be saved as what changed.

Keys have slots (``dataflow.state.keyed``); a slot has a record of 64-bit words (``dataflow.state.columns``). Nothing is
a Python object per key. Writing costs the same whether or not a snapshot is being read: a row is copied when it is
first written after a snapshot (``dataflow.state.copy_on_write``), and listed for the next one
(``dataflow.state.changes``).

>>> state = KeyedState(pa.schema({"user": pa.string()}), pa.schema({"seen": pa.int64()}), ttl=Ttl(10))
>>> def visit(users, times):
...     slots, fresh = state.insert([pa.array(users)], np.array(times), np.array(times))
...     state.write(slots, pa.record_batch({"seen": pa.array(times)}))
...     return fresh.tolist()
>>> visit(["ann", "bob"], [1, 2]), visit(["ann", "bob"], [10, 12])
([True, True], [False, True])
>>> state.expire(20, limit=100), state.live  # ann was last seen at 10
(1, 1)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.errors import CheckpointDamaged
from dataflow.state.arrays import words
from dataflow.state.changes import Changes
from dataflow.state.columns import RecordColumns, WordColumns
from dataflow.state.copy_on_write import Readers, RecordRows
from dataflow.state.index import Slots
from dataflow.state.keyed import KeyIndex, index_kernels
from dataflow.state.parts import LIVE, STAMP, check_columns, is_base, marked, owned, stored_keys, stored_timers
from dataflow.state.timers import TimeDomain, Timers
from dataflow.state.ttl import Ttl

__all__ = ["KeyedState", "Times", "Ttl"]

Times = int | npt.NDArray[np.int64]
"""A time for each row, or one for all; microseconds."""

_LIVE = -(2**63)
_HELD = 1
_FEW = 1 << 16
"""Removed slots that may always wait for a checkpoint."""
_DOMAINS = (TimeDomain.EVENT, TimeDomain.CLOCK)


class KeyedState:
    """The state of one operator in one subtask, by key. Only its task calls it; snapshots are read on other threads.

    Args:
        keys: the key columns: numbers, times, text, binary, decimals, or dictionaries of them. Null, NaN and -0.0 are
            keys as everywhere: null is a key of its own, all NaNs are one, -0.0 is 0.0.
        columns: the state columns, of the same types but dictionaries; or columns that kernels fold into
            (``dataflow.state.columns.RecordColumns``).
        words: 64-bit words of each record for kernels: words 1 to ``words`` of ``records``. They begin as zero.
        ttl: when values expire; None: never.
        expected: the estimated number of keys; it sizes the memory and is no limit.

    A *slot* is the int32 number of a key. It stays valid until its key is deleted or expires, so fetch slots again for
    every batch. Times are microseconds: of event time, or of the clock, but not of both in one state.

    Raises: SchemaMismatch for types that cannot be keys or state; ConfigurationError for too many columns.

    >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({"total": pa.int64()}))
    >>> slots, fresh = state.insert([pa.array([7, 8, 7])])
    >>> slots.tolist(), fresh.tolist(), state.live
    ([0, 1, 0], [True, True, False], 2)
    >>> state.write(slots[:2], pa.record_batch({"total": [70, 80]}))
    >>> state.read(state.find([pa.array([8, 9])])).to_pylist()
    [{'total': 80}, {'total': None}]
    """

    def __init__(
        self,
        keys: pa.Schema,
        columns: pa.Schema | RecordColumns,
        *,
        words: int = 0,
        ttl: Ttl | None = None,
        expected: int = 0,
    ) -> None:
        self._index = KeyIndex(keys, expected)
        self._columns: RecordColumns = WordColumns(columns, words) if isinstance(columns, pa.Schema) else columns
        self._ttl = ttl
        template = self._columns.template
        self._width = len(template)  # without the stamp
        self._stamp = 0 if ttl is None else self._width  # its word
        if ttl is not None:
            template = np.append(template, 0)
        self._readers = Readers()
        self._rows = RecordRows(template, expected)
        self._columns.attach(self._rows, self._readers)
        self._changes = Changes(partial(_release, self._readers, self._index))
        self._timers: Timers | None = None
        self._fired: Slots = np.empty(0, np.int32)  # whose last timer may have fired
        self._sweep = 0
        schema = pa.schema([*self._index.schema, *self._columns.stored])
        stamp = [] if ttl is None else [pa.field(STAMP, pa.int64())]
        live = pa.field(LIVE, pa.bool_())
        self._stored = pa.schema([*schema, *stamp, live])
        timers = [pa.field(name, pa.int64()) for name in ("due", "domain", "sequence")]
        self._stored_timers = pa.schema([*self._index.schema, *timers, live])

    @property
    def kernels(self) -> Sequence[str]:
        """The modules with the kernels that the state calls."""
        timers = "dataflow.state.kernels.timers"
        return (
            *index_kernels(self._index.schema),
            *self._columns.kernels,
            "dataflow.state.kernels.keyed",
            "dataflow.state.kernels.copy_on_write",
            *([timers] if self._timers is not None else []),
        )

    @property
    def live(self) -> int:
        """The number of keys that have a slot; those with an expired value that is not removed yet count."""
        return self._index.live

    @property
    def slots(self) -> Slots:
        """The slots of all keys with a value, in ascending order, expired ones that are not removed yet included."""
        return np.flatnonzero(self.records[:, 0] < 0).astype(np.int32)

    @property
    def stored(self) -> pa.Schema:
        """The columns of a checkpoint: the key's, the state's, and whether the key has a value."""
        return self._stored

    @property
    def records(self) -> npt.NDArray[np.int64]:
        """The records for kernels, one row a slot; valid until the next ``insert``. Call ``touch`` before writing."""
        return self._rows.rows[: len(self._index)]

    def find(self, keys: Sequence[pa.Array], now: Times = 0) -> Slots:
        """Return the slot of each row's key.

        Args:
            keys: the key columns, in the order of the schema.
            now: the time of each row, for values that expire: the greater of row time and watermark.

        Returns: one slot a row; -1: the key has no visible value.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}), ttl=Ttl(10))
        >>> inserted = state.insert([pa.array([1])], 5, 5)
        >>> state.find([pa.array([1, 2])], 14).tolist(), state.find([pa.array([1])], 15).tolist()
        ([0, -1], [-1])
        """
        slots = self._index.find(keys)
        slots[~self.visible(slots, now)] = -1
        return slots

    def visible(self, slots: Slots, now: Times = 0) -> npt.NDArray[np.bool_]:
        """Return whether each slot has a value that is visible at ``now``; -1 has none.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}))
        >>> slots, fresh = state.insert([pa.array([1])])
        >>> state.visible(np.array([0, -1], np.int32)).tolist()
        [True, False]
        """
        from dataflow.state.kernels.keyed import visible_rows

        visible = np.empty(len(slots), np.bool_)
        visible_rows(self._rows.rows, slots, _times(now), self._stamp, self._length, visible)
        return visible

    def insert(
        self, keys: Sequence[pa.Array], now: Times = 0, stamps: Times = 0
    ) -> tuple[Slots, npt.NDArray[np.bool_]]:
        """Return the slot of each row's key, which is about to be written; new keys get a slot and an empty value.

        Args:
            keys: the key columns, in the order of the schema.
            now: the time of each row, for values that expire: the greater of row time and watermark, or the clock.
            stamps: the time at which each row writes its key: its row time, or the clock.

        Returns: one slot a row, valid until the next call, and whether each row found no visible value. Rows are taken
        in order: a row finds what the rows before it wrote. A value that had expired is empty again.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}), ttl=Ttl(10))
        >>> times = np.array([0, 9, 19])
        >>> state.insert([pa.array([1, 1, 1])], times, times)[1].tolist()
        [True, False, True]
        """
        from dataflow.state.kernels.keyed import set_live

        self._readers.settle()
        self._drop_fired()
        slots = self._index.slots(keys)
        self._rows.grow(len(self._index))
        rows = self._index.fresh
        if len(rows):
            self._changes.note_new(slots[rows], len(self._rows.rows))
        if self._ttl is not None or self._timers is not None:
            return slots, self.touch(slots, now, stamps)
        self.change(slots)
        fresh = np.zeros(len(slots), np.bool_)
        if len(rows):
            fresh[rows] = True
            set_live(self._rows.rows, slots[rows])
        return slots, fresh

    def touch(self, slots: Slots, now: Times = 0, stamps: Times = 0) -> npt.NDArray[np.bool_]:
        """Prepare ``slots`` for writing, as ``insert`` does; return whether each row found no visible value.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({"x": pa.int64()}))
        >>> inserted = state.insert([pa.array([1])])
        >>> slots = state.find([pa.array([1])])
        >>> state.touch(slots).tolist()
        [False]
        >>> state.write(slots, pa.record_batch({"x": [5]}))
        """
        from dataflow.state.kernels.keyed import stamp_rows

        self.change(slots)
        fresh = np.empty(len(slots), np.bool_)
        expired = np.empty(len(slots), np.int32)
        count = stamp_rows(
            self._rows.rows, slots, _times(now), _times(stamps), self._stamp, self._length, fresh, expired
        )
        if count:
            self._reset(np.unique(expired[:count]), kept=_LIVE | _HELD)
        return fresh

    def change(self, slots: Slots) -> None:
        """Prepare records of ``slots`` for a change by their owner that is no write of the key.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}), words=1)
        >>> slots, fresh = state.insert([pa.array([1])])
        >>> state.change(slots)
        >>> state.records[slots, 1] = 5
        """
        self._rows.save(slots)
        self._changes.note(slots, len(self._rows.rows))

    def delete(self, slots: Slots) -> None:
        """Remove the keys of ``slots``, with their values and timers.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}))
        >>> slots, fresh = state.insert([pa.array([1, 2])])
        >>> state.delete(slots[:1])
        >>> state.find([pa.array([1, 2])]).tolist(), state.live
        ([-1, 1], 1)
        """
        slots = np.unique(slots)
        if len(slots):
            if self._timers is not None:
                self._timers.cancel_all(slots)
            self.change(slots)
            self._reset(slots, kept=0)
            self._drop_keys(slots)

    def keys(self, slots: Slots | range) -> list[pa.Array]:
        """Return the key columns of ``slots``.

        >>> state = KeyedState(pa.schema({"k": pa.string()}), pa.schema({}))
        >>> slots, fresh = state.insert([pa.array(["a", "b"])])
        >>> state.keys(slots[1:])[0].to_pylist()
        ['b']
        """
        return self._index.keys(slots)

    def read(self, slots: Slots, *names: str) -> pa.RecordBatch:
        """Return the state columns of ``slots``.

        Args:
            slots: the slots, from ``find`` or ``insert``; the columns of slot -1 are null.
            names: the columns; none: all.

        Raises: SchemaMismatch for an unknown column.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({"x": pa.int64(), "y": pa.string()}))
        >>> slots, fresh = state.insert([pa.array([1])])
        >>> state.read(slots, "y").to_pylist()
        [{'y': None}]
        """
        from dataflow.state.kernels.copy_on_write import copy_rows

        records = np.empty((len(slots), self._rows.rows.shape[1]), np.int64)
        copy_rows(self._rows.rows, np.maximum(slots, 0), records)
        records[slots < 0, 0] = 0
        return self._word_columns.read(records, names)

    def write(self, slots: Slots, batch: pa.RecordBatch) -> None:
        """Write state columns, after ``insert`` or ``touch``.

        Args:
            slots: the slot of each row; of several rows with one slot the last counts.
            batch: some or all state columns, by name.

        Raises: SchemaMismatch for an unknown column or another type.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({"y": pa.string()}))
        >>> slots, fresh = state.insert([pa.array([1, 1])])
        >>> state.write(slots, pa.record_batch({"y": ["a", "b"]}))
        >>> state.read(slots[:1]).to_pylist()
        [{'y': 'b'}]
        """
        self._word_columns.write(slots, batch)

    # --- time

    def set_timers(self, slots: Slots, dues: npt.NDArray[np.int64], domain: TimeDomain = TimeDomain.EVENT) -> None:
        """Register a timer for each row. A timer that is registered already stays as it is.

        Args:
            slots: the slot of each row.
            dues: the due time of each row, microseconds; a past one fires with the next ``due``.
            domain: whether they wait for event time or the clock.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}))
        >>> slots, fresh = state.insert([pa.array([1, 2])])
        >>> state.set_timers(slots, np.array([9, 5]))
        >>> dues, slots = state.due(7)
        >>> dues.tolist(), state.keys(slots)[0].to_pylist(), state.next_due()
        ([5], [2], 9)
        """
        if self._timers is None:
            self._timers = Timers(self._readers)
        self._timers.set(slots, np.asarray(dues, np.int64), domain)

    def cancel_timers(self, slots: Slots, dues: npt.NDArray[np.int64], domain: TimeDomain = TimeDomain.EVENT) -> None:
        """Remove timers; rows without a registered timer are skipped.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}))
        >>> slots, fresh = state.insert([pa.array([1])])
        >>> state.set_timers(slots, np.array([9]))
        >>> state.cancel_timers(slots, np.array([9]))
        >>> state.next_due() is None
        True
        """
        if self._timers is not None:
            self._timers.cancel(slots, np.asarray(dues, np.int64), domain)
            self._drop_bare(np.unique(slots))

    def due(
        self, upto: int, domain: TimeDomain = TimeDomain.EVENT, limit: int = 8192
    ) -> tuple[npt.NDArray[np.int64], Slots]:
        """Remove and return timers due at or before ``upto``, in order of due time; ties in order of registration.

        Args:
            upto: the watermark, or the clock.
            domain: which of the two.
            limit: at most so many; call again until none comes.

        Returns: due times and slots. A slot whose value has expired has no ``visible`` value; it stays valid until the
        next call of ``due``, ``expire`` or ``insert``.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}))
        >>> state.due(100)[0].tolist()
        []
        """
        if self._timers is None:
            return np.empty(0, np.int64), np.empty(0, np.int32)
        self._drop_fired()
        dues, slots = self._timers.due(upto, domain, limit)
        self._fired = np.unique(slots)
        return dues, slots

    def next_due(self, domain: TimeDomain = TimeDomain.EVENT) -> int | None:
        """Return the earliest due time, or None if there is no timer.

        >>> KeyedState(pa.schema({"k": pa.int64()}), pa.schema({})).next_due() is None
        True
        """
        return None if self._timers is None else self._timers.next_due(domain)

    def expire(self, now: int, limit: int) -> int:
        """Remove some values that have expired: a bounded part of a sweep that goes on with the next call.

        Args:
            now: the watermark, or the clock.
            limit: the number of slots to look at.

        Returns: the number of values removed. A key with timers stays, without a value, until its last one has fired.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}), ttl=Ttl(10))
        >>> inserted = state.insert([pa.array([1, 2])], np.array([0, 5]), np.array([0, 5]))
        >>> state.expire(10, limit=100), state.live
        (1, 1)
        """
        from dataflow.state.kernels.keyed import find_expired

        self._readers.settle()
        self._drop_fired()
        count = len(self._index)
        if self._ttl is None or not count:
            return 0
        start = self._sweep if self._sweep < count else 0
        self._sweep = stop = min(start + limit, count)
        found = np.empty(stop - start, np.int32)
        expired = found[: find_expired(self._rows.rows, start, stop, self._stamp, self._length, now, found)]
        if len(expired):
            self.change(expired)
            self._reset(expired, kept=0)
            idle = expired if self._timers is None else expired[~self._timers.pending(expired)]
            self._drop_keys(idle)
        return len(expired)

    # --- checkpoints

    def freeze(self, checkpoint: int, since: int | None = None) -> Mapping[str, pa.RecordBatchReader]:
        """Return readers of the state of this moment, to be read on any one thread while the state changes on.

        Args:
            checkpoint: the number of the checkpoint that the readers are for; each call has a higher one.
            since: a checkpoint that is durable: the readers have only what was written or deleted since. None: all.
                If too much was deleted since, they have all as well; each part of a checkpoint says which it is.

        Returns: a reader for each table; the first columns of each are the key's.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}))
        >>> inserted = state.insert([pa.array([1, 2])])
        >>> base = {name: reader.read_all() for name, reader in state.freeze(1).items()}
        >>> state.durable(1)
        >>> state.delete(state.find([pa.array([2])]))
        >>> delta = {name: reader.read_all() for name, reader in state.freeze(2, since=1).items()}
        >>> delta["keys"].to_pylist()
        [{'k': 2, '/live': False}]
        >>> restored = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}))
        >>> restored.restore([base, delta])
        >>> restored.keys(restored.slots)[0].to_pylist()
        [1]
        """
        self._readers.settle()
        delta = self._changes.close(checkpoint, since, len(self._rows.rows))
        known, reading, keys = self._index.known(), self._readers.begin(), len(self._index.schema)
        frozen = self._rows.freeze(len(self._index), None if delta is None else delta.chosen)
        schema, store = marked(self._stored, base=delta is None, keys=keys), self._columns.freeze()
        rows = stored_keys(frozen, delta, known, store, schema, self._stamp, reading)
        tables = {"keys": pa.RecordBatchReader.from_batches(schema, rows)}
        if self._timers is not None:
            records, changes = self._timers.records, self._timers.changes
            delta = changes.close(checkpoint, None if delta is None else since, len(records.rows))
            frozen = records.freeze(self._timers.count, None if delta is None else delta.chosen)
            schema = marked(self._stored_timers, base=delta is None, keys=keys + 2)
            timers = stored_timers(frozen, delta, known, schema, reading)
            tables["timers"] = pa.RecordBatchReader.from_batches(schema, timers)
        return tables

    def durable(self, checkpoint: int) -> None:
        """Take note that ``checkpoint`` exists: later ones may hold what changed since.

        Removed keys keep their memory until then, if they were in an earlier checkpoint.
        """
        self._changes.durable(checkpoint)
        if self._timers is not None:
            self._timers.changes.durable(checkpoint)

    def restore(
        self, parts: Iterable[Mapping[str, pa.Table]], groups: range | None = None, max_groups: int = 1
    ) -> None:
        """Restore what ``freeze`` returned: the last base and the parts after it, in order. The state must be empty.

        Args:
            parts: the tables of each part.
            groups: the key groups of this subtask, of ``max_groups``; rows of others are left out. None: all.
            max_groups: the number of key groups.

        Raises: CheckpointMismatch for other columns; CheckpointDamaged if the first part is no base, or a key occurs
        twice in a part.
        """
        assert not len(self._index), f"restore is for empty state; this one has had {len(self._index)} keys"
        chain = list(parts)
        bases = [i for i, part in enumerate(chain) if "keys" in part and is_base(part["keys"])]
        if chain and not bases:
            raise CheckpointDamaged(f"keyed state has {len(chain)} parts with changes, but the base is missing")
        mine = range(max_groups) if groups is None else groups
        count = len(self._index.schema)
        for part in chain[bases[-1] :] if bases else []:
            if "keys" in part:
                check_columns(part["keys"], self._stored)
                self._restore_keys(owned(part["keys"], count, mine, max_groups))
            if "timers" in part:
                check_columns(part["timers"], self._stored_timers)
                self._restore_timers(owned(part["timers"], count, mine, max_groups))
        self._drop_fired()
        self._columns.restored(self.slots)
        self._changes.begin(len(self._rows.rows))
        if self._timers is not None:
            self._timers.changes.begin(len(self._timers.records.rows))

    def _restore_keys(self, table: pa.Table) -> None:
        """Delete and write the keys of one part."""
        from dataflow.state.kernels.copy_on_write import mark_rows

        empty, count = not len(self._index), len(self._index.schema)
        written, found, marks = 0, 0, np.zeros(0, np.uint8)
        for batch in table.to_batches():
            live = to_numbers(batch.columns[-1])
            if not live.all():
                gone = self._index.find(batch.filter(to_array(~live)).columns[:count])
                self.delete(gone[gone >= 0])
                batch = batch.filter(to_array(live))
            if not batch.num_rows:
                continue
            slots = self._index.slots(batch.columns[:count])
            written += batch.num_rows
            self._rows.grow(len(self._index))
            if not empty:
                marks = np.append(marks, np.zeros(len(self._rows.rows) // 8 + 1 - len(marks), np.uint8))
                found += mark_rows(slots, marks)
                if found != written:
                    break
            self._restore_records(slots, batch.columns[count:-1], empty=empty)
        found = len(self._index) if empty else found
        if found != written:
            raise CheckpointDamaged(f"a part has {written} keys, but only {found} distinct ones: expected each once")

    def _restore_records(self, slots: Slots, columns: list[pa.Array], *, empty: bool) -> None:
        """Write the columns of a batch into the records of ``slots``; the state was ``empty`` before its part."""
        if self._stamp and columns[-1].null_count:
            raise CheckpointDamaged(f"{columns[-1].null_count} keys have no stamp")
        stamps = [words(columns.pop())] if self._stamp else []
        first, last = int(slots[0]), int(slots[-1])
        in_order = empty and last - first == len(slots) - 1
        if in_order:
            records = self._rows.rows[first : last + 1]
        else:
            self._reset(slots, kept=0)  # each once, or the part is damaged
            records = np.empty((len(slots), len(self._rows.template)), np.int64)
            records[:] = self._rows.template
        self._columns.restore(records, slots, columns)
        records[:, 0] |= _LIVE
        if stamps:
            records[:, self._stamp] = stamps[0]
        if not in_order:
            self._rows.rows[slots] = records

    def _restore_timers(self, table: pa.Table) -> None:
        """Cancel and register the timers of one part, in the order of registration."""
        if is_base(table) or self._timers is None:
            self._timers = Timers(self._readers)
        count = len(self._index.schema)
        table = table.take(to_array(np.argsort(to_numbers(table.column(count + 2)), kind="stable")))
        for batch in table.to_batches():
            dues, domains, _, live = [to_numbers(column) for column in batch.columns[count:]]
            gone = self._index.find(batch.columns[:count])
            for number, domain in enumerate(_DOMAINS):
                mine = (domains == number) & ~live & (gone >= 0)
                self._timers.cancel(gone[mine], dues[mine], domain)
            slots = self._index.slots(batch.filter(to_array(live)).columns[:count]).copy()
            self._rows.grow(len(self._index))
            self._fired = np.union1d(self._fired, slots).astype(np.int32)  # some may be cancelled by later parts
            for number, domain in enumerate(_DOMAINS):
                mine = domains[live] == number
                self._timers.set(slots[mine], dues[live][mine], domain)

    def validate(self) -> None:
        """Check what must hold between two calls; for tests. Raises: AssertionError."""
        records = self.records
        kept = self._index.find(self._index.keys(range(len(self._index)))) if len(self._index) else records[:0, 0]
        present = kept == np.arange(len(self._index))
        assert int(present.sum()) == self._index.live, f"{present.sum()} keys are found, counted {self._index.live}"
        with_value = records[:, 0] < 0
        assert not (with_value & ~present).any(), "a removed key has a value"
        bare = np.flatnonzero(present & ~with_value).astype(np.int32)
        if self._timers is not None:
            self._timers.validate()
            idle = bare[~self._timers.pending(bare)]
            assert np.isin(idle, self._fired).all(), f"slots {idle} have neither a value nor a timer"
        else:
            assert not len(bare), f"slots {bare} have no value"

    # --- inner parts

    @property
    def _length(self) -> int:
        return -1 if self._ttl is None else self._ttl.length

    @property
    def _word_columns(self) -> WordColumns:
        if not isinstance(self._columns, WordColumns):
            raise TypeError(f"the columns of this state are read by {type(self._columns).__name__}")
        return self._columns

    def _reset(self, slots: Slots, kept: int) -> None:
        from dataflow.state.kernels.keyed import reset_records

        self._columns.forget(slots)
        reset_records(self._rows.rows, slots, self._rows.template, self._width, kept)

    def _drop_keys(self, slots: Slots) -> None:
        """Remove the keys of ``slots``, each once; their records are empty."""
        if not len(slots):
            return
        self._index.remove(slots)
        self._changes.remove(slots)
        self._fired = self._fired[~np.isin(self._fired, slots)]
        if self._changes.waiting > max(self.live, _FEW):
            self._changes.give_up()
            if self._timers is not None:
                self._timers.changes.give_up()

    def _drop_bare(self, slots: Slots) -> None:
        """Remove the keys among ``slots`` that have neither a value nor a timer."""
        assert self._timers is not None, "keys without a value have timers"
        if len(slots):
            bare = slots[(self._rows.rows[slots, 0] >= 0) & ~self._timers.pending(slots)]
            if len(bare):
                self.change(bare)
                self._drop_keys(bare)

    def _drop_fired(self) -> None:
        """Remove the keys of the last ``due`` that have neither a value nor a timer any more."""
        if len(self._fired):
            fired, self._fired = self._fired, np.empty(0, np.int32)
            self._drop_bare(fired)


def _times(times: Times) -> npt.NDArray[np.int64]:
    return np.full(1, times, np.int64) if isinstance(times, int) else times


def _release(readers: Readers, index: KeyIndex, slots: Slots) -> None:
    """Let new keys have ``slots`` once no snapshot is read. No method, so that state is freed without a collection."""
    readers.defer(partial(index.release, slots))
