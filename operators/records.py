"""The state of aggregates: one record of interleaved words a slot, folded by a kernel and read back as Arrow columns.

Interleaving puts everything a row changes into one cache line. What each aggregate means:

- ``count()`` counts rows, ``count`` of a column its values that are not null;
- ``sum``, ``min``, ``max`` and ``mean`` skip nulls, and are null where no value was left;
- sums of integers raise ``OverflowError`` past 64 bits, they never wrap; sums of floats add in the order of the rows;
- NaN is greater than every number, as in DuckDB: ``max`` is NaN where one came, ``min`` only where nothing else did;
  where both zeros came, either may be the minimum or maximum;
- ``mean`` adds float64s: of integers past 2**53, it is as exact as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.errors import ConfigurationError
from dataflow.expressions import AggregateKind, Aggregation, Expr, compile_expression
from dataflow.expressions.coercion import value_type
from dataflow.state.arrays import fresh_words, from_words, is_word, plain, validity, words
from dataflow.state.copy_on_write import CHUNK, CopyOnWriteRows, FrozenRows
from dataflow.state.index import Slots
from operators.kernels.instructions import COUNT, EXTREME, MARK, SUM, SUM_FLOAT, SUM_UNSIGNED, TOUCH, WIDTH

__all__ = ["Records", "SumOverflow"]

_LEAST, _GREATEST = -(2**63), 2**63 - 1
_INFINITY = 0x7FF0000000000000
_MAX_FLAGS = 62
_FIRST = 512


class SumOverflow(OverflowError):
    """The sum ``column`` left its 64 bits at row ``row`` of the batch; the caller knows the key, and says it."""

    def __init__(self, row: int, column: str) -> None:
        super().__init__(f"the sum {column!r} does not fit into 64 bits (at row {row} of the batch)")
        self.row = row
        self.column = column


@dataclass(frozen=True, slots=True)
class _Field:
    """One word of a record, and the instruction that changes it. The words are those of the kernel's docstring."""

    name: str
    operation: int
    word: int
    argument: int
    flip: int = 0
    mask: int = 0
    largest: int = _GREATEST

    @property
    def initial(self) -> int:
        return _LEAST if self.operation == EXTREME else 0


@dataclass(frozen=True, slots=True)
class _Column:
    """One aggregate: its fields, its type, and the flag that says whether it has a value (0: it always has)."""

    name: str
    kind: AggregateKind
    dtype: pa.DataType
    fields: tuple[_Field, ...]
    flag: int


Argument = Callable[[pa.RecordBatch], pa.Array]


