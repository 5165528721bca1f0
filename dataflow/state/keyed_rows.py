"""The rows of keys: any number of rows for each slot, in the order of their times and, of equal times, of arrival.

Rows are appended and removed, never changed. A row is a record of a table like that of the keys
(``dataflow.state.copy_on_write``): that makes it part of snapshots. The rows of a slot are a run of numbers
(``dataflow.state.runs``); ranges of times (``dataflow.state.ranges``) say which rows of all slots are the oldest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.errors import CheckpointDamaged, SchemaMismatch
from dataflow.state.arrays import LEAST, Numbers
from dataflow.state.changes import Changes
from dataflow.state.columns import WordColumns
from dataflow.state.copy_on_write import Readers, Reading, RecordRows, Rows
from dataflow.state.free_numbers import FreeNumbers
from dataflow.state.index import MAX_SLOTS, Slots
from dataflow.state.keyed import KnownKeys
from dataflow.state.parts import (
    LIVE_FIELD,
    check_columns,
    check_present,
    in_order,
    marked,
    number_field,
    stored_numbers,
)
from dataflow.state.ranges import SEQUENCE, SLOT, TimeRanges
from dataflow.state.runs import Runs

__all__ = ["ROW_TIME", "KeyedRows"]


TIME = 3
"""The word of a row's record that holds its time."""
ROW_TIME = "/time"
"""The column of a checkpoint with the times of rows."""
WORDS = 3
"""Words of a record before those of the columns."""


