"""Methods of a column: functions of numbers, and the namespaces ``str``, ``dt``, ``list`` and ``struct``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataflow.errors import GraphError

if TYPE_CHECKING:
    from dataflow.expressions.nested import ListMethods, StructMethods
    from dataflow.expressions.nodes import Expr
    from dataflow.expressions.strings import StringMethods
    from dataflow.expressions.temporal import TemporalMethods

__all__ = ["Methods"]


class Methods:
    """The base of ``Expr``, separate because in a class body with this property ``str`` no longer means the type."""

    __slots__ = ()

    @property
    def str(self: Expr) -> StringMethods:  # type: ignore[misc]
        """Functions of text."""
        from dataflow.expressions.strings import StringMethods

        return StringMethods(self)

    @property
    def dt(self: Expr) -> TemporalMethods:  # type: ignore[misc]
        """Functions of timestamps, dates and times of day."""
        from dataflow.expressions.temporal import TemporalMethods

        return TemporalMethods(self)

    @property
    def list(self: Expr) -> ListMethods:  # type: ignore[misc]
        """Functions of lists."""
        from dataflow.expressions.nested import ListMethods

        return ListMethods(self)

    @property
    def struct(self: Expr) -> StructMethods:  # type: ignore[misc]
        """Functions of structs."""
        from dataflow.expressions.nested import StructMethods

        return StructMethods(self)

    def round(self: Expr, digits: int = 0) -> Expr:  # type: ignore[misc]
        """Round to ``digits`` decimal places; halves are rounded away from zero.

        Ints and floats become 64 bits wide. A float is multiplied by a power of ten, rounded, and divided by it. A
        decimal keeps its scale, and gets one more digit in front if digits are cut off.

        Args:
            digits: how many places are kept after the point, at most 308; if it is negative, places before the point
                become zero.

        Raises: TypeError if ``digits`` is no int; GraphError if it is out of range; OverflowError, during evaluation,
        if a rounded int or decimal does not fit its type.

        >>> import pyarrow as pa
        >>> from dataflow.expressions import col
        >>> batch = pa.record_batch({"x": [2.5, -2.5, 1.245], "n": [15, -15, 14]})
        >>> col("x").round().evaluate(batch).to_pylist(), col("x").round(2).evaluate(batch).to_pylist()
        ([3.0, -3.0, 1.0], [2.5, -2.5, 1.25])
        >>> col("n").round(-1).evaluate(batch).to_pylist()
        [20, -20, 10]
        """
        from dataflow.expressions.calls import Call, Function

        if type(digits) is not int:
            raise TypeError(f"round takes a number of digits, the same for every row, got {digits!r}")
        if not -308 <= digits <= 308:
            raise GraphError(f"round: digits must be from -308 to 308, got {digits}")
        return Call(Function.ROUND, (self,), (digits,))

    def is_nan(self: Expr) -> Expr:  # type: ignore[misc]
        """Return whether a number is NaN, or null if it is null; no integer is NaN.

        >>> import pyarrow as pa
        >>> from dataflow.expressions import col
        >>> col("x").is_nan().evaluate(pa.record_batch({"x": [1.0, float("nan"), None]})).to_pylist()
        [False, True, None]
        """
        from dataflow.expressions.calls import Call, Function

        return Call(Function.IS_NAN, (self,))

    def is_finite(self: Expr) -> Expr:  # type: ignore[misc]
        """Return whether a number is neither NaN nor infinite, or null if it is null.

        >>> import pyarrow as pa
        >>> from dataflow.expressions import col
        >>> col("x").is_finite().evaluate(pa.record_batch({"x": [1.0, float("-inf"), None]})).to_pylist()
        [True, False, None]
        """
        from dataflow.expressions.calls import Call, Function

        return Call(Function.IS_FINITE, (self,))

    def hash(self: Expr) -> Expr:  # type: ignore[misc]
        """Return a 64-bit hash as int64: the same in every process, engine and release.

        A null stays null. The hash does not depend on the encoding of text or the width of ints; -0.0 hashes as 0.0,
        and all NaNs as one. Numbers and timestamps hash by their 64 bits, so ``1``, ``1.0`` and ``"1"`` differ, and so
        do times of different units. An adversary can find collisions.

        >>> import pyarrow as pa
        >>> from dataflow.expressions import col
        >>> (col("x").hash() % 4).evaluate(pa.record_batch({"x": ["a", "b", None]})).to_pylist()
        [1, 2, None]
        """
        from dataflow.expressions.calls import Call, Function

        return Call(Function.HASH, (self,))
