"""``latest``: several columns of the same row per key.

It is short for one ``last`` per column, all with the same ``by``. Aggregates with the same rule for the row share one
place in the state (``operators.aggregation.layout``), so the columns cannot come from different rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from dataflow.errors import GraphError
from dataflow.expressions.nodes import Expr

__all__ = ["Latest", "latest"]


@dataclass(frozen=True, slots=True, eq=False)
class Latest:
    """An argument for ``KeyedStream.agg``, returned by ``latest``: columns of the last row; none: all but the keys.

    Attributes:
        columns: names of columns, or expressions.
        by: the column or expression whose greatest value makes a row the last one; None: as for ``latest``.
        where: the predicate of the rows to choose from; None: all rows.

    >>> latest("status", "price", by="ts")
    Latest(columns=('status', 'price'), by='ts', where=None)
    """

    columns: tuple[str | Expr, ...]
    by: str | Expr | None
    where: Expr | None = None

    def alias(self, name: str) -> NoReturn:
        """Raise GraphError: several columns cannot share a name."""
        raise GraphError(
            f"latest makes several columns, which cannot share the name {name!r}; rename one column by an expression, "
            f"as in op.latest(col('x').alias({name!r}), ...)"
        )


def latest(*columns: str | Expr, by: str | Expr | None = None, where: Expr | None = None) -> Latest:
    """Return ``columns`` of the last row of each key, all of the same row. Nulls are values like others.

    Args:
        columns: names, or expressions whose names the results get; none: all columns but the keys.
        by: a column or expression of numbers, booleans or times: the row where it is greatest is the last; of several,
            the one that arrived last. NaN is greater than every number, null less. None: the event time if the
            stream has one, else arrival.
        where: a predicate: the row is chosen among those for which it is true; without one, all columns are null.

    Rows of one split arrive in their order. Over several splits, or after a shuffle from several subtasks, arrival may
    differ from run to run: give a ``by`` without ties where that matters.

    Returns: an argument for ``agg``, beside aggregates if need be.

    ``agg`` raises GraphError for an argument that is neither a name nor an expression with a name, and SchemaMismatch
    for a column of a nested type: name the others.

    >>> import pyarrow as pa
    >>> import dataflow as flow, operators as op
    >>> feed = pa.table({"id": [1, 2, 1], "status": ["new", "new", None], "price": [5, 7, None], "ts": [10, 20, 30]})
    >>> changes = flow.Pipeline().source(op.from_arrow(feed)).key_by("id")
    >>> changes.agg(op.latest("status", "price", by="ts")).collect().sort_by("id").to_pylist()
    [{'id': 1, 'status': None, 'price': None}, {'id': 2, 'status': 'new', 'price': 7}]
    """
    return Latest(columns, by, where)
