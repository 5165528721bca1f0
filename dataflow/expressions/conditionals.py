"""``when(predicate).then(value)...``: each row takes the first branch whose predicate is true.

Branches are lazy, as in Python's ``if``: a predicate is evaluated only for rows that no earlier branch took, and a
value only for the rows that take it. So a value that cannot be computed for other rows raises nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from dataflow.errors import GraphError
from dataflow.expressions.nodes import Expr, Literal, _node, _operand

__all__ = ["Conditional", "When", "when"]


@_node
class Conditional(Expr):
    """A choice per row: ``values[n]`` where ``predicates[n]`` is the first that is true, ``fallback`` where none is."""

    predicates: tuple[Expr, ...]
    values: tuple[Expr, ...]
    fallback: Expr

    def operands(self) -> tuple[Expr, ...]:
        """Return predicate and value of each branch in turn, the fallback last."""
        branches = zip(self.predicates, self.values, strict=True)
        return (*(operand for branch in branches for operand in branch), self.fallback)

    def _output_name(self) -> str | None:
        named = (value._output_name() for value in (*self.values, self.fallback))
        return next((name for name in named if name is not None), None)

    def when(self, predicate: Expr) -> When:
        """Begin another branch, for rows that no earlier branch took."""
        self._open("when")
        return When(_predicate(predicate), self)

    def otherwise(self, value: object) -> Expr:
        """Return ``value`` (or another expression) where no predicate is true; without it such rows are null."""
        self._open("otherwise")
        return Conditional(self.predicates, self.values, _operand(value))

    def _open(self, word: str) -> None:
        if not (isinstance(self.fallback, Literal) and self.fallback.value is None):
            raise GraphError(f"{self}: .{word}() cannot follow .otherwise(), which closes the branches")


@dataclass(frozen=True, slots=True)
class When:
    """A branch that still needs its value: call ``then``.

    >>> from dataflow.expressions import col
    >>> when(col("x") > 1).then("large")
    when(col('x') > 1).then('large')
    """

    predicate: Expr
    earlier: Conditional | None = None

    def then(self, value: object) -> Conditional:
        """Set the branch's value (or expression). A plain str is a constant, not a column's name."""
        if self.earlier is None:
            return Conditional((self.predicate,), (_operand(value),), Literal(None))
        predicates, values = self.earlier.predicates, self.earlier.values
        return Conditional((*predicates, self.predicate), (*values, _operand(value)), Literal(None))


def when(predicate: Expr) -> When:
    """Begin a choice: ``when(p).then(x).when(q).then(y).otherwise(z)``.

    The result takes its name from the first value that has one; its type holds all values, as with ``fill_null``.

    Args:
        predicate: a boolean expression. A null is not true.

    Returns: an object whose ``then(value)`` gives the branch its value.

    Raises: TypeError if ``predicate`` is not an expression.

    >>> import pyarrow as pa
    >>> from dataflow.expressions import col
    >>> batch = pa.record_batch({"paid": [7, 9, None], "items": [2, 0, 3]})
    >>> each = when(col("items") != 0).then(col("paid") / col("items")).otherwise(0)
    >>> each
    when(col('items') != 0).then(col('paid') / col('items')).otherwise(0)
    >>> each.evaluate(batch).to_pylist()
    [3.5, 0.0, None]
    """
    return When(_predicate(predicate))


def _predicate(value: object) -> Expr:
    if isinstance(value, Expr | bool):
        return _operand(value)
    raise TypeError(f"when takes a condition such as col('x') > 0, got {value!r}")
