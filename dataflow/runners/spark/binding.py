"""Columns that are mentioned more than once and evaluated once.

Spark has no ``let``: a column used five times stands five times in the plan, and nested ones multiply. A lambda over an
array of one element is Spark's ``let``. A plain column or a constant is cheap to repeat and needs none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dataflow.expressions.calls import Call, Function
from dataflow.expressions.nodes import Alias, Column, Expr, Literal
from dataflow.runners.spark.session import functions

__all__ = ["Operand", "bind"]


class Operand:
    """A lowered operand, already of the type of its operation."""

    __slots__ = ("column", "repeatable")

    def __init__(self, column: Any, node: Expr) -> None:
        self.column = column
        self.repeatable = _is_cheap(node) or _calls_python(node)

    def bind(self, use: Callable[[Any], Any]) -> Any:
        """``use(column)``, in which the column may occur any number of times."""
        return use(self.column) if self.repeatable else bind(self.column, use)


def _is_cheap(node: Expr) -> bool:
    return isinstance(node, Column | Literal) or (isinstance(node, Alias) and _is_cheap(node.operand))


def _calls_python(node: Expr) -> bool:
    """Python functions cannot stand in a lambda; Spark evaluates each once by itself."""
    own = isinstance(node, Call) and node.function in (Function.HASH, Function.TRUNCATE)
    return own or any(_calls_python(operand) for operand in node.operands())


def bind(column: Any, use: Callable[[Any], Any]) -> Any:
    """``use(column)`` with one evaluation of ``column`` for each row."""
    f = functions()
    return f.get(f.transform(f.array(column), lambda value: use(value)), 0)