class Records:
    """One record a slot for ``aggregations`` over rows of ``schema``.

    Slots that a fold touched are listed in ``touched`` until ``forget_touched``. Raises ``SchemaMismatch`` for
    arguments that cannot be aggregated: ``sum`` takes integers and floats, ``mean`` decimals too, ``min`` and ``max``
    everything that fits into a word (numbers, booleans, dates, times, timestamps, durations).
    """

    def __init__(self, aggregations: Sequence[Aggregation], schema: pa.Schema, where: str) -> None:
        self._arguments: list[Argument] = []
        self._columns = self._lay_out(aggregations, schema, where)
        self._fields = [field for column in self._columns for field in column.fields]
        self._template = np.array([0, *(field.initial for field in self._fields)], np.int64)
        self._programs: dict[tuple[bool, ...], list[tuple[npt.NDArray[np.int64], list[int]]]] = {}
        self._records = CopyOnWriteRows(self._allocate(_FIRST))
        self._scratch = np.empty((0, len(self._template)), np.int64)
        self._touched: Slots = np.empty(_FIRST + 1, np.int32)
        self._touches = 0

    @property
    def types(self) -> list[pa.DataType]:
        """The type of each aggregate's column."""
        return [column.dtype for column in self._columns]

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

    def fold(self, batch: pa.RecordBatch, slots: Slots, known: int) -> None:
        """Fold row i of ``batch`` into the record of ``slots[i]``; all slots are below ``known``.

        Raises ``SumOverflow``; the records are then partly folded and of no use any more.
        """
        from operators.kernels.aggregate import fold

        self._make_room(known)
        arguments = [argument(batch) for argument in self._arguments]
        values = [_NO_WORDS, *(_argument_words(array) for array in arguments)]
        bits = [_NOT_NULL, *(validity(array) for array in arguments)]
        self._records.save(slots)
        for program, reads in self._program(tuple(len(bitmap) > 0 for bitmap, _ in bits)):
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
                word = int(program[instruction, 1])
                column = next(c.name for c in self._columns if any(f.word == word for f in c.fields))
                raise SumOverflow(row, column)

    def read(self, slots: Slots) -> list[pa.Array]:
        """The aggregates of ``slots``, a column each, in memory of their own."""
        from operators.kernels.aggregate import gather_records

        if len(self._scratch) < len(slots):
            self._scratch = np.empty((2 * len(slots), len(self._template)), np.int64)
        records = self._scratch[: len(slots)]
        gather_records(self._records.rows, slots, records)
        always = int(np.bitwise_and.reduce(records[:, 0])) if len(slots) else 0
        return [_read(column, records, always) for column in self._columns]

    def snapshot(self, known: int) -> pa.RecordBatchReader:
        """The words of the first ``known`` records as they are now, a column each, to be read later on any thread.

        Row i belongs to slot i. No row refers to another: rows can be dropped, and tables of several subtasks joined.
        """
        stored = [pa.field(field.name, _stored_type(field)) for field in self._fields]
        schema = pa.schema([pa.field("flags", pa.int64()), *stored])
        return pa.RecordBatchReader.from_batches(schema, _stored(self._records.freeze(known), schema))

    def restore(self, table: pa.Table) -> None:
        """Take over the records of a snapshot; record i is that of slot i. Touched slots come back in slot order."""
        self._make_room(table.num_rows)
        records = self._records.rows[: table.num_rows]
        for word, column in enumerate(table.columns):
            records[:, word] = words(pa.concat_arrays(column.chunks)) if table.num_rows else 0
        touched = np.flatnonzero(records[:, 0] & 1)
        self._touched[: len(touched)] = touched
        self._touches = len(touched)

    def _lay_out(self, aggregations: Sequence[Aggregation], schema: pa.Schema, where: str) -> list[_Column]:
        """Give every aggregate its words and flag, and collect the arguments, each once."""
        columns: list[_Column] = []
        known: dict[str, int] = {}
        flags, word = 0, 1
        for aggregation in aggregations:
            dtype, argument, type_ = aggregation.dtype(schema, where), 0, pa.int64()
            if aggregation.argument is not None:
                type_ = value_type(aggregation.argument.dtype(schema, where))
                argument = self._argument(aggregation.argument, aggregation.kind, schema, known)
            flag = 0
            if aggregation.kind is not AggregateKind.COUNT:
                flags += 1
                flag = 1 << flags
            fields = _fields(aggregation, type_, word, argument)
            word += len(fields)
            columns.append(_Column(aggregation.name, aggregation.kind, dtype, fields, flag))
        if flags > _MAX_FLAGS:
            raise ConfigurationError(f"{where}: at most {_MAX_FLAGS} aggregates other than counts, got {flags}")
        return columns

    def _argument(self, expression: Expr, kind: AggregateKind, schema: pa.Schema, known: dict[str, int]) -> int:
        """The number of the argument, from 1 on (0 is no argument); equal arguments are evaluated once."""
        as_float = kind is AggregateKind.MEAN
        identity = f"{as_float} {expression.fingerprint()}"
        if identity not in known:
            evaluate = compile_expression(expression, schema)
            self._arguments.append(_as_float(evaluate) if as_float else _as_words(evaluate))
            known[identity] = len(self._arguments)
        return known[identity]

    def _program(self, nullable: tuple[bool, ...]) -> list[tuple[npt.NDArray[np.int64], list[int]]]:
        """The calls of ``fold`` for a batch whose arguments do (True) or do not have nulls: instructions and arguments.

        Aggregates without nulls are marked by the touch itself; each with nulls by an instruction of its own.
        """
        if nullable not in self._programs:
            touch, steps = 1, []
            for column in self._columns:
                argument = column.fields[0].argument
                if column.flag and nullable[argument]:
                    steps.append((MARK, 0, column.flag, 0, 0, 0, argument))
                else:
                    touch |= column.flag
                steps += [(f.operation, f.word, 0, f.flip, f.mask, f.largest, f.argument) for f in column.fields]
            steps.insert(0, (TOUCH, 0, touch, 0, 0, 0, 0))
            table = np.array(steps, np.int64)
            self._programs[nullable] = [
                (table[i : i + WIDTH].copy(), (table[i : i + WIDTH, 6].tolist() + [0] * WIDTH)[:WIDTH])
                for i in range(0, len(table), WIDTH)
            ]
        return self._programs[nullable]

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
        width = len(self._template)
        memory = np.empty(capacity * width + 8, np.int64)
        skip = -memory.ctypes.data % 64 // 8
        records = memory[skip : skip + capacity * width].reshape(capacity, width)
        records[:] = self._template
        return records


