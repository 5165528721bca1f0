"""The aggregates an expression offers as methods. What they mean is said in ``aggregates`` and, word by word, here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataflow.expressions.aggregates import Aggregation
    from dataflow.expressions.nodes import Expr

__all__ = ["Aggregated"]


class Aggregated:
    """What all rows of a key or a window have to say about an expression; rows where it is null are put aside."""

    __slots__ = ()

    def count(self) -> Aggregation:
        """How many values are not null, as int64."""
        return _aggregation("count", self)

    def count_distinct(self) -> Aggregation:
        """How many different values there are, exactly, as int64: all NaNs are one value, and so are 0.0 and -0.0.

        The state holds every value of every key.
        """
        return _aggregation("count_distinct", self)

    def sum(self) -> Aggregation:
        """The sum of the values that are not null; null when there is none. Of booleans: how many are true."""
        return _aggregation("sum", self)

    def min(self) -> Aggregation:
        """The least value that is not null."""
        return _aggregation("min", self)

    def max(self) -> Aggregation:
        """The greatest value that is not null."""
        return _aggregation("max", self)

    def mean(self) -> Aggregation:
        """The mean of the values that are not null, as float64."""
        return _aggregation("mean", self)

    def variance(self, ddof: int = 1) -> Aggregation:
        """The variance as float64: squared deviations from the mean, divided by the number of values less ``ddof``.

        Null where there are not more than ``ddof`` values, NaN where one is NaN or infinite. Computed by Welford's
        recurrence, so of values far from zero and close to each other most digits are right (1e9 and
        1e9 + 1: to some 1e-7 of the variance).
        """
        return _aggregation("variance", self, ddof=ddof)

    def stddev(self, ddof: int = 1) -> Aggregation:
        """The standard deviation: the root of ``variance(ddof)``."""
        return _aggregation("stddev", self, ddof=ddof)

    def first(self, by: str | Expr | None = None) -> Aggregation:
        """The first value that is not null: in order of ``by``, or of arrival.

        Of rows with equal ``by``, the one that arrived first; rows whose ``by`` is null are put aside. Rows of one
        split arrive in their order; of several, or behind a shuffle, only ``by`` makes the answer the same each time.
        """
        return _aggregation("first", self, by=by)

    def last(self, by: str | Expr | None = None) -> Aggregation:
        """The last value that is not null, as ``first``; of rows with equal ``by``, the one that arrived last."""
        return _aggregation("last", self, by=by)

    def arg_min(self, by: str | Expr) -> Aggregation:
        """The value in the row where ``by`` is least, of several the one that arrived first.

        Rows where the value or ``by`` is null are put aside. NaN is greater than every number.
        """
        return _aggregation("arg_min", self, by=by)

    def arg_max(self, by: str | Expr) -> Aggregation:
        """The value in the row where ``by`` is greatest, as ``arg_min``."""
        return _aggregation("arg_max", self, by=by)


def _aggregation(kind: str, argument: Any, **options: Any) -> Aggregation:
    from dataflow.expressions.aggregates import AggregateKind, Aggregation
    from dataflow.expressions.nodes import col

    if isinstance(options.get("by"), str):
        options["by"] = col(options["by"])
    return Aggregation(AggregateKind(kind), argument, **options)
