"""The state of aggregates: one record of interleaved words a slot, folded by a kernel and read back as Arrow columns.

Interleaving puts everything a row changes into one cache line. What each aggregate means:

- ``count()`` counts rows, ``count`` of a column its values that are not null;
- ``first``, ``last``, ``arg_min`` and ``arg_max`` return the value of a row, null or not, unless told to skip nulls;
- all others skip nulls, and are null where no value was left (``count_distinct``: 0);
- sums of integers and durations raise ``OverflowError`` past 64 bits, of decimals past 38 digits, and never wrap; sums
  of floats add in the order of the rows;
- NaN is greater than every number, as in DuckDB: ``max`` is NaN where one came, ``min`` only where nothing else did;
  where both zeros came, either may be the minimum or maximum;
- ``mean`` adds float64s: of integers past 2**53, it is as exact as they are;
- what aggregates with a kernel of their own do (``variance``, ``first``, ``arg_min``, ``count_distinct``, text,
  decimals, aggregates of users) is said in ``operators.steps``.

Records merge: subtasks that saw different rows of a key send their records, ``partials``, to the one that keeps the
key, whose record after ``merge`` is that of all rows (sums of floats but for the order of additions).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.errors import CheckpointMismatch
from dataflow.expressions import Aggregation
from dataflow.state.arrays import fresh_words, is_word, validity, words
from dataflow.state.copy_on_write import CHUNK, CopyOnWriteRows, FrozenRows
from dataflow.state.index import Slots
from operators.layout import Layout
from operators.steps.step import Fold, Step, Store, Sum128Overflow, read_word

__all__ = ["Records", "SumOverflow", "is_mergeable", "partial_type"]

_FIRST = 512


class SumOverflow(OverflowError):
    """The sum ``column`` left its ``room`` at row ``row`` of the batch; the caller knows the key, and says it."""

    def __init__(self, row: int, column: str, room: str = "64 bits") -> None:
        super().__init__(f"the sum {column!r} does not fit into {room} (at row {row} of the batch)")
        self.room = room
        self.row = row
        self.column = column


def partial_type(aggregations: Sequence[Aggregation], schema: pa.Schema, where: str = "aggregate") -> pa.DataType:
    """The type of ``Records.partials``, known before there are rows.

    >>> from dataflow.expressions import col, count
    >>> partial_type([count(), col("x").mean()], pa.schema({"x": pa.int32()}))
    FixedSizeBinaryType(fixed_size_binary[32])
    """
    return Layout(aggregations, schema, where).partial_type


def is_mergeable(aggregations: Sequence[Aggregation], schema: pa.Schema) -> bool:
    """Whether records of ``aggregations`` over rows of ``schema`` can be merged."""
    return Records(aggregations, schema, "aggregate").mergeable


class Records:
    """One record a slot for ``aggregations`` over rows of ``schema``.

    Slots that a fold or a merge touched are listed in ``touched`` until ``forget_touched`` or ``clear``. Raises
    ``SchemaMismatch`` for arguments that cannot be aggregated: see
    ``Aggregation.dtype``.
    """

    def __init__(self, aggregations: Sequence[Aggregation], schema: pa.Schema, where: str) -> None:
        self._layout = Layout(aggregations, schema, where)
        self._where = where
        stored = [field for column in self._layout.columns for field in column.stored()]
        self._stored = pa.schema([pa.field("flags", pa.int64()), *stored])
        self._records = CopyOnWriteRows(self._allocate(_FIRST))
        self._scratch = np.empty((0, self._layout.width), np.int64)
        self._touched: Slots = np.empty(_FIRST + 1, np.int32)
        self._touches = 0

    @property
    def kernels(self) -> tuple[str, ...]:
        """The modules with the kernels that all methods but ``merge`` and ``clear`` call."""
        return self._layout.kernels

    @property
    def types(self) -> list[pa.DataType]:
        """The type of each aggregate's column."""
        return [column.dtype for column in self._layout.columns]

    @property
    def mergeable(self) -> bool:
        """Whether ``partials`` and ``merge`` may be called: whether the words of a record are all there is to know."""
        return self._layout.mergeable

    @property
    def touched(self) -> Slots:
        """The slots touched since the last ``forget_touched``, in order of their first touch: a view."""
        return self._touched[: self._touches]

    def forget_touched(self) -> None:
        """Begin a new list of touched slots."""
        from operators.kernels.aggregate import clear_touched

        self._records.save(self.touched)
        clear_touched(self._records.rows, self.touched)
        self._touches = 0

    def clear(self) -> None:
        """Make the records of the touched slots those of keys without rows, and begin a new list of touched slots.

        Whoever never calls ``forget_touched`` has empty records again, at the cost of the slots that were used. Only
        for records that are ``mergeable``.
        """
        from operators.kernels.merging import reset_records

        assert self.mergeable, "these records are more than their words"
        self._records.save(self.touched)
        reset_records(self._records.rows, self.touched, self._layout.template)
        self._touches = 0

    def fold(self, batch: pa.RecordBatch, slots: Slots, known: int) -> None:
        """Fold row i of ``batch`` into the record of ``slots[i]``; all slots are below ``known``.

        Raises ``SumOverflow``; the records are then partly folded and of no use any more.
        """
        from operators.kernels.aggregate import fold

        self._make_room(known)
        arguments = [argument(batch) for argument in self._layout.arguments]
        values = [_NO_WORDS, *(_argument_words(array) for array in arguments)]
        bits = [_NOT_NULL, *(validity(array) for array in arguments)]
        self._records.save(slots)
        for program, reads in self._layout.program(tuple(len(bitmap) > 0 for bitmap, _ in bits)):
            self._touches, row, instruction = fold(
                self._records.rows,
                slots,
                program,
                tuple(values[read] for read in reads),
                tuple(bits[read][0] for read in reads),
                np.array([bits[read][1] for read in reads], np.int64),
                self._touched,
                self._touches,
            )
            if row >= 0:
                raise SumOverflow(row, self._layout.name_of(int(program[instruction, 1])))
        for step in self._layout.steps:
            with _named(step):
                step.fold(self._records, slots, [arguments[number - 1] for number in step.arguments])

    def rows(self, slots: Slots) -> npt.NDArray[np.int64] | None:
        """How many rows the record of each slot holds; None: none of the aggregates counts them."""
        word = self._layout.rows_word
        return None if word is None else self._records.rows[slots, word]

    def partials(self, slots: Slots) -> pa.FixedSizeBinaryArray:
        """The records of ``slots`` as they are, for ``merge`` elsewhere: one value a record, in memory of its own."""
        from operators.kernels.aggregate import gather_records

        assert self.mergeable, "these records are more than their words"
        memory = fresh_words(len(slots) * self._layout.width)
        records = memory.reshape(len(slots), self._layout.width)
        gather_records(self._records.rows, slots, records)
        records[:, 0] &= ~1  # who touched what stays here
        return pa.Array.from_buffers(self._layout.partial_type, len(slots), [None, pa.py_buffer(memory)])

    def merge(self, partials: pa.Array, slots: Slots, known: int) -> None:
        """Fold record i of ``partials`` into that of ``slots[i]``, as if its rows came now; slots are below ``known``.

        Raises ``SumOverflow`` with the row of ``partials``; the records are then of no use any more.
        """
        from operators.kernels.merging import merge_records

        assert self.mergeable, "these records are more than their words"
        assert partials.type == self._layout.partial_type, (
            f"records of type {partials.type}, expected {self._layout.partial_type}"
        )
        assert len(partials) == len(slots), f"{len(partials)} records for {len(slots)} slots"
        assert partials.null_count == 0, f"{partials.null_count} of {len(partials)} records are null"
        self._make_room(known)
        self._records.save(slots)
        others = _records_of(partials, self._layout.width)
        for step in self._layout.steps:
            with _named(step):
                step.merge(self._records.rows, slots, others)
        self._touches, row, word = merge_records(
            self._records.rows,
            slots,
            others,
            self._layout.operations,
            self._touched,
            self._touches,
        )
        if row >= 0:
            raise SumOverflow(row, self._layout.name_of(word))

    def read(self, slots: Slots) -> list[pa.Array]:
        """The aggregates of ``slots``, a column each, in memory of their own."""
        from operators.kernels.aggregate import gather_records

        if len(self._scratch) < len(slots):
            self._scratch = np.empty((2 * len(slots), self._layout.width), np.int64)
        records = self._scratch[: len(slots)]
        gather_records(self._records.rows, slots, records)
        always = int(np.bitwise_and.reduce(records[:, 0])) if len(slots) else 0
        return [column.read(records, always) for column in self._layout.columns]

    def snapshot(self, known: int) -> pa.RecordBatchReader:
        """The words of the first ``known`` records as they are now, a column each, to be read later on any thread.

        Row i belongs to slot i. No row refers to another: rows can be dropped, and tables of several subtasks joined.
        """
        frozen, stores = self._records.freeze(known), [column.freeze() for column in self._layout.columns]
        return pa.RecordBatchReader.from_batches(self._stored, _stored(frozen, self._stored, stores))

    def restore(self, table: pa.Table) -> None:
        """Take over the records of a snapshot; record i is that of slot i. Touched slots come back in slot order.

        Raises ``CheckpointMismatch`` for a snapshot of other columns.
        """
        _check_stored(table.schema, self._stored, self._where)
        if not table.num_rows:
            return
        self._make_room(table.num_rows)
        records = self._records.rows[: table.num_rows]
        columns = [pa.concat_arrays(column.chunks) for column in table.columns]
        records[:, 0] = words(columns.pop(0))
        for column in self._layout.columns:
            count = len(column.stored())
            column.restore(records, columns[:count])
            del columns[:count]
        touched = np.flatnonzero(records[:, 0] & 1)
        self._touched[: len(touched)] = touched
        self._touches = len(touched)

    def _make_room(self, known: int) -> None:
        held = len(self._records.rows)
        if known >= held:  # one more than needed: the last record is the kernel's
            grown = self._allocate(max(known + 1, 2 * held))
            grown[: held - 1] = self._records.rows[:-1]
            self._records.replace(grown)
            touched = np.empty(len(grown) + 1, np.int32)
            touched[: self._touches] = self.touched
            self._touched = touched

    def _allocate(self, capacity: int) -> npt.NDArray[np.int64]:
        """Fresh records, beginning at a cache line."""
        width = self._layout.width
        memory = np.empty(capacity * width + 8, np.int64)
        skip = -memory.ctypes.data % 64 // 8
        records = memory[skip : skip + capacity * width].reshape(capacity, width)
        filled = min(64, capacity)
        records[:filled] = self._layout.template
        while filled < capacity:  # copies of what is there: numpy spreads one short row slowly
            more = min(filled, capacity - filled)
            records[filled : filled + more] = records[:more]
            filled += more
        return records


