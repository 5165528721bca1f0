"""Aggregates over all rows of a key or a window: their declarations. Operators and engines implement them.

>>> from dataflow.expressions import col, count
>>> count(), count().name
(count(), 'count')
>>> col("price").max().name, col("price").max().alias("top")
('price_max', col('price').max().alias('top'))
>>> col("bidder").arg_max("price")
col('bidder').arg_max(col('price'), ignore_nulls=False)

>>> count(where=col("price") > 100)
count(where=col('price') > 100)

The state of ``count_distinct``, ``quantile``, ``to_list`` and ``aggregate_python``, and of values that are text, binary
or decimals, does not merge: such rows are not aggregated before the shuffle by key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final

import pyarrow as pa
from pyarrow import types

from dataflow.errors import SchemaMismatch
from dataflow.expressions.aggregate_kinds import KINDS, AggregateKind, Kind, is_value, is_word, kernel_takes, words_of
from dataflow.expressions.coercion import value_type
from dataflow.expressions.custom import AggregateKernel, PythonAggregate
from dataflow.expressions.nodes import Expr
from dataflow.expressions.text import render_receiver
from dataflow.expressions.typing import resolve

__all__ = ["Aggregation", "aggregate", "count", "identities", "stored_name"]

_MOST_NAME: Final = 120
"""Characters of an identity that the names of columns have."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Aggregation:
    """An aggregate of an expression, built by its methods such as ``col("x").sum()``.

    Like expressions, aggregations compare by identity; ``equals`` compares by structure.

    Args:
        kind: the aggregate.
        argument: the expression; None: count rows.
        name: the name of the result; empty: ``{column}_{kind}``, or the kind's word if there is no column.
        by: the expression that orders the rows of ``first``, ``last``, ``arg_min``, ``arg_max`` and ``to_list``.
        ddof: of ``variance`` and ``stddev``: the divisor is the number of values less ``ddof``.
        kernel: the user's own aggregate, for the kind KERNEL.
        ignore_nulls: make ``first``, ``last``, ``arg_min`` and ``arg_max`` skip rows where the argument is null.
        where: a predicate; only rows for which it is true are aggregated. None: all rows.
        q: of ``quantile``: the part of the values, from 0 to 1.
        functions: the user's functions, for the kind PYTHON.
        more: further expressions that the user's functions get, for the kind PYTHON.

    Raises: ValueError, TypeError for an argument that the kind lacks or does not take.

    >>> from dataflow.expressions import col
    >>> col("price").variance(ddof=0)
    col('price').variance(ddof=0)
    """

    kind: AggregateKind
    argument: Expr | None
    name: str = ""
    by: Expr | None = None
    ddof: int = 1
    kernel: AggregateKernel | None = None
    ignore_nulls: bool = False
    where: Expr | None = None
    q: float | None = None
    functions: PythonAggregate | None = None
    more: tuple[Expr, ...] = ()

    def __post_init__(self) -> None:
        kind = self._kind
        if self.argument is None and "argument" in kind.needs:
            raise ValueError(f"{self._word} needs a column: col(name).{self._word}()")
        if self.by is None and "by" in kind.needs:
            raise ValueError(f"{self._word} needs a column to compare: col(name).{self._word}(by)")
        if self.by is not None and ("by" not in kind.needs | kind.may_have or not isinstance(self.by, Expr)):
            raise TypeError(f"{self._word}(by=) takes a column's name or an expression, got {self.by!r}")
        if not isinstance(self.ignore_nulls, bool) or (self.ignore_nulls and not self.chooses_a_row):
            raise ValueError(
                f"{self._word}(ignore_nulls=) must be True or False, and only "
                f"{words_of(lambda each: each.chooses_a_row)} take it; got {self.ignore_nulls!r}"
            )
        if not isinstance(self.ddof, int) or self.ddof < 0 or (self.ddof != 1 and "ddof" not in kind.may_have):
            raise ValueError(f"{self._word}(ddof=) must be a whole number >= 0, got {self.ddof!r}")
        if self.where is not None and not isinstance(self.where, Expr):
            raise TypeError(f"{self._word}(where=) takes an expression such as col('x') > 0, got {self.where!r}")
        if ("q" in kind.needs) != (self.q is not None) or not _is_part(self.q):
            raise ValueError(f"quantile(q) takes a number from 0 to 1, got {self.q!r}")
        assert (self.kernel is not None) == ("kernel" in kind.needs), f"{self.kind} with {self.kernel}"
        assert (self.functions is not None) == ("functions" in kind.needs), f"{self.kind} of {self.functions}"
        if not self.name:
            object.__setattr__(self, "name", self._default_name())

    @property
    def _kind(self) -> Kind:
        return KINDS[self.kind]

    @property
    def chooses_a_row(self) -> bool:
        """True if the result is the argument's value in one row, as for first, last, arg_min and arg_max."""
        return self._kind.chooses_a_row

    @property
    def goes_by_arrival(self) -> bool:
        """True if the result may depend on the order in which rows arrive."""
        return self._kind.goes_by_arrival

    @property
    def orders_by_time(self) -> bool:
        """True if its rows are in order of event time, where the stream has one and no order is given."""
        return self._kind.orders_by_time and self.by is None

    @property
    def slides(self) -> bool:
        """True if sliding windows compute it: its cost for a row does not depend on how many rows are in the window."""
        return self._kind.slides

    @property
    def is_free_of_order(self) -> bool:
        """True if the result is the same, bit by bit, in whatever order rows are folded."""
        return self._kind.free_of_order

    @property
    def is_never_null(self) -> bool:
        """True if the result has a value, 0, where there is none to aggregate."""
        return self._kind.never_null

    @property
    def is_of_user(self) -> bool:
        """True if it is made of functions of the user's."""
        return self.kernel is not None or self.functions is not None

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """The expressions that are evaluated for each row: argument, ``more``, ``by`` and ``where``, those given."""
        return tuple(e for e in (self.argument, *self.more, self.by, self.where) if e is not None)

    @property
    def _word(self) -> str:
        return self.kind.value if self.kernel is None else self.kernel.name

    def _default_name(self) -> str:
        column = None if self.argument is None else self.argument._output_name()
        return self._word if column is None else f"{column}_{self._word}"

    def alias(self, name: str) -> Aggregation:
        """Return the same aggregate under another name."""
        return replace(self, name=name)

    def columns(self) -> tuple[str, ...]:
        """Return the columns referenced, in order of first use."""
        return tuple(dict.fromkeys(name for expression in self.expressions for name in expression.columns()))

    def dtype(self, schema: pa.Schema, where: str = "aggregate") -> pa.DataType:
        """Return the type of the result over rows of ``schema``; a dictionary counts as the type of its values.

        ======================  ============================  ==========================================================
        aggregate               takes                         gives
        ======================  ============================  ==========================================================
        count                   anything                      int64
        count_distinct          all but nested types          int64
        sum                     ints, floats, bools,          int64, uint64 of unsigned ints, float64, int64 of bools,
                                decimals, durations           decimal128(38, scale), the duration
        mean                    ints, floats, bools,          float64
                                decimals
        variance, stddev        ints, floats, decimals        float64
        min, max                all but nested types          the argument's type
        first, last,            all but nested types, and     the argument's type
        arg_min, arg_max        null; ``by`` numbers, bools
                                or times
        quantile                ints, floats, decimals,       float64, the duration
                                durations
        to_list                 all but nested types          a list of the argument's type
        a kernel                its declared ``takes``        its declared ``gives``
        aggregate_python        anything                      its declared ``returns``
        ======================  ============================  ==========================================================

        A sum of integers, durations or decimals never wraps: it raises OverflowError as soon as the running sum exceeds
        64 bits (or 38 digits). If it does so only for a while, this may depend on the order of rows, and on which of
        them were added up before a shuffle. The same holds for the last digits of a sum or mean of floats, and for
        infinity, if parts of it exceed the largest float.

        Raises: UnknownColumn; SchemaMismatch if the type has no such aggregate.
        """
        if self.where is not None:
            predicate = resolve(self.where, schema, where).dtype
            if not types.is_boolean(value_type(predicate)):
                raise SchemaMismatch(
                    f"{where}: {self._word}(where=) takes a predicate, but {self.where} is {predicate}; compare it, as "
                    "in col('x') > 0"
                )
        if self.argument is None:
            return pa.int64()
        given = resolve(self.argument, schema, where).dtype
        for expression in self.more:
            resolve(expression, schema, where)
        result = self._result(value_type(given))
        if result is None:
            raise SchemaMismatch(
                f"{where}: {self._word} takes {self._takes()}, but {self.argument} is {given}; to aggregate it as a "
                "number, .cast(type) it first (or, if it is read from text, give its type in schema= of the source), "
                "else write an operator of your own for stream.apply(...)"
            )
        if self.by is not None:
            order = resolve(self.by, schema, where).dtype
            if not (is_value if self._kind.orders_by_text else is_word)(value_type(order)):
                also = ", text" if self._kind.orders_by_text else ""
                raise SchemaMismatch(
                    f"{where}: {self._word} compares numbers{also}, booleans, dates or times, but {self.by} is "
                    f"{order}; to compare it as a number, .cast(type) it first"
                )
        return result

    def takes(self, schema: pa.Schema) -> bool:
        """Return whether the argument's type over rows of ``schema`` has this aggregate. Raises: UnknownColumn."""
        return self.argument is None or self._result(value_type(self.argument.dtype(schema))) is not None

    def _result(self, given: pa.DataType) -> pa.DataType | None:
        if self.kernel is not None:
            return self.kernel.gives if kernel_takes(given, self.kernel.takes) else None
        return self._kind.result(given) if self.functions is None else self.functions.returns

    def _takes(self) -> str:
        return self._kind.takes if self.kernel is None else f"values that become {self.kernel.takes}"

    def fingerprint(self) -> str:
        """Return the aggregate as text: equal for equal aggregates, stable between runs and versions."""
        alias = "" if self.name == self._default_name() else f".alias({self.name!r})"
        return f"{self.identity()}{alias}"

    def identity(self) -> str:
        """Return the fingerprint without the name of the result: equal for aggregates that compute the same.

        >>> from dataflow.expressions import col
        >>> col("price").sum().alias("total").identity()
        "col('price').sum()"
        """
        return self._text(self.argument, self.q)

    def group(self) -> str:
        """Return a text that is equal for aggregates that share state; it does not say which of them there are.

        They always choose the same row, or are quantiles of the same values. Others share with their like only.

        >>> from dataflow.expressions import col
        >>> {col(name).arg_max("price").group() for name in ("bidder", "channel")}
        {"arg_max(col('price'), ignore_nulls=False)"}
        """
        return self._text(None if self.chooses_a_row and not self.ignore_nulls else self.argument, None)

    def _text(self, argument: Expr | None, q: float | None) -> str:
        """Return the fingerprint, without a name, of this kind of aggregate of ``argument``."""
        more = [f"ignore_nulls={self.ignore_nulls}"] if self.chooses_a_row else []
        receiver = "" if argument is None else f"{render_receiver(argument)}."
        options = [f"ddof={self.ddof}"] if self.ddof != 1 else []
        if q is not None:
            options = [repr(float(q))]
        if self.by is not None:
            options = [f"{'' if 'by' in self._kind.needs else 'by='}{self.by.fingerprint()}"]
        where = [] if self.where is None else [f"where={self.where.fingerprint()}"]
        options += [expression.fingerprint() for expression in self.more]
        word = self._word if self.kernel is None else self.kernel.fingerprint
        if self.functions is not None:
            word = f"{word}:{self.functions.fingerprint}"
        return f"{receiver}{word}({', '.join([*options, *more, *where])})"

    def equals(self, other: Aggregation) -> bool:
        """Return whether ``other`` is the same aggregate under the same name."""
        return self.fingerprint() == other.fingerprint()

    def __repr__(self) -> str:
        return self.fingerprint()


