"""Expressions on Spark: the tree lowered to one ``pyspark.sql.Column``, with the local engine's semantics.

>>> from dataflow.expressions import col
>>> schema = pa.schema({"big": pa.uint64()})
>>> to_column(col("big") + 1, schema)
Traceback (most recent call last):
dataflow.errors.UnsupportedOnRunner: expression: col('big'): not on the spark runner: Spark has no type for the ...

``resolve`` decides all types and conversions; this module applies them. Two differences remain. Spark may skip a side
of ``&``, ``|`` or ``fill_null`` that does not matter, so errors of that side may not be raised. And Spark's timestamps
and durations are int64 microseconds: they raise ``OverflowError`` for values that only a coarser unit can hold.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from pyarrow import types

from dataflow.errors import UnsupportedOnRunner
from dataflow.expressions.calls import Call
from dataflow.expressions.coercion import family, integer_digits, literal_type, value_type
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
    UnaryOperator,
)
from dataflow.expressions.typing import COMPARISONS, LOGIC, Typed, resolve
from dataflow.runners.spark.expressions import numbers
from dataflow.runners.spark.expressions.casts import cast
from dataflow.runners.spark.expressions.function_calls import call
from dataflow.runners.spark.expressions.microseconds import PER_UNIT, from_ticks, to_ticks
from dataflow.runners.spark.expressions.run_time_errors import null
from dataflow.runners.spark.expressions.shared_columns import Operand, computes_for_python
from dataflow.runners.spark.expressions.spark_types import spark_type
from dataflow.runners.spark.session import check_settings, column, functions

__all__ = ["column_of", "to_column"]

_O, _U = BinaryOperator, UnaryOperator


def to_column(expr: Expr, schema: pa.Schema, where: str = "expression") -> Any:
    """Return the ``pyspark.sql.Column`` that computes ``expr``, with values of type ``spark_type(expr.dtype(schema))``.

    Errors in the data are raised when the job runs: ``translated`` turns them into the local engine's.

    Args:
        expr: the expression.
        schema: the Arrow schema of the rows; the DataFrame has the types of ``spark_schema(schema)``.
        where: start of the errors' messages.

    Raises: UnknownColumn, SchemaMismatch, as on any engine; UnsupportedOnRunner if Spark cannot compute it exactly;
        ConfigurationError without pyspark, without an active session, or with ANSI mode off.

    >>> from dataflow.expressions import col
    >>> to_column(col("y") + 1, pa.schema({"x": pa.int64()}))
    Traceback (most recent call last):
    dataflow.errors.UnknownColumn: ...
    """
    typed = _typed(expr, schema, where)
    check_settings()
    return _lower(typed, where)


def column_of(expr: Expr, schema: pa.Schema, where: str) -> Any:
    """Return the column of ``to_column`` for a session whose settings were checked."""
    return _lower(_typed(expr, schema, where), where)


def _typed(expr: Expr, schema: pa.Schema, where: str) -> Typed:
    """Return ``expr`` with its types, which Spark has. It needs no session."""
    typed = resolve(expr, schema, where)
    _refuse_foreign_types(typed, where)
    return typed


def _refuse_foreign_types(typed: Typed, where: str) -> None:
    for operand, target in zip(typed.operands, typed.compute, strict=True):
        _refuse_foreign_types(operand, where)
        spark_type(target, f"{where}: {typed.node}")
    if not isinstance(typed.node, Literal):  # a literal has the type of the operation around it
        spark_type(typed.dtype, f"{where}: {typed.node}")


def _lower(typed: Typed, where: str) -> Any:
    f, node = functions(), typed.node
    match node:
        case Column(label):
            return column(label)
        case Literal(value):
            return constant(value, typed.dtype, f"{where}: {node}")
    sides = [
        Operand(_operand(operand, target, where), operand.node)
        for operand, target in zip(typed.operands, typed.compute, strict=True)
    ]
    first = sides[0].column
    match node:
        case Alias(_, label):
            return first.alias(label)
        case Cast(_, target):
            return cast(sides[0], typed.operands[0].dtype, target, f"{where}: {node}")
        case TryCast(_, target):
            return cast(sides[0], typed.operands[0].dtype, target, f"{where}: {node}", otherwise=null)
        case Call():
            return call(node, sides, typed.compute, typed.dtype, f"{where}: {node}")
        case Conditional():
            return _choice(node, [side.column for side in sides], where)
        case IsIn(_, values):
            return _membership(first, values, typed.compute[0], f"{where}: {node}")
        case Unary(operator):
            return _UNARY[operator](first)
        case FillNull():
            return f.coalesce(*(side.column for side in sides))
        case Binary(operator):
            return _binary(operator, typed, *sides)
    raise AssertionError(f"no lowering for a {type(node).__name__}")


def _operand(typed: Typed, target: pa.DataType, where: str) -> Any:
    what = f"{where}: {typed.node}"
    if isinstance(typed.node, Literal):
        return constant(typed.node.value, target, what)
    return cast(Operand(_lower(typed, where), typed.node), typed.dtype, target, what)


def _choice(node: Conditional, parts: list[Any], where: str) -> Any:
    zeros = [value.value for value in (*node.values, node.fallback) if isinstance(value, Literal) and value.value == 0]
    if len({repr(value) for value in zeros if isinstance(value, float)}) > 1:
        reason = "Spark does not distinguish the constants 0.0 and -0.0"
        raise UnsupportedOnRunner(f"{where}: {node}", "spark", reason, "write 0.0, or make one of them from a column")
    if any(computes_for_python(operand) for operand in node.operands()[1:]):
        reason = "hash, dt.truncate and dt.localize would also get computed values of rows that do not take the branch"
        raise UnsupportedOnRunner(f"{where}: {node}", "spark", reason, "compute that value in a with_columns before it")
    f = functions()
    chosen = f
    for predicate, value in zip(parts[:-1:2], parts[1::2], strict=True):
        chosen = chosen.when(predicate, value)
    return chosen.otherwise(parts[-1])


def _membership(column: Any, values: tuple[object, ...], compute: pa.DataType, what: str) -> Any:
    """Return whether the column is in the list by IEEE equality: NaN is in no list, and the two zeros are equal."""
    f = functions()
    listed = [value for value in values if value == value]
    if types.is_floating(compute) and 0 in listed:
        listed = [*listed, 0.0, -0.0]
    if not listed:
        return f.when(column.isNotNull(), f.lit(False))  # noqa: FBT003
    return column.isin(*(constant(value, compute, what) for value in listed))


def _binary(operator: BinaryOperator, typed: Typed, left: Operand, right: Operand) -> Any:
    if operator in LOGIC:
        return left.column & right.column if operator is _O.AND else left.column | right.column
    if operator in COMPARISONS:
        if types.is_floating(typed.compute[0]):
            return numbers.compare_floats(operator, left, right)
        return numbers.COMPARE[operator](left.column, right.column)
    match family(typed.dtype):
        case "int" if operator in _INTS:
            return _INTS[operator](left, right)
        case "float" if operator in _FLOATS:
            return _FLOATS[operator](left, right)
        case "int" | "float":
            return _PLAIN[operator](left.column, right.column)
        case "decimal":
            a, b = (_exact(side.column, dtype) for side, dtype in zip((left, right), typed.compute, strict=True))
            return _PLAIN[operator](a, b).cast(spark_type(typed.dtype, str(typed.node)))
    a, b = (to_ticks(side.column, dtype) for side, dtype in zip((left, right), typed.compute, strict=True))
    return from_ticks(_PLAIN[operator](a, b), typed.dtype)


def _exact(column: Any, dtype: pa.DataType) -> Any:
    """Return an int operand of a decimal operation as a decimal with the digits of its type."""
    return column.cast(f"decimal({integer_digits(dtype)},0)") if types.is_integer(dtype) else column


_PLAIN: Final = {
    _O.ADD: lambda a, b: a + b,
    _O.SUBTRACT: lambda a, b: a - b,
    _O.MULTIPLY: lambda a, b: a * b,
}
_INTS: Final = {_O.FLOOR_DIVIDE: numbers.int_floor, _O.MODULO: numbers.int_remainder}
_FLOATS: Final = {
    _O.DIVIDE: numbers.divide,
    _O.FLOOR_DIVIDE: numbers.float_floor,
    _O.MODULO: numbers.float_remainder,
}
_UNARY: Final = {
    _U.NEGATE: lambda a: -a,
    _U.NOT: lambda a: ~a,
    _U.ABS: lambda a: functions().abs(a),
    _U.IS_NULL: lambda a: a.isNull(),
    _U.IS_NOT_NULL: lambda a: a.isNotNull(),
}
assert {*_UNARY} == {*_U}, "every operator is lowered"


def constant(value: object, target: pa.DataType, what: str) -> Any:
    """Return a column that is ``value`` in every row, cast to ``target`` as the local engine does.

    It is built from plain numbers and text, so that no value depends on a time zone.

    Raises: UnsupportedOnRunner if Spark has no such type.
    """
    f = functions()
    target = value_type(target)
    sparks = spark_type(target, what)
    scalar = _cast_scalar(value, target)
    if not scalar.is_valid:
        return f.lit(None).cast(sparks)
    if types.is_timestamp(target) or types.is_duration(target):
        return from_ticks(f.lit(scalar.value * PER_UNIT[target.unit]).cast("bigint"), target)
    if types.is_date(target):
        return f.date_from_unix_date(f.lit(scalar.cast(pa.date32()).value).cast("int"))
    if types.is_decimal(target):
        return f.lit(format(scalar.as_py(), "f")).cast(sparks)
    return f.lit(scalar.as_py()).cast(sparks)


def _cast_scalar(value: object, target: pa.DataType) -> Any:
    if type(value) is int and types.is_decimal(target):
        return pa.scalar(Decimal(value), target)
    if type(value) is int and types.is_floating(target):
        return pa.scalar(float(value), target)
    return pa.scalar(value, literal_type(value)).cast(target)
