"""Sliding windows: a kind without window columns, because each row has the window that ends with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dataflow.clock import Duration
from dataflow.contracts.window_kinds import window_length
from dataflow.contracts.windows import Assigned, Window

__all__ = ["Sliding", "sliding"]


@dataclass(frozen=True, slots=True)
class Sliding(Window):
    """For each row at time t the window (t - period, t], whose aggregates are columns beside those of the row.

    >>> str(Sliding(10_000_000))
    'sliding(10000000us)'
    """

    period: int

    def __str__(self) -> str:
        return f"sliding({self.period}us)"

    def complete(self, watermark: int) -> int:
        """Return the latest time of a row whose window ``watermark`` completes: rows at the watermark may still come.

        >>> Sliding(10).complete(50)
        49
        """
        return watermark - 1

    def assign(self, times: Any, batch: Any) -> Assigned:
        """Raise TypeError: the windows of a row end with later rows, which are not known yet."""
        raise TypeError(f"{self} has a window for each row, and an operator of its own: it assigns none")


def sliding(period: Duration) -> Sliding:
    """Return windows that end with each row: a row at time t has the rows of its key in (t - period, t].

    Rows of the same time see each other. There is one result for each row, with the columns of the row and then the
    aggregates, in the order of time; rows of equal times are in the order of arrival. It comes out when the watermark
    is above t. The cost of a row does not depend on the number of rows in its window.

    Args:
        period: the length of a window, above 0 and at most 100,000 days.

    Raises: ConfigurationError for a length out of range, or text that is no duration.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> table = pa.table({"k": ["a"] * 4, "x": [1, 2, 3, 4], "at": pa.array([1, 6, 12, 12], pa.timestamp("s"))})
    >>> rows = flow.Pipeline().source(op.from_arrow(table)).with_watermark("at")
    >>> sums = rows.key_by("k").window(op.sliding("10s")).agg(total=flow.col("x").sum()).collect()
    >>> [(row["x"], row["total"]) for row in sums.to_pylist()]
    [(1, 1), (2, 3), (3, 9), (4, 9)]
    """
    return Sliding(window_length(period, "sliding(period)"))
