"""The layout of a record: the fields of each aggregate, the programs that change them, the columns they become.

Word 0 of a record holds flags; the aggregates' fields follow, in the order given.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.errors import ConfigurationError
from dataflow.expressions import Aggregation, Expr, col
from dataflow.expressions.aggregates import identities, stored_name
from dataflow.expressions.coercion import value_type
from operators.aggregation.arguments import Arguments
from operators.aggregation.kinds import computed
from operators.aggregation.passes import Program, program
from operators.aggregation.word_columns import WordColumn
from operators.kernels.instructions import COUNT, KEEP, SUM
from operators.stateful.columns import ARRIVAL, ROWS
from operators.steps.choice import ChoicePlace, Choosing, ChosenColumn, ChosenRow, ValuePlace
from operators.steps.quantile import QuantileColumn, Quantiles
from operators.steps.signed import Reversible, SignedCount
from operators.steps.signed_values import SignedChoice, SignedChosenColumn, SignedQuantiles
from operators.steps.step import Fold, Rows, Step, StepPlace

__all__ = ["SHOWN", "TOUCHED", "RecordLayout"]

TOUCHED = 1
"""The flag of a record that changed since its row was emitted."""
SHOWN = 1 << 62
"""The flag of a record whose row was emitted as a signed change, and not taken back since."""

_RECORD_KERNELS = ("operators.kernels.aggregate", "dataflow.state.kernels.keyed")
_MAX_FLAGS = 61


class RecordLayout:
    """The layout of records of ``aggregations`` over rows of ``schema``; holds no records itself.

    ``weight`` is the expression for the weights of signed changes, +1 or -1; None: every row is added. ``merged_by``
    is a column of ``schema`` if records are merged in another order than that of arrival. Rows with equal values in it
    are in one record, or are merged by arrival. ``own`` are aggregates of the operator's, which have the first words of
    a record, always a value, and no result; a checkpoint has them under their names.

    In a checkpoint, an aggregate has columns under its identity, and aggregates that share words have columns under
    their group: whatever other aggregates there are, and in which order. Equal aggregates are one.

    Raises ``SchemaMismatch`` for arguments that cannot be aggregated, ``ConfigurationError`` for too many aggregates.
    """

    def __init__(
        self,
        aggregations: Sequence[Aggregation],
        schema: pa.Schema,
        where: str,
        weight: Expr | None = None,
        merged_by: str | None = None,
        own: Sequence[Aggregation] = (),
    ) -> None:
        self._merged_by = merged_by
        if merged_by is not None:
            schema = schema.append(pa.field(ARRIVAL, pa.int64()))
        self.arguments = Arguments(schema)
        """The arguments of all aggregates."""
        self._initial, self._flags = [0], 0
        self._aggregations = aggregations
        self.identities = identities(aggregations)
        """What names each aggregate in a checkpoint: equal ones have one name."""
        self._columns: dict[str, _Column] = {}  # by identity
        self.steps: list[Fold] = []
        self.stored: list[WordColumn | Fold] = []
        """Everything that a checkpoint holds."""
        self._weight = weight
        self.size = None if weight is None else self._row_count()
        """The number of rows of each record of signed changes."""
        for aggregation in own:
            self._own(aggregation, schema, where)
        self.columns = [self._column(*each, schema, where) for each in zip(aggregations, self.identities, strict=True)]
        if self._flags > _MAX_FLAGS:
            raise ConfigurationError(
                f"{where}: at most {_MAX_FLAGS} aggregates other than counts are possible (those that choose the same "
                f"row count once), got {self._flags}"
            )
        self._kernels = tuple(
            name for a in aggregations for expression in a.expressions for name in expression.kernels()
        )
        self.template = np.array(self._initial, np.int64)
        self.operations = np.full(self.width, KEEP, np.int64)
        """The operation that merges each word of two records; KEEP if a step does it."""
        for column in self._word_columns():
            for field in column.fields:
                self.operations[field.word] = field.operation
        counts = [f.word for c in self._word_columns() for f in c.fields if f.operation == COUNT and not f.argument]
        self.rows_word = counts[0] if counts else None
        """The word that counts all rows, if there is one."""
        self.signed_sums = [f.argument for c in self._word_columns() for f in c.fields if f.operation == SUM]
        """The numbers of the arguments that are added up as signed integers."""
        self._programs: dict[tuple[bool, ...], Program] = {}

    @property
    def width(self) -> int:
        """The number of words in a record."""
        return len(self._initial)

    @property
    def kernels(self) -> tuple[str, ...]:
        """The modules with the kernels that fold, read and store these records, without those that merge."""
        return (*_RECORD_KERNELS, *(name for step in self.steps for name in step.kernels), *self._kernels)

    @property
    def mergeable(self) -> bool:
        """True if the words of a record are its complete state."""
        return all(step.mergeable for step in self.steps)

    @property
    def arrival_words(self) -> list[int]:
        """The words with the number of a chosen row by arrival."""
        return [step.arrival for step in self.steps if isinstance(step, ChosenRow) and step.arrival is not None]

    @property
    def goes_by_arrival(self) -> bool:
        """True if rows need the column ``ARRIVAL``, because equal orders of chosen rows are possible in two records."""
        return len(self.arrival_words) > 0

    @property
    def partial_type(self) -> pa.DataType:
        """The type of records sent between subtasks: the words of a record, one after the other."""
        return pa.binary(8 * self.width)

    def name_of(self, word: int) -> str:
        """Return the name of the aggregate that ``word`` belongs to."""
        return next(c.name for c in self._word_columns() if any(f.word == word for f in c.fields))

    @cached_property
    def owners(self) -> dict[str, list[str]]:
        """The columns of a checkpoint that each aggregate is read from, by its identity."""
        return {
            identity: [field.name for field in column.stored()]
            if isinstance(column, WordColumn | Step)
            else list(column.uses)
            for identity, column in self._columns.items()
        }

    def _row_count(self) -> SignedCount:
        place = StepPlace("rows", pa.int64(), len(self._initial), 0, tuple(self._weights()), (), ROWS)
        size = SignedCount(place)
        self._add(size)
        return size

    def _own(self, aggregation: Aggregation, schema: pa.Schema, where: str) -> None:
        """Assign words to an aggregate of the operator's."""
        place = self._place(aggregation, schema, where, 0, aggregation.name)
        make = computed(aggregation).column
        assert make is not None, f"{aggregation} is one of a group"
        self._add(make(aggregation, place))

    def vacant(self, records: Rows) -> npt.NDArray[np.bool_]:
        """Return whether each record of signed changes is as without rows."""
        steps = [step for step in self.steps if isinstance(step, Reversible)]
        return np.logical_and.reduce([step.vacant(records) for step in steps])

    def _word_columns(self) -> list[WordColumn]:
        return [column for column in self.stored if isinstance(column, WordColumn)]

    def _column(self, aggregation: Aggregation, identity: str, schema: pa.Schema, where: str) -> _Column:
        """Return the column of an aggregate; assign words to it, unless an equal one has some."""
        if identity not in self._columns:
            kind = computed(aggregation)
            if kind.column is not None:
                self._columns[identity] = self._single(aggregation, identity, schema, where)
            else:
                group = aggregation.group()
                alike = [a for a in self._aggregations if computed(a).column is None and a.group() == group]
                members = {a.identity(): a for a in alike}
                make = self._quantiles if kind.choosing is None else partial(self._choice, kind.choosing)
                self._columns.update(zip(members, make([*members.values()], schema, where), strict=True))
        return self._columns[identity]

    def _single(self, aggregation: Aggregation, identity: str, schema: pa.Schema, where: str) -> WordColumn | Step:
        """Assign words and a flag to an aggregate that shares none, and collect its arguments, each once."""
        kind = computed(aggregation)
        flag = self._next_flag() if kind.has_flag and self._weight is None else 0
        place = self._place(aggregation, schema, where, flag, stored_name(identity))
        make = kind.column if self._weight is None else kind.signed
        assert make is not None, f"{aggregation} over signed changes"
        column = make(aggregation, place)
        self._add(column)
        return column

    def _place(self, aggregation: Aggregation, schema: pa.Schema, where: str, flag: int, state: str) -> StepPlace:
        """Return the place of an aggregate whose words begin at the end of the record."""
        dtype = aggregation.dtype(schema, where)
        given = [value_type(e.dtype(schema, where)) for e in (aggregation.argument, aggregation.by) if e is not None]
        numbers = [*self._numbers(aggregation, given), *self._weights()]
        return StepPlace(aggregation.name, dtype, len(self._initial), flag, tuple(numbers), tuple(given), state)

    def _numbers(self, aggregation: Aggregation, given: Sequence[pa.DataType]) -> list[int]:
        """Return the numbers of an aggregate's arguments. Rows that its predicate leaves out are null in the first."""
        argument, by, where = aggregation.argument, aggregation.by, aggregation.where
        if argument is None:  # count the rows where the predicate is true
            return [] if where is None else [self.arguments.number(where, None, where)]
        if computed(aggregation).takes_nulls:
            expressions = [argument, *aggregation.more, *([] if by is None else [by])]
            return [*[self.arguments.number(e) for e in expressions], *self.arguments.counted(where)]
        return [self.arguments.number(argument, computed(aggregation).takes(aggregation, given[0]), where)]

    def _choice(
        self, choosing: Choosing, members: Sequence[Aggregation], schema: pa.Schema, where: str
    ) -> Sequence[_Chosen]:
        """Make one choice for all aggregates that choose the same row; return its columns, in their order."""
        places = [
            ValuePlace(a.name, a.dtype(schema, where), self.arguments.number(a.argument), stored_name(a.identity()))
            for a in members
            if a.argument is not None
        ]
        by, order, predicate, state = members[0].by, None, members[0].where, stored_name(members[0].group())
        if by is not None:
            order = self.arguments.number(by), value_type(by.dtype(schema, where))
        counted = self.arguments.counted(predicate)
        if members[0].ignore_nulls:
            assert members[0].argument is not None, f"{members[0]} has no column"
            counted = [self.arguments.number(members[0].argument, None, predicate)]
        rows = counted[0] if counted else None
        if self._weight is not None:
            assert order is not None, f"{members[0]} of signed changes has no order"
            (weight,) = self._weights()
            place = ChoicePlace(len(self._initial), 0, state)
            signed = SignedChoice(choosing, place, places, order, rows, weight)
            self._add(signed)
            return signed.columns
        arrival = self._arrival(by)
        place = ChoicePlace(len(self._initial), self._next_flag(), state)
        choice = ChosenRow(choosing, place, places, order, counted=rows, arrival=arrival)
        self._add(choice)
        return choice.columns

    def _arrival(self, by: Expr | None) -> int | None:
        """Return the number of the argument with the arrival of rows; None: equal ``by`` are in one record."""
        if self._merged_by is None or (by is not None and by.is_column(self._merged_by)):
            return None
        return self.arguments.number(col(ARRIVAL))

    def _quantiles(self, members: Sequence[Aggregation], schema: pa.Schema, where: str) -> Sequence[QuantileColumn]:
        """Make one place for the values of all quantiles of them; return its columns, in their order."""
        dtype, argument = members[0].dtype(schema, where), members[0].argument
        assert argument is not None, f"{members[0]} has no column"
        target = None if pa.types.is_duration(dtype) else dtype
        number = self.arguments.number(argument, target, members[0].where)
        columns = [(a.name, a.q) for a in members if a.q is not None]
        word, weights = len(self._initial), self._weights()
        kind = SignedQuantiles if weights else Quantiles
        quantiles = kind(dtype, word, number, columns, stored_name(members[0].group()), *weights)
        self._add(quantiles)
        return quantiles.columns

    def _add(self, column: WordColumn | Fold) -> None:
        """Give ``column`` its words, which begin at the end of the record."""
        self._initial += column.initial
        self.stored.append(column)
        if isinstance(column, Fold):
            self.steps.append(column)

    def _weights(self) -> list[int]:
        """Return the number of the argument with the weights of signed changes; none: every row is added."""
        return [] if self._weight is None else [self.arguments.number(self._weight)]

    def _next_flag(self) -> int:
        self._flags += 1
        return 1 << self._flags

    def program(self, nullable: tuple[bool, ...]) -> Program:
        """Return the calls of ``fold``; ``nullable``: which arguments have nulls."""
        if nullable not in self._programs:
            self._programs[nullable] = program(
                [(column.flag, column.fields) for column in self._word_columns()], nullable
            )
        return self._programs[nullable]


_Chosen = ChosenColumn | SignedChosenColumn
_Column = WordColumn | Step | _Chosen | QuantileColumn
"""The columns of a layout: words, or a result with its own place, or one of several with a common place."""
