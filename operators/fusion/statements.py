"""Expressions as statements of a generated loop: one row at a time, exact by the table of ``dataflow.expressions``.

A value is a name and the name of its validity (None: never null). Integers of any width are int64 here, except uint64;
floats are float64, which holds every float32 exactly; times are their integers. An operation that would raise sets
``bad`` instead: the operators then process the batch again one by one, and raise the error with its place. So ``bad``
may be set without need, but must never be missed.

Numba converts an int64 combined with a uint64 to a float, so every literal has its type written out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dataflow.arrow_values import to_scalar
from dataflow.expressions import nodes
from dataflow.expressions.calls import Call, Function
from dataflow.expressions.coercion import literal_type
from dataflow.expressions.nodes import BinaryOperator, UnaryOperator
from dataflow.expressions.rounding import WHOLE, power_of_ten
from dataflow.expressions.typing import ARITHMETIC, COMPARISONS, LOGIC, Typed

__all__ = ["Kind", "Statements", "Unfusable", "LoopValue", "kind_of"]

Kind = Literal["int", "uint", "float", "bool"]

_MOST_LISTED = 16
"""The most values of an ``is_in`` for which a chain of comparisons pays: pyarrow hashes them."""

_O = BinaryOperator
_CASTS: Final = {"int": "int64", "uint": "uint64", "float": "float64"}


class Unfusable(Exception):
    """An expression without a loop; pyarrow computes it."""


@dataclass(frozen=True, slots=True)
class LoopValue:
    """The value of an expression in a row: source text of the value and of its validity."""

    code: str
    valid: str | None
    kind: Kind


def kind_of(dtype: pa.DataType) -> Kind | None:
    """Return the kind of variable that holds values of ``dtype`` in a loop; None if none does."""
    if types.is_boolean(dtype):
        return "bool"
    if types.is_float32(dtype) or types.is_float64(dtype):
        return "float"
    if types.is_uint64(dtype):
        return "uint"
    temporal = types.is_date(dtype) or types.is_time(dtype) or types.is_timestamp(dtype) or types.is_duration(dtype)
    return "int" if types.is_integer(dtype) or temporal else None


class Statements:
    """Collects the statements of one loop body. The argument ``column`` of methods returns a column by its name."""

    def __init__(self, prefix: str = "v") -> None:
        self.lines: list[str] = []
        self.checked = True
        self._prefix = prefix
        self._count = 0

    def name(self, code: str) -> str:
        """Assign ``code`` to a new variable and return its name."""
        self._count += 1
        name = f"{self._prefix}{self._count}"
        self.lines.append(f"{name} = {code}")
        return name

    def value(self, typed: Typed, column: Callable[[str], LoopValue]) -> LoopValue:
        """Add the statements that compute ``typed`` and return its value. Raises: Unfusable."""
        node = typed.node
        match node:
            case nodes.Column(label):
                return column(label)
            case nodes.Literal():
                return _constant(node.value, typed.dtype, typed.dtype)
            case nodes.Alias():
                return self.value(typed.operands[0], column)
            case nodes.Unary(UnaryOperator.IS_NULL | UnaryOperator.IS_NOT_NULL as operator):
                valid = self.value(typed.operands[0], column).valid
                code = "True" if valid is None else valid
                return LoopValue(code if operator is UnaryOperator.IS_NOT_NULL else f"(not {code})", None, "bool")
            case nodes.Cast(_, target):
                return self._convert(self.value(typed.operands[0], column), typed.operands[0].dtype, target)
            case nodes.IsIn():
                return self._is_in(node, typed, self._operand(typed, 0, column))
            case nodes.Unary(operator):
                return self._unary(operator, typed, self._operand(typed, 0, column))
            case Call(Function.ROUND, _, (int(digits),)):
                return self._round(typed, self._operand(typed, 0, column), digits)
            case nodes.FillNull():
                return self._fill_null(self._operand(typed, 0, column), self._operand(typed, 1, column))
            case nodes.Binary(operator):
                if (divisible := self._divisible(node, typed, column)) is not None:
                    return divisible
                left, right = self._operand(typed, 0, column), self._operand(typed, 1, column)
                return self._binary(operator, typed, left, right)
        raise Unfusable(f"{node}: no loop for a {type(node).__name__}")

    # --- operands

    def _operand(self, typed: Typed, which: int, column: Callable[[str], LoopValue]) -> LoopValue:
        operand, target = typed.operands[which], typed.compute[which]
        if isinstance(operand.node, nodes.Literal):
            return _constant(operand.node.value, operand.dtype, target)
        return self._convert(self.value(operand, column), operand.dtype, target)

    def _convert(self, value: LoopValue, source: pa.DataType, target: pa.DataType) -> LoopValue:
        """Return ``value`` as ``target``, by the rules of ``cast``, which include the implicit ones."""
        if source.equals(target):
            return value
        if not (_is_number(source) and _is_number(target)):
            raise Unfusable(f"no loop casts {source} to {target}")
        kind = kind_of(target)
        assert kind is not None, f"a number {target} has a kind"
        if kind == "bool":
            zero = "0.0" if value.kind == "float" else f"{_CASTS[value.kind]}(0)"
            return LoopValue(self.name(f"{value.code} != {zero}"), value.valid, kind)
        if kind == "float":
            return LoopValue(self.name(_as_float(value.code, target)), value.valid, kind)
        if value.kind == "float":
            return self._truncated(value, target, kind)
        self._within(value, target)
        return LoopValue(self.name(f"{_CASTS[kind]}({value.code})"), value.valid, kind)

    def _truncated(self, value: LoopValue, target: pa.DataType, kind: Kind) -> LoopValue:
        low, high = _range(target)
        whole = self.name(f"np.trunc({value.code})")
        fits = self.name(f"({whole} >= {float(low)!r}) & ({whole} < {float(high + 1)!r})")
        self._bad(f"not {fits}", value.valid)
        return LoopValue(self.name(f"{_CASTS[kind]}({whole} if {fits} else 0.0)"), value.valid, kind)

    def _within(self, value: LoopValue, target: pa.DataType) -> None:
        low, high = _range(target)
        match value.kind:
            case "int":
                if low > -(2**63):
                    self._bad(f"{value.code} < int64({low})", value.valid)
                if high < 2**63 - 1:
                    self._bad(f"{value.code} > int64({high})", value.valid)
            case "uint" if high < 2**64 - 1:
                self._bad(f"{value.code} > uint64({high})", value.valid)

    def _bad(self, condition: str, valid: str | None) -> None:
        if self.checked:
            self.lines.append(
                f"bad = bad | ({condition})" if valid is None else f"bad = bad | ({valid} & ({condition}))"
            )

    # --- operations

    def _unary(self, operator: UnaryOperator, typed: Typed, value: LoopValue) -> LoopValue:
        if operator is UnaryOperator.NOT:
            return LoopValue(self.name(f"not {value.code}"), value.valid, "bool")
        if not _is_number(typed.dtype):
            raise Unfusable(f"{typed.node}: no loop for {typed.dtype}")
        a, kind = value.code, value.kind
        if kind == "uint":
            assert operator is UnaryOperator.ABS, f"-x of {typed.dtype} is computed in int64"
            return value
        if kind == "int":
            self._bad(f"{a} == int64({-(2**63)})", value.valid)
        zero = "0.0" if kind == "float" else "int64(0)"
        minus = f"-{a}" if kind == "float" else f"{zero} - {a}"
        if operator is UnaryOperator.NEGATE:
            return LoopValue(self.name(minus), value.valid, kind)
        absolute = f"np.abs({a})" if kind == "float" else f"({minus}) if {a} < {zero} else {a}"
        return LoopValue(self.name(absolute), value.valid, kind)

    def _round(self, typed: Typed, value: LoopValue, digits: int) -> LoopValue:
        """Return the value with halves rounded away from zero, step by step as ``expressions.rounding`` does."""
        if value.kind in ("int", "uint") and digits >= 0:
            return value
        if value.kind != "float":
            raise Unfusable(f"{typed.node}: no loop rounds {typed.dtype} to {digits} digits")
        forth, back = "*/" if digits >= 0 else "/*"
        power = repr(power_of_ten(digits))
        scaled = self.name(f"{value.code} {forth} {power}")
        whole = self.name(f"np.trunc({scaled})")
        farther = f"{whole} + np.copysign(1.0, {scaled})"
        away = self.name(f"({farther}) if np.abs({scaled} - {whole}) >= 0.5 else {whole}")
        code = f"({away} {back} {power}) if np.abs({scaled}) < {WHOLE!r} else {value.code}"
        return LoopValue(self.name(code), value.valid, "float")

    def _binary(self, operator: BinaryOperator, typed: Typed, left: LoopValue, right: LoopValue) -> LoopValue:
        if operator in LOGIC:
            return self._kleene(operator, left, right)
        valid = self._both(left.valid, right.valid)
        if operator in COMPARISONS:
            a, b = (f"int64({side.code})" if side.kind == "bool" else side.code for side in (left, right))
            return LoopValue(self.name(f"{a} {operator.value} {b}"), valid, "bool")
        assert operator in ARITHMETIC, f"no statement for {operator}"
        if not all(map(_is_number, (typed.dtype, *typed.compute))):
            raise Unfusable(f"{typed.node}: no loop for {typed.dtype}")
        if left.kind == "float":
            if operator in (_O.FLOOR_DIVIDE, _O.MODULO):
                raise Unfusable(f"{typed.node}: no loop for {operator.value} of floats")
            return LoopValue(self.name(f"{left.code} {operator.value} {right.code}"), valid, "float")
        if operator in (_O.FLOOR_DIVIDE, _O.MODULO):
            return self._whole(operator, typed, left, right)
        return LoopValue(self._checked_int(operator, left, right, valid), valid, left.kind)

    def _checked_int(self, operator: BinaryOperator, left: LoopValue, right: LoopValue, valid: str | None) -> str:
        a, b = left.code, right.code
        if operator is _O.MULTIPLY:
            function = "multiply" if left.kind == "int" else "multiply_unsigned"
            result = self.name(f"{function}({a}, {b})")
            self._bad(f"{function}_overflows({a}, {b})", valid)
            return result
        result = self.name(f"{a} {operator.value} {b}")
        if left.kind == "uint":
            self._bad(f"{result} < {a}" if operator is _O.ADD else f"{a} < {b}", valid)
        elif operator is _O.ADD:  # the sum's sign differs from both
            self._bad(f"(({a} ^ {result}) & ({b} ^ {result})) < int64(0)", valid)
        else:
            self._bad(f"(({a} ^ {b}) & ({a} ^ {result})) < int64(0)", valid)
        return result

    def _kleene(self, operator: BinaryOperator, left: LoopValue, right: LoopValue) -> LoopValue:
        """Return ``&`` or ``|`` in Kleene's logic: a false side alone decides ``&``, a true side ``|``."""
        a, b = left.code, right.code
        result = self.name(f"{a} {operator.value} {b}")
        if left.valid is None and right.valid is None:
            return LoopValue(result, None, "bool")
        va, vb = left.valid or "True", right.valid or "True"
        decides = "not " if operator is _O.AND else ""
        valid = self.name(f"({va} & {vb}) | ({va} & ({decides}{a})) | ({vb} & ({decides}{b}))")
        return LoopValue(result, valid, "bool")

    def _fill_null(self, value: LoopValue, replacement: LoopValue) -> LoopValue:
        if value.valid is None:
            return value
        result = self.name(f"{value.code} if {value.valid} else {replacement.code}")
        valid = None if replacement.valid is None else self.name(f"{value.valid} | {replacement.valid}")
        return LoopValue(result, valid, value.kind)

    def _is_in(self, node: nodes.IsIn, typed: Typed, value: LoopValue) -> LoopValue:
        if len(node.values) > _MOST_LISTED:
            raise Unfusable(f"{node}: more than {_MOST_LISTED} values")
        listed = [_constant(each, literal_type(each), typed.compute[0]).code for each in node.values]
        comparisons = " | ".join(f"({value.code} == {each})" for each in listed) or "False"
        return LoopValue(self.name(comparisons), value.valid, "bool")

    def _both(self, left: str | None, right: str | None) -> str | None:
        if left is None or right is None:
            return left or right
        return left if left == right else self.name(f"{left} & {right}")

    # --- division of integers

    def _whole(self, operator: BinaryOperator, typed: Typed, left: LoopValue, right: LoopValue) -> LoopValue:
        divisor = _literal_int(typed.operands[1])
        if divisor is not None and divisor not in (0, -1):
            return self._by_literal(operator, left, divisor)
        valid = self._both(left.valid, right.valid)
        valid = self.name(f"({right.code} != {_CASTS[right.kind]}(0))" + (f" & {valid}" if valid else ""))
        return LoopValue(self._by_value(operator, left, right, valid), valid, left.kind)

    def _by_literal(self, operator: BinaryOperator, left: LoopValue, divisor: int) -> LoopValue:
        """Return code for a divisor known to the compiler, which multiplies and shifts instead of dividing."""
        a, floor = left.code, operator is _O.FLOOR_DIVIDE
        if left.kind == "uint":
            code = f"{'quotient' if floor else 'remainder'}_unsigned({a}, uint64({divisor}))"
        elif divisor & (divisor - 1) == 0 and divisor > 0:
            code = f"{a} >> int64({divisor.bit_length() - 1})" if floor else f"{a} & int64({divisor - 1})"
        else:
            rest = self.name(f"remainder({a}, int64({divisor}))")
            crosses = f"{rest} < int64(0)" if divisor > 0 else f"{rest} > int64(0)"
            code = (
                f"quotient({a}, int64({divisor})) - int64({crosses})"
                if floor
                else f"{rest} + (int64({divisor}) if {crosses} else int64(0))"
            )
        return LoopValue(self.name(code), left.valid, left.kind)

    def _by_value(self, operator: BinaryOperator, left: LoopValue, right: LoopValue, valid: str) -> str:
        a, b, floor = left.code, right.code, operator is _O.FLOOR_DIVIDE
        if left.kind == "uint":
            safe = self.name(f"uint64(1) if {b} == uint64(0) else {b}")
            return self.name(f"{'quotient' if floor else 'remainder'}_unsigned({a}, {safe})")
        minus = self.name(f"{b} == int64(-1)")
        safe = self.name(f"int64(1) if ({b} == int64(0)) | {minus} else {b}")
        rest = self.name(f"remainder({a}, {safe})")
        crosses = self.name(f"({rest} != int64(0)) & (({rest} < int64(0)) != ({safe} < int64(0)))")
        if not floor:
            return self.name(f"{rest} + ({safe} if {crosses} else int64(0))")
        self._bad(f"{minus} & ({a} == int64({-(2**63)}))", valid)
        return self.name(f"(int64(0) - {a}) if {minus} else quotient({a}, {safe}) - int64({crosses})")

    def _divisible(self, node: nodes.Binary, typed: Typed, column: Callable[[str], LoopValue]) -> LoopValue | None:
        """Return the value of ``x % 123 == 0``, else None: the sign does not matter, so it is cheaper."""
        left, right = typed.operands
        inner = left.node
        if node.operator not in (_O.EQUAL, _O.NOT_EQUAL) or _literal_int(right) != 0:
            return None
        if not (isinstance(inner, nodes.Binary) and inner.operator is _O.MODULO and types.is_int64(left.dtype)):
            return None
        divisor = _literal_int(left.operands[1])
        if divisor is None or divisor in (0, -1) or not types.is_int64(typed.compute[0]):
            return None
        value = self._operand(left, 0, column)
        code = f"remainder({value.code}, int64({divisor})) {node.operator.value} int64(0)"
        return LoopValue(self.name(code), value.valid, "bool")