class KeyedRows:
    """The rows of one operator's keys. Slots are those of the keys."""

    kernels = ("dataflow.state.kernels.runs",)

    def __init__(self, keys: pa.Schema, schema: pa.Schema, readers: Readers) -> None:
        self.schema = schema
        self._keys = len(keys)
        columns = [field.with_nullable(nullable=True) for field in schema]  # rows that were removed have nulls
        self.stored = pa.schema([*keys, number_field("/sequence"), number_field(ROW_TIME), *columns, LIVE_FIELD])
        self.columns = WordColumns(schema, WORDS)
        self.records = RecordRows(self.columns.template)
        self.columns.attach(self.records, readers)
        self._free = free = FreeNumbers(np.zeros(3, np.int64))
        self.changes = Changes(lambda numbers: readers.defer(lambda: free.release(numbers)))
        self._runs = Runs()
        self._ranges = TimeRanges()
        self._sequence = 0
        self.live = 0

    @property
    def count(self) -> int:
        """The number of rows' numbers that were ever used and still exist."""
        return self._free.used

    def counts(self, slots: Slots) -> Numbers:
        """Return the number of rows of each slot."""
        return self._runs.counts(slots)

    def append(self, slots: Slots, times: Numbers, batch: pa.RecordBatch) -> Slots:
        """Add a row to each slot, and return their numbers.

        Raises: SchemaMismatch unless the batch has the columns of the schema.
        """
        batch = self._checked(batch)
        if not len(slots) == len(times) == batch.num_rows:
            raise ValueError(
                f"{len(slots)} slots, {len(times)} times and {batch.num_rows} rows: expected as many of each"
            )
        if len(slots) and slots.min() < 0:
            raise ValueError(
                "rows are appended to the slots of keys, got slot -1: call insert for keys that may be new"
            )
        sequences = np.arange(self._sequence, self._sequence + len(slots))
        self._sequence += len(slots)
        numbers = self._enter(slots, times, sequences)
        self.columns.write(numbers, batch, distinct=True)
        return numbers

    def between(self, slots: Slots, low: Numbers, high: Numbers) -> tuple[Numbers, Slots]:
        """Return the numbers of the rows of each slot with ``low <= time < high``, and their offsets."""
        return self._runs.between(slots, low, high)

    def count_between(self, slots: Slots, low: Numbers, high: Numbers) -> Numbers:
        """Return how many rows of each slot have ``low <= time < high``."""
        return self._runs.count_between(slots, low, high)

    def last(self, slots: Slots, times: Numbers) -> Slots:
        """Return the number of each slot's last row with a time before ``times``, or -1."""
        return self._runs.last(slots, times)

    def first_time(self) -> int | None:
        """Return the earliest time of a row; None: there are no rows."""
        return self._ranges.first(self.records.rows)

    def slots_of(self, numbers: Slots) -> Slots:
        """Return the slots that have rows ``numbers``, each once."""
        return np.unique(self.records.rows[numbers, SLOT]).astype(np.int32)

    def drop_first(self, slots: Slots, counts: Numbers) -> None:
        """Remove the first rows of slots, each once, which have so many."""
        self._drop(self._runs.take_first(slots, counts))

    def drop_rows(self, numbers: Slots) -> None:
        """Remove rows by their numbers, each once."""
        slots = self.slots_of(numbers)
        self._drop(numbers)
        self._runs.sweep(slots, self.records.rows)

    def of_times(self, low: int, high: int) -> Slots:
        """Return the numbers of the rows of all slots with ``low <= time < high``, in the order of time."""
        return self._ranges.between(low, high, self.records.rows)[:, 2].astype(np.int32)

    def first(self, slots: Slots, times: Numbers) -> Slots:
        """Return the number of each slot's first row with a time of at least ``times``, or -1."""
        return self._runs.first(slots, times)

    def read(self, numbers: Slots, names: Sequence[str]) -> pa.RecordBatch:
        """Return the columns of rows; all columns for no names."""
        from dataflow.state.kernels.copy_on_write import copy_rows

        records = np.empty((len(numbers), len(self.columns.template)), np.int64)
        copy_rows(self.records.rows, numbers, records)
        return self.columns.read(records, names)

    def take_before(self, time: int, slots: Slots | None) -> tuple[Slots, Slots]:
        """Remove the rows before ``time``, of ``slots`` or of all; return their numbers and the slots that had some."""
        if slots is None:
            taken = self._ranges.take(time - 1, self.live, self.records.rows) if time > LEAST else np.empty((0, 3), int)
            slots = np.unique(self.records.rows[taken[:, 2], SLOT]).astype(np.int32)
            numbers = self._runs.take_before(slots, time)
            assert len(numbers) == len(taken), f"{len(taken)} rows are before {time}, their slots have {len(numbers)}"
            self._remove(numbers)
            return numbers, slots
        numbers = self._runs.take_before(slots, time)
        slots = np.unique(self.records.rows[numbers, SLOT]).astype(np.int32)
        self._drop(numbers)
        return numbers, slots

    def drop(self, slots: Slots) -> None:
        """Remove all rows of ``slots``, each once."""
        self._drop(self._runs.take_all(slots))

    def shrink(self, slots: int | None) -> None:
        """Give memory back, if few of many rows exist, or if keys have only ``slots`` slots now; None: as before.

        Call it while no caller keeps the number of a removed row.
        """
        fewer = self._free.is_worth_sorting(self.live) and self._free.sort(self.live)
        if fewer:
            self.records.shrink(self.count)
            self.changes.shrink(self.count)
            self.columns.shrink()
        if fewer or slots is not None:
            self._runs.shrink(slots)

    def freeze(self, checkpoint: int, since: int | None, known: KnownKeys, reading: Reading) -> pa.RecordBatchReader:
        """Return the rows of this moment, or those that were added or removed since checkpoint ``since``."""
        delta = self.changes.close(checkpoint, since, len(self.records.rows))
        frozen = self.records.freeze(self.count, None if delta is None else delta.chosen)
        schema, store = marked(self.stored, base=delta is None, keys=self._keys + 1), self.columns.freeze()
        types = self.schema.types

        def rows(records: Rows, *, live: bool) -> pa.RecordBatch:
            count = len(records)
            order = [to_array(records[:, word].copy()) for word in (SEQUENCE, TIME)]
            columns = store.columns(records)[WORDS:] if live else [pa.nulls(count, type_) for type_ in types]
            keys = known.columns(records[:, SLOT].astype(np.int32))
            return pa.RecordBatch.from_arrays([*keys, *order, *columns, to_array(np.full(count, live))], schema=schema)

        return pa.RecordBatchReader.from_batches(
            schema, stored_numbers(frozen, delta, known, rows, reading, store.text_bytes)
        )

    def restore(self, table: pa.Table, find: Callable[[Sequence[pa.Array]], Slots]) -> None:
        """Remove and add the rows of a part; ``find`` returns the slot of each key, -1 if it has no value."""
        check_columns(table, self.stored)
        gone: list[Slots] = [np.empty(0, np.int32)]
        for batch in table.to_batches():
            batch = batch.filter(to_array(~to_numbers(batch.columns[-1])))
            sequences, times = [to_numbers(column) for column in batch.columns[self._keys : self._keys + 2]]
            numbers = self._runs.find(find(batch.columns[: self._keys]), times, sequences, self.records.rows, SEQUENCE)
            gone.append(numbers[numbers >= 0])
        numbers = np.concatenate(gone)
        if len(np.unique(numbers)) < len(numbers):
            raise CheckpointDamaged(f"a part removes {len(numbers)} rows, some of them twice")
        slots = np.unique(self.records.rows[numbers, SLOT]).astype(np.int32)
        self._drop(numbers)
        self._runs.sweep(slots, self.records.rows)
        for batch in in_order(table, self._keys, self._keys):
            batch = batch.filter(batch.columns[-1])
            check_present(batch.select(range(self._keys + 2, batch.num_columns)), self.schema)
            if batch.num_rows:
                slots = find(batch.columns[: self._keys])
                if (slots < 0).any():
                    raise CheckpointDamaged("rows belong to a key that has no value in this checkpoint")
                self._restore_added(slots, batch.columns[self._keys : -1])

    def _restore_added(self, slots: Slots, columns: Sequence[pa.Array]) -> None:
        sequences, times = to_numbers(columns[0]), to_numbers(columns[1])
        numbers = self._enter(slots, times, sequences)
        records = np.empty((len(slots), len(self.columns.template)), np.int64)
        records[:] = self.columns.template
        self.columns.restore(records, slots, [columns[0], to_array(slots.astype(np.int64)), *columns[1:]])
        records[:, 0] |= LEAST
        self.records.rows[numbers] = records
        self._sequence = max(self._sequence, int(sequences.max()) + 1)

    def validate(self, slots: Slots) -> None:
        """Check that table, runs and ranges agree, and that only ``slots`` have rows."""
        records = self.records.rows[: self.count]
        alive = np.flatnonzero(records[:, 0] < 0)
        assert len(alive) == self.live, f"there are {len(alive)} rows, counted {self.live}"
        assert sorted(self._runs.validate().tolist()) == alive.tolist(), "the runs do not list every row once"
        assert sorted(self._ranges.validate(self.records.rows)) == alive.tolist(), (
            "the ranges do not list every row once"
        )
        assert np.isin(records[alive, SLOT], slots).all(), "a slot without a value has rows"
        assert not len(alive) or records[alive, SEQUENCE].max() < self._sequence, "a sequence number can occur twice"

    def _checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.schema.equals(self.schema):
            return batch
        found = {field.name: field.type for field in batch.schema}
        wanted = {field.name: field.type for field in self.schema}
        if len(found) != len(batch.schema) or found != wanted:
            shown = ({name: str(type_) for name, type_ in each.items()} for each in (wanted, found))
            raise SchemaMismatch("the rows have the columns {}, got {}: select and cast them".format(*shown))
        return batch.select(self.schema.names)

    def _enter(self, slots: Slots, times: Numbers, sequences: Numbers) -> Slots:
        """Return the numbers of new rows, whose columns are still to be written."""
        numbers = self._free.take(len(slots))
        if self.count > MAX_SLOTS:
            raise OverflowError(f"one subtask keeps at most {MAX_SLOTS:,} rows; use more subtasks")
        self.records.grow(self.count)
        self.changes.note_new(numbers, len(self.records.rows))
        self._change(numbers)
        records = self.records.rows
        records[numbers, 0] = LEAST
        records[numbers, SEQUENCE], records[numbers, SLOT], records[numbers, TIME] = sequences, slots, times
        self._runs.add(slots, times, numbers)
        self._ranges.enter(np.stack([times, sequences, numbers.astype(np.int64)], axis=1), records)
        self.live += len(numbers)
        return numbers

    def _drop(self, numbers: Slots) -> None:
        """Remove rows whose entries are still in their ranges."""
        times = self.records.rows[numbers, TIME]
        self._remove(numbers)
        self._ranges.bury(times, self.records.rows)

    def _remove(self, numbers: Slots) -> None:
        if len(numbers):
            self._change(numbers)
            self.records.rows[numbers, 0] = 0
            self.live -= len(numbers)
            self.changes.remove(numbers)
            self.changes.bound(self.live)

    def _change(self, numbers: Slots) -> None:
        self.records.save(numbers)
        self.changes.note(numbers, len(self.records.rows))
