"""Columns that are mentioned more than once and evaluated once.

Spark has no ``let``: a column used five times stands five times in the plan, and nested ones multiply. A lambda over an
array of one element is Spark's ``let``. A plain column or a constant is cheap to repeat and needs none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dataflow.expressions.nodes import Alias, Column, Expr, Literal
from dataflow.runners.spark.session import functions

__all__ = ["Operand", "bind"]


class Operand:
    """A lowered operand, already of the type of its operation."""

    __slots__ = ("column", "repeatable")

    def __init__(self, column: Any, node: Expr) -> None:
        while isinstance(node, Alias):
            node = node.operand
        self.column = column
        self.repeatable = isinstance(node, Column | Literal)

    def bind(self, use: Callable[[Any], Any]) -> Any:
        """``use(column)``, in which the column may occur any number of times."""
        return use(self.column) if self.repeatable else bind(self.column, use)


def bind(column: Any, use: Callable[[Any], Any]) -> Any:
    """``use(column)`` with one evaluation of ``column`` for each row."""
    f = functions()
    return f.get(f.transform(f.array(column), lambda value: use(value)), 0)
