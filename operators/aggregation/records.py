"""The state of aggregates: one record of interleaved words a slot, folded by a kernel and read back as Arrow columns.

Interleaving puts everything a row changes into one cache line. Meaning of the aggregates:

- ``count()`` counts rows, ``count`` of a column its values that are not null;
- ``first``, ``last``, ``arg_min`` and ``arg_max`` return the value of a row, null or not, unless nulls are ignored;
- all others skip nulls, and are null if no value is left (``count_distinct``: 0);
- sums of integers and durations raise ``OverflowError`` past 64 bits, of decimals past 38 digits, and never wrap; sums
  of floats add in the order of the rows, and of merged records in the order of the merges;
- NaN is greater than every number, as in DuckDB: ``max`` is NaN if there is one, ``min`` only if there is nothing else;
  of both zeros, either may be the minimum or maximum;
- ``mean`` adds float64s: integers past 2**53 are rounded first;
- ``operators.steps`` describes aggregates with a kernel of their own (``variance``, ``first``, ``arg_min``,
  ``count_distinct``, ``quantile``, ``to_list``, text, decimals, aggregates of users);
- with ``where``, the rows for which it is not true are as if they were null.

Records merge: subtasks with different rows of a key send their records, ``partials``, to the owner of the key. After
``merge``, its record is the record of all rows (except that sums of floats depend on the order of additions).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.expressions import Aggregation, Expr
from dataflow.expressions.aggregates import stored_name
from dataflow.state.arrays import fresh_words, validity
from dataflow.state.columns import FrozenColumns
from dataflow.state.copy_on_write import Readers, RecordRows, Rows
from dataflow.state.index import Slots
from operators.aggregation.arguments import NO_WORDS, argument_words, widest
from operators.aggregation.layout import SHOWN, TOUCHED, RecordLayout
from operators.steps.step import Flags, Step, Sum128Overflow, restore_bit

__all__ = ["Records", "SumOverflow", "is_mergeable", "partial_type", "without_flags"]


class SumOverflow(OverflowError):
    """The sum ``column`` exceeds its ``room`` at row ``row`` of what was folded or read; the caller adds the key."""

    def __init__(self, row: int, column: str, room: str = "64 bits") -> None:
        super().__init__(f"the sum {column!r} does not fit into {room} (at row {row})")
        self.room = room
        self.row = row
        self.column = column


def partial_type(aggregations: Sequence[Aggregation], schema: pa.Schema) -> pa.DataType:
    """Return the type of ``Records.partials``.

    >>> from dataflow.expressions import col, count
    >>> partial_type([count(), col("x").mean()], pa.schema({"x": pa.int32()}))
    FixedSizeBinaryType(fixed_size_binary[32])
    """
    return RecordLayout(aggregations, schema, "aggregate").partial_type


def is_mergeable(aggregations: Sequence[Aggregation], schema: pa.Schema) -> bool:
    """Return whether records of ``aggregations`` over rows of ``schema`` can be merged."""
    return Records(aggregations, schema, "aggregate").mergeable


def without_flags(table: pa.Table) -> pa.Table:
    """Return a stored table of records without its columns of flags, which depend on the operator."""
    return table.drop_columns([name for name in _FLAG_COLUMNS.values() if name in table.column_names])


class Records:
    """One record a slot for ``aggregations`` over rows of ``schema``: the columns of keyed state, or a table by itself.

    ``weight`` is the expression for the weights of signed changes; None: every row is added. ``merged_by`` is a column
    of ``schema`` by which rows are divided over records, if these are merged in another order than that of arrival.
    Slots that a fold or a merge touched are listed in ``touched`` until ``forget_touched`` or ``clear``. ``own`` are
    aggregates of the operator's: see ``RecordLayout``.

    A checkpoint has a boolean column for each of ``flags``, ``TOUCHED`` and ``SHOWN``: those that the operator goes by.
    Then come the columns of aggregates, which are null in records without a value. ``owners`` has the names of the
    columns that each aggregate is read from, by its identity; aggregates with a common group have some in common.

    Raises ``SchemaMismatch`` for arguments that cannot be aggregated: see ``Aggregation.dtype``.
    """

    def __init__(
        self,
        aggregations: Sequence[Aggregation],
        schema: pa.Schema,
        where: str,
        weight: Expr | None = None,
        merged_by: str | None = None,
        own: Sequence[Aggregation] = (),
        flags: Sequence[int] = (),
    ) -> None:
        self._settings = aggregations, schema, where, weight, merged_by, own, flags
        self._layout = RecordLayout(aggregations, schema, where, weight, merged_by, own)
        self._where = where
        self._flags = flags
        columns = [field for column in self._layout.stored for field in column.stored()]
        names = [_FLAG_COLUMNS[flag] for flag in flags]
        self.stored = pa.schema([*[pa.field(name, pa.bool_(), nullable=False) for name in names], *columns])
        self._begin()

    def _begin(self) -> None:
        """Begin with no records."""
        self._touched: Slots = np.empty(0, np.int32)
        self._touches = 0
        self.attach(RecordRows(self.template), Readers())

    def another(self) -> Records:
        """Return empty records of the same aggregates.

        They share the layout if the words of a record are its complete state. To make one costs some 40 us, and windows
        need records for each of them.
        """
        if not self.mergeable:
            return Records(*self._settings)
        made = copy(self)
        made._begin()
        return made

    def attach(self, rows: RecordRows, readers: Readers) -> None:
        """Hold the records in ``rows``, whose further words are not touched."""
        self._records = rows
        self._readers = readers
        self._scratch = np.empty((0, rows.rows.shape[1]), np.int64)

    @property
    def template(self) -> npt.NDArray[np.int64]:
        """A record without rows."""
        return self._layout.template

    @property
    def kernels(self) -> tuple[str, ...]:
        """The modules with the kernels called by all methods but ``merge`` and ``clear``."""
        return self._layout.kernels

    @property
    def types(self) -> list[pa.DataType]:
        """The type of each aggregate's column."""
        return [column.dtype for column in self._layout.columns]

    @property
    def owners(self) -> Mapping[str, Sequence[str]]:
        """The columns of ``stored`` that each aggregate is read from, by its identity."""
        return self._layout.owners

    @cached_property
    def initial(self) -> Mapping[str, object]:
        """The values in ``stored`` of a record without rows; a column that is not named has null."""
        columns = self.freeze().columns(self.template[np.newaxis, : self._layout.width].copy())
        values = {name: column[0].as_py() for name, column in zip(self.stored.names, columns, strict=True)}
        return {name: value for name, value in values.items() if value is not None}

    @cached_property
    def _names(self) -> list[str]:
        return [stored_name(identity) for identity in self._layout.identities]

    @property
    def results(self) -> pa.Schema:
        """The columns in which a checkpoint has rows that ``read`` returned: one for each distinct aggregate."""
        return pa.schema(list(dict(zip(self._names, self.types, strict=True)).items()))

    @property
    def result_owners(self) -> dict[str, list[str]]:
        """The column of each aggregate in ``results``, by its identity."""
        return {identity: [stored_name(identity)] for identity in self.owners}

    def to_results(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """Return columns of ``read`` as those of ``results``."""
        return list(dict(zip(self._names, columns, strict=True)).values())

    def from_results(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """Return columns of ``results`` as those of ``read``."""
        by_name = dict(zip(self.results.names, columns, strict=True))
        return [by_name[name] for name in self._names]

    @property
    def mergeable(self) -> bool:
        """True if ``partials`` and ``merge`` may be called: the words of a record are its complete state."""
        return self._layout.mergeable

    @property
    def goes_by_arrival(self) -> bool:
        """True if rows that are folded need the column ``ARRIVAL`` (``operators.aggregation.layout``)."""
        return self._layout.goes_by_arrival

    def next_arrival(self, slots: Slots) -> int:
        """Return a number that is greater than the ``ARRIVAL`` of all rows in the records of ``slots``."""
        return int(self._records.rows[slots][:, self._layout.arrival_words].max(initial=-1)) + 1

    @property
    def touched(self) -> Slots:
        """The slots touched since the last ``forget_touched``, in order of their first touch: a view."""
        return self._touched[: self._touches]

    def sort_touched(self) -> None:
        """List the touched slots in ascending order, in which memory is read fastest."""
        self._touched[: self._touches].sort()

    def touch(self, slots: Slots) -> Slots:
        """List ``slots`` as touched; return those that were not touched before, in order: a view."""
        from operators.kernels.aggregate import touch

        self._make_touched()
        before = self._touches
        self._touches = touch(self._records.rows, slots, self._touched, before)
        return self._touched[before : self._touches]

    def shown(self, slots: Slots) -> npt.NDArray[np.bool_]:
        """Return whether the row of each slot is shown, according to ``show``."""
        return (self._records.rows[slots, 0] & SHOWN).astype(np.bool_)

    def show(self, slots: Slots, present: npt.NDArray[np.bool_]) -> None:
        """Set whether the row of each slot, each once, is shown."""
        flags = self._records.rows[slots, 0]
        self._records.rows[slots, 0] = np.where(present, flags | SHOWN, flags & ~SHOWN)

    def present(self, slots: Slots) -> npt.NDArray[np.bool_]:
        """Return whether each slot has rows: of signed changes, more that were added than taken back."""
        size = self._layout.size
        if size is None:
            return np.ones(len(slots), np.bool_)
        return size.counts(self._records.rows[slots]) > 0

    def vacant(self, slots: Slots) -> Slots:
        """Return the slots among ``slots`` whose records of signed changes are empty again."""
        if self._layout.size is None:
            return slots[:0]
        return slots[self._layout.vacant(np.ascontiguousarray(self._records.rows[slots]))]

    def forget_touched(self) -> None:
        """Begin a new list of touched slots. Keyed state must know before that their records change."""
        from operators.kernels.aggregate import clear_touched

        clear_touched(self._records.rows, self.touched)
        self._touches = 0

    def clear(self) -> None:
        """Reset the records of the touched slots, and begin a new list of touched slots.

        If ``forget_touched`` was never called, all records are empty again, at a cost by used slots only. Only for
        records that are ``mergeable``.
        """
        from dataflow.state.kernels.keyed import reset_records

        assert self.mergeable, "these records are more than their words"
        reset_records(self._records.rows, self.touched, self.template, self._layout.width, 0)
        self._touches = 0

    def reset(self, slots: Slots) -> None:
        """Reset the records of ``slots``, which stay in the list of touched slots if they are in it.

        Only for records that are ``mergeable``.
        """
        from dataflow.state.kernels.keyed import reset_records

        assert self.mergeable, "these records are more than their words"
        reset_records(self._records.rows, slots, self.template, self._layout.width, 1)

    def fold(self, batch: pa.RecordBatch, slots: Slots, known: int = 0) -> None:
        """Fold row i of ``batch`` into the record of ``slots[i]``; all slots are below ``known``.

        Keyed state has made room for them, so ``known`` is for records by themselves.

        Raises ``SumOverflow``; the batch is then partly folded, so the records must not be used again.
        """
        self.fold_arguments(self.arguments(batch), slots, known)

    def arguments(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the arguments of all aggregates for ``batch``, each once."""
        return self._layout.arguments.evaluated(batch)

    def widest(self, arguments: Sequence[pa.Array]) -> int:
        """Return a bound on the absolute values that ``arguments`` would add to sums of signed integers."""
        return max([widest(arguments[number - 1]) for number in self._layout.signed_sums], default=0)

    def fold_arguments(self, arguments: Sequence[pa.Array], slots: Slots, known: int) -> None:
        """Do as ``fold`` does for the batch that these are the ``arguments`` of."""
        from operators.kernels.aggregate import fold

        self._make_room(known)
        values = [NO_WORDS, *[argument_words(array) for array in arguments]]
        bits = [_NOT_NULL, *[validity(array) for array in arguments]]
        for program, reads in self._layout.program(tuple([len(bitmap) > 0 for bitmap, _ in bits])):
            self._touches, row, word = fold(
                self._records.rows,
                slots,
                program,
                tuple([values[read] for read in reads]),
                tuple([bits[read][0] for read in reads]),
                np.array([bits[read][1] for read in reads], np.int64),
                self._touched,
                self._touches,
            )
            if row >= 0:
                raise SumOverflow(row, self._layout.name_of(word))
        for step in self._layout.steps:
            with _named(step):
                step.fold(self._records, slots, [arguments[number - 1] for number in step.arguments])

    def rows(self, slots: Slots) -> npt.NDArray[np.int64] | None:
        """Return how many rows the record of each slot holds; None if no aggregate counts rows."""
        word = self._layout.rows_word
        return None if word is None else self._records.rows[slots, word]

    def partials(self, slots: Slots) -> pa.FixedSizeBinaryArray:
        """Return a copy of the records of ``slots``, one value a record, for ``merge`` in another subtask."""
        memory = pa.py_buffer(self.copied(slots))
        return pa.Array.from_buffers(self._layout.partial_type, len(slots), [None, memory])

    def copied(self, slots: Slots) -> Rows:
        """Return a copy of the records of ``slots``, one row a record, for ``merge_rows`` and ``read_rows``."""
        from operators.kernels.aggregate import gather_records

        assert self.mergeable, "these records are more than their words"
        records = fresh_words(len(slots) * self._layout.width).reshape(len(slots), self._layout.width)
        gather_records(self._records.rows, slots, records)
        records[:, 0] &= ~(_LIVE | 1)  # clear the bits "has a value" and "touched", which are local
        return records

    def merge(self, partials: pa.Array, slots: Slots, known: int = 0) -> None:
        """Fold record i of ``partials`` into the record of ``slots[i]``, as if its rows came now.

        Slots are below ``known``.

        Raises ``SumOverflow`` with the row of ``partials``; the records must not be used again.
        """
        assert self.mergeable, "these records are more than their words"
        assert partials.type == self._layout.partial_type, (
            f"records of type {partials.type}, expected {self._layout.partial_type}"
        )
        assert len(partials) == len(slots), f"{len(partials)} records for {len(slots)} slots"
        assert partials.null_count == 0, f"{partials.null_count} of {len(partials)} records are null"
        self._make_room(known)
        others = _records_of(partials, self._layout.width)
        self._touches = self._merge(self._records.rows, slots, others, self._touched, self._touches)

    def merge_from(self, others: Records, chosen: Slots | range, slots: Slots, known: int) -> None:
        """Fold record ``chosen[i]`` of ``others`` into the record of ``slots[i]``, as ``merge`` does.

        ``others`` has the same aggregates. A range of records is merged without a copy.
        """
        assert self.mergeable, "these records are more than their words"
        self._make_room(known)
        rows = others._records.rows
        made = rows[chosen.start : chosen.stop] if isinstance(chosen, range) else others.copied(chosen)
        self._touches = self._merge(self._records.rows, slots, made, self._touched, self._touches)

    def merge_rows(self, records: Rows, places: Slots, others: Rows) -> None:
        """Fold row i of ``others`` into row ``places[i]`` of ``records``, in order of i; both are ``copied``.

        They may share memory: a row of ``others`` that was changed by an earlier i is merged as it then is.

        Raises ``SumOverflow`` with the row of ``others``; the rows must not be used again.
        """
        self._merge(records, places, others, np.empty(len(places) + 1, np.int32), 0)
        records[places, 0] &= ~1

    def _merge(self, records: Rows, slots: Slots, others: Rows, touched: Slots, touches: int) -> int:
        from operators.kernels.merging import merge_records

        for step in self._layout.steps:
            with _named(step):
                step.merge(records, slots, others)
        touches, row, word = merge_records(records, slots, others, self._layout.operations, touched, touches)
        if row >= 0:
            raise SumOverflow(row, self._layout.name_of(word))
        return int(touches)

    def replace(self, slots: Slots, partials: pa.Array) -> None:
        """Write record i of ``partials`` over the record of ``slots[i]``, each once, whatever it holds."""
        assert self.mergeable, "these records are more than their words"
        others = _records_of(partials, self._layout.width)
        rows = self._records.rows
        local = rows[slots, 0] & (_LIVE | 1)
        rows[slots, : self._layout.width] = others
        rows[slots, 0] |= local

    def read(self, slots: Slots) -> list[pa.Array]:
        """Return a copy of the aggregates of ``slots``, a column each."""
        from operators.kernels.aggregate import gather_records

        if len(self._scratch) < len(slots):
            self._scratch = np.empty((2 * len(slots), self._layout.width), np.int64)
        records = self._scratch[: len(slots)]
        gather_records(self._records.rows, slots, records)
        return self.read_rows(records)

    def read_rows(self, records: Rows) -> list[pa.Array]:
        """Return the aggregates of ``records``, copies of them as ``copied`` returns, a column each."""
        always = int(np.bitwise_and.reduce(records[:, 0])) if len(records) else 0
        columns = []
        for column in self._layout.columns:
            with _named(column):
                columns.append(column.read(records, always))
        return columns

    def freeze(self) -> FrozenColumns:
        """Return the columns ``stored`` of records frozen now, one row a record."""
        frozen, flags = [column.freeze() for column in self._layout.stored], self._flags

        def columns(records: Rows) -> list[pa.Array]:
            of_records = Flags(records)
            bits = [of_records.column(flag) for flag in flags]
            return [*bits, *[array for each in frozen for array in each.columns(records, of_records)]]

        return FrozenColumns(columns, lambda records: sum([each.text_bytes(records) for each in frozen]))

    def restore(self, records: Rows, slots: Slots, columns: Sequence[pa.Array]) -> None:
        """Restore the columns that ``freeze`` made into empty ``records``; row i is of ``slots[i]``."""
        rest = list(columns)
        for flag in self._flags:
            restore_bit(records, flag, rest.pop(0), _FLAG_COLUMNS[flag])
        for column in self._layout.stored:
            count = len(column.stored())
            column.restore(records, slots, rest[:count])
            del rest[:count]

    def restored(self, slots: Slots) -> None:
        """List the touched ones of all restored ``slots``."""
        self._make_touched()
        touched = slots[self._records.rows[slots, 0] & 1 == 1]
        self._touched[: len(touched)] = touched
        self._touches = len(touched)

    def forget(self, slots: Slots) -> None:
        """Free what the records of ``slots`` refer to."""
        for step in self._layout.steps:
            step.forget(self._records.rows, slots, self._readers)

    def shrink(self) -> None:
        """Give memory back: there are far fewer records now."""
        self._touched = self.touched.copy()
        self._make_touched()
        for step in self._layout.steps:
            step.shrink(self._records)

    def _make_room(self, known: int) -> None:
        self._records.grow(known)
        self._make_touched()

    def _make_touched(self) -> None:
        """Make room to list every slot: the kernel writes one entry more."""
        if len(self._touched) <= len(self._records.rows):
            touched = np.empty(len(self._records.rows) + 1, np.int32)
            touched[: self._touches] = self.touched
            self._touched = touched


_FLAG_COLUMNS = {TOUCHED: "/touched", SHOWN: "/shown"}
"""The columns of a checkpoint for flags of a record."""
_LIVE = -(2**63)
_NOT_NULL = (np.empty(0, np.uint8), 0)


def _records_of(partials: pa.Array, width: int) -> npt.NDArray[np.int64]:
    """Return the words of the records in ``partials``: a view if aligned, else a copy."""
    if not len(partials):
        return np.empty((0, width), np.int64)
    view = np.frombuffer(partials.buffers()[1], np.int64, len(partials) * width, partials.offset * width * 8)
    return (view if view.flags.aligned else view.copy()).reshape(len(partials), width)


@contextmanager
def _named(step: object) -> Iterator[None]:
    try:
        yield
    except Sum128Overflow as error:
        assert isinstance(step, Step), f"{step} sums no decimals"
        room = str(step.dtype) if pa.types.is_decimal(step.dtype) else "64 bits"
        raise SumOverflow(error.row, step.name, room) from None
