"""An expression as the Python code that builds it, with only the parentheses it needs.

The text is the expression's fingerprint, stored in checkpoints: two trees have the same text if and only if they are
equal, and evaluating the text returns the tree.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Final

import pyarrow as pa

from dataflow.clock import exact_duration_text
from dataflow.expressions.calls import Call, Function
from dataflow.expressions.conditionals import Conditional
from dataflow.expressions.nodes import (
    Alias,
    Binary,
    BinaryOperator,
    Cast,
    Column,
    Expr,
    FillNull,
    IsIn,
    Literal,
    TryCast,
    Unary,
)
from dataflow.expressions.strings import WHITESPACE

__all__ = ["render", "render_receiver"]

# Python's own levels; a comparison does not associate, so both of its sides need parentheses.
_COMPARISON, _UNARY, _ATOM = 0, 5, 6
_LEVELS: Final = {
    BinaryOperator.OR: 1,
    BinaryOperator.AND: 2,
    BinaryOperator.ADD: 3,
    BinaryOperator.SUBTRACT: 3,
    BinaryOperator.MULTIPLY: 4,
    BinaryOperator.DIVIDE: 4,
    BinaryOperator.FLOOR_DIVIDE: 4,
    BinaryOperator.MODULO: 4,
}


def render(expr: Expr) -> str:
    """Return ``expr`` as text."""
    match expr:
        case Column(label):
            return f"col({label!r})"
        case Literal(value):
            return f"lit({_value(value)})"
        case Unary(operator, operand):
            if operator.value.isidentifier():
                return f"{_within(operand, _ATOM)}.{operator.value}()"
            return f"{operator.value}{_within(operand, _UNARY)}"
        case Binary(operator, left, right):
            level = _level(expr)
            left_text = render(left) if _needs_lit(expr) else _argument(left, level + (level == _COMPARISON))
            return f"{left_text} {operator.value} {_argument(right, level + 1)}"
        case FillNull(operand, replacement):
            return f"{_within(operand, _ATOM)}.fill_null({_argument(replacement, _COMPARISON)})"
        case Cast(operand, target):
            return f"{_within(operand, _ATOM)}.cast({_type(target)})"
        case TryCast(operand, target):
            return f"{_within(operand, _ATOM)}.cast({_type(target)}, strict=False)"
        case Call():
            return _call(expr)
        case Conditional(predicates, values, fallback):
            branches = zip(map(render, predicates), map(_bare, values), strict=True)
            chain = ".".join(f"when({predicate}).then({value})" for predicate, value in branches)
            closed = isinstance(fallback, Literal) and fallback.value is None
            return chain if closed else f"{chain}.otherwise({_bare(fallback)})"
        case IsIn(operand, values):
            return f"{_within(operand, _ATOM)}.is_in([{', '.join(map(_value, values))}])"
        case Alias(operand, label):
            return f"{_within(operand, _ATOM)}.alias({label!r})"
    raise AssertionError(f"no text for a {type(expr).__name__}")


def _call(call: Call) -> str:
    """Return ``receiver.word(parameters)`` without parameters that have their default."""
    word, _, literally = call.function.value.partition(", ")
    parameters = [repr(parameter) for parameter in call.parameters]
    match call.function:
        case Function.CONCAT:
            only_text = all([isinstance(each, Literal) and isinstance(each.value, str) for each in call.arguments])
            columns = ", ".join(map(render if only_text else _bare, call.arguments))
            separator = f", separator={parameters[0]}" if call.parameters[0] else ""
            return f"concat_str([{columns}]{separator})"
        case Function.FROM_EPOCH:
            return f"from_epoch({render(call.arguments[0])}, {parameters[0]})"
        case Function.STRIP:
            parameters = [] if call.parameters[0] == WHITESPACE else parameters
        case Function.ROUND:
            parameters = parameters if call.parameters[0] else []
        case Function.EXTRACT:
            parameters = parameters[:1] if call.parameters[1] == 1 else parameters
        case Function.TRUNCATE:
            every, offset = (repr(exact_duration_text(length)) for length in map(int, call.parameters))
            parameters = [every, *([f"offset={offset}"] if call.parameters[1] else [])]
        case Function.LOCALIZE:
            zone, *choices = parameters
            named = zip(("ambiguous", "missing"), choices, strict=True)
            parameters = [zone, *(f"{name}={choice}" for name, choice in named if choice != "'raise'")]
    if literally:
        parameters.append("literal=True")
    return f"{_within(call.arguments[0], _ATOM)}.{word}({', '.join(parameters)})"


def render_receiver(expr: Expr) -> str:
    """Return ``expr`` as text that ``.method()`` can follow."""
    return _within(expr, _ATOM)


def _level(expr: Expr) -> int:
    match expr:
        case Binary(operator):
            return _LEVELS.get(operator, _COMPARISON)
        case Unary(operator) if not operator.value.isidentifier():
            return _UNARY
    return _ATOM


def _within(expr: Expr, level: int) -> str:
    text = render(expr)
    return text if _level(expr) >= level else f"({text})"


def _needs_lit(expr: Binary) -> bool:
    """Return whether, with a bare left value, Python would swap the operands or not call our operator at all."""
    if not isinstance(expr.left, Literal):
        return False
    comparison = expr.operator not in _LEVELS
    return comparison or isinstance(expr.right, Literal) or not isinstance(expr.left.value, int | float | Decimal)


def _argument(expr: Expr, level: int) -> str:
    return _value(expr.value) if isinstance(expr, Literal) else _within(expr, level)


def _bare(expr: Expr) -> str:
    return _argument(expr, _COMPARISON)


def _value(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    return repr(value)


def _type(target: pa.DataType) -> str:
    text = "float32" if pa.types.is_float32(target) else str(target)  # pyarrow's "float" has two meanings
    try:
        named = pa.type_for_alias(text) == target
    except ValueError:
        named = False
    if named:
        return repr(text)
    if pa.types.is_timestamp(target):
        return f"pa.timestamp({target.unit!r}, {target.tz!r})"
    return f"pa.{text}"
