"""What the words of a record are: the fields of each aggregate, the programs that change them, the columns they become.

Word 0 of a record holds flags; each aggregate has its fields in the words behind them, in the order given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.errors import ConfigurationError
from dataflow.expressions import AggregateKind, Aggregation, Expr, compile_expression
from dataflow.expressions.coercion import value_type
from dataflow.state.arrays import fresh_words, from_words, plain
from operators.kernels.instructions import COUNT, EXTREME, MARK, SUM, SUM_FLOAT, SUM_UNSIGNED, TOUCH, WIDTH

__all__ = ["Argument", "Field", "Layout", "ResultColumn"]

_LEAST, _GREATEST = -(2**63), 2**63 - 1
_INFINITY = 0x7FF0000000000000
_MAX_FLAGS = 62

Argument = Callable[[pa.RecordBatch], pa.Array]
Program = list[tuple[npt.NDArray[np.int64], list[int]]]


@dataclass(frozen=True, slots=True)
class Field:
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
        """The word of a record that has seen nothing."""
        return _LEAST if self.operation == EXTREME else 0

    @property
    def stored_type(self) -> pa.DataType:
        """The type of the word in a snapshot."""
        return pa.float64() if self.operation == SUM_FLOAT else pa.int64()


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """One aggregate: its fields, its type, and the flag that says whether it has a value (0: it always has)."""

    name: str
    kind: AggregateKind
    dtype: pa.DataType
    fields: tuple[Field, ...]
    flag: int

    def read(self, records: npt.NDArray[np.int64], always: int) -> pa.Array:
        """The column of gathered records; ``always`` holds the flags that all of them have."""
        first = _words_of(self.fields[0], records)
        if self.kind is AggregateKind.MEAN:
            counts = _words_of(self.fields[1], records)
            first = (first.view(np.float64) / np.maximum(counts, 1)).view(np.int64)
        return from_words(first, self.dtype, None if self.flag & ~always == 0 else _bitmap(self.flag, records))


class Layout:
    """The records of ``aggregations`` over rows of ``schema``; knows no record itself.

    Raises ``SchemaMismatch`` for arguments that cannot be aggregated, ``ConfigurationError`` for too many aggregates.
    """

    def __init__(self, aggregations: Sequence[Aggregation], schema: pa.Schema, where: str) -> None:
        self.arguments: list[Argument] = []
        self.columns = self._lay_out(aggregations, schema, where)
        self.fields = [field for column in self.columns for field in column.fields]
        self.template = np.array([0, *(field.initial for field in self.fields)], np.int64)
        self.operations = np.array([TOUCH, *(field.operation for field in self.fields)], np.int64)
        """The operation of each word, by which two records become one; that of the flags is TOUCH."""
        self._programs: dict[tuple[bool, ...], Program] = {}

    @property
    def width(self) -> int:
        """The words of a record."""
        return len(self.template)

    @property
    def partial_type(self) -> pa.DataType:
        """The type of records that go from one subtask to another."""
        return pa.binary(8 * self.width)

    def name_of(self, word: int) -> str:
        """The aggregate that ``word`` belongs to."""
        return next(c.name for c in self.columns if any(f.word == word for f in c.fields))

    def _lay_out(self, aggregations: Sequence[Aggregation], schema: pa.Schema, where: str) -> list[ResultColumn]:
        """Give every aggregate its words and flag, and collect the arguments, each once."""
        columns: list[ResultColumn] = []
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
            columns.append(ResultColumn(aggregation.name, aggregation.kind, dtype, fields, flag))
        if flags > _MAX_FLAGS:
            raise ConfigurationError(f"{where}: at most {_MAX_FLAGS} aggregates other than counts, got {flags}")
        return columns

    def _argument(self, expression: Expr, kind: AggregateKind, schema: pa.Schema, known: dict[str, int]) -> int:
        """The number of the argument, from 1 on (0 is no argument); equal arguments are evaluated once."""
        as_float = kind is AggregateKind.MEAN
        identity = f"{as_float} {expression.fingerprint()}"
        if identity not in known:
            evaluate = compile_expression(expression, schema)
            self.arguments.append(_as_float(evaluate) if as_float else _as_words(evaluate))
            known[identity] = len(self.arguments)
        return known[identity]

    def program(self, nullable: tuple[bool, ...]) -> Program:
        """The calls of ``fold`` for a batch whose arguments do (True) or do not have nulls: instructions and arguments.

        Aggregates without nulls are marked by the touch itself; each with nulls by an instruction of its own.
        """
        if nullable not in self._programs:
            touch, steps = 1, []
            for column in self.columns:
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


def _fields(aggregation: Aggregation, type_: pa.DataType, word: int, argument: int) -> tuple[Field, ...]:
    name = f"{aggregation.name}.{aggregation.kind.value}"
    match aggregation.kind:
        case AggregateKind.COUNT:
            return (Field(name, COUNT, word, argument),)
        case AggregateKind.MEAN:
            total = Field(f"{name}.sum", SUM_FLOAT, word, argument)
            return total, Field(f"{name}.count", COUNT, word + 1, argument)
        case AggregateKind.SUM:
            operation = SUM_UNSIGNED if pa.types.is_unsigned_integer(type_) else SUM
            operation = SUM_FLOAT if pa.types.is_floating(type_) else operation
            return (Field(name, operation, word, argument),)
        case AggregateKind.MIN | AggregateKind.MAX:
            floating = pa.types.is_floating(type_)
            flip = _LEAST if type_ == pa.uint64() else 0
            return (
                Field(
                    name,
                    EXTREME,
                    word,
                    argument,
                    flip=~flip if aggregation.kind is AggregateKind.MIN else flip,
                    mask=_GREATEST if floating else 0,
                    largest=_INFINITY if floating else _GREATEST,
                ),
            )


def _words_of(field: Field, records: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    from operators.kernels.aggregate import read_words

    out = fresh_words(len(records))
    read_words(records, field.word, field.flip, field.mask, out)
    return out


def _bitmap(flag: int, records: npt.NDArray[np.int64]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(records[:, 0] & flag != 0, bitorder="little"))


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
