"""The nodes of the expression tree, and the Python operators that build it.

Nodes are frozen and independent of engines: typing is in ``typing``, the pyarrow lowering in ``evaluation``, the text
in ``text``. Because ``==`` builds a node, nodes compare and hash by identity; ``equals`` compares by structure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from enum import Enum
from typing import NoReturn, TypeVar, dataclass_transform

import pyarrow as pa

from dataflow.errors import GraphError
from dataflow.expressions.aggregated import Aggregated
from dataflow.expressions.literals import plain
from dataflow.expressions.methods import Methods

__all__ = [
    "Alias",
    "Binary",
    "BinaryOperator",
    "Cast",
    "Column",
    "Expr",
    "FillNull",
    "IsIn",
    "Literal",
    "TryCast",
    "Unary",
    "UnaryOperator",
    "col",
    "lit",
]


class UnaryOperator(Enum):
    """Operations on one operand; words are methods, signs are prefix operators."""

    NEGATE = "-"
    NOT = "~"
    ABS = "abs"
    IS_NULL = "is_null"
    IS_NOT_NULL = "is_not_null"


class BinaryOperator(Enum):
    """Operations on two operands."""

    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"
    DIVIDE = "/"
    FLOOR_DIVIDE = "//"
    MODULO = "%"
    EQUAL = "=="
    NOT_EQUAL = "!="
    LESS = "<"
    LESS_EQUAL = "<="
    GREATER = ">"
    GREATER_EQUAL = ">="
    AND = "&"
    OR = "|"


_Method = Callable[["Expr", object], "Expr"]


def _left_side(operator: BinaryOperator) -> _Method:
    return lambda own, other: Binary(operator, own, _operand(other))


def _both_sides(operator: BinaryOperator) -> tuple[_Method, _Method]:
    return _left_side(operator), lambda own, other: Binary(operator, _operand(other), own)


class Expr(Methods, Aggregated):
    """A column computed from the columns of a batch: a tree, built by operators, evaluated by an engine.

    >>> total = (col("price") * 0.9).alias("reduced")
    >>> total
    (col('price') * 0.9).alias('reduced')
    >>> total.name, total.columns()
    ('reduced', ('price',))
    >>> total.evaluate(pa.record_batch({"price": [10, None]})).to_pylist()
    [9.0, None]
    """

    __slots__ = ()
    __array_ufunc__ = None  # else a numpy scalar on the left would wrap the tree in an object array

    # -- for engines --------------------------------------------------------------------------------------------------

    def operands(self) -> tuple[Expr, ...]:
        """Return the nodes directly below, left to right.

        >>> (col("x") + 1).operands()
        (col('x'), lit(1))
        """
        return ()

    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns referenced, in order of first use.

        >>> (col("b") + col("a") * col("b")).columns()
        ('b', 'a')
        """
        return tuple(dict.fromkeys(_referenced(self)))

    def kernels(self) -> tuple[str, ...]:
        """Return the modules with compiled code that evaluating this calls: see ``Operator.kernels``.

        >>> col("x").hash().kernels(), (col("x") + 1).kernels()
        (('dataflow.state.kernels.hashing',), ())
        """
        return tuple(dict.fromkeys(name for operand in self.operands() for name in operand.kernels()))

    @property
    def name(self) -> str:
        """The name of the resulting column: the alias, else the leftmost column's name.

        Raises: GraphError if there is neither.
        """
        name = self._output_name()
        if name is None:
            raise GraphError(f"{self} refers to no column, so it has no name: add .alias(name)")
        return name

    def _output_name(self) -> str | None:
        return next((name for operand in self.operands() if (name := operand._output_name()) is not None), None)

    def is_column(self, name: str) -> bool:
        """Return whether this is the column ``name`` unchanged, under its own or another name.

        Args:
            name: the name of a column.

        >>> col("x").alias("y").is_column("x"), (col("x") + 1).is_column("x")
        (True, False)
        """
        return False

    def dtype(self, schema: pa.Schema, where: str = "expression") -> pa.DataType:
        """Return the type of the result over rows of ``schema``.

        Args:
            schema: the schema of the rows.
            where: the beginning of error messages.

        Raises: UnknownColumn; SchemaMismatch if an operation does not take its operands' types.

        >>> (col("x") / 2).dtype(pa.schema({"x": pa.int32()}))
        DataType(double)
        """
        from dataflow.expressions.typing import resolve

        return resolve(self, schema, where).dtype

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the values for ``batch``, one a row. For many batches, call ``compile_expression`` once instead.

        Args:
            batch: a batch with the columns of the expression.

        Returns: an array with one value a row.

        Raises:
            UnknownColumn: the batch lacks a column of the expression.
            SchemaMismatch: an operation does not take its operands' types.
            OverflowError: the result type cannot hold a value.
            ValueError: a cast cannot read a value.

        >>> (col("x") * 2).evaluate(pa.record_batch({"x": [1, None]})).to_pylist()
        [2, None]
        """
        from dataflow.expressions.evaluation import compile_expression

        return compile_expression(self, batch.schema)(batch)

    def fingerprint(self) -> str:
        """Return the expression as text: equal for equal trees, stable between runs and versions.

        >>> ((col("x") + 1) * 2).fingerprint()
        "(col('x') + 1) * 2"
        """
        from dataflow.expressions.text import render

        return render(self)

    def equals(self, other: Expr) -> bool:
        """Return whether ``other`` is the same expression (``==`` builds a comparison).

        Args:
            other: an expression.

        >>> (col("x") + 1).equals(col("x") + 1)
        True
        """
        return self.fingerprint() == other.fingerprint()

    def __repr__(self) -> str:
        return self.fingerprint()

    # -- for users ----------------------------------------------------------------------------------------------------

    __add__, __radd__ = _both_sides(BinaryOperator.ADD)
    __sub__, __rsub__ = _both_sides(BinaryOperator.SUBTRACT)
    __mul__, __rmul__ = _both_sides(BinaryOperator.MULTIPLY)
    __truediv__, __rtruediv__ = _both_sides(BinaryOperator.DIVIDE)
    __floordiv__, __rfloordiv__ = _both_sides(BinaryOperator.FLOOR_DIVIDE)
    __mod__, __rmod__ = _both_sides(BinaryOperator.MODULO)
    __and__, __rand__ = _both_sides(BinaryOperator.AND)
    __or__, __ror__ = _both_sides(BinaryOperator.OR)
    __eq__ = _left_side(BinaryOperator.EQUAL)  # type: ignore[assignment]
    __ne__ = _left_side(BinaryOperator.NOT_EQUAL)  # type: ignore[assignment]
    __lt__ = _left_side(BinaryOperator.LESS)
    __le__ = _left_side(BinaryOperator.LESS_EQUAL)
    __gt__ = _left_side(BinaryOperator.GREATER)
    __ge__ = _left_side(BinaryOperator.GREATER_EQUAL)
    __hash__ = object.__hash__

    def __neg__(self) -> Expr:
        return Unary(UnaryOperator.NEGATE, self)

    def __invert__(self) -> Expr:
        return Unary(UnaryOperator.NOT, self)

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{self} has no single truth value, but one for each row: use & | ~ instead of and/or/not, write a chain "
            f"(a < b < c) as (a < b) & (b < c), and compare expressions with .equals()"
        )

    def __contains__(self, value: object) -> NoReturn:
        raise TypeError(f"`{value!r} in {self}` has no row-wise meaning: use .is_in(values)")

    def __iter__(self) -> Iterator[NoReturn]:
        raise TypeError(f"{self} is one column, not a sequence: pass a list of expressions")

    def abs(self) -> Expr:
        """Return the absolute value.

        >>> col("x").abs().evaluate(pa.record_batch({"x": [-2, None]})).to_pylist()
        [2, None]
        """
        return Unary(UnaryOperator.ABS, self)

    def is_null(self) -> Expr:
        """Return whether the value is null (NaN is not).

        >>> col("x").is_null().evaluate(pa.record_batch({"x": [1, None]})).to_pylist()
        [False, True]
        """
        return Unary(UnaryOperator.IS_NULL, self)

    def is_not_null(self) -> Expr:
        """Return whether the value is not null (NaN is not null).

        >>> col("x").is_not_null().evaluate(pa.record_batch({"x": [1, None]})).to_pylist()
        [True, False]
        """
        return Unary(UnaryOperator.IS_NOT_NULL, self)

    def fill_null(self, value: object) -> Expr:
        """Replace nulls with ``value``.

        Args:
            value: a plain value, or an expression that is evaluated for the same row.

        Raises: TypeError or GraphError if ``value`` is neither.

        >>> col("x").fill_null(0).evaluate(pa.record_batch({"x": [1, None]})).to_pylist()
        [1, 0]
        """
        return FillNull(self, _operand(value))

    def cast(self, target: pa.DataType | str, *, strict: bool = True) -> Expr:
        """Convert the values to another type. Whole numbers count a timestamp's units; see ``from_epoch`` for others.

        A timestamp without a zone becomes one with a zone as if it were in UTC; ``dt.localize`` reads local times.

        Args:
            target: a pyarrow type or its name (``"int32"``, ``"timestamp[us, tz=UTC]"``).
            strict: raise during evaluation for a value that ``target`` cannot hold; False: make it null.

        Raises: GraphError for a name that is unknown, or ambiguous such as ``"float"``: see ``expressions.type_names``.

        >>> batch = pa.record_batch({"s": ["1", "x", None]})
        >>> col("s").cast("int64", strict=False).evaluate(batch).to_pylist()
        [1, None, None]
        """
        if isinstance(target, str):
            from dataflow.expressions.type_names import named_type

            target = named_type(target, "cast")
        if not isinstance(target, pa.DataType):
            raise TypeError(f"cast takes a pyarrow type or its name, got {target!r}")
        return Cast(self, target) if strict else TryCast(self, target)

    def is_in(self, values: Iterable[object]) -> Expr:
        """Return whether the value equals one of ``values``, or null if it is null.

        Args:
            values: plain values, such as a list or a set.

        Raises: TypeError if ``values`` is not a collection of plain values; GraphError if it contains None.

        >>> col("x").is_in([1, 2]).evaluate(pa.record_batch({"x": [1, 3, None]})).to_pylist()
        [True, False, None]
        """
        if isinstance(values, str | bytes | Expr):
            raise TypeError(f"is_in takes a collection of plain values, got {values!r}")
        ordered = sorted(values, key=repr) if isinstance(values, Set) else values
        listed = tuple(plain(value) for value in ordered)
        if any(value is None for value in listed):
            raise GraphError(f"{self}.is_in(...): nothing equals null: leave out None and add | {self}.is_null()")
        return IsIn(self, listed)

    def between(self, lower: object, upper: object) -> Expr:
        """Return ``(self >= lower) & (self <= upper)``: both ends are included.

        Args:
            lower: the smallest value that is included, plain or an expression.
            upper: the largest one.

        Raises: TypeError or GraphError if one of them is neither.

        >>> col("x").between(1, 2).evaluate(pa.record_batch({"x": [0, 1, 2]})).to_pylist()
        [False, True, True]
        """
        return (self >= _operand(lower)) & (self <= _operand(upper))

    def alias(self, name: str) -> Expr:
        """Return the same values under another name.

        Args:
            name: the name of the output column.

        Raises: TypeError if ``name`` is not text.

        >>> (col("x") + 1).alias("next").evaluate(pa.record_batch({"x": [1]})).to_pylist()
        [2]
        """
        if not isinstance(name, str):
            raise TypeError(f"alias takes a name, got {name!r}")
        return Alias(self, name)


_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, eq_default=False)
def _node(cls: type[_T]) -> type[_T]:
    return dataclass(frozen=True, slots=True, eq=False, repr=False)(cls)


@_node
class Column(Expr):
    """A column of the input."""

    label: str

    def _output_name(self) -> str:
        return self.label

    def is_column(self, name: str) -> bool:
        return self.label == name


@_node
class Literal(Expr):
    """A constant: None, bool, int, float, str, bytes, Decimal, date, time, datetime or timedelta."""

    value: object


@_node
class Unary(Expr):
    """An operation on one operand."""

    operator: UnaryOperator
    operand: Expr

    def operands(self) -> tuple[Expr, ...]:
        return (self.operand,)


@_node
class Binary(Expr):
    """An operation on two operands."""

    operator: BinaryOperator
    left: Expr
    right: Expr

    def operands(self) -> tuple[Expr, ...]:
        return (self.left, self.right)


@_node
class FillNull(Expr):
    """A replacement of nulls in ``operand`` by ``replacement``."""

    operand: Expr
    replacement: Expr

    def operands(self) -> tuple[Expr, ...]:
        return (self.operand, self.replacement)


@_node
class Cast(Expr):
    """A cast of ``operand`` to another type."""

    operand: Expr
    target: pa.DataType

    def operands(self) -> tuple[Expr, ...]:
        return (self.operand,)


@_node
class TryCast(Expr):
    """A cast of ``operand`` to another type, null where that type cannot hold the value."""

    operand: Expr
    target: pa.DataType

    def operands(self) -> tuple[Expr, ...]:
        return (self.operand,)


@_node
class IsIn(Expr):
    """A test whether ``operand`` equals one of ``values``; none of them is None."""

    operand: Expr
    values: tuple[object, ...]

    def operands(self) -> tuple[Expr, ...]:
        return (self.operand,)


@_node
class Alias(Expr):
    """A new name, ``label``, for ``operand``."""

    operand: Expr
    label: str

    def operands(self) -> tuple[Expr, ...]:
        return (self.operand,)

    def is_column(self, name: str) -> bool:
        return self.operand.is_column(name)

    def _output_name(self) -> str:
        return self.label


def col(name: str) -> Expr:
    """Return an expression for the column ``name`` of the input.

    Args:
        name: the name of a column.

    Raises: TypeError if ``name`` is not text.

    >>> (col("price") * 2).evaluate(pa.record_batch({"price": [3, None]})).to_pylist()
    [6, None]
    """
    if not isinstance(name, str):
        raise TypeError(f"col takes a column's name, got {name!r}; a constant is lit({name!r})")
    return Column(name)


def lit(value: object) -> Expr:
    """Return a constant expression. In an operation, a plain value is enough: ``col("x") + 1``.

    Args:
        value: None, bool, int, float, str, bytes, Decimal, date, time, datetime, timedelta or a numpy scalar.

    Raises: TypeError for a value no column can hold; GraphError for an int that 64 bits cannot hold.

    >>> lit(1).alias("one").evaluate(pa.record_batch({"x": [7, 8]})).to_pylist()
    [1, 1]
    """
    return Literal(plain(value))


def _operand(value: object) -> Expr:
    return value if isinstance(value, Expr) else Literal(plain(value))


def _referenced(expr: Expr) -> Iterator[str]:
    if isinstance(expr, Column):
        yield expr.label
    for operand in expr.operands():
        yield from _referenced(operand)