def _is_number(dtype: pa.DataType) -> bool:
    return kind_of(dtype) is not None and not types.is_temporal(dtype)


def _range(dtype: pa.DataType) -> tuple[int, int]:
    info = np.iinfo(dtype.to_pandas_dtype())
    return int(info.min), int(info.max)


def _as_float(code: str, target: pa.DataType) -> str:
    return f"float64(float32({code}))" if types.is_float32(target) else f"float64({code})"


def _literal_int(typed: Typed) -> int | None:
    value = typed.node.value if isinstance(typed.node, nodes.Literal) else None
    return value if type(value) is int else None


def _constant(value: object, dtype: pa.DataType, target: pa.DataType) -> LoopValue:
    kind = kind_of(target)
    if kind is None or value is None:
        raise Unfusable(f"no loop for the constant {value!r} as {target}")
    scalar: Any = to_scalar(value, dtype)
    if not dtype.equals(target):
        scalar = pc.cast(scalar, options=pc.CastOptions(target, allow_float_truncate=types.is_integer(dtype)))
    if kind == "bool":
        return LoopValue(str(scalar.as_py()), None, kind)
    if kind == "float":
        number = float(scalar.as_py())
        return LoopValue(repr(number) if np.isfinite(number) else f"(np.{number})".replace("np.-", "-np."), None, kind)
    plain = scalar.as_py() if types.is_integer(target) else scalar.value
    return LoopValue(f"{_CASTS[kind]}({int(plain)})", None, kind)
