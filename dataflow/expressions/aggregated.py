"""The methods of an expression that return aggregates; see ``aggregates`` for their common rules.

``first``, ``last``, ``arg_min`` and ``arg_max`` choose a row and return its value, null or not, so several of them with
the same ``by`` return columns of the same row. With ``ignore_nulls=True`` each chooses among the rows where its own
value is not null, and their results may be of different rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataflow.expressions.aggregates import Aggregation
    from dataflow.expressions.nodes import Expr

__all__ = ["Aggregated"]


class Aggregated:
    """Aggregates over all rows of a key or a window; all but ``to_list`` and those that choose a row skip nulls.

    All take ``where``, a predicate such as ``col("price") > 100``: only rows for which it is true are aggregated, so
    rows for which it is false or null are as if they were not there. A result has the same name with and without it.

    >>> from dataflow.expressions import col
    >>> col("price").sum(where=col("status") == "sold").alias("sold")
    col('price').sum(where=col('status') == 'sold').alias('sold')
    """

    __slots__ = ()

    def count(self, *, where: Expr | None = None) -> Aggregation:
        """Return the number of values that are not null, as int64."""
        return _aggregation("count", self, where=where)

    def count_distinct(self, *, where: Expr | None = None) -> Aggregation:
        """Return the exact number of different values, as int64: all NaNs are one value, and so are 0.0 and -0.0.

        The state holds every value of every key.
        """
        return _aggregation("count_distinct", self, where=where)

    def sum(self, *, where: Expr | None = None) -> Aggregation:
        """Return the sum of the values that are not null; null if there is none. Of booleans: how many are true."""
        return _aggregation("sum", self, where=where)

    def min(self, *, where: Expr | None = None) -> Aggregation:
        """Return the least value that is not null."""
        return _aggregation("min", self, where=where)

    def max(self, *, where: Expr | None = None) -> Aggregation:
        """Return the greatest value that is not null."""
        return _aggregation("max", self, where=where)

    def mean(self, *, where: Expr | None = None) -> Aggregation:
        """Return the mean of the values that are not null, as float64."""
        return _aggregation("mean", self, where=where)

    def variance(self, ddof: int = 1, *, where: Expr | None = None) -> Aggregation:
        """Return the variance as float64: squared deviations from the mean over the number of values less ``ddof``.

        Null if there are not more than ``ddof`` values, NaN if one is NaN or infinite. Welford's recurrence keeps most
        digits for values far from zero and close to each other (1e9 and 1e9 + 1: to some 1e-7 of the variance).
        """
        return _aggregation("variance", self, ddof=ddof, where=where)

    def stddev(self, ddof: int = 1, *, where: Expr | None = None) -> Aggregation:
        """Return the standard deviation: the square root of ``variance(ddof)``."""
        return _aggregation("stddev", self, ddof=ddof, where=where)

    def first(
        self, by: str | Expr | None = None, *, ignore_nulls: bool = False, where: Expr | None = None
    ) -> Aggregation:
        """Return the value in the first row: in order of ``by``, or of arrival; the value may be null.

        Args:
            by: a column or expression of numbers, booleans or times. Of rows with equal ``by``, the one that arrived
                first is the first. NaN comes after every number. A row whose ``by`` is null is chosen only if ``by``
                is null in every row, and then by arrival. None: the event time if the stream has one, else arrival.
            ignore_nulls: skip rows where the value is null.
            where: choose among the rows for which this predicate is true.

        Rows of one split arrive in their order. Over several splits, or after a shuffle from several subtasks, arrival
        may differ from run to run: only a ``by`` without ties returns the same row each time.

        Null if there is no row. Raises: TypeError, ValueError for wrong arguments.

        >>> from dataflow.expressions import col
        >>> col("status").first("ts")
        col('status').first(by=col('ts'), ignore_nulls=False)
        """
        return _aggregation("first", self, by=by, ignore_nulls=ignore_nulls, where=where)

    def last(
        self, by: str | Expr | None = None, *, ignore_nulls: bool = False, where: Expr | None = None
    ) -> Aggregation:
        """Return the value in the last row, as ``first``; of rows with equal ``by``, the one that arrived last.

        ``op.latest`` does this for all columns of a row.

        >>> from dataflow.expressions import col
        >>> col("status").last(ignore_nulls=True)
        col('status').last(ignore_nulls=True)
        """
        return _aggregation("last", self, by=by, ignore_nulls=ignore_nulls, where=where)

    def arg_min(self, by: str | Expr, *, ignore_nulls: bool = False, where: Expr | None = None) -> Aggregation:
        """Return the value in the row where ``by`` is least, of several the one that arrived first; it may be null.

        Rows where ``by`` is null are skipped, as by ``min``; with ``ignore_nulls``, rows where the value is null as
        well. NaN is greater than every number. Null if no row is left.

        >>> from dataflow.expressions import col
        >>> col("bidder").arg_min("price")
        col('bidder').arg_min(col('price'), ignore_nulls=False)
        """
        return _aggregation("arg_min", self, by=by, ignore_nulls=ignore_nulls, where=where)

    def arg_max(self, by: str | Expr, *, ignore_nulls: bool = False, where: Expr | None = None) -> Aggregation:
        """Return the value in the row where ``by`` is greatest, as ``arg_min``; of several, the one that arrived first.

        >>> from dataflow.expressions import col
        >>> col("bidder").arg_max("price", ignore_nulls=True)
        col('bidder').arg_max(col('price'), ignore_nulls=True)
        """
        return _aggregation("arg_max", self, by=by, ignore_nulls=ignore_nulls, where=where)

    def quantile(self, q: float, *, where: Expr | None = None) -> Aggregation:
        """Return the exact quantile ``q`` of the values that are not null, interpolated linearly between two of them.

        Args:
            q: from 0 to 1: 0 is the least value, 0.5 the median, 1 the greatest.
            where: a predicate; only rows for which it is true count.

        It is float64, as ``quantile_cont`` of DuckDB and ``numpy.quantile`` compute it; of durations a duration, whose
        fraction of a unit is dropped. NaN comes after every number. Values are rounded to float64 first. The state
        holds every value of every key; quantiles of the same values share it.

        Null if there is no value. Raises: ValueError if ``q`` is not a number from 0 to 1.

        >>> from dataflow.expressions import col
        >>> col("latency").quantile(0.99).alias("p99")
        col('latency').quantile(0.99).alias('p99')
        """
        return _aggregation("quantile", self, q=q, where=where)

    def to_list(self, by: str | Expr | None = None, *, where: Expr | None = None) -> Aggregation:
        """Return the values of all rows as a list, nulls included: in order of ``by``, or of arrival.

        Args:
            by: a column or expression of numbers, text, booleans or times. Rows with equal ``by`` are in the order of
                their arrival, NaN comes after every number, and null last. None: the event time if the stream has one,
                else arrival.
            where: a predicate; only rows for which it is true are listed.

        The state holds every value of every key. In it -0.0 becomes 0.0, and all NaNs are one.

        Null if there is no row. Raises: TypeError for wrong arguments.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> from dataflow.expressions import col
        >>> visits = pa.table({"user": ["a", "b", "a"], "page": ["cart", "home", "home"], "ts": [20, 10, 10]})
        >>> pages = flow.Pipeline().source(op.from_arrow(visits)).key_by("user").agg(pages=col("page").to_list("ts"))
        >>> pages.collect().sort_by("user")["pages"].to_pylist()
        [['home', 'cart'], ['home']]
        """
        return _aggregation("to_list", self, by=by, where=where)


def _aggregation(word: str, argument: Any, **options: Any) -> Aggregation:
    from dataflow.expressions.aggregates import aggregate
    from dataflow.expressions.nodes import col

    if isinstance(options.get("by"), str):
        options["by"] = col(options["by"])
    return aggregate(word, argument, **options)