def _is_part(q: object) -> bool:
    return q is None or (isinstance(q, int | float) and not isinstance(q, bool) and 0 <= q <= 1)


def identities(aggregations: Sequence[Aggregation]) -> list[str]:
    """Return the identity of each aggregate, with a number if another one before it has the same.

    Two aggregates of the user's may have it, because functions count by their source: what differs may be the values
    that they close over.

    >>> from dataflow.expressions import col
    >>> identities([col("x").sum(), col("y").sum(), col("x").sum().alias("again")])
    ["col('x').sum()", "col('y').sum()", "col('x').sum()"]
    """
    known: dict[str, list[object]] = {}
    found = []
    for a in aggregations:
        alike, functions = known.setdefault(a.identity(), []), a.kernel or a.functions
        if functions not in alike:
            alike.append(functions)
        number = alike.index(functions)
        found.append(f"{a.identity()} {number + 1}" if number else a.identity())
    return found


def stored_name(identity: str) -> str:
    """Return the beginning of the names of an aggregate's columns in a checkpoint: its identity, shortened if long.

    >>> stored_name("col('price').sum()")
    "col('price').sum()"
    >>> stored_name("x" * 1000) == stored_name("x" * 1000), stored_name("x" * 1000) == stored_name("x" * 1001)
    (True, False)
    """
    if len(identity) <= _MOST_NAME:
        return identity
    return f"{identity[:_MOST_NAME]}... {sha256(identity.encode()).hexdigest()[:16]}"


def aggregate(word: str, argument: Expr | None, **options: Any) -> Aggregation:
    """Return the aggregate of the kind with this word; ``options`` are attributes of ``Aggregation``.

    Raises: ValueError, TypeError as ``Aggregation``.

    >>> from dataflow.expressions import col
    >>> aggregate("first", col("x"), by=col("t"))
    col('x').first(by=col('t'), ignore_nulls=False)
    """
    return Aggregation(AggregateKind(word), argument, **options)


def count(*, where: Expr | None = None) -> Aggregation:
    """Return an aggregate that counts rows, as int64.

    Args:
        where: a predicate; only rows for which it is true are counted. None: all rows.

    Raises: TypeError if ``where`` is not an expression.

    >>> count().alias("bids")
    count().alias('bids')
    """
    return aggregate("count", None, where=where)