_NO_WORDS = np.empty(0, np.int64)
_NOT_NULL = (np.empty(0, np.uint8), 0)


def _records_of(partials: pa.Array, width: int) -> npt.NDArray[np.int64]:
    """The words of the records in ``partials``, a view wherever they are aligned."""
    if not len(partials):
        return np.empty((0, width), np.int64)
    found = np.frombuffer(partials.buffers()[1], np.int64, len(partials) * width, partials.offset * width * 8)
    return (found if found.flags.aligned else found.copy()).reshape(len(partials), width)


@contextmanager
def _named(step: Fold) -> Iterator[None]:
    try:
        yield
    except Sum128Overflow as error:
        assert isinstance(step, Step), f"{step.name} sums no decimals"
        raise SumOverflow(error.row, step.name, str(step.dtype)) from None


def _stored(frozen: FrozenRows, schema: pa.Schema, stores: Sequence[Store]) -> Iterator[pa.RecordBatch]:
    """The rows of a snapshot; on the thread that writes it."""
    start = 0
    for records in frozen.chunks(CHUNK):
        columns = [read_word(records, 0, pa.int64()), *(array for store in stores for array in store(records, start))]
        start += len(records)
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _check_stored(found: pa.Schema, expected: pa.Schema, where: str) -> None:
    if found.types != expected.types:
        differing = [
            f"{theirs.name}: {theirs.type} instead of {ours.name}: {ours.type}"
            for theirs, ours in zip(found, expected, strict=False)
            if theirs.type != ours.type
        ]
        raise CheckpointMismatch(
            f"{where}: the checkpoint's records have {len(found)} columns, this version's {len(expected)}; "
            f"of other types are {differing}: the state cannot be taken over, so start anew or with the version before"
        )


def _argument_words(array: pa.Array) -> npt.NDArray[np.int64]:
    """One word a row; types without words are only ever counted, so only their validity is read."""
    return words(array) if is_word(array.type) else _NO_WORDS