_NO_WORDS = np.empty(0, np.int64)
_NOT_NULL = (np.empty(0, np.uint8), 0)


def _fields(aggregation: Aggregation, type_: pa.DataType, word: int, argument: int) -> tuple[_Field, ...]:
    name = f"{aggregation.name}.{aggregation.kind.value}"
    match aggregation.kind:
        case AggregateKind.COUNT:
            return (_Field(name, COUNT, word, argument),)
        case AggregateKind.MEAN:
            total = _Field(f"{name}.sum", SUM_FLOAT, word, argument)
            return total, _Field(f"{name}.count", COUNT, word + 1, argument)
        case AggregateKind.SUM:
            operation = SUM_UNSIGNED if pa.types.is_unsigned_integer(type_) else SUM
            operation = SUM_FLOAT if pa.types.is_floating(type_) else operation
            return (_Field(name, operation, word, argument),)
        case AggregateKind.MIN | AggregateKind.MAX:
            floating = pa.types.is_floating(type_)
            flip = _LEAST if type_ == pa.uint64() else 0
            return (
                _Field(
                    name,
                    EXTREME,
                    word,
                    argument,
                    flip=~flip if aggregation.kind is AggregateKind.MIN else flip,
                    mask=_GREATEST if floating else 0,
                    largest=_INFINITY if floating else _GREATEST,
                ),
            )


def _read(column: _Column, records: npt.NDArray[np.int64], always: int) -> pa.Array:
    """The column of an aggregate from gathered records; ``always`` holds the flags that all of them have."""
    first = _words_of(column.fields[0], records)
    if column.kind is AggregateKind.MEAN:
        counts = _words_of(column.fields[1], records)
        first = (first.view(np.float64) / np.maximum(counts, 1)).view(np.int64)
    return from_words(first, column.dtype, None if column.flag & ~always == 0 else _bitmap(column.flag, records))


def _words_of(field: _Field, records: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    from operators.kernels.aggregate import read_words

    out = fresh_words(len(records))
    read_words(records, field.word, field.flip, field.mask, out)
    return out


def _bitmap(flag: int, records: npt.NDArray[np.int64]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(records[:, 0] & flag != 0, bitorder="little"))


def _stored(frozen: FrozenRows, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a snapshot, each word a column; on the thread that writes it."""
    from operators.kernels.aggregate import read_words

    for records in frozen.chunks(CHUNK):
        columns = []
        for word, type_ in enumerate(schema.types):
            values = fresh_words(len(records))
            read_words(records, word, 0, 0, values)
            columns.append(from_words(values, type_))
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _stored_type(field: _Field) -> pa.DataType:
    return pa.float64() if field.operation == SUM_FLOAT else pa.int64()


def _as_float(evaluate: Argument) -> Argument:
    def as_float(batch: pa.RecordBatch) -> pa.Array:
        array = _decoded(evaluate(batch))
        return array if array.type == pa.float64() else array.cast(pa.float64(), safe=False)

    return as_float


def _as_words(evaluate: Argument) -> Argument:
    return lambda batch: _decoded(evaluate(batch))


def _decoded(array: pa.Array) -> pa.Array:
    array = plain(array)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _argument_words(array: pa.Array) -> npt.NDArray[np.int64]:
    """One word a row; types without words are only ever counted, so only their validity is read."""
    return words(array) if is_word(array.type) else _NO_WORDS
