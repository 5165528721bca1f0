"""Methods of a column: functions of numbers, and the namespaces ``str`` and ``dt``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
