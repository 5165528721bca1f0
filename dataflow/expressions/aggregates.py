"""Aggregates: what can be asked of all rows of a key or a window. Operators and engines implement them.

>>> from dataflow.expressions import col, count
>>> count(), count().name
(count(), 'count')
>>> col("price").max().name, col("price").max().alias("top")
('price_max', col('price').max().alias('top'))
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import pyarrow as pa
from pyarrow import types

from dataflow.errors import SchemaMismatch
from dataflow.expressions.coercion import family, value_type
from dataflow.expressions.nodes import Expr
from dataflow.expressions.text import render_receiver
from dataflow.expressions.typing import resolve

__all__ = ["AggregateKind", "Aggregation", "count"]


class AggregateKind(Enum):
    """The aggregates there are. All but COUNT answer null where no value is left after nulls are put aside."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    MEAN = "mean"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Aggregation:
    """An aggregate of ``argument``; None counts rows.

    An empty ``name`` becomes ``{column}_{kind}``, or the kind's word where there is no column. Like expressions,
    aggregations compare by identity; ``equals`` compares by structure.
    """

    kind: AggregateKind
    argument: Expr | None
    name: str = ""

    def __post_init__(self) -> None:
        if self.argument is None and self.kind is not AggregateKind.COUNT:
            raise ValueError(f"{self.kind.value} needs a column: col(name).{self.kind.value}()")
        if not self.name:
            object.__setattr__(self, "name", self._default_name())

    def _default_name(self) -> str:
        column = None if self.argument is None else self.argument._output_name()
        return self.kind.value if column is None else f"{column}_{self.kind.value}"

    def alias(self, name: str) -> Aggregation:
        """The same aggregate under another name."""
        return replace(self, name=name)

    def columns(self) -> tuple[str, ...]:
        """The columns referenced, in order of first use."""
        return () if self.argument is None else self.argument.columns()

    def dtype(self, schema: pa.Schema, where: str = "aggregate") -> pa.DataType:
        """The type of the result over rows of ``schema``.

        ``count``: int64, of any type. ``sum``: int64, uint64 of unsigned ints, float64 of floats. ``mean``: float64, of
        ints, floats and decimals. ``min`` and ``max``: the argument's type, which is a number, bool, date, time,
        timestamp or duration (of a dictionary: the type of its values). Text, binary and decimals have no ``min``,
        ``max``, and decimals no ``sum``, yet. An integer sum never wraps: it raises OverflowError as soon as the
        running sum leaves its 64 bits, so close to the limits the order of rows may decide whether it does.

        Raises: UnknownColumn; SchemaMismatch where the type has no such aggregate.
        """
        if self.argument is None:
            return pa.int64()
        given = resolve(self.argument, schema, where).dtype
        found = self._result(value_type(given))
        if found is None:
            raise SchemaMismatch(
                f"{where}: {self.kind.value} takes {_TAKES[self.kind]}, but {self.argument} is {given}; where a number "
                "will do .cast(type) it first, else write an operator of your own for stream.apply(...)"
            )
        return found

    def _result(self, given: pa.DataType) -> pa.DataType | None:
        kind = family(given)
        match self.kind:
            case AggregateKind.COUNT:
                return pa.int64()
            case AggregateKind.MEAN:
                return pa.float64() if kind in ("int", "float", "decimal") else None
            case AggregateKind.MIN | AggregateKind.MAX:
                return given if kind in _WORDS or kind.startswith("timestamp") else None
            case AggregateKind.SUM if kind == "int":
                return pa.uint64() if types.is_unsigned_integer(given) else pa.int64()
            case AggregateKind.SUM if kind == "float":
                return pa.float64()
        return None

    def fingerprint(self) -> str:
        """The aggregate as text: equal for equal aggregates, stable between runs and versions."""
        receiver = "" if self.argument is None else f"{render_receiver(self.argument)}."
        alias = "" if self.name == self._default_name() else f".alias({self.name!r})"
        return f"{receiver}{self.kind.value}(){alias}"

    def equals(self, other: Aggregation) -> bool:
        """Whether ``other`` is the same aggregate under the same name."""
        return self.fingerprint() == other.fingerprint()

    def __repr__(self) -> str:
        return self.fingerprint()


_WORDS = ("int", "float", "bool", "date", "time", "duration")
"""The families whose values fit into 64 bits, and with timestamps what ``min`` and ``max`` compare."""
_TAKES = {
    AggregateKind.COUNT: "anything",
    AggregateKind.SUM: "integers or floats",
    AggregateKind.MEAN: "integers, floats or decimals",
    AggregateKind.MIN: "numbers, booleans, dates or times",
    AggregateKind.MAX: "numbers, booleans, dates or times",
}


def count() -> Aggregation:
    """How many rows there are, as int64."""
    return Aggregation(AggregateKind.COUNT, None)
