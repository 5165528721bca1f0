"""Columns that are used several times and evaluated once.

Spark has no ``let``: a column that is used five times is five times in the plan, and nested ones multiply. A lambda
over an array of one element serves as ``let``. A plain column or a constant is cheap to repeat and needs none. Python
functions are not allowed in a lambda, and Spark evaluates each of them once, however often it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dataflow.expressions.calls import Call, Function
from dataflow.expressions.nodes import Alias, Column, Expr, Literal
from dataflow.runners.spark.session import functions

__all__ = ["Let", "Operand", "bind", "bind_both", "computes_for_python"]

Let = Callable[[Any, Callable[[Any], Any]], Any]
"""``let(column, use)`` returns ``use(column)``, with one evaluation of ``column`` for each row."""


class Operand:
    """A lowered operand, cast to the type of its operation. ``constant``: its value; None: it has one in each row."""

    __slots__ = ("column", "constant", "is_cheap", "let")

    def __init__(self, column: Any, node: Expr) -> None:
        self.column = column
        self.constant = node.value if isinstance(node, Literal) else None
        self.is_cheap = _is_cheap(node)
        self.let: Let = _repeat if _calls_python(node) else bind

    def bind(self, use: Callable[[Any], Any]) -> Any:
        """Return ``use(column)``, in which the column may occur any number of times."""
        return use(self.column) if self.is_cheap else self.let(self.column, use)


def bind_both(left: Operand, right: Operand, use: Callable[[Any, Any, Let], Any]) -> Any:
    """Return ``use(left, right, let)``, in which both may occur any number of times, also in arguments of ``let``."""
    if _repeat in (left.let, right.let):
        return use(left.column, right.column, _repeat)
    return left.bind(lambda a: right.bind(lambda b: use(a, b, bind)))


def bind(column: Any, use: Callable[[Any], Any]) -> Any:
    """Return ``use(column)`` with one evaluation of ``column`` for each row."""
    f = functions()
    return f.get(f.transform(f.array(column), lambda value: use(value)), 0)


def _repeat(column: Any, use: Callable[[Any], Any]) -> Any:
    return use(column)


def _is_cheap(node: Expr) -> bool:
    return isinstance(node, Column | Literal) or (isinstance(node, Alias) and _is_cheap(node.operand))


def _calls_python(node: Expr) -> bool:
    return _is_python(node) or any(_calls_python(operand) for operand in node.operands())


def computes_for_python(node: Expr) -> bool:
    """Return whether a Python function has a computed argument, which Spark computes even for rows that skip it."""
    here = _is_python(node) and not all(_is_cheap(operand) for operand in node.operands())
    return here or any(computes_for_python(operand) for operand in node.operands())


def _is_python(node: Expr) -> bool:
    return isinstance(node, Call) and node.function in (Function.HASH, Function.TRUNCATE, Function.LOCALIZE)
