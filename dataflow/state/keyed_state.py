"""Keyed state: one record for each key of a subtask, which can expire, have timers, and be saved as what changed.

``dataflow.state.keyed_values`` has the keys and their records, ``dataflow.state.keyed_rows`` any number of rows for
each key, ``dataflow.state.timers`` the timers. Writing costs the same whether or not a snapshot is being read.

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

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.errors import CheckpointDamaged, CheckpointMismatch, ConfigurationError
from dataflow.state.arguments import (
    Times,
    maybe_absent,
    of_keys,
    one_a_row,
    one_time,
    row_numbers,
    row_times,
    with_key,
)
from dataflow.state.arrays import LEAST
from dataflow.state.columns import RecordColumns, WordColumns, check_distinct
from dataflow.state.copy_on_write import Readers
from dataflow.state.index import Slots
from dataflow.state.keyed import index_kernels
from dataflow.state.keyed_rows import KeyedRows
from dataflow.state.keyed_values import KeyedValues
from dataflow.state.parts import is_base, owned
from dataflow.state.timers import TimeDomain, Timers
from dataflow.state.ttl import Ttl

__all__ = ["KeyedState", "Times", "Ttl"]


class KeyedState:
    """The state of one operator in one subtask, by key. Only its task calls it; snapshots are read on other threads.

    Args:
        keys: the key columns: numbers, times, text, binary, decimals, or dictionaries of them. Null, NaN and -0.0 are
            keys as everywhere: null is a key of its own, all NaNs are one, -0.0 is 0.0.
        columns: the state columns, of the same types but dictionaries; or a ``dataflow.state.columns.RecordColumns``,
            whose records are changed directly by *kernels*: functions compiled with numba.
        words: 64-bit words of each record that kernels of yours change directly: words 1 to ``words`` of ``records``.
            They begin as zero.
        rows: the columns of rows, any number for each key (``append``, ``between``, ``drop_before``); the types are
            those of state columns. None: there are none.
        ttl: when values expire; None: never.
        expected: the estimated number of keys; it sizes the memory and is no limit.
        grouped_by: how many of the key columns, the first ones, decide the key group. None: all.

    A *slot* is the int32 number of a key; -1 is that of a key that is not there. Methods that write, and ``keys``,
    refuse -1 and slots whose key is gone. ``delete``, ``cancel_timers`` and ``drop_before`` skip them. For ``visible``,
    ``read`` and ``between``, -1 has no value and no rows. A slot is valid until its key is deleted or expires, or until
    the next ``insert`` if it has no value, so fetch slots again for every batch.

    Times are microseconds: of event time, or of the clock, but not of both in one state. Slots and times may be any
    integers; numpy arrays of int32 and int64 are not converted.

    Rows belong to the value of their key: they go when it is deleted or expires. If the state has rows alone, neither
    columns nor words, a key goes with its last row.

    Raises: SchemaMismatch for types that cannot be keys or state, and for two columns with one name;
    ConfigurationError for too many columns, or a negative number of words.

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
        rows: pa.Schema | None = None,
        ttl: Ttl | None = None,
        expected: int = 0,
        grouped_by: int | None = None,
    ) -> None:
        check_distinct(keys)
        self._grouped_by = len(keys) if grouped_by is None else grouped_by
        self._readers = Readers()
        self._columns: RecordColumns = WordColumns(columns, words) if isinstance(columns, pa.Schema) else columns
        self._values = KeyedValues(keys, self._columns, self._readers, ttl=ttl, expected=expected)
        self._index = self._values.index
        self._rows = None if rows is None else KeyedRows(self._index.schema, rows, self._readers)
        self._has_only_rows = rows is not None and not len(self._columns.stored)
        self._timers: Timers | None = None
        self._fired: Slots = np.empty(0, np.int32)  # whose last timer may have fired, or been cancelled
        self._has_ended = False
        self.dropped_timers = 0
        """Timers that were set after ``end_timers``."""

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
            *([] if self._rows is None else [*self._rows.kernels, *self._rows.columns.kernels]),
        )

    @property
    def live(self) -> int:
        """The number of keys that have a slot; those with an expired value that is not removed yet count."""
        return self._index.live

    @property
    def entries(self) -> int:
        """The number of keys that have a slot, and of their rows."""
        return self.live + (0 if self._rows is None else self._rows.live)

    @property
    def slots(self) -> Slots:
        """The slots of all keys with a value, in ascending order, expired ones that are not removed yet included."""
        return np.flatnonzero(self.records[:, 0] < 0).astype(np.int32)

    def slots_from(self, first: int, limit: int) -> Slots:
        """Return the slots of keys with a value among the ``limit`` slots from ``first`` on, in ascending order."""
        return (np.flatnonzero(self.records[first : first + limit, 0] < 0) + first).astype(np.int32)

    @property
    def stored(self) -> Mapping[str, pa.Schema]:
        """The columns of each table of a checkpoint: keys and values, and if there are some, rows and timers."""
        rows = {} if self._rows is None else {"rows": self._rows.stored}
        return {"keys": self._values.stored, **rows, "timers": Timers.stored_of(self._index.schema)}

    @property
    def records(self) -> npt.NDArray[np.int64]:
        """The records for kernels, one row a slot; valid until the next ``insert``. Call ``touch`` before writing."""
        return self._values.records.rows[: len(self._index)]

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
        slots[~self._values.visible(slots, now)] = -1
        return slots

    def find_beside(self, slots: Slots, column: int) -> tuple[Slots, Slots]:
        """Return the neighbours of ``slots``: the slot whose key has one less in an integer column, and one more.

        Values of this state do not expire, and its keys have several columns.

        Args:
            slots: the slots, from ``find`` or ``insert``; none of their keys is null in ``column``.
            column: the number of the column that differs by one; all others are equal.

        Returns: two slots for each of ``slots``; -1: there is no such key.

        >>> state = KeyedState(pa.schema({"k": pa.string(), "day": pa.int64()}), pa.schema({}))
        >>> slots, fresh = state.insert([pa.array(["a", "a", "b"]), pa.array([1, 2, 3])])
        >>> [found.tolist() for found in state.find_beside(slots, 1)]
        [[-1, 0, -1], [1, -1, -1]]
        """
        assert not self._values.stamp, "values of this state expire"
        assert self._timers is None, "keys with timers may have no value"
        return self._index.beside(with_key(slots, len(self._index)), column)

    def visible(self, slots: Slots, now: Times = 0) -> npt.NDArray[np.bool_]:
        """Return whether each slot has a value that is visible at ``now``; -1 has none.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}))
        >>> slots, fresh = state.insert([pa.array([1])])
        >>> state.visible(np.array([0, -1], np.int32)).tolist()
        [True, False]
        """
        return self._values.visible(self._maybe_absent(slots), now)

    def insert(
        self, keys: Sequence[pa.Array], now: Times = 0, stamps: Times = 0
    ) -> tuple[Slots, npt.NDArray[np.bool_]]:
        """Return the slot of each row's key, which is about to be written; new keys get a slot and an empty value.

        Args:
            keys: the key columns, in the order of the schema.
            now: the time of each row, for values that expire: the greater of row time and watermark, or the clock.
            stamps: the time at which each row writes its key: its row time, or the clock.

        Returns: one slot a row, and whether each row found no visible value. The array of slots is overwritten by the
        next ``insert``; copy it to keep it. Rows are taken in order: a row finds what the rows before it wrote. A value
        that had expired is empty again.

        Raises: SchemaMismatch for other key columns; ValueError for a wrong number of times.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}), ttl=Ttl(10))
        >>> times = np.array([0, 9, 19])
        >>> state.insert([pa.array([1, 1, 1])], times, times)[1].tolist()
        [True, False, True]
        """
        self._settle()
        if self._values.stamp or self._timers is not None:
            count = len(keys[0]) if len(keys) else 0
            now, stamps = row_times(now, count, "now"), row_times(stamps, count, "stamps")
            slots, _ = self._values.enter(keys)
            return slots, self._touch(slots, now, stamps)
        slots, rows = self._values.enter(keys)
        self._values.change(slots)
        return slots, self._values.set_live(slots, rows)

    def add_keys(self, keys: Sequence[pa.Array]) -> tuple[Slots, npt.NDArray[np.bool_]]:
        """Return the slot of each row's key, and whether the key is new; values of known keys are not to be written.

        It is ``insert`` for state whose values do not expire: known keys are not listed as changed.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}))
        >>> state.add_keys([pa.array([1, 2, 1])])[1].tolist(), state.add_keys([pa.array([2, 3])])[1].tolist()
        ([True, True, False], [False, True])
        """
        assert not self._values.stamp, "values of this state expire"
        assert self._timers is None, "keys with timers may have no value"
        self._settle()
        slots, rows = self._values.enter(keys)
        if len(rows):
            self._values.change(slots[rows])
        return slots, self._values.set_live(slots, rows)

    def enter(self, keys: Sequence[pa.Array]) -> Slots:
        """Return the slot of each row's key; a new key gets a slot and no value.

        Use it in the place of ``insert`` if only some of the keys may be written, or get timers. A key that has neither
        a value nor a timer when ``enter`` or ``insert`` is called next is removed. Existing keys are not changed.

        Returns: one slot a row, in memory of their own.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}))
        >>> slots = state.enter([pa.array([1, 2])])
        >>> fresh = state.touch(slots[:1])
        >>> slots = state.enter([pa.array([1])])
        >>> state.live
        1
        """
        self._with_timers()
        self._settle()
        slots, rows = self._values.enter(keys)
        if len(rows):
            self._fired = np.union1d(self._fired, slots[rows]).astype(np.int32)
        return slots.copy()

    def _with_timers(self) -> Timers:
        """Return the timers; from the first call on, keys may have no value."""
        if self._timers is None:
            self._timers = Timers(self._index.schema, self._readers)
        return self._timers

    def clear(self, slots: Slots) -> None:
        """Remove the values of ``slots``, with their rows. A key with timers stays until its last one has fired.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}))
        >>> slots, fresh = state.insert([pa.array([1, 2])])
        >>> state.set_timers(slots[:1], np.array([9]))
        >>> state.clear(slots)
        >>> state.live, state.visible(slots[:1]).tolist()
        (1, [False])
        """
        slots = of_keys(self._maybe_absent(slots))
        self._drop_values(slots[self._values.records.rows[slots, 0] < 0])

    def stamps(self, slots: Slots) -> npt.NDArray[np.int64]:
        """Return the time at which each slot, all with a value, was last written.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}), ttl=Ttl(10))
        >>> state.stamps(state.insert([pa.array([1])], 5, 5)[0]).tolist()
        [5]
        """
        assert self._values.stamp, "values of this state do not expire"
        return np.asarray(self._values.records.rows[self._with_values(slots), self._values.stamp])

    def touch(self, slots: Slots, now: Times = 0, stamps: Times = 0) -> npt.NDArray[np.bool_]:
        """Prepare ``slots`` for ``write`` or ``append``; return whether each row found no visible value.

        Call it before ``write`` for slots from ``find`` or ``due``: it saves the old record for running checkpoints,
        renews the ttl, and empties an expired value. ``insert`` does so itself.

        Raises: ValueError for slots without a key, or a wrong number of times.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({"x": pa.int64()}))
        >>> inserted = state.insert([pa.array([1])])
        >>> slots = state.find([pa.array([1])])
        >>> state.touch(slots).tolist()
        [False]
        >>> state.write(slots, pa.record_batch({"x": [5]}))
        """
        return self._touch(self._of_keys(slots), now, stamps)

    def _touch(self, slots: Slots, now: Times, stamps: Times) -> npt.NDArray[np.bool_]:
        fresh, expired = self._values.touch(slots, now, stamps)
        if self._rows is not None and len(expired):
            self._rows.drop(expired)
        return fresh

    def change(self, slots: Slots) -> None:
        """Prepare records of ``slots`` for a change that does not renew the ttl.

        Call it before changing a record in a way that must not renew its ttl, e.g. clearing a mark. It saves the old
        record for running checkpoints, as ``touch`` does.

        Raises: ValueError for slots without a key.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}), words=1)
        >>> slots, fresh = state.insert([pa.array([1])])
        >>> state.change(slots)
        >>> state.records[slots, 1] = 5
        """
        self._values.change(self._of_keys(slots))

    def delete(self, slots: Slots) -> None:
        """Remove the keys of ``slots``, with their values, rows and timers; slots without a key are skipped.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}))
        >>> slots, fresh = state.insert([pa.array([1, 2])])
        >>> state.delete(slots[:1])
        >>> state.find([pa.array([1, 2])]).tolist(), state.live
        ([-1, 1], 1)
        """
        slots = of_keys(self._maybe_absent(slots))
        slots = slots[self._in_use(slots)]
        if len(slots):
            if self._timers is not None:
                self._timers.cancel_all(slots)
            self._clear(slots)
            self._drop_keys(slots)

    def keys(self, slots: Slots | range) -> list[pa.Array]:
        """Return the key columns of ``slots``.

        Raises: ValueError for slots without a key.

        >>> state = KeyedState(pa.schema({"k": pa.string()}), pa.schema({}))
        >>> slots, fresh = state.insert([pa.array(["a", "b"])])
        >>> state.keys(slots[1:])[0].to_pylist()
        ['b']
        """
        if isinstance(slots, range):
            slots = np.arange(slots.start, slots.stop, slots.step, dtype=np.int32)
        return self._index.keys(self._of_keys(slots))

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

        slots, rows = self._maybe_absent(slots), self._values.records.rows
        records = np.empty((len(slots), rows.shape[1]), np.int64)
        copy_rows(rows, np.maximum(slots, 0), records)
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
        slots = self._with_values(slots)
        if len(slots) != batch.num_rows:
            raise ValueError(f"{len(slots)} slots for {batch.num_rows} rows to write: expected as many of each")
        self._word_columns.write(slots, batch)

    # --- rows

    def append(self, slots: Slots, times: npt.NDArray[np.int64], batch: pa.RecordBatch) -> Slots:
        """Add a row to the key of each slot, after ``insert``.

        Args:
            slots: the slot of each row, perhaps several times.
            times: the time of each row, microseconds, in any order.
            batch: the rows, with the columns ``rows`` of this state.

        Returns: the numbers of the rows (``read_rows``). A row keeps its number until it is removed.

        Raises: SchemaMismatch for other columns; ValueError for slot -1, or unequal lengths.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}), rows=pa.schema({"x": pa.string()}))
        >>> slots, fresh = state.insert([pa.array([7, 8, 7])])
        >>> numbers = state.append(slots, np.array([20, 10, 15]), pa.record_batch({"x": ["a", "b", "c"]}))
        >>> offsets, rows = state.between(state.find([pa.array([7, 8])]), 0, 20)
        >>> offsets.tolist(), rows["x"].to_pylist()
        ([0, 1, 2], ['c', 'b'])
        """
        self._readers.settle()
        slots = self._with_values(slots)
        return self._row_store.append(slots, one_a_row(times, len(slots), "times"), batch)

    def between(
        self, slots: Slots, low: Times, high: Times, *names: str
    ) -> tuple[npt.NDArray[np.int64], pa.RecordBatch]:
        """Return rows with ``low <= time < high``, in the order of time; rows of equal times in the order of arrival.

        Args:
            slots: the slots, from ``find`` or ``insert``; slot -1 has no rows.
            low: the first time, one for all or one for each slot.
            high: the time after the last, likewise.
            names: the columns; none: all.

        Returns: offsets and a batch: the rows of ``slots[i]`` are those from ``offsets[i]`` to ``offsets[i + 1]``.

        Raises: SchemaMismatch for an unknown column.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}), rows=pa.schema({"x": pa.int64()}))
        >>> slots, fresh = state.insert([pa.array([7, 7])])
        >>> numbers = state.append(slots, np.array([2, 1]), pa.record_batch({"x": [20, 10]}))
        >>> state.between(slots, np.array([0, 2]), 9)[0].tolist()
        [0, 2, 3]
        """
        offsets, numbers = self.rows_between(slots, low, high)
        return offsets, self.read_rows(numbers, *names)

    def rows_between(self, slots: Slots, low: Times, high: Times) -> tuple[npt.NDArray[np.int64], Slots]:
        """Return the numbers of the rows that ``between`` reads, and their offsets.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}), rows=pa.schema({"x": pa.int64()}))
        >>> slots, fresh = state.insert([pa.array([7, 7])])
        >>> numbers = state.append(slots, np.array([2, 1]), pa.record_batch({"x": [20, 10]}))
        >>> offsets, numbers = state.rows_between(slots[:1], 0, 9)
        >>> state.read_rows(numbers[1:])["x"].to_pylist()
        [20]
        """
        slots = self._maybe_absent(slots)
        low, high = row_times(low, len(slots), "low"), row_times(high, len(slots), "high")
        return self._row_store.between(slots, low, high)

    def count_rows(self, slots: Slots) -> npt.NDArray[np.int64]:
        """Return the number of rows of each slot; -1 has none.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}), rows=pa.schema({"x": pa.int64()}))
        >>> slots, fresh = state.insert([pa.array([7, 7])])
        >>> numbers = state.append(slots, np.array([2, 1]), pa.record_batch({"x": [20, 10]}))
        >>> state.count_rows(state.find([pa.array([7, 8])])).tolist()
        [2, 0]
        """
        return self._row_store.counts(self._maybe_absent(slots))

    @property
    def all_rows(self) -> Slots:
        """The numbers of all rows, in ascending order."""
        store = self._row_store
        return np.flatnonzero(store.records.rows[: store.count, 0] < 0).astype(np.int32)

    def count_between(self, slots: Slots, low: Times, high: Times) -> npt.NDArray[np.int64]:
        """Return how many rows of each slot have ``low <= time < high``; the arguments are those of ``between``."""
        slots = self._maybe_absent(slots)
        low, high = row_times(low, len(slots), "low"), row_times(high, len(slots), "high")
        return self._row_store.count_between(slots, low, high)

    def first_rows(self, slots: Slots, times: npt.NDArray[np.int64]) -> Slots:
        """Return the number of the first row of each slot with a time of at least ``times``, or -1.

        It is fastest if equal slots are adjacent and their times ascend.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}), rows=pa.schema({"x": pa.int64()}))
        >>> slots, fresh = state.insert([pa.array([7, 7])])
        >>> numbers = state.append(slots, np.array([2, 1]), pa.record_batch({"x": [20, 10]}))
        >>> state.first_rows(slots, np.array([2, 3])).tolist() == [numbers[0], -1]
        True
        """
        slots = self._maybe_absent(slots)
        return self._row_store.first(slots, one_a_row(times, len(slots), "times"))

    def last_rows(self, slots: Slots, times: npt.NDArray[np.int64]) -> Slots:
        """Return the number of the last row of each slot with a time before ``times``, or -1.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}), rows=pa.schema({"x": pa.int64()}))
        >>> slots, fresh = state.insert([pa.array([7, 7])])
        >>> numbers = state.append(slots, np.array([2, 1]), pa.record_batch({"x": [20, 10]}))
        >>> state.last_rows(slots, np.array([1, 3])).tolist() == [-1, numbers[0]]
        True
        """
        slots = self._maybe_absent(slots)
        return self._row_store.last(slots, one_a_row(times, len(slots), "times"))

    def first_time(self) -> int | None:
        """Return the earliest time of a row; None: there are no rows.

        >>> KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}), rows=pa.schema({})).first_time() is None
        True
        """
        return self._row_store.first_time()

    def slots_of_rows(self, numbers: Slots) -> Slots:
        """Return the slots that have rows ``numbers``, each once."""
        return self._row_store.slots_of(row_numbers(numbers, self._row_store.count))

    def rows_of_times(self, low: int, high: int) -> Slots:
        """Return the numbers of the rows of all keys with ``low <= time < high``, in the order of time.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}), rows=pa.schema({"x": pa.int64()}))
        >>> slots, fresh = state.insert([pa.array([7, 8])])
        >>> numbers = state.append(slots, np.array([2, 1]), pa.record_batch({"x": [20, 10]}))
        >>> state.read_rows(state.rows_of_times(1, 3))["x"].to_pylist()
        [10, 20]
        """
        return self._row_store.of_times(one_time(low, "low"), one_time(high, "high"))

    def read_rows(self, numbers: Slots, *names: str) -> pa.RecordBatch:
        """Return the columns of rows by their numbers. No names: all columns.

        Raises: ValueError for numbers that no row has had; SchemaMismatch for an unknown column.
        """
        store = self._row_store
        return store.read(row_numbers(numbers, store.count), names)

    @property
    def row_records(self) -> npt.NDArray[np.int64]:
        """The records of rows by their numbers, with the words of ``dataflow.state.ranges`` and ``keyed_rows.TIME``.

        They are valid until the next ``append``, and only to read.
        """
        return self._row_store.records.rows

    def drop_before(self, time: int, slots: Slots | None = None) -> int:
        """Remove rows with an earlier time, and return how many. If the state has rows alone, keys go with their last.

        Args:
            time: the first time that stays.
            slots: whose rows; None: those of all keys, without a sweep over the others.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}), rows=pa.schema({"x": pa.int64()}))
        >>> slots, fresh = state.insert([pa.array([7, 8])])
        >>> numbers = state.append(slots, np.array([1, 2]), pa.record_batch({"x": [10, 20]}))
        >>> state.drop_before(2), state.live
        (1, 1)
        """
        return len(self.take_before(time, slots))

    def drop_first(self, slots: Slots, counts: npt.NDArray[np.int64]) -> None:
        """Remove the earliest rows of slots. If the state has rows alone, keys go with their last row.

        Args:
            slots: the slots, each once; -1 has no rows.
            counts: how many rows of each; 0 or less: none.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}), rows=pa.schema({"x": pa.int64()}))
        >>> slots, fresh = state.insert([pa.array([7, 7])])
        >>> numbers = state.append(slots, np.array([2, 1]), pa.record_batch({"x": [20, 10]}))
        >>> state.drop_first(slots[:1], np.array([1]))
        >>> state.read_rows(state.all_rows)["x"].to_pylist()
        [20]
        """
        slots, counts = self._maybe_absent(slots), one_a_row(counts, len(slots), "counts")
        chosen = (counts > 0) & (slots >= 0)
        slots, counts = slots[chosen], counts[chosen]
        if not len(slots):
            return
        self._settle()
        self._row_store.drop_first(slots, counts)
        if self._has_only_rows:
            self._drop_values(slots[self._row_store.counts(slots) == 0])

    def drop_rows(self, numbers: Slots) -> None:
        """Remove rows by their numbers, each once. If the state has rows alone, keys go with their last row.

        It looks at all rows of their keys.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}), rows=pa.schema({"x": pa.int64()}))
        >>> slots, fresh = state.insert([pa.array([7, 7])])
        >>> numbers = state.append(slots, np.array([2, 1]), pa.record_batch({"x": [20, 10]}))
        >>> state.drop_rows(numbers[:1])
        >>> state.read_rows(state.all_rows)["x"].to_pylist()
        [10]
        """
        numbers = row_numbers(numbers, self._row_store.count)
        if not len(numbers):
            return
        self._settle()
        slots = self._row_store.slots_of(numbers)
        self._row_store.drop_rows(numbers)
        if self._has_only_rows:
            self._drop_values(slots[self._row_store.counts(slots) == 0])

    def take_before(self, time: int, slots: Slots | None = None) -> Slots:
        """Remove rows as ``drop_before`` does, and return their numbers, which the next ``append`` may use again."""
        time = one_time(time, "time")
        self._settle()
        taken, had = self._row_store.take_before(time, None if slots is None else of_keys(self._maybe_absent(slots)))
        if self._has_only_rows:
            self._drop_values(had[self._row_store.counts(had) == 0])
        return taken

    # --- time

    def set_timers(self, slots: Slots, dues: npt.NDArray[np.int64], domain: TimeDomain = TimeDomain.EVENT) -> None:
        """Register a timer for each row. A timer that is registered already stays as it is.

        Args:
            slots: the slot of each row.
            dues: the due time of each row, microseconds; a past one fires with the next ``due``.
            domain: whether they wait for event time or the clock.

        Raises: ValueError for slots without a key, or a wrong number of due times.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}))
        >>> slots, fresh = state.insert([pa.array([1, 2])])
        >>> state.set_timers(slots, np.array([9, 5]))
        >>> dues, slots = state.due(7)
        >>> dues.tolist(), state.keys(slots)[0].to_pylist(), state.next_due()
        ([5], [2], 9)
        """
        slots = self._of_keys(slots)
        dues = one_a_row(dues, len(slots), "dues")
        _check_domain(domain)
        if self._has_ended:
            self.dropped_timers += len(slots)
            return
        self._with_timers().set(slots, dues, domain)

    def cancel_timers(self, slots: Slots, dues: npt.NDArray[np.int64], domain: TimeDomain = TimeDomain.EVENT) -> None:
        """Remove timers; rows without a registered timer, and slot -1, are skipped. Slots of ``due`` stay valid.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}))
        >>> slots, fresh = state.insert([pa.array([1])])
        >>> state.set_timers(slots, np.array([9]))
        >>> state.cancel_timers(slots, np.array([9]))
        >>> state.next_due() is None
        True
        """
        _check_domain(domain)
        slots = self._maybe_absent(slots)
        dues = one_a_row(dues, len(slots), "dues")
        if self._timers is not None:
            slots = self._timers.cancel(slots, dues, domain)
            bare = self._values.bare(slots[~self._timers.pending(slots)])
            if len(bare):
                self._fired = np.union1d(self._fired, bare).astype(np.int32)

    def due(
        self, upto: int, domain: TimeDomain = TimeDomain.EVENT, limit: int = 8192
    ) -> tuple[npt.NDArray[np.int64], Slots]:
        """Remove and return timers due at or before ``upto``, in order of due time; ties in order of registration.

        Args:
            upto: the watermark, or the clock.
            domain: which of the two.
            limit: at most so many; call again until none comes.

        Returns: due times and slots. A slot whose value has expired has no ``visible`` value; it stays valid until the
        next call of ``due``, ``expire``, ``insert``, ``drop_before`` or ``delete``.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}))
        >>> state.due(100)[0].tolist()
        []
        """
        _check_domain(domain)
        upto = one_time(upto, "upto")
        if self._timers is None:
            return np.empty(0, np.int64), np.empty(0, np.int32)
        self._drop_fired()
        dues, slots = self._timers.due(upto, domain, limit)
        self._fired = np.unique(slots)
        return dues, slots

    def end_timers(self) -> None:
        """Take note that the input has ended: timers set from now on are dropped, and counted in ``dropped_timers``.

        Call it before the timers of event time fire for the last time, so that what they set cannot fire for ever.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}))
        >>> slots, fresh = state.insert([pa.array([1])])
        >>> state.set_timers(slots, np.array([9]))
        >>> state.end_timers()
        >>> while len(slots := state.due(2**63 - 1)[1]):
        ...     state.set_timers(slots, np.full(len(slots), 10))
        >>> state.dropped_timers
        1
        """
        self._has_ended = True

    def next_due(self, domain: TimeDomain = TimeDomain.EVENT) -> int | None:
        """Return the earliest due time, or None if there is no timer.

        >>> KeyedState(pa.schema({"k": pa.int64()}), pa.schema({})).next_due() is None
        True
        """
        _check_domain(domain)
        return None if self._timers is None else self._timers.next_due(domain)

    def expire(self, now: int, limit: int) -> int:
        """Remove some values that have expired: a bounded part of a sweep that the next call continues.

        Args:
            now: the watermark, or the clock.
            limit: the number of slots to look at, those of removed keys included. After the last slot the sweep begins
                again with the first.

        Returns: the number of values removed. A key with timers stays, without a value, until its last one has fired.

        >>> state = KeyedState(pa.schema({"k": pa.int64()}), pa.schema({}), ttl=Ttl(10))
        >>> inserted = state.insert([pa.array([1, 2])], np.array([0, 5]), np.array([0, 5]))
        >>> state.expire(10, limit=100), state.live
        (1, 1)
        """
        now = one_time(now, "now")
        self._settle()
        if not self._values.stamp:
            return 0
        expired = self._values.expired(now, limit)
        self._drop_values(expired)
        return len(expired)

    # --- checkpoints

    def freeze(self, checkpoint: int, since: int | None = None) -> Mapping[str, pa.RecordBatchReader]:
        """Return readers of the state of this moment, to be read on any one thread while the state changes.

        Args:
            checkpoint: the number of the checkpoint that the readers are for; each call has a higher one.
            since: a checkpoint that is durable: the readers have only what was written or deleted since. None: all.
                If too much was deleted since, they have all as well; each part of a checkpoint says which it is.

        Returns: a reader for each table; the first columns of each are the key's.

        Raises: ValueError if ``checkpoint`` is not above the last one, or ``since`` is.

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
        reading, known = self._readers.begin(), self._index.known()
        keys, delta = self._values.freeze(checkpoint, since, reading)
        tables = {"keys": keys}
        for name, part in self._parts().items():
            tables[name] = part.freeze(checkpoint, None if delta is None else since, known, reading)
        own = list(self._index.schema)
        for name, table in tables.items():
            assert list(table.schema)[: len(own)] == own, f"table {name!r} does not begin with the columns of the key"
        return tables

    def durable(self, checkpoint: int) -> None:
        """Take note that ``checkpoint`` exists: later ones may hold what changed since.

        Removed keys keep their memory until then, if they were in an earlier checkpoint.
        """
        self._values.changes.durable(checkpoint)
        for part in self._parts().values():
            part.changes.durable(checkpoint)

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
        always = {"keys"} if self._rows is None else {"keys", "rows"}
        if lacking := [sorted(always - part.keys()) for part in chain if not always <= part.keys()]:
            raise CheckpointDamaged(
                f"{len(lacking)} of {len(chain)} parts of keyed state have no table {lacking[0][0]!r}"
            )
        bases = [i for i, part in enumerate(chain) if is_base(part["keys"])]
        if chain and not bases:
            raise CheckpointDamaged(f"keyed state has {len(chain)} parts with changes, but the base is missing")
        mine = range(max_groups) if groups is None else groups
        count = self._grouped_by
        # Part by part, as they were written. In a part, keys that are gone come first, because a key may have a value
        # again in the same part; then values, and then rows and timers, which find the slots of their keys by these.
        # Keys without a value are dropped after all parts, because a later part may cancel the timer that kept one.
        for part in chain[bases[-1] :] if bases else []:
            table = owned(part["keys"], count, mine, max_groups)
            self._drop_values(self._values.dead_keys(table))
            self._values.restore(table)
            if "rows" in part:
                self._restore_rows(owned(part["rows"], count, mine, max_groups))
            if "timers" in part:
                self._restore_timers(owned(part["timers"], count, mine, max_groups))
        self._drop_fired()
        self._columns.restored(self.slots)
        self._values.changes.begin(len(self._values.records.rows))
        for own in self._parts().values():
            own.changes.begin(len(own.records.rows))

    def _restore_rows(self, table: pa.Table) -> None:
        if self._rows is None:
            raise CheckpointMismatch("the checkpoint's state has rows of keys, this state has none: give rows=")
        if is_base(table):
            self._rows = KeyedRows(self._index.schema, self._rows.schema, self._readers)
        self._rows.restore(table, lambda keys: self.find(keys, LEAST))

    def _restore_timers(self, table: pa.Table) -> None:
        if is_base(table) or self._timers is None:
            self._timers = Timers(self._index.schema, self._readers)
        slots = self._timers.restore(table, self._index, lambda keys: self._values.enter(keys)[0])
        self._fired = np.union1d(self._fired, slots).astype(np.int32)  # some may be cancelled by later parts

    def validate(self) -> None:
        """Check what must hold between two calls; for tests. Raises: AssertionError."""
        records = self.records
        kept = self._index.find(self._index.keys(range(len(self._index)))) if len(self._index) else records[:0, 0]
        present = kept == np.arange(len(self._index))
        assert int(present.sum()) == self._index.live, f"{present.sum()} keys are found, counted {self._index.live}"
        self._values.changes.validate(len(self._index))
        for part in self._parts().values():
            part.changes.validate(part.count)
        with_value = records[:, 0] < 0
        assert not (with_value & ~present).any(), "a removed key has a value"
        bare = np.flatnonzero(present & ~with_value).astype(np.int32)
        if self._rows is not None:
            self._rows.validate(np.flatnonzero(with_value).astype(np.int32))
        if self._timers is not None:
            self._timers.validate()
            idle = bare[~self._timers.pending(bare)]
            assert np.isin(idle, self._fired).all(), f"slots {idle} have neither a value nor a timer"
        else:
            assert not len(bare), f"slots {bare} have no value"

    # --- inner parts

    @property
    def _word_columns(self) -> WordColumns:
        if not isinstance(self._columns, WordColumns):
            raise TypeError(f"the columns of this state are read by {type(self._columns).__name__}")
        return self._columns

    @property
    def _row_store(self) -> KeyedRows:
        if self._rows is None:
            raise ConfigurationError("this keyed state has no rows: give their columns, KeyedState(..., rows=schema)")
        return self._rows

    def _in_use(self, slots: Slots) -> npt.NDArray[np.bool_]:
        """Return which of ``slots`` belong to a key: it has a value or timers, or ``due`` has just returned it."""
        found = self._values.records.rows[slots, 0] < 0
        if self._timers is not None and not found.all():
            found |= self._timers.pending(slots) | np.isin(slots, self._fired)
        return found

    def _maybe_absent(self, slots: Slots) -> Slots:
        """Return ``slots`` as int32 memory, -1 for those that do not exist any more."""
        return maybe_absent(slots, len(self._index), self._values.most)

    def _of_keys(self, slots: Slots) -> Slots:
        """Return ``slots`` as int32 memory. Raises: ValueError unless each belongs to a key."""
        slots = with_key(slots, len(self._index))
        _refuse(slots, self._in_use(slots), "belongs to no key any more: fetch slots again for every batch")
        return slots

    def _with_values(self, slots: Slots) -> Slots:
        """Return ``slots`` as int32 memory. Raises: ValueError unless each has a value, perhaps an expired one."""
        slots = with_key(slots, len(self._index))
        _refuse(slots, self._values.records.rows[slots, 0] < 0, "has no value: call insert or touch first")
        return slots

    def _parts(self) -> dict[str, KeyedRows | Timers]:
        """Return what has changes of its own, beside the keys, by the name of its table."""
        parts = {"rows": self._rows, "timers": self._timers}
        return {name: part for name, part in parts.items() if part is not None}

    def _clear(self, slots: Slots) -> None:
        """Remove the values of ``slots``, each once, with their rows."""
        if self._rows is not None:
            self._rows.drop(slots)
        self._values.clear(slots)

    def _drop_values(self, slots: Slots) -> None:
        """Remove the values of ``slots``, each once, and the keys that have no timers."""
        if len(slots):
            self._clear(slots)
            if self._timers is not None:
                pending = self._timers.pending(slots)
                self._values.stay_empty(slots[pending])
                slots = slots[~pending]
            self._drop_keys(slots)

    def _drop_keys(self, slots: Slots) -> None:
        """Remove the keys of ``slots``, each once; their records are empty."""
        if not len(slots):
            return
        self._values.remove(slots)
        if len(self._fired):
            self._fired = self._fired[~np.isin(self._fired, slots)]
        self._values.changes.bound(self.live)

    def _drop_bare(self, slots: Slots) -> None:
        """Remove the keys among ``slots`` that have neither a value nor a timer."""
        assert self._timers is not None, "keys without a value have timers"
        if len(slots):
            bare = self._values.bare(slots[~self._timers.pending(slots)])
            if len(bare):
                self._values.change(bare)
                self._drop_keys(bare)

    def _settle(self) -> None:
        """Do what waited for a moment at which no caller has slots that are valid."""
        self._readers.settle()
        self._drop_fired()
        slots = len(self._index) if self._values.shrink() else None
        if self._rows is not None:
            self._rows.shrink(slots)
        if self._timers is not None:
            self._timers.shrink(slots)

    def _drop_fired(self) -> None:
        """Remove the keys of the last ``due`` that have neither a value nor a timer any more."""
        if len(self._fired):
            fired, self._fired = self._fired, np.empty(0, np.int32)
            self._drop_bare(fired)


def _refuse(slots: Slots, valid: npt.NDArray[np.bool_], reason: str) -> None:
    if not valid.all():
        raise ValueError(f"slot {slots[~valid][0]} {reason}")


def _check_domain(domain: TimeDomain) -> None:
    if not isinstance(domain, TimeDomain):
        raise TypeError(f"domain is TimeDomain.EVENT or TimeDomain.CLOCK, got {domain!r}")
